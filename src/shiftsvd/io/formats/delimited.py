"""Tables as text: how their beginning tells what separates cells, what is a number, and which columns are what."""

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from shiftsvd.io.choices import Choices
from shiftsvd.io.formats import triplets
from shiftsvd.io.formats.marks import Marks, is_gap, looks_like_number, marks_of
from shiftsvd.io.formats.roles import Roles, roles_of
from shiftsvd.io.formats.written import Written, beginning, leading_comments, written
from shiftsvd.io.limits import bounded_width

_SEP_LINE = re.compile(r"sep=.[ \t]*\r?\n", re.IGNORECASE)  # as spreadsheets begin
_SEPARATORS = ",\t;|"
_SHOWN = 60  # characters of a line in an error


class Head(NamedTuple):
    """What the first lines of a text tell: how it is cut, what its columns are called, and which are what.

    Attributes
    ----------
    written : Written
    separator : str
    marks : Marks
    width : int
        Columns of the table.
    names : list of str, or None
    skip : int
        Bytes before the first row, of what `written` makes of the file.
    roles : Roles
    classes : mapping
        Columns of classes by their names, each with its classes where they are known.
    triplets : positions of the three columns, or None
    """

    written: Written
    separator: str
    marks: Marks
    width: int
    names: Sequence[str] | None
    skip: int
    roles: Roles
    classes: Mapping[str, Sequence[str]]
    triplets: triplets.Positions | None

    @property
    def called(self) -> Sequence[str]:
        return _numbered(self.width) if self.names is None else self.names


class Record(NamedTuple):
    """The cells of one row, and the bytes up to its end."""

    cells: list[str]
    end: int


def head_of(path: Path, key: str | None, choices: Choices, memory_limit: int | str | None = None) -> Head:
    """The head of a text, from its first lines: how it is written, what its columns are, where rows begin.

    A first line of numbers only is a row, but for 0, 1, 2, ...: these are the names that pandas gives.
    """
    how, text, is_all = _text(path, choices, memory_limit)
    separator, found = _cut(path, text, is_all, choices.sep)
    above, records = _without_blank(found)
    first, *others = records
    cells = [cell.strip() for cell in first.cells]
    columns = zip(*(each.cells for each in others or records), strict=False)
    with _told_of(path):
        marks = marks_of(list(columns), choices.decimal, choices.thousands)
    is_number = _number_in(marks)
    if all(map(is_number, cells)) and cells != [str(j) for j in range(len(cells))]:
        names, rows, skip, short = None, records, above, False
    elif not others:
        raise ValueError(f"{path} has no rows, only a header")
    else:
        # As R writes it; a header below other lines is no row.
        longer = len(others[0].cells) == len(cells) + 1 and any(map(is_number, others[0].cells))
        trailing = longer and all(each.cells[-1] == "" for each in others)  # separators at the end of rows only
        short = longer and not trailing
        names, rows, skip = ["", *cells] if short else [*cells, ""] if trailing else cells, others, first.end
    width = len(cells) if names is None else len(names)
    _check_widths(path, records, rows, width)
    if names is not None:
        _check_header(path, names, rows)
    where = triplets.positions(cells if names is None else names, key) if names or key else None
    if where and names and key and is_number(names[2]):
        names, skip, rows = None, above, records
    called = _numbered(width) if names is None else names
    with _told_of(path):
        cut = [row.cells for row in rows]
        roles = Roles(None, None, [], []) if where else roles_of(called, cut, short, marks, choices)
    return Head(how, separator, marks, width, names, skip, roles, choices.one_hot, where)


@contextmanager
def _told_of(path: Path) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _numbered(width: int) -> list[str]:
    return [str(j + 1) for j in range(width)]


def _number_in(marks: Marks) -> Callable[[str], bool]:
    return lambda cell: marks.is_number(cell) or cell.lower() == "nan"


def _text(path: Path, choices: Choices, memory_limit: int | str | None) -> tuple[Written, str, bool]:
    how = written(path, choices.encoding, choices.comment)
    text, is_all = beginning(path, how, memory_limit)
    if choices.comment is None and (first := _SEP_LINE.match(text)):
        how = how._replace(comment=first[0].strip())
        text, is_all = beginning(path, how, memory_limit)
    elif choices.comment is None:
        comments, rest = leading_comments(text)
        if comments and not _is_header(comments[-1], rest):
            how = how._replace(comment="#")
            text, is_all = beginning(path, how, memory_limit)
    if not text.strip():
        raise ValueError(f"{path} is empty")
    first_line = text.lstrip().partition("\n")[0]
    marks = [choices.sep] if choices.sep else _SEPARATORS
    bounded_width(path, 1 + max(first_line.count(mark) for mark in marks), memory_limit)
    return how, text, is_all


def _is_header(line: str, rest: str) -> bool:
    after = rest.partition("\n")[0]
    counts = [line.count(mark) for mark in _SEPARATORS]
    is_data = any(Marks().is_number(cell) for cell in re.split(r"[,\t;|]", after))
    return is_data and any(counts) and counts == [after.count(mark) for mark in _SEPARATORS]


def _cut(path: Path, text: str, is_all: bool, separator: str | None) -> tuple[str, list[Record]]:
    """The separator of the cells, and the rows that are cut by it.

    The one that cuts all rows alike and leaves most cells as numbers; of several, the one that makes most cells.
    """
    line = next(line for line in io.StringIO(text) if line.strip())
    marks = next(([mark for mark in _SEPARATORS if mark in where] for where in (line, text) if _has_mark(where)), [","])
    there = [separator] if separator else marks
    tried = [(mark, _records(path, text, is_all, mark)) for mark in there]
    return max(tried, key=lambda each: _fitness(each[1])) if len(tried) > 1 else tried[0]


def _has_mark(text: str) -> bool:
    return any(mark in text for mark in _SEPARATORS)


def _fitness(records: Sequence[Record]) -> tuple[bool, float, int]:
    widths = {len(each.cells) for each in records[1:]} or {len(records[0].cells)}
    cells = [cell for each in records[1:] for cell in each.cells[:1000]]
    numbers = sum(is_gap(cell) or looks_like_number(cell) for cell in cells)
    alike = len(widths) == 1 and len(records[0].cells) in {max(widths), max(widths) - 1}
    return alike, numbers / max(1, len(cells)), max(widths)


def _records(path: Path, text: str, is_all: bool, separator: str) -> list[Record]:
    found: list[Record] = []
    end = 0

    def lines() -> Iterator[str]:
        nonlocal end
        for line in io.StringIO(text, newline=""):
            end += len(line.encode())
            yield line

    try:
        found.extend(Record(cells, end) for cells in csv.reader(lines(), delimiter=separator, strict=True) if cells)
    except csv.Error as error:
        if is_all or len(found) < 2:
            raise ValueError(f"{path} cannot be read: {error} in its first lines") from error
    return found


def _without_blank(records: list[Record]) -> tuple[int, list[Record]]:
    count = next((i for i, row in enumerate(records) if any(map(str.strip, row.cells))), 0)
    return records[count - 1].end if count else 0, records[count:]


def _check_header(path: Path, names: Sequence[str], rows: Sequence[Record]) -> None:
    below = [cell.strip() for cell in _without_blank(list(rows))[1][0].cells]
    is_title = len(names) > 2 and any(names) and not any(names[1:])
    if is_title and all(below) and not any(looks_like_number(cell) or is_gap(cell) for cell in below):
        line = " ".join(below)
        raise ValueError(
            f"{path}: {names[0]!r} seems to be a title, and the table to begin with the line {line[:_SHOWN]!r}: "
            f"leave out those above it, as comment={names[0]!r} does"
        )


def _check_widths(path: Path, records: Sequence[Record], rows: Sequence[Record], width: int) -> None:
    number = next(
        (i for i, row in enumerate(rows, start=len(records) - len(rows) + 1) if len(row.cells) != width), None
    )
    if number is None:
        return
    widths = [len(each.cells) for each in records]
    begins = next(i for i in range(len(widths)) if len(set(widths[i:])) == 1) + 1
    helps = "every row must have as many as the header"
    if 1 < begins < len(widths):
        first = " ".join(_without_blank(list(records[begins - 1 :]))[1][0].cells)
        helps = f"the table seems to begin with the line {first[:_SHOWN]!r}: leave out those above it"
    raise ValueError(f"{path}: row {number} has {widths[number - 1]} cells, where {width} are expected; {helps}")
