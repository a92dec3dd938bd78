"""Fields from modes: what was subtracted, and what the modes make up."""

from typing import Any

import numpy as np

from shiftsvd.xarray import fields
from shiftsvd.xarray.known import check_fit, samples_of, with_modes
from shiftsvd.xarray.sides import names_of, renamed, side


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
    from shiftsvd.xarray.dataset import Dataset

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
