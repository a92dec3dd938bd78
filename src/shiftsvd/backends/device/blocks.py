"""What sparse and dense matrices on a device share: blocks of rows, dense pieces of them, what is made of pieces."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from shiftsvd.algebra.generic import registered
from shiftsvd.backends.blocked import Blocked, Rows, cut, slice_of
from shiftsvd.backends.device.arrays import Arrays
from shiftsvd.backends.device.panels import DevicePanel
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.powers import exponents_of
from shiftsvd.operators import LowRank, Panel, panel_dtype

# Entries of a piece of a block that is made dense in double precision.
PIECE = 2**23


@registered
class DeviceBlocks(Blocked):
    """A matrix on a device minus its shift. Products lie where their panels do: on the host, or on the device."""

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

    def piece(self, rows: Rows) -> Any:
        stored = self.arrays.in_dtype(self.stored_dense(rows), self.double)
        return stored if self.shift is None else stored - self.shift_rows(rows)

    def shift_rows(self, rows: Rows) -> Any:
        assert self.shift is not None
        L, R = self.up(self.shift.L[rows[0] : rows[1]]), self.up(self.shift.R)
        return L @ self.arrays.adjoint(R)

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

    def pieces(self, rows: Rows) -> Iterator[tuple[Rows, Any]]:
        for lo, hi in cut(rows[1] - rows[0], PIECE // max(self.shape[1], 1)):
            piece = rows[0] + lo, rows[0] + hi
            yield piece, self.piece(piece)

    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        G: Any = 0
        for block, _ in self._each(lambda rows: None):
            for rows, D in self.pieces(block):
                w = slice_of(weights, rows)
                G = G + self.arrays.adjoint(D) @ (D if w is None else self.up(w[:, None]) * D)
        return self.arrays.down(G)

    def pieces_times(self, V: Panel) -> Panel:
        Y = np.empty((self.shape[0], V.shape[1]), np.result_type(self.double, V))
        W = self.up(V, Y.dtype)
        for block, _ in self._each(lambda rows: None):
            for (lo, hi), D in self.pieces(block):
                Y[lo:hi] = self.arrays.down(self.arrays.in_dtype(D, Y.dtype) @ W)
        return Y

    def squares_of_pieces(self, weights: Vector | None) -> Vector:
        squares = np.zeros(self.shape[1])
        for block, _ in self._each(lambda rows: None):
            for rows, D in self.pieces(block):
                w = np.ones(rows[1] - rows[0]) if weights is None else slice_of(weights, rows)
                squares += self.arrays.down(self.arrays.up(np.asarray(w)[None, :]) @ abs(D) ** 2)[0]
        return squares

    def row_squares_of_pieces(self, weights: Vector | None) -> Vector:
        w = self.arrays.up(np.ones((self.shape[1], 1)) if weights is None else np.asarray(weights, float)[:, None])
        pieces = (D for block, _ in self._each(lambda rows: None) for _, D in self.pieces(block))
        return np.concatenate([self.arrays.down(abs(D) ** 2 @ w)[:, 0] for D in pieces])

    def column_exponents(self) -> Vector:
        pieces = (D for block, _ in self._each(lambda rows: None) for _, D in self.pieces(block))
        parts = (self.arrays.down(self.arrays.column_largest(abs(D))) for D in pieces)
        return exponents_of(reduce(np.maximum, parts))

    def row_exponents(self) -> Vector:
        return self.turned().column_exponents()

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "DeviceBlocks | None":
        X = self.times(rows, cols) if self.dtype == self.double else None
        shift = self.shift and self.shift.ldexp(rows, cols)
        return None if X is None else replace(self, X=X, shift=shift, memo={})  # type: ignore[type-var]

    @abstractmethod
    def times(self, rows: Vector | int, cols: Vector | int) -> Any: ...

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        for lo, hi in cut(self.shape[0], rows):
            yield lo, self.arrays.down(self.piece((lo, hi)))

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        return self.turned().row_blocks(columns)

    def dense_pieces(self, rows: Rows) -> Iterator[tuple[int, Panel]]:
        for (lo, _), D in self.pieces(rows):
            yield lo, self.arrays.down(D)

    @abstractmethod
    def turned(self) -> "DeviceBlocks": ...

    def transposed(self, passes: float) -> "DeviceBlocks | None":
        return self.turned()

    def _replace_shift(self, shift: LowRank | None) -> "DeviceBlocks":
        return replace(self, shift=shift)  # type: ignore[type-var]

    def __matmul__(self, V: Any) -> Any:
        if type(V).__module__.partition(".")[0] == type(self.X).__module__.partition(".")[0]:
            return self.arrays.up(super().__matmul__(self.arrays.down(V)))
        return super().__matmul__(V)
