"""Dask arrays with missing entries, which are replaced in the tasks that read blocks."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask import delayed

from shiftsvd.backends.blocked import Rows
from shiftsvd.backends.dask import dask_operator
from shiftsvd.kernels import threads
from shiftsvd.missing.gaps import ArrayGaps, HeldGaps
from shiftsvd.operators import LowRank, Moments, Operator, Panel, Vector


@dataclass(frozen=True, eq=False)
class LazyGaps(HeldGaps):
    """A Dask array with NaN for missing entries. Each step of a completion reads the array twice."""

    X: Any
    memory_limit: int | str | None = None

    def filled(self, S: LowRank) -> Operator:
        return self._changed(_filled, S)

    def residual(self, S: LowRank) -> Operator:
        return self._changed(_off, S)

    def _changed(self, of_block: Callable[[Panel, Panel, Panel], Panel], S: LowRank) -> Operator:
        kind = np.result_type(self.dtype, S.dtype)
        changed = da.blockwise(
            *(of_block, "ij", self.X, "ij", self._rows(S.L), "ik", self._columns(S.R), "jk"),
            concatenate=True,
            dtype=kind,
            meta=np.empty((0, 0), kind),
        )
        return dask_operator(changed, self.memory_limit)

    def times(self, w: Vector) -> "LazyGaps":
        return replace(self, X=self.X * w.astype(self.dtype))

    def absent(self, W: Panel, rows: Rows) -> Panel:
        return np.asarray((self._missing(rows) @ self._columns(np.asarray(W))).compute())

    def absent_below(self, w: Vector) -> Vector:
        return np.asarray((self._rows(np.asarray(w, np.float64)) @ self._missing((0, self.shape[0]))).compute())

    def observed_moments(self, w: Vector) -> Moments:
        of_rows = np.split(w, np.cumsum(self.X.chunks[0])[:-1])
        of_chunk, merge = delayed(_observed, pure=False), delayed(Moments.merge, pure=False)
        parts = (
            [of_chunk(chunk, own) for chunk, own in zip(column, of_rows, strict=True)]
            for column in self.X.to_delayed().T
        )
        found = dask.compute(*(reduce(merge, column) for column in parts))
        count, mean, M2 = (np.concatenate([getattr(part, name) for part in found]) for name in ("count", "mean", "M2"))
        return Moments(count, mean, M2)

    def row_blocks(self, width: int = 1) -> list[Rows]:
        ends = np.cumsum(self.X.chunks[0]).tolist()
        return [(lo, hi) for lo, hi in zip([0, *ends[:-1]], ends, strict=True) if hi > lo]

    def at(self, i: Vector, j: Vector) -> Vector:
        return np.asarray(self.X.vindex[i, j].compute())

    def without(self, i: Vector, j: Vector) -> "LazyGaps":
        return replace(self, X=self.X.map_blocks(_holed, i=i, j=j, dtype=self.X.dtype, meta=self.X._meta))

    def _missing(self, rows: Rows) -> Any:
        return da.isnan(self.X[slice(*rows)]).astype(np.float64)

    def _rows(self, L: Any) -> Any:
        return da.from_array(L, chunks=(self.X.chunks[0], *((-1,) * (L.ndim - 1))))

    def _columns(self, R: Any) -> Any:
        return da.from_array(R, chunks=(self.X.chunks[1], -1))


def _observed(X: Panel, w: Vector) -> Moments:
    with threads(1):
        return ArrayGaps(X).observed_moments(w)


def _filled(X: Panel, L: Panel, R: Panel) -> Panel:
    return np.where(np.isnan(X), L @ R.conj().T, X)


def _off(X: Panel, L: Panel, R: Panel) -> Panel:
    return np.where(np.isnan(X), 0, X - L @ R.conj().T)


def _holed(X: Panel, i: Vector, j: Vector, block_info: Any = None) -> Panel:
    (top, bottom), (left, right) = block_info[0]["array-location"]
    here = (i >= top) & (i < bottom) & (j >= left) & (j < right)
    if not here.any():
        return X
    out = X.copy()
    out[i[here] - top, j[here] - left] = np.nan
    return out
