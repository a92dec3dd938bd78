"""Loop of block Lanczos: iterate until values converge, prove that none was missed, compute the components."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.random import Generator

from shiftsvd.algebra.generic import placed
from shiftsvd.events import bounded
from shiftsvd.numerics import bounds
from shiftsvd.numerics.bounds import TINY, Fact, Ritz
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import beside, sent
from shiftsvd.operators import Panel
from shiftsvd.solvers.constants import (
    ENOUGH,
    FASTER,
    FIRST_STEP,
    LEADING,
    LEAST_TOL,
    MOST_STEPS,
    NEAR,
    PATIENCE,
    READINGS,
    SHARE,
    WITH_ROUNDING,
)
from shiftsvd.solvers.krylov import Factorization, RitzPairs
from shiftsvd.solvers.probe import Proven, allowed, needed, prove
from shiftsvd.solvers.problem import Budget, Later, Leaders, Outcome, Problem, Products, Stop
from shiftsvd.solvers.reading import Reading, Snapshot, read, together

# Per check: number of products, bound of the largest error in units of the tolerance, and an estimate of that error.
History = list[tuple[float, float, float]]


def solve(p: Problem, budget: Budget, rng: Generator) -> Reading:
    """Compute the components of p within the remaining budget."""
    G, F, due = begin(p, budget, rng)
    proven, history, readings = Proven(p.shape.block, p.miss_probability), [(0.0, np.inf, np.inf)], 0
    while True:
        ritz, why = converge(partial(advance, G, F, p.count), partial(check, p, G, F, proven, history), due)
        match why:
            case Stop.ROUNDED:
                due, history = begin_in_double(p, G, F, ritz, rng), [(0.0, np.inf, np.inf)]
                continue
            case Leaders(count):
                return beside_leaders(p, G, F, ritz.first(count), rng)
        V, block, product, due = leading(F, ritz.k), F.block, None, 1
        needs = [] if why is Stop.SPENT else unproven(p, ritz, proven)
        if needs:
            block = block.copy()
            along = V if p.shares_products(G.precise) else None
            proven, kept, product = prove(G, F, ritz, needs, proven, along, cold=p.start is None)
            due = 1 if unproven(p, ritz, proven) else 0
            # Take a step if the probe found missed values. Check again without a step if the run was stuck, or if the
            # basis spans the whole space: the level of the probe makes the error bounds smaller.
            if due or why is Stop.STUCK or F.size == F.n:
                continue
            ritz, proven = by_level(p, G, ritz, kept, proven)
        panels, measured = (F.B[:, : min(len(ritz.theta), F.size)],), G.unseen(root_of(ritz.theta))
        reading = read(p, G, Snapshot(ritz, V, block, panels, proven, G.eps, measured, why, product), rng)
        readings += 1
        if reading.settled or readings == READINGS or why is not Stop.CONVERGED or at_end(G, F):
            return reading


# --- steps and checks ------------------------------------------------------------------------------------------------


def converge(
    advance: Callable[[int], RitzPairs], check: Callable[[RitzPairs], tuple[Ritz, Outcome | Later]], due: int
) -> tuple[Ritz, Outcome]:
    while True:
        ritz, why = check(advance(due))
        if not isinstance(why, Later):
            return ritz, why
        due = why.steps


def advance(G: Products, F: Factorization, count: Callable[[Vector], int], due: int) -> RitzPairs:
    """Take `due` steps, or fewer if the basis or the budget is exhausted; restarts keep `count` values."""
    if due > 1 and F.size and F.columns < F.n:  # Ritz vectors are known now, and would be computed again for a restart
        F.make_room(count(F.ritz().theta), due)
    for _ in range(due):
        if F.size and at_end(G, F):
            break
        step(G, F, count)
    return F.ritz()


def step(G: Products, F: Factorization, count: Callable[[Vector], int]) -> None:
    if F.size and F.size + 2 * F.width > F.columns < F.n:
        F.make_room(count(F.ritz().theta))
    W = G(F.block)
    if G.precise and F.single:
        # The first product has shown that single precision is too coarse. Start again: the block is orthonormal to
        # single precision only.
        F.begin(F.block.astype(G.dtype))
        W = G(F.block)
    F.extend(W)


def at_end(G: Products, F: Factorization) -> bool:
    return F.full or not G.may_step()


# --- start of a run --------------------------------------------------------------------------------------------------


def begin(p: Problem, budget: Budget, rng: Generator) -> tuple[Products, Factorization, int]:
    G = Products.of(p, budget)
    G.precise = G.precise or not G.may_step(FIRST_STEP)
    Q = first_block(p, p.start, G.dtype, rng)
    F = Factorization.of(Q, p.shape.columns, rng, not G.precise, p.shape.room)
    return G, F, first_check(p, p.start)


def begin_in_double(p: Problem, G: Products, F: Factorization, ritz: Ritz, rng: Generator) -> int:
    G.precise = True
    start = F.vectors(ritz.k + p.shape.block)
    F.begin(first_block(p, start, G.dtype, rng))
    return first_check(p, start)


def first_check(p: Problem, start: Panel | None) -> int:
    return -(-(2 * p.shape.wanted if start is None else start.shape[1]) // p.shape.block) + 1


def first_block(p: Problem, start: Panel | None, dtype: np.dtype[np.generic], rng: Generator) -> Panel:
    width = p.shape.block
    Q: Panel = rng.standard_normal((p.n, width)).astype(dtype)
    if start is not None:
        j = start.shape[1]
        # Combine start vectors at random to one block: a wider block would make all products wider.
        wide = j > width
        Q = start @ rng.standard_normal((j, width)).astype(dtype) if wide else beside(start, sent(start, Q[:, j:]))
    return placed(p.multiplied, Q.astype(dtype))


# --- a check ---------------------------------------------------------------------------------------------------------


def check(
    p: Problem, G: Products, F: Factorization, proven: Proven, history: History, pairs: RitzPairs
) -> tuple[Ritz, Outcome | Later]:
    """Return the Ritz values with their bounds, and the reason to stop or the steps until the next check."""
    theta, first, ended = pairs.theta, root_of(pairs.theta), at_end(G, F)
    noise, zero = bounds.rounding_of(theta, G.eps, G.unseen(first)), p.zero(first)
    ritz = Ritz(theta, pairs.E, p.count(theta), noise, proven.level_of(F), proven.limit(p.count(theta)), zero)
    if p.lacking(theta) > 0 and not ended:  # a column adds at most the first Ritz value to the squared norm
        return ritz, Later(max(1, int(p.lacking(theta) / (p.shape.block * theta[0]))))
    if p.absent(theta) > 0 and not ended:  # few start vectors: the basis has fewer columns than there are components
        return ritz, Later(-(-p.absent(theta) // p.shape.block))
    errors = excess_of(p, G, ritz)
    worst, stuck = float(np.max(errors)), is_stuck(ritz, errors, history)
    if not G.precise and G.may_step() and (stuck or bounds.loss(ritz) > SHARE * p.tol):
        return ritz, Stop.ROUNDED
    if count := leaders(p, G, ritz):
        return ritz, Leaders(count)
    bounded(worst * p.tol)  # for the display of progress
    history.append((float(G.n_steps), worst, bounds.likely_excess(ritz, p.tol)))
    converged = worst <= (1 if G.precise else WITH_ROUNDING)
    if ended or converged or stuck:
        return ritz, Stop.SPENT if ended else Stop.CONVERGED if converged else Stop.STUCK
    return ritz, Later(steps_to_go(history))


@np.errstate(over="ignore")  # of values that are 0
def excess_of(p: Problem, G: Products, ritz: Ritz) -> Vector:
    errors = bounds.value_errors(ritz)
    if p.reads_in_single(G.eps):
        # The last reading is in single precision, too, and doubles the rounding error.
        errors = errors + ritz.noise / (2 * np.maximum(ritz.theta[: ritz.k], TINY))
    return bounds.excess(ritz, p.tol, errors)


def is_stuck(ritz: Ritz, errors: Vector, history: History) -> bool:
    late = errors > 1
    if not late.any():
        return False
    least = int(np.argmin([worst for _, worst, _ in history]))
    if len(history) - least > PATIENCE:
        return bool(np.all(ritz.r[: ritz.k][late] <= NEAR * ritz.noise))
    # A value at rounding level may still wait for close neighbours that have not converged.
    own = np.all(ritz.r[: ritz.k][late] <= ritz.noise)
    return bool(own and np.all(bounds.worst_of_group(ritz)[late] <= ritz.noise))


def steps_to_go(history: History) -> int:
    """Predict the steps until convergence from the decrease of the estimated error between the last two checks."""
    (step0, _, likely0), (step1, worst, likely1) = history[-2:]
    if worst <= 2 or likely1 <= ENOUGH:
        return 1
    if not np.isfinite(likely0) or not likely1 < likely0:
        return 2
    rate = np.log(likely0 / likely1) / (step1 - step0)
    return int(np.clip(np.log(likely1 / ENOUGH) / (FASTER * rate), 1, MOST_STEPS))


def unproven(p: Problem, ritz: Ritz, proven: Proven) -> list[Fact]:
    needs = needed(ritz, allowed(ritz, max(p.tol, p.missed_tol)), proven.seen)
    return needs if proven.lacks(needs) else []


# --- vectors to read -------------------------------------------------------------------------------------------------


def by_level(p: Problem, G: Products, ritz: Ritz, kept: Ritz, proven: Proven) -> tuple[Ritz, Proven]:
    """Bound errors by the level of a probe; if this level is too high to prove the tolerance, infer them as before."""
    if np.max(excess_of(p, G, kept)) <= 1:
        return kept, proven
    return replace(ritz, level=np.inf), replace(proven, level=np.inf)


def leading(F: Factorization, k: int) -> Panel:
    # Rounding mixes the last components with vectors that are not read. If the basis spans the space and more than
    # half of the vectors are wanted, read all of them.
    return F.vectors(F.n if F.size == F.n < 2 * k else k)


def root_of(theta: Vector) -> float:
    return float(np.sqrt(max(theta[0], 0.0)))


# --- leaders ---------------------------------------------------------------------------------------------------------


def leaders(p: Problem, G: Products, ritz: Ritz) -> int:
    """Count the leading values that have converged and whose rounding errors hide the last values; 0 if none."""
    floor = max(p.tol, LEAST_TOL)
    if isinstance(p.k, float) or not G.precise or bounds.loss(ritz) <= SHARE * floor or not G.may_step(more=1):
        return 0
    theta, r = ritz.theta[: ritz.k], ritz.r[: ritz.k]
    ready = (theta >= LEADING * theta[0]) & (r <= NEAR * ritz.noise)
    count = int(np.argmin(np.append(ready, False)))
    return count if count < ritz.k else 0


def beside_leaders(p: Problem, G: Products, F: Factorization, ritz: Ritz, rng: Generator) -> Reading:
    """Solve the problem orthogonal to the leaders, then compute leaders and other components in one product."""
    V, budget = placed(p.A, F.vectors(len(ritz.theta))), G.budget
    budget.max_passes -= 1  # reserved for the product in `together`
    rest = solve(p.deflated(V, root_of(ritz.theta)), budget, rng)
    budget.max_passes += 1
    return together(p.A, ritz, V, rest, p.tol, budget)
