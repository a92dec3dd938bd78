"""SciPy sparse matrices: CSR as it is, CSC as the adjoint of a CSR; never densified."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array

from shiftsvd.backends.blocked import Blocked, Rows, cut
from shiftsvd.kernels import gather, moments, row_moments, scatter, take_rows
from shiftsvd.kernels.rows import CSR, sum_by
from shiftsvd.moments import Moments, Vector
from shiftsvd.operators import LowRank, Operator, Panel, field_of, panel_dtype

# A column whose stored fraction is p has |mean|/sd <= sqrt(p/(1-p)): up to this p it cannot cancel.
FULL = 0.99
# Below this fraction of the shift's own square, a difference of squares has lost half of its digits.
CANCELLED = 1e-8


@dataclass(frozen=True, eq=False, repr=False)
class SparseRows(Blocked):
    """A canonical CSR matrix minus its shift.

    Rows and columns that are more than 99 % full are subtracted inside their stored entries, where an
    implicit shift would cancel; everywhere else the shift stays a product of thin factors.
    """

    X: CSR
    shift: LowRank | None = None
    n_threads: int = 1
    shape: tuple[int, int] = field(init=False)
    dtype: np.dtype[Any] = field(init=False)
    full: tuple[Vector, Vector] | None = field(init=False)  # masks of the rows and columns done inside
    missing: CSR | None = field(init=False)  # minus the shift where those rows and columns store nothing
    outside: LowRank | None = field(init=False)  # the shift of everything else

    def __post_init__(self) -> None:
        kind = self.X.dtype if self.X.dtype.kind in "fc" else np.dtype(np.float64)
        parts = () if self.shift is None else (self.shift.L, self.shift.R)
        set_ = object.__setattr__
        set_(self, "shape", self.X.shape)
        set_(self, "dtype", field_of(kind, *parts))
        set_(self, "full", None if self.shift is None else self._full_lines())
        set_(self, "missing", None)
        set_(self, "outside", self.shift)
        if self.full is not None and self.shift is not None:
            rows, columns = self.full
            set_(self, "missing", self._missing())
            L, R = (
                np.where(mask[:, None], 0, F) for mask, F in zip(self.full, (self.shift.L, self.shift.R), strict=True)
            )
            set_(self, "outside", None if rows.all() or columns.all() else LowRank(L, R))

    @property
    def eps(self) -> float:
        """Products are made in double whatever the data are stored as."""
        return float(np.finfo(np.float64).eps)

    @property
    def stored(self) -> int:
        """The number of stored entries."""
        return int(self.X.nnz)

    def blocks(self) -> list[Rows]:
        """Rows cut so that each block holds about as many entries, and its sums cost less than its products."""
        m, n = self.shape
        entries = max(2**18, 4 * n, self.X.nnz // 64)
        edges = np.searchsorted(self.X.indptr, np.arange(entries, self.X.nnz, entries))
        edges = np.unique(np.concatenate([[0], edges[edges < m], [m]]))
        return [(int(lo), int(hi)) for lo, hi in pairwise(edges)]

    def block(self, rows: Rows) -> CSR:
        """These rows, full lines already shifted."""
        X = take_rows(self.X, *rows)
        if self.full is None:
            return X
        full_rows, full_columns = self.full
        i, j = _coordinates(X)
        inside = full_rows[rows[0] + i] | full_columns[j]
        data = X.data.astype(panel_dtype(self.dtype))
        data[inside] -= _entries(self.shift, rows[0] + i[inside], j[inside])
        return csr_array((data, X.indices, X.indptr), shape=X.shape)

    def times(self, rows: Rows, V: Panel) -> Panel:
        """``A[rows] V``."""
        Y = gather(self.block(rows), V)
        if self.missing is not None:
            Y = Y + gather(take_rows(self.missing, *rows), V)
        if self.outside is not None:
            Y = _minus_product(Y, self.outside.L[rows[0] : rows[1]], self.outside.R.conj().T @ V)
        return Y

    def adjoint_times(self, rows: Rows, W: Panel) -> Panel:
        """``A[rows]^H W``."""
        Z = scatter(self.block(rows), W)
        if self.missing is not None:
            Z = Z + scatter(take_rows(self.missing, *rows), W)
        if self.outside is not None:
            Z = _minus_product(Z, self.outside.R, self.outside.L[rows[0] : rows[1]].conj().T @ W)
        return Z

    def moments(self, weights: Vector | None = None) -> Moments:
        """Moments of the columns; of a shifted matrix, the mean alone."""
        return super().moments(weights) if self.shift is None else Operator.moments(self, weights)

    def row_moments(self, weights: Vector | None = None) -> Moments:
        """Moments of the rows; of a shifted matrix, the mean alone."""
        return super().row_moments(weights) if self.shift is None else Operator.row_moments(self, weights)

    def block_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        """Moments of the columns of the stored rows."""
        return moments(take_rows(self.X, *rows), weights)

    def block_row_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        """Moments of the stored rows."""
        return row_moments(take_rows(self.X, *rows), weights)

    def column_squares(self, weights: Vector | None = None) -> Vector:
        """Squared column norms: the stored entries, and what the shift puts everywhere else."""
        w = np.ones(self.shape[0]) if weights is None else weights
        absent = np.zeros(self.shape[1])
        if self.outside is not None:
            L, R = self.outside.L, self.outside.R
            absent = np.einsum("jr,rs,js->j", R.conj(), (L.T * w) @ L.conj(), R).real
        squares = absent.copy()
        for i, j, change in self._entry_squares():
            squares += sum_by(j, w[i] * change, self.shape[1])
        if np.any(squares < CANCELLED * absent):
            return np.asarray(sum(w[lo : lo + len(B)] @ np.abs(B) ** 2 for lo, B in self.row_blocks(1024)))
        return squares

    def row_squares(self, weights: Vector | None = None) -> Vector:
        """Squared row norms: the stored entries, and what the shift puts everywhere else."""
        w = np.ones(self.shape[1]) if weights is None else weights
        absent = np.zeros(self.shape[0])
        if self.outside is not None:
            L, R = self.outside.L, self.outside.R
            absent = np.einsum("ir,rs,is->i", L, (R.conj().T * w) @ R, L.conj()).real
        squares = absent.copy()
        for i, j, change in self._entry_squares():
            squares += sum_by(i, w[j] * change, self.shape[0])
        if np.any(squares < CANCELLED * absent):
            return np.concatenate([np.abs(B) ** 2 @ w for _, B in self.row_blocks(1024)])
        return squares

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        """Dense blocks of `rows` rows in double precision, one alive at a time."""
        for lo, hi in cut(self.shape[0], rows):
            X = take_rows(self.X, lo, hi)
            block = np.zeros(X.shape, panel_dtype(self.dtype))
            block[_coordinates(X)] = X.data
            if self.shift is not None:
                block -= self.shift.rows(lo, hi)
            yield lo, block

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        """Dense blocks of rows of the adjoint, which is sorted by columns once."""
        X = self.X.conj() if self.X.dtype.kind == "c" else self.X
        adjoint = replace(self, X=csr_array(X.T.tocsr()), shift=self.shift and self.shift.H)
        return adjoint.row_blocks(columns)

    def with_shift(self, shift: LowRank) -> "SparseRows":
        """The shift stays implicit, except inside full rows and columns."""
        return self._replace_shift(shift.merge(self.shift))

    def _replace_shift(self, shift: LowRank | None) -> "SparseRows":
        return replace(self, shift=shift)

    def _full_lines(self) -> tuple[Vector, Vector] | None:
        """Masks of the rows and the columns that are nearly full; None if there are none."""
        m, n = self.shape
        rows = np.diff(self.X.indptr) > FULL * n
        columns = np.bincount(self.X.indices, minlength=n) > FULL * m
        return (rows, columns) if rows.any() or columns.any() else None

    def _missing(self) -> CSR:
        """Minus the shift at the entries of full rows and columns that are not stored."""
        assert self.full is not None
        full_rows, full_columns = self.full
        parts = []
        for lo, hi in self.blocks():
            X = take_rows(self.X, lo, hi)
            i, j = _coordinates(X)
            for rows, columns in (
                (np.arange(lo, hi), full_columns),
                (lo + np.flatnonzero(full_rows[lo:hi]), ~full_columns),
            ):
                # The mask is about as large as the entries stored here, since these lines are full.
                place_i, place_j = np.full(hi - lo, -1), np.full(self.shape[1], -1)
                place_i[rows - lo], place_j[columns] = np.arange(len(rows)), np.arange(columns.sum())
                there = (place_i[i] >= 0) & (place_j[j] >= 0)
                absent = np.ones((len(rows), columns.sum()), bool)
                absent[place_i[i[there]], place_j[j[there]]] = False
                a, b = np.nonzero(absent)
                parts.append((rows[a], np.flatnonzero(columns)[b]))
        i, j = (np.concatenate(side) for side in zip(*parts, strict=True))
        return csr_array(coo_array((-_entries(self.shift, i, j), (i, j)), shape=self.shape))

    def _entry_squares(self) -> Iterator[tuple[Vector, Vector, Vector]]:
        """(row, column, what the entry adds to the square of the implicit shift there), block by block."""
        for rows in self.blocks():
            X = self.block(rows)
            i, j = _coordinates(X)
            i = rows[0] + i
            x = X.data.astype(panel_dtype(X.dtype), copy=False)
            change = np.abs(x) ** 2
            if self.outside is not None:
                change -= 2 * (x.conj() * _entries(self.outside, i, j)).real
            yield i, j, change
        if self.missing is not None:
            i, j = _coordinates(self.missing)
            yield i, j, np.abs(self.missing.data) ** 2


def _minus_product(Y: Panel, L: Panel, C: Panel) -> Panel:
    """``Y - L C``, in place and part by part: a panel on the long side is not held twice."""
    Y = Y.astype(np.result_type(Y, L, C), copy=False)
    for lo, hi in cut(len(Y), 8192):
        Y[lo:hi] -= L[lo:hi] @ C
    return Y


def _coordinates(X: CSR) -> tuple[Vector, Vector]:
    """Row and column of every stored entry."""
    return np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), X.indices


def _entries(S: LowRank | None, i: Vector, j: Vector) -> Vector:
    """Entries of a low-rank matrix."""
    assert S is not None
    entries: Vector = S.L[i, 0] * S.R[j, 0].conj()
    for r in range(1, S.L.shape[1]):
        entries += S.L[i, r] * S.R[j, r].conj()
    return entries
