"""Block Lanczos for a Hermitian matrix that need not be positive: its largest eigenvalues by themselves."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Operator, Panel, panel_dtype
from shiftsvd.solvers.base import TOL
from shiftsvd.solvers.krylov import Basis
from shiftsvd.solvers.probe import MISSED_TOL, PROBABILITY, Missed, reduced
from shiftsvd.solvers.ritz import TINY, Ritz, allowed

BLOCK = 16


class Eigenpairs(NamedTuple):
    """The largest eigenvalues of a Hermitian matrix, and what is known of them.

    Attributes
    ----------
    values : array of shape (k,), descending
    vectors : array of shape (n, k), orthonormal
    value_errors : array of shape (k,)
        Bounds of the relative errors of ``sqrt(lambda)``; of a value of at most 0, its residual over the largest.
    converged : bool
    n_passes : int
    negative : float
        The sum of the absolute negative eigenvalues, estimated from the first block.
    lowest : float
        An upper bound of the lowest eigenvalue.
    """

    values: Vector
    vectors: Panel
    value_errors: Vector
    converged: bool
    n_passes: int
    negative: float
    lowest: float


@dataclass(frozen=True)
class HermitianLanczos:
    """Block Lanczos with thick restart on A itself: where squaring it would mix in the most negative eigenvalues.

    Parameters
    ----------
    tol : float
        Bound of the relative errors of the square roots of the eigenvalues. 0 means down to rounding.
    block_size : int, optional
        Columns of a product. Default 16.
    max_basis : int, optional
        Columns of the basis before it is restarted. Default ``2 k + 12 block_size``.
    max_passes : int, optional
        Products at most; the default is far above what converges.

    Notes
    -----
    One pass a step. Before values are taken as found, a fresh random block goes through some more products, until it
    has shown that nothing above ``1.1 lambda_k`` can have been missed (the values count as squares). The sum of the
    negative eigenvalues is estimated by stochastic Lanczos quadrature (Ubaru,
    Chen & Saad 2017) from the first block: ``n / b sum_j f(theta_j) ||e^T z_j||^2``, which needs no further pass.

    References
    ----------
    Golub & Underwood (1977); Wu & Simon (2000), thick-restart Lanczos.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> from shiftsvd.solvers.hermitian import HermitianLanczos
    >>> pairs = HermitianLanczos()(ss.as_operator(np.diag([1.0, -5.0, 3.0])), 2, np.random.default_rng(0))
    >>> pairs.values.round(6)
    array([3., 1.])
    """

    tol: float = TOL
    block_size: int | None = None
    max_basis: int | None = None
    max_passes: int | None = None

    def __call__(self, A: Operator, k: int, rng: Generator) -> Eigenpairs:
        return _Run(self, A, k, rng)()

    def block(self, n: int) -> int:
        return min(self.block_size or BLOCK, n)

    def basis_columns(self, k: int, n: int) -> int:
        b = self.block(n)
        return min(max(self.max_basis or 2 * k + 12 * b, k + 8 * b), n)


class _Run:
    """One run: the state that a frozen solver cannot have."""

    def __init__(self, solver: HermitianLanczos, A: Operator, k: int, rng: Generator) -> None:
        self.solver, self.A, self.k = solver, A, k
        self.n, self.b = A.shape[0], solver.block(A.shape[0])
        self.basis = Basis.of(self.n, solver.basis_columns(k, self.n), panel_dtype(A.dtype), rng)
        self.basis.begin(rng.standard_normal((self.n, self.b)).astype(self.basis.B.dtype))
        self.columns = solver.basis_columns(k, self.n)  # of the basis before it is restarted
        self.limit = solver.max_passes or 40 + 20 * self.n // self.b
        self.n_passes = 0
        self.missed = Missed(self.b, PROBABILITY)
        self.negative: float | None = None
        self.lowest = np.inf

    def __call__(self) -> Eigenpairs:
        for _ in range(max(2, 2 * self.k // self.b)):
            self._step()
        while True:
            self._step()
            ritz, Z = self._check()
            if self._converged(ritz) and not self._at_end() and self._missing(ritz):
                self._probe(ritz, Z)
                ritz, Z = self._check()
            if self._at_end() or (self._converged(ritz) and not self._missing(ritz)):
                return self._pairs(ritz, Z)

    def _missing(self, ritz: Ritz) -> bool:
        return self.missed.lacks(ritz.needs(self.k, self._allowed(ritz), self.missed.seen))

    def _converged(self, ritz: Ritz) -> bool:
        return bool(np.all((self._errors(ritz) <= self.solver.tol) | (ritz.r[: self.k] <= ritz.noise())))

    def _allowed(self, ritz: Ritz) -> float:
        relative = allowed(ritz, self.k, max(self.solver.tol, MISSED_TOL))
        # Of values that are not positive, nothing relative can be asked.
        if ritz.theta[self.k - 1] > ritz.noise():
            return relative
        return max(relative, MISSED_TOL * float(np.abs(ritz.theta).max()))

    def _step(self) -> None:
        basis, end = self.basis, self.basis.size + self.basis.width
        if self._at_end():
            return
        if basis.size and end + basis.width > self.columns < self.n:
            self._restart(*self._check())
        basis.reserve(min(end + basis.width, self.n))
        basis.extend(self._product(basis.block))

    def _product(self, V: Panel) -> Panel:
        self.n_passes += 1
        return np.asarray(self.A.matmat(V), self.basis.B.dtype)

    def _check(self) -> tuple[Ritz, Panel]:
        theta, Z, E = self.basis.values()
        self.lowest = min(self.lowest, float(theta[-1]))
        return Ritz(theta, E, self.A.costs.eps, self.missed.level, known=self.missed.limit(self.k)), Z

    def _restart(self, ritz: Ritz, Z: Panel) -> None:
        self._estimate(ritz, Z)
        keep = min(max(self.k + self.b, (self.columns - 2 * self.basis.width) // 2), self.basis.size)
        self.columns = max(self.columns, min(keep + 2 * self.basis.width + 4 * self.b, self.n))
        if self.basis.size + 2 * self.basis.width > self.columns:
            self.basis.restart(ritz.theta[:keep], Z[:, :keep])
            self.missed.forget()

    def _probe(self, ritz: Ritz, Z: Panel) -> None:
        self._estimate(ritz, Z)
        needs = ritz.needs(self.k, self._allowed(ritz), self.missed.seen)
        count = ritz.ready(self.k, needs)
        if count is None:
            return
        kept = reduced(self.basis, ritz, Z, count)
        probe = self.missed.probe(self.basis, kept.noise())
        while True:
            probe.take(self._product(probe.block))
            if self._at_end() or kept.decided(needs, probe.level, probe.top):
                break
        self.missed.learn(probe, kept, self.k, needs)

    def _errors(self, ritz: Ritz) -> Vector:
        theta, noise = ritz.theta[: self.k], ritz.noise()
        first = max(float(np.abs(ritz.theta).max(initial=0)), TINY)
        rounded = noise / (2 * np.maximum(theta, max(noise, TINY)))
        return np.where(theta > noise, ritz.errors(self.k) + rounded, (ritz.r[: self.k] + noise) / first)

    def _estimate(self, ritz: Ritz, Z: Panel) -> None:
        if self.negative is None:
            weights = np.sum(np.abs(Z[: self.b]) ** 2, axis=0) * self.n / self.b
            whole = self.basis.size >= self.n
            below = np.maximum(-ritz.theta - ritz.noise(), 0)
            self.negative = float(below.sum() if whole else below @ weights)

    def _at_end(self) -> bool:
        used_up = self.n_passes >= self.limit or self.missed.used_up
        return self.basis.size >= self.n or self.basis.width == 0 or used_up

    def _pairs(self, ritz: Ritz, Z: Panel) -> Eigenpairs:
        self._estimate(ritz, Z)
        k, whole = self.k, self.basis.size >= self.n
        if whole:
            ritz = replace(ritz, level=-np.inf)
        converged = self._converged(ritz) and ritz.limit(k) <= self._allowed(ritz)
        assert self.negative is not None
        found = ritz.theta[:k], self.basis.vectors(Z[:, :k]), self._errors(ritz)
        return Eigenpairs(*found, converged, self.n_passes, self.negative, self.lowest)
