"""Variances of counts that are standardised by what a regression on the mean expects: the flavor of Seurat v3."""

import numpy as np

from shiftsvd.backends.grouped import group_moments
from shiftsvd.features.batches import Batches
from shiftsvd.features.loess import loess
from shiftsvd.features.looks import CutOff
from shiftsvd.numerics.grouped import Grouped
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import Panel
from shiftsvd.operators import Operator


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
