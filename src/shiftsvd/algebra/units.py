"""Units: A as a power of two times a matrix whose norm is near 1, so that squares of its entries stay in range."""

from typing import NamedTuple

import numpy as np

from shiftsvd.algebra.base import Operator
from shiftsvd.algebra.powers import NOTHING, exponents_of
from shiftsvd.algebra.scaled import times_powers

# Norms of matrices that are multiplied as they are, as exponents of two. Solvers take fourth powers (the Gram matrix
# of a panel of products with A^H A), of residuals too, and LAPACK rounds what is beyond 1e-146 and 1e146 another way
# (dsyevd). Where products are in single precision, their squares alone must be numbers.
DOUBLE_RANGE, SINGLE_RANGE = (-60, 100), (-20, 45)


class Units(NamedTuple):
    """``A = 2^exponent B``: the matrix, its exponent, and the norm of B where it is known."""

    B: Operator
    exponent: int
    norm: float | None


def in_units(A: Operator) -> Units:
    """A itself where its norm is no extreme, else A over a power of two; up to two more reads there."""
    norm = A.frobenius_norm()
    if norm is None:
        return Units(A, 0, None)
    e = unit_of(A, norm)
    if e == 0 and A.strain <= _range_of(A)[1]:
        return Units(A, 0, norm)
    return Units(times_powers(A, 0, -e), e, float(np.ldexp(norm, -e)))


def unit_of(A: Operator, norm: float) -> int:
    """The exponent of a norm, or 0 for one that is no extreme."""
    e, (least, most) = int(exponents_of(norm)), _range_of(A)
    return 0 if least <= e <= most or e == NOTHING or not np.isfinite(norm) else e


def _range_of(A: Operator) -> tuple[int, int]:
    """What A can be multiplied in as it is."""
    return SINGLE_RANGE if A.gram_in_single or np.finfo(A.dtype).bits == 32 else DOUBLE_RANGE
