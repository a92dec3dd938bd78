"""Matrices moved to a device for the command, and what `shiftsvd info` reports of the device."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.sparse import random_array

from shiftsvd.backends import as_operator
from shiftsvd.backends.dense import DenseRows
from shiftsvd.backends.device import arrays_of, device_operator
from shiftsvd.backends.sparse import SparseRows
from shiftsvd.kernels import default_threads
from shiftsvd.kernels.twin import take_rows
from shiftsvd.operators import Adjoint, Operator

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
        raise ValueError(f"device {device} needs PyTorch; pip install torch, or leave the device out")
    there = [name.partition(" ")[0] for name in devices()]
    if not there:
        raise ValueError(f"device {device} is not there: PyTorch sees no card; leave the device out, or give {HOST}")
    found = "cuda:0" if device in ("auto", "cuda") else device
    if found not in there:
        raise ValueError(f"device {device} is not there: PyTorch sees {', '.join(there)}; give one of them, or {HOST}")
    return found


def moved(A: Any, device: str) -> Operator:
    """The matrix on a device of PyTorch.

    Raises
    ------
    TypeError
        Where it is not held in memory, or is no matrix as it was stored.
    """
    if isinstance(A, Adjoint):
        return moved(A.A, device).H
    if isinstance(A, DenseRows) and A.shift is None and not A.conjugate:
        tensor = import_module("torch").from_numpy(_writable(A.X)).to(device)
    elif isinstance(A, SparseRows) and A.shift is None and A.kind is None:
        tensor = _csr(take_rows(A.X, 0, A.shape[0]), device)
    else:
        raise TypeError(f"{A!r} cannot be moved to {device}: it must be held in memory; leave out the device")
    arrays = arrays_of(tensor)
    assert arrays is not None
    return device_operator(tensor, arrays, A.n_threads or default_threads())


def _csr(X: Any, device: str) -> Any:
    arrays = import_module("shiftsvd.backends.device.torch").TorchArrays(import_module("torch").device(device))
    return arrays.csr(*(arrays.up(_writable(part)) for part in (X.data, X.indices, X.indptr)), X.shape)


def _writable(x: Any) -> Any:
    return x if x.flags.writeable else x.copy()


# A sparse matrix that takes a card a moment, and a panel as solvers multiply.
SHAPE, DENSITY, WIDTH = (20_000, 1_000), 0.05, 16


def products(device: str) -> str:
    X: Any = random_array(SHAPE, density=DENSITY, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    try:
        return said(moved(as_operator(X), device))
    except RuntimeError as error:
        return "none: " + str(error).partition("\n")[0]


def said(A: Any) -> str:
    if A._own is not None:
        return "ours, meant to have the same bits on every card"
    V = np.random.default_rng(0).standard_normal((A.shape[1], WIDTH))
    same = all(np.array_equal(A.gram(V), A.gram(V)) for V in (V, V.astype(np.float32)))
    return f"those of the library, which gave {'the same' if same else 'other'} bits when they were repeated"
