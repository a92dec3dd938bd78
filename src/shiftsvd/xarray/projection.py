"""Other fields on known modes, and fields reconstructed from modes."""

from typing import Any

import numpy as np

from shiftsvd.algebra.time_series import AnalyticSignal
from shiftsvd.missing.fits import regressed_rows
from shiftsvd.operators import Panel
from shiftsvd.runs.memory import Resources
from shiftsvd.xarray import fields
from shiftsvd.xarray.coupling import names_of, renamed, side
from shiftsvd.xarray.datasets import anomalies_of, check_fit, multiplied, samples_of, with_modes
from shiftsvd.xarray.preparing import all_there, gaps_within, steps
from shiftsvd.xarray.samples import as_fields, in_order


def project(eofs: Any, da: Any, *, groups: Any = None, covariates: Any = None) -> Any:
    """The scores of another field on known components, by the mean and the weights that go with them.

    Parameters
    ----------
    eofs : xarray.Dataset
        What `pca` gave, or `hilbert` or `extended`, perhaps from a file, or some of its modes: ``eofs.sel(mode=1)``.
    da : xarray.DataArray, or several of them where `eofs` is of several
        On the same space: dimensions and labels in any order, longitudes from 0 or from -180. All that is left over is
        the dimension of the samples. Samples that miss all their cells get NaN. Where the fit said what to do with
        values that are missing here and there, the same is done: with "mean" they have no anomaly, with "em" those that
        are there are regressed on the modes, all of which should be there then.
    groups, covariates : optional
        Of these samples, as in `pca`, if the fit had any; those that it had by the names of coordinates are found.

    Returns
    -------
    xarray.DataArray
        ``scores (mode, dim)``; of sequences at the first step of each.

    Raises
    ------
    ValueError
        For another space, or values that are missing or infinite where the components have some; of modes in time for
        steps out of order, too few of them, or, of an analytic signal, without values.
    TypeError
        If `da` is no DataArray.

    See Also
    --------
    xarray.pca : Finds the modes.
    xarray.reconstruct : The way back.

    Notes
    -----
    One read of a Dask array, whose chunks need not fit the memory together.

    The analytic signal is that of the new series, padded as in the fit, so that near its ends scores are not those of a
    longer one. The mean of the transform is 0, and that of the real part stays.

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
        return _all_projected(eofs, names, da, groups, covariates)
    check_fit(eofs, kinds="fc", lags=True)
    components = with_modes(eofs.components, "components")
    anomalies, over, cells = anomalies_of(eofs, da, groups, covariates)
    told = {"name": "scores", "mode": components.mode, "attrs": dict(eofs.scores.attrs)}
    if "lag" in components.dims or components.dtype.kind == "c":
        follow_each_other(da, over)
        scores = (of_sequences if "lag" in components.dims else of_signals)(anomalies, components, eofs, cells)
        return fields.labelled(scores.T, da.isel({over[0]: slice(0, len(scores))}), over, **told)
    duals = with_modes(eofs.duals, "duals") if "duals" in eofs else components
    V = np.asarray(fields.matrix(duals, ("mode",), eofs.mean_field.dims))[:, cells]  # they may be lazy
    missing = eofs.attrs.get("missing", "error")
    # What values that are there say of the others is known of modes of `pca` alone.
    regressed = missing == "em" and "standard_deviation" in eofs
    scores = _regressed(anomalies, V, eofs) if regressed else multiplied(anomalies, V, missing)
    return fields.labelled(scores.T, da, over, **told)


def _all_projected(eofs: Any, names: list[str], data: Any, groups: Any, covariates: Any) -> Any:
    if "scores" not in eofs:
        raise ValueError(f'these modes are of {" and ".join(names)} each: project(side(eofs, "{names[0]}"), da)')
    given = as_fields(data)
    if missing := [name for name in names if name not in given]:
        raise ValueError(f"all fields of the modes are needed, {', '.join(missing)} is missing")
    parts = [project(side(eofs, name), given[name], groups=groups, covariates=covariates) for name in names]
    first = parts[0].drop_vars([key for key in parts[0].coords if key not in parts[0].dims])
    others = [in_order(first, part, first.dims[1:], (names[0], name)) for name, part in zip(names, parts, strict=True)]
    return first.copy(data=sum(part.transpose(*first.dims).values for part in others))


def _regressed(anomalies: Any, V: Panel, eofs: Any) -> Panel:
    there = fields.at_once(there=("row", (~np.isnan(anomalies)).sum(axis=1)))["there"] > 0
    scores = np.full((len(there), len(V)), np.nan)
    if there.any():
        gaps = gaps_within(anomalies if there.all() else anomalies[there], Resources())
        variances, noise = np.atleast_1d(eofs.explained_variance.values), float(eofs.attrs.get("noise_variance", 0))
        A = regressed_rows(gaps, np.zeros(V.shape[1]), None, V, variances, noise)
        scores[there] = np.concatenate([part for _, part in A.row_products(V.T.astype(np.float64))])
    return scores


def reconstruct(eofs: Any, scores: Any = None, *, modes: Any = None, groups: Any = None, covariates: Any = None) -> Any:
    """The field that the modes make up, in its own units: what was subtracted, and the rest.

    ``mean_field + sum of scores * components / weights``, with the means of the groups in place of `mean_field`, and
    what the covariates explain, if the fit had such.

    Parameters
    ----------
    eofs : xarray.Dataset
        What `pca` gave, or some of its modes.
    scores : xarray.DataArray, optional
        Of all modes or of some, such as ``eofs.scores.sel(mode=[1, 2])`` or ``eofs.scores.sel(mode=1)``. Default: those
        of the Dataset.
    modes : int, list of int or slice, optional
        Which modes make up the field, by their labels, such as ``modes=2`` or ``modes=[1, 3]``. Default: all of
        `scores`.
    groups, covariates : optional
        Of the samples of `scores`, as in `pca`, if the fit had any. Default: those that the fit had for the same
        labels, or by the names of coordinates.

    Returns
    -------
    xarray.DataArray
        Of the dimensions of the samples and the space, with the name and the attributes of the field. Of several fields
        a Dataset of them; of complex modes the real part.

    Raises
    ------
    ValueError
        For scores of modes that `eofs` does not have, or samples whose groups or covariates are not known.
    TypeError
        If the scores are no DataArray.

    See Also
    --------
    xarray.pca : Finds the modes.
    xarray.project : The way there.

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
        return _all_reconstructed(eofs, names, scores, modes, groups, covariates)
    check_fit(eofs, kinds="fc")
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
    over = like.dims
    made = scores.dot(components.sel(mode=scores.mode), dim="mode")
    field = (made.real if made.dtype.kind == "c" else made) / eofs.weights
    field = (field + _given_back(eofs, like, groups, covariates)).drop_vars("mode", errors="ignore")
    field = field.transpose(*over, *eofs.mean_field.dims).squeeze(single).rename(eofs.attrs.get("field"))
    return field.assign_attrs(eofs.mean_field.attrs)


def _all_reconstructed(eofs: Any, names: list[str], scores: Any, modes: Any, groups: Any, covariates: Any) -> Any:
    from shiftsvd.xarray.fields import Dataset

    known = {"groups": groups, "covariates": covariates}
    made = {name: reconstruct(side(eofs, name), scores, modes=modes, **known) for name in names}
    return Dataset({name: renamed(eofs, name, field) for name, field in made.items()})


def _check_known(wanted: Any, of: Any, what: str) -> None:
    if unknown := sorted(set(np.asarray(wanted).tolist()) - set(of.mode.values.tolist())):
        raise ValueError(f"{what} must be of modes of eofs, {of.mode.values.tolist()}, got mode {unknown[0]}")


def _given_back(eofs: Any, like: Any, groups: Any, covariates: Any) -> Any:
    if "group_means" not in eofs and "slopes" not in eofs:
        return eofs.mean_field
    samples = samples_of(eofs, like, like.dims, groups, covariates)
    back = eofs.mean_field
    if "group_means" in eofs:
        labels = fields.labelled(np.asarray(samples.labels), like, like.dims)
        samples.one_hot(eofs.group.values)  # refuses unknown ones
        back = eofs.group_means.sel(group=labels).drop_vars("group")
    if "slopes" in eofs:
        numbers = fields.labelled(samples.numbers.T, like, like.dims, eofs.covariate)
        back = back + (numbers - eofs.covariate_means).dot(eofs.slopes, dim="covariate")
    return back


def follow_each_other(da: Any, over: fields.Dims) -> None:
    steps(da, over, "a mode in time")


def of_sequences(anomalies: Any, components: Any, eofs: Any, cells: fields.Mask) -> Panel:
    lags, k = components.lag.values, components.sizes["mode"]
    n = anomalies.shape[0] - int(lags.max())
    if n < 1:
        raise ValueError(f"the field must have at least {lags.max() + 1} steps for these lags, got {len(anomalies)}")
    V = np.asarray(fields.matrix(components, ("lag", "mode"), eofs.mean_field.dims))[:, cells]
    each = multiplied(anomalies, V, eofs.attrs.get("missing", "error")).reshape(-1, len(lags), k)
    return np.asarray(sum(each[lag : lag + n, j] for j, lag in enumerate(lags.tolist())) - _means(eofs))


def of_signals(anomalies: Any, components: Any, eofs: Any, cells: fields.Mask) -> Panel:
    V = np.asarray(fields.matrix(components, ("mode",), eofs.mean_field.dims))[:, cells]
    P = multiplied(anomalies, V.conj(), eofs.attrs.get("missing", "error"))
    all_there(np.asarray(~np.isnan(P).any(axis=1)), "a Hilbert transform")
    T = AnalyticSignal(len(P), eofs.attrs.get("decay"), P.dtype)
    return np.asarray(T.matmat(P) + P.mean(axis=0) - _means(eofs))


def _means(eofs: Any) -> Panel:
    return np.atleast_1d(eofs.score_means.values)
