"""Blocks of rows on a device, and dense matrices there."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from shiftsvd.algebra.generic import registered
from shiftsvd.backends.blocked import Blocked, Rows, cut, slice_of
from shiftsvd.backends.dense import native_dtype
from shiftsvd.backends.device.arrays import Arrays
from shiftsvd.backends.device.panels import DevicePanel
from shiftsvd.kernels.twin import unwarned
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.numerics.powers import exponents_of, two_to
from shiftsvd.operators import LowRank, Panel, field_of, panel_dtype


class Factors(NamedTuple):
    """What a panel is to the parts of a block, on the device.

    Attributes
    ----------
    rest : array of shape (n, b)
        The panel, with zeros at the full columns.
    shift : array of shape (r, b), or None
        What L of the shift multiplies.
    full : array of shape (f, b), or None
        The panel at the full columns.
    """

    rest: Any
    shift: Any
    full: Any


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

    def exponents(self, axis: int) -> Vector:
        if axis:
            return self.turned().exponents(0)
        pieces = (D for block, _ in self._each(lambda rows: None) for _, D in self.pieces(block))
        parts = (self.arrays.down(self.arrays.column_largest(abs(D))) for D in pieces)
        return exponents_of(reduce(np.maximum, parts))

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
