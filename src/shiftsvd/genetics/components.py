"""Components of a cohort: Patterson's matrix of the samples that they are learned on, and everybody on them."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shiftsvd.front import svd
from shiftsvd.genetics.chromosomes import Mask
from shiftsvd.genetics.scan import SelectionScan, selection_scan
from shiftsvd.genetics.selection import Cohort
from shiftsvd.genetics.several import Parts, filled, joined, of_samples, some_of
from shiftsvd.genetics.traces import squared_trace
from shiftsvd.genetics.tracy_widom import TracyWidom, tracy_widom
from shiftsvd.io.opening import operator_of
from shiftsvd.io.stacking import several
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import LowRank, Operator, Panel, Scaled
from shiftsvd.result import SVDResult
from shiftsvd.runs.memory import Resources


class Patterson(NamedTuple):
    """Genotypes of the samples that components are learned on, and what is done to them."""

    A: Operator
    mean: Vector
    scale: Vector
    both: Mask  # variants of which they have both alleles
    total: float  # the trace of the relationship matrix, times the variants used

    @property
    def Z(self) -> Operator:
        return Scaled(self.A - LowRank(np.ones(self.A.shape[0]), self.mean), None, self.both / self.scale)


def patterson_matrix(cohort: Cohort, resources: Resources, stream: bool | None) -> Patterson:
    A, _ = operator_of(cohort.paths, joined(cohort.training), resources, stream)
    moments = A.moments()
    assert moments.M2 is not None
    scale, both = patterson(moments.mean)
    # A monomorphic variant is a constant: minus it, it is 0 and takes no part.
    mean = np.where(both, moments.mean, np.round(moments.mean))
    return Patterson(A, mean, scale, both, float((moments.M2[both] / scale[both] ** 2).sum()))


def decomposed(matrix: Patterson, k: int, resources: Resources, **how: Any) -> SVDResult:
    return svd(matrix.A, k, shift=matrix.mean, scale=matrix.scale, **how, **vars(resources))


def everybody(cohort: Cohort, matrix: Patterson, F: SVDResult, resources: Resources, stream: bool | None) -> Panel:
    """Eigenvectors of all samples: of those that components were learned on, and of the others by projection.

    A missing genotype of a projected sample is the mean of those that were not projected. One read where any is.
    """
    U = F.U.astype(np.float64)
    if cohort.learned is None or cohort.learned.all():
        return U
    others = filled_others(cohort, matrix.mean)
    B, _ = operator_of(cohort.paths, joined(others), resources, stream)
    Z = Scaled(B - LowRank(np.ones(B.shape[0]), matrix.mean), None, matrix.both / matrix.scale)
    S = F.S.astype(np.float64)
    lengths = np.where(S > np.finfo(np.float32).eps * S[0], S, np.inf)
    out = np.empty((len(cohort.learned), len(S)))
    out[cohort.learned] = U
    out[~cohort.learned] = Z.matmat(np.asarray(F.Vh.T)).astype(np.float64) / lengths
    return out


def filled_others(cohort: Cohort, mean: Vector) -> Parts:
    assert cohort.learned is not None
    return of_samples(filled(cohort.parts, mean), ~cohort.learned)


def tested(
    matrix: Patterson, U: Panel, S: Vector, n_used: int, rng: np.random.Generator, resources: Resources
) -> TracyWidom:
    rank = min(matrix.A.shape[0] - 1, n_used)
    squared, error = squared_trace(matrix.Z, U, S, matrix.total, rng, resources)
    return tracy_widom(S**2 / n_used, rank, matrix.total / n_used, squared / n_used**2, error / n_used**2)


def scanned(cohort: Cohort, matrix: Patterson, F: SVDResult, resources: Resources) -> SelectionScan:
    found = selection_scan(some_of(cohort.training, matrix.both), F.U.astype(np.float64), resources)
    used = placed(cohort.kept, matrix.both, False)
    z, statistics, p = (placed(used, part, np.nan) for part in (found.z_scores, found.statistics, found.p_values))
    return SelectionScan(z, statistics, found.inflation, p)


def placed(kept: Mask, values: npt.NDArray[Any], rest: bool | float) -> npt.NDArray[Any]:
    out = np.full((len(kept), *values.shape[1:]), rest)
    out[kept] = values
    return out


def patterson(mean: Vector) -> tuple[Vector, Mask]:
    p = mean / 2
    # A frequency that is not 0 or 1 is at least one allele among all samples away from it.
    used = (p > 1e-12) & (p < 1 - 1e-12)
    return np.sqrt(2 * p * (1 - p), out=np.ones_like(p), where=used), used


def check_rank(cohort: Cohort, matrix: Patterson, k: Any) -> None:
    path, (m, n), n_used = several(cohort.paths), matrix.A.shape, int(np.count_nonzero(matrix.both))
    if m < 2:
        raise ValueError(f"{path} must have at least 2 samples, got {m}; `GenotypePCA.project` takes single ones")
    if not n_used:
        raise ValueError(
            f"{path} must have variants of which its samples have both alleles, got {n} that are monomorphic "
            f'and {cohort.removed.get("chromosomes", 0)} not on autosomes, which chromosomes "all" would keep'
        )
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise ValueError(f"k must be a number of components, an integer, got {k!r}")
    most = min(m - 1, n_used)
    if not 1 <= k <= most:
        counts = f"{m} samples x {n_used} variants that take part"
        raise ValueError(f"{path}: k must be in 1..{most} for {counts}, got {k}")
