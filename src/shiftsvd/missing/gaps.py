"""Matrices with missing entries, which a low-rank matrix replaces without a copy of the observed entries."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, ClassVar, cast

import numpy as np
from scipy.sparse import csr_array, issparse

from shiftsvd.backends import Incomplete, validation
from shiftsvd.backends.blocked import Rows, cut, exhaust
from shiftsvd.backends.dense import BLOCK, DenseRows, native_dtype
from shiftsvd.backends.device import arrays_of
from shiftsvd.backends.files import DiskRows
from shiftsvd.backends.source import Changed, RowSource
from shiftsvd.backends.sparse import SparseRows, adjoint_of, by_rows, coordinates, with_data
from shiftsvd.errors import Refused, Setting
from shiftsvd.kernels import default_threads, kernels_for, ordered
from shiftsvd.kernels.twin import CSR, csr_of, take_rows
from shiftsvd.numerics.digests import told
from shiftsvd.numerics.moments import Moments, from_raw, merge_zeros, of_observed, weight_of_zeros, weight_parts
from shiftsvd.operators import Adjoint, LowRank, Operator, Panel, Vector
from shiftsvd.runs.memory import affordable, spare

# Share of the observed entries to hold out for choosing a setting, and the largest number, which suffices to
# distinguish any two settings.
TENTH, HIDDEN = 0.1, 100_000
NOTHING = np.zeros(0, np.int64)

Hidden = tuple["Gaps", Vector, Vector, Vector]  # gaps with fewer observed entries; row, column, value of held-out ones
Missing = tuple[Any, float]  # a matrix M and a number c: M + c is 1 at missing entries and 0 elsewhere


class Gaps(ABC):
    """A matrix of shape (m, n) with missing entries.

    `filled` takes a low-rank matrix S and returns the operator ``P_observed(X) + P_missing(S)`` without forming the
    matrix, `residual` returns ``P_observed(X - S)``.
    """

    X: Any  # the container of the entries

    @property
    def shape(self) -> tuple[int, int]:
        m, n = self.X.shape
        return int(m), int(n)

    @property
    def dtype(self) -> np.dtype[Any]:
        return native_dtype(self.X.dtype)

    @property
    def stored(self) -> int:
        return self.shape[0] * self.shape[1]

    @abstractmethod
    def filled(self, S: LowRank) -> Operator: ...

    def residual(self, S: LowRank) -> Operator:
        return self.filled(S) - S

    @abstractmethod
    def times(self, w: Vector) -> "Gaps": ...  # columns times w

    @abstractmethod
    def absent(self, W: Panel, rows: Rows) -> Panel: ...

    @abstractmethod
    def absent_below(self, w: Vector) -> Vector: ...

    @abstractmethod
    def observed_moments(self, w: Vector) -> Moments: ...

    @abstractmethod
    def hide(self, rng: np.random.Generator, share: float = TENTH) -> Hidden: ...

    def row_blocks(self, width: int = 1) -> list[Rows]:
        m = self.shape[0]
        return cut(m, min(BLOCK // max(width, 1), m * BLOCK // max(self.stored, 1)))

    def observed(self) -> tuple[Vector, Vector]:
        ones = np.ones((self.shape[1], 1))
        absent = [self.absent(ones, rows)[:, 0] for rows in self.row_blocks()]
        return self.shape[1] - np.concatenate(absent), self.shape[0] - self.absent_below(np.ones(self.shape[0]))

    def n_missing(self) -> int:
        return round(float(self.absent_below(np.ones(self.shape[0])).sum()))

    def moments(self, weights: Vector | None = None) -> Moments:
        m = self.shape[0]
        moments = self.observed_moments(np.ones(m) if weights is None else weights)
        nothing = np.flatnonzero(~(np.asarray(moments.count) > 0))
        if len(nothing):
            columns = np.stack([nothing, np.full_like(nothing, m)])
            raise validation.NotFinite(
                validation.BadValues(m * len(nothing), 0, columns[:, :0], columns, gaps=True, nothing_else=True)
            )
        return moments


class HeldGaps(Gaps):
    """Gaps of a matrix in memory or of Dask, in which more entries can be held out without changing the matrix."""

    def draw(self, rng: np.random.Generator, share: float) -> tuple[Vector, Vector]:
        m, n = self.shape
        return np.divmod(np.unique(rng.integers(0, m * n, min(int(m * n * share), HIDDEN))), n)

    @abstractmethod
    def at(self, i: Vector, j: Vector) -> Vector: ...

    @abstractmethod
    def without(self, i: Vector, j: Vector) -> Gaps: ...

    def hide(self, rng: np.random.Generator, share: float = TENTH) -> Hidden:
        i, j = self.draw(rng, share)
        x = self.at(i, j)
        there = np.flatnonzero(~is_missing(x))
        kept = there[_spared(i[there], j[there], *self.observed(), rng)]
        i, j = i[kept], j[kept]
        return self.without(i, j), i, j, x[kept]


def _spared(i: Vector, j: Vector, in_row: Vector, in_column: Vector, rng: np.random.Generator) -> Vector:
    order = rng.permutation(len(i))
    kept = np.empty(len(i), bool)
    rows, columns = i[order], j[order]
    kept[order] = (_earlier(rows) < in_row[rows] - 1) & (_earlier(columns) < in_column[columns] - 1)
    return kept


def _earlier(labels: Vector) -> Vector:
    order = np.argsort(labels, kind="stable")
    ascending = labels[order]
    found = np.empty(len(labels), np.int64)
    found[order] = np.arange(len(labels)) - np.searchsorted(ascending, ascending)
    return found


def is_missing(x: Vector) -> Vector:
    return np.isnan(x) if x.dtype.kind in "fc" else np.zeros(x.shape, bool)


class BlockGaps(HeldGaps):
    """Gaps of a matrix in memory, read in blocks of rows."""

    n_threads: int

    @abstractmethod
    def missing(self, rows: Rows) -> Missing: ...

    @abstractmethod
    def block_moments(self, rows: Rows, w: Vector) -> Moments: ...

    def absent(self, W: Panel, rows: Rows) -> Panel:
        M, c = self.missing(rows)
        return np.asarray(c * W.sum(axis=0) + M @ W)

    def absent_below(self, w: Vector) -> Vector:
        found: Any = 0.0
        for lo, hi in self.row_blocks():
            M, c = self.missing((lo, hi))
            found = found + (c * w[lo:hi].sum() + M.T @ w[lo:hi])
        return np.asarray(found)

    def observed_moments(self, w: Vector) -> Moments:
        parts = ordered(lambda rows: self.block_moments(rows, w[slice(*rows)]), self.row_blocks(), self.n_threads)
        return reduce(Moments.merge, parts)


@dataclass(frozen=True, eq=False)
class ArrayGaps(BlockGaps):
    """An array with NaN for missing entries; the entries (i, j) of `holes`, sorted by rows, are missing as well."""

    X: Panel
    n_threads: int = 1
    holes: tuple[Vector, Vector] = (NOTHING, NOTHING)
    memory_limit: int | str | None = None

    @cached_property
    def T(self) -> "ArrayGaps":
        return replace(self, X=self.X.T, holes=(NOTHING, NOTHING)).without(*self.holes[::-1])

    def rows(self, lo: int, hi: int) -> Panel:
        block, holes = self.X[lo:hi], self.holes_of(lo, hi)
        if len(holes[0]):
            block = block.copy()
            block[holes] = np.nan
        return block

    def holes_of(self, lo: int, hi: int) -> tuple[Vector, Vector]:
        own = slice(*np.searchsorted(self.holes[0], [lo, hi]))
        return self.holes[0][own] - lo, self.holes[1][own]

    def filled(self, S: LowRank) -> Operator:
        return self._operator(Patched(self, S))

    def residual(self, S: LowRank) -> Operator:
        # A step of a completion multiplies by these numbers several times: form them once if there is memory for them,
        # for a block of S and a copy of X that the caller may have made.
        return self._operator(Off(self, S), spare(3 * self.stored * self.dtype.itemsize, self.memory_limit))

    def times(self, w: Vector) -> "ArrayGaps":
        return replace(self, X=self.X * w.astype(self.dtype))

    def _operator(self, X: "Patched", formed: bool = False) -> Operator:
        long, conjugate = self.shape[0] >= self.shape[1], self.dtype.kind == "c"
        rows = X if long else X.T
        A = DenseRows(cast("Panel", rows), conjugate=conjugate and not long, n_threads=self.n_threads)
        if formed:  # by the blocks of the products, so that the bits do not depend on the memory
            E = np.empty_like(self.X if long else self.X.T, self.dtype)  # in the same order, which is faster
            exhaust(ordered(lambda at: rows.read(*at, E[slice(*at)]), A.blocks(), self.n_threads))
            A = replace(A, X=E, memo={"fingerprint": None})
        return A if long else Adjoint(A)

    def missing(self, rows: Rows) -> Missing:
        return is_missing(self.rows(*rows)), 0.0

    def block_moments(self, rows: Rows, w: Vector) -> Moments:
        return of_observed(self.rows(*rows).astype(self.dtype, copy=False), w)

    def at(self, i: Vector, j: Vector) -> Vector:
        n = self.shape[1]
        hidden = np.isin(i * n + j, self.holes[0] * n + self.holes[1])
        return np.where(hidden, np.nan, self.X[i, j]).astype(self.X.dtype)

    def without(self, i: Vector, j: Vector) -> "ArrayGaps":
        i, j = np.r_[self.holes[0], i], np.r_[self.holes[1], j]
        by_row = np.argsort(i, kind="stable")
        return replace(self, holes=(i[by_row], j[by_row]))


class Patched:
    """Array for `DenseRows` whose slices of rows have NaN replaced, in double precision."""

    def __init__(self, gaps: ArrayGaps, S: LowRank) -> None:
        self.gaps, self.S = gaps, S
        self.shape, self.dtype = gaps.X.shape, gaps.X.dtype

    @property
    def T(self) -> "Patched":
        return type(self)(self.gaps.T, LowRank(self.S.R.conj(), self.S.L.conj()))

    def __getitem__(self, rows: slice) -> Panel:
        return self.read(*rows.indices(self.shape[0])[:2])

    def read(self, lo: int, hi: int, out: Panel | None = None) -> Panel:
        block = self.gaps.rows(lo, hi)
        gap = is_missing(block)
        if not gap.any():
            return block
        filled = self.model(lo, hi, out)
        np.copyto(filled, block, where=~gap)
        return filled

    def model(self, lo: int, hi: int, out: Panel | None = None) -> Panel:
        # Form whole rows of S: BLAS is faster than locating the few missing entries.
        kind, block = np.result_type(self.dtype, self.S.dtype), self.gaps.X[lo:hi]
        if out is None or out.dtype != kind:
            out = np.empty_like(block, kind)
        return np.matmul(self.S.L[lo:hi], self.S.R.conj().T, out=out)


class Off(Patched):
    """Array for `DenseRows` whose slices of rows are those of X - S, and 0 at missing entries."""

    def read(self, lo: int, hi: int, out: Panel | None = None) -> Panel:
        off = self.model(lo, hi, out)
        np.subtract(self.gaps.X[lo:hi], off, out=off)
        np.copyto(off, 0, where=np.isnan(off))
        off[self.gaps.holes_of(lo, hi)] = 0
        if out is not None and out is not off:
            out[:] = off
        return off


@dataclass(frozen=True, eq=False)
class SparseGaps(BlockGaps):
    """A CSR with stored NaN for missing entries."""

    X: CSR
    n_threads: int = 1
    memory_limit: int | str | None = None
    unstored: ClassVar[float]  # 1 if entries that are not stored are missing, 0 if they are zeros

    @property
    def stored(self) -> int:
        return int(self.X.nnz)

    def missing(self, rows: Rows) -> Missing:
        X = take_rows(self.X, *rows)
        return csr_of(is_missing(X.data) - self.unstored, X.indices, X.indptr, X.shape), self.unstored

    def block_moments(self, rows: Rows, w: Vector) -> Moments:
        kernels, X, m = kernels_for(self.dtype), take_rows(self.X, *rows), rows[1] - rows[0]
        seen, parts = _without_gaps(X), weight_parts(w)
        found = kernels.moments(seen, (0, m), parts)
        if self.unstored:
            return from_raw(found)
        stored = found[0] if seen is X else kernels.moments(X, (0, m), parts)[0]
        return merge_zeros(from_raw(found), weight_of_zeros(parts, m, stored))

    def at(self, i: Vector, j: Vector) -> Vector:
        return _at(self.X, i, j)

    def times(self, w: Vector) -> "SparseGaps":
        return replace(self, X=with_data(self.X, self.X.data * w.astype(self.dtype)[self.X.indices]))

    def _operator(self, data: Vector) -> SparseRows:
        return SparseRows(with_data(self.X, data), n_threads=self.n_threads, memory_limit=self.memory_limit)

    def _row_of(self, places: Vector) -> Vector:
        return np.searchsorted(self.X.indptr, places, side="right") - 1


def _without_gaps(X: CSR) -> CSR:
    seen = ~is_missing(X.data)
    if seen.all():
        return X
    indptr = np.concatenate([[0], np.cumsum(seen)]).astype(X.indptr.dtype)[X.indptr]
    return csr_array((X.data[seen], X.indices[seen], indptr), shape=X.shape, copy=False)


def _at(X: CSR, i: Vector, j: Vector) -> Vector:
    return np.asarray(X[i, j]).ravel() if len(i) else np.empty(0, X.dtype)


@dataclass(frozen=True, eq=False)
class StoredGaps(SparseGaps):
    """Entries that are not stored are observed zeros."""

    unstored: ClassVar[float] = 0.0

    def without(self, i: Vector, j: Vector) -> "StoredGaps":
        gone = csr_array((np.full(len(i), np.nan, self.X.dtype), (i, j)), shape=self.shape)
        return replace(self, X=csr_array(self.X + gone))

    def filled(self, S: LowRank) -> Operator:
        return replace(self._operator(self.patched(S)), kind=self.dtype)

    def patched(self, S: LowRank) -> Vector:
        data: Vector = self.X.data
        gaps = np.flatnonzero(is_missing(data))
        if len(gaps):
            dtype = np.result_type(data, S.dtype)
            needed = len(data) * dtype.itemsize
            affordable(needed, self.memory_limit, "filling the missing entries of a sparse matrix")
            data = data.astype(dtype)
            data[gaps] = S.at(self._row_of(gaps), self.X.indices[gaps])
        return data


@dataclass(frozen=True, eq=False)
class UnstoredGaps(SparseGaps):
    """Entries that are not stored are missing, as in ratings."""

    unstored: ClassVar[float] = 1.0

    def draw(self, rng: np.random.Generator, share: float) -> tuple[Vector, Vector]:
        there = np.flatnonzero(~is_missing(self.X.data))
        places = np.sort(rng.choice(there, min(int(len(there) * share), HIDDEN), replace=False))
        return self._row_of(places), self.X.indices[places]

    def without(self, i: Vector, j: Vector) -> "UnstoredGaps":
        data = self.X.data.copy()
        data[_at(with_data(self.X, np.arange(self.X.nnz)), i, j)] = np.nan
        return replace(self, X=with_data(self.X, data))

    def filled(self, S: LowRank) -> Operator:
        return self.residual(S) - LowRank(-S.L, S.R)

    def residual(self, S: LowRank) -> Operator:
        residuals = np.empty(self.X.nnz, np.result_type(self.X.dtype, S.dtype))
        S = by_rows(S)

        def part(rows: Rows) -> None:
            places = slice(self.X.indptr[rows[0]], self.X.indptr[rows[1]])
            i, j = coordinates(take_rows(self.X, *rows))
            off = self.X.data[places] - S.at(rows[0] + i, j)
            residuals[places] = np.where(is_missing(off), 0, off)

        exhaust(ordered(part, self.row_blocks(), self.n_threads))
        return self._operator(residuals)


@dataclass(frozen=True, eq=False)
class FileGaps(Gaps):
    """A matrix in a file with NaN for missing entries; entries that are not stored are 0."""

    X: DiskRows

    @property
    def stored(self) -> int:
        return self.X.source.stored

    def filled(self, S: LowRank) -> Operator:
        return replace(self.X, source=PatchedSource(self.X.source, S), memo={})

    def times(self, w: Vector) -> "FileGaps":
        return FileGaps(replace(self.X, source=WeightedSource(self.X.source, w), memo={}))

    def absent(self, W: Panel, rows: Rows) -> Panel:
        return rows_with_gaps(self.X.source, *rows).absent(W, (0, rows[1] - rows[0]))

    def absent_below(self, w: Vector) -> Vector:
        parts = (rows_with_gaps(self.X.source, *rows).absent_below(w[slice(*rows)]) for rows in self.X.blocks())
        return np.asarray(sum(parts))

    def observed_moments(self, w: Vector) -> Moments:
        parts = self.X._each(lambda rows: rows_with_gaps(self.X.source, *rows).observed_moments(w[slice(*rows)]))
        merged: Moments = reduce(Moments.merge, (part for _, part in parts))
        return merged

    def row_blocks(self, width: int = 1) -> list[Rows]:
        return self.X.blocks()

    def hide(self, rng: np.random.Generator, share: float = TENTH) -> Hidden:
        raise Refused(
            *(Setting("penalty", "auto"), f" requires a matrix in memory, got {self.X.source.name}. Pass a number as "),
            *(Setting("penalty"), ", or use ", Setting("missing", "mean"), "."),
        )


class PatchedSource(Changed):
    """A file with missing entries replaced by those of a low-rank matrix."""

    def __init__(self, source: RowSource, S: LowRank) -> None:
        super().__init__(source, f"filled {told((S.L, S.R))}")  # cached reads are not used with another S
        self.S = S

    def read(self, lo: int, hi: int) -> Any:
        gaps, S = rows_with_gaps(self.source, lo, hi), LowRank(self.S.L[lo:hi], self.S.R)
        if isinstance(gaps, ArrayGaps):
            return Patched(gaps, S)[:]
        gaps.X.data = gaps.patched(S)
        return gaps.X


class WeightedSource(Changed):
    """A file with missing entries, its columns times w."""

    def __init__(self, source: RowSource, w: Vector) -> None:
        super().__init__(source, f"times {told(w)}")
        self.w = w

    def read(self, lo: int, hi: int) -> Any:
        return rows_with_gaps(self.source, lo, hi).times(self.w).X


def rows_with_gaps(source: RowSource, lo: int, hi: int) -> ArrayGaps | StoredGaps:
    X = source.read(lo, hi)
    if not isinstance(X, csr_array):
        return ArrayGaps(X)
    try:
        validation.sound_structure(X)
    except ValueError as error:
        raise ValueError(f"{source.name}, rows {lo} to {hi}: {error}") from None
    return StoredGaps(X)


Observed = Operator | Gaps  # a matrix, with missing entries if something is to replace them


def gaps_of(
    X: Any, unobserved: bool = False, n_threads: int | None = None, memory_limit: int | str | None = None
) -> Gaps:
    if isinstance(X, Gaps):
        return X
    X = _in_memory(X)
    threads = n_threads or default_threads()
    if isinstance(X, DiskRows) and not unobserved and X.shift is None:
        return FileGaps(X)
    if validation.is_frame(X):
        with validation.named(X.columns):
            return gaps_of(validation.from_frame(X), unobserved, n_threads, memory_limit)
    if issparse(X):
        C, by_columns = validation.canonical(X, threads, memory_limit, allow_nan=True)
        if by_columns:
            affordable(C.nnz * (C.dtype.itemsize + C.indices.itemsize), memory_limit, "converting CSC to CSR")
            C = adjoint_of(C)
        return UnstoredGaps(C, threads, memory_limit) if unobserved else StoredGaps(C, threads, memory_limit)
    if unobserved:
        must = Setting("unobserved", True), " requires a sparse matrix in memory, got "
        if isinstance(X, Operator) and X.costs.file_bytes:
            load = "a file that is read in blocks. Load it, with ", Setting("stream", False), " in open_matrix."
            raise Refused(*must, *load)
        raise Refused(*must, "a dense one. Mark missing entries by NaN.")
    if isinstance(X, Adjoint) and isinstance(X.A, DiskRows):
        raise Refused(
            f"{X.A.source.name} is read in blocks of columns, and missing entries need rows. Pass ",
            *(Setting("stream", False), " to open_matrix, or write the file with samples as rows."),
        )
    if hasattr(X, "rmatmat") or type(X).__module__.partition(".")[0] == "dask" or arrays_of(X) is not None:
        kinds = "an array in memory, a sparse matrix or a file opened by open_matrix"
        remedy = "In a Dask array, replace missing entries with da.where(da.isnan(X), da.nanmean(X, axis=0), X)."
        raise TypeError(f"a matrix with missing entries must be {kinds}, got {X}. {remedy}")
    X = _in_floats(validation.numeric_array(with_nan(X)))
    validation.finite_dense(X, allow_nan=True)
    return ArrayGaps(X, threads, memory_limit=memory_limit)


def _in_memory(A: Any) -> Any:
    """Return the array or sparse matrix of an operator that `open_matrix` read into memory, else the argument."""
    if isinstance(A, Adjoint):
        X = _in_memory(A.A)
        return A if isinstance(X, Operator) else X.conj().T
    if isinstance(A, Incomplete) or (isinstance(A, SparseRows) and A.shift is None and A.powers == (0, 0)):
        return A.X
    if isinstance(A, DenseRows) and A.shift is None:
        return A.X.conj() if A.conjugate else A.X
    return A


def with_nan(X: Any) -> Any:
    return _in_floats(X).filled(np.nan) if isinstance(X, np.ma.MaskedArray) else X


def _in_floats(X: Any) -> Any:
    return X if X.dtype.kind in "fc" else X.astype(np.float64)
