"""Names for fits, their settings and results."""

from typing import TYPE_CHECKING

from shiftsvd.estimators.batches import BatchPCA
from shiftsvd.estimators.features import absent_limit, on_places
from shiftsvd.front import integer, planned, within
from shiftsvd.missing.completion import check_unused, regressed_rows
from shiftsvd.missing.gaps import Gaps, Observed, gaps_of
from shiftsvd.names import lazy
from shiftsvd.preparation.covariates import Column, Design
from shiftsvd.preparation.shifts import deviations

if TYPE_CHECKING:
    from shiftsvd.missing.lazy import LazyGaps
else:  # it imports Dask
    __getattr__, __dir__ = lazy(__name__, {"shiftsvd.missing.lazy": ("LazyGaps",)})
