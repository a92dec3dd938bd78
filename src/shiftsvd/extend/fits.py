"""Names for fits, their settings and results."""

from typing import TYPE_CHECKING

from shiftsvd.estimators.attributes import absent_limit, on_places
from shiftsvd.front import integer, planned, within
from shiftsvd.missing.completion import check_unused, regressed_rows
from shiftsvd.missing.gaps import Gaps, Observed, gaps_of
from shiftsvd.names import lazy
from shiftsvd.preparation.covariates import Column, Design
from shiftsvd.preparation.shifts import deviations

if TYPE_CHECKING:
    from shiftsvd.estimators.batches import BatchPCA
    from shiftsvd.missing.lazy import LazyGaps
else:  # they import scikit-learn and Dask
    _homes = {"shiftsvd.estimators.batches": ("BatchPCA",), "shiftsvd.missing.lazy": ("LazyGaps",)}
    __getattr__, __dir__ = lazy(__name__, _homes)
