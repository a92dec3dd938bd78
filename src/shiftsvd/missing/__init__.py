"""Handle missing values: matrices with gaps, imputation by means, and completion by a low-rank model."""

from shiftsvd.missing.completion import Completion, complete_matrix
from shiftsvd.missing.fits import MISSING, MissingSummary, check_unused, completed, with_missing

__all__ = [
    "MISSING",
    "Completion",
    "MissingSummary",
    "check_unused",
    "complete_matrix",
    "completed",
    "with_missing",
]
