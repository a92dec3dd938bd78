"""Modes of one field: what is removed, the fit, and the result with names, coordinates and units."""

from collections.abc import Hashable, Sequence
from typing import Any, Literal

import numpy as np

from shiftsvd.estimators.pca import PCA
from shiftsvd.names import MAX_ITER, MissingName, SolverName
from shiftsvd.numerics.moments import Vector
from shiftsvd.runs.memory import Resources
from shiftsvd.solvers import Solver
from shiftsvd.xarray import fields
from shiftsvd.xarray.datasets import told_of_fit
from shiftsvd.xarray.fields import cell_weights
from shiftsvd.xarray.joining import joint
from shiftsvd.xarray.preparing import Asked, Fitted, fit_observed, fit_whole
from shiftsvd.xarray.samples import Samples, as_variables, is_several


def pca(
    da: Any,
    n_modes: int | float = 10,
    *,
    dim: Hashable | Sequence[Hashable] = "time",
    weights: Any = None,
    center: bool = True,
    standardize: bool = False,
    missing: MissingName = "error",
    groups: Any = None,
    covariates: Any = None,
    solver: SolverName | Solver = "auto",
    tol: float = 1e-6,
    penalty: float | Literal["auto"] = "auto",
    max_iter: int = MAX_ITER,
    rng: int | np.random.Generator | None = None,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
) -> Any:
    """Empirical orthogonal functions of a field: components in space, scores in time, variances.

    Parameters
    ----------
    da : xarray.DataArray, or several of them: a Dataset, a list, or a mapping from names
        With the dimension `dim` and any others. Several are taken together, as `joint` does, which says more. Cells
        that are missing everywhere along `dim`, and samples that miss all their cells, are left out and come back as
        NaN. Coordinates come back, too, but those that are named like a
        variable of the result. Numbers that are still packed, as ``scale_factor``, ``add_offset``, ``_FillValue`` or
        ``missing_value`` among the attributes say, are unpacked.
    n_modes : int, or float in (0, 1)
        How many modes to find; a share of the variance to exceed, by the fewest modes.
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
        Divide by the standard deviation of the anomalies over the samples (ddof 0), before the weights: EOFs of the
        correlation matrix.
    missing : "error", "mean" or "em"
        What to do with values that are missing here and there. "mean": the mean of the cell, or what `groups` and
        `covariates` say of it, stands for them: they have no anomaly. "em": a model of rank `n_modes` is fitted to the
        values that there are, in the units that `weights` and `standardize` make (`complete_matrix`), and its values
        stand for the others; ``attrs["heldout_r2"]`` says how well it predicts values that it has not seen.
    groups : str, DataArray or array, optional
        The group of each sample, whose mean is subtracted in place of the mean of all: a part of a coordinate such as
        ``"time.month"``, the name of a coordinate, or labels. Labelled ones are matched by their labels.
    covariates : str, DataArray, array, or several of them, optional
        What a regression of every cell on these explains is subtracted, too: ``"time"`` is the linear trend (slopes
        are per day), a DataArray an index. Several are a sequence, or a mapping from their names.
    solver : str or Solver
        As in `shiftsvd.svd`.
    tol : float
        Relative accuracy of the singular values.
    penalty : float of at least 0, or "auto"
        Of the completion with ``missing="em"``, as in `complete_matrix`.
    max_iter : int
        The most steps of that completion.
    rng : int, Generator or None
        Seed of the solver; the same seed gives the same bits. None is fresh entropy.
    n_threads : int, optional
        Default: the cores that this process may use. The result does not depend on it.
    memory_limit : int (bytes) or str such as "2GB", optional
        Default: half of the available memory. What would need more is refused.

    Returns
    -------
    xarray.Dataset
        ``components (mode, *space)`` of length 1 in the weighted space, ``scores (mode, dim)`` in the weighted units
        of the field, ``explained_variance (mode)`` (ddof 1), ``explained_variance_ratio (mode)``,
        ``singular_values (mode)``, ``mean_field (*space)``, ``standard_deviation (*space)`` of the anomalies (ddof 1)
        and ``weights (*space)``: what they were multiplied by. With `groups` also ``group_means (group, *space)`` and
        ``groups (dim)``, with `covariates` ``slopes (covariate, *space)``, ``covariate_means (covariate)`` and
        ``covariates (covariate, dim)``. Attributes: ``solver``, ``n_passes``, ``converged`` (whether all variances are
        known to `tol`; 1 or 0 in a file of NetCDF), ``missing``, and where values are missing ``n_missing`` and
        ``heldout_r2``.

    Raises
    ------
    ValueError
        For values that are missing here and there where `missing` does not say what to do, or infinite: the message
        counts them. For latitudes beyond the poles, labels that do not match, and for dimensions named like a variable
        of the result.
    TypeError
        If `da` is no DataArray.

    See Also
    --------
    xarray.joint : Several fields.
    xarray.project : Other fields on its modes.
    xarray.reconstruct : Fields from modes.
    xarray.patterns : Maps of covariance or correlation.
    xarray.rotate : Rotated modes.
    xarray.north : How far the variances may be off.

    Notes
    -----
    ``weights * (da - what is subtracted) = sum over modes of scores * components``. Cost: as `shiftsvd.PCA`, a look for
    missing values, and a pass for the scores. Only the cells that are present are copied, and only if some are not.
    `groups` and `covariates` are `shiftsvd.Covariates`: they are never subtracted from a copy, and variances are still
    sums of squares over the number of samples less 1.

    Of a field with gaps the anomalies are copied, or lazy where the field is. A completion of a Dask array reads it
    twice a step, unless it takes up to half of the memory limit: then it is loaded once.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray
    >>> values = np.random.default_rng(0).standard_normal((20, 4, 5))
    >>> da = xarray.DataArray(values, dims=("time", "lat", "lon"), coords={"lat": [-45, -15, 15, 45]})
    >>> eofs = shiftsvd.xarray.pca(da, n_modes=2, weights="coslat")
    >>> eofs.components.dims, eofs.mode.values
    (('mode', 'lat', 'lon'), array([1, 2]))

    A field with gaps, without its seasons:

    >>> seasons = ["winter", "spring", "summer", "autumn"] * 5
    >>> gaps = da.where(np.random.default_rng(1).random(da.shape) > 0.1)
    >>> shiftsvd.xarray.pca(gaps, 2, missing="mean", groups=seasons).group.values
    array(['autumn', 'spring', 'summer', 'winter'], dtype='<U6')
    """
    resources = Resources(memory_limit, n_threads)
    if is_several(da):
        how: dict[str, Any] = {"solver": solver, "tol": tol, "rng": rng, **vars(resources)}
        how |= {"penalty": penalty, "max_iter": max_iter, "groups": groups, "covariates": covariates}
        more = {"weights": weights, "center": center, "standardize": standardize, "missing": missing}
        return joint(da, n_modes, dim=dim, **more, **how)
    asked = Asked(center, standardize, weights, missing, groups, covariates, penalty, max_iter, resources)
    asked.check()
    da = fields.as_field(da)
    field = fields.stacked(da, dim, missing)
    fields.tell_used(field.rows, field.over)
    _check_modes(n_modes, field.X.shape, missing)
    known = Samples.of(da, field.over, groups, covariates)
    samples = known.at(field.rows)
    settings: dict[str, Any] = {
        "solver": solver,
        "tol": tol,
        "random_state": rng,
        "penalty": penalty,
        "max_iter": max_iter,
    }
    model = PCA(n_modes, **settings, **vars(resources))
    fit = fit_observed if field.n_missing else fit_whole
    fitted = fit(field.X, samples, cell_weights(da, weights, field), asked, model)
    said = {"missing": missing} | asked.told
    return _dataset(da, field, fitted, known, _units(da, weights, standardize)).assign_attrs(said)


def _check_modes(n_modes: Any, shape: tuple[int, int], missing: str) -> None:
    (m, n), whole = shape, isinstance(n_modes, int | np.integer) and not isinstance(n_modes, bool)
    if isinstance(n_modes, float | np.floating) and 0 < n_modes < 1:
        if missing == "em":
            raise ValueError(f'n_modes must be an integer with missing="em", got {n_modes!r}')
    elif not whole or not 1 <= n_modes <= min(m, n):
        raise ValueError(
            f"n_modes must be in 1..{min(m, n)} for {m} samples of {n} cells, got {n_modes!r}; "
            "a share of the variance is in (0, 1)"
        )


def _units(da: Any, weights: Any, standardize: bool) -> str | None:
    if not (weights is None or isinstance(weights, str)):
        return None
    return "1" if standardize else da.attrs.get("units")


def _dataset(da: Any, field: fields.Stacked, fitted: Fitted, known: Samples, units: str | None) -> Any:
    from xarray import DataArray

    from shiftsvd.xarray.fields import Dataset

    model, space = fitted.model, field.space
    modes = DataArray(np.arange(1, model.n_components_ + 1), dims="mode", name="mode")
    kept, what = fields.told_of(da, "units"), str(da.attrs.get("long_name", da.name or "the field"))
    square = {} if units is None else {"units": "1" if units == "1" else f"({units})^2"}

    def in_space(values: Vector, attrs: dict[str, Any], mode: Any = None) -> Any:
        full = fields.filled(values if values.ndim == 2 else values[None], field.cells)
        return fields.labelled(full if mode is not None else full[0], da, space, mode, attrs=attrs)

    scores = fields.filled(fitted.Z.T, field.rows)
    of_scores = {"long_name": f"scores of {what}"} | ({} if units is None else {"units": units})
    found = {
        "components": in_space(model.components_, {"long_name": f"EOFs of {what}", "units": "1"}, modes),
        "scores": fields.labelled(scores, da, field.over, modes, attrs=of_scores),
        "explained_variance": DataArray(model.explained_variance_, dims="mode", attrs=square),
        "explained_variance_ratio": DataArray(model.explained_variance_ratio_, dims="mode", attrs={"units": "1"}),
        "singular_values": DataArray(model.singular_values_, dims="mode"),
        "mean_field": in_space(fitted.mean, fields.told_of(da)),
        "standard_deviation": in_space(fitted.deviation, kept | {"long_name": f"standard deviation of {what}"}),
        "weights": in_space(1 / fitted.scale, {"long_name": f"what anomalies of {what} were multiplied by"}),
    }
    info = model.info_
    told = told_of_fit(info)
    told |= {"field": str(da.name)} if da.name is not None else {}
    told |= {"n_missing": field.n_missing, "noise_variance": model.noise_variance_} if field.n_missing else {}
    told |= {} if info.heldout_r2 is None else {"heldout_r2": info.heldout_r2}
    return Dataset(found | as_variables(fitted.removed, da, field, known), coords={"mode": modes}, attrs=told)
