"""Column moments: count, mean, and sum of squared deviations; stable, mergeable, float64."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shiftsvd.kernels.groups import unwarned

Vector = npt.NDArray[Any]
# Entries of a block that are looked at in one go: what is made of more leaves the cache, and takes new memory each time
# (2 000 x 200: a millisecond to subtract the means, a twentieth of that in memory that is there).
PIECE = 2**15


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of the columns of a matrix, as float64 (or complex128) vectors.

    Parameters
    ----------
    count : float
        Number of rows, or the sum of their weights.
    mean : array of shape (n,)
        Mean of each column.
    M2 : array of shape (n,), or None
        Sum of ``w |x - mean|^2`` over each column; None where it cannot be had cheaply.

    See Also
    --------
    Operator : ``moments`` gives them.

    References
    ----------
    Chan, Golub & LeVeque (1983), Algorithms for computing the sample variance.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.as_operator(np.array([[1.0, 4.0], [3.0, 4.0]])).moments().mean.tolist()
    [2.0, 4.0]
    """

    count: float
    mean: Vector
    M2: Vector | None

    @unwarned
    def merge(self, other: "Moments") -> "Moments":
        """The moments of the rows of both, as if they had been read together.

        Parameters
        ----------
        other : Moments
            Those of other rows with the same columns.

        Returns
        -------
        Moments
            Of all rows; `M2` is None where one of both has none.
        """
        # Chan et al. (1983): E[x^2] - mean^2 loses every digit at mean 1e6 (tests/algebra/test_moments.py).
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
        """``M2 / (count - ddof)``, per column; 0 where that is no positive number, as in a column with one entry.

        Parameters
        ----------
        ddof : float
            What is subtracted from the count: 1 is the unbiased estimate, 0 the maximum of the likelihood.

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
            raise ValueError("this operator has no second moments; give the scale as a vector")
        free = np.asarray(self.count - ddof)
        return np.asarray(np.where(free > 0, self.M2, 0) / np.where(free > 0, free, 1))


@unwarned
def of_block(block: Vector, weights: Vector | None = None) -> Moments:
    """Moments of the columns of one dense block of shape (rows, n), with one weight for each row; in double."""
    (m, n), dtype = block.shape, np.result_type(block.dtype, np.float64)
    w = np.ones(m) if weights is None else weights
    total = float(w.sum())
    step = max(1, PIECE // max(n, 1))
    pieces = [slice(lo, lo + step) for lo in range(0, m, step)]
    mean, correction, M2 = np.zeros(n, dtype), np.zeros(n, dtype), np.zeros(n)
    for rows in pieces if total > 0 else []:
        mean += w[rows] @ block[rows].astype(dtype, copy=False)
    mean /= total if total > 0 else 1.0
    for rows in pieces:
        off = block[rows] - mean
        correction += w[rows] @ off
        M2 += w[rows] @ (_square(off) if off.dtype.kind == "c" else np.multiply(off, off, out=off))
    # The deviations tell by how much the mean was rounded: a constant column has variance 0, not rounding.
    correction = correction / total if total > 0 else np.zeros(n, dtype)
    return Moments(total, mean + correction, np.maximum(M2 - total * _square(correction), 0))


def _square(x: Vector) -> Vector:
    """``|x|^2`` of each entry, real for complex ones too."""
    return np.asarray(x.real**2 + x.imag**2 if np.iscomplexobj(x) else x * x)
