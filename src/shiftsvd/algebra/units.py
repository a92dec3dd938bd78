"""Units: A as a power of two times a matrix whose norm is near 1, so that squares of its entries stay in range."""

import math
from typing import NamedTuple

import numpy as np

from shiftsvd.algebra.generic import column_exponents
from shiftsvd.algebra.operator import Operator
from shiftsvd.algebra.scaled import times_powers
from shiftsvd.numerics.powers import NOTHING

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
    """A itself where its norm is no extreme, else A over a power of two; up to two more reads there.

    SciPy's operators are multiplied by a few vectors to see. An operator of one's own that does not know its squares
    (`column_squares`) is taken as it is.
    """
    norm = A.frobenius_norm()
    if norm is not None and not math.isfinite(norm):
        raise ValueError(f"the norm of {A!r} leaves the range of numbers; multiply the data by a power of two")
    e = _exponent(A, norm)
    least, most = range_of(A)
    e = 0 if least <= e <= most or e == NOTHING else e
    if e == 0 and A.costs.strain <= most:
        return Units(A, 0, norm)
    return Units(times_powers(A, 0, -e), e, None if norm is None else float(np.ldexp(norm, -e)))


def _exponent(A: Operator, norm: float | None) -> int:
    if norm is not None:
        return math.frexp(norm)[1] if norm > 0 else NOTHING
    exponents = column_exponents(A)
    return 0 if exponents is None else int(exponents.max())


def range_of(A: Operator) -> tuple[int, int]:
    return SINGLE_RANGE if A.costs.gram_in_single or np.finfo(A.dtype).bits == 32 else DOUBLE_RANGE
