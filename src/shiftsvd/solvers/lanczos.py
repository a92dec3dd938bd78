"""Block Lanczos with thick restart: components to a stated accuracy, with the certificate that says so."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.random import Generator

from shiftsvd.algebra.deflated import Deflated
from shiftsvd.algebra.generic import fused
from shiftsvd.events import bounded
from shiftsvd.kernels import default_threads
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Operator, Panel, panel_dtype
from shiftsvd.solvers.base import TOL, Solver, components_for
from shiftsvd.solvers.cost import Work, long_vectors, surroundings
from shiftsvd.solvers.factors import Factors, rank_floor
from shiftsvd.solvers.krylov import Basis
from shiftsvd.solvers.probe import MISSED_TOL, PROBABILITY, probe
from shiftsvd.solvers.ritz import SHARE, TINY, Reading, Ritz, allowed, read, rounding, together

BLOCK = 16  # columns of a product by which the costs of a run are foreseen
SINGLE = float(np.finfo(np.float32).eps)
# So many roundings must fit into the tolerance before double data are multiplied in single precision.
DOUBT = 100
# What single precision can hold of a product and of what it is made of.
SINGLE_RANGE = 1e-25, 1e30
# Single precision is judged by two columns in both precisions: their difference on a random vector, times this.
UNLUCKY = 4.0
# The blocks that a probe is likely to take, for which the basis has room.
SWEEPS = 6
# So many checks without a new least error are the end of what rounding allows, or near it.
PATIENCE, NEAR = 10, 10.0
# Readings that may find more than the residuals promised before what they found is taken for what there is.
READINGS = 4
# What the level of a probe is taken to be: after its first product, so many times the least Ritz value; and so
# many times nearer to its largest Ritz value by the second product, and by each after it (on counts, text and noise, 50
# to 70 times, 6 to 10, and 1.6 to 3). The components go along in the product that is likely to be the last.
FIRST_LEVEL, FIRST_GAIN, GAIN = 60.0, 8.0, 2.0
# Probes that may find something, each as likely to be wrong as all after it.
PROBES = 20
# Leaders are set apart when rounding would take more of the last value than this, or than the tolerance; those whose
# squares are within this of the first, in one go: their own vectors are right to rounding over it.
LEAST_TOL, LEADING = 1e-8, 1e-4


@dataclass(frozen=True)
class BlockLanczos(Solver):
    """Golden, Underwood & Golub's block Lanczos on ``A^H A``, until every value is within `tol` of an exact one.

    Lives on the short side: a basis of some 2 k columns in double precision, orthogonalized in full, with thick
    restarts. Residuals come free with every step. When they promise the tolerance, a fresh random block goes through
    some more products, until it has shown that nothing above ``sigma_k (1 + max(tol, missed_tol))`` can have been
    missed; then the components are read off one last product with the data, together with the residuals that are
    reported.
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
        Approximate singular vectors on the short side to begin with, such as those of similar data. What they lack
        is found by the probe.
    missed_tol : float
        Up to ``sigma_k (1 + max(tol, missed_tol))`` a value may have been missed in a fit that is called converged;
        `Info.missed_below` says up to where. Some 3 to 7 products with a block for 0.05, 8 for 0.01.
    miss_probability : float
        How likely `Info.missed_below` may be wrong, over `rng`.

    Notes
    -----
    One pass a step where the data are stored by their long side. The last reading goes along with the probe, or takes
    one of its own: for double data that are multiplied in single precision, after a probe that found something. With
    a share of the variance for k, the basis grows until the share is met; the smallest such k is returned.

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
    missed_tol: float = field(default=MISSED_TOL, repr=False)
    miss_probability: float = field(default=PROBABILITY, repr=False)

    def __post_init__(self) -> None:
        if not self.tol >= 0:
            raise ValueError(f"tol must be at least 0, got {self.tol}")
        if not self.missed_tol >= 0:
            raise ValueError(f"missed_tol must be at least 0, got {self.missed_tol}")
        if not 0 < self.miss_probability < 1:
            raise ValueError(f"miss_probability must be between 0 and 1, got {self.miss_probability}")
        for name in ("block_size", "max_basis", "max_passes"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int | np.integer) or value < 1):
                raise ValueError(f"{name} must be a positive integer or None, got {value!r}")

    def factorize(self, A: Operator, k: int | float, rng: Generator) -> Factors:
        """The factors of A or of its adjoint, whichever is tall."""
        return self._tall(A, k, rng) if A.shape[0] >= A.shape[1] else self._tall(A.H, k, rng).H

    def _tall(self, A: Operator, k: int | float, rng: Generator) -> Factors:
        """A is m x n with m >= n."""
        B = fused(A, self._expected_steps(k))
        run = Run(self, B, k, rng, B)
        return run().factors(A, run.n_passes, run.widest)

    def block(self, k: int | float, A: Operator) -> int:
        """Columns of a product: as many as its kernels want, fewer for few components."""
        least, most = A.costs.panel_columns
        if A.dtype != np.float32 and self.single(A):
            most *= 2  # as many bytes
        wide = most if isinstance(k, float) else int(np.clip((2 * k - 1) // 16 * 16, least, most))
        return min(self.block_size or wide, *A.shape)

    def single(self, A: Operator) -> bool:
        """Whether products begin in single precision: double data only where the spectrum is likely to allow it."""
        return A.costs.gram_in_single and self.tol >= rounding(SINGLE) * (1 if A.dtype == np.float32 else DOUBT)

    def basis_columns(self, k: int, A: Operator) -> int:
        """Columns of the basis before it is restarted: room for the components, a probe, and a few steps."""
        n, b = min(A.shape), self.block(k, A)
        return min(max(self.max_basis or 2 * k + 12 * b, k + 8 * b), n)

    def probe_columns(self, k: int, A: Operator) -> int:
        """Columns that a probe is likely to add to those."""
        return min((SWEEPS + 1) * self.block(k, A), min(A.shape) - self.basis_columns(k, A))

    def _expected_steps(self, k: int | float) -> float:
        """Products that a run is likely to take: what decides whether it pays to sort the data first."""
        return 12.0 if isinstance(k, float) else 6.0 + 4 * k / (self.block_size or BLOCK)

    def expected_passes(self, A: Operator, k: int) -> float:
        """By the model of costs."""
        return Work.of(A).lanczos(k, self.block(k, A), self.basis_columns(k, A)).n_passes

    def peak_bytes(self, A: Operator, k: int) -> int:
        """The basis and the panels of the last reading on the short side; the right vectors where they are long."""
        n, b = min(A.shape), self.block(k, A)
        threads = A.costs.n_threads or default_threads()
        panels = (threads + 9) * (k + b if k > b else 2 * b)  # the last reading goes along with a block
        columns = self.basis_columns(k, A) + self.probe_columns(k, A) + panels
        return 8 * n * columns + surroundings(A) + long_vectors(A, k)


@dataclass(eq=False)
class Found:
    """What was there before a probe: components V, the block in whose terms their residuals are told, what it keeps."""

    V: Panel
    block: Panel
    kept: Ritz
    product: Panel | None = None  # G V, if the probe has taken it along


class Run:
    """One run: the state that a frozen solver cannot have. Components of G are read off the operator `source`."""

    def __init__(self, solver: BlockLanczos, G: Operator, k: int | float, rng: Generator, source: Operator) -> None:
        self.solver, self.G, self.k, self.rng, self.source = solver, G, k, rng, source
        self.n, self.dtype = G.shape[1], panel_dtype(G.dtype)
        self.b = solver.block(k, source)
        self.n_passes = self.widest = self.n_steps = 0
        self.precise = not solver.single(G)
        self.measured = 0.0  # what single precision was seen to do to a product
        self.leader = 0.0  # the largest value of those that were set apart
        self.share = float(k) if isinstance(k, float) else None
        self.total = self._total() if self.share else 0.0
        self.wanted = min(10 + self.b if self.share else int(k), self.n)
        self.columns = solver.basis_columns(self.wanted, source)  # of the basis before it is restarted
        self.basis = Basis.of(self.n, self.columns + solver.probe_columns(self.wanted, source), self.dtype, rng)
        self.checked: tuple[int, tuple[Ritz, Panel, int]] | None = None  # the last check, and after which product
        self.level = np.inf  # what no eigenvalue of G exceeds orthogonal to the basis
        self.proven: list[tuple[int, float]] = []  # (count, mu): at most so many eigenvalues exceed mu
        self.probes = 0
        self.seen = self.b  # random columns that have been through the run: so many copies of a value can be there
        self.limit = solver.max_passes or 40 + 20 * self.n // self.b

    def __call__(self) -> Reading:
        """Steps and checks until all errors are small, probes until nothing can be missing, and a reading."""
        start = self._given(self.solver.start)
        self.basis.begin(self._first_block(start))
        due, history, readings = self._first_check(start), [(0.0, np.inf)], 0
        while True:
            self._step()
            due -= 1
            if due > 0 and not self._at_end():
                continue
            ritz, Z, k = self._check()
            excess = ritz.excess(k, self.solver.tol)
            stuck = self._stuck(ritz, excess, history)
            if not self.precise and (ritz.loss(k) > SHARE * self.solver.tol or stuck):
                start = self._begin_in_double(Z, k)
                due, history = self._first_check(start), [(0.0, np.inf)]
                continue
            leaders = self._leaders(ritz, k)
            if leaders:
                return self._without_leaders(ritz, Z, leaders)
            worst = float(np.max(excess))
            bounded(worst * self.solver.tol)
            history.append((float(self.n_steps), worst))
            due = _steps_to_go(history)
            if (worst <= 1 or stuck) and not self._at_end() and self._missing(ritz, k):
                probed = self._probe(ritz, Z, k)
                if probed and worst <= 1 and self.basis.size < self.n and not self._missing(ritz, k):
                    reading, readings = self._read_before(ritz, k, probed), readings + 1
                    if not len(reading.certificate.late) or readings == READINGS:
                        return reading
                ritz, Z, k = self._check()
                excess = ritz.excess(k, self.solver.tol)
                stuck = self._stuck(ritz, excess, history) and (probed is not None or self.probes >= PROBES)
                if not self._at_end() and not stuck and (np.max(excess) > 1 or self._missing(ritz, k)):
                    due = 1
                    continue
            if worst <= 1 or stuck or self._at_end():
                reading, readings = self._read_last(ritz, Z, k), readings + 1
                if stuck or self._at_end() or not len(reading.certificate.late) or readings == READINGS:
                    return reading

    def _step(self) -> None:
        """One product, after a restart if the basis has no room for what comes of it."""
        basis, end = self.basis, self.basis.size + self.basis.width
        if basis.size and end + basis.width > self.columns < self.n:
            self._keep(*self._check())
        basis.reserve(min(end + basis.width, self.n))
        self.widest = max(self.widest, basis.width)
        basis.extend(self._product(basis.block))

    def _product(self, V: Panel) -> Panel:
        """``G V``, in double precision from the first product on if single precision cannot hold that."""
        self.n_passes += self.G.costs.gram_reads
        self.n_steps += 1
        if not self.precise:
            W = self.G.gram(V.astype(np.float32))
            if self.n_steps > 1 or self._measured(V, W):
                return np.asarray(W, self.dtype)
            self.precise = True
        return np.asarray(self.G.gram(V), self.dtype)

    def _measured(self, V: Panel, W: Panel) -> bool:
        """Whether single precision holds the product W; what rounding did to it is measured on two columns."""
        least, most = SINGLE_RANGE
        if not least < np.max(np.abs(W)) < most:
            return False
        two = V[:, :2].astype(np.float32)
        self.n_passes += self.G.costs.gram_reads
        off = np.linalg.norm(self.G.gram(two.astype(self.dtype)) - W[:, :2], axis=0)
        self.measured = UNLUCKY * float(off.max())
        return True

    def _keep(self, ritz: Ritz, Z: Panel, k: int) -> None:
        """Thick restart with the leading Ritz vectors; more room where that would not leave enough."""
        # Half of the basis: with fewer, the values beyond the k-th are too few to tell how far those are from the rest.
        half = (self.columns - 2 * self.basis.width) // 2
        keep = min(max(k + self.b, half), self.basis.size)
        self.columns = max(self.columns, min(keep + 2 * self.basis.width + 4 * self.b, self.n))
        if self.basis.size + 2 * self.basis.width > self.columns:
            self.basis.restart(ritz.theta[:keep], Z[:, :keep])
            self.checked, self.level = None, np.inf

    def _check(self) -> tuple[Ritz, Panel, int]:
        """The Ritz values of the basis, their vectors, and how many of them are wanted."""
        if self.checked is not None and self.checked[0] == self.n_steps:
            return self.checked[1]
        theta, Z, E = self.basis.values()
        k = min(int(self.k), len(theta))
        if self.share is not None:
            k = components_for(np.maximum(theta, 0), self.share, self.total)
        first = float(np.sqrt(max(theta[0], 0.0)))
        zero = rank_floor(self.source, max(first, self.leader)) ** 2
        ritz = Ritz(theta, E, self._eps(), self.level, self._measured_noise(first), zero=zero)
        self.checked = self.n_steps, (ritz, Z, k)
        return ritz, Z, k

    def _measured_noise(self, first: float) -> float:
        """What rounding was seen to do in single precision, or what leaders do to products without them."""
        if not self.precise:
            return self.measured
        return rounding(self._eps()) * self.leader * first

    def _missing(self, ritz: Ritz, k: int) -> bool:
        """Whether more may have been missed than is allowed."""
        return not all(self._limit(count) <= mu for count, mu in self._needs(ritz, k))

    def _limit(self, k: int) -> float:
        """What the (k+1)-th eigenvalue is at most, by all probes so far."""
        return min((mu for count, mu in self.proven if count <= k), default=np.inf)

    def _needs(self, ritz: Ritz, k: int) -> list[tuple[int, float]]:
        """Pairs (count, mu): at most so many eigenvalues may exceed mu."""
        return ritz.needs(k, allowed(ritz, k, max(self.solver.tol, self.solver.missed_tol)), self.seen)

    def _probe(self, ritz: Ritz, Z: Panel, k: int) -> "Found | None":
        """Let a fresh random block look for what is orthogonal to the basis, until nothing can be missing.

        Not before errors are small enough for that, and without the vectors whose own residuals would stand against it.
        """
        needs = self._needs(ritz, k)
        kept = ritz.ready(k, needs)
        if kept is None:
            return None
        found = Found(self.basis.vectors(Z[:, :k]), self.basis.block.copy(), ritz.first(kept))
        if kept < len(ritz.theta):
            self.basis.restart(ritz.theta[:kept], Z[:, :kept])
            ritz = found.kept

        def awaited(level: float) -> bool:
            """Whether the next product is the last if it comes down to this level."""
            return self._may_share() and all(ritz.at_most(*need, level) for need in needs)

        # What a start lacks is found by the probe: then what was read off before is not what is returned.
        sweeps, due = 0, self.solver.start is None and awaited(FIRST_LEVEL * float(ritz.theta[-1]))

        def product(X: Panel) -> Panel:
            if not due or found.product is not None:
                return self._product(X)
            W = self._product(np.hstack([X, found.V]))
            found.product = W[:, X.shape[1] :]
            return W[:, : X.shape[1]]

        def done(level: float, top: float) -> bool:
            nonlocal sweeps, due
            sweeps += 1
            due = awaited(top + (level - top) / (FIRST_GAIN if sweeps == 1 else GAIN))
            enough = all(ritz.at_most(*need, level) for need in needs)
            # Where even its largest Ritz value is too high for a level, something was found: it is in the basis now.
            return enough or self._at_end() or not all(ritz.at_most(*need, top) for need in needs)

        self.probes += 1
        self.widest = max(self.widest, self.b)
        probability = self.solver.miss_probability * 0.5**self.probes
        self.level = probe(self.basis, product, self.b, probability, ritz.noise(), done)
        self.seen += self.b
        found.kept = ritz._replace(level=self.level)
        proven = [(k, found.kept.limit(k)), *needs]
        self.proven += [fact for fact in proven if ritz.at_most(*fact, self.level)]
        return found

    def _may_share(self) -> bool:
        """Whether the next product is such as the components are read off, and leaves something outside of the basis.

        A basis of everything has all digits of them.
        """
        same = self.G is self.source and (self.precise or self.source.dtype == np.float32)
        return same and self.basis.size + self.basis.width < self.n

    def _read_before(self, ritz: Ritz, k: int, found: "Found") -> Reading:
        """The components as they were before the probe, which has found nothing but a level.

        That level proves more than what could be inferred before, or less, where it is high: then the latter counts.
        """
        if np.max(found.kept.excess(k, self.solver.tol)) <= 1:
            return self._read(found.kept, found.V, k, found.block, found.product)
        self.level, self.checked = np.inf, None
        return self._read(ritz._replace(level=np.inf), found.V, k, found.block, found.product)

    def _read(self, ritz: Ritz, V: Panel, k: int, block: Panel, product: Panel | None = None) -> Reading:
        """k components from V by one last product with the data, if that is not known."""
        # Single data are read in the precision that they were multiplied in, double ones in double.
        eps = max(self._eps() if self.source.dtype == np.float32 else 0.0, self.source.costs.gram_eps)
        single = eps > self.source.costs.gram_eps
        measured = ritz.measured if single or self.precise else 0.0
        left = V.shape[1]
        rest = Ritz(ritz.theta[left:], ritz.E[:, left:], eps, ritz.level, measured, self._limit(k), ritz.zero)
        if not single and ritz.eps > eps:  # the others keep what single precision did to them
            rest = rest._replace(E=rest.E * (1 + ritz.noise() / np.maximum(rest.r, TINY)))
        reading = read(self.source, V, k, rest, self.solver.tol, self.solver.missed_tol, block, product)
        self.n_passes += reading.n_passes
        return reading

    def _read_last(self, ritz: Ritz, Z: Panel, k: int) -> Reading:
        """The components of the whole basis."""
        # The last components of all mix with what is left out, by rounding: then nothing is.
        read_off = self.n if self.basis.size == self.n and 2 * k > self.n else k
        ritz = ritz._replace(level=self.level if self.basis.size < self.n else -np.inf)
        return self._read(ritz, self.basis.vectors(Z[:, :read_off]), k, self.basis.block)

    def _begin_in_double(self, Z: Panel, k: int) -> Panel:
        """Begin again from what was found, which is given back, with products in double precision."""
        self.precise, self.level, self.checked = True, np.inf, None
        start = self.basis.vectors(Z[:, : k + self.b])
        self.basis.begin(self._first_block(start))
        return start

    def _stuck(self, ritz: Ritz, excess: Vector, history: list[tuple[float, float]]) -> bool:
        """Whether the residuals that are too large are rounding already, or nearly so and no longer getting smaller."""
        k, late = len(excess), excess > 1
        if not late.any():
            return False
        least = int(np.argmin([worst for _, worst in history]))
        if len(history) - least > PATIENCE:
            return bool(np.all(ritz.r[:k][late] <= NEAR * ritz.noise()))
        # Values that are right can be late for the neighbours that they cannot be told from yet.
        return bool(np.all(ritz.worst_of_group(k)[late] <= ritz.noise()))

    def _leaders(self, ritz: Ritz, k: int) -> int:
        """How many leaders are to be set apart, since their squares drown the last value in rounding."""
        floor = max(self.solver.tol, LEAST_TOL)
        if self.share is not None or not self.precise or ritz.loss(k) <= SHARE * floor:
            return 0
        ready = (ritz.theta[:k] >= LEADING * ritz.theta[0]) & (ritz.r[:k] <= NEAR * ritz.noise())
        count = int(np.argmin(np.append(ready, False)))
        return count if count < k else 0

    def _without_leaders(self, ritz: Ritz, Z: Panel, count: int) -> Reading:
        """The leaders, and components of what is orthogonal to them.

        ``lambda_j <= lambda'_j``, those of ``P G P``, and less by at most ``||R||^2 / (theta - lambda_j)``, R being the
        residual of the leaders and theta the least of them.
        """
        V, k = self.basis.vectors(Z[:, :count]), int(self.k)
        # Half of the tolerance is left to what the leaders add to the bounds.
        tol, probability = SHARE * self.solver.tol, self.solver.miss_probability / 2
        solver = replace(self.solver, tol=tol, start=None, miss_probability=probability)
        B = Deflated(self.source, V)  # not of a formed G, which has lost them already
        rest = Run(solver, B, k - count, self.rng, B)
        rest.leader = max(self.leader, float(np.sqrt(ritz.theta[0])))
        reading = rest()
        self.n_passes += rest.n_passes
        self.widest = max(self.widest, rest.widest)
        square = float(np.sum((ritz.r[:count] + ritz.noise()) ** 2))
        joined = together(self.source, ritz.first(count), V, square, reading, self.solver.tol)
        self.n_passes += 1
        return joined

    def _at_end(self) -> bool:
        """Whether the basis spans everything, or the passes are used up."""
        used_up = max(self.n_passes, self.n_steps) >= self.limit or self.probes >= PROBES
        return self.basis.size >= self.n or self.basis.width == 0 or used_up

    def _eps(self) -> float:
        """Rounding unit of the products."""
        return self.G.costs.gram_eps if self.precise else SINGLE

    def _given(self, start: Panel | None) -> Panel | None:
        """The columns of `start`, each scaled so that nothing overflows; of complex ones for real data, both parts."""
        if start is None:
            return None
        start = np.asarray(start)
        if start.ndim != 2 or start.shape[0] != self.n:
            raise ValueError(f"start must have {self.n} rows, one for each entry of the short side, got {start.shape}")
        if not np.isfinite(start).all():
            raise ValueError("start must be finite, got NaN or infinite entries; drop those columns")
        if np.iscomplexobj(start) and self.dtype.kind == "f":
            start = np.hstack([start.real, start.imag])
        largest = np.max(np.abs(start), axis=0)
        return np.asarray(start / np.where(largest > 0, largest, 1), self.dtype)

    def _first_block(self, start: Panel | None) -> Panel:
        """Random directions; random combinations of those that were given, if these are more than a block."""
        F: Panel = self.rng.standard_normal((self.n, self.b)).astype(self.dtype)
        if start is None:
            return F
        # All of them at once would make every product as wide as they are many, for the same space.
        j = start.shape[1]
        if j <= self.b:
            return np.hstack([start, F[:, j:]])
        return np.asarray(start @ self.rng.standard_normal((j, self.b)).astype(self.dtype))

    def _first_check(self, start: Panel | None) -> int:
        """Steps until there can be anything to be seen: the basis holds all of a start, or twice what is wanted."""
        return -(-(2 * self.wanted if start is None else start.shape[1]) // self.b) + 1

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
    if worst1 <= 2:
        return 1
    if not np.isfinite(worst0) or not worst1 < worst0:
        return 2
    rate = np.log(worst0 / worst1) / (step1 - step0)
    return int(np.clip(0.5 * np.log(worst1) / rate, 1, 4))
