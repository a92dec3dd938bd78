"""Anomalies of a field as an operator: remove, divide, weight; and the fit."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from shiftsvd.backends import as_operator, is_lazy
from shiftsvd.estimators.pca import PCA
from shiftsvd.missing import check_unused, complete_matrix
from shiftsvd.missing.gaps import Gaps, gaps_of
from shiftsvd.names import MissingName
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Operator, Panel
from shiftsvd.preparation.covariates import Covariates
from shiftsvd.preparation.prepare import Preparation, Prepared
from shiftsvd.runs.memory import Resources, affordable, limit_of
from shiftsvd.xarray import fields
from shiftsvd.xarray.fields import at_once, cell_weights
from shiftsvd.xarray.samples import (
    Removed,
    Samples,
    as_variables,
    design,
    from_observed,
    from_regression,
    mean_alone,
    without,
)


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


Dim = Hashable | Sequence[Hashable]


@dataclass(frozen=True, eq=False)
class Anomalies:
    """The anomalies of a field at the samples and cells that are present; never copied where no values are missing.

    Attributes
    ----------
    da : xarray.DataArray
    field : Stacked
    A : Operator of shape (m, n)
        The anomalies, divided and weighted.
    removed : Removed
        What was subtracted, in the units of the field.
    mean : array of shape (n,)
        The mean of each cell.
    weights : array of shape (n,)
        What the rest was multiplied by.
    known : Samples
        What is known of all samples, the absent ones too.
    said : dict
        What the result says of this field alone.
    converged : bool
        Whether a completion did, if there was one.
    """

    da: Any
    field: fields.Stacked
    A: Operator
    removed: Removed
    mean: Vector
    weights: Vector
    known: Samples
    said: dict[str, Any]
    converged: bool = True

    def in_space(self, values: Panel, mode: Any = None) -> Any:
        full = fields.filled(np.atleast_2d(values), self.field.cells)
        return fields.labelled(full if mode is not None else full[0], self.da, self.field.space, mode)

    def in_time(self, Z: Panel, mode: Any) -> Any:
        return fields.labelled(fields.filled(Z.T, self.field.rows), self.da, self.field.over, mode)

    def subtracted(self) -> dict[str, Any]:
        mean = self.in_space(self.mean).assign_attrs(fields.told_of(self.da))
        plain = {"mean_field": mean, "weights": self.in_space(self.weights)}
        return plain | as_variables(self.removed, self.da, self.field, self.known)


def anomalies(da: Any, field: fields.Stacked, asked: Asked, rank: Any, rng: np.random.Generator) -> Anomalies:
    """The anomalies of a stacked field; a completion, if one is asked for, is of this rank.

    One pass for means and deviations, one more for groups and covariates.
    """
    known = Samples.of(da, field.over, asked.groups, asked.covariates)
    samples, applied = known.at(field.rows), cell_weights(da, asked.weights, field)
    said: dict[str, Any] = {"missing": asked.missing} | ({} if da.name is None else {"field": str(da.name)})
    if not field.n_missing:
        prepared = whole(field.X, samples, applied, asked).prepared
        removed, scale = removed_by(prepared, samples, asked), prepared.scale
        weights = np.ones(len(removed.means[0])) if scale is None else 1 / scale
        mean = prepared.column_means if asked.center else removed.means[0]
        return Anomalies(da, field, prepared.of_own, removed, mean, weights, known, said)
    seen = observed(field.X, samples, applied, asked)
    filled = filled_in(seen.Y, rank, asked, rng)
    prepared = Preparation("mean" if asked.center else None).learn(filled.A)
    removed, mean = seen.off(prepared.column_means if asked.center else np.zeros(len(seen.mean)))
    said |= {"n_missing": field.n_missing} | filled.told
    return Anomalies(da, field, prepared.of_own, removed, mean, 1 / seen.scale, known, said, filled.converged)


def steps(da: Any, dim: Dim, what: str) -> Hashable:
    names = [dim] if isinstance(dim, str) or not isinstance(dim, Sequence) else list(dim)
    if len(names) != 1:
        raise ValueError(f"{what} needs one dimension of samples that follow each other, got dim={dim!r}")
    index = da.indexes.get(names[0]) if hasattr(da, "indexes") else None
    if index is not None and not index.is_unique:
        raise ValueError(
            f"{what} needs samples in order, {names[0]} has labels twice; da.drop_duplicates({names[0]!r})"
        )
    if index is not None and not index.is_monotonic_increasing:
        raise ValueError(f"{what} needs samples in order, {names[0]} is not ascending; da = da.sortby({names[0]!r})")
    return names[0]


def all_there(rows: fields.Mask, what: str) -> None:
    if absent := int(np.count_nonzero(~rows)):
        raise ValueError(
            f"{what} needs values at every step, {absent} of {len(rows)} samples have none; fill them, take a stretch "
            'without them, or say missing="mean" or "em" in the fit'
        )


def check_modes(n_modes: Any, most: int, what: str) -> None:
    whole = isinstance(n_modes, int | np.integer) and not isinstance(n_modes, bool)
    if not whole or not 1 <= n_modes <= most:
        raise ValueError(f"n_modes must be in 1..{most} for {what}, got {n_modes!r}")


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
