"""Local quadratic regression of one variable, with its fit interpolated between a few points (Cleveland's loess)."""

from typing import Final

import numpy as np

from shiftsvd.numerics.moments import Vector

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
