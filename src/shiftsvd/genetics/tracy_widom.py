"""How many components are more than noise: the test of Patterson, Price & Reich (2006) by the Tracy-Widom law."""

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import airy

from shiftsvd.numerics.panels import unmasked


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
