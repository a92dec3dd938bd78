"""Block Lanczos with thick restart: components to a stated accuracy, with the certificate that says so."""

from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator

from shiftsvd.events import bounded
from shiftsvd.kernels import default_threads
from shiftsvd.moments import Vector
from shiftsvd.operators import Operator, Panel, panel_dtype
from shiftsvd.solvers.base import TOL, Factors, Solver, components_for
from shiftsvd.solvers.cost import Work, long_vectors, surroundings
from shiftsvd.solvers.krylov import Basis
from shiftsvd.solvers.ritz import BEYOND, SHARE, TINY, Reading, Ritz, read, rounding

BLOCK = 16  # columns of a product by which the costs of a run are foreseen
SINGLE = float(np.finfo(np.float32).eps)
# So many roundings must fit into the tolerance before double data are multiplied in single precision.
DOUBT = 100
# What single precision can hold of a product and of what it is made of.
SINGLE_RANGE = 1e-25, 1e30
# Sweeps that a probe lasts: a block that was orthogonal to everything so far, and its product.
SWEEPS = 2
# It is sent out when errors are bounded by so many tolerances: its sweeps bring the others on as well.
EARLY = 40.0


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
        Columns of a product. Default 16 for sparse data, 32 for dense data, 2 k but at most 128 for data in files;
        fewer for few components.
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

    takes_shares = True
    tol: float = TOL
    block_size: int | None = None
    max_basis: int | None = None
    max_passes: int | None = None
    start: Panel | None = field(default=None, compare=False, repr=False)

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
        fused = A.fused(self._expected_steps(k))
        run = Run(self, fused, k, rng, fused)
        return run().factors(A, run.n_passes, run.widest)

    def block(self, k: int | float, A: Operator) -> int:
        """Columns of a product: as many as its kernels want, fewer for few components."""
        least, most = A.panel_columns
        if A.dtype != np.float32 and self.single(A):
            most *= 2  # as many bytes
        wide = most if isinstance(k, float) else int(np.clip((2 * k - 1) // 16 * 16, least, most))
        return min(self.block_size or wide, *A.shape)

    def single(self, A: Operator) -> bool:
        """Whether products begin in single precision: double data only where the spectrum is likely to allow it."""
        return A.gram_in_single and self.tol >= rounding(SINGLE) * (1 if A.dtype == np.float32 else DOUBT)

    def basis_columns(self, k: int, A: Operator) -> int:
        """Columns of the basis before it is restarted: room for the components, a probe, and a few steps."""
        n, b = min(A.shape), self.block(k, A)
        return min(max(self.max_basis or 2 * k + 12 * b, k + 8 * b), n)

    def _expected_steps(self, k: int | float) -> float:
        """Products that a run is likely to take: what decides whether it pays to sort the data first."""
        return 12.0 if isinstance(k, float) else 6.0 + 4 * k / (self.block_size or BLOCK)

    def expected_passes(self, A: Operator, k: int) -> float:
        """By the model of costs."""
        return Work.of(A).lanczos(k, self.block(k, A), self.basis_columns(k, A)).n_passes

    def peak_bytes(self, A: Operator, k: int) -> int:
        """The basis and the panels of the last reading on the short side; the right vectors where they are long."""
        n, b = min(A.shape), self.block(k, A)
        threads = A.n_threads or default_threads()
        panels = (threads + 9) * max(k, 2 * b)
        return 8 * n * (self.basis_columns(k, A) + panels) + surroundings(A) + long_vectors(A, k)


class Run:
    """One run: the state that a frozen solver cannot have. Components of G are read off the operator `source`."""

    def __init__(self, solver: BlockLanczos, G: Operator, k: int | float, rng: Generator, source: Operator) -> None:
        self.solver, self.G, self.k, self.rng, self.source = solver, G, k, rng, source
        self.n, self.dtype = G.shape[1], panel_dtype(G.dtype)
        self.b = solver.block(k, source)
        self.n_passes = self.widest = self.n_steps = 0
        self.precise = not solver.single(G)
        self.share = float(k) if isinstance(k, float) else None
        self.total = self._total() if self.share else 0.0
        self.wanted = min(10 + self.b if self.share else int(k), self.n)
        start = 0 if solver.start is None else solver.start.shape[-1]
        columns = min(solver.basis_columns(self.wanted, source) + 2 * start, self.n)
        self.basis = Basis.of(self.n, columns, self.dtype, rng)
        self.before: tuple[Vector, Vector] | None = None  # values and their errors before the probe under way
        self.checked: tuple[int, tuple[Ritz, Panel, int]] | None = None  # the last check, and after which product
        self.swept = self.sweeps = SWEEPS  # products since it was sent out, and how many there must be
        self.needed = 0  # products until everything had converged for the first time
        self.seen = self.b  # random columns that had as many: so many copies of a value would have been found
        self.limit = solver.max_passes or 40 + 20 * self.n // self.b

    def __call__(self) -> Reading:
        """Steps, checks, and readings until one of them is right."""
        self.basis.begin(self._first_block())
        due, history = 1 if self.solver.start is not None else -(-2 * self.wanted // self.b) + 1, [(0.0, np.inf)]
        while True:
            self._step()
            due -= 1
            if due > 0 and not self._at_end():
                continue
            ritz, Z, k = self._check()
            if not self.precise and ritz.loss(k, SINGLE) > SHARE * self.solver.tol:
                self._begin_in_double(Z, k)
                continue
            excess = ritz.excess(k, self.solver.tol)
            worst = float(np.max(excess))
            bounded(worst * self.solver.tol)
            if worst <= 1 and not self.needed:
                self.needed = self.n_steps
            history.append((float(self.n_steps), worst))
            over = self._at_end() or self._stuck(ritz, excess)
            if over or (worst <= 1 and self._probed(ritz, k)):
                reading = self._read(ritz, Z, k)
                if over or reading.certificate.converged:
                    return reading
            elif worst <= EARLY and self.before is None:
                self._probe(ritz, Z, k)
            due = max(self.sweeps - self.swept, _steps_to_go(history))

    def _step(self) -> None:
        """One product, after a restart if the basis has no room for what comes of it."""
        basis = self.basis
        if basis.size and basis.room < basis.width and basis.size + basis.width < self.n:
            self._keep(*self._check(), basis.width)
        V = basis.block
        self.n_passes += self.G.gram_reads
        self.n_steps += 1
        self.swept += 1
        self.widest = max(self.widest, V.shape[1])
        basis.extend(np.asarray(self._product(V), self.dtype))

    def _product(self, V: Panel) -> Panel:
        """``G V``, in double precision from the first product on if single precision cannot hold that."""
        if not self.precise:
            W = self.G.gram(V.astype(np.float32))
            least, most = SINGLE_RANGE
            if self.n_steps > 1 or least < np.max(np.abs(W)) < most:
                return W
            self.precise = True
        return self.G.gram(V)

    def _keep(self, ritz: Ritz, Z: Panel, k: int, needed: int) -> None:
        """Thick restart with the leading Ritz vectors; more room where that would not leave enough."""
        # Half of the basis: with fewer, the values beyond the k-th are too few to tell how far those are from the rest.
        half = (self.basis.B.shape[1] - self.basis.width - needed) // 2
        keep = min(max(k + self.b, half), self.basis.size)
        self.basis.reserve(min(keep + self.basis.width + needed + 4 * self.b, self.n))
        if self.basis.room < needed:
            self.basis.restart(ritz.theta[:keep], Z[:, :keep])
            self.checked = None

    def _check(self) -> tuple[Ritz, Panel, int]:
        """The Ritz values of the basis, their vectors, and how many of them are wanted."""
        if self.checked is not None and self.checked[0] == self.n_steps:
            return self.checked[1]
        theta, Z, E = self.basis.values()
        k = min(int(self.k), len(theta))
        if self.share is not None:
            k = components_for(np.maximum(theta, 0), self.share, self.total)
        leading = E[:, : k + BEYOND[-1]]
        ritz = Ritz(theta, np.linalg.norm(E, axis=0), self._eps(), leading.conj().T @ leading)
        self.checked = self.n_steps, (ritz, Z, k)
        return ritz, Z, k

    def _probed(self, ritz: Ritz, k: int) -> bool:
        """Whether a fresh block has had its sweeps and has found nothing new."""
        if self.basis.size + self.basis.width >= self.n:
            return True  # nothing is left to be found
        if self.before is None or len(self.before[0]) != k or self.swept < self.sweeps:
            return False
        if ritz.copies(k) >= self.seen and self.swept < self.needed:
            # As many copies of a value as there were columns to find them with: there may be more, and the fresh
            # block needs as long as the first one to tell.
            self.sweeps = self.needed
            return False
        before, bounds = self.before
        self.before = None
        if self.swept >= self.needed:
            self.seen += self.b
        if ritz.copies(k) >= self.seen:
            return False
        growth = (ritz.theta[:k] - before) / (2 * np.maximum(ritz.theta[:k], ritz.noise() + TINY))
        return bool(np.all(growth <= np.maximum(bounds, max(self.solver.tol, ritz.loss(k)))))

    def _probe(self, ritz: Ritz, Z: Panel, k: int) -> None:
        """Send out a fresh random block beside the next one."""
        needed = (SWEEPS + 1) * (self.basis.width + self.b)
        if self.basis.room < needed:
            self._keep(ritz, Z, k, needed)
        # A fresh block that is under way goes on being one, unless there may be more copies than it can find.
        if self.basis.width <= self.b or ritz.copies(k) >= self.seen:
            self.basis.widen(self.b)
        self.before = ritz.theta[:k].copy(), ritz.errors(k)
        self.swept, self.sweeps = 0, SWEEPS

    def _read(self, ritz: Ritz, Z: Panel, k: int) -> Reading:
        """The components by one last product with the data."""
        # The last components of all mix with what is left out, by rounding: then nothing is.
        read_off = self.n if self.basis.size == self.n and 2 * k > self.n else k
        # Single data are read in the precision that they were multiplied in, double ones in double.
        eps = max(self._eps() if self.source.dtype == np.float32 else 0.0, self.source.gram_eps)
        noise = 0.0 if eps >= self._eps() else ritz.noise()
        rest = Ritz(ritz.theta[read_off:], ritz.r[read_off:] + noise, eps)
        beyond = self.basis.residuals(Z[:, read_off : read_off + BEYOND[-1]])
        reading = read(self.source, self.basis.vectors(Z[:, :read_off]), k, rest, self.solver.tol, beyond)
        self.n_passes += reading.n_passes
        return reading

    def _begin_in_double(self, Z: Panel, k: int) -> None:
        """Begin again from what was found, with products in double precision."""
        self.precise, self.before, self.swept, self.sweeps = True, None, SWEEPS, SWEEPS
        self.checked = None
        start = self.basis.vectors(Z[:, : k + self.b])
        self.basis.reserve(min(2 * start.shape[1] + 4 * self.b, self.n))
        self.basis.begin(np.hstack([start, self._first_block()[:, -self.b :]])[:, : self.n])

    def _stuck(self, ritz: Ritz, excess: Vector) -> bool:
        """Whether the residuals that are too large are rounding already."""
        late = excess > 1
        return bool(late.any() and np.all(ritz.r[: len(late)][late] <= ritz.noise()))

    def _at_end(self) -> bool:
        """Whether the basis spans everything, or the passes are used up."""
        return self.basis.size >= self.n or self.basis.width == 0 or self.n_passes >= self.limit

    def _eps(self) -> float:
        """Rounding unit of the products."""
        return self.G.gram_eps if self.precise else SINGLE

    def _first_block(self) -> Panel:
        """Random directions, beside those that were given."""
        F: Panel = self.rng.standard_normal((self.n, self.b)).astype(self.dtype)
        start = self.solver.start
        if start is None:
            return F
        if start.ndim != 2 or start.shape[0] != self.n:
            raise ValueError(f"start must have {self.n} rows, one for each entry of the short side, got {start.shape}")
        return np.hstack([start, F])[:, : self.n]

    def _total(self) -> float:
        """The sum of all squared singular values."""
        norm = self.source.frobenius_norm()
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
    if worst1 <= 2 * EARLY:
        return 1
    if not np.isfinite(worst0) or not worst1 < worst0:
        return 2
    rate = np.log(worst0 / worst1) / (step1 - step0)
    return int(np.clip(0.5 * np.log(worst1) / rate, 1, 4))
