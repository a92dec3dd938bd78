"""Functions of entries and of the row and the column that they are in: what every kind of matrix feeds blocks to."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, Self

import numpy as np

from shiftsvd.numerics.digests import told
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import Panel

Quantities = tuple[Vector, ...]  # of the row, or of the column, that each entry is in
# Entries that are changed at once: their vectors stay in the cache of a core.
AT_ONCE = 2**14


class Entry(Protocol):
    """``f(x, r, c)``: a number for each entry, from the entries and the quantities of their rows and columns."""

    def __call__(self, x: Vector, r: Quantities, c: Quantities) -> Any: ...


@dataclass(frozen=True, eq=False)
class Sides:
    """A function of entries, and what it has to know of rows and columns.

    Attributes
    ----------
    f : callable
        ``f(x, r, c)``, with r and c tuples of vectors as long as x.
    R : array of shape (m, p)
        The quantities of each row.
    C : array of shape (n, q)
        Those of each column.
    """

    f: Entry
    R: Panel
    C: Panel

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
    """What is summed: ``f`` gives a tuple of vectors to be added up over rows, and one for columns."""


@dataclass(frozen=True, eq=False)
class Values(Sides):
    """What is counted: `f` gives how often each entry counts; `lines` says of which lines the values are."""

    lines: Literal["columns", "rows"] = "columns"

    @property
    def H(self) -> Self:
        return replace(super().H, lines="rows" if self.lines == "columns" else "columns")


Table = tuple[Vector, Vector, Vector]  # lines, their values in ascending order, and how often each is there


def table_of(lines: Vector, values: Vector, counts: Vector) -> Table:
    there = values != 0
    lines, values, counts = lines[there], values[there], counts[there]
    order = np.lexsort((values, lines))
    lines, values, counts = lines[order], values[order], counts[order]
    first = np.flatnonzero(np.append(True, (np.diff(lines) != 0) | (np.diff(values) != 0))[: len(lines)])
    return lines[first], values[first], np.add.reduceat(counts, first) if len(first) else counts


@dataclass(frozen=True, eq=False)
class Change(Sides):
    """What becomes of entries.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the changed entries.
    more : (int, int), or None
        Zeros become stored entries where the product of these two quantities, of the row and of the column, exceeds 1.
    """

    dtype: Any = field(kw_only=True)
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
            out[part] = self.f(x[part].astype(np.float64), r, c)  # a copy: functions of users may write in place
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
    def told(self) -> str:
        return told((self.f, str(self.dtype), self.more, self.R, self.C))


@dataclass(frozen=True)
class Swapped:
    """A function of entries for the transpose, whose rows are columns."""

    f: Entry

    def __call__(self, x: Vector, r: Quantities, c: Quantities) -> Any:
        found = self.f(x, c, r)
        return found[::-1] if isinstance(found, tuple) else found


def _finite(changed: Panel) -> Panel:
    if not np.isfinite(changed).all():
        n_bad = int((~np.isfinite(changed)).sum())
        raise ValueError(
            f"transformed entries must be finite, got {n_bad} that are not; leave out what has no finite value"
        )
    return changed


def _taken(Q: Panel, at: Vector) -> Quantities:
    return tuple(column.take(at) for column in Q.T)
