"""Sparse x panel, one range of rows at a time, on SciPy's routines; and the threads that drive them."""

from shiftsvd.kernels.rows import gather, moments, row_moments, scatter, take_rows
from shiftsvd.kernels.threads import default_threads, one_blas_thread, ordered

__all__ = [
    "default_threads",
    "gather",
    "moments",
    "one_blas_thread",
    "ordered",
    "row_moments",
    "scatter",
    "take_rows",
]
