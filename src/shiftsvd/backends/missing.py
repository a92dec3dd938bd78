"""Matrices with missing entries: what is observed stays where it is, and a low-rank matrix stands for the rest."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, cast

import numpy as np
from scipy.sparse import csr_array, issparse

from shiftsvd.backends.array import BLOCK, DenseRows, native_dtype
from shiftsvd.backends.blocked import Rows, cut
from shiftsvd.backends.checks import from_frame, is_frame, numeric_array, sound_structure
from shiftsvd.backends.disk import DiskRows
from shiftsvd.backends.memory import affordable
from shiftsvd.backends.source import RowSource
from shiftsvd.backends.sparse import SparseRows
from shiftsvd.kernels import default_threads, ordered
from shiftsvd.kernels.twin import CSR, take_rows
from shiftsvd.moments import Moments, Vector
from shiftsvd.operators import Adjoint, LowRank, Operator, Panel

# Entries that a low-rank matrix is computed at in one go: the gathered rows of its factors stay in cache.
ENTRIES = 2**15
# Observed entries that are kept back to choose a setting: a tenth of them, and no more than tell two settings apart.
HIDDEN = 100_000

Hidden = tuple["Gaps", Vector, Vector, Vector]  # fewer observed entries; row, column and value of the others


class Gaps(ABC):
    """A matrix of shape (m, n) of which some entries are missing.

    It is no operator before it is said what stands for them: `filled` takes a low-rank matrix S and gives
    ``P_observed(X) + P_missing(S)``, without forming it.
    """

    shape: tuple[int, int]

    @abstractmethod
    def filled(self, S: LowRank) -> Operator:
        """The observed entries, and those of S where there are none."""

    @abstractmethod
    def absent(self, W: Panel, rows: Rows) -> Panel:
        """``M[rows] W`` of shape (hi - lo, p), where M is 1 at the missing entries and 0 elsewhere."""

    @abstractmethod
    def absent_below(self, w: Vector) -> Vector:
        """``M^T w`` of shape (n,)."""

    @abstractmethod
    def hide(self, rng: np.random.Generator) -> Hidden:
        """The same matrix with some observed entries taken out, and these."""

    def row_blocks(self, width: int = 1) -> list[Rows]:
        """Ranges of rows that a panel of so many columns stays small on."""
        return cut(self.shape[0], BLOCK // width)

    def observed(self) -> tuple[Vector, Vector]:
        """How many entries of each row and of each column are observed."""
        ones = np.ones((self.shape[1], 1))
        absent = [self.absent(ones, rows)[:, 0] for rows in self.row_blocks()]
        return self.shape[1] - np.concatenate(absent), self.shape[0] - self.absent_below(np.ones(self.shape[0]))

    def moments(self, weights: Vector | None = None) -> Moments:
        """Moments of the observed entries of each column; `count` has one entry a column. Two passes."""
        m, n = self.shape
        w = np.ones(m) if weights is None else weights
        total = float(w.sum())
        count = total - self.absent_below(w)
        if not np.all(count > 0):
            raise ValueError(_nothing_observed("columns", np.flatnonzero(~(count > 0))))
        mean = self.filled(_constant(np.zeros(n), m)).moments(weights).mean * (total / count)
        # Squares about the means: what stands for a missing entry adds nothing to them.
        A = self.filled(_constant(mean, m))
        off = A.moments(weights)
        # Of residuals beside a shift the stored part is what is left of the observed entries.
        M2 = A.unshifted()[0].column_squares(weights) if off.M2 is None else off.M2
        # Means are rounded as sums over all rows are, however few entries of a column are observed.
        constant = M2 <= count * (m * np.finfo(np.float64).eps * np.abs(mean)) ** 2
        return Moments(cast("float", count), mean, np.where(constant, 0, M2))


@dataclass(frozen=True, eq=False)
class DenseGaps(Gaps):
    """An array in which NaN is a missing entry; filled block by block, as it is read."""

    X: Panel
    n_threads: int = 1

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """(m, n)."""
        return self.X.shape

    def filled(self, S: LowRank) -> Operator:
        """The array with its long side as the rows of the blocks."""
        X = Patched(self.X, S)
        if self.shape[0] >= self.shape[1]:
            return DenseRows(cast("Panel", X), n_threads=self.n_threads)
        conjugate = self.X.dtype.kind == "c"
        return Adjoint(DenseRows(cast("Panel", X.T), conjugate=conjugate, n_threads=self.n_threads))

    def absent(self, W: Panel, rows: Rows) -> Panel:
        """By the NaN of the rows."""
        return np.asarray(np.isnan(self.X[slice(*rows)]) @ W)

    def absent_below(self, w: Vector) -> Vector:
        """Block by block."""
        return np.asarray(sum(w[lo:hi] @ np.isnan(self.X[lo:hi]) for lo, hi in self.row_blocks()))

    def row_blocks(self, width: int = 1) -> list[Rows]:
        """Rows of the array are as wide as they are."""
        return super().row_blocks(max(width, self.shape[1]))

    def hide(self, rng: np.random.Generator) -> Hidden:
        """A copy with more NaN."""
        m, n = self.shape
        places = np.unique(rng.integers(0, m * n, min(m * n // 10, HIDDEN)))
        i, j = np.divmod(places, n)
        there = ~np.isnan(self.X[i, j])
        i, j = i[there], j[there]
        X = self.X.copy()
        X[i, j] = np.nan
        return replace(self, X=X), i, j, self.X[i, j]


class Patched:
    """What `DenseRows` asks of an array: slices of its rows, in double precision where NaN is replaced."""

    def __init__(self, X: Panel, S: LowRank) -> None:
        self.X, self.S = X, S
        self.shape, self.dtype = X.shape, X.dtype

    @property
    def T(self) -> "Patched":
        """The transpose, a view."""
        return Patched(self.X.T, LowRank(self.S.R.conj(), self.S.L.conj()))

    def __getitem__(self, rows: slice) -> Panel:
        block = self.X[rows]
        if block.dtype.kind not in "fc" or not (gap := np.isnan(block)).any():
            return block
        # Rows of S formed as a block: BLAS is done with them before the places of a few gaps are found.
        out = block.astype(np.result_type(block, self.S.dtype))
        np.copyto(out, self.S.rows(*rows.indices(self.shape[0])[:2]), where=gap)
        return out


@dataclass(frozen=True, eq=False)
class StoredGaps(Gaps):
    """A sparse matrix in which a stored NaN is a missing entry, and what is not stored is 0."""

    X: CSR
    n_threads: int = 1
    memory_limit: int | str | None = None

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """(m, n)."""
        return int(self.X.shape[0]), int(self.X.shape[1])

    def filled(self, S: LowRank) -> Operator:
        """The stored values with those of S among them, rounded to their precision; places are shared."""
        gaps = np.flatnonzero(np.isnan(self.X.data))
        data = self.X.data
        if len(gaps):
            affordable(data.nbytes, self.memory_limit, "filling the missing entries of a sparse matrix")
            data = data.copy()
            data[gaps] = entries(S, self._row_of(gaps), self.X.indices[gaps])
        C = csr_array((data, self.X.indices, self.X.indptr), shape=self.shape, copy=False)
        C.has_canonical_format = True
        return SparseRows(C, n_threads=self.n_threads, memory_limit=self.memory_limit)

    def absent(self, W: Panel, rows: Rows) -> Panel:
        """By the stored NaN of the rows."""
        return np.asarray(_mask(take_rows(self.X, *rows), missing=True) @ W)

    def absent_below(self, w: Vector) -> Vector:
        """By the stored NaN."""
        gaps = np.flatnonzero(np.isnan(self.X.data))
        return np.bincount(self.X.indices[gaps], w[self._row_of(gaps)], self.shape[1])

    def hide(self, rng: np.random.Generator) -> Hidden:
        """More NaN among the stored values."""
        places = _some(np.flatnonzero(~np.isnan(self.X.data)), rng)
        data = self.X.data.copy()
        data[places] = np.nan
        X = csr_array((data, self.X.indices, self.X.indptr), shape=self.shape, copy=False)
        return replace(self, X=X), self._row_of(places), self.X.indices[places], self.X.data[places]

    def _row_of(self, places: Vector) -> Vector:
        """The rows that stored entries are in."""
        return np.searchsorted(self.X.indptr, places, side="right") - 1


@dataclass(frozen=True, eq=False)
class Unstored(Gaps):
    """A sparse matrix whose stored entries are all that is observed: ratings."""

    X: CSR
    n_threads: int = 1
    memory_limit: int | str | None = None

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """(m, n)."""
        return int(self.X.shape[0]), int(self.X.shape[1])

    def filled(self, S: LowRank) -> Operator:
        """``P_observed(X - S) + S``: as many stored residuals as observed entries, plus a product of thin factors."""
        data = np.empty(self.X.nnz, np.result_type(self.X.dtype, S.dtype))
        S = LowRank(np.ascontiguousarray(S.L), np.ascontiguousarray(S.R))

        def part(rows: Rows) -> None:
            places = slice(self.X.indptr[rows[0]], self.X.indptr[rows[1]])
            i = np.repeat(np.arange(*rows), np.diff(self.X.indptr[rows[0] : rows[1] + 1]))
            data[places] = self.X.data[places] - entries(S, i, self.X.indices[places])

        for _ in ordered(part, self._blocks(), self.n_threads):
            pass
        C = csr_array((data, self.X.indices, self.X.indptr), shape=self.shape, copy=False)
        C.has_canonical_format = True
        return SparseRows(C, n_threads=self.n_threads, memory_limit=self.memory_limit) - LowRank(-S.L, S.R)

    def absent(self, W: Panel, rows: Rows) -> Panel:
        """All entries but the stored ones."""
        return np.asarray(W.sum(axis=0) - _mask(take_rows(self.X, *rows), missing=False) @ W)

    def absent_below(self, w: Vector) -> Vector:
        """All entries but the stored ones."""
        there = sum(
            np.bincount(
                self.X.indices[self.X.indptr[lo] : self.X.indptr[hi]],
                np.repeat(w[lo:hi], np.diff(self.X.indptr[lo : hi + 1])),
                self.shape[1],
            )
            for lo, hi in self._blocks()
        )
        return np.asarray(w.sum() - there)

    def hide(self, rng: np.random.Generator) -> Hidden:
        """Fewer stored entries."""
        places = _some(np.arange(self.X.nnz), rng)
        i = np.searchsorted(self.X.indptr, places, side="right") - 1
        keep = np.ones(self.X.nnz, bool)
        keep[places] = False
        indptr = self.X.indptr - np.concatenate([[0], np.cumsum(np.bincount(i, minlength=self.shape[0]))])
        X = csr_array((self.X.data[keep], self.X.indices[keep], indptr), shape=self.shape, copy=False)
        return replace(self, X=X), i, self.X.indices[places], self.X.data[places]

    def _blocks(self) -> list[Rows]:
        """Rows of about `BLOCK` entries together."""
        return cut(self.shape[0], max(1, self.shape[0] * BLOCK // max(self.X.nnz, 1)))


@dataclass(frozen=True, eq=False)
class FileGaps(Gaps):
    """A matrix in a file in which NaN is a missing entry; filled as its rows are read."""

    A: DiskRows

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """(m, n)."""
        return self.A.shape

    def filled(self, S: LowRank) -> Operator:
        """The same file, filled as it is read."""
        return replace(self.A, source=PatchedSource(self.A.source, S), memo={})

    def absent(self, W: Panel, rows: Rows) -> Panel:
        """By the NaN of the rows."""
        X = self.A.source.read(*rows)
        return np.asarray((_mask(X, missing=True) if isinstance(X, csr_array) else np.isnan(X)) @ W)

    def absent_below(self, w: Vector) -> Vector:
        """One read."""
        total = np.zeros(self.shape[1])
        for lo, hi in self.A.blocks():
            X = self.A.source.read(lo, hi)
            gaps = _mask(X, missing=True) if isinstance(X, csr_array) else np.isnan(X).astype(np.float64)
            total += np.asarray(gaps.T @ w[lo:hi])
        return total

    def row_blocks(self, width: int = 1) -> list[Rows]:
        """As the file is cut."""
        return self.A.blocks()

    def hide(self, rng: np.random.Generator) -> Hidden:
        """Files are not changed."""
        raise ValueError(
            f'penalty="auto" needs the matrix in memory, got {self.A.source.name}; give a number, or missing="mean"'
        )


class PatchedSource(RowSource):
    """A file whose missing entries are replaced by those of a low-rank matrix."""

    def __init__(self, source: RowSource, S: LowRank) -> None:
        self.source, self.S = source, S
        self.shape, self.sparse, self.stored, self.name = source.shape, source.sparse, source.stored, source.name
        self.dtype = source.dtype
        # What is kept of a read belongs to what it was filled with.
        own = blake2b(S.L.tobytes() + S.R.tobytes(), digest_size=16).hexdigest()
        self.fingerprint = f"{source.fingerprint} filled {own}"

    def edges(self, n_bytes: int) -> list[int]:
        """Those of the file."""
        return self.source.edges(n_bytes)

    def read(self, lo: int, hi: int) -> Any:
        """The rows, filled; in double precision where they are dense."""
        X = self.source.read(lo, hi)
        S = LowRank(self.S.L[lo:hi], self.S.R)
        if not isinstance(X, csr_array):
            return Patched(X, S)[:]
        if X.dtype.kind in "fc" and len(gaps := np.flatnonzero(np.isnan(X.data))):
            X.data = X.data.copy()
            X.data[gaps] = entries(S, np.searchsorted(X.indptr, gaps, side="right") - 1, X.indices[gaps])
        return X


def gaps_of(
    X: Any, unobserved: bool = False, n_threads: int | None = None, memory_limit: int | str | None = None
) -> Gaps:
    """X with its missing entries: NaN, and with `unobserved` all that a sparse matrix does not store."""
    threads = n_threads or default_threads()
    if isinstance(X, DiskRows) and not unobserved and X.shift is None:
        return FileGaps(X)
    X = from_frame(X) if is_frame(X) else X
    if issparse(X):
        return _sparse_gaps(X, unobserved, threads, memory_limit)
    if unobserved:
        raise ValueError(f"unobserved=True is for sparse matrices, got {type(X).__name__}; mark missing entries by NaN")
    if hasattr(X, "rmatmat") or type(X).__module__.partition(".")[0] == "dask":
        kinds = "arrays in memory, sparse matrices and files opened by open_matrix"
        raise TypeError(f"missing entries are found in {kinds}, got {type(X).__module__}.{type(X).__name__}")
    X = numeric_array(X)
    X = X if X.dtype.kind in "fc" else X.astype(np.float64)
    _refuse_infinite(sum(int(np.isinf(X[lo:hi]).sum()) for lo, hi in cut(X.shape[0], BLOCK // X.shape[1])))
    return DenseGaps(X, threads)


def _sparse_gaps(X: Any, unobserved: bool, n_threads: int, memory_limit: int | str | None) -> Gaps:
    """A canonical CSR in floating point; other formats are converted."""
    if X.ndim != 2 or min(X.shape) < 1 or X.dtype.kind not in "fciub":
        raise ValueError(f"the matrix must be numeric and have two dimensions of at least 1, got {X.dtype} {X.shape}")
    affordable(X.nnz * 16, memory_limit, "sorting the observed entries")
    if X.format in ("csr", "csc"):
        sound_structure(X)
    if X.format != "csr":
        X = X.tocsr()
    used = int(X.indptr[-1])  # SciPy allows longer arrays
    data = np.ascontiguousarray(X.data[:used], native_dtype(X.dtype))
    indices, indptr = np.ascontiguousarray(X.indices[:used]), np.ascontiguousarray(X.indptr)
    C = csr_array((data, indices, indptr), shape=X.shape, copy=False)
    if not C.has_canonical_format:
        C = C.copy()
        C.sum_duplicates()
    _refuse_infinite(int(np.isinf(C.data).sum()))
    if not unobserved:
        return StoredGaps(C, n_threads, memory_limit)
    there = ~np.isnan(C.data)
    if not there.all():
        indptr = np.concatenate([[0], np.cumsum(there)])[C.indptr]
        C = csr_array((C.data[there], C.indices[there], indptr), shape=C.shape)
    return Unstored(C, n_threads, memory_limit)


def entries(S: LowRank, i: Vector, j: Vector) -> Vector:
    """Entries (i, j) of ``L R^H``, a part of them at a time."""
    out = np.empty(len(i), np.result_type(S.L, S.R))
    for lo in range(0, len(i), ENTRIES):
        part = slice(lo, lo + ENTRIES)
        np.einsum("ij,ij->i", S.L.take(i[part], axis=0), S.R.take(j[part], axis=0).conj(), out=out[part])
    return out


def _constant(mean: Vector, m: int) -> LowRank:
    """``1 mean^T`` with m rows."""
    return LowRank(np.ones(m), mean.conj())


def _mask(X: CSR, missing: bool) -> CSR:
    """1.0 at the stored entries that are missing, or at all that are not."""
    gap = np.isnan(X.data) if X.dtype.kind in "fc" else np.zeros(X.nnz, bool)
    return csr_array(((gap if missing else ~gap).astype(np.float64), X.indices, X.indptr), shape=X.shape, copy=False)


def _some(places: Vector, rng: np.random.Generator) -> Vector:
    """A tenth of the places, sorted."""
    return np.sort(rng.choice(places, min(len(places) // 10, HIDDEN), replace=False))


def _refuse_infinite(n_inf: int) -> None:
    """Infinities are no missing entries."""
    if n_inf:
        raise ValueError(f"the matrix must be finite where it is observed, got {n_inf} inf; drop them or set them NaN")


def _nothing_observed(lines: str, which: Vector) -> str:
    """Say which rows or columns have no entry at all."""
    first = ", ".join(map(str, which[:5])) + (", ..." if len(which) > 5 else "")
    return f"every one of the {lines} needs an observed entry, got {len(which)} without (first: {first}); drop them"
