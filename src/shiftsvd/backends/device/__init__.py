"""Matrices on a device, such as a GPU, which multiplies them; the command moves matrices to a device."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.sparse import csr_array, random_array

from shiftsvd.backends.dense import DenseRows
from shiftsvd.backends.device.arrays import Arrays, NamespaceArrays
from shiftsvd.backends.device.matrices import DeviceCSR, DeviceRows
from shiftsvd.backends.sparse import SparseRows
from shiftsvd.backends.validation import check_numbers
from shiftsvd.kernels import default_threads
from shiftsvd.kernels.twin import take_rows
from shiftsvd.operators import Adjoint, Operator

# Array libraries with the module of their adapter, which is imported only for arrays of that library.
ADAPTERS = {
    "torch": "shiftsvd.backends.device.torch",
    "cupy": "shiftsvd.backends.device.cupy",
    "cupyx": "shiftsvd.backends.device.cupy",
}
# Libraries whose arrays have a namespace, but another backend or no backend.
KNOWN_OTHERWISE = ("numpy", "dask", "sparse")


def arrays_of(X: Any) -> Arrays | None:
    library = type(X).__module__.partition(".")[0]
    if library in ADAPTERS:
        adapter: Arrays | None = import_module(ADAPTERS[library]).arrays_for(X)
        return adapter
    # Views of AnnData are arrays of NumPy, and have a namespace as those do.
    otherwise = isinstance(X, np.ndarray) or library in KNOWN_OTHERWISE
    if otherwise or not (hasattr(X, "__array_namespace__") and hasattr(X, "device")):
        return None
    return NamespaceArrays(X.__array_namespace__(), X.device)


def device_operator(X: Any, arrays: Arrays, n_threads: int) -> Operator:
    arrays.check(X)
    check_numbers(arrays.dtype_of(X), tuple(X.shape))
    if arrays.is_sparse(X):
        C, by_columns = arrays.sound_csr(X)
        _check_finite(arrays.parts(C)[0], arrays)
        return DeviceCSR(arrays.flipped(C) if by_columns else C, arrays, n_threads=n_threads)
    _check_finite(X, arrays)
    A = DeviceRows(X, arrays, n_threads=n_threads)
    return A if X.shape[0] >= X.shape[1] else Adjoint(A.turned())


def _check_finite(x: Any, arrays: Arrays) -> None:
    if arrays.dtype_of(x).kind in "fc" and not arrays.all_finite(x):
        raise ValueError("the matrix must be finite, got NaN or inf. Remove or fill them on the device.")


HOST = "cpu"


def devices() -> list[str]:
    if find_spec("torch") is None:
        return []
    cuda = import_module("torch").cuda
    return [f"cuda:{i} {cuda.get_device_name(i)}" for i in range(cuda.device_count())]


def chosen(device: str) -> str:
    if device == HOST or (device == "auto" and not devices()):
        return HOST
    if find_spec("torch") is None:
        raise ValueError(f"device {device} needs PyTorch. Install it (pip install torch), or use {HOST}.")
    there = [name.partition(" ")[0] for name in devices()]
    if not there:
        raise ValueError(f"device {device} was not found: PyTorch sees no GPU. Use {HOST}.")
    found = "cuda:0" if device in ("auto", "cuda") else device
    if found not in there:
        raise ValueError(
            f"device {device} was not found: PyTorch sees {', '.join(there)}. Use one of these, or {HOST}."
        )
    return found


def moved(A: Any, device: str) -> Operator:
    if isinstance(A, Adjoint):
        return moved(A.A, device).H
    torch, adapter = import_module("torch"), import_module(ADAPTERS["torch"])
    arrays: Arrays = adapter.TorchArrays(torch.device(device))
    if isinstance(A, DenseRows) and A.shift is None and not A.conjugate:
        X = torch.from_numpy(A.X if A.X.flags.writeable else A.X.copy()).to(device)
    elif isinstance(A, SparseRows) and A.shift is None and A.kind is None:
        X = take_rows(A.X, 0, A.shape[0])
        data, indices, indptr = map(arrays.up, (X.data, X.indices, X.indptr))
        X = arrays.csr(data, indices, indptr, X.shape)
    else:
        raise TypeError(f"{A!r} cannot be moved to {device}, because it is not in memory. Use device {HOST}.")
    return device_operator(X, arrays, A.n_threads or default_threads())


# Sizes of a test product that takes a GPU a moment: shape and density of a sparse matrix, and columns of a panel.
SHAPE, DENSITY, WIDTH = (20_000, 1_000), 0.05, 16


def products(device: str) -> str:
    X: Any = random_array(SHAPE, density=DENSITY, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    try:
        return products_of(moved(SparseRows(csr_array(X)), device))
    except RuntimeError as error:
        return "none: " + str(error).partition("\n")[0]


def products_of(A: Any) -> str:
    if A._own is not None:
        return "ours, meant to have the same bits on every card"
    V = np.random.default_rng(0).standard_normal((A.shape[1], WIDTH))
    same = all(np.array_equal(A.gram(V), A.gram(V)) for V in (V, V.astype(np.float32)))
    return f"those of the library, which gave {'the same' if same else 'other'} bits when they were repeated"
