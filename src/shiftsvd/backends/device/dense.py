"""Dense arrays on a device: blocks of rows, each minus its shift before it is multiplied."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shiftsvd.algebra.generic import registered
from shiftsvd.backends.blocked import Rows, cut
from shiftsvd.backends.dense import native_dtype
from shiftsvd.backends.device.arrays import Arrays
from shiftsvd.backends.device.blocks import DeviceBlocks
from shiftsvd.kernels.groups import unwarned
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.numerics.powers import two_to
from shiftsvd.operators import LowRank, Panel, field_of

# Entries of a block: 64 MiB in double precision.
BLOCK = 2**23


@registered
@dataclass(frozen=True, eq=False, repr=False)
class DeviceRows(DeviceBlocks):
    """A dense array on a device with its long side as rows, conjugated if so asked, minus its shift."""

    X: Any
    arrays: Arrays
    shift: LowRank | None = None
    conjugate: bool = False
    n_threads: int = 1
    memo: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts = () if self.shift is None else (self.shift.L, self.shift.R)
        shape = (int(self.X.shape[0]), int(self.X.shape[1]))
        vars(self).update(shape=shape, dtype=field_of(native_dtype(self.arrays.dtype_of(self.X)), *parts))

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

        return self.beside(W, self.total(part))

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
            return self.beside(V, self.arrays.in_dtype(self.total(part), dtype))

    def total(self, part: Any) -> Any:
        total: Any = None
        for _, values in self._each(part):
            total = values if total is None else total + values
        return total

    def block_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        w = np.ones(rows[1] - rows[0]) if weights is None else weights
        return self._moments(self.piece(rows), w)

    def block_row_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        w = np.ones(self.shape[1]) if weights is None else weights
        return self._moments(self.piece(rows).T, w)

    @unwarned
    def _moments(self, D: Any, w: Vector) -> Moments:
        total, up = float(w.sum()), self.up(w[None, :])
        count = total if total > 0 else 1.0
        mean = (up @ D) / count
        off = D - mean
        correction = (up @ off) / count  # by how much the mean was rounded
        squares = self.arrays.up(w[None, :]) @ abs(off) ** 2
        shift, M2 = self.arrays.down(correction)[0], self.arrays.down(squares)[0]
        return Moments(total, self.arrays.down(mean)[0] + shift, np.maximum(M2 - total * np.abs(shift) ** 2, 0))

    @unwarned
    def column_squares(self, weights: Vector | None = None) -> Vector:
        known = self.known_squares() if weights is None else None
        return self.squares_of_pieces(weights) if known is None else known

    @unwarned
    def row_squares(self, weights: Vector | None = None) -> Vector:
        return self.row_squares_of_pieces(weights)

    def turned(self) -> "DeviceRows":
        conjugate = self.arrays.dtype_of(self.X).kind == "c" and not self.conjugate
        return replace(self, X=self.X.T, shift=self.shift and self.shift.H, conjugate=conjugate, memo={})
