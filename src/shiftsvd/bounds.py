"""Bounds: how far exact eigenvalues and vectors can be from Ritz values, by what is left of them.

``G`` is Hermitian, ``theta`` are its Ritz values in some basis, descending, and the columns of ``E`` the coordinates of
their residuals in an orthonormal system. docs/how_it_works.rst derives each bound and tells proofs from heuristics.
"""

import numpy as np

from shiftsvd.algebra.panels import Panel
from shiftsvd.moments import Vector

# Halvings of an interval in which a level is sought: to 1e-9 of it.
HALVINGS = 30


def groups(theta: Vector, squares: Vector) -> tuple[Vector, Vector]:
    """(first index of each group, radius of each group) of values that their residuals cannot tell apart.

    Within ``radius = ||R_C||_F >= ||R_C||_2`` of the values of a group C lie as many exact eigenvalues (Kahan; Parlett
    1998, theorem 11.5.1); groups are joined until those intervals are apart, so that no eigenvalue counts twice.
    """
    found: list[tuple[int, float]] = []
    for j, square in enumerate(squares.tolist()):
        first, own = j, square
        while found and theta[first] + np.sqrt(own) >= theta[first - 1] - np.sqrt(found[-1][1]):
            first, before = found.pop()
            own += before
        found.append((first, own))
    return np.array([first for first, _ in found]), np.sqrt([own for _, own in found])


def value_bounds(theta: Vector, squares: Vector, k: int, beyond: float = np.inf) -> Vector:
    """How far each of the k largest eigenvalues can lie from its Ritz value, given that none was missed.

    ``min(rho, rho^2 / gap)`` with rho the radius of the group of j among the first k, and gap the distance of that
    group to all eigenvalues below it (Kato & Temple, for groups: Lehmann). The eigenvalues that follow the k-th are at
    most `beyond`, and at most what the Ritz values after the k-th and the radius of their group say.
    """
    starts, radii, below = _intervals(theta, squares, k, beyond)
    ends = np.append(starts[1:], k)
    gaps = theta[ends - 1] - below
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = np.where(gaps > 0, np.minimum(radii, radii**2 / gaps), radii)
    return np.repeat(bounds, ends - starts)


def vector_bounds(theta: Vector, squares: Vector, k: int, beyond: float = np.inf) -> Vector:
    """Bounds of the sines of the angles of the k first vectors, left and right, to the space of their group.

    ``r_j / gap`` with the distance of theta_j to the eigenvalues of all other groups (Davis & Kahan 1970); a left vector
    ``A v / sigma`` leans towards a larger eigenvalue lambda by ``sqrt(lambda / theta_j)`` more (Wedin 1972). 1 where there
    is no gap.
    """
    starts, _, below = _intervals(theta, squares, k, beyond)
    sizes = np.diff(np.append(starts, k))
    # Eigenvalues are never below the Ritz values of the same place.
    above = np.repeat(np.append(np.inf, theta[starts[1:] - 1]), sizes)
    t = theta[:k]
    with np.errstate(divide="ignore", invalid="ignore"):
        lean = np.where(np.isinf(above) | (t <= 0), 1.0, np.sqrt(above / t))
        gap = np.minimum(t - np.repeat(below, sizes), (above - t) / lean)
        sines = np.sqrt(squares[:k]) / gap
    return np.where(gap > 0, np.minimum(sines, 1.0), 1.0)


def _intervals(theta: Vector, squares: Vector, k: int, beyond: float) -> tuple[Vector, Vector, Vector]:
    """(starts, radii) of the groups of the k first, and what the eigenvalues below each group are at most."""
    starts, radii = groups(theta[:k], squares[:k])
    if len(theta) > k:
        _, rest = groups(theta[k:], squares[k:])
        beyond = min(beyond, float(theta[k] + rest[0]))
    return starts, radii, np.append(theta[starts[1:]] + radii[1:], beyond)


def growth_bounds(theta: Vector, E: Panel, below: float, k: int, depth: int | None = None) -> Vector:
    """How far the k largest eigenvalues can lie above their Ritz values, by what couples these to everything else.

    What is orthogonal to all Ritz vectors has no eigenvalue above `below`. By the Schur complement at ``mu = theta_k``
    the j-th eigenvalue is at most that of ``diag(theta) + E^H E / (mu - below)``; the values after the first `depth` are
    eliminated beforehand, which leaves a small matrix (compare Mathias 1998, Quadratic residual bounds for the Hermitian
    eigenvalue problem). Infinite where `below` is too high to say anything.
    """
    mu, depth = theta[k - 1], min(depth or len(theta), len(theta))
    deep = mu - theta[depth:]
    unknown = np.full(k, np.inf)
    if not mu > below or np.any(deep <= 0):
        return unknown
    if below == -np.inf:
        return np.zeros(k)
    W = (mu - below) * np.eye(len(E)) - (E[:, depth:] / deep) @ E[:, depth:].conj().T
    least, X = np.linalg.eigh(W)
    if not least.min(initial=1.0) > 0:
        return unknown
    F = (X.conj().T @ E[:, :depth]) / np.sqrt(least)[:, None]
    return np.asarray(np.linalg.eigvalsh(np.diag(theta[:depth]) + F.conj().T @ F)[::-1][:k] - theta[:k])


def level(theta: Vector, E: Panel, below: float, k: int) -> float:
    """What the (k+1)-th largest eigenvalue is at most, where nothing orthogonal to the basis exceeds `below`.

    The least ``mu > below`` above which at most k eigenvalues lie: those are as many as eigenvalues of
    ``diag(theta) + E^H E / (mu - below)`` above mu, which Sylvester's law of inertia counts on a matrix of the size of E E^H.
    """
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
    """Whether at most k eigenvalues lie above mu, where nothing orthogonal to the basis exceeds `below`."""
    seen = int(np.count_nonzero(theta >= mu))
    if not mu > below or seen > k:
        return False
    away = np.abs(mu - theta) + np.finfo(np.float64).tiny
    M = (E * np.where(theta >= mu, -1, 1) / away) @ E.conj().T
    return seen + int(np.count_nonzero(np.linalg.eigvalsh(M) > mu - below)) <= k


def relative_errors(S: Vector, rho: Vector, bounds: Vector, floor: float) -> Vector:
    """Bounds of ``|sigma - exact| / sigma`` for values S, from those of the eigenvalues near ``rho = ||A v||^2``."""
    # Not every solver returns S^2 = rho: one that ends with B = Q^H A has S^2 = ||Q^H A v||^2 below it.
    bounds = bounds + np.abs(rho - S**2)
    # A value reported as 0 has no relative error; it is right if its residual is rounding.
    lost = np.where(bounds + rho > floor, np.inf, 0.0)
    return np.where(S > 0, bounds / (2 * np.where(S > 0, S, 1) ** 2), lost)
