"""Flavors of highly variable genes: dispersions, standardised variances, Pearson residuals; batches."""

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Self

import numpy as np

from shiftsvd import Operator
from shiftsvd.extend.operators import Grouped, Looked, Panel, Quantities, Vector, group_moments, group_sizes, unmasked
from shiftsvd.extend.running import Refused, Setting
from shiftsvd.extend.transforms import EntryOf, Spelled, chebyshev, interpolation, shares

# The share of a neighbourhood that a cell between two points may hold, as in the original implementation.
CELL: Final = 0.2
# By how much of their range the outermost points lie beyond the data.
BEYOND: Final = 0.005
# Singular values of a neighbourhood that are smaller than this, of the largest, are taken for 0.
SINGULAR: Final = 100 * float(np.finfo(np.float64).eps)


def loess(x: Vector, y: Vector, span: float) -> Vector:
    """The fit at each x: quadratics fitted to the nearest share `span` of the points, by tricube weights.

    They are fitted at the ends of cells that hold up to ``CELL * span`` of the points, and cubics of the same values
    and slopes are laid between: as R's ``loess(degree=2, surface="interpolate")``, and scikit-misc's, do it.

    References
    ----------
    Cleveland & Grosse (1991), Computational methods for local regression.
    """
    n = len(x)
    nearest = min(n, int(np.floor(n * span + 1e-5)))
    if nearest < 4:
        raise ValueError(f"span must take in at least 4 of the {n} points, got span={span}; raise it")
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


DIGITS: Final = 11  # of scores that are compared


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
                raise Refused(
                    Setting("batch"), f" must have one label for each of the {n_rows} rows, got shape {known.shape}"
                )
            if without := int(sum(map(_missing, known.tolist()))):
                without_any = f" must have a label for every row, got {without} without; leave these rows out"
                raise Refused(Setting("batch"), without_any)
            names, codes = np.unique(known.astype(str) if known.dtype == object else known, return_inverse=True)
        sizes = group_sizes(codes, len(names))
        if labels is None and n_rows < 2:
            raise ValueError(f"features are ranked by at least 2 rows, got {n_rows}")
        if sizes.min() < 2:
            raise ValueError(f"every batch must have at least 2 rows, got 1 in {names[int(np.argmin(sizes))]!s}")
        return cls(codes.astype(np.int64), sizes, labels is not None)

    @property
    def n(self) -> int:
        return len(self.sizes)


def _missing(label: Any) -> bool:
    if label is None or isinstance(label, str):
        return not label
    return type(label).__name__ == "NAType" or bool(label != label)


def ranks(scores: Vector) -> Vector:
    """The place of each gene in each batch, 0 for the largest score; shape (n, batches).

    Many genes have the same counts, and scores that differ by rounding alone: these are alike, and come in the order in
    which NumPy's sort leaves them, as they do in scanpy.
    """
    with np.errstate(divide="ignore"):
        unit = 10.0 ** (np.floor(np.log10(np.abs(scores))) - DIGITS)
    alike = np.where(scores == 0, 0, np.rint(scores / np.where(unit > 0, unit, 1)) * unit)
    return np.argsort(np.argsort(-alike.T, axis=1), axis=1).T


def chosen_by_rank(scores: Vector, n_top: int, rank_first: bool) -> dict[str, Vector]:
    """The genes of the best ranks: by their median over the batches that choose them, and by how many do.

    `rank_first` says which of the two comes first; the other one decides where that is the same.
    """
    own = ranks(scores).astype(np.float64)
    n_batches = np.sum(own < n_top, axis=1)
    own[own >= n_top] = np.nan
    median = _median(own)
    keys = (np.where(np.isnan(median), np.inf, median), -n_batches.astype(np.float64))
    order = np.lexsort(keys[::-1] if rank_first else keys)
    return {
        "highly_variable": first_of(order, n_top),
        "highly_variable_rank": median,
        "highly_variable_nbatches": n_batches,
    }


def _median(ranks: Vector) -> Vector:
    known = np.sort(ranks, axis=1)  # NaN comes last
    count = np.count_nonzero(~np.isnan(known), axis=1)
    lines = np.arange(len(known))
    lower, upper = known[lines, np.maximum(count - 1, 0) // 2], known[lines, count // 2 % known.shape[1]]
    return np.asarray(np.where(count % 2 == 1, lower, (lower + upper) / 2))


def first_of(order: Vector, n_top: int) -> Vector:
    mask = np.zeros(len(order), bool)
    mask[order[:n_top]] = True
    return mask


DispersionName = Literal["seurat", "cell_ranger"]
Columns = dict[str, Vector]  # what is known of each gene, by the names that scanpy gives it
# What stands for a mean of 0, and the median of the absolute value of a standard normal variable.
TINY: Final = 1e-12
NORMAL_MAD: Final = 0.6744897501960817
# Shares of genes, in percent, at which Cell Ranger cuts the means.
PERCENTILES: Final = np.arange(10, 105, 5)


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


Wanted = int | Cutoffs  # a number of genes, or which ones


def normalised(means: Vector, variances: Vector, flavor: DispersionName, n_bins: int, wanted: Wanted) -> Columns:
    """Means, dispersions, normalised dispersions and the choice, of one batch; what `means` are of, scanpy says.

    Dispersions are variances over means. Seurat: the logarithm, less the mean of its bin over the standard deviation in
    it, of `n_bins` equal bins of ``log(1 + mean)``; a gene alone in its bin has 1. Cell Ranger: less the median over
    the mean absolute deviation, of bins between percentiles of the means.
    """
    means = np.where(means == 0, TINY, means)
    dispersions = variances / means
    with np.errstate(divide="ignore", invalid="ignore"):
        if flavor == "seurat":
            dispersions = np.log(np.where(dispersions == 0, np.nan, dispersions))
            means = np.log1p(means)
            centre, spread = _mean_and_deviation(_equal_bins(means, n_bins), dispersions)
        else:
            centre, spread = _median_and_mad(_percentile_bins(means), dispersions)
        found = (dispersions - centre) / spread
    if isinstance(wanted, Cutoffs):
        chosen = wanted.inside(means, np.nan_to_num(found))
    else:
        chosen = _above_nth(found, wanted)
    return {"means": means, "dispersions": dispersions, "dispersions_norm": found, "highly_variable": chosen}


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


def of_batches(each: list[Columns], wanted: Wanted, order: Vector) -> Columns:
    """What batches say together: genes that most of them choose, and then those of the largest mean dispersion.

    `order` is that of the genes by their names, which decides where both are the same, as in scanpy.
    """
    told: Columns = {}
    for name in ("means", "dispersions", "dispersions_norm"):
        told[name] = _known_mean(np.array([columns[name] for columns in each]))
    n_batches = np.sum([columns["highly_variable"] for columns in each], axis=0)
    if isinstance(wanted, Cutoffs):
        told["dispersions_norm"] = np.nan_to_num(told["dispersions_norm"], posinf=np.inf, neginf=-np.inf)
        chosen = wanted.inside(told["means"], told["dispersions_norm"])
    else:
        falling = -np.where(np.isnan(told["dispersions_norm"]), -np.inf, told["dispersions_norm"])
        place = np.argsort(order)
        chosen = first_of(np.lexsort((place, falling, -n_batches)), wanted)
    counted = {"highly_variable_nbatches": n_batches, "highly_variable_intersection": n_batches == len(each)}
    return told | {"highly_variable": chosen} | counted


def _known_mean(values: Vector) -> Vector:
    there = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(there, values, 0).sum(axis=0) / there.sum(axis=0))


@dataclass(frozen=True, eq=False)
class Counts:
    """The moments of counts; of rows their sums, and how many of their entries are no whole numbers."""

    flavor: str

    def __call__(self, x: Vector, r: Quantities, c: Quantities) -> Looked:
        if x.size and x.min() < 0:
            rest = f" ranks counts, which are at least 0, got {x.min():g}; give it the raw counts"
            raise Refused(flavored(self.flavor), rest)
        return (x, (x != np.rint(x)).astype(np.float64)), (x,)


def flavored(name: str) -> Spelled:
    return Spelled("flavor", name, f"flavor {name}")


@dataclass(frozen=True, eq=False)
class Logarithms:
    """The moments of logarithms, or of what they are the logarithms of; of rows how much is no whole number.

    `entry` makes them of raw counts, if that is what the data are; `base` is that of the logarithms that they hold.
    """

    entry: EntryOf | None
    exponentials: bool
    base: float = 1.0

    def __call__(self, x: Vector, r: Quantities, c: Quantities) -> Looked:
        fractions = (x != np.rint(x)).astype(np.float64)
        y = x if self.entry is None else self.entry(x, r, c)
        with np.errstate(over="ignore"):
            return (fractions,), (np.expm1(y * self.base) if self.exponentials else y,)


@dataclass(frozen=True, eq=False)
class CutOff:
    """The moments of counts that are cut off at a number of their gene and batch."""

    def __call__(self, x: Vector, r: Quantities, c: Quantities) -> Looked:
        return (), (np.minimum(x, c[0]),)


@dataclass(frozen=True, eq=False)
class Residuals:
    """Pearson residuals of counts, and their squares, less those of a zero in their place.

    Rows bring their sum r, columns by batch their rate q and where residuals are cut off: ``mu = r q``.
    """

    theta: float

    def __call__(self, x: Vector, r: Quantities, c: Quantities) -> Looked:
        mu, clip = r[0] * c[0], c[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            deviation = np.sqrt(mu + mu**2 / self.theta)
            z = np.clip((x - mu) / deviation, -clip, clip)
            z_0 = np.maximum(-mu / deviation, -clip)
        there = mu > 0
        return (), (np.where(there, z - z_0, 0), np.where(there, z**2 - z_0**2, 0))


# Accuracy of the interpolated sums over zeros, of the largest residual that a zero can have.
ACCURACY = 1e-13
AT_ONCE = 2**17  # residuals of zeros that are held at a time


def residual_variances(
    A: Operator, sums: Vector, batches: Batches, moments: Panel, theta: float, clip: float | None
) -> Vector:
    """The variance of the residuals of each gene in each batch, shape (n, batches); one read.

    ``z = (x - mu) / sqrt(mu + mu^2 / theta)`` with ``mu = r c / T`` of the batch, cut off at plus and minus `clip`,
    default ``sqrt(m)`` of the batch. `sums` are the r of all rows; `moments` those of all rows of each batch. Genes and
    cells without counts have residuals of 0.

    References
    ----------
    Lause, Berens & Kobak (2021), Analytic Pearson residuals for normalization of single-cell RNA-seq UMI data.
    """
    size, counts = moments[0], moments[0] * moments[1]
    rates = shares(counts)
    cut_off = np.sqrt(batches.sizes) if clip is None else np.full(batches.n, float(clip))
    C = np.stack([rates, np.broadcast_to(cut_off, rates.shape)], axis=2)
    _, found = group_moments(A, Grouped(Residuals(theta), batches.codes, sums[:, None], C, batches.n))
    total, squares = found[0] * found[1], found[0] * found[3]
    for b in range(batches.n):
        zeros = _of_zeros(sums[batches.codes == b], rates[:, b], theta, cut_off[b])
        total[:, b] += zeros[0]
        squares[:, b] += zeros[1]
    return np.asarray(np.maximum(squares / size - (total / size) ** 2, 0))


def _of_zeros(sums: Vector, rates: Vector, theta: float, clip: float) -> tuple[Vector, Vector]:
    """Sums of the residuals that zeros have in rows of these sums, and of their squares, for each gene's rate.

    Both are smooth in the logarithm of the rate, and interpolated there, unless some are cut off.
    """
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


def standardised_variances(A: Operator, batches: Batches, moments: Panel, span: float) -> Vector:
    """The variance of each gene in each batch in units of the expected one, shape (n, batches); one read.

    ``log10 variance`` is expected by a local quadratic regression on ``log10 mean``. Counts are cut off at the mean
    plus sqrt(m) expected standard deviations. `moments` are those of all rows of the batches, shape (3, n, batches).

    References
    ----------
    Stuart, Butler et al. (2019), Comprehensive integration of single-cell data.
    """
    size, mean = moments[0], moments[1]
    variance = moments[2] / (size - 1)
    deviation = np.stack([_expected(mean[:, b], variance[:, b], span) for b in range(batches.n)], axis=1)
    cut_off = mean + deviation * np.sqrt(size)
    _, found = group_moments(
        A, Grouped(CutOff(), batches.codes, np.zeros((A.shape[0], 0)), cut_off[:, :, None], batches.n)
    )
    count, stored_mean, stored_squares = found
    squares = stored_squares + count * (stored_mean - mean) ** 2 + (size - count) * mean**2
    return np.asarray(squares / ((size - 1) * deviation**2))


def _expected(mean: Vector, variance: Vector, span: float) -> Vector:
    varies = variance > 0
    out = np.ones(len(mean))
    if varies.any():
        out[varies] = np.sqrt(10 ** loess(np.log10(mean[varies]), np.log10(variance[varies]), span))
    return out
