"""EOF analysis of labelled fields: functions take and return DataArrays with coordinates, units and missing values.

Names follow xeofs: components (EOFs), scores (principal component time series), and modes numbered from 1.
"""

from typing import TYPE_CHECKING

from shiftsvd.extend import lazy

if TYPE_CHECKING:
    from shiftsvd.xarray.coupling import coupled as coupled
    from shiftsvd.xarray.datasets import side as side
    from shiftsvd.xarray.modes import joint as joint
    from shiftsvd.xarray.modes import pca as pca
    from shiftsvd.xarray.projection import project as project
    from shiftsvd.xarray.projection import reconstruct as reconstruct
    from shiftsvd.xarray.rotation import patterns as patterns
    from shiftsvd.xarray.rotation import rotate as rotate
    from shiftsvd.xarray.sampling import bootstrap as bootstrap
    from shiftsvd.xarray.sampling import correlation as correlation
    from shiftsvd.xarray.sampling import north as north
    from shiftsvd.xarray.travelling import extended as extended
    from shiftsvd.xarray.travelling import hilbert as hilbert


if not TYPE_CHECKING:  # to a type checker a module with `__getattr__` has every name
    _homes = {
        "shiftsvd.xarray.coupling": ("coupled",),
        "shiftsvd.xarray.datasets": ("side",),
        "shiftsvd.xarray.modes": ("joint", "pca"),
        "shiftsvd.xarray.projection": ("project", "reconstruct"),
        "shiftsvd.xarray.rotation": ("patterns", "rotate"),
        "shiftsvd.xarray.sampling": ("bootstrap", "correlation", "north"),
        "shiftsvd.xarray.travelling": ("extended", "hilbert"),
    }
    __getattr__, __dir__ = lazy(__name__, _homes)
    __all__ = sorted(name for names in _homes.values() for name in names)
