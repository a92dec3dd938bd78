"""Functions of entries and of their row and column, and moments within groups of rows."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt

from shiftsvd.errors import plural
from shiftsvd.kernels.twin import grouped_moments
from shiftsvd.numerics.digests import told
from shiftsvd.numerics.moments import Moments, from_raw
from shiftsvd.numerics.panels import Panel, Vector

Quantities = tuple[Vector, ...]  # for each entry, of its row or of its column
# Entries that are changed at once, so that their vectors stay in the cache of a core.
AT_ONCE = 2**14


class Entry(Protocol):
    """Function that returns a number for each entry x, given the quantities r and c of its row and column."""

    def __call__(self, x: Vector, r: Quantities, c: Quantities) -> Any: ...


@dataclass(frozen=True, eq=False)
class Sides:
    """A function of entries, and the quantities of rows and columns that it uses."""

    f: Entry
    R: Panel  # (m, p): quantities of each row
    C: Panel  # (n, q): quantities of each column

    @property
    def H(self) -> Self:
        f = self.f.f if isinstance(self.f, Swapped) else Swapped(self.f)
        return replace(self, f=f, R=self.C, C=self.R)

    def rows(self, lo: int, hi: int) -> Self:
        return replace(self, R=self.R[lo:hi])

    def of(self, x: Vector, i: Vector, j: Vector) -> Any:
        return self.f(x, _taken(self.R, i), _taken(self.C, j))


@dataclass(frozen=True, eq=False)
class Terms(Sides):
    """Sums of entries: `f` returns a tuple of vectors to sum over rows, and a tuple to sum over columns."""


@dataclass(frozen=True, eq=False)
class Values(Sides):
    """Counts of distinct values in each column or row: `f` returns the multiplicity of each entry."""

    lines: Literal["columns", "rows"] = "columns"

    @property
    def H(self) -> Self:
        return replace(super().H, lines="rows" if self.lines == "columns" else "columns")


Table = tuple[Vector, Vector, Vector]  # lines, their distinct values in ascending order, and the counts of these


def table_of(lines: Vector, values: Vector, counts: Vector) -> Table:
    nonzero = values != 0
    lines, values, counts = lines[nonzero], values[nonzero], counts[nonzero]
    order = np.lexsort((values, lines))
    lines, values, counts = lines[order], values[order], counts[order]
    first = np.flatnonzero(np.append(True, (np.diff(lines) != 0) | (np.diff(values) != 0))[: len(lines)])
    return lines[first], values[first], np.add.reduceat(counts, first) if len(first) else counts


@dataclass(frozen=True, eq=False)
class Change(Sides):
    """Changed entries."""

    dtype: npt.DTypeLike = field(kw_only=True)  # of the changed entries
    # Zeros become stored entries if the product of these two quantities, one of the row and one of the column, exceeds
    # 1.
    more: tuple[int, int] | None = field(default=None, kw_only=True)

    @property
    def H(self) -> Self:
        return replace(super().H, more=self.more and self.more[::-1])

    def values(self, x: Vector, i: Vector, j: Vector) -> Vector:
        out = np.empty(len(x), self.dtype)
        R, C = np.ascontiguousarray(self.R.T), np.ascontiguousarray(self.C.T)
        for lo in range(0, len(x), AT_ONCE):
            part = slice(lo, lo + AT_ONCE)
            r, c = (tuple(q.take(at[part]) for q in Q) for Q, at in ((R, i), (C, j)))
            out[part] = self.f(x[part].astype(np.float64), r, c)  # a copy, because users' functions may write to it
        return _finite(out)

    def block(self, X: Panel) -> Panel:
        m, n = X.shape
        out = np.empty(X.shape, self.dtype)
        step, j = max(1, AT_ONCE // max(n, 1)), np.arange(n)
        for lo in range(0, m, step):
            part = X[lo : lo + step]
            i = np.repeat(np.arange(lo, lo + len(part)), n)
            x = part.astype(np.float64).ravel()
            out[lo : lo + step] = self.of(x, i, np.tile(j, len(part))).reshape(part.shape)
        return _finite(out)

    def n_more(self) -> int:
        if self.more is None:
            return 0
        own, shared = self.R[:, self.more[0]], np.sort(self.C[:, self.more[1]])
        with np.errstate(divide="ignore"):
            return int((len(shared) - np.searchsorted(shared, 1 / own, side="right")).sum())

    @property
    def digest(self) -> str:
        return told((self.f, str(self.dtype), self.more, self.R, self.C))


@dataclass(frozen=True)
class Swapped:
    """The same function of entries for the transpose, which swaps rows and columns."""

    f: Entry

    def __call__(self, x: Vector, r: Quantities, c: Quantities) -> Any:
        result = self.f(x, c, r)
        return result[::-1] if isinstance(result, tuple) else result


def _finite(changed: Panel) -> Panel:
    if not np.isfinite(changed).all():
        n_bad = int((~np.isfinite(changed)).sum())
        raise ValueError(
            f"Transformed entries must be finite, got {plural(n_bad, 'NaN or infinite value')}. "
            "Remove the entries that the transformation maps to these values."
        )
    return changed


def _taken(Q: Panel, lines: Vector) -> Quantities:
    return tuple(column.take(lines) for column in Q.T)


Parts = tuple[Panel, Panel]  # sums of rows, (m, p); moments of the stored entries, (1 + 2 q, n, groups)


@dataclass(frozen=True, eq=False)
class Grouped:
    """A function of entries, the groups of rows, and the quantities of rows and of columns by group that it uses."""

    f: Entry  # returns vectors to sum over rows, and vectors whose moments are computed by column and group
    codes: Vector  # the group of each row, from 0 on
    R: Panel  # (m, p)
    C: Panel  # (n, n_groups, q)
    n_groups: int
    transposed: bool = False  # the matrix is the transpose, whose columns have groups

    @property
    def H(self) -> "Grouped":
        return replace(self, transposed=not self.transposed)

    @property
    def lines(self) -> tuple[Vector, ...]:
        return (self.C,) if self.transposed else (self.codes, self.R)

    def with_lines(self, *lines: Vector) -> "Grouped":
        if self.transposed:
            return replace(self, C=lines[0])
        return replace(self, codes=lines[0], R=lines[1])

    def part(self, lo: int, hi: int) -> "Grouped":
        return self.with_lines(*(of_lines[lo:hi] for of_lines in self.lines))

    def of(self, x: Vector, i: Vector, j: Vector) -> Parts:
        if self.transposed:
            i, j = j, i
        cell = j.astype(np.int64, copy=False) * self.n_groups + self.codes.take(i)
        r = tuple(column.take(i) for column in self.R.T)
        m, (n, groups, q) = len(self.codes), self.C.shape
        c = tuple(column.take(cell) for column in self.C.reshape(n * groups, q).T)
        sums, values = self.f(x, r, c)
        of_rows = np.array([np.bincount(i, each, minlength=m) for each in sums]).reshape(len(sums), m).T
        return of_rows, _moments(cell, values, n * groups).reshape(-1, n, groups)

    def joined(self, a: Parts, b: Parts) -> Parts:
        if self.transposed:
            return a[0] + b[0], np.concatenate([a[1], b[1]], axis=1)
        return np.concatenate([a[0], b[0]]), merged(a[1], b[1])


def _moments(cells: Vector, values: tuple[Vector, ...], size: int) -> Panel:
    each = [from_raw(grouped_moments(y, cells, size)) for y in values]
    counts = np.bincount(cells, minlength=size).astype(np.float64)
    return np.array([counts, *(row for one in each for row in (one.mean, one.M2))])


def merged(a: Panel, b: Panel) -> Panel:
    each = [Moments(a[0], a[q], a[q + 1]).merge(Moments(b[0], b[q], b[q + 1])) for q in range(1, len(a), 2)]
    return np.array([a[0] + b[0], *(row for one in each for row in (one.mean, one.M2))])


def with_zeros(moments: Panel, sizes: Vector) -> Panel:
    # Moments of all rows, from those of the stored entries, both (1 + 2 q, n, groups): other entries are 0.
    zeros = np.zeros_like(moments)
    zeros[0] = sizes - moments[0]
    return merged(moments, zeros)


def all_groups(moments: Panel) -> Panel:
    whole = moments[:, :, 0]
    for group in range(1, moments.shape[2]):
        whole = merged(whole, moments[:, :, group])
    return np.asarray(whole)
