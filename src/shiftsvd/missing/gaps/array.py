"""Arrays in which NaN is a missing entry."""

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, cast

import numpy as np

from shiftsvd.backends.blocked import Rows
from shiftsvd.backends.dense import DenseRows
from shiftsvd.kernels import ordered
from shiftsvd.missing.gaps.base import HeldGaps, is_missing
from shiftsvd.numerics.moments import Moments, Vector, of_observed
from shiftsvd.operators import Adjoint, LowRank, Operator, Panel


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
