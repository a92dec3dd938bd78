"""Handle missing values: matrices with gaps, imputation by means, and completion by a low-rank model."""

from shiftsvd.missing.completion import (
    MISSING,
    Completion,
    MissingSummary,
    check_unused,
    complete_matrix,
    completed,
    with_missing,
)

__all__ = [
    "MISSING",
    "Completion",
    "MissingSummary",
    "check_unused",
    "complete_matrix",
    "completed",
    "with_missing",
]
