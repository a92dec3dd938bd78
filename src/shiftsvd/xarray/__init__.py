"""EOF analysis of labelled fields: DataArrays in, DataArrays out, with their coordinates, units and gaps.

The names are those of xeofs: components (EOFs), scores (principal component time series), modes counted from 1.
"""

from shiftsvd.xarray.modes import pca
from shiftsvd.xarray.patterns import patterns
from shiftsvd.xarray.projection import project, reconstruct
from shiftsvd.xarray.rotation import rotate

__all__ = ["patterns", "pca", "project", "reconstruct", "rotate"]
