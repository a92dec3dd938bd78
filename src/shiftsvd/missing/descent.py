"""The steps of a completion, and how well it predicts observed entries that were held out."""

from dataclasses import dataclass

import numpy as np

from shiftsvd.missing.gaps import Gaps, HeldGaps
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import orth
from shiftsvd.numerics.powers import check_size
from shiftsvd.operators import LowRank, Operator, Panel

# Columns of the iteration beyond k: the gap behind them decides how fast it finds the k-th.
EXTRA = 8
# Settings of the path of penalties: each half of the one before it, until held-out errors rise.
HALVINGS, ROUGH, ROUGH_STEPS, GAIN = 16, 1e-3, 60, 1e-3
# Turns of row and column biases before anything else; each brings them nearer to their joint optimum.
ROUNDS = 5


@dataclass(frozen=True, eq=False)
class State:
    """A model on its way: biases, factors ``L R^H``, and the right vectors that the next step goes on from."""

    row: Vector
    column: Vector
    L: Panel
    R: Panel
    W: Panel

    def low_rank(self) -> LowRank:
        return LowRank(self.L, self.R).merge(additive(self.row, self.column))

    def ahead(self, before: "State", beta: float) -> "State":
        if not beta:
            return self
        L, R = np.hstack([(1 + beta) * self.L, -beta * before.L]), np.hstack([self.R, before.R])
        row = self.row + beta * (self.row - before.row)
        return State(row, self.column + beta * (self.column - before.column), L, R, self.W)

    def minus(self, other: "State") -> LowRank:
        L, R = np.hstack([self.L, -other.L]), np.hstack([self.R, other.R])
        return LowRank(L, R).merge(additive(self.row - other.row, self.column - other.column))


def descend(
    gaps: Gaps, state: State, k: int, biases: str | None, penalty: float, tol: float, max_iter: int
) -> tuple[State, int, bool]:
    before, t = state, 1.0
    for n_iter in range(1, max_iter + 1):
        t, t_before = (1 + np.sqrt(1 + 4 * t * t)) / 2, t
        Y = state.ahead(before, (t_before - 1) / t)
        before, state = state, _step(gaps, Y, k, biases, penalty)
        change = state.minus(before)
        if _is_small(change, state.low_rank(), tol):
            return state, n_iter, True
        if _inner(Y.minus(state), change) > 0:  # the momentum leads away (O'Donoghue & Candes)
            t = 1.0
    return state, max_iter, False


def _step(gaps: Gaps, Y: State, k: int, biases: str | None, penalty: float) -> State:
    S = Y.low_rank()
    A = gaps.filled(S)
    row, column = Y.row, Y.column
    if biases in ("columns", "both"):
        column = column + _sums(A.H, S.H).conj() / A.shape[0]
    if biases in ("rows", "both"):
        beside = _sums(A, S)
        level = beside.mean() / A.shape[1] if biases == "both" else 0.0
        row = row + beside / A.shape[1] - level
    U, sigma, V = _leading(A - additive(row, column), Y.W)
    return State(row, column, U[:, :k] * np.maximum(sigma[:k] - penalty, 0), V[:, :k], V)


def _leading(A: Operator, W: Panel) -> tuple[Panel, Vector, Panel]:
    Q = orth(A.matmat(W))
    V, S, Wh = np.linalg.svd(A.rmatmat(Q), full_matrices=False)  # A^H Q = V S W^H
    return Q @ Wh.conj().T, S, V


def _sums(A: Operator, S: LowRank) -> Vector:
    ones = np.ones((A.shape[1], 1))
    return np.asarray(A.matmat(ones) - S.matmat(ones))[:, 0]


def start(gaps: Gaps, k: int, biases: str | None, rng: np.random.Generator) -> tuple[State, float]:
    m, n = gaps.shape
    row, column = levels(gaps, biases)
    S = additive(row, column)
    A = gaps.filled(S) - S
    W = orth(rng.standard_normal((n, min(k + EXTRA, m, n))))
    for _ in range(2):
        _, sigma, W = _leading(A, W)
    check_size("the entries of a completion", float(sigma[0]))
    return State(row, column, np.zeros((m, k), W.dtype), W[:, :k], W), float(sigma[0])


def levels(gaps: Gaps, biases: str | None) -> tuple[Vector, Vector]:
    m, n = gaps.shape
    in_row, in_column = gaps.observed()
    if not in_row.any():
        raise ValueError(f"a completion needs observed entries, got none in a {m} x {n} matrix")
    row, column = np.zeros(m), np.zeros(n)
    for _ in range(ROUNDS if biases == "both" else 1):
        # Exact steps on the observed entries: the steps of `descend` are slower.
        if biases in ("columns", "both"):
            S = additive(row, column)
            column = column + _sums(gaps.filled(S).H, S.H).conj() / np.maximum(in_column, 1)
        if biases in ("rows", "both"):
            S = additive(row, column)
            row = row + _sums(gaps.filled(S), S) / np.maximum(in_row, 1)
    return row, column


def chosen(gaps: Gaps, k: int, biases: str | None, rng: np.random.Generator) -> tuple[float, float | None, State]:
    hidden, i, j, x = gaps.hide(rng)
    state, top = start(hidden, k, biases, rng)
    if not len(x):
        return 0.0, None, state
    best, rises = (0.0, np.inf, state), 0
    for halvings in range(1, HALVINGS + 1):
        penalty = top * 0.5**halvings
        state, *_ = descend(hidden, state, k, biases, penalty, ROUGH, ROUGH_STEPS)
        error = float(np.sqrt(np.mean(np.abs(x - state.low_rank().at(i, j)) ** 2)))
        # An error that stands still may wait for weaker components, but not once there are all of them.
        least = GAIN if np.all(np.any(state.L, axis=0)) else 0.0
        rises = 0 if error < (1 - least) * best[1] else rises + 1
        best = (penalty, error, state) if error < best[1] else best
        if rises == 2:
            break
    return best


def additive(row: Vector, column: Vector) -> LowRank:
    ones = [np.ones(len(row)), np.ones(len(column))]
    return LowRank(np.column_stack([row, ones[0]]), np.column_stack([ones[1], column.conj()]))


def _is_small(change: LowRank, M: LowRank, tol: float) -> bool:
    # The difference of large factors: its inner product with itself is right to rounding of that of M, no better.
    if _inner(change, change) > max(tol**2, 1e-12) * _inner(M, M):
        return False
    return change.frobenius_norm() <= tol * M.frobenius_norm()


def _inner(S: LowRank, T: LowRank) -> float:
    return float(np.sum((S.L.conj().T @ T.L) * (T.R.conj().T @ S.R).T).real)


# The share of the observed entries that are left out, and the fewest that tell anything: the standard error of R^2 from
# ten is already about a half.
SHARE, LEAST = 0.04, 10

Apart = tuple[Gaps, Vector, Vector, Vector]  # what is fitted; row, column and value of the entries left out


def kept_apart(gaps: Gaps, rng: np.random.Generator) -> Apart | None:
    if not isinstance(gaps, HeldGaps):  # each step reads a file as often as the whole fit of a matrix in memory does
        return None
    apart = gaps.hide(rng, SHARE)
    return apart if len(apart[1]) >= LEAST else None


def explained(apart: Apart, state: State, biases: str | None) -> float | None:
    """``1 - SSE(model) / SSE(biases)`` on the entries left out, both fitted without them.

    None where the biases leave nothing but rounding, of which there is nothing to explain.
    """
    train, i, j, x = apart
    largest = float(np.max(np.abs(x)))
    unit = largest if largest > 0 else 1.0  # squares of the entries themselves may leave the range of numbers
    left, beside = (
        float(np.linalg.norm((x - S.at(i, j)) / unit)) for S in (state.low_rank(), additive(*levels(train, biases)))
    )
    rounding = max(max(train.shape) * np.finfo(np.float64).eps, 10 * np.finfo(train.dtype).eps)
    if beside <= rounding * float(np.linalg.norm(x / unit)):
        return None
    return 1 - (left / beside) ** 2
