"""Fields on the same cells in another order: latitudes that fall, longitudes from 0 or from -180."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shiftsvd.numerics.moments import Vector
from shiftsvd.xarray.fields import Dims

# The spellings of the CF conventions, in small letters.
_EAST: Final = ("degrees_east", "degree_east", "degrees_e", "degree_e", "degreese", "degreee")
_NAMES: Final = ("lon", "longitude", "nav_lon")
# Labels that differ by less than this share of the least distance of two of them are the same: what rounding to single
# precision, or a sum of steps, makes of a coordinate.
_SAME: Final = 1e-3


def on_grid(known: Any, da: Any, space: Dims) -> Any:
    """A field with its cells in the order of a known one, which it must have all of: labels decide, not positions.

    Longitudes are the same 360 degrees further. Where one of them has no labels the sizes have to agree.
    """
    for dim in space:
        if dim not in da.dims:
            raise ValueError(f"the field must have {known.sizes[dim]} cells along {dim}, got 0")
        labels, own = (each.indexes.get(dim) if dim in each.coords else None for each in (known, da))
        if da.sizes[dim] != known.sizes[dim]:
            raise ValueError(f"the field must have {known.sizes[dim]} cells along {dim}, got {da.sizes[dim]}")
        if labels is None or own is None or labels.equals(own):
            continue
        places = _places(labels, own, is_longitude(str(dim), da[dim].attrs))
        if places is None:
            raise ValueError(f"the coordinate {dim} must be that of the components; interpolate the field first")
        da = da.isel({dim: places})
        if labels.nlevels == 1:
            da = da.assign_coords({dim: known[dim].variable})
    return da


def is_longitude(name: str, attrs: Mapping[str, Any]) -> bool:
    units = str(attrs.get("units", "degrees")).lower()
    said = attrs.get("standard_name") == "longitude" or units in _EAST
    return said or (name.lower() in _NAMES and units.startswith("degree"))


def _places(labels: Any, own: Any, around: bool) -> npt.NDArray[np.intp] | None:
    if not (labels.is_unique and own.is_unique):
        return None
    if not all(each.dtype.kind in "iufc" for each in (labels, own)):  # NumPy does not know those of pandas
        places = np.asarray(own.get_indexer(labels))
        return None if np.any(places < 0) else places
    wanted, there = (np.asarray(each, np.float64) for each in (labels, own))
    wanted, there = (wanted % 360, there % 360) if around else (wanted, there)
    places, apart = _nearest(wanted, there, around)
    steps = np.diff(np.sort(wanted))
    near = _SAME * steps.min() if len(steps) else np.finfo(np.float32).eps * np.abs(wanted).max()
    found = apart.max() <= near and len(np.unique(places)) == len(places)
    return places if found else None


def _nearest(wanted: Vector, there: Vector, around: bool) -> tuple[npt.NDArray[np.intp], Vector]:
    order = np.argsort(there)
    if around:
        order = np.concatenate([order[-1:], order, order[:1]])
    known = there[order]
    if around:
        known[0], known[-1] = known[0] - 360, known[-1] + 360
    above = np.searchsorted(known, wanted).clip(0, len(known) - 1)
    below = (above - 1).clip(0)
    best = np.where(np.abs(known[below] - wanted) < np.abs(known[above] - wanted), below, above)
    return order[best], np.abs(known[best] - wanted)
