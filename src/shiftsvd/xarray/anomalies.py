"""Compute the anomalies of a field as an operator: subtract groups and covariates, standardize and weight cells."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from inspect import signature
from typing import Any, Final, Literal, NamedTuple, TypedDict, TypeVar, get_args

import numpy as np
from xarray import DataArray

from shiftsvd import Completion, Covariates, LowRank, Operator, SVDResult, as_operator, complete_matrix, svd
from shiftsvd.extend.fits import Gaps, check_unused, gaps_of, regressed_rows
from shiftsvd.extend.operators import generator, repeated
from shiftsvd.extend.running import (
    MAX_ITER,
    BiasName,
    MissingName,
    Refused,
    Resources,
    Setting,
    SolverName,
    affordable,
    refuse,
    spare,
)
from shiftsvd.operators import Moments, Scaled
from shiftsvd.solvers import Solver
from shiftsvd.xarray import fields
from shiftsvd.xarray.fields import Attrs, Dim, Mask, Panel, Stacked, Vector
from shiftsvd.xarray.regressors import Labels, Regressors

Function = TypeVar("Function", bound=Callable[..., Any])
# Relative tolerance of the pseudoinverse of the normal equations of a cell; smaller eigenvalues count as 0.
RANK_TOLERANCE: Final = 1e-10
ROUNDINGS: Final = 8  # least number of rounding units by which the anomalies of a constant cell may differ from 0
MAX_SIZE: Final = 1e150  # largest mean or anomaly whose squares can be summed without overflow
# Median number of values of a cell in a group below which `heldout_r2` takes another fit. Without it, R^2 of months
# with 30 % gaps is 0.003 too high for 20 years, and 0.15 for 3 years.
SMALL_GROUP: Final = 20
HELD_OUT, LEAST_HELD_OUT = 0.04, 10  # share of the values, and least number, as in `complete_matrix`
# Norm of the anomalies of a cell in units of the root mean square of all cells, times (s_1 / s_k)^2 for mode k, below
# which one more product computes the component. In single precision, Lanczos left errors of 1e-7 at the poles, where
# weights are 2e-16 (500 samples of 180 cells).
SMALL_CELL: Final = 1e-3
# Settings that may differ between several fields, and their defaults.
PER_FIELD: Final = {"weights": None, "center": True, "standardize": False, "missing": "error"}


class Keywords(TypedDict, total=False):
    """Keywords with the same meaning and default in all public functions of fits."""

    groups: Any
    covariates: Any
    solver: SolverName | Solver
    tol: float
    certify: bool
    penalty: float | Literal["auto"]
    max_iter: int
    rng: int | np.random.Generator | None
    n_threads: int | None
    memory_limit: int | str | None


@dataclass(frozen=True, eq=False)
class FieldOptions:
    """Arguments that the public functions share, as `pca` describes them; those in `PER_FIELD` may be mappings."""

    dim: Dim
    weights: Any
    center: Any
    standardize: Any
    missing: Any
    groups: Any = None
    covariates: Any = None
    solver: SolverName | Solver = "auto"
    tol: float = 1e-6
    certify: bool = False
    penalty: float | Literal["auto"] = "auto"
    max_iter: int = MAX_ITER
    rng: int | np.random.Generator | None = None
    n_threads: int | None = None
    memory_limit: int | str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rng", generator(self.rng))  # all parts of a fit draw from one generator

    @property
    def resources(self) -> Resources:
        return Resources(self.memory_limit, self.n_threads)

    def check(self) -> None:
        if self.missing not in get_args(MissingName):
            raise refuse("missing", 'be "error", "mean" or "em"', self.missing)
        check_unused(self.missing, self.penalty, self.max_iter)
        known = self.groups is not None or self.covariates is not None
        if not self.center and (known or self.missing == "mean"):
            raise Refused(
                Setting("center", False),
                " conflicts with groups, covariates and ",
                *(Setting("missing", "mean"), ", which subtract means. Remove one of them."),
            )

    def per_field(self, names: Sequence[str]) -> "dict[str, FieldOptions]":
        own = {what: per_field(getattr(self, what), names, default, what) for what, default in PER_FIELD.items()}
        found = {name: replace(self, **{what: values[name] for what, values in own.items()}) for name in names}
        for options in found.values():
            options.check()
        return found

    def svd(self, A: Operator, k: int | float) -> SVDResult:
        accuracy: dict[str, Any] = {} if isinstance(self.solver, Solver) else {"tol": self.tol}
        return svd(A, k, solver=self.solver, rng=self.rng, certify=self.certify, **accuracy, **vars(self.resources))

    @property
    def attrs(self) -> Attrs:
        return {"groups": self.groups} if isinstance(self.groups, str) else {}


def with_keywords(function: Function) -> Function:
    # Show each of the `Keywords` in the signature of a public function, with its default.
    own, shared = (signature(each).parameters.values() for each in (function, FieldOptions))
    keywords = [each.replace(kind=each.KEYWORD_ONLY) for each in shared if each.name in Keywords.__annotations__]
    vars(function).update(__signature__=signature(function).replace(parameters=[*list(own)[:-1], *keywords]))
    return function


def per_field(setting: Any, names: Sequence[str], default: Any, what: str) -> dict[str, Any]:
    if not isinstance(setting, Mapping):
        return dict.fromkeys(names, setting)
    if unknown := [name for name in setting if name not in names]:
        raise refuse(what, f"have names of fields as keys ({', '.join(names)})", unknown[0])
    return {name: setting.get(name, default) for name in names}


# --- removal from the samples ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RemovedMeans:
    """Model to subtract from each sample: the mean of its group, and slopes times its centred covariates."""

    levels: Labels | None  # (g,), the groups; None for one mean of all
    means: Panel  # (g or 1, n), at the centre of the covariates
    slopes: Panel  # (c, n)
    centre: Vector  # (c,)
    names: tuple[str, ...] = ()  # of the covariates
    unknown: Mask | None = None  # (g, n), groups without values in a cell; their means are then finite, but arbitrary

    @property
    def known_means(self) -> Panel:
        return self.means if self.unknown is None else np.where(self.unknown, np.nan, self.means)

    def factors(self, samples: Regressors) -> tuple[Panel, Panel]:
        L = np.hstack([samples.one_hot(self.levels), samples.numbers - self.centre])
        return L, np.vstack([self.means, self.slopes])


def _mean_alone(mean: Vector) -> RemovedMeans:
    return RemovedMeans(None, mean[None], np.zeros((0, len(mean))), np.zeros(0))


def _fit_regression(A: Operator, moments: Moments, samples: Regressors) -> tuple[LowRank, RemovedMeans]:
    levels, c = samples.levels(), len(samples.names)
    S, learned = Covariates(np.hstack([samples.one_hot(levels), samples.numbers])).learn(A, moments)
    g, slopes = len(learned.centre) - c, learned.coefficients
    means = learned.mean + (np.eye(g) - learned.centre[:g]) @ slopes[:g]
    return S, RemovedMeans(levels, means, slopes[g:], learned.centre[g:], samples.names)


class Observed(NamedTuple):
    """Least squares on the observed values, cell by cell. Slopes that the values of a cell do not determine are 0."""

    removed: RemovedMeans
    mean: Vector  # (n,)
    counts: Panel  # (g or 1, n), observed values of each group
    open: Panel  # (n, c), slopes that are not determined
    ranks: Vector  # (n,), of the covariates about their means within groups

    @property
    def freedom(self) -> Vector:
        return np.asarray(self.counts.sum(axis=0) - np.count_nonzero(self.counts > 0, axis=0) - self.ranks)

    @property
    def has_small_groups(self) -> bool:
        return self.removed.levels is not None and bool(np.median(self.counts[self.counts > 0]) < SMALL_GROUP)


def _fit_observed(X: Any, samples: Regressors) -> Observed:
    # One read.
    levels = samples.levels()
    L, centre, n = samples.one_hot(levels), samples.numbers.mean(axis=0), X.shape[1]
    C, there = samples.numbers - centre, ~np.isnan(X)
    squared = (C[:, :, None] * C[:, None, :]).reshape(len(C), -1)
    counted = np.hstack([L, *(L * column[:, None] for column in C.T), squared])
    found = fields.compute_together(
        M=(("p", "cell"), fields.product(counted.T, there)),
        x=(("q", "cell"), fields.product(np.hstack([L, C]).T, np.where(there, X, 0))),
    )
    g, c = L.shape[1], C.shape[1]
    counts, sums = found["M"][:g], found["x"][:g]
    mean, within = sums.sum(axis=0) / counts.sum(axis=0), sums / np.maximum(counts, 1)
    # c normal equations of the covariates about their means within groups, over the observed values of each cell.
    P = found["M"][g : g + g * c].reshape(c, g, n)
    shares = P / np.maximum(counts, 1)
    squares = found["M"][g + g * c :].reshape(c, c, n) - np.einsum("agn,bgn->abn", P, shares)
    inverse = np.linalg.pinv(squares.transpose(2, 0, 1), rcond=RANK_TOLERANCE, hermitian=True)
    slopes = np.einsum("nab,bn->an", inverse, found["x"][g:] - np.einsum("agn,gn->an", P, within))
    projected = np.einsum("nab,ban->an", inverse, squares)  # diagonals of projections onto the determined slopes
    determined, ranks = projected > 1 - RANK_TOLERANCE**0.5, np.rint(projected.sum(axis=0))
    means = np.where(counts > 0, within - np.einsum("agn,an->gn", shares, slopes), mean)
    removed = RemovedMeans(levels, means, slopes, centre, samples.names, counts == 0)
    return Observed(removed, mean, counts, ~determined, ranks)


# --- anomalies ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Anomalies:
    """Anomalies of the present samples and cells of a field; a field without gaps is not copied."""

    field: Stacked
    regressors: Regressors  # of all samples, including absent ones
    missing: MissingName
    A: Operator  # (m, n), the anomalies, divided and weighted
    removed: RemovedMeans  # in the units of the field
    mean: Vector  # (n,), of each cell
    weights: Vector  # (n,), factors of the anomalies
    centred_squares: Vector  # (n,), sums of squares of the anomalies about their mean, in the units of the field
    mean_squares: Vector | float = 0.0  # contribution of a mean that was not removed to the sums of squares
    completion: Completion | None = None
    gaps: Gaps | None = None  # incomplete anomalies about `centre`
    centre: Vector | float = 0.0
    deviation: Vector | None = None  # (n,), of the values of a field with gaps (ddof 1)

    @property
    def squares(self) -> Vector:
        """Sums of squares of the columns of `A`."""
        return np.asarray((self.centred_squares + self.mean_squares) * self.weights**2)

    @property
    def attrs(self) -> Attrs:
        """Attributes of the result that describe this field."""
        name, completion = self.field.da.name, self.completion
        found = {
            "missing": self.missing,
            "field": None if name is None else str(name),
            "n_missing": self.field.n_missing or None,
            "heldout_r2": None if completion is None else completion.heldout_r2,
        }
        return {key: value for key, value in found.items() if value is not None}

    def subtracted(self, times: float = 1.0) -> dict[str, DataArray]:
        field, removed, attrs = self.field, self.removed, fields.attrs_of(self.field.da)
        found = {"mean_field": field.in_space(self.mean, attrs=attrs), "weights": field.in_space(self.weights * times)}
        if removed.levels is not None:
            group = DataArray(removed.levels, dims="group", name="group")
            found["group_means"] = field.in_space(removed.known_means, group, attrs)
            found["groups"] = fields.labelled(np.asarray(self.regressors.labels), field.da, field.over)
        if removed.names:
            names = DataArray(list(removed.names), dims="covariate", name="covariate")
            of_dates, units = set(removed.names) <= set(self.regressors.dated), fields.attrs_of(field.da, "units")
            if of_dates and units:
                units = {"units": f"{units['units']} day-1"}
            elif self.regressors.dated:  # one attribute cannot hold two units
                units = {}
            per = {"long_name": "change per unit of the covariate, per day for times"} | units
            found["slopes"] = field.in_space(removed.slopes, names, per)
            found["covariate_means"] = DataArray(removed.centre, dims="covariate")
            known = {"dates": json.dumps(self.regressors.dated)}  # so that `project` refuses times not decoded
            found["covariates"] = fields.labelled(self.regressors.numbers.T, field.da, field.over, names, attrs=known)
        return found


def common_samples(given: Mapping[str, DataArray], options: Mapping[str, FieldOptions]) -> list[Stacked]:
    (first, like), *_ = given.items()
    ordered = {name: fields.ordered_as(like, da, options[name].dim, (first, name)) for name, da in given.items()}
    found = [fields.stacked(da, options[name].dim, options[name].missing, name) for name, da in ordered.items()]
    rows: Mask = reduce(np.logical_and, (field.rows for field in found))
    if (n_common := np.count_nonzero(rows)) < 2:
        raise ValueError(
            f"at least 2 samples must have values in all fields, got {n_common}. Check the labels of samples."
        )
    fields.notice_used(rows, found[0].over, "have values in all fields")
    return [fields.keep_samples(field, rows) for field in found]


def anomalies(field: Stacked, options: FieldOptions, rank: Any) -> Anomalies:
    # One pass for means and deviations, one more for groups and covariates. `rank` is that of a completion.
    regressors = Regressors.of(field.da, field.over, options.groups, options.covariates)
    samples = regressors.at(field.rows)
    given = fields.cell_weights(field.da, options.weights, field.space, field.cells)
    weights = np.ones(field.X.shape[1]) if given is None else given
    if field.n_missing:
        return _incomplete_anomalies(field, regressors, samples, weights, options, rank)
    return _complete_anomalies(field, regressors, samples, weights, options)


def _complete_anomalies(
    field: Stacked, regressors: Regressors, samples: Regressors, weights: Vector, options: FieldOptions
) -> Anomalies:
    A = as_operator(field.X, **vars(options.resources))
    (m, n), moments, mean_squares = A.shape, A.moments(), np.zeros(1)
    mean, centred_squares = moments.mean, moments.M2
    assert centred_squares is not None  # every kind of operator that a field can be has them
    _check_range(mean, centred_squares)
    fields.notice_fill_values(mean, centred_squares, field.da.name)
    if samples.given:
        S, removed = _fit_regression(A, moments, samples)
        A = A - S
        centred_squares = _without_rounding(_squares(A), centred_squares + m * mean**2, field.X)
    elif options.center:
        removed, A = _mean_alone(mean), A - repeated(mean, m)
    else:
        mean, mean_squares = np.zeros(n), m * mean**2
        removed = _mean_alone(mean)
    if options.standardize:
        weights = _standardized(weights, centred_squares / m, A.dtype)
    if np.any(weights != 1):
        A = Scaled(A, None, weights)
    return Anomalies(field, regressors, options.missing, A, removed, mean, weights, centred_squares, mean_squares)


def _incomplete_anomalies(
    field: Stacked, regressors: Regressors, samples: Regressors, weights: Vector, options: FieldOptions, rank: Any
) -> Anomalies:
    X, limits, (m, n) = field.X, vars(options.resources), field.X.shape
    if not fields.is_lazy(X):
        affordable(2 * X.nbytes, options.resources.memory_limit, "anomalies of a field with gaps", "cells")
    removed, mean, centre, small_groups = _mean_alone(np.zeros(n)), np.zeros(n), np.zeros(n), False
    fitted = _fit_observed(X, samples)  # deviations are about its means, even if these stay
    if options.center:
        removed, mean, small_groups = fitted.removed, fitted.mean, fitted.has_small_groups
        fields.notice_open_slopes(np.count_nonzero(fitted.open, axis=-1), n, samples.names)
        fields.notice_unvarying(fitted.freedom <= 0, field.da.name)
    Y = fields.minus_low_rank(X, fitted.removed.factors(samples))
    count = (~np.isnan(X)).sum(axis=0)
    found = fields.compute_together(
        squares=("cell", fields.sums_of_squares(Y)), sizes=("cell", fields.sums_of_squares(X)), n=("cell", count)
    )
    _check_range(fitted.mean, found["squares"])
    fields.notice_fill_values(fitted.mean, found["squares"], field.da.name)
    squares = _without_rounding(found["squares"], found["sizes"], X)
    if options.standardize:
        weights = _standardized(weights, squares / found["n"], Y.dtype)
    if np.any(weights != 1) or not options.center:
        Y = fields.minus_low_rank(X, removed.factors(samples), weights)
    gaps = completion = None
    if options.missing == "mean":
        A = as_operator(np.where(np.isnan(Y), 0, Y), **limits)
    else:
        gaps, rank = gaps_within(Y, options.resources), min(rank, m, n)
        completion = _completed(gaps, rank, options)
        if small_groups:
            how = replace(options, penalty=completion.penalty, rng=generator(options.rng).spawn(1)[0])
            completion = replace(completion, heldout_r2=_heldout_r2(X, samples, weights, how, rank))
        A = completion.A
    mean_left = A.moments().mean
    centred = A - repeated(mean_left, m)
    mean_squares = np.zeros(1)
    if options.center:
        A, centre = centred, mean_left
    else:
        mean_squares = m * (mean_left / weights) ** 2
    removed = replace(removed, means=removed.means + centre / weights)
    mean = removed.means[0] if removed.levels is None else mean + centre / weights
    deviation = np.sqrt(squares / np.maximum(found["n"] - 1, 1))
    sums = {"centred_squares": _squares(centred) / weights**2, "mean_squares": mean_squares}
    of_gaps = {"completion": completion, "gaps": gaps, "centre": centre, "deviation": deviation}
    return Anomalies(field, regressors, options.missing, A, removed, mean, weights, **sums, **of_gaps)


def _completed(gaps: Gaps, rank: int, options: FieldOptions) -> Completion:
    biases: BiasName | None = "columns" if options.center else None
    how = {"penalty": options.penalty, "max_iter": options.max_iter, "rng": options.rng} | vars(options.resources)
    return complete_matrix(gaps, rank, biases=biases, **how)


def _heldout_r2(X: Any, samples: Regressors, weights: Vector, options: FieldOptions, rank: int) -> float | None:
    # R^2 of a fit to other values, whose means of groups are without the held-out values, too: a mean of few values
    # follows each of them. None if memory lacks for three more copies of the field.
    if not (fields.is_lazy(X) or spare(5 * X.nbytes, options.resources.memory_limit)):
        return None
    train, i, j, x = gaps_within(X, options.resources).hide(generator(options.rng), HELD_OUT)
    left = train.X if fields.is_lazy(train.X) else train.X.copy()
    if not fields.is_lazy(left):
        left[i, j] = np.nan
    removed = _fit_observed(left, samples).removed
    L, R = removed.factors(samples)
    completion = _completed(gaps_within(fields.minus_low_rank(left, (L, R), weights), options.resources), rank, options)
    assert removed.unknown is not None
    known = np.sum(samples.one_hot(removed.levels)[i] * removed.unknown.T[j], axis=1) == 0
    i, j, x = i[known], j[known], x[known]
    off = (x - np.sum(L[i] * R.T[j], axis=1)) * weights[j]
    if len(off) < LEAST_HELD_OUT or not off.any():
        return None
    return float(1 - (np.linalg.norm(off - completion.predict(i, j)) / np.linalg.norm(off)) ** 2)


def gaps_within(Y: Any, resources: Resources) -> Gaps:
    if not fields.is_lazy(Y):
        return gaps_of(Y, **vars(resources))
    if spare(2 * Y.nbytes, resources.memory_limit):
        return gaps_of(Y.compute(), **vars(resources))
    from shiftsvd.extend.fits import LazyGaps

    return LazyGaps(Y, resources.memory_limit)


def regressed_scores(gaps: Gaps, centre: Vector | float, V: Panel, variances: Vector, noise: float) -> Panel:
    mean = np.broadcast_to(centre, V.shape[1:])
    A = regressed_rows(gaps, mean, None, V, variances, noise) - repeated(mean, gaps.shape[0])
    return row_scores(A, V)


def row_scores(A: Operator, V: Panel) -> Panel:
    return np.concatenate([part for _, part in A.row_products(V.T.astype(np.float64))])


def with_small_cells(A: Operator, F: SVDResult, squares: Vector) -> SVDResult:
    return SVDResult(F.U, F.S, computed_small_cells(A, F.S, F.Vh, squares), F.info)


def computed_small_cells(A: Operator, S: Vector, Vh: Panel, squares: Vector) -> Panel:
    # Errors of a vector that the solver iterated, or of a QR decomposition of chunks, are alike in all cells, but maps
    # divide components by weights, which vanish at the poles. A^H A v / s^2 has errors in proportion to each cell.
    # `squares`: of the columns of A.
    if not S[0] > 0:
        return Vh
    small = np.sqrt(squares / squares.mean()) < SMALL_CELL * (S[:, None] / S[0]) ** 2
    if not small.any():
        return Vh
    V = Vh.conj().T
    again = A.gram(V.astype(np.result_type(V, np.float64))).conj().T / np.where(S > 0, S, 1)[:, None] ** 2
    return np.where(small, again, Vh).astype(Vh.dtype)


def _squares(A: Operator) -> Vector:
    squares = A.column_squares()
    assert squares is not None  # every kind of operator that a field can be has them
    return squares


def _without_rounding(squares: Vector, sizes: Vector, X: Any) -> Vector:
    # Sums of squares of anomalies, but 0 for cells whose values are those that were removed, such as one number: in
    # units of their deviation, their rounding would be as large as the anomalies of other cells. `sizes`: of values.
    rounding = max(len(X), ROUNDINGS) * float(np.finfo(np.float64).eps)
    if X.dtype == np.float32:  # sums of its products lose more; a single value that differs has a larger deviation
        rounding = max(rounding, fields.EPS / 1024)
    return np.where(squares <= rounding**2 * sizes, 0, squares)


def _standardized(weights: Vector, variances: Vector, dtype: Any) -> Vector:
    deviations = np.sqrt(variances)
    found, most = weights / np.where(deviations > 0, deviations, 1), float(np.finfo(dtype).max)
    if found.max() > most:
        raise ValueError(
            f"weights divided by standard deviations must be at most {most:.2g} in the precision of the field, got "
            f"{found.max():.2g}. Change the units, or pass da.astype(float)."
        )
    return found


def _check_range(mean: Vector, squares: Vector) -> None:
    check_size("anomalies and means of a field", float(max(np.abs(mean).max(), np.sqrt(squares.max()))))


def check_size(what: str, size: float) -> None:
    if size != 0 and not 1 / MAX_SIZE < size < MAX_SIZE:
        rule = f"must be between {1 / MAX_SIZE:g} and {MAX_SIZE:g} in absolute value, so that squares do not overflow"
        raise ValueError(f"{what} {rule}, got {size:.3g}. Change the units.")
