"""Block Lanczos for the largest eigenvalues of an indefinite Hermitian matrix."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from shiftsvd.numerics.bounds import (
    NEIGHBOURS,
    TINY,
    TURNING,
    CountBound,
    Ritz,
    groups,
    rounding_of,
    value_bounds,
    value_errors,
    value_limit,
    vector_bounds,
)
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import inner
from shiftsvd.numerics.panels import lengths
from shiftsvd.operators import Operator, Panel, panel_dtype
from shiftsvd.solvers.base import TOL
from shiftsvd.solvers.constants import MISSED_TOL, SWEEPS, USUAL_BLOCK
from shiftsvd.solvers.krylov import Factorization, RitzPairs
from shiftsvd.solvers.probe import Proven, miss_limit, prove, required_bounds
from shiftsvd.solvers.problem import Budget, Continue, Outcome, Products, Stop, basis_columns, most_passes
from shiftsvd.solvers.solve import advance, cannot_step, converge


class Eigenpairs(NamedTuple):
    """Largest eigenvalues of a Hermitian matrix, with error bounds."""

    values: Vector  # descending
    vectors: Panel
    value_errors: Vector  # relative, of ``sqrt(lambda)``; of a value of at most 0, its residual over the largest
    converged: bool
    n_passes: int
    negative: float  # the sum of the absolute negative eigenvalues, estimated from the first block
    lowest: float  # an upper bound of the lowest eigenvalue
    rest: Vector = np.empty(0)  # the other Ritz values, descending
    limit: float = np.inf  # a proven bound of the next eigenvalue; infinite if none was proven
    spent: bool = False  # the budget ended the run
    starts: Vector = np.empty(0)  # the first index of each group of values that rounding errors do not separate


@dataclass(frozen=True)
class HermitianLanczos:
    """Block Lanczos with thick restart on A itself, because ``A^2`` would mix positive and negative eigenvalues.

    `tol` bounds the relative errors of the square roots of the eigenvalues; 0 means down to rounding. The other
    settings are those of `BlockLanczos`. Each step takes one pass.
    """

    tol: float = TOL
    block_size: int | None = None
    max_basis: int | None = None
    max_passes: int | None = None
    longest: int = 0  # maximum number of passes, instead of `max_passes`, as soon as bounds of all errors are below 1
    noise: float = 0.0  # rounding errors of products of unit vectors, if terms of a product cancel

    def block(self, n: int) -> int:
        return min(self.block_size or USUAL_BLOCK, n)

    def basis_columns(self, k: int, n: int) -> int:
        return basis_columns(k, self.block(n), n, self.max_basis)

    def reserved_columns(self, k: int, n: int) -> int:
        """Return the columns of the basis, plus those that a probe is likely to add."""
        return min(self.basis_columns(k, n) + (SWEEPS + 1) * self.block(n), n)

    def peak_columns(self, k: int, n: int) -> int:
        """Predict the columns of all panels: the basis, half of it in a restart, some blocks, and vectors."""
        return self.reserved_columns(k, n) + self.basis_columns(k, n) // 2 + 3 * self.block(n) + 2 * k

    def __call__(self, A: Operator, k: int, rng: Generator, start: Panel | None = None) -> Eigenpairs:
        n, b, dtype = A.shape[0], self.block(A.shape[0]), panel_dtype(A.dtype)
        Q = rng.standard_normal((n, b)) if start is None else start @ rng.standard_normal((start.shape[1], b))
        budget = Budget(max(self.max_passes or most_passes(n, b), -(-k // b)))
        G = Products(A.matmat, dtype, budget, reads=1, last_reads=1, double_eps=A.costs.eps)
        F = Factorization.of(Q.astype(dtype), self.basis_columns(k, n), rng, reserved=self.reserved_columns(k, n))
        # `_negative` needs the first block, which is in the basis until the first restart or probe. Check before both.
        first_epoch, steps = F.epoch, min(max(2, 2 * k // b) + 1, n if F.columns == n else F.columns // b - 1)
        proven, negative, lowest = Proven(b), 0.0, np.inf

        def check(pairs: RitzPairs) -> tuple[Ritz, Outcome | Continue]:
            nonlocal negative, lowest
            ritz = self._ritz(pairs, k, G, F, proven)
            lowest = min(lowest, float(pairs.theta[-1]))
            if F.epoch == first_epoch and not proven.n_probes:
                negative = _negative(ritz, pairs.Z, F)
            errors = self.errors(ritz, proven)
            converged = self.converged(ritz, errors)
            if np.all(errors < 1):
                budget.max_passes = max(budget.max_passes, self.longest)
            if cannot_step(G, F):
                return ritz, Stop.SPENT
            return ritz, Stop.CONVERGED if converged else Continue(1)

        while True:
            ritz, outcome = converge(partial(advance, G, F, lambda theta: k), check, steps)
            if outcome is Stop.SPENT or not proven.needs_probe(needs := self.needs(ritz, proven)):
                break
            proven = prove(G, F, ritz, needs, proven).proven
            steps = int(proven.needs_probe(self.needs(ritz, proven)))
        found = ritz.theta[:k], F.vectors(k), self.errors(ritz, proven)
        converged = self.converged(ritz, found[2]) and self.complete(ritz, proven)
        known, spent = proven.limit(k), outcome is Stop.SPENT and F.size < n
        rest, starts = ritz.theta[k:], self.starts(ritz)
        return Eigenpairs(*found, converged, budget.n_passes, negative, lowest, rest, known, spent, starts)

    def _ritz(self, pairs: RitzPairs, k: int, G: Products, F: Factorization, proven: Proven) -> Ritz:
        noise = rounding_of(pairs.theta, G.eps, self.noise)
        return Ritz(pairs.theta, pairs.E, k, noise, proven.level_of(F), proven.limit(k))

    # --- the errors that `tol` bounds ---------------------------------------------------------------------------------

    def errors(self, ritz: Ritz, proven: Proven) -> Vector:
        theta, noise = ritz.theta[: ritz.k], ritz.noise
        first = max(float(np.abs(ritz.theta).max(initial=0)), TINY)
        rounded = noise / (2 * np.maximum(theta, max(noise, TINY)))
        return np.where(theta > noise, value_errors(ritz) + rounded, (ritz.r[: ritz.k] + noise) / first)

    def starts(self, ritz: Ritz) -> Vector:
        return np.arange(ritz.k)

    def needs(self, ritz: Ritz, proven: Proven) -> list[CountBound]:
        return required_bounds(ritz, self._miss_limit(ritz), proven.seen)

    def complete(self, ritz: Ritz, proven: Proven) -> bool:
        return ritz.limit <= self._miss_limit(ritz)

    def _miss_limit(self, ritz: Ritz) -> float:
        relative = miss_limit(ritz, max(self.tol, MISSED_TOL))
        # Values that are not positive have no relative criterion.
        if ritz.theta[ritz.k - 1] > ritz.noise:
            return relative
        return max(relative, MISSED_TOL * float(np.abs(ritz.theta).max()))

    def converged(self, ritz: Ritz, errors: Vector) -> bool:
        return bool(np.all((errors <= self.tol) | self._at_rounding(ritz)))

    def _at_rounding(self, ritz: Ritz) -> NDArray[np.bool_]:
        return np.asarray(ritz.r[: ritz.k] <= ritz.noise)


@dataclass(frozen=True)
class VectorLanczos(HermitianLanczos):
    """Block Lanczos whose `tol` bounds the sines of the angles of vectors to eigenvectors.

    If rounding errors do not separate eigenvalues, the angle is to the space of their eigenvectors. The sine is 1 while
    residuals do not separate them. `Eigenpairs.value_errors` has these sines.
    """

    def errors(self, ritz: Ritz, proven: Proven) -> Vector:
        (starts, radii, end), limits = _groups(ritz), None
        if proven.n_probes:
            # If at most `end` eigenvalues exceed those of the groups, none was missed among them: gaps between groups
            # are those of Ritz values. Without a probe, the gap after the last group is, too.
            limit = min(value_limit(ritz, end), proven.limit(end))
            below = dict(zip(starts.tolist(), (ritz.theta[starts] + radii).tolist(), strict=True)) | {end: limit}
            limits = below.__getitem__ if limit < ritz.theta[end - 1] else lambda _: np.inf
        sines = vector_bounds(ritz.theta, _squares(ritz), ritz.k, ritz.limit, limits=limits, left=False)
        return np.where(_unresolved(ritz), 1.0, sines)

    def _at_rounding(self, ritz: Ritz) -> NDArray[np.bool_]:
        # The group of the k-th value may end with values of larger residuals.
        return super()._at_rounding(ritz) & ~_unresolved(ritz)

    def starts(self, ritz: Ritz) -> Vector:
        return _groups(ritz)[0]

    def needs(self, ritz: Ritz, proven: Proven) -> list[CountBound]:
        needs, end = super().needs(ritz, proven), _groups(ritz)[2]
        # Prove a bound in the middle of the gap after the group of the k-th value: a sine doubles at most.
        if end < len(ritz.theta) and ritz.theta[end - 1] - ritz.theta[end] > TURNING * ritz.noise:
            needs[0] = end, float(ritz.theta[end - 1] + ritz.theta[end]) / 2
        return needs

    def complete(self, ritz: Ritz, proven: Proven) -> bool:
        return proven.covers(self.needs(ritz, proven)) or ritz.level == -np.inf


def errors_of_pairs(product: Panel, V: Panel, theta: Vector, noise: float, limit: float) -> Vector:
    """Bound the errors of the eigenvalues theta by the residuals of their vectors V, given the product with V.

    `limit` bounds the next eigenvalue.
    """
    R = product - V * theta
    R -= V @ inner(V, R)
    return value_bounds(theta, (lengths(R) + noise) ** 2, len(theta), limit)


def _groups(ritz: Ritz) -> tuple[Vector, Vector, int]:
    """Return the first index and the radius of each group, and the end of the group of the k-th value."""
    depth = _group_depth(ritz)
    starts, radii = groups(ritz.theta[:depth], _squares(ritz)[:depth])
    return starts, radii, int(min(starts[starts >= ritz.k], default=depth))


def _unresolved(ritz: Ritz) -> NDArray[np.bool_]:
    starts, radii, _ = _groups(ritz)
    sizes = np.diff(np.append(starts, _group_depth(ritz)))
    return np.repeat((sizes > 1) & (radii > 2 * np.sqrt(sizes) * _rounding(ritz)), sizes)[: ritz.k]


def _group_depth(ritz: Ritz) -> int:
    return min(ritz.k + NEIGHBOURS, len(ritz.theta))


def _squares(ritz: Ritz) -> Vector:
    return np.asarray((ritz.r + _rounding(ritz)) ** 2)


def _rounding(ritz: Ritz) -> float:
    return (1 + TURNING) * ritz.noise


def _negative(ritz: Ritz, Z: Panel, F: Factorization) -> float:
    """Estimate the sum of the negative eigenvalues from the first block (Ubaru, Chen & Saad 2017)."""
    below = np.maximum(-ritz.theta - ritz.noise, 0)
    weights = np.sum(np.abs(Z[: F.block_width]) ** 2, axis=0) * F.n / F.block_width
    return float(below.sum() if F.size == F.n else below @ weights)
