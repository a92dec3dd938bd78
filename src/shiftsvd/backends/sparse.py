"""SciPy sparse matrices: CSR as it is, CSC as the adjoint of a CSR; never densified."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array

from shiftsvd.algebra.costs import PANEL_CACHE
from shiftsvd.algebra.powers import exponents_of, part_of, times_sparse
from shiftsvd.backends.blocked import PIECE, Blocked, Rows, cut, slice_of
from shiftsvd.backends.memory import spare
from shiftsvd.kernels import Kernels, best, kernels_for, ordered, twin
from shiftsvd.kernels.panels import Groups
from shiftsvd.kernels.twin import CSR, sum_by, take_rows
from shiftsvd.moments import Moments, Vector, unwarned
from shiftsvd.operators import LowRank, Operator, Panel, field_of, panel_dtype

Powers = tuple[Vector | int, Vector | int]

# A column whose stored fraction is p has |mean|/sd <= sqrt(p/(1-p)): up to this p it cannot cancel.
FULL = 0.99
# Below this fraction of the shift's own square, a difference of squares has lost half of its digits.
CANCELLED = 1e-8
# Entries of a block: enough to keep a thread busy for a few milliseconds.
ENTRIES = 2**19
# Bytes of an accumulator on the columns: more of them are done a few columns of the panel at a time.
ACCUMULATOR = 2**24
# Passes from which on it pays to sort a matrix the other way (a sort costs about three; benchmarks/kernels.py).
SORT_PASSES = 4


@dataclass(frozen=True, eq=False, repr=False)
class SparseRows(Blocked):
    """A canonical CSR matrix minus its shift.

    Rows and columns that are more than 99 % full are subtracted inside their stored entries, where an
    implicit shift would cancel; everywhere else the shift stays a product of thin factors. What is left of them is
    kept in double precision, of single precision data too: rounded, it would be other data than those that were given.
    """

    X: CSR
    shift: LowRank | None = None
    n_threads: int = 1
    memory_limit: int | str | None = None
    memo: dict[str, Moments] = field(default_factory=dict)
    full_columns: Vector | None = None  # where these rows are part of a matrix, the columns that are full in it
    inside: bool = False  # whether X has its full lines shifted already, and `shift` is that of the others
    powers: Powers = (0, 0)  # what the stored entries are to be multiplied by, as `ldexp`
    kind: np.dtype[Any] | None = None  # of the data, where X holds them in double precision
    shape: tuple[int, int] = field(init=False)
    dtype: np.dtype[Any] = field(init=False)
    full: tuple[Vector, Vector] | None = field(init=False)  # masks of the rows and columns done inside
    missing: CSR | None = field(init=False)  # minus the shift where those rows and columns store nothing
    outside: LowRank = field(init=False)  # the shift of everything else, of rank 0 if there is none
    ready: CSR | None = field(init=False)  # the stored entries as the kernels take them, full lines shifted

    def __post_init__(self) -> None:
        kind = self.kind or (self.X.dtype if self.X.dtype.kind in "fc" else np.dtype(np.float64))
        shift = _contiguous(self.shift) if self.shift else _none(self.X.shape)
        set_ = object.__setattr__
        set_(self, "shape", self.X.shape)
        set_(self, "dtype", field_of(kind, shift.L, shift.R))
        set_(self, "full", None if self.shift is None or self.inside else self._full_lines())
        set_(self, "missing", None)
        set_(self, "outside", shift)
        set_(self, "ready", None)
        if self.full is not None:
            set_(self, "missing", self._missing())
            factors = zip(self.full, (shift.L, shift.R), strict=True)
            whole = any(mask.all() for mask in self.full)
            kept = LowRank(*(np.where(mask[:, None], 0, F) for mask, F in factors))
            set_(self, "outside", _none(self.X.shape) if whole else kept)
        set_(self, "ready", self._ready())

    @property
    def eps(self) -> float:
        """Products are made in double, with full lines that are shifted in double."""
        return float(np.finfo(np.float64).eps)

    @property
    def kernels(self) -> Kernels:
        """What multiplies."""
        return kernels_for(self.dtype)

    @property
    def stored(self) -> int:
        """The number of stored entries."""
        return int(self.X.nnz)

    @property
    def working_bytes(self) -> int:
        """Of a wide matrix, the copy that is sorted the other way, where there is room for it."""
        size = self._bytes_the_other_way
        return size if self.shape[0] < self.shape[1] and spare(size, self.memory_limit) else 0

    @property
    def _bytes_the_other_way(self) -> int:
        """What the adjoint takes, sorted by its own rows."""
        size = self.X.dtype.itemsize if self.full is None else self._held.itemsize
        return int(self.X.nnz * (size + self.X.indices.itemsize) + 8 * self.shape[1])

    @property
    def gram_in_single(self) -> bool:
        """Single data, and double ones where their panels leave the cache."""
        return self.dtype.kind == "f" and (self.dtype.itemsize == 4 or 128 * min(self.shape) > PANEL_CACHE)

    @property
    def gram_pairs(self) -> float:
        """Pairs of stored entries in a row, each once."""
        return float(np.sum(np.diff(self.X.indptr).astype(np.float64) ** 2) / 2)

    def blocks(self) -> list[Rows]:
        """Rows cut so that each block holds about as many entries, and its sums cost less than its products."""
        m, n = self.shape
        entries = min(max(ENTRIES, 16 * n), max(self.X.nnz // 8, ENTRIES // 16))
        edges = np.searchsorted(self.X.indptr, np.arange(entries, self.X.nnz, entries))
        edges = np.unique(np.concatenate([[0], edges[edges < m], [m]]))
        return [(int(lo), int(hi)) for lo, hi in pairwise(edges)]

    def block(self, rows: Rows) -> tuple[CSR, Rows]:
        """A matrix that the kernels take, and where in it these rows are."""
        if self.ready is not None:
            return self.ready, rows
        # Small integers are exact in single precision, where products are faster.
        small = self.full is None and self.X.dtype.itemsize <= 2
        return self._made(rows, np.dtype(np.float32) if small else self._held), (0, rows[1] - rows[0])

    @property
    def _held(self) -> np.dtype[Any]:
        """What the kernels take: the data as they are, or in double precision where full lines are shifted."""
        return self.dtype if self.full is None and self.kind is None else panel_dtype(self.dtype)

    def matmat(self, V: Panel) -> Panel:
        """``A V``."""
        if self._apart(V):
            return _joined(self.matmat(_apart(V)))
        P = self.kernels.panel(V, np.float64)
        C = self.outside.R.conj().T @ V
        Y = np.empty((self.shape[0], V.shape[1]), panel_dtype(np.result_type(self.dtype, V)))

        def part(rows: Rows) -> None:
            X, place = self.block(rows)
            self.kernels.gather(X, place, P, Y[rows[0] : rows[1]])
            _subtract_product(Y[rows[0] : rows[1]], self.outside.L[rows[0] : rows[1]], C)

        for _ in self._each(part):
            pass
        return Y

    def rmatmat(self, W: Panel) -> Panel:
        """``A^H W``."""
        if self._apart(W):
            return _joined(self.rmatmat(_apart(W)))
        Z = np.empty((self.shape[1], W.shape[1]), panel_dtype(np.result_type(self.dtype, W)))
        at_once = max(16, ACCUMULATOR // (8 * self.shape[1]))
        for lo in range(0, W.shape[1], at_once):
            part = W[:, lo : lo + at_once]

            def scattered(rows: Rows, part: Panel = part) -> Groups:
                X, place = self.block(rows)
                return self.kernels.scatter(X, place, part[rows[0] : rows[1]], np.float64)

            (Z[:, lo : lo + at_once],) = self._totals((values,) for _, values in self._each(scattered))
        _subtract_product(Z, self.outside.R, self.outside.L.conj().T @ W)
        return Z

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        """``A^H diag(weights) A V`` in one pass, in the precision of V."""
        if self._apart(V):
            return _joined(self.gram(_apart(V), weights))
        single = V.dtype == np.float32 and self.dtype.kind == "f"
        P = self.kernels.panel(V, np.float32 if single else np.float64)
        C = self.kernels.panel(self.outside.R.conj().T @ V, P.flat.dtype)

        def part(rows: Rows) -> tuple[Groups, Groups]:
            X, place = self.block(rows)
            w = slice_of(weights, rows)
            return self.kernels.gram(X, place, P, w, self.outside.L[rows[0] : rows[1]], C)

        Z, sums = self._totals(values for _, values in self._each(part))
        _subtract_product(Z, self.outside.R, sums)
        return Z

    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        """``A^H diag(weights) A``, formed: one pass over the pairs of stored entries of each row."""
        L, R = self.outside.L, self.outside.R
        wL = L if weights is None else weights[:, None] * L

        def part(rows: Rows) -> Panel:
            X, place = self.block(rows)
            return self.kernels.outer(X, place, slice_of(weights, rows))

        lower: Panel = reduce_in_order(values for _, values in self._each(part))
        G = lower + np.tril(lower, -1).conj().T
        XL = self._replace_shift(None).rmatmat(wL) if self.full is None else self._inside().rmatmat(wL)
        return np.asarray(G - R @ XL.conj().T - XL @ R.conj().T + R @ (L.conj().T @ wL) @ R.conj().T)

    def moments(self, weights: Vector | None = None) -> Moments:
        """Moments of the columns; of a shifted matrix, the mean alone."""
        return super().moments(weights) if self.shift is None else self.mean_alone(weights)

    def row_moments(self, weights: Vector | None = None) -> Moments:
        """Moments of the rows; of a shifted matrix, the mean alone."""
        return super().row_moments(weights) if self.shift is None else Operator.row_moments(self, weights)

    def block_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        """Moments of the columns of the stored rows."""
        total = float(rows[1] - rows[0]) if weights is None else float(weights.sum())
        X, place = self.block(rows)
        return Moments(total, *self.kernels.moments(X, place, weights, total))

    def block_row_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        """Moments of the stored rows."""
        total = float(self.shape[1]) if weights is None else float(weights.sum())
        X, place = self.block(rows)
        return Moments(total, *self.kernels.row_moments(X, place, weights, total))

    @unwarned
    def column_squares(self, weights: Vector | None = None) -> Vector:
        """Squared column norms: the stored entries, and what the shift puts everywhere else."""
        known = self.known_squares() if weights is None else None
        if known is not None:
            return known
        L, R = self.outside.L, self.outside.R
        wL = L if weights is None else weights[:, None] * L
        absent = np.einsum("jr,rs,js->j", R.conj(), wL.T @ L.conj(), R).real
        Rt = np.ascontiguousarray(R.conj())

        def part(rows: Rows) -> Vector:
            X, place = self.block(rows)
            w = slice_of(weights, rows)
            return self.kernels.column_squares(X, place, w, L[rows[0] : rows[1]], Rt)

        squares: Vector = absent + reduce_in_order(values for _, values in self._each(part))
        if np.any(squares < CANCELLED * absent):
            w = np.ones(self.shape[0]) if weights is None else weights
            return np.asarray(sum(w[lo : lo + len(B)] @ np.abs(B) ** 2 for lo, B in self._pieces()))
        return squares

    @unwarned
    def row_squares(self, weights: Vector | None = None) -> Vector:
        """Squared row norms: the stored entries, and what the shift puts everywhere else."""
        w = np.ones(self.shape[1]) if weights is None else weights
        L, R = self.outside.L, self.outside.R
        absent = np.einsum("ir,rs,is->i", L, (R.conj().T * w) @ R, L.conj()).real
        squares = absent.copy()
        for i, j, change in self._entry_squares():
            squares += sum_by(i, w[j] * change, self.shape[0])
        if np.any(squares < CANCELLED * absent):
            squares = np.concatenate([np.abs(B) ** 2 @ w for _, B in self._pieces()])
        return np.asarray(squares)

    def column_exponents(self) -> Vector:
        """From the stored entries, and from the shift where it is not inside them."""
        found = self.outside.column_exponents()
        for rows in self.blocks():
            X = self._made(rows, panel_dtype(self.dtype))
            np.maximum.at(found, X.indices, exponents_of(X.data))
        return found

    def row_exponents(self) -> Vector:
        """From the stored entries, and from the shift where it is not inside them."""
        found = self.outside.row_exponents()
        for rows in self.blocks():
            X = self._made(rows, panel_dtype(self.dtype))
            np.maximum.at(found, rows[0] + _coordinates(X)[0], exponents_of(X.data))
        return found

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "SparseRows":
        """The entries are multiplied in the copy that the kernels take, or block by block as they are made."""
        powers = self.powers[0] + rows, self.powers[1] + cols
        return replace(self, shift=self.shift and self.shift.ldexp(rows, cols), memo={}, powers=powers)

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        """Dense blocks of `rows` rows in double precision, one alive at a time."""
        for lo, hi in cut(self.shape[0], rows):
            yield lo, self._dense((lo, hi))

    def dense_pieces(self, rows: Rows) -> Iterator[tuple[int, Panel]]:
        """Dense pieces of a block, one alive at a time."""
        for lo, hi in cut(rows[1] - rows[0], PIECE // self.shape[1]):
            yield rows[0] + lo, self._dense((rows[0] + lo, rows[0] + hi))

    def _pieces(self) -> Iterator[tuple[int, Panel]]:
        """All rows in dense pieces, for squares that products cannot tell from 0."""
        return self.dense_pieces((0, self.shape[0]))

    def _dense(self, rows: Rows) -> Panel:
        """These rows, shifted, in double precision."""
        X = self._stored(rows)
        block = np.zeros(X.shape, panel_dtype(self.dtype))
        block[_coordinates(X)] = X.data
        if self.shift is not None:
            block -= self.shift.rows(*rows)
        return block

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        """Dense blocks of rows of the adjoint, which is sorted by columns once."""
        return self._adjoint(self.X, self.shift, self.inside, self.powers).row_blocks(columns)

    def transposed(self, passes: float) -> "SparseRows | None":
        """The adjoint sorted by its own rows, where that pays back and the memory allows a second copy."""
        if passes < SORT_PASSES or not spare(self._bytes_the_other_way, self.memory_limit):
            return None
        if self.full is None or self.ready is None:
            return self._adjoint(self.X, self.shift, self.inside, self.powers)
        return self._adjoint(self.ready, self.outside, inside=True)  # full lines need not be shifted again

    def _adjoint(self, X: CSR, shift: LowRank | None, inside: bool, powers: Powers = (0, 0)) -> "SparseRows":
        """The adjoint of X minus its shift, sorted by its own rows."""
        X = X.conj() if X.dtype.kind == "c" else X
        X, shift, kind = csr_array(X.T.tocsr()), shift and shift.H, self.dtype if inside else self.kind
        changes = {"X": X, "shift": shift, "inside": inside, "kind": kind, "powers": powers[::-1]}
        return replace(self, memo={}, full_columns=None, **changes)

    def with_shift(self, shift: LowRank) -> "SparseRows":
        """The shift stays implicit, except inside full rows and columns."""
        return self._replace_shift(shift.merge(self.shift))

    def _replace_shift(self, shift: LowRank | None) -> "SparseRows":
        return replace(self, shift=shift, inside=False)

    def _full_lines(self) -> tuple[Vector, Vector] | None:
        """Masks of the rows and the columns that are nearly full; None if there are none."""
        m, n = self.shape
        rows = np.diff(self.X.indptr) > FULL * n
        columns = self._stored_by_column() > FULL * m if self.full_columns is None else self.full_columns
        return (rows, columns) if rows.any() or columns.any() else None

    def _stored_by_column(self) -> Vector:
        """How many entries each column stores."""
        if self.X.nnz <= FULL * self.shape[0]:
            return np.zeros(self.shape[1])  # not enough for one full column

        def part(rows: Rows) -> Vector:
            return best.column_counts(self.X, rows)

        return np.asarray(reduce_in_order(values for _, values in self._each(part)))

    def _missing(self) -> CSR:
        """Minus the shift at the entries of full rows and columns that are not stored."""
        assert self.full is not None
        full_rows, full_columns = self.full

        def part(rows: Rows) -> list[tuple[Vector, Vector]]:
            lo, hi = rows
            i, j = _coordinates(take_rows(self.X, lo, hi))
            of_columns = _absent(i, j, np.arange(hi - lo), full_columns)
            of_rows = _absent(i, j, np.flatnonzero(full_rows[lo:hi]), ~full_columns)
            return [(lo + i, j) for i, j in (of_columns, of_rows)]

        places = [place for both in ordered(part, self.blocks(), self.n_threads) for place in both]
        i, j = (np.concatenate(side) for side in zip(*places, strict=True))
        return csr_array(coo_array((-_entries(self.shift, i, j), (i, j)), shape=self.shape))

    def _entry_squares(self) -> Iterator[tuple[Vector, Vector, Vector]]:
        """(row, column, what the entry adds to the square of the implicit shift there), block by block."""
        for rows in self.blocks():
            X = self._made(rows, panel_dtype(self.dtype))
            i, j = _coordinates(X)
            i = rows[0] + i
            x = X.data.astype(panel_dtype(X.dtype), copy=False)
            with np.errstate(over="ignore", invalid="ignore"):
                change = np.abs(x) ** 2 - 2 * (x.conj() * _entries(self.outside, i, j)).real
            yield i, j, change

    def _ready(self) -> CSR | None:
        """The matrix for the kernels: X itself, or one copy with its full lines shifted if the memory allows it."""
        if self.full is None and not self._multiplied:
            return self.X if self.X.dtype.kind in "fc" else None
        nnz = self.X.nnz + (0 if self.missing is None else self.missing.nnz)
        if not spare(nnz * (self._held.itemsize + self.X.indices.itemsize), self.memory_limit):
            return None
        indptr = self.X.indptr if self.missing is None else self.X.indptr + self.missing.indptr
        data, indices = np.empty(nnz, self._held), np.empty(nnz, self.X.indices.dtype)

        def part(rows: Rows) -> None:
            made, where = self._made(rows, self._held), slice(indptr[rows[0]], indptr[rows[1]])
            data[where], indices[where] = made.data, made.indices

        for _ in ordered(part, self.blocks(), self.n_threads):
            pass
        return csr_array((data, indices, indptr), shape=self.shape)

    def _made(self, rows: Rows, dtype: np.dtype[Any]) -> CSR:
        """These rows in `dtype`, full lines shifted in double precision."""
        X = self._stored(rows)
        if self.full is None:
            return csr_array((X.data.astype(dtype, copy=False), X.indices, X.indptr), shape=X.shape)
        full_rows, full_columns = self.full
        i, j = _coordinates(X)
        inside = full_rows[rows[0] + i] | full_columns[j]
        data = X.data.astype(panel_dtype(self.dtype))
        data[inside] -= _entries(self.shift, rows[0] + i[inside], j[inside])
        if self.missing is None:
            return csr_array((data.astype(dtype, copy=False), X.indices, X.indptr), shape=X.shape)
        more = take_rows(self.missing, *rows)
        above, beside = _coordinates(more)
        place = np.searchsorted(i * X.shape[1] + j, above * X.shape[1] + beside)  # rows are sorted
        indptr = X.indptr + more.indptr
        data = np.insert(data.astype(dtype, copy=False), place, more.data.astype(dtype, copy=False))
        return csr_array((data, np.insert(j, place, beside), indptr), shape=X.shape)

    @property
    def _multiplied(self) -> bool:
        """Whether the entries are to be multiplied by powers of two."""
        return any(np.any(e) for e in self.powers)

    def _stored(self, rows: Rows) -> CSR:
        """The stored entries of these rows."""
        X, (e, f) = take_rows(self.X, *rows), self.powers
        return times_sparse(X, part_of(e, slice(*rows)), f) if self._multiplied else X

    def _inside(self) -> "SparseRows":
        """The stored entries with full lines shifted, as an operator of its own."""
        X = self._made((0, self.shape[0]), self._held) if self.ready is None else self.ready
        return replace(self, X=X, shift=None, memo={}, powers=(0, 0), kind=self.dtype)

    def _totals(self, parts: Iterator[tuple[Groups, ...]]) -> list[Panel]:
        """The sums of panels in their order, in double precision."""
        first = next(parts)
        totals = [part.flat.astype(np.result_type(part.flat, np.float64), copy=False) for part in first]
        for values in parts:
            for total, part in zip(totals, values, strict=True):
                self.kernels.add(part.flat, total)
        return [part.empty_like(total).join() for part, total in zip(first, totals, strict=True)]

    def _apart(self, V: Panel) -> bool:
        """Whether real kernels meet a complex panel."""
        return np.iscomplexobj(V) and self.dtype.kind != "c"


def inspected(X: CSR, n_threads: int) -> tuple[bool, bool]:
    """Whether all stored values of a sound CSR are finite, and whether each row is sorted without duplicates."""
    kernels = best if X.dtype.char in "fd" else twin
    step = max(1, X.shape[0] // max(1, X.nnz // ENTRIES))
    parts = list(ordered(lambda rows: kernels.inspect(X, rows), cut(X.shape[0], step), n_threads))
    return not any(n_nan or n_inf for n_nan, n_inf, *_ in parts), all(part[-1] for part in parts)


def sorted_rows(X: CSR, n_threads: int) -> CSR:
    """A copy of a sound CSR whose rows are sorted and without duplicates."""
    X = X.copy()

    def part(rows: Rows) -> None:
        block = take_rows(X, *rows)
        block.has_sorted_indices = False
        block.sort_indices()

    step = max(1, X.shape[0] // max(1, X.nnz // ENTRIES))
    for _ in ordered(part, cut(X.shape[0], step), n_threads):
        pass
    X.has_sorted_indices = True
    X.sum_duplicates()
    return X


def _none(shape: tuple[int, int]) -> LowRank:
    """A shift of rank 0."""
    return LowRank(np.zeros((shape[0], 0)), np.zeros((shape[1], 0)))


def _contiguous(S: LowRank) -> LowRank:
    """The same shift, its factors by rows as the kernels read them."""
    return LowRank(np.ascontiguousarray(S.L), np.ascontiguousarray(S.R))


def _apart(V: Panel) -> Panel:
    """The real and imaginary columns of a complex panel, side by side."""
    V = np.ascontiguousarray(V, np.complex128)
    return V.view(np.float64)


def _joined(V: Panel) -> Panel:
    """The complex panel of such columns."""
    return np.ascontiguousarray(V).view(np.complex128)


def reduce_in_order(parts: Iterator[Any]) -> Any:
    """The sum of arrays, in their order and in place of the first."""
    total = next(parts)
    for values in parts:
        total += values
    return total


def _subtract_product(Y: Panel, L: Panel, C: Panel) -> None:
    """``Y -= L C`` part by part: a panel on the long side is not held twice."""
    if not L.shape[1]:
        return
    step = max(1, 2**18 // max(Y.shape[1], 1))
    for lo in range(0, len(Y), step):
        Y[lo : lo + step] -= L[lo : lo + step] @ C


def _coordinates(X: CSR) -> tuple[Vector, Vector]:
    """Row and column of every stored entry."""
    return np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), X.indices


def _absent(i: Vector, j: Vector, rows: Vector, columns: Vector) -> tuple[Vector, Vector]:
    """Where these rows meet the columns of this mask and nothing is stored, given the places (i, j) that are."""
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


def _entries(S: LowRank | None, i: Vector, j: Vector) -> Vector:
    """Entries of a low-rank matrix."""
    assert S is not None
    entries = np.zeros(len(i), np.result_type(S.L, S.R))
    for r in range(S.L.shape[1]):
        entries += S.L[i, r] * S.R[j, r].conj()
    return entries
