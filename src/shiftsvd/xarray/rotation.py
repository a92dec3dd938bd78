"""Rotated modes: the leading modes of a field, mixed so that each is large in few places."""

from typing import Any

import numpy as np

from shiftsvd.estimators.rotation import Method
from shiftsvd.estimators.rotation import rotate as rotated
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel
from shiftsvd.xarray.known import check_variances, in_cells


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
    from shiftsvd.xarray.dataset import as_result

    return as_result(first.assign(changed).assign_coords(mode=np.arange(1, len(V) + 1)), **told, **said)


def _mixed(to_scores: Panel, Z: Vector) -> Vector:
    return np.asarray((to_scores @ Z).astype(Z.dtype))
