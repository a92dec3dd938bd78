"""Maps of correlation of a field with series, and how likely chance makes them."""

from collections.abc import Hashable
from typing import Any

import numpy as np

from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel
from shiftsvd.xarray import fields
from shiftsvd.xarray.persistence import Places, effective_size, neighbours, unbiased
from shiftsvd.xarray.removed import product as product_of
from shiftsvd.xarray.samples import aligned
from shiftsvd.xarray.sampling import lag_one


def correlation(da: Any, series: Any, *, along: Hashable | None = None) -> Any:
    """Correlate each cell of a field with series, such as scores or an index; p-values, too.

    Parameters
    ----------
    da : xarray.DataArray
        The field. Values may be missing: each cell is correlated over the samples that it has.
    series : xarray.DataArray
        With dimensions of the samples of `da`, matched by their labels, and perhaps ``mode``: ``eofs.scores``.
    along : hashable, optional
        As in `north`.

    Returns
    -------
    xarray.Dataset
        ``correlation``, ``p_value`` and ``effective_size`` of the dimensions ``(mode, *space)``, or of the space alone.

    Raises
    ------
    ValueError
        For series without labels or dimensions of samples of the field.
    TypeError
        If one of them is no DataArray.

    See Also
    --------
    xarray.patterns : Correlations of modes with the field that they were found in, without a pass.
    xarray.north : Errors of the variances.

    Notes
    -----
    Two-sided, by Student's t with ``effective_size - 2`` degrees of freedom, where two red series of n samples with the
    autocorrelations r and s at lag one are worth ``n (1 - r s) / (1 + r s)`` pairs; both are freed of their bias. Two
    reads of a Dask array. Of a mode and the field that it was found in, a p-value says nothing of chance: the mode was
    made to correlate. Many cells are many tests.

    References
    ----------
    Bretherton et al. (1999), The effective number of spatial degrees of freedom of a time-varying field; Wilks (2016),
    "The stippling shows statistically significant grid points".

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray as sx
    >>> values = np.random.default_rng(0).standard_normal((200, 4, 5))
    >>> da = xarray.DataArray(values, dims=("time", "lat", "lon"))
    >>> maps = sx.correlation(da, da[:, 1, 2] + 1.0)
    >>> float(maps.correlation[1, 2].round(6)), bool(maps.p_value[1, 2] < 1e-9), bool(maps.p_value.median() > 0.2)
    (1.0, True, True)
    """
    da = fields.as_field(da)
    fields.check_labelled(series, "series")
    over = tuple(dim for dim in da.dims if dim in series.dims)
    if not over or not set(series.dims) <= {*over, "mode"}:
        raise ValueError(f"series must have dimensions of the samples of da, {da.dims}, and mode, got {series.dims}")
    space = tuple(dim for dim in da.dims if dim not in over)
    several = series if "mode" in series.dims else series.expand_dims("mode")
    columns = [aligned(da, over, several.isel(mode=j, drop=True), "series") for j in range(several.sizes["mode"])]
    found = _correlated(fields.matrix(da, over, space), np.column_stack(columns), neighbours(da, over, along))
    mode = None
    if "mode" in series.dims:
        from xarray import DataArray

        labels = series.mode.values if "mode" in series.coords else np.arange(1, len(columns) + 1)
        mode = DataArray(labels, dims="mode", name="mode")
    told = {
        "correlation": "correlation",
        "p_value": "p-value of the correlation",
        "effective_size": "independent pairs",
    }
    maps = {
        name: fields.labelled(
            values if mode is not None else values[0], da, space, mode, attrs={"long_name": told[name], "units": "1"}
        )
        for name, values in found.items()
    }
    from shiftsvd.xarray.dataset import Dataset

    return Dataset(maps)


def _correlated(X: Any, Z: Panel, pairs: tuple[Places, Places]) -> dict[str, Panel]:
    rows = np.asarray(~np.isnan(Z).any(axis=1))
    Z = np.where(rows[:, None], Z - Z[rows].mean(axis=0), 0)
    there = ~np.isnan(X) & rows[:, None]
    mean = fields.at_once(
        total=("cell", np.where(there, X, 0).sum(axis=0, dtype=np.float64)), n=("cell", there.sum(axis=0))
    )
    count = np.maximum(mean["n"], 1)
    off = np.where(there, X - mean["total"] / count, 0)
    first, second = pairs
    sums = fields.at_once(
        xz=(("mode", "cell"), product_of(Z.T, off)),
        z=(("mode", "cell"), product_of(Z.T, there)),
        zz=(("mode", "cell"), product_of((Z * Z).T, there)),
        xx=("cell", (off * off).sum(axis=0)),
        lagged=("cell", (off[first] * off[second]).sum(axis=0)),
        pairs=("cell", (there[first] & there[second]).sum(axis=0)),
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        squares = np.maximum(sums["zz"] - sums["z"] ** 2 / count, 0) * sums["xx"]
        r = np.where((mean["n"] > 2) & (squares > 0), sums["xz"] / np.sqrt(squares), np.nan).clip(-1, 1)
        own = np.nan_to_num(sums["lagged"] / np.maximum(sums["pairs"], 1) / (sums["xx"] / count))
    series = lag_one(np.where(rows[:, None], Z, np.nan), first, second)
    product = unbiased(series, np.count_nonzero(rows))[:, None] * unbiased(own, mean["n"])
    size = np.where(np.isnan(r), np.nan, effective_size(mean["n"], product))
    return {"correlation": r, "p_value": p_values(r, size), "effective_size": size}


def p_values(r: Vector, n: Vector) -> Vector:
    from scipy.special import stdtr

    freedom = np.maximum(n - 2, 1e-3)
    with np.errstate(divide="ignore"):
        return np.asarray(2 * stdtr(freedom, -np.abs(r) * np.sqrt(freedom / (1 - r * r))))
