"""svd: validate all arguments, then compute the leading singular triplets."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any, Final, Literal

import numpy as np

from shiftsvd.backends.files import LEAST_BLOCK, DiskRows, Reread, larger_blocks
from shiftsvd.backends.source import Turned
from shiftsvd.errors import Part, Refused, Setting, plural, refuse
from shiftsvd.kernels import threads
from shiftsvd.missing.completion import MissingSummary, check_unused, completed, with_missing
from shiftsvd.missing.gaps import Observed
from shiftsvd.names import MAX_ITER, MissingName, ScaleName, ShiftName, SolverName, VectorLike
from shiftsvd.operators import Adjoint, Operator, Panel
from shiftsvd.preparation.covariates import Covariates, GroupMeans
from shiftsvd.preparation.prepare import Preparation, Prepared
from shiftsvd.preparation.shifts import row_weights
from shiftsvd.result import SVDResult, native
from shiftsvd.runs.memory import ROUNDED_UP, OverLimit, Resources, affordable, parse_bytes, spare
from shiftsvd.shifts import Shift
from shiftsvd.sketch import generator
from shiftsvd.solvers import Solver
from shiftsvd.solvers.auto import check_solver, solver_named
from shiftsvd.solvers.base import TOL, Perturbation, check_rank, check_tol, most_components, solve_perturbed
from shiftsvd.solvers.cost import tall
from shiftsvd.solvers.lanczos import BlockLanczos
from shiftsvd.solvers.randomized import ShiftedRandomizedSVD, unsupported_shift
from shiftsvd.transforms.base import Transform
from shiftsvd.transforms.chains import Preprocess, as_transforms, width

_LEFT_OUT: Final = float(repr(TOL))  # default of `tol`: an object of its own, which `is` tells from any equal number


def svd(
    X: Any,
    k: int | float,
    *,
    shift: ShiftName | VectorLike | Operator | Shift | None = None,
    scale: bool | ScaleName | VectorLike | None = None,
    solver: SolverName | Solver = "auto",
    tol: float = _LEFT_OUT,
    rng: int | np.random.Generator | None = None,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
    certify: bool = False,
    scale_ddof: int = 0,
    sample_weight: VectorLike | None = None,
    missing: MissingName = "error",
    unobserved: bool = False,
    penalty: float | Literal["auto"] = "auto",
    max_iter: int = MAX_ITER,
    preprocess: Preprocess | None = None,
) -> SVDResult:
    """Compute the k leading singular triplets of ``(X - shift) diag(1 / scale)``, which is never formed.

    Parameters
    ----------
    X : anything that `as_operator` takes, of shape (m, n)
        Rows are samples, columns are features. Complex data work.
    k : int in 1..min(m, n), or float in (0, 1)
        Number of components. A float is the share of the squared Frobenius norm to exceed with the fewest components
        ("exact", "gram" and "lanczos").
    shift : None, "mean", "rows", "both", array of shape (n,), `Covariates`, `GroupMeans`, `LowRank` or `Operator`
        Shift to subtract: nothing, the column means, the row means, both (plus the common mean: double centring), a
        vector from every row, the fit of a regression, the means of groups of rows, or any matrix. An object with a
        method ``resolve(A, moments, weights)`` that returns a `LowRank` works, too (`shiftsvd.shifts`).
    scale : None, "std" or True, "pareto", or positive array of shape (n,)
        Divisor of the columns after the shift: the standard deviation of the columns of ``X - shift``, its square
        root, a vector. Columns without variance are not scaled; a warning counts them.
    solver : str or Solver
        "auto", "lanczos", "gram", "exact", "randomized", "shifted-randomized", or an object such as
        ``RandomizedSVD(n_iter=7)``. `auto_solver` returns the choice of "auto", `estimate` its cost.
    tol : float
        Relative accuracy of the singular values, for solvers given by name; a solver object has its own `tol`. A
        warning names components that do not converge. 0 means down to rounding.
    rng : int, Generator or None
        Seed of the test matrix; None is fresh entropy.
    n_threads : int, optional
        Default: the cores that this process may use. The result does not depend on it, but see `memory_limit`.
    memory_limit : int (bytes) or str such as "2GB", optional
        Default: half of the available memory. A fit that needs more raises ValueError. Near the limit the choice of
        ``solver="auto"`` may depend on `n_threads`, because threads need memory; name a solver for identical results.
    certify : bool
        Also compute bounds with solvers that do not compute them themselves, such as "randomized"; three more passes,
        four with `Exact`. No effect with `BlockLanczos` and `Gram`.
    scale_ddof : 0 or 1
        Standard deviations divide by ``m - scale_ddof``.
    sample_weight : array of shape (m,), optional
        Frequencies of the rows: means and deviations are weighted, and the triplets are those of
        ``diag(sqrt(sample_weight)) (X - shift) diag(1 / scale)``.
    missing : "error", "mean" or "em"
        Treatment of NaN. "mean", for ``shift="mean"``: missing entries equal the column means of the observed ones.
        "em", for ``shift="mean"``, "rows", "both" or None: they equal a model of rank k fitted to the observed
        entries; see `complete_matrix`. Neither fills X in. The triplets are those of the completed matrix.
    unobserved : bool
        Treat entries that a sparse X does not store as missing, as in ratings; by default they are zeros.
    penalty : float of at least 0, or "auto"
        Amount by which the completion shrinks its singular values; see `complete_matrix`.
    max_iter : int
        Maximum number of steps of the completion. A warning reports a completion that did not converge by then; its
        ``Info.converged`` is False.
    preprocess : transformation, its name, or list of them
        Transformations of the entries before shift and scale, such as `LogNormalize`: see `shiftsvd.transforms`. Sparse
        data stay sparse. Weights count as repeated rows. X must not have missing entries.

    Returns
    -------
    SVDResult
        Unpacks to U (m, k), S (k,) descending, Vh (k, n). If X is on a device, these are arrays of the same library on
        the device, and ``to_host()`` returns NumPy arrays: see `shiftsvd.result.DeviceResult`.

    Raises
    ------
    ValueError
        For invalid data or settings; each message gives the rule, the value and the remedy.
    TypeError
        If X is not a matrix.

    See Also
    --------
    estimate : Predict the memory, passes and time.
    PCA : The same as an estimator.

    Notes
    -----
    Passes: those of the solver (`Info.n_passes`), one to validate the values of X, and one for the moments if shift or
    scale need them; one more for "rows", "both", `Covariates` and `GroupMeans`, and one for "std" or "pareto" after a
    shift that differs between rows. Data with norms beyond 1e90 or below 1e-90, whose squares could overflow or
    underflow, are divided by a power of two, which takes two more passes, and with a named scale up to five.

    References
    ----------
    Basirat (2019), Shifted Randomized Singular Value Decomposition; Halko, Martinsson & Tropp (2011).

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.array([[1.0, 2.0], [3.0, 6.0], [5.0, 10.0]])
    >>> U, S, Vh = ss.svd(X, 1, shift="mean")
    >>> S
    array([6.32455532])
    """
    tol = tolerance(solver, None if tol is _LEFT_OUT else tol)
    rng = generator(rng)
    with threads(n_threads):
        A = with_missing(X, missing, unobserved, Resources(memory_limit, n_threads))
        check_unused(missing, penalty, max_iter)
        entries = as_transforms(preprocess)
        if not isinstance(k, float | np.floating):
            check_rank(k, (A.shape[0], width(entries, A.shape[1])))
        elif not 0 < k < 1:
            raise refuse("k", "be an integer, or a share of the variance between 0 and 1", k)
        k = float(k) if isinstance(k, np.floating) else k
        preparation = Preparation(shift, scale, row_weights(sample_weight, A.shape[0]), scale_ddof, entries)
        prepared, account = learned(A, preparation, k, solver, tol, memory_limit, missing, rng, penalty, max_iter)
        start = prepared.training.product
        F = decompose(prepared.of_own, k, solver, tol, rng, memory_limit, certify, prepared.perturbation, start)
        F.info = account.added_to(F.info)
        return native(F, X)


def learned(
    A: Observed,
    preparation: Preparation,
    k: int | float,
    solver: str | Solver,
    tol: float,
    memory_limit: int | str | None,
    missing: str,
    rng: np.random.Generator,
    penalty: float | Literal["auto"] = "auto",
    max_iter: int = MAX_ITER,
) -> tuple[Prepared, MissingSummary]:
    # Transformations and shifts do not depend on solvers; pass them the accuracy alone.
    accuracy = getattr(solver, "tol", 0.0) if isinstance(solver, Solver) else 0.0 if solver == "exact" else tol
    preparation = replace(preparation, tol=float(accuracy))
    check_fit(preparation, A.shape[1], k, solver, missing)
    A, moments, account = completed(
        A, missing, preparation.shift, k, preparation.weights, preparation.scale, rng, penalty, max_iter
    )
    A = planned(A, preparation.entries, k, solver, tol, memory_limit)
    V, costs_known = None, isinstance(A, DiskRows) or (isinstance(A, Reread) and not A.sparse)
    if costs_known and width(preparation.entries, A.shape[1]) == A.shape[1]:
        V = block_to_multiply(solver_named(solver, A, k, tol, memory_limit), A, k, rng)
    return preparation.learn(A, moments, V), account


def block_to_multiply(solver: Solver, A: Operator, k: int | float, rng: np.random.Generator) -> Panel | None:
    # Vectors that the read of the moments can multiply, so that an iteration begins with their product.
    if not isinstance(solver, BlockLanczos) or solver.start is not None or solver.on_long_side(A, k):
        return None
    return rng.standard_normal((A.shape[1], solver.shape(k, A).block)).astype(np.float32)


def check_fit(preparation: Preparation, n: int, k: int | float, solver: str | Solver, missing: str) -> None:
    if preparation.entries and missing != "error":
        raise Refused(
            *(Setting("preprocess"), " needs ", Setting("missing", "error"), f", got {missing!r}. "),
            "Transformations use sums of rows and columns, so fill missing values first.",
        )
    preparation.check(n)
    check_solver(solver, k)
    by_rows = isinstance(preparation.shift, Covariates | GroupMeans)
    if by_rows and (isinstance(solver, ShiftedRandomizedSVD) or solver == "shifted-randomized"):
        raise unsupported_shift(f"{type(preparation.shift).__name__}()")


def decompose(
    A: Operator,
    k: int | float,
    solver: str | Solver,
    tol: float,
    rng: int | np.random.Generator | None,
    memory_limit: int | str | None,
    certify: bool = False,
    perturbation: Perturbation | None = None,
    start: Panel | None = None,
) -> SVDResult:
    chosen = within(memory_limit, A, k, solver, tol)
    if start is not None and isinstance(chosen, BlockLanczos):
        chosen = replace(chosen, start=start)
    chosen = replace(chosen, certify=True) if certify else chosen
    return chosen(A, k, rng, tol=tol) if perturbation is None else solve_perturbed(perturbation, chosen, A, k, rng, tol)


# Choose the block size and number of threads of a file before it is read for the shift, such that the fit stays within
# the memory limit. If the fit exceeds the limit with one thread and the smallest blocks, the error gives the memory
# that these need, which depends neither on the limit nor on the machine. `decompose` adds the memory of shift, scale
# and transformations.
def planned(
    A: Operator,
    entries: tuple[Transform, ...],
    k: int | float,
    solver: str | Solver,
    tol: float,
    memory_limit: int | str | None,
) -> Operator:
    read = A.A if isinstance(A, Adjoint) else A
    if not isinstance(read, DiskRows) or entries:
        return A  # the costs of other matrices may take a read
    plan = max(parse_bytes(read.memory_limit or memory_limit or LEAST_BLOCK), 2 * LEAST_BLOCK)
    while True:
        try:
            _checked_solver(memory_limit, A, k, solver, tol)
            return A
        except OverLimit as error:
            if plan <= LEAST_BLOCK and read.workers <= 2:
                turned = replace(read, source=Turned(read.source), shift=None, memo={})
                B = turned if isinstance(A, Adjoint) else turned.H
                # If rows lie on the long side, the transposed matrix takes no less.
                if not tall(A).costs.square_columns or not _fits(memory_limit, B, k, solver, tol):
                    raise
                *known, others = error.args
                raise OverLimit(*known, [*others, "store the transposed matrix"]) from None
        if plan > LEAST_BLOCK:
            plan //= 2
            read = read.in_blocks_for(plan)
        else:
            read = replace(read, n_threads=(read.workers - 1) // 2, memo=dict(read.memo))
        A = replace(A, A=read) if isinstance(A, Adjoint) else read


def within(memory_limit: int | str | None, A: Operator, k: int | float, solver: str | Solver, tol: float) -> Solver:
    # Return the solver of the fit; raise OverLimit if it needs more memory than the limit.
    try:
        return _checked_solver(memory_limit, A, k, solver, tol)
    except OverLimit as error:
        raise error.needing(lambda needed, limit: _enough(needed, limit, A, k, solver, tol)) from None


# A larger limit reads larger blocks, which need more: return a limit that is enough for its own blocks.
def _enough(needed: int, limit: int, A: Operator, k: int | float, solver: str | Solver, tol: float) -> int:
    count = most_components(A, k)
    while True:
        B = larger_blocks(A, needed + needed // ROUNDED_UP - limit)
        found = solver_named(solver, B, k, tol, needed).needed_bytes(B, count)
        if found <= needed:
            return needed
        needed = found + found // (2 * ROUNDED_UP)


def _checked_solver(
    memory_limit: int | str | None, A: Operator, k: int | float, solver: str | Solver, tol: float
) -> Solver:
    count = most_components(A, k)
    chosen = solver_named(solver, A, k, tol, memory_limit)
    what = f"finding {plural(count, 'component')} of a {A.shape[0]:,} x {A.shape[1]:,} matrix"
    try:
        affordable(chosen.needed_bytes(A, count), memory_limit, what)
    except OverLimit as error:
        if spare(solver_named(solver, A, 1, tol, memory_limit).needed_bytes(A, 1), memory_limit):
            raise
        raise OverLimit(*error.args[:-1], []) from None
    return chosen


def _fits(memory_limit: int | str | None, A: Operator, k: int | float, solver: str | Solver, tol: float) -> bool:
    try:
        within(memory_limit, A, k, solver, tol)
    except OverLimit:
        return False
    return True


# ---- settings that estimators share


def tolerance(solver: object, tol: float | None) -> float:
    if tol is None:
        return TOL
    if isinstance(solver, Solver):
        raise Refused(
            *(Setting("tol"), " applies to solvers given by name, got "),
            *(Setting("tol", tol), f" with {solver}. Set it in the solver object."),
        )
    check_tol(tol)
    return tol


def nonnegative(name: str, value: Any) -> float:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number and 0 <= value < np.inf:
        return float(value)
    raise refuse(name, "be a number of at least 0", value)


def integer(name: str, value: object, least: int, most: int | None = None, of: str = "", remedy: Part = "") -> int:
    limit = np.inf if most is None else most
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and least <= value <= limit:
        return int(value)
    kinds = "a positive integer" if least == 1 else f"an integer of at least {least}"
    raise refuse(name, f"be {kinds if most is None else f'an integer in {least}..{most}'}{of}", value, remedy)
