"""Matrix completion by a low-rank model of the observed entries; missing entries in a fit and in new rows."""

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from shiftsvd.algebra.generic import matmat_in_double
from shiftsvd.backends import as_operator
from shiftsvd.errors import Refused, Setting, plural, refuse
from shiftsvd.kernels import threads
from shiftsvd.missing.gaps import Gaps, HeldGaps, Hidden, Observed, UnstoredGaps, gaps_of
from shiftsvd.names import MAX_ITER, BiasName, MissingName
from shiftsvd.numerics.orth import orth
from shiftsvd.numerics.panels import unmasked
from shiftsvd.numerics.powers import check_size
from shiftsvd.operators import LowRank, Moments, Operator, Panel, Scaled, Vector, repeated
from shiftsvd.result import Info
from shiftsvd.runs.memory import Resources
from shiftsvd.runs.messages import notice, warn
from shiftsvd.sketch import generator
from shiftsvd.solvers.base import check_rank
from shiftsvd.solvers.cost import BLAS, THREADS, Work, overhead_bytes

BIASES = (None, *get_args(BiasName))


@dataclass(frozen=True, eq=False)
class Completion:
    """A completed matrix with missing entries, as `complete_matrix` returns it.

    Parameters
    ----------
    A : Operator of shape (m, n)
        The observed entries, and those of `model` in place of missing ones. Pass it to `svd` or `PCA`.
    model : LowRank of rank k, and up to 2 more for the biases
        ``b 1^T + 1 c^T + U diag(S) V^H``.
    U, S, V : arrays of shape (m, k), (k,), (n, k)
        The part without the biases.
    row_bias, column_bias : arrays of shape (m,), (n,)
        The vectors b and c; c holds the overall level. Zeros if these biases were not requested.
    penalty : float
        The number that each step subtracted from every singular value.
    n_iter : int
        Number of steps of the fit to all observed entries.
    converged : bool
        True if the last step changed the model by at most `tol`, False if the fit stopped at `max_iter`.
    held_out_rmse : float or None
        Root mean square error on the entries that were held out to choose the penalty.
    heldout_r2 : float or None
        ``1 - SSE(model) / SSE(biases)`` on other entries, not used for any choice; see `complete_matrix`.

    See Also
    --------
    complete_matrix : Fit a completion.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.add.outer([0.0, 2.0, 4.0], [1.0, 5.0, 7.0, 8.0])
    >>> X[0, 3] = np.nan  # was 8
    >>> C = ss.complete_matrix(X, 1, biases="both", penalty=1.0, rng=0)
    >>> C.predict([0], [3]).round(2)
    array([8.])
    >>> (C.row_bias - C.row_bias[0]).round(2)
    array([0., 2., 4.])
    """

    A: Operator
    model: LowRank
    U: Panel
    S: Vector
    V: Panel
    row_bias: Vector
    column_bias: Vector
    penalty: float
    n_iter: int
    converged: bool
    held_out_rmse: float | None
    heldout_r2: float | None = None

    def predict(self, rows: npt.ArrayLike, columns: npt.ArrayLike) -> Vector:
        """Predict entries by the model.

        Parameters
        ----------
        rows : int, or array of int
            Row indices of the entries, from 0.
        columns : int, or array of int
            Column indices of the entries, from 0, of a shape that broadcasts with `rows`.

        Returns
        -------
        array of the shape that both broadcast to
            The model's value of each entry, also of observed entries.
        """
        i, j = np.broadcast_arrays(unmasked("rows", rows), unmasked("columns", columns))
        return self.model.at(i.ravel(), j.ravel()).reshape(i.shape)


def complete_matrix(
    X: Any,
    k: int,
    *,
    biases: BiasName | None = "columns",
    penalty: float | Literal["auto"] = "auto",
    unobserved: bool = False,
    tol: float = 1e-4,
    max_iter: int = MAX_ITER,
    rng: int | np.random.Generator | None = None,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
) -> Completion:
    """Fit a matrix of rank k plus biases to the observed entries of X, without forming a dense matrix.

    Minimizes ``||P_observed(X - M)||_F^2 / 2 + penalty ||U diag(S) V^H||_*`` over ``M = row 1^T + 1 column^T + U
    diag(S) V^H``. Each step replaces the missing entries by those of M (as an operator: sparse residuals at the
    observed entries plus M), updates the leading singular triplets by one step of subspace iteration, and subtracts the
    penalty from the singular values. Momentum with restarts speeds up convergence, which is slow if many entries are
    missing.

    Parameters
    ----------
    X : array with NaN, sparse matrix, data frame, or a file opened by `shiftsvd.io.open_matrix`, of shape (m, n)
        The matrix with missing entries.
    k : int in 1..min(m, n)
        Rank without the biases.
    biases : {"columns", "rows", "both", None}
        Biases of columns, rows or both, which the penalty does not shrink. For ratings, "both" fits the levels of users
        and of items.
    penalty : float of at least 0, or "auto"
        "auto" holds out a tenth of the observed entries (100 000 at most) and selects the best penalty on a path from
        large to small. With 0 only the rank limits the model. A matrix in a file requires a number.
    unobserved : bool
        If True, entries that a sparse matrix does not store are missing. By default they are zeros, and only stored NaN
        are missing.
    tol : float
        Stop when a step changes M by at most `tol` relative to the norm of M.
    max_iter : int
        Maximum number of steps, at least 1. A fit that reaches it warns, and `Completion.converged` is False.
    rng : int, Generator or None
        As in `svd`.
    n_threads, memory_limit : optional
        As in `shiftsvd.PCA`.

    Returns
    -------
    Completion
        The fitted model and the completed matrix.

    Raises
    ------
    ValueError
        If settings are invalid, an entry is infinite, or no entry is observed.

    See Also
    --------
    PCA : Fit components of a matrix with gaps by ``missing="em"``.
    Completion : The fitted model.

    Notes
    -----
    A step takes two passes over the observed entries, and one for each kind of bias. Memory is ``O(nnz + (m + n) k)``
    for sparse X with `unobserved`. For arrays, a step forms the differences of X from M if `memory_limit` allows three
    times the memory of X. Otherwise each pass computes them in blocks of rows. Holding out entries copies the stored
    entries of a sparse X. There are at most `max_iter` steps in each of two fits, and 960 to choose the penalty. A
    notice tells the seconds that all of them would take if these exceed 10.

    `Completion.heldout_r2` takes a second fit, without 4 % of the observed entries (100 000 at most). These entries are
    drawn with `rng`, but never the last one of a row or column. Penalty, biases and model of this fit come from the
    other entries, and ``1 - SSE(model) / SSE(biases)`` is computed on the held-out entries: 1 is a perfect prediction,
    and 0 is no better than the biases. The returned model is fitted to all entries, so its predictions are usually a
    little better. With a number as `penalty` both fits take about twice the steps of one fit. With "auto" both start at
    the model of the selected penalty, and take 1.3 to 1.5 times the steps of one fit. `heldout_r2` is None if fewer
    than 10 entries could be held out, if the biases explain all of them, and for files that are read in blocks.

    References
    ----------
    Mazumder, Hastie & Tibshirani (2010), Spectral regularization algorithms for learning large incomplete matrices;
    Hastie, Mazumder, Lee & Zadeh (2015), Matrix completion and low-rank SVD via fast alternating least squares;
    O'Donoghue & Candes (2015), Adaptive restart for accelerated gradient schemes.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.outer(np.arange(1.0, 9), [1.0, 2, 3, 4])
    >>> X[2, 1] = np.nan  # was 6
    >>> ss.complete_matrix(X, 1, biases=None, penalty=0, tol=1e-8, rng=0).predict(
    ...     [2], [1]
    ... ).round(3)
    array([6.])

    Ratings: entries that are not stored are missing, and users and items have biases.

    >>> from scipy import sparse
    >>> R = sparse.csr_array([[1.0, 2, 0, 3], [0, 3, 4, 4], [3, 0, 5, 0], [1, 2, 3, 0]])
    >>> ss.complete_matrix(R, 1, biases="both", penalty=1.0, unobserved=True, rng=0).predict(
    ...     [0, 1], [2, 0]
    ... ).round(2)
    array([3., 2.])
    """
    gaps = gaps_of(X, unobserved, n_threads, memory_limit)
    check_rank(k, gaps.shape)
    if biases not in BIASES:
        raise refuse("biases", f"be one of {', '.join(map(repr, BIASES))}", biases)
    _check_descent(penalty, max_iter)
    effort = foreseen(gaps, k, penalty, max_iter)
    if effort.seconds > TOLD:
        m, n, seconds = *gaps.shape, f"{effort.step_seconds:.2g} s, {effort.seconds:,.0f} s in all"
        notice(
            f"Completing {m:,} x {n:,} entries takes at most {effort.max_steps:,} steps of about {seconds}. Reduce ",
            *(Setting("max_iter"), " to limit the time, or pass a number as ", Setting("penalty"), "."),
        )
    with threads(n_threads):
        _tell_of_equal(gaps)
        penalty, error, r2, state = _initial(gaps, k, biases, penalty, tol, max_iter, generator(rng))
        state, n_iter, converged = descend(gaps, state, penalty, tol, max_iter)
        if not converged:
            warn(
                f"The completion did not converge in {plural(n_iter, 'step')}: the last step changed it by more than "
                f"tol={tol:g}. Raise ",
                *(Setting("max_iter"), " or ", Setting("penalty"), f" (now {penalty:.3g}), or fit fewer components."),
            )
        M = LowRank(state.L, state.R).merge(additive(state.row, state.column))
        S = np.linalg.norm(state.L, axis=0)
        U = state.L / np.where(S > 0, S, 1)
        parts = (U, S, state.R, state.row, state.column)
        return Completion(gaps.filled(M), M, *parts, penalty, n_iter, converged, error, r2)


def _tell_of_equal(gaps: Gaps) -> None:
    if not isinstance(gaps, HeldGaps):  # a pass over a file is slow
        return
    moments = gaps.observed_moments(np.ones(gaps.shape[0]))
    if moments.M2 is None or not np.any(there := moments.count > 0):
        return
    mean, spread = moments.mean[there], np.sqrt(moments.M2[there] / moments.count[there])
    if not np.all(np.maximum(spread, np.abs(mean - mean[0])) <= 8 * np.finfo(gaps.dtype).eps * abs(mean[0])):
        return
    zeros = " Without ", Setting("unobserved", True), ", entries that are not stored are zeros."
    notice(
        f"All observed entries are equal ({mean[0]:g}), so no model of them can tell the missing entries apart.",
        *(zeros if isinstance(gaps, UnstoredGaps) else ()),
    )


def _check_descent(penalty: float | str, max_iter: int) -> None:
    real = isinstance(penalty, int | float | np.integer | np.floating) and not isinstance(penalty, bool)
    if not (real and 0 <= float(penalty) < np.inf) and not (isinstance(penalty, str) and penalty == "auto"):
        raise refuse("penalty", 'be "auto" or a number of at least 0', penalty)
    if isinstance(max_iter, bool) or not isinstance(max_iter, int | np.integer) or max_iter < 1:
        raise refuse("max_iter", "be an integer of at least 1", max_iter)


# Columns of the subspace iteration beyond k: the spectral gap after them determines the convergence of the k-th vector.
EXTRA = 8
# The path of penalties: halve the penalty until held-out errors rise. Each fit takes at most ROUGH_STEPS steps to the
# tolerance ROUGH. A relative decrease of the error by less than GAIN counts as a rise.
HALVINGS, ROUGH, ROUGH_STEPS, GAIN = 16, 1e-3, 60, 1e-3
# Alternating updates of row and column biases before the first step; each moves them towards their joint optimum.
ROUNDS = 5


# Seconds from which on a fit tells its cost before it starts.
TOLD = 10


class Effort(NamedTuple):
    """Predicted cost of a completion."""

    step_seconds: float  # on one core, to a factor of about 2
    max_steps: int
    peak_bytes: int  # in addition to X

    @property
    def seconds(self) -> float:
        return self.step_seconds * self.max_steps

    @property
    def facts(self) -> dict[str, float]:
        return {"completion_max_steps": self.max_steps, "completion_max_seconds": self.seconds}


def foreseen(gaps: Gaps, k: int, penalty: float | str, max_iter: int) -> Effort:
    # A step forms a model of twice the rank, multiplies by k + EXTRA columns from both sides and normalizes them.
    m, n = gaps.shape
    A, width = gaps.filled(additive(np.zeros(m), np.zeros(n))), k + EXTRA
    work = Work.of(A)
    one_core = THREADS * (work.product_seconds(width + (2 * k + 2) / 2) + work.read_seconds(3))
    path = HALVINGS * ROUGH_STEPS if isinstance(penalty, str) else 0
    fits = 2 if isinstance(gaps, HeldGaps) else 1
    # The differences and blocks of the model; the panels of three iterates and of a step.
    formed = 0 if work.costs.file_bytes else 2 * gaps.stored * gaps.dtype.itemsize
    peak = formed + overhead_bytes(A, width) + 8 * (m + n) * 8 * width
    return Effort(one_core + 12 * work.m * width**2 * BLAS[8], path + fits * max_iter, peak)


@dataclass(frozen=True, eq=False)
class State:
    """An iterate: biases, factors ``L R^H``, and the right vectors from which the next subspace iteration starts."""

    k: int
    biases: str | None
    row: Vector
    column: Vector
    L: Panel
    R: Panel
    W: Panel

    def low_rank(self) -> LowRank:
        there = np.any(self.L, axis=0)
        return _sum(self.L[:, there], self.R[:, there], self.row, self.column)

    def ahead(self, before: "State", beta: float) -> "State":
        if not beta:
            return self
        L, R = np.hstack([(1 + beta) * self.L, -beta * before.L]), np.hstack([self.R, before.R])
        row, column = self.row + beta * (self.row - before.row), self.column + beta * (self.column - before.column)
        return replace(self, row=row, column=column, L=L, R=R)

    def minus(self, other: "State") -> LowRank:
        L, R = np.hstack([self.L, -other.L]), np.hstack([self.R, other.R])
        return _sum(L, R, self.row - other.row, self.column - other.column)


def descend(gaps: Gaps, state: State, penalty: float, tol: float, max_iter: int) -> tuple[State, int, bool]:
    before, t = state, 1.0
    for n_iter in range(1, max_iter + 1):
        t, t_before = (1 + np.sqrt(1 + 4 * t * t)) / 2, t
        Y = state.ahead(before, (t_before - 1) / t)
        before, state = state, _step(gaps, Y, penalty)
        change = state.minus(before)
        if _is_small(change, state.low_rank(), tol):
            return state, n_iter, True
        if _inner(Y.minus(state), change) > 0:  # the momentum leads away (O'Donoghue & Candes)
            t = 1.0
    return state, max_iter, False


def _step(gaps: Gaps, Y: State, penalty: float) -> State:
    E, k = gaps.residual(Y.low_rank()), Y.k
    row, column = _mean_errors(E, Y.biases)
    F = _sum(Y.L, Y.R, -row, -column)  # E + F is the filled matrix minus the new biases
    Q = orth(E.matmat(Y.W) + F.matmat(Y.W))
    U, sigma, V = _triplets(Q, E.rmatmat(Q) + F.rmatmat(Q))
    L = U[:, :k] * np.maximum(sigma[:k] - penalty, 0)
    return replace(Y, row=Y.row + row, column=Y.column + column, L=L, R=V[:, :k], W=V)


def _mean_errors(E: Operator, biases: str | None) -> tuple[Vector, Vector]:
    # Means of rows and columns, by which the biases of a step change; "both" counts the overall level once.
    (m, n), row, column = E.shape, np.zeros(E.shape[0]), np.zeros(E.shape[1])
    if biases in ("columns", "both"):
        column = E.rmatmat(np.ones((m, 1)))[:, 0].conj() / m
    if biases in ("rows", "both"):
        row = E.matmat(np.ones((n, 1)))[:, 0] / n
    return row - (row.mean() if biases == "both" else 0), column


def _triplets(Q: Panel, B: Panel) -> tuple[Panel, Vector, Panel]:
    # Of ``Q B^H``. LAPACK's SVD of a long panel takes several times as long.
    T = orth(B)
    U, S, Vh = np.linalg.svd(B.conj().T @ T, full_matrices=False)
    return Q @ U, S, T @ Vh.conj().T


def start(gaps: Gaps, k: int, biases: str | None, rng: np.random.Generator) -> tuple[State, float]:
    m, n = gaps.shape
    row, column = levels(gaps, biases)
    A = gaps.residual(additive(row, column))
    W = orth(rng.standard_normal((n, min(k + EXTRA, m, n))))
    for _ in range(2):
        Q = orth(A.matmat(W))
        _, sigma, W = _triplets(Q, A.rmatmat(Q))
    check_size("the entries of a completion", float(sigma[0]))
    return State(k, biases, row, column, np.zeros((m, k), W.dtype), W[:, :k], W), float(sigma[0])


def levels(gaps: Gaps, biases: str | None) -> tuple[Vector, Vector]:
    m, n = gaps.shape
    in_row, in_column = gaps.observed()
    if not in_row.any():
        raise ValueError(f"a completion requires observed entries, got none in a {m:,} x {n:,} matrix")
    row, column = np.zeros(m), np.zeros(n)
    for _ in range(ROUNDS if biases == "both" else 1):
        # Minimise exactly over one bias at a time, which converges faster than the steps of `descend`.
        if biases in ("columns", "both"):
            errors = _mean_errors(gaps.residual(additive(row, column)), "columns")[1]
            column = column + errors * m / np.maximum(in_column, 1)
        if biases in ("rows", "both"):
            errors = _mean_errors(gaps.residual(additive(row, column)), "rows")[0]
            row = row + errors * n / np.maximum(in_row, 1)
    return row, column


def chosen(gaps: Gaps, k: int, biases: str | None, rng: np.random.Generator) -> tuple[float, float | None, State]:
    hidden, i, j, x = gaps.hide(rng)
    state, top = start(hidden, k, biases, rng)
    if not len(x):
        return 0.0, None, state
    best, rises = (0.0, np.inf, state), 0
    for halvings in range(1, HALVINGS + 1):
        penalty = top * 0.5**halvings
        state, *_ = descend(hidden, state, penalty, ROUGH, ROUGH_STEPS)
        error = float(np.sqrt(np.mean(np.abs(x - state.low_rank().at(i, j)) ** 2)))
        # A stagnating error may fall again when weaker components enter, but not once all components are in the model.
        least = GAIN if np.all(np.any(state.L, axis=0)) else 0.0
        rises = 0 if error < (1 - least) * best[1] else rises + 1
        best = (penalty, error, state) if error < best[1] else best
        if rises == 2:
            break
    return best


def additive(row: Vector, column: Vector) -> LowRank:
    return _sum(np.zeros((len(row), 0)), np.zeros((len(column), 0)), row, column)


def _sum(L: Panel, R: Panel, row: Vector, column: Vector) -> LowRank:
    ones = [np.ones(len(row)), np.ones(len(column))]
    return LowRank(np.column_stack([L, row, ones[0]]), np.column_stack([R, ones[1], column.conj()]))


def _is_small(change: LowRank, M: LowRank, tol: float) -> bool:
    # The rounding error of this inner product is relative to the norm of M, because `change` is a difference.
    if _inner(change, change) > max(tol**2, 1e-12) * _inner(M, M):
        return False
    return change.frobenius_norm() <= tol * M.frobenius_norm()


def _inner(S: LowRank, T: LowRank) -> float:
    return float(np.sum((S.L.conj().T @ T.L) * (T.R.conj().T @ S.R).T).real)


# Share of the observed entries to hold out, and the least number: with 10 entries the standard error of R^2 is about
# 0.5.
SHARE, LEAST = 0.04, 10


def kept_apart(gaps: Gaps, rng: np.random.Generator) -> Hidden | None:
    if not isinstance(gaps, HeldGaps):  # a second fit would double the reads of a file
        return None
    apart = gaps.hide(rng, SHARE)
    return apart if len(apart[1]) >= LEAST else None


def explained(apart: Hidden, state: State) -> float | None:
    # Return 1 - SSE(model) / SSE(biases) on the held-out entries, or None if the biases explain them to rounding error.
    train, i, j, x = apart
    largest = float(np.max(np.abs(x)))
    unit = largest if largest > 0 else 1.0  # avoids overflow of squares
    both = state.low_rank(), additive(*levels(train, state.biases))
    model, baseline = (float(np.linalg.norm((x - S.at(i, j)) / unit)) for S in both)
    rounding = max(max(train.shape) * np.finfo(np.float64).eps, 10 * np.finfo(train.dtype).eps)
    if baseline <= rounding * float(np.linalg.norm(x / unit)):
        return None
    return 1 - (model / baseline) ** 2


def _initial(
    gaps: Gaps,
    k: int,
    biases: str | None,
    penalty: float | str,
    tol: float,
    max_iter: int,
    rng: np.random.Generator,
) -> tuple[float, float | None, float | None, State]:
    # Return the penalty, its held-out RMSE, R^2 on other held-out entries, and the initial state of the fit to all
    # entries.
    apart, error = kept_apart(gaps, rng), None
    train = gaps if apart is None else apart[0]
    if isinstance(penalty, str):
        penalty, error, state = chosen(train, k, biases, rng)
        begun = state
    else:
        state = start(gaps, k, biases, rng)[0]
        begun = state if apart is None else start(train, k, biases, rng)[0]
    if apart is None:
        return float(penalty), error, None, state
    # Do not start the fit to all entries from this model: without a penalty it may be near another local minimum. With
    # 60 x 30 entries and 3 components, 3 of 6 runs from there ended at a higher objective, after up to 50 times the
    # steps.
    model, *_ = descend(apart[0], begun, float(penalty), tol, max_iter)
    return float(penalty), error, explained(apart, model), state


# ---- Replace missing entries in a fit and in new rows

MISSING = get_args(MissingName)
# Smallest and largest ridge: with these, a row with fewer observed entries than components has a unique solution.
LEAST_RIDGE, MOST_RIDGE = 1e-9, 1e9


def with_missing(X: Any, missing: str, unobserved: bool, resources: Resources) -> Observed:
    if not isinstance(missing, str) or missing not in MISSING:
        raise refuse("missing", 'be "error", "mean" or "em"', missing)
    if missing != "error":
        return gaps_of(X, unobserved, **vars(resources))
    if unobserved:
        raise Refused(Setting("unobserved", True), " requires ", Setting("missing", "mean"), ' or "em", got "error".')
    return as_operator(X, **vars(resources))


def check_unused(missing: str, penalty: float | str, max_iter: int) -> None:
    unused = [] if isinstance(penalty, str) and penalty == "auto" else [Setting("penalty", penalty)]
    unused += [] if max_iter == MAX_ITER else [Setting("max_iter", max_iter)]
    if missing != "em" and unused:
        got = [part for setting in unused for part in (", ", setting)][1:]
        rule = Setting("penalty"), " and ", Setting("max_iter"), " require ", Setting("missing", "em")
        raise Refused(*rule, ", got ", *got, " with ", Setting("missing", missing), ".")


def mean_rows(gaps: Gaps, mean: Vector) -> Operator:
    return gaps.filled(repeated(mean, gaps.shape[0]))


def regressed_rows(
    gaps: Gaps, mean: Vector, scale: Vector | None, components: Panel, variances: Vector, noise: float
) -> Operator:
    # Replace missing entries by V y, where y = (V^H V + diag(ridge))^-1 V^H x, V has the rows of the observed entries,
    # and x are these entries, centred and scaled. The ridge of probabilistic PCA, noise / (variance - noise), shrinks
    # components with a smaller variance more. Rows without gaps keep their scores V^H x.
    V = components.T.astype(np.float64)
    ridge = np.clip(
        noise / np.maximum(variances - noise, noise / MOST_RIDGE + np.finfo(float).tiny), LEAST_RIDGE, MOST_RIDGE
    )
    ones = np.ones(gaps.shape[0])
    off = mean_rows(gaps, mean) - LowRank(ones, mean)
    Y = matmat_in_double(off if scale is None else Scaled(off, cols=1 / scale), V)
    for lo, hi in gaps.row_blocks(V.shape[1] ** 2):
        # One column of the small matrices at a time, because all products of two components could need much memory.
        G = np.stack([np.eye(V.shape[1])[a] - gaps.absent(V * V[:, [a]], (lo, hi)) for a in range(V.shape[1])], axis=1)
        Y[lo:hi] = np.linalg.solve(G + np.diag(ridge), Y[lo:hi, :, None])[:, :, 0]
    return gaps.filled(LowRank(Y, V if scale is None else scale[:, None] * V).merge(LowRank(ones, mean)))


@dataclass(frozen=True)
class MissingSummary:
    """Facts about missing entries in a fit, for `Info`."""

    n_missing: int | None = None
    heldout_r2: float | None = None
    completed: bool | None = None
    n_iter: int = 1

    def added_to(self, info: Info) -> Info:
        if self.n_missing is None:
            return info
        converged = False if self.completed is False else info.converged
        n_missing, r2 = self.n_missing, self.heldout_r2
        return replace(info, converged=converged, n_missing=n_missing, heldout_r2=r2, completed=self.completed)


def completed(
    gaps: Observed,
    missing: str,
    shift: Any,
    k: Any,
    weights: Vector | None,
    scale: Any,
    rng: np.random.Generator,
    penalty: float | Literal["auto"] = "auto",
    max_iter: int = MAX_ITER,
) -> tuple[Operator, Moments | None, MissingSummary]:
    # Return the matrix that a fit decomposes, and the moments of its columns. With "mean", missing entries equal the
    # shift, and the moments are those of the observed entries. With "em", missing entries come from a completion with
    # the biases of the shift, in units of `scale` if it has numbers, and the moments are those of the completed matrix.
    if isinstance(gaps, Operator):
        return gaps, None, MissingSummary()
    name = shift if isinstance(shift, str) or shift is None else type(shift).__name__
    setting, centred = Setting("missing", missing), Setting("shift", "mean")
    if missing == "mean":
        if name != "mean":
            raise Refused(setting, " requires ", centred, f", because missing entries equal the shift, got {name!r}")
        moments, (m, n) = gaps.moments(weights), gaps.shape
        n_missing = m * n - round(float(np.sum(moments.count))) if weights is None else gaps.n_missing()
        return mean_rows(gaps, moments.mean), moments, MissingSummary(n_missing)
    biases: dict[Any, BiasName | None] = {None: None, "mean": "columns", "rows": "rows", "both": "both"}
    if name not in biases:
        raise Refused(setting, " requires ", centred, f', "rows", "both" or None, got {name!r}')
    if weights is not None:
        remedy = ". Remove ", Setting("sample_weight"), ", or use ", Setting("missing", "mean"), "."
        raise Refused(setting, " does not support ", Setting("sample_weight"), *remedy)
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise Refused(setting, f" requires an integer number of components, got {k!r}")
    units = None if scale is None or isinstance(scale, bool | str) else np.asarray(scale, np.float64)
    Y = gaps if units is None else gaps.times(1 / units)  # for the model alone: these products round the entries
    C = complete_matrix(Y, max(int(k), 1), biases=biases[name], penalty=penalty, max_iter=max_iter, rng=rng)
    A = C.A if units is None else gaps.filled(LowRank(C.model.L, C.model.R * units[:, None]))
    summary = MissingSummary(gaps.n_missing(), C.heldout_r2, C.converged, C.n_iter)
    mean = A.moments().mean
    M2 = (A - repeated(mean, A.shape[0])).column_squares()
    return A, Moments(float(A.shape[0]), mean, M2), summary
