"""Multiplication by powers of two, which is exact, so that squares do not overflow or underflow."""

from functools import reduce
from operator import mul
from typing import Any

import numpy as np

from shiftsvd.numerics.panels import Vector

# The exponent of 0, less than that of every other number.
ZERO_EXPONENT = -(2**20)
# Least and largest exponents of factors: 2.0**LEAST and 2.0**MOST are finite and not subnormal.
LEAST, MOST = -1022, 1023
# Largest absolute values whose fourth powers, or whose squares, can be summed without overflow; callers that do not
# divide the data by a power of two raise an error for larger ones.
LARGEST, SQUARED = 2.0**200, 2.0**510
# Sums of squares between these have lost no digits by overflow or underflow of terms.
LEAST_SQUARES, MOST_SQUARES = 2.0**-600, 2.0**600


def two_to(exponents: Vector | int) -> Any:
    return np.ldexp(1.0, np.clip(exponents, LEAST, MOST))


def factors_of(exponents: Vector | int) -> list[Any]:
    # One factor, or two if a power is beyond the range, as that which brings a subnormal number near 1.
    beyond = exponents - np.clip(exponents, LEAST, MOST)
    return [two_to(exponents), two_to(beyond)] if np.any(beyond) else [two_to(exponents)]


def times_two_to(x: Any, exponents: Vector | int) -> Any:
    return reduce(mul, factors_of(exponents), x)


def exponents_of(x: Vector) -> Vector:
    size = np.abs(x)
    return np.where(size > 0, np.frexp(size)[1].astype(np.int64), ZERO_EXPONENT)


def add_exponents(e: Vector | int, f: Vector | int) -> Vector:
    return np.where(np.minimum(e, f) == ZERO_EXPONENT, ZERO_EXPONENT, np.add(e, f))


def check_size(what: str, size: float, largest: float = LARGEST) -> None:
    if size != 0 and not 1 / largest < size < largest:
        raise ValueError(
            f"{what} must be between {1 / largest:.1e} and {largest:.1e} in absolute value, got {size:.3g}. "
            "Multiply the data by a power of two, so that squares stay within the range of float64."
        )


def largest_of(x: Any) -> float:
    entries = x.data if hasattr(x, "nnz") else x
    return max(float(np.max(entries, initial=0)), -float(np.min(entries, initial=0)))


def length(x: Vector) -> float:
    # Euclidean norm, without squares that could overflow or underflow.
    return float(np.hypot.reduce(x, initial=0.0))


def split(x: Vector | None) -> tuple[Vector | None, Vector | int]:
    if x is None:
        return None, 0
    e = np.where(x == 0, 0, exponents_of(x))
    return np.asarray(times_two_to(x, -e)), e


class PowerScaled:
    """``diag(2^rows) X diag(2^cols)`` of an array X, computed in slices of its rows."""

    def __init__(self, X: Any, rows: Vector | int, cols: Vector | int) -> None:
        self.X, self.rows, self.cols = X, rows, cols
        self.shape, self.dtype = X.shape, X.dtype

    @property
    def T(self) -> "PowerScaled":
        return PowerScaled(self.X.T, self.cols, self.rows)

    def __getitem__(self, lines: slice) -> Any:
        # The result is in double precision, like the shift that is subtracted next, because the difference may be
        # small.
        return times(self.X[lines], part_of(self.rows, lines), self.cols)


def part_of(e: Vector | int, lines: slice) -> Vector | int:
    return e if np.ndim(e) == 0 else e[lines]  # type: ignore[index]


def times(X: Any, rows: Vector | int, cols: Vector | int) -> Any:
    out = times_two_to(X, cols) if np.any(cols) else X
    return times_two_to(out, np.reshape(rows, (-1, 1))) if np.any(rows) else out


def times_sparse(X: Any, rows: Vector | int, cols: Vector | int) -> Any:
    e = cols if np.ndim(cols) == 0 else cols[X.indices]  # type: ignore[index]
    data = times_two_to(X.data, e)
    if np.any(rows):
        data = times_two_to(data, rows if np.ndim(rows) == 0 else np.repeat(rows, np.diff(X.indptr)))
    return type(X)((data, X.indices, X.indptr), shape=X.shape)
