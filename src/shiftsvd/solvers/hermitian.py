"""Block Lanczos for the largest eigenvalues of an indefinite Hermitian matrix."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from shiftsvd.numerics.bounds import TINY, CountBound, Ritz, rounding_of, value_errors
from shiftsvd.operators import Operator, Panel, Vector, panel_dtype
from shiftsvd.solvers.base import TOL
from shiftsvd.solvers.constants import MISSED_TOL, USUAL_BLOCK
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

    def block(self, n: int) -> int:
        return min(self.block_size or USUAL_BLOCK, n)

    def basis_columns(self, k: int, n: int) -> int:
        return basis_columns(k, self.block(n), n, self.max_basis)

    def __call__(self, A: Operator, k: int, rng: Generator) -> Eigenpairs:
        n, b, dtype = A.shape[0], self.block(A.shape[0]), panel_dtype(A.dtype)
        budget = Budget(self.max_passes or most_passes(n, b))
        G = Products(A.matmat, dtype, budget, reads=1, last_reads=1, double_eps=A.costs.eps)
        F = Factorization.of(rng.standard_normal((n, b)).astype(dtype), self.basis_columns(k, n), rng)
        # `_negative` needs the first block, which is in the basis until the first restart or probe. Check before both.
        first_epoch, steps = F.epoch, min(max(2, 2 * k // b) + 1, n if F.columns == n else F.columns // b - 1)
        proven, negative, lowest = Proven(b), 0.0, np.inf

        def check(pairs: RitzPairs) -> tuple[Ritz, Outcome | Continue]:
            nonlocal negative, lowest
            ritz = _ritz(pairs, k, G, F, proven)
            lowest = min(lowest, float(pairs.theta[-1]))
            if F.epoch == first_epoch and not proven.n_probes:
                negative = _negative(ritz, pairs.Z, F)
            if cannot_step(G, F):
                return ritz, Stop.SPENT
            return ritz, Stop.CONVERGED if _converged(ritz, self.tol) else Continue(1)

        while True:
            ritz, outcome = converge(partial(advance, G, F, lambda theta: k), check, steps)
            if outcome is Stop.SPENT or not proven.needs_probe(needs := _needs(ritz, self.tol, proven)):
                break
            proven = prove(G, F, ritz, needs, proven).proven
            steps = int(proven.needs_probe(_needs(ritz, self.tol, proven)))
        converged = _converged(ritz, self.tol) and ritz.limit <= _miss_limit(ritz, self.tol)
        found = ritz.theta[:k], F.vectors(k), _errors(ritz)
        return Eigenpairs(*found, converged, budget.n_passes, negative, lowest)


def _ritz(pairs: RitzPairs, k: int, G: Products, F: Factorization, proven: Proven) -> Ritz:
    noise = rounding_of(pairs.theta, G.eps)
    return Ritz(pairs.theta, pairs.E, k, noise, proven.level_of(F), proven.limit(k))


def _converged(ritz: Ritz, tol: float) -> bool:
    return bool(np.all((_errors(ritz) <= tol) | (ritz.r[: ritz.k] <= ritz.noise)))


def _errors(ritz: Ritz) -> Vector:
    theta, noise = ritz.theta[: ritz.k], ritz.noise
    first = max(float(np.abs(ritz.theta).max(initial=0)), TINY)
    rounded = noise / (2 * np.maximum(theta, max(noise, TINY)))
    return np.where(theta > noise, value_errors(ritz) + rounded, (ritz.r[: ritz.k] + noise) / first)


def _needs(ritz: Ritz, tol: float, proven: Proven) -> list[CountBound]:
    return required_bounds(ritz, _miss_limit(ritz, tol), proven.seen)


def _miss_limit(ritz: Ritz, tol: float) -> float:
    relative = miss_limit(ritz, max(tol, MISSED_TOL))
    # Values that are not positive have no relative criterion.
    if ritz.theta[ritz.k - 1] > ritz.noise:
        return relative
    return max(relative, MISSED_TOL * float(np.abs(ritz.theta).max()))


def _negative(ritz: Ritz, Z: Panel, F: Factorization) -> float:
    """Estimate the sum of the negative eigenvalues from the first block (Ubaru, Chen & Saad 2017)."""
    below = np.maximum(-ritz.theta - ritz.noise, 0)
    weights = np.sum(np.abs(Z[: F.block_width]) ** 2, axis=0) * F.n / F.block_width
    return float(below.sum() if F.size == F.n else below @ weights)
