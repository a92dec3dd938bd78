"""Bounds of the distance of exact eigenvalues and vectors from Ritz values and vectors, by their residuals.

``theta`` are Ritz values of a Hermitian matrix G in some basis, descending; the columns of ``E`` are the coordinates of
their residuals in an orthonormal system, `squares` the squared norms of these. docs/how_it_works.rst derives each bound
and tells proofs from heuristics.
"""

from collections.abc import Callable

import numpy as np

from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import Panel

Limits = Callable[[int], float]
# Values after the k-th that may belong to its group: with all, a crowded tail would join it; with none, it would always
# seem to stand alone.
NEIGHBOURS = 4
HALVINGS = 17  # of the interval that contains a level: to 1e-5 of it


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


def level(theta: Vector, E: Panel, below: float, k: int) -> float:
    # Bound of the (k+1)-th largest eigenvalue, where nothing orthogonal to the basis exceeds `below`: the least ``mu >
    # below`` above which `at_most` k eigenvalues lie.
    if below == np.inf:
        return float("inf")
    if below == -np.inf:
        return float(theta[k]) if len(theta) > k else -np.inf
    low = max(below, float(theta[k]) if len(theta) > k else below)
    high = low + float(np.linalg.norm(E)) + 1e-15 * abs(low)
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
