"""Blocks of rows on a device, and dense matrices there."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any, Self

import numpy as np

from shiftsvd.algebra.generic import registered
from shiftsvd.backends.blocked import Blocked, Rows, cut, slice_of
from shiftsvd.backends.dense import native_dtype
from shiftsvd.backends.device.arrays import Arrays, DevicePanel
from shiftsvd.kernels.twin import range_errors_ignored
from shiftsvd.numerics.powers import exponents_of, two_to
from shiftsvd.operators import LowRank, Moments, Panel, Vector, panel_dtype

# Entries of a piece of a block that is made dense in double precision.
PIECE = 2**23


@registered
class DeviceBlocks(Blocked):
    """Matrix on a device minus its shift. Products are on the host or on the device, as their panels are."""

    arrays: Arrays
    X: Any

    @property
    def workers(self) -> int:
        return 1

    @property
    def double(self) -> np.dtype[Any]:
        return panel_dtype(self.dtype)

    @abstractmethod
    def stored_dense(self, rows: Rows) -> Any: ...

    @abstractmethod
    def times(self, rows: Vector | int, cols: Vector | int) -> Any: ...

    @abstractmethod
    def turned(self) -> Self: ...

    def piece(self, rows: Rows) -> Any:
        stored = self.arrays.in_dtype(self.stored_dense(rows), self.double)
        if self.shift is None:
            return stored
        L, R = self.up(self.shift.L[rows[0] : rows[1]]), self.up(self.shift.R)
        return stored - L @ self.arrays.adjoint(R)

    def formed(self, rows: Rows) -> Panel:
        return self.arrays.down(self.piece(rows))

    def placed(self, V: Panel) -> Panel:
        there: Panel = V if isinstance(V, DevicePanel) else self._lying_there(self.up(V, V.dtype))
        return there

    def up(self, panel: Panel, dtype: np.dtype[Any] | None = None) -> Any:
        if isinstance(panel, DevicePanel):
            return self.arrays.in_dtype(panel.x, dtype or self.double)
        return self.arrays.up(np.ascontiguousarray(panel, dtype or self.double))

    def beside(self, V: Panel, product: Any) -> Panel:
        return self._lying_there(product) if isinstance(V, DevicePanel) else self.arrays.down(product)

    def matmat(self, V: Panel) -> Panel:
        shape, dtype = (self.shape[0], V.shape[1]), np.result_type(self.double, V.dtype)
        there = isinstance(V, DevicePanel)
        Y = self._lying_there(self.arrays.empty(shape, dtype)) if there else np.empty(shape, dtype)
        for lo, part in self.row_products(V):
            Y[lo : lo + len(part)] = part
        return Y

    def _lying_there(self, x: Any) -> Any:
        return DevicePanel(x, self.arrays)

    def weights_of(self, weights: Vector | None, rows: Rows, dtype: np.dtype[Any]) -> Any:
        if weights is None:
            return None
        return self.arrays.column(np.asarray(weights), np.zeros(0, dtype).real.dtype)[rows[0] : rows[1], :]

    def pieces(self, *blocks: Rows) -> Iterator[tuple[Rows, Any]]:
        for block in blocks or (rows for rows, _ in self._each(lambda rows: None)):
            for lo, hi in cut(block[1] - block[0], PIECE // max(self.shape[1], 1)):
                piece = block[0] + lo, block[0] + hi
                yield piece, self.piece(piece)

    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        G: Any = 0
        for rows, D in self.pieces():
            w = slice_of(weights, rows)
            G = G + self.arrays.adjoint(D) @ (D if w is None else self.up(w[:, None]) * D)
        return self.arrays.down(G)

    def pieces_times(self, V: Panel) -> Panel:
        Y = np.empty((self.shape[0], V.shape[1]), np.result_type(self.double, V))
        W = self.up(V, Y.dtype)
        for (lo, hi), D in self.pieces():
            Y[lo:hi] = self.arrays.down(self.arrays.in_dtype(D, Y.dtype) @ W)
        return Y

    @range_errors_ignored
    def _column_squares(self, weights: Vector | None) -> Vector:
        w = np.ones((1, self.shape[0])) if weights is None else np.asarray(weights, np.float64)[None, :]
        squares = np.zeros(self.shape[1])
        for (lo, hi), D in self.pieces():
            squares += self.arrays.down(self.arrays.up(w[:, lo:hi]) @ abs(D) ** 2)[0]
        return squares

    @range_errors_ignored
    def row_squares(self, weights: Vector | None = None) -> Vector:
        w = self.arrays.up(np.ones((self.shape[1], 1)) if weights is None else np.asarray(weights, float)[:, None])
        return np.concatenate([self.arrays.down(abs(D) ** 2 @ w)[:, 0] for _, D in self.pieces()])

    def exponents(self, axis: int) -> Vector:
        if axis:
            return self.turned().exponents(0)
        parts = (self.arrays.down(self.arrays.column_largest(abs(D))) for _, D in self.pieces())
        return exponents_of(reduce(np.maximum, parts))

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "DeviceBlocks | None":
        X = self.times(rows, cols) if self.dtype == self.double else None
        shift = self.shift and self.shift.ldexp(rows, cols)
        return None if X is None else replace(self, X=X, shift=shift, memo={})  # type: ignore[type-var]

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        return self.turned().row_blocks(columns)

    def dense_pieces(self, rows: Rows) -> Iterator[tuple[int, Panel]]:
        return ((lo, self.arrays.down(D)) for (lo, _), D in self.pieces(rows))

    def transposed(self, passes: float) -> Self | None:
        return self.turned()

    def __matmul__(self, V: Any) -> Any:
        if type(V).__module__.partition(".")[0] == type(self.X).__module__.partition(".")[0]:
            return self.arrays.up(super().__matmul__(self.arrays.down(V)))
        return super().__matmul__(V)


# Entries of a block: 64 MiB in double precision.
BLOCK = 2**23


@registered
@dataclass(frozen=True, eq=False, repr=False)
class DeviceRows(DeviceBlocks):
    """Dense array on a device with its rows on the long side, optionally conjugated, minus its shift."""

    X: Any
    arrays: Arrays
    shift: LowRank | None = None
    conjugate: bool = False
    n_threads: int = 1
    memo: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.describe(self.X.shape, native_dtype(self.arrays.dtype_of(self.X)))

    def blocks(self) -> list[Rows]:
        return cut(self.shape[0], BLOCK // max(self.shape[1], 1))

    def stored_dense(self, rows: Rows) -> Any:
        X = self.arrays.in_dtype(self.X[rows[0] : rows[1], :], self.double)
        return self.arrays.adjoint(X).T if self.conjugate else X

    def times(self, rows: Vector | int, cols: Vector | int) -> Any:
        X = self.arrays.in_dtype(self.X, self.double)
        for e, shape in ((rows, (-1, 1)), (cols, (1, -1))):
            X = X * self.arrays.up(np.reshape(two_to(e), shape)) if np.any(e) else X
        return X

    def block(self, rows: Rows, dtype: np.dtype[Any]) -> Any:
        return self.arrays.in_dtype(self.piece(rows), dtype)

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        dtype = np.result_type(self.double, V.dtype)
        P = self.up(V, dtype)
        for rows, D in self._each(lambda rows: self.block(rows, dtype)):
            yield rows[0], self.beside(V, D @ P)

    def rmatmat(self, W: Panel) -> Panel:
        dtype = np.result_type(self.double, W.dtype)

        def part(rows: Rows) -> Any:
            return self.arrays.adjoint(self.block(rows, dtype)) @ self.up(W[rows[0] : rows[1]], dtype)

        return self.beside(W, self._total(part))

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        double = np.result_type(self.double, V.dtype)
        single = V.dtype.itemsize < double.itemsize and self.dtype != self.double
        dtype = np.result_type(self.dtype, V.dtype) if single else double
        P = self.up(V, dtype)

        def part(rows: Rows) -> Any:
            D, w = self.block(rows, dtype), self.weights_of(weights, rows, dtype)
            Y = D @ P if w is None else w * (D @ P)
            return self.arrays.in_dtype(self.arrays.adjoint(D) @ Y, np.result_type(dtype, np.float64))

        with self.arrays.exact():
            return self.beside(V, self.arrays.in_dtype(self._total(part), dtype))

    def _total(self, part: Callable[[Rows], Any]) -> Any:
        return reduce(add, (values for _, values in self._each(part)))

    def block_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        return self._moments_of(self.piece(rows), np.ones(rows[1] - rows[0]) if weights is None else weights)

    def block_row_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        return self._moments_of(self.piece(rows).T, np.ones(self.shape[1]) if weights is None else weights)

    @range_errors_ignored
    def _moments_of(self, D: Any, w: Vector) -> Moments:
        total, up = float(w.sum()), self.up(w[None, :])
        count = total if total > 0 else 1.0
        mean = (up @ D) / count
        off = D - mean
        correction = (up @ off) / count  # rounding error of the mean
        squares = self.arrays.up(w[None, :]) @ abs(off) ** 2
        shift, M2 = self.arrays.down(correction)[0], self.arrays.down(squares)[0]
        return Moments(total, self.arrays.down(mean)[0] + shift, np.maximum(M2 - total * np.abs(shift) ** 2, 0))

    def turned(self) -> "DeviceRows":
        conjugate = self.arrays.dtype_of(self.X).kind == "c" and not self.conjugate
        return replace(self, X=self.X.T, shift=self.shift and self.shift.H, conjugate=conjugate, memo={})
