"""Rows of a table in blocks: texts, sheets and databases, with what does not fit."""

import csv
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from shiftsvd.errors import Part, Setting, plural
from shiftsvd.io.base import bounded_lines, optional
from shiftsvd.io.choices import Choices, naming
from shiftsvd.io.formats.cells import Number, any_number, arrow, as_numpy, is_gap, number, strings
from shiftsvd.io.formats.columns import Positions, as_texts, numbers_of, texts, use, with_indicators
from shiftsvd.io.formats.grid import Grid, Stored, shown
from shiftsvd.io.formats.header import Head, numbered
from shiftsvd.io.formats.tally import Finding, Seen, Tally, is_total, of_text_columns, rows_of_totals
from shiftsvd.io.formats.text import TextRows, block_bytes, opened, undecoded

_SHOWN = 60  # characters of a line in an error
_RAGGED = 30  # rows of another width whose text is kept
_WIDEST = 32  # bytes of text of one number
_CUT = 12  # bytes of memory for each byte of a row that is split into cells
# Columns from which the csv module of Python beats Arrow, which takes about 10 kB for each, and a call for each
# column of a block: 18 s and 0.4 GB for 60 MB of text with 6,000 columns, against 6 s and 0.2 GB.
_WIDE = MOST = 1 << 10
_STORED = 24  # bytes of memory for a number of a Parquet or Arrow file while a block is converted
_CELL = 200  # bytes of memory for a cell of a sheet or database while a block is converted
_NOTES = 3  # rows of one cell that may be notes
_NOTE = re.compile(r"\W*[^\W\d][^,;\t|:=]*[:=]")  # Source: registry
_SKIPPED = 6  # beginnings of rows that an error names for `comment`
_VALUELESS = 1000  # rows of a block without values that are looked at
_ADDENDS = 3  # rows, and entries that are not zero, from which a last row of sums is a total


class Block(NamedTuple):
    """Consecutive rows: numbers, names of rows, and cells of a column of texts."""

    numbers: npt.NDArray[np.float64]
    names: Sequence[str]
    texts: Sequence[str]


class Rows:
    """One pass over the rows of a text file. It counts what does not fit, and keeps back empty rows and a total."""

    def __init__(
        self,
        path: Path,
        head: Head,
        choices: Choices,
        memory_limit: int | str | None = None,
        *,
        text: int | None = None,  # position of a column of texts to return
        everything: bool = False,  # also tally columns that are not features, for a profile, which shows a few names
    ) -> None:
        self.head, self.ragged, self.total, self.n_empty = head, list[tuple[int, int, str]](), "", 0
        self._path, self._choices, self._memory, self._text = path, choices, memory_limit, text
        self.n_rows, self._has_begun = 0, False
        self._totals = dict[int, tuple[str, str]]()  # rows like totals: their label, and the beginning of the line
        self._labels = set[str]()
        self._named, self._blank = Seen(""), Seen("")  # rows of one text, without numbers, and of empty cells
        self._headers = list[int]()  # rows that repeat the header: number of rows above each without them
        self.form = head.form
        features = set(self.form.numeric)
        tallied = range(head.width) if everything else features
        self._n_names = _SHOWN if everything else None
        self.tallies = {
            j: Tally(head.called[j], head.decimals[j], choices, j in self.form.texts, not self.is_text)
            for j in (() if self.is_wide else tallied)
        }
        if head.form.unknown:
            batches = self._kept(self.batches())
            self.form = head.form.with_classes((j, one.column(j)) for one in batches for j in head.form.unknown)
            self.ragged.clear()
        free = [] if choices.remembered else [head.called[j] for j in self.form.numeric[-1:]]
        self._is_right_sum = len(self.form.numeric) > 2 and is_total(free) and free[0] not in choices.columns
        self._sums = np.zeros((3, len(self.form.numeric)))  # of values, absolute values and entries that are not zero

    @property
    def names(self) -> list[str] | None:
        return None if self.head.names is None and not self.form.classes else self.form.named(self.head.called)

    @property
    def is_wide(self) -> bool:
        return self.head.width > _WIDE and not self.form.classes and self.is_text

    @property
    def is_text(self) -> bool:
        return isinstance(self.head.source, TextRows)

    def __iter__(self) -> Iterator[Block]:
        yield from self._wide() if self.is_wide else map(self._block, self._kept(self.batches()))

    def triplets(self, where: Positions) -> Iterator[Any]:
        """Yield batches of triplets, with the values as numbers."""
        j, called = where[2], self.head.called
        self.tallies = {j: Tally(called[j], self.head.decimals[j], self._choices)}
        for batch in self.batches():
            values = arrow(self.tallies[j].read(batch.column(j), self.head.row + self.n_rows))
            self.n_rows += batch.num_rows
            yield batch.set_column(j, batch.schema.names[j], values)

    def findings(self) -> list[Finding]:
        """Return what does not fit, after the pass, and what is read in a way that the user should know."""
        numeric = set(self.form.numeric)
        for seen in (each for tally in self.tallies.values() for each in tally.seen):
            seen.rows = [self._place(row - self.head.row) for row in seen.rows]
        features = [tally for j, tally in self.tallies.items() if self.head.triplets or j in numeric]
        held = [tally for tally in features if tally.is_text]
        read = [tally for tally in features if not tally.is_text]
        proven = self.head.proven | {tally.decimal for tally in read if tally.proven}
        found = [each for tally in read for each in tally.findings(proven)]
        return [
            *self._of_ragged(),
            *self._of_totals(),
            *([of_text_columns(held, alone=self.head.width == 1)] if held else ()),
            *found,
            *self._of_ends(),
        ]

    def _of_ends(self) -> Iterator[Finding]:
        if n := len(self._headers):
            repeat = "row that repeats the header is" if n == 1 else f"{n:,} rows that repeat the header are"
            yield Finding(f"the {repeat} not used.", is_error=False)
        if n := self._blank.count:
            are = "is used as a sample" if n == 1 else "are used as samples"
            yield Finding(f"{plural(n, 'row')} of empty cells {are} ({self._blank.places}).", is_error=False)
        if n := self.n_empty:
            rows = "row of empty cells is" if n == 1 else f"{n:,} rows of empty cells are"
            yield Finding(f"the last {rows} ignored.", is_error=False)
        if self._is_right_sum and self.n_rows >= _ADDENDS:
            name = self.head.called[self.form.numeric[-1]]
            text = f"column {name!r} is the sum of the other columns and is used as a feature."
            yield Finding(text, (use("drop", [name]),), (name,), is_error=False, applies=False)
        if self.total:
            text = f"the last row is a total ({self.total}) and is not used as a sample."
            yield Finding(text, ((Setting("keep_total", True), " to keep it"),), is_error=False, applies=False)

    def _of_totals(self) -> Iterator[Finding]:
        if self._choices.keep_total:
            return
        keep = Setting("keep_total", True), " to use all rows as samples"
        if 0 < len(self._totals) <= max(1, self.n_rows // 2):
            labels, starts = zip(*self._totals.values(), strict=True)
            seen, begins = Seen(labels[0]), sorted(set(starts))
            seen.add(len(self._totals), map(self._place, self._totals))
            looks = f"{plural(seen.count, 'row')} above the last one may be totals: {seen}."
            yield Finding(looks, (*((_skip(begins),) if len(begins) <= _SKIPPED else ()), keep))
        if (seen := self._named).count:
            is_few = seen.count <= _NOTES
            have = "has" if seen.count == 1 else "have"
            text = f"{plural(seen.count, 'row')} {have} only a name and no values: {seen}."
            uses = (_skip(sorted(seen.texts)), keep) if is_few else (keep,)
            yield Finding(text, uses, is_error=is_few, applies=is_few)

    def _of_ragged(self) -> Iterator[Finding]:
        if not self.ragged:
            return
        first, more = self.ragged[0], len(self.ragged) - 1
        if more < _NOTES and all(_is_note(text, count) for _, count, text in self.ragged):
            notes = [text.strip().lstrip('"')[:_SHOWN] for *_, text in self.ragged]
            has, holds = ("row", "holds") if not more else ("rows", "hold")
            rows = ", ".join(f"{row:,}" for row, *_ in self.ragged)
            shown = f"{has} {rows} {holds} only a text: {', '.join(map(repr, notes))}."
            yield Finding(shown, (_skip(notes),))
            return
        below = f", and {plural(more, 'row')} below {'differs' if more == 1 else 'differ'}, too" if more else ""
        counted = f"row {first[0]:,} has {plural(first[1], 'cell')}, but the header has {self.head.width:,}{below}."
        yield Finding(f"{counted} Every row must have as many cells as the header. Correct these rows in the file.")

    def batches(self) -> Iterator[Any]:
        source, before, typed = self.head.source, 0, set[int]()
        if not isinstance(source, TextRows):
            n_bytes = _CELL if isinstance(source, Grid) or self.form.texts else _STORED
            yield from source.batches(max(1, block_bytes(self._memory) // (n_bytes * self.head.width)))
            return
        for piece in source.pieces(max(block_bytes(self._memory), _WIDEST * self.head.width), self._memory):
            batch = self._parsed(source, piece, typed, before)
            yield batch
            if not before and not any(map(any_number, self._choices.na)):
                typed = {j for j, tally in self.tallies.items() if j in self.form.numeric and not tally.is_text}
            before += batch.num_rows

    def _parsed(self, source: TextRows, piece: bytes, typed: set[int], before: int) -> Any:
        """Parse rows: columns of numbers as such, unless a cell is no plain number; the others as texts."""
        pa, arrow_csv = optional("pyarrow", "parquet"), optional("pyarrow.csv", "parquet")
        names, known = numbered(self.head.width), len(self.ragged)
        points = Counter(self.head.decimals[j] for j in typed)
        point = max(points, key=lambda mark: points[mark], default=".")
        typed.intersection_update({j for j in typed if self.head.decimals[j] == point})

        def invalid(row: Any) -> str:
            self._add_ragged(self.head.row + before + (row.number or 0) - 1, row.actual_columns, row.text)
            return "skip"

        kinds = {name: pa.float64() if j in typed else pa.string() for j, name in enumerate(names)}
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(piece),
                arrow_csv.ReadOptions(column_names=names, block_size=len(piece) + 1, use_threads=False),
                arrow_csv.ParseOptions(
                    delimiter=source.separator, newlines_in_values=True, invalid_row_handler=invalid
                ),
                arrow_csv.ConvertOptions(column_types=kinds, null_values=[""], decimal_point=point),
            )
        except (UnicodeDecodeError, pa.ArrowInvalid) as error:
            failed = re.search(r"CSV column #(\d+): CSV conversion error to double", str(error))
            if failed is None:
                if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in str(error):
                    raise undecoded(self._path, source.form) from error
                raise
            doubtful = {int(failed[1])}
        else:
            batches = table.combine_chunks().to_batches()
            batch = batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)
            doubtful = {j for j in typed if not self.tallies[j].reads(batch.column(j))}
            if not doubtful:
                return batch
        typed -= doubtful
        del self.ragged[known:]
        return self._parsed(source, piece, typed, before)

    def _add_ragged(self, row: int, count: int, text: str) -> None:
        self.ragged.append((row, count, text if len(self.ragged) < _RAGGED else ""))

    def _place(self, i: int) -> int:
        """Return the number of a row in the file, where headers may repeat above it."""
        return self.head.row + i + bisect_right(self._headers, i)

    def _kept(self, batches: Iterator[Any]) -> Iterator[Any]:
        # Hold back the last row with the empty rows around it: they may be a total, and the end of a spreadsheet.
        held, empty, n_rows = list[Any](), list[Any](), 0
        last: Any = None
        self._totals.clear()
        self._labels.clear()
        self._headers.clear()
        n_before = 0
        for batch in batches:
            batch = self._without_headers(batch, n_before)
            n_before += batch.num_rows
            end = batch.num_rows if isinstance(self.head.source, Stored) else _filled(batch, batch.num_rows)
            if end:
                before = _filled(batch, end - 1)
                self._has_begun |= bool(held or before)
                self._add_totals(last, n_rows)
                n_rows += 0 if last is None else last.num_rows
                last = batch.slice(0, end)
                if before:
                    yield from (*held, *empty, batch.slice(0, before))
                elif held:
                    yield from held
                held = [*(() if before else empty), batch.slice(before, end - before)]
                empty = []
            if end < batch.num_rows:
                empty.append(batch.slice(end))
        self.n_empty = sum(each.num_rows for each in empty)
        self._add_totals(last, n_rows, is_end=True)
        if held and not self._is_total(_row_of(held[-1], held[-1].num_rows - 1), n_rows + last.num_rows - 1):
            yield from held

    def _without_headers(self, batch: Any, n_before: int) -> Any:
        pc, names = optional("pyarrow.compute", "parquet"), self.head.names
        if names is None or any(numbers_of(column) is column for column in batch.columns):
            return batch
        repeats: Any = None
        for name, column in zip(strings(map(str.strip, names)), batch.columns, strict=True):
            equal = pc.equal(pc.utf8_trim_whitespace(as_texts(column)), name)
            repeats = equal if repeats is None else pc.and_(repeats, equal)
            if not pc.any(repeats).as_py():
                return batch
        places = np.flatnonzero(as_numpy(repeats))
        self._headers += (n_before + places - np.arange(len(places))).tolist()
        return batch.filter(pc.invert(repeats))

    def _add_totals(self, batch: Any, first: int, *, is_end: bool = False) -> None:
        labelled = {0, self.form.label or 0, *self.form.texts} if batch is not None else ()
        for j in sorted(labelled):
            is_first = j in (0, self.form.label)
            for i, label in rows_of_totals(batch.column(j), self._labels, is_first=is_first, is_end=is_end).items():
                cells = [shown(_stored(column[i].as_py())) for column in batch.columns[: j + 1]]
                self._totals.setdefault(first + i, (label, self._beginning(cells).lstrip()))

    def _beginning(self, cells: Sequence[str | float]) -> str:
        source = self.head.source
        return (source.separator if isinstance(source, TextRows) else ",").join(map(str, cells))

    def _is_total(self, cells: Sequence[str | float], row: int) -> bool:
        place, cell = next(((j, cell) for j, cell in enumerate(cells) if cell != ""), (-1, ""))
        label, n_filled = str(cell), sum(cell != "" for cell in cells)
        odd = [j for j in self.form.numeric if isinstance(cells[j], str) and cells[j] and not any_number(str(cells[j]))]
        is_note = _NOTE.match(label) is not None and 2 * len(odd) >= len(self.form.numeric)
        if odd and (is_note or (place in self.form.numeric and n_filled == 1 < len(cells))):
            self._add_ragged(self._place(self.n_rows), 1, self._beginning(cells[: place + 1]))
            return True
        if self._choices.keep_total or not self._has_begun:
            return False
        total, _ = self._totals.pop(row, ("", ""))
        if total and total not in [label for label, _ in self._totals.values()]:
            self.total = f"{total!r}"
        elif not isinstance(self.head.source, Stored) and self.n_rows >= _ADDENDS and self._is_sum(cells):
            self.total = f"{label!r}, the sum of the others," if number(label) is None else "of sums"
        return bool(self.total)

    def _refuse_note(self, cells: Sequence[str | float], i: int) -> None:
        """Take a row of one text for a note; another remedy than that for a cell that does not fit."""
        filled = [(j, str(cell)) for j, cell in enumerate(cells) if cell != ""]
        row = self._place(self.n_rows + i)
        if not filled:
            self._blank.add(1, (row,))
        elif len(filled) == 1 < len(cells):
            (j, cell), begin = filled[0], self._beginning(cells[: filled[0][0] + 1])
            if j not in self.form.numeric and (len(cells) > 2 or _NOTE.match(cell)):
                self._named.text = self._named.text or cell
                self._named.add(1, (row,), begin)
            elif (tally := self.tallies.get(j)) and tally.forget(cell):
                self._add_ragged(row, 1, begin)

    def _is_sum(self, cells: Sequence[str | float]) -> bool:
        found = [_value(cells[j], self.head.decimals[j]) for j in self.form.numeric if cells[j] != ""]
        if len(found) < len(self.form.numeric) or None in found:
            return False
        values, (sums, sizes, counts) = np.array(found, np.float64), self._sums
        return bool(np.all(np.abs(values - sums) <= 1e-9 * sizes) and np.sum((counts >= _ADDENDS) & (sums != 0)) > 1)

    def _add_sums(self, numbers: npt.NDArray[np.float64]) -> None:
        self.n_rows += len(numbers)
        there = np.where(np.isnan(numbers), 0, numbers)
        if self._is_right_sum:
            error, size = np.abs(there[:, :-1].sum(1) - there[:, -1]), np.abs(there).sum(1)
            self._is_right_sum = bool(np.all(error <= 1e-9 * size))
        self._sums += [there.sum(0), np.abs(there).sum(0), (there != 0).sum(0)]

    def _block(self, batch: Any) -> Block:
        first, form = self.head.row + self.n_rows, self.form
        columns = {j: tally.read(batch.column(j), first) for j, tally in self.tallies.items()}
        numbers = np.empty((batch.num_rows, len(form.numeric)), form.dtype)
        for place, j in enumerate(form.numeric):
            numbers[:, place] = columns[j]
        for i in np.flatnonzero(np.all(np.isnan(numbers), axis=1))[:_VALUELESS].tolist():
            self._refuse_note(_row_of(batch, i), i)
        self._add_sums(numbers)
        numbers = with_indicators(numbers, batch, form, self.head.called, self._choices.na)
        text = None if self._text is None else texts(batch.column(self._text))
        names = [] if form.label is None else texts(batch.column(form.label)[: self._n_names])
        return Block(numbers, names, text or [])

    def _wide(self) -> Iterator[Block]:
        step = max(1, block_bytes(self._memory) // (8 * len(self.form.numbers)))
        kept = self._kept_lines()
        while rows := list(islice(kept, step)):
            numbers, names, extra = zip(*rows, strict=True)
            label = [] if self.form.label is None else names
            yield Block(np.array(numbers), label, extra)

    def _kept_lines(self) -> Iterator[tuple[npt.NDArray[np.float64], str, str]]:
        held, empty = list[str](), 0
        for cells in self._lines():
            if not any(map(str.strip, cells)):
                empty += 1
                continue
            self._has_begun = bool(held)
            if held:
                yield from map(self._kept_line, [held, *[[""] * self.head.width] * empty])
            held, empty = cells, 0
        self.n_empty = empty
        if held:
            self._note_total(held)
            if not self._is_total([cell.strip() for cell in held], self.n_rows):
                yield self._kept_line(held)

    def _kept_line(self, cells: Sequence[str]) -> tuple[npt.NDArray[np.float64], str, str]:
        self._note_total(cells)
        numbers = self._row(cells, self.head.row + self.n_rows)
        self._add_sums(numbers[None])
        return numbers, cells[self.form.label or 0], cells[self._text or 0]

    def _note_total(self, cells: Sequence[str]) -> None:
        if is_total(cells):
            j = next(j for j, cell in enumerate(cells) if cell.strip())
            self._totals[self.n_rows] = (cells[j].strip(), self._beginning(cells[: j + 1]))

    def _lines(self) -> Iterator[list[str]]:
        source = cast("TextRows", self.head.source)
        with opened(self._path, source.form, self._memory) as stream:
            stream.read(source.skip)
            lines = (line.decode() for line in bounded_lines(self._path, stream, self._memory, _CUT, kept=False))
            for count, cells in enumerate(csv.reader(lines, delimiter=source.separator, strict=True), start=1):
                if cells and len(cells) != self.head.width:
                    self._add_ragged(self.head.row + count - 1, len(cells), source.separator.join(cells[:3]))
                elif cells and cells != self.head.names:
                    yield cells

    def _row(self, cells: Sequence[str], row: int) -> npt.NDArray[np.float64]:
        features = self.form.numbers
        chosen = cells if len(features) == len(cells) else [cells[j] for j in features]
        if "_" not in "".join(chosen) and not self._choices.na:  # only Python reads 1_0 as 10
            try:
                return np.array([cell or "nan" for cell in chosen], np.float64)
            except ValueError:
                pass
        values = np.full(len(features), np.nan)
        for place, (j, cell) in enumerate(zip(features, chosen, strict=True)):
            found = None if is_gap(cell) else number(cell, self.head.decimals[j])
            if is_gap(cell) or (found is not None and found == Number(found.value)):
                values[place] = np.nan if found is None else found.value
                continue
            if j not in self.tallies:
                self.tallies[j] = Tally(self.head.called[j], self.head.decimals[j], self._choices)
            values[place] = self.tallies[j].read(strings([cell]), row)[0]
        return values


def _skip(begins: Sequence[str]) -> tuple[Part, ...]:
    return naming("comment", begins), f" to skip {'it' if len(begins) == 1 else 'them'}"


def _is_note(text: str, n_cells: int) -> bool:
    return bool(text.strip()) and not any_number(text) and (n_cells == 1 or _NOTE.match(text.lstrip('"')) is not None)


def _filled(batch: Any, end: int) -> int:
    """Return the number of rows up to the last one before `end` that has a filled cell."""
    return next((i + 1 for i in reversed(range(end)) if any(cell != "" for cell in _row_of(batch, i))), 0)


def _row_of(batch: Any, i: int) -> list[str | float]:
    return [_cell(column[i].as_py()) for column in batch.columns]


def _stored(value: Any) -> Any:
    if isinstance(value, dict) and "number" in value:  # of a column with texts and numbers
        return value["text"] if value["number"] is None else value["number"]
    return value


def _cell(value: Any) -> str | float:
    value = _stored(value)
    return value.strip() if isinstance(value, str) else "" if value is None else value


def _value(cell: str | float, decimal: str) -> float | None:
    found = number(cell, decimal) if isinstance(cell, str) else Number(cell)
    return None if found is None else found.value
