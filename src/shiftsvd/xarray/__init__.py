"""EOF analysis of labelled fields: DataArrays in, DataArrays out, with their coordinates and their gaps.

The names are those of xeofs: components (EOFs), scores (principal component time series), modes counted from 1.
"""

from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np

from shiftsvd.backends import as_operator
from shiftsvd.estimators.pca import PCA
from shiftsvd.names import SolverName
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Operator
from shiftsvd.solvers import Solver
from shiftsvd.xarray import fields
from shiftsvd.xarray.areas import cell_weights
from shiftsvd.xarray.coupling import coupled
from shiftsvd.xarray.extending import extended
from shiftsvd.xarray.hilbert import hilbert
from shiftsvd.xarray.joining import joint
from shiftsvd.xarray.sides import side

__all__ = ["coupled", "extended", "hilbert", "joint", "pca", "project", "reconstruct", "side"]

_FIT: Final = ("components", "scores", "mean_field", "weights")  # what a Dataset must hold to be projected on


def pca(
    da: Any,
    n_modes: int = 10,
    *,
    dim: Hashable | Sequence[Hashable] = "time",
    weights: Any = None,
    center: bool = True,
    standardize: bool = False,
    solver: SolverName | Solver = "auto",
    tol: float = 1e-6,
    rng: int | np.random.Generator | None = None,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
) -> Any:
    """Empirical orthogonal functions of a field: components in space, scores in time, variances.

    Parameters
    ----------
    da : xarray.DataArray
        With the dimension `dim` and any others. Cells that are missing everywhere along `dim`, and samples that miss
        all their cells, are left out and come back as NaN. Coordinates come back, too, but those that are named like a
        variable of the result.
    n_modes : int
        How many modes to find.
    dim : hashable, or sequence of them
        Along which there are samples; all other dimensions make up the space.
    weights : None, "coslat", DataArray, array or float, optional
        What the anomalies are multiplied by: ``sqrt(cos(latitude))``, or numbers that are not negative, with dimensions
        of the space (an array must have its shape, or 1 for any of its sides). The latitudes are the coordinate that
        says so, by its ``standard_name`` or units of degrees north, or else is named lat, latitude, nav_lat, or yc
        (in degrees).
    center : bool
        Subtract the mean over the samples.
    standardize : bool
        Divide by the standard deviation over the samples (ddof 0), before the weights.
    solver, tol, rng, n_threads, memory_limit
        As in `shiftsvd.svd`.

    Returns
    -------
    xarray.Dataset
        ``components (mode, *space)`` of length 1 in the weighted space, ``scores (mode, dim)`` in the weighted units
        of the field, ``explained_variance (mode)`` (ddof 1), ``explained_variance_ratio (mode)``,
        ``singular_values (mode)``, ``mean_field (*space)`` and ``weights (*space)``: what was subtracted, and what the
        rest was multiplied by.

    Raises
    ------
    ValueError
        For values that are missing here and there, or infinite: the message counts them. For latitudes beyond the
        poles, and for dimensions named like a variable of the result.
    TypeError
        If `da` is no DataArray.

    See Also
    --------
    xarray.project : Other fields on its modes.
    xarray.reconstruct : Fields from modes.

    Notes
    -----
    ``weights * (da - mean_field) = sum over modes of scores * components``. Cost: as `shiftsvd.PCA`, a look for missing
    values, and a pass for the scores. Only the cells that are present are copied, and only if some are not.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray
    >>> values = np.random.default_rng(0).standard_normal((20, 4, 5))
    >>> da = xarray.DataArray(values, dims=("time", "lat", "lon"), coords={"lat": [-45, -15, 15, 45]})
    >>> eofs = shiftsvd.xarray.pca(da, n_modes=2, weights="coslat")
    >>> eofs.components.dims, eofs.mode.values
    (('mode', 'lat', 'lon'), array([1, 2]))
    """
    field = fields.stacked(da, dim)
    m, n = field.X.shape
    if not isinstance(n_modes, int | np.integer) or isinstance(n_modes, bool) or not 1 <= n_modes <= min(m, n):
        raise ValueError(f"n_modes must be in 1..{min(m, n)} for {m} samples of {n} cells, got {n_modes!r}")
    applied = cell_weights(da, weights, field)
    A = as_operator(field.X, n_threads=n_threads, memory_limit=memory_limit)
    model = PCA(
        n_modes,
        shift="mean" if center else None,
        scale=_scale(A, applied, standardize),
        solver=solver,
        tol=tol,
        random_state=rng,
        n_threads=n_threads,
        memory_limit=memory_limit,
    ).fit(A)
    return _dataset(da, field, model, model.transform(A))


def project(eofs: Any, da: Any) -> Any:
    """The scores of another field on known components, by the mean and the weights that go with them.

    Parameters
    ----------
    eofs : xarray.Dataset
        What `pca` gave, perhaps from a file, or some of its modes: ``eofs.sel(mode=1)``.
    da : xarray.DataArray
        On the same space: dimensions in any order, coordinates equal. All that is left over is the dimension of the
        samples. Samples that miss all their cells get NaN.

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
    _check_fit(eofs)
    fields.check_field(da)
    space = eofs.mean_field.dims
    over = tuple(dim for dim in da.dims if dim not in space)
    fields.check_space(eofs.mean_field, da, space)
    components = _with_modes(eofs.components, "components")
    V = np.asarray(fields.matrix(components, ("mode",), space))  # the components may be lazy
    cells = ~np.isnan(V[0])
    mean, weights = (eofs[name].transpose(*space).values.ravel()[cells] for name in ("mean_field", "weights"))
    anomalies = (fields.matrix(da, over, space)[:, cells] - mean) * weights
    found = fields.at_once(
        scores=(("row", "mode"), np.where(np.isfinite(anomalies), anomalies, 0) @ V[:, cells].T),
        lost=("row", np.isnan(anomalies).sum(axis=1)),
        infinite=((), np.isinf(anomalies).sum()),
    )
    scores, rows = found["scores"], found["lost"] < np.count_nonzero(cells)
    if count := int(found["lost"][rows].sum()):
        raise ValueError(f"the field must have values wherever the components have, {count} are missing; fill them")
    if count := int(found["infinite"]):
        raise ValueError(f"the field must be finite wherever the components have values, {count} are inf; fill them")
    scores[~rows] = np.nan
    return fields.labelled(scores.T, da, over, mode=components.mode, name="scores")


def reconstruct(eofs: Any, scores: Any = None) -> Any:
    """The field that the modes make up, in its own units: ``mean_field + sum of scores * components / weights``.

    Parameters
    ----------
    eofs : xarray.Dataset
        What `pca` gave, or some of its modes.
    scores : xarray.DataArray, optional
        Of all modes or of some, such as ``eofs.scores.sel(mode=[1, 2])`` or ``eofs.scores.sel(mode=1)``. Default: those
        of the Dataset.

    Returns
    -------
    xarray.DataArray
        Of the dimensions of the samples and the space.

    Raises
    ------
    ValueError
        For scores of modes that `eofs` does not have.
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
    _check_fit(eofs)
    scores = eofs.scores if scores is None else scores
    fields.check_labelled(scores, "scores")
    scores, components = _with_modes(scores, "scores"), _with_modes(eofs.components, "components")
    if unknown := sorted(set(scores.mode.values) - set(components.mode.values)):
        raise ValueError(f"scores must be of modes of eofs, {components.mode.values.tolist()}, got mode {unknown[0]}")
    over = [dim for dim in scores.dims if dim != "mode"]
    field = scores.dot(components.sel(mode=scores.mode), dim="mode") / eofs.weights + eofs.mean_field
    return field.drop_vars("mode", errors="ignore").transpose(*over, *eofs.mean_field.dims).rename(None)


def _scale(A: Operator, weights: Vector | None, standardize: bool) -> Any:
    """What the anomalies are divided by."""
    if not standardize:
        return None if weights is None else 1 / weights
    deviations = np.sqrt(A.moments().variance(ddof=0))
    deviations[deviations == 0] = 1
    return deviations if weights is None else deviations / weights


def _dataset(da: Any, field: fields.Stacked, model: PCA, Z: Vector) -> Any:
    """The result with names and coordinates, and what was missing as NaN."""
    from xarray import DataArray, Dataset

    modes = DataArray(np.arange(1, model.n_components_ + 1), dims="mode", name="mode")
    scale = np.ones(model.n_features_in_) if model.scale_ is None else model.scale_
    over, space = field.over, field.space
    found = {
        "components": fields.labelled(fields.filled(model.components_, field.cells), da, space, mode=modes),
        "scores": fields.labelled(fields.filled(Z.T, field.rows), da, over, mode=modes),
        "explained_variance": DataArray(model.explained_variance_, dims="mode"),
        "explained_variance_ratio": DataArray(model.explained_variance_ratio_, dims="mode"),
        "singular_values": DataArray(model.singular_values_, dims="mode"),
        "mean_field": fields.labelled(fields.filled(model.mean_[None], field.cells)[0], da, space),
        "weights": fields.labelled(fields.filled(1 / scale[None], field.cells)[0], da, space),
    }
    info = model.info_
    told = {"solver": info.solver, "n_passes": info.n_passes, "converged": str(info.converged)}
    return Dataset(found, coords={"mode": modes}, attrs=told)


def _check_fit(eofs: Any) -> None:
    """Whether this is what `pca` gives."""
    if missing := [name for name in _FIT if name not in getattr(eofs, "data_vars", ())]:
        raise ValueError(f"eofs must be what shiftsvd.xarray.pca gives, but {', '.join(missing)} is missing")


def _with_modes(values: Any, name: str) -> Any:
    """Components or scores with the dimension mode, of a single mode too."""
    if "mode" not in values.coords:
        raise ValueError(f"{name} must have the coordinate mode, got {values.dims}; choose modes by .sel(mode=[1])")
    return values if "mode" in values.dims else values.expand_dims("mode")
