"""Tensors of PyTorch, dense or sparse, on a CPU or a CUDA device."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch

from shiftsvd.backends.device.arrays import Arrays
from shiftsvd.backends.device.kernel import LEAST, Card
from shiftsvd.numerics.panels import Panel

TYPES: dict[np.dtype[Any], Any] = {
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
    np.dtype(np.complex64): torch.complex64,
    np.dtype(np.complex128): torch.complex128,
}
KINDS: dict[Any, np.dtype[Any]] = {kind: dtype for dtype, kind in TYPES.items()} | {
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(np.float16),  # of as many bytes: computed in single precision
    torch.bool: np.dtype(bool),
    torch.uint8: np.dtype(np.uint8),
    torch.int8: np.dtype(np.int8),
    torch.int16: np.dtype(np.int16),
    torch.int32: np.dtype(np.int32),
    torch.int64: np.dtype(np.int64),
}


class TorchArrays(Arrays):
    """Tensors on one device."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def __repr__(self) -> str:
        return f"torch on {self.device}"

    @property
    def on_host(self) -> bool:
        return str(self.device.type) == "cpu"

    def check(self, X: Any) -> None:
        if X.requires_grad:
            raise ValueError("the tensor has requires_grad=True, but components have no gradients; give X.detach()")
        self.dtype_of(X)

    def to_device(self, x: Panel) -> Any:
        return torch.from_numpy(np.array(x, order="C")).to(self.device)  # of a copy: strides may be negative

    def to_host(self, x: Any) -> Panel:
        return np.array(x.resolve_conj().cpu().numpy())

    def dtype_of(self, x: Any) -> np.dtype[Any]:
        if x.dtype not in KINDS:
            raise ValueError(f"the matrix must be numeric, got a tensor of {x.dtype}; give X.to(torch.float32)")
        return KINDS[x.dtype]

    def in_dtype(self, x: Any, dtype: np.dtype[Any]) -> Any:
        return x.to(TYPES[dtype])

    def conj(self, x: Any) -> Any:
        return torch.conj_physical(x)  # a lazy conjugate fails on the values of a CSC

    def adjoint(self, x: Any) -> Any:
        return x.mH

    def all_finite(self, x: Any) -> bool:
        return bool((x - x == 0).all())

    def empty(self, shape: tuple[int, int], dtype: np.dtype[Any]) -> Any:
        return torch.empty(shape, dtype=TYPES[dtype], device=self.device)

    def copy(self, x: Any) -> Any:
        return x.clone()

    def beside(self, x: Any, y: Any) -> Any:
        return torch.cat([x, y], dim=1)

    def column_sums(self, x: Any) -> Any:
        return x.sum(dim=0)

    def column_largest(self, x: Any) -> Any:
        return x.amax(dim=0)

    def qr(self, x: Any) -> tuple[Any, Any]:
        Q, R = torch.linalg.qr(x)
        return Q, R

    @contextmanager
    def exact(self) -> Iterator[None]:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    def card(self) -> Card | None:
        if self.device.type != "cuda" or torch.version.hip or torch.cuda.get_device_capability(self.device) < LEAST:
            return None
        return _card(self.device)

    def is_sparse(self, X: Any) -> bool:
        return bool(X.layout != torch.strided)

    def sound_csr(self, X: Any) -> tuple[Any, bool]:
        return canonical(X, self)

    def by_rows(self, x: Any) -> Any:
        return x.contiguous()

    def csr(self, data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            return torch.sparse_csr_tensor(indptr, indices, data, size=shape, check_invariants=False)

    def parts(self, X: Any) -> tuple[Any, Any, Any]:
        return X.values(), X.col_indices(), X.crow_indices()

    def flipped(self, X: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse C.. tensor support is in beta")
            C = X.to_sparse_csc()
        return self.csr(self.conj(C.values()), C.row_indices(), C.ccol_indices(), (X.shape[1], X.shape[0]))

    def dense(self, X: Any) -> Any:
        return X.to_dense()


class TorchCard(Card):
    """A card with tensors. No line of this class has been run: it needs a CUDA device."""

    def __init__(self, device: torch.device) -> None:
        major, minor = torch.cuda.get_device_capability(device)
        super().__init__(int(device.index), f"sm_{major}{minor}")
        self.device = device

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return torch.empty(shape, dtype=getattr(torch, dtype.name), device=self.device)

    def pointer(self, x: Any) -> int:
        return int(x.data_ptr())

    def stream(self) -> int:
        return int(torch.cuda.current_stream(self.device).cuda_stream)


@cache
def _card(device: torch.device) -> TorchCard:
    return TorchCard(device)


def arrays_for(X: Any) -> TorchArrays | None:
    return TorchArrays(X.device) if isinstance(X, torch.Tensor) else None


def canonical(X: Any, arrays: TorchArrays) -> tuple[Any, bool]:
    by_columns = X.layout in (torch.sparse_csc, torch.sparse_bsc)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse C.. tensor support is in beta")
        if X.layout == torch.sparse_coo:
            X = X.coalesce().to_sparse_csr()
        elif X.layout in (torch.sparse_bsr, torch.sparse_bsc):
            X, by_columns = X.to_sparse_csr(), False
    if by_columns:
        parts = arrays.conj(X.values()), X.row_indices(), X.ccol_indices()
        C = arrays.csr(*parts, (X.shape[1], X.shape[0]))
    else:
        C = arrays.csr(X.values(), X.col_indices(), X.crow_indices(), tuple(X.shape))
    _check_places(C)
    return (C if _is_canonical(C) else _coalesced(C, arrays)), by_columns


def _check_places(X: Any) -> None:
    indptr, indices = X.crow_indices(), X.col_indices()
    ends = int(indptr[0]) == 0 and int(indptr[-1]) == len(indices) and len(indptr) == X.shape[0] + 1
    inside = not len(indices) or (int(indices.min()) >= 0 and int(indices.max()) < X.shape[1])
    if not (ends and inside and bool((indptr.diff() >= 0).all())):
        raise ValueError("the sparse tensor is corrupt: its places lie outside of the matrix; make it anew")


def _is_canonical(X: Any) -> bool:
    indptr, indices = X.crow_indices(), X.col_indices()
    ascends = torch.ones(len(indices) + 1, dtype=torch.bool, device=indices.device)
    ascends[1:-1] = indices.diff() > 0
    ascends[indptr.long()] = True  # where a row begins
    return bool(ascends.all())


def _coalesced(X: Any, arrays: TorchArrays) -> Any:
    indptr, indices = X.crow_indices().long(), X.col_indices().long()
    rows = torch.repeat_interleave(torch.arange(X.shape[0], device=indices.device), indptr.diff())
    places = torch.stack([rows, indices])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        C = torch.sparse_coo_tensor(places, X.values(), tuple(X.shape)).coalesce().to_sparse_csr()
    return arrays.csr(C.values(), C.col_indices(), C.crow_indices(), tuple(X.shape))
