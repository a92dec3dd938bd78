"""Gaps: a matrix of which some entries are missing, whatever it is stored in."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from shiftsvd.backends.blocked import Rows, cut
from shiftsvd.backends.dense import BLOCK, native_dtype
from shiftsvd.backends.validation import BadValues, NotFinite
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.operators import LowRank, Operator, Panel

# Observed entries that are kept back to choose a setting: a tenth of them, and no more than tell two settings apart.
TENTH, HIDDEN = 0.1, 100_000

Hidden = tuple["Gaps", Vector, Vector, Vector]  # fewer observed entries; row, column and value of the others


class Gaps(ABC):
    """A matrix of shape (m, n) of which some entries are missing.

    It is no operator before it is said what stands for them: `filled` takes a low-rank matrix S and gives
    ``P_observed(X) + P_missing(S)``, without forming it.
    """

    X: Any  # what holds the entries

    @property
    def shape(self) -> tuple[int, int]:
        m, n = self.X.shape
        return int(m), int(n)

    @property
    def dtype(self) -> np.dtype[Any]:
        return native_dtype(self.X.dtype)

    @property
    def stored(self) -> int:
        return self.shape[0] * self.shape[1]

    @abstractmethod
    def filled(self, S: LowRank) -> Operator: ...

    @abstractmethod
    def absent(self, W: Panel, rows: Rows) -> Panel: ...

    @abstractmethod
    def absent_below(self, w: Vector) -> Vector: ...

    @abstractmethod
    def hide(self, rng: np.random.Generator, share: float = TENTH) -> Hidden: ...

    def row_blocks(self, width: int = 1) -> list[Rows]:
        return cut(self.shape[0], BLOCK // width)

    def observed(self) -> tuple[Vector, Vector]:
        ones = np.ones((self.shape[1], 1))
        absent = [self.absent(ones, rows)[:, 0] for rows in self.row_blocks()]
        return self.shape[1] - np.concatenate(absent), self.shape[0] - self.absent_below(np.ones(self.shape[0]))

    def n_missing(self) -> int:
        return round(float(self.absent_below(np.ones(self.shape[0])).sum()))

    def moments(self, weights: Vector | None = None) -> Moments:
        moments = self.observed_moments(np.ones(self.shape[0]) if weights is None else weights)
        nothing = ~(np.asarray(moments.count) > 0)
        if nothing.any():
            raise _nothing_observed(np.flatnonzero(nothing), self.shape[0])
        return moments

    @abstractmethod
    def observed_moments(self, w: Vector) -> Moments: ...


class HeldGaps(Gaps):
    """Gaps of a matrix in memory, of which other entries can be made missing without a change of the matrix."""

    def draw(self, rng: np.random.Generator, share: float) -> tuple[Vector, Vector]:
        m, n = self.shape
        return np.divmod(np.unique(rng.integers(0, m * n, min(int(m * n * share), HIDDEN))), n)

    @abstractmethod
    def at(self, i: Vector, j: Vector) -> Vector: ...

    @abstractmethod
    def without(self, i: Vector, j: Vector) -> Gaps: ...

    def hide(self, rng: np.random.Generator, share: float = TENTH) -> Hidden:
        i, j = self.draw(rng, share)
        x = self.at(i, j)
        there = np.flatnonzero(~is_missing(x))
        kept = there[_spared(i[there], j[there], *self.observed(), rng)]
        i, j = i[kept], j[kept]
        return self.without(i, j), i, j, x[kept]


Observed = Operator | Gaps  # a matrix: with missing entries where there is something to stand for them


def _spared(i: Vector, j: Vector, in_row: Vector, in_column: Vector, rng: np.random.Generator) -> Vector:
    order = rng.permutation(len(i))
    kept = np.empty(len(i), bool)
    rows, columns = i[order], j[order]
    kept[order] = (_earlier(rows) < in_row[rows] - 1) & (_earlier(columns) < in_column[columns] - 1)
    return kept


def _earlier(labels: Vector) -> Vector:
    order = np.argsort(labels, kind="stable")
    ascending = labels[order]
    found = np.empty(len(labels), np.int64)
    found[order] = np.arange(len(labels)) - np.searchsorted(ascending, ascending)
    return found


def is_missing(x: Vector) -> Vector:
    return np.isnan(x) if x.dtype.kind in "fc" else np.zeros(x.shape, bool)


def some(places: Vector, rng: np.random.Generator, share: float) -> Vector:
    return np.sort(rng.choice(places, min(int(len(places) * share), HIDDEN), replace=False))


def _nothing_observed(which: Vector, m: int) -> NotFinite:
    columns = np.stack([which, np.full_like(which, m)])
    return NotFinite(BadValues(m * len(which), 0, columns[:, :0], columns, gaps=True, nothing_else=True))
