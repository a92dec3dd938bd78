"""Rotated modes, and modes as maps in units of the field or as correlations."""

from typing import Any, Literal, get_args

import numpy as np

from shiftsvd.estimators.rotation import Method
from shiftsvd.estimators.rotation import rotate as rotated
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel
from shiftsvd.xarray.datasets import check_variances, in_cells

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


def rotate(
    eofs: Any,
    n_modes: int | None = None,
    method: Method = "varimax",
    *,
    power: float = 4,
    kaiser: bool = True,
    max_iter: int = 1000,
) -> Any:
    """Varimax or promax rotation of the leading modes.

    Parameters
    ----------
    eofs : xarray.Dataset
        What `pca` gave.
    n_modes : int, optional
        How many of the leading modes take part; the others are left out. Default: all of them.
    method : "varimax" or "promax"
        Whether modes stay uncorrelated, as in `shiftsvd.rotate`.
    power : float
        With "promax", the power of the loadings that they are rotated to.
    kaiser : bool
        Whether each cell counts alike while the rotation is sought, whatever its loadings.
    max_iter : int
        The most steps of varimax.

    Returns
    -------
    xarray.Dataset
        As `eofs`, of rotated modes in the order of their variances: ``components`` of length 1 that are not orthogonal,
        ``scores``, ``explained_variance``, its ratio and root; and ``duals (mode, *space)``, by which `project` finds
        scores, ``structure (mode, *space)``, the covariance of standardized scores with the weighted field, and
        ``score_correlations (mode, other)``: the identity with varimax. Attributes: ``rotation``, ``criterion``
        (what varimax maximizes) and ``rotation_converged``.

    Raises
    ------
    ValueError
        For modes without variance, rotated ones, or settings that cannot be.

    See Also
    --------
    shiftsvd.rotate : The same of arrays.
    xarray.pca : Finds the modes.
    xarray.patterns : Maps of covariance or correlation, of rotated modes too.

    Notes
    -----
    Loadings are rotated: components times the standard deviations of their scores, in the weighted space. With varimax
    the variances add up to those of the modes that took part; with promax scores correlate, and they do not.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray as sx
    >>> values = np.random.default_rng(0).standard_normal((20, 4, 5))
    >>> eofs = sx.pca(xarray.DataArray(values, dims=("time", "lat", "lon")), 3)
    >>> turned = sx.rotate(eofs)
    >>> bool(np.allclose(sx.reconstruct(turned), sx.reconstruct(eofs)))
    True
    """
    check_variances(eofs)
    if "duals" in eofs:
        raise ValueError("eofs must be the modes of pca, got rotated ones; rotate those that they were made of")
    there = eofs.sizes.get("mode", 0)
    n = there if n_modes is None else n_modes
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or not 1 <= n <= there:
        raise ValueError(f"n_modes must be in 1..{there}, the modes of eofs, got {n_modes!r}")
    first = eofs.isel(mode=slice(int(n)))
    space = eofs.mean_field.dims
    V, cells = in_cells(first.components, space)
    variances = first.explained_variance.values
    found = rotated(V.T, np.sqrt(variances), method, power=power, kaiser=kaiser, max_iter=max_iter)
    total, freedom = variances[0] / first.explained_variance_ratio.values[0], first.singular_values.values[0] ** 2
    deviations = np.sqrt(found.squares)
    loadings = deviations[:, None] * found.components

    def in_space(values: Panel) -> Any:
        full = np.full((len(values), len(cells)), np.nan, first.components.dtype)
        full[:, cells] = values
        like = first.components.transpose("mode", *space)
        return like.copy(data=full.reshape(like.shape)).variable

    scores = first.scores.transpose("mode", ...)
    Z = np.asarray(scores.values).reshape(len(V), -1)
    changed: dict[str, Any] = {
        "components": in_space(found.components),
        "scores": scores.copy(data=_mixed(found.to_scores.T, Z).reshape(scores.shape)).variable,
        "explained_variance": first.explained_variance.copy(data=found.squares).variable,
        "explained_variance_ratio": first.explained_variance_ratio.copy(data=found.squares / total).variable,
        "singular_values": ("mode", deviations * np.sqrt(freedom / variances[0])),
        "duals": in_space(found.duals),
        "structure": in_space(found.correlations @ loadings),
        "score_correlations": (("mode", "other"), found.correlations),
    }
    told = {"rotation": method, "criterion": found.criterion, "rotation_converged": found.converged}
    # A regression on modes that are not orthogonal is none that `project` knows.
    said = {"missing": "error"} if eofs.attrs.get("missing") == "em" else {}
    from shiftsvd.xarray.fields import as_result

    return as_result(first.assign(changed).assign_coords(mode=np.arange(1, len(V) + 1)), **told, **said)


def _mixed(to_scores: Panel, Z: Vector) -> Vector:
    return np.asarray((to_scores @ Z).astype(Z.dtype))
