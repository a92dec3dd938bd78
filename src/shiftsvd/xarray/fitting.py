"""The fit of a stacked field: what is subtracted, what it is divided by, and the components of the rest."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shiftsvd.backends import as_operator, is_lazy
from shiftsvd.estimators.pca import PCA
from shiftsvd.missing.gaps import Gaps, gaps_of
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Operator, Panel
from shiftsvd.preparation.covariates import Covariates
from shiftsvd.preparation.prepare import Preparation, Prepared
from shiftsvd.runs.memory import Resources, affordable, limit_of
from shiftsvd.xarray.fields import at_once
from shiftsvd.xarray.removed import Removed, design, from_observed, from_regression, without
from shiftsvd.xarray.samples import Samples


@dataclass(frozen=True, eq=False)
class Asked:
    """How a field is to be fitted.

    Attributes
    ----------
    center, standardize : bool
    weights : array of shape (n,), or None
        What the anomalies are multiplied by.
    missing : "error", "mean" or "em"
    settings : dict
        Of `PCA`: the solver and others.
    """

    center: bool
    standardize: bool
    weights: Vector | None
    missing: str
    resources: Resources
    settings: dict[str, Any]

    def model(self, k: Any, **settings: Any) -> PCA:
        """The estimator for k components."""
        return PCA(k, **{**self.settings, **vars(self.resources), **settings})


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


def fit_whole(X: Any, samples: Samples, k: Any, asked: Asked) -> Fitted:
    """The fit of a field without gaps, of which nothing is copied."""
    A = as_operator(X, **vars(asked.resources))
    shift: Any = Covariates() if samples.known else "mean" if asked.center else None
    values = design(samples) if samples.known else None
    scale = _scale(_deviations(A, shift, values) if asked.standardize else None, asked.weights)
    model = asked.model(k, shift=shift, scale=scale)
    prepared = model._learn(A, covariates=values)
    learned: Any = prepared.shift
    if samples.known:
        removed = from_regression(samples, learned.mean, learned.centre, learned.coefficients)
    else:
        removed = _mean_alone(model.mean_)
    n = A.shape[1]
    deviation = _deviation_of(prepared, A.shape[0] - 1)
    return Fitted(
        model,
        model.transform(A, covariates=values),
        model.mean_,
        np.ones(n) if scale is None else scale,
        deviation,
        removed,
    )


def _deviations(A: Operator, shift: Any, values: Panel | None) -> Vector:
    """Standard deviations (ddof 0) of the columns after the shift."""
    given = Covariates(values) if isinstance(shift, Covariates) else "mean"
    return _deviation_of(Preparation(given).learn(A), A.shape[0])


def _deviation_of(prepared: Prepared, count: float) -> Vector:
    """Roots of the sums of squares after the shift over `count`."""
    assert prepared.own is not None
    _, after, e = prepared.own.in_units
    assert after.M2 is not None
    return np.asarray(np.ldexp(np.sqrt(after.M2 / max(count, 1)), e))


def fit_observed(X: Any, samples: Samples, k: Any, asked: Asked) -> Fitted:
    """The fit of a field with gaps: of its anomalies, which are a copy, lazy of a Dask array."""
    if not is_lazy(X):
        affordable(2 * X.nbytes, asked.resources.memory_limit, "anomalies of a field with gaps", "cells")
    m, n = X.shape
    mean, Y = _about_mean(X, asked.center)
    removed = _mean_alone(mean)
    if samples.known:
        removed = from_observed(Y, samples, mean)
        Y = without(X, removed.factors(samples))
    squares = at_once(squares=("cell", np.nansum(Y * Y, axis=0, dtype=np.float64)), n=("cell", _counts(Y)))
    deviations = np.sqrt(squares["squares"] / squares["n"])
    scale = _scale(deviations if asked.standardize else None, asked.weights)
    if scale is not None:
        Y = without(Y, (np.zeros((m, 1)), np.zeros((1, n))), 1 / scale)
    else:
        scale = np.ones(n)
    if asked.missing == "mean":
        A: Any = as_operator(np.where(np.isnan(Y), 0, Y), **vars(asked.resources))
        model = asked.model(k, shift="mean").fit(A)
    else:
        A = gaps_within(Y, asked.resources)
        model = asked.model(k, shift="mean" if asked.center else None, missing="em").fit(A)
    # What completed values add to the means.
    off = model.mean_ * scale
    removed = Removed(removed.levels, removed.means + off, removed.slopes, removed.centre, removed.names)
    # Values that are there may vary less than the modes do where most are missing: no correlation is above 1.
    of_modes = np.sqrt(model.explained_variance_ @ model.components_.astype(np.float64) ** 2) * scale
    observed = deviations * np.sqrt(squares["n"] / np.maximum(squares["n"] - 1, 1))
    deviation = np.maximum(observed, of_modes)
    level = mean + off if removed.levels is not None else removed.means[0]
    return Fitted(model, model.transform(A), level, scale, deviation, removed)


def _about_mean(X: Any, center: bool) -> tuple[Vector, Any]:
    """The means of what is observed of each cell, and the anomalies; two reads of a Dask array, when it is computed."""
    m, n = X.shape
    if not center:
        return np.zeros(n), X
    found = at_once(total=("cell", np.nansum(X, axis=0, dtype=np.float64)), n=("cell", _counts(X)))
    mean = found["total"] / found["n"]
    return mean, without(X, (np.ones((m, 1)), mean[None]))


def _counts(X: Any) -> Any:
    """How many values of each cell are observed."""
    return (~np.isnan(X)).sum(axis=0)


def _mean_alone(mean: Vector) -> Removed:
    """What is subtracted where nothing is known of the samples."""
    return Removed(None, mean[None], np.zeros((0, len(mean))), np.zeros(0))


def _scale(deviations: Vector | None, weights: Vector | None) -> Vector | None:
    """What the anomalies are divided by; cells without variance are left as they are."""
    if deviations is None:
        return None if weights is None else 1 / weights
    divided = np.where(deviations > 0, deviations, 1)
    return divided if weights is None else divided / weights


def gaps_within(Y: Any, resources: Resources) -> Gaps:
    """A matrix with gaps as a completion reads it: in memory where that takes up to half of the limit."""
    if not is_lazy(Y):
        return gaps_of(Y, **vars(resources))
    limit = limit_of(resources.memory_limit)
    if limit is None or Y.nbytes <= limit // 2:
        return gaps_of(Y.compute(), **vars(resources))
    from shiftsvd.missing.gaps.lazy import LazyGaps

    return LazyGaps(Y, resources.memory_limit)
