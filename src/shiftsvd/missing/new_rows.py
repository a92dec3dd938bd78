"""What PCA puts at the missing entries of rows that it projects."""

from typing import Any

import numpy as np

from shiftsvd.missing.fits import with_missing
from shiftsvd.missing.gaps import Gaps, Observed
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import LowRank, Operator, Panel, Scaled, repeated
from shiftsvd.runs.memory import Resources

# Least and largest ridge: a row with fewer observed entries than components still has one solution.
LEAST, MOST = 1e-9, 1e9


def given(X: Any, shift: Any, missing: str, unobserved: bool, resources: Resources) -> Observed:
    if missing != "error" and not (shift is None or (isinstance(shift, str) and shift == "mean")):
        raise ValueError(f'missing={missing!r} of PCA is for shift="mean" or None, got {shift!r}')
    return with_missing(X, missing, unobserved, resources)


def mean_rows(gaps: Gaps, mean: Vector) -> Operator:
    return gaps.filled(repeated(mean, gaps.shape[0]))


def regressed_rows(
    gaps: Gaps, mean: Vector, scale: Vector | None, components: Panel, variances: Vector, noise: float
) -> Operator:
    """Rows whose missing entries are those that the components give them, from a regression on the observed ones.

    With V the components at the observed entries of a row, x those entries about the mean and in units of the scale:
    ``y = (V^H V + diag(ridge))^-1 V^H x``, ``ridge = noise / (variance - noise)``, which is how far probabilistic
    PCA trusts each component. Rows without gaps keep their scores ``V^H x``.
    """
    V = components.T.astype(np.float64)
    ridge = np.clip(noise / np.maximum(variances - noise, noise / MOST + np.finfo(float).tiny), LEAST, MOST)
    ones = np.ones(gaps.shape[0])
    off = mean_rows(gaps, mean) - LowRank(ones, mean)
    Y = (off if scale is None else Scaled(off, cols=1 / scale)).matmat(V)
    for lo, hi in gaps.row_blocks(V.shape[1] ** 2):
        # Column by column of the small matrices: all products of two components at once could be large.
        G = np.stack([np.eye(V.shape[1])[a] - gaps.absent(V * V[:, [a]], (lo, hi)) for a in range(V.shape[1])], axis=1)
        Y[lo:hi] = np.linalg.solve(G + np.diag(ridge), Y[lo:hi, :, None])[:, :, 0]
    return gaps.filled(LowRank(Y, V if scale is None else scale[:, None] * V).merge(LowRank(ones, mean)))
