"""Loop of block Lanczos: iterate until values converge, prove that none was missed, compute the components."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.random import Generator

from shiftsvd.algebra.generic import placed
from shiftsvd.events import report_error_bound
from shiftsvd.numerics import bounds
from shiftsvd.numerics.bounds import TINY, CountBound, Ritz
from shiftsvd.numerics.panels import Vector, hstack, to_device_of
from shiftsvd.operators import Operator, Panel
from shiftsvd.solvers import constants
from shiftsvd.solvers.krylov import Factorization, RitzPairs
from shiftsvd.solvers.probe import Proven, hides, miss_limit, prove, required_bounds, vectors_to_keep
from shiftsvd.solvers.problem import Budget, Continue, Leaders, Outcome, Problem, Products, Stop
from shiftsvd.solvers.reading import Reading, Snapshot, read, read_with_leaders

# Per check: number of products, bound of the largest error in units of the tolerance, and an estimate of that error.
History = list[tuple[float, float, float]]


def solve(p: Problem, budget: Budget, rng: Generator) -> Reading:
    G, F, steps = begin(p, budget, rng)
    proven, history, readings = Proven(p.shape.block, p.miss_probability), [(0.0, np.inf, np.inf)], 0
    while True:
        ritz, outcome = converge(partial(advance, G, F, p.count), partial(check, p, G, F, proven, history), steps)
        match outcome:
            case Stop.ROUNDED:
                steps, history = begin_in_double(p, G, F, ritz, rng), [(0.0, np.inf, np.inf)]
                continue
            case Leaders(count):
                return deflate_leaders(p, G, F, ritz.first(count), rng)
            case Stop.NEAR:
                needs, steps = unproven(p, ritz, proven), 0
                proven = prove(G, F, ritz, needs, proven, joint=True, columns=p.shape.probe).proven
                continue
        V, block, product = vectors_to_read(F, ritz.k), F.block, None
        needs = [] if outcome is Stop.SPENT else unproven(p, ritz, proven)
        if needs:
            block = block.copy()
            to_multiply = V if p.multiplied is p.A else None
            cold, columns = p.start is None, p.shape.probe
            proven, kept, product = prove(G, F, ritz, needs, proven, to_multiply, cold, columns=columns)
            still_unproven = bool(unproven(p, ritz, proven))
            steps = int(still_unproven)
            # Take a step if values may be missed. Check again without a step if the run was stuck, or if the basis
            # spans the whole space: the level of the probe makes error bounds smaller.
            if still_unproven or outcome is Stop.STUCK or F.size == F.n:
                continue
            ritz, proven = with_probe_level(p, G, ritz, kept, proven)
        panels = (F.B[:, : min(len(ritz.theta), F.size)],)
        extra_noise = G.extra_rounding(first_singular_value(ritz.theta))
        snapshot = Snapshot(ritz, V, block, panels, proven, G.eps, extra_noise, product, F.rounding)
        reading = read(p, G, snapshot, rng)
        readings += 1
        if reading.values_converged or readings == constants.READINGS or outcome is not Stop.CONVERGED:
            return reading
        F.end_probe()
        steps = 1
        if cannot_step(G, F):
            return reading


# --- steps and checks ------------------------------------------------------------------------------------------------


def converge(
    advance: Callable[[int], RitzPairs], check: Callable[[RitzPairs], tuple[Ritz, Outcome | Continue]], steps: int
) -> tuple[Ritz, Outcome]:
    while True:
        ritz, outcome = check(advance(steps))
        if not isinstance(outcome, Continue):
            return ritz, outcome
        steps = outcome.steps


def advance(G: Products, F: Factorization, count: Callable[[Vector], int], steps: int) -> RitzPairs:
    """Take `steps` steps, or fewer if the basis or the budget is exhausted.

    Restarts keep at least `count` Ritz vectors and a block.
    """
    F.end_probe()
    if steps > 1 and F.size and F.columns < F.n:  # restart now, while the Ritz vectors of the check are stored
        F.restart_if_full(count(F.ritz().theta), steps)
    while steps > 0 and not (F.size and cannot_step(G, F)):
        taken = take_steps(G, F, steps)
        if not taken:
            step(G, F, count)
        steps -= max(taken, 1)
    return F.ritz()


def take_steps(G: Products, F: Factorization, steps: int) -> int:
    """Take as many steps in one call as need neither a restart nor a decision; return how many were taken."""
    dtypes_differ = G.precise == F.single  # products are in double precision and the basis in single, or the reverse
    if G.step_taker is None or not F.scale or dtypes_differ:  # the first product sets the scale
        return 0
    taken = F.take_steps(min(steps, G.steps_left), G.step_taker)
    G.record_steps(taken, F.width)
    return taken


def step(G: Products, F: Factorization, count: Callable[[Vector], int]) -> None:
    if F.size and F.size + 2 * F.width > F.columns < F.n:
        F.restart_if_full(count(F.ritz().theta))
    W = G(F.block)
    if G.precise and F.single:
        # The first product has shown that single precision is too coarse. Start again: the block is orthonormal to
        # single precision only.
        F.begin(F.block.astype(G.dtype))
        W = G(F.block)
    F.extend(W)


def cannot_step(G: Products, F: Factorization) -> bool:
    return F.full or not G.may_step()


# --- start of a run --------------------------------------------------------------------------------------------------


def begin(p: Problem, budget: Budget, rng: Generator) -> tuple[Products, Factorization, int]:
    G = Products.of(p, budget)
    G.precise = G.precise or not G.may_step(constants.FIRST_STEP)
    Q = first_block(p, p.start, G.dtype, rng)
    F = Factorization.of(Q, p.shape.columns, rng, not G.precise, p.shape.reserved)
    return G, F, steps_to_first_check(p, p.start, p.start is None and G.step_taker is not None)


def begin_in_double(p: Problem, G: Products, F: Factorization, ritz: Ritz, rng: Generator) -> int:
    G.precise = True
    start = F.vectors(ritz.k + p.shape.block)
    F.begin(first_block(p, start, G.dtype, rng))
    return steps_to_first_check(p, start)


def steps_to_first_check(p: Problem, start: Panel | None, in_memory: bool = False) -> int:
    # Steps until the basis has twice as many columns as components, or as many as start vectors, plus some blocks. A
    # check takes no time beside a read of a file, so check as soon as the basis can hold the components.
    if p.reads_file:
        return p.shape.wanted // p.shape.block + 1
    more = constants.FIRST_IN_MEMORY if in_memory else 1
    return -(-(2 * p.shape.wanted if start is None else start.shape[1]) // p.shape.block) + more


def first_block(p: Problem, start: Panel | None, dtype: np.dtype[np.generic], rng: Generator) -> Panel:
    width = p.shape.block
    Q: Panel = rng.standard_normal((p.n, width)).astype(dtype)
    if start is not None:
        j = start.shape[1]
        if j > width:  # combine the start vectors at random: a wider block would make all products wider
            Q = start @ rng.standard_normal((j, width)).astype(dtype)
        else:
            Q = hstack(start, to_device_of(start, Q[:, j:]))
    return for_basis(p.multiplied, Q.astype(dtype))


def for_basis(A: Operator, V: Panel) -> Panel:
    return V if len(V) <= constants.HOST_ROWS else placed(A, V)


# --- a check ---------------------------------------------------------------------------------------------------------


def check(
    p: Problem, G: Products, F: Factorization, proven: Proven, history: History, pairs: RitzPairs
) -> tuple[Ritz, Outcome | Continue]:
    """Return the Ritz values with their bounds, and the reason to stop or the steps until the next check."""
    theta, first, is_last = pairs.theta, first_singular_value(pairs.theta), cannot_step(G, F)
    noise, zero = bounds.rounding_of(theta, G.eps, G.extra_rounding(first)), p.zero(first)
    k = p.count(theta)
    ritz = Ritz(theta, pairs.E, k, noise, level=proven.level_of(F), proven_limit=proven.limit(k), zero=zero)
    if (steps := p.steps_missing(theta)) > 0 and not is_last:
        return ritz, Continue(steps)
    errors = tol_ratios(p, G, ritz)
    worst, stuck = float(np.max(errors)), is_stuck(ritz, errors, history)
    hidden = proven.n_probes > 0 and hides(F, ritz)
    coarse = hidden or bounds.relative_noise(ritz) > constants.ROUNDING_SHARE * p.tol
    if not G.precise and G.may_step() and (stuck or coarse):
        return ritz, Stop.ROUNDED
    if count := leaders(p, G, ritz, hidden):
        return ritz, Leaders(count)
    report_error_bound(worst * p.tol)  # for the display of progress
    history.append((float(G.n_steps), worst, bounds.likely_tol_ratio(ritz, p.tol)))
    converged = worst <= (1 if G.precise else constants.WITH_ROUNDING)
    if is_last or converged or stuck:
        return ritz, Stop.SPENT if is_last else Stop.CONVERGED if converged else Stop.STUCK
    if p.reads_file:
        return ritz, Stop.NEAR if shares_reads(p, F, ritz, proven, history) else Continue(1)
    return ritz, Continue(steps_to_go(history, G.step_taker is not None))


def shares_reads(p: Problem, F: Factorization, ritz: Ritz, proven: Proven, history: History) -> bool:
    """Return True to multiply the first probe together with the next steps."""
    # The level of the probe exceeds the share of the components that the basis lacks, which is about the error.
    likely, most = history[-1][2], constants.LACKING * max(p.tol, p.missed_tol) / max(p.tol, TINY)
    is_last = likely <= constants.JOINT or steps_to_go(history) == 1
    if not p.shape.joint or proven.n_probes or F.size + F.width == F.n:
        return False
    if not is_last or likely > most or hides(F, ritz):
        return False
    # The basis must have room for steps with the wider block, in case the probe finds that a value was missed.
    if F.columns < min(2 * ritz.k + constants.STEPS * (F.width + p.shape.probe), F.n):
        return False
    needs = unproven(p, ritz, proven)
    return bool(needs) and vectors_to_keep(ritz, needs) is not None


@np.errstate(over="ignore")  # of values that are 0
def tol_ratios(p: Problem, G: Products, ritz: Ritz) -> Vector:
    errors = bounds.value_errors(ritz)
    if p.reads_in_single(G.eps):
        # The last reading is in single precision, too, and adds a rounding error of the same size.
        errors = errors + ritz.noise / (2 * np.maximum(ritz.theta[: ritz.k], TINY))
    return bounds.tol_ratios(ritz, p.tol, errors)


def is_stuck(ritz: Ritz, errors: Vector, history: History) -> bool:
    unconverged = errors > 1
    if not unconverged.any():
        return False
    least = int(np.argmin([worst for _, worst, _ in history]))
    if len(history) - least > constants.PATIENCE:
        return bool(np.all(ritz.r[: ritz.k][unconverged] <= constants.NEAR_ROUNDING * ritz.noise))
    # A value whose residual is at rounding level still improves while close neighbours converge.
    at_rounding = np.all(ritz.r[: ritz.k][unconverged] <= ritz.noise)
    return bool(at_rounding and np.all(bounds.worst_of_group(ritz)[unconverged] <= ritz.noise))


def steps_to_go(history: History, in_memory: bool = False) -> int:
    (step0, _, likely0), (step1, worst, likely1) = history[-2:]
    if worst <= 2 or likely1 <= constants.ENOUGH:  # one step shrinks errors at least so much, on most data
        return 1
    if not np.isfinite(likely0) or not likely1 < likely0:  # no rate is known yet
        return constants.MOST_IN_MEMORY if in_memory and likely1 > constants.FAR else 2
    rate = np.log(likely0 / likely1) / (step1 - step0)
    faster, most = constants.FASTER, constants.MOST_STEPS
    if in_memory:
        faster, most = constants.FASTER_IN_MEMORY, constants.MOST_IN_MEMORY
    return int(np.clip(np.log(likely1 / constants.ENOUGH) / (faster * rate), 1, most))


def unproven(p: Problem, ritz: Ritz, proven: Proven) -> list[CountBound]:
    # The reading may find the k-th value lower, by the rounding error of the products.
    needs = required_bounds(ritz, miss_limit(ritz, max(p.tol, p.missed_tol)) - ritz.noise, proven.seen)
    return needs if proven.needs_probe(needs) else []


# --- vectors to read -------------------------------------------------------------------------------------------------


def with_probe_level(p: Problem, G: Products, ritz: Ritz, kept: Ritz, proven: Proven) -> tuple[Ritz, Proven]:
    """Bound errors by the level of a probe, or without it if this level is too high to prove the tolerance."""
    if np.max(tol_ratios(p, G, kept)) <= 1:
        return kept, proven
    return replace(ritz, level=np.inf), replace(proven, level=np.inf)


def vectors_to_read(F: Factorization, k: int) -> Panel:
    # Rounding mixes the last components with vectors that are not read. If the basis spans the whole space and k is
    # more than half of its dimension, read all vectors.
    return F.vectors(F.n if F.size == F.n < 2 * k else k)


def first_singular_value(theta: Vector) -> float:
    return float(np.sqrt(max(theta[0], 0.0)))


# --- leaders ---------------------------------------------------------------------------------------------------------


def leaders(p: Problem, G: Products, ritz: Ritz, hidden: bool) -> int:
    """Count the converged leading values whose rounding errors hide the last values or keep a probe from a proof."""
    floor = max(p.tol, constants.LEAST_TOL)
    hidden = hidden or bounds.relative_noise(ritz) > constants.ROUNDING_SHARE * floor
    if isinstance(p.k, float) or not G.precise or not hidden or not G.may_step(more=1):
        return 0
    theta, r = ritz.theta[: ritz.k], ritz.r[: ritz.k]
    converged = (theta >= constants.LEADING * theta[0]) & (r <= constants.NEAR_ROUNDING * ritz.noise)
    count = int(np.argmin(np.append(converged, False)))
    return count if count < ritz.k else 0


def deflate_leaders(p: Problem, G: Products, F: Factorization, ritz: Ritz, rng: Generator) -> Reading:
    """Solve the problem orthogonal to the leaders, then compute leaders and other components in one product."""
    V, budget = for_basis(p.A, F.vectors(len(ritz.theta))), G.budget
    budget.max_passes -= 1  # reserved for the product in `read_with_leaders`
    rest = solve(p.deflated(V, first_singular_value(ritz.theta)), budget, rng)
    budget.max_passes += 1
    return read_with_leaders(p.A, ritz, V, rest, p.tol, budget)
