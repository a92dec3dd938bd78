"""Components of genotypes scaled as Patterson et al. (2006), and the Tracy-Widom test."""

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import airy

from shiftsvd import LowRank, Operator, SVDResult, svd
from shiftsvd.extend.files import operator_of, several
from shiftsvd.extend.operators import Panel, Vector, fused, gram_matrix, unmasked
from shiftsvd.extend.running import Resources, spare, threads
from shiftsvd.genetics.files import Parts, filled, joined, of_samples, some_of
from shiftsvd.genetics.scan import SelectionScan, selection_scan
from shiftsvd.genetics.selection import Cohort
from shiftsvd.genetics.variants import Mask
from shiftsvd.operators import Scaled

MOST_EXACT: Final = 5000  # samples whose n x n relationship matrix is formed, if it fits
PROBES: Final = 256  # of the estimate


class SquaredTrace(NamedTuple):
    """The sum of the squared eigenvalues of ``Z Z^H``, and its standard error; 0 where it was computed."""

    value: float
    standard_error: float


def squared_trace(
    Z: Operator, U: Panel, S: Vector, total: float, rng: np.random.Generator, resources: Resources
) -> SquaredTrace:
    """``||Z Z^H||_F^2`` of centred samples x variants, given leading singular vectors and values, and ``||Z||_F^2``.

    Notes
    -----
    Up to 5000 samples, where there is room, ``Z Z^H`` is formed: one read and m^2 n operations. For more, the leading
    eigenvalues are known, and so is the mean c of the others, by the trace. What is estimated is the sum of their
    squared distances from c, which the effective number of markers depends on: the mean of ``||P (Z Z^H - c) P w||^2``
    over 256 random signs w, where P takes out the leading vectors and the mean. Two reads (Hutchinson 1990; with
    vectors taken out, Meyer et al. 2021).
    """
    m = Z.shape[0]
    with threads(resources.n_threads):
        if m <= MOST_EXACT and spare(4 * 8 * m * m, resources.memory_limit):
            return SquaredTrace(float((gram_matrix(fused(Z.H, np.inf)) ** 2).sum()), 0.0)
        known = np.column_stack([U, np.full(m, m**-0.5)])
        signs = rng.choice([-1.0, 1.0], (m, PROBES))
        beyond = signs - known @ (known.T @ signs)
        product = Z.matmat(Z.rmatmat(beyond.astype(Z.dtype))).astype(np.float64)
    rest, rank = total - float((S**2).sum()), m - known.shape[1]
    c = rest / max(rank, 1)
    squares = ((product - known @ (known.T @ product) - c * beyond) ** 2).sum(axis=0)
    value = float((S**4).sum() + squares.mean()) + 2 * c * rest - c**2 * rank
    return SquaredTrace(value, float(squares.std(ddof=1) / np.sqrt(PROBES)))


_NODES: Final = 80  # of the quadrature: with them the law is known to rounding
_LENGTH: Final = 18.0  # of the interval above s in which the kernel is not zero, for s down to _LOWEST
_LOWEST: Final = -12.0  # below it the law is 0 to 1e-60
_HIGHEST: Final = 200.0  # above it the law is 1, and its tail below the smallest double: exp(-2/3 s^1.5)
_FEWEST: Final = 10  # eigenvalues that a test takes, as EIGENSOFT's twstats


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
        Standard errors of the statistics, of the sum of squares that was estimated; 0 where it was computed.

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
    """The test for the leading eigenvalues of a relationship matrix of centred genotypes.

    Parameters
    ----------
    eigenvalues : array of shape (k,)
        The largest ones, in falling order.
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
    before = np.concatenate([[0], np.cumsum(values)[:-1]]), np.concatenate([[0], np.cumsum(values**2)[:-1]])
    sums, squares = total - before[0], total_of_squares - before[1]
    found = _statistics(values, m, sums, squares)
    if standard_error:
        shifted = _statistics(values, m, sums, squares + standard_error)[0]
        errors = np.abs(shifted - found[0])
    else:
        errors = np.where(np.isnan(found[0]), np.nan, 0.0)
    return TracyWidom(found[0], upper_tail(found[0]), found[1], errors)


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
    """The probability that the Tracy-Widom law of order 1 exceeds each of these, to 13 digits, small ones too.

    Notes
    -----
    ``F_1(s) = det(1 - K)`` with the kernel ``Ai((x + y) / 2) / 2`` on ``(s, inf)``: Ferrari & Spohn (2005), "A
    determinantal formula for the GOE Tracy-Widom distribution"; by Gauss-Legendre quadrature as Bornemann (2010), "On
    the numerical evaluation of Fredholm determinants", Math. Comp. 79, 871-915.
    """
    flat = np.atleast_1d(np.asarray(statistics, np.float64))
    return np.array([_tail(float(s)) for s in flat]).reshape(np.shape(statistics))


def _tail(s: float) -> float:
    if np.isnan(s):
        return float("nan")
    if s < _LOWEST:
        return 1.0
    if s > _HIGHEST:
        return 0.0
    nodes, weights = _quadrature()
    # The kernel falls with (x + y) / 2: above zero within less than six of it, so that 18 holds all where it is large.
    length = _LENGTH + max(0.0, -s)
    x, w = s + length * nodes, np.sqrt(length * weights)
    kernel = w[:, None] * airy((x[:, None] + x) / 2)[0] / 2 * w
    eigenvalues = np.linalg.eigvalsh(kernel)
    # Of each factor 1 - lambda the logarithm, so that a tail of 1e-40 keeps its digits.
    # At least 0: of tails beyond all digits, rounding leaves -0.0 or less.
    return max(0.0, -float(np.expm1(np.log1p(-np.minimum(eigenvalues, 1 - 1e-16)).sum())))


@lru_cache(maxsize=1)
def _quadrature() -> tuple[Vector, Vector]:
    x, w = np.polynomial.legendre.leggauss(_NODES)
    return (x + 1) / 2, w / 2


class Patterson(NamedTuple):
    """Genotypes of the samples that components are learned on, and what is done to them."""

    A: Operator
    mean: Vector
    scale: Vector
    both: Mask  # variants of which they have both alleles
    total: float  # the trace of the relationship matrix, times the variants used

    @property
    def Z(self) -> Operator:
        return Scaled(self.A - LowRank(np.ones(self.A.shape[0]), self.mean), None, self.both / self.scale)


def patterson_matrix(cohort: Cohort, resources: Resources, stream: bool | None) -> Patterson:
    A, _ = operator_of(cohort.paths, joined(cohort.training), resources, stream)
    moments = A.moments()
    assert moments.M2 is not None
    scale, both = patterson(moments.mean)
    # A monomorphic variant is a constant: minus it, it is 0 and takes no part.
    mean = np.where(both, moments.mean, np.round(moments.mean))
    return Patterson(A, mean, scale, both, float((moments.M2[both] / scale[both] ** 2).sum()))


def decomposed(matrix: Patterson, k: int, resources: Resources, **how: Any) -> SVDResult:
    return svd(matrix.A, k, shift=matrix.mean, scale=matrix.scale, **how, **vars(resources))


def everybody(cohort: Cohort, matrix: Patterson, F: SVDResult, resources: Resources, stream: bool | None) -> Panel:
    """Eigenvectors of all samples: of those that components were learned on, and of the others by projection.

    A missing genotype of a projected sample is the mean of those that were not projected. One read where any is.
    """
    U = F.U.astype(np.float64)
    if cohort.learned is None or cohort.learned.all():
        return U
    others = filled_others(cohort, matrix.mean)
    B, _ = operator_of(cohort.paths, joined(others), resources, stream)
    Z = Scaled(B - LowRank(np.ones(B.shape[0]), matrix.mean), None, matrix.both / matrix.scale)
    S = F.S.astype(np.float64)
    lengths = np.where(S > np.finfo(np.float32).eps * S[0], S, np.inf)
    out = np.empty((len(cohort.learned), len(S)))
    out[cohort.learned] = U
    out[~cohort.learned] = Z.matmat(np.asarray(F.Vh.T)).astype(np.float64) / lengths
    return out


def filled_others(cohort: Cohort, mean: Vector) -> Parts:
    assert cohort.learned is not None
    return of_samples(filled(cohort.parts, mean), ~cohort.learned)


def tested(
    matrix: Patterson, U: Panel, S: Vector, n_used: int, rng: np.random.Generator, resources: Resources
) -> TracyWidom:
    rank = min(matrix.A.shape[0] - 1, n_used)
    squared, error = squared_trace(matrix.Z, U, S, matrix.total, rng, resources)
    return tracy_widom(S**2 / n_used, rank, matrix.total / n_used, squared / n_used**2, error / n_used**2)


def scanned(cohort: Cohort, matrix: Patterson, F: SVDResult, resources: Resources) -> SelectionScan:
    found = selection_scan(some_of(cohort.training, matrix.both), F.U.astype(np.float64), resources)
    used = placed(cohort.kept, matrix.both, False)
    z, statistics, p = (placed(used, part, np.nan) for part in (found.z_scores, found.statistics, found.p_values))
    return SelectionScan(z, statistics, found.inflation, p)


def placed(kept: Mask, values: npt.NDArray[Any], rest: bool | float) -> npt.NDArray[Any]:
    out = np.full((len(kept), *values.shape[1:]), rest)
    out[kept] = values
    return out


def patterson(mean: Vector) -> tuple[Vector, Mask]:
    p = mean / 2
    # A frequency that is not 0 or 1 is at least one allele among all samples away from it.
    used = (p > 1e-12) & (p < 1 - 1e-12)
    return np.sqrt(2 * p * (1 - p), out=np.ones_like(p), where=used), used


def check_rank(cohort: Cohort, matrix: Patterson, k: Any) -> None:
    path, (m, n), n_used = several(cohort.paths), matrix.A.shape, int(np.count_nonzero(matrix.both))
    if m < 2:
        raise ValueError(f"{path} must have at least 2 samples, got {m}; `GenotypePCA.project` takes single ones")
    if not n_used:
        raise ValueError(
            f"{path} must have variants of which its samples have both alleles, got {n} that are monomorphic "
            f'and {cohort.removed.get("chromosomes", 0)} not on autosomes, which chromosomes "all" would keep'
        )
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise ValueError(f"k must be a number of components, an integer, got {k!r}")
    most = min(m - 1, n_used)
    if not 1 <= k <= most:
        counts = f"{m} samples x {n_used} variants that take part"
        raise ValueError(f"{path}: k must be in 1..{most} for {counts}, got {k}")
