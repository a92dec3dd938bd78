"""Sparse x panel, one range of rows at a time, on SciPy's routines; and the threads that drive them."""

from shiftsvd.kernels.rows import gather, moments, row_moments, scatter, take_rows
from shiftsvd.kernels.threads import default_threads, given_threads, ordered, threads

__all__ = [
    "default_threads",
    "gather",
    "given_threads",
    "moments",
    "ordered",
    "row_moments",
    "scatter",
    "take_rows",
    "threads",
]
