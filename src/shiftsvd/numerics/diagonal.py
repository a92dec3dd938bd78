"""Diagonal matrices given by their entries, as weights and scales are; a missing one is all ones."""

import numpy as np

from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import Panel, unmasked


def scaled(scale: Vector | None, V: Panel) -> Panel:
    if scale is None:
        return V
    product: Panel = scale[:, None] * V if V.ndim == 2 else scale * V
    return product


def unscaled(scale: Vector | None, F: Panel) -> Panel | None:
    if scale is None:
        return F
    zero = scale == 0
    return None if np.any(F[zero]) else np.asarray(F / np.where(zero, 1, scale)[:, None])


def conj(scale: Vector | None) -> Vector | None:
    return scale if scale is None or scale.dtype.kind != "c" else np.conj(scale)


def power(scale: Vector | None, weights: Vector | None = None) -> Vector | None:
    if scale is None:
        return weights
    squares = np.abs(scale) ** 2
    return squares if weights is None else squares * weights


def read_only(scale: Vector | None) -> Vector | None:
    if scale is None:
        return None
    view: Vector = unmasked("scales", scale).view()
    view.flags.writeable = False
    return view
