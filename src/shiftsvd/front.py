"""svd: the front door for singular vectors, where everything is checked before any work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np

from shiftsvd.backends.files import LEAST_BLOCK, DiskRows
from shiftsvd.kernels import threads
from shiftsvd.missing import Account, check_unused, completed, with_missing
from shiftsvd.names import MAX_ITER, MissingName, ScaleName, ShiftName, SolverName, VectorLike
from shiftsvd.operators import Adjoint, Operator
from shiftsvd.preparation.prepare import Preparation
from shiftsvd.preparation.scales import row_weights
from shiftsvd.result import SVDResult, native
from shiftsvd.runs.memory import OverLimit, Resources, affordable, parse_bytes
from shiftsvd.shifts import Shift
from shiftsvd.sketch import generator
from shiftsvd.solvers import Solver
from shiftsvd.solvers.auto import asked_for, check_solver, solver_named
from shiftsvd.solvers.base import TOL, Off, check_rank, check_tol, known_to
from shiftsvd.solvers.cost import tall
from shiftsvd.transforms.base import Transform
from shiftsvd.transforms.chains import Preprocess, as_transforms, width

_LEFT_OUT: Final = TOL  # told from an equal number that was given, by identity


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
    """The k leading singular triplets of ``(X - shift) diag(1 / scale)``, which is never formed.

    Parameters
    ----------
    X : anything that `as_operator` takes, of shape (m, n)
        Rows are samples, columns are features. Complex data work.
    k : int in 1..min(m, n), or float in (0, 1)
        Number of components; a float is the share of the squared Frobenius norm to exceed, by the fewest
        components ("exact", "gram" and "lanczos" can).
    shift : None, "mean", "rows", "both", array of shape (n,), `Covariates`, `GroupMeans`, `LowRank` or `Operator`
        What is subtracted: nothing, the column means, the row means, both (and their common mean is added: double
        centring), a vector from every row, what a regression explains, the means of groups of rows, any matrix.
        Any other object with ``resolve(A, moments, weights)`` that returns a `LowRank` will do (`shiftsvd.shifts`).
    scale : None, "std" or True, "pareto", or positive array of shape (n,)
        What the columns are divided by after the shift: the standard deviation of the columns of ``X - shift``, its
        square root, a vector. Columns without variance are left as they are, with a warning that counts them.
    solver : str or Solver
        "auto", "lanczos", "gram", "exact", "randomized", "shifted-randomized", or an object such as
        ``RandomizedSVD(n_iter=7)``. `auto_solver` tells which one "auto" is, and `estimate` what it will take.
    tol : float
        Relative accuracy of the values, for solvers given by name; a solver object has its own, and `tol` beside it is
        refused. Components that do not reach it are named in a warning. 0 means down to rounding.
    rng : int, Generator or None
        Seed of the test matrix; None is fresh entropy.
    n_threads : int, optional
        Default: the cores that this process may use. The result does not depend on it, but see `memory_limit`.
    memory_limit : int (bytes) or str such as "2GB", optional
        Default: half of the available memory. What would need more is refused. Where it is tight, ``solver="auto"``
        may take another solver for another number of threads, since they need memory too; name one for the same bits.
    certify : bool
        Compute residuals and bounds of the value errors; three more passes, four with `Exact`.
    scale_ddof : 0 or 1
        Deviations are roots of sums of squares over ``m - scale_ddof``.
    sample_weight : array of shape (m,), optional
        Frequencies of the rows: means and deviations are weighted, and the triplets are those of
        ``diag(sqrt(sample_weight)) (X - shift) diag(1 / scale)``.
    missing : "error", "mean" or "em"
        What to do with NaN. "mean", for ``shift="mean"``: missing entries equal the column means of the observed ones,
        and cost nothing. "em": they equal a model of rank k and the biases that the shift names ("mean", "rows",
        "both" or None), fitted to the observed entries; see `complete_matrix`. Neither fills X in. `Info.n_missing`
        counts them. The triplets, and `Info.frobenius_error`, are those of the completed matrix, which holds the
        model's own entries: how well it predicts others is `Info.heldout_r2`.
    unobserved : bool
        Whether entries that a sparse X does not store are missing, as in ratings; by default they are zeros.
    penalty : float of at least 0, or "auto"
        Of the completion: what is subtracted from its singular values; see `complete_matrix`.
    max_iter : int
        Of the completion: the most steps. One that is not done by then gives ``Info.converged=False``, and a warning.
    preprocess : transformation, its name, or list of them
        What is done to the entries before anything else, such as `LogNormalize` or `PearsonResiduals`: see
        `shiftsvd.transforms`. Nothing becomes dense. Weights mean repeated rows. X may have no missing entries.

    Returns
    -------
    SVDResult
        Unpacks to U (m, k), S (k,) descending, Vh (k, n). Of an array on a device, these are arrays of its library
        there, and ``to_host()`` is the same on the host: see `shiftsvd.result.DeviceResult`.

    Raises
    ------
    ValueError
        For data or settings that cannot be: each message gives the rule, the value and the remedy.
    TypeError
        Where X is no matrix at all.

    See Also
    --------
    estimate : What it will take, before anything is done.
    PCA : The same as an estimator.

    Notes
    -----
    Passes: those of the solver (`Info.n_passes`), one to check the values of X, and one for the moments
    where shift or scale need them; one more for "rows", "both", `Covariates` and `GroupMeans`, and one for "std"
    or "pareto" after a shift that is not the same for all rows. Where squares leave the range of numbers (norms beyond
    1e90, or below 1e-90), a power of two is taken out of the data, which takes two passes more, and with a named scale
    up to five; operators of SciPy are multiplied by a few vectors first, to see.

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
    if isinstance(solver, Solver) and tol is not _LEFT_OUT:
        raise ValueError(f"tol fills solvers given by name; set it in the solver object, got tol={tol} beside {solver}")
    check_tol(tol)
    rng = generator(rng)
    with threads(n_threads):
        A = with_missing(X, missing, unobserved, Resources(memory_limit, n_threads))
        check_unused(missing, penalty, max_iter)
        entries = as_transforms(preprocess)
        share = float(k) if isinstance(k, float | np.floating) else None
        if share is None:
            check_rank(int(k) if isinstance(k, np.integer) else k, (A.shape[0], width(entries, A.shape[1])))  # type: ignore[arg-type]
        elif not 0 < share < 1:
            raise ValueError(f"k must be an integer, or a share of the variance between 0 and 1, got {k}")
        weights = row_weights(sample_weight, A.shape[0])
        check_complete(entries, missing)
        preparation = Preparation(shift, scale, weights, scale_ddof, entries, accuracy(solver, tol))
        preparation.check(A.shape[1])
        check_solver(solver, k)
        moments, account = None, Account()
        if not isinstance(A, Operator):
            A, moments, account = completed(A, missing, shift, k, weights, rng, penalty, max_iter)
        k = k if share is None else share
        A = planned(A, entries, k, solver, tol, memory_limit)
        prepared = preparation.learn(A, moments)
        B = prepared.of(A)
        F = decompose(B, k, solver, tol, rng, memory_limit, certify, prepared.off)
        F.info = account.told(F.info)
        return native(F, X)


def decompose(
    A: Operator,
    k: int | float,
    solver: str | Solver,
    tol: float,
    rng: int | np.random.Generator | None,
    memory_limit: int | str | None,
    certify: bool = False,
    off: Off | None = None,
) -> SVDResult:
    chosen = within(memory_limit, A, k, solver, tol)
    chosen = replace(chosen, certify=True) if certify else chosen
    return chosen(A, k, rng, tol=tol) if off is None else known_to(off, chosen, A, k, rng, tol)


def planned(
    A: Operator,
    entries: tuple[Transform, ...],
    k: int | float,
    solver: str | Solver,
    tol: float,
    memory_limit: int | str | None,
) -> Operator:
    """Plan the reads of a file, before it is read for the shift: so small blocks and so few threads that it fits.

    A fit that one thread with the smallest blocks would take beyond the limit is refused, with what those need: that
    changes with neither the limit nor the machine. What shift and scale add is seen by `decompose`; so are entries that
    are changed.
    """
    read = A.A if isinstance(A, Adjoint) else A
    if not isinstance(read, DiskRows) or entries:
        return A  # others may have to be read to know their costs
    plan = max(parse_bytes(read.memory_limit or memory_limit or LEAST_BLOCK), 2 * LEAST_BLOCK)
    while True:
        try:
            within(memory_limit, A, k, solver, tol)
            return A
        except OverLimit:
            if plan <= LEAST_BLOCK and read.workers <= 2:
                raise
        if plan > LEAST_BLOCK:
            plan //= 2
            read = read.in_blocks_for(plan)
        else:
            read = replace(read, n_threads=(read.workers - 1) // 2, memo=dict(read.memo))
        A = replace(A, A=read) if isinstance(A, Adjoint) else read


def within(memory_limit: int | str | None, A: Operator, k: int | float, solver: str | Solver, tol: float) -> Solver:
    count = asked_for(A, k)
    chosen = solver_named(solver, A, k, tol, memory_limit)
    what = f"finding {count} components of a {A.shape[0]} x {A.shape[1]} matrix"
    fewer = "components" + ", or store the file the other way round" * bool(tall(A).costs.square_columns)
    affordable(chosen.needed_bytes(A, count), memory_limit, what, fewer)
    return chosen


def accuracy(solver: str | Solver, tol: float) -> float:
    if isinstance(solver, Solver):
        return float(getattr(solver, "tol", 0.0))
    return 0.0 if solver == "exact" else tol


def check_complete(entries: tuple[Transform, ...], missing: str) -> None:
    if entries and missing != "error":
        raise ValueError(
            f'preprocess needs missing="error", got {missing!r}: sums of rows and columns with gaps are not those that '
            "transformations mean"
        )
