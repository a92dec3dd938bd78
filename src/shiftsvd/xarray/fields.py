"""A labelled field as a matrix of samples and cells, and matrices as labelled fields again."""

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shiftsvd.io.base import optional
from shiftsvd.numerics.moments import Vector
from shiftsvd.runs.warned import notice

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
