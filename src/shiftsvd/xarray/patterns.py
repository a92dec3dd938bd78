"""Modes as maps that one can read: in units of the field, or as correlations with it."""

from typing import Any, Literal, get_args

import numpy as np

from shiftsvd.xarray.known import check_variances

Scaling = Literal["covariance", "correlation", "scaled", "unit"]


def patterns(eofs: Any, scaling: Scaling = "covariance") -> Any:
    """The modes as maps, scaled so that they mean something by themselves.

    Parameters
    ----------
    eofs : xarray.Dataset
        What `pca` or `rotate` gave, or some of its modes.
    scaling : {"covariance", "correlation", "scaled", "unit"}
        "covariance": of the standardized scores with the field, in its units: what one standard deviation of the mode
        is in each cell. "correlation": of the scores with the field. "scaled": components times the standard deviations
        of their scores, in the weighted space (loadings). "unit": components of length 1 in the weighted space, as
        ``eofs.components`` are.

    Returns
    -------
    xarray.DataArray
        Of the dimensions ``(mode, *space)``.

    Raises
    ------
    ValueError
        For another scaling, or correlations of modes without the standard deviations of the field.

    See Also
    --------
    xarray.pca : Finds the modes.
    xarray.correlation : Maps of correlation with anything, and their p-values.

    Notes
    -----
    No pass: scores of different modes are not correlated, so that a covariance with the field is one with the mode; of
    rotated modes it is ``eofs.structure``. Scores over their standard deviations are
    ``eofs.scores / numpy.sqrt(eofs.explained_variance)``.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray as sx
    >>> values = np.random.default_rng(0).standard_normal((20, 4, 5))
    >>> da = xarray.DataArray(values, dims=("time", "lat", "lon"))
    >>> eofs = sx.pca(da, 3)
    >>> maps = sx.patterns(eofs, "correlation")
    >>> bool(np.allclose(maps[0], xarray.corr(eofs.scores[0], da, "time")))
    True
    """
    check_variances(eofs)
    if scaling not in get_args(Scaling):
        choices = ", ".join(map(repr, get_args(Scaling)))
        raise ValueError(f"scaling must be one of {choices}, got {scaling!r}")
    if scaling == "correlation" and "standard_deviation" not in eofs:
        raise ValueError(
            "eofs must have the standard deviations of the field, got none; fit it with shiftsvd.xarray.pca"
        )
    name = str(eofs.mean_field.attrs.get("long_name", eofs.attrs.get("field", "the field")))
    if scaling == "unit":
        return eofs.components
    loadings = eofs.components * np.sqrt(eofs.explained_variance)
    if scaling == "scaled":
        return _told(loadings, f"scaled EOFs of {name}", eofs.scores.attrs.get("units"))
    maps = (eofs.structure if "structure" in eofs else loadings) / eofs.weights
    if scaling == "covariance":
        return _told(maps, f"{name} at one standard deviation of the mode", eofs.mean_field.attrs.get("units"))
    deviation = eofs.standard_deviation
    return _told(maps / deviation.where(deviation > 0), f"correlation of the mode with {name}", "1")


def _told(maps: Any, long_name: str, units: str | None) -> Any:
    attrs = {"long_name": long_name} | ({} if units is None else {"units": units})
    return maps.transpose(*(["mode"] if "mode" in maps.dims else []), ...).rename("patterns").assign_attrs(attrs)
