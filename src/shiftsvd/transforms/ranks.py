"""Ranks within columns, ties averaged: principal components by Spearman's correlation."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shiftsvd.algebra import generic
from shiftsvd.numerics.entrywise import Quantities, Values
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Operator, Panel
from shiftsvd.transforms.base import Fitted, Transform


@dataclass(frozen=True, eq=False)
class Ranks(Transform):
    """The rank of each entry within its column, from 1 on; equal entries share the mean of theirs.

    Parameters
    ----------
    quantiles : int, optional
        Keep about so many values of a column, and every value that more than this share of the rows have: ranks are
        then off by at most ``m / quantiles``. By default all distinct values are kept, 24 bytes each.

    Notes
    -----
    The zeros of a column share one rank: what they become is a constant for each column, of rank 1. Negative entries
    come before zeros, -0.0 is zero, NaN is refused. A value that no training row has ranks between its neighbours: half
    a rank above those below it. With weights, rows are repeated. One read.

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
        if self.quantiles is not None and not self.quantiles >= 2:
            raise ValueError(f"quantiles must be at least 2, or None, got {self.quantiles!r}")

    def learn_rows(self, A: Operator, weights: Vector, tol: float) -> tuple[Fitted, Panel]:
        """The values of each column, how many rows are below each, and how many have it."""
        (m, n), total = A.shape, float(weights.sum())
        counted = Values(Frequency(), weights[:, None], np.zeros((n, 0)))
        lines, values, counts = generic.entry_values(A, counted)
        # A zero of every column, too, whether or not some row has it.
        zeros = total - np.bincount(lines, counts, minlength=n)
        lines, values = np.r_[lines, np.arange(n)], np.r_[values, np.zeros(n)]
        counts = np.r_[counts, np.where(zeros > 1e-9 * total, zeros, 0)]
        order = np.lexsort((values, lines))
        lines, values, counts = lines[order], values[order], counts[order]
        above = np.cumsum(counts)
        ends = np.cumsum(np.bincount(lines, minlength=n))
        starts = np.r_[0, ends[:-1]]
        below = above - counts - (above - counts)[starts][lines]
        if self.quantiles is not None:
            step = total / self.quantiles
            place = below // step
            new = np.r_[True, (place[1:] != place[:-1]) | (lines[1:] != lines[:-1])]
            kept = new | (counts > step) | (values == 0)
            lines, values, counts, below = lines[kept], values[kept], counts[kept], below[kept]
            ends = np.cumsum(np.bincount(lines, minlength=n))
            starts = np.r_[0, ends[:-1]]
        zero = values == 0
        rank = below[zero] + (counts[zero] + 1) / 2
        columns, table = np.stack([starts, ends, rank], axis=1), np.stack([values, below, counts], axis=1)
        return Fitted(self, columns, np.array([total]), rank[:, None], None, table), np.zeros((m, 0))

    def entry(self, x: Vector, r: Quantities, c: Quantities, known: Vector, table: Panel | None) -> Vector:
        """The rank less that of a zero."""
        assert table is not None
        start, end = c[0].astype(np.int64), c[1].astype(np.int64)
        lo, hi = start.copy(), end.copy()
        while np.any(lo < hi):  # the first value of the column that is not below x
            middle = (lo + hi) // 2
            smaller = (lo < hi) & (table[np.minimum(middle, len(table) - 1), 0] < x)
            lo, hi = np.where(smaller, middle + 1, lo), np.where(smaller, hi, middle)
        value, below, count = table[np.minimum(lo, len(table) - 1)].T
        before = table[np.maximum(lo - 1, 0)]
        least = np.where(lo > start, before[:, 1] + before[:, 2], 0)
        most = np.where(lo < end, below, known[0])
        rank = np.where((lo < end) & (value == x), below + (count + 1) / 2, (least + most + 1) / 2)
        return np.asarray(rank - c[2])


@dataclass(frozen=True, eq=False)
class Frequency:
    """How often each entry counts: as its row does."""

    def __call__(self, x: Vector, r: Quantities, c: Quantities) -> Vector:
        """The weight of the row."""
        return r[0]
