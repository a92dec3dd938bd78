"""EOF analysis of labelled fields: DataArrays in, DataArrays out, with their coordinates, units and gaps.

The names are those of xeofs: components (EOFs), scores (principal component time series), modes counted from 1.
"""

from shiftsvd.xarray.coupling import coupled, side
from shiftsvd.xarray.joining import joint
from shiftsvd.xarray.modes import pca
from shiftsvd.xarray.projection import project, reconstruct
from shiftsvd.xarray.rotation import patterns, rotate
from shiftsvd.xarray.sampling import bootstrap, correlation, north
from shiftsvd.xarray.travelling import extended, hilbert

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
