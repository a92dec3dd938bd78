"""Matrices that lie on a device, such as a GPU: multiplied there, where they are; told by the module of their type."""

import importlib
from typing import Any

from shiftsvd.backends.device.arrays import Arrays
from shiftsvd.backends.device.dense import DeviceBlocks, DeviceRows
from shiftsvd.backends.device.panels import DevicePanel
from shiftsvd.backends.device.sparse import DeviceCSR
from shiftsvd.operators import Adjoint, Operator

__all__ = ["Arrays", "DeviceBlocks", "DeviceCSR", "DevicePanel", "DeviceRows", "arrays_of", "device_operator"]


# Libraries of arrays, each with the module of its adapter, which is imported for its arrays alone.
ADAPTERS = {
    "torch": "shiftsvd.backends.device.torch",
    "cupy": "shiftsvd.backends.device.cupy",
    "cupyx": "shiftsvd.backends.device.cupy",
}
# Libraries whose arrays have a namespace, and a backend of their own or none.
KNOWN_OTHERWISE = ("numpy", "dask", "sparse")


def arrays_of(X: Any) -> Arrays | None:
    library = type(X).__module__.partition(".")[0]
    if library in ADAPTERS:
        adapter: Arrays | None = importlib.import_module(ADAPTERS[library]).arrays_for(X)
        return adapter
    if library in KNOWN_OTHERWISE or not hasattr(X, "__array_namespace__") or not hasattr(X, "device"):
        return None
    from shiftsvd.backends.device.arrays import NamespaceArrays

    return NamespaceArrays(X.__array_namespace__(), X.device)


def device_operator(X: Any, arrays: Arrays, n_threads: int) -> Operator:
    arrays.check(X)
    if len(X.shape) != 2 or min(X.shape) < 1:
        raise ValueError(f"the matrix must have two dimensions of at least 1, got shape {tuple(X.shape)}")
    if arrays.is_sparse(X):
        C, by_columns = arrays.sound_csr(X)
        _check_finite(arrays.parts(C)[0], arrays)
        return DeviceCSR(arrays.flipped(C) if by_columns else C, arrays, n_threads=n_threads)
    _check_finite(X, arrays)
    A = DeviceRows(X, arrays, n_threads=n_threads)
    return A if X.shape[0] >= X.shape[1] else Adjoint(A.turned())


def _check_finite(x: Any, arrays: Arrays) -> None:
    if arrays.dtype_of(x).kind in "fc" and not arrays.all_finite(x):
        raise ValueError("the matrix must be finite, got NaN or inf; drop or fill them first, on the device")
