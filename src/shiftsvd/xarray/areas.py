"""What the cells of a field weigh: numbers that are given, or the cosine of their latitude."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import unmasked
from shiftsvd.xarray.fields import Stacked, check_labelled
from shiftsvd.xarray.grids import on_grid

# The spellings of the CF conventions, in small letters.
_NORTH: Final = ("degrees_north", "degree_north", "degrees_n", "degree_n", "degreesn", "degreen")
_POLE: Final = 90 + 1e-3  # sums of steps of 0.1 end beyond 90


def cell_weights(da: Any, weights: Any, field: Stacked) -> Vector | None:
    if weights is None:
        return None
    if isinstance(weights, str):
        if weights != "coslat":
            raise ValueError(f'weights must be "coslat", a DataArray, an array or a number, got {weights!r}')
        weights = np.sqrt(np.cos(np.deg2rad(latitude_of(da))).clip(0))
    w: Vector = _over_space(da, weights, field).ravel()[field.cells]
    bad = np.count_nonzero(~(np.isfinite(w) & (w >= 0)))
    if bad or not w.any():
        raise ValueError(
            f"weights must be finite, at least 0, and not all 0; {bad} of {len(w)} are not; mask cells of da with NaN"
        )
    # The poles: what is divided by a weight must be finite, and a part of eps is lost beside the others.
    w[w == 0] = np.finfo(np.float64).eps * w.max()
    return w


def _over_space(da: Any, weights: Any, field: Stacked) -> Vector:
    if hasattr(weights, "dims"):
        check_labelled(weights, "weights")
        if unknown := [dim for dim in weights.dims if dim not in field.space]:
            raise ValueError(f"weights must have dimensions of the space, {field.space}, got {unknown[0]!r}")
        like = da.isel(dict.fromkeys(field.over, 0), drop=True)
        weights = on_grid(like, weights, weights.dims)
        weights = weights.broadcast_like(like).transpose(*field.space).values
    weights = np.asarray(unmasked("weights", weights), np.float64)
    sizes = tuple(da.sizes[dim] for dim in field.space)
    # No broadcasting from the right: the latitudes of a square grid would be taken for its longitudes.
    fits = weights.ndim in (0, len(sizes)) and all(
        n in (1, size) for n, size in zip(weights.shape, sizes, strict=False)
    )
    if not fits:
        raise ValueError(
            f"weights must have the shape {sizes} of the space {field.space}, or 1 for any of its sides, "
            f"got {weights.shape}"
        )
    return np.broadcast_to(weights, sizes)


def latitude_of(da: Any) -> Any:
    rules = (_says_latitude, _is_named_latitude, _may_be_latitude)
    known = [(str(name).lower(), coordinate) for name, coordinate in da.coords.items()]
    found = [coordinate for rule in rules for name, coordinate in known if rule(name, coordinate.attrs)]
    if not found:
        raise ValueError(f'weights="coslat" needs a coordinate lat or latitude, da has {list(da.coords)}')
    latitude = found[0]
    units, values = str(latitude.attrs.get("units", "")), latitude.values
    beyond = values[np.abs(values) > _POLE]
    if beyond.size or units.startswith("rad"):
        told = f"values such as {beyond.flat[0]}" if beyond.size else f"the units {units!r}"
        raise ValueError(
            f'weights="coslat" needs latitudes in -90..90 degrees, the coordinate {latitude.name} has {told}; '
            "name the latitudes lat, or give the weights as an array"
        )
    return latitude


def _says_latitude(name: str, attrs: Mapping[str, Any]) -> bool:
    return attrs.get("standard_name") == "latitude" or str(attrs.get("units")).lower() in _NORTH


def _is_named_latitude(name: str, attrs: Mapping[str, Any]) -> bool:
    return name in ("lat", "latitude", "nav_lat")


def _may_be_latitude(name: str, attrs: Mapping[str, Any]) -> bool:
    return name == "yc" and str(attrs.get("units", "degrees")).lower().startswith("degree")
