"""Rows and columns of a sparse matrix that are nearly full, and its shift inside their entries and outside of them."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array

from shiftsvd.backends.blocked import Rows
from shiftsvd.kernels import ordered
from shiftsvd.kernels.twin import CSR, take_rows
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.powers import part_of, times_sparse
from shiftsvd.operators import LowRank, panel_dtype
from shiftsvd.runs.memory import spare

# A column whose stored fraction is p has |mean|/sd <= sqrt(p/(1-p)): up to this p it cannot cancel.
FULL = 0.99


Powers = tuple[Vector | int, Vector | int]


@dataclass(frozen=True, eq=False)
class FullLines:
    """The nearly full lines of a sparse matrix, in which the shift is subtracted from the entries, and the shift."""

    rows: Vector  # mask of the rows
    columns: Vector  # and of the columns
    inside: LowRank  # the whole shift, for the entries of these lines
    unstored: CSR  # minus the shift where these lines store nothing
    outside: LowRank  # the shift of everything else, of rank 0 if that is nothing

    def shifted(self, X: CSR, rows: Rows, dtype: np.dtype[Any]) -> CSR:
        i, j = coordinates(X)
        inside = self.rows[rows[0] + i] | self.columns[j]
        data = X.data.astype(panel_dtype(dtype))
        data[inside] -= self.inside.at(rows[0] + i[inside], j[inside])
        more = take_rows(self.unstored, *rows)
        above, beside = coordinates(more)
        place = np.searchsorted(i * X.shape[1] + j, above * X.shape[1] + beside)  # rows are sorted
        indptr = X.indptr + more.indptr
        data = np.insert(data.astype(dtype, copy=False), place, more.data.astype(dtype, copy=False))
        return csr_array((data, np.insert(j, place, beside), indptr), shape=X.shape)


@dataclass(frozen=True, eq=False)
class Entries:
    """What the kernels take of a sparse matrix: its entries times powers of two, with full lines shifted."""

    X: CSR
    dtype: np.dtype[Any]
    powers: Powers
    full: FullLines | None
    ready: CSR | None = None  # all of them, where there is room for a copy or X needs none

    def kept(self, blocks: list[Rows], n_threads: int, memory_limit: int | str | None) -> "Entries":
        if self.full is None and not self._multiplied:
            return replace(self, ready=self.X) if self.X.dtype.kind in "fc" else self
        nnz = self.X.nnz + (0 if self.full is None else self.full.unstored.nnz)
        if not spare(nnz * (self.dtype.itemsize + self.X.indices.itemsize), memory_limit):
            return self
        indptr = self.X.indptr if self.full is None else self.X.indptr + self.full.unstored.indptr
        data, indices = np.empty(nnz, self.dtype), np.empty(nnz, self.X.indices.dtype)

        def part(rows: Rows) -> None:
            made, where = self.made(rows, self.dtype), slice(indptr[rows[0]], indptr[rows[1]])
            data[where], indices[where] = made.data, made.indices

        for _ in ordered(part, blocks, n_threads):
            pass
        return replace(self, ready=csr_array((data, indices, indptr), shape=self.X.shape))

    def block(self, rows: Rows) -> tuple[CSR, Rows]:
        if self.ready is not None:
            return self.ready, rows
        # Small integers are exact in single precision, where products are faster.
        small = self.full is None and self.X.dtype.itemsize <= 2
        return self.made(rows, np.dtype(np.float32) if small else self.dtype), (0, rows[1] - rows[0])

    def made(self, rows: Rows, dtype: np.dtype[Any]) -> CSR:
        X = self.stored(rows)
        if self.full is None:
            return csr_array((X.data.astype(dtype, copy=False), X.indices, X.indptr), shape=X.shape)
        return self.full.shifted(X, rows, dtype)

    def stored(self, rows: Rows) -> CSR:
        X, (e, f) = take_rows(self.X, *rows), self.powers
        return times_sparse(X, part_of(e, slice(*rows)), f) if self._multiplied else X

    @property
    def _multiplied(self) -> bool:
        return any(np.any(e) for e in self.powers)


def full_lines(X: CSR, shift: LowRank, columns: Vector, blocks: list[Rows], n_threads: int) -> FullLines | None:
    rows = np.diff(X.indptr) > FULL * X.shape[1]
    if not (rows.any() or columns.any()):
        return None

    def part(block: Rows) -> list[tuple[Vector, Vector]]:
        lo, hi = block
        i, j = coordinates(take_rows(X, lo, hi))
        of_columns = _absent(i, j, np.arange(hi - lo), columns)
        of_rows = _absent(i, j, np.flatnonzero(rows[lo:hi]), ~columns)
        return [(lo + i, j) for i, j in (of_columns, of_rows)]

    places = [place for both in ordered(part, blocks, n_threads) for place in both]
    i, j = (np.concatenate(side) for side in zip(*places, strict=True))
    unstored = csr_array(coo_array((-shift.at(i, j), (i, j)), shape=X.shape))
    whole = rows.all() or columns.all()
    factors = ((rows, shift.L), (columns, shift.R))
    outside = no_shift(X.shape) if whole else by_rows(LowRank(*(np.where(mask[:, None], 0, F) for mask, F in factors)))
    return FullLines(rows, columns, shift, unstored, outside)


def no_shift(shape: tuple[int, int]) -> LowRank:
    return LowRank(np.zeros((shape[0], 0)), np.zeros((shape[1], 0)))


def by_rows(S: LowRank) -> LowRank:
    return LowRank(np.ascontiguousarray(S.L), np.ascontiguousarray(S.R))


def coordinates(X: CSR) -> tuple[Vector, Vector]:
    return np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), X.indices


def _absent(i: Vector, j: Vector, rows: Vector, columns: Vector) -> tuple[Vector, Vector]:
    # The mask of places is about as large as the entries that are stored, since these lines are full.
    absent = np.ones((len(rows), np.count_nonzero(columns)), bool)
    if absent.size:
        place_i, place_j = np.full(i.max(initial=-1) + 1, -1), np.full(len(columns), -1)
        here = rows[rows < len(place_i)]
        place_i[here], place_j[columns] = np.arange(len(here)), np.arange(absent.shape[1])
        there = (place_i[i] >= 0) & (place_j[j] >= 0)
        absent[place_i[i[there]], place_j[j[there]]] = False
    a, b = np.nonzero(absent)
    return rows[a], np.flatnonzero(columns)[b]
