"""Block Lanczos with thick restart: components to a stated accuracy, with the certificate that says so."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from shiftsvd.accuracy import value_errors
from shiftsvd.kernels.panels import Array
from shiftsvd.moments import Vector
from shiftsvd.operators import Operator, Panel, panel_dtype
from shiftsvd.orth import graded_basis, inner, subtract_product, triangle
from shiftsvd.result import Certificate
from shiftsvd.solvers.base import TOL, Factors, Solver, components_for
from shiftsvd.solvers.krylov import Basis

BLOCK = 16
# Sweeps that a probe lasts: a block that was orthogonal to everything so far, and its product.
SWEEPS = 2
# It is sent out when errors are bounded by so many tolerances: its sweeps bring the others on as well.
EARLY = 15.0
# A residual is rounding where it is below this many units of the largest value.
ROUNDING = 8.0


class Ritz(NamedTuple):
    """Approximations of the largest eigenvalues of ``G = A^H A``, descending, with the norms of their residuals."""

    theta: Vector
    r: Vector
    eps: float  # rounding unit of the products that they came from

    def noise(self) -> float:
        """What rounding does to a residual or a value."""
        return ROUNDING * self.eps * float(self.theta[0])

    def errors(self, k: int) -> Vector:
        """Bounds of the relative errors of the k largest singular values; the others say how far these are alone."""
        theta, noise = np.maximum(self.theta, 0), self.noise()
        return value_errors(np.sqrt(theta), theta, self.r + noise, ROUNDING * noise)[:k]


@dataclass(frozen=True)
class BlockLanczos(Solver):
    """Golden, Underwood & Golub's block Lanczos on ``A^H A``, until every value is within `tol` of an exact one.

    Lives on the short side: a basis of some 2 k columns in double precision, orthogonalized in full, with thick
    restarts. Residuals come free with every step. When they promise the tolerance, a fresh random block is added
    for two more sweeps, since copies of a repeated value that the first block cannot see would be missed silently;
    then the components are read off one last product with the data, together with the residuals that are reported.
    Products are in the precision of the data as long as the spectrum allows it, else in double.

    Parameters
    ----------
    tol : float
        Bound of ``|sigma - exact| / sigma`` for every component. 0 means down to the rounding of the products.
    block_size : int, optional
        Columns of a product. Default 16, or fewer for few components.
    max_basis : int, optional
        Columns of the basis before it is restarted. Default ``2 k + 12 block_size``.
    max_passes : int, optional
        Products with the data at most; the default is far above what converges.
    start : array of shape (min(m, n), j), optional
        Approximate singular vectors on the short side to begin with, such as those of similar data.

    Notes
    -----
    One pass a step where the data are stored by their long side, one for the last reading. With a share of the
    variance for k, the basis grows until the share is met; the smallest such k is returned.

    References
    ----------
    Golub & Underwood (1977); Wu & Simon (2000), thick-restart Lanczos; Baglama & Reichel (2005).

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.random.default_rng(0).random((500, 40))
    >>> F = ss.svd(X, 3, shift="mean", solver=ss.BlockLanczos(tol=1e-6), rng=0)
    >>> F.info.converged
    True
    """

    tol: float = TOL
    block_size: int | None = None
    max_basis: int | None = None
    max_passes: int | None = None
    start: Array | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.tol >= 0:
            raise ValueError(f"tol must be at least 0, got {self.tol}")
        for name in ("block_size", "max_basis", "max_passes"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int | np.integer) or value < 1):
                raise ValueError(f"{name} must be a positive integer or None, got {value!r}")

    def factorize(self, A: Operator, k: int | float, rng: Generator) -> Factors:
        """The factors of A or of its adjoint, whichever is tall."""
        return self._tall(A, k, rng) if A.shape[0] >= A.shape[1] else self._tall(A.H, k, rng).H

    def _tall(self, A: Operator, k: int | float, rng: Generator) -> Factors:
        """A is m x n with m >= n."""
        run = Run(self, A.fused(self._expected_steps(k)), k, rng)
        found = run()
        return Factors(
            lambda: graded_basis(A.matmat(found.V)),
            found.S,
            found.V.conj().T,
            run.n_passes,
            run.widest,
            1,
            found.certificate,
        )

    def block(self, k: int | float, n: int) -> int:
        """Columns of a product."""
        return min(self.block_size or (BLOCK if not isinstance(k, int) or k > BLOCK // 2 else BLOCK // 2), n)

    def basis_columns(self, k: int, n: int) -> int:
        """Columns of the basis before it is restarted: room for the components, a probe, and a few steps."""
        b = self.block(k, n)
        return min(max(self.max_basis or 2 * k + 12 * b, k + 8 * b), n)

    def _expected_steps(self, k: int | float) -> float:
        """Products that a run is likely to take: what decides whether it pays to sort the data first."""
        return 12.0 if isinstance(k, float) else 6.0 + 4 * k / (self.block_size or BLOCK)

    def peak_bytes(self, shape: tuple[int, int], k: int) -> int:
        """The basis and a few panels on the short side."""
        n = min(shape)
        return 8 * n * (self.basis_columns(k, n) + 3 * k + 6 * self.block(k, n))


class Found(NamedTuple):
    """What a run ends with."""

    V: Panel
    S: Vector
    certificate: Certificate


class Run:
    """One run: the state that a frozen solver cannot have."""

    def __init__(self, solver: BlockLanczos, A: Operator, k: int | float, rng: Generator) -> None:
        self.solver, self.A, self.k, self.rng = solver, A, k, rng
        self.n = A.shape[1]
        self.b = solver.block(k, self.n)
        self.n_passes = self.widest = 0
        self.precise = A.dtype != np.float32
        share = isinstance(k, float)
        self.total = self._total() if share else 0.0
        guess = min(10 + self.b if share else int(k), self.n)
        self.basis = self._basis(guess)
        self.before: tuple[Vector, Vector] | None = None  # values and their errors before the probe under way
        self.swept = SWEEPS  # products since then
        self.limit = solver.max_passes or 40 + 20 * self.n // self.b

    def __call__(self) -> Found:
        """Steps, checks, and readings until one of them is right."""
        self.basis.begin(self._first_block())
        due, history = self._first_check(), [(0.0, np.inf)]
        while True:
            self._step()
            due -= 1
            if due > 0 and not self._at_end():
                continue
            ritz, Z, k = self._check()
            worst = float(np.max(ritz.errors(k) / self._aims(ritz, k)))
            history.append((self.n_passes / self.A.gram_reads, worst))
            over = self._at_end() or self._stuck(ritz, k)
            if over or (worst <= 1 and self._probed(ritz, k)):
                found = self._read(ritz, Z, k)
                if found is not None:
                    return found
                history = history[:1]
            elif worst <= EARLY and self.before is None:
                self._probe(ritz, Z, k)
            due = SWEEPS if self.swept < SWEEPS else _steps_to_go(history)

    def _first_check(self) -> int:
        """Steps before the basis can hold what is wanted."""
        wanted = 10 if isinstance(self.k, float) else int(self.k)
        return max(1, -(-(2 * wanted + self.b) // self.b))

    def _step(self) -> None:
        """One product, after a restart if the basis has no room for what comes of it."""
        basis = self.basis
        if basis.room < basis.width and basis.size + basis.width < self.n:
            self._keep(*self._check(), basis.width)
        basis.extend(self._gram(basis.block))
        self.swept += 1

    def _keep(self, ritz: Ritz, Z: Panel, k: int, needed: int) -> None:
        """Thick restart with the leading Ritz vectors; more room where that would not leave enough."""
        keep = min(k + self.b, self.basis.size)
        self.basis.reserve(min(keep + self.basis.width + needed + 4 * self.b, self.n))
        if self.basis.room < needed:
            self.basis.restart(ritz.theta[:keep], Z[:, :keep])

    def _check(self) -> tuple[Ritz, Panel, int]:
        """The Ritz values of the basis, their vectors, and how many of them are wanted."""
        theta, Z, E = self.basis.values()
        ritz = Ritz(theta, np.linalg.norm(E, axis=0), self._eps())
        if not isinstance(self.k, float):
            return ritz, Z, min(int(self.k), len(theta))
        met = components_for(theta, self.k, self.total)
        return ritz, Z, met

    def _probed(self, ritz: Ritz, k: int) -> bool:
        """Whether a fresh block has had its sweeps and has found nothing new."""
        if self.basis.size + self.basis.width >= self.n:
            return True  # nothing is left to be found
        if self.before is None or len(self.before[0]) != k or self.swept < SWEEPS:
            return False
        before, bounds = self.before
        self.before = None
        growth = (ritz.theta[:k] - before) / (2 * np.maximum(ritz.theta[:k], ritz.noise()))
        return bool(np.all(growth <= np.maximum(bounds, self._aims(ritz, k))))

    def _probe(self, ritz: Ritz, Z: Panel, k: int) -> None:
        """Send out a fresh random block beside the next one."""
        needed = (SWEEPS + 1) * (self.basis.width + self.b)
        if self.basis.room < needed:
            self._keep(ritz, Z, k, needed)
        self.basis.widen(self.b)
        self.before, self.swept = (ritz.theta[:k].copy(), ritz.errors(k)), 0

    def _read(self, ritz: Ritz, Z: Panel, k: int) -> Found | None:
        """The components by one last product; None if it shows that they are not right yet."""
        V = self.basis.vectors(Z[:, :k])
        tol = self.solver.tol
        loss = ROUNDING * float(ritz.theta[0]) / max(float(ritz.theta[k - 1]), 1e-300)
        if not self.precise and loss * float(np.finfo(np.float32).eps) > 0.1 * tol:
            self._restart_in_double(ritz, Z, k)
            return None
        G = self._gram(V)
        theta, w = np.linalg.eigh(inner(V, G))
        theta, w = theta[::-1], w[:, ::-1]
        V, G = V @ w, G @ w
        r = np.linalg.norm(G - V * theta, axis=0)
        S = np.sqrt(np.maximum(theta, 0))
        if loss * self._eps() > max(tol, 1e-12):
            # Squared values have lost their digits: the triangular factor of A V has not.
            _, S, Wh = np.linalg.svd(triangle(self.A.matmat(V)))
            self.n_passes += 1
            V, r = V @ Wh.conj().T, np.sqrt(np.abs(Wh) ** 2 @ r**2)
            theta = S**2
        seen = Ritz(np.append(theta, ritz.theta[k:]), np.append(r, ritz.r[k:]), self._eps())
        errors = seen.errors(k)
        done = bool(np.all(errors <= self._aims(seen, k)))
        if not done and not (self._exhausted() or self._stuck(ritz, k)):
            return None
        first = max(float(S[0]), 1e-300)
        residuals = r / np.maximum(S, 1e-300) / first / np.sqrt(2)
        return Found(V, S, Certificate(np.where(S > 0, residuals, 0.0), errors, done))

    def _restart_in_double(self, ritz: Ritz, Z: Panel, k: int) -> None:
        """Begin again from what was found, with products in double precision."""
        self.precise, self.before, self.swept = True, None, SWEEPS
        start = self.basis.vectors(Z[:, : min(k + self.b, Z.shape[1])])
        self.basis.begin(start)

    def _aims(self, ritz: Ritz, k: int) -> Vector:
        """The tolerance of each component: `tol`; where that is 0, what rounding leaves."""
        floor = 2 * ritz.noise() / np.maximum(ritz.theta[:k], ritz.noise())
        return np.full(k, self.solver.tol) if self.solver.tol > 0 else np.minimum(floor, 1.0)

    def _stuck(self, ritz: Ritz, k: int) -> bool:
        """Whether residuals are rounding already, or the passes are used up."""
        if self.n_passes >= self.limit:
            return True
        late = ritz.errors(k) > self._aims(ritz, k)
        return bool(late.any() and np.all(ritz.r[:k][late] <= ritz.noise()))

    def _exhausted(self) -> bool:
        return self._at_end() or self.n_passes >= self.limit

    def _at_end(self) -> bool:
        """Whether the basis spans everything, or the passes are used up."""
        return self.basis.size >= self.n or self.basis.width == 0 or self.n_passes >= self.limit

    def _gram(self, V: Panel) -> Panel:
        """``A^H A V`` in the precision of this stage, as a new array by columns."""
        self.n_passes += self.A.gram_reads
        self.widest = max(self.widest, V.shape[1])
        W = self.A.gram(V.astype(panel_dtype(self.A.dtype) if self.precise else np.float32))
        return np.asarray(W, panel_dtype(self.A.dtype))

    def _eps(self) -> float:
        """Rounding unit of the products."""
        eps = float(np.finfo(np.float64 if self.precise else np.float32).eps)
        return max(eps, self.A.gram_eps)

    def _first_block(self) -> Panel:
        """Random directions, beside those that were given."""
        F: Panel = self.rng.standard_normal((self.n, self.b)).astype(panel_dtype(self.A.dtype))
        if self.solver.start is None:
            return F
        start = np.asarray(self.solver.start)
        if start.ndim != 2 or start.shape[0] != self.n:
            raise ValueError(f"start must have {self.n} rows, one for each entry of the short side, got {start.shape}")
        return np.hstack([start, F])[:, : self.n]

    def _basis(self, k: int) -> Basis:
        """An empty basis for k components."""
        start = 0 if self.solver.start is None else np.asarray(self.solver.start).shape[-1]
        columns = min(self.solver.basis_columns(k, self.n) + 2 * start, self.n)
        return Basis.of(self.n, columns, panel_dtype(self.A.dtype), self.rng)

    def _total(self) -> float:
        """The sum of all squared singular values."""
        norm = self.A.frobenius_norm()
        if norm is None:
            raise ValueError(
                "a share of the variance needs the total, which this operator cannot give; "
                "define frobenius_norm or ask for a number of components"
            )
        return norm**2


def _steps_to_go(history: list[tuple[float, float]]) -> int:
    """Steps until the next check, from how fast the worst error fell between the last two."""
    (step0, worst0), (step1, worst1) = history[-2:]
    # Convergence speeds up as it goes on, and one step too many costs more than two checks.
    if worst1 <= 2 * EARLY or not np.isfinite(worst0) or not worst1 < worst0:
        return 1
    rate = np.log(worst0 / worst1) / (step1 - step0)
    return int(np.clip(0.5 * np.log(worst1) / rate, 1, 4))
