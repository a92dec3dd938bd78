"""The fit of a stacked field by `PCA`, with gaps or without: its components, and what was done to it before."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shiftsvd.estimators.pca import PCA
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel
from shiftsvd.xarray.preparing import Asked, deviation_of, gaps_within, observed, removed_by, whole, without_gaps
from shiftsvd.xarray.removed import Removed
from shiftsvd.xarray.samples import Samples


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fit found of the samples and cells that are present.

    Attributes
    ----------
    model : PCA
    Z : array of shape (m, k)
        The scores.
    mean, scale, deviation : arrays of shape (n,)
        The means of the cells, what their anomalies are divided by, and the standard deviations of these (ddof 1).
    removed : Removed
    """

    model: PCA
    Z: Panel
    mean: Vector
    scale: Vector
    deviation: Vector
    removed: Removed


def fit_whole(X: Any, samples: Samples, applied: Vector | None, asked: Asked, model: PCA) -> Fitted:
    given = whole(X, samples, applied, asked)
    m, n = given.A.shape
    model.set_params(shift=given.shift, scale=given.scale, missing="error")
    prepared = model._learn(given.A, covariates=given.values)
    removed, scale = removed_by(prepared, samples, asked), given.scale
    Z, deviation = model.transform(given.A, covariates=given.values), deviation_of(prepared, m - 1)
    return Fitted(model, Z, model.mean_, np.ones(n) if scale is None else scale, deviation, removed)


def fit_observed(X: Any, samples: Samples, applied: Vector | None, asked: Asked, model: PCA) -> Fitted:
    seen = observed(X, samples, applied, asked)
    if asked.missing == "mean":
        A: Any = without_gaps(seen.Y, asked.resources)
        model.set_params(shift="mean", missing="error").fit(A)
    else:
        A = gaps_within(seen.Y, asked.resources)
        model.set_params(shift="mean" if asked.center else None, missing="em").fit(A)
    removed, level = seen.off(model.mean_)
    # Values that are there may vary less than the modes do where most are missing: no correlation is above 1.
    of_modes = np.sqrt(model.explained_variance_ @ model.components_.astype(np.float64) ** 2) * seen.scale
    there = seen.deviations * np.sqrt(seen.counts / np.maximum(seen.counts - 1, 1))
    return Fitted(model, model.transform(A), level, seen.scale, np.maximum(there, of_modes), removed)
