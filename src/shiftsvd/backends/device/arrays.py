"""The array functions that operators need on a device, and the adapter for the array API standard."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from shiftsvd.backends.device.kernel import Card
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import Panel

# Vectors of the host, such as weights and scales, that a device keeps.
KEPT = 8


@dataclass
class Traffic:
    """Bytes that have crossed between the host and the device.

    Attributes
    ----------
    up, down : int
        To the device, and from it.
    """

    up: int = 0
    down: int = 0


class Arrays(ABC):
    """An adapter: arrays of one library on one device.

    Beside these methods, operators use ``@``, ``+``, ``-``, ``*``, ``**``, ``abs`` and slices of rows, which all
    libraries have; of sparse matrices only ``@`` with a dense panel.
    """

    def __init__(self) -> None:
        self.traffic = Traffic()
        self._kept: dict[Any, tuple[Vector, Any]] = {}  # by where a vector lies on the host, which stays alive with it

    def up(self, x: Panel) -> Any:
        self.traffic.up += x.nbytes
        return self.to_device(x)

    def down(self, x: Any) -> Panel:
        host = self.to_host(x)
        self.traffic.down += host.nbytes
        return host

    @abstractmethod
    def to_device(self, x: Panel) -> Any: ...

    @abstractmethod
    def to_host(self, x: Any) -> Panel: ...

    @abstractmethod
    def dtype_of(self, x: Any) -> np.dtype[Any]: ...

    @abstractmethod
    def in_dtype(self, x: Any, dtype: np.dtype[Any]) -> Any: ...

    @abstractmethod
    def conj(self, x: Any) -> Any: ...

    @abstractmethod
    def adjoint(self, x: Any) -> Any: ...

    @abstractmethod
    def all_finite(self, x: Any) -> bool: ...

    @abstractmethod
    def empty(self, shape: tuple[int, int], dtype: np.dtype[Any]) -> Any: ...

    @abstractmethod
    def copy(self, x: Any) -> Any: ...

    @abstractmethod
    def beside(self, x: Any, y: Any) -> Any: ...

    @abstractmethod
    def column_sums(self, x: Any) -> Any: ...

    @abstractmethod
    def column_largest(self, x: Any) -> Any: ...

    @abstractmethod
    def qr(self, x: Any) -> tuple[Any, Any]: ...

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

    @property
    @abstractmethod
    def on_host(self) -> bool: ...

    def check(self, X: Any) -> None:
        self.dtype_of(X)

    def card(self) -> Card | None:
        return None

    # --- sparse matrices, for libraries that have them ---------------------------------------------------------------

    def is_sparse(self, X: Any) -> bool:
        return False

    def sound_csr(self, X: Any) -> tuple[Any, bool]:
        raise TypeError(f"{type(self).__name__} has no sparse matrices")

    def by_rows(self, x: Any) -> Any:
        return x

    def csr(self, data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> Any:
        raise TypeError(f"{type(self).__name__} has no sparse matrices")

    def parts(self, X: Any) -> tuple[Any, Any, Any]:
        raise TypeError(f"{type(self).__name__} has no sparse matrices")

    def flipped(self, X: Any) -> Any:
        raise TypeError(f"{type(self).__name__} has no sparse matrices")

    def dense(self, X: Any) -> Any:
        raise TypeError(f"{type(self).__name__} has no sparse matrices")

    def with_data(self, X: Any, data: Any) -> Any:
        _, indices, indptr = self.parts(X)
        return self.csr(data, indices, indptr, X.shape)

    def csr_in_dtype(self, X: Any, dtype: np.dtype[Any]) -> Any:
        data = self.parts(X)[0]
        return X if self.dtype_of(data) == dtype else self.with_data(X, self.in_dtype(data, dtype))

    def csr_rows(self, X: Any, lo: int, hi: int) -> Any:
        data, indices, indptr = self.parts(X)
        begin = int(indptr[lo])
        end = int(indptr[hi])
        return self.csr(data[begin:end], indices[begin:end], indptr[lo : hi + 1] - begin, (hi - lo, X.shape[1]))

    def counts(self, X: Any) -> Vector:
        return np.diff(self.down(self.parts(X)[2]))


class NamespaceArrays(Arrays):
    """Arrays of one namespace on one device."""

    def __init__(self, xp: Any, device: Any) -> None:
        super().__init__()
        self.xp, self.device = xp, device

    def __repr__(self) -> str:
        return f"{self.xp.__name__} on {self.device}"

    @property
    def on_host(self) -> bool:
        return str(self.device).lower().startswith("cpu")

    def to_device(self, x: Panel) -> Any:
        return self.xp.asarray(x, device=self.device, copy=True)

    def to_host(self, x: Any) -> Panel:
        return np.array(np.from_dlpack(x, device="cpu", copy=True))

    def dtype_of(self, x: Any) -> np.dtype[Any]:
        for name in ("float32", "float64", "complex64", "complex128", "bool"):
            if x.dtype == getattr(self.xp, name):
                return np.dtype(name)
        for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
            if x.dtype == getattr(self.xp, name):
                return np.dtype(name)
        raise ValueError(f"the matrix must be numeric, got an array of {x.dtype}")

    def in_dtype(self, x: Any, dtype: np.dtype[Any]) -> Any:
        return self.xp.astype(x, getattr(self.xp, dtype.name), copy=False)

    def conj(self, x: Any) -> Any:
        return self.xp.conj(x) if self.dtype_of(x).kind == "c" else x

    def adjoint(self, x: Any) -> Any:
        return self.conj(x).T

    def all_finite(self, x: Any) -> bool:
        return bool(self.xp.all(self.xp.isfinite(x)))

    def empty(self, shape: tuple[int, int], dtype: np.dtype[Any]) -> Any:
        return self.xp.empty(shape, dtype=getattr(self.xp, dtype.name), device=self.device)

    def copy(self, x: Any) -> Any:
        return self.xp.asarray(x, copy=True)

    def beside(self, x: Any, y: Any) -> Any:
        return self.xp.concat([x, y], axis=1)

    def column_sums(self, x: Any) -> Any:
        return self.xp.sum(x, axis=0)

    def column_largest(self, x: Any) -> Any:
        return self.xp.max(x, axis=0)

    def qr(self, x: Any) -> tuple[Any, Any]:
        Q, R = self.xp.linalg.qr(x)
        return Q, R
