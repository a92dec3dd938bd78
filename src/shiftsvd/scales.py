"""What columns are divided by, and the moments that it comes from."""

import warnings
from typing import Any

import numpy as np

from shiftsvd.moments import Moments, Vector
from shiftsvd.operators import Operator, repeated
from shiftsvd.vectors import finite_vector

SCALES = 'None, "std", "pareto" or a vector'
# Of operators that only multiply, the squares of so many columns are worth their products, so many at a time.
MOST_COLUMNS, COLUMNS = 1000, 64


def moments_after(A: Operator, S: Operator | None, moments: Moments, weights: Vector | None = None) -> Moments:
    """Moments of the columns of ``A - S``; one read, or none where S is the same for all rows."""
    low = None if S is None else S.as_low_rank()
    mu = low.row_vector() if low is not None else None
    if moments.M2 is not None and (S is None or mu is not None):
        return moments if mu is None else Moments(moments.count, moments.mean - mu, moments.M2)
    mean = moments.mean if S is None else moments.mean - S.moments(weights).mean
    B = A if S is None else A - S
    # The means go inside too: a difference of squares would cancel.
    return Moments(moments.count, mean, _squares(B - repeated(mean, A.shape[0]), weights))


def _squares(A: Operator, weights: Vector | None) -> Vector | None:
    """Squared column norms; of a few columns by products with the identity, where A knows no better."""
    squares, n = A.column_squares(weights), A.shape[1]
    if squares is not None or n > MOST_COLUMNS:
        return squares
    w = np.ones(A.shape[0]) if weights is None else weights
    blocks = (A.matmat(np.eye(n)[:, lo : lo + COLUMNS]) for lo in range(0, n, COLUMNS))
    return np.concatenate([w @ np.abs(block) ** 2 for block in blocks])


def check_scale(scale: Any, n: int, ddof: int) -> None:
    """Refuse what cannot be a scale of n columns, before anything is known of them."""
    resolve_scale(scale, n, Moments(2.0, np.zeros(n), np.ones(n)), ddof=ddof)


def resolve_scale(
    scale: Any, n: int, after: Moments | None, before: Moments | None = None, ddof: int = 0
) -> Vector | None:
    """What the n columns are divided by, from their moments after the shift and before it; None if nothing."""
    if isinstance(ddof, bool) or ddof not in (0, 1):
        raise ValueError(f"scale_ddof must be 0 or 1, got {ddof!r}")
    if scale is None or scale is False:
        return None
    if scale is True or isinstance(scale, str):
        if scale not in (True, "std", "pareto") or after is None:
            raise ValueError(f"scale must be {SCALES}, got {scale!r}")
        deviation = _deviations(after, before or after, ddof)
        return np.sqrt(deviation) if scale == "pareto" else deviation
    divisor = finite_vector("scale", scale, n, "feature")
    if np.iscomplexobj(divisor) or np.any(divisor <= 0):
        raise ValueError(f"scale must be positive, got {int(np.sum(~(divisor.real > 0)))} entries that are not")
    return divisor


def _deviations(after: Moments, before: Moments, ddof: int) -> Vector:
    """Standard deviations, 1 for columns without variance."""
    variance = after.variance(ddof)
    # What rounding leaves of a constant column, as scikit-learn judges it; of a shifted one, by what was shifted.
    rounding = after.count * np.finfo(np.float64).eps
    size = np.abs(before.mean) ** 2 + (0 if before.M2 is None else before.variance(0))
    constant = variance <= rounding * variance + rounding**2 * size
    if constant.any():
        warnings.warn(f"{int(constant.sum())} columns have no variance and are not scaled", stacklevel=4)
    return np.where(constant, 1.0, np.sqrt(np.where(constant, 1.0, variance)))
