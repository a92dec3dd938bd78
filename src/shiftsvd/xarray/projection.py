"""Other fields on known modes, and fields from modes."""

from typing import Any, Final

import numpy as np

from shiftsvd.missing.new_rows import regressed_rows
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel
from shiftsvd.runs.memory import Resources
from shiftsvd.xarray import fields
from shiftsvd.xarray.grids import on_grid
from shiftsvd.xarray.matching import as_fields, in_order
from shiftsvd.xarray.preparing import gaps_within
from shiftsvd.xarray.removed import Removed, without
from shiftsvd.xarray.samples import Samples
from shiftsvd.xarray.sides import names_of, renamed, side

_FIT: Final = ("components", "scores", "mean_field", "weights")  # what a Dataset must hold to be projected on


def project(eofs: Any, da: Any, *, groups: Any = None, covariates: Any = None) -> Any:
    """The scores of another field on known components, by the mean and the weights that go with them.

    Parameters
    ----------
    eofs : xarray.Dataset
        What `pca` gave, perhaps from a file, or some of its modes: ``eofs.sel(mode=1)``.
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
        ``scores (mode, dim)``.

    Raises
    ------
    ValueError
        For another space, or values that are missing or infinite where the components have some.
    TypeError
        If `da` is no DataArray.

    See Also
    --------
    xarray.pca : Finds the modes.
    xarray.reconstruct : The way back.

    Notes
    -----
    One read of a Dask array, whose chunks need not fit the memory together.

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
    check_fit(eofs)
    components = with_modes(eofs.components, "components")
    anomalies, over, cells = anomalies_of(eofs, da, groups, covariates)
    duals = with_modes(eofs.duals, "duals") if "duals" in eofs else components
    V = np.asarray(fields.matrix(duals, ("mode",), eofs.mean_field.dims))[:, cells]  # they may be lazy
    missing = eofs.attrs.get("missing", "error")
    # What values that are there say of the others is known of modes of `pca` alone.
    regressed = missing == "em" and "standard_deviation" in eofs
    scores = (_regressed if regressed else _multiplied)(anomalies, V, eofs, missing)
    return fields.labelled(scores.T, da, over, mode=components.mode, name="scores", attrs=dict(eofs.scores.attrs))


def _all_projected(eofs: Any, names: list[str], data: Any, groups: Any, covariates: Any) -> Any:
    """The scores of several fields on modes of all of them, which are sums over the fields."""
    if "scores" not in eofs:
        raise ValueError(f'these modes are of {" and ".join(names)} each: project(side(eofs, "{names[0]}"), da)')
    given = as_fields(data)
    if missing := [name for name in names if name not in given]:
        raise ValueError(f"all fields of the modes are needed, {', '.join(missing)} is missing")
    parts = [project(side(eofs, name), given[name], groups=groups, covariates=covariates) for name in names]
    first = parts[0].drop_vars([key for key in parts[0].coords if key not in parts[0].dims])
    others = [in_order(first, part, first.dims[1:], (names[0], name)) for name, part in zip(names, parts, strict=True)]
    return first.copy(data=sum(part.transpose(*first.dims).values for part in others))


def anomalies_of(eofs: Any, da: Any, groups: Any, covariates: Any) -> tuple[Any, fields.Dims, fields.Mask]:
    """(weighted anomalies of a field on the grid of the modes, its dimensions of samples, the cells that count)."""
    da = fields.as_field(da)
    space = eofs.mean_field.dims
    over = tuple(dim for dim in da.dims if dim not in space)
    da = on_grid(eofs.mean_field, da, space)
    weights = _flat(eofs.weights, space)
    cells = ~np.isnan(weights)
    factors = _removed(eofs, space, cells).factors(_samples(eofs, da, over, groups, covariates))
    return without(fields.matrix(da, over, space)[:, cells], factors, weights[cells], np.float64), over, cells


def _multiplied(anomalies: Any, V: Panel, eofs: Any, missing: str) -> Panel:
    """Scores by a product, in one read; with "mean" what is missing has no anomaly."""
    found = fields.at_once(
        scores=(("row", "mode"), np.where(np.isfinite(anomalies), anomalies, 0) @ V.T),
        lost=("row", np.isnan(anomalies).sum(axis=1)),
        infinite=((), np.isinf(anomalies).sum()),
    )
    scores, rows = found["scores"], found["lost"] < V.shape[1]
    count = 0 if missing == "mean" else int(found["lost"][rows].sum())
    if count:
        raise ValueError(f"the field must have values wherever the components have, {count} are missing; fill them")
    if count := int(found["infinite"]):
        raise ValueError(f"the field must be finite wherever the components have values, {count} are inf; fill them")
    scores[~rows] = np.nan
    return np.asarray(scores)


def _regressed(anomalies: Any, V: Panel, eofs: Any, missing: str) -> Panel:
    """Scores by a regression of the values that there are on the modes, as `PCA` finds them of new rows with gaps."""
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
    """All fields that the modes make up, in one Dataset, on the coordinates that the modes have."""
    from shiftsvd.xarray.dataset import Dataset

    known = {"groups": groups, "covariates": covariates}
    made = {name: reconstruct(side(eofs, name), scores, modes=modes, **known) for name in names}
    return Dataset({name: renamed(eofs, name, field) for name, field in made.items()})


def _check_known(wanted: Any, of: Any, what: str) -> None:
    """Refuse modes that are not there."""
    if unknown := sorted(set(np.asarray(wanted).tolist()) - set(of.mode.values.tolist())):
        raise ValueError(f"{what} must be of modes of eofs, {of.mode.values.tolist()}, got mode {unknown[0]}")


def _given_back(eofs: Any, like: Any, groups: Any, covariates: Any) -> Any:
    """What is added to the anomalies of the samples of `like`, labelled."""
    if "group_means" not in eofs and "slopes" not in eofs:
        return eofs.mean_field
    samples = _samples(eofs, like, like.dims, groups, covariates)
    back = eofs.mean_field
    if "group_means" in eofs:
        labels = fields.labelled(np.asarray(samples.labels), like, like.dims)
        samples.one_hot(eofs.group.values)  # refuses unknown ones
        back = eofs.group_means.sel(group=labels).drop_vars("group")
    if "slopes" in eofs:
        numbers = fields.labelled(samples.numbers.T, like, like.dims, eofs.covariate)
        back = back + (numbers - eofs.covariate_means).dot(eofs.slopes, dim="covariate")
    return back


def _samples(eofs: Any, da: Any, over: fields.Dims, groups: Any, covariates: Any) -> Samples:
    """What is known of these samples: as it is said, or as the fit found it of the coordinates, or had it by labels."""
    for name, given in (("groups", groups), ("covariates", covariates)):
        if given is not None and name not in eofs:
            raise ValueError(f"the fit had no {name}; leave them out")
    if "groups" in eofs and groups is None:
        named = eofs.attrs.get("groups")
        groups = named if named and named.partition(".")[0] in da.coords else eofs.groups
    if "covariates" in eofs and covariates is None:
        names = [str(name) for name in eofs.covariate.values]
        own = {name: eofs.covariates.sel(covariate=name, drop=True) for name in names}
        covariates = {name: name if name in da.coords else known for name, known in own.items()}
    samples = Samples.of(da, tuple(over), groups, covariates)
    if "covariates" in eofs and len(samples.names) != eofs.sizes["covariate"]:
        raise ValueError(
            f"covariates must be {eofs.covariate.values.tolist()}, as in the fit, got {list(samples.names)}"
        )
    return samples.at(np.ones(len(samples.numbers), bool))


def _removed(eofs: Any, space: fields.Dims, cells: fields.Mask) -> Removed:
    """What the fit subtracted, as it is applied to a matrix of these cells."""

    def rows(name: str, dim: str) -> Panel:
        return np.asarray(fields.matrix(eofs[name], (dim,), space))[:, cells].astype(np.float64)

    grouped, sloped = "group_means" in eofs, "slopes" in eofs
    means = rows("group_means", "group") if grouped else _flat(eofs.mean_field, space)[None, cells]
    slopes, centre = (rows("slopes", "covariate"), eofs.covariate_means.values) if sloped else (means[:0], np.zeros(0))
    names = tuple(map(str, eofs.covariate.values)) if sloped else ()
    return Removed(eofs.group.values if grouped else None, means, slopes, centre, names)


def _flat(values: Any, space: fields.Dims) -> Vector:
    """Values of all cells in one row."""
    return np.asarray(values.transpose(*space).values, np.float64).ravel()


def in_cells(values: Any, space: fields.Dims) -> tuple[Panel, fields.Mask]:
    """Values of modes at the cells that are there, (modes, cells), and which those are; they may be lazy."""
    full = np.asarray(fields.matrix(values, ("mode",), space))
    cells = ~np.isnan(full[0])
    return full[:, cells], cells


def check_fit(eofs: Any, kinds: str = "f") -> None:
    """Whether this is what `pca` gives: modes of one field, without lags, and real unless `kinds` allows others."""
    if missing := [name for name in _FIT if name not in getattr(eofs, "data_vars", ())]:
        raise ValueError(f"eofs must be what shiftsvd.xarray.pca gives, but {', '.join(missing)} is missing")
    if "lag" in eofs.components.dims:
        raise ValueError("eofs must be modes of single steps, got modes with lags; choose one: isel(lag=0, drop=True)")
    if eofs.components.dtype.kind not in kinds:
        raise ValueError("eofs must be real modes, got those of an analytic signal, which only make up the field again")


def with_modes(values: Any, name: str) -> Any:
    """Components or scores with the dimension mode, of a single mode too."""
    if "mode" not in values.coords:
        raise ValueError(f"{name} must have the coordinate mode, got {values.dims}; choose modes by .sel(mode=[1])")
    return values if "mode" in values.dims else values.expand_dims("mode")
