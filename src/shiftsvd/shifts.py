"""What is subtracted and what is divided by: shifts and scales from their names."""

import warnings
from typing import Any

import numpy as np

from shiftsvd.moments import Moments, Vector
from shiftsvd.operators import LowRank, Operator

SHIFTS = 'None, "mean", a vector, a LowRank or an Operator'
SCALES = 'None, "std", "pareto" or a vector'


def resolve_shift(shift: Any, shape: tuple[int, int], moments: Moments | None) -> Operator | None:
    """The shift as an operator of the given shape; None if there is none."""
    m, n = shape
    if shift is None:
        return None
    if isinstance(shift, Operator):
        if shift.shape != shape:
            raise ValueError(f"the shift has shape {shift.shape}, the matrix {shape}: they must be equal")
        return shift
    if isinstance(shift, str):
        if shift != "mean" or moments is None:
            raise ValueError(f"shift must be {SHIFTS}, got {shift!r}")
        return LowRank(np.ones(m), moments.mean.conj())
    mu = finite_vector("shift", shift, n, "feature")
    return LowRank(np.ones(m), mu.conj())


def resolve_scale(scale: Any, n: int, moments: Moments | None) -> Vector | None:
    """What the n columns are divided by; None if nothing."""
    if scale is None or scale is False:
        return None
    if scale is True or isinstance(scale, str):
        if scale not in (True, "std", "pareto") or moments is None:
            raise ValueError(f"scale must be {SCALES}, got {scale!r}")
        deviation = _deviations(moments)
        return np.sqrt(deviation) if scale == "pareto" else deviation
    divisor = finite_vector("scale", scale, n, "feature")
    if np.iscomplexobj(divisor) or np.any(divisor <= 0):
        raise ValueError(f"scale must be positive, got {int(np.sum(~(divisor.real > 0)))} entries that are not")
    return divisor


def _deviations(moments: Moments) -> Vector:
    """Standard deviations (ddof 0), 1 for columns without variance."""
    variance = moments.variance(ddof=0)
    # What rounding leaves of a constant column: as scikit-learn judges it.
    rounding = moments.count * np.finfo(np.float64).eps
    constant = variance <= rounding * variance + (rounding * np.abs(moments.mean)) ** 2
    if constant.any():
        warnings.warn(f"{int(constant.sum())} columns have no variance and are not scaled", stacklevel=4)
    return np.where(constant, 1.0, np.sqrt(np.where(constant, 1.0, variance)))


def finite_vector(name: str, values: Any, size: int, per: str) -> Vector:
    """A finite numeric vector of the given length, in double precision."""
    vector = np.asarray(values)
    if vector.dtype.kind not in "fciub" or vector.shape != (size,):
        raise ValueError(
            f"{name} must be a numeric vector with one entry per {per}, shape ({size},), "
            f"got {vector.dtype} {vector.shape}"
        )
    vector = vector.astype(np.result_type(vector, np.float64))  # a copy: what the caller does to his is his
    if not np.isfinite(vector).all():
        raise ValueError(f"{name} must be finite, got {int((~np.isfinite(vector)).sum())} NaN or infinite entries")
    return vector
