"""Dispersions, normalised among genes of about the same mean: the flavors of Seurat and of Cell Ranger."""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from shiftsvd.features.batches import first_of
from shiftsvd.numerics.moments import Vector

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
