"""Gaps: a matrix of which some entries are missing, whatever it is stored in."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from shiftsvd.backends.blocked import Rows, cut
from shiftsvd.backends.dense import BLOCK, native_dtype
from shiftsvd.backends.not_finite import Found, NotFinite
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
        """Rows and columns (m, n) of the matrix with gaps."""
        m, n = self.X.shape
        return int(m), int(n)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the observed entries."""
        return native_dtype(self.X.dtype)

    @property
    def stored(self) -> int:
        """The numbers that a pass reads, NaN among them."""
        return self.shape[0] * self.shape[1]

    @abstractmethod
    def filled(self, S: LowRank) -> Operator:
        """The observed entries, and those of S where there are none."""

    @abstractmethod
    def absent(self, W: Panel, rows: Rows) -> Panel:
        """``M[rows] W`` of shape (hi - lo, p), where M is 1 at the missing entries and 0 elsewhere."""

    @abstractmethod
    def absent_below(self, w: Vector) -> Vector:
        """``M^T w`` of shape (n,), with M as in `absent`."""

    @abstractmethod
    def hide(self, rng: np.random.Generator, share: float = TENTH) -> Hidden:
        """This matrix without a share of its observed entries, and the positions and values of that share."""

    def row_blocks(self, width: int = 1) -> list[Rows]:
        """Ranges of rows that a panel of so many columns stays small on."""
        return cut(self.shape[0], BLOCK // width)

    def observed(self) -> tuple[Vector, Vector]:
        """How many entries of each row and of each column are observed."""
        ones = np.ones((self.shape[1], 1))
        absent = [self.absent(ones, rows)[:, 0] for rows in self.row_blocks()]
        return self.shape[1] - np.concatenate(absent), self.shape[0] - self.absent_below(np.ones(self.shape[0]))

    def n_missing(self) -> int:
        """How many entries are missing; one pass."""
        return round(float(self.absent_below(np.ones(self.shape[0])).sum()))

    def moments(self, weights: Vector | None = None) -> Moments:
        """Moments of the observed entries of each column; `count` has one entry a column. One pass."""
        moments = self.observed_moments(np.ones(self.shape[0]) if weights is None else weights)
        nothing = ~(np.asarray(moments.count) > 0)
        if nothing.any():
            raise _nothing_observed(np.flatnonzero(nothing), self.shape[0])
        return moments

    @abstractmethod
    def observed_moments(self, w: Vector) -> Moments:
        """Moments of the observed entries with these weights of the rows, counts of 0 where there are none."""


class HeldGaps(Gaps):
    """Gaps of a matrix in memory, of which other entries can be made missing without a change of the matrix."""

    def draw(self, rng: np.random.Generator, share: float) -> tuple[Vector, Vector]:
        """Rows and columns of a share of the places, stored or not, at random, each once, in order, for `hide`."""
        m, n = self.shape
        return np.divmod(np.unique(rng.integers(0, m * n, min(int(m * n * share), HIDDEN))), n)

    @abstractmethod
    def at(self, i: Vector, j: Vector) -> Vector:
        """Entries (i, j), NaN where they are missing."""

    @abstractmethod
    def without(self, i: Vector, j: Vector) -> Gaps:
        """The same matrix with the observed entries (i, j) missing."""

    def hide(self, rng: np.random.Generator, share: float = TENTH) -> Hidden:
        """Every observed entry has the same chance, but that no row or column loses its last one."""
        i, j = self.draw(rng, share)
        x = self.at(i, j)
        there = np.flatnonzero(~is_missing(x))
        kept = there[_spared(i[there], j[there], *self.observed(), rng)]
        i, j = i[kept], j[kept]
        return self.without(i, j), i, j, x[kept]


Observed = Operator | Gaps  # a matrix: with missing entries where there is something to stand for them


def _spared(i: Vector, j: Vector, in_row: Vector, in_column: Vector, rng: np.random.Generator) -> Vector:
    """Mask of the entries (i, j) that can be hidden together: each row and column with an entry keeps one."""
    order = rng.permutation(len(i))
    kept = np.empty(len(i), bool)
    rows, columns = i[order], j[order]
    kept[order] = (_earlier(rows) < in_row[rows] - 1) & (_earlier(columns) < in_column[columns] - 1)
    return kept


def _earlier(labels: Vector) -> Vector:
    """How many equal labels come before each."""
    order = np.argsort(labels, kind="stable")
    ascending = labels[order]
    found = np.empty(len(labels), np.int64)
    found[order] = np.arange(len(labels)) - np.searchsorted(ascending, ascending)
    return found


def is_missing(x: Vector) -> Vector:
    """Where numbers of any kind are NaN."""
    return np.isnan(x) if x.dtype.kind in "fc" else np.zeros(x.shape, bool)


def some(places: Vector, rng: np.random.Generator, share: float) -> Vector:
    """A share of the places, sorted."""
    return np.sort(rng.choice(places, min(int(len(places) * share), HIDDEN), replace=False))


def _nothing_observed(which: Vector, m: int) -> NotFinite:
    """Say which columns have no entry at all."""
    columns = np.stack([which, np.full_like(which, m)])
    return NotFinite(Found(m * len(which), 0, columns[:, :0], columns, gaps=True, nothing_else=True))
