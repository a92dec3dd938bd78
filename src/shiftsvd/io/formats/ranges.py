"""Ranges and kinds of the numbers of columns, and the cells of one kind: their number, first rows and texts."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shiftsvd.io.formats.cells import are_dates
from shiftsvd.io.formats.columns import FEW_TEXTS, says_identifiers

ROWS = 3  # rows of a finding that are named
_LONGEST = 40  # characters of a cell in a message
_NUMBERS = 100  # different numbers of a column that are counted; a set of these takes 10 kB
_AT_ONCE = 1 << 18  # numbers of a block that are summarised at once, so that temporary arrays stay small
# Numbers that stand for missing values where none is negative, or where the others are much smaller.
_NINES: Final = (99.0, 999.0, 9999.0, 99999.0, 999999.0, 99.9, 99.99, 999.9, 999.99, 9999.9, 9999.99, 1e20, np.inf)
_SENTINELS: Final = (*_NINES, *(-value for value in _NINES))
_LARGE: Final = 100  # from which numbers are counted that may have separated thousands
CODES = 1e11  # whole numbers above are codes, such as those in bars
YEAR: Final = re.compile(r"(.*[_\W])?(years?|yr|jahr|ann[ée]e|año|anno|ano|rok|år)([_\W].*)?", re.IGNORECASE)
CLASS: Final = re.compile(
    r"(.*[_\W])?(class|classes|label|labels|target|cluster|group|species|outcome|y)", re.IGNORECASE
)


@dataclass
class Seen:
    """Cells of one kind: their number, the first rows with them, and the first text."""

    text: str
    count: int = 0
    rows: list[int] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)  # different texts, up to one more than may be named

    def add(self, count: int, rows: Iterable[int], text: str = "") -> None:
        self.count += count
        if len(self.texts) <= FEW_TEXTS:
            self.texts.add(text or self.text)
        self.rows += [row for row, _ in zip(rows, range(ROWS - len(self.rows)), strict=False)]

    @property
    def places(self) -> str:
        others = self.count - len(self.rows)
        *first, last = [f"{row:,}" for row in self.rows] + ([f"{others:,} more"] if others else [])
        rows = f"{', '.join(first)} and {last}" if first else last
        return f"row{'s' if self.count > 1 else ''} {rows}"

    def __str__(self) -> str:
        return f"{short(self.text)!r} ({self.places})"


class Numbers:
    """Ranges and kinds of the numbers of columns, added up block by block, for all columns at once."""

    def __init__(self, names: Sequence[str]) -> None:
        n = len(names)
        self.names, self.n_rows = names, 0
        self.n_numbers, self.n_missing = np.zeros((2, n), np.int64)
        self.low, self.high, self._last = np.full(n, np.inf), np.full(n, -np.inf), np.full(n, np.nan)
        self.whole, self.dates, self.consecutive = np.ones((3, n), bool)
        # Sums of values, of absolute values, and of squares of distances from the first row.
        self.sums, self.sizes, self._squares, self._origin = np.zeros((4, n))
        self.counts, self.n_large = np.zeros((2, n), np.int64)  # entries that are not zero; of at least 100
        self.marked = set[float]()  # numbers that stand for missing values, and occur
        self.sentinels = dict[int, dict[float, Seen]]()
        self.distinct: dict[int, set[float] | None] = {
            j: set() for j, name in enumerate(names) if has_suspect_name(name)
        }

    def without(self, values: npt.NDArray[Any], marks: Sequence[float]) -> npt.NDArray[Any]:
        """Return numbers, NaN where they stand for a missing value."""
        if not marks:
            return values
        found = np.isin(values, marks)
        self.marked.update(values[found].tolist())
        return np.where(found, np.nan, values)

    def add(self, X: npt.NDArray[Any], first: int) -> None:
        step = max(1, _AT_ONCE // max(1, X.shape[1]))
        for i in range(0, len(X), step):
            self._add(X[i : i + step], first + i)

    @np.errstate(invalid="ignore", over="ignore")  # infinite values are refused later
    def _add(self, X: npt.NDArray[Any], first: int) -> None:
        # Reductions run along memory: over rows of a narrow block, over columns of a wide one.
        values = X = np.asarray(X, np.float64, order="F" if X.shape[0] > X.shape[1] else "C")
        there = ~np.isnan(values)
        self.n_numbers += there.sum(0)
        ends = np.fmin.reduce(values), np.fmax.reduce(values)
        codes = {(int(j), float(end[j])) for end in ends for j in np.flatnonzero(np.isin(end, _SENTINELS))}
        if codes:
            values = values.copy()
            for j, code in sorted(codes):
                found = values[:, j] == code
                seen = self.sentinels.setdefault(j, {}).setdefault(code, Seen(f"{code:g}"))
                seen.add(int(found.sum()), first + np.flatnonzero(found))
                values[found, j] = np.nan
            ends = np.fmin.reduce(values), np.fmax.reduce(values)
        self.low, self.high = np.fmin(self.low, ends[0]), np.fmax(self.high, ends[1])
        is_whole, steps = self.whole.nonzero()[0], self.consecutive.nonzero()[0]
        some = values[:, is_whole]
        self.whole[is_whole] = np.all((some == np.floor(some)) | np.isnan(some), axis=0)
        dates = (self.dates & self.whole).nonzero()[0]
        self.dates &= False
        self.dates[dates] = np.all(are_dates(values[:, dates]) | np.isnan(values[:, dates]), axis=0)
        before = [self._last[None, steps]] if self.n_rows else []
        self.consecutive[steps] = np.all(np.diff(np.concatenate([*before, X[:, steps]]), axis=0) == 1, axis=0)
        self._last = np.asarray(X[-1], np.float64)
        filled = np.where(there, X, 0)
        self.sums += filled.sum(0)
        sizes = np.abs(filled)
        self.sizes += sizes.sum(0)
        self.n_large += (sizes >= _LARGE).sum(0)
        self._origin = self._origin if self.n_rows else filled[0]
        self._squares += np.square(np.where(there, X - self._origin, 0)).sum(0)
        self.counts += (filled != 0).sum(0)
        for j, distinct in self.distinct.items():
            if distinct is not None:
                column = values[:, j]
                distinct.update(column[~np.isnan(column)][: 2 * _NUMBERS].tolist())
                self.distinct[j] = None if len(distinct) > _NUMBERS else distinct
        self.n_rows += len(X)

    def is_permutation(self, j: int) -> bool:
        """Return True if the numbers have the range, the sum and the sum of squares of consecutive whole numbers."""
        n, low = self.n_rows, self.low[j] - self._origin[j]
        sums = n * low + n * (n - 1) / 2, n * low**2 + low * n * (n - 1) + (n - 1) * n * (2 * n - 1) / 6
        found = self.sums[j] - n * self._origin[j], self._squares[j]
        return bool(self.high[j] - self.low[j] == n - 1 and np.allclose(found, sums, rtol=1e-12, atol=0.1))

    @property
    @np.errstate(invalid="ignore", over="ignore")
    def deviations(self) -> npt.NDArray[np.float64]:
        """The standard deviations of the columns."""
        n = np.maximum(self.n_numbers, 1)
        squares = self._squares - (self.sums - n * self._origin) ** 2 / n
        return np.asarray(np.sqrt(np.maximum(squares, 0) / np.maximum(n - 1, 1)))

    @property
    def suspects(self) -> list[int]:
        """The columns that may be identifiers, dates or categories, or hold numbers for missing values."""
        whole = self.whole & (self.n_numbers == self.n_rows)
        unusual = self.dates | self.consecutive | (self.low > CODES) | (self.high - self.low == self.n_rows - 1)
        return sorted({*np.flatnonzero(whole & unusual).tolist(), *self.sentinels, *self.distinct})


def short(cell: str) -> str:
    return cell if len(cell) <= _LONGEST else cell[: _LONGEST - 1] + "…"


def has_suspect_name(name: str) -> bool:
    return says_identifiers(name) or any(each.fullmatch(name.strip()) for each in (CLASS, YEAR))
