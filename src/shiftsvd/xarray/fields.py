"""Convert labelled fields to matrices of samples x cells and back; match grids and samples; weight cells by area.

Functions import xarray when they need it, because `shiftsvd fit` imports this module for any file.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shiftsvd.extend.files import times_decoded
from shiftsvd.extend.operators import unmasked
from shiftsvd.extend.running import Refused, Setting, few, notice, plural, refuse

if TYPE_CHECKING:
    from pandas import Index
    from xarray import DataArray

Vector = npt.NDArray[Any]
Panel = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]
Dims = tuple[Hashable, ...]
Dim = Hashable | Sequence[Hashable]
Attrs = dict[str, Any]

ERROR_BOUNDS: Final = ("value_errors", "vector_errors")  # of `shiftsvd.Info`, along the modes
# Names of variables in results; dimensions and coordinates of a field must not have these names.
RESULTS: Final = (
    "components",
    "scores",
    "explained_variance",
    "explained_variance_ratio",
    "singular_values",
    *ERROR_BOUNDS,
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
# Attributes of packed numbers in the CF conventions.
_PACKED: Final = ("scale_factor", "add_offset", "_FillValue", "missing_value")
# Attributes that describe the stored numbers, not the field.
_OF_NUMBERS: Final = ("valid_range", "valid_min", "valid_max", "actual_range", "_Unsigned", "dtype")
MAX_CHUNK: Final = 2**30  # largest chunk in bytes to recommend
# Absolute values that stand for missing values in files without the attribute _FillValue, and the least of others.
FILLS: Final = (999.0, 9999.0, 32767.0, 32768.0)
LEAST_FILL: Final = 1e15
EPS: Final = float(np.finfo(np.float32).eps)
LEAST_TOLD: Final = 2**27  # bytes of a lazy field from which on slow chunks cause a notice
# Entries in a block of a product or a difference: 8 MiB in double precision.
BLOCK: Final = 2**20


class Stacked(NamedTuple):
    """A field as a matrix of its present samples and cells, with their positions in the field."""

    X: Any  # present samples x present cells, an array of NumPy or Dask
    rows: Mask
    cells: Places  # of the columns of X, in the order of the field
    over: Dims  # dimensions of the samples
    space: Dims
    n_missing: int = 0  # of X
    da: Any = None  # the field

    def in_space(self, values: Panel, mode: "DataArray | None" = None, attrs: Attrs | None = None) -> "DataArray":
        full = with_absent_cells(np.atleast_2d(values), self.cells, math.prod(self.da.sizes[dim] for dim in self.space))
        return labelled(full if mode is not None else full[0], self.da, self.space, mode, attrs=attrs)

    def in_time(self, Z: Panel, mode: "DataArray") -> "DataArray":
        return labelled(with_absent_cells(Z.T, self.rows), self.da, self.over, mode)


def check_labelled(da: Any, name: str, kinds: str = "fiub") -> None:
    from xarray import DataArray

    if not isinstance(da, DataArray):
        raise TypeError(
            f"{name} must be an xarray.DataArray, got {type(da).__name__}. Select a variable of a Dataset, or wrap an "
            "array in a DataArray with named dimensions."
        )
    if da.dtype.kind not in kinds:
        remedy = ". Pass the real and the imaginary part as two fields to joint." if da.dtype.kind == "c" else ""
        raise ValueError(f"{name} must hold real numbers, got {da.dtype}{remedy}")


def as_field(da: Any, name: str = "da") -> "DataArray":
    check_labelled(da, name)
    if taken := [dim for dim in da.dims if dim in RESULTS]:
        raise ValueError(f"{name} has a dimension {taken[0]!r}, a name that results use. Rename the dimension.")
    if not any(key in da.attrs for key in _PACKED):
        return da
    from xarray import decode_cf

    packed = da.drop_vars(list(da.coords)).to_dataset(name="field")
    return decode_cf(packed, decode_times=False)["field"].assign_coords(da.coords).rename(da.name)


def is_several(data: Any) -> bool:
    return isinstance(data, Mapping) or (isinstance(data, Sequence) and not isinstance(data, str))


def as_fields(data: Any) -> "dict[str, DataArray]":
    if not is_several(data):
        raise TypeError(
            f"data must be a Dataset, a list of DataArrays, or a mapping from names to them, got {type(data).__name__}"
        )
    if isinstance(data, Mapping):
        pairs = list(getattr(data, "data_vars", data).items())
    else:
        pairs = [(getattr(da, "name", None) or f"field{i}", da) for i, da in enumerate(data, 1)]
    names = [str(name) for name, _ in pairs]
    if hasattr(data, "data_vars") and (edges := [name for name in names if name in bounds_of(data)]):
        others = [name for name in names if name not in edges] or ["sst"]
        raise ValueError(
            f"data must hold fields alone, got bounds of coordinates: {few(edges)}. Select one field with "
            f"data[{others[0]!r}], or several with a list of names."
        )
    _check_names(names)
    return {name: as_field(da, name) for name, (_, da) in zip(names, pairs, strict=True)}


def _check_names(names: list[str]) -> None:
    if not names:
        raise ValueError("data must have at least one field, got none")
    if len(set(names)) < len(names):
        raise ValueError(f"data must have fields with unique names, got {names}. Rename one with da.rename(...).")
    if prefixes := [a for a in names for b in names if a != b and b.startswith(f"{a}_")]:
        raise ValueError(
            f"the name of no field may begin with '{prefixes[0]}_', because {prefixes[0]!r} is also a field and the "
            "results would have equal names. Rename one of the fields."
        )


def bounds_of(data: Any) -> set[str]:
    # of the cells along coordinates, as in the CF conventions
    named = {
        str(of[key])
        for known in data.variables.values()
        for of in (known.attrs, known.encoding)
        for key in ("bounds", "climatology")
        if key in of
    }
    return named | {str(name) for name in data.data_vars if str(name).endswith(("_bnds", "_bounds"))}


def as_dims(dim: Dim) -> list[Hashable]:
    return [dim] if isinstance(dim, str) or not isinstance(dim, Iterable) else list(dim)


def stacked(da: "DataArray", dim: Dim, missing: str = "error", name: str = "da", every: bool = False) -> Stacked:
    # Exclude samples and cells without values. With `every`, keep such samples as gaps, unless gaps are an error.
    over = tuple(as_dims(dim))
    space = tuple(other for other in da.dims if other not in over)
    if absent := [each for each in over if each not in da.dims]:
        known = f"{name} has no dimension {absent[0]!r}, only {few(da.dims)}. Pass the dimension of its samples as "
        raise Refused(known, Setting("dim"), ".")
    if not over or not space:
        of = "" if name == "da" else f" of {name}"
        raise refuse("dim", f"be one or several of the dimensions {da.dims}{of}, but not all", dim)
    if not da.size:
        raise ValueError(f"{name} must have samples and cells, got an empty array of sizes {dict(da.sizes)}")
    notice_chunks(da, over, space, name)
    X, cells = _in_chunks(da, over, space)
    rows, present, n_missing = _present(X, missing, name, every)
    if not rows.all():
        X = X[rows]
    return Stacked(X if present.all() else X[:, present], rows, cells[present], over, space, n_missing, da)


def _in_chunks(da: "DataArray", over: Dims, space: Dims) -> tuple[Any, Places]:
    # In the order of the field, Dask would cut and join chunks that hold parts of lines of cells.
    n_cells = math.prod(da.sizes[dim] for dim in space)
    if not is_lazy(da.data) or all(len(da.variable.chunksizes[dim]) == 1 for dim in space[1:]):
        return matrix_of(da, over, space), np.arange(n_cells)
    from dask.array import from_array, reshape_blockwise

    X, chunks = da.transpose(*over, *space).data, tuple(da.variable.chunksizes[dim] for dim in space)
    X = X if len(over) == 1 else X.reshape(-1, *X.shape[len(over) :])
    order = from_array(np.arange(n_cells).reshape(X.shape[1:]), chunks)
    return reshape_blockwise(X, (len(X), n_cells)), reshape_blockwise(order, n_cells).compute()


def matrix_of(da: "DataArray", over: Dims, space: Dims) -> Any:
    return da.transpose(*over, *space).data.reshape(math.prod(da.sizes[dim] for dim in over), -1)


def _present(X: Any, how: str, name: str = "da", every: bool = False) -> tuple[Mask, Mask, int]:
    missing = np.isnan(X)
    counts = {"lost": ("row", missing.sum(axis=1)), "gaps": ("cell", missing.sum(axis=0))}
    # An infinite value would become NaN when a mean is subtracted. Without gaps `as_operator` checks for infinity.
    found = compute_together(**counts, **({} if how == "error" else {"infinite": ((), np.isinf(X).sum())}))
    if count := int(found.get("infinite", 0)):
        raise ValueError(f"{name} must be finite or NaN, got {plural(count, 'infinite value')}. Replace them by NaN.")
    rows = found["lost"] < X.shape[1]
    if not rows.any():
        raise ValueError(f"{name} has no values: all are missing. Pass a field with values.")
    if every and how != "error":
        rows = np.ones_like(rows)
    gaps = found["gaps"] - np.count_nonzero(~rows)
    cells: Mask = gaps < np.count_nonzero(rows)
    partly = cells & (gaps > 0)
    if partly.any() and how == "error":
        raise Refused(
            f"{name} has {plural(int(gaps[partly].sum()), 'missing value')} in {np.count_nonzero(partly):,} of "
            f"{len(cells):,} cells, which have values in other samples. Fill these values, set the cells to NaN in all "
            "samples, or use ",
            *(Setting("missing", "mean"), ' or "em".'),
        )
    return rows, cells, int(gaps[partly].sum())


def keep_samples(field: Stacked, rows: Mask) -> Stacked:
    keep = rows[field.rows]
    if keep.all():
        return field
    X = field.X[keep]
    if not field.n_missing:
        return field._replace(X=X, rows=rows)
    _, there, n_missing = _present(X, "mean")
    return field._replace(X=X[:, there], rows=rows, cells=field.cells[there], n_missing=n_missing)


def notice_used(rows: Mask, over: Dims, where: str = "have values") -> None:
    if (used := int(np.count_nonzero(rows))) < len(rows):
        along = ", ".join(map(str, over))
        notice(f"{used:,} of {len(rows):,} samples along {along} {where}. The other samples are excluded.")


def notice_chunks(da: "DataArray", over: Dims, space: Dims, name: str) -> None:
    # Whole maps of some samples, or all samples of some cells, are multiplied as they are read. Dask cuts and joins
    # other chunks, which holds the field in memory.
    if not is_lazy(da.data) or da.nbytes < LEAST_TOLD:
        return
    file, cut = da.encoding.get("preferred_chunks") or {}, {dim: da.variable.chunksizes[dim] for dim in da.dims}
    each = [times_decoded([0, *accumulate(cut[dim])], int(file.get(dim, 1))) for dim in da.dims]
    times = float(np.prod(each))
    both = all(any(len(cut[dim]) > 1 for dim in dims) for dims in (over, space))
    if times < 2 and not both:
        return
    whole = dict.fromkeys(da.dims, -1)
    first = {dim: int(file.get(dim, cut[dim][0])) for dim in (*over, *space[:1])}
    sides = [whole | {dim: first[dim] for dim in side} for side in (over, space[:1])]
    sizes = [math.prod(da.sizes[dim] if n < 0 else n for dim, n in side.items()) * da.dtype.itemsize for side in sides]
    best = int(np.argmin(sizes))
    if times < 2 or any("rechunk" in layer for layer in da.data.dask.layers):  # Dask keeps each chunk that it has read
        why, use = f"cuts and joins all chunks, in up to {da.nbytes / 1e9:,.1f} GB of memory", "Use da.chunk({})."
    else:
        why, use = f"decompresses each chunk of the file about {times:,.0f} times", "Open the file with chunks={}."
    remedy = use.format(sides[best])
    if sizes[best] > MAX_CHUNK:
        remedy = "Rechunk the file once, for example with the package rechunker, or nccopy -c for NetCDF."
    notice(f"{name} has chunks that slow down the fit: each pass {why}. {remedy}")


def notice_open_slopes(counts: Vector, n: int, names: Sequence[str]) -> None:
    for name, count in zip(names, counts.tolist(), strict=True):
        if count:
            notice(
                f"Covariate {name!r} does not vary, or depends on the others, over the values of {count:,} of {n:,} "
                "cells. Values of such a cell do not determine the slope of the covariate, which may be 0."
            )


def notice_units(known: Attrs, own: Attrs) -> None:
    if known.get("units") and own.get("units") and known["units"] != own["units"]:
        notice(
            f"da has the units {own['units']!r}, and the field of the fit {known['units']!r}. Convert da, unless both "
            "mean the same."
        )


def notice_unvarying(cells: Mask, name: Hashable) -> None:
    if count := int(np.count_nonzero(cells)):
        of = "the field" if name is None else name
        notice(
            f"Cells of {of} with no more values than the removed means and slopes, such as a single value: {count:,} "
            f"of {len(cells):,}. Their anomalies and components are 0, and reconstructions are the removed means. "
            "To exclude these cells, mask them with NaN."
        )


def notice_fill_values(mean: Vector, squares: Vector | None, name: Hashable) -> None:
    constant = np.abs(mean[np.asarray(squares) <= (EPS * mean) ** 2])
    filled = constant[(constant >= LEAST_FILL) | np.isin(constant, FILLS)]
    if count := len(filled):
        of = "the field" if name is None else name
        notice(
            f"{count:,} of {len(mean):,} cells of {of} hold a usual fill value in all samples, such as "
            f"{filled.max():g} (in absolute value). Replace it by NaN with da.where(...)."
        )


def ordered_as(first: "DataArray", other: "DataArray", dim: Dim, names: tuple[str, str]) -> "DataArray":
    for name in as_dims(dim):
        if name not in first.dims or name not in other.dims:
            continue  # `stacked` raises the error
        places, m, n = matching_places(first, other, name), first.sizes[name], other.sizes[name]
        text = f"{names[0]} and {names[1]} must have the same samples"
        if places is None:
            if m != n:
                raise ValueError(f"{text}, got {m:,} and {n:,} along {name}. Select the samples that both have.")
            continue
        common = np.unique(places[places >= 0])
        if not len(common) and other.indexes[name].is_unique:
            labels, own = first.indexes[name], other.indexes[name]
            raise ValueError(
                f"{text}, but no label along {name} is common: the first are {labels[0]} and {own[0]}."
                + make_equal(labels, own, name)
            )
        if len(common) < m or m != n:
            # `align` also selects cells, unless their dimensions are excluded.
            space = [own for own in dict.fromkeys((*first.dims, *other.dims)) if own not in as_dims(dim)]
            raise ValueError(
                f"{text}, each once, but along {name} only {len(common):,} of the {m:,} labels of {names[0]} are among "
                f'the {n:,} labels of {names[1]}. To keep common labels, use xarray.align(..., join="inner", '
                f"exclude={space})."
            )
        other = other.isel({name: places})
    return other


def make_equal(labels: "Index", own: "Index", dim: Hashable) -> str:
    dates = labels.dtype.kind == "M" or hasattr(labels[0], "calendar")
    alike = labels.dtype == own.dtype and getattr(labels, "calendar", None) == getattr(own, "calendar", None)
    if not (dates and alike):
        return " Make the labels equal."
    if labels.max() < own.min() or own.max() < labels.min():
        return ""
    return f' Make the labels equal: for months with other days, apply resample({dim}="MS").mean() to both.'


def matching_places(like: "DataArray", da: "DataArray", dim: Hashable) -> Places | None:
    # -1: absent or duplicate. None: the labels are equal, or one of the two has none.
    labels, own = (each.indexes.get(dim) for each in (like, da))
    if labels is None or own is None or labels.equals(own):
        return None
    return np.asarray(own.get_indexer(labels)) if own.is_unique else np.full(len(labels), -1)


# --- arrays ---------------------------------------------------------------------------------------------------------


def is_lazy(X: Any) -> bool:
    return hasattr(X, "__dask_graph__")


def compute_together(**found: Any) -> dict[str, Any]:
    # Compute several lazy arrays in one read; each argument is a pair of dimension names and array.
    from xarray import Dataset

    known = Dataset(found).compute()
    return {name: known[name].values for name in found}


def blocks(count: int, width: int) -> Iterator[slice]:
    step = max(1, BLOCK // width)
    return (slice(lo, lo + step) for lo in range(0, count, step))


def product(D: Panel, X: Any) -> Any:
    if is_lazy(X):
        import dask.array as da

        return da.from_array(D, chunks=(-1, X.chunks[0])) @ X.astype(np.float64)
    out = np.empty((len(D), X.shape[1]))
    for columns in blocks(X.shape[1], len(X)):
        out[:, columns] = D @ X[:, columns].astype(np.float64, copy=False)
    return out


def sums_of_squares(Y: Any) -> Any:
    # of the observed values of each column. The squares of small single precision numbers underflow in their precision.
    if is_lazy(Y):
        return np.nansum(Y.astype(np.float64) ** 2, axis=0)
    out = np.zeros(Y.shape[1])
    for rows in blocks(len(Y), Y.shape[1]):
        out += np.nansum(Y[rows].astype(np.float64) ** 2, axis=0)
    return out


def low_rank_like(X: Any, L: Panel, R: Panel) -> Any:
    if not is_lazy(X):
        return L @ R
    import dask.array as da

    return da.from_array(L, chunks=(X.chunks[0], -1)) @ da.from_array(R, chunks=(-1, X.chunks[1]))


def minus_low_rank(X: Any, factors: tuple[Panel, Panel], times: Vector | float = 1.0, dtype: Any = None) -> Any:
    # (X - L R) diag(times), lazy if X is
    (L, R), kind = factors, np.result_type(X.dtype, np.float32) if dtype is None else dtype
    if is_lazy(X):
        return ((X - low_rank_like(X, L, R)) * times).astype(kind)
    out = np.empty(X.shape, kind)
    for rows in blocks(len(X), X.shape[1]):
        out[rows] = (X[rows] - L[rows] @ R) * times
    return out


def with_absent_cells(values: Panel, present: Mask | Places, n_cells: int | None = None) -> Panel:
    full = np.full((len(values), len(present) if n_cells is None else n_cells), np.nan, values.dtype)
    full[:, present] = values
    return full


def labelled(
    values: Vector, da: "DataArray", dims: Dims, mode: "DataArray | None" = None, attrs: Attrs | None = None
) -> "DataArray":
    # With the coordinates of `da` on these dimensions; `mode` is the coordinate of an additional first dimension.
    from xarray import DataArray

    known = da.coords.to_dataset()
    others = [key for key, of in known.variables.items() if key in RESULTS or not set(of.dims) <= set(dims)]
    belong = known.drop_vars(others)
    sizes = [da.sizes[dim] for dim in dims]
    if mode is not None:
        belong, dims, sizes = belong.assign_coords({mode.name: mode}), (mode.name, *dims), [len(mode), *sizes]
    return DataArray(values.reshape(sizes), belong.coords, dims, attrs=attrs)


def attrs_of(da: "DataArray", *names: str) -> Attrs:
    return {key: value for key, value in da.attrs.items() if (key in names if names else key not in _OF_NUMBERS)}


# --- grids ----------------------------------------------------------------------------------------------------------

# The spellings of the CF conventions, in small letters.
_EAST: Final = ("degrees_east", "degree_east", "degrees_e", "degree_e", "degreese", "degreee")
_NAMES: Final = ("lon", "longitude", "nav_lon")
# Labels match if they differ by less than this share of the smallest step, because rounding to single precision and
# sums of steps change coordinates by as much.
_LABEL_TOLERANCE: Final = 1e-3


def on_grid(known: "DataArray", da: "DataArray", space: Dims, what: str = "da") -> "DataArray":
    # Match by labels, longitudes modulo 360. If one of the two has no labels, the sizes must agree.
    remedy = f"Interpolate {what} to the same grid first{': da.interp_like(eofs.mean_field)' if what == 'da' else ''}."
    for dim in space:
        if dim not in da.dims:
            raise ValueError(f"{what} must have the dimension {dim} with {known.sizes[dim]:,} cells, got {da.dims}")
        labels, own = (each.indexes.get(dim) for each in (known, da))
        if da.sizes[dim] != known.sizes[dim]:
            raise ValueError(
                f"{what} must have {known.sizes[dim]:,} cells along {dim}, got {da.sizes[dim]:,}. {remedy}"
            )
        if labels is None or own is None or labels.equals(own):
            continue
        places = _matching_cells(labels, own, _is_longitude(str(dim), da[dim].attrs))
        if places is None:
            of = "the components" if what == "da" else "da"
            raise ValueError(f"{what} must have the labels of {of} along {dim}. {remedy}")
        da = da.isel({dim: places})
        if labels.nlevels == 1:
            da = da.assign_coords({dim: known[dim].variable})
    return da


def _is_longitude(name: str, attrs: Mapping[str, Any]) -> bool:
    units = str(attrs.get("units", "degrees")).lower()
    standard = attrs.get("standard_name") == "longitude" or units in _EAST
    return standard or (name.lower() in _NAMES and units.startswith("degree"))


def _matching_cells(labels: "Index", own: "Index", around: bool) -> Places | None:
    from pandas import Index

    if not (labels.is_unique and own.is_unique):
        return None
    if not all(each.dtype.kind in "iufc" for each in (labels, own)):  # NumPy cannot convert dtypes of pandas
        places = np.asarray(own.get_indexer(labels))
        return None if np.any(places < 0) else places
    wanted, there = (np.asarray(each, np.float64) for each in (labels, own))
    steps = np.diff(np.sort(wanted))
    near = _LABEL_TOLERANCE * steps.min() if len(steps) else np.finfo(np.float32).eps * np.abs(wanted).max()
    if around:  # place the seam between two labels
        seam = wanted.min() - (steps.min() / 2 if len(steps) else 180)
        wanted, there = (wanted - seam) % 360, (there - seam) % 360
    order = np.argsort(there)
    known = Index(there[order])
    places = known.get_indexer(wanted, method="nearest", tolerance=near) if known.is_unique else np.full(1, -1)
    return order[places] if np.all(places >= 0) and len(np.unique(places)) == len(wanted) else None


# --- weights of cells -----------------------------------------------------------------------------------------------

# The spellings of the CF conventions, in small letters.
_NORTH: Final = ("degrees_north", "degree_north", "degrees_n", "degree_n", "degreesn", "degreen")
_MAX_LATITUDE: Final = 90 + 1e-3  # sums of steps of 0.1 end beyond 90


def cell_weights(da: "DataArray", weights: Any, space: Dims, cells: Places | None = None) -> Vector | None:
    if weights is None:
        return None
    if isinstance(weights, str):
        if weights != "coslat":
            raise refuse("weights", 'be "coslat", a DataArray, an array or a number', weights)
        weights = np.sqrt(np.cos(np.deg2rad(latitude_of(da))).clip(0))
    w = _over_space(da, weights, space).flatten()
    w = w if cells is None else w[cells]
    bad = int(np.count_nonzero(~(np.isfinite(w) & (w >= 0))))
    if bad or not w.any():
        got = plural(bad, "negative or not finite value") + " in" if bad else "0 in all"
        rule = f" must be finite, at least 0, and not all 0, got {got} {len(w):,} cells. "
        raise Refused(Setting("weights"), rule, "To exclude cells, mask them with NaN in da.")
    # Results are divided by weights, so replace a weight of 0, as at the poles, by eps times the largest weight.
    w[w == 0] = np.finfo(np.float64).eps * w.max()
    return w


def _over_space(da: "DataArray", weights: Any, space: Dims) -> Vector:
    if hasattr(weights, "dims"):
        check_labelled(weights, "weights")
        if unknown := [dim for dim in weights.dims if dim not in space]:
            raise refuse("weights", f"have only dimensions of the space, {space}", unknown[0])
        like = da.isel({dim: 0 for dim in da.dims if dim not in space}, drop=True)
        weights = on_grid(like, weights, weights.dims, "weights")
        weights = weights.broadcast_like(like).transpose(*space).values
    weights = np.asarray(unmasked("weights", weights), np.float64)
    sizes = tuple(da.sizes[dim] for dim in space)
    # Do not broadcast from the right: on a square grid, latitudes would be used as longitudes.
    fits = weights.ndim in (0, len(sizes)) and all(
        n in (1, size) for n, size in zip(weights.shape, sizes, strict=False)
    )
    if not fits:
        rule = f"have the shape {sizes} of the space {space}, where any size may be 1"
        raise refuse("weights", rule, weights.shape)
    return np.broadcast_to(weights, sizes)


def latitude_of(da: "DataArray") -> "DataArray":
    known = [(str(name).lower(), coordinate) for name, coordinate in da.coords.items()]
    found = [coordinate for rule in _LATITUDES for name, coordinate in known if rule(name, coordinate.attrs)]
    if not found:
        text = f" requires a coordinate lat or latitude, got the coordinates {', '.join(map(str, da.coords)) or 'none'}"
        raise Refused(Setting("weights", "coslat"), text)
    latitude = found[0]
    units, values = str(latitude.attrs.get("units", "")), latitude.values
    beyond = values[np.abs(values) > _MAX_LATITUDE]
    if beyond.size or units.startswith("rad"):
        text = f"values such as {beyond.flat[0]}" if beyond.size else f"the units {units!r}"
        remedy = "Name the latitudes lat" if beyond.size else "Convert it to degrees"
        raise Refused(
            Setting("weights", "coslat"),
            f" requires latitudes in -90..90 degrees, but the coordinate {latitude.name} has {text}. {remedy}, or pass "
            "the weights as an array.",
        )
    return latitude


# Rules for latitudes, the surest first.
_LATITUDES: Final[tuple[Callable[[str, Mapping[str, Any]], bool], ...]] = (
    lambda name, attrs: attrs.get("standard_name") == "latitude" or str(attrs.get("units")).lower() in _NORTH,
    lambda name, attrs: name in ("lat", "latitude", "nav_lat"),
    lambda name, attrs: name == "yc" and str(attrs.get("units", "degrees")).lower().startswith("degree"),
)
