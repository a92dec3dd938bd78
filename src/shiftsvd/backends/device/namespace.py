"""Dense arrays of any library that follows the Python array API standard."""

from typing import Any

import numpy as np

from shiftsvd.backends.device.arrays import Arrays
from shiftsvd.numerics.panels import Panel


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
