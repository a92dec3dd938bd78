"""Matrices with missing entries: what is observed stays where it is, and a low-rank matrix stands for the rest."""

from typing import Any

import numpy as np
from scipy.sparse import issparse

from shiftsvd.backends.device import arrays_of
from shiftsvd.backends.files import DiskRows
from shiftsvd.backends.sparse import adjoint_of
from shiftsvd.backends.validation import canonical, finite_dense, from_frame, is_frame, named, numeric_array
from shiftsvd.kernels import default_threads
from shiftsvd.missing.gaps.base import Gaps, HeldGaps, Observed
from shiftsvd.missing.gaps.file import FileGaps
from shiftsvd.missing.gaps.memory import ArrayGaps, StoredGaps, UnstoredGaps
from shiftsvd.runs.memory import affordable

__all__ = ["Gaps", "HeldGaps", "Observed", "gaps_of", "with_nan"]


def gaps_of(
    X: Any, unobserved: bool = False, n_threads: int | None = None, memory_limit: int | str | None = None
) -> Gaps:
    if isinstance(X, Gaps):
        return X
    threads = n_threads or default_threads()
    if isinstance(X, DiskRows) and not unobserved and X.shift is None:
        return FileGaps(X)
    if is_frame(X):
        with named(X.columns):
            return gaps_of(from_frame(X), unobserved, n_threads, memory_limit)
    if issparse(X):
        C, by_columns = canonical(X, threads, memory_limit, allow_nan=True)
        if by_columns:
            affordable(C.nnz * (C.dtype.itemsize + C.indices.itemsize), memory_limit, "converting CSC to CSR")
            C = adjoint_of(C)
        return UnstoredGaps(C, threads, memory_limit) if unobserved else StoredGaps(C, threads, memory_limit)
    if unobserved:
        raise ValueError(f"unobserved=True is for sparse matrices, got {type(X).__name__}; mark missing entries by NaN")
    if hasattr(X, "rmatmat") or type(X).__module__.partition(".")[0] == "dask" or arrays_of(X) is not None:
        kinds = "arrays in memory, sparse matrices and files opened by open_matrix"
        remedy = "of a Dask array, fill them: da.where(da.isnan(X), da.nanmean(X, axis=0), X)"
        raise TypeError(f"missing entries are found in {kinds}, got {X}; {remedy}")
    X = _in_floats(numeric_array(with_nan(X)))
    finite_dense(X, allow_nan=True)
    return ArrayGaps(X, threads)


def with_nan(X: Any) -> Any:
    return _in_floats(X).filled(np.nan) if isinstance(X, np.ma.MaskedArray) else X


def _in_floats(X: Any) -> Any:
    return X if X.dtype.kind in "fc" else X.astype(np.float64)
