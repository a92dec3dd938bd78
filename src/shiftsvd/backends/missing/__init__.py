"""Matrices with missing entries: what is observed stays where it is, and a low-rank matrix stands for the rest."""

from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from shiftsvd.backends.blocked import cut
from shiftsvd.backends.dense import BLOCK, native_dtype
from shiftsvd.backends.disk import DiskRows
from shiftsvd.backends.missing.array import ArrayGaps
from shiftsvd.backends.missing.base import Gaps, HeldGaps, entries, refuse_infinite
from shiftsvd.backends.missing.file import FileGaps
from shiftsvd.backends.missing.sparse import StoredGaps, UnstoredGaps
from shiftsvd.backends.validation import from_frame, is_frame, numeric_array, sound_structure
from shiftsvd.kernels import default_threads
from shiftsvd.runs.memory import affordable

__all__ = ["Gaps", "HeldGaps", "entries", "gaps_of", "with_nan"]


def gaps_of(
    X: Any, unobserved: bool = False, n_threads: int | None = None, memory_limit: int | str | None = None
) -> Gaps:
    """X with its missing entries: NaN, masked ones, and with `unobserved` all that a sparse matrix does not store."""
    if isinstance(X, Gaps):
        return X
    threads = n_threads or default_threads()
    if isinstance(X, DiskRows) and not unobserved and X.shift is None:
        return FileGaps(X)
    X = from_frame(X) if is_frame(X) else X
    if issparse(X):
        C = _canonical(X, memory_limit)
        return UnstoredGaps(C, threads, memory_limit) if unobserved else StoredGaps(C, threads, memory_limit)
    if unobserved:
        raise ValueError(f"unobserved=True is for sparse matrices, got {type(X).__name__}; mark missing entries by NaN")
    if hasattr(X, "rmatmat") or type(X).__module__.partition(".")[0] == "dask":
        kinds = "arrays in memory, sparse matrices and files opened by open_matrix"
        remedy = "of a Dask array, fill them: da.where(da.isnan(X), da.nanmean(X, axis=0), X)"
        raise TypeError(f"missing entries are found in {kinds}, got {X}; {remedy}")
    X = _in_floats(numeric_array(with_nan(X)))
    refuse_infinite(sum(int(np.isinf(X[lo:hi]).sum()) for lo, hi in cut(X.shape[0], BLOCK // X.shape[1])))
    return ArrayGaps(X, threads)


def with_nan(X: Any) -> Any:
    """X, with NaN in place of what is masked."""
    return _in_floats(X).filled(np.nan) if isinstance(X, np.ma.MaskedArray) else X


def _in_floats(X: Any) -> Any:
    """X as it is, or in double precision where it cannot hold NaN."""
    return X if X.dtype.kind in "fc" else X.astype(np.float64)


def _canonical(X: Any, memory_limit: int | str | None) -> Any:
    """A canonical CSR in floating point; other formats are converted."""
    if X.ndim != 2 or min(X.shape) < 1 or X.dtype.kind not in "fciub":
        raise ValueError(f"the matrix must be numeric and have two dimensions of at least 1, got {X.dtype} {X.shape}")
    affordable(X.nnz * 16, memory_limit, "sorting the observed entries")
    if X.format in ("csr", "csc"):
        sound_structure(X)
    if X.format != "csr":
        X = X.tocsr()
    used = int(X.indptr[-1])  # SciPy allows longer arrays
    data = np.ascontiguousarray(X.data[:used], native_dtype(X.dtype))
    indices, indptr = np.ascontiguousarray(X.indices[:used]), np.ascontiguousarray(X.indptr)
    C = csr_array((data, indices, indptr), shape=X.shape, copy=False)
    if not C.has_canonical_format:
        C = C.copy()
        C.sum_duplicates()
    refuse_infinite(int(np.isinf(C.data).sum()))
    return C
