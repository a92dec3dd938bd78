"""Vectors that users give, one number for each row or column: checked, and copied."""

from typing import Any

import numpy as np

from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import unmasked


def finite_vector(name: str, values: Any, size: int, per: str) -> Vector:
    vector = np.asarray(unmasked(name, values))
    if vector.dtype.kind not in "fciub" or vector.shape != (size,):
        raise ValueError(
            f"{name} must be a numeric vector with one entry per {per}, shape ({size},), "
            f"got {vector.dtype} {vector.shape}"
        )
    vector = vector.astype(np.result_type(vector, np.float64))  # a copy: what the caller does to his is his
    if not np.isfinite(vector).all():
        raise ValueError(f"{name} must be finite, got {int((~np.isfinite(vector)).sum())} NaN or infinite entries")
    return vector


def row_weights(sample_weight: Any, m: int) -> Vector | None:
    if sample_weight is None:
        return None
    weights = np.asarray(unmasked("sample_weight", sample_weight))
    weights = np.full(m, float(weights)) if weights.ndim == 0 else weights
    weights = finite_vector("sample_weight", weights, m, "sample")
    if np.iscomplexobj(weights):
        raise ValueError("sample_weight must be real, got complex numbers")
    if np.any(weights < 0):
        raise ValueError(f"sample_weight must not be negative, got {int((weights < 0).sum())} negative entries")
    if not weights.sum() > 1:
        raise ValueError(
            f"sample_weight counts rows: not all may be zero, and their sum must exceed 1, got {weights.sum():g}"
        )
    return weights
