"""A run of block Lanczos: steps, checks, probes and the reading; the state that a frozen solver cannot have."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator

from shiftsvd.algebra.generic import placed
from shiftsvd.algebra.low_rank import Deflated
from shiftsvd.events import bounded
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import beside, in_dtype
from shiftsvd.operators import Operator, Panel
from shiftsvd.solvers.base import components_for
from shiftsvd.solvers.cost import Work
from shiftsvd.solvers.factors import rank_floor
from shiftsvd.solvers.krylov import Basis
from shiftsvd.solvers.probe import Missed, reduced
from shiftsvd.solvers.products import Products, Shape, checked, first_block
from shiftsvd.solvers.reading import Reading, read, together
from shiftsvd.solvers.ritz import SHARE, TINY, Needs, Ritz, allowed

if TYPE_CHECKING:
    from shiftsvd.solvers.lanczos import BlockLanczos

# So many checks without a new least error are the end of what rounding allows, or near it.
PATIENCE, NEAR = 10, 10.0
# Readings that may find more than the residuals promised before what they found is taken for what there is.
READINGS = 4
# Products of a first step that single precision turns out not to hold: one that is measured, and two in double.
FIRST = 4
# What the level of a probe is taken to be: after its first product, so many times the least Ritz value; and so
# many times nearer to its largest Ritz value by the second product, and by each after it (on counts, text and noise, 50
# to 70 times, 6 to 10, and 1.6 to 3). The components go along in the product that is likely to be the last.
FIRST_LEVEL, FIRST_GAIN, GAIN = 60.0, 8.0, 2.0
# Leaders are set apart when rounding would take more of the last value than this, or than the tolerance; those whose
# squares are within this of the first, in one go: their own vectors are right to rounding over it.
LEAST_TOL, LEADING = 1e-8, 1e-4


@dataclass(eq=False)
class Found:
    """What was there before a probe: components V, the block in whose terms their residuals are told, what it keeps."""

    V: Panel
    block: Panel
    kept: Ritz
    product: Panel | None = None  # G V, if the probe has taken it along


class Run:
    """One run: the state that a frozen solver cannot have. Components of G are read off the operator `source`."""

    basis: Basis

    def __init__(
        self,
        solver: "BlockLanczos",
        shape: Shape,
        products: Products,
        k: int | float,
        rng: Generator,
        source: Operator,
    ) -> None:
        self.solver, self.shape, self.products = solver, shape, products
        self.k, self.rng, self.source = k, rng, source
        self.n, self.dtype, self.b = products.G.shape[1], products.dtype, shape.block
        self.share = float(k) if isinstance(k, float) else None
        self.total = self._total() if self.share else 0.0
        self.columns = shape.columns  # of the basis before it is restarted
        self.checked: tuple[int, tuple[Ritz, Panel, int]] | None = None  # the last check, and after which product
        self.missed = Missed(self.b, solver.miss_probability)
        self.pause = Work.of(source).steps_per_check(self.b, self.columns)
        self.budget = products.budget
        # Reads of a product, which counts as one where it reads nothing, and of the reading that must follow the last.
        self.step_reads, self.last_reads = (max(A.costs.gram_reads, 1) for A in (products.G, source))

    def __call__(self) -> Reading:
        start = checked(self.solver.start, self.n, self.dtype)
        if not self.budget.allows(FIRST * self.step_reads + self.last_reads):
            self.products.precise = True
        self._begin(first_block(start, self.n, self.b, self.dtype, self.rng))
        due, history, readings = self._first_check(start), [(0.0, np.inf)], 0
        while True:
            self._step()
            due -= 1
            if due > 0 and not self._at_end():
                continue
            ritz, Z, k = self._check()
            lacking = self._lacking(ritz)
            if lacking > 0 and not self._at_end():
                due = max(1, int(lacking / (self.b * ritz.theta[0])))  # a column adds no more than the first has
                continue
            excess = self._excess(ritz, k)
            stuck = self._stuck(ritz, excess, history)
            imprecise = not self.products.precise and (ritz.loss(k) > SHARE * self.solver.tol or stuck)
            if imprecise and self._may_step():
                start = self._begin_in_double(Z, k)
                due, history = self._first_check(start), [(0.0, np.inf)]
                continue
            leaders = self._leaders(ritz, k)
            if leaders:
                return self._without_leaders(ritz, Z, leaders)
            worst = float(np.max(excess))
            bounded(worst * self.solver.tol)
            history.append((float(self.products.n_steps), worst))
            due = _steps_to_go(history, self.pause)
            if (worst <= 1 or stuck) and not self._at_end() and self._missing(ritz, k):
                probed = self._probe(ritz, Z, k)
                if probed and worst <= 1 and self.basis.size < self.n and not self._missing(ritz, k):
                    reading, readings = self._read_before(ritz, k, probed), readings + 1
                    last = readings == READINGS or not self.budget.allows(self.last_reads)
                    if not len(reading.certificate.late) or last:
                        return reading
                ritz, Z, k = self._check()
                excess = self._excess(ritz, k)
                stuck = self._stuck(ritz, excess, history) and (probed is not None or self.missed.used_up)
                if not self._at_end() and not stuck and (np.max(excess) > 1 or self._missing(ritz, k)):
                    due = 1
                    continue
            if worst <= 1 or stuck or self._at_end():
                reading, readings = self._read_last(ritz, Z, k), readings + 1
                if stuck or self._at_end() or not len(reading.certificate.late) or readings == READINGS:
                    return reading

    def _step(self) -> None:
        basis, end = self.basis, self.basis.size + self.basis.width
        if basis.size and end + basis.width > self.columns < self.n:
            self._keep(*self._check())
        basis.reserve(min(end + basis.width, self.n))
        self.products.widest = max(self.products.widest, basis.width)
        W = self.products(basis.block)
        if self.products.precise and basis.single:  # as the first product may say
            self._begin(basis.block)
            basis, W = self.basis, self.products(self.basis.block)
        basis.extend(W)

    def _keep(self, ritz: Ritz, Z: Panel, k: int) -> None:
        # Half of the basis: with fewer, the values beyond the k-th are too few to tell how far those are from the rest.
        half = (self.columns - 2 * self.basis.width) // 2
        keep = min(max(k + self.b, half), self.basis.size)
        self.columns = max(self.columns, min(keep + 2 * self.basis.width + 4 * self.b, self.n))
        if self.basis.size + 2 * self.basis.width > self.columns:
            self.basis.restart(ritz.theta[:keep], Z[:, :keep])
            self.checked = None
            self.missed.forget()

    def _check(self) -> tuple[Ritz, Panel, int]:
        if self.checked is not None and self.checked[0] == self.products.n_steps:
            return self.checked[1]
        theta, Z, E = self.basis.values()
        k = min(int(self.k), len(theta))
        if self.share is not None:
            k = components_for(np.maximum(theta, 0), self.share, self.total)
        first = float(np.sqrt(max(theta[0], 0.0)))
        zero = rank_floor(self.source, max(first, self.products.leader)) ** 2
        ritz = Ritz(theta, E, self.products.eps, self.missed.level, self.products.noise(first), zero=zero)
        self.checked = self.products.n_steps, (ritz, Z, k)
        return ritz, Z, k

    def _lacking(self, ritz: Ritz) -> float:
        return self.total * self.share - float(np.sum(np.maximum(ritz.theta, 0))) if self.share else 0.0

    def _needs(self, ritz: Ritz, k: int) -> Needs:
        most = allowed(ritz, k, max(self.solver.tol, self.solver.missed_tol))
        return ritz.needs(k, most, self.missed.seen)

    def _missing(self, ritz: Ritz, k: int) -> bool:
        return self.missed.lacks(self._needs(ritz, k))

    def _probe(self, ritz: Ritz, Z: Panel, k: int) -> "Found | None":
        """What was there before a probe, with its level; None where errors are too large for one.

        The components go along in the product of the probe that is likely to be its last.
        """
        needs = self._needs(ritz, k)
        count = ritz.ready(k, needs)
        if count is None:
            return None
        V, block = self.basis.vectors(Z[:, :k]), self.basis.block.copy()
        kept = reduced(self.basis, ritz, Z, count)
        found = Found(V, block, kept)

        # What a start lacks is found by the probe: then what was read off before is not what is returned.
        expected, gain = FIRST_LEVEL * float(kept.theta[-1]), FIRST_GAIN
        along = self.solver.start is None and self._may_share() and kept.meets(needs, expected)
        probe = self.missed.probe(self.basis, kept.noise())
        self.products.widest = max(self.products.widest, self.b)
        while True:
            if along and found.product is None:
                W = self.products(beside(probe.block, V))
                W, found.product = W[:, : -V.shape[1]], W[:, -V.shape[1] :]
            else:
                W = self.products(probe.block)
            probe.take(W)
            if self._at_end() or kept.decided(needs, probe.level, probe.top):
                break
            expected, gain = probe.top + (probe.level - probe.top) / gain, GAIN
            along = self._may_share() and kept.meets(needs, expected)
        found.kept = self.missed.learn(probe, kept, k, needs)
        return found

    def _may_share(self) -> bool:
        """Whether the next product is such as the components are read off, and leaves something outside of the basis.

        A basis of everything has all digits of them.
        """
        same = self.products.G is self.source and (self.products.precise or self.source.dtype == np.float32)
        return same and self.basis.size + self.basis.width < self.n

    def _read_before(self, ritz: Ritz, k: int, found: "Found") -> Reading:
        """The components as they were before the probe, which has found nothing but a level.

        That level proves more than what could be inferred before, or less, where it is high: then the latter counts.
        """
        if np.max(self._excess(found.kept, k)) <= 1:
            return self._read(found.kept, found.V, k, found.block, found.product)
        self.checked = None
        self.missed.forget()
        return self._read(replace(ritz, level=np.inf), found.V, k, found.block, found.product)

    def _read(self, ritz: Ritz, V: Panel, k: int, block: Panel, product: Panel | None = None) -> Reading:
        # Single data are read in the precision that they were multiplied in, if that holds them; double ones in double.
        single = self._reads_in_single
        if single and product is None:
            single = self.budget.allows(2 * self.last_reads)  # and what judges it
        if single:
            product = self.products(V) if product is None else product
            product = in_dtype(product, self.dtype)
            self.products.judge(V, product, self.rng)
            ritz = replace(ritz, measured=self.products.measured)
            if ritz.loss(k) > SHARE * self.solver.tol and self.budget.allows(self.last_reads):
                single, product = False, None
        eps = self.products.eps if single else self.source.costs.gram_eps
        measured = ritz.measured if single or self.products.precise else 0.0
        left = V.shape[1]
        rest = Ritz(ritz.theta[left:], ritz.E[:, left:], eps, ritz.level, measured, self.missed.limit(k), ritz.zero)
        mixed = 0.0
        if not single and ritz.eps > eps:  # the others keep what single precision did to them
            rest = rest.grown(ritz.noise())
            if product is None:
                self.budget.spend(self.source.costs.gram_reads)
                product = in_dtype(self.source.gram(V), self.dtype)
            mixed = self.basis.coupling(V, product, len(ritz.theta))
        if product is None and not self.budget.allows(self.last_reads):
            product = V * ritz.theta[:left] + block @ ritz.E[: block.shape[1], :left]  # as the basis knows it
        tol, missed_tol = self.solver.tol, self.solver.missed_tol
        return read(self.source, V, k, rest, tol, missed_tol, self.budget, block, product, mixed)

    @property
    def _reads_in_single(self) -> bool:
        return self.source.dtype == np.float32 and self.products.eps > self.source.costs.gram_eps

    def _excess(self, ritz: Ritz, k: int) -> Vector:
        errors = ritz.errors(k)
        if self._reads_in_single:
            errors += ritz.noise() / (2 * np.maximum(ritz.theta[:k], TINY))
        return ritz.excess(k, self.solver.tol, errors)

    def _read_last(self, ritz: Ritz, Z: Panel, k: int) -> Reading:
        # The last components of all mix with what is left out, by rounding: then nothing is.
        read_off = self.n if self.basis.size == self.n and 2 * k > self.n else k
        ritz = replace(ritz, level=self.missed.level if self.basis.size < self.n else -np.inf)
        return self._read(ritz, self.basis.vectors(Z[:, :read_off]), k, self.basis.block)

    def _begin_in_double(self, Z: Panel, k: int) -> Panel:
        self.products.precise = True
        start = self.basis.vectors(Z[:, : k + self.b])
        self._begin(first_block(start, self.n, self.b, self.dtype, self.rng))
        return start

    def _begin(self, Q: Panel) -> None:
        self.checked = None
        self.missed.forget()
        Q = placed(self.products.G, Q.astype(self.dtype))
        vars(self).pop("basis", None)  # before the next one takes room
        self.basis = Basis.of(self.n, self.shape.room, self.dtype, self.rng, not self.products.precise, near=Q)
        self.basis.begin(Q)

    def _stuck(self, ritz: Ritz, excess: Vector, history: list[tuple[float, float]]) -> bool:
        k, late = len(excess), excess > 1
        if not late.any():
            return False
        least = int(np.argmin([worst for _, worst in history]))
        if len(history) - least > PATIENCE:
            return bool(np.all(ritz.r[:k][late] <= NEAR * ritz.noise()))
        # Values that are right can be late for the neighbours that they cannot be told from yet.
        return bool(np.all(ritz.worst_of_group(k)[late] <= ritz.noise()))

    def _leaders(self, ritz: Ritz, k: int) -> int:
        floor = max(self.solver.tol, LEAST_TOL)
        if self.share is not None or not self.products.precise or ritz.loss(k) <= SHARE * floor:
            return 0
        if not self.budget.allows(self.step_reads + self.last_reads + 1):
            return 0
        ready = (ritz.theta[:k] >= LEADING * ritz.theta[0]) & (ritz.r[:k] <= NEAR * ritz.noise())
        count = int(np.argmin(np.append(ready, False)))
        return count if count < k else 0

    def _without_leaders(self, ritz: Ritz, Z: Panel, count: int) -> Reading:
        """The leaders, and components of what is orthogonal to them.

        ``lambda_j <= lambda'_j``, those of ``P G P``, and less by at most ``||R||^2 / (theta - lambda_j)``, R being the
        residual of the leaders and theta the least of them.
        """
        V, k = placed(self.source, self.basis.vectors(Z[:, :count])), int(self.k)
        # Half of the tolerance is left to what the leaders add to the bounds.
        tol, probability = SHARE * self.solver.tol, self.solver.miss_probability / 2
        solver = replace(self.solver, tol=tol, start=None, miss_probability=probability)
        B = Deflated(self.source, V)  # not of a formed G, which has lost them already
        leader = max(self.products.leader, float(np.sqrt(ritz.theta[0])))
        products = Products(B, self.budget, precise=True, leader=leader, cancelled=self.products.cancelled)
        self.budget.limit -= 1  # the read of all together
        reading = Run(solver, self.shape, products, k - count, self.rng, B)()
        self.budget.limit += 1
        self.products.widest = max(self.products.widest, products.widest)
        square = float(np.sum((ritz.r[:count] + ritz.noise()) ** 2))
        return together(self.source, ritz.first(count), V, square, reading, self.solver.tol, self.budget)

    def _at_end(self) -> bool:
        used_up = not self._may_step() or self.missed.used_up
        return self.basis.size >= self.n or self.basis.width == 0 or used_up

    def _may_step(self) -> bool:
        return self.budget.allows(self.step_reads + self.last_reads)

    def _first_check(self, start: Panel | None) -> int:
        return -(-(2 * self.shape.wanted if start is None else start.shape[1]) // self.b) + 1

    def _total(self) -> float:
        norm = self.source.frobenius_norm()
        if norm is None:
            raise ValueError(
                "a share of the variance needs the total, which this operator cannot give; "
                "define frobenius_norm or ask for a number of components"
            )
        return norm**2


def _steps_to_go(history: list[tuple[float, float]], pause: float) -> int:
    """Steps until the next check, from how fast the worst error fell between the last two.

    So many steps as take as long as a check are made before it, unless ten times less error a step may end earlier.
    """
    (step0, worst0), (step1, worst1) = history[-2:]
    # Convergence speeds up as it goes on.
    if worst1 <= 2:
        return 1
    least = min(pause, np.log10(worst1))
    if not np.isfinite(worst0) or not worst1 < worst0:
        return int(np.clip(least, 2, 3))
    rate = np.log(worst0 / worst1) / (step1 - step0)
    return int(np.clip(max(0.5 * np.log(worst1) / rate, least), 1, 4))
