"""Tally the cells of the columns of a table; say what each column holds, what does not fit, and what would do."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from shiftsvd.errors import Part, Setting, few, plural
from shiftsvd.io.choices import Choices
from shiftsvd.io.formats.cells import (
    GAPS,
    NO_CLASS,
    OTHER,
    Cells,
    Number,
    arrow,
    filled,
    gaps_of,
    has_leading_zeros,
    nulled,
    number,
    numbers_like,
    pc,
    plain_numbers,
    proves,
    unit_of_header,
    values_of,
)
from shiftsvd.io.formats.columns import (
    FEW_TEXTS,
    as_texts,
    column_of_numbers,
    numbers_of,
    remedies,
    says_identifiers,
    use,
)
from shiftsvd.io.formats.ranges import CLASS, CODES, ROWS, YEAR, Numbers, Seen

_TEXTS = 1000  # different texts that are counted; a column with more has many
_SAMPLE = 200  # rows in which leading zeros are searched
FEW = 10  # different texts from which a column without repeats does not hold classes
_RUN, _SHUFFLED = 5, 20  # rows from which consecutive integers, sorted and in any order, count as identifiers
_KINDS = 20  # most values of a column of classes
_CATEGORIES = 5  # a column of at most so many different whole numbers may hold categories
_EXAMPLES = 3
_MARKS: Final = {".": "point", ",": "comma"}
_HUNDRED, _THOUSAND = 99, 1000  # whole numbers among which 1.234 may be a larger one: beyond the first, below the other
_MANY = 100  # odd cells from which those alike are parsed together
_DATE: Final = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})( .*)?"
    r"|\d{1,2}[- ]?[A-Za-z]{3,9}\.?[- ,]*\d{2,4}|[A-Za-z]{3,9}\.? \d{1,2},? \d{4}|\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?"
)
# Units that change a number, and the other cells if these have none.
FACTORS: Final = dict.fromkeys("%‰", "none and may be shares") | dict.fromkeys("KM", "none and may be whole numbers")
_CENSORED = 0.05  # share of cells below a limit from which a profile replaces them by half of it
_DAY: Final = re.compile(
    r"(.*[_\W])?(day|date|datum|tag|fecha|jour|data|giorno|time|timestamp|zeit|epoch|hora|heure|ora)([_\W].*)?",
    re.IGNORECASE,
)
_SERIALS: Final = ((20_000, 60_000), (9e8, 3e9))  # days of spreadsheets, and seconds since 1970
Kind = Literal["measurement", "identifier", "label", "date", "constant", "text"]


@dataclass(frozen=True)
class Finding:
    """A message about columns of a table, with the settings that resolve it."""

    text: str
    uses: tuple[tuple[Part, ...], ...] = ()
    columns: tuple[str, ...] = ()
    best: int = 0  # the use that a profile applies
    is_error: bool = True
    applies: bool = True  # whether a profile follows it
    by_hand: str = ""  # what to do in the file instead, such as "correct this cell in the file"

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.text, *remedies(self.uses, self.by_hand)

    @property
    def settings(self) -> list[Setting]:
        return [part for part in self.uses[self.best] if isinstance(part, Setting)] if self.uses else []


@dataclass(eq=False)
class Tally:
    """Counts of the cells of one column, added up block by block."""

    name: str
    decimal: str = "."
    choices: Choices = field(default_factory=Choices)
    numbers: Numbers | None = None
    place: int = 0  # of the column among those of `numbers`
    text: bool = False  # whether the column holds texts
    stores: bool = False  # whether the table stores numbers as such, so that they do not show how texts are written

    def __post_init__(self) -> None:
        self._gaps = gaps_of((*(NO_CLASS if self.text else GAPS), *self.choices.na))
        self._missing = values_of(self.choices.na, self.decimal)
        self.of = self.numbers or Numbers([self.name])
        self.n_gaps = 0
        self.marks = Counter[str]()  # missing values by their texts
        self.texts, self.units, self.limits = dict[str, Seen](), dict[str, Seen](), dict[str, Seen]()
        self.unclear: Seen | None = None  # numbers such as 1,234 whose mark may be either
        self.grouped = Seen("")  # numbers such as 1.234 with the decimal mark, among whole numbers without a mark
        self.has_hundreds = self.has_thousands = False  # whether there are such whole numbers, up to 999 and beyond
        self.proven = self.coded = False
        self.distinct_texts: set[Any] | None = set()
        self.repeated = ""  # the first text that occurs a second time
        self.examples = list[str]()

    def read(self, column: Any, first: int) -> npt.NDArray[np.float64]:
        """Tally cells, of which the first is in row `first`; return them as numbers, NaN where they are none."""
        numbers = None if self.text else numbers_of(column)
        stored = np.empty(0) if numbers is None else column_of_numbers(numbers)
        stored = self.of.without(stored, self._missing)
        given = as_texts(column)
        if numbers is not None:  # both texts and numbers
            given = nulled(given, numbers.is_valid())
        if self.text:
            self._add_texts(given)
            return np.full(len(given), np.nan)
        found = plain_numbers(given, self.decimal, self._gaps)
        self._add_missing(given, found.texts)
        for i in self._unlike(found, first).tolist():
            found.values[i] = self._odd(found.texts[i].as_py(), first + i)
        values = self.of.without(found.values, self._missing)
        places = np.flatnonzero(np.isnan(values) & ~np.isnan(found.values))
        self.n_gaps += len(places)
        self.marks.update(found.texts[int(i)].as_py() for i in places)
        found = found._replace(values=values)
        if not self.proven:
            self.proven, unclear = proves(found.texts, self.decimal)
            for i in unclear[:ROWS] if self.stores else ():
                self._add_unclear(found.texts[int(i)].as_py(), [first + int(i)])
            self._add_grouped(found, unclear, first)
        if not self.n_rows:
            self.coded = has_leading_zeros(found.texts[:_SAMPLE])
        if numbers is not None:
            self.n_gaps -= int(np.count_nonzero(~np.isnan(stored)))
            found.values[~np.isnan(stored)] = stored[~np.isnan(stored)]
        return found.values

    def _add_texts(self, given: Any) -> None:
        found = filled(given, self._gaps)
        self._add_missing(given, found)
        if self.distinct_texts is not None:
            texts = found.drop_null()
            different = texts.unique().to_pylist()
            if len(different) < len(texts) or not self.distinct_texts.isdisjoint(different):
                self.repeated = self.repeated or _first_repeated(texts.to_pylist(), self.distinct_texts)
            self.distinct_texts.update(different)
            self.distinct_texts = None if len(self.distinct_texts) > _TEXTS else self.distinct_texts

    def _unlike(self, found: Cells, first: int) -> npt.NDArray[np.intp]:
        """Parse cells that are written like the first number among odd ones together; return the others."""
        odd = found.odd
        if len(odd) < _MANY:
            return odd
        texts = found.texts.take(arrow(odd))
        read = ((cell, number(cell, self.decimal)) for cell in texts[:_MANY].to_pylist())
        cell, like = next(((cell, one) for cell, one in read if one and not one.limit), ("", None))
        if like is None:
            return odd
        values, alike, unclear = numbers_like(cell, texts, self.decimal)
        found.values[odd[alike]] = values[alike]
        if len(places := np.flatnonzero(unclear)):
            self._add_unclear(texts[int(places[0])].as_py(), first + odd[places], len(places))
        if like.unit and np.any(alike):
            seen = self.units.setdefault(like.unit, Seen(cell))
            seen.add(int(alike.sum()), (first + odd[alike][:ROWS]).tolist())
            seen.texts.update(texts.take(arrow(np.flatnonzero(alike))).unique()[: FEW_TEXTS + 1].to_pylist())
        return odd[~alike]

    def add_examples(self, values: npt.NDArray[Any]) -> None:
        there = values[:_SAMPLE][~np.isnan(values[:_SAMPLE])]
        self._add_examples(f"{value:g}" for value in there)

    def _add_examples(self, cells: Iterable[str]) -> None:
        self.examples = list(dict.fromkeys((*self.examples, *cells)))[:_EXAMPLES]

    def _add_missing(self, column: Any, texts: Any) -> None:
        self.n_gaps += texts.null_count
        if texts.null_count:
            marks = pc.utf8_trim_whitespace(column.filter(texts.is_null())).drop_null()
            self.marks.update({each["values"]: each["counts"] for each in marks.value_counts().to_pylist()})
        if len(self.examples) < _EXAMPLES:
            self._add_examples(texts.drop_null()[:_SAMPLE].to_pylist())

    def _odd(self, cell: str, row: int) -> float:
        found = number(cell, self.decimal)
        if found is None:
            if cell in self.texts or len(self.texts) < _TEXTS:
                self.texts.setdefault(cell, Seen(cell)).add(1, (row,))
            return np.nan
        if found.limit:
            self.limits.setdefault(found.limit, Seen(cell)).add(1, (row,))
            if found.limit != "<" or self.choices.censored != "half":
                self.n_gaps += 1
                return np.nan
        if found.unit:
            self.units.setdefault(found.unit, Seen(cell)).add(1, (row,), cell)
        if found.unclear:
            self._add_unclear(cell, [row])
        return found.value / 2 if found.limit else found.value

    def _add_unclear(self, cell: str, rows: Iterable[int], count: int = 1) -> None:
        self.unclear = self.unclear or Seen(cell)
        self.unclear.add(count, map(int, rows))

    def _add_grouped(self, found: Cells, unclear: npt.NDArray[np.intp], first: int) -> None:
        sizes = np.abs(np.delete(found.values, unclear))
        self.has_hundreds |= bool(np.any((sizes > _HUNDRED) & (sizes < _THOUSAND)))
        self.has_thousands |= bool(np.any(sizes >= _THOUSAND))
        if len(unclear):
            self.grouped.text = self.grouped.text or found.texts[int(unclear[0])].as_py()
            self.grouped.add(len(unclear), (first + unclear[:ROWS]).tolist())

    @property
    def _may_be_grouped(self) -> bool:
        """Return True for a column such as 735, 1.250, 930: no cell shows that the mark is the decimal one."""
        return not self.proven and self.grouped.count > 0 and self.has_hundreds and not self.has_thousands

    @property
    def is_open(self) -> bool:
        """Return True for a column such as 1.234, 5.100, whose mark is read as decimal, but may separate thousands."""
        return self.grouped.count > 0 and not self.proven and self.unclear is None and not self._may_be_grouped

    def forget(self, cell: str) -> bool:
        """Remove a cell from the cells that do not fit; return False if the cell is not among them."""
        seen = self.texts.get(cell)
        if seen is not None:
            seen.count -= 1
            self.texts = {text: each for text, each in self.texts.items() if each.count}
        return seen is not None

    # What the counts tell

    @property
    def n_rows(self) -> int:
        return self.of.n_rows

    @property
    def n_numbers(self) -> int:
        return int(self.of.n_numbers[self.place])

    @property
    def n_missing(self) -> int:
        return self.n_gaps + int(self.of.n_missing[self.place])

    @property
    def low(self) -> float:
        return float(self.of.low[self.place])

    @property
    def high(self) -> float:
        return float(self.of.high[self.place])

    @property
    def whole(self) -> bool:
        return bool(self.of.whole[self.place])

    @property
    def sentinels(self) -> dict[float, Seen]:
        return self.of.sentinels.get(self.place, {})

    @property
    def distinct(self) -> set[Any] | None:
        return self.distinct_texts if self.text else self.of.distinct.get(self.place, set(self.texts))

    @property
    def seen(self) -> Iterator[Seen]:
        for counted in (self.texts, self.units, self.limits, self.sentinels):
            yield from counted.values()
        yield from () if self.unclear is None else (self.unclear,)
        yield self.grouped

    @property
    def n_texts(self) -> int:
        return _total(self.texts.values())

    @property
    def is_text(self) -> bool:
        return self.text or (self.n_texts > self.n_numbers and len(self.texts) > FEW_TEXTS)

    @property
    def n_filled(self) -> int:
        return self.n_rows - self.n_missing

    @property
    def repeats(self) -> bool:
        return self.distinct is not None and len(self.distinct) < self.n_filled

    @property
    def is_needed(self) -> bool:
        """Return True for a feature of the model that is applied, which cannot be excluded."""
        return self.choices.remembered and self.name in self.choices.features

    @property
    def kind(self) -> Kind:
        if self.is_text:
            if self.examples and all(map(_DATE.fullmatch, self.examples)):
                return "date"
            if not self.repeats and self.n_filled:
                return "identifier"
            is_label = self.distinct is not None and 2 * len(self.distinct) <= max(self.n_filled, 2 * FEW)
            return "label" if is_label else "text"
        if self.low >= self.high and not self.sentinels:
            return "constant"
        return "identifier" if self.is_identifier else "measurement"

    @property
    def is_identifier(self) -> bool:
        if self._are_within(_SERIALS) and _DAY.fullmatch(self.name.strip()):
            return self.n_numbers > 1
        if self.n_rows < 2 or not self.whole or self.n_missing or not self.n_numbers:
            return self.coded
        if self.of.dates[self.place] or self.coded or self.low > CODES:
            return True
        if says_identifiers(self.name):
            return not self.repeats
        if self._are_within([(1500, 2101)]) and YEAR.fullmatch(self.name.strip()):
            return True
        return (self.n_rows >= _RUN and bool(self.of.consecutive[self.place])) or (
            self.n_rows >= _SHUFFLED and self.of.is_permutation(self.place)
        )

    def _are_within(self, ranges: Iterable[tuple[float, float]]) -> bool:
        return any(low < self.low and self.high < high for low, high in ranges)

    @property
    def is_class(self) -> bool:
        most = min(_KINDS, self.n_numbers // 2)
        is_few = self.whole and self.distinct is not None and len(self.distinct) <= most
        return is_few and CLASS.fullmatch(self.name.strip()) is not None

    @property
    def n_codes(self) -> int:
        """Return the number of different numbers if these are few and whole, and may stand for categories; else 0."""
        found = self.of.distinct.get(self.place) or set()
        is_few = 2 <= len(found) <= min(_CATEGORIES, self.n_numbers // 2) and found != {0.0, 1.0}
        return len(found) if is_few and self.whole and self.kind == "measurement" else 0

    @property
    def header_unit(self) -> str:
        return unit_of_header(self.name)

    def unit(self) -> str:
        """Return the unit that is removed from cells: that of the header or of the fit, else the most frequent one."""
        known = self.header_unit, (self.choices.units or {}).get(self.name, "")
        most = max(self.units, key=lambda unit: self.units[unit].count)
        return next((unit for unit in known if unit in self.units), most)

    def findings(self, proven: frozenset[str]) -> Iterator[Finding]:
        column = f"column {self.name!r}"
        if self.n_rows == self.n_missing:
            yield Finding(f"{column} has no values.", self._drop, (self.name,), is_error=False)
        if self.texts:
            yield self._of_texts(column, proven)
        if self.units:
            yield self._of_units(column)
        grouped = self.grouped if self._may_be_grouped or (self.is_open and self.decimal == ",") else None
        unclear = self.unclear or grouped
        # A fit with decimal commas settles 1.234, not 1,234: the new file may be written in another notation.
        if (doubtful := grouped if self.choices.decimals else unclear) is not None and self.decimal not in proven:
            yield self._of_unclear(column, doubtful)
        elif self.unclear is not None and self._is_far(self.unclear):
            yield self._of_far(column, self.unclear)
        elif unclear is not None and self.choices.thousands is None and self.choices.decimal is None:
            value = number(unclear.text, self.decimal)
            reads = f"{column}: {unclear} is read as {value.value if value else 0:g}"
            yield Finding(f"{reads}.", columns=(self.name,), is_error=False)
        if self.limits:
            yield self._of_limits(column)

    def _of_texts(self, column: str, proven: frozenset[str]) -> Finding:
        shown = few(self.texts.values(), 2)
        no_number = "no number" if self.n_texts == 1 else "not numbers"
        text = f"{column} has {plural(self.n_texts, 'cell')} that {are(self.n_texts)} {no_number}: {shown}."
        is_open = self.decimal not in proven or (self.choices.decimal is not None and not self.proven)
        if is_open and self._fit_other_decimal(self.texts):
            return Finding(text, (self.other_decimal, *self._drop), (self.name,))
        cells = f"{_cells(self.n_texts)} in the file"
        by_hand = f"correct {cells}" if self.is_needed else ""
        if self._fit_other_decimal(self.texts):
            by_hand = f"write {cells} {self._as_others}"
        return Finding(text, self._missing_or_drop(list(self.texts)), (self.name,), by_hand=by_hand)

    @property
    def has_wrong_decimal(self) -> bool:
        """Return True for a column of texts that are numbers with another decimal mark than the given one."""
        given = self.choices.decimal or self.choices.thousands
        return given is not None and self._fit_other_decimal(self.distinct or self.examples)

    @property
    def other_decimal(self) -> tuple[Part, ...]:
        without = () if self.choices.thousands is None else (" without ", Setting("thousands"))
        return Setting("decimal", OTHER[self.decimal]), *without, " to parse such numbers"

    @property
    def _as_others(self) -> str:
        return f"with a decimal {_MARKS[self.decimal]}, as the other cells"

    def _fit_other_decimal(self, cells: Iterable[str]) -> bool:
        return all(number(cell, OTHER[self.decimal]) is not None for cell in cells)

    def _of_units(self, column: str) -> Finding:
        unit = self.unit()
        wanted = self.header_unit or unit
        n_plain = self.n_numbers - _total(self.units.values())
        is_factor = unit in FACTORS and n_plain > 0 and self.header_unit != unit
        wrong = [seen for name, seen in self.units.items() if name != unit or is_factor or wanted != unit]
        if not wrong:
            n = self.units[unit].count
            removed = f"{column}: {plural(n, 'cell')} with the unit {unit!r}, such as {self.units[unit]}"
            return Finding(f"{removed}, {are(n)} read as plain numbers.", columns=(self.name,), is_error=False)
        n = _total(wrong)
        have = "the header has" if wanted != unit and not n_plain else "other cells have"
        others = f"{have} {FACTORS[unit] if is_factor else repr(wanted)}"
        text = f"{column} has {plural(n, 'cell')} in another unit: {few(wrong, 2)}; {others}."
        by_hand = f"convert {_cells(n)} in the file{self._as_share if is_factor and unit == '%' else ''}"
        uses = self._missing_or_drop(sorted(set[str]().union(*(each.texts for each in wrong))))
        return Finding(text, uses, (self.name,), by_hand=by_hand)

    @property
    def _as_share(self) -> str:
        percentage = number(self.units["%"].text, self.decimal) or Number(0)
        return f" (to {percentage.value / 100:g} if the others are shares)"

    def _of_unclear(self, column: str, seen: Seen) -> Finding:
        mark, other = (",", ".") if "," in seen.text else (".", ",")
        small, large = (number(seen.text, decimal) or Number(0) for decimal in (mark, other))
        text = f"{column}: {seen} may mean {small.value:g} or {large.value:g}."
        uses = (Setting("decimal", mark), " for the first"), (Setting("thousands", mark), " for the second")
        return Finding(text, uses, (self.name,), best=1)

    def _is_far(self, seen: Seen) -> bool:
        """Return True for 1.234 among decimal commas and numbers below 100; 1,234 has thousands more often."""
        is_given = self.choices.decimal is not None or self.choices.thousands is not None
        return self.decimal == "," and not self.whole and self.of.n_large[self.place] == seen.count and not is_given

    def _of_far(self, column: str, seen: Seen) -> Finding:
        decimal = number(seen.text, ".") or Number(0)
        either = f"{decimal.value:g} or {1000 * decimal.value:g}"
        text = f"{column}: {seen} may mean {either}; all other numbers are below 100."
        uses = ((Setting("decimal", ","), " for the second"),)
        by_hand = f"write {_cells(seen.count)} in the file {self._as_others}"
        return Finding(text, uses, (self.name,), by_hand=by_hand, applies=False)

    def _of_limits(self, column: str) -> Finding:
        n = _total(self.limits.values())
        shown, half = few(self.limits.values()), self.choices.censored == "half" and "<" in self.limits
        how = "half of their limit is used" if half else "they are missing values by default"
        uses = () if half or "<" not in self.limits else ((Setting("censored", "half"), " for half of the limit"),)
        are_many = bool(uses) and self.limits["<"].count > _CENSORED * self.n_rows
        text = f"{column} has {plural(n, 'cell')} beyond a limit: {shown}; {how}."
        return Finding(text, uses, (self.name,), is_error=False, applies=are_many)

    def warnings(self) -> Iterator[Finding]:
        others = max(abs(self.low), abs(self.high)) if self.low <= self.high else None
        for value, seen in self.sentinels.items():
            if others is None or not (abs(value) > 3 * others or value < 0 <= self.low):
                continue
            ends = f"all others are from {self.low:g} to {self.high:g}"
            text = f"column {self.name!r} has {seen}, and {ends}."
            na = (Setting("na", seen.text), " if this number stands for a missing value")
            yield Finding(text, (na,), (self.name,), is_error=False)

    @property
    def _drop(self) -> tuple[tuple[Part, ...], ...]:
        return () if self.is_needed else (use("drop", [self.name]),)

    def _missing_or_drop(self, cells: Sequence[str]) -> tuple[tuple[Part, ...], ...]:
        if not 0 < len(cells) <= FEW_TEXTS:
            return self._drop
        as_missing = f" to read {'it as a missing value' if len(cells) == 1 else 'them as missing values'}"
        return (Setting("na", cells[0] if len(cells) == 1 else list(cells)), as_missing), *self._drop


def _total(seen: Iterable[Seen]) -> int:
    return sum(each.count for each in seen)


def _cells(count: int) -> str:
    return "this cell" if count == 1 else "these cells"


def _first_repeated(texts: Sequence[str], before: set[Any]) -> str:
    seen = set(before)
    for text in texts:
        if text in seen:
            return text
        seen.add(text)
    return ""


def are(count: int) -> str:
    return "is" if count == 1 else "are"
