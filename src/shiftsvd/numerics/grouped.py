"""Moments of columns within groups of rows: what is looked at, and how parts of the rows are put together."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shiftsvd.kernels.twin import grouped_moments
from shiftsvd.numerics.entrywise import Quantities
from shiftsvd.numerics.moments import Moments, Vector, observed
from shiftsvd.numerics.panels import Panel

# ``f(x, r, c)``: numbers of each entry to be summed over its row, and numbers whose moments are those of its column.
Looked = tuple[tuple[Vector, ...], tuple[Vector, ...]]
Look = Callable[[Vector, Quantities, Quantities], Looked]
Parts = tuple[Panel, Panel]  # sums of rows, (m, p); moments of the stored entries, (1 + 2 q, n, groups)


@dataclass(frozen=True, eq=False)
class Grouped:
    """A function of entries, the groups that rows are in, and what it has to know of rows, and of columns by group.

    Attributes
    ----------
    f : callable
    codes : array of int, shape (m,)
        The group of each row, from 0 on.
    R : array of shape (m, p)
    C : array of shape (n, n_groups, q)
    n_groups : int
    across : bool
        Whether the matrix that it is asked of is the transpose: its columns are in groups, then.
    """

    f: Look
    codes: Vector
    R: Panel
    C: Panel
    n_groups: int
    across: bool = False

    @property
    def H(self) -> "Grouped":
        return replace(self, across=not self.across)

    @property
    def lines(self) -> tuple[Vector, ...]:
        return (self.C,) if self.across else (self.codes, self.R)

    def with_lines(self, *lines: Vector) -> "Grouped":
        if self.across:
            return replace(self, C=lines[0])
        return replace(self, codes=lines[0], R=lines[1])

    def part(self, lo: int, hi: int) -> "Grouped":
        return self.with_lines(*(of_lines[lo:hi] for of_lines in self.lines))

    def of(self, x: Vector, i: Vector, j: Vector) -> Parts:
        if self.across:
            i, j = j, i
        place = j.astype(np.int64, copy=False) * self.n_groups + self.codes.take(i)
        r = tuple(column.take(i) for column in self.R.T)
        m, (n, groups, q) = len(self.codes), self.C.shape
        c = tuple(column.take(place) for column in self.C.reshape(n * groups, q).T)
        sums, values = self.f(x, r, c)
        of_rows = np.array([np.bincount(i, each, minlength=m) for each in sums]).reshape(len(sums), m).T
        return of_rows, _moments(place, values, n * groups).reshape(-1, n, groups)

    def joined(self, a: Parts, b: Parts) -> Parts:
        if self.across:
            return a[0] + b[0], np.concatenate([a[1], b[1]], axis=1)
        return np.concatenate([a[0], b[0]]), merged(a[1], b[1])


def _moments(place: Vector, values: tuple[Vector, ...], size: int) -> Panel:
    each = [observed(grouped_moments(y, place, size)) for y in values]
    counts = np.bincount(place, minlength=size).astype(np.float64)
    return np.array([counts, *(row for one in each for row in (one.mean, one.M2))])


def merged(a: Panel, b: Panel) -> Panel:
    each = [Moments(a[0], a[q], a[q + 1]).merge(Moments(b[0], b[q], b[q + 1])) for q in range(1, len(a), 2)]
    return np.array([a[0] + b[0], *(row for one in each for row in (one.mean, one.M2))])


def with_zeros(moments: Panel, sizes: Vector) -> Panel:
    """Means and sums of squares of all rows of groups of these sizes: what is not stored has the value 0.

    `moments` has shape (1 + 2 q, n, groups), and so has what is returned, with the sizes as counts.
    """
    zeros = np.zeros_like(moments)
    zeros[0] = sizes - moments[0]
    return merged(moments, zeros)


def all_groups(moments: Panel) -> Panel:
    whole = moments[:, :, 0]
    for group in range(1, moments.shape[2]):
        whole = merged(whole, moments[:, :, group])
    return np.asarray(whole)


def group_sizes(codes: Any, n_groups: int) -> Vector:
    return np.bincount(codes, minlength=n_groups).astype(np.float64)
