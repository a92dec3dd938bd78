"""Completion: a low-rank matrix fitted to the observed entries, and the operator of both that nobody fills in."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from shiftsvd.kernels import threads
from shiftsvd.missing.descent import State, chosen, descend, explained, kept_apart, start
from shiftsvd.missing.gaps import Gaps, gaps_of
from shiftsvd.names import MAX_ITER, BiasName
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import unmasked
from shiftsvd.operators import LowRank, Operator, Panel
from shiftsvd.runs.messages import warn
from shiftsvd.sketch import generator
from shiftsvd.solvers.base import check_rank

BIASES = (None, *get_args(BiasName))


@dataclass(frozen=True, eq=False)
class Completion:
    """A matrix with missing entries, completed: what `complete_matrix` returns.

    Parameters
    ----------
    A : Operator of shape (m, n)
        The observed entries, and those of `model` where there are none. Hand it to `svd` or `PCA`.
    model : LowRank of rank k, and up to 2 more for the biases
        ``b 1^T + 1 c^T + U diag(S) V^H``.
    U, S, V : arrays of shape (m, k), (k,), (n, k)
        The part without the biases.
    row_bias, column_bias : arrays of shape (m,), (n,)
        The vectors b, and c, which holds the overall level; 0 where they were not asked for.
    penalty : float
        What was subtracted from every singular value.
    n_iter : int
        Steps taken to the model of all observed entries.
    converged : bool
        Whether they ended because one changed little, and not at `max_iter`.
    held_out_rmse : float or None
        Root mean square error on the entries that were held out to choose the penalty.
    heldout_r2 : float or None
        ``1 - SSE(model) / SSE(biases)`` on other entries, which chose nothing either; see `complete_matrix`.

    See Also
    --------
    complete_matrix : Makes one.

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
        """The entries of the model at these rows and columns.

        Parameters
        ----------
        rows : int, or array of int
            Rows of the entries, from 0.
        columns : int, or array of int
            Their columns, from 0, of a shape that broadcasts with `rows`.

        Returns
        -------
        array of the shape that both broadcast to
            The model's value of each entry, also of those that were observed.
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
    """A matrix of rank k, plus biases, fitted to the observed entries of X; nothing is ever filled in.

    Minimizes ``||P_observed(X - M)||_F^2 / 2 + penalty ||U diag(S) V^H||_*`` over
    ``M = row 1^T + 1 column^T + U diag(S) V^H``: each step replaces the missing entries by those of M (so that the
    matrix is its residuals at the observed entries, stored sparse, plus M, never formed), takes the leading singular
    triplets by one step of subspace iteration from the last ones, and subtracts the penalty from the values.
    Momentum with restarts makes up for the missing information, by which plain steps are slow.

    Parameters
    ----------
    X : array with NaN, sparse matrix, data frame, or a file opened by `shiftsvd.io.open_matrix`, of shape (m, n)
        The matrix with missing entries.
    k : int in 1..min(m, n)
        Rank without the biases.
    biases : {"columns", "rows", "both", None}
        "both" is for ratings: users and items have levels of their own, which no penalty shrinks.
    penalty : float of at least 0, or "auto"
        "auto" holds out a tenth of the observed entries (100 000 at most) and takes the best of a path from large to
        small; 0 leaves only the rank to hold the model back. A matrix in a file needs a number.
    unobserved : bool
        Whether entries that a sparse matrix does not store are missing; by default they are zeros, and only stored
        NaN are missing.
    tol : float
        Relative change of M in a step that ends the iteration.
    max_iter : int
        The most steps, at least 1. Where they do not suffice a warning says so, and `Completion.converged` is False.
    rng : int, Generator or None
        As in `svd`.
    n_threads : int, optional
        Default: the cores that this process may use. The result does not depend on it.
    memory_limit : int (bytes) or str such as "2GB", optional
        Default: half of the available memory. What would need more is refused.

    Returns
    -------
    Completion
        The model of all entries.

    Raises
    ------
    ValueError
        For settings that cannot be, infinite entries, or a matrix without observed entries.

    See Also
    --------
    PCA : ``missing="em"`` fits components of a matrix with gaps.
    Completion : What is returned.

    Notes
    -----
    Two passes over the observed entries a step. Memory ``O(nnz + (m + n) k)`` for sparse X with `unobserved`; arrays
    are read in blocks. Where entries are held out, the stored numbers of a sparse X are copied.

    `Completion.heldout_r2` takes a second fit. 4 % of the observed entries (100 000 at most) are left out of it, drawn
    with `rng`, but never the last one of a row or column. Penalty and model are found without them, and
    ``1 - SSE(model) / SSE(biases)`` is taken on them, where the biases, too, are those of the other entries: 1 is a
    perfect prediction, and 0 one that is no better than the biases. The model that is returned is fitted to all
    entries. With a number as `penalty` both fits take about twice the steps of one; with "auto" both begin where the
    choice of the penalty ends, and all takes 1.3 to 1.5 times the steps of one fit. `heldout_r2` is that of a model of
    96 % of the entries, a little lower than that of the final one. It is None where less than 10 entries could be left
    out, where the biases explain all of them, and for files that stay where they are, which are fitted once.

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
    >>> ss.complete_matrix(X, 1, biases=None, penalty=0, tol=1e-8, rng=0).predict([2], [1]).round(3)
    array([6.])

    Ratings: what is not stored was never given, and both sides have levels of their own.

    >>> from scipy import sparse
    >>> R = sparse.csr_array([[1.0, 2, 0, 3], [0, 3, 4, 4], [3, 0, 5, 0], [1, 2, 3, 0]])
    >>> ss.complete_matrix(R, 1, biases="both", penalty=1.0, unobserved=True, rng=0).predict([0, 1], [2, 0]).round(2)
    array([3., 2.])
    """
    gaps = gaps_of(X, unobserved, n_threads, memory_limit)
    check_rank(k, gaps.shape)
    if biases not in BIASES:
        raise ValueError(f"biases must be one of {', '.join(map(repr, BIASES))}, got {biases!r}")
    _check_descent(penalty, max_iter)
    with threads(n_threads):
        first = _held_out(gaps, k, biases, penalty, tol, max_iter, generator(rng))
        state, n_iter, converged = descend(gaps, first.state, k, biases, first.penalty, tol, max_iter)
        if not converged:
            warn(
                f"the completion still changes by more than tol={tol:g} a step after {n_iter}: give a larger max_iter, "
                f"a larger penalty than {first.penalty:.3g}, or fewer components",
            )
        M, S = state.low_rank(), np.linalg.norm(state.L, axis=0)
        U = state.L / np.where(S > 0, S, 1)
        parts = (U, S, state.R, state.row, state.column)
        return Completion(gaps.filled(M), M, *parts, first.penalty, n_iter, converged, first.error, first.r2)


@dataclass(frozen=True, eq=False)
class _First:
    """Where the fit to all entries goes on from: a penalty, a state, and what entries held out said of both."""

    penalty: float
    error: float | None
    r2: float | None
    state: State


def _held_out(
    gaps: Gaps, k: int, biases: str | None, penalty: Any, tol: float, max_iter: int, rng: np.random.Generator
) -> _First:
    apart, error = kept_apart(gaps, rng), None
    train = gaps if apart is None else apart[0]
    if isinstance(penalty, str):
        penalty, error, state = chosen(train, k, biases, rng)
        begun = state
    else:
        state = start(gaps, k, biases, rng)[0]
        begun = state if apart is None else start(train, k, biases, rng)[0]
    if apart is None:
        return _First(float(penalty), error, None, state)
    # The final fit does not go on from here: without a penalty that is another valley. Of 60 x 30 entries with 3
    # components it ended higher than from the start in 3 of 6 runs, after up to 50 times the steps.
    model, *_ = descend(apart[0], begun, k, biases, float(penalty), tol, max_iter)
    return _First(float(penalty), error, explained(apart, model, biases), state)


def _check_descent(penalty: Any, max_iter: Any) -> None:
    if isinstance(penalty, str):
        number = penalty == "auto"
    else:
        number = isinstance(penalty, int | float | np.number) and not isinstance(penalty, bool)
        number = number and not np.iscomplexobj(penalty) and bool(0 <= penalty < np.inf)
    if not number:
        raise ValueError(f'penalty must be "auto" or a number of at least 0, got {penalty!r}')
    if isinstance(max_iter, bool) or not isinstance(max_iter, int | np.integer) or max_iter < 1:
        raise ValueError(f"max_iter must be an integer of at least 1, got {max_iter!r}")
