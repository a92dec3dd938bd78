"""Variances of Pearson residuals of counts, whose zeros are summed by a smooth function of the margins."""

import numpy as np

from shiftsvd.backends.grouped import group_moments
from shiftsvd.features.batches import Batches
from shiftsvd.features.looks import Residuals
from shiftsvd.numerics.grouped import Grouped
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import Panel
from shiftsvd.operators import Operator
from shiftsvd.transforms.base import shares
from shiftsvd.transforms.smooth import chebyshev, interpolation

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
