"""Variances that leave the range of numbers: what PCA says of them, and what is used in their place."""

from typing import Any

import numpy as np

from shiftsvd.numerics.moments import Vector
from shiftsvd.runs.warned import warn


@np.errstate(over="ignore", under="ignore")
def in_range(explained: Vector, unit: int) -> Vector:
    # Not infinite: files of models, tables and plots hold numbers.
    variances = np.minimum(np.ldexp(explained, 2 * unit), np.finfo(np.float64).max)
    if np.any((explained > 0) & ~_is_number(variances)):
        warn(
            "variances leave the range of float64: explained_variance_ and noise_variance_ are the largest "
            "number there is, or 0 or short of digits; singular_values_, components_, explained_variance_ratio_ and "
            "scores are right",
        )
    return variances


def beyond(S: Vector, variances: Vector) -> bool:
    return bool(len(S) and S[0] > 0 and not _is_number(variances[:1])[0])


def _is_number(variances: Vector) -> Vector:
    ends = np.finfo(variances.dtype)
    return np.asarray((variances >= ends.smallest_normal) & (variances < ends.max))


def deviations(S: Vector, variances: Vector, freedom: float, dtype: Any) -> Vector:
    d = S / np.sqrt(freedom) if beyond(S, variances) else np.sqrt(variances)
    eps, most = np.finfo(dtype).eps, d.max(initial=0)
    return np.asarray(np.maximum(d, eps * (most if most > 0 else 1)))


def refuse_beyond(S: Vector, variances: Vector) -> None:
    if beyond(S, variances):
        raise ValueError(
            f"the variances of this model leave the range of numbers (the first singular value is {S[0]:.3g}), and "
            "likelihoods and covariances need them; fit X times a power of two"
        )
