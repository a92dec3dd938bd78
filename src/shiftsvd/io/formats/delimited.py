"""Rows of a table in blocks: texts, sheets and databases, with what does not fit."""

import csv
import io
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shiftsvd.errors import Part, Refused, Setting, few, plural
from shiftsvd.io.base import Notation, optional
from shiftsvd.io.choices import Choices, naming
from shiftsvd.io.formats.cells import (
    GAPS,
    OTHER,
    any_number,
    as_numpy,
    gaps_of,
    is_empty,
    is_gap,
    is_unit,
    number,
    pa,
    pc,
    plain_numbers,
    rows_in_all,
    strings,
    value_of,
    values_of,
)
from shiftsvd.io.formats.columns import as_texts, holds_numbers, numbers_in, texts, use, with_indicators
from shiftsvd.io.formats.grid import Grid, Stored, shown
from shiftsvd.io.formats.header import Head, numbered
from shiftsvd.io.formats.notices import of_text_columns, of_variants
from shiftsvd.io.formats.ranges import Numbers, Seen
from shiftsvd.io.formats.tally import Finding, Tally
from shiftsvd.io.formats.text import (
    NOTE,
    Block,
    TextBatch,
    TextRows,
    block_bytes,
    filled_rows,
    is_note,
    kinds_of,
    plain_names,
    row_of,
    stored_value,
    undecoded,
)
from shiftsvd.io.formats.totals import SUMMED, holds_sums, is_total, last_place, rows_of_totals
from shiftsvd.kernels import default_threads, ordered

_SHOWN = 60  # characters of a line in an error
_RAGGED = 30  # rows of another width whose text is kept
_WIDEST = 32  # bytes of text of one number
# Most columns that are tallied one by one: a tally takes 10 kB and 0.1 ms for each block. In a table of more columns,
# only those with a cell that is no plain number have one.
MOST = 1 << 10
_PARTS = 16  # blocks of a wide table in one of a narrow table: cells as texts of Python take 12 times the memory
_STORED = 24  # bytes of memory for a number of a Parquet or Arrow file while a block is converted
_CELL = 200  # bytes of memory for a cell of a sheet or database while a block is converted
_NOTES = 3  # rows of one cell that may be notes
_SKIPPED = 6  # beginnings of rows that an error names for `comment`
_VALUELESS = 1000  # rows of a block without values that are looked at
_ADDENDS = 3  # rows, and entries that are not zero, from which a last row of sums is a total
_CHANCE = 0.01  # probability of a sample below which a last row without a label is compared with means and medians
_LOOSE = 0.01  # relative difference to the sums from which a last row with a label such as Total of Russia is none
_KEPT = 1 << 16  # numbers of a table whose medians are computed
_BOUNDS = 100  # totals below which a sum may begin


class Rows:
    """One pass over the rows of a text file. It counts what does not fit, and keeps back empty rows and a total."""

    def __init__(
        self,
        path: Path,
        head: Head,
        choices: Choices,
        memory_limit: int | str | None = None,
        *,
        everything: bool = False,  # also tally columns that are not features, for a profile, which shows a few names
    ) -> None:
        self.head, self.ragged, self.total, self.n_empty = head, list[tuple[int, int, str]](), "", 0
        self._path, self.choices, self._memory = path, choices, memory_limit
        self.n_rows, self._has_begun = 0, False
        # A last row of rounded sums or means: what it holds, its label and beginning.
        self._summary: tuple[str, str, str] | None = None
        self._named = Seen("")  # rows of one text, without numbers
        self._begin()
        self.form = head.form
        self.is_wide = head.width > MOST
        # A Parquet file of texts alone is read as the text that it was exported from.
        self._is_typed = isinstance(head.source, Stored) and not head.source.are_texts(head.form.numeric)
        self._tallied = list(range(head.width)) if everything else self.form.numeric
        self.numbers = Numbers(head.called)
        if everything:
            self.numbers.distinct = {j: set() for j in self._tallied}
        self._n_names = _SHOWN if everything else None
        self.tallies = dict[int, Tally]()
        for j in () if self.is_wide else self._tallied:
            self._tally(j)
        if head.form.unknown:
            batches = self._kept(self.batches())
            self.form = head.form.with_classes((j, one.column(j)) for one in batches for j in head.form.unknown)
            self.ragged.clear()
        free = [] if choices.remembered else [head.called[j] for j in self.form.numeric[-1:]]
        self._is_right_sum = len(self.form.numeric) > 2 and is_total(free) and free[0] not in choices.columns

    def _begin(self) -> None:
        self._totals = dict[int, tuple[str, str]]()  # rows like totals: their label, and the beginning of the line
        self._maybe = dict[int, tuple[str, str]]()  # rows with a label such as North Total
        self._bounds: list[tuple[int, Any]] = [(0, 0.0)]  # samples above each total, and their sums
        self._excess: Any = 0.0  # the sums of the totals above
        self._n_excess = 0
        self._labels = set[str]()
        self._small = list[npt.NDArray[Any]]()  # the rows of a small table
        self._top: tuple[npt.NDArray[np.float64], list[str | float]] | None = None  # the first row
        # Rows that repeat the header, and rows of empty cells: the number of rows above each without them.
        self._headers, self._blanks = list[int](), list[int]()
        self._blank = Seen("")  # rows of empty cells

    @property
    def names(self) -> list[str] | None:
        are_all = not self.form.classes and len(self.form.numbers) == self.head.width
        return None if self.head.names is None and are_all else self.form.named(self.head.called)

    def __iter__(self) -> Iterator[Block]:
        yield from map(self._block, self._kept(self.batches()))

    def _tally(self, j: int) -> Tally:
        about = self.head.called[j], self.head.decimals[j], self.choices, self.numbers, j
        stores = self._is_typed or isinstance(self.head.source, Grid)
        return self.tallies.setdefault(j, Tally(*about, text=j in self.form.texts, stores=stores))

    @property
    def read_tallies(self) -> list[Tally]:
        """Tallies of features that may be identifiers, categories, or hold numbers for missing values."""
        places, numeric = self.numbers.suspects if self.is_wide else self._tallied, set(self.form.numeric)
        found = [self._tally(j) for j in places if j in numeric]
        return [tally for tally in found if not tally.is_text]

    def triplets(self) -> Iterator[tuple[Any, npt.NDArray[Any]]]:
        """Yield batches of triplets, with their values as numbers."""
        for batch in self.batches():
            values = self._read(batch)[:, self.form.numeric[0]]
            self.n_rows += batch.num_rows
            yield batch, values

    def findings(self) -> list[Finding]:
        """Return what does not fit, after the pass, and what is read in a way that the user should know."""
        numeric = set(self.form.numeric)
        for seen in (each for tally in self.tallies.values() for each in tally.seen):
            seen.rows = [self._place(row - self.head.row) for row in seen.rows]
        features = [tally for j, tally in self.tallies.items() if j in numeric]
        held = [tally for tally in features if tally.is_text]
        read = [tally for tally in features if not tally.is_text]
        proven = self.head.proven | {tally.decimal for tally in read if tally.proven}
        found = [each for tally in read for each in tally.findings(proven)]
        return [
            *self._of_ragged(),
            *self._of_totals(),
            *of_text_columns(held, alone=self.head.width == 1, has_names=self.form.label is not None),
            *found,
            *self._of_open_marks([tally for tally in read if tally.is_open and tally.decimal not in proven]),
            *(each for j, classes in self._categories() for each in of_variants(self.head.called[j], classes)),
            *self._of_ends(),
        ]

    def notation(self) -> Notation:
        """Return the units of the features and the column of row names, where names do not repeat; after the pass."""
        counts, called = Counter(self.head.called), self.head.called
        tallies = [self.tallies[j] for j in self.form.numeric if j in self.tallies and self.tallies[j].units]
        units = {tally.name: tally.unit() for tally in tallies if counts[tally.name] == 1}
        cells = {tally.name: str(tally.units[tally.unit()]) for tally in tallies}
        there = frozenset(called[j] for j in self.form.numeric if self.numbers.n_numbers[j])
        label = None if self.form.label is None else called[self.form.label]
        ids = label if label and counts[label] == 1 and self.head.names is not None else None
        return Notation(units, cells, there, ids)

    def _of_open_marks(self, tallies: Sequence[Tally]) -> Iterator[Finding]:
        # Where semicolons are between columns, points often separate thousands.
        source = self.head.source
        if tallies and isinstance(source, TextRows) and source.separator == ";":
            name, mark = tallies[0].name, tallies[0].decimal
            read = f"is read with {mark!r} as the decimal mark, but may be a whole number"
            text = f"column {name!r}: {tallies[0].grouped} {read}."
            uses = ((Setting("thousands", mark), " if it separates thousands"),)
            yield Finding(text, uses, (name,), is_error=False, applies=False)

    def _categories(self) -> Iterator[tuple[int, Iterable[str]]]:
        yield from () if self.choices.remembered else self.form.classes.items()
        for j, tally in self.tallies.items():
            if tally.kind == "label" and j not in self.form.classes:
                yield j, tally.distinct or ()

    def _of_ends(self) -> Iterator[Finding]:
        if n := len(self._headers):
            repeat = "row that repeats the header is" if n == 1 else f"{n:,} rows that repeat the header are"
            yield Finding(f"the {repeat} not used.", is_error=False)
        if begin := self.head.numbered:
            row = f"row {self.head.row:,} holds whole numbers that may number the columns, and is used as a sample."
            yield Finding(row, self._skip([begin]), is_error=False)
        if n := self._blank.count:
            used = "not used" if self.form.label is not None else "used as a sample" if n == 1 else "used as samples"
            text = f"{plural(n, 'row')} of empty cells {'is' if n == 1 else 'are'} {used} ({self._blank.places})."
            yield Finding(text, is_error=False)
        if n := self.n_empty:
            rows = "row of empty cells is" if n == 1 else f"{n:,} rows of empty cells are"
            yield Finding(f"the last {rows} ignored.", is_error=False)
        if self._is_right_sum and self.n_rows >= _ADDENDS:
            name = self.head.called[self.form.numeric[-1]]
            text = f"column {name!r} is the sum of the other columns and is used as a feature."
            yield Finding(text, (use("drop", [name]),), (name,), is_error=False, applies=False)
        if self.total:
            text = f"the last row is {self.total} and is not used as a sample."
            yield Finding(text, ((Setting("keep_total", True), " to keep it"),), is_error=False, applies=False)

        if not (self.is_wide or self.form.classes or self.choices.remembered):
            said = {mark for tally in self.tallies.values() for mark in tally.marks}
            marks = [mark for mark in self.choices.na if mark not in said and not self._is_marked(mark)]
            if marks:
                text = f"no cell of a feature has the missing value {' or '.join(map(repr, marks))}."
                yield Finding(text, is_error=False)

    def _is_marked(self, mark: str) -> bool:
        return any(not self.numbers.marked.isdisjoint(values_of([mark], decimal)) for decimal in OTHER)

    def _of_totals(self) -> Iterator[Finding]:
        if self.choices.keep_total:
            return
        if self._summary:
            what, label, begin = self._summary
            looks = f"the last row, {label}, holds the {what} of the others and is used as a sample."
            yield Finding(looks, self._skip([begin]), is_error=False)
        self._add_top()
        keep = Setting("keep_total", True), " to use all rows as samples"
        if 0 < len(self._totals) <= max(1, self.n_rows // 2):
            labels, starts = zip(*self._totals.values(), strict=True)
            seen, begins = Seen(labels[0]), sorted(set(starts))
            seen.add(len(self._totals), map(self._place, sorted(self._totals)))
            looks = f"{plural(seen.count, 'row')} may be totals: {seen}."
            yield Finding(looks, (*(self._skip(begins) if len(begins) <= _SKIPPED else ()), keep))
        if (seen := self._named).count:
            is_few = seen.count <= _NOTES
            have = "has" if seen.count == 1 else "have"
            text = f"{plural(seen.count, 'row')} {have} only a name and no values: {seen}."
            uses = (*self._skip(sorted(seen.texts)), keep) if is_few else (keep,)
            yield Finding(text, uses, is_error=is_few, applies=is_few)

    def _add_top(self) -> None:
        """Take the first row for a total if it is the sum of the others, as that of a country above its regions."""
        if self._top is None or self.n_rows <= _ADDENDS:
            return
        numbers, cells = self._top
        sums = self.numbers.sums[self.form.numeric]
        there = np.where(np.isnan(numbers), 0, numbers)
        n_equal = np.sum((there != 0) & (np.abs(2 * there - sums) <= 1e-9 * self.numbers.sizes[self.form.numeric]))
        if 1 < n_equal == np.sum(there != 0):
            place = next(j for j, cell in enumerate(cells) if cell != "")
            end = len(cells) if place in self.form.numeric else place + 1
            label = str(cells[place]) if end <= place + 1 else ""
            self._totals.setdefault(0, (label, self._beginning([shown(cell) for cell in cells[:end]])))

    def _skip(self, begins: Sequence[str]) -> tuple[tuple[Part, ...], ...]:
        source = self.head.source
        is_stored = not isinstance(source, TextRows) and source.names is not None
        if is_stored or any("\n" in begin for begin in begins):  # comments are beginnings of lines
            return ()
        return ((naming("comment", begins), f" to skip {'it' if len(begins) == 1 else 'them'}"),)

    def _of_ragged(self) -> Iterator[Finding]:
        if not self.ragged:
            return
        first, more = self.ragged[0], len(self.ragged) - 1
        if more < _SKIPPED and all(is_note(text, count) for _, count, text in self.ragged):
            notes = [text.strip().lstrip('"')[:_SHOWN] for *_, text in self.ragged]
            has, holds = ("row", "holds") if not more else ("rows", "hold")
            rows = ", ".join(f"{row:,}" for row, *_ in self.ragged)
            shown = f"{has} {rows} {holds} only a text: {', '.join(map(repr, notes))}."
            yield Finding(shown if self._skip(notes) else f"{shown} Remove it from the table.", self._skip(notes))
            return
        below = f", and {plural(more, 'row')} below {'differs' if more == 1 else 'differ'}, too" if more else ""
        counted = f"row {first[0]:,} has {plural(first[1], 'cell')}, but the header has {self.head.width:,}{below}."
        yield Finding(f"{counted} Every row must have as many cells as the header. Correct these rows in the file.")

    def batches(self) -> Iterator[Any]:
        source, before = self.head.source, 0
        if not isinstance(source, TextRows):
            n_bytes = _CELL if isinstance(source, Grid) or self.form.texts else _STORED
            yield from source.batches(max(1, block_bytes(self._memory) // (n_bytes * self.head.width)))
            return
        # Numbers of short cells, such as counts, take more memory than their text.
        size = block_bytes(self._memory) * min(1, source.row_bytes / (8 * self.head.width))
        if self.is_wide:
            size /= _PARTS
        cut = self._cut if self.is_wide else self._parsed
        for piece in source.pieces(max(int(size), _WIDEST * self.head.width), self._memory):
            batch = cut(source, piece, before)
            before += batch.num_rows
            yield batch

    def _cut(self, source: TextRows, piece: bytes, before: int) -> TextBatch:
        try:
            lines = io.StringIO(piece.decode(), newline="")
        except UnicodeDecodeError as error:
            raise undecoded(self._path, source.form) from error
        cells = list[str]()
        for i, row in enumerate(filter(None, csv.reader(lines, delimiter=source.separator, strict=True))):
            if len(row) == self.head.width:
                cells += row
            else:
                self._add_ragged(self.head.row + before + i, len(row), source.separator.join(row[:3]))
        return TextBatch(strings(cells), self.head.width)

    def _parsed(self, source: TextRows, piece: bytes, before: int) -> Any:
        arrow_csv = optional("pyarrow.csv", "parquet")
        names = numbered(self.head.width)

        def invalid(row: Any) -> str:
            self._add_ragged(self.head.row + before + (row.number or 0) - 1, row.actual_columns, row.text)
            return "skip"

        read = arrow_csv.ReadOptions(column_names=names, block_size=len(piece) + 1, use_threads=False)
        parse = arrow_csv.ParseOptions(delimiter=source.separator, newlines_in_values=True, invalid_row_handler=invalid)
        convert = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
        pool = pa.system_memory_pool()  # the default pool does not return freed memory to the system
        try:
            table = arrow_csv.read_csv(pa.BufferReader(piece), read, parse, convert, pool)
        except (UnicodeDecodeError, pa.ArrowInvalid) as error:
            if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in str(error):
                raise undecoded(self._path, source.form) from error
            raise
        batches = table.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)

    def _add_ragged(self, row: int, count: int, text: str) -> None:
        source = self.head.source
        if isinstance(source, TextRows) and source.form.blanks:  # the words of a note are cells
            words = text.split()
            text, noted = " ".join(words), 2 * sum(map(any_number, words)) < len(words)
            count = 1 if noted and count != self.head.width - 1 else count  # R wraps a wide table below its header
        if text.strip("\0\x1a \t\r\n"):  # zero bytes, and the sign of the end of a file of DOS, are no row
            self.ragged.append((row, count, text if len(self.ragged) < _RAGGED else ""))

    def _place(self, i: int) -> int:
        """Return the number of a row in the file, where headers may repeat above it."""
        i += bisect_right(self._blanks, i)
        return self.head.row + i + bisect_right(self._headers, i)

    def _kept(self, batches: Iterator[Any]) -> Iterator[Any]:
        # Hold back the last rows: they may be empty, as at the end of a spreadsheet, with a total above.
        held, n_rows, n_before = list[Any](), 0, 0
        self._begin()
        for batch in batches:
            batch = self._without_headers(batch, n_before)
            n_before += batch.num_rows
            if held and (self._is_typed or filled_rows(batch, batch.num_rows)):
                self._has_begun = True
                held = [self._without_blanks(each, n_rows) for each in held]
                self._add_totals(held[0], n_rows)
                n_rows += sum(each.num_rows for each in held)
                yield from held
                held.clear()
            held.append(batch)
        last = held[0].slice(0, filled_rows(held[0], held[0].num_rows)) if held else None
        if last is None or not last.num_rows:
            return
        self.n_empty = sum(each.num_rows for each in held) - last.num_rows
        last = self._without_blanks(last, n_rows)
        self._add_totals(last, n_rows, is_end=True)
        end = last.num_rows - 1
        before = filled_rows(last, end)
        self._has_begun |= before > 0
        if before:
            yield last.slice(0, before)
        if not self._is_total(row_of(last, end), n_rows + end):
            yield last.slice(before)

    @cached_property
    def _plain_names(self) -> Any:
        return strings(plain_names(self.head.names or ()))

    def _without_headers(self, batch: Any, n_before: int) -> Any:
        if self.head.names is None or any(map(holds_numbers, set(kinds_of(batch)))):
            return batch
        texts = (pc.replace_substring(as_texts(batch.column(j)), "\ufeff", "") for j in range(len(self._plain_names)))
        plain = (pc.utf8_lower(pc.utf8_trim_whitespace(text)) for text in texts)
        repeats = rows_in_all(map(pc.equal, plain, self._plain_names))
        if repeats is None:
            return batch
        places = np.flatnonzero(as_numpy(repeats))
        self._headers += (n_before + places - np.arange(len(places))).tolist()
        return batch.filter(pc.invert(repeats))

    def _without_blanks(self, batch: Any, n_before: int) -> Any:
        """Remove rows of empty cells from a table with row names, of which every sample has one."""
        if self._is_typed or self.form.label is None:
            return batch
        cells = (as_texts(batch.column(j)) for j in (self.form.label, *range(batch.num_columns)))
        are_blank = rows_in_all(is_empty(pc.utf8_trim_whitespace(text)) for text in cells)
        if are_blank is None:
            return batch
        places = np.flatnonzero(as_numpy(are_blank))
        above = places + n_before + len(self._blanks)
        self._blank.add(len(places), (self.head.row + i + bisect_right(self._headers, i) for i in above.tolist()))
        self._blanks += (n_before + places - np.arange(len(places))).tolist()
        return batch.filter(pc.invert(are_blank))

    def _add_totals(self, batch: Any, first: int, *, is_end: bool = False) -> None:
        for j in sorted({0, self.form.label or 0, *self.form.texts}):
            is_first = j in (0, self.form.label)
            maybe = dict[int, str]()
            column, seen = batch.column(j), self._labels
            totals = rows_of_totals(column, seen, is_first=is_first, is_end=is_end, possible=maybe)
            if not is_first and self.form.label is not None:  # a row with a name and an empty cell is a sample
                maybe = {i: label for i, label in maybe.items() if label}
            for found, rows in ((totals, self._totals), (maybe, self._maybe)):
                for i, label in found.items():
                    shown_to = j + 1 if label else batch.num_columns
                    cells = [shown(stored_value(column[i].as_py())) for column in map(batch.column, range(shown_to))]
                    rows.setdefault(first + i, (label, self._beginning(cells).lstrip()))

    def _beginning(self, cells: Sequence[str | float]) -> str:
        source = self.head.source
        mark = "," if not isinstance(source, TextRows) else " " if source.form.blanks else source.separator
        return mark.join(map(str, cells))

    def _is_total(self, cells: Sequence[str | float], row: int) -> bool:
        place, cell = next(((j, cell) for j, cell in enumerate(cells) if cell != ""), (-1, ""))
        label, n_filled = str(cell), sum(cell != "" for cell in cells)
        odd = [j for j in self.form.numeric if isinstance(cells[j], str) and cells[j] and not any_number(str(cells[j]))]
        read = set(self.form.numeric) - self.form.texts
        noted = bool(read) and NOTE.match(label) is not None and 2 * len(read.intersection(odd)) >= len(read)
        if odd and (noted or (place in self.form.numeric and n_filled == 1 < len(cells))):
            self._add_ragged(self._place(self.n_rows), 1, self._beginning(cells[: place + 1]))
            return True
        if self.choices.keep_total or not self._has_begun:
            return False
        total, begin = self._totals.pop(row, ("", ""))
        if total and not any(map(str.isalnum, total)):  # such as %, known by the n above: name both
            self._totals[row] = total, begin
        elif total and total not in [label for label, _ in self._totals.values()]:
            self.total = f"a total ({total!r})"
        elif self.n_rows >= _ADDENDS:
            self._compare(cells, place, row)
        return bool(self.total)

    def _refuse_note(self, cells: Sequence[str | float], i: int) -> None:
        """Take a row of one text for a note; another remedy than that for a cell that does not fit."""
        filled = [(j, str(cell)) for j, cell in enumerate(cells) if cell != ""]
        row = self._place(self.n_rows + i)
        if self.head.names and sorted(plain_names(map(str, cells))) == sorted(plain_names(self.head.names)):
            swapped = f"row {row:,} holds the names of the header in another order."
            raise Refused(f"{swapped} Put the columns below it in the order of the header.")
        if not filled:
            self._blank.add(1, (row,))
        elif len(filled) == 1 < len(cells):
            (j, cell), begin = filled[0], self._beginning(cells[: filled[0][0] + 1])
            is_name = j in self.form.texts or j not in self.form.numeric
            if is_name and (len(cells) > 2 or NOTE.match(cell)):
                self._named.text = self._named.text or cell
                self._named.add(1, (row,), begin)
            elif (tally := self.tallies.get(j)) and tally.forget(cell):
                self._add_ragged(row, 1, begin)
        elif all(is_unit(cell) or not any(map(str.isalnum, cell)) for _, cell in filled):  # units, or a drawn line
            odd = [tally for j, cell in filled if (tally := self.tallies.get(j)) and tally.forget(cell)]
            if len(odd) > 1:
                self._add_ragged(row, 1, self._beginning(cells))
        elif self._are_names(cells):
            names = few([repr(cell) for j, cell in filled if j in self.form.numeric], 2)
            like = f"row {row:,} holds only texts, such as {names}, like the header of another table."
            raise Refused(f"{like} Put each table into a file of its own, or correct this row in the file.")

    def _are_names(self, cells: Sequence[str | float]) -> bool:
        """Return True if all numbers of a row are replaced by texts that differ and occur once in their columns."""
        read = [j for j in self.form.numeric if j not in self.form.texts]
        seen = [self.tallies[j].texts.get(str(cells[j])) for j in read if j in self.tallies]
        new = {each.text for each in seen if each and each.count == 1}
        return 1 < len(new) == len(read)

    @np.errstate(invalid="ignore")  # infinite values are refused later
    def _compare(self, cells: Sequence[str | float], place: int, row: int) -> None:
        """Remove a last row of sums of the others. Name one with rounded sums, means or medians, or their number."""
        at = [j for j in self.form.numeric if not is_gap(str(cells[j]))]
        found = [value_of(cells[j], self.head.decimals[j]) for j in at]
        if not at or None in found:
            return
        values, of, label = np.array(found, np.float64), self.numbers, str(cells[place])
        many = np.sum((of.counts[at] >= _ADDENDS) & (of.sums[at] != 0))
        rounding = SUMMED if self.form.dtype == np.float32 else 1e-9
        n, errors = np.maximum(of.n_numbers[at], 1), rounding * of.sizes[at]
        are_sums, means = bool(np.all(np.abs(values - of.sums[at]) <= errors)), of.sums[at] / n
        has_no_name = self.form.label is not None and cells[self.form.label] == ""
        is_free = has_no_name or place not in self.form.numeric
        is_free &= len(at) > 1 or len(at) < len(self.form.numeric)
        is_sign = not any(map(str.isalnum, label))  # SAP writes * for a total
        steps = np.array([last_place(str(cells[j])) for j in at])
        chance = np.prod(np.minimum(1, steps / np.maximum(of.deviations[at], steps)))  # of a sample at these numbers
        if are_sums and many > (0 if is_sign else 1):
            of_what = f"{label!r}, the sum of the others," if number(label) is None else "of sums"
            self.total = f"a total ({of_what})"
        elif has_no_name and many > 1 and bool(np.all(np.abs(values - means) <= errors / n)):
            self.total = "a row of means"
        elif many and (is_free or chance < _CHANCE):
            wanted = {"rounded sums": of.sums[at]}
            wanted |= {"rounded means": means, "medians": self._medians(at)} if chance < _CHANCE else {}
            loose = _LOOSE if self._maybe.get(row, ("", ""))[0] else 0  # its label may be that of a total

            def is_near(other: npt.NDArray[np.float64]) -> bool:
                margins = np.maximum(0.5000001 * steps, loose * np.abs(other)) + errors / n
                return bool(np.all(np.abs(values - other) <= margins))

            holds = [what for what, each in wanted.items() if many > 1 and is_near(each)]
            holds += ["sum"] * are_sums + ["number"] * bool(is_free and np.all(values == of.n_numbers[at]))
            if holds:
                called = "without a name" if place in self.form.numeric else repr(label)
                self._summary = holds[0], called, self._beginning(cells[: place + 1])

    def _medians(self, at: Sequence[int]) -> npt.NDArray[np.float64]:
        """Return the medians of a small table, else NaN."""
        if sum(map(len, self._small)) < self.n_rows or not np.all(self.numbers.n_numbers[at]):
            return np.full(len(at), np.nan)
        places = [self.form.numeric.index(j) for j in at]
        return np.asarray(np.nanmedian(np.concatenate(self._small)[:, places], axis=0), np.float64)

    def _add_right_sum(self, numbers: npt.NDArray[np.float64]) -> None:
        if self._is_right_sum:
            there = np.where(np.isnan(numbers), 0, numbers)
            error, size = np.abs(there[:, :-1].sum(1) - there[:, -1]), np.abs(there).sum(1)
            self._is_right_sum = bool(np.all(error <= 1e-9 * size))

    def _add_sums_of_groups(self, numbers: npt.NDArray[Any], above: npt.NDArray[np.float64]) -> None:
        """Take rows with a label such as North Total for totals if they are sums of rows above them."""
        first, done = self.n_rows, above - self._excess
        there, begin = np.where(np.isnan(numbers), 0, numbers).astype(np.float64), 0
        for i in (i for i in range(len(there)) if first + i in self._maybe or first + i in self._totals):
            done, begin, n_above = done + there[begin:i].sum(0), i + 1, first + i - self._n_excess
            if first + i not in self._totals and not any(
                n_above - n > 1 and holds_sums(there[i], done - sums) for n, sums in self._bounds
            ):
                done = done + there[i]
                continue
            self._totals.setdefault(first + i, self._maybe.get(first + i, ("", "")))
            self._excess, self._n_excess = self._excess + there[i], self._n_excess + 1
            self._bounds = [self._bounds[0], *self._bounds[1:][-_BOUNDS:], (n_above, done)]

    def _block(self, batch: Any) -> Block:
        form, above = self.form, self.numbers.sums[self.form.numeric]
        numbers = self._read(batch)[:, form.numeric]
        if (self._maybe or self._totals) and not self.choices.keep_total:
            self._add_sums_of_groups(numbers, above)
        for i in np.flatnonzero(np.all(np.isnan(numbers), axis=1))[:_VALUELESS].tolist():
            self._refuse_note(row_of(batch, i), i)
        if not self.n_rows and len(numbers):
            self._top = numbers[0].copy(), row_of(batch, 0)
        if numbers.size + sum(each.size for each in self._small) <= _KEPT:
            self._small.append(numbers)
        self._add_right_sum(numbers)
        about = form, self.head.called, self.choices.na, lambda i: self._place(self.n_rows + i)
        numbers = with_indicators(numbers, batch, *about)
        self.n_rows += len(numbers)
        names = [] if form.label is None else texts(batch.column(form.label)[: self._n_names])
        names = names if self._is_typed else [name.strip() for name in names]
        return Block(numbers, names, batch)

    @cached_property
    def _alike(self) -> tuple[str, list[int]]:
        """The usual decimal mark, and the columns of numbers with it."""
        point = Counter(self.head.decimals).most_common(1)[0][0]
        return point, [j for j in self._tallied if self.head.decimals[j] == point and j not in self.form.texts]

    def _read(self, batch: Any) -> npt.NDArray[Any]:
        """Return numbers for all columns. Parse the plain ones at once, and the others cell by cell."""
        first = self.head.row + self.n_rows
        if isinstance(batch, TextBatch):
            point, wanted = self._alike
            found = plain_numbers(batch.columns(wanted), point, gaps_of((*GAPS, *self.choices.na)))
            are_odd = np.isin(np.arange(len(wanted)), found.odd % len(wanted))
            stored = [j for j, is_odd in zip(wanted, are_odd, strict=True) if not is_odd]
            values = found.values.reshape(-1, len(wanted))[:, ~are_odd]
        else:
            kinds = kinds_of(batch)
            are_numbers = {kind: holds_numbers(kind) for kind in set(kinds)}
            stored = [j for j in self._tallied if are_numbers[kinds[j]] and j not in self.form.texts]
            values, point = numbers_in(batch, stored, self.form.dtype), "."
        values = self.numbers.without(values, values_of(self.choices.na, point))
        X = np.full((batch.num_rows, self.head.width), np.nan, self.form.dtype)
        X[:, stored] = values
        self.numbers.n_missing[stored] += np.isnan(values).sum(0)
        for place in np.flatnonzero(np.isin(stored, list(self.tallies))).tolist():
            self.tallies[stored[place]].add_examples(values[:, place])
        others = [(j, self._tally(j), batch.column(j)) for j in sorted(set(self._tallied).difference(stored))]
        read = ordered(lambda each: each[1].read(each[2], first), others, default_threads())
        for (j, *_), numbers in zip(others, read, strict=True):
            X[:, j] = numbers
        self.numbers.add(X, first)
        return X
