"""Certificate of given vectors: Ritz values, residuals, and a bound of all values on their complement."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.random import Generator

from shiftsvd.algebra.generic import cancelled, matmat_in_double, rmatmat_in_double
from shiftsvd.numerics import bounds
from shiftsvd.numerics.bounds import TURNING, Ritz
from shiftsvd.numerics.orth import inner, orth, triangle
from shiftsvd.numerics.panels import Vector, lengths
from shiftsvd.operators import Operator, Panel
from shiftsvd.solvers.constants import CERTIFY_SWEEPS, PROBABILITY, USUAL_BLOCK
from shiftsvd.solvers.factors import shift_rounding
from shiftsvd.solvers.krylov import Factorization
from shiftsvd.solvers.probe import Probe

# The probe stops if its level is within this share of the gap between the last Ritz value and the best level possible.
OF_GAP: Final = 0.05


@dataclass(frozen=True, eq=False)
class Subspace:
    """Ritz pairs of ``G = A^H A``, their residuals, and a bound of G on the complement of the Ritz vectors."""

    V: Panel  # (n, k), orthonormal
    scores: Panel  # A V
    theta: Vector  # (k,), descending
    R: Panel  # G V - V diag(theta)
    level: float  # with probability 1 - 1e-9, G on the complement of V is at most this; rounding included
    noise: float  # bound of the rounding error of products with G
    following: float = 0.0  # lower bound of the (k+1)-th eigenvalue of G

    @cached_property
    def sines(self) -> Vector:
        """Bound the sines of the angles of the vectors to the leading k-dimensional space of G; 1 without a gap."""
        return self._sines(lengths(self.R))

    def _sines(self, residuals: Vector | float) -> Vector:
        gaps = self.theta - self.noise - self.level
        if not gaps[-1] > 0:
            return np.ones(len(gaps))
        return np.asarray(np.minimum((residuals + TURNING * self.noise) / gaps, 1.0))

    @property
    def sine(self) -> float:
        return min(float(np.linalg.norm(self.sines)), 1.0)

    @property
    def rounding_sine(self) -> float:
        """The part of `sine` that remains if the residuals vanish."""
        return min(float(np.linalg.norm(self._sines(0.0))), 1.0)

    @cached_property
    def ritz(self) -> Ritz:
        return Ritz(self.theta, triangle(self.R), len(self.theta), self.noise, self.level)


def subspace(A: Operator, V: Panel, rng: Generator, enough: float | None = None) -> Subspace:
    """Compute Ritz pairs of the columns of V by one product with A, and bound all other values by a probe.

    The probe stops at a level of `enough`, or if its level leaves nearly the whole gap below the last Ritz value.
    """
    V = orth(V.astype(np.float64))
    n, k = V.shape
    Y = matmat_in_double(A, V).astype(np.float64)
    S, Wh = np.linalg.svd(triangle(Y))[1:]
    V, Y, theta = V @ Wh.T, Y @ Wh.T, np.zeros(k)
    theta[: len(S)] = S**2
    R = rmatmat_in_double(A, Y).astype(np.float64) - V * theta
    for _ in range(2):  # rounding errors along V would enter products of R with rows of A
        R -= V @ inner(V, R)
    eps, top = A.costs.gram_eps, float(S[0])
    shift = 2 * top * shift_rounding(A, eps) + bounds.residual_rounding(eps) * cancelled(A) * top
    noise = bounds.rounding_of(theta, eps) + shift
    if k == n:
        return Subspace(V, Y, theta, R, -np.inf, noise)  # the complement is empty
    basis = Factorization.from_ritz(V, theta, R, rng)
    probe = Probe(basis, USUAL_BLOCK, PROBABILITY, noise)
    for _ in range(CERTIFY_SWEEPS):
        probe.add_product(np.asarray(A.gram(basis.block), np.float64))
        best = max(theta[-1] - probe.top, 0) * OF_GAP + probe.top if enough is None else enough - 2 * noise
        if basis.width == 0 or probe.level <= best or (enough is None and probe.top >= theta[-1]):
            break
    probe.finish()
    H = basis.H[: basis.size, : basis.size]
    following = float(np.linalg.eigvalsh(H)[-k - 1]) - noise - basis.rounding if basis.size > k else 0.0
    return Subspace(V, Y, theta, R, max(probe.level, 0.0) + noise, noise, max(following, 0.0))
