"""Tensors of PyTorch, dense or sparse, on a CPU or a CUDA device."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch

from shiftsvd.backends.device.arrays import Arrays
from shiftsvd.backends.device.card import LEAST, Card
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
        """Whether the device is the host itself."""
        return str(self.device.type) == "cpu"

    def check(self, X: Any) -> None:
        """Refuse tensors with gradients, and such as are no numbers."""
        if X.requires_grad:
            raise ValueError("the tensor has requires_grad=True, but components have no gradients; give X.detach()")
        self.dtype_of(X)

    def to_device(self, x: Panel) -> Any:
        """A copy as a tensor."""
        return torch.from_numpy(np.array(x, order="C")).to(self.device)  # of a copy: strides may be negative

    def to_host(self, x: Any) -> Panel:
        """The numbers of a tensor as an array of its own."""
        return np.array(x.resolve_conj().cpu().numpy())

    def dtype_of(self, x: Any) -> np.dtype[Any]:
        """The kind of numbers; 16-bit floats of both kinds are one here."""
        if x.dtype not in KINDS:
            raise ValueError(f"the matrix must be numeric, got a tensor of {x.dtype}; give X.to(torch.float32)")
        return KINDS[x.dtype]

    def in_dtype(self, x: Any, dtype: np.dtype[Any]) -> Any:
        """The tensor in another precision."""
        return x.to(TYPES[dtype])

    def conj(self, x: Any) -> Any:
        """The conjugate of a tensor."""
        return torch.conj_physical(x)  # a lazy conjugate fails on the values of a CSC

    def adjoint(self, x: Any) -> Any:
        """The conjugate transpose of a tensor."""
        return x.mH

    def all_finite(self, x: Any) -> bool:
        """Whether all numbers of a tensor are finite; `torch.isfinite` fails on complex values of sparse tensors."""
        return bool((x - x == 0).all())

    def empty(self, shape: tuple[int, int], dtype: np.dtype[Any]) -> Any:
        """A tensor whose numbers nobody has set."""
        return torch.empty(shape, dtype=TYPES[dtype], device=self.device)

    def copy(self, x: Any) -> Any:
        """A copy of a tensor."""
        return x.clone()

    def beside(self, x: Any, y: Any) -> Any:
        """The columns of two tensors."""
        return torch.cat([x, y], dim=1)

    def column_sums(self, x: Any) -> Any:
        """The sums of the columns of a tensor."""
        return x.sum(dim=0)

    def column_largest(self, x: Any) -> Any:
        """The largest number of each column of a tensor."""
        return x.amax(dim=0)

    def qr(self, x: Any) -> tuple[Any, Any]:
        """Q and R of a tensor."""
        Q, R = torch.linalg.qr(x)
        return Q, R

    @contextmanager
    def exact(self) -> Iterator[None]:
        """No TF32 or bfloat16 inside of products, whatever the caller has allowed elsewhere."""
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    def card(self) -> Card | None:
        """The card of the tensors, if it is one of CUDA and new enough."""
        if self.device.type != "cuda" or torch.version.hip or torch.cuda.get_device_capability(self.device) < LEAST:
            return None
        return _card(self.device)

    def is_sparse(self, X: Any) -> bool:
        """Whether the layout of a tensor is none of the dense ones."""
        return bool(X.layout != torch.strided)

    def sound_csr(self, X: Any) -> tuple[Any, bool]:
        """A sparse tensor of any layout as a sound CSR, and whether that is its adjoint."""
        return canonical(X, self)

    def by_rows(self, x: Any) -> Any:
        """A tensor with contiguous rows."""
        return x.contiguous()

    def csr(self, data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> Any:
        """A CSR tensor; that its library calls them a beta is nothing that its user can change."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            return torch.sparse_csr_tensor(indptr, indices, data, size=shape, check_invariants=False)

    def parts(self, X: Any) -> tuple[Any, Any, Any]:
        """Values, columns and row pointers of a CSR tensor."""
        return X.values(), X.col_indices(), X.crow_indices()

    def flipped(self, X: Any) -> Any:
        """The adjoint of a CSR tensor, of which a CSC of the same matrix has the arrays."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse C.. tensor support is in beta")
            C = X.to_sparse_csc()
        return self.csr(self.conj(C.values()), C.row_indices(), C.ccol_indices(), (X.shape[1], X.shape[0]))

    def dense(self, X: Any) -> Any:
        """A CSR tensor as a strided one."""
        return X.to_dense()


class TorchCard(Card):
    """A card with tensors. No line of this class has been run: it needs a CUDA device."""

    def __init__(self, device: torch.device) -> None:
        major, minor = torch.cuda.get_device_capability(device)
        super().__init__(int(device.index), f"sm_{major}{minor}")
        self.device = device

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A tensor whose numbers nobody has set."""
        return torch.empty(shape, dtype=getattr(torch, dtype.name), device=self.device)

    def pointer(self, x: Any) -> int:
        """Where a tensor begins."""
        return int(x.data_ptr())

    def stream(self) -> int:
        """The stream of PyTorch."""
        return int(torch.cuda.current_stream(self.device).cuda_stream)


@cache
def _card(device: torch.device) -> TorchCard:
    """The card of a device, which keeps the kernels that were compiled for it."""
    return TorchCard(device)


def arrays_for(X: Any) -> TorchArrays | None:
    """The adapter for a tensor."""
    return TorchArrays(X.device) if isinstance(X, torch.Tensor) else None


def canonical(X: Any, arrays: TorchArrays) -> tuple[Any, bool]:
    """A sparse tensor as a sound CSR without duplicates, and whether that is its adjoint, as of a CSC."""
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
    """Refuse places outside of the matrix: products would follow them out of memory."""
    indptr, indices = X.crow_indices(), X.col_indices()
    ends = int(indptr[0]) == 0 and int(indptr[-1]) == len(indices) and len(indptr) == X.shape[0] + 1
    inside = not len(indices) or (int(indices.min()) >= 0 and int(indices.max()) < X.shape[1])
    if not (ends and inside and bool((indptr.diff() >= 0).all())):
        raise ValueError("the sparse tensor is corrupt: its places lie outside of the matrix; make it anew")


def _is_canonical(X: Any) -> bool:
    """Whether the columns of each row ascend, without duplicates."""
    indptr, indices = X.crow_indices(), X.col_indices()
    ascends = torch.ones(len(indices) + 1, dtype=torch.bool, device=indices.device)
    ascends[1:-1] = indices.diff() > 0
    ascends[indptr.long()] = True  # where a row begins
    return bool(ascends.all())


def _coalesced(X: Any, arrays: TorchArrays) -> Any:
    """A CSR tensor with its duplicates added up, and its rows sorted."""
    indptr, indices = X.crow_indices().long(), X.col_indices().long()
    rows = torch.repeat_interleave(torch.arange(X.shape[0], device=indices.device), indptr.diff())
    places = torch.stack([rows, indices])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        C = torch.sparse_coo_tensor(places, X.values(), tuple(X.shape)).coalesce().to_sparse_csr()
    return arrays.csr(C.values(), C.col_indices(), C.crow_indices(), tuple(X.shape))
