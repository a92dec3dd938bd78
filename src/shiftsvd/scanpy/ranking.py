"""Highly variable features in a few reads: dispersions, standardised variances, Pearson residuals; batches."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Self, get_args

import numpy as np

from shiftsvd import Operator
from shiftsvd.extend.operators import (
    Grouped,
    Panel,
    Vector,
    all_groups,
    group_bytes,
    group_moments,
    unmasked,
    with_zeros,
)
from shiftsvd.extend.running import Refused, Setting, affordable, refuse, warn
from shiftsvd.extend.transforms import (
    EntryOf,
    chebyshev,
    checked,
    interpolation,
    learn_all,
    warn_of_logarithms,
    warn_unless_counts,
)
from shiftsvd.scanpy.extension import FlavorName
from shiftsvd.transforms import Transform

FLAVORS: Final = get_args(FlavorName)
OF_LOGARITHMS: Final = ("seurat", "cell_ranger")
USUAL: Final = 2000  # features by default, for flavors that have no cutoffs
NORMALIZED: Final = Setting("preprocess", "log-normalize")
Columns = dict[str, Vector]  # what is known of each feature, by the names that scanpy gives it


@dataclass(frozen=True)
class Cutoffs:
    """Between which means and normalised dispersions a gene is variable, where no number of genes is asked for."""

    min_mean: float = 0.0125
    max_mean: float = 3.0
    min_disp: float = 0.5
    max_disp: float = np.inf

    def inside(self, means: Vector, dispersions: Vector) -> Vector:
        by_mean = (means > self.min_mean) & (means < self.max_mean)
        return np.asarray(by_mean & (dispersions > self.min_disp) & (dispersions < self.max_disp))


@dataclass(frozen=True)
class HighlyVariable:
    """What scanpy calls its arguments of these names."""

    n_top: int | None = None  # without it `cutoffs` decide; flavors that have none take `USUAL`
    flavor: FlavorName = "seurat"
    n_bins: int = 20  # of means, for "seurat"
    span: float = 0.3  # share of the genes that the regression of "seurat_v3" uses at once
    theta: float = 100.0
    clip: float | None = None  # of residuals
    cutoffs: Cutoffs = field(default_factory=Cutoffs)

    def __post_init__(self) -> None:
        for name, kept, rule, value in (
            (
                "flavor",
                self.flavor in get_args(FlavorName),
                f"be one of {', '.join(get_args(FlavorName))}",
                self.flavor,
            ),
            ("n_top_genes", self.n_top is None or _whole(self.n_top), "be a whole number of at least 1", self.n_top),
            ("n_bins", _whole(self.n_bins), "be a whole number of at least 1", self.n_bins),
            ("span", 0 < self.span <= 1, "be above 0 and at most 1", self.span),
            ("theta", self.theta > 0, "be above 0", self.theta),
            ("clip", self.clip is None or self.clip >= 0, "be at least 0, or None", self.clip),
        ):
            if not kept:
                raise refuse(name, rule, value)

    @property
    def named(self) -> Setting:
        return Setting("flavor", self.flavor)

    @property
    def of_logarithms(self) -> bool:
        return self.flavor in OF_LOGARITHMS

    def check_steps(self, steps: tuple[Transform, ...]) -> None:
        if not self.of_logarithms and steps:
            raise Refused(self.named, " ranks raw counts; leave ", Setting("preprocess"), " out")
        for step in steps:
            if not step.keeps_zeros:
                counted = Setting("flavor", "seurat_v3"), " or ", Setting("flavor", "pearson_residuals")
                remedy = NORMALIZED, ", or a flavor of raw counts: ", *counted
                raise Refused(self.named, f" ranks logarithms of counts, not {step}; give ", *remedy)


class Batches(NamedTuple):
    """The batch of every row."""

    codes: Vector
    sizes: Vector  # how many rows each batch has
    given: bool  # whether there are any labels

    @classmethod
    def of(cls, labels: Any, n_rows: int) -> Self:
        if labels is None:
            codes, names = np.zeros(n_rows, np.int64), np.array(["all rows"])
        else:
            known = np.asarray(unmasked("batch", labels, "leave these rows out"))
            if known.shape != (n_rows,):
                rule = f" must have one label for each of the {n_rows} rows, got shape {known.shape}"
                raise Refused(Setting("batch"), rule)
            if without := int(sum(map(_missing, known.tolist()))):
                rule = f" must have a label for every row, got {without} without; leave these rows out"
                raise Refused(Setting("batch"), rule)
            names, codes = np.unique(known.astype(str) if known.dtype == object else known, return_inverse=True)
        sizes = np.bincount(codes, minlength=len(names)).astype(np.float64)
        if labels is None and n_rows < 2:
            raise ValueError(f"features are ranked by at least 2 rows, got {n_rows}")
        if sizes.min() < 2:
            raise ValueError(f"every batch must have at least 2 rows, got 1 in {names[int(np.argmin(sizes))]!s}")
        return cls(codes.astype(np.int64), sizes, labels is not None)

    @property
    def n(self) -> int:
        return len(self.sizes)

    def look(self, A: Operator, f: Any, R: Panel | None = None, C: Panel | None = None) -> tuple[Panel, Panel]:
        """Sum what `f` tells over rows, and compute moments of columns by batch: a read."""
        R = np.zeros((A.shape[0], 0)) if R is None else R
        C = np.zeros((A.shape[1], self.n, 0)) if C is None else C
        return group_moments(A, Grouped(f, self.codes, R, C, self.n))


def _missing(label: Any) -> bool:
    if label is None or isinstance(label, str):
        return not label
    return type(label).__name__ == "NAType" or bool(label != label)


class Ranking(NamedTuple):
    """What is known of every feature, and which of them are highly variable."""

    asked: HighlyVariable
    columns: Columns

    @property
    def mask(self) -> Vector:
        return self.columns["highly_variable"]


# Rank the columns of A: counts, or for flavors of logarithms what `steps` make logarithms, or logarithms of this `base`
# (its natural logarithm). `names` of features decide between those that are ranked alike, as in scanpy.
def rank(
    A: Operator,
    asked: HighlyVariable,
    steps: tuple[Transform, ...] = (),
    batches: Batches | None = None,
    names: Vector | None = None,
    base: float = 1.0,
    memory_limit: int | str | None = None,
    logged: bool = False,
) -> Ranking:
    asked.check_steps(steps)
    batches = Batches.of(None, A.shape[0]) if batches is None else batches
    A = checked(A)
    in_groups = f"ranking {A.shape[1]} features in {batches.n} {'batches' if batches.given else 'group'}"
    affordable(group_bytes(A, batches.n, 2), memory_limit, in_groups, "batches or threads")
    if asked.of_logarithms:
        warn_unless_counts(steps, A, logged)
        found = _by_dispersion(A, asked, steps, batches, names, base)
    else:
        warn_of_logarithms(asked.named, A, logged)
        found = _by_variance(A, asked, batches)
    n_chosen = int(found["highly_variable"].sum())
    if not n_chosen:
        by = asked.cutoffs if asked.n_top is None else "any measure: none of them varies"
        raise ValueError(f"no feature is highly variable by {by}; give other data, cutoffs, or n_top_genes")
    if asked.n_top is not None and n_chosen < asked.n_top:
        warn(f"{n_chosen} features are taken, which is all that can be ranked, {asked.n_top} were asked for")
    if not batches.given:
        found = {name: found[name] for name in found if not name.endswith(("_nbatches", "_intersection"))}
    return Ranking(asked, found)


def _whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 1)


# ---- functions of entries ``f(x, r, c)``, as `Grouped` takes them: numbers to sum over rows, and numbers whose moments
# are computed. They are values that workers of a cluster get.

Quantities = tuple[Vector, ...]
Looked = tuple[Quantities, Quantities]


def _of_counts(flavor: str, x: Vector, r: Quantities, c: Quantities) -> Looked:
    if x.size and x.min() < 0:
        rule = f" ranks counts, which are at least 0, got {x.min():g}; give it the raw counts"
        raise Refused(Setting("flavor", flavor), rule)
    return (x, (x != np.rint(x)).astype(np.float64)), (x,)


# `entry` makes logarithms of raw counts, if the data are these.
def _of_logs(entry: EntryOf | None, exponentials: bool, base: float, x: Vector, r: Quantities, c: Quantities) -> Looked:
    y = x if entry is None else entry(x, r, c)
    with np.errstate(over="ignore"):
        return ((x != np.rint(x)).astype(np.float64),), (np.expm1(y * base) if exponentials else y,)


def _cut_off(x: Vector, r: Quantities, c: Quantities) -> Looked:
    return (), (np.minimum(x, c[0]),)


# Residuals and their squares, less those of a zero in the same place. Rows bring their sum r, columns by batch their
# rate q and where residuals are cut off: ``mu = r q``.
def _residuals(theta: float, x: Vector, r: Quantities, c: Quantities) -> Looked:
    mu, clip = r[0] * c[0], c[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        deviation = np.sqrt(mu + mu**2 / theta)
        z = np.clip((x - mu) / deviation, -clip, clip)
        z_0 = np.maximum(-mu / deviation, -clip)
    there = mu > 0
    return (), (np.where(there, z - z_0, 0), np.where(there, z**2 - z_0**2, 0))


# ---- dispersions of logarithms

TINY: Final = 1e-12  # stands for a mean of 0
NORMAL_MAD: Final = 0.6744897501960817  # median of the absolute value of a standard normal variable
PERCENTILES: Final = np.arange(10, 105, 5)  # of the means, at which Cell Ranger cuts them


def _by_dispersion(
    A: Operator,
    asked: HighlyVariable,
    steps: tuple[Transform, ...],
    batches: Batches,
    names: Vector | None,
    base: float,
) -> Columns:
    entry, R, C = None, None, None
    if steps:
        A = learn_all(steps[:-1], A, None, 0.0).B
        fitted, R = steps[-1].learn_rows(A, np.ones(A.shape[0]), 0.0)
        entry, C = EntryOf(fitted.how, fitted.known, fitted.table), fitted.columns[:, None, :]
        C = np.repeat(C, batches.n, axis=1)
    fractions, stored = batches.look(A, partial(_of_logs, entry, asked.flavor == "seurat", base), R, C)
    if not steps and not fractions.any() and stored[0].any():
        whole = " ranks logarithms, but all entries are whole numbers; give "
        raise Refused(asked.named, whole, NORMALIZED, " with raw counts, or ", Setting("flavor", "seurat_v3"))
    moments = with_zeros(stored, batches.sizes)
    if not np.isfinite(moments).all():
        beyond = " takes exponentials of logarithms, and those of these entries are beyond the range of numbers; give "
        raise Refused(asked.named, beyond, NORMALIZED, " with raw counts")
    each = [_dispersions(moments[:, :, b], asked, batches.given) for b in range(batches.n)]
    if not batches.given:
        return each[0]
    order = np.arange(A.shape[1]) if names is None else np.argsort(names.astype(str), kind="stable")
    return _of_batches(each, asked, order)


# Dispersions are variances over means. Seurat: the logarithm, less the mean of its bin over the standard deviation in
# it, of `n_bins` equal bins of ``log(1 + mean)``; a gene alone in its bin has 1. Cell Ranger: less the median over the
# mean absolute deviation, of bins between percentiles of the means.
def _dispersions(moments: Panel, asked: HighlyVariable, of_batch: bool) -> Columns:
    size, means, squares = moments
    there = (means != 0) | (squares != 0) if of_batch else np.ones(len(means), bool)
    columns = {name: np.zeros(len(there)) for name in ("means", "dispersions", "dispersions_norm")}
    columns["highly_variable"] = np.zeros(len(there), bool)
    if not there.any():
        return columns
    means, variances = means[there], (squares / (size - 1))[there]
    means = np.where(means == 0, TINY, means)
    dispersions = variances / means
    with np.errstate(divide="ignore", invalid="ignore"):
        if asked.flavor == "seurat":
            dispersions = np.log(np.where(dispersions == 0, np.nan, dispersions))
            means = np.log1p(means)
            centre, spread = _mean_and_deviation(_equal_bins(means, asked.n_bins), dispersions)
        else:
            centre, spread = _median_and_mad(_percentile_bins(means), dispersions)
        found = (dispersions - centre) / spread
    if asked.n_top is None:
        chosen = asked.cutoffs.inside(means, np.nan_to_num(found))
    else:
        chosen = _above_nth(found, int(asked.n_top))
    for name, values in zip(columns, (means, dispersions, found, chosen), strict=True):
        columns[name][there] = values
    return columns


def _above_nth(values: Vector, n_top: int) -> Vector:
    known = np.sort(values[~np.isnan(values)])[::-1]
    if not len(known):
        return np.zeros(len(values), bool)
    return np.asarray(np.nan_to_num(values, nan=-np.inf) >= known[min(n_top, len(known)) - 1])


def _equal_bins(means: Vector, n_bins: int) -> Vector:
    least, most = float(means.min()), float(means.max())
    if least == most:
        least, most = least - 0.001 * (abs(least) or 1), most + 0.001 * (abs(most) or 1)
        edges = np.linspace(least, most, n_bins + 1)
    else:
        edges = np.linspace(least, most, n_bins + 1)
        edges[0] -= (most - least) * 0.001
    return np.searchsorted(edges, means, side="left") - 1


def _percentile_bins(means: Vector) -> Vector:
    edges = np.unique(np.percentile(means, PERCENTILES))
    return np.searchsorted(edges, means, side="left")


def _mean_and_deviation(bins: Vector, values: Vector) -> tuple[Vector, Vector]:
    there = ~np.isnan(values)
    some, size = bins[there], int(bins.max()) + 1
    count = np.bincount(some, minlength=size)
    mean = np.bincount(some, values[there], minlength=size) / count
    squares = np.bincount(some, (values[there] - mean[some]) ** 2, minlength=size)
    deviation = np.sqrt(squares / (count - 1))
    alone = count == 1
    deviation[alone], mean[alone] = mean[alone], 0
    return mean[bins], deviation[bins]


def _median_and_mad(bins: Vector, values: Vector) -> tuple[Vector, Vector]:
    centre, spread = np.zeros(len(values)), np.zeros(len(values))
    for bin_of in np.unique(bins):
        inside = bins == bin_of
        centre[inside] = np.median(values[inside])
        spread[inside] = np.median(np.abs(values[inside] - centre[inside])) / NORMAL_MAD
    return centre, spread


# Genes that most batches choose, and then those of the largest mean dispersion; then `order`, that of the genes by
# their names, decides, as in scanpy.
def _of_batches(each: list[Columns], asked: HighlyVariable, order: Vector) -> Columns:
    told: Columns = {}
    for name in ("means", "dispersions", "dispersions_norm"):
        told[name] = _known_mean(np.array([columns[name] for columns in each]))
    n_batches = np.sum([columns["highly_variable"] for columns in each], axis=0)
    if asked.n_top is None:
        told["dispersions_norm"] = np.nan_to_num(told["dispersions_norm"], posinf=np.inf, neginf=-np.inf)
        chosen = asked.cutoffs.inside(told["means"], told["dispersions_norm"])
    else:
        falling = -np.where(np.isnan(told["dispersions_norm"]), -np.inf, told["dispersions_norm"])
        chosen = _first_of(np.lexsort((np.argsort(order), falling, -n_batches)), int(asked.n_top))
    counted = {"highly_variable_nbatches": n_batches, "highly_variable_intersection": n_batches == len(each)}
    return told | {"highly_variable": chosen} | counted


def _known_mean(values: Vector) -> Vector:
    there = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(there, values, 0).sum(axis=0) / there.sum(axis=0))


def _first_of(order: Vector, n_top: int) -> Vector:
    mask = np.zeros(len(order), bool)
    mask[order[:n_top]] = True
    return mask


# ---- variances of counts

DIGITS: Final = 11  # of scores that are compared
# Accuracy of the interpolated sums over zeros, of the largest residual that a zero can have.
ACCURACY = 1e-13
AT_ONCE = 2**17  # residuals of zeros that are held at a time


def _by_variance(A: Operator, asked: HighlyVariable, batches: Batches) -> Columns:
    sums, stored = batches.look(A, partial(_of_counts, asked.flavor))
    moments = with_zeros(stored, batches.sizes)
    whole = all_groups(moments)
    if not sums[:, 1].any():  # as exact as sums of whole numbers are: genes of as many counts have the same mean
        counts = np.rint(stored[0] * stored[1])
        moments[1], whole[1] = counts / batches.sizes, counts.sum(axis=1) / A.shape[0]
    told = {"means": whole[1], "variances": whole[2] / (whole[0] - 1)}
    if asked.flavor == "pearson_residuals":
        name, scores = "residual_variances", _residual_variances(A, sums[:, 0], batches, moments, asked)
    else:
        name, scores = "variances_norm", _standardised_variances(A, batches, moments, asked.span)
    told |= {name: scores.mean(axis=1)} | _chosen(scores, asked.n_top or USUAL, asked.flavor == "seurat_v3")
    if asked.flavor == "pearson_residuals":
        told["highly_variable_intersection"] = told["highly_variable_nbatches"] == batches.n
    return told


# The genes of the best ranks: by their median over the batches that choose them, and by how many do. `rank_first`
# says which of the two comes first; the other one decides where that is the same.
def _chosen(scores: Vector, n_top: int, rank_first: bool) -> Columns:
    # Many genes have the same counts, and scores that differ by rounding alone: these are alike, and come in the order
    # in which NumPy's sort leaves them, as they do in scanpy.
    with np.errstate(divide="ignore"):
        unit = 10.0 ** (np.floor(np.log10(np.abs(scores))) - DIGITS)
    alike = np.where(scores == 0, 0, np.rint(scores / np.where(unit > 0, unit, 1)) * unit)
    ranks = np.argsort(np.argsort(-alike.T, axis=1), axis=1).T.astype(np.float64)  # in each batch; 0: the largest
    n_batches = np.sum(ranks < n_top, axis=1)
    best = np.ma.masked_array(ranks, ranks >= n_top)
    median = np.ma.median(best, axis=1).filled(np.nan)  # type: ignore[no-untyped-call]
    keys = (np.where(np.isnan(median), np.inf, median), -n_batches.astype(np.float64))
    return {
        "highly_variable": _first_of(np.lexsort(keys[::-1] if rank_first else keys), n_top),
        "highly_variable_rank": median,
        "highly_variable_nbatches": n_batches,
    }


# Lause, Berens & Kobak (2021): the variance of ``z = (x - mu) / sqrt(mu + mu^2 / theta)`` of each gene in each batch,
# with ``mu = r c / T`` of the batch, cut off at plus and minus `clip`, sqrt(m) of the batch by default. `sums` are the
# r. Genes and cells without counts have residuals of 0.
def _residual_variances(A: Operator, sums: Vector, batches: Batches, moments: Panel, asked: HighlyVariable) -> Vector:
    size, counts = moments[0], moments[0] * moments[1]
    T = counts.sum(axis=0)
    rates = counts / np.where(T > 0, T, 1)
    cut_off = np.sqrt(batches.sizes) if asked.clip is None else np.full(batches.n, float(asked.clip))
    C = np.stack([rates, np.broadcast_to(cut_off, rates.shape)], axis=2)
    _, found = batches.look(A, partial(_residuals, asked.theta), sums[:, None], C)
    total, squares = found[0] * found[1], found[0] * found[3]
    for b in range(batches.n):
        zeros = _of_zeros(sums[batches.codes == b], rates[:, b], asked.theta, cut_off[b])
        total[:, b] += zeros[0]
        squares[:, b] += zeros[1]
    return np.asarray(np.maximum(squares / size - (total / size) ** 2, 0))


def _of_zeros(sums: Vector, rates: Vector, theta: float, clip: float) -> tuple[Vector, Vector]:
    # Sums of the residuals of zeros, and of their squares, for the rate of each gene. Both are smooth in the logarithm
    # of the rate, and interpolated there, unless some are cut off.
    rows, often = np.unique(sums[sums > 0], return_counts=True)
    there = rates > 0
    total, squares = np.zeros(len(rates)), np.zeros(len(rates))
    if not len(rows) or not there.any():
        return total, squares
    b = np.log(rates[there])
    largest = float(_zero(rows[-1:], np.exp(b.max()), theta, np.inf)[0, 0])
    nodes = chebyshev(float(b.min()), float(b.max()), ACCURACY)
    if -largest > clip or len(nodes) >= len(b):
        total[there], squares[there] = _summed(rows, often, rates[there], theta, clip)
        return total, squares
    at_nodes = _summed(rows, often, np.exp(nodes), theta, clip)
    total[there], squares[there] = (interpolation(nodes, b) @ values for values in at_nodes)
    return total, squares


def _summed(rows: Vector, often: Vector, rates: Vector, theta: float, clip: float) -> tuple[Vector, Vector]:
    total, squares = np.zeros(len(rates)), np.zeros(len(rates))
    step = max(1, AT_ONCE // len(rates))
    for lo in range(0, len(rows), step):
        z = _zero(rows[lo : lo + step], rates, theta, clip)
        total += often[lo : lo + step] @ z
        squares += often[lo : lo + step] @ z**2
    return total, squares


def _zero(rows: Vector, rates: Vector | float, theta: float, clip: float) -> Panel:
    mu = rows[:, None] * rates
    return np.asarray(np.maximum(-np.sqrt(mu / (1 + mu / theta)), -clip))


# Stuart, Butler et al. (2019): the variance of each gene in each batch over the expected one, where a local quadratic
# regression expects ``log10 variance`` by ``log10 mean``. Counts are cut off at the mean plus sqrt(m) expected standard
# deviations.
def _standardised_variances(A: Operator, batches: Batches, moments: Panel, span: float) -> Vector:
    size, mean = moments[0], moments[1]
    variance = moments[2] / (size - 1)
    deviation = np.stack([_expected(mean[:, b], variance[:, b], span) for b in range(batches.n)], axis=1)
    _, found = batches.look(A, _cut_off, C=(mean + deviation * np.sqrt(size))[:, :, None])
    count, stored_mean, stored_squares = found
    squares = stored_squares + count * (stored_mean - mean) ** 2 + (size - count) * mean**2
    return np.asarray(squares / ((size - 1) * deviation**2))


def _expected(mean: Vector, variance: Vector, span: float) -> Vector:
    varies = variance > 0
    out = np.ones(len(mean))
    if varies.any():
        out[varies] = np.sqrt(10 ** loess(np.log10(mean[varies]), np.log10(variance[varies]), span))
    return out


# ---- local regression

CELL: Final = 0.2  # largest share of a neighbourhood in a cell, as in the original implementation
BEYOND: Final = 0.005  # of the range of the data, by which the outermost ends lie outside of it
# Smaller singular values of a neighbourhood, relative to the largest, are treated as 0.
SINGULAR: Final = 100 * float(np.finfo(np.float64).eps)


def loess(x: Vector, y: Vector, span: float) -> Vector:
    # Cleveland & Grosse (1991), as R's ``loess(degree=2, surface="interpolate")`` and scikit-misc's: quadratics are
    # fitted, with tricube weights, to the nearest share `span` of the points around each end of the cells, which hold
    # up to ``CELL * span`` of the points; cubics of the same values and slopes interpolate inside of a cell.
    n = len(x)
    nearest = min(n, int(np.floor(n * span + 1e-5)))
    if nearest < 4:
        raise refuse("span", f"take in at least 4 of the {n} points", span, "raise it")
    order = np.argsort(x, kind="stable")
    x_sorted, y_sorted = x[order], y[order]
    points = _ends(x_sorted, int(np.floor(n * span * CELL)))
    fits = np.array([_quadratic(x_sorted, y_sorted, point, nearest) for point in points])
    return _between(points, fits[:, 0], fits[:, 1], x)


def _ends(x: Vector, most: int) -> Vector:
    margin = BEYOND * max(x[-1] - x[0], 1e-10 * max(abs(x[0]), abs(x[-1])) + 1e-30)
    ends = {float(x[0] - margin), float(x[-1] + margin)}
    cells = [(0, len(x) - 1, float(x[0] - margin), float(x[-1] + margin))]
    while cells:
        first, last, lower, upper = cells.pop()
        if last - first + 1 <= most:
            continue
        middle = _untied(x, first, last)
        cut = float(x[middle])
        if cut not in (lower, upper):
            ends.add(cut)
            cells += [(first, middle, lower, cut), (middle + 1, last, cut, upper)]
    return np.array(sorted(ends))


def _untied(x: Vector, first: int, last: int) -> int:
    middle = (first + last + 2) // 2 - 1  # places are counted from 1 in the original
    offset = 0
    while first <= middle + offset < last:
        if x[middle + offset] != x[middle + offset + 1]:
            return middle + offset
        offset = -offset if offset > 0 else 1 - offset
    return middle


def _quadratic(x: Vector, y: Vector, point: float, nearest: int) -> tuple[float, float]:
    distance = np.abs(x - point)
    radius = np.partition(distance, nearest - 1)[nearest - 1]
    near = distance < radius
    if not near.any():  # as many points as the span takes in lie on each other
        return float(y[distance <= radius].mean()), 0.0
    d = x[near] - point
    w = np.sqrt((1 - (distance[near] / radius) ** 3) ** 3)
    columns = np.stack([w, w * d, w * d * d], axis=1)
    lengths = np.linalg.norm(columns, axis=0)
    lengths[lengths == 0] = 1
    U, S, Vh = np.linalg.svd(columns / lengths, full_matrices=False)
    there = S > SINGULAR * S[0]
    found = Vh[there].T @ ((U[:, there].T @ (w * y[near])) / S[there]) / lengths
    return float(found[0]), float(found[1])


def _between(points: Vector, values: Vector, slopes: Vector, x: Vector) -> Vector:
    i = np.clip(np.searchsorted(points, x, side="left") - 1, 0, len(points) - 2)
    width = points[i + 1] - points[i]
    h = (x - points[i]) / width
    lower = (1 - h) ** 2 * ((1 + 2 * h) * values[i] + h * width * slopes[i])
    upper = h**2 * ((3 - 2 * h) * values[i + 1] + (h - 1) * width * slopes[i + 1])
    return np.asarray(lower + upper)
