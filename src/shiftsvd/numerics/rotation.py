"""Rotation of loadings to simple structure: varimax by planar rotations, and promax, which starts from it."""

from typing import NamedTuple

import numpy as np

from shiftsvd.numerics.panels import Panel, Vector

ANGLE_TOL = 1e-9  # converged if no angle of a sweep is larger, in radians; the criterion changes by its square
# Rows shorter than this, relative to the longest, count as 0 and are ignored.
ZERO_ROW = 1e-12


class Rotated(NamedTuple):
    """Rotated loadings ``L T``."""

    loadings: Panel
    T: Panel
    n_iter: int
    converged: bool


def varimax(L: Panel, kaiser: bool, max_iter: int) -> Rotated:
    # Maximize `varimax_criterion` of ``L T`` over orthogonal T, by sweeps over all pairs of columns. Kaiser (1958)
    # gives the best angle for two columns in closed form, so no sweep lowers the criterion.
    B, T = _nonzero_rows(L, kaiser), np.eye(L.shape[1])
    for sweep in range(1, max_iter + 1):
        largest = max((_turn_pair(B, T, i, j) for j in range(B.shape[1]) for i in range(j)), default=0.0)
        if largest <= ANGLE_TOL:
            return Rotated(L @ T, T, sweep, True)
    return Rotated(L @ T, T, max_iter, False)


def _turn_pair(B: Panel, T: Panel, i: int, j: int) -> float:
    x, y = B[:, i], B[:, j]
    u, v = x * x - y * y, 2 * x * y
    a, b = u.sum(), v.sum()
    sine = 2 * (u @ v) - 2 * a * b / len(B)
    cosine = u @ u - v @ v - (a * a - b * b) / len(B)
    # If both are 0 up to rounding, every angle gives the same criterion: do not rotate.
    if np.hypot(sine, cosine) <= np.finfo(np.float64).eps * (u @ u + v @ v):
        return 0.0
    angle = float(np.arctan2(sine, cosine)) / 4
    plane = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    B[:, [i, j]] = B[:, [i, j]] @ plane
    T[:, [i, j]] = T[:, [i, j]] @ plane
    return abs(angle)


def promax(L: Panel, power: float, kaiser: bool, max_iter: int) -> Rotated:
    # Hendrickson & White (1964): varimax, then an oblique least-squares fit to powers of the rotated loadings, which
    # shrinks small loadings, with scores of unit variance.
    first = varimax(L, kaiser, max_iter)
    B = _nonzero_rows(first.loadings, kaiser)
    T = np.linalg.lstsq(B, B * np.abs(B) ** (power - 1), rcond=None)[0]
    T = T * np.sqrt(np.diagonal(np.linalg.inv(T.T @ T)))
    return Rotated(first.loadings @ T, first.T @ T, first.n_iter, first.converged)


def varimax_criterion(L: Panel, kaiser: bool = True) -> float:
    return float(np.var(_nonzero_rows(L, kaiser) ** 2, axis=0).sum())


def _nonzero_rows(L: Panel, kaiser: bool) -> Panel:
    lengths: Vector = np.linalg.norm(L, axis=1, keepdims=True)
    nonzero = lengths[:, 0] > ZERO_ROW * lengths.max()
    return np.asarray(L[nonzero] / lengths[nonzero] if kaiser else L[nonzero])
