"""Modes of one field, and of several fields together."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Unpack

import numpy as np
from xarray import DataArray

from shiftsvd import SVDResult
from shiftsvd.extend.fits import integer
from shiftsvd.extend.running import MissingName, Refused, Setting
from shiftsvd.operators import Scaled, hstack
from shiftsvd.xarray.anomalies import (
    FieldOptions,
    Keywords,
    anomalies,
    common_samples,
    per_field,
    regressed_scores,
    row_scores,
    with_keywords,
    with_small_cells,
)
from shiftsvd.xarray.datasets import (
    Dataset,
    attrs_per_field,
    fit_attrs,
    merge_fields,
    mode_labels,
    modes_dataset,
    scores_of,
    variance_variables,
)
from shiftsvd.xarray.fields import Attrs, as_field, as_fields, attrs_of, is_several, notice_used, stacked


@with_keywords
def pca(
    da: Any,
    n_modes: int | float = 10,
    *,
    dim: Hashable | Sequence[Hashable] = "time",
    weights: Any = None,
    center: bool = True,
    standardize: bool = False,
    missing: MissingName = "error",
    **keywords: Unpack[Keywords],
) -> Any:
    """Find empirical orthogonal functions of a field: components in space, scores in time, variances.

    Parameters
    ----------
    da : xarray.DataArray, or several of them: a Dataset, a list, or a mapping from names
        A field with the dimension `dim` and any others; several fields are passed on to `joint`. Cells without any
        value along `dim`, and samples without any value, are excluded and are NaN in the result. The result keeps
        coordinates, unless they have the name of one of its variables. Packed numbers, which have the attributes
        ``scale_factor``, ``add_offset``, ``_FillValue`` or ``missing_value``, are unpacked.
    n_modes : int, or float in (0, 1)
        Number of modes, or a share of the variance: the fewest modes that exceed it.
    dim : hashable, or sequence of them
        The dimensions of the samples; all other dimensions make up the space.
    weights : None, "coslat", DataArray, array or float, optional
        Factors of the anomalies: ``sqrt(cos(latitude))``, or nonnegative numbers with dimensions of the space (an array
        must have its shape, or 1 for any of its sides). The latitudes are the coordinate with the ``standard_name``
        latitude or units of degrees north, else the one named lat, latitude, nav_lat, or yc (in degrees).
    center : bool
        Subtract the mean over the samples. Otherwise variances and covariances are mean products, not about the means;
        standard deviations are about the means.
    standardize : bool
        Divide by the standard deviation of the anomalies over the samples (ddof 0), before the weights: EOFs of the
        correlation matrix.
    missing : "error", "mean" or "em"
        Treatment of scattered missing values. "mean": their anomaly is 0; they equal the mean of the cell, or the
        prediction of `groups` and `covariates`. "em": a model of rank `n_modes`, fitted to the observed values in the
        units that `weights` and `standardize` make, predicts them (`complete_matrix`); ``attrs["heldout_r2"]`` is the
        R² of its predictions for held-out values. If groups have fewer than 20 values in most cells, another fit,
        whose means of groups lack the held-out values, computes it if memory allows.
    groups : str, DataArray or array, optional
        Group of each sample: a part of a coordinate such as ``"time.month"``, the name of a coordinate, or labels. The
        mean of the group replaces the mean of all samples. A DataArray is matched by its labels.
    covariates : str, DataArray, array, or several of them, optional
        Also remove a regression of every cell on these: ``"time"`` is the linear trend (slopes are per day), a
        DataArray an index. Give several as a sequence, or as a mapping from names.
    solver : str or Solver
        As in `shiftsvd.svd`.
    tol : float
        Relative accuracy of the singular values; a solver object has its own.
    certify : bool
        Also compute error bounds with the solvers that have none, as in `shiftsvd.svd`.
    penalty : float of at least 0, or "auto"
        Penalty of the completion with ``missing="em"``, as in `complete_matrix`.
    max_iter : int
        Maximum number of iterations of the completion.
    rng : int, Generator or None
        Seed of the solver; the same seed gives identical results. None draws a new seed.
    n_threads : int, optional
        Number of threads; the result does not depend on it. Default: the cores that this process may use.
    memory_limit : int (bytes) or str such as "2GB", optional
        Raise an error instead of allocating more memory than this. Default: half of the available memory.

    Returns
    -------
    xarray.Dataset
        ``components (mode, *space)`` of length 1 in the weighted space, ``scores (mode, dim)`` in the weighted units
        of the field, ``explained_variance (mode)`` (ddof 1), ``explained_variance_ratio (mode)``,
        ``singular_values (mode)``, ``mean_field (*space)``, ``standard_deviation (*space)`` of the anomalies (ddof 1)
        and ``weights (*space)``, the factors of the anomalies. With `groups` also ``group_means (group, *space)`` and
        ``groups (dim)``, with `covariates` ``slopes (covariate, *space)``, ``covariate_means (covariate)`` and
        ``covariates (covariate, dim)``. The mean of a group without values in a cell is NaN, and the slope of a
        covariate that does not vary over the values of a cell is 0. If the solver computes error bounds,
        ``value_errors (mode)`` and ``vector_errors (mode)`` as in `shiftsvd.Info`.

        Attributes: ``solver``, ``n_passes``, ``n_samples`` (the number of samples used), ``missing``, where values are
        missing ``n_missing``, ``heldout_r2`` and ``noise_variance``, the mean variance along the directions beyond
        these modes, which `project` uses for samples with gaps, and ``converged`` as in `shiftsvd.Info`: None without
        error bounds, and False also if the completion did not converge (in a file of NetCDF absent, 0 or 1). If the
        solver bounds the values that were not computed, ``missed_below`` as in `shiftsvd.Info`, and ``n_modes`` of the
        fit.

    Raises
    ------
    ValueError
        If values are infinite, or scattered values are missing with ``missing="error"``; the message counts them. If
        latitudes exceed 90 degrees, labels do not match, or a dimension has the name of a variable of the result.
    TypeError
        If `da` is not a DataArray.

    See Also
    --------
    xarray.joint : Several fields.
    xarray.project : Scores of other fields on these modes.
    xarray.reconstruct : Fields from modes.
    xarray.patterns : Maps of covariance or correlation.
    xarray.rotate : Rotated modes.
    xarray.north : Sampling errors of the variances.

    Notes
    -----
    ``weights * (da - removed) = sum over modes of scores * components``, where *removed* is the mean, or the means of
    groups and the regression on covariates. Cost: as `shiftsvd.PCA`, a pass that counts missing values, and a pass for
    the scores. The present cells are copied only if some are absent. `groups` and `covariates` are
    `shiftsvd.Covariates`: no copy of the field is made to remove them, and variances remain sums of squares divided by
    the number of samples minus 1.

    The anomalies of a field with gaps are a copy, or lazy if the field is. The completion of a Dask array reads it
    twice in each iteration, unless it fits in half of the memory limit; then it is loaded once.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray
    >>> values = np.random.default_rng(0).standard_normal((20, 4, 5))
    >>> da = xarray.DataArray(
    ...     values, dims=("time", "lat", "lon"), coords={"lat": [-45, -15, 15, 45]}
    ... )
    >>> eofs = shiftsvd.xarray.pca(da, n_modes=2, weights="coslat")
    >>> eofs.components.dims, eofs.mode.values
    (('mode', 'lat', 'lon'), array([1, 2]))

    A field with gaps, without its seasons:

    >>> seasons = ["winter", "spring", "summer", "autumn"] * 5
    >>> gaps = da.where(np.random.default_rng(1).random(da.shape) > 0.1)
    >>> shiftsvd.xarray.pca(gaps, 2, missing="mean", groups=seasons).group.values
    array(['autumn', 'spring', 'summer', 'winter'], dtype='<U6')
    """
    options = FieldOptions(dim, weights, center, standardize, missing, **keywords)
    return _pca_of_several(da, n_modes, options) if is_several(da) else _pca_of_one(da, n_modes, options)


@with_keywords
def joint(
    data: Any,
    n_modes: int | float = 10,
    *,
    dim: Hashable | Sequence[Hashable] = "time",
    weights: Any = None,
    center: bool | Mapping[str, bool] = True,
    standardize: bool | Mapping[str, bool] = False,
    normalize: bool = True,
    factors: Mapping[str, float] | None = None,
    missing: MissingName | Mapping[str, MissingName] = "error",
    **keywords: Unpack[Keywords],
) -> Any:
    """Find empirical orthogonal functions of several fields together, which share only their samples.

    Parameters
    ----------
    data : xarray.Dataset, sequence of xarray.DataArray, or mapping from names to them
        Fields with the dimension `dim` and any others, each on its own grid. Samples are matched by their labels: all
        fields must have the same labels, in any order. Cells and samples without values are excluded, as in `pca`, and
        so is every sample that one of the fields lacks.
    n_modes, dim : optional
        As in `pca`.
    weights, center, standardize : optional
        As in `pca`, for all fields; or a mapping from names of fields, in which absent names have the default.
    normalize : bool
        Divide the standardized, weighted anomalies of each field by the root of their total variance, so that all
        fields have equal weight, whatever their units and numbers of cells.
    factors : mapping from names to float, optional
        Factors of the anomalies of fields, applied last: 2 gives a field four times its variance.
    missing : "error", "mean" or "em", or mapping from names to them
        As in `pca`. With "em" each field is completed separately, by a model of rank `n_modes`.
    groups, covariates, solver, tol, certify, penalty, max_iter, rng, n_threads, memory_limit : optional
        As in `pca`, for all fields.

    Returns
    -------
    xarray.Dataset
        ``scores (mode, dim)``, ``explained_variance (mode)``, ``explained_variance_ratio (mode)`` and
        ``singular_values (mode)`` of all fields together. For each field, with its name as a prefix:
        ``name_components (mode, *space)``, whose squares sum to 1 over all fields, ``name_mean_field``,
        ``name_weights`` and ``name_own_variance_ratio (mode)``, the share of its own variance, and the variables that
        `pca` returns with `groups` and `covariates`. Coordinates that differ between fields have the name of the field
        as a suffix: `side` returns one field, under its own names.

    Raises
    ------
    ValueError
        If samples do not match, or names are absent or duplicate; and as in `pca`.
    TypeError
        If `data` holds no DataArrays.

    See Also
    --------
    xarray.side : One of the fields, for `reconstruct`.
    xarray.pca : One field.
    xarray.coupled : Pairs of patterns in two fields.

    Notes
    -----
    ``weights * (field - mean_field) = sum over modes of scores * components`` for each field. Fields are neither copied
    nor concatenated in memory; some may be Dask arrays. Cost: that of `pca`, summed over the fields.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray
    >>> values = np.random.default_rng(0).standard_normal((20, 4, 5))
    >>> sst = xarray.DataArray(values, dims=("time", "lat", "lon"), name="sst")
    >>> wind = xarray.DataArray(values[:, 0] * 100, dims=("time", "station"), name="wind")
    >>> modes = shiftsvd.xarray.joint([sst, wind], n_modes=2)
    >>> modes.sst_components.dims, modes.wind_components.dims, modes.scores.dims
    (('mode', 'lat', 'lon'), ('mode', 'station'), ('mode', 'time'))
    """
    options = FieldOptions(dim, weights, center, standardize, missing, **keywords)
    return _pca_of_several(data, n_modes, options, normalize, factors)


def _check_share(n_modes: Any, shape: tuple[int, int], completed: bool) -> None:
    m, n = shape
    if not (isinstance(n_modes, float | np.floating) and 0 < n_modes < 1):
        remedy = "for a share of the variance, pass a number in (0, 1)"
        integer("n_modes", n_modes, 1, min(m, n), f" for {m:,} samples of {n:,} cells", remedy)
    elif completed:
        raise Refused(Setting("n_modes"), " must be an integer with ", Setting("missing", "em"), f", got {n_modes!r}")


# --- one field ------------------------------------------------------------------------------------------------------


def _pca_of_one(da: Any, n_modes: Any, options: FieldOptions) -> Any:
    options.check()
    field = stacked(as_field(da), options.dim, options.missing)
    notice_used(field.rows, field.over)
    (m, n), completed = field.X.shape, options.missing == "em"
    _check_share(n_modes, (m, n), completed)
    of = anomalies(field, options, n_modes)
    F, total = with_small_cells(of.A, options.svd(of.A, n_modes), of.squares), float(of.squares.sum())
    explained, noise = F.S**2 / (m - 1), _noise(F, total, m, n)
    Z = row_scores(of.A, F.Vh) if of.gaps is None else regressed_scores(of.gaps, of.centre, F.Vh, explained, noise)
    deviation = np.sqrt(of.centred_squares / (m - 1)) if of.deviation is None else of.deviation
    if of.deviation is not None and options.center:
        # If most values are missing, observed values may vary less than the modes: keep correlations below 1.
        of_modes = np.sqrt(explained @ F.Vh.astype(np.float64) ** 2) / of.weights
        deviation = np.where(deviation > 0, np.maximum(deviation, of_modes), 0)
    found = modes_dataset(of, F.Vh, Z.astype(of.A.dtype), F, total, standard_deviation=field.in_space(deviation))
    for name, attrs in _attrs(field.da, options).items():
        found[name].attrs.update(attrs)
    attrs = fit_attrs([F], of) | ({"noise_variance": noise} if field.n_missing else {}) | options.attrs
    return found.assign_attrs(attrs)


def _noise(F: SVDResult, total: float, m: int, n: int) -> float:
    k, error = len(F.S), F.info.frobenius_error
    rest = max(total - float(F.S @ F.S), 0.0) if error is None else error**2
    return rest / (m - 1) / (min(m, n) - k) if k < min(m, n) else 0.0


def _attrs(da: DataArray, options: FieldOptions) -> dict[str, Attrs]:
    what, own = str(da.attrs.get("long_name", da.name or "the field")), attrs_of(da, "units")
    plain = options.weights is None or isinstance(options.weights, str)
    units = {"units": "1"} if plain and options.standardize else own if plain else {}
    return {
        "components": {"long_name": f"EOFs of {what}", "units": "1"},
        "scores": {"long_name": f"scores of {what}"} | units,
        "explained_variance": {key: unit if unit == "1" else f"({unit})^2" for key, unit in units.items()},
        "explained_variance_ratio": {"units": "1"},
        "standard_deviation": {"long_name": f"standard deviation of {what}"} | own,
        "weights": {"long_name": f"factors of the anomalies of {what}"},
    }


# --- several fields -------------------------------------------------------------------------------------------------


def _pca_of_several(
    data: Any, n_modes: Any, options: FieldOptions, normalize: bool = True, factors: Mapping[str, float] | None = None
) -> Dataset:
    given = as_fields(data)
    each, wanted = options.per_field(list(given)), per_field(factors or {}, list(given), 1.0, "factors")
    fields = common_samples(given, each)
    m, n = len(fields[0].X), sum(field.X.shape[1] for field in fields)
    _check_share(n_modes, (m, n), any(own.missing == "em" for own in each.values()))
    parts = {name: anomalies(field, own, n_modes) for field, (name, own) in zip(fields, each.items(), strict=True)}
    squares = {name: float(of.squares.sum()) for name, of in parts.items()}
    times = {name: _factor(wanted[name], squares[name] / (m - 1) if normalize else 1.0, name) for name in parts}
    A = hstack([Scaled(of.A, None, np.full(of.A.shape[1], times[name])) for name, of in parts.items()])
    squares_of_cells = np.concatenate([of.squares * times[name] ** 2 for name, of in parts.items()])
    F = with_small_cells(A, options.svd(A, n_modes), squares_of_cells)
    modes, explained = mode_labels(len(F.S)), F.S**2
    own = {name: squares[name] * times[name] ** 2 for name in parts}
    edges = np.cumsum([of.A.shape[1] for of in parts.values()])[:-1]
    found = {}
    for (name, of), V in zip(parts.items(), np.split(F.Vh, edges, axis=1), strict=True):
        shares = np.sum(np.abs(V) ** 2, axis=1) * explained / own[name] if own[name] > 0 else np.zeros(len(V))
        found[name] = {
            "components": of.field.in_space(V, modes),
            **of.subtracted(times[name]),
            "own_variance_ratio": DataArray(shares, dims="mode"),
        }
    shared = {"scores": fields[0].in_time(scores_of(F), modes)} | variance_variables(F, m, sum(own.values()))
    attrs = fit_attrs([F], *parts.values()) | attrs_per_field(parts) | options.attrs
    return merge_fields(found, shared, modes, fields[0].over, attrs)


def _factor(factor: Any, variance: float, name: str) -> float:
    if not (np.isfinite(factor) and factor > 0):
        text = f" must be positive numbers, got {factor!r} for {name}. To exclude the field, do not pass it."
        raise Refused(Setting("factors"), text)
    return float(factor / np.sqrt(variance)) if variance > 0 else float(factor)
