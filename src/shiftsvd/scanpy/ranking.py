"""Rank features by dispersion, standardised variance or variance of Pearson residuals, within batches."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Self, get_args

import numpy as np

from shiftsvd import Operator
from shiftsvd.extend import operators, transforms
from shiftsvd.extend.fits import integer
from shiftsvd.extend.operators import Grouped, Panel, Vector
from shiftsvd.extend.running import Refused, Setting, affordable, plural, refuse, warn
from shiftsvd.scanpy.extension import FlavorName
from shiftsvd.scanpy.gene_names import is_missing
from shiftsvd.transforms import Transform

FLAVORS: Final = get_args(FlavorName)
OF_LOGARITHMS: Final = ("seurat", "cell_ranger")
DEFAULT_TOP: Final = 2000  # default number of features for flavors without cutoffs
LOG_NORMALIZE: Final = Setting("preprocess", "log-normalize")
RESIDUALS: Final = Setting("flavor", "pearson_residuals")
Columns = dict[str, Vector]  # statistics of each feature, by scanpy's names


@dataclass(frozen=True)
class Cutoffs:
    """Range of means and normalised dispersions of highly variable genes if no number of genes is given."""

    min_mean: float = 0.0125
    max_mean: float = 3.0
    min_disp: float = 0.5
    max_disp: float = np.inf

    def inside(self, means: Vector, dispersions: Vector) -> Vector:
        by_mean = (means > self.min_mean) & (means < self.max_mean)
        return np.asarray(by_mean & (dispersions > self.min_disp) & (dispersions < self.max_disp))


@dataclass(frozen=True)
class HighlyVariable:
    """Criterion of highly variable features; the fields are scanpy's arguments of the same names."""

    n_top: int | None = None  # None: use `cutoffs`, or `DEFAULT_TOP` features for flavors without cutoffs
    flavor: FlavorName = "seurat"
    n_bins: int = 20  # bins of means, for "seurat"
    span: float = 0.3  # share of the genes in each local regression of "seurat_v3"
    theta: float = 100.0
    clip: float | None = None  # largest absolute residual
    cutoffs: Cutoffs = field(default_factory=Cutoffs)

    def __post_init__(self) -> None:
        if self.n_top is not None:
            integer("n_top_genes", self.n_top, 1)
        integer("n_bins", self.n_bins, 1)
        for name, kept, rule, value in (
            ("flavor", self.flavor in FLAVORS, f"be one of {', '.join(FLAVORS)}", self.flavor),
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
            raise Refused(self.named, " ranks raw counts. Remove ", Setting("preprocess"), ".")
        for step in steps:
            if not step.keeps_zeros:
                counted = Setting("flavor", "seurat_v3"), " or ", RESIDUALS
                remedy = LOG_NORMALIZE, ", or rank raw counts with ", *counted, "."
                raise Refused(self.named, f" ranks logarithms of counts, got {step}. Use ", *remedy)


class Batches(NamedTuple):
    """The batch of every row."""

    codes: Vector
    sizes: Vector  # number of rows in each batch
    given: bool  # False if all rows are one batch because there are no labels

    @classmethod
    def of(cls, labels: Any, n_rows: int) -> Self:
        if labels is None:
            codes, names = np.zeros(n_rows, np.int64), np.array(["all rows"])
        else:
            known = np.asarray(operators.unmasked("batch", labels, "remove these rows"))
            if known.shape != (n_rows,):
                rule = f" must have one label for each of the {n_rows:,} rows, got shape {known.shape}"
                raise Refused(Setting("batch"), rule)
            if without := sum(is_missing(label) or label == "" for label in known.tolist()):
                got = f"{plural(without, 'missing label')}. Remove these rows."
                raise Refused(Setting("batch"), f" must have a label for every row, got {got}")
            names, codes = np.unique(known.astype(str) if known.dtype == object else known, return_inverse=True)
        sizes = np.bincount(codes, minlength=len(names)).astype(np.float64)
        if labels is None and n_rows < 2:
            raise ValueError(f"ranking of features requires at least 2 rows, got {n_rows}. Pass data with more rows.")
        if alone := int(np.count_nonzero(sizes < 2)):
            one = f" must have at least 2 rows in every batch, got 1 in batch {names[int(np.argmin(sizes))]!s}"
            if 2 * alone > len(sizes) > 2:
                most = f"{alone:,} of its {len(sizes):,} labels occur once, so it is probably no batch"
                raise Refused(Setting("batch"), f"{one}. {most}. Use a column with a label for each batch.")
            raise Refused(Setting("batch"), f"{one}. Remove this row, or merge small batches.")
        return cls(codes.astype(np.int64), sizes, labels is not None)

    @property
    def n(self) -> int:
        return len(self.sizes)

    def moments(self, A: Operator, f: Any, R: Panel | None = None, C: Panel | None = None) -> tuple[Panel, Panel]:
        """Compute sums over rows and moments of columns by batch of the numbers that `f` returns, in one read."""
        R = np.zeros((A.shape[0], 0)) if R is None else R
        C = np.zeros((A.shape[1], self.n, 0)) if C is None else C
        return operators.group_moments(A, Grouped(f, self.codes, R, C, self.n))


class Ranking(NamedTuple):
    """Statistics of every feature, and the mask of highly variable features."""

    criterion: HighlyVariable
    columns: Columns

    @property
    def mask(self) -> Vector:
        return self.columns["highly_variable"]


# Rank the columns of A: raw counts; or, for flavors of logarithms, data that `steps` transform to logarithms, or
# logarithms to a base whose natural logarithm is `base`. Ties are broken by `names` of features, as in scanpy.
def rank(
    A: Operator,
    criterion: HighlyVariable,
    steps: tuple[Transform, ...] = (),
    batches: Batches | None = None,
    names: Vector | None = None,
    base: float = 1.0,
    memory_limit: int | str | None = None,
    logged: bool = False,
) -> Ranking:
    criterion.check_steps(steps)
    batches = Batches.of(None, A.shape[0]) if batches is None else batches
    A = transforms.checked(A)
    bytes_of_ranking(A, batches, memory_limit)
    if criterion.of_logarithms:
        transforms.warn_unless_counts(steps, A, logged)
        found = _by_dispersion(A, criterion, steps, batches, names, 1.0 if steps else base)
    else:
        transforms.warn_of_logarithms(criterion.named, A, logged)
        found = _by_variance(A, criterion, batches)
    n_chosen = int(found["highly_variable"].sum())
    if not n_chosen:
        if criterion.n_top is None:
            raise ValueError(
                f"no feature is highly variable by {criterion.cutoffs}. Change the cutoffs, or pass n_top_genes."
            )
        if not np.all(found["means"] >= 0):
            raise ValueError(
                "no feature is highly variable, because features with means below 0 have no dispersion. Pass "
                "logarithms of counts that are not centred or scaled."
            )
        if not np.nan_to_num(found["dispersions"]).any():
            raise ValueError("no feature is highly variable, because all features are constant. Check the data.")
        alike = "no feature is highly variable, because features with similar means all have the same dispersion. "
        raise Refused(f"{alike}Pass more features, or rank raw counts with ", RESIDUALS, ".")
    if criterion.n_top is not None and n_chosen < criterion.n_top:
        warn(f"Only {n_chosen:,} features can be ranked and are kept, instead of {criterion.n_top:,}.")
    if not batches.given:
        found = {name: found[name] for name in found if not name.endswith(("_nbatches", "_intersection"))}
    return Ranking(criterion, found)


def bytes_of_ranking(A: Operator, batches: Batches, memory_limit: int | str | None) -> int:
    needed = operators.group_bytes(A, batches.n, 2)
    in_groups = f"ranking {A.shape[1]:,} features" + f" in {batches.n:,} batches" * batches.given
    affordable(needed, memory_limit, in_groups, "batches or threads")
    return needed


# ---- functions ``f(x, r, c)`` of entries, as `Grouped` calls them: they return numbers to sum over rows, and numbers
# whose moments are computed. They can be pickled for workers of a cluster.

Quantities = tuple[Vector, ...]
ToSum = tuple[Quantities, Quantities]


def _raw_counts(flavor: str, x: Vector, r: Quantities, c: Quantities) -> ToSum:
    if x.size and x.min() < 0:
        rule = f" requires counts, which are at least 0, got {x.min():g}. Pass raw counts."
        raise Refused(Setting("flavor", flavor), rule)
    return (x, (x != np.rint(x)).astype(np.float64)), (x,)


# `entry` transforms raw counts to logarithms; None if the data are logarithms.
def _logarithms(
    entry: transforms.FittedEntry | None, exponentials: bool, base: float, x: Vector, r: Quantities, c: Quantities
) -> ToSum:
    y = x if entry is None else entry(x, r, c)
    with np.errstate(over="ignore"):
        return ((x != np.rint(x)).astype(np.float64),), (np.expm1(y * base) if exponentials else y,)


def _clipped_counts(x: Vector, r: Quantities, c: Quantities) -> ToSum:
    return (), (np.minimum(x, c[0]),)


# Residuals and their squares, minus those of a zero in the same place: r has the sums of rows, c the rates q of columns
# by batch and the clipping limit; ``mu = r q``.
def _residuals_minus_zeros(theta: float, x: Vector, r: Quantities, c: Quantities) -> ToSum:
    mu, clip = r[0] * c[0], c[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        deviation = np.sqrt(mu + mu**2 / theta)
        z = np.clip((x - mu) / deviation, -clip, clip)
        z_0 = np.maximum(-mu / deviation, -clip)
    there = mu > 0
    return (), (np.where(there, z - z_0, 0), np.where(there, z**2 - z_0**2, 0))


# ---- dispersions of logarithms

SMALLEST_MEAN: Final = 1e-12  # replaces a mean of 0
NORMAL_MAD: Final = 0.6744897501960817  # median of the absolute value of a standard normal variable
PERCENTILES: Final = np.arange(10, 105, 5)  # of the means: edges of Cell Ranger's bins


def _by_dispersion(
    A: Operator,
    criterion: HighlyVariable,
    steps: tuple[Transform, ...],
    batches: Batches,
    names: Vector | None,
    base: float,
) -> Columns:
    entry, R, C = None, None, None
    if steps:
        A = transforms.learn_all(steps[:-1], A, None, 0.0).B
        fitted, R = steps[-1].learn_rows(A, np.ones(A.shape[0]), 0.0)
        entry, C = transforms.FittedEntry(fitted.how, fitted.known, fitted.table), fitted.columns[:, None, :]
        C = np.repeat(C, batches.n, axis=1)
    fractions, stored = batches.moments(A, partial(_logarithms, entry, criterion.flavor == "seurat", base), R, C)
    if not steps and not fractions.any() and stored[0].any():
        whole = " ranks logarithms, but all entries are whole numbers. For raw counts, use "
        raise Refused(criterion.named, whole, LOG_NORMALIZE, " or ", Setting("flavor", "seurat_v3"), ".")
    moments = operators.with_zeros(stored, batches.sizes)
    if not np.isfinite(moments).all():
        beyond = " requires logarithms, but exponentials of the entries overflow. For raw counts, use "
        raise Refused(criterion.named, beyond, LOG_NORMALIZE, ".")
    each = [_dispersions(moments[:, :, b], criterion, batches.given) for b in range(batches.n)]
    if not batches.given:
        return each[0]
    order = np.arange(A.shape[1]) if names is None else np.argsort(names.astype(str), kind="stable")
    return _combine_batches(each, criterion, order)


# Dispersions are variances over means. Seurat: subtract the mean of log dispersions in a bin and divide by their
# standard deviation, with `n_bins` equal bins of ``log(1 + mean)``; a gene alone in its bin gets 1. Cell Ranger:
# subtract the median in a bin and divide by the median absolute deviation, with bins between percentiles of the means.
def _dispersions(moments: Panel, criterion: HighlyVariable, of_batch: bool) -> Columns:
    size, means, squares = moments
    there = (means != 0) | (squares != 0) if of_batch else np.ones(len(means), bool)
    columns = {name: np.zeros(len(there)) for name in ("means", "dispersions", "dispersions_norm")}
    columns["highly_variable"] = np.zeros(len(there), bool)
    if not there.any():
        return columns
    means, variances = means[there], (squares / (size - 1))[there]
    means = np.where(means == 0, SMALLEST_MEAN, means)
    dispersions = variances / means
    with np.errstate(divide="ignore", invalid="ignore"):
        if criterion.flavor == "seurat":
            dispersions = np.log(np.where(dispersions == 0, np.nan, dispersions))
            means = np.log1p(means)
            centre, spread = _mean_and_deviation(_equal_bins(means, criterion.n_bins), dispersions)
        else:
            edges = np.unique(np.percentile(means, PERCENTILES))
            centre, spread = _median_and_mad(np.searchsorted(edges, means, side="left"), dispersions)
        found = (dispersions - centre) / spread
    if criterion.n_top is None:
        chosen = criterion.cutoffs.inside(means, np.nan_to_num(found))
    else:
        chosen = _at_least_nth(found, int(criterion.n_top))
    for name, values in zip(columns, (means, dispersions, found, chosen), strict=True):
        columns[name][there] = values
    return columns


def _at_least_nth(values: Vector, n_top: int) -> Vector:
    known = np.sort(values[~np.isnan(values)])[::-1]
    if not len(known):
        return np.zeros(len(values), bool)
    return np.asarray(np.nan_to_num(values, nan=-np.inf) >= known[min(n_top, len(known)) - 1])


def _equal_bins(means: Vector, n_bins: int) -> Vector:
    least, most = float(means.min()), float(means.max())
    lower = (most - least) * 0.001  # of the first edge; equal means get a range of their own
    if least == most:
        least, most = least - 0.001 * (abs(least) or 1), most + 0.001 * (abs(most) or 1)
    edges = np.linspace(least, most, n_bins + 1)
    edges[0] -= lower
    return np.searchsorted(edges, means, side="left") - 1


def _mean_and_deviation(bins: Vector, values: Vector) -> tuple[Vector, Vector]:
    there = ~np.isnan(values)
    some, size = bins[there], int(bins.max()) + 1
    count = np.bincount(some, minlength=size)
    one = np.zeros(size)
    one[some] = values[there]  # subtracted first, so that equal values have a deviation of 0 without rounding errors
    mean = one + np.bincount(some, values[there] - one[some], minlength=size) / count
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


# Sort genes by the number of batches that select them, then by mean dispersion, then by name (`order`), as in scanpy.
def _combine_batches(each: list[Columns], criterion: HighlyVariable, order: Vector) -> Columns:
    names = "means", "dispersions", "dispersions_norm"
    combined = {name: _mean_without_nan(np.array([columns[name] for columns in each])) for name in names}
    n_batches = np.sum([columns["highly_variable"] for columns in each], axis=0)
    if criterion.n_top is None:
        combined["dispersions_norm"] = np.nan_to_num(combined["dispersions_norm"], posinf=np.inf, neginf=-np.inf)
        chosen = criterion.cutoffs.inside(combined["means"], combined["dispersions_norm"])
    else:
        falling = -np.where(np.isnan(combined["dispersions_norm"]), -np.inf, combined["dispersions_norm"])
        chosen = _mask_of_first(np.lexsort((np.argsort(order), falling, -n_batches)), int(criterion.n_top))
    counted = {"highly_variable_nbatches": n_batches, "highly_variable_intersection": n_batches == len(each)}
    return combined | {"highly_variable": chosen} | counted


def _mean_without_nan(values: Vector) -> Vector:
    there = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(there, values, 0).sum(axis=0) / there.sum(axis=0))


def _mask_of_first(order: Vector, n_top: int) -> Vector:
    mask = np.zeros(len(order), bool)
    mask[order[:n_top]] = True
    return mask


# ---- variances of counts

TIE_DIGITS: Final = 11  # significant digits in comparisons of scores
# Accuracy of the interpolated sums over zeros, relative to the largest residual of a zero.
INTERPOLATION_ERROR = 1e-13
BLOCK_RESIDUALS = 2**17  # residuals of zeros in memory at a time


def _by_variance(A: Operator, criterion: HighlyVariable, batches: Batches) -> Columns:
    sums, stored = batches.moments(A, partial(_raw_counts, criterion.flavor))
    moments = operators.with_zeros(stored, batches.sizes)
    whole = operators.all_groups(moments)
    if not sums[:, 1].any():  # integer sums are exact, so that genes with the same number of counts have equal means
        counts = np.rint(stored[0] * stored[1])
        moments[1], whole[1] = counts / batches.sizes, counts.sum(axis=1) / A.shape[0]
    columns = {"means": whole[1], "variances": whole[2] / (whole[0] - 1)}
    by_residuals = criterion.flavor == "pearson_residuals"
    if by_residuals:
        name, scores = "residual_variances", _residual_variances(A, sums[:, 0], batches, moments, criterion)
    else:
        name, scores = "variances_norm", _standardised_variances(A, batches, moments, criterion.span)
    top = _top_ranked(scores, criterion.n_top or DEFAULT_TOP, criterion.flavor == "seurat_v3")
    in_all = {"highly_variable_intersection": top["highly_variable_nbatches"] == batches.n} if by_residuals else {}
    return columns | {name: scores.mean(axis=1)} | top | in_all


# Sort genes by their median rank over the batches that select them, and by the number of these batches. `rank_first`:
# the median rank is the first key and the number of batches breaks ties, else the other way round.
def _top_ranked(scores: Vector, n_top: int, rank_first: bool) -> Columns:
    # Many genes have the same counts, and scores that differ by rounding errors only. Treat these as ties, in the order
    # in which NumPy's sort leaves them, as scanpy does.
    with np.errstate(divide="ignore"):
        unit = 10.0 ** (np.floor(np.log10(np.abs(scores))) - TIE_DIGITS)
    alike = np.where(scores == 0, 0, np.rint(scores / np.where(unit > 0, unit, 1)) * unit)
    ranks = np.argsort(np.argsort(-alike.T, axis=1), axis=1).T.astype(np.float64)  # in each batch; 0: the largest
    n_batches = np.sum(ranks < n_top, axis=1)
    best = np.ma.masked_array(ranks, ranks >= n_top)
    median = np.ma.median(best, axis=1).filled(np.nan)  # type: ignore[no-untyped-call]
    keys = (np.where(np.isnan(median), np.inf, median), -n_batches.astype(np.float64))
    return {
        "highly_variable": _mask_of_first(np.lexsort(keys[::-1] if rank_first else keys), n_top),
        "highly_variable_rank": median,
        "highly_variable_nbatches": n_batches,
    }


# Lause, Berens & Kobak (2021): the variance of ``z = (x - mu) / sqrt(mu + mu^2 / theta)`` of each gene in each batch,
# with ``mu = r c / T`` of the batch, clipped at plus and minus `clip`, sqrt(m) of the batch by default. `sums` holds r.
# Genes and cells without counts have residuals of 0.
def _residual_variances(
    A: Operator, sums: Vector, batches: Batches, moments: Panel, criterion: HighlyVariable
) -> Vector:
    size, counts = moments[0], moments[0] * moments[1]
    T = counts.sum(axis=0)
    rates = counts / np.where(T > 0, T, 1)
    cut_off = np.sqrt(batches.sizes) if criterion.clip is None else np.full(batches.n, float(criterion.clip))
    C = np.stack([rates, np.broadcast_to(cut_off, rates.shape)], axis=2)
    _, found = batches.moments(A, partial(_residuals_minus_zeros, criterion.theta), sums[:, None], C)
    total, squares = both = found[0] * found[[1, 3]]
    for b in range(batches.n):
        both[:, :, b] += _sums_of_zeros(sums[batches.codes == b], rates[:, b], criterion.theta, cut_off[b])
    return np.asarray(np.maximum(squares / size - (total / size) ** 2, 0))


def _sums_of_zeros(sums: Vector, rates: Vector, theta: float, clip: float) -> Panel:
    # Sums of the residuals of zeros, and of their squares, for the rate of each gene. Both are smooth functions of the
    # logarithm of the rate, so interpolate them, unless some residuals are clipped.
    rows, often = np.unique(sums[sums > 0], return_counts=True)
    there, found = rates > 0, np.zeros((2, len(rates)))
    if not len(rows) or not there.any():
        return found
    b = np.log(rates[there])
    largest = float(_zero_residuals(rows[-1:], np.exp(b.max()), theta, np.inf)[0, 0])
    nodes = transforms.chebyshev(float(b.min()), float(b.max()), INTERPOLATION_ERROR)
    if -largest > clip or len(nodes) >= len(b):
        found[:, there] = _sums_at_rates(rows, often, rates[there], theta, clip)
    else:
        M = transforms.interpolation(nodes, b)
        found[:, there] = [M @ values for values in _sums_at_rates(rows, often, np.exp(nodes), theta, clip)]
    return found


def _sums_at_rates(rows: Vector, often: Vector, rates: Vector, theta: float, clip: float) -> Panel:
    found = np.zeros((2, len(rates)))
    step = max(1, BLOCK_RESIDUALS // len(rates))
    for lo in range(0, len(rows), step):
        z = _zero_residuals(rows[lo : lo + step], rates, theta, clip)
        found += [often[lo : lo + step] @ z, often[lo : lo + step] @ z**2]
    return found


def _zero_residuals(rows: Vector, rates: Vector | float, theta: float, clip: float) -> Panel:
    mu = rows[:, None] * rates
    return np.asarray(np.maximum(-np.sqrt(mu / (1 + mu / theta)), -clip))


# Stuart, Butler et al. (2019): the variance of each gene in each batch over the variance that a local quadratic
# regression of ``log10 variance`` on ``log10 mean`` predicts. Counts are clipped at the mean plus sqrt(m) predicted
# standard deviations.
def _standardised_variances(A: Operator, batches: Batches, moments: Panel, span: float) -> Vector:
    size, mean = moments[0], moments[1]
    variance = moments[2] / (size - 1)
    deviation = np.stack([_expected_deviation(mean[:, b], variance[:, b], span) for b in range(batches.n)], axis=1)
    _, found = batches.moments(A, _clipped_counts, C=(mean + deviation * np.sqrt(size))[:, :, None])
    count, stored_mean, stored_squares = found
    squares = stored_squares + count * (stored_mean - mean) ** 2 + (size - count) * mean**2
    return np.asarray(squares / ((size - 1) * deviation**2))


def _expected_deviation(mean: Vector, variance: Vector, span: float) -> Vector:
    varies = variance > 0
    out = np.ones(len(mean))
    if varies.any():
        out[varies] = np.sqrt(10 ** loess(np.log10(mean[varies]), np.log10(variance[varies]), span))
    return out


# ---- local regression

CELL_SHARE: Final = 0.2  # largest number of points in a cell, as a share of a neighbourhood, as in the original code
MARGIN_SHARE: Final = 0.005  # margin between the data and the outermost cell ends, as a share of the range of the data
# Singular values of a neighbourhood below this share of the largest are treated as 0.
RANK_TOLERANCE: Final = 100 * float(np.finfo(np.float64).eps)


def loess(x: Vector, y: Vector, span: float) -> Vector:
    # Cleveland & Grosse (1991), as R's ``loess(degree=2, surface="interpolate")`` and scikit-misc: fit quadratics, with
    # tricube weights, to the share `span` of the points nearest to each end of the cells, which hold up to ``CELL *
    # span`` of the points. Inside a cell, interpolate by a cubic with the values and slopes at its ends.
    n = len(x)
    nearest = min(n, int(np.floor(n * span + 1e-5)))
    if nearest < 4:
        rule = f" must include at least 4 of the {plural(n, 'feature')} that vary, got {span!r}. "
        wider = f"Raise span to {np.ceil(400 / n) / 100:g}, or pass " if n >= 4 else "Pass "
        raise Refused(Setting("span"), rule, wider, RESIDUALS, ".")
    order = np.argsort(x, kind="stable")
    x_sorted, y_sorted = x[order], y[order]
    points = _cell_ends(x_sorted, int(np.floor(n * span * CELL_SHARE)))
    fits = np.array([_local_fit(x_sorted, y_sorted, point, nearest) for point in points])
    return _interpolate_cubic(points, fits[:, 0], fits[:, 1], x)


def _cell_ends(x: Vector, most: int) -> Vector:
    margin = MARGIN_SHARE * max(x[-1] - x[0], 1e-10 * max(abs(x[0]), abs(x[-1])) + 1e-30)
    ends = {float(x[0] - margin), float(x[-1] + margin)}
    cells = [(0, len(x) - 1, float(x[0] - margin), float(x[-1] + margin))]
    while cells:
        first, last, lower, upper = cells.pop()
        if last - first + 1 <= most:
            continue
        middle = _middle_without_ties(x, first, last)
        cut = float(x[middle])
        if cut not in (lower, upper):
            ends.add(cut)
            cells += [(first, middle, lower, cut), (middle + 1, last, cut, upper)]
    return np.array(sorted(ends))


def _middle_without_ties(x: Vector, first: int, last: int) -> int:
    middle = (first + last + 2) // 2 - 1  # the original code counts from 1
    offset = 0
    while first <= middle + offset < last:
        if x[middle + offset] != x[middle + offset + 1]:
            return middle + offset
        offset = -offset if offset > 0 else 1 - offset
    return middle


def _local_fit(x: Vector, y: Vector, point: float, nearest: int) -> tuple[float, float]:
    distance = np.abs(x - point)
    radius = np.partition(distance, nearest - 1)[nearest - 1]
    near = distance < radius
    if not near.any():  # all points in the span coincide
        return float(y[distance <= radius].mean()), 0.0
    d = x[near] - point
    w = np.sqrt((1 - (distance[near] / radius) ** 3) ** 3)
    columns = np.stack([w, w * d, w * d * d], axis=1)
    lengths = np.linalg.norm(columns, axis=0)
    lengths[lengths == 0] = 1
    U, S, Vh = np.linalg.svd(columns / lengths, full_matrices=False)
    there = S > RANK_TOLERANCE * S[0]
    found = Vh[there].T @ ((U[:, there].T @ (w * y[near])) / S[there]) / lengths
    return float(found[0]), float(found[1])


def _interpolate_cubic(points: Vector, values: Vector, slopes: Vector, x: Vector) -> Vector:
    i = np.clip(np.searchsorted(points, x, side="left") - 1, 0, len(points) - 2)
    width = points[i + 1] - points[i]
    h = (x - points[i]) / width
    lower = (1 - h) ** 2 * ((1 + 2 * h) * values[i] + h * width * slopes[i])
    upper = h**2 * ((3 - 2 * h) * values[i + 1] + (h - 1) * width * slopes[i + 1])
    return np.asarray(lower + upper)
