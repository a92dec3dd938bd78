"""Delimited text: detect the delimiter, header and columns; parse rows many at a time."""

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shiftsvd.errors import Refused, Setting, plural
from shiftsvd.io.base import bounded_lines, bounded_width, optional
from shiftsvd.io.choices import Choices
from shiftsvd.io.formats.columns import Layout, Positions, layout_of_text, not_numbers, positions, texts, to_numbers
from shiftsvd.io.formats.text import (
    GAPS,
    Marks,
    TextForm,
    beginning,
    for_arrow,
    is_gap,
    looks_like_number,
    marks_of,
    opened,
    text_form,
    undecoded,
)
from shiftsvd.runs.memory import limit_of

_SEP_LINE = re.compile(r"sep=.[ \t]*\r?\n", re.IGNORECASE)  # first line that spreadsheets write
_SEPARATORS = ",\t;|"
_SHOWN = 60  # characters of a line in an error


class Head(NamedTuple):
    """Layout of a text file, as detected in its first lines: delimiter, notation, names and use of columns."""

    text_form: TextForm
    separator: str
    marks: Marks
    width: int  # columns of the table
    names: Sequence[str] | None
    skip: int  # bytes before the first row, after the conversion by `text_form`
    form: Layout
    triplets: Positions | None

    @property
    def called(self) -> Sequence[str]:
        return _numbered(self.width) if self.names is None else self.names


class TextRow(NamedTuple):
    """The cells of one row, and the bytes up to its end."""

    cells: list[str]
    end: int


def head_of(path: Path, key: str | None, choices: Choices, memory_limit: int | str | None = None) -> Head:
    how, text, is_all = _text(path, choices, memory_limit)
    separator, found = _cut(path, text, is_all, choices.sep)
    above, records = _without_blank(found)
    first, *others = records
    cells = [cell.strip() for cell in first.cells]
    columns = zip(*(each.cells for each in others or records), strict=False)
    marks = marks_of(list(columns), choices.decimal, choices.thousands)
    is_number = _number_in(marks)
    # A first line of numbers is a row, except 0, 1, 2, ...: pandas writes these as names.
    if all(map(is_number, cells)) and cells != [str(j) for j in range(len(cells))]:
        names, rows, skip, short = None, records, above, False
    elif not others:
        raise ValueError(f"{path} has a header but no rows.")
    else:
        # R writes no name for the column of row names. A header below other lines is not a row.
        longer = len(others[0].cells) == len(cells) + 1 and any(map(is_number, others[0].cells))
        trailing = longer and all(each.cells[-1] == "" for each in others)  # separators at the end of rows only
        short = longer and not trailing
        names, rows, skip = ["", *cells] if short else [*cells, ""] if trailing else cells, others, first.end
    width = len(cells) if names is None else len(names)
    _check_widths(path, records, rows, width)
    if names is not None:
        _check_header(names, rows)
    where = positions(cells if names is None else names, key) if names or key else None
    if where and names and key and is_number(names[2]):
        names, skip, rows = None, above, records
    called = _numbered(width) if names is None else names
    cut = [row.cells for row in rows]
    form = Layout(None, []) if where else layout_of_text(called, cut, short, marks, choices)
    return Head(how, separator, marks, width, names, skip, form, where)


def _numbered(width: int) -> list[str]:
    return [str(j + 1) for j in range(width)]


def _number_in(marks: Marks) -> Callable[[str], bool]:
    return lambda cell: marks.is_number(cell) or cell.lower() == "nan"


def _text(path: Path, choices: Choices, memory_limit: int | str | None) -> tuple[TextForm, str, bool]:
    how = text_form(path, choices.encoding, choices.comment)
    text, is_all = beginning(path, how, memory_limit)
    if choices.comment is None and (comment := _comment_of(text)):
        how = how._replace(comment=comment)
        text, is_all = beginning(path, how, memory_limit)
    if not text.strip():
        raise ValueError(f"{path} is empty.")
    first_line = text.lstrip().partition("\n")[0]
    bounded_width(path, 1 + max(map(first_line.count, choices.sep or _SEPARATORS)), memory_limit)
    return how, text, is_all


def _comment_of(text: str) -> str | None:
    if first := _SEP_LINE.match(text):
        return first[0].strip()
    lines = text.splitlines()
    above = list(takewhile(lambda line: line.startswith("#") or not line.strip(), lines))
    comments = [line for line in above if line.strip()]
    return "#" if comments and not _is_header(comments[-1], "".join(lines[len(above) : len(above) + 1])) else None


def _is_header(line: str, after: str) -> bool:
    counts = [line.count(mark) for mark in _SEPARATORS]
    is_data = any(Marks().is_number(cell) for cell in re.split(r"[,\t;|]", after))
    return is_data and any(counts) and counts == [after.count(mark) for mark in _SEPARATORS]


def _cut(path: Path, text: str, is_all: bool, separator: str | None) -> tuple[str, list[TextRow]]:
    line = next(line for line in io.StringIO(text) if line.strip())
    found = ([mark for mark in _SEPARATORS if mark in where] for where in (line, text))
    marks = [separator] if separator else next(filter(None, found), [","])
    tried: dict[str, list[TextRow]] = {}
    for mark in marks:
        try:
            tried[mark] = _records(path, text, is_all, mark)
        except ValueError:  # such as quotes that end before another delimiter
            if mark == marks[-1] and not tried:
                raise
    best = max(tried, key=lambda mark: _fitness(tried[mark])) if len(tried) > 1 else next(iter(tried))
    return best, tried[best]


def _fitness(records: Sequence[TextRow]) -> tuple[bool, float, int]:  # equal row lengths, numeric cells, many columns
    widths = {len(each.cells) for each in records[1:]} or {len(records[0].cells)}
    cells = [cell for each in records[1:] for cell in each.cells[:1000]]
    numbers = sum(is_gap(cell) or looks_like_number(cell) for cell in cells)
    alike = len(widths) == 1 and len(records[0].cells) in {max(widths), max(widths) - 1}
    return alike, numbers / max(1, len(cells)), max(widths)


def _records(path: Path, text: str, is_all: bool, separator: str) -> list[TextRow]:
    found: list[TextRow] = []
    end = 0

    def lines() -> Iterator[str]:
        nonlocal end
        for line in io.StringIO(text, newline=""):
            end += len(line.encode())
            yield line

    try:
        found.extend(TextRow(cells, end) for cells in csv.reader(lines(), delimiter=separator, strict=True) if cells)
    except csv.Error as error:
        if is_all or len(found) < 2:
            raise ValueError(
                f"{path} cannot be read: {error} in its first lines. Check the quotation marks."
            ) from error
    return found


def _without_blank(records: Sequence[TextRow]) -> tuple[int, Sequence[TextRow]]:
    count = next((i for i, row in enumerate(records) if any(map(str.strip, row.cells))), 0)
    return records[count - 1].end if count else 0, records[count:]


def _check_header(names: Sequence[str], rows: Sequence[TextRow]) -> None:
    below = [cell.strip() for cell in _without_blank(rows)[1][0].cells]
    is_title = len(names) > 2 and any(names) and not any(names[1:])
    if is_title and all(below) and not any(looks_like_number(cell) or is_gap(cell) for cell in below):
        line = " ".join(below)[:_SHOWN]
        seems = f"{names[0]!r} seems to be a title, and the table seems to begin with the line {line!r}. "
        raise Refused(seems, "Remove the lines above, or skip them with ", Setting("comment", names[0]), ".")


def _check_widths(path: Path, records: Sequence[TextRow], rows: Sequence[TextRow], width: int) -> None:
    number = next(
        (i for i, row in enumerate(rows, start=len(records) - len(rows) + 1) if len(row.cells) != width), None
    )
    if number is None:
        return
    widths = [len(each.cells) for each in records]
    begins = next(i for i in range(len(widths)) if len(set(widths[i:])) == 1) + 1
    helps = "Every row must have as many cells as the header."
    if 1 < begins < len(widths):
        first = " ".join(_without_blank(records[begins - 1 :])[1][0].cells)
        helps = f"The table seems to begin with the line {first[:_SHOWN]!r}. Remove the lines above."
    raise ValueError(f"{path}: row {number:,} has {plural(widths[number - 1], 'cell')}, expected {width:,}. {helps}")


Part = tuple[npt.NDArray[Any], list[str]]  # rows, and their names if they have some
# Bytes of text in a block, and its share of the memory limit: Arrow reads 32 blocks ahead, and the numbers of a block
# need several times the memory of its text.
_BLOCK, _LEAST, _SHARE = 1 << 24, 1 << 16, 1024
_WIDEST = 32  # bytes of text of one number
_CUT = 12  # bytes of memory for each byte of a row that is split into cells
# Columns from which Arrow needs too much memory, about 10 kB each: 1.0 GB for a text of 60 MB with 30,000 columns; the
# csv module of Python needs 0.3 GB.
_WIDE = 1 << 13


def parts(path: Path, head: Head, memory_limit: int | str | None) -> tuple[list[str] | None, Iterator[Part]]:
    form = head.form.with_classes(_columns(path, head, head.form.unknown, memory_limit))
    names = None if head.names is None and not form.classes else form.named(head.called)
    if head.width > _WIDE and not form.classes:
        return names, _wide(path, head, memory_limit)
    return names, _narrow(path, head, form, memory_limit)


def _columns(path: Path, head: Head, columns: Sequence[int], memory_limit: int | str | None) -> Iterator[Any]:
    if columns:
        for batch in batches(path, head, columns, memory_limit):
            yield from zip(columns, batch.columns, strict=True)


def _narrow(path: Path, head: Head, form: Layout, memory_limit: int | str | None) -> Iterator[Part]:
    columns = sorted({*form.numbers, *(() if form.label is None else (form.label,))})
    form = form.within(columns)
    for batch in batches(path, head, columns, memory_limit):
        names = [] if form.label is None else texts(batch.column(form.label))
        yield to_numbers(batch, form), names


def block_bytes(memory_limit: int | str | None) -> int:
    limit = limit_of(memory_limit)
    return _BLOCK if limit is None else int(np.clip(limit // _SHARE, _LEAST, _BLOCK))


def batches(
    path: Path, head: Head, columns: Sequence[int], memory_limit: int | str | None = None, *, as_text: bool = False
) -> Iterator[Any]:
    pa, arrow_csv = optional("pyarrow", "parquet"), optional("pyarrow.csv", "parquet")
    words = {*head.form.classes, head.form.label, *(head.triplets[:2] if head.triplets else ())}
    words |= set(columns) if as_text else set()
    names = [str(j) for j in range(head.width)]
    number = pa.float64() if head.marks.thousands is None else pa.string()
    with for_arrow(path, head.text_form, head.skip, memory_limit) as stream, _naming(path, head):
        for batch in arrow_csv.open_csv(
            stream,
            arrow_csv.ReadOptions(
                column_names=names, block_size=max(block_bytes(memory_limit), _WIDEST * head.width), use_threads=False
            ),
            arrow_csv.ParseOptions(delimiter=head.separator, newlines_in_values=True),
            arrow_csv.ConvertOptions(
                column_types={names[j]: pa.string() if j in words else number for j in columns},
                include_columns=[names[j] for j in columns],
                null_values=GAPS,
                decimal_point=head.marks.decimal,
            ),
        ):
            if head.marks.thousands is not None:
                for i, j in enumerate(columns):
                    if j not in words:
                        with _naming(path, head, j):
                            batch = batch.set_column(i, names[j], head.marks.numbers(batch.column(i)))
            yield batch


def _wide(path: Path, head: Head, memory_limit: int | str | None) -> Iterator[Part]:
    label, features = head.form.label, head.form.numbers
    step = max(1, block_bytes(memory_limit) // (8 * len(features)))
    block, names = [], []
    for cells in _rows(path, head, memory_limit):
        block.append(_row(head, cells))
        names += [] if label is None else [cells[label]]
        if len(block) == step:
            yield np.array(block), names
            block, names = [], []
    if block:
        yield np.array(block), names


def _rows(path: Path, head: Head, memory_limit: int | str | None) -> Iterator[list[str]]:
    with opened(path, head.text_form, memory_limit) as stream:
        stream.read(head.skip)
        lines = (line.decode() for line in bounded_lines(path, stream, memory_limit, _CUT, kept=False))
        for number, cells in enumerate(csv.reader(lines, delimiter=head.separator, strict=True), start=1):
            if cells and len(cells) != head.width:
                raise ValueError(
                    f"{path}: row {number:,} has {plural(len(cells), 'cell')}, but the first row has {head.width:,}. "
                    "Every row must have as many cells."
                )
            if cells:
                yield cells


def _row(head: Head, cells: Sequence[str]) -> npt.NDArray[np.float64]:
    features, marks = head.form.numbers, head.marks
    chosen = cells if len(features) == len(cells) else [cells[j] for j in features]
    if "_" not in "".join(chosen):  # only Python reads 1_0 as 10
        try:
            return np.array([cell or "nan" for cell in chosen], np.float64)
        except ValueError:
            pass
    wrong = [j for j, cell in zip(features, chosen, strict=True) if not marks.reads(cell)]
    if wrong:
        raise not_numbers({head.called[j]: [cells[j]] for j in wrong}, marks)
    return np.array([marks.number(cell) for cell in chosen])


@contextmanager
def _naming(path: Path, head: Head, j: int | None = None) -> Iterator[None]:
    try:
        yield
    except Refused:
        raise
    except UnicodeDecodeError as error:
        raise undecoded(path, head.text_form) from error
    except ValueError as error:  # of Arrow
        if "invalid UTF8" in str(error):
            raise undecoded(path, head.text_form) from error
        found = re.search(r"(?:column #(\d+).*?)?invalid value '(.*)'", str(error), re.DOTALL)
        if not found:
            raise
        name = head.called[int(found[1]) if found[1] else j or 0]
        raise not_numbers({name: [found[2]]}, head.marks) from error
