"""Approximate a smooth function of row and column sums by a matrix of low rank, by interpolation along columns."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, log, pi, sin, sqrt
from typing import Final, Literal

import numpy as np

from shiftsvd.operators import Panel, Vector

SmoothName = Literal["pearson", "deviance"]
# The functions are analytic in the strip |Im t| < pi. The minor axis of the Bernstein ellipse fills this share of it.
STRIP = 0.9
AT_ONCE = 4096  # row or column sums to process at a time
# Grid of logarithms of row sums on which functions are compressed: its step; its start below the logarithms of column
# sums, where f is exp(t / 2) to rounding error; and its end above the largest logarithm.
STEP, BELOW, BEYOND = 0.125, 72.0, 1.0
# Number of points in each direction at which errors are computed; least number of points on a lobe of the error; and
# the factor by which errors between points may exceed those at the points.
CHECKED, LOBE, MARGIN = 400, 5, 2.0
# Accuracy of an entry per unit of tolerance. Entries of residuals are of order 1, and the k-th singular value is
# usually at least a thousandth of the Frobenius norm. `errors` bounds the actual error in any case.
SHARE, LEAST = 1e-4, 1e-14


# The transformed value of a zero over sqrt(theta), for the expectation mu = theta exp(t).
# Pearson: -sqrt(mu) / sqrt(1 + mu / theta). Deviance: -sqrt(2 theta log(1 + mu / theta)).
OF_ZERO: Final[dict[SmoothName, Callable[[Panel], Panel]]] = {
    "pearson": lambda t: -np.exp(-0.5 * np.logaddexp(0, -t)),
    "deviance": lambda t: -np.sqrt(2 * np.logaddexp(0, t)),
}


@dataclass(frozen=True, eq=False)
class Smooth:
    """Approximate ``scale_j f(log r_i + b_j)`` by ``L R^T``, where L depends on the row sums r only.

    f is interpolated at Chebyshev nodes in b, ``f(a + b) = sum_l f(a + t_l) l_l(b)``, so that new rows never need
    extrapolation. The functions ``f(a + t_l)`` of a are compressed to a basis, for row sums up to `largest`.
    """

    name: SmoothName
    offsets: Vector  # b of each column; -inf for columns without counts, and for columns of the Poisson model
    scale: Vector
    largest: float  # largest row sum
    tol: float  # each entry is accurate to SHARE times tol

    def reaching(self, margins: Vector) -> "Smooth":
        most = float(margins.max(initial=0))
        return self if most <= self.largest else replace(self, largest=most)

    def left(self, margins: Vector) -> Panel:
        nodes, mix = self.basis
        distinct, place = np.unique(margins, return_inverse=True)
        L = np.empty((len(distinct), mix.shape[1]))
        with np.errstate(divide="ignore"):
            a = np.log(distinct)
        for lo in range(0, len(a), AT_ONCE):
            part = slice(lo, lo + AT_ONCE)
            L[part] = OF_ZERO[self.name](a[part, None] + nodes) @ mix
        return L[place]

    @cached_property
    def right(self) -> Panel:
        return self._of_columns(lambda M, mix: M @ mix)

    @property
    def right_sizes(self) -> Panel:
        return self._of_columns(lambda M, mix: np.abs(M) @ np.abs(mix))

    def _of_columns(self, f: Callable[[Panel, Panel], Panel]) -> Panel:
        nodes, mix = self.basis
        R, there = np.zeros((len(self.offsets), mix.shape[1])), np.flatnonzero(np.isfinite(self.offsets))
        for lo in range(0, len(there), AT_ONCE):
            part = there[lo : lo + AT_ONCE]
            R[part] = self.scale[part, None] * f(interpolation(nodes, self.offsets[part]), mix)
        return R

    @cached_property
    def basis(self) -> tuple[Vector, Panel]:
        there = np.isfinite(self.offsets)
        lo, hi = float(self.offsets[there].min()), float(self.offsets[there].max())
        b = np.linspace(lo, hi, CHECKED)
        reach = log(self.largest) + BEYOND
        a = np.arange(min(-hi, reach) - BELOW, reach + STEP, STEP)
        exact = OF_ZERO[self.name](a[:, None] + b)
        size = float(np.sqrt(np.mean(self.scale[there] ** 2)))
        accuracy = max(SHARE * self.tol / size, LEAST * float(np.abs(exact).max()))
        nodes = chebyshev(lo, hi, accuracy)
        F, M = OF_ZERO[self.name](a[:, None] + nodes), interpolation(nodes, b)
        V = np.linalg.svd(F, full_matrices=False)[2].T
        ranks = range(1, len(nodes) + 1)
        close = (s for s in ranks if np.abs((F @ V[:, :s]) @ (M @ V[:, :s]).T - exact).max() <= accuracy)
        return nodes, np.ascontiguousarray(V[:, : next(close, len(nodes))])

    def errors(self, margins: Vector, weights: Vector | None) -> Vector:
        out = np.zeros(len(self.offsets))
        there, rows = np.isfinite(self.offsets), margins > 0
        if not there.any() or not rows.any():
            return out
        from scipy.ndimage import maximum_filter  # takes 0.2 s, and few transformations need it

        w = np.ones(len(margins)) if weights is None else weights
        a, row, row_width = probes(np.log(margins[rows]))
        b, column, column_width = probes(self.offsets[there])
        E = maximum_filter(np.abs(self._error(a, b)), (row_width, column_width), mode="nearest")
        squares = np.bincount(row, w[rows], len(a)) @ E**2
        out[there] = MARGIN * self.scale[there] * np.sqrt(squares[column])
        return out

    def _error(self, a: Vector, b: Vector) -> Panel:
        nodes, mix = self.basis
        left = OF_ZERO[self.name](a[:, None] + nodes) @ mix
        return np.asarray(left @ (interpolation(nodes, b) @ mix).T - OF_ZERO[self.name](a[:, None] + b))


def probes(x: Vector) -> tuple[Vector, Vector, int]:
    distinct, place = np.unique(x, return_inverse=True)
    if len(distinct) <= CHECKED:
        return distinct, place, 1
    lo, hi = distinct[0], distinct[-1]
    points = (lo + hi) / 2 - (hi - lo) / 2 * np.cos(np.linspace(0, np.pi, CHECKED))  # as dense at the ends as the nodes
    return points, np.clip(np.searchsorted(points, x), 0, CHECKED - 1), LOBE


def chebyshev(lo: float, hi: float, accuracy: float) -> Vector:
    # The number of nodes q such that the bound of Trefethen (2013), theorem 8.2, meets this accuracy. With h half the
    # length of the interval, f(a + .) is analytic and bounded by M inside the Bernstein ellipse with the smaller
    # semi-axis 0.9 pi / h. With rho the sum of both semi-axes, the error is at most 4 M rho^(1 - q) / (rho - 1).
    half = max((hi - lo) / 2, 1e-3)
    minor = STRIP * pi / half
    rho = minor + sqrt(1 + minor**2)
    bound = 1 / sqrt(sin((1 - STRIP) * pi))
    q = 1 + max(1, ceil(log(4 * bound / ((rho - 1) * accuracy)) / log(rho)))
    return (lo + hi) / 2 + half * np.cos(np.pi * (2 * np.arange(q) + 1) / (2 * q))


def interpolation(nodes: Vector, b: Vector) -> Panel:
    q = len(nodes)
    w = (-1.0) ** np.arange(q) * np.sin((2 * np.arange(q) + 1) * np.pi / (2 * q))
    D = b[:, None] - nodes
    hit = D == 0
    M = w / np.where(hit, 1, D)
    M /= M.sum(axis=1, keepdims=True)
    rows = hit.any(axis=1)
    M[rows] = hit[rows]
    return M
