"""EOF analysis of labelled fields: DataArrays in, DataArrays out, with their coordinates and their gaps.

The names are those of xeofs: components (EOFs), scores (principal component time series), modes counted from 1.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shiftsvd.backends import as_operator
from shiftsvd.estimators.pca import PCA
from shiftsvd.io.opening import optional
from shiftsvd.moments import Vector
from shiftsvd.operators import Operator

Mask = npt.NDArray[np.bool_]
Dims = tuple[Hashable, ...]

_LATITUDES = ("lat", "latitude", "nav_lat", "yc")
_FIT = ("components", "scores", "mean_field", "weights")  # what a Dataset must hold to be projected on


class _Stacked(NamedTuple):
    """A field as a matrix: the cells and samples that are present, and where they belong."""

    X: Any  # present samples x present cells
    rows: Mask
    cells: Mask
    over: Dims  # dimensions of the samples
    space: Dims


def pca(
    da: Any,
    n_modes: int = 10,
    *,
    dim: Hashable | Sequence[Hashable] = "time",
    weights: Any = None,
    center: bool = True,
    standardize: bool = False,
    solver: Any = "auto",
    tol: float = 1e-6,
    random_state: Any = 0,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
) -> Any:
    """Empirical orthogonal functions of a field: components in space, scores in time, variances.

    Parameters
    ----------
    da : xarray.DataArray
        With the dimension `dim` and any others. Cells that are missing everywhere along `dim`, and samples that miss
        all their cells, are left out and come back as NaN.
    n_modes : int
    dim : hashable, or sequence of them
        Along which there are samples; all other dimensions make up the space.
    weights : None, "coslat", DataArray or array, optional
        What the anomalies are multiplied by: ``sqrt(cos(latitude))``, or numbers that are not negative, with dimensions
        of the space (an array must have its shape).
    center : bool
        Subtract the mean over the samples.
    standardize : bool
        Divide by the standard deviation over the samples (ddof 0), before the weights.
    solver, tol, random_state, n_threads, memory_limit
        As in `shiftsvd.PCA`.

    Returns
    -------
    xarray.Dataset
        ``components (mode, *space)`` of length 1 in the weighted space, ``scores (mode, dim)`` in the weighted units
        of the field, ``explained_variance (mode)`` (ddof 1), ``explained_variance_ratio (mode)``,
        ``singular_values (mode)``, ``mean_field (*space)`` and ``weights (*space)``: what was subtracted, and what the
        rest was multiplied by.

    Raises
    ------
    ValueError
        For values that are missing here and there: the message counts them.

    Notes
    -----
    ``weights * (da - mean_field) = sum over modes of scores * components``. Cost: as `shiftsvd.PCA`, a look for missing
    values, and a pass for the scores. Only the cells that are present are copied, and only if some are not.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray
    >>> values = np.random.default_rng(0).standard_normal((20, 4, 5))
    >>> da = xarray.DataArray(values, dims=("time", "lat", "lon"), coords={"lat": [-45, -15, 15, 45]})
    >>> eofs = shiftsvd.xarray.pca(da, n_modes=2, weights="coslat")
    >>> eofs.components.dims, eofs.mode.values
    (('mode', 'lat', 'lon'), array([1, 2]))
    """
    field = _stacked(da, dim)
    m, n = field.X.shape
    if not isinstance(n_modes, int | np.integer) or isinstance(n_modes, bool) or not 1 <= n_modes <= min(m, n):
        raise ValueError(f"n_modes must be in 1..{min(m, n)} for {m} samples of {n} cells, got {n_modes!r}")
    applied = _weights(da, weights, field)
    A = as_operator(field.X, n_threads=n_threads, memory_limit=memory_limit)
    model = PCA(
        n_modes,
        shift="mean" if center else None,
        scale=_scale(A, applied, standardize),
        solver=solver,
        tol=tol,
        random_state=random_state,
        n_threads=n_threads,
        memory_limit=memory_limit,
    ).fit(A)
    return _dataset(da, field, model, model.transform(A))


def project(eofs: Any, da: Any) -> Any:
    """Scores of another field on known components, by the mean and the weights that go with them.

    Parameters
    ----------
    eofs : xarray.Dataset
        What `pca` gave, perhaps from a file.
    da : xarray.DataArray
        On the same space: dimensions in any order, coordinates equal. All that is left over is the dimension of the
        samples. Samples that miss all their cells get NaN.

    Returns
    -------
    xarray.DataArray
        ``scores (mode, dim)``.

    Raises
    ------
    ValueError
        For another space, or values that are missing where the components have some.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray
    >>> values = np.random.default_rng(0).standard_normal((20, 4, 5))
    >>> da = xarray.DataArray(values, dims=("time", "lat", "lon"))
    >>> eofs = shiftsvd.xarray.pca(da, n_modes=2)
    >>> bool(np.allclose(shiftsvd.xarray.project(eofs, da[:3]), eofs.scores[:, :3]))
    True
    """
    _check_fit(eofs)
    space = eofs.mean_field.dims
    over = tuple(dim for dim in da.dims if dim not in space)
    _same_space(eofs, da, space)
    V = _matrix(eofs.components.transpose("mode", *space).data, 1)
    cells = ~np.isnan(V[0])
    X = _matrix(da.transpose(*over, *space).data, len(over))[:, cells]
    anomalies = (X - eofs.mean_field.data.ravel()[cells]) * eofs.weights.data.ravel()[cells]
    missing = np.isnan(anomalies)
    rows = ~missing.all(axis=1)
    if count := int(missing[rows].sum()):
        raise ValueError(f"the field must have values wherever the components have, {count} are missing; fill them")
    scores = np.full((len(V), len(X)), np.nan)
    scores[:, rows] = V[:, cells] @ anomalies[rows].T
    return _labelled(scores, da, over, mode=eofs.mode, name="scores")


def reconstruct(eofs: Any, scores: Any = None) -> Any:
    """The field that the modes make up, in its own units: ``mean_field + sum of scores * components / weights``.

    Parameters
    ----------
    eofs : xarray.Dataset
        What `pca` gave.
    scores : xarray.DataArray, optional
        Of all modes or of some, such as ``eofs.scores.sel(mode=[1, 2])``. Default: those of the Dataset.

    Returns
    -------
    xarray.DataArray
        Of the dimensions of the samples and the space.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray
    >>> values = np.random.default_rng(0).standard_normal((20, 4, 5))
    >>> da = xarray.DataArray(values, dims=("time", "lat", "lon"))
    >>> eofs = shiftsvd.xarray.pca(da, n_modes=20)
    >>> bool(np.allclose(shiftsvd.xarray.reconstruct(eofs), da))
    True
    """
    _check_fit(eofs)
    scores = eofs.scores if scores is None else scores
    over = [dim for dim in scores.dims if dim != "mode"]
    patterns = eofs.components.sel(mode=scores.mode)
    field = scores.dot(patterns, dim="mode")
    return (field / eofs.weights + eofs.mean_field).transpose(*over, *eofs.mean_field.dims).rename(None)


def _stacked(da: Any, dim: Hashable | Sequence[Hashable]) -> _Stacked:
    """The field as a matrix without what is missing."""
    xarray = optional("xarray", "xarray")
    if not isinstance(da, xarray.DataArray):
        raise TypeError(f"da must be an xarray.DataArray, got {type(da).__name__}; choose one variable of a Dataset")
    over = (dim,) if isinstance(dim, str) or not isinstance(dim, Iterable) else tuple(dim)
    space = tuple(other for other in da.dims if other not in over)
    if not over or not set(over) <= set(da.dims) or not space:
        raise ValueError(f"dim must be one or some of the dimensions {da.dims}, but not all of them, got {dim!r}")
    if "mode" in da.dims:
        raise ValueError("the name mode is taken by the result; rename that dimension")
    if da.dtype.kind not in "fiub":
        raise ValueError(f"da must hold real numbers, got {da.dtype}")
    X = _matrix(da.transpose(*over, *space).data, len(over))
    rows, cells = _present(X)
    if not rows.all():
        X = X[rows]
    return _Stacked(X if cells.all() else X[:, cells], rows, cells, over, space)


def _matrix(values: Any, n_over: int) -> Any:
    """Samples x cells."""
    return values.reshape(math.prod(values.shape[:n_over]), -1)


def _present(X: Any) -> tuple[Mask, Mask]:
    """Which samples and which cells have values; a cell has all of them or none."""
    from xarray import Dataset

    missing = np.isnan(X)
    # As one Dataset, so that of a Dask array both are counted in one read.
    counts = Dataset({"lost": ("row", missing.sum(axis=1)), "gaps": ("cell", missing.sum(axis=0))}).compute()
    lost, gaps = counts.lost.values, counts.gaps.values  # of each sample, of each cell
    rows = lost < X.shape[1]
    gaps = gaps - np.count_nonzero(~rows)
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


def _weights(da: Any, weights: Any, field: _Stacked) -> Vector | None:
    """The weight of each cell that is present."""
    if weights is None:
        return None
    if isinstance(weights, str):
        if weights != "coslat":
            raise ValueError(f'weights must be "coslat", a DataArray or an array, got {weights!r}')
        latitude = np.deg2rad(_latitude(da))
        weights = np.sqrt(np.cos(latitude).clip(0))
    sizes = tuple(da.sizes[dim] for dim in field.space)
    if hasattr(weights, "dims"):
        if unknown := [dim for dim in weights.dims if dim not in field.space]:
            raise ValueError(f"weights must have dimensions of the space, {field.space}, got {unknown[0]!r}")
        like = da.isel(dict.fromkeys(field.over, 0), drop=True)
        _same_space(like, weights, weights.dims)
        weights = weights.broadcast_like(like).transpose(*field.space).values
    weights = np.asarray(weights, np.float64)
    if weights.shape != sizes:
        raise ValueError(f"weights must have the shape {sizes} of the space {field.space}, got {weights.shape}")
    w: Vector = weights.ravel()[field.cells]
    bad = np.count_nonzero(~(np.isfinite(w) & (w >= 0)))
    if bad or not w.any():
        raise ValueError(
            f"weights must be finite, at least 0, and not all 0; {bad} of {len(w)} are not; mask cells of da with NaN"
        )
    # The poles: what is divided by a weight must be finite, and a part of eps is lost beside the others.
    w[w == 0] = np.finfo(np.float64).eps * w.max()
    return w


def _latitude(da: Any) -> Any:
    """The coordinate of latitudes, in degrees."""
    for name, coordinate in da.coords.items():
        named = str(name).lower() in _LATITUDES or coordinate.attrs.get("standard_name") == "latitude"
        if named or coordinate.attrs.get("units") in ("degrees_north", "degree_north"):
            return coordinate
    raise ValueError(f'weights="coslat" needs a coordinate lat or latitude, da has {list(da.coords)}')


def _scale(A: Operator, weights: Vector | None, standardize: bool) -> Any:
    """What the anomalies are divided by."""
    if not standardize:
        return False if weights is None else 1 / weights
    deviations = np.sqrt(A.moments().variance(ddof=0))
    deviations[deviations == 0] = 1
    return deviations if weights is None else deviations / weights


def _dataset(da: Any, field: _Stacked, model: PCA, Z: Vector) -> Any:
    """The result with names and coordinates, and what was missing as NaN."""
    from xarray import DataArray, Dataset

    modes = DataArray(np.arange(1, model.n_components_ + 1), dims="mode", name="mode")
    scale = np.ones(model.n_features_in_) if model.scale_ is None else model.scale_
    over, space = field.over, field.space
    found = {
        "components": _labelled(_filled(model.components_, field.cells), da, space, mode=modes),
        "scores": _labelled(_filled(Z.T, field.rows), da, over, mode=modes),
        "explained_variance": DataArray(model.explained_variance_, dims="mode"),
        "explained_variance_ratio": DataArray(model.explained_variance_ratio_, dims="mode"),
        "singular_values": DataArray(model.singular_values_, dims="mode"),
        "mean_field": _labelled(_filled(model.mean_[None], field.cells)[0], da, space),
        "weights": _labelled(_filled(1 / scale[None], field.cells)[0], da, space),
    }
    info = model.info_
    told = {"solver": info.solver, "n_passes": info.n_passes, "converged": str(info.converged)}
    return Dataset(found, coords={"mode": modes}, attrs=told)


def _filled(values: Vector, present: Mask) -> Vector:
    """Rows of values with NaN where there are none."""
    if present.all():
        return values
    full = np.full((len(values), len(present)), np.nan, values.dtype)
    full[:, present] = values
    return full


def _labelled(values: Vector, da: Any, dims: Dims, mode: Any = None, name: str | None = None) -> Any:
    """Values along these dimensions of a DataArray, with the coordinates that belong to them."""
    from xarray import DataArray

    coords = {key: known for key, known in da.coords.items() if set(known.dims) <= set(dims)}
    sizes = [da.sizes[dim] for dim in dims]
    if mode is None:
        return DataArray(values.reshape(sizes), coords, dims, name)
    return DataArray(values.reshape(len(mode), *sizes), {**coords, "mode": mode.values}, ("mode", *dims), name)


def _check_fit(eofs: Any) -> None:
    """Whether this is what `pca` gives."""
    if missing := [name for name in _FIT if name not in getattr(eofs, "data_vars", ())]:
        raise ValueError(f"eofs must be what shiftsvd.xarray.pca gives, but {', '.join(missing)} is missing")


def _same_space(known: Any, da: Any, space: Dims) -> None:
    """Refuse a field on another grid."""
    for dim in space:
        if dim not in da.dims or da.sizes[dim] != known.sizes[dim]:
            raise ValueError(f"the field must have {known.sizes[dim]} cells along {dim}, got {da.sizes.get(dim, 0)}")
        if dim in da.coords and dim in known.coords and not np.array_equal(da[dim], known[dim]):
            raise ValueError(f"the coordinate {dim} must be that of the components; interpolate the field first")
