"""What a completion explains of observed entries that it has not seen, beside what their biases explain."""

import numpy as np

from shiftsvd.missing.descent import State, additive, levels
from shiftsvd.missing.gaps import Gaps, HeldGaps
from shiftsvd.numerics.moments import Vector

# The share of the observed entries that are left out, and the fewest that tell anything: the standard error of R^2 from
# ten is already about a half.
SHARE, LEAST = 0.04, 10

Apart = tuple[Gaps, Vector, Vector, Vector]  # what is fitted; row, column and value of the entries left out


def kept_apart(gaps: Gaps, rng: np.random.Generator) -> Apart | None:
    if not isinstance(gaps, HeldGaps):  # each step reads a file as often as the whole fit of a matrix in memory does
        return None
    apart = gaps.hide(rng, SHARE)
    return apart if len(apart[1]) >= LEAST else None


def explained(apart: Apart, state: State, biases: str | None) -> float | None:
    """``1 - SSE(model) / SSE(biases)`` on the entries left out, both fitted without them.

    None where the biases leave nothing but rounding, of which there is nothing to explain.
    """
    train, i, j, x = apart
    largest = float(np.max(np.abs(x)))
    unit = largest if largest > 0 else 1.0  # squares of the entries themselves may leave the range of numbers
    left, beside = (
        float(np.linalg.norm((x - S.at(i, j)) / unit)) for S in (state.low_rank(), additive(*levels(train, biases)))
    )
    rounding = max(max(train.shape) * np.finfo(np.float64).eps, 10 * np.finfo(train.dtype).eps)
    if beside <= rounding * float(np.linalg.norm(x / unit)):
        return None
    return 1 - (left / beside) ** 2
