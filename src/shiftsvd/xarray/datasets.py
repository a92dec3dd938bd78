"""Datasets of modes: how results are laid out, and what known modes must hold."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel
from shiftsvd.result import Info, SVDResult
from shiftsvd.xarray import fields
from shiftsvd.xarray.fields import on_grid
from shiftsvd.xarray.preparing import Anomalies
from shiftsvd.xarray.samples import Removed, Samples, without


def mode_labels(count: int) -> Any:
    from xarray import DataArray

    return DataArray(np.arange(1, count + 1), dims="mode", name="mode")


def scores_of(F: SVDResult) -> Panel:
    U = np.asarray(F.U)  # one that is spread over a cluster is needed whole
    return np.asarray(U * F.S.astype(U.real.dtype))


def variances(S: Vector, m: int, squares: float) -> dict[str, Any]:
    from xarray import DataArray

    shares = S**2 / squares if squares > 0 else np.zeros(len(S))
    found = {"explained_variance": S**2 / (m - 1), "explained_variance_ratio": shares, "singular_values": S}
    return {name: DataArray(values, dims="mode") for name, values in found.items()}


def modes_of(of: Anomalies, components: Panel, Z: Panel, S: Vector, squares: float) -> Any:
    from shiftsvd.xarray.fields import Dataset

    modes = mode_labels(len(S))
    found = {"components": of.in_space(components, modes), "scores": of.in_time(Z, modes)}
    found |= variances(S, len(Z), squares) | of.subtracted()
    return Dataset(found, coords={"mode": modes}, attrs=of.said)


def told_of_fit(info: Info, *of: Anomalies) -> dict[str, Any]:
    converged = info.solver.startswith("Exact") if info.converged is None else info.converged
    filled = all(each.converged for each in of)
    return {"solver": info.solver, "n_passes": info.n_passes, "converged": bool(converged) and filled}


def told_of_each(parts: Mapping[str, Anomalies]) -> dict[str, Any]:
    return {f"{key}_{name}": value for name, of in parts.items() for key, value in of.said.items()}


_FIT: Final = ("components", "scores", "mean_field", "weights")  # what a Dataset must hold to be projected on


def anomalies_of(eofs: Any, da: Any, groups: Any, covariates: Any) -> tuple[Any, fields.Dims, fields.Mask]:
    da = fields.as_field(da)
    space = eofs.mean_field.dims
    over = tuple(dim for dim in da.dims if dim not in space)
    da = on_grid(eofs.mean_field, da, space)
    weights = _flat(eofs.weights, space)
    cells = ~np.isnan(weights)
    factors = _removed(eofs, space, cells).factors(samples_of(eofs, da, over, groups, covariates))
    return without(fields.matrix(da, over, space)[:, cells], factors, weights[cells], np.float64), over, cells


def multiplied(anomalies: Any, V: Panel, missing: str) -> Panel:
    found = fields.at_once(
        scores=(("row", "mode"), np.where(np.isfinite(anomalies), anomalies, 0) @ V.T),
        lost=("row", np.isnan(anomalies).sum(axis=1)),
        infinite=((), np.isinf(anomalies).sum()),
    )
    scores, rows = found["scores"], found["lost"] < V.shape[1]
    count = 0 if missing == "mean" else int(found["lost"][rows].sum())
    if count:
        raise ValueError(
            f"the field must have values wherever the components have, {count} are missing; fill them, "
            'as da.fillna(reconstruct(pca(da, missing="em"))) does'
        )
    if count := int(found["infinite"]):
        raise ValueError(f"the field must be finite wherever the components have values, {count} are inf; fill them")
    scores[~rows] = np.nan
    return np.asarray(scores)


def samples_of(eofs: Any, da: Any, over: fields.Dims, groups: Any, covariates: Any) -> Samples:
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
    def rows(name: str, dim: str) -> Panel:
        return np.asarray(fields.matrix(eofs[name], (dim,), space))[:, cells].astype(np.float64)

    grouped, sloped = "group_means" in eofs, "slopes" in eofs
    means = rows("group_means", "group") if grouped else _flat(eofs.mean_field, space)[None, cells]
    slopes, centre = (rows("slopes", "covariate"), eofs.covariate_means.values) if sloped else (means[:0], np.zeros(0))
    names = tuple(map(str, eofs.covariate.values)) if sloped else ()
    return Removed(eofs.group.values if grouped else None, means, slopes, centre, names)


def _flat(values: Any, space: fields.Dims) -> Vector:
    return np.asarray(values.transpose(*space).values, np.float64).ravel()


def in_cells(values: Any, space: fields.Dims) -> tuple[Panel, fields.Mask]:
    full = np.asarray(fields.matrix(values, ("mode",), space))
    cells = ~np.isnan(full[0])
    return full[:, cells], cells


def check_fit(eofs: Any, kinds: str = "f", lags: bool = False) -> None:
    if missing := [name for name in _FIT if name not in getattr(eofs, "data_vars", ())]:
        raise ValueError(f"eofs must be what shiftsvd.xarray.pca gives, but {', '.join(missing)} is missing")
    if "lag" in eofs.components.dims and not lags:
        raise ValueError("eofs must be modes of single steps, got modes with lags; choose one: isel(lag=0, drop=True)")
    if eofs.components.dtype.kind not in kinds:
        raise ValueError("eofs must be real modes, got those of an analytic signal, which only make up the field again")


def check_variances(eofs: Any) -> None:
    check_fit(eofs)
    if "explained_variance" not in eofs:
        raise ValueError("eofs must be modes with variances of their own, got one side of pairs; find them by pca(da)")


def with_modes(values: Any, name: str) -> Any:
    if "mode" not in values.coords:
        raise ValueError(f"{name} must have the coordinate mode, got {values.dims}; choose modes by .sel(mode=[1])")
    return values if "mode" in values.dims else values.expand_dims("mode")
