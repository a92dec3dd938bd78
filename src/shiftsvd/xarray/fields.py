"""A labelled field as a matrix of samples and cells, and matrices as labelled fields again."""

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shiftsvd.io.base import optional
from shiftsvd.numerics.moments import Vector

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
    "weights",
    "mode",
)


class Stacked(NamedTuple):
    """A field as a matrix: the cells and samples that are present, and where they belong."""

    X: Any  # present samples x present cells
    rows: Mask
    cells: Mask
    over: Dims  # dimensions of the samples
    space: Dims


def check_labelled(da: Any, name: str) -> None:
    """Refuse what is no DataArray of real numbers."""
    xarray = optional("xarray", "xarray")
    if not isinstance(da, xarray.DataArray):
        raise TypeError(
            f"{name} must be an xarray.DataArray, got {type(da).__name__}; choose one variable of a Dataset, "
            "or name the dimensions of an array"
        )
    if da.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold real numbers, got {da.dtype}")


def check_field(da: Any) -> None:
    """Refuse what is no field, or has a dimension of a name that the result needs."""
    check_labelled(da, "da")
    if taken := [dim for dim in da.dims if dim in RESULTS]:
        raise ValueError(f"the name {taken[0]} is taken by the result; rename that dimension")


def check_space(known: Any, da: Any, space: Dims) -> None:
    """Refuse a field on another grid."""
    for dim in space:
        if dim not in da.dims or da.sizes[dim] != known.sizes[dim]:
            raise ValueError(f"the field must have {known.sizes[dim]} cells along {dim}, got {da.sizes.get(dim, 0)}")
        if dim in da.coords and dim in known.coords and not np.array_equal(da[dim], known[dim]):
            raise ValueError(f"the coordinate {dim} must be that of the components; interpolate the field first")


def stacked(da: Any, dim: Hashable | Sequence[Hashable]) -> Stacked:
    """The field as a matrix without what is missing."""
    check_field(da)
    over = (dim,) if isinstance(dim, str) or not isinstance(dim, Iterable) else tuple(dim)
    space = tuple(other for other in da.dims if other not in over)
    if not over or not set(over) <= set(da.dims) or not space:
        raise ValueError(f"dim must be one or some of the dimensions {da.dims}, but not all of them, got {dim!r}")
    X = matrix(da, over, space)
    rows, cells = _present(X)
    if not rows.all():
        X = X[rows]
    return Stacked(X if cells.all() else X[:, cells], rows, cells, over, space)


def matrix(da: Any, over: Dims, space: Dims) -> Any:
    """The field as a matrix, samples x cells, lazy where the field is."""
    return da.transpose(*over, *space).data.reshape(math.prod(da.sizes[dim] for dim in over), -1)


def at_once(**found: Any) -> dict[str, Any]:
    """(dimensions, values) by name, computed: of a Dask array all in one read."""
    from xarray import Dataset

    known = Dataset(found).compute()
    return {name: known[name].values for name in found}


def _present(X: Any) -> tuple[Mask, Mask]:
    """Which samples and which cells have values; a cell has all of them or none."""
    missing = np.isnan(X)
    found = at_once(lost=("row", missing.sum(axis=1)), gaps=("cell", missing.sum(axis=0)))
    rows = found["lost"] < X.shape[1]
    gaps = found["gaps"] - np.count_nonzero(~rows)
    cells: Mask = gaps < np.count_nonzero(rows)
    partly = cells & (gaps > 0)
    if not rows.any():
        raise ValueError("da has no values, all are missing")
    if partly.any():
        raise ValueError(
            f"a cell must have all its values or none, but {np.count_nonzero(partly)} of {len(cells)} miss some, "
            f"{int(gaps[partly].sum())} values in all; fill them, or mask these cells"
        )
    return rows, cells


def filled(values: Vector, present: Mask) -> Vector:
    """Rows of values with NaN where there are none."""
    if present.all():
        return values
    full = np.full((len(values), len(present)), np.nan, values.dtype)
    full[:, present] = values
    return full


def labelled(values: Vector, da: Any, dims: Dims, mode: Any = None, name: str | None = None) -> Any:
    """Values along these dimensions of a DataArray, with the coordinates that belong to them."""
    from xarray import DataArray

    belong = {key: known for key, known in da.coords.items() if set(known.dims) <= set(dims) and key not in RESULTS}
    sizes = [da.sizes[dim] for dim in dims]
    if mode is None:
        return DataArray(values.reshape(sizes), belong, dims, name)
    return DataArray(values.reshape(len(mode), *sizes), {**belong, "mode": mode.values}, ("mode", *dims), name)
