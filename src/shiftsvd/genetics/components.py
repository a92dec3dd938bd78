"""Components of genotypes scaled as Patterson et al. (2006), and the Tracy-Widom test."""

from typing import Any, Final, NamedTuple

import numpy as np
from scipy.special import airy

from shiftsvd import LowRank, Operator
from shiftsvd.extend.operators import Panel, Vector, fused, gram_matrix, unmasked
from shiftsvd.extend.running import Resources, spare, threads
from shiftsvd.genetics.variants import Mask
from shiftsvd.operators import Scaled

MOST_EXACT: Final = 5000  # samples whose n x n relationship matrix is formed, if it fits
PROBES: Final = 256  # random signs of the estimate


def squared_trace(
    Z: Operator, U: Panel, S: Vector, total: float, rng: np.random.Generator, resources: Resources
) -> tuple[float, float]:
    # ||Z Z^H||_F^2 of centred samples x variants, given leading singular vectors and values and ||Z||_F^2, and its
    # standard error. Up to 5000 samples, where memory allows, form Z Z^H: one read and m^2 n operations, no error. For
    # more, the leading eigenvalues are known, and so is the mean c of the others, by the trace. Estimate the sum of
    # their squared distances from c, which the effective number of markers depends on, as the mean of
    # ||P (Z Z^H - c) P w||^2 over random signs w, where P removes the leading vectors and the mean: two reads
    # (Hutchinson 1990; with vectors removed, Meyer et al. 2021).
    m = Z.shape[0]
    with threads(resources.n_threads):
        if m <= MOST_EXACT and spare(4 * 8 * m * m, resources.memory_limit):
            return float((gram_matrix(fused(Z.H, np.inf)) ** 2).sum()), 0.0
        known = np.column_stack([U, np.full(m, m**-0.5)])
        signs = rng.choice([-1.0, 1.0], (m, PROBES))
        beyond = signs - known @ (known.T @ signs)
        product = Z.matmat(Z.rmatmat(beyond.astype(Z.dtype))).astype(np.float64)
    rest, rank = total - float((S**2).sum()), m - known.shape[1]
    c = rest / max(rank, 1)
    squares = ((product - known @ (known.T @ product) - c * beyond) ** 2).sum(axis=0)
    value = float((S**4).sum() + squares.mean()) + 2 * c * rest - c**2 * rank
    return value, float(squares.std(ddof=1) / np.sqrt(PROBES))


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(80)  # on (-1, 1); with 80 nodes the law is known to rounding
_LENGTH: Final = 18.0  # of the interval above s in which the kernel is not zero, for s down to _LOWEST
_LOWEST: Final = -12.0  # below it the law is 0 to 1e-60
_HIGHEST: Final = 200.0  # above it the tail is below the smallest double: exp(-2/3 s^1.5)
_FEWEST: Final = 10  # eigenvalues of a test, as in EIGENSOFT's twstats


class TracyWidom(NamedTuple):
    """The test of each component: whether it is larger than the largest of as many eigenvalues of noise.

    Parameters
    ----------
    statistics : array of shape (k,)
        NaN where fewer than 10 eigenvalues are left, or none of them is above zero.
    p_values : array of shape (k,)
        Right tails of the Tracy-Widom law of order 1. A component is judged as if those before it were structure, so
        read them in order, and stop at the first that is not significant.
    effective_markers : array of shape (k,)
        How many independent markers have as much spread of eigenvalues.
    errors : array of shape (k,)
        Standard errors of the statistics where the sum of squared eigenvalues was estimated; 0 where it was computed.

    See Also
    --------
    genetics.pca : ``tracy_widom=True`` gives one.

    Examples
    --------
    >>> import numpy as np, tempfile, shiftsvd.genetics
    >>> from bed_reader import to_bed
    >>> G = np.random.default_rng(0).integers(0, 3, (20, 50)).astype(np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     to_bed(f"{folder}/a.bed", G)
    ...     test = shiftsvd.genetics.pca(f"{folder}/a.bed", 2, tracy_widom=True).tracy_widom
    >>> test.statistics.shape, test.p_values.shape
    ((2,), (2,))
    """

    statistics: Vector
    p_values: Vector
    effective_markers: Vector
    errors: Vector


def tracy_widom(
    eigenvalues: Any, rank: int, total: float, total_of_squares: float, standard_error: float = 0.0
) -> TracyWidom:
    """Test the leading eigenvalues of a relationship matrix of centred genotypes.

    Parameters
    ----------
    eigenvalues : array of shape (k,)
        The largest eigenvalues, in falling order.
    rank : int
        How many eigenvalues there are above zero: one less than samples, which centring takes, or as many as variants.
    total, total_of_squares : float
        The trace of the matrix, and that of its square: sums over all eigenvalues.
    standard_error : float
        Of the trace of the square, where it is an estimate.

    Returns
    -------
    TracyWidom
        Statistics and p values of the components, in the order of the eigenvalues.

    See Also
    --------
    genetics.pca : ``tracy_widom=True`` tests the components that it finds.
    suggest_k : Rules that take any matrix.

    Notes
    -----
    Patterson, Price & Reich (2006), "Population structure and eigenanalysis", PLoS Genetics 2, e190, equations 5 to 7
    and 10; centred and scaled as Johnstone (2001) does. Equal to EIGENSOFT's ``twstats`` given all eigenvalues.

    Examples
    --------
    >>> import numpy as np
    >>> from shiftsvd.genetics import tracy_widom
    >>> Z = np.random.default_rng(0).standard_normal((50, 400))
    >>> values = np.linalg.svd(Z - Z.mean(axis=0), compute_uv=False)[:49] ** 2 / 400
    >>> found = tracy_widom(values[:2], 49, values.sum(), (values**2).sum())
    >>> found.p_values.round(2)
    array([0.55, 0.51])
    """
    values = np.asarray(unmasked("eigenvalues", eigenvalues), np.float64)
    m = rank - np.arange(len(values), dtype=np.float64)
    sums, squares = (
        all_of - np.concatenate([[0], np.cumsum(powers)[:-1]])
        for all_of, powers in ((total, values), (total_of_squares, values**2))
    )
    statistics, markers = _statistics(values, m, sums, squares)
    shifted = _statistics(values, m, sums, squares + standard_error)[0] if standard_error else statistics
    return TracyWidom(statistics, upper_tail(statistics), markers, np.abs(shifted - statistics))


def _statistics(values: Vector, m: Vector, sums: Vector, squares: Vector) -> tuple[Vector, Vector]:
    with np.errstate(divide="ignore", invalid="ignore"):
        markers = (m + 2) * sums**2 / (m * squares - sums**2)
        largest = m * values * markers / sums
        # The law is that of p x n noise, and p the smaller of both.
        p, n = np.minimum(m, markers), np.maximum(m, markers)
        root, inverse = np.sqrt(n - 1) + np.sqrt(p), 1 / np.sqrt(n - 1) + 1 / np.sqrt(p)
        statistics = (largest - root**2) / (root * np.cbrt(inverse))
    known = (m >= _FEWEST) & (sums > 0) & (values > 0) & (markers > 0)
    return np.where(known, statistics, np.nan), np.where(known, markers, np.nan)


def upper_tail(statistics: Any) -> Vector:
    # 1 - F_1 to 13 digits, small tails too. F_1(s) = det(1 - K) with the kernel Ai((x + y) / 2) / 2 on (s, inf):
    # Ferrari & Spohn (2005), "A determinantal formula for the GOE Tracy-Widom distribution"; by Gauss-Legendre
    # quadrature as Bornemann (2010), "On the numerical evaluation of Fredholm determinants", Math. Comp. 79,
    # 871-915.
    flat = np.atleast_1d(np.asarray(statistics, np.float64))
    return np.array([_tail(float(s)) for s in flat]).reshape(np.shape(statistics))


def _tail(s: float) -> float:
    if np.isnan(s):
        return float("nan")
    if s < _LOWEST or s > _HIGHEST:
        return float(s < _LOWEST)
    # The kernel decays in (x + y) / 2: from 0 on within less than six.
    length = _LENGTH + max(0.0, -s)
    x, w = s + length * ((_NODES + 1) / 2), np.sqrt(length * (_WEIGHTS / 2))
    kernel = w[:, None] * airy((x[:, None] + x) / 2)[0] / 2 * w
    eigenvalues = np.linalg.eigvalsh(kernel)
    # The logarithm of each factor 1 - lambda, so that a tail of 1e-40 keeps its digits. At least 0: rounding leaves
    # -0.0 or less of tails beyond all digits.
    return max(0.0, -float(np.expm1(np.log1p(-np.minimum(eigenvalues, 1 - 1e-16)).sum())))


def patterson(mean: Vector) -> tuple[Vector, Mask]:
    p = mean / 2
    # A frequency that is not 0 or 1 is at least one allele among all samples away from it.
    used = (p > 1e-12) & (p < 1 - 1e-12)
    return np.sqrt(2 * p * (1 - p), out=np.ones_like(p), where=used), used


class Patterson(NamedTuple):
    """Genotypes of the samples that components are learned on, and how they are centred and scaled."""

    A: Operator
    mean: Vector
    scale: Vector
    both: Mask  # variants of which the samples have both alleles
    total: float  # the trace of the relationship matrix, times the variants used

    @classmethod
    def of(cls, A: Operator) -> "Patterson":
        moments = A.moments()
        assert moments.M2 is not None
        scale, both = patterson(moments.mean)
        # A monomorphic variant is a constant: minus it, it is 0 and takes no part.
        mean = np.where(both, moments.mean, np.round(moments.mean))
        return cls(A, mean, scale, both, float((moments.M2[both] / scale[both] ** 2).sum()))

    def scaled(self, A: Operator) -> Operator:
        return Scaled(A - LowRank(np.ones(A.shape[0]), self.mean), None, self.both / self.scale)

    def tested(self, U: Panel, S: Vector, rng: np.random.Generator, resources: Resources) -> TracyWidom:
        n_used = int(np.count_nonzero(self.both))
        squared, error = squared_trace(self.scaled(self.A), U, S, self.total, rng, resources)
        rank = min(self.A.shape[0] - 1, n_used)
        return tracy_widom(S**2 / n_used, rank, self.total / n_used, squared / n_used**2, error / n_used**2)
