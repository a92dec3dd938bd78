"""Rotate modes, and scale modes to maps in units of the field or to correlations."""

from typing import Any, Literal, get_args

import numpy as np
from xarray import DataArray, Variable

from shiftsvd import rotate as rotated
from shiftsvd.extend.fits import integer
from shiftsvd.extend.running import refuse
from shiftsvd.xarray.datasets import Dataset, check_variances
from shiftsvd.xarray.fields import ERROR_BOUNDS, Attrs, Panel, matrix_of, with_absent_cells

Method = Literal["varimax", "promax"]
Scaling = Literal["covariance", "correlation", "scaled", "unit"]


def patterns(eofs: Any, scaling: Scaling = "covariance") -> Any:
    """Scale the modes to maps in the units of the field, or to correlations.

    Parameters
    ----------
    eofs : xarray.Dataset
        The result of `pca` or `rotate`, or some of its modes.
    scaling : {"covariance", "correlation", "scaled", "unit"}
        "covariance": covariances of the standardized scores with the field, in its units: one standard deviation of the
        mode in each cell. "correlation": correlations of the scores with the field. "scaled": components times the
        standard deviations of their scores, in the weighted space (loadings). "unit": components of length 1 in the
        weighted space, as ``eofs.components``.

    Returns
    -------
    xarray.DataArray
        Maps on the dimensions ``(mode, *space)``.

    Raises
    ------
    ValueError
        If the scaling is unknown, `eofs` lacks the standard deviations that correlations need, or correlations are of
        modes of a fit with ``center=False``.

    See Also
    --------
    xarray.pca : Compute the modes.
    xarray.correlation : Maps of correlation with any series, and their p-values.

    Notes
    -----
    No pass: scores of different modes are uncorrelated, so the covariance of a score with the field equals its
    covariance with its own mode. For rotated modes it is ``eofs.structure``. Standardized scores are
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
    check_variances(eofs, lags=True)
    if scaling not in get_args(Scaling):
        raise refuse("scaling", f"be one of {', '.join(map(repr, get_args(Scaling)))}", scaling)
    if scaling == "correlation" and "standard_deviation" not in eofs:
        raise ValueError(
            "eofs must have the standard deviations of the field, got none. Fit the modes with shiftsvd.xarray.pca."
        )
    if scaling == "correlation" and _is_uncentred(eofs):
        raise ValueError(
            "eofs must be modes of a centred field for correlations, got modes of a fit with center=False. Use "
            "correlation(da, eofs.scores)."
        )
    name = str(eofs.mean_field.attrs.get("long_name", eofs.attrs.get("field", "the field")))
    if scaling == "unit":
        return eofs.components
    loadings = eofs.components * np.sqrt(eofs.explained_variance)
    if scaling == "scaled":
        return _described(loadings, f"scaled EOFs of {name}", eofs.scores.attrs.get("units"))
    maps = (eofs.structure if "structure" in eofs else loadings) / eofs.weights
    if scaling == "covariance":
        return _described(maps, f"{name} at one standard deviation of the mode", eofs.mean_field.attrs.get("units"))
    deviation = eofs.standard_deviation
    return _described(maps / deviation.where(deviation > 0), f"correlation of the mode with {name}", "1")


def _is_uncentred(eofs: Any) -> bool:
    # Scores of a centred field may have a small mean, from single precision or a completion.
    means = eofs.scores.mean([dim for dim in eofs.scores.dims if dim != "mode"])
    return not eofs.mean_field.fillna(0).any() and bool((abs(means) > 1e-6 * np.sqrt(eofs.explained_variance)).any())


def _described(maps: DataArray, long_name: str, units: str | None) -> DataArray:
    attrs = {"long_name": long_name} | ({} if units is None else {"units": units})
    maps = maps.transpose(*(["mode"] if "mode" in maps.dims else []), ...).rename("patterns")
    return maps.drop_attrs(deep=False).assign_attrs(attrs)  # products may keep units of their factors


def rotate(
    eofs: Any,
    n_modes: int | None = None,
    method: Method = "varimax",
    *,
    power: float = 4,
    kaiser: bool = True,
    max_iter: int = 1000,
) -> Any:
    """Rotate the leading modes by varimax or promax.

    Parameters
    ----------
    eofs : xarray.Dataset
        The result of `pca`.
    n_modes : int, optional
        Number of leading modes to rotate; the result excludes the others. Default: all modes.
    method : "varimax" or "promax"
        "varimax" keeps scores uncorrelated, "promax" does not: see `shiftsvd.rotate`.
    power : float
        With "promax", the power of the loadings in the target of the rotation.
    kaiser : bool
        Normalize the loadings of each cell during the rotation, so that all cells have equal weight.
    max_iter : int
        Maximum number of iterations of varimax.

    Returns
    -------
    xarray.Dataset
        The variables of `eofs` for rotated modes, by descending variance: ``components`` of length 1, not orthogonal,
        ``scores``, ``explained_variance``, its ratio and root; ``duals (mode, *space)``, from which `project` computes
        scores; ``structure (mode, *space)``, the covariance of standardized scores with the weighted field; and
        ``score_correlations (mode, other)``, the identity with varimax. Attributes: ``rotation``, ``criterion`` (the
        objective of varimax) and ``rotation_converged``.

    Raises
    ------
    ValueError
        If modes have no variance or are rotated already, or a setting is invalid.

    See Also
    --------
    shiftsvd.rotate : The rotation of arrays.
    xarray.pca : Compute the modes.
    xarray.patterns : Maps of covariance or correlation, of rotated modes too.

    Notes
    -----
    The rotation acts on loadings: components times the standard deviations of their scores, in the weighted space. With
    varimax the variances have the same sum as before the rotation; with promax scores correlate, and the sum changes.

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
        raise ValueError("eofs must be the modes of pca, got rotated modes. Pass the modes before rotation.")
    count = eofs.sizes.get("mode", 0)
    n = integer("n_modes", count if n_modes is None else n_modes, 1, count, ", the number of modes of eofs")
    first = eofs.isel(mode=slice(n))
    like = first.components.transpose("mode", *eofs.mean_field.dims)
    full = np.asarray(matrix_of(like, ("mode",), eofs.mean_field.dims))
    cells = ~np.isnan(full[0])
    variances = first.explained_variance.values
    found = rotated(full[:, cells].T, np.sqrt(variances), method, power=power, kaiser=kaiser, max_iter=max_iter)
    total, freedom = variances[0] / first.explained_variance_ratio.values[0], first.singular_values.values[0] ** 2
    deviations = np.sqrt(found.squares)

    def in_space(values: Panel, attrs: Attrs | None = None) -> Variable:
        return Variable(like.dims, with_absent_cells(values.astype(like.dtype), cells).reshape(like.shape), attrs)

    scores = first.scores.transpose("mode", ...)
    Z = np.asarray(scores.values).reshape(n, -1)
    changed: dict[str, Any] = {
        "components": in_space(found.components, like.attrs),
        "scores": scores.copy(data=(found.to_scores.T @ Z).astype(Z.dtype).reshape(scores.shape)).variable,
        "explained_variance": first.explained_variance.copy(data=found.squares).variable,
        "explained_variance_ratio": first.explained_variance_ratio.copy(data=found.squares / total).variable,
        "singular_values": ("mode", deviations * np.sqrt(freedom / variances[0])),
        "duals": in_space(found.duals),
        "structure": in_space(found.correlations @ (deviations[:, None] * found.components)),
        "score_correlations": (("mode", "other"), found.correlations),
    }
    attrs: dict[str, Any] = {"rotation": method, "criterion": found.criterion, "rotation_converged": found.converged}
    if eofs.attrs.get("missing") == "em":
        attrs["missing"] = "error"  # `project` regresses on orthogonal modes alone
    # Error bounds are those of the modes before rotation.
    first = first.drop_vars(ERROR_BOUNDS, errors="ignore")
    turned = first.assign(changed).assign_coords(mode=np.arange(1, n + 1))
    return Dataset(
        turned.data_vars,
        turned.coords,
        {key: value for key, value in turned.attrs.items() if key not in ("missed_below", "n_modes")} | attrs,
    )
