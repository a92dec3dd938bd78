"""Missing values: a matrix with gaps, what stands for them in a fit and in new rows, and the model of a completion."""

from shiftsvd.missing.completion import Completion, complete_matrix
from shiftsvd.missing.fits import MISSING, Account, check_unused, completed, with_missing

__all__ = [
    "MISSING",
    "Account",
    "Completion",
    "check_unused",
    "complete_matrix",
    "completed",
    "with_missing",
]
