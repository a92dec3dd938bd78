"""Bounds of the distance of exact eigenvalues and vectors from Ritz values and vectors, by their residuals.

``theta`` are Ritz values of a Hermitian matrix G in some basis, descending; the columns of ``E`` are the coordinates of
their residuals in an orthonormal system, `squares` the squared norms of these. docs/how_it_works.rst derives each bound
and tells proofs from heuristics.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import Panel

Limits = Callable[[int], float]
Fact = tuple[int, float]  # (count, mu): at most so many eigenvalues exceed mu
TINY = float(np.finfo(np.float64).tiny)

# The constants of the bounds. Measure again with benchmarks.certificate.bounds, whose columns `hard` and `silent` must
# stay 0, and benchmarks.certificate.leaders, whose column `bad` must.

# Values after the k-th that may belong to its group. All values that cannot be told from it would be too many in a
# crowded tail; with none, the k-th would be taken for one that stands alone.
NEIGHBOURS = 4
# Halvings of the interval that holds the next eigenvalue. It is as long as the norm of the residuals, and the bound is
# its upper end: ten halvings make the bound larger than need be by at most a thousandth of that norm.
HALVINGS = 10
# An interval that is so narrow, relative to its ends, is not halved: its upper end is as good.
NARROW = 1e-6
# Rounding of a residual, in units of the largest value: sums are made block by block, so that less than one unit was
# measured in single precision (counts, images). In double precision, caution costs nothing.
ROUNDING, ROUNDING_SINGLE = 8.0, 2.0
# Ritz values beyond the k-th that show how much the first k can still grow, where that has to be inferred. Deeper ones
# do not tell where the rest of the spectrum begins: with 32, it was underrated in one check of three.
BEYOND = 16
# Smallest gap, relative to a value, in estimates of errors that decide when to check next.
LEAST_GAP = 0.02
# The rest of the spectrum is inferred to end so many residuals above the next Ritz value. With one, 11 of 570 runs on
# flat spectra (blocks of 4, loose tolerances) had values above their bounds, by up to 2.2 times; with two, none, for
# 0.1 % more columns.
AHEAD = 2.0
# Rounding turns a vector by so many times what it adds to a residual: up to 3 times were measured, against references
# by LAPACK whose own rounding is of the same size.
TURNING = 32.0


def residual_rounding(eps: float) -> float:
    return eps * (ROUNDING if eps < 1e-10 else ROUNDING_SINGLE)


def rounding_of(theta: Vector, eps: float, measured: float = 0.0) -> float:
    """Bound of the rounding of a residual: that of products of unit `eps`, or what was measured."""
    return max(residual_rounding(eps) * max(abs(float(theta[0])), abs(float(theta[-1]))), measured)


@dataclass(frozen=True, eq=False)
class Ritz:
    """Ritz values of G with their residuals, and what is known of all other eigenvalues.

    Attributes
    ----------
    theta : array of shape (N,), descending
    E : array of shape (p, N)
        Coordinates of the residuals.
    k : int
        How many values are wanted.
    noise : float
        Bound of the rounding of a residual.
    level : float
        Bound of G on the complement of the Ritz vectors; -inf if that is empty, inf if nothing is known.
    known : float
        Bound of the (k+1)-th eigenvalue that was proven earlier.
    zero : float
        Eigenvalues up to this are reported as 0.
    """

    theta: Vector
    E: Panel
    k: int
    noise: float
    level: float = np.inf
    known: float = np.inf
    zero: float = 0.0

    @cached_property
    def r(self) -> Vector:
        return np.asarray(np.sqrt(np.sum(np.abs(self.E) ** 2, axis=0)))

    @cached_property
    def rounded_squares(self) -> Vector:
        return np.asarray((self.r + self.noise) ** 2)

    @cached_property
    def limit(self) -> float:
        """Bound of the (k+1)-th eigenvalue."""
        if len(self.theta) == self.k and self.level == -np.inf:
            return -np.inf
        return max(min(_next_value(self, self.k), self.known), _theta(self, self.k))

    @cached_property
    def proven(self) -> Vector:
        """Bounds of the distance of the first k eigenvalues above their Ritz values, by `level`; infinite without."""
        return growth_bounds(self.theta, self.E, self.level + self.noise, self.k, self.k + BEYOND) + self.noise

    def first(self, count: int) -> "Ritz":
        return replace(self, theta=self.theta[:count], E=self.E[:, :count], level=np.inf)


# --- bounds of Ritz values, rounding included ------------------------------------------------------------------------


def value_errors(ritz: Ritz, S: Vector | None = None, inferring: bool = True) -> Vector:
    """Bounds of the relative errors of the first k singular values S, by default the roots of the Ritz values."""
    theta, E, k, noise = ritz.theta, ritz.E, ritz.k, ritz.noise
    S = np.sqrt(np.where(theta[:k] > ritz.zero, theta[:k], 0)) if S is None else S
    bounds = value_bounds(theta, ritz.rounded_squares, k, ritz.limit)
    depth = _depth(ritz)
    if np.isfinite(ritz.proven[0]):
        bounds = np.minimum(bounds, ritz.proven)
    elif not inferring and ritz.level > -np.inf:
        bounds = np.full(k, np.inf)
    elif depth > k and ritz.level > -np.inf:  # a heuristic, where nothing is proven
        inferred = growth_bounds(theta[:depth], E[:, :depth], inferred_level(ritz), k)
        # Where even that says nothing, some of the k may not have been seen yet, as far off as those that were.
        if not np.isfinite(inferred[0]):
            bounds = value_bounds(theta, (AHEAD * ritz.r + noise) ** 2, k, ritz.limit)
        bounds = np.minimum(bounds, inferred + noise)
    return relative_errors(S, theta[:k], bounds, max(ROUNDING * noise, ritz.zero))


def inferred_level(ritz: Ritz) -> float:
    depth = max(_depth(ritz), min(ritz.k, len(ritz.theta) - 1))
    return float(ritz.theta[depth] + AHEAD * ritz.r[depth] + ritz.noise)


def _depth(ritz: Ritz) -> int:
    return min(ritz.k + BEYOND, len(ritz.theta) // 3)


def vector_errors(ritz: Ritz, proven: bool = False, noise: float = 0.0) -> Vector:
    """Bounds of the sines of the angles of the first k vectors to the spaces of their groups.

    Those that are `proven` hold even if some of the k largest values were missed. Residuals have `noise` in addition to
    the noise of their values.
    """
    all_noise = replace(ritz, noise=ritz.noise + noise)
    limits = (lambda j: place(all_noise, j)) if proven else None
    # Bounds of the next eigenvalue grow at most as much as the level and the noise.
    limit, rounding = ritz.limit + 2 * noise, TURNING * all_noise.noise
    return vector_bounds(ritz.theta, all_noise.rounded_squares, ritz.k, limit, rounding, limits)


def place(ritz: Ritz, j: int) -> float:
    """Bound of the (j+1)-th eigenvalue, whatever was missed."""
    return max(_next_value(ritz, j), _theta(ritz, j) + ritz.noise)


def placed_errors(ritz: Ritz, S: Vector) -> Vector:
    """Bounds of the relative errors of the values S, whatever was missed."""
    grown = np.array([place(ritz, j) for j in range(len(S))]) - ritz.theta[: len(S)]
    return relative_errors(S, ritz.theta[: len(S)], grown, 0.0)


def _next_value(ritz: Ritz, j: int) -> float:
    return next_bound(ritz.theta, ritz.E, ritz.level + ritz.noise, j) + ritz.noise


def _theta(ritz: Ritz, j: int) -> float:
    return float(ritz.theta[j]) if j < len(ritz.theta) else -np.inf


def loss(ritz: Ritz) -> float:
    """Rounding of the last wanted value that is not 0, relative to it."""
    last = max(min(ritz.k, int(np.count_nonzero(ritz.theta > ritz.zero))), 1)
    return ritz.noise / max(float(ritz.theta[last - 1]), TINY)


def excess(ritz: Ritz, tol: float, errors: Vector) -> Vector:
    """Errors in units of the tolerance; residuals in units of their rounding where `tol` is 0."""
    return errors / tol if tol > 0 else ritz.r[: ritz.k] / (ritz.noise + TINY)


def likely_excess(ritz: Ritz, tol: float) -> float:
    """Estimate the largest of the errors that `excess` bounds, as if the next Ritz values were those of the rest."""
    if not tol > 0:
        return float(np.max(excess(ritz, tol, ritz.r)))
    theta = ritz.theta[: ritz.k]
    rest, there = float(ritz.theta[min(ritz.k + BEYOND, len(ritz.theta)) - 1]), theta > max(ritz.zero, TINY)
    # Quotients of residuals and values have no range to leave.
    gaps, leaning = np.maximum(1 - rest / theta[there], LEAST_GAP), ritz.r[: ritz.k][there] / theta[there]
    return float(np.max(leaning**2 / (2 * gaps), initial=0.0)) / tol


def shows(ritz: Ritz, fact: Fact, below: float) -> bool:
    """Return whether at most `count` eigenvalues exceed mu if nothing outside of the basis exceeds `below`."""
    count, mu = fact
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


def grown(ritz: Ritz, noise: float) -> Ritz:
    """Ritz values and residuals as large as they may be if rounding of size `noise` is in them."""
    there = ritz.r > 1e-6 * noise
    longer = ritz.E * (1 + noise / np.where(there, ritz.r, np.inf))
    # Residuals of 0 are as long along a direction of their own.
    return replace(ritz, theta=ritz.theta + noise, E=np.vstack([longer, np.where(there, 0.0, noise)[None]]))


# --- theorems --------------------------------------------------------------------------------------------------------


def groups(theta: Vector, squares: Vector) -> tuple[Vector, Vector]:
    # (First index, radius) of each group of values that their residuals cannot tell apart. Within ``radius = ||R_C||_F
    # >= ||R_C||_2`` of the values of a group C lie as many exact eigenvalues (Kahan; Parlett 1998, theorem 11.5.1).
    # Groups are joined until these intervals are disjoint, so that no eigenvalue counts twice.
    starts = np.arange(len(theta))
    while True:
        radii = np.sqrt(np.add.reduceat(squares, starts)) if len(starts) else np.zeros(0)
        joined = theta[starts[1:]] + radii[1:] >= theta[starts[1:] - 1] - radii[:-1]
        if not joined.any():
            return starts, radii
        starts = starts[np.append(True, ~joined)]


def value_bounds(theta: Vector, squares: Vector, k: int, beyond: float = np.inf) -> Vector:
    # Of the k largest, if none was missed: ``min(rho, rho^2 / gap)``, rho the radius of the group of j and gap its
    # distance to all eigenvalues below it (Kato & Temple; of groups: Lehmann), of which those after the k-th are at
    # most `beyond`.
    sizes, radii, gaps, *_ = _separated(theta, squares, k, beyond)
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = np.where(gaps > 0, np.minimum(radii, radii**2 / gaps), radii)
    return np.repeat(bounds, sizes)


def vector_bounds(
    theta: Vector, squares: Vector, k: int, beyond: float = np.inf, rounding: float = 0.0, limits: Limits | None = None
) -> Vector:
    # Sines of the angles of left and right vectors to the space of their group: ``r_j / gap``, gap the distance of
    # theta_j to the eigenvalues of other groups (Davis & Kahan 1970). A left vector ``A v / sigma`` leans towards a
    # larger eigenvalue lambda by ``sqrt(lambda / theta_j)`` more (Wedin 1972). 1 where rounding leaves no gap.
    # `rounding` is added to the residuals; ``limits(j)`` bounds the (j+1)-th eigenvalue even if others were missed.
    sizes, radii, gaps, above, members = _separated(theta, squares, k, beyond, limits)
    # Groups joined by rounding alone: other rounding may split them elsewhere.
    unsure = np.repeat((members > 1) & (radii <= np.sqrt(members) * rounding), sizes)
    t, ends = theta[:k], np.cumsum(sizes)
    above, least = np.repeat(above, sizes), np.repeat(theta[ends - 1] - gaps, sizes)
    with np.errstate(divide="ignore", invalid="ignore"):
        lean = np.where(np.isinf(above) | (t <= 0), 1.0, np.sqrt(np.maximum(above / t, 0)))
        gap = np.minimum(t - least, (above - t) / lean)
        sines = (np.sqrt(squares[:k]) + rounding) / gap
    return np.where((gap > 0) & ~unsure, np.minimum(sines, 1.0), 1.0)


def turned(sines: Vector, first: Vector, C: Panel, lengths: Vector | None = None) -> Vector:
    # Sines of combinations C of orthogonal vectors of these lengths, each column of C to the group of its place.
    # Members of the group leave its space by their own sines; all others may be orthogonal to it. Groups begin at the
    # places `first`.
    k = C.shape[1]
    member = np.searchsorted(first, np.arange(k), side="right")
    own, parts = member[:, None] == member, np.abs(C) * (1.0 if lengths is None else lengths[:, None])
    leaning = np.sum(np.where(own, parts * sines[:, None], 0), axis=0)
    return np.asarray(leaning + np.sqrt(np.sum(np.where(own, 0, parts) ** 2, axis=0)))


def _separated(
    theta: Vector, squares: Vector, k: int, beyond: float, limits: Limits | None = None
) -> tuple[Vector, Vector, Vector, Vector, Vector]:
    # Sizes, radii and gaps of the groups of the k first values, the least eigenvalue above each, and how many members
    # it has. The last group may extend past the k-th value. Eigenvalues are never below the Ritz value of the same
    # place, so the group above begins at its least Ritz value.
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
    # Distance of the k largest eigenvalues above their Ritz values. Nothing orthogonal to all Ritz vectors exceeds
    # `below`. By the Schur complement at ``mu = theta_k`` the j-th eigenvalue is at most that of ``diag(theta) + E^H E
    # / (mu - below)``; values after the first `depth` are eliminated beforehand, which leaves a small matrix (compare
    # Mathias 1998, Quadratic residual bounds for the Hermitian eigenvalue problem). Infinite where `below` is too high.
    mu, depth = theta[k - 1], min(depth or len(theta), len(theta))
    deep = mu - theta[depth:]
    unknown = np.full(k, np.inf)
    if not np.isfinite(below) or not mu > below or np.any(deep <= 0):
        return unknown
    W = (mu - below) * np.eye(len(E)) - (E[:, depth:] / deep) @ E[:, depth:].conj().T
    least, X = np.linalg.eigh(W)
    if not least.min(initial=1.0) > 0:
        return unknown
    F = (X.conj().T @ E[:, :depth]) / np.sqrt(least)[:, None]
    return np.asarray(np.linalg.eigvalsh(np.diag(theta[:depth]) + F.conj().T @ F)[::-1][:k] - theta[:k])


def next_bound(theta: Vector, E: Panel, below: float, k: int) -> float:
    # Bound of the (k+1)-th largest eigenvalue, where nothing orthogonal to the basis exceeds `below`: the least ``mu >
    # below`` above which `at_most` k eigenvalues lie.
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
    # Eigenvalues above mu are as many as those of ``diag(theta) + E^H E / (mu - below)`` above mu, which Sylvester's
    # law of inertia counts on a matrix of the size of E E^H.
    seen = int(np.count_nonzero(theta >= mu))
    if not mu > below or seen > k:
        return False
    away = np.maximum(np.abs(mu - theta), np.finfo(np.float64).tiny)
    with np.errstate(over="ignore", invalid="ignore"):
        M = (E * np.where(theta >= mu, -1, 1) / away) @ E.conj().T
    if not np.isfinite(M).all():  # as good as at a Ritz value
        return False
    if seen == k:  # a Cholesky factor tells as much as eigenvalues would, in a sixth of the time
        left = -M
        left[np.diag_indices(len(M))] += mu - below
        return _definite(left)
    return seen + int(np.count_nonzero(np.linalg.eigvalsh(M) > mu - below)) <= k


def _definite(M: Panel) -> bool:
    try:
        np.linalg.cholesky(M)
    except np.linalg.LinAlgError:
        return False
    return True


def relative_errors(S: Vector, rho: Vector, bounds: Vector, floor: float) -> Vector:
    # Bounds of ``|sigma - exact| / sigma`` for values S, from `bounds` of the eigenvalues near ``rho = ||A v||^2``;
    # they also hold relative to the exact value where that is smaller. A solver that ends with B = Q^H A returns S^2 =
    # ||Q^H A v||^2, which is below rho.
    divisor = np.where(S > 0, S, 1)
    above = (bounds + np.abs(rho - S**2)) / (2 * divisor**2)  # sqrt(1 + x) - 1 <= x / 2
    # Eigenvalues lie above their Ritz values.
    with np.errstate(divide="ignore", invalid="ignore"):
        below = S / np.sqrt(np.maximum(rho, 0)) - 1
    # A value reported as 0 has no relative error; it is right if its residual is rounding.
    lost = np.where(bounds + rho > floor, np.inf, 0.0)
    return np.where(S > 0, np.maximum(above, below), lost)


def rounding_bounds(values: Vector, columns: Vector | float, squares: Vector | float) -> Vector:
    least = np.sqrt(np.maximum(values**2 - squares, 0))
    most = np.maximum(values + least, np.sqrt(squares))
    return np.asarray(columns + squares / np.where(most > 0, most, 1))
