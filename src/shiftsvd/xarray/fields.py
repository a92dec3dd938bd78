"""Labelled fields as matrices of samples and cells and back; grids, and weights of cells by area."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray

from shiftsvd.io.base import optional
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import unmasked
from shiftsvd.runs.messages import notice


class Dataset(xarray.Dataset):  # type: ignore[misc]  # xarray is optional, and has no types for the checker
    """A Dataset that writes truth values among its attributes as 1 and 0: NetCDF has none."""

    __slots__ = ()

    def to_netcdf(self, *args: Any, **kwargs: Any) -> Any:
        plain = {key: int(value) if isinstance(value, bool) else value for key, value in self.attrs.items()}
        return xarray.Dataset.to_netcdf(self.assign_attrs(plain), *args, **kwargs)


def as_result(data: Any, **attrs: Any) -> Dataset:
    return Dataset(data.data_vars, data.coords, {**data.attrs, **attrs})


Mask = npt.NDArray[np.bool_]
Dims = tuple[Hashable, ...]

# Names that the result has for itself.
RESULTS: Final = (
    "components",
    "scores",
    "explained_variance",
    "explained_variance_ratio",
    "singular_values",
    "mean_field",
    "standard_deviation",
    "weights",
    "mode",
    "group",
    "groups",
    "group_means",
    "covariate",
    "covariates",
    "covariate_means",
    "slopes",
    "duals",
    "structure",
    "score_correlations",
    "score_means",
    "other",
)
# How the CF conventions say that stored numbers stand for others.
_PACKED: Final = ("scale_factor", "add_offset", "_FillValue", "missing_value")
# What else is said of stored numbers, and not of the field that they are.
_OF_NUMBERS: Final = (*_PACKED, "valid_range", "valid_min", "valid_max", "actual_range", "_Unsigned", "dtype")


class Stacked(NamedTuple):
    """A field as a matrix: the cells and samples that are present, and where they belong."""

    X: Any  # present samples x present cells
    rows: Mask
    cells: Mask
    over: Dims  # dimensions of the samples
    space: Dims
    n_missing: int = 0  # of X


def check_labelled(da: Any, name: str, kinds: str = "fiub") -> None:
    xarray = optional("xarray", "xarray")
    if not isinstance(da, xarray.DataArray):
        raise TypeError(
            f"{name} must be an xarray.DataArray, got {type(da).__name__}; choose one variable of a Dataset, "
            "or name the dimensions of an array"
        )
    if da.dtype.kind not in kinds:
        raise ValueError(f"{name} must hold real numbers, got {da.dtype}")


def check_field(da: Any, name: str = "da") -> None:
    check_labelled(da, name)
    if taken := [dim for dim in da.dims if dim in RESULTS]:
        raise ValueError(f"the name {taken[0]} is taken by the result; rename that dimension")


def as_field(da: Any, name: str = "da") -> Any:
    check_field(da, name)
    if not any(name in da.attrs for name in _PACKED):
        return da
    from xarray import decode_cf

    packed = da.drop_vars(list(da.coords)).to_dataset(name="field")
    return decode_cf(packed, decode_times=False)["field"].assign_coords(da.coords).rename(da.name)


def stacked(
    da: Any, dim: Hashable | Sequence[Hashable], missing: str = "error", name: str = "da", every: bool = False
) -> Stacked:
    """The field as a matrix without samples and cells that have no values; `missing` is as in `pca`.

    With `every`, samples without values are kept as gaps, unless those are an error.
    """
    check_field(da, name)
    over = (dim,) if isinstance(dim, str) or not isinstance(dim, Iterable) else tuple(dim)
    space = tuple(other for other in da.dims if other not in over)
    if not over or not set(over) <= set(da.dims) or not space:
        of = "" if name == "da" else f" of {name}"
        raise ValueError(f"dim must be one or some of the dimensions {da.dims}{of}, but not all of them, got {dim!r}")
    if not da.size:
        raise ValueError(f"{name} must have samples and cells, got sizes {dict(da.sizes)}")
    X = matrix(da, over, space)
    rows, cells, n_missing = _present(X, missing, name, every)
    if not rows.all():
        X = X[rows]
    return Stacked(X if cells.all() else X[:, cells], rows, cells, over, space, n_missing)


def tell_used(rows: Mask, over: Dims, where: str = "have values") -> None:
    if (used := int(np.count_nonzero(rows))) < len(rows):
        along = ", ".join(map(str, over))
        notice(f"{used:,} of {len(rows):,} samples along {along} {where} and are used; the others are left out.")


def at_rows(field: Stacked, rows: Mask) -> Stacked:
    keep = rows[field.rows]
    if keep.all():
        return field
    X, cells = field.X[keep], field.cells.copy()
    if not field.n_missing:
        return field._replace(X=X, rows=rows)
    _, there, n_missing = _present(X, "mean")
    cells[cells] = there
    return field._replace(X=X[:, there], rows=rows, cells=cells, n_missing=n_missing)


def matrix(da: Any, over: Dims, space: Dims) -> Any:
    return da.transpose(*over, *space).data.reshape(math.prod(da.sizes[dim] for dim in over), -1)


def at_once(**found: Any) -> dict[str, Any]:
    from xarray import Dataset

    known = Dataset(found).compute()
    return {name: known[name].values for name in found}


def _present(X: Any, how: str, name: str = "da", every: bool = False) -> tuple[Mask, Mask, int]:
    missing = np.isnan(X)
    asked = {"lost": ("row", missing.sum(axis=1)), "gaps": ("cell", missing.sum(axis=0))}
    # What is infinite would be missing once a mean is subtracted. Without gaps the operator looks for it.
    found = at_once(**asked, **({} if how == "error" else {"infinite": ((), np.isinf(X).sum())}))
    if count := int(found.get("infinite", 0)):
        raise ValueError(f"{name} must be finite or missing, {count} values are infinite; mask them with NaN")
    rows = found["lost"] < X.shape[1]
    if not rows.any():
        raise ValueError(f"{name} has no values, all are missing")
    if every and how != "error":
        rows = np.ones_like(rows)
    gaps = found["gaps"] - np.count_nonzero(~rows)
    cells: Mask = gaps < np.count_nonzero(rows)
    partly = cells & (gaps > 0)
    if partly.any() and how == "error":
        raise ValueError(
            f"a cell must have all its values or none, but {np.count_nonzero(partly)} of {len(cells)} miss some, "
            f"{int(gaps[partly].sum())} values in all; fill them, or mask these cells, "
            'or say missing="mean" or "em"'
        )
    return rows, cells, int(gaps[partly].sum())


def filled(values: Vector, present: Mask) -> Vector:
    if present.all():
        return values
    full = np.full((len(values), len(present)), np.nan, values.dtype)
    full[:, present] = values
    return full


def labelled(
    values: Vector, da: Any, dims: Dims, mode: Any = None, name: str | None = None, attrs: dict[str, Any] | None = None
) -> Any:
    """Values along these dimensions of a DataArray, with the coordinates that belong to them.

    `mode` is a coordinate of one dimension more, the first.
    """
    from xarray import DataArray

    known = da.coords.to_dataset()
    others = [key for key, of in known.variables.items() if key in RESULTS or not set(of.dims) <= set(dims)]
    belong = known.drop_vars(others)
    sizes = [da.sizes[dim] for dim in dims]
    if mode is not None:
        belong, dims, sizes = belong.assign_coords({mode.name: mode}), (mode.name, *dims), [len(mode), *sizes]
    return DataArray(values.reshape(sizes), belong.coords, dims, name, attrs)


def told_of(da: Any, *names: str) -> dict[str, Any]:
    return {key: told for key, told in da.attrs.items() if (key in names if names else key not in _OF_NUMBERS)}


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
