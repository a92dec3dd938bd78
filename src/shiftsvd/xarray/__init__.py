"""EOF analysis of labelled fields: DataArrays in, DataArrays out, with their coordinates, units and gaps.

The names are those of xeofs: components (EOFs), scores (principal component time series), modes counted from 1.
"""

from shiftsvd.xarray.modes import pca
from shiftsvd.xarray.projection import project, reconstruct

__all__ = ["pca", "project", "reconstruct"]
