"""Arrays and sparse matrices with missing entries."""

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar, cast

import numpy as np
from scipy.sparse import csr_array

from shiftsvd.backends.blocked import Rows, cut
from shiftsvd.backends.dense import BLOCK, DenseRows
from shiftsvd.backends.sparse import SparseRows, by_rows, coordinates
from shiftsvd.kernels import kernels_for, ordered
from shiftsvd.kernels.twin import CSR, take_rows
from shiftsvd.missing.gaps.base import HeldGaps, is_missing, some
from shiftsvd.numerics.moments import Moments, Vector, beside_zeros, left_over, observed, of_observed, weight_parts
from shiftsvd.operators import Adjoint, LowRank, Operator, Panel
from shiftsvd.runs.memory import affordable


@dataclass(frozen=True, eq=False)
class ArrayGaps(HeldGaps):
    """An array in which NaN is a missing entry; filled block by block, as it is read."""

    X: "Panel | Holed"
    n_threads: int = 1

    def filled(self, S: LowRank) -> Operator:
        X = Patched(self.X, S)
        if self.shape[0] >= self.shape[1]:
            return DenseRows(cast("Panel", X), n_threads=self.n_threads)
        conjugate = self.X.dtype.kind == "c"
        return Adjoint(DenseRows(cast("Panel", X.T), conjugate=conjugate, n_threads=self.n_threads))

    def absent(self, W: Panel, rows: Rows) -> Panel:
        return np.asarray(is_missing(self.X[slice(*rows)]) @ W)

    def absent_below(self, w: Vector) -> Vector:
        return np.asarray(sum(w[lo:hi] @ is_missing(self.X[lo:hi]) for lo, hi in self.row_blocks()))

    def observed_moments(self, w: Vector) -> Moments:
        def part(rows: Rows) -> Moments:
            return of_observed(self.X[slice(*rows)].astype(self.dtype, copy=False), w[slice(*rows)])

        return reduce(Moments.merge, ordered(part, self.row_blocks(), self.n_threads))

    def row_blocks(self, width: int = 1) -> list[Rows]:
        return super().row_blocks(max(width, self.shape[1]))

    def at(self, i: Vector, j: Vector) -> Vector:
        return self.X.at(i, j) if isinstance(self.X, Holed) else self.X[i, j]

    def without(self, i: Vector, j: Vector) -> "ArrayGaps":
        return replace(self, X=Holed(self.X, i, j))


class Patched:
    """What `DenseRows` asks of an array: slices of its rows, in double precision where NaN is replaced."""

    def __init__(self, X: "Panel | Holed", S: LowRank) -> None:
        self.X, self.S = X, S
        self.shape, self.dtype = X.shape, X.dtype

    @property
    def T(self) -> "Patched":
        return Patched(self.X.T, LowRank(self.S.R.conj(), self.S.L.conj()))

    def __getitem__(self, rows: slice) -> Panel:
        block = self.X[rows]
        gap = is_missing(block)
        if not gap.any():
            return block
        # Rows of S formed as a block: BLAS is done with them before the places of a few gaps are found.
        out = block.astype(np.result_type(block, self.S.dtype))
        np.copyto(out, self.S.rows(*rows.indices(self.shape[0])[:2]), where=gap)
        return out


class Holed:
    """What `ArrayGaps` and `Patched` ask of an array: slices of its rows, with NaN at some more places (i, j)."""

    def __init__(self, X: "Panel | Holed", i: Vector, j: Vector) -> None:
        by_row = np.argsort(i, kind="stable")
        self.X, self.i, self.j = X, i[by_row], j[by_row]
        self.shape: tuple[int, int] = X.shape
        self.dtype: np.dtype[Any] = X.dtype

    @property
    def T(self) -> "Holed":
        return Holed(self.X.T, self.j, self.i)

    def __getitem__(self, rows: slice) -> Panel:
        block, (lo, hi, _) = self.X[rows], rows.indices(self.shape[0])
        own = slice(*np.searchsorted(self.i, [lo, hi]))
        if own.start < own.stop:
            block = block.copy()
            block[self.i[own] - lo, self.j[own]] = np.nan
        return block

    def at(self, i: Vector, j: Vector) -> Vector:
        x = self.X.at(i, j) if isinstance(self.X, Holed) else self.X[i, j]
        n = self.shape[1]
        return np.where(np.isin(i * n + j, self.i * n + self.j), np.nan, x).astype(self.dtype)


@dataclass(frozen=True, eq=False)
class SparseGaps(HeldGaps):
    """A CSR in which a stored NaN is a missing entry; of its kinds, each knows what the places without entry are."""

    X: CSR
    n_threads: int = 1
    memory_limit: int | str | None = None
    unstored: ClassVar[float]  # 1 where they are missing, 0 where they are zeros

    @property
    def stored(self) -> int:
        return int(self.X.nnz)

    def absent(self, W: Panel, rows: Rows) -> Panel:
        return np.asarray(self.unstored * W.sum(axis=0) + self._beyond(rows) @ W)

    def absent_below(self, w: Vector) -> Vector:
        beyond = sum(self._beyond((lo, hi)).T @ w[lo:hi] for lo, hi in self._blocks())
        return np.asarray(self.unstored * w.sum() + beyond)

    def observed_moments(self, w: Vector) -> Moments:
        kernels = kernels_for(self.dtype)

        def part(rows: Rows) -> Moments:
            X, m = take_rows(self.X, *rows), rows[1] - rows[0]
            seen, parts = _without_gaps(X), weight_parts(w[slice(*rows)])
            found = kernels.moments(seen, (0, m), parts)
            if self.unstored:
                return observed(found)
            stored = found[0] if seen is X else kernels.moments(X, (0, m), parts)[0]
            return beside_zeros(observed(found), left_over(parts, m, stored))

        return reduce(Moments.merge, ordered(part, self._blocks(), self.n_threads))

    def at(self, i: Vector, j: Vector) -> Vector:
        return _at(self.X, i, j)

    def _beyond(self, rows: Rows) -> CSR:
        X = take_rows(self.X, *rows)
        return csr_array((is_missing(X.data) - self.unstored, X.indices, X.indptr), shape=X.shape, copy=False)

    def _like(self, data: Vector) -> CSR:
        C = csr_array((data, self.X.indices, self.X.indptr), shape=self.shape, copy=False)
        C.has_canonical_format = True
        return C

    def _operator(self, data: Vector) -> SparseRows:
        return SparseRows(self._like(data), n_threads=self.n_threads, memory_limit=self.memory_limit)

    def _row_of(self, places: Vector) -> Vector:
        return np.searchsorted(self.X.indptr, places, side="right") - 1

    def _blocks(self) -> list[Rows]:
        return cut(self.shape[0], max(1, self.shape[0] * BLOCK // max(self.X.nnz, 1)))


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
    """What is not stored is 0, and observed as the others are."""

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
    """What is not stored is missing: ratings."""

    unstored: ClassVar[float] = 1.0

    def draw(self, rng: np.random.Generator, share: float) -> tuple[Vector, Vector]:
        places = some(np.flatnonzero(~is_missing(self.X.data)), rng, share)
        return self._row_of(places), self.X.indices[places]

    def without(self, i: Vector, j: Vector) -> "UnstoredGaps":
        data = self.X.data.copy()
        data[_at(self._like(np.arange(self.X.nnz)), i, j)] = np.nan
        return replace(self, X=self._like(data))

    def filled(self, S: LowRank) -> Operator:
        residuals = np.empty(self.X.nnz, np.result_type(self.X.dtype, S.dtype))
        S = by_rows(S)

        def part(rows: Rows) -> None:
            places = slice(self.X.indptr[rows[0]], self.X.indptr[rows[1]])
            i, j = coordinates(take_rows(self.X, *rows))
            off = self.X.data[places] - S.at(rows[0] + i, j)
            residuals[places] = np.where(is_missing(off), 0, off)

        for _ in ordered(part, self._blocks(), self.n_threads):
            pass
        return self._operator(residuals) - LowRank(-S.L, S.R)
