"""Panels on a device: a run of a solver keeps its basis there, and sends small matrices alone."""

from typing import Any

import numpy as np

from shiftsvd.backends.blocked import cut
from shiftsvd.backends.device.arrays import Arrays
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import ROWS, inverted
from shiftsvd.numerics.panels import Elsewhere, Panel


class DevicePanel(Elsewhere):
    """A tall thin array on a device, with the functions of panels that go by place as methods.

    Attributes
    ----------
    x : array of the library, of shape (n, b)
    arrays : Arrays
        The adapter for it.
    """

    def __init__(self, x: Any, arrays: Arrays) -> None:
        self.x, self.arrays = x, arrays

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.x.shape[0]), int(self.x.shape[1])

    @property
    def ndim(self) -> int:
        return 2

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.arrays.dtype_of(self.x)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: Any) -> "DevicePanel":
        return self._new(self.x[self._inside(part)])

    def __setitem__(self, part: Any, values: "DevicePanel") -> None:
        self.x[self._inside(part)] = self.arrays.in_dtype(values.x, self.dtype)

    def __matmul__(self, C: Any) -> "DevicePanel":
        B, C = self._alike(C)
        return self._new(self._product(B, C))

    def __sub__(self, other: Any) -> "DevicePanel":
        x, y = self._alike(other)
        return self._new(x - y)

    def __mul__(self, factors: Vector) -> "DevicePanel":
        x, y = self._alike(np.reshape(factors, (1, -1)))
        return self._new(x * y)

    def __rmul__(self, factors: Panel) -> "DevicePanel":
        dtype = np.result_type(self.dtype, factors)
        return self._new(self.arrays.in_dtype(self.x, dtype) * self.arrays.column(factors, dtype))

    def __truediv__(self, unit: float) -> "DevicePanel":
        return self._new(self.x / float(unit))

    def copy(self) -> "DevicePanel":
        return self._new(self.arrays.copy(self.x))

    def astype(self, dtype: Any, copy: bool = True) -> "DevicePanel":
        if self.dtype == np.dtype(dtype):
            return self.copy() if copy else self
        return self._new(self.arrays.in_dtype(self.x, np.dtype(dtype)))

    # --- functions by place ------------------------------------------------------------------------------------------

    def room(self, columns: int, dtype: np.dtype[Any]) -> "DevicePanel":
        return self._new(self.arrays.empty((columns, len(self)), dtype).T)

    def sent(self, x: Panel) -> "DevicePanel":
        return self._new(self.arrays.up(np.ascontiguousarray(x)))

    def on_host(self) -> Panel:
        return self.arrays.down(self.x)

    def beside(self, W: "DevicePanel") -> "DevicePanel":
        return self._new(self.arrays.beside(*self._alike(W)))

    def put(self, at: int, Q: "DevicePanel") -> None:
        self[:, at : at + Q.shape[1]] = Q

    def in_dtype(self, dtype: np.dtype[Any]) -> "DevicePanel":
        return self.astype(dtype, copy=False)

    def to_spare(self, given: "DevicePanel") -> bool:
        return True

    def largest(self) -> float:
        return float(np.max(self.arrays.down(self.arrays.column_largest(abs(self.x)))))

    def lengths(self) -> Vector:
        x = self.arrays.in_dtype(self.x, self._double)
        return np.sqrt(self.arrays.down(self.arrays.column_sums(abs(x) ** 2)))

    norms = lengths

    def inner(self, W: "DevicePanel") -> Panel:
        B, Y = self._alike(W)
        if self.arrays.dtype_of(B) == self._double:
            return self.arrays.down(self._product(self.arrays.adjoint(B), Y))
        total: Any = 0
        for lo, hi in cut(len(self), ROWS):
            part = self._product(self.arrays.adjoint(B[lo:hi, :]), Y[lo:hi, :])
            total = self.arrays.in_dtype(part, self._double) + total
        return self.arrays.down(total)

    def subtract_product(self, B: "DevicePanel", C: Panel) -> None:
        x = self.x
        x -= self.arrays.in_dtype(B.times(C).x, self.dtype)

    def times(self, Z: Panel) -> "DevicePanel":
        return self._new(self._product(self.x, self._sent(Z, self.dtype)))

    def solved(self, C: Panel, lengths: Vector, overwrite: bool) -> "DevicePanel":
        X = self.times_inverse(C, lengths, overwrite)
        left = self - X @ (C.conj().T * lengths)
        return self._new(X.x + left.times_inverse(C, lengths, overwrite).x)

    def times_inverse(self, C: Panel, lengths: Vector, overwrite: bool) -> "DevicePanel":
        return self @ inverted(C, lengths)

    def lu(self) -> "DevicePanel":
        return self.qr()[0]

    def qr(self) -> tuple["DevicePanel", Panel]:
        Q, R = self.arrays.qr(self.x)
        return self._new(Q), self.arrays.down(R)

    def triangle(self) -> Panel:
        return self.qr()[1]

    # -----------------------------------------------------------------------------------------------------------------

    def _inside(self, part: Any) -> tuple[slice, ...]:
        rows, columns = part if isinstance(part, tuple) else (part, slice(None))
        ranges = zip((rows, columns), self.shape, strict=True)
        return tuple(slice(*wanted.indices(size)[:2]) for wanted, size in ranges)

    @property
    def _double(self) -> np.dtype[Any]:
        return np.result_type(self.dtype, np.float64)

    def _new(self, x: Any) -> "DevicePanel":
        return DevicePanel(x, self.arrays)

    def _sent(self, C: Panel, dtype: np.dtype[Any]) -> Any:
        return self.arrays.up(np.ascontiguousarray(C, dtype))

    def _alike(self, other: Any) -> tuple[Any, Any]:
        dtype = np.result_type(self.dtype, other.dtype)
        there = other.x if isinstance(other, DevicePanel) else self._sent(other, dtype)
        return self.arrays.in_dtype(self.x, dtype), self.arrays.in_dtype(there, dtype)

    def _product(self, x: Any, y: Any) -> Any:
        with self.arrays.exact():
            return x @ y
