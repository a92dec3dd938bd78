"""Dense arrays on a device: blocks of rows, each minus its shift before it is multiplied."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shiftsvd.algebra.generic import registered
from shiftsvd.backends.blocked import Rows, cut, slice_of
from shiftsvd.backends.dense import native_dtype
from shiftsvd.backends.device.arrays import Arrays
from shiftsvd.backends.device.blocks import DeviceBlocks
from shiftsvd.numerics.moments import Moments, Vector
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
        """Blocks of about `BLOCK` entries."""
        return cut(self.shape[0], BLOCK // max(self.shape[1], 1))

    def stored_dense(self, rows: Rows) -> Any:
        """These rows in double precision."""
        X = self.arrays.in_dtype(self.X[rows[0] : rows[1], :], self.double)
        return self.arrays.adjoint(X).T if self.conjugate else X

    def block(self, rows: Rows, dtype: np.dtype[Any]) -> Any:
        """These shifted rows in some precision."""
        return self.arrays.in_dtype(self.piece(rows), dtype)

    def matmat(self, V: Panel) -> Panel:
        """``A V`` in double precision: each block writes its rows."""
        dtype = np.result_type(self.double, V)
        P, Y = self.up(V, dtype), np.empty((self.shape[0], V.shape[1]), dtype)
        for rows, D in self._each(lambda rows: self.block(rows, dtype)):
            Y[rows[0] : rows[1]] = self.arrays.down(D @ P)
        return Y

    def rmatmat(self, W: Panel) -> Panel:
        """``A^H W`` in double precision: the parts of the blocks are added in order, on the device."""
        dtype = np.result_type(self.double, W)

        def part(rows: Rows) -> Any:
            return self.arrays.adjoint(self.block(rows, dtype)) @ self.up(W[rows[0] : rows[1]], dtype)

        return self.total(part)

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        """``A^H diag(weights) A V`` in one pass, products in the precision of V, sums in double."""
        single = V.dtype.itemsize < np.result_type(self.double, V).itemsize and self.dtype != self.double
        dtype = np.result_type(self.dtype, V) if single else np.result_type(self.double, V)
        P = self.up(V, dtype)

        def part(rows: Rows) -> Any:
            D, w = self.block(rows, dtype), slice_of(weights, rows)
            Y = D @ P
            Y = Y if w is None else self.up(w[:, None], np.zeros(0, dtype).real.dtype) * Y
            return self.arrays.in_dtype(self.arrays.adjoint(D) @ Y, np.result_type(dtype, np.float64))

        with self.arrays.exact():
            return self.total(part).astype(dtype, copy=False)

    def total(self, part: Any) -> Panel:
        """The sum of the parts of all blocks, in order; on the host."""
        total: Any = None
        for _, values in self._each(part):
            total = values if total is None else total + values
        return self.arrays.down(total)

    def block_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        """Moments of the columns of these stored rows, in double precision."""
        w = np.ones(rows[1] - rows[0]) if weights is None else weights
        return self._moments(self.piece(rows), w)

    def block_row_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        """Moments of these rows, in double precision."""
        w = np.ones(self.shape[1]) if weights is None else weights
        return self._moments(self.piece(rows).T, w)

    def _moments(self, D: Any, w: Vector) -> Moments:
        """Moments of the columns of a dense array on the device."""
        total, up = float(w.sum()), self.up(w[None, :])
        count = total if total > 0 else 1.0
        mean = (up @ D) / count
        off = D - mean
        correction = (up @ off) / count  # by how much the mean was rounded
        squares = self.arrays.up(w[None, :]) @ abs(off) ** 2
        shift, M2 = self.arrays.down(correction)[0], self.arrays.down(squares)[0]
        return Moments(total, self.arrays.down(mean)[0] + shift, np.maximum(M2 - total * np.abs(shift) ** 2, 0))

    def column_squares(self, weights: Vector | None = None) -> Vector:
        """Squared column norms of the shifted blocks, or from the moments where they are known."""
        known = self.known_squares() if weights is None else None
        return self.squares_of_pieces(weights) if known is None else known

    def row_squares(self, weights: Vector | None = None) -> Vector:
        """Squared row norms of the shifted blocks."""
        return self.row_squares_of_pieces(weights)

    def turned(self) -> "DeviceRows":
        """The adjoint, a view."""
        conjugate = self.arrays.dtype_of(self.X).kind == "c" and not self.conjugate
        return replace(self, X=self.X.T, shift=self.shift and self.shift.H, conjugate=conjugate, memo={})
