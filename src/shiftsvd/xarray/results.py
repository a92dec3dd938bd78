"""The Dataset of modes that did not come from an estimator."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel
from shiftsvd.result import Info, SVDResult
from shiftsvd.xarray.anomalies import Anomalies


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
    from shiftsvd.xarray.dataset import Dataset

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
