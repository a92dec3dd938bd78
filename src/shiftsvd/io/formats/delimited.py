"""Delimited text: detect the delimiter, header and columns; parse rows many at a time."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from shiftsvd.errors import Part, Refused, Setting, plural
from shiftsvd.io.base import bounded_lines, bounded_width, optional
from shiftsvd.io.choices import Choices, naming
from shiftsvd.io.formats.cells import Number, any_number, arrow, is_gap, number, strings
from shiftsvd.io.formats.columns import (
    TRIPLETS,
    Layout,
    Positions,
    as_texts,
    layout_of_schema,
    layout_of_text,
    numbers_of,
    positions,
    texts,
    with_indicators,
)
from shiftsvd.io.formats.grid import Grid, Stored, grid_of, is_number, shown, shown_row
from shiftsvd.io.formats.tally import Finding, Seen, Tally, is_total, of_text_columns, rows_of_totals
from shiftsvd.io.formats.text import LINES, TextForm, beginning, opened, text_form, undecoded
from shiftsvd.runs.memory import limit_of

_SEP_LINE = re.compile(r"sep=.[ \t]*\r?\n", re.IGNORECASE)  # first line that spreadsheets write
_RULE = re.compile(r"[-=+|: ]*(-{4}|={4}|[|+]:?-{3})[-=+|: ]*")  # a line drawn between header and rows
_SEPARATORS = ",\t;|"
_SHOWN = 60  # characters of a line in an error
_ENOUGH = 20  # cells that prove the decimal mark of a column
_ABOVE = 30  # lines among which the header is searched


class TextRow(NamedTuple):
    """A row among the first ones: its cells and its text, and the bytes and lines up to its end."""

    cells: list[str]
    end: int
    line: int
    text: str
    stored: frozenset[int] = frozenset()  # places of cells that a sheet or a database stores as numbers

    @property
    def notation(self) -> list[str]:
        """The cells, with 1 for stored numbers, which have no decimal mark."""
        return ["1" if j in self.stored else cell for j, cell in enumerate(self.cells)] if self.stored else self.cells


class TextRows(NamedTuple):
    """The rows of a text file, from a byte on."""

    path: Path
    form: TextForm
    separator: str
    skip: int  # bytes before the first row, after the conversion by `form`

    def pieces(self, size: int, memory_limit: int | str | None) -> Iterator[bytes]:
        """Yield the text in pieces of whole rows of about `size` bytes; the first one is small."""
        with opened(self.path, self.form, memory_limit) as stream:
            stream.read(self.skip)
            rest, chunk = b"", stream.read(min(size, _FIRST))
            while chunk:
                text, chunk = rest + chunk, stream.read(size)
                end = _end_of_rows(text) if chunk else len(text)
                if end:
                    yield text[:end]
                rest = text[end:]


def _end_of_rows(text: bytes) -> int:
    # The end of the last line with as many quotes that begin cells as quotes that end them. A quote within a cell, as
    # in 5" pipe, makes their number odd on all lines below; rows do not have as many bytes as a block.
    mark = b"\n" if b"\n" in text else b"\r"
    last = end = text.rfind(mark) + 1
    n_quotes = text.count(b'"', 0, end)
    while n_quotes % 2:
        before = text.rfind(mark, 0, end - 1) + 1
        n_quotes -= text.count(b'"', before, end)
        end = before
    return end or (last if len(text) > _BLOCK else 0)


class Head(NamedTuple):
    """Layout of a table, as detected in its first rows: where its rows are, notation, names and use of columns."""

    source: TextRows | Grid | Stored
    width: int  # columns of the table
    names: Sequence[str] | None
    row: int  # number of the first row, as spreadsheets count
    decimals: Sequence[str]  # decimal mark of each column
    proven: frozenset[str]  # decimal marks that cannot separate thousands, such as that of 59.4
    form: Layout
    triplets: Positions | None

    @property
    def called(self) -> Sequence[str]:
        return _numbered(self.width) if self.names is None else self.names


def head_of(
    path: Path,
    key: str | None,
    choices: Choices,
    memory_limit: int | str | None = None,
    grid: Grid | Stored | None = None,
) -> Head:
    grid = grid or grid_of(path, key, memory_limit)
    if isinstance(grid, Grid) and grid.names is None:
        grid = grid._replace(skip=choices.skip, comments=choices.comments)
    source, found = (grid, _grid_rows(grid)) if grid else text_rows(path, choices, memory_limit)
    key = key if key in TRIPLETS else None
    n_blank = next((i for i, row in enumerate(found) if any(map(str.strip, row.cells))), 0)
    records, above = found[n_blank:], found[n_blank - 1] if n_blank else None
    if grid and grid.names is not None:  # a table of a database
        return _headed(source, key, choices, grid.names, records, None)
    _refuse_lines_above(records)
    first, *others = records
    cells = [cell.strip() for cell in first.cells]
    # A first line of numbers is a row, except 0, 1, 2, ...: pandas writes these as names.
    is_row = all(map(_is_header_number, cells)) and cells != [str(j) for j in range(len(cells))]
    where = positions(cells, key)
    if is_row or (where and key and _is_header_number(cells[2])):
        return _headed(source, key, choices, None, records, above)
    if not others:
        raise ValueError(f"{path} has a header but no rows. Check that the file is complete.")
    # R writes no name for the column of row names. A header below other lines is not a row.
    longer = len(others[0].cells) == len(cells) + 1 and any(map(any_number, others[0].cells))
    trailing = longer and all(each.cells[-1] == "" for each in others)  # separators at the end of rows only
    names = [*cells, ""] if trailing else ["", *cells] if longer else cells
    return _headed(source, key, choices, names, others, first, short=longer and not trailing)


def _headed(
    source: TextRows | Grid | Stored,
    key: str | None,
    choices: Choices,
    names: Sequence[str] | None,
    rows: Sequence[TextRow],
    above: TextRow | None,  # the last one that is not a row of the table
    *,
    short: bool = False,
) -> Head:
    width = len(rows[0].cells) if names is None else len(names)
    called = _numbered(width) if names is None else names
    cut = [row.notation for row in rows if len(row.cells) == width and any(map(str.strip, row.cells))]
    if not choices.keep_total:
        cut = [cells for cells in cut if not is_total(cells)] or cut
    decimals, proven = _decimals(list(zip(*cut, strict=True)) or [()] * width, choices)
    where = positions(called, key) if names or key else None
    if where:
        form = Layout(None, [])
    elif isinstance(source, Stored):
        form = layout_of_schema(source.schema, source.first, choices)
    else:
        form = layout_of_text(called, cut, short, decimals, choices)
    begins = source if above is None or isinstance(source, Stored) else source._replace(skip=above.end)
    return Head(begins, width, names, 1 + (above.line if above else choices.skip), decimals, proven, form, where)


def _grid_rows(grid: Grid | Stored) -> list[TextRow]:
    found = []
    for i, row in enumerate(islice(grid.below(), LINES), 1 if isinstance(grid, Stored) else grid.skip + 1):
        stored = frozenset(j for j, value in enumerate(row) if is_number(value))
        found.append(TextRow(list(map(shown, row)), i, i, shown_row(row), stored))
    return found


def _numbered(width: int) -> list[str]:
    return [str(j + 1) for j in range(width)]


def _is_header_number(cell: str) -> bool:
    found = number(cell) or number(cell, ",")
    return cell.lower() == "nan" or (found is not None and not found.unit and not found.limit)


def text_rows(path: Path, choices: Choices, memory_limit: int | str | None) -> tuple[TextRows, list[TextRow]]:
    how = text_form(path, choices.encoding, choices.comments)
    comments = _comments_of(beginning(path, how, memory_limit)[0])
    how = how._replace(comments=(*how.comments, *comments))
    text, skipped, is_all = _below_titles(path, how, choices, memory_limit)
    separator, found = _cut(path, text, is_all, choices.sep)
    if separator == " " and '"' not in text:
        how, separator = how._replace(blanks=True), "\t"
        text, skipped, is_all = _below_titles(path, how, choices, memory_limit)
        found = _records(path, text, is_all, separator)
    n_bytes = len(skipped.encode())
    found = [row._replace(end=row.end + n_bytes, line=row.line + choices.skip) for row in found]
    return TextRows(path, how, separator, n_bytes), found


def _below_titles(path: Path, how: TextForm, choices: Choices, memory_limit: int | str | None) -> tuple[str, str, bool]:
    text, is_all = beginning(path, how, memory_limit)
    skipped = "".join(islice(io.StringIO(text, newline=""), choices.skip))
    text = text[len(skipped) :]
    if not text.strip():
        below = f" below its first {plural(choices.skip, 'line')}" if skipped else ""
        raise ValueError(f"{path} is empty{below}. Check that the file is complete.")
    first_line = text.lstrip().partition("\n")[0]
    bounded_width(path, 1 + max(map(first_line.count, choices.sep or _SEPARATORS)), memory_limit)
    return text, skipped, is_all


def _comments_of(text: str) -> tuple[str, ...]:
    lines = text.splitlines()
    rules = tuple({line[:4] for line in lines if len(line) > 3 and _RULE.fullmatch(line)})
    if first := _SEP_LINE.match(text):
        return (first[0].strip(), *rules)
    above = list(takewhile(lambda line: line.startswith("#") or not line.strip(), lines))
    comments = [line for line in above if line.strip()]
    is_comment = comments and not _is_header(comments[-1], "".join(lines[len(above) : len(above) + 1]))
    return ("#", *rules) if is_comment else rules


def _is_header(line: str, after: str) -> bool:
    counts = [line.count(mark) for mark in _SEPARATORS]
    is_data = any(map(_is_header_number, re.split(r"[,\t;|]", after)))
    return is_data and any(counts) and counts == [after.count(mark) for mark in _SEPARATORS]


def _cut(path: Path, text: str, is_all: bool, separator: str | None) -> tuple[str, list[TextRow]]:
    line = next(line for line in io.StringIO(text) if line.strip())
    marks = [mark for mark in _SEPARATORS if mark in line] or [","]
    tried = _tried(path, text, is_all, [separator] if separator else marks)
    if separator is None and not any(map(_fits, tried.values())):
        tried |= _tried(
            path, text, is_all, [mark for mark in (*_SEPARATORS, " ") if mark in text and mark not in tried]
        )
    if not tried:  # raise the error
        _records(path, text, is_all, separator or marks[-1])
    best = max(tried, key=lambda mark: _fitness(tried[mark]))
    return best, tried[best]


def _tried(path: Path, text: str, is_all: bool, marks: Sequence[str]) -> dict[str, list[TextRow]]:
    tried: dict[str, list[TextRow]] = {}
    for mark in marks:
        with suppress(ValueError):  # such as quotes that end before another delimiter
            tried[mark] = _records(path, text, is_all, mark)
    return tried


def _fits(records: Sequence[TextRow]) -> bool:
    width = _usual_width(records)
    return width > 1 and all(len(each.cells) == width for each in records[1:])


def _usual_width(records: Sequence[TextRow]) -> int:
    counts = Counter(len(each.cells) for each in records)
    return max(counts, key=lambda width: (counts[width], width))


def _fitness(records: Sequence[TextRow]) -> tuple[bool, float, float, int]:  # alike, numeric, and many columns
    width = _usual_width(records)
    alike = [each for each in records if len(each.cells) == width]
    cells = [cell for each in alike[1:] for cell in each.cells[:1000]]
    numbers = sum(is_gap(cell) or any_number(cell) for cell in cells) / max(1, len(cells))
    return 1 < width and 2 * len(alike) >= len(records), numbers, len(alike) / len(records), width


def _records(path: Path, text: str, is_all: bool, separator: str) -> list[TextRow]:
    found: list[TextRow] = []
    end, line, read = 0, 0, list[str]()
    is_blank = separator == " " and '"' not in text

    def lines() -> Iterator[str]:
        for each in io.StringIO(text, newline=""):
            read.append(each)
            yield "\t".join(each.split()) + "\n" if is_blank else each

    try:
        for cells in csv.reader(lines(), delimiter="\t" if is_blank else separator, strict=True):
            end, line = end + sum(len(each.encode()) for each in read), line + len(read)
            if cells:
                found.append(TextRow(cells, end, line, "".join(read)))
            read.clear()
    except csv.Error as error:
        if is_all or len(found) < 2:
            raise ValueError(
                f"{path} cannot be read: {error} in its first lines. Check the quotation marks."
            ) from error
    return found


def _refuse_lines_above(records: Sequence[TextRow]) -> None:
    """Raise `Refused` for titles above the header, and for labels or units below it."""
    width = _usual_width(records)
    begin = next(i for i, row in enumerate(records) if len(row.cells) == width)
    if begin == 1 and len(records[0].cells) == width - 1 and any(map(any_number, records[1].cells)):
        begin = 0  # R writes no name for the column of row names
    region = [row.cells for row in records[begin:] if len(row.cells) == width]
    numeric = [j for j in range(width) if _is_numeric([row[j] for row in region[len(region) // 2 :]])]
    above = list(takewhile(lambda row: 2 * sum(any_number(row[j]) for j in numeric) < len(numeric), region[:_ABOVE]))
    if not numeric or len(above) == len(region) or len(records[begin].cells) < width:
        above = above[:1]
    named = [[row[j].strip() for j in numeric] for row in above]
    texts = [{cell for cell in cells if not is_gap(cell) and not any_number(cell)} for cells in named]
    header = 0 if named and all(named[0]) else next((i for i, each in enumerate(texts) if len(each) == len(numeric)), 0)
    if begin + header:
        line = records[begin + header - 1].line
        seems = f"the table seems to begin with the line {' '.join(records[begin + header].cells).strip()[:_SHOWN]!r}. "
        raise Refused(f"{seems}Use ", Setting("skip", line), f" to skip {plural(line, 'line')} above it.")
    if labels := [i for i, each in enumerate(texts) if i and len(each) > 1]:
        starts = [_start(records[i].text, [each.text for each in records]) for i in labels]
        rows = "the row below the header holds" if len(labels) == 1 else f"{len(labels)} rows below the header hold"
        comments = [part for start in starts for part in (" and ", Setting("comment", start))][1:]
        it = "it" if len(labels) == 1 else "them"
        raise Refused(f"{rows} labels or units, not numbers. Use ", *comments, f" to skip {it}.")


def _start(line: str, lines: Sequence[str]) -> str:
    """Return a short beginning of a line that no other line has."""
    line, lines = line.lstrip('"'), [each.lstrip('"') for each in lines]
    lengths = (n for n in range(6, _SHOWN) if sum(each.startswith(line[:n].strip()) for each in lines) == 1)
    return line[: next(lengths, _SHOWN)].strip()


def _is_numeric(cells: Sequence[str]) -> bool:
    filled = [cell for cell in cells if not is_gap(cell)]
    return bool(filled) and 2 * sum(map(any_number, filled)) >= len(filled)


def _decimals(columns: Sequence[Sequence[str]], choices: Choices) -> tuple[list[str], frozenset[str]]:
    """Return the decimal mark of each column: the given one, else that which its cells or those of others prove."""
    given = choices.decimal or {",": ".", ".": ","}.get(choices.thousands or "")
    if given is not None:
        return [given] * len(columns), frozenset(given)
    own = [_proofs(cells) for cells in columns]
    first = [max(found, key=lambda mark: found[mark]) for found in own if found]
    usual = max(".,", key=first.count)
    return [max(found, key=lambda mark: found[mark]) if found else usual for found in own], frozenset(first)


def _proofs(cells: Sequence[str]) -> Counter[str]:
    found = Counter[str]()
    for cell in cells:
        if "." in cell or "," in cell:
            read = [mark for mark in ".," if number(cell, mark) is not None]
            found.update(read if len(read) == 1 else ())
            if found.total() == _ENOUGH:
                break
    return found


# Bytes of text in a block, and its share of the memory limit: two blocks of text and the cells and numbers of one need
# seven times the memory of its text.
_BLOCK, _LEAST, _SHARE = 1 << 24, 1 << 16, 64
_WIDEST = 32  # bytes of text of one number
_CUT = 12  # bytes of memory for each byte of a row that is split into cells
# Columns from which the csv module of Python beats Arrow, which takes about 10 kB for each, and a call for each
# column of a block: 18 s and 0.4 GB for 60 MB of text with 6,000 columns, against 6 s and 0.2 GB.
_WIDE = MOST = 1 << 10
_FIRST = 1 << 18  # bytes of text from which kinds of columns are known
_STORED = 24  # bytes of memory for a number of a Parquet or Arrow file while a block is converted
_CELL = 200  # bytes of memory for a cell of a sheet or database while a block is converted
_NOTES = 3  # rows of one cell that may be notes
_NOTE = re.compile(r"\W*[^\W\d][^,;\t|:=]*[:=]")  # Source: registry
_SKIPPED = 6  # beginnings of rows that an error names for `comment`
_VALUELESS = 1000  # rows of a block without values that are looked at
_ADDENDS = 3  # rows, and entries that are not zero, from which a last row of sums is a total


def block_bytes(memory_limit: int | str | None) -> int:
    limit = limit_of(memory_limit)
    return _BLOCK if limit is None else int(np.clip(limit // _SHARE, _LEAST, _BLOCK))


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
        self._totals = dict[
            int, tuple[str, str]
        ]()  # rows with the label of a total: this label, and the line's beginning
        self._labels = set[str]()
        self._named, self._blank = Seen(""), Seen("")  # rows of one text, without numbers, and of empty cells
        self.n_headers = 0  # rows that repeat the header
        self.form = head.form
        features = set(self.form.numeric)
        tallied = range(head.width) if everything else features
        self._n_names = _SHOWN if everything else None
        self.tallies = {
            j: Tally(head.called[j], head.decimals[j], choices, j in self.form.texts, not self.is_text)
            for j in (() if self.is_wide else tallied)
        }
        if head.form.unknown:
            self.form = head.form.with_classes(self._classes())
            self.ragged.clear()
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
        if n := self.n_headers:
            repeat = "row that repeats the header is" if n == 1 else f"{n:,} rows that repeat the header are"
            yield Finding(f"the {repeat} not used.", is_error=False)
        if n := self._blank.count:
            are = "is used as a sample" if n == 1 else "are used as samples"
            yield Finding(f"{plural(n, 'row')} of empty cells {are} ({self._blank.places}).", is_error=False)
        if n := self.n_empty:
            rows = "row of empty cells is" if n == 1 else f"{n:,} rows of empty cells are"
            yield Finding(f"the last {rows} ignored.", is_error=False)
        if self.total:
            text = f"the last row is a total ({self.total}) and is not used as a sample."
            yield Finding(text, ((Setting("keep_total", True), " to keep it"),), is_error=False, applies=False)

    def _of_totals(self) -> Iterator[Finding]:
        if self._choices.keep_total:
            return
        keep = Setting("keep_total", True), " to use all rows as samples"
        if 0 < len(self._totals) <= max(1, self.n_rows // 2):
            seen, begins = (
                Seen(next(iter(self._totals.values()))[0]),
                sorted({begin for _, begin in self._totals.values()}),
            )
            seen.add(len(self._totals), (self.head.row + i for i in self._totals))
            looks = f"{plural(seen.count, 'row')} above the last one may be totals: {seen}."
            yield Finding(looks, (*((_skip(begins),) if len(begins) <= _SKIPPED else ()), keep))
        if (seen := self._named).count:
            is_few = seen.count <= _NOTES
            text = (
                f"{plural(seen.count, 'row')} {'has' if seen.count == 1 else 'have'} only a name and no values: {seen}."
            )
            yield Finding(
                text, (_skip(sorted(seen.texts)), keep) if is_few else (keep,), is_error=is_few, applies=is_few
            )

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

    def _classes(self) -> Iterator[tuple[int, Any]]:
        for batch in self._kept(self.batches()):
            yield from ((j, batch.column(j)) for j in self.head.form.unknown)

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
        names, known = _numbered(self.head.width), len(self.ragged)
        points = Counter(self.head.decimals[j] for j in typed)
        point = max(points, key=lambda mark: points[mark], default=".")
        typed.intersection_update({j for j in typed if self.head.decimals[j] == point})

        def invalid(row: Any) -> str:
            self._add_ragged((row.number or 0) + before, row.actual_columns, row.text)
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

    def _add_ragged(self, number: int, count: int, text: str) -> None:
        self.ragged.append((number + self.head.row - 1, count, text if len(self.ragged) < _ABOVE else ""))

    def _kept(self, batches: Iterator[Any]) -> Iterator[Any]:
        # Hold back the last row with the empty rows around it: they may be a total, and the end of a spreadsheet.
        held, empty, n_rows = list[Any](), list[Any](), 0
        last: Any = None
        self._totals.clear()
        self._labels.clear()
        self.n_headers = 0
        for batch in map(self._without_headers, batches):
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

    def _without_headers(self, batch: Any) -> Any:
        pc, names = optional("pyarrow.compute", "parquet"), self.head.names
        if names is None or any(numbers_of(column) is column for column in batch.columns):
            return batch
        repeats: Any = None
        for name, column in zip(strings(map(str.strip, names)), batch.columns, strict=True):
            equal = pc.equal(pc.utf8_trim_whitespace(as_texts(column)), name)
            repeats = equal if repeats is None else pc.and_(repeats, equal)
            if not pc.any(repeats).as_py():
                return batch
        self.n_headers += pc.sum(repeats).as_py()
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
            self._add_ragged(self.n_rows + 1, 1, self._beginning(cells[: place + 1]))
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
        row = self.head.row + self.n_rows + i
        if not filled:
            self._blank.add(1, (row,))
        elif len(filled) == 1 < len(cells):
            (j, cell), begin = filled[0], self._beginning(cells[: filled[0][0] + 1])
            if j not in self.form.numeric and (len(cells) > 2 or _NOTE.match(cell)):
                self._named.text = self._named.text or cell
                self._named.add(1, (row,), begin)
            elif (tally := self.tallies.get(j)) and tally.forget(cell):
                self._add_ragged(self.n_rows + i + 1, 1, begin)

    def _is_sum(self, cells: Sequence[str | float]) -> bool:
        found = [_value(cells[j], self.head.decimals[j]) for j in self.form.numeric if cells[j] != ""]
        if len(found) < len(self.form.numeric) or None in found:
            return False
        values, (sums, sizes, counts) = np.array(found, np.float64), self._sums
        return bool(np.all(np.abs(values - sums) <= 1e-9 * sizes) and np.sum((counts >= _ADDENDS) & (sums != 0)) > 1)

    def _add_sums(self, numbers: npt.NDArray[np.float64]) -> None:
        self.n_rows += len(numbers)
        there = np.where(np.isnan(numbers), 0, numbers)
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
                    self._add_ragged(count, len(cells), source.separator.join(cells[:3]))
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
