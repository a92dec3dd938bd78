"""SciPy sparse matrices: CSR without conversion, CSC as the adjoint of a CSR; never densified."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array

from shiftsvd.backends.blocked import PIECE, Blocked, Rows, exhaust, journaled, slice_of, squares_about
from shiftsvd.events import record_read
from shiftsvd.kernels import Kernels, best, kernels_for, ordered, shared
from shiftsvd.kernels.twin import CSR, Array, Groups, Steps, StepTaker, csr_of, range_errors_ignored, sum_by, take_rows
from shiftsvd.numerics.digests import told
from shiftsvd.numerics.moments import Moments, of_stored, weight_parts
from shiftsvd.numerics.panels import Vector, as_complex, as_real, mirror
from shiftsvd.numerics.powers import exponents_of, part_of, times_sparse
from shiftsvd.operators import LowRank, Panel, panel_dtype
from shiftsvd.runs import checkpoints
from shiftsvd.runs.memory import spare

# Panels that are held to be added at once: of more, each is added as it comes, which takes less memory and little time
# beside the products of as many blocks. Numbers of the sum that a thread rounds at a time.
HELD, ROUNDED = 4, 2**18


def add_up(
    kernels: Kernels, parts: Iterator[tuple[Groups, Array]], count: int, R: Array, Y: Array, n_threads: int
) -> None:
    held: list[Groups] = []
    before: Array | None = None
    sums = np.zeros(())
    for Z, S in parts:
        if held and count > HELD:
            panel = held.pop().flat
            if before is None:
                before = panel.astype(np.result_type(panel, np.float64), copy=False)
            else:
                kernels.add(panel, before)
        held.append(Z)
        sums = sums + S.astype(np.complex128 if np.iscomplexobj(S) else np.float64, copy=False)
    R = np.ascontiguousarray(R)

    def rounded(lo: int) -> None:
        kernels.total(held, before, R, sums, (lo, min(lo + step, len(Y))), Y[lo : lo + step])

    step = max(ROUNDED // max(Y.shape[1], 1), 1)
    exhaust(ordered(rounded, range(0, len(Y), step), n_threads))


# A column whose stored fraction is p has |mean|/sd <= sqrt(p/(1-p)): up to this p it cannot cancel.
FULL = 0.99


def cancelling(full: Vector, moments: Callable[[], Moments], shift: LowRank) -> Vector:
    # Of the full columns, those whose mean may be larger, relative to the deviation, than that of any other column.
    if not full.any() or (mu := shift.row_vector()) is None:
        return full
    squares = squares_about(found := moments(), mu)
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(full & ~(FULL * squares > (1 - FULL) * found.count * np.abs(mu) ** 2))


Powers = tuple[Vector | int, Vector | int]
Lines = tuple[Vector | None, Vector | None]


@dataclass(frozen=True, eq=False)
class FullLines:
    """Full rows and columns of a sparse matrix; the shift is subtracted from their entries."""

    rows: Vector  # masks
    columns: Vector
    shift: LowRank  # shift of all lines
    unstored: CSR  # minus the shift where these lines store nothing
    outside: LowRank  # the shift of all other lines, of rank 0 if there are none

    def shifted(self, X: CSR, rows: Rows, dtype: np.dtype[Any]) -> CSR:
        i, j = coordinates(X)
        inside = self.rows[rows[0] + i] | self.columns[j]
        data = X.data.astype(panel_dtype(dtype))
        data[inside] -= self.shift.at(rows[0] + i[inside], j[inside])
        more = take_rows(self.unstored, *rows)
        above, beside = coordinates(more)
        place = np.searchsorted(i * X.shape[1] + j, above * X.shape[1] + beside)  # rows are sorted
        indptr = X.indptr + more.indptr
        data = np.insert(data.astype(dtype, copy=False), place, more.data.astype(dtype, copy=False))
        return csr_array((data, np.insert(j, place, beside), indptr), shape=X.shape)


def full_lines(
    X: CSR, shift: LowRank, rows: Vector, columns: Vector, blocks: list[Rows], n_threads: int
) -> FullLines | None:
    if not (rows.any() or columns.any()):
        return None

    def part(block: Rows) -> list[tuple[Vector, Vector]]:
        lo, hi = block
        i, j = coordinates(take_rows(X, lo, hi))
        of_columns = _absent(i, j, np.ones(hi - lo, bool), columns)
        of_rows = _absent(i, j, rows[lo:hi], ~columns)
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


def with_data(X: CSR, data: Vector) -> CSR:
    Y = csr_of(data, X.indices, X.indptr, X.shape)
    Y.has_canonical_format = True
    return Y


def coordinates(X: CSR) -> tuple[Vector, Vector]:
    return np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), X.indices


def _absent(i: Vector, j: Vector, rows: Vector, columns: Vector) -> tuple[Vector, Vector]:
    # The mask of places is about as large as the entries that are stored, since these lines are full.
    absent = np.ones((np.count_nonzero(rows), np.count_nonzero(columns)), bool)
    there = rows[i] & columns[j]
    absent[(np.cumsum(rows) - 1)[i[there]], (np.cumsum(columns) - 1)[j[there]]] = False
    a, b = np.nonzero(absent)
    return np.flatnonzero(rows)[a], np.flatnonzero(columns)[b]


# Entries of a block: enough to keep a thread busy for a few milliseconds. A sixteenth is the least.
ENTRIES = 2**19
# Entries of a block for each column, with which sums of panels take a tenth of the time of products.
SUMS = 64
# Bytes of one panel that stays in the cache of a core beside another; bytes of a row of 16 columns in double precision.
PANEL_CACHE, PANEL_ROW = 2**20, 128
# Bytes of an accumulator of the columns: wider panels are multiplied a few columns at a time.
ACCUMULATOR = 2**24
# Entries up to which a product is one call. An interrupt waits for its end: 0.15 s with 16 columns on one core, 0.6 s
# with 66 (2.1 ns an entry and 16 columns, benchmarks/claims/kernels.py).
UNINTERRUPTED = 2**26
# Bytes for each entry of a block whose full lines are shifted: the entry, its place, and those inserted beside it.
SHIFTED = 64


# Below this fraction of the shift's own square, a difference of squares has lost half of its digits.
CANCELLED = 1e-8
# Passes from which sorting a matrix the other way pays (a sort takes about three; benchmarks/claims/kernels.py).
SORT_PASSES = 4
# Ratio of the sides up to which products take a wide matrix and its adjoint: half of the time where panels do not fit
# into the second cache, the same elsewhere (benchmarks/claims/kernels.py).
LONG = 8
# Bytes that moments of a block take for each column: sums in the kernel, and two blocks that are merged.
OF_MOMENTS = 128


@dataclass(frozen=True, eq=False, repr=False)
class SparseRows(Blocked):
    """A canonical CSR matrix minus its shift."""

    # The shift is subtracted from the entries of rows and columns with |mean|/sd of 10 or more, which are more than 99
    # percent full: an implicit shift would cancel there. These differences are in double precision, also for single
    # precision data, because rounding them would change the data. Everywhere else the shift is a product of thin
    # factors.

    sparse = True
    X: CSR
    shift: LowRank | None = None
    n_threads: int = 1
    memory_limit: int | str | None = None
    memo: dict[str, Any] = field(default_factory=dict)
    lines: Lines = (None, None)  # masks of the full rows and columns, where known, such as those of a larger matrix
    lines_done: bool = False  # X has its full lines shifted already, and `shift` is that of the others
    asked: LowRank | None = None  # if `lines_done`, the shift of all lines: entries and means are rounded at its level
    is_block: bool = False  # rows of a larger matrix, which one thread multiplies
    powers: Powers = (0, 0)  # exponents of the powers of two that stored entries are multiplied by
    kind: np.dtype[Any] | None = None  # of the data, where X holds them in double precision
    both: tuple[CSR, CSR] | None = None  # `ready` and its adjoint, if products take both
    held_bytes: int = 0  # what X takes of the memory limit, where it was read from a file for this fit
    held: np.dtype[Any] = field(init=False)  # of the entries that are multiplied
    full: FullLines | None = field(init=False)
    outside: LowRank = field(init=False)  # the shift of all lines that are not full, of rank 0 if there is none
    ready: CSR | None = field(init=False)  # the entries that are multiplied, where X needs no change or there is room

    def __post_init__(self) -> None:
        self.describe(self.X.shape, self.kind or (self.X.dtype if self.X.dtype.kind in "fc" else np.dtype(np.float64)))
        full = None if self.shift is None or self.lines_done else self._full_lines(self.shift)
        outside = by_rows(self.shift) if self.shift else no_shift(self.X.shape)
        held = self.dtype if full is None and self.kind is None else panel_dtype(self.dtype)
        vars(self).update(held=held, full=full, outside=outside if full is None else full.outside, ready=None)
        vars(self).update(ready=self._ready())

    def _ready(self) -> CSR | None:
        if self.full is None and not self._multiplied:
            return self.X if self.X.dtype.kind in "fc" else None
        nnz = self.X.nnz + (0 if self.full is None else self.full.unstored.nnz)
        if not spare(nnz * (self.held.itemsize + self.X.indices.itemsize), self.memory_limit):
            return None
        indptr = self.X.indptr if self.full is None else self.X.indptr + self.full.unstored.indptr
        data, indices = np.empty(nnz, self.held), np.empty(nnz, self.X.indices.dtype)

        def part(rows: Rows) -> None:
            made, where = self.made(rows, self.held), slice(indptr[rows[0]], indptr[rows[1]])
            data[where], indices[where] = made.data, made.indices

        exhaust(ordered(part, self.blocks(), self.n_threads))
        return csr_array((data, indices, indptr), shape=self.X.shape)

    def block(self, rows: Rows) -> tuple[CSR, Rows]:
        if self.ready is not None:
            return self.ready, rows
        # Small integers are exact in single precision, where products are faster.
        small = self.full is None and self.X.dtype.itemsize <= 2
        return self.made(rows, np.dtype(np.float32) if small else self.held), (0, rows[1] - rows[0])

    def made(self, rows: Rows, dtype: np.dtype[Any]) -> CSR:
        X = self.stored_rows(rows)
        if self.full is None:
            return csr_of(X.data.astype(dtype, copy=False), X.indices, X.indptr, X.shape)
        return self.full.shifted(X, rows, dtype)

    def stored_rows(self, rows: Rows) -> CSR:
        X, (e, f) = take_rows(self.X, *rows), self.powers
        return times_sparse(X, part_of(e, slice(*rows)), f) if self._multiplied else X

    @property
    def _multiplied(self) -> bool:
        return bool(np.any(self.powers[0]) or np.any(self.powers[1]))

    def known_costs(self) -> dict[str, Any]:
        working = self.held_bytes
        if self.ready is None:
            largest = max(int(self.X.indptr[hi] - self.X.indptr[lo]) for lo, hi in self.blocks())
            working += (self.n_threads + 1) * (self.dtype.itemsize if self.full is None else SHIFTED) * largest
        if self.shape[0] < self.shape[1]:
            working += self._bytes_the_other_way if self._is_copied else self._bytes_of_sums
        single_pays = self.dtype.itemsize == 4 or PANEL_ROW * min(self.shape) > PANEL_CACHE
        return {
            "eps": float(np.finfo(np.float64).eps),  # of products, and of full lines that are shifted
            "stored": int(self.X.nnz),
            "working_bytes": working,
            "gram_in_single": self.dtype.kind == "f" and single_pays,
            "gram_pairs": float(np.sum(np.diff(self.X.indptr).astype(np.float64) ** 2) / 2),
        }

    @property
    def _bytes_the_other_way(self) -> int:
        size = self.X.dtype.itemsize if self.full is None else self.held.itemsize
        return int(self.X.nnz * (size + 2 * self.X.indices.itemsize) + 8 * self.shape[1])

    @property
    def _bytes_of_sums(self) -> int:
        return (self.n_threads + 3 + HELD) * max(ACCUMULATOR, 16 * 8 * self.shape[1])

    @property
    def _is_copied(self) -> bool:
        return spare(self._bytes_the_other_way, self.memory_limit) or self._bytes_the_other_way < self._bytes_of_sums

    @property
    def kernels(self) -> Kernels:
        return kernels_for(self.dtype)

    @property
    def fingerprint(self) -> str:
        known = self.X, self.powers, str(self.kind), self.lines_done
        return self.remembered("fingerprint", lambda: told(known))

    def blocks(self) -> list[Rows]:
        (m, n), nnz = self.shape, self.X.nnz
        if self.is_block and nnz < SUMS * n:  # each part would have a sum as long as a row
            return [(0, m)]
        # At least eight blocks; four where the sums, one of n rows for each block, take longer than the products.
        entries = max(min(ENTRIES, nnz // 8), SUMS * n)
        entries = max(min(entries, nnz // 4), ENTRIES // 16)
        edges = np.searchsorted(self.X.indptr, np.arange(entries, nnz, entries)).tolist()
        return list(pairwise(sorted({0, m, *edges})))

    def matmat(self, V: Panel) -> Panel:
        if self._comes_apart(V):
            return as_complex(self.matmat(as_real(V)))
        P = self.kernels.panel(V, np.float64)
        C = self.outside.R.conj().T @ V
        Y = np.empty((self.shape[0], V.shape[1]), panel_dtype(np.result_type(self.dtype, V)))

        def part(rows: Rows) -> None:
            X, place = self.block(rows)
            self.kernels.gather(X, place, P, Y[rows[0] : rows[1]])
            _subtract_thin(Y[rows[0] : rows[1]], self.outside.L[rows[0] : rows[1]], C)

        exhaust(self._each(part))
        return Y

    @journaled
    def rmatmat(self, W: Panel) -> Panel:
        if self._comes_apart(W):
            return as_complex(self.rmatmat(as_real(W)))
        Z = np.empty((self.shape[1], W.shape[1]), panel_dtype(np.result_type(self.dtype, W)))
        at_once = max(16, ACCUMULATOR // (8 * self.shape[1]))
        for lo in range(0, W.shape[1], at_once):
            part = W[:, lo : lo + at_once]

            def scattered(rows: Rows, part: Panel = part) -> tuple[Groups, Panel]:
                X, place = self.block(rows)
                here, L = part[rows[0] : rows[1]], self.outside.L[rows[0] : rows[1]]
                return self.kernels.scatter(X, place, here, np.float64), L.conj().T @ here

            self._add_up(scattered, Z[:, lo : lo + at_once])
        return Z

    @journaled
    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        if self._comes_apart(V):
            return as_complex(self.gram(as_real(V), weights))
        single = V.dtype == np.float32 and self.dtype.kind == "f"
        dtype = np.dtype(np.float32 if single else np.float64)
        Y = np.empty(
            (self.shape[1], V.shape[1]), dtype if self.dtype.kind == "f" else np.result_type(dtype, self.dtype)
        )
        if shared and (X := self._in_one_call) is not None:
            w, L, R = slice_of(weights, (0, self.shape[0])), self.outside.L, self.outside.R
            if (across := self._across) is not None:
                shared.gram_of_both(X, across, V, w, L, R, Y, self.n_threads)
            else:
                shared.gram_of_all(X, self._edges, V, w, L, R, Y, self.n_threads)
            record_read(1)
            return Y
        P = self.kernels.panel(V, dtype)
        C = self.kernels.panel((V.T @ self.outside.R.conj()).T, P.flat.dtype)

        def part(rows: Rows) -> tuple[Groups, Panel]:
            X, place = self.block(rows)
            w = slice_of(weights, rows)
            Z, sums = self.kernels.gram(X, place, P, w, self.outside.L[rows[0] : rows[1]], C)
            return Z, sums.join()

        return self._add_up(part, Y)

    def step_taker(self, weights: Vector | None = None, cols: Vector | None = None) -> StepTaker | None:
        X = self._in_one_call
        if not shared or X is None or checkpoints.kept():
            return None
        w, L, R = slice_of(weights, (0, self.shape[0])), self.outside.L, self.outside.R
        matrix = shared.steps_of(X, self._edges, self._across, w, cols, L, R, self.n_threads)

        def take(state: Steps) -> Steps:
            taken = matrix(state._replace(steps=min(state.steps, max(1, UNINTERRUPTED // max(X.nnz, 1)))))
            record_read(taken.steps)
            return taken

        return take

    @property
    def _in_one_call(self) -> CSR | None:
        return self.ready if self.kernels is best and self.X.nnz <= UNINTERRUPTED else None

    @property
    def _across(self) -> CSR | None:
        return self.both[1] if self.both is not None and self.both[0] is self.ready else None

    @property
    def _edges(self) -> list[int]:
        return [0, *(hi for _, hi in self.blocks())]

    @journaled
    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        L, R = self.outside.L, self.outside.R
        wL = L if weights is None else weights[:, None] * L

        def part(rows: Rows) -> Panel:
            X, place = self.block(rows)
            return self.kernels.outer(X, place, slice_of(weights, rows))

        G: Panel = self._sum(part)
        mirror(G)
        XL = (self._replace_shift(None) if self.full is None else self._alone()).rmatmat(wL)
        G = G.astype(np.result_type(G, XL, R), copy=False)
        # Each product is as large as G: one at a time, since threads that read a file have a G each.
        for left, right in ((R, XL), (XL, R), (R @ (L.conj().T @ -wL), R)) if L.shape[1] else ():
            G -= left @ right.conj().T
        return G

    @property
    def moment_workers(self) -> int:
        held = self.X.nnz * (self.X.dtype.itemsize + self.X.indices.itemsize)
        return int(np.clip(held // (4 * OF_MOMENTS * max(self.shape[1], 1)), 1, self.workers))

    def block_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        X, place = self.block(rows)
        parts = None if weights is None else weight_parts(weights)
        return of_stored(parts, rows[1] - rows[0], self.kernels.moments(X, place, parts))

    def block_row_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        X, place = self.block(rows)
        parts = None if weights is None else weight_parts(weights)
        return of_stored(parts, self.shape[1], self.kernels.row_moments(X, place, parts))

    @range_errors_ignored
    def _column_squares(self, weights: Vector | None) -> Vector:
        L, R = self.outside.L, self.outside.R
        wL = L if weights is None else weights[:, None] * L
        G = wL.T @ L.conj()
        absent = np.einsum("jr,rs,js->j", R.conj(), G, R).real
        terms = (np.abs(R) @ np.sqrt(np.diag(G).real)) ** 2  # squares before terms of the shift cancel each other
        Rt = np.ascontiguousarray(R.conj())

        def part(rows: Rows) -> Vector:
            X, place = self.block(rows)
            w = slice_of(weights, rows)
            return self.kernels.column_squares(X, place, w, L[rows[0] : rows[1]], Rt)

        squares: Vector = absent + self._sum(part)
        if np.any(squares < CANCELLED * terms):
            w = np.ones(self.shape[0]) if weights is None else weights
            return np.asarray(
                sum(w[lo : lo + len(B)] @ np.abs(B) ** 2 for lo, B in self.row_blocks(PIECE // self.shape[1]))
            )
        return squares

    @range_errors_ignored
    def row_squares(self, weights: Vector | None = None) -> Vector:
        w = np.ones(self.shape[1]) if weights is None else weights
        L, R = self.outside.L, self.outside.R
        G = (R.conj().T * w) @ R
        absent = np.einsum("ir,rs,is->i", L, G, L.conj()).real
        terms = (np.abs(L) @ np.sqrt(np.diag(G).real)) ** 2  # squares before terms of the shift cancel each other
        squares = absent.copy()
        for rows in self.blocks():
            X = self.made(rows, panel_dtype(self.dtype))
            i, j = coordinates(X)
            i = rows[0] + i
            x = X.data.astype(panel_dtype(X.dtype), copy=False)
            change = np.abs(x) ** 2 - 2 * (x.conj() * self.outside.at(i, j)).real
            squares += sum_by(i, w[j] * change, self.shape[0])
        if np.any(squares < CANCELLED * terms):
            squares = np.concatenate([np.abs(B) ** 2 @ w for _, B in self.row_blocks(PIECE // self.shape[1])])
        return np.asarray(squares)

    def exponents(self, axis: int) -> Vector:
        found = self.outside.exponents(axis)
        for rows in self.blocks():
            X = self.made(rows, panel_dtype(self.dtype))
            np.maximum.at(found, rows[0] + coordinates(X)[0] if axis else X.indices, exponents_of(X.data))
        return found

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "SparseRows":
        powers = self.powers[0] + rows, self.powers[1] + cols
        shift, asked = (S and S.ldexp(rows, cols) for S in (self.shift, self.asked))
        return replace(self, shift=shift, asked=asked, memo={}, lines=(None, None), powers=powers)

    def formed(self, rows: Rows) -> Panel:
        X = self.stored_rows(rows)
        block = np.zeros(X.shape, panel_dtype(self.dtype))
        block[coordinates(X)] = X.data
        if self.shift is not None:
            block -= self.shift.rows(*rows)
        return block

    def transposed(self, passes: float) -> "SparseRows | None":
        if passes < SORT_PASSES or not self._is_copied:
            return None
        if self.ready is None or self.ready is self.X:
            return self.turned()
        asked = self.shift and self.shift.H
        return self._adjoint(self.ready, self.outside, lines_done=True, asked=asked, kind=self.dtype)

    def shift_of(self) -> LowRank | None:
        return self.shift if self.asked is None else self.asked

    def turned(self) -> "SparseRows":
        return self._adjoint(self.X, self.shift, asked=self.asked and self.asked.H, powers=self.powers[::-1])

    def _adjoint(self, X: CSR, shift: LowRank | None, powers: Powers = (0, 0), **known: Any) -> "SparseRows":
        adjoint, shift = adjoint_of(X, self.n_threads), shift and shift.H
        # A panel of the long side then takes no more memory than the panels that are added up otherwise.
        both = (adjoint, X) if adjoint.shape[0] <= LONG * adjoint.shape[1] else None
        lines = self.lines[::-1]
        return replace(self, X=adjoint, shift=shift, memo={}, lines=lines, powers=powers, both=both, **known)

    def _replace_shift(self, shift: LowRank | None) -> "SparseRows":
        lines = self.lines if self.is_block else (None, None)
        return replace(self, shift=shift, lines=lines, lines_done=False, asked=None)

    def _full_lines(self, shift: LowRank) -> FullLines | None:
        (rows, columns), least = self.lines, FULL * self.shape[0]
        if rows is None:
            rows = np.diff(self.X.indptr) > FULL * self.shape[1]
            rows = cancelling(rows, lambda: self._known("rows", Blocked.row_moments), shift.H)
        if columns is None and self.X.nnz > least:
            columns = self._sum(lambda rows: best.column_counts(self.X, rows)) > least
            columns = cancelling(columns, lambda: self._known("columns", Blocked.moments), shift)
        columns = np.zeros(self.shape[1], bool) if columns is None else columns
        vars(self).update(lines=(rows, columns))
        return full_lines(self.X, shift, rows, columns, self.blocks(), self.n_threads)

    def _known(self, lines: str, moments: Callable[[Blocked], Moments]) -> Moments:
        return self.memo[lines] if lines in self.memo else moments(self._replace_shift(None))

    def _alone(self) -> "SparseRows":
        X = self.made((0, self.shape[0]), self.held) if self.ready is None else self.ready
        return replace(self, X=X, shift=None, memo={}, powers=(0, 0), kind=self.dtype)

    def _add_up(self, part: Callable[[Rows], tuple[Groups, Panel]], Y: Panel) -> Panel:
        parts = (values for _, values in self._each(part))
        add_up(self.kernels, parts, len(self.blocks()), self.outside.R, Y, self.n_threads)
        return Y

    def _comes_apart(self, V: Panel) -> bool:
        return np.iscomplexobj(V) and self.dtype.kind != "c"


def adjoint_of(X: CSR, n_threads: int = 1) -> CSR:
    if shared and X.data.dtype in (np.float32, np.float64) and X.data.dtype.isnative:
        return shared.transpose(X, n_threads)
    X = take_rows(X, 0, X.shape[0])
    return csr_array((X.conj() if X.dtype.kind == "c" else X).T.tocsr())


def _subtract_thin(Y: Panel, L: Panel, C: Panel) -> None:
    if not L.shape[1]:
        return
    step = max(1, 2**18 // max(Y.shape[1], 1))
    for lo in range(0, len(Y), step):
        Y[lo : lo + step] -= L[lo : lo + step] @ C
