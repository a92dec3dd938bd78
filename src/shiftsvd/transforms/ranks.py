"""Replace entries by their ranks within columns, for principal components of Spearman's correlation."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shiftsvd.algebra import generic
from shiftsvd.numerics.entrywise import Quantities, Values
from shiftsvd.operators import Operator, Panel, Vector
from shiftsvd.transforms.base import Fitted, Transform, require


@dataclass(frozen=True, eq=False)
class Ranks(Transform):
    """Replace each entry by its rank within its column, from 1; ties get the mean of their ranks.

    Parameters
    ----------
    quantiles : int, optional
        Store about this many values of each column, and every value that more than ``m / quantiles`` rows have. The
        error of a rank is then at most ``m / quantiles``. By default all distinct values are stored, 24 bytes each.

    See Also
    --------
    Binarize : Replace entries above a threshold by 1.

    Notes
    -----
    The zeros of a column share one rank, so transformed zeros form a matrix of rank 1. Negative entries rank below
    zeros, -0.0 is zero, and NaN is an error. A value that does not occur in the training data ranks between its
    neighbours, half a rank above the values below it. A weight counts as a number of repeated rows. One read.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.preprocess(np.array([[0.0, 5.0], [2.0, 5.0], [0.0, 7.0]]), ss.Ranks()) @ np.eye(2)
    array([[1.5, 1.5],
           [3. , 1.5],
           [1.5, 3. ]])
    """

    keeps_zeros: ClassVar[bool] = False
    learns: ClassVar[tuple[int, int]] = (3, 1)
    quantiles: int | None = None

    def __post_init__(self) -> None:
        require(self.quantiles is None or self.quantiles >= 2, "quantiles", "be at least 2, or None", self.quantiles)

    def learn_rows(self, A: Operator, weights: Vector, tol: float) -> tuple[Fitted, Panel]:
        (m, n), total = A.shape, float(weights.sum())
        lines, values, counts = generic.entry_values(A, Values(_frequency, weights[:, None], np.zeros((n, 0))))
        # Store zero as a value of each column, also if no row has it.
        zeros = np.maximum(total - np.bincount(lines, counts, minlength=n), 0)
        lines, values = np.r_[lines, np.arange(n)], np.r_[values, np.zeros(n)]
        counts = np.r_[counts, zeros]
        order = np.lexsort((values, lines))
        lines, values, counts = lines[order], values[order], counts[order]
        above = np.cumsum(counts)
        starts, ends = _row_ranges(lines, n)
        below = above - counts - (above - counts)[starts][lines]
        if self.quantiles is not None:
            step = total / self.quantiles
            place = below // step
            new = np.r_[True, (place[1:] != place[:-1]) | (lines[1:] != lines[:-1])]
            kept = new | (counts > step) | (values == 0)
            lines, values, counts, below = lines[kept], values[kept], counts[kept], below[kept]
            starts, ends = _row_ranges(lines, n)
        zero = values == 0
        rank = below[zero] + (counts[zero] + 1) / 2
        columns, table = np.stack([starts, ends, rank], axis=1), np.stack([values, below, counts]).T
        return Fitted(self, columns, np.array([total]), rank[:, None], None, table), np.zeros((m, 0))

    def entry(self, x: Vector, r: Quantities, c: Quantities, known: Vector, table: Panel | None) -> Vector:
        assert table is not None
        start, end = c[0].astype(np.int64), c[1].astype(np.int64)
        values, below, counts = table.T
        place = first_not_below(x, values, start, end)
        here, before = np.minimum(place, len(values) - 1), np.maximum(place - 1, 0)
        least = np.where(place > start, below.take(before) + counts.take(before), 0)
        most = np.where(place < end, below.take(here), known[0])
        found = (place < end) & (values.take(here) == x)
        rank = np.where(found, below.take(here) + (counts.take(here) + 1) / 2, (least + most + 1) / 2)
        return np.asarray(rank - c[2])


def _frequency(x: Vector, r: Quantities, c: Quantities) -> Vector:
    return r[0]


def _row_ranges(lines: Vector, n: int) -> tuple[Vector, Vector]:
    ends = np.cumsum(np.bincount(lines, minlength=n))
    return np.r_[0, ends[:-1]], ends


def first_not_below(x: Vector, values: Vector, start: Vector, end: Vector) -> Vector:
    """Return the index of the first of the ascending values from `start` to `end` that is not below x."""
    # Counts are mostly 0, 1, 2, ..., so guess the index from the value. Use bisection where the guess is wrong.
    with np.errstate(over="ignore"):  # an overflow is clipped like any large value
        guess = np.clip(x - values.take(start), 0, end - start - 1)
    place: Vector = start + guess.astype(np.int64)
    others = np.flatnonzero(values.take(place) != x)
    place[others] = _bisected(x[others], values, start[others], end[others])
    return place


def _bisected(x: Vector, values: Vector, start: Vector, end: Vector) -> Vector:
    place, step = start, 1 << int((end - start).max(initial=0)).bit_length()
    while step:
        probe = place + step
        smaller = (probe <= end) & (values.take(np.minimum(probe, end) - 1) < x)
        place = np.where(smaller, probe, place)
        step >>= 1
    return place
