"""Genotypes scaled as in Patterson et al. (2006), the Tracy-Widom test of their components, and a selection scan."""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import airy, chdtrc, chdtri

from shiftsvd import LowRank, Operator
from shiftsvd.extend.operators import Panel, Vector, fused, gram_matrix, unmasked
from shiftsvd.extend.running import Resources, spare, threads
from shiftsvd.genetics.files import Calls, Fileset, over_blocks
from shiftsvd.genetics.variants import Mask
from shiftsvd.operators import Scaled

MOST_EXACT: Final = 5000  # up to this number of samples, form the m x m relationship matrix if it fits in memory
PROBES: Final = 256  # random sign vectors in the trace estimate


def squared_trace(
    Z: Operator, U: Panel, S: Vector, total: float, rng: np.random.Generator, resources: Resources
) -> tuple[float, float]:
    # ||Z Z^H||_F^2 of centred samples x variants, given leading singular vectors and values and ||Z||_F^2, and its
    # standard error. For up to 5000 samples, if memory allows, form Z Z^H: one read, m^2 n operations, no error. For
    # more samples, the trace gives the mean c of the eigenvalues that are not in S. Estimate the sum of their squared
    # distances from c, which determines the effective number of markers, as the mean of ||P (Z Z^H - c) P w||^2 over
    # random sign vectors w, where P removes the leading vectors and the mean: two reads (Hutchinson 1990; with vectors
    # removed, Meyer et al. 2021).
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


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(80)  # on (-1, 1); 80 nodes give the distribution to rounding error
_LENGTH: Final = 18.0  # length of the interval above s in which the kernel is not zero, for s down to _LOWEST
_LOWEST: Final = -12.0  # below this statistic the distribution function is less than 1e-60
_HIGHEST: Final = 200.0  # above this statistic the tail exp(-2/3 s^1.5) underflows
_FEWEST: Final = 10  # least number of eigenvalues for a test, as in EIGENSOFT's twstats


class TracyWidom(NamedTuple):
    """Tracy-Widom test of each component, whose null hypothesis is the largest eigenvalue of noise.

    Parameters
    ----------
    statistics : array of shape (k,)
        Tracy-Widom statistics; NaN if fewer than 10 eigenvalues are left, or if none of these is positive.
    p_values : array of shape (k,)
        Right tails of the Tracy-Widom distribution of order 1. The test of a component assumes that all earlier
        components are structure, so read the p values in order and stop at the first that is not significant.
    effective_markers : array of shape (k,)
        Number of independent markers whose eigenvalues would have the same spread.
    errors : array of shape (k,)
        Standard errors of the statistics if the sum of squared eigenvalues was estimated; 0 if the sum is exact.

    See Also
    --------
    genetics.pca : Run the test with ``tracy_widom=True``.

    Examples
    --------
    >>> from shiftsvd.genetics import tracy_widom
    >>> test = tracy_widom([9.0, 1.5], rank=49, total=57.0, total_of_squares=142.0)
    >>> (test.p_values < 0.05).tolist()
    [True, False]
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
        The largest eigenvalues, in descending order.
    rank : int
        Number of positive eigenvalues: the smaller of ``n_samples - 1`` (after centring) and ``n_variants``.
    total, total_of_squares : float
        Sum of all eigenvalues and sum of their squares, the traces of the matrix and of its square.
    standard_error : float
        Standard error of `total_of_squares` if that is an estimate.

    Returns
    -------
    TracyWidom
        Statistics and p values of the components, in the order of the eigenvalues.

    See Also
    --------
    genetics.pca : Test its components with ``tracy_widom=True``.
    suggest_k : Choose the number of components of any matrix.

    Notes
    -----
    The test is that of Patterson, Price & Reich (2006), "Population structure and eigenanalysis", PLoS Genetics 2,
    e190, equations 5 to 7 and 10, with the centring and scaling of Johnstone (2001). It equals EIGENSOFT's ``twstats``
    on all eigenvalues.

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
        # Johnstone's centring and scaling for p x n noise, p <= n.
        p, n = np.minimum(m, markers), np.maximum(m, markers)
        root, inverse = np.sqrt(n - 1) + np.sqrt(p), 1 / np.sqrt(n - 1) + 1 / np.sqrt(p)
        statistics = (largest - root**2) / (root * np.cbrt(inverse))
    known = (m >= _FEWEST) & (sums > 0) & (values > 0) & (markers > 0)
    return np.where(known, statistics, np.nan), np.where(known, markers, np.nan)


def upper_tail(statistics: Any) -> Vector:
    # 1 - F_1 to 13 digits, also in the tail. F_1(s) = det(1 - K) with the kernel Ai((x + y) / 2) / 2 on (s, inf):
    # Ferrari & Spohn (2005), "A determinantal formula for the GOE Tracy-Widom distribution". The determinant is
    # computed by Gauss-Legendre quadrature: Bornemann (2010), "On the numerical evaluation of Fredholm determinants",
    # Math. Comp. 79, 871-915.
    flat = np.atleast_1d(np.asarray(statistics, np.float64))
    return np.array([_tail(float(s)) for s in flat]).reshape(np.shape(statistics))


def _tail(s: float) -> float:
    if np.isnan(s):
        return float("nan")
    if s < _LOWEST or s > _HIGHEST:
        return float(s < _LOWEST)
    # The kernel decays in (x + y) / 2 and is negligible from 6 on.
    length = _LENGTH + max(0.0, -s)
    x, w = s + length * ((_NODES + 1) / 2), np.sqrt(length * (_WEIGHTS / 2))
    kernel = w[:, None] * airy((x[:, None] + x) / 2)[0] / 2 * w
    eigenvalues = np.linalg.eigvalsh(kernel)
    # Sum logarithms of the factors 1 - lambda, so that a tail of 1e-40 keeps its digits. Clip at 0, because rounding
    # makes smaller tails -0.0 or negative.
    return max(0.0, -float(np.expm1(np.log1p(-np.minimum(eigenvalues, 1 - 1e-16)).sum())))


def patterson_scale(mean: Vector) -> tuple[Vector, Mask]:
    p = mean / 2
    # The tolerance is far below 1 / (2 n_samples), the smallest frequency of an allele that occurs.
    used = (p > 1e-12) & (p < 1 - 1e-12)
    return np.sqrt(2 * p * (1 - p), out=np.ones_like(p), where=used), used


class Patterson(NamedTuple):
    """Genotypes of the training samples, with the means and scales of their variants."""

    A: Operator
    mean: Vector
    scale: Vector
    polymorphic: Mask  # variants with both alleles among the samples
    total: float  # the trace of the relationship matrix times the number of variants used

    @classmethod
    def of(cls, A: Operator) -> "Patterson":
        moments = A.moments()
        assert moments.M2 is not None
        scale, both = patterson_scale(moments.mean)
        # A monomorphic variant is constant; subtracting the exact constant (0, 1 or 2) makes its column zero.
        mean = np.where(both, moments.mean, np.round(moments.mean))
        return cls(A, mean, scale, both, float((moments.M2[both] / scale[both] ** 2).sum()))

    def scaled(self, A: Operator) -> Operator:
        return Scaled(A - LowRank(np.ones(A.shape[0]), self.mean), None, self.polymorphic / self.scale)

    def tracy_widom(self, U: Panel, S: Vector, rng: np.random.Generator, resources: Resources) -> TracyWidom:
        n_used = int(np.count_nonzero(self.polymorphic))
        squared, error = squared_trace(self.scaled(self.A), U, S, self.total, rng, resources)
        rank = min(self.A.shape[0] - 1, n_used)
        return tracy_widom(S**2 / n_used, rank, self.total / n_used, squared / n_used**2, error / n_used**2)


# ---- a scan of the variants for selection


# Maronna & Zamar (2002), section 3: the cutoffs c1 and c2 of the tau scale, and E[min(z^2, c2^2)] of a normal z.
_WEIGHT_CUTOFF, _SCALE_CUTOFF, _EXPECTED = 4.5, 3.0, 0.92471539217613152
_ROUNDS: Final = 2  # of orthogonalization: a second round makes the estimate nearly equivariant
_CORE: Final = 0.9  # probability of a chi-squared distribution: the final covariance uses the points within


class SelectionScan(NamedTuple):
    """Selection scan: test how far each variant is from the rest of the genome along the components.

    Parameters
    ----------
    z_scores : array of shape (n_variants, k)
        Z scores of the regression of each variant on the components; NaN for unused variants, and for variants whose
        known genotypes do not differ or are at most k.
    statistics : array of shape (n_variants,)
        Squared robust Mahalanobis distances of the z scores; NaN if most z scores are on a line or plane.
    inflation : float
        Genomic inflation factor: the median statistic divided by the median of the chi-squared distribution with k
        degrees of freedom.
    p_values : array of shape (n_variants,)
        Right tails of that chi-squared distribution at ``statistics / inflation``. Correct them for multiple testing,
        for example by controlling the false discovery rate.

    See Also
    --------
    genetics.pca : Run the scan with ``scan=True``.

    Examples
    --------
    >>> import numpy as np, tempfile, shiftsvd.genetics
    >>> from bed_reader import to_bed
    >>> G = np.random.default_rng(0).integers(0, 3, (20, 50)).astype(np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     to_bed(f"{folder}/a.bed", G)
    ...     scan = shiftsvd.genetics.pca(f"{folder}/a.bed", 2, scan=True).scan
    >>> scan.z_scores.shape, scan.p_values.shape
    ((50, 2), (50,))
    """

    z_scores: Panel
    statistics: npt.NDArray[np.float64]
    inflation: float
    p_values: npt.NDArray[np.float64]


def selection_scan(files: Fileset, U: Panel, resources: Resources) -> SelectionScan:
    # Luu, Bazin & Blum (2017), "pcadapt: an R package to perform genome scans for selection based on principal
    # component analysis", Mol. Ecol. Resources 17, 67-77, as in version 4 of the package: z scores of a linear model on
    # the samples with known genotypes, distances by the orthogonalized Gnanadesikan-Kettenring estimate (one component:
    # squared distances from the median), p values of the statistics divided by the inflation. One read.
    z = np.concatenate(list(over_blocks(files, lambda G: _t_statistics(G, U), resources, 8)))
    tested, statistics = np.isfinite(z).all(axis=1), np.full(len(z), np.nan)
    z[~tested], statistics[tested] = np.nan, robust_distances(z[tested])
    k = z.shape[1]
    inflation = float(np.median(statistics[tested]) / chdtri(k, 0.5)) if tested.any() else np.nan
    inflation = inflation if inflation > 0 else np.nan
    return SelectionScan(z, statistics, inflation, chdtrc(k, statistics / inflation))


def _t_statistics(G: Calls, U: Panel) -> Panel:
    known = G >= 0
    centre = np.where(known, G, 0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    X = np.where(known, G - centre[:, None], 0)
    slopes = X @ U
    lengths = known.astype(np.float64) @ U**2
    fitted = slopes @ U.T
    squares = (np.where(known, X - fitted, 0) ** 2).sum(axis=1)
    freedom = np.maximum(known.sum(axis=1) - U.shape[1], 0)
    squares[freedom == 0] = np.nan
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(slopes / np.sqrt(lengths * (squares / freedom)[:, None]))


def robust_distances(X: Panel) -> Vector:
    # Squared Mahalanobis distances of the rows with a robust covariance: Maronna & Zamar (2002), "Robust estimates of
    # location and dispersion for high-dimensional datasets", Technometrics 44, 307-317. Estimate the covariance of two
    # columns from the tau scales of their sum and difference, and make the matrix positive definite along its
    # eigenvectors, twice. Then use the mean and covariance of the rows within the 90 % quantile; without a covariance,
    # because these rows are few or in a plane, return NaN. For one column, use the distance from the median.
    n, k = X.shape
    if n <= k:
        return np.full(n, np.nan)
    if k == 1:
        return np.asarray((X[:, 0] - np.median(X[:, 0])) ** 2)
    with np.errstate(divide="ignore", invalid="ignore"):  # a scale is 0 if half of the rows are in a plane
        Z = X
        for _ in range(_ROUNDS):
            Z = _orthogonalized(Z)
        location, scale = _tau_scale(Z)
        distances = (((Z - location) / scale) ** 2).sum(axis=1)
    inside = X[distances < np.median(distances) / chdtri(k, 0.5) * chdtri(k, 1 - _CORE)]
    if len(inside) <= k:
        return np.full(n, np.nan)
    centre = inside.mean(axis=0)
    covariance = (inside - centre).T @ (inside - centre) / len(inside)
    if np.linalg.matrix_rank(covariance, hermitian=True) < k:
        return np.full(n, np.nan)
    return np.asarray(((X - centre) @ np.linalg.inv(covariance) * (X - centre)).sum(axis=1))


def _orthogonalized(X: Panel) -> Panel:
    Y = X / _tau_scale(X)[1]
    k = Y.shape[1]
    correlations = np.eye(k)
    for j in range(1, k):
        sums, differences = (_tau_scale(Y[:, j, None] + sign * Y[:, :j])[1] for sign in (1, -1))
        correlations[j, :j] = correlations[:j, j] = (sums**2 - differences**2) / 4
    return np.asarray(Y @ np.linalg.eigh(np.nan_to_num(correlations))[1][:, ::-1])  # NaN in Y remain


def _tau_scale(X: Panel) -> tuple[Vector, Vector]:
    centred = np.abs(X - np.median(X, axis=0))
    spread = np.median(centred, axis=0)
    weights = np.maximum(1 - (centred / (_WEIGHT_CUTOFF * spread)) ** 2, 0) ** 2
    location = (weights * X).sum(axis=0) / weights.sum(axis=0)
    bounded = np.minimum(((X - location) / spread) ** 2, _SCALE_CUTOFF**2).sum(axis=0)
    return location, spread * np.sqrt(bounded / (len(X) * _EXPECTED))
