"""Project fields onto fitted modes, and reconstruct fields from modes."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray
from xarray import DataArray

from shiftsvd.extend.running import Refused, Resources, Setting, few, plural
from shiftsvd.xarray import anomalies, fields, regressors
from shiftsvd.xarray.datasets import Dataset, checked_fit, names_of, side, suffixed, with_modes
from shiftsvd.xarray.fields import Dims, Mask, Panel, Vector
from shiftsvd.xarray.travelling import AnalyticSignal, check_no_empty_steps, check_steps


def project(eofs: Any, da: Any, *, groups: Any = None, covariates: Any = None) -> Any:
    """Compute the scores of another field on known components, with the mean and weights of the fit.

    Parameters
    ----------
    eofs : xarray.Dataset
        The result of `pca`, `joint`, `hilbert` or `extended`, perhaps from a file, or some of its modes:
        ``eofs.sel(mode=1)``.
    da : xarray.DataArray, or several of them where `eofs` is of several
        A field on the same space: dimensions and labels in any order, longitudes from 0 or from -180. All other
        dimensions are those of the samples. The scores of samples without any value are NaN. Scattered missing values
        are treated as in the fit: with "mean" their anomaly is 0; with "em" the observed values are regressed on the
        modes, and `eofs` should hold all of them.
    groups, covariates : optional
        Groups and covariates of these samples, as in `pca`, if the fit had any. Default: the coordinates that the fit
        used.

    Returns
    -------
    xarray.DataArray
        ``scores (mode, dim)``; for modes with lags, at the first step of each sequence.

    Raises
    ------
    ValueError
        If the space differs, or values are missing or infinite where the components have values. With modes in time:
        if steps are not in order, too few, or, for an analytic signal, without values, or if lags are left out.
    TypeError
        If `da` is not a DataArray.

    See Also
    --------
    xarray.pca : Compute the modes.
    xarray.reconstruct : The inverse.

    Notes
    -----
    One read of a Dask array, which may be larger than memory.

    The analytic signal is computed from the new series, padded as in the fit, so that scores near its ends differ from
    those of a longer series. The mean of the transform is 0; the real part keeps its mean.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray
    >>> values = np.random.default_rng(0).standard_normal((20, 4, 5))
    >>> da = xarray.DataArray(values, dims=("time", "lat", "lon"))
    >>> eofs = shiftsvd.xarray.pca(da, n_modes=2)
    >>> bool(np.allclose(shiftsvd.xarray.project(eofs, da[:3]), eofs.scores[:, :3]))
    True
    """
    if names := names_of(eofs):
        return _project_several(eofs, names, da, groups, covariates)
    eofs = checked_fit(eofs, kinds="fc", lags=True)
    components = with_modes(eofs.components, "components")
    lagged, signal = "lag" in components.dims, components.dtype.kind == "c"
    X, over, cells, unknown = anomalies_of(eofs, da, groups, covariates)
    if lagged or signal:
        check_steps(da, over, "a projection onto modes in time")
    if lagged:
        scores = _scores_of_sequences(X, eofs, components, cells, unknown)
    elif signal:
        scores = _scores_of_signals(X, eofs, in_cells(components, eofs, cells), unknown)
    else:
        V = in_cells(with_modes(eofs.duals, "duals") if "duals" in eofs else components, eofs, cells)
        # Only modes of `pca` have the variances and the noise that a regression on observed values needs.
        of_values = eofs.attrs.get("missing") == "em" and "standard_deviation" in eofs
        scores = _scores_with_gaps(X, eofs, V) if of_values else _scores_by_product(X, eofs, V, unknown)
    like = da.isel({over[0]: slice(0, len(scores))}) if lagged else da
    return fields.labelled(scores.T, like, over, components.mode, dict(eofs.scores.attrs)).rename("scores")


def _project_several(eofs: xarray.Dataset, names: list[str], data: Any, groups: Any, covariates: Any) -> DataArray:
    if "scores" not in eofs:
        raise ValueError(
            f"eofs has separate scores for {' and '.join(names)}. Project one field with project(side(eofs, "
            f'"{names[0]}"), da).'
        )
    given = fields.as_fields(data)
    if missing := [name for name in names if name not in given]:
        raise ValueError(f"da must have all fields of eofs ({', '.join(names)}), but it lacks {', '.join(missing)}")
    parts = [project(side(eofs, name), given[name], groups=groups, covariates=covariates) for name in names]
    first = parts[0].drop_vars([key for key in parts[0].coords if key not in parts[0].dims])
    others = [
        fields.ordered_as(first, part, first.dims[1:], (names[0], name))
        for name, part in zip(names, parts, strict=True)
    ]
    return first.copy(data=sum(part.transpose(*first.dims).values for part in others))


def anomalies_of(eofs: xarray.Dataset, da: Any, groups: Any, covariates: Any) -> tuple[Any, Dims, Mask, Any]:
    # The anomalies, the dimensions of the samples, the present cells, and in each sample the number of values whose
    # group has no mean in the cell, and which have no anomaly.
    da, space = fields.as_field(da), eofs.mean_field.dims
    fields.notice_units(eofs.mean_field.attrs, da.attrs)
    over = tuple(dim for dim in da.dims if dim not in space)
    da = fields.on_grid(eofs.mean_field, da, space)
    weights = _flat(eofs.weights, space)
    cells = ~np.isnan(weights)
    X = fields.matrix_of(da, over, space)[:, cells]

    def empty(rows: Mask) -> Mask:
        found = fields.compute_together(empty=("row", np.isnan(X[rows]).all(axis=1)))
        return np.asarray(found["empty"])

    removed, samples = _fitted_means(eofs, space, cells), _samples(eofs, da, over, groups, covariates, empty)
    X = fields.minus_low_rank(X, removed.factors(samples), weights[cells], np.float64)
    unknown, counts = removed.unknown, np.zeros(len(X), np.int64)
    if unknown is not None and unknown.any():
        there = fields.low_rank_like(X, samples.one_hot(removed.levels), unknown.astype(np.float64)) > 0
        counts = (there & ~np.isnan(X)).sum(axis=1)
        X = np.where(there, np.nan, X)
    return X, over, cells, counts


def in_cells(modes: DataArray, eofs: xarray.Dataset, cells: Mask) -> Panel:
    dims = tuple(dim for dim in ("lag", "mode") if dim in modes.dims)
    return np.asarray(fields.matrix_of(modes, dims, eofs.mean_field.dims))[:, cells]  # they may be lazy


def _flat(values: DataArray, space: Dims) -> Vector:
    return np.asarray(values.transpose(*space).values, np.float64).ravel()


def _fitted_means(eofs: xarray.Dataset, space: Dims, cells: Mask) -> anomalies.RemovedMeans:
    def rows(name: str, dim: str) -> Panel:
        return np.asarray(fields.matrix_of(eofs[name], (dim,), space))[:, cells].astype(np.float64)

    grouped, sloped = "group_means" in eofs, "slopes" in eofs
    means = rows("group_means", "group") if grouped else _flat(eofs.mean_field, space)[None, cells]
    slopes, centre = (rows("slopes", "covariate"), eofs.covariate_means.values) if sloped else (means[:0], np.zeros(0))
    names = tuple(map(str, eofs.covariate.values)) if sloped else ()
    levels, unknown = eofs.group.values if grouped else None, np.isnan(means)
    return anomalies.RemovedMeans(levels, np.where(unknown, 0, means), slopes, centre, names, unknown)


def _samples(
    eofs: xarray.Dataset, da: DataArray, over: Dims, groups: Any, covariates: Any, empty: Callable[[Mask], Mask]
) -> regressors.Regressors:
    # `empty` tells which of some samples have no values. As in the fit, these need no known group, and no covariates.
    for name, given in (("groups", groups), ("covariates", covariates)):
        if given is not None and name not in eofs:
            raise Refused("The fit had no ", Setting(name), ". Remove the argument.")
    if "groups" in eofs and groups is None:
        named = eofs.attrs.get("groups")
        groups = named if named and named.partition(".")[0] in da.coords else eofs.groups
    if "covariates" in eofs and covariates is None:
        names = [str(name) for name in eofs.covariate.values]
        own = {name: eofs.covariates.sel(covariate=name, drop=True) for name in names}
        covariates = {name: name if name in da.coords else known for name, known in own.items()}
    _check_same_times(eofs, da, covariates)
    samples = regressors.Regressors.of(da, over, groups, covariates)
    if "covariates" in eofs and len(samples.names) != eofs.sizes["covariate"]:
        text = f" must be {few(eofs.covariate.values.tolist())}, as in the fit, got {few(samples.names)}"
        raise Refused(Setting("covariates"), text)
    return _without_empty(samples, eofs, empty).at(np.ones(len(samples.numbers), bool))


def _without_empty(
    samples: regressors.Regressors, eofs: xarray.Dataset, empty: Callable[[Mask], Mask]
) -> regressors.Regressors:
    levels = eofs.group.values if "groups" in eofs else None
    bad = np.asarray(~np.isfinite(samples.numbers).all(axis=1))
    if samples.labels is not None and levels is not None:
        bad = np.asarray(bad | (regressors.places_of(samples.labels, levels) < 0))
    if not bad.any():
        return samples
    bad[bad] = empty(bad)
    return samples.without(bad, levels, eofs.covariate_means.values if "slopes" in eofs else np.zeros(0))


def _check_same_times(eofs: xarray.Dataset, da: DataArray, covariates: Any) -> None:
    # Days since 1970 and numbers in units of a file differ, but nothing in the numbers shows it.
    if "covariates" not in eofs or "dates" not in eofs.covariates.attrs:
        return
    known = eofs.covariates.attrs["dates"]
    dated = json.loads(known) if known.startswith("[") else known.split()  # files of the first versions have no JSON
    for name, value in regressors.named_covariates(covariates):
        if not isinstance(value, str) or value not in da.coords or name not in map(str, eofs.covariate.values):
            continue
        if name in dated:
            regressors.check_dates(da[value], "covariates", value)
        elif regressors.has_dates(da[value].values):
            rule = f" was fitted to numbers, but {value} of the samples holds dates. Decode the times before the fit."
            raise Refused(Setting("covariates", value), rule)


def _scores_by_product(X: Any, eofs: xarray.Dataset, V: Panel, unknown: Any) -> Panel:
    found = fields.compute_together(
        scores=(("row", "mode"), np.where(np.isfinite(X), X, 0) @ V.T),
        lost=("row", np.isnan(X).sum(axis=1)),
        unknown=("row", unknown),
        infinite=((), np.isinf(X).sum()),
    )
    scores, rows = found["scores"], found["lost"] < V.shape[1]
    if eofs.attrs.get("missing") != "mean":
        unknown = int(found["unknown"][rows].sum())
        _check_no_gaps(int(found["lost"][rows].sum()) - unknown, unknown, eofs)
    if count := int(found["infinite"]):
        got = plural(count, "infinite value")
        raise ValueError(f"da must be finite in all cells of the components, got {got}. Replace these values.")
    scores[~rows] = np.nan
    return np.asarray(scores)


def _check_no_gaps(missing: int, unknown: int, eofs: xarray.Dataset) -> None:
    if not missing and not unknown:
        return
    causes = [plural(missing, "value") + (" is missing" if missing == 1 else " are missing")] if missing else []
    causes += (
        [f"no mean is known for {plural(unknown, 'value')}: the fit had no values of the group in the cell"]
        if unknown
        else []
    )
    if "rotation" in eofs.attrs:
        remedy = 'project on modes of pca with missing="em" before their rotation, or fit with missing="mean"'
    elif eofs.attrs.get("missing") == "em":
        remedy = 'fit with missing="mean": after "em" only modes of pca of one field can be projected on'
    else:
        remedy = 'add missing="mean" to the settings of the fit (in pca also "em")'
    remedy = f"Fill missing values, or {remedy}" if missing else remedy[0].upper() + remedy[1:]
    raise ValueError(f"da must have values in all cells of the components, but {' and '.join(causes)}. {remedy}.")


def _scores_with_gaps(X: Any, eofs: xarray.Dataset, V: Panel) -> Panel:
    there = fields.compute_together(there=("row", (~np.isnan(X)).sum(axis=1)))["there"] > 0
    scores = np.full((len(there), len(V)), np.nan)
    if there.any():
        gaps = anomalies.gaps_within(X if there.all() else X[there], Resources())
        variances, noise = np.atleast_1d(eofs.explained_variance.values), float(eofs.attrs.get("noise_variance", 0))
        scores[there] = anomalies.regressed_scores(gaps, 0.0, V, variances, noise)
    return scores


def completed(X: Any, eofs: xarray.Dataset, V: Panel) -> Any:
    if eofs.attrs.get("missing") != "em":
        return X
    return np.where(np.isnan(X), fields.low_rank_like(X, _scores_with_gaps(X, eofs, V), V), X)


def _scores_of_sequences(X: Any, eofs: xarray.Dataset, components: DataArray, cells: Mask, unknown: Any) -> Panel:
    lags, k = components.lag.values, components.sizes["mode"]
    if len(lags) < (n_lags := eofs.attrs.get("n_lags", 0)):  # absent from files of the first versions
        raise ValueError(
            f"eofs has {len(lags):,} of the {n_lags:,} lags of the fit, which do not give its scores. Pass the modes "
            "with all lags, or call extended with these lags."
        )
    n = X.shape[0] - int(lags.max())
    if n < 1:
        raise ValueError(f"da must have at least {lags.max() + 1:,} steps for the lags of eofs, got {len(X):,}")
    each = _scores_by_product(X, eofs, in_cells(components, eofs, cells), unknown).reshape(-1, len(lags), k)
    return np.asarray(sum(each[lag : lag + n, j] for j, lag in enumerate(lags.tolist())) - _score_means(eofs))


def _scores_of_signals(X: Any, eofs: xarray.Dataset, V: Panel, unknown: Any) -> Panel:
    P = _scores_by_product(X, eofs, V.conj(), unknown)
    check_no_empty_steps(np.asarray(~np.isnan(P).any(axis=1)), "a Hilbert transform")
    T = AnalyticSignal(len(P), eofs.attrs.get("decay"), P.dtype)
    return np.asarray(T.matmat(P) + P.mean(axis=0) - _score_means(eofs))


def _score_means(eofs: xarray.Dataset) -> Panel:
    return np.atleast_1d(eofs.score_means.values)


def reconstruct(eofs: Any, scores: Any = None, *, modes: Any = None, groups: Any = None, covariates: Any = None) -> Any:
    """Compute a field from modes, in the units of the field.

    ``mean_field + sum of scores * components / weights``. If the fit had groups, their means replace `mean_field`; if
    it had covariates, their regression is added. For modes of `extended`, the sum is the mean over the sequences that
    contain the step, which begin at ``t - lag``.

    Parameters
    ----------
    eofs : xarray.Dataset
        The result of `pca`, `joint`, `rotate`, `hilbert` or `extended`, or of `side`; or some of its modes.
    scores : xarray.DataArray, optional
        Scores of some or all modes, such as ``eofs.scores.sel(mode=[1, 2])`` or ``eofs.scores.sel(mode=1)``.
        Default: ``eofs.scores``.
    modes : int, list of int or slice, optional
        Labels of the modes to sum, such as ``modes=2`` or ``modes=[1, 3]``. Default: all modes of `scores`.
    groups, covariates : optional
        Groups and covariates of the samples of `scores`, as in `pca`, if the fit had any. Default: those of the fit
        with the same labels, or the coordinates that the fit used.

    Returns
    -------
    xarray.DataArray
        The field on the dimensions of the samples and the space, with its name and attributes. For several fields, a
        Dataset; for complex modes, the real part. With lags, steps in which no sequence has a lag are NaN.

    Raises
    ------
    ValueError
        If `eofs` lacks modes of the scores, or groups or covariates of the samples are unknown.
    TypeError
        If the scores are not a DataArray.

    See Also
    --------
    xarray.pca : Compute the modes.
    xarray.project : The inverse.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray
    >>> values = np.random.default_rng(0).standard_normal((20, 4, 5))
    >>> da = xarray.DataArray(values, dims=("time", "lat", "lon"))
    >>> eofs = shiftsvd.xarray.pca(da, n_modes=20)
    >>> bool(np.allclose(shiftsvd.xarray.reconstruct(eofs), da))
    True
    """
    if names := names_of(eofs):
        how = {"modes": modes, "groups": groups, "covariates": covariates}
        return Dataset({name: suffixed(eofs, name, reconstruct(side(eofs, name), scores, **how)) for name in names})
    eofs = checked_fit(eofs, kinds="fc", lags=True)
    scores = eofs.scores if scores is None else scores
    fields.check_labelled(scores, "scores", kinds="fiub" + eofs.components.dtype.kind)
    scores, components = with_modes(scores, "scores"), with_modes(eofs.components, "components")
    known = [name for name in ("groups", "covariates") if name in eofs]
    single = [dim for name in known for dim in eofs[name].dims if dim in scores.coords and dim not in scores.dims]
    scores = scores.expand_dims(list(dict.fromkeys(single)))
    like = scores.isel(mode=0, drop=True)
    if modes is not None:
        _check_known([] if isinstance(modes, slice) else np.atleast_1d(modes), scores, "modes")
        scores = with_modes(scores.sel(mode=modes), "scores")
    _check_known(scores.mode.values, components, "scores")
    components = components.sel(mode=scores.mode)
    if "lag" in components.dims:
        means = with_modes(eofs.score_means, "score_means").sel(mode=scores.mode)
        made = _mean_over_lags(scores + means, components)
    else:
        made = scores.dot(components, dim="mode")
    field = (made.real if made.dtype.kind == "c" else made) / eofs.weights
    field = (field + _removed_part(eofs, like, groups, covariates)).drop_vars("mode", errors="ignore")
    field = field.transpose(*like.dims, *eofs.mean_field.dims).squeeze(single).rename(eofs.attrs.get("field"))
    return field.drop_attrs(deep=False).assign_attrs(eofs.mean_field.attrs)


def _mean_over_lags(scores: DataArray, components: DataArray) -> DataArray:
    # "Reconstructed components" of Ghil et al. (2002), at the steps at which sequences start.
    dims = tuple(dim for dim in scores.dims if dim != "mode")
    check_steps(scores, dims, "a reconstruction from modes with lags")
    lags, steps = components.lag.values.tolist(), xarray.DataArray(np.arange(scores.sizes[dims[0]]), dims=dims)
    total = sum(
        scores.dot(components.isel(lag=j), dim="mode").shift({dims[0]: lag}, fill_value=0) for j, lag in enumerate(lags)
    )
    count = sum(steps >= lag for lag in lags)
    return (total / count).where(count > 0)


def _check_known(wanted: Any, of: DataArray, what: str) -> None:
    known = of.mode.values.tolist()
    if unknown := sorted(set(np.asarray(wanted).tolist()) - set(known)):
        raise Refused(Setting(what), f" must be modes of eofs ({few(known)}), got mode {unknown[0]}")


def _removed_part(eofs: xarray.Dataset, like: DataArray, groups: Any, covariates: Any) -> DataArray:
    back = eofs.mean_field
    if "group_means" not in eofs and "slopes" not in eofs:
        return back
    lost = np.isnan(like.values).ravel()
    samples = _samples(eofs, like, like.dims, groups, covariates, lambda rows: lost[rows])
    if "group_means" in eofs:
        samples.one_hot(eofs.group.values)  # raises for unknown labels
        labels = fields.labelled(np.asarray(samples.labels), like, like.dims)
        back = eofs.group_means.sel(group=labels).drop_vars("group")
    if "slopes" in eofs:
        numbers = fields.labelled(samples.numbers.T, like, like.dims, eofs.covariate)
        back = back + (numbers - eofs.covariate_means).dot(eofs.slopes, dim="covariate")
    return back
