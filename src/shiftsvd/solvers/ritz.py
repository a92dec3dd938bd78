"""What is known of approximate eigenvalues of ``A^H A``, and the last reading that takes components from them."""

from typing import NamedTuple

import numpy as np

from shiftsvd.accuracy import growth_bounds, value_errors
from shiftsvd.moments import Vector
from shiftsvd.operators import Operator, Panel
from shiftsvd.orth import inner, stacked, triangle
from shiftsvd.result import Certificate
from shiftsvd.solvers.base import Factors, long_factor, rank_floor

# What rounding does to a residual, in units of the largest value: sums are made block by block, so that less than one
# unit was measured in single precision (on counts and on images); in double precision there is room for caution.
ROUNDING, ROUNDING_SINGLE = 8.0, 2.0
# The rounding of values may take this share of the tolerance.
SHARE = 0.5
TINY = float(np.finfo(np.float64).tiny)
# How many Ritz values beyond those that are wanted are taken in to see what these can still grow by. More of them lie
# too deep to tell where the rest of the spectrum begins: with 32, that was underrated in one check of three.
BEYOND = (4, 8, 16)


def rounding(eps: float) -> float:
    """The relative rounding of residuals from products of unit `eps`."""
    return eps * (ROUNDING if eps < 1e-10 else ROUNDING_SINGLE)


class Ritz(NamedTuple):
    """Approximations of the largest eigenvalues of ``A^H A``, descending, and the norms of their residuals."""

    theta: Vector
    r: Vector
    eps: float  # rounding unit of the products that they came from
    N: Panel = np.empty((0, 0))  # the Gram matrix of the leading residuals, as far as it is known

    def noise(self) -> float:
        """What rounding does to a value or a residual."""
        return rounding(self.eps) * max(float(self.theta[0]), 0.0)

    def loss(self, k: int, eps: float | None = None) -> float:
        """The relative rounding of the k-th value in products of unit `eps`."""
        ratio = float(self.theta[0]) / max(float(self.theta[k - 1]), TINY)
        return rounding(self.eps if eps is None else eps) * ratio

    def errors(self, k: int, S: Vector | None = None) -> Vector:
        """Bounds of the relative errors of the k largest singular values; the others tell how far these are apart."""
        theta, noise = np.maximum(self.theta, 0), self.noise()
        values = np.sqrt(theta)
        if S is not None:
            values[: len(S)] = S
        growth = np.full(len(theta), np.inf)
        growth[:k] = self._growth(theta, k) + noise
        return value_errors(values, theta, self.r + noise, ROUNDING * noise, growth)[:k]

    def _growth(self, theta: Vector, k: int) -> Vector:
        """How far the exact k largest can lie above these, by what couples them to the rest."""
        least = np.full(k, np.inf)
        for j in (k + beyond for beyond in BEYOND if k + beyond < len(theta) and k + beyond <= len(self.N)):
            below = theta[j] + self.r[j] + self.noise()
            least = np.minimum(least, growth_bounds(theta[:j], self.N[:j, :j], below, k))
        return least

    def copies(self, k: int) -> int:
        """The most values above the k-th that cannot be told apart, chained by their residuals."""
        low, high = self.theta - self.r - self.noise(), self.theta + self.r + self.noise()
        most = run = 1
        for j in range(1, min(k + 1, len(self.theta))):
            if high[j] >= low[j - 1]:
                run += 1
            else:
                most, run = max(most, run), 1
        return most  # a chain that goes on past the k-th is left out: more copies of it would change nothing

    def excess(self, k: int, tol: float, errors: Vector | None = None) -> Vector:
        """How many times each error is above `tol`; where that is 0, each residual above rounding."""
        if tol > 0:
            return (self.errors(k) if errors is None else errors) / tol
        return self.r[:k] / (self.noise() + TINY)


class Reading(NamedTuple):
    """Components as the data show them."""

    V: Panel
    S: Vector
    certificate: Certificate
    n_passes: int

    def factors(self, A: Operator, n_passes: int, widest: int) -> Factors:
        """What a solver returns; the long-side factor takes one more pass when it is asked for."""
        U = lambda: long_factor(A, self.V)  # noqa: E731
        return Factors(U, self.S, self.V.conj().T, n_passes, widest, 1, self.certificate)


def read(A: Operator, V: Panel, k: int, rest: Ritz, tol: float, beyond: Panel | None = None) -> Reading:
    """k components from the span of V by one product with A; `rest` are the values that follow, as far as known.

    `beyond` are the residual vectors of the first of those, from which comes what they couple these to.
    Both halves of a residual are known then: ``A v - sigma u`` is 0 by the choice of u, and ``A^H u - sigma v`` is
    ``(G v - theta v) / sigma``. Where squared values have lost their digits, the triangular factor of A V has not.
    """
    R = A.gram(V.astype(np.float32) if rest.eps > A.gram_eps else V)
    theta, w = np.linalg.eigh(inner(V, R))
    theta, w = theta[::-1], w[:, ::-1]
    V, R = V @ w, R @ w
    R -= V * theta
    S, n_passes = np.sqrt(np.maximum(theta, 0)), A.gram_reads
    here = Ritz(theta, _norms(R), rest.eps)
    rounded = here.noise() / (2 * np.maximum(theta, TINY))
    if here.loss(k) > SHARE * max(tol, rounding(here.eps)):
        _, S, Wh = np.linalg.svd(stacked(triangle(Y) for _, Y in A.row_products(V)))
        V, R, theta, n_passes = V @ Wh.conj().T, R @ Wh.conj().T, S**2, n_passes + 1
        rounded = rounding(A.gram_eps) * S[0] / np.maximum(S, TINY)
    V, S, rounded = V[:, :k], np.where(S > rank_floor(A, S[0]), S, 0.0)[:k], rounded[:k]
    r = _norms(R)
    seen = Ritz(np.append(theta, rest.theta), np.append(r, rest.r), rest.eps, _coupled(R, beyond))
    errors = seen.errors(k, S) + np.where(S > 0, rounded, 0.0)
    residuals = np.where(S > 0, r[:k] / np.where(S > 0, S, 1) / max(float(S[0]), TINY) / np.sqrt(2), 0.0)
    slack = 1.0 if tol > 0 else 8.0  # of residuals that are rounding, some is of this very reading
    late = np.flatnonzero(~(seen.excess(k, tol, errors) <= slack))
    return Reading(V, S, Certificate(residuals, errors, late), n_passes)


def _coupled(R: Panel, beyond: Panel | None) -> Panel:
    """The Gram matrix of residuals that lie in two panels."""
    if beyond is None:
        return np.empty((0, 0))
    across = inner(R, beyond)
    return np.block([[inner(R, R), across], [across.conj().T, inner(beyond, beyond)]])


def _norms(R: Panel) -> Vector:
    """Norms of the columns."""
    return np.asarray(np.linalg.norm(R, axis=0))
