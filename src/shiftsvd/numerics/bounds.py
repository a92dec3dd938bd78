"""Bounds of the distance of exact eigenvalues and vectors from Ritz values and vectors, by their residuals.

``theta`` are Ritz values of a Hermitian matrix G in some basis, descending; the columns of ``E`` are the coordinates of
their residuals in an orthonormal system, `squares` the squared norms of these columns. docs/how_it_works.rst derives
each bound and separates proofs from heuristics.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt

import numpy as np

from shiftsvd.numerics.panels import Panel, Vector

Limits = Callable[[int], float]
CountBound = tuple[int, float]  # (count, mu): at most `count` eigenvalues exceed mu
TINY = float(np.finfo(np.float64).tiny)

# The constants of the bounds. Measure again with benchmarks.certificate.bounds, whose columns `hard` and `silent` must
# stay 0, and with benchmarks.certificate.leaders, whose column `bad` must stay 0.

# Maximum number of Ritz values after the k-th in the group of the k-th value. In a crowded tail all values within the
# residuals would be too many; with 0, a k-th value with close neighbours would count as isolated.
NEIGHBOURS = 4
# Bisections of the interval that contains the next eigenvalue. The interval is as long as the norm of the residuals,
# and its upper end is the bound: ten bisections reduce the excess of the bound to a thousandth of that norm.
HALVINGS = 10
# Intervals that are shorter than this, relative to their ends, are not bisected.
NARROW = 1e-6
# Rounding error of a residual, in rounding units of the largest value. In single precision less than one unit was
# measured (counts, images), because sums are computed block by block. In double precision a larger bound costs nothing.
ROUNDING, ROUNDING_SINGLE = 8.0, 2.0
# Least rounding error of the squares of returned values, relative to the largest. In fits of dense data it was up to 15
# units of double precision. (With 32 units for residuals, fits with leaders of 1e6 take 60 % more products.)
ROUNDING_OF_SQUARES = 32 * float(np.finfo(np.float64).eps)
# Ritz values beyond the k-th from which the possible growth of the first k is inferred if no level is proven. Ritz
# values further down lie below the rest of the spectrum: with 32, the inferred level was too low in one check of three.
BEYOND = 16
# Leading values are bounded by a proven level if they exceed it by one of these factors, the first with finite bounds:
# counts, text, ratings and feedback need 1.05 to 1.2, which bounds 75 to 100 % of the values to rounding errors.
FROM_LEVEL = 1.05, 1.1, 1.2, 1.5, 2.0
# Least gap, relative to a value, in estimates of errors that determine the next check.
LEAST_GAP = 0.02
# The upper end of the rest of the spectrum is inferred at this many residuals above the next Ritz value. With 1, errors
# in 11 of 570 runs on flat spectra (blocks of 4, loose tolerances) exceeded their bounds, by up to 2.2 times; with 2,
# none, for 0.1 % more columns.
AHEAD = 2.0
# Factor from the rounding error of a residual to that of its vector. Up to 3 were measured, against references by
# LAPACK that have rounding errors of the same size.
TURNING = 32.0


def residual_rounding(eps: float) -> float:
    return eps * (ROUNDING if eps < 1e-10 else ROUNDING_SINGLE)


def rounding_of(theta: Vector, eps: float, measured: float = 0.0) -> float:
    return max(residual_rounding(eps) * max(abs(float(theta[0])), abs(float(theta[-1]))), measured)


@dataclass(frozen=True, eq=False)
class Ritz:
    """Ritz values of G with their residuals, and bounds of all other eigenvalues.

    Attributes
    ----------
    theta : array of shape (N,), descending
    E : array of shape (p, N)
        Coordinates of the residuals.
    k : int
        Number of wanted values.
    noise : float
        Bound of the rounding error of a residual.
    level : float
        Bound of the eigenvalues of G on the complement of the Ritz vectors; -inf if that is empty, inf if unknown.
    proven_limit : float
        Bound of the (k+1)-th eigenvalue that was proven earlier.
    zero : float
        Eigenvalues up to this are reported as 0.
    """

    theta: Vector
    E: Panel
    k: int
    noise: float
    level: float = np.inf
    proven_limit: float = np.inf
    zero: float = 0.0

    @cached_property
    def r(self) -> Vector:
        return np.asarray(np.sqrt(np.sum(np.abs(self.E) ** 2, axis=0)))

    @cached_property
    def rounded_squares(self) -> Vector:
        return np.asarray((self.r + self.noise) ** 2)

    @cached_property
    def limit(self) -> float:
        """Return the bound of the (k+1)-th eigenvalue."""
        if len(self.theta) == self.k and self.level == -np.inf:
            return -np.inf
        return max(min(_next_value(self, self.k), self.proven_limit), _theta(self, self.k))

    @property
    def has_proven_growth(self) -> bool:
        return bool(np.isfinite(self.proven_growth[0]))

    @cached_property
    def proven_growth(self) -> Vector:
        """Bound how far the first k eigenvalues exceed their Ritz values, by `level`; infinite if `level` is."""
        return growth_bounds(self.theta, self.E, self.level + self.noise, self.k, self.k + BEYOND) + self.noise

    def first(self, count: int) -> "Ritz":
        return replace(self, theta=self.theta[:count], E=self.E[:, :count], level=np.inf)


# --- bounds of Ritz values, rounding included ------------------------------------------------------------------------


def value_errors(ritz: Ritz, S: Vector | None = None) -> Vector:
    """Bound the relative errors of the first k singular values S, by default the roots of the Ritz values."""
    theta, E, k, noise = ritz.theta, ritz.E, ritz.k, ritz.noise
    S = np.sqrt(np.where(theta[:k] > ritz.zero, theta[:k], 0)) if S is None else S
    bounds = value_bounds(theta, ritz.rounded_squares, k, ritz.limit)
    depth = _growth_depth(ritz)
    if ritz.has_proven_growth:
        bounds = np.minimum(bounds, ritz.proven_growth)
    elif depth > k and ritz.level > -np.inf:  # a heuristic: no level is proven
        inferred = growth_bounds(theta[:depth], E[:, :depth], inferred_level(ritz), k)
        # If the inferred level is too high for a bound, some of the k values may have no Ritz value yet.
        if not np.isfinite(inferred[0]):
            bounds = value_bounds(theta, (AHEAD * ritz.r + noise) ** 2, k, ritz.limit)
        bounds = np.minimum(bounds, inferred + noise)
    return relative_errors(S, theta[:k], bounds, max(ROUNDING * noise, ritz.zero))


def leading_bounds(ritz: Ritz) -> list[CountBound]:
    """Bound as many of the first k eigenvalues as exceed the level by some percent; ``(j, mu)`` bounds the (j+1)-th."""
    level = ritz.level + ritz.noise
    for factor in FROM_LEVEL:
        count = int(np.count_nonzero(ritz.theta[: ritz.k] > factor * level))
        growth = growth_bounds(ritz.theta, ritz.E, level, count, count + BEYOND) if count else np.zeros(0)
        if np.isfinite(growth).all():
            return list(enumerate((ritz.theta[:count] + growth + ritz.noise).tolist()))
    return []


def inferred_level(ritz: Ritz) -> float:
    depth = max(_growth_depth(ritz), min(ritz.k, len(ritz.theta) - 1))
    return float(ritz.theta[depth] + AHEAD * ritz.r[depth] + ritz.noise)


def _growth_depth(ritz: Ritz) -> int:
    return min(ritz.k + BEYOND, len(ritz.theta) // 3)


def vector_errors(ritz: Ritz, proven: bool = False, noise: float = 0.0) -> Vector:
    """Bound the sines of the angles of the first k vectors to the spaces of their groups.

    `proven` bounds hold even if some of the k largest values were missed. `noise` is added to the rounding errors of
    the residuals.
    """
    all_noise = replace(ritz, noise=ritz.noise + noise)
    limits = (lambda j: value_limit(all_noise, j)) if proven else None
    # `noise` raises the bound of the next eigenvalue at most by its effects on the level and on the noise.
    limit, rounding = ritz.limit + 2 * noise, TURNING * all_noise.noise
    return vector_bounds(ritz.theta, all_noise.rounded_squares, ritz.k, limit, rounding, limits)


def value_limit(ritz: Ritz, j: int) -> float:
    """Bound the (j+1)-th eigenvalue, also if values were missed."""
    return max(_next_value(ritz, j), _theta(ritz, j) + ritz.noise)


def errors_if_missed(ritz: Ritz, S: Vector) -> Vector:
    growth = np.array([value_limit(ritz, j) for j in range(len(S))]) - ritz.theta[: len(S)]
    return relative_errors(S, ritz.theta[: len(S)], growth, 0.0)


def _next_value(ritz: Ritz, j: int) -> float:
    return next_bound(ritz.theta, ritz.E, ritz.level + ritz.noise, j) + ritz.noise


def _theta(ritz: Ritz, j: int) -> float:
    return float(ritz.theta[j]) if j < len(ritz.theta) else -np.inf


def relative_noise(ritz: Ritz) -> float:
    """Return the rounding error of the last wanted value that is not 0, relative to this value."""
    last = max(min(ritz.k, int(np.count_nonzero(ritz.theta > ritz.zero))), 1)
    return ritz.noise / max(float(ritz.theta[last - 1]), TINY)


def tol_ratios(ritz: Ritz, tol: float, errors: Vector) -> Vector:
    """Divide errors by the tolerance, or, if `tol` is 0, residuals by their rounding error."""
    return errors / tol if tol > 0 else ritz.r[: ritz.k] / (ritz.noise + TINY)


def likely_tol_ratio(ritz: Ritz, tol: float) -> float:
    """Estimate the largest of `tol_ratios`, as if the next Ritz values were exact."""
    if not tol > 0:
        return float(np.max(tol_ratios(ritz, tol, ritz.r)))
    theta = ritz.theta[: ritz.k]
    rest, nonzero = float(ritz.theta[min(ritz.k + BEYOND, len(ritz.theta)) - 1]), theta > max(ritz.zero, TINY)
    # Divide before squaring, so that nothing overflows or underflows.
    gaps, quotients = np.maximum(1 - rest / theta[nonzero], LEAST_GAP), ritz.r[: ritz.k][nonzero] / theta[nonzero]
    return float(np.max(quotients**2 / (2 * gaps), initial=0.0)) / tol


def proves(ritz: Ritz, count_bound: CountBound, below: float) -> bool:
    """Return True if at most `count` eigenvalues exceed mu, given that G outside of the basis is at most `below`."""
    count, mu = count_bound
    return at_most(ritz.theta, ritz.E, below + ritz.noise, count, mu - ritz.noise)


def largest_group(ritz: Ritz) -> tuple[int, int]:
    """Return the size and the end of the largest group that ends before the k-th value, or (0, 0)."""
    ends = np.append(groups(ritz.theta, ritz.rounded_squares)[0], len(ritz.theta))
    sizes = np.diff(ends)[ends[1:] < ritz.k]
    at = int(np.argmax(sizes)) if len(sizes) else 0
    return (int(sizes[at]), int(ends[at + 1])) if len(sizes) else (0, 0)


def worst_of_group(ritz: Ritz) -> Vector:
    """Return, for each of the first k values, the largest residual of its group."""
    starts = groups(ritz.theta, ritz.rounded_squares)[0]
    worst = np.maximum.reduceat(ritz.r, starts)
    return np.asarray(worst[np.searchsorted(starts, np.arange(ritz.k), side="right") - 1])


def with_rounding(ritz: Ritz, noise: float) -> Ritz:
    """Enlarge Ritz values and residuals by `noise`, so that they bound those without rounding errors."""
    nonzero = ritz.r > 1e-6 * noise
    longer = ritz.E * (1 + noise / np.where(nonzero, ritz.r, np.inf))
    # Residuals of 0 get the length `noise` along one more direction.
    return replace(ritz, theta=ritz.theta + noise, E=np.vstack([longer, np.where(nonzero, 0.0, noise)[None]]))


# --- theorems --------------------------------------------------------------------------------------------------------


def groups(theta: Vector, squares: Vector) -> tuple[Vector, Vector]:
    # Return the first index and the radius of each group of values whose intervals overlap. A group C has as many exact
    # eigenvalues as values within ``radius = ||R_C||_F >= ||R_C||_2`` of its values (Kahan; Parlett 1998, theorem
    # 11.5.1). Groups are joined until these intervals are disjoint, so that no eigenvalue counts twice.
    t, radii = theta.tolist(), np.sqrt(squares)
    overlaps = np.flatnonzero(theta[1:] + radii[1:] >= theta[:-1] - radii[:-1])
    first = int(overlaps[0]) + 1 if len(overlaps) else len(t)
    # First index, sum of squares, and radius of each group; the values before `first` begin as groups of their own.
    found = list(zip(range(first), squares[:first].tolist(), radii[:first].tolist(), strict=True))
    for i, square in enumerate(squares[first:].tolist(), first):
        start, total, radius = i, square, sqrt(square)
        while found and t[start] + radius >= t[start - 1] - found[-1][2]:
            start, before, _ = found.pop()
            total += before
            radius = sqrt(total)
        found.append((start, total, radius))
    starts, _, each = zip(*found, strict=True) if found else ((), (), ())
    return np.array(starts, np.intp), np.array(each, float)


def value_bounds(theta: Vector, squares: Vector, k: int, beyond: float = np.inf) -> Vector:
    # Bound the errors of the k largest values, if none was missed: ``min(rho, rho^2 / gap)``, where rho is the radius
    # of the group of a value, and gap the distance of the group from all eigenvalues below it (Kato & Temple; for
    # groups, Lehmann). Eigenvalues after the k-th are at most `beyond`.
    sizes, radii, gaps, *_ = _group_gaps(theta, squares, k, beyond)
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = np.where(gaps > 0, np.minimum(radii, radii**2 / gaps), radii)
    return np.repeat(bounds, sizes)


def vector_bounds(
    theta: Vector,
    squares: Vector,
    k: int,
    beyond: float = np.inf,
    rounding: float = 0.0,
    limits: Limits | None = None,
    left: bool = True,
) -> Vector:
    # Bound the sines of the angles of left and right vectors to the space of their group: ``r_j / gap``, where gap is
    # the distance of theta_j from the eigenvalues of other groups (Davis & Kahan 1970). The part of a left vector
    # ``A v / sigma`` along a larger eigenvalue lambda is ``sqrt(lambda / theta_j)`` times that of v (Wedin 1972). The
    # bound is 1 if rounding leaves no gap. `rounding` is added to the residuals; ``limits(j)`` bounds the (j+1)-th
    # eigenvalue even if others were missed. Without `left`, only right vectors are bounded.
    sizes, radii, gaps, above, members = _group_gaps(theta, squares, k, beyond, limits)
    # In groups that were joined by rounding alone, other rounding errors may have split the group differently.
    unsure = np.repeat((members > 1) & (radii <= np.sqrt(members) * rounding), sizes)
    t, ends = theta[:k], np.cumsum(sizes)
    above, least = np.repeat(above, sizes), np.repeat(theta[ends - 1] - gaps, sizes)
    with np.errstate(divide="ignore", invalid="ignore"):
        stretch = np.where(np.isinf(above) | (t <= 0) | (not left), 1.0, np.sqrt(np.maximum(above / t, 0)))
        gap = np.minimum(t - least, (above - t) / stretch)
        sines = (np.sqrt(squares[:k]) + rounding) / gap
    return np.where((gap > 0) & ~unsure, np.minimum(sines, 1.0), 1.0)


def combined_sines(sines: Vector, first: Vector, C: Panel, lengths: Vector | None = None) -> Vector:
    # Bound the sine of the angle of column j of a combination V C to the space of the group of index j. The columns of
    # V are orthogonal and have these lengths; `sines` bound their angles to their own groups, which begin at the
    # indices `first`. A vector of the same group adds its sine, a vector of another group may be orthogonal to the
    # space.
    k = C.shape[1]
    group = np.searchsorted(first, np.arange(k), side="right")
    same, parts = group[:, None] == group, np.abs(C) * (1.0 if lengths is None else lengths[:, None])
    inside = np.sum(np.where(same, parts * sines[:, None], 0), axis=0)
    return np.asarray(inside + np.sqrt(np.sum(np.where(same, 0, parts) ** 2, axis=0)))


def _group_gaps(
    theta: Vector, squares: Vector, k: int, beyond: float, limits: Limits | None = None
) -> tuple[Vector, Vector, Vector, Vector, Vector]:
    # Return for each group of the first k values: its number of these values, radius, gap to the eigenvalues below it,
    # a lower bound of the eigenvalues above it, and its size. The last group may extend past the k-th value. The j-th
    # eigenvalue is at least the j-th Ritz value, so the eigenvalues above are at least the last Ritz value above.
    depth = min(k + NEIGHBOURS, len(theta))
    starts, radii = groups(theta[:depth], squares[:depth])
    rest = theta[depth] + groups(theta[depth:], squares[depth:])[1][0] if depth < len(theta) else beyond
    count = int(np.searchsorted(starts, k))
    ends = np.append(starts[1:], depth)[:count]
    below = np.append(theta[starts[1:]] + radii[1:], rest)[:count]
    if ends[-1] <= k:
        below[-1] = min(below[-1], beyond)
    if limits is not None:
        below = np.array([limits(int(end)) for end in ends])
    above = np.append(np.inf, theta[starts[1:count] - 1])
    sizes = np.diff(np.append(starts[:count], k))
    return sizes, radii[:count], theta[ends - 1] - below, above, ends - starts[:count]


def growth_bounds(theta: Vector, E: Panel, below: float, k: int, depth: int | None = None) -> Vector:
    # Bound how far the k largest eigenvalues exceed their Ritz values, given that G on the complement of the Ritz
    # vectors is at most `below`. By the Schur complement at ``mu = theta_k`` the j-th eigenvalue is at most that of
    # ``diag(theta) + E^H E / (mu - below)``. Values after the first `depth` are eliminated before, which leaves a small
    # matrix (compare Mathias 1998, Quadratic residual bounds for the Hermitian eigenvalue problem). Infinite if `below`
    # is too high.
    mu, depth = theta[k - 1], min(depth or len(theta), len(theta))
    gaps = mu - theta[depth:]
    unknown = np.full(k, np.inf)
    if not np.isfinite(below) or not mu > below or np.any(gaps <= 0):
        return unknown
    W = (mu - below) * np.eye(len(E)) - (E[:, depth:] / gaps) @ E[:, depth:].conj().T
    least, X = np.linalg.eigh(W)
    if not least.min(initial=1.0) > 0:
        return unknown
    F = (X.conj().T @ E[:, :depth]) / np.sqrt(least)[:, None]
    return np.asarray(np.linalg.eigvalsh(np.diag(theta[:depth]) + F.conj().T @ F)[::-1][:k] - theta[:k])


def next_bound(theta: Vector, E: Panel, below: float, k: int) -> float:
    # Bound the (k+1)-th largest eigenvalue by the least ``mu > below`` that `at_most` k eigenvalues exceed, given that
    # G on the complement of the basis is at most `below`.
    if below == np.inf:
        return float("inf")
    if below == -np.inf:
        return float(theta[k]) if len(theta) > k else -np.inf
    low = max(below, float(theta[k]) if len(theta) > k else below)
    high = low + float(np.linalg.norm(E)) + 1e-15 * abs(low)
    if high - low <= NARROW * low:
        return high
    if at_most(theta, E, below, k, low + 1e-12 * (high - low)):
        return low + 1e-12 * (high - low)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if at_most(theta, E, below, k, middle) else (middle, high)
    return high


def at_most(theta: Vector, E: Panel, below: float, k: int, mu: float) -> bool:
    # Return True if at most k eigenvalues exceed mu. G has at most as many as ``diag(theta) + E^H E / (mu - below)``,
    # which Sylvester's law of inertia counts on a matrix of the size of E E^H.
    n_ritz = int(np.count_nonzero(theta >= mu))
    if not mu > below or n_ritz > k:
        return False
    distances = np.maximum(np.abs(mu - theta), TINY)
    with np.errstate(over="ignore", invalid="ignore"):
        M = (E * np.where(theta >= mu, -1, 1) / distances) @ E.conj().T
    if not np.isfinite(M).all():  # mu is a Ritz value, up to rounding
        return False
    if n_ritz == k:  # M must have no eigenvalue above mu - below: Cholesky takes a sixth of the time of eigenvalues
        difference = -M
        difference[np.diag_indices(len(M))] += mu - below
        return _definite(difference)
    return n_ritz + int(np.count_nonzero(np.linalg.eigvalsh(M) > mu - below)) <= k


def _definite(M: Panel) -> bool:
    try:
        np.linalg.cholesky(M)
    except np.linalg.LinAlgError:
        return False
    return True


def relative_errors(S: Vector, rho: Vector, bounds: Vector, floor: float) -> Vector:
    # Bound ``|sigma - exact| / sigma`` for values S, from `bounds` of the eigenvalues near ``rho = ||A v||^2``; the
    # bound also holds relative to the exact value if that is smaller. Solvers that end with B = Q^H A return S^2 =
    # ||Q^H A v||^2, which is at most rho.
    divisor = np.where(S > 0, S, 1)
    above = (bounds + np.abs(rho - S**2)) / (2 * divisor**2)  # sqrt(1 + x) - 1 <= x / 2
    # Eigenvalues are at least their Ritz values.
    with np.errstate(divide="ignore", invalid="ignore"):
        below = S / np.sqrt(np.maximum(rho, 0)) - 1
    # A value reported as 0 has no relative error: 0 is correct if its bound is at rounding level.
    lost = np.where(bounds + rho > floor, np.inf, 0.0)
    return np.where(S > 0, np.maximum(above, below), lost)


def rounding_bounds(values: Vector, columns: Vector | float, squares: Vector | float) -> Vector:
    # Bound the change of singular `values` if their squares change by at most `squares`, and the matrix by a norm of at
    # most `columns`: sigma - sqrt(sigma^2 - s) = s / (sigma + sqrt(sigma^2 - s)).
    least = np.sqrt(np.maximum(values**2 - squares, 0))
    most = np.maximum(values + least, np.sqrt(squares))
    return np.asarray(columns + squares / np.where(most > 0, most, 1))
