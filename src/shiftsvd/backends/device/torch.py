"""Tensors of PyTorch, dense or sparse, on a CPU or a CUDA device."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch

from shiftsvd.backends.blocked import cut
from shiftsvd.backends.device.arrays import PIECE, Arrays
from shiftsvd.backends.device.kernel import LEAST, Card
from shiftsvd.numerics.panels import Panel

NAMES = ("float16", "float32", "float64", "complex64", "complex128", "bool", "uint8", "int8", "int16", "int32", "int64")
TYPES = {np.dtype(name): getattr(torch, name) for name in NAMES}
KINDS: dict[Any, np.dtype[Any]] = {there: here for here, there in TYPES.items()}
KINDS[torch.bfloat16] = np.dtype(np.float16)  # of as many bytes: computed in single precision


@contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse C.. tensor support is in beta|Sparse invariant checks are")
        yield


class TorchArrays(Arrays):
    """Tensors on one device."""

    xp = torch

    def __init__(self, device: torch.device) -> None:
        super().__init__(device, device.type == "cpu")

    def check(self, X: Any) -> None:
        if X.requires_grad:
            raise ValueError("the tensor has requires_grad=True, but components have no gradients. Pass X.detach().")

    def up(self, x: Panel) -> Any:
        return torch.from_numpy(np.array(x, order="C")).to(self.device)  # of a copy: strides may be negative

    def down(self, x: Any) -> Panel:
        return np.array(x.resolve_conj().cpu().numpy())

    def dtype_of(self, x: Any) -> np.dtype[Any]:
        if x.dtype not in KINDS:
            raise ValueError(f"the matrix must be numeric, got a tensor of {x.dtype}. Pass X.to(torch.float32).")
        return KINDS[x.dtype]

    def in_dtype(self, x: Any, dtype: np.dtype[Any]) -> Any:
        return x.to(TYPES[dtype])

    def conj(self, x: Any) -> Any:
        return torch.conj_physical(x)  # a lazy conjugate fails on the values of a CSC

    def adjoint(self, x: Any) -> Any:
        return x.mH

    def is_finite(self, x: Any) -> bool:
        return bool((x - x == 0).all())  # torch.isfinite fails on the values of a complex CSR

    def column_largest(self, x: Any) -> Any:
        return x.amax(dim=0)

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
        by_columns = X.layout == torch.sparse_csc
        if by_columns:
            C = self.csr(self.conj(X.values()), X.row_indices(), X.ccol_indices(), (X.shape[1], X.shape[0]))
        else:
            with quiet():
                C = X.coalesce() if X.layout == torch.sparse_coo else X
                C = C if C.layout == torch.sparse_csr else C.to_sparse_csr()
        _check_places(C)
        return (C if _is_canonical(C) else _coalesced(C)), by_columns

    def by_rows(self, x: Any) -> Any:
        return x.contiguous()

    def csr(self, data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> Any:
        with quiet():
            return torch.sparse_csr_tensor(indptr, indices, data, size=shape, check_invariants=False)

    def parts(self, X: Any) -> tuple[Any, Any, Any]:
        return X.values(), X.col_indices(), X.crow_indices()

    def flipped(self, X: Any) -> Any:
        with quiet():
            C = X.to_sparse_csc()
        return self.csr(self.conj(C.values()), C.row_indices(), C.ccol_indices(), (X.shape[1], X.shape[0]))

    def dense(self, X: Any) -> Any:
        return X.to_dense()

    def for_entries(self, x: Any, X: Any) -> Any:
        return torch.repeat_interleave(x, X.crow_indices().diff())


class TorchCard(Card):
    """GPU with PyTorch tensors."""

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


_card = cache(TorchCard)  # kernels are compiled once for each device


def arrays_for(X: Any) -> TorchArrays | None:
    return TorchArrays(X.device) if isinstance(X, torch.Tensor) else None


def _check_places(X: Any) -> None:
    indptr, indices = X.crow_indices(), X.col_indices()
    ends = int(indptr[0]) == 0 and int(indptr[-1]) == len(indices) and len(indptr) == X.shape[0] + 1
    inside = not len(indices) or (int(indices.min()) >= 0 and int(indices.max()) < X.shape[1])
    if not (ends and inside and bool((indptr.diff() >= 0).all())):
        raise ValueError("the sparse tensor is corrupt: its indices lie outside the matrix. Rebuild the tensor.")


def _is_canonical(X: Any) -> bool:
    indptr, indices = X.crow_indices(), X.col_indices()
    return all(_ascend(indptr, indices, *part) for part in cut(len(indices) - 1, PIECE))


def _ascend(indptr: Any, indices: Any, lo: int, hi: int) -> bool:
    ascends = indices[lo : hi + 1].diff() > 0  # of entries lo + 1 to hi
    ascends[indptr[(indptr > lo) & (indptr <= hi)].long() - lo - 1] = True  # where a row begins
    return bool(ascends.all())


def _coalesced(X: Any) -> Any:
    indptr, indices = X.crow_indices().long(), X.col_indices().long()
    rows = torch.repeat_interleave(torch.arange(X.shape[0], device=indices.device), indptr.diff())
    with quiet():
        C = torch.sparse_coo_tensor(torch.stack([rows, indices]), X.values(), tuple(X.shape))
        return C.coalesce().to_sparse_csr()
