"""What is done to a stacked field before modes are sought: what is removed, and what the rest is divided by."""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from shiftsvd.backends import as_operator, is_lazy
from shiftsvd.missing import check_unused, complete_matrix
from shiftsvd.missing.gaps import Gaps, gaps_of
from shiftsvd.names import MissingName
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Operator, Panel
from shiftsvd.preparation.covariates import Covariates
from shiftsvd.preparation.prepare import Preparation, Prepared
from shiftsvd.runs.memory import Resources, affordable, limit_of
from shiftsvd.xarray.fields import at_once
from shiftsvd.xarray.removed import Removed, design, from_observed, from_regression, mean_alone, without
from shiftsvd.xarray.samples import Samples


@dataclass(frozen=True, eq=False)
class Asked:
    """How a field is to be prepared, as the user says it.

    Attributes
    ----------
    center, standardize : bool
    weights : as in `pca`
        What the anomalies are multiplied by.
    missing : "error", "mean" or "em"
    groups, covariates : as in `pca`
    penalty, max_iter : as in `pca`
        Of a completion.
    resources : Resources
    """

    center: bool
    standardize: bool
    weights: Any
    missing: MissingName
    groups: Any
    covariates: Any
    penalty: float | Literal["auto"]
    max_iter: int
    resources: Resources

    def check(self) -> None:
        if self.missing not in get_args(MissingName):
            raise ValueError(f'missing must be "error", "mean" or "em", got {self.missing!r}')
        check_unused(self.missing, self.penalty, self.max_iter)
        known = self.groups is not None or self.covariates is not None
        if not self.center and (known or self.missing == "mean"):
            raise ValueError('center=False subtracts nothing; leave out groups, covariates, and missing="mean"')

    @property
    def told(self) -> dict[str, str]:
        return {"groups": self.groups} if isinstance(self.groups, str) else {}


@dataclass(frozen=True, eq=False)
class Whole:
    """A field without gaps, of which nothing is copied, and what is to be done to it.

    Attributes
    ----------
    A : Operator of shape (m, n)
        The field itself.
    shift, values : as `PCA` takes them
        The rule of what is subtracted, and the covariates that it needs, or None.
    scale : array of shape (n,), or None
        What anomalies are divided by.
    learned : Prepared, or None
        What is subtracted, where that is known already because the field is standardized.
    """

    A: Operator
    shift: Any
    values: Panel | None
    scale: Vector | None
    learned: Prepared | None = None

    @property
    def prepared(self) -> Prepared:
        if self.learned is not None:
            return replace(self.learned, scale=self.scale)
        return Preparation(self.rule, self.scale).learn(self.A)

    @property
    def rule(self) -> Any:
        return self.shift if self.values is None else Covariates(self.values)


def whole(X: Any, samples: Samples, applied: Vector | None, asked: Asked) -> Whole:
    A = as_operator(X, **vars(asked.resources))
    shift: Any = Covariates() if samples.known else "mean" if asked.center else None
    given = Whole(A, shift, design(samples) if samples.known else None, scale_of(None, applied))
    if not asked.standardize:
        return given
    about = Preparation(given.rule or "mean").learn(A)
    learned = about if given.shift is not None else None
    return replace(given, scale=scale_of(deviation_of(about, A.shape[0]), applied), learned=learned)


def removed_by(prepared: Prepared, samples: Samples, asked: Asked) -> Removed:
    learned: Any = prepared.shift
    if samples.known:
        return from_regression(samples, learned.mean, learned.centre, learned.coefficients)
    assert prepared.own is not None
    return mean_alone(prepared.column_means if asked.center else np.zeros(prepared.own.A.shape[1]))


@dataclass(frozen=True, eq=False)
class Observed:
    """The anomalies of a field with gaps, which are a copy, lazy of a Dask array.

    Attributes
    ----------
    Y : array of shape (m, n)
        They, divided and weighted; NaN where there is no value.
    removed : Removed
    mean : array of shape (n,)
        The means of what is observed of each cell.
    scale : array of shape (n,)
        What they were divided by.
    deviations, counts : arrays of shape (n,)
        Roots of the mean squares of what is observed of each cell, before the division, and how many values that is.
    """

    Y: Any
    removed: Removed
    mean: Vector
    scale: Vector
    deviations: Vector
    counts: Vector

    def off(self, added: Vector) -> tuple[Removed, Vector]:
        by = added * self.scale
        removed = replace(self.removed, means=self.removed.means + by)
        return removed, self.mean + by if removed.levels is not None else removed.means[0]


def observed(X: Any, samples: Samples, applied: Vector | None, asked: Asked) -> Observed:
    if not is_lazy(X):
        affordable(2 * X.nbytes, asked.resources.memory_limit, "anomalies of a field with gaps", "cells")
    mean, Y = _about_mean(X, asked.center)
    removed = mean_alone(mean)
    if samples.known:
        removed = from_observed(Y, samples, mean)
        Y = without(X, removed.factors(samples))
    found = at_once(squares=("cell", np.nansum(Y * Y, axis=0, dtype=np.float64)), n=("cell", _counts(Y)))
    deviations = np.sqrt(found["squares"] / found["n"])
    scale = scale_of(deviations if asked.standardize else None, applied)
    m, n = X.shape
    if scale is not None:
        Y = without(Y, (np.zeros((m, 1)), np.zeros((1, n))), 1 / scale)
    return Observed(Y, removed, mean, np.ones(n) if scale is None else scale, deviations, found["n"])


@dataclass(frozen=True, eq=False)
class Filled:
    """The anomalies of a field with gaps, with values in their place; `told` is what is to be known of these."""

    A: Operator
    told: dict[str, Any]
    converged: bool = True


def filled_in(Y: Any, rank: int, asked: Asked, rng: np.random.Generator) -> Filled:
    if asked.missing == "mean":
        return Filled(without_gaps(Y, asked.resources), {})
    biases: Literal["columns"] | None = "columns" if asked.center else None
    how: dict[str, Any] = {"penalty": asked.penalty, "max_iter": asked.max_iter}
    C = complete_matrix(
        gaps_within(Y, asked.resources), min(rank, *Y.shape), biases=biases, rng=rng, **how, **vars(asked.resources)
    )
    return Filled(C.A, {} if C.heldout_r2 is None else {"heldout_r2": C.heldout_r2}, C.converged)


def without_gaps(Y: Any, resources: Resources) -> Operator:
    return as_operator(np.where(np.isnan(Y), 0, Y), **vars(resources))


def gaps_within(Y: Any, resources: Resources) -> Gaps:
    if not is_lazy(Y):
        return gaps_of(Y, **vars(resources))
    limit = limit_of(resources.memory_limit)
    if limit is None or Y.nbytes <= limit // 2:
        return gaps_of(Y.compute(), **vars(resources))
    from shiftsvd.missing.gaps.lazy import LazyGaps

    return LazyGaps(Y, resources.memory_limit)


def deviation_of(prepared: Prepared, count: float) -> Vector:
    assert prepared.own is not None
    _, after, e = prepared.own.in_units
    assert after.M2 is not None
    return np.asarray(np.ldexp(np.sqrt(after.M2 / max(count, 1)), e))


def scale_of(deviations: Vector | None, applied: Vector | None) -> Vector | None:
    if deviations is None:
        return None if applied is None else 1 / applied
    divided = np.where(deviations > 0, deviations, 1)
    return divided if applied is None else divided / applied


def _about_mean(X: Any, center: bool) -> tuple[Vector, Any]:
    m, n = X.shape
    if not center:
        return np.zeros(n), X
    found = at_once(total=("cell", np.nansum(X, axis=0, dtype=np.float64)), n=("cell", _counts(X)))
    mean = found["total"] / found["n"]
    return mean, without(X, (np.ones((m, 1)), mean[None]))


def _counts(X: Any) -> Any:
    return (~np.isnan(X)).sum(axis=0)
