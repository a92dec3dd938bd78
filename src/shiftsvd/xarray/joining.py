"""Modes of several fields together, each on its own grid, normalised and weighted by itself."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from shiftsvd.front import svd
from shiftsvd.names import MAX_ITER, MissingName, SolverName
from shiftsvd.operators import Operator, Scaled, beside
from shiftsvd.runs.memory import Resources
from shiftsvd.sketch import generator
from shiftsvd.solvers import Solver
from shiftsvd.xarray import fields
from shiftsvd.xarray.coupling import together
from shiftsvd.xarray.datasets import mode_labels, scores_of, told_of_each, told_of_fit, variances
from shiftsvd.xarray.preparing import Anomalies, Asked, anomalies, check_modes
from shiftsvd.xarray.samples import as_fields, at_common, in_order


def joint(
    data: Any,
    n_modes: int | float = 10,
    *,
    dim: Hashable | Sequence[Hashable] = "time",
    weights: Any = None,
    center: bool | Mapping[str, bool] = True,
    standardize: bool | Mapping[str, bool] = False,
    normalize: bool = True,
    factors: Mapping[str, float] | None = None,
    missing: MissingName | Mapping[str, MissingName] = "error",
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
    """Empirical orthogonal functions of several fields together, which have the samples in common and nothing else.

    Parameters
    ----------
    data : xarray.Dataset, sequence of xarray.DataArray, or mapping from names to them
        Each with the dimension `dim` and any others, on its own grid. Samples are matched by their labels: all fields
        must have the same, in any order. Cells and samples without values are left out, as in `pca`, and samples that
        any field lacks.
    n_modes : int, or float in (0, 1)
        How many modes to find; a share of the variance to exceed, by the fewest modes.
    dim : hashable, or sequence of them
        Along which there are samples.
    weights : None, "coslat", DataArray, array or float, optional
        As in `pca`, of all fields; or a mapping from names of fields, of which those that it lacks have the default.
    center : bool, or mapping from names to bool
        Subtract the mean over the samples.
    standardize : bool, or mapping from names to bool
        Divide by the standard deviation over the samples, before the weights.
    normalize : bool
        Divide the anomalies of each field, divided and weighted, by the root of their total variance, so that all
        fields have as much to say, whatever their units and the number of their cells.
    factors : mapping from names to float, optional
        What the anomalies of fields are multiplied by after that: 2 is four times the variance of another field.
    missing : "error", "mean" or "em", or mapping from names to them
        As in `pca`. With "em" each field is completed by itself, by a model of rank `n_modes`.
    groups, covariates : optional
        Of the samples, as in `pca`, of all fields.
    solver : str or Solver
        As in `shiftsvd.svd`.
    tol : float
        Relative accuracy of the singular values.
    penalty, max_iter : optional
        Of the completion with ``missing="em"``, as in `pca`.
    rng : int, Generator or None
        Seed of the solver; the same seed gives the same bits. None is fresh entropy.
    n_threads : int, optional
        Default: the cores that this process may use. The result does not depend on it.
    memory_limit : int (bytes) or str such as "2GB", optional
        Default: half of the available memory. What would need more is refused.

    Returns
    -------
    xarray.Dataset
        ``scores (mode, dim)``, ``explained_variance (mode)``, ``explained_variance_ratio (mode)`` and
        ``singular_values (mode)`` of all fields together. For each field, with its name before theirs:
        ``name_components (mode, *space)``, whose squares sum to 1 over all fields, ``name_mean_field``,
        ``name_weights`` and ``name_own_variance_ratio (mode)``, the share of its own variance, and what `pca` gives
        with `groups` and `covariates`. Coordinates that differ between fields have the name of the
        field after theirs: `side` gives what is of one field, under its own names.

    Raises
    ------
    ValueError
        For samples that do not match, names that are not there or twice, and as in `pca`.
    TypeError
        For what is no field.

    See Also
    --------
    xarray.side : One of the fields, for `reconstruct`.
    xarray.pca : One field.
    xarray.coupled : What two fields have in common.

    Notes
    -----
    ``weights * (field - mean_field) = sum over modes of scores * components`` for each field. Fields are not copied,
    nor put beside each other in memory; some may be Dask arrays. Cost: as `pca`, of all fields.

    Examples
    --------
    >>> import numpy as np, xarray, shiftsvd.xarray
    >>> values = np.random.default_rng(0).standard_normal((20, 4, 5))
    >>> sst = xarray.DataArray(values, dims=("time", "lat", "lon"), name="sst")
    >>> wind = xarray.DataArray(values[:, 0] * 100, dims=("time", "station"), name="wind")
    >>> modes = shiftsvd.xarray.joint([sst, wind], n_modes=2)
    >>> modes.sst_components.dims, modes.wind_components.dims, modes.scores.dims
    (('mode', 'lat', 'lon'), ('mode', 'station'), ('mode', 'time'))
    """
    given = as_fields(data)
    resources = Resources(memory_limit, n_threads)
    asked = _asked_of_each(
        list(given),
        {"weights": (weights, None), "center": (center, True), "standardize": (standardize, False)}
        | {"missing": (missing, "error")},
        {"groups": groups, "covariates": covariates, "penalty": penalty, "max_iter": max_iter, "resources": resources},
    )
    times = _of_each(factors or {}, list(given), 1.0, "factors")
    first = next(iter(given))
    given = {name: in_order(given[first], da, dim, (first, name)) for name, da in given.items()}
    stacked = at_common([fields.stacked(da, dim, asked[name].missing, name) for name, da in given.items()])
    _check_modes(n_modes, [of.X.shape for of in stacked], asked.values())
    random = generator(rng)
    parts = {
        name: anomalies(da, field, asked[name], n_modes, random)
        for (name, da), field in zip(given.items(), stacked, strict=True)
    }
    found = _modes(parts, n_modes, times, normalize, (solver, tol, random), resources)
    return found.assign_attrs(asked[first].told)


def _asked_of_each(names: list[str], own: Mapping[str, tuple[Any, Any]], shared: Mapping[str, Any]) -> dict[str, Asked]:
    each = {what: _of_each(setting, names, default, what) for what, (setting, default) in own.items()}
    asked = {name: Asked(**{what: values[name] for what, values in each.items()}, **shared) for name in names}
    for settings in asked.values():
        settings.check()
    return asked


def _check_modes(n_modes: Any, shapes: list[tuple[int, int]], asked: Iterable[Asked]) -> None:
    m, n = shapes[0][0], sum(shape[1] for shape in shapes)
    if not isinstance(n_modes, float):
        check_modes(n_modes, min(m, n), f"{m} samples of {n} cells")
    elif any(settings.missing == "em" for settings in asked):
        raise ValueError(f'n_modes must be an integer with missing="em", got {n_modes!r}')


def _modes(
    parts: dict[str, Anomalies],
    n_modes: Any,
    factors: Mapping[str, Any],
    normalize: bool,
    how: tuple[Any, float, Any],
    resources: Resources,
) -> Any:
    m = next(iter(parts.values())).A.shape[0]
    squares = {name: _squares(of.A) for name, of in parts.items()}
    times = {name: _factor(factors[name], squares[name] / (m - 1) if normalize else 1.0, name) for name in parts}
    A = beside([Scaled(of.A, None, np.full(of.A.shape[1], times[name])) for name, of in parts.items()])
    solver, tol, rng = how
    tolerance: dict[str, Any] = {} if isinstance(solver, Solver) else {"tol": tol}
    F = svd(A, n_modes, solver=solver, rng=rng, **vars(resources), **tolerance)
    modes, Vh = mode_labels(len(F.S)), F.Vh
    total = sum(squares[name] * times[name] ** 2 for name in parts)
    first = next(iter(parts.values()))
    shared = {"scores": first.in_time(scores_of(F), modes), **variances(F.S, m, total)}
    found, lo = {}, 0
    for name, of in parts.items():
        own = Vh[:, lo : lo + of.A.shape[1]]
        found[name] = _part(of, own, F.S, times[name], squares[name], modes)
        lo += of.A.shape[1]
    return together(found, shared, modes, first.field.over, told_of_fit(F.info, *parts.values()) | told_of_each(parts))


def _part(of: Anomalies, components: Any, S: Any, times: float, squares: float, modes: Any) -> dict[str, Any]:
    from xarray import DataArray

    explained = np.sum(np.abs(components) ** 2, axis=1) * S**2
    shares = explained / (squares * times**2) if squares > 0 else np.zeros(len(S))
    return {
        "components": of.in_space(components, modes),
        **replace(of, weights=of.weights * times).subtracted(),
        "own_variance_ratio": DataArray(shares, dims="mode"),
    }


def _squares(A: Operator) -> float:
    squares = A.column_squares()
    assert squares is not None  # all kinds that a field can be know them
    return float(squares.sum())


def _factor(factor: Any, variance: float, name: str) -> float:
    if not (np.isfinite(factor) and factor > 0):
        raise ValueError(f"factors must be positive numbers, that of {name} is {factor!r}; leave out the field instead")
    return float(factor / np.sqrt(variance)) if variance > 0 else float(factor)


def _of_each(setting: Any, names: list[str], default: Any, what: str) -> dict[str, Any]:
    if not isinstance(setting, Mapping):
        return dict.fromkeys(names, setting)
    if unknown := [name for name in setting if name not in names]:
        raise ValueError(f"{what} must be of the fields {', '.join(names)}, got {unknown[0]!r}")
    return {name: setting.get(name, default) for name in names}
