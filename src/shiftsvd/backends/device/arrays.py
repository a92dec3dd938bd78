"""Array functions of operators on a device, the adapter for the array API standard, and panels on a device."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from shiftsvd.backends.blocked import cut
from shiftsvd.backends.device.kernel import Card
from shiftsvd.numerics.orth import ROWS, inverted
from shiftsvd.numerics.panels import ForeignPanel, Panel, Vector

# Number of vectors of the host, such as weights and scales, whose copies a device caches.
KEPT = 8
# Entries that are checked at a time: temporary arrays of all of them would take twice the memory of a matrix.
PIECE = 2**26
REAL = ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMBERS = (*REAL, "bool", "complex64", "complex128")


class Arrays(ABC):
    """Adapter for the arrays of one library, with namespace `xp`, on one device."""

    # Beside these methods, operators use ``@``, ``+``, ``-``, ``*``, ``**``, ``abs`` and slices of rows, which all
    # libraries have; of sparse matrices only ``@`` with a dense panel.

    xp: Any

    def __init__(self, device: Any, on_host: bool) -> None:
        self.device, self.on_host = device, on_host
        self._kept: dict[Any, tuple[Vector, Any]] = {}  # by where a vector lies on the host, which stays alive with it

    def __repr__(self) -> str:
        return f"{self.xp.__name__} on {self.device}"

    @abstractmethod
    def up(self, x: Panel) -> Any: ...

    @abstractmethod
    def down(self, x: Any) -> Panel: ...

    @abstractmethod
    def dtype_of(self, x: Any) -> np.dtype[Any]: ...

    @abstractmethod
    def in_dtype(self, x: Any, dtype: np.dtype[Any]) -> Any: ...

    def conj(self, x: Any) -> Any:
        return self.xp.conj(x) if self.dtype_of(x).kind == "c" else x

    def adjoint(self, x: Any) -> Any:
        return self.conj(x).T

    def all_finite(self, x: Any) -> bool:
        rows = max(PIECE // max(math.prod(x.shape[1:]), 1), 1)
        return all(self.is_finite(x[lo:hi, ...]) for lo, hi in cut(x.shape[0], rows))

    def is_finite(self, x: Any) -> bool:
        return bool(self.xp.all(self.xp.isfinite(x)))

    def empty(self, shape: tuple[int, int], dtype: np.dtype[Any]) -> Any:
        return self.xp.empty(shape, dtype=getattr(self.xp, dtype.name), device=self.device)

    def copy(self, x: Any) -> Any:
        return self.xp.asarray(x, copy=True)

    def hstack(self, x: Any, y: Any) -> Any:
        return self.xp.concat([x, y], axis=1)

    def column_sums(self, x: Any) -> Any:
        return self.xp.sum(x, axis=0)

    def column_largest(self, x: Any) -> Any:
        return self.xp.max(x, axis=0)

    def inner_of_pieces(self, x: Any, y: Any, double: np.dtype[Any]) -> Any:
        """Compute ``x^H y``: pieces of rows in the precision of both, and their sum in double precision."""
        count, whole = x.shape[0] // ROWS, x.shape[0] // ROWS * ROWS
        rest = self.in_dtype(self.adjoint(x[whole:, :]) @ y[whole:, :], double)
        if not count:
            return rest
        pieces, others = (self.xp.reshape(z[:whole, :], (count, ROWS, z.shape[1])) for z in (self.conj(x), y))
        return self.xp.sum(self.in_dtype(self.xp.moveaxis(pieces, 1, 2) @ others, double), axis=0) + rest

    def qr(self, x: Any) -> tuple[Any, Any]:
        Q, R = self.xp.linalg.qr(x)
        return Q, R

    def column(self, x: Vector, dtype: np.dtype[Any]) -> Any:
        place = x.__array_interface__["data"][0], x.size, x.strides[0], dtype
        known = None if x.flags.writeable else self._kept.get(place)
        if known is None:
            known = x, self.up(np.ascontiguousarray(x.reshape(-1, 1), dtype))
            if not x.flags.writeable:
                self._kept = dict([*self._kept.items(), (place, known)][-KEPT:])
        return known[1]

    @contextmanager
    def exact(self) -> Iterator[None]:
        yield

    def check(self, X: Any) -> None:
        return

    def card(self) -> Card | None:
        return None

    # --- sparse matrices, for libraries that have them ---------------------------------------------------------------

    def is_sparse(self, X: Any) -> bool:
        return False

    def by_rows(self, x: Any) -> Any:
        return x

    sound_csr: Callable[[Any], tuple[Any, bool]]  # and whether it is the adjoint of X
    csr: Callable[[Any, Any, Any, tuple[int, int]], Any]
    parts: Callable[[Any], tuple[Any, Any, Any]]
    flipped: Callable[[Any], Any]  # the adjoint, as CSR
    dense: Callable[[Any], Any]
    for_entries: Callable[[Any, Any], Any]  # for each entry of a CSR, the number that x has for its row

    def with_data(self, X: Any, data: Any) -> Any:
        _, indices, indptr = self.parts(X)
        return self.csr(data, indices, indptr, X.shape)

    def csr_in_dtype(self, X: Any, dtype: np.dtype[Any]) -> Any:
        data = self.parts(X)[0]
        return X if self.dtype_of(data) == dtype else self.with_data(X, self.in_dtype(data, dtype))

    def csr_rows(self, X: Any, lo: int, hi: int) -> Any:
        data, indices, indptr = self.parts(X)
        begin, end = int(indptr[lo]), int(indptr[hi])
        return self.csr(data[begin:end], indices[begin:end], indptr[lo : hi + 1] - begin, (hi - lo, X.shape[1]))


def is_out_of_memory(error: BaseException) -> bool:
    # Of PyTorch this is a RuntimeError, of CuPy a MemoryError.
    return type(error).__name__ == "OutOfMemoryError"


class NamespaceArrays(Arrays):
    """Arrays of a library that follows the array API standard."""

    def __init__(self, xp: Any, device: Any) -> None:
        super().__init__(device, str(device).lower().startswith("cpu"))
        self.xp = xp

    def up(self, x: Panel) -> Any:
        return self.xp.asarray(x, device=self.device, copy=True)

    def down(self, x: Any) -> Panel:
        return np.array(np.from_dlpack(x, device="cpu", copy=True))

    def dtype_of(self, x: Any) -> np.dtype[Any]:
        name = next((name for name in NUMBERS if x.dtype == getattr(self.xp, name)), None)
        if name is None:
            raise ValueError(f"the matrix must be numeric, got an array of {x.dtype}")
        return np.dtype(name)

    def in_dtype(self, x: Any, dtype: np.dtype[Any]) -> Any:
        return self.xp.astype(x, getattr(self.xp, dtype.name), copy=False)


class DevicePanel(ForeignPanel):
    """Tall thin array on a device, such as the basis of a solver; only small matrices are copied to the host."""

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

    def __mul__(self, factors: Vector | float) -> "DevicePanel":
        if np.ndim(factors) == 0:
            return self._new(self.x * np.asarray(factors).item())
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

    def empty_columns(self, columns: int, dtype: np.dtype[Any]) -> "DevicePanel":
        return self._new(self.arrays.empty((columns, len(self)), dtype).T)

    def to_device_of(self, x: Panel) -> "DevicePanel":
        return self._new(self.arrays.up(np.ascontiguousarray(x)))

    def on_host(self) -> Panel:
        return self.arrays.down(self.x)

    def hstack(self, W: "DevicePanel") -> "DevicePanel":
        return self._new(self.arrays.hstack(*self._alike(W)))

    def set_columns(self, at: int, Q: "DevicePanel") -> None:
        self[:, at : at + Q.shape[1]] = Q

    def in_dtype(self, dtype: np.dtype[Any]) -> "DevicePanel":
        return self.astype(dtype, copy=False)

    def may_overwrite(self, given: "DevicePanel") -> bool:
        return True

    def largest(self) -> float:
        return float(np.max(self.arrays.down(self.arrays.column_largest(abs(self.x)))))

    def lengths(self) -> Vector:
        x = self.arrays.in_dtype(self.x, self._double)
        return np.sqrt(self.arrays.down(self.arrays.column_sums(abs(x) ** 2)))

    norms = lengths

    def inner(self, W: "DevicePanel") -> Panel:
        return self.arrays.down(self._inner(W))

    def subtract_two_projections(self, B: "DevicePanel", recent: int) -> tuple[Panel, Panel, Panel]:
        # What is small comes to the host at the end, so that the host waits for the device once.
        found = []
        for basis in (B[:, recent:], B):
            found.append(basis._inner(self))
            self._subtract(basis, self.arrays.in_dtype(found[-1], B.dtype))
        first, coefficients, squares = map(self.arrays.down, (*found, self._inner(self)))
        return first, coefficients, squares

    def subtract_product(self, B: "DevicePanel", C: Panel) -> None:
        self._subtract(B, B._sent(C, B.dtype))

    def _subtract(self, B: "DevicePanel", C: Any) -> None:
        x = self.x
        x -= self.arrays.in_dtype(self._product(B.x, C), self.dtype)

    def _inner(self, W: "DevicePanel") -> Any:
        B, Y = self._alike(W)
        if self.arrays.dtype_of(B) == self._double:
            return self._product(self.arrays.adjoint(B), Y)
        with self.arrays.exact():
            return self.arrays.inner_of_pieces(B, Y, self._double)

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
