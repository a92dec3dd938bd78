"""Column moments: count, mean, and sum of squared deviations; stable, mergeable, float64."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shiftsvd.kernels import kernels_for
from shiftsvd.kernels.twin import PARTS, Array, RawMoments, range_errors_ignored
from shiftsvd.numerics.panels import Vector as Vector

DIGITS = 53  # bits of a double


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of the columns of a matrix, as float64 (or complex128) vectors.

    Parameters
    ----------
    count : float, or array of shape (n,)
        Number of rows, or the sum of their weights; one for each column if entries are missing.
    mean : array of shape (n,)
        Mean of each column.
    M2 : array of shape (n,), or None
        Sum of ``w |x - mean|^2`` over each column; None if it would take more passes.
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

    @range_errors_ignored
    def merge(self, other: "Moments") -> "Moments":
        """Return the moments of the rows of both.

        Parameters
        ----------
        other : Moments
            Moments of other rows with the same columns.

        Returns
        -------
        Moments
            Of all rows; `M2` is None if one of both is None.
        """
        # Chan et al. (1983): E[x^2] - mean^2 loses every digit at mean 1e6 (tests/algebra/test_moments.py).
        count = self.count + other.count
        some = np.where(count > 0, count, 1)
        # A difference of rounded means has a relative error of eps mean/sd: 1e-7 for times in seconds since 1970.
        delta = (other.mean - self.mean) + (other.low - self.low)
        # Start from the mean of the heavier part: its rounding error may exceed the change by a light part.
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
            raise ValueError("This operator cannot compute variances. Pass scale as a vector.")
        free = np.asarray(self.count - ddof)
        return np.asarray(np.where(free > 0, self.M2, 0) / np.where(free > 0, free, 1))


def weight_parts(weights: Vector) -> Array:
    # Split each of m weights into three parts, (m, 3), such that sums of the first two are exact. The weight of the
    # rows with zeros in a column is ``sum(all) - sum(stored)``: a rounding error of 1e-13 would count as a row of zeros
    # in a full column. Parts are multiples of a power of two such that no sum of m exceeds 2^53 of these units, as in
    # Rump, Ogita & Oishi (2008), Accurate floating-point summation.
    m, w = len(weights), weights
    parts = np.zeros((m, PARTS))
    for p in range(PARTS - 1):
        unit = int(np.frexp(np.abs(w).max(initial=0))[1]) + m.bit_length() - DIGITS
        parts[:, p] = np.ldexp(np.rint(np.ldexp(w, -unit)), unit)
        w = w - parts[:, p]
    parts[:, -1] = w
    return parts


def of_stored(parts: Array | None, m: int, raw: RawMoments) -> Moments:
    total = m if parts is None else parts.sum(axis=0).sum()
    return replace(merge_zeros(from_raw(raw), weight_of_zeros(parts, m, raw[0])), count=float(total))


def from_raw(raw: RawMoments) -> Moments:
    stored, mean, correction, squares = raw
    mean, low = _rounded(mean, correction)
    return Moments(_row_sums(stored), mean, squares, low)


def _row_sums(parts: Array) -> Vector:
    # ``parts.sum(axis=1)`` has the same bits, and takes 50 times as long for 90,000 rows.
    sums = parts[:, 0].copy()
    for column in parts.T[1:]:
        sums += column
    return sums


def _rounded(x: Vector, y: Vector) -> tuple[Vector, Vector]:
    # Return x + y and the rounding error of this sum (Dekker 1971).
    total = x + y
    return total, y - (total - x)


def merge_zeros(moments: Moments, weight: Vector | float) -> Moments:
    return moments.merge(Moments(weight, np.zeros(1), np.zeros(1)))  # zeros of all columns


def weight_of_zeros(parts: Array | None, m: int, stored: Array) -> Vector:
    if parts is None:
        return np.asarray(m - stored[:, 0])
    weight = _row_sums(parts.sum(axis=0) - stored)
    # Sums of the last parts, which are below 2^-70 of the weights, depend on the order of summation.
    rounding = 2 * m * np.finfo(np.float64).eps * np.abs(parts[:, -1]).sum()
    return np.where(weight > rounding, weight, 0)


@range_errors_ignored
def of_block(block: Vector, weights: Vector | None = None) -> Moments:
    total = float(len(block) if weights is None else weights.sum())
    mean, deviations, squares = kernels_for(block.dtype).dense_moments(block, weights, total if total > 0 else 1.0)
    return _corrected(total, mean, deviations, squares)


@range_errors_ignored
def of_observed(block: Vector, weights: Vector | None = None) -> Moments:
    w = np.ones(len(block)) if weights is None else weights
    seen = ~np.isnan(block)
    count = w @ seen
    dtype = np.result_type(block.dtype, np.float64)
    mean = w @ np.where(seen, block, 0).astype(dtype, copy=False) / np.where(count > 0, count, 1)
    x = np.where(seen, block - mean, 0)
    return _corrected(count, mean, w @ x, w @ _square(x))


def _corrected(count: float | Vector, mean: Vector, deviations: Vector, squares: Vector) -> Moments:
    # Sums of deviations measure the rounding error of the mean, so that a constant column has variance 0.
    correction = deviations / np.where(np.asarray(count) > 0, count, 1)
    mean, low = _rounded(mean, correction)
    return Moments(count, mean, np.maximum(squares - count * _square(correction), 0), low)


def _square(x: Vector) -> Vector:
    return np.asarray(x.real**2 + x.imag**2 if np.iscomplexobj(x) else x * x)
