"""Other fields on modes in time: on those of analytic signals, and on sequences of patterns."""

from typing import Any

import numpy as np

from shiftsvd.algebra.analytic import AnalyticSignal
from shiftsvd.operators import Panel
from shiftsvd.xarray import fields
from shiftsvd.xarray.anomalies import all_there, steps
from shiftsvd.xarray.known import multiplied


def follow_each_other(da: Any, over: fields.Dims) -> None:
    steps(da, over, "a mode in time")


def of_sequences(anomalies: Any, components: Any, eofs: Any, cells: fields.Mask) -> Panel:
    lags, k = components.lag.values, components.sizes["mode"]
    n = anomalies.shape[0] - int(lags.max())
    if n < 1:
        raise ValueError(f"the field must have at least {lags.max() + 1} steps for these lags, got {len(anomalies)}")
    V = np.asarray(fields.matrix(components, ("lag", "mode"), eofs.mean_field.dims))[:, cells]
    each = multiplied(anomalies, V, eofs.attrs.get("missing", "error")).reshape(-1, len(lags), k)
    return np.asarray(sum(each[lag : lag + n, j] for j, lag in enumerate(lags.tolist())) - _means(eofs))


def of_signals(anomalies: Any, components: Any, eofs: Any, cells: fields.Mask) -> Panel:
    V = np.asarray(fields.matrix(components, ("mode",), eofs.mean_field.dims))[:, cells]
    P = multiplied(anomalies, V.conj(), eofs.attrs.get("missing", "error"))
    all_there(np.asarray(~np.isnan(P).any(axis=1)), "a Hilbert transform")
    T = AnalyticSignal(len(P), eofs.attrs.get("decay"), P.dtype)
    return np.asarray(T.matmat(P) + P.mean(axis=0) - _means(eofs))


def _means(eofs: Any) -> Panel:
    return np.atleast_1d(eofs.score_means.values)
