"""EOF analysis of labelled fields: DataArrays in, DataArrays out, with their coordinates, units and gaps.

The names are those of xeofs: components (EOFs), scores (principal component time series), modes counted from 1.
"""

from shiftsvd.xarray.coupling import coupled
from shiftsvd.xarray.extending import extended
from shiftsvd.xarray.hilbert import hilbert
from shiftsvd.xarray.joining import joint
from shiftsvd.xarray.maps import correlation
from shiftsvd.xarray.modes import pca
from shiftsvd.xarray.patterns import patterns
from shiftsvd.xarray.projection import project
from shiftsvd.xarray.reconstruction import reconstruct
from shiftsvd.xarray.resampling import bootstrap
from shiftsvd.xarray.rotation import rotate
from shiftsvd.xarray.sampling import north
from shiftsvd.xarray.sides import side

__all__ = [
    "bootstrap",
    "correlation",
    "coupled",
    "extended",
    "hilbert",
    "joint",
    "north",
    "patterns",
    "pca",
    "project",
    "reconstruct",
    "rotate",
    "side",
]
