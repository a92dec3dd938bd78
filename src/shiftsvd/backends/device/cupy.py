"""Arrays of CuPy, dense or sparse, on a CUDA device."""

from functools import cache
from typing import Any

import cupy
import numpy as np
from cupyx.scipy import sparse

from shiftsvd.backends.device.arrays import Arrays
from shiftsvd.backends.device.kernel import LEAST, Card
from shiftsvd.numerics.panels import Panel


class CupyArrays(Arrays):
    """Arrays on the current CUDA device. CuPy uses TF32 only if an environment variable allows it."""

    xp = cupy

    def __init__(self) -> None:
        super().__init__("the current CUDA device", on_host=False)

    def up(self, x: Panel) -> Any:
        return cupy.asarray(x)

    def down(self, x: Any) -> Panel:
        return np.asarray(cupy.asnumpy(x))

    def dtype_of(self, x: Any) -> np.dtype[Any]:
        return np.result_type(x.dtype)

    def in_dtype(self, x: Any, dtype: np.dtype[Any]) -> Any:
        return x.astype(dtype, copy=False)

    def empty(self, shape: tuple[int, int], dtype: np.dtype[Any]) -> Any:
        return cupy.empty(shape, dtype)

    def copy(self, x: Any) -> Any:
        return x.copy()

    def hstack(self, x: Any, y: Any) -> Any:
        return cupy.hstack([x, y])

    def card(self) -> Card | None:
        here = cupy.cuda.Device()
        capability = int(here.compute_capability[:-1]), int(here.compute_capability[-1])
        if cupy.cuda.runtime.is_hip or capability < LEAST:
            return None
        return _card(int(here.id), f"sm_{here.compute_capability}")

    def is_sparse(self, X: Any) -> bool:
        return bool(sparse.issparse(X))

    def sound_csr(self, X: Any) -> tuple[Any, bool]:
        C = X.tocsr()
        if not C.has_canonical_format:
            C = C.copy()
            C.sum_duplicates()
        return C, False

    def by_rows(self, x: Any) -> Any:
        return cupy.ascontiguousarray(x)

    def csr(self, data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> Any:
        return sparse.csr_matrix((data, indices, indptr), shape=shape)

    def parts(self, X: Any) -> tuple[Any, Any, Any]:
        return X.data, X.indices, X.indptr

    def flipped(self, X: Any) -> Any:
        C = X.tocsc()
        return self.csr(C.data.conj(), C.indices, C.indptr, X.shape[::-1])

    def dense(self, X: Any) -> Any:
        return X.toarray()

    def for_entries(self, x: Any, X: Any) -> Any:
        return x[cupy.searchsorted(X.indptr[1:], cupy.arange(X.nnz), side="right")]


class CupyCard(Card):
    """GPU with CuPy arrays."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return cupy.empty(shape, dtype)

    def pointer(self, x: Any) -> int:
        return int(x.data.ptr)

    def stream(self) -> int:
        return int(cupy.cuda.get_current_stream().ptr)


_card = cache(CupyCard)  # kernels are compiled once for each device


def arrays_for(X: Any) -> CupyArrays | None:
    return CupyArrays() if isinstance(X, cupy.ndarray) or sparse.issparse(X) else None
