"""Count the components of counts beyond row and column totals, by biwhitening."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.random import Generator

from shiftsvd.backends import as_operator
from shiftsvd.errors import Refused, Setting, refuse
from shiftsvd.front import decompose, integer
from shiftsvd.kernels import threads
from shiftsvd.operators import LowRank, Operator, Scaled, Vector
from shiftsvd.runs.messages import warn
from shiftsvd.sketch import generator
from shiftsvd.solvers.subspace import Subspace, subspace
from shiftsvd.transforms.base import checked
from shiftsvd.transforms.chains import preprocess
from shiftsvd.transforms.count_data import samples_of, warn_of_logarithms
from shiftsvd.transforms.elementwise import Elementwise

# 99 % quantile of the Tracy-Widom law of order 1, accuracy and steps of the scaling, accuracy of singular
# values. Values of noise below the edge are computed, too: MORE_VALUES, or down to CLEAR times the squared edge. The
# probe then stops at CLEAR_LEVEL.
TRACY_WIDOM: Final = 2.0234
SCALED, MOST_SCALINGS, OF_SIGNALS = 1e-6, 1000, 1e-6
MORE_VALUES, CLEAR, CLEAR_LEVEL = 16, 0.9, 0.99
MOST_COUNTS: Final = 2.0**53  # the largest integers that double precision tells apart


@dataclass(frozen=True, eq=False)
class SignalCount:
    """Number of singular values of biwhitened counts above those of noise; made by `count_signals`.

    Parameters
    ----------
    k : int
        Number of computed singular values above `edge`.
    at_least, at_most : int
        Bounds of the number of exact singular values above `edge`. Without a proof, `at_most` is the full rank.
    edge : float
        Threshold: noise exceeds it in one of a hundred data sets.
    singular_values : array
        Leading singular values of the biwhitened matrix.
    row_factors : array of shape (m,)
        Square roots of the scales of the rows; 0 for rows with too few counts.
    column_factors : array of shape (n,)
        Those of the columns.

    See Also
    --------
    count_signals : Makes one.

    Examples
    --------
    See `count_signals`.
    """

    k: int
    at_least: int
    at_most: int
    edge: float
    singular_values: Vector = field(repr=False)
    row_factors: Vector = field(repr=False)
    column_factors: Vector = field(repr=False)


def count_signals(
    X: Any,
    *,
    theta: float = np.inf,
    least_nonzeros: int = 10,
    rng: int | Generator | None = None,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
) -> SignalCount:
    """Count the components of a matrix of counts beyond row and column totals, by biwhitening.

    Rows and columns are scaled until the noise of the counts has mean variance 1 in each; singular values of noise
    alone then end at a known edge. The model of the totals, ``r_i c_j / T``, is subtracted.

    Parameters
    ----------
    X : anything that `as_operator` takes, of shape (m, n)
        Counts, not transformed. Sparse X stays sparse.
    theta : positive float or inf
        The noise has variance ``mu + mu^2 / theta``; inf is Poisson.
    least_nonzeros : int
        Use only rows and columns with at least this number of nonzero entries in the used columns and rows; the factors
        of the others are 0. Raise it if the scaling does not converge.
    rng : int, Generator or None
        As in `svd`.
    n_threads : int, optional
        As in `svd`.
    memory_limit : int (bytes) or str such as "2GB", optional
        As in `svd`.

    Returns
    -------
    SignalCount
        The count ``.k`` with bounds, and the factors ``D_1``, ``D_2`` of the biwhitened matrix.

    Raises
    ------
    ValueError
        If entries are negative, if too few rows or columns are left, or if the scaling does not converge.

    Warns
    -----
    UserWarning
        If no bound of the number of values above the edge is proven.

    See Also
    --------
    suggest_k : Other rules, for data that are no counts.
    PearsonResiduals : Scales counts by the variances of the null model.

    Notes
    -----
    ``D_1 (X - r c^T / T) D_2`` is decomposed, where ``D_1^2``, ``D_2^2`` scale the estimated variances ``(x + x^2 /
    theta) / (1 + 1 / theta)`` to row sums n and column sums m (Sinkhorn), about 10 times two passes. The edge is the 99
    % quantile of the Tracy-Widom law: ``edge^2 = a^2 + 2.0234 a (1 / sqrt(m - 1/2) + 1 / sqrt(n - 1/2))^(1/3)`` with
    ``a = sqrt(m - 1/2) + sqrt(n - 1/2)``. The law describes large matrices of noise. Noise with more variance than the
    model, such as negative binomial counts without `theta`, exceeds the edge, and k is too large. A rank of E[X] of k +
    1 has k components beyond the totals. The bounds include errors of the singular values and hold with a probability
    of at least 1 - 1e-9, for the computed scales; docs/guide/evidence.rst derives them.

    References
    ----------
    Landa, Zhang & Kluger (2022), Biwhitening reveals the rank of a count matrix; Johnstone (2001); Ma (2012).

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> rng = np.random.default_rng(0)
    >>> X = rng.poisson(rng.gamma(0.5, 1, (300, 4)) @ rng.gamma(0.5, 1, (4, 200)))
    >>> ss.count_signals(X, rng=0).k
    3
    """
    if not (isinstance(theta, int | float | np.integer | np.floating) and theta > 0):
        raise refuse("theta", "be a positive number or infinite", theta)
    least = integer("least_nonzeros", least_nonzeros, 1)
    rng = generator(rng)
    with threads(n_threads):
        A = as_operator(X, n_threads=n_threads, memory_limit=memory_limit)
        warn_of_logarithms("count_signals", checked(A))
        if any(sample.fractional.any() for sample in samples_of(A)):
            warn("The entries are not integers. count_signals computes variances of counts. Pass raw counts.")
        u, v = enough_nonzeros(preprocess(A, Elementwise(is_nonzero)), least)
        u, v = biwhitened(preprocess(A, Elementwise(partial(count_variances, theta=float(theta)))), u, v, least)
        m, n = int(np.count_nonzero(u)), int(np.count_nonzero(v))
        rows, columns = A.matmat((v > 0)[:, None] * 1.0)[:, 0], A.rmatmat((u > 0)[:, None] * 1.0)[:, 0]
        total = float(rows[u > 0].sum())
        B = Scaled(A - LowRank(rows[:, None], columns[:, None] / total), u, v)
        a, b = np.sqrt(m - 0.5), np.sqrt(n - 0.5)
        edge = (a + b) ** 2 + TRACY_WIDOM * (a + b) * (1 / a + 1 / b) ** (1 / 3)
        values, at_most = _above(B, float(edge), min(m, n), rng, memory_limit)
        k, at_least = (int(np.count_nonzero(values.theta - noise > edge)) for noise in (0.0, values.noise))
        found = SignalCount(k, at_least, at_most, float(np.sqrt(edge)), np.sqrt(values.theta), u, v)
    if at_most == min(m, n) > found.k:
        warn(
            f"{found.k} values exceed the edge, but k may be too small: too many values are near the edge for an "
            "upper bound. If the counts have more variance than Poisson's, pass ",
            *(Setting("theta"), "; otherwise treat k as a lower bound."),
        )
    return found


def is_nonzero(x: Vector) -> Vector:
    if x.size and not (x.min() >= 0 and x.max() < MOST_COUNTS):
        wrong = x.min() if x.min() < 0 else x.max()
        raise ValueError(f"count_signals requires counts from 0 to {MOST_COUNTS:g}, got {wrong:g}. Pass raw counts.")
    return (x > 0).astype(np.float64)


def count_variances(x: Vector, theta: float) -> Vector:
    return np.asarray(x if theta == np.inf else (x + x * x / theta) / (1 + 1 / theta), np.float64)


def enough_nonzeros(nonzero: Operator, least: int) -> tuple[Vector, Vector]:
    u, v = np.ones(nonzero.shape[0]), np.ones(nonzero.shape[1])
    while True:
        before = u.sum() + v.sum()
        u = u * (nonzero.matmat(v[:, None])[:, 0] >= least)
        v = v * (nonzero.rmatmat(u[:, None])[:, 0] >= least)
        if u.sum() < 2 * least or v.sum() < 2 * least:
            raise Refused(
                f"fewer than {2 * least} rows or columns have at least {least} nonzero entries, too few to count "
                "signals. Lower ",
                *(Setting("least_nonzeros"), " or pass more data."),
            )
        if u.sum() + v.sum() == before:
            return u, v


@np.errstate(divide="ignore", over="ignore", invalid="ignore")  # of scales that do not converge
def biwhitened(V: Operator, u: Vector, v: Vector, least: int) -> tuple[Vector, Vector]:
    # Sinkhorn & Knopp (1967): scale the variances to row sums n and column sums m, over the rows and columns kept.
    rows, columns = u > 0, v > 0
    m, n = rows.sum(), columns.sum()
    for _ in range(MOST_SCALINGS):
        sums = V.rmatmat(u[:, None])[:, 0]
        v = np.where(columns, m / np.where(columns, sums, 1), 0)
        sums = V.matmat(v[:, None])[:, 0]
        off = np.max(np.abs(u * sums / n - 1), where=rows, initial=0)
        u = np.where(rows, n / np.where(rows, sums, 1), 0)
        if not np.isfinite(u).all() or not np.isfinite(off):
            break
        if off <= SCALED:
            return np.sqrt(u), np.sqrt(v)
    raise Refused(
        "the scales of rows and columns did not converge. Pass ",
        *(Setting("least_nonzeros", max(50, 2 * least)), " to exclude more rows and columns with few counts."),
    )


def _above(B: Operator, edge: float, rank: int, rng: Generator, memory_limit: int | str | None) -> tuple[Subspace, int]:
    # Values above the edge, and some of the noise below it, so that the level of all others is well below the edge.
    k = min(8, rank)
    while True:
        F = decompose(B, k, "auto", OF_SIGNALS, rng, memory_limit)
        clear = int(np.count_nonzero(F.S**2 > edge)) + MORE_VALUES <= k or F.S[-1] ** 2 < CLEAR * edge
        if clear or k == rank:
            break
        k = min(2 * k, rank)
    found = subspace(B, F.Vh.T, rng.spawn(1)[0], CLEAR_LEVEL * edge)
    if not found.level < edge:
        return found, rank
    gap, size = edge - found.level, float(np.linalg.norm(found.R))
    rounded = found.noise * (1 + (2 * size + found.noise) / gap)
    above = np.linalg.eigvalsh(np.diag(found.theta) + found.R.T @ found.R / gap) + rounded > edge
    return found, int(np.count_nonzero(above))
