"""Other fields on known modes."""

from typing import Any

import numpy as np

from shiftsvd.missing.new_rows import regressed_rows
from shiftsvd.operators import Panel
from shiftsvd.runs.memory import Resources
from shiftsvd.xarray import fields
from shiftsvd.xarray.known import anomalies_of, check_fit, multiplied, with_modes
from shiftsvd.xarray.matching import as_fields, in_order
from shiftsvd.xarray.preparing import gaps_within
from shiftsvd.xarray.series import follow_each_other, of_sequences, of_signals
from shiftsvd.xarray.sides import names_of, side


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
