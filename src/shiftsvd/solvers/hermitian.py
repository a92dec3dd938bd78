"""Block Lanczos for a Hermitian matrix that need not be positive: its largest eigenvalues by themselves."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from shiftsvd.accuracy import value_errors
from shiftsvd.moments import Vector
from shiftsvd.operators import Operator, Panel, panel_dtype
from shiftsvd.solvers.base import TOL
from shiftsvd.solvers.krylov import Basis
from shiftsvd.solvers.ritz import Ritz, rounding

SWEEPS = 2  # products that a probe lasts
BLOCK = 16


class Eigenpairs(NamedTuple):
    """The largest eigenvalues of a Hermitian matrix, and what is known of them.

    Attributes
    ----------
    values : array of shape (k,), descending
    vectors : array of shape (n, k), orthonormal
    residuals : array of shape (k,)
        ``||A v - lambda v||``: an exact eigenvalue is within this of each.
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
    residuals: Vector
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
    One pass a step. Before values are taken as found, a fresh random block has two sweeps to find copies that the
    first one could not see. The sum of the negative eigenvalues is estimated by stochastic Lanczos quadrature (Ubaru,
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
        """The k largest eigenvalues of A, a Hermitian operator of shape (n, n), and their vectors."""
        return _Run(self, A, k, rng)()

    def block(self, n: int) -> int:
        """Columns of a product."""
        return min(self.block_size or BLOCK, n)

    def basis_columns(self, k: int, n: int) -> int:
        """Columns of the basis before it is restarted."""
        b = self.block(n)
        return min(max(self.max_basis or 2 * k + 12 * b, k + 8 * b), n)


class _Run:
    """One run: the state that a frozen solver cannot have."""

    def __init__(self, solver: HermitianLanczos, A: Operator, k: int, rng: Generator) -> None:
        self.solver, self.A, self.k = solver, A, k
        self.n, self.b = A.shape[0], solver.block(A.shape[0])
        self.basis = Basis.of(self.n, solver.basis_columns(k, self.n), panel_dtype(A.dtype), rng)
        self.basis.begin(rng.standard_normal((self.n, self.b)).astype(self.basis.B.dtype))
        self.limit = solver.max_passes or 40 + 20 * self.n // self.b
        self.n_passes = 0
        self.seen = self.b  # random columns so far: so many copies of a value would have been found
        self.negative: float | None = None
        self.lowest = np.inf

    def __call__(self) -> Eigenpairs:
        """Steps and checks until everything has converged and a probe has found nothing new."""
        needed, before = 0, None
        for _ in range(max(2, 2 * self.k // self.b)):
            self._step()
        while True:
            self._step()
            ritz, Z = self._check()
            errors = self._errors(ritz)
            converged = bool(np.all((errors <= self.solver.tol) | (ritz.r[: self.k] <= ritz.noise())))
            if self._at_end() or (converged and before is not None and self._nothing_new(ritz, before)):
                return self._pairs(ritz, Z, errors, converged or self.basis.size >= self.n)
            if not converged:
                before = None
                continue
            needed = needed or self.n_passes
            before = ritz.theta[: self.k].copy()
            # As many copies as columns to find them with: the fresh ones need as long as the first did.
            self._probe(ritz, Z, needed if ritz.copies(self.k) >= self.seen else SWEEPS)

    def _step(self) -> None:
        """One product, after a restart if the basis has no room for what comes of it."""
        basis = self.basis
        if self._at_end():
            return
        if basis.size and basis.room < basis.width and basis.size + basis.width < self.n:
            self._restart(*self._check(), basis.width)
        self.n_passes += 1
        basis.extend(np.asarray(self.A.matmat(basis.block), basis.B.dtype))

    def _check(self) -> tuple[Ritz, Panel]:
        """The Ritz values of the basis and their vectors within it."""
        theta, Z, E = self.basis.values()
        self.lowest = min(self.lowest, float(theta[-1]))
        return Ritz(theta, np.linalg.norm(E, axis=0), self.A.eps), Z

    def _restart(self, ritz: Ritz, Z: Panel, needed: int) -> None:
        """Keep the leading half of the Ritz vectors."""
        self._estimate(ritz, Z)
        half = (self.basis.B.shape[1] - self.basis.width - needed) // 2
        keep = min(max(self.k + self.b, half), self.basis.size)
        self.basis.reserve(min(keep + self.basis.width + needed + 4 * self.b, self.n))
        if self.basis.room < needed:
            self.basis.restart(ritz.theta[:keep], Z[:, :keep])

    def _probe(self, ritz: Ritz, Z: Panel, sweeps: int) -> None:
        """Send a fresh random block along with the next one, for so many products."""
        room = (min(sweeps, SWEEPS) + 1) * (self.basis.width + self.b)
        if self.basis.room < room:
            self._restart(ritz, Z, room)
        self.seen += self.basis.widen(self.b)
        for _ in range(sweeps - 1):
            self._step()

    def _nothing_new(self, ritz: Ritz, before: Vector) -> bool:
        """Whether the values are what they were before the probe, and it could have found all copies."""
        growth = float(np.sum(ritz.theta[: self.k] - before))
        settled = growth <= max(self.solver.tol, rounding(self.A.eps)) * max(float(ritz.theta[0]), ritz.noise())
        return settled and ritz.copies(self.k) < self.seen

    def _errors(self, ritz: Ritz) -> Vector:
        """Bounds of the relative errors of the square roots; where there is none, residuals over the largest."""
        r, noise = ritz.r + ritz.noise(), ritz.noise()
        errors = value_errors(np.sqrt(np.maximum(ritz.theta, 0)), ritz.theta, r, noise)[: self.k]
        first = max(float(np.abs(ritz.theta).max(initial=0)), float(np.finfo(np.float64).tiny))
        return np.where(ritz.theta[: self.k] > noise, errors, r[: self.k] / first)

    def _estimate(self, ritz: Ritz, Z: Panel) -> None:
        """The sum of the negative eigenvalues, while the basis still begins with the random block."""
        if self.negative is None:
            weights = np.sum(np.abs(Z[: self.b]) ** 2, axis=0) * self.n / self.b
            whole = self.basis.size >= self.n
            below = np.maximum(-ritz.theta - ritz.noise(), 0)
            self.negative = float(below.sum() if whole else below @ weights)

    def _at_end(self) -> bool:
        """Whether the basis spans everything, or the passes are used up."""
        return self.basis.size >= self.n or self.basis.width == 0 or self.n_passes >= self.limit

    def _pairs(self, ritz: Ritz, Z: Panel, errors: Vector, converged: bool) -> Eigenpairs:
        """What was found."""
        self._estimate(ritz, Z)
        k = self.k
        vectors = self.basis.vectors(Z[:, :k])
        assert self.negative is not None
        return Eigenpairs(
            ritz.theta[:k], vectors, ritz.r[:k], errors, converged, self.n_passes, self.negative, self.lowest
        )
