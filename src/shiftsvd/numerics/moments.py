"""Column moments: count, mean, and sum of squared deviations; stable, mergeable, float64."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shiftsvd.kernels.twin import PARTS, Array, Found, unwarned

Vector = npt.NDArray[Any]
# Entries of a block that are subtracted and squared at a time: more would leave the cache and take new memory each time
# (2 000 x 200: 1 ms to subtract the means, 0.05 ms in memory that is allocated already).
PIECE = 2**16
DIGITS = 53  # binary ones of a double


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of the columns of a matrix, as float64 (or complex128) vectors.

    Parameters
    ----------
    count : float, or array of shape (n,)
        Number of rows, or the sum of their weights; one for each column where entries are missing.
    mean : array of shape (n,)
        Mean of each column.
    M2 : array of shape (n,), or None
        Sum of ``w |x - mean|^2`` over each column; None where it cannot be had cheaply.
    low : array of shape (n,), or 0
        Rounding error of the mean, as far as it is known.

    See Also
    --------
    Operator : Its ``moments`` computes these.

    References
    ----------
    Chan, Golub & LeVeque (1983), Algorithms for computing the sample variance.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.as_operator(np.array([[1.0, 4.0], [3.0, 4.0]])).moments().mean.tolist()
    [2.0, 4.0]
    """

    count: Any  # a number, or one for each column
    mean: Vector
    M2: Vector | None
    low: float | Vector = 0.0

    @unwarned
    def merge(self, other: "Moments") -> "Moments":
        """Return the moments of the rows of both.

        Parameters
        ----------
        other : Moments
            Moments of other rows with the same columns.

        Returns
        -------
        Moments
            Of all rows; `M2` is None where one of both is None.
        """
        # Chan et al. (1983): E[x^2] - mean^2 loses every digit at mean 1e6 (tests/algebra/test_moments.py).
        count = self.count + other.count
        some = np.where(count > 0, count, 1)
        # A distance of rounded means errs by eps mean/sd: by 1e-7 for times in seconds since 1970.
        delta = (other.mean - self.mean) + (other.low - self.low)
        # From the mean of the heavier part, whose rounding error may exceed all that a light part adds.
        lighter = self.count < other.count
        step = delta * np.where(lighter, -(self.count / some), other.count / some)
        heavy, low = np.where(lighter, other.mean, self.mean), np.where(lighter, other.low, self.low)
        mean, low = _rounded(heavy, low + step)
        if self.M2 is None or other.M2 is None:
            return Moments(count, mean, None, low)
        between = np.abs(delta) ** 2 * (self.count * (other.count / some))
        return Moments(count, mean, self.M2 + other.M2 + between, low)

    def variance(self, ddof: float = 1) -> Vector:
        """Return ``M2 / (count - ddof)`` per column; 0 where ``count - ddof`` is not positive, as for one entry.

        Parameters
        ----------
        ddof : float
            Subtracted from the count: 1 gives the unbiased estimate, 0 the maximum of the likelihood.

        Returns
        -------
        array of shape (n,)
            The variance of each column.

        Raises
        ------
        ValueError
            If there are no second moments.
        """
        if self.M2 is None:
            raise ValueError("this operator cannot compute variances; pass scale as a vector")
        free = np.asarray(self.count - ddof)
        return np.asarray(np.where(free > 0, self.M2, 0) / np.where(free > 0, free, 1))


def weight_parts(weights: Vector) -> Array:
    # Three parts of each of m weights, (m, 3), that add up to the weight; sums of the first two are exact. ``sum(all) -
    # sum(some)`` cancels where few rows are left: 1e-13 of rounding would count as rows of zeros in a column that has
    # none. Parts are multiples of a power of two such that no sum of m exceeds 2^53 of these units, as in Rump, Ogita &
    # Oishi (2008), Accurate floating-point summation.
    m, w = len(weights), weights
    parts = np.zeros((m, PARTS))
    for p in range(PARTS - 1):
        unit = int(np.frexp(np.abs(w).max(initial=0))[1]) + m.bit_length() - DIGITS
        parts[:, p] = np.ldexp(np.rint(np.ldexp(w, -unit)), unit)
        w = w - parts[:, p]
    parts[:, -1] = w
    return parts


def of_stored(parts: Array | None, m: int, found: Found) -> Moments:
    total = m if parts is None else parts.sum(axis=0).sum()
    return replace(beside_zeros(observed(found), left_over(parts, m, found[0])), count=float(total))


def observed(found: Found) -> Moments:
    stored, mean, correction, squares = found
    mean, low = _rounded(mean, correction)
    return Moments(stored.sum(axis=1), mean, squares, low)


def _rounded(x: Vector, more: Vector) -> tuple[Vector, Vector]:
    both = x + more
    return both, more - (both - x)


def beside_zeros(moments: Moments, weight: Vector | float) -> Moments:
    return moments.merge(Moments(weight, np.zeros_like(moments.mean), np.zeros(len(moments.mean))))


def left_over(parts: Array | None, m: int, taken: Array) -> Vector:
    if parts is None:
        return np.asarray(m - taken[:, 0])
    left = (parts.sum(axis=0) - taken).sum(axis=1)
    # The last part, below 2^-70 of the weights, depends on the order of its sum.
    rounding = 2 * m * np.finfo(np.float64).eps * np.abs(parts[:, -1]).sum()
    return np.where(left > rounding, left, 0)


@unwarned
def of_block(block: Vector, weights: Vector | None = None) -> Moments:
    (m, n), dtype = block.shape, np.result_type(block.dtype, np.float64)
    w = np.ones(m) if weights is None else weights
    total = float(w.sum())
    step = max(1, PIECE // max(n, 1))
    pieces = [slice(lo, lo + step) for lo in range(0, m, step)]
    mean, off_mean, M2 = np.zeros(n, dtype), np.zeros(n, dtype), np.zeros(n)
    for rows in pieces if total > 0 else []:
        mean += w[rows] @ block[rows].astype(dtype, copy=False)
    mean /= total if total > 0 else 1.0
    for rows in pieces:
        off = block[rows] - mean
        off_mean += w[rows] @ off
        M2 += w[rows] @ (_square(off) if off.dtype.kind == "c" else np.multiply(off, off, out=off))
    return _corrected(total, mean, off_mean, M2)


@unwarned
def of_observed(block: Vector, weights: Vector | None = None) -> Moments:
    w = np.ones(len(block)) if weights is None else weights
    seen = ~np.isnan(block)
    count = w @ seen
    dtype = np.result_type(block.dtype, np.float64)
    mean = w @ np.where(seen, block, 0).astype(dtype, copy=False) / np.where(count > 0, count, 1)
    off = np.where(seen, block - mean, 0)
    return _corrected(count, mean, w @ off, w @ _square(off))


def _corrected(count: float | Vector, mean: Vector, off_mean: Vector, squares: Vector) -> Moments:
    # A constant column has variance 0, not rounding.
    correction = off_mean / np.where(np.asarray(count) > 0, count, 1)
    mean, low = _rounded(mean, correction)
    return Moments(count, mean, np.maximum(squares - count * _square(correction), 0), low)


def _square(x: Vector) -> Vector:
    return np.asarray(x.real**2 + x.imag**2 if np.iscomplexobj(x) else x * x)
