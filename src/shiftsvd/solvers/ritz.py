"""What is known of approximate eigenvalues of ``A^H A``, and of what may have been missed."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from shiftsvd.numerics.bounds import at_most, groups, growth_bounds, level, relative_errors, value_bounds, vector_bounds
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel

# What rounding does to a residual, in units of the largest value: sums are made block by block, so that less than one
# unit was measured in single precision (on counts and on images); in double precision there is room for caution.
ROUNDING, ROUNDING_SINGLE = 8.0, 2.0
# The rounding of values may take this share of the tolerance.
SHARE = 0.5
TINY = float(np.finfo(np.float64).tiny)
# How many Ritz values beyond those that are wanted are taken in to see what these can still grow by, where that has to
# be inferred. More of them lie too deep to tell where the rest of the spectrum begins: with 32, that was underrated in
# one check of three.
BEYOND = 16
# So many residuals above the next value the rest is inferred to reach. With one, 11 of 570 runs on flat spectra (blocks
# of 4, loose tolerances) had values above their bounds, by up to 2.2; with two, none, for 0.1 % of the columns.
AHEAD = 2.0
# What rounding turns a vector by, in units of what it does to a residual: up to 3 were measured, against references by
# LAPACK, in which it is of the same size.
TURNING = 32.0


Needs = list[tuple[int, float]]  # pairs (count, mu): at most so many eigenvalues may exceed mu


def residual_rounding(eps: float) -> float:
    return eps * (ROUNDING if eps < 1e-10 else ROUNDING_SINGLE)


@dataclass(frozen=True, eq=False)
class Ritz:
    """Approximations of the largest eigenvalues of ``A^H A``, descending, and what is known of the rest.

    Attributes
    ----------
    theta : array of shape (N,)
    E : array of shape (p, N)
        The residuals of their vectors, in coordinates of some orthonormal system.
    eps : float
        Rounding unit of the products that they came from.
    level : float
        What is orthogonal to all of the vectors has no eigenvalue above this: -inf where there is nothing, inf where
        nothing is known.
    measured : float
        What rounding was seen to do to a product.
    known : float
        What the first eigenvalue that is not wanted is known not to exceed.
    zero : float
        Eigenvalues up to this are reported as 0.
    """

    theta: Vector
    E: Panel
    eps: float
    level: float = np.inf
    measured: float = 0.0
    known: float = np.inf
    zero: float = 0.0
    limits: dict[int, float] = field(default_factory=dict, init=False, repr=False)  # those that were asked for

    @cached_property
    def squares(self) -> Vector:
        return np.asarray(np.sum(np.abs(self.E) ** 2, axis=0))

    @cached_property
    def r(self) -> Vector:
        return np.asarray(np.sqrt(self.squares))

    def noise(self) -> float:
        largest = max(abs(float(self.theta[0])), abs(float(self.theta[-1])))
        return max(residual_rounding(self.eps) * largest, self.measured)

    def loss(self, k: int) -> float:
        last = max(min(k, int(np.count_nonzero(self.theta > self.zero))), 1)
        return self.noise() / max(float(self.theta[last - 1]), TINY)

    def errors(self, k: int, S: Vector | None = None, inferring: bool = True) -> Vector:
        theta, noise = self.theta, self.noise()
        S = np.sqrt(np.where(theta[:k] > self.zero, theta[:k], 0)) if S is None else S
        limit = self.limit(k)
        bounds = value_bounds(theta, (self.r + noise) ** 2, k, limit)
        proven = growth_bounds(theta, self.E, self.level + noise, k, k + BEYOND)
        depth = self._depth(k)
        if np.isfinite(proven[0]):
            bounds = np.minimum(bounds, proven + noise)
        elif not inferring and self.level > -np.inf:
            bounds = np.full(k, np.inf)
        elif depth > k and self.level > -np.inf:  # a heuristic, where nothing is proven
            inferred = growth_bounds(theta[:depth], self.E[:, :depth], self.inferred(k), k)
            # Where even that says nothing, some of the k may not have been seen yet, as far off as those that were.
            if not np.isfinite(inferred[0]):
                bounds = value_bounds(theta, (AHEAD * self.r + noise) ** 2, k, limit)
            bounds = np.minimum(bounds, inferred + noise)
        return relative_errors(S, theta[:k], bounds, max(ROUNDING * noise, self.zero))

    def inferred(self, k: int) -> float:
        depth = max(self._depth(k), min(k, len(self.theta) - 1))
        return float(self.theta[depth] + AHEAD * self.r[depth] + self.noise())

    def _depth(self, k: int) -> int:
        return min(k + BEYOND, len(self.theta) // 3)

    def angles(self, k: int, proven: bool = False) -> Vector:
        """Bounds of the sines of the angles of the k first vectors to the spaces of their groups.

        Those that are `proven` hold even if some of the k largest values were missed.
        """
        noise = self.noise()
        limits = self.place if proven else None
        return vector_bounds(self.theta, (self.r + noise) ** 2, k, self.limit(k), TURNING * noise, limits)

    def place(self, j: int) -> float:
        noise, least = self.noise(), float(self.theta[j]) if j < len(self.theta) else -np.inf
        return max(level(self.theta, self.E, self.level + noise, j), least) + noise

    def placed(self, S: Vector) -> Vector:
        grown = np.array([self.place(j) for j in range(len(S))]) - self.theta[: len(S)]
        return relative_errors(S, self.theta[: len(S)], grown, 0.0)

    def limit(self, k: int) -> float:
        if k not in self.limits:
            self.limits[k] = self._limit(k)
        return self.limits[k]

    def _limit(self, k: int) -> float:
        if len(self.theta) == k and self.level == -np.inf:
            return -np.inf
        least = float(self.theta[k]) if len(self.theta) > k else -np.inf
        proven = level(self.theta, self.E, self.level + self.noise(), k) + self.noise()
        return max(min(proven, self.known), least)

    def copies(self, k: int) -> tuple[int, int]:
        ends = np.append(groups(self.theta, (self.r + self.noise()) ** 2)[0], len(self.theta))
        sizes = np.diff(ends)[ends[1:] < k]
        at = int(np.argmax(sizes)) if len(sizes) else 0
        return (int(sizes[at]), int(ends[at + 1])) if len(sizes) else (0, 0)

    def worst_of_group(self, k: int) -> Vector:
        starts = groups(self.theta, (self.r + self.noise()) ** 2)[0]
        worst = np.maximum.reduceat(self.r, starts)
        return np.asarray(worst[np.searchsorted(starts, np.arange(k), side="right") - 1])

    def at_most(self, count: int, mu: float, below: float) -> bool:
        return at_most(self.theta, self.E, below + self.noise(), count, mu - self.noise())

    def meets(self, needs: Needs, below: float) -> bool:
        return all(self.at_most(count, mu, below) for count, mu in needs)

    def decided(self, needs: Needs, level: float, top: float) -> bool:
        """Whether a probe has shown these by its level, or cannot: its largest Ritz value is too high for any level.

        Then something was found, and is in the basis.
        """
        return self.meets(needs, level) or not self.meets(needs, top)

    def needs(self, k: int, mu: float, seen: int) -> Needs:
        """Pairs (count, mu) of what a probe has to show: at most so many eigenvalues may exceed mu.

        At most k may exceed the mu that is given; and where there are as many copies of a value as there were random
        columns to find them with, there may be more of them.
        """
        size, end = self.copies(k)
        more = [(end, float(self.theta[end - 1] + self.theta[end]) / 2)] if size >= seen else []
        return [(k, mu), *more]

    def ready(self, k: int, needs: Needs) -> int | None:
        size = len(self.theta)
        ripe = (K for K in (size, 2 * k, k + BEYOND, k) if K <= size and self.first(K).ripe(k, needs))
        return next(ripe, None)

    def ripe(self, k: int, needs: Needs) -> bool:
        next_values = float(self.theta[min(k + BEYOND, len(self.theta)) - 1])
        return all(self.at_most(count, mu, (mu + min(mu, next_values)) / 2) for count, mu in needs)

    def first(self, count: int) -> "Ritz":
        return replace(self, theta=self.theta[:count], E=self.E[:, :count], level=np.inf)

    def grown(self, noise: float) -> "Ritz":
        there = self.r > 1e-6 * noise
        longer = self.E * (1 + noise / np.where(there, self.r, np.inf))
        # Residuals of 0 are as long along a direction of their own.
        return replace(self, theta=self.theta + noise, E=np.vstack([longer, np.where(there, 0.0, noise)[None]]))

    def excess(self, k: int, tol: float, errors: Vector | None = None) -> Vector:
        if tol > 0:
            return (self.errors(k) if errors is None else errors) / tol
        return self.r[:k] / (self.noise() + TINY)


def allowed(ritz: Ritz, k: int, missed_tol: float) -> float:
    return max(float(ritz.theta[k - 1]) * (1 + missed_tol) ** 2, 32 * ROUNDING * ritz.noise(), ritz.zero, TINY)
