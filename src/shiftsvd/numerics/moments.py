"""Column moments: count, mean, and sum of squared deviations; stable, mergeable, float64."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shiftsvd.kernels.groups import unwarned

Vector = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of the columns of a matrix, as float64 (or complex128) vectors.

    Attributes
    ----------
    count : float
        Number of rows, or the sum of their weights.
    mean : array of shape (n,)
        Mean of each column.
    M2 : array of shape (n,), or None
        Sum of ``w |x - mean|^2`` over each column; None where it cannot be had cheaply.

    References
    ----------
    Chan, Golub & LeVeque (1983), Algorithms for computing the sample variance.
    """

    count: float
    mean: Vector
    M2: Vector | None

    @unwarned
    def merge(self, other: "Moments") -> "Moments":
        """Moments of the rows of both, as if they had been read together."""
        # Chan et al. (1983): E[x^2] - mean^2 loses every digit at mean 1e6 (tests/test_moments.py).
        count = self.count + other.count
        if count == 0:
            return self
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.count / count)
        if self.M2 is None or other.M2 is None:
            return Moments(count, mean, None)
        between = np.abs(delta) ** 2 * (self.count * other.count / count)
        return Moments(count, mean, self.M2 + other.M2 + between)

    def variance(self, ddof: float = 1) -> Vector:
        """``M2 / (count - ddof)``, per column; 0 where that is no positive number, as in a column with one entry."""
        if self.M2 is None:
            raise ValueError("this operator has no second moments; give the scale as a vector")
        free = np.asarray(self.count - ddof)
        return np.asarray(np.where(free > 0, self.M2, 0) / np.where(free > 0, free, 1))


@unwarned
def of_block(block: Vector, weights: Vector | None = None) -> Moments:
    """Moments of the columns of one dense block of shape (rows, n), with one weight for each row."""
    dtype = np.result_type(block.dtype, np.float64)
    block = block.astype(dtype, copy=False)
    w = np.ones(len(block)) if weights is None else weights
    total = float(w.sum())
    mean = w @ block / total if total > 0 else np.zeros(block.shape[1], dtype)
    off = block - mean
    # The deviations tell by how much the mean was rounded: a constant column has variance 0, not rounding.
    correction = w @ off / total if total > 0 else np.zeros(block.shape[1], dtype)
    squares = _square(off) if np.iscomplexobj(off) else np.multiply(off, off, out=off)
    M2 = w @ squares - total * _square(correction)
    return Moments(total, mean + correction, np.maximum(M2, 0))


def _square(x: Vector) -> Vector:
    """``|x|^2``, real."""
    return np.asarray(x.real**2 + x.imag**2 if np.iscomplexobj(x) else x * x)
