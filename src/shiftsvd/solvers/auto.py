"""auto_solver and estimate: choose a solver for a matrix, and predict its cost."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shiftsvd.algebra.generic import gram_seconds
from shiftsvd.backends import as_operator, centered
from shiftsvd.backends.entries import some_rows
from shiftsvd.errors import plural, refuse
from shiftsvd.events import without_progress
from shiftsvd.kernels import threads
from shiftsvd.names import SolverName
from shiftsvd.operators import Operator
from shiftsvd.runs.memory import parse_bytes
from shiftsvd.solvers import constants
from shiftsvd.solvers.base import TOL, Solver, check_rank, most_components
from shiftsvd.solvers.cost import Cost, Work, vector_bytes
from shiftsvd.solvers.direct import Exact, Gram
from shiftsvd.solvers.lanczos import BlockLanczos
from shiftsvd.solvers.randomized import RandomizedSVD, ShiftedRandomizedSVD
from shiftsvd.transforms.chains import Preprocess, as_transforms, kept_bytes


def timed_pass(A: Operator, k: int | float) -> tuple[float, float]:
    # Return the seconds of a product with one block, and their ratio to the seconds of the cost model.
    tall = A if A.shape[0] >= A.shape[1] else A.H
    block, work = BlockLanczos().shape(k, A).block, Work.of(A)
    V = np.ones((tall.shape[1], block), A.dtype)
    with threads(A.costs.n_threads):
        rounds = 1 if A.costs.file_bytes else 2  # the first product in memory includes the start of threads
        seconds = min(gram_seconds(tall, V) for _ in range(rounds))
    of_model = work.product_seconds(block) + work.read_seconds(1)
    return seconds, seconds / of_model if of_model else 1.0  # a sparse matrix without entries


def counted_passes(A: Operator, solver: Solver, k: int | float) -> int | None:
    """Predict the passes of block Lanczos over a matrix in memory from fits to two subsets of its rows.

    Each doubling of the rows adds passes; the number added decreases with the number of rows. Return None for other
    solvers, shares, files and shifted matrices.
    """
    m = A.shape[0]
    if not isinstance(solver, BlockLanczos) or isinstance(k, float) or A.costs.file_bytes:
        return None
    rows = min(m, max(m * constants.COUNTED // max(1, A.costs.stored), constants.ROWS_EACH * int(k)))
    of_some, of_half = (_passes(A, solver, int(k), count) for count in (rows, rows // 2))
    if of_some is None or of_half is None:
        return None
    return round(of_some + constants.FLATTENS * max(of_some - of_half, 0) * math.log2(m / rows))


def _passes(A: Operator, solver: BlockLanczos, k: int, count: int) -> int | None:
    rows = np.unique(np.linspace(0, A.shape[0] - 1, count).astype(np.intp))
    if len(rows) < max(k, 2):
        return None
    try:
        part = some_rows(A, rows) if len(rows) < A.shape[0] else A
    except (TypeError, ValueError):  # rows of this kind of matrix cannot be selected
        return None
    same_block = replace(solver, block_size=solver.shape(k, A).block)
    with without_progress(), threads(A.costs.n_threads):
        B = centered(part)
        return same_block.factorize(B, min(k, *B.shape), np.random.default_rng(0)).n_passes


BY_NAME: dict[str, type[Solver]] = {
    "lanczos": BlockLanczos,
    "gram": Gram,
    "exact": Exact,
    "randomized": RandomizedSVD,
    "shifted-randomized": ShiftedRandomizedSVD,
}


def auto_solver(A: Any, k: int | float, tol: float = TOL, memory_limit: int | str | None = None) -> Solver:
    """Choose the solver of ``solver="auto"``; its ``reason`` gives the predicted seconds of all candidates.

    Parameters
    ----------
    A : Operator, or anything that `as_operator` takes, of shape (m, n)
        The matrix that would be decomposed.
    k : int, or float in (0, 1) for a share of the variance
        Number of components.
    tol : float
        Relative accuracy of the singular values.
    memory_limit : int (bytes) or str such as "2GB", optional
        Choose among the solvers that fit into this memory, if any does. The memory of solvers depends on the number of
        threads, so near the limit the choice may, too; without a limit the choice does not depend on the threads.

    Returns
    -------
    Solver
        The cheapest of `Exact` (short side at most 1000), `Gram` and `BlockLanczos` by the model in
        ``shiftsvd.solvers.cost``. `Exact` is preferred if it takes a few hundredths of a second; for dense data in
        memory with more than about 30 columns then ``Exact(tol)``, which tries the eigenvalues of ``A^H A`` first.

    See Also
    --------
    estimate : Predict the memory, passes and time of a solver.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.auto_solver(np.ones((100, 20)), 5)
    Exact()
    """
    A = as_operator(A)
    costs = _costs(A, k, tol)
    exact = next((solver for solver in costs if isinstance(solver, Exact)), None)
    fit = _affordable(list(costs), A, k, memory_limit)
    best = min(fit, key=lambda solver: costs[solver].seconds)
    if exact is not None and exact in fit and costs[exact].seconds <= constants.EXACT_SECONDS:
        best = Exact(tol) if _try_squares(A, costs[exact], k) else exact
    _set_reason(best, A, k, {solver: cost.seconds for solver, cost in costs.items()}, fit)
    return best


def _affordable(solvers: list[Solver], A: Operator, k: int | float, memory_limit: int | str | None) -> list[Solver]:
    if memory_limit is None:
        return solvers
    peaks = [solver.peak_bytes(A, most_components(A, k)) for solver in solvers]
    limit = max(parse_bytes(memory_limit), min(peaks))  # if no solver fits, choose those with the least memory
    return [solver for solver, peak in zip(solvers, peaks, strict=True) if peak <= limit]


def _costs(A: Operator, k: int | float, tol: float) -> dict[Solver, Cost]:
    work = Work.of(A)
    count = int(0.1 * work.n) + 1 if isinstance(k, float) else int(k)
    costs: dict[Solver, Cost] = {}
    if work.n <= constants.EXACT_SIDE or count > 0.8 * work.n:
        costs[Exact()] = work.exact()
    if work.n <= (constants.GRAM_SIDE_OF_FILES if work.costs.file_bytes else constants.GRAM_SIDE):
        costs[Gram(tol, last_pass=False)] = work.gram(count)
    if count + 2 * constants.USUAL_BLOCK <= work.n or not costs:
        lanczos = BlockLanczos(tol)
        shape = lanczos.shape(count, A)
        costs[lanczos] = work.lanczos(count, shape.block, shape.columns)
    return costs


def _try_squares(A: Operator, exact: Cost, k: int | float) -> bool:
    work = Work.of(A)
    costs = work.costs
    in_memory = not work.sparse and costs.gram_reads == 1 and not (costs.file_bytes or costs.square_bytes)
    return in_memory and k < work.n and exact.seconds - work.gram(0).seconds >= constants.SQUARES_SAVE


def check_solver(solver: Any, k: Any) -> None:
    if isinstance(solver, Solver):
        solver.check_share(k)
    elif solver in BY_NAME:
        BY_NAME[solver]().check_share(k)
    elif solver != "auto":
        raise refuse("solver", f"be one of {', '.join(['auto', *BY_NAME])}, or a solver object", solver)


def solver_named(
    solver: "str | Solver", A: Operator, k: int | float, tol: float, memory_limit: int | str | None = None
) -> Solver:
    if isinstance(solver, Solver):
        return solver
    if solver == "auto":
        return auto_solver(A, k, tol, memory_limit)
    check_solver(solver, k)
    kind = BY_NAME[solver]
    # "exact" means accurate to rounding for every tolerance; `Exact.tol` is for squares.
    settings: dict[str, Any] = {"tol": tol} if kind.certifies_itself else {}
    return kind(**settings)


@dataclass(frozen=True)
class Estimate:
    """Predicted passes, memory and time of a factorization.

    Parameters
    ----------
    solver : Solver
        With its ``reason`` if it was chosen automatically.
    peak_bytes : int
        Memory beyond X for the operator, the solver and the right singular vectors. Groups and covariates take up to
        five numbers more per row and group, and two per column and group.
    n_passes : int
        Expected number of passes over the data.
    passes_range : (int, int)
        Fewest and most passes that are likely; the number depends on the spectrum, and nine of ten fits lie between.
    seconds_per_pass : float or None
        Measured time of a product with a few columns; only with ``probe=True``.
    seconds : float or None
        Predicted time of the fit on this machine, from the cost model scaled by the measured product; only with
        ``probe=True``.

    See Also
    --------
    estimate : Returns an Estimate.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.estimate(np.ones((300, 20)), 3).n_passes >= 1
    True
    """

    solver: Solver
    peak_bytes: int
    n_passes: int
    passes_range: tuple[int, int]
    seconds_per_pass: float | None = None
    seconds: float | None = None


def estimate(
    X: Any,
    k: int | float,
    solver: SolverName | Solver = "auto",
    *,
    tol: float = TOL,
    probe: bool = False,
    preprocess: Preprocess | None = None,
    shift: Any = None,
    sample_weight: Any = None,
    memory_limit: int | str | None = None,
) -> Estimate:
    """Predict the memory and passes that `svd` and `PCA` need for k components of X.

    Parameters
    ----------
    X : Operator, or anything that `as_operator` takes, of shape (m, n)
        The matrix that would be decomposed.
    k : int, or float in (0, 1) for a share of the variance
        Number of components.
    solver : str or Solver
        The solver that would be used, as in `svd`.
    tol : float
        Relative accuracy of the singular values, for solvers given by name.
    probe : bool
        Also time one product (for files: some blocks of one), and count the passes of fits to subsets of the rows of a
        matrix in memory. The seconds in the ``reason`` of the solver are then predicted for this machine.
    preprocess : transformation, its name, or list of them
        As in `svd`. Transformed entries of a matrix in memory are stored if they fit into memory; files are transformed
        again in each pass. The transformations are not fitted here.
    shift, sample_weight : optional
        As in `svd`; they add memory per row. The values of weights do not matter. The memory for a shift of nearly full
        columns of sparse data is not included.
    memory_limit : int (bytes) or str such as "2GB", optional
        As in `svd`: "auto" chooses among solvers that fit into this memory, and optional copies are not made.

    Returns
    -------
    Estimate
        Passes, memory and the solver. Without `probe` nothing is computed.

    See Also
    --------
    svd : Compute the decomposition.
    auto_solver : Choose the solver.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.estimate(np.ones((100, 20)), 5).n_passes
    1
    """
    A = as_operator(X, memory_limit=memory_limit)
    if not isinstance(k, float):
        check_rank(k, A.shape)
    chosen = solver_named(solver, A, k, tol, memory_limit)
    count = most_components(A, k)
    peak = chosen.needed_bytes(A, count) + kept_bytes(as_transforms(preprocess), A, tol)
    peak += vector_bytes(A, count, shift, sample_weight is not None)
    certificate = chosen.certificate_passes(A, count)
    least, most = chosen.passes_range(A, count)
    expected = round(chosen.expected_passes(A, count)) + certificate[1]
    predicted = Estimate(chosen, peak, expected, (least + certificate[0], most + certificate[2]))
    return _probed(predicted, certificate[1], A, k, tol, memory_limit) if probe else predicted


def _probed(
    predicted: Estimate, certificate: int, A: Operator, k: int | float, tol: float, memory_limit: int | str | None
) -> Estimate:
    solver, (seconds, slowdown) = predicted.solver, timed_pass(A, k)
    expected = counted_passes(A, solver, k) or predicted.n_passes
    costs = _costs(A, k, tol)
    own = next((cost for each, cost in costs.items() if type(each) is type(solver)), None)
    each_pass = seconds if own is None else slowdown * own.seconds / own.n_passes
    total = each_pass * (expected - certificate) + seconds * certificate
    if solver.reason:
        times = {each: total if type(each) is type(solver) else slowdown * cost.seconds for each, cost in costs.items()}
        _set_reason(solver, A, k, times, _affordable(list(costs), A, k, memory_limit))
    least, most = predicted.passes_range
    likely = min(least, expected), max(most, expected)
    return replace(predicted, n_passes=expected, passes_range=likely, seconds_per_pass=seconds, seconds=total)


def _set_reason(
    solver: Solver, A: Operator, k: int | float, seconds: dict[Solver, float], affordable: list[Solver]
) -> None:
    excluded = {each: "" if each in affordable else " (excluded by the memory limit)" for each in seconds}
    times = ", ".join(f"{type(each).__name__} {time:.2g} s{excluded[each]}" for each, time in seconds.items())
    of = f"{k} of the variance" if isinstance(k, float) else plural(k, "component")
    sizes = f"a {A.shape[0]:,} x {A.shape[1]:,} matrix with {A.costs.stored:,} numbers"
    preferred = f"; Exact is preferred up to {constants.EXACT_SECONDS:g} s" if isinstance(solver, Exact) else ""
    object.__setattr__(solver, "reason", f"predicted times for {of} of {sizes}: {times}{preferred}")
