"""The head of a table: its delimiter, header, decimal marks and use of columns, from its first rows."""

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import filterfalse, islice, pairwise, takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shiftsvd.errors import Part, Refused, Setting, plural
from shiftsvd.io.base import bounded_width
from shiftsvd.io.choices import Choices
from shiftsvd.io.formats.cells import OTHER, any_number, is_gap, number
from shiftsvd.io.formats.columns import TRIPLETS, Layout, Positions, layout_of, positions, says_identifiers
from shiftsvd.io.formats.grid import Grid, Stored, grid_of, is_number, shown, shown_row
from shiftsvd.io.formats.text import LINES, TextRows, beginning, tabbed, text_form
from shiftsvd.io.formats.totals import is_total

_SEP_LINE = re.compile(r"sep=.[ \t]*\r?\n", re.IGNORECASE)  # first line that spreadsheets write
_RULE = re.compile(r"[-=+|: ]*(-{4}|={4}|[|+]:?-{3})[-=+|: ]*")  # a line drawn between header and rows
_NO_TABLE = re.compile(r"\s*((\w+\()?\[\s*[\[{]|\{\s*\"|<(table|html|\?xml|!doctype)\b)", re.IGNORECASE)
_SEPARATORS = ",\t;|"
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
_SHOWN = 60  # characters of a line in an error
_ENOUGH = 20  # cells that prove the decimal mark of a column
_ABOVE = 30  # lines among which the header is searched
_ABOVE_ROWS = 3  # rows from which a row above them is compared with them


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
    numbered: str = ""  # beginning of a first row that may number the columns

    @property
    def called(self) -> Sequence[str]:
        return numbered(self.width) if self.names is None else self.names


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
    cells = [_unquoted(cell.strip()) for cell in first.cells]
    if _is_row(cells, others, key):
        return _headed(source, key, choices, None, records, above)
    if not others:
        texts = " For texts, use shiftsvd.LSA in Python." if path.suffix == ".txt" else ""
        raise ValueError(f"{path} has a header but no rows. Check that the file is complete.{texts}")
    names, is_short = _names_of_columns(cells, others)
    return _headed(source, key, choices, names, others, first, short=is_short)


def _is_row(cells: list[str], others: Sequence[TextRow], key: str | None) -> bool:
    # A first line of numbers is a row, except 0, 1, 2, ...: pandas writes these as names. R numbers the rows that it
    # prints.
    are_numbers = all(map(_is_header_number, cells)) and cells != list(map(str, range(len(cells))))
    are_counted = len(others) > 1 and _are_numbered([cells, *(row.cells for row in others)])
    is_triplet = key == "triplets" and _is_header_number(cells[min(2, len(cells) - 1)])
    return are_numbers or are_counted or is_triplet or _is_sample(cells, others)


def _names_of_columns(cells: Sequence[str], rows: Sequence[TextRow]) -> tuple[Sequence[str], bool]:
    """Return names for all columns of the rows, and whether the header lacks the first one."""
    # R writes no name for the column of row names. A header below other lines is not a row.
    more = len(rows[0].cells) - len(cells)
    if more > 0 and _are_padded(rows, len(cells)):
        return [*cells, *[""] * more], False
    if more != 1 or not any(map(any_number, rows[0].cells)):
        return cells, False
    # Names of rows such as those of R are texts, or 1, 2, 3.
    are_names = not all(any_number(row.cells[0]) for row in rows) or _are_numbered([row.cells for row in rows])
    if len(cells) == 1 and not are_names:
        two = "the header has one name, but the rows have two cells. If their commas are decimal marks, use "
        raise Refused(two, Setting("sep", ";"), ". If their first cells are row names, add a name for these.")
    return ["", *cells], True


def _are_numbered(rows: Sequence[Sequence[str]]) -> bool:
    return [cells[0].strip() for cells in rows] == numbered(len(rows))


def _is_sample(cells: Sequence[str], rows: Sequence[TextRow]) -> bool:
    """Return True for a first line such as p1, 12.5, 3 above p2, 7.25, 5, or with numbers unlike those of a header."""
    name, *others = cells
    if not (others and rows and all(map(_is_header_number, others))) or is_gap(name) or any_number(name):
        return False
    forms = [re.sub(r"\d+", "0", each.cells[0].strip()) for each in rows]
    values = [found.value for found in map(number, others) if found]
    is_unlike = any(value % 1 for value in values) and values != sorted(set(values))
    return is_unlike or ("0" in forms[0] and {*forms, re.sub(r"\d+", "0", name)} == {forms[0]})


def _are_padded(rows: Sequence[TextRow], width: int) -> bool:
    """Return True if rows end with delimiters that the header lacks."""
    return all(len(each.cells) > width and not any(each.cells[width:]) for each in rows)


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
    called = numbered(width) if names is None else names
    is_numbered = names is not None and _numbers_columns(*rows)
    rest = rows[is_numbered:]
    cut = [row.notation for row in rest if len(row.cells) == width and any(map(str.strip, row.cells))]
    if not choices.keep_total:
        cut = [cells for cells in cut if not is_total(cells)] or cut
    decimals, proven = _decimals(list(zip(*cut, strict=True)) or [()] * width, called, choices)
    where = positions(called, key)
    schema = source.schema if isinstance(source, Stored) else None
    form = Layout(None, [where[2]]) if where else layout_of(called, cut, short, decimals, choices, schema)
    begins = source if above is None or isinstance(source, Stored) else source._replace(skip=above.end)
    begin = 1 + (above.line if above else choices.skip)
    return Head(
        begins, width, names, begin, decimals, proven, form, where, _start(rows[0], rows) if is_numbered else ""
    )


def _numbers_columns(first: TextRow, *others: TextRow) -> bool:
    """Return True for a row of years or of 1, 2, 3, ... above rows that are not whole numbers."""
    places = [j for j, cell in enumerate(first.cells) if cell.strip() and (j or any_number(cell))]
    values = [_whole(first.cells[j]) for j in places]
    if len(others) < _ABOVE_ROWS or len(values) < 2 or None in values:
        return False
    counts, years = np.diff(np.array(values)), [1900 <= value <= 2100 for value in values if value]
    if not (np.all(counts == 1) or (all(years) and np.all(counts >= 0))):
        return False
    alike = [row for row in others if len(row.cells) == len(first.cells)]
    has_no_name = not first.cells[0].strip() and all(row.cells[0].strip() for row in alike)
    n_whole = sum(all(_whole(row.cells[j]) is not None for j in places) for row in alike)
    return has_no_name or 2 * n_whole < len(alike)


def _whole(cell: str) -> float | None:
    found = number(cell)
    return found.value if found and not found.unit and not found.limit and found.value % 1 == 0 else None


def _grid_rows(grid: Grid | Stored) -> list[TextRow]:
    found = []
    for i, row in enumerate(islice(grid.below(), LINES), 1 if isinstance(grid, Stored) else grid.skip + 1):
        stored = frozenset(j for j, value in enumerate(row) if is_number(value))
        found.append(TextRow(list(map(shown, row)), i, i, shown_row(row), stored))
    return found


def _unquoted(name: str) -> str:  # blanks before a quote hide it from the csv module
    return name[1:-1] if len(name) > 1 and name[0] == name[-1] == '"' else name


def numbered(width: int) -> list[str]:
    return [str(j + 1) for j in range(width)]


def _is_header_number(cell: str) -> bool:
    found = number(cell) or number(cell, ",")
    return cell.lower() == "nan" or (found is not None and not found.unit and not found.limit)


def text_rows(path: Path, choices: Choices, memory_limit: int | str | None) -> tuple[TextRows, list[TextRow]]:
    how = text_form(path, choices.encoding, choices.comments)
    comments = _comments_of(beginning(path, how, memory_limit)[0])
    how = how._replace(comments=(*how.comments, *comments))
    text, is_all = beginning(path, how, memory_limit)
    skipped = "".join(islice(io.StringIO(text, newline=""), choices.skip))
    text = text[len(skipped) :]
    if not text.strip():
        below = f" below its first {plural(choices.skip, 'line')}" if skipped else ""
        raise ValueError(f"{path} is empty{below}. Check that the file is complete.")
    if _NO_TABLE.match(text):
        raise ValueError(f"{path} holds a printed array, JSON or HTML, not a table. Save the data as CSV.")
    first_line = text.lstrip().partition("\n")[0]
    bounded_width(path, 1 + max(map(first_line.count, choices.sep or _SEPARATORS)), memory_limit)
    separator, found = _cut(path, text, is_all, choices.sep)
    if _are_blanks(separator, text):
        how, separator, skipped = how._replace(blanks=True), "\t", tabbed(skipped)
    n_bytes, row_bytes = len(skipped.encode()), found[-1].end / len(found)
    found = [row._replace(end=row.end + n_bytes, line=row.line + choices.skip) for row in found]
    return TextRows(path, how, separator, n_bytes, row_bytes), found


def _are_blanks(separator: str, text: str) -> bool:
    return separator == " " and '"' not in text


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
    likely = [separator] if separator else [mark for mark in _SEPARATORS if mark in line]
    likely = likely or [",", " "][: 1 + (" " in line.strip())]  # commas below a header with blanks may be decimal marks
    others = [] if separator else [mark for mark in (*_SEPARATORS, " ") if mark in text and mark not in likely]
    tried = dict[str, list[TextRow]]()
    for marks in (likely, others):
        for mark in () if any(map(_fits, tried.values())) else marks:
            if mark == " " and any(map(_are_alike, tried.values())):
                continue  # between the words of cells
            with suppress(ValueError):  # such as quotes that end before another delimiter
                tried[mark] = _records(path, text, is_all, mark)
    if not tried:  # raise the error
        _records(path, text, is_all, likely[-1])
    best = max(tried, key=lambda mark: _fitness(tried[mark]))
    return best, tried[best]


def _fits(records: Sequence[TextRow]) -> bool:
    return any(any_number(cell) for row in records[1:] for cell in row.cells) and _are_alike(records[1:])


def _are_alike(records: Sequence[TextRow]) -> bool:
    width = _usual_width(records)
    return width > 1 and all(len(row.cells) == width for row in records)


def _usual_width(records: Sequence[TextRow]) -> int:
    counts = Counter(len(each.cells) for each in records)
    return max(counts, key=lambda width: (counts[width], width))


def _fitness(records: Sequence[TextRow]) -> tuple[bool, float, float, int]:  # alike, numeric, and many columns
    width = _usual_width(records)
    alike = [each for each in records if len(each.cells) == width]
    cells = [cell for each in alike[1:] for cell in each.cells[:1000]]
    numbers = sum(map(_is_value, cells)) / max(1, len(cells))
    return 1 < width and 2 * len(alike) >= len(records), numbers, len(alike) / len(records), width


def _records(path: Path, text: str, is_all: bool, separator: str) -> list[TextRow]:
    if are_blanks := _are_blanks(separator, text):
        text, separator = tabbed(text), "\t"
    lines = list(io.StringIO(text, newline=""))
    reader = csv.reader(lines, delimiter=separator, strict=True)
    found, end, line = list[TextRow](), 0, 0
    try:
        for cells in reader:
            read = "".join(lines[line : reader.line_num])
            end, line = end + len(read.encode()), reader.line_num
            if cells:
                found.append(TextRow(cells, end, line, read.replace("\t", " ") if are_blanks else read))
    except csv.Error as error:
        if is_all or len(found) < 2:
            why = f"{error} in its first lines. Check the quotation marks."
            raise ValueError(f"{path} cannot be read: {why}") from error
    return found


def _refuse_lines_above(records: Sequence[TextRow]) -> None:
    """Raise `Refused` for titles above the header, and for labels or units below it."""
    width = _usual_width(records)
    _refuse_cut_numbers(records[0].cells, [row for row in records[1:] if len(row.cells) == width])
    n_above = next(i for i, row in enumerate(records) if len(row.cells) == width)
    begin = _first_line(records, width, n_above)
    rows = [row for i, row in enumerate(records) if i >= begin and (i < n_above or len(row.cells) == width)]
    named = _above_numbers([row.cells if len(row.cells) == width else ["", *row.cells] for row in rows])
    texts = [set(filterfalse(_is_value, cells)) for cells in named]
    has_names = bool(named) and all(named[0]) and list(map(str.strip, rows[0].cells)) != numbered(width)
    first = next((i for i, each in enumerate(texts) if has_names or len(each) == len(named[0])), 0)
    parts: list[Part] = []
    if place := records.index(rows[first]):
        line = records[place - 1].line
        seems = f"the table seems to begin with the line {' '.join(rows[first].cells).strip()[:_SHOWN]!r}. Use "
        if place == 1 < len(records[0].cells) and any(map(any_number, rows[first].cells)):
            counted = f"the first line has {len(records[0].cells)} cells, but the rows have {width}."
            seems = f"{counted} Correct it. If it is no header, use "
        parts += [seems, Setting("skip", line), f" to skip {plural(line, 'line')} above it."]
    # A row of one text may hold missing values, unless it lacks a name, or labels are below.
    nameless = [len(cells) < width and not row.cells[0].strip() for cells, row in zip(named, rows, strict=False)]
    last = max((i for i, each in enumerate(texts) if len(each) > (not nameless[i])), default=0)
    if labels := [rows[i] for i in range(first + 1, last + 1) if texts[i]]:
        parts += [" "] * bool(parts) + _about_labels(labels, records, "the" if not parts else "The")
    if parts:
        raise Refused(*parts)


def _refuse_cut_numbers(names: Sequence[str], rows: Sequence[TextRow]) -> None:
    """Raise `Refused` for numbers such as 12,5 and 1,024 in a table with commas between cells."""
    more = len(rows[0].cells) - len(names) if rows else 0
    is_header = len(names) > 1 and all(name.strip() and not any_number(name) for name in names)
    if not (0 < more <= len(names) and is_header) or _are_padded(rows, len(names)):
        return
    cut = [[cell.strip().lstrip("+-").isdecimal() for cell in row.cells] for row in rows]
    has_pairs = all("".join(map("01".__getitem__, each)).count("11") >= more for each in cut)
    if not has_pairs or any(row.text.count(",") < len(row.cells) - 1 for row in rows):
        return
    # R writes no name for the column of row names.
    is_numbered = _are_numbered([row.cells for row in rows])
    if more > 1 or (says_identifiers(names[0]) and not is_numbered) or _have_thousands(rows):
        cells = f"row {rows[0].line} has {len(rows[0].cells)} cells, but the header has {len(names)}."
        commas = "Commas are delimiters, but may also be decimal marks or separate thousands. Save the table with "
        remedy = "semicolons or tabs between cells. If the first column has no name, add one to the header."
        raise Refused(f"{cells} {commas}{remedy}")


def _have_thousands(rows: Sequence[TextRow]) -> bool:
    """Return True for cells such as 1 and 024 side by side in all rows."""
    pairs = [{j for j, two in enumerate(pairwise(row.cells)) if _GROUPED.fullmatch(",".join(two))} for row in rows]
    return any(any(row.cells[j + 1].startswith("0") for row in rows) for j in set[int].intersection(*pairs))


def _first_line(records: Sequence[TextRow], width: int, n_above: int) -> int:
    # R writes no name for the column of row names, and other programs delimiters at the end of rows.
    n_names = len(records[0].cells)
    is_short = n_names == width - 1 and all(len(row.cells) == n_names for row in records[:n_above])
    is_header = is_short or _are_padded(records[n_above:], n_names)
    return 0 if is_header and any(map(any_number, records[n_above].cells)) else n_above


def _above_numbers(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the cells above numbers, row by row: names, or also titles, labels and units."""
    numeric = [j for j, cells in enumerate(zip(*rows[len(rows) // 2 :], strict=True)) if _is_numeric(cells)]
    counts = [sum(any_number(row[j]) for j in numeric) for row in rows[:_ABOVE]]
    if len(counts) > 2 and not counts[1]:
        counts[0] = 0  # names that are numbers, such as years, above names, labels or units
    above = rows[: len(list(takewhile(lambda count: 2 * count < len(numeric), counts)))]
    return [[row[j].strip() for j in numeric] for row in (above[:1] if len(above) == len(rows) else above)]


def _about_labels(labels: Sequence[TextRow], records: Sequence[TextRow], the: str) -> list[Part]:
    rows = f"{the} row below the header holds" if len(labels) == 1 else f"{len(labels)} rows below the header hold"
    comments = [part for row in labels for part in (" and ", Setting("comment", _start(row, records)))][1:]
    it = "it" if len(labels) == 1 else "them"
    return [f"{rows} labels or units, not numbers. Use ", *comments, f" to skip {it}."]


def _start(row: TextRow, records: Sequence[TextRow]) -> str:
    """Return a short beginning of a line that no other line has."""
    line, lines = row.text.lstrip('"'), [each.text.lstrip('"') for each in records]
    lengths = (n for n in range(6, _SHOWN) if sum(each.startswith(line[:n].strip()) for each in lines) == 1)
    return line[: next(lengths, _SHOWN)].strip()


def _is_value(cell: str) -> bool:
    return is_gap(cell) or any_number(cell)


def _is_numeric(cells: Sequence[str]) -> bool:
    filled = [cell for cell in cells if not is_gap(cell)]
    return bool(filled) and 2 * sum(map(any_number, filled)) >= len(filled)


def _decimals(
    columns: Sequence[Sequence[str]], names: Sequence[str], choices: Choices
) -> tuple[list[str], frozenset[str]]:
    """Return the decimal mark of each column: the given one, that which its cells prove, or that of fit or others."""
    given = choices.decimal or OTHER.get(choices.thousands or "")
    if given is not None:
        return [given] * len(columns), frozenset(given)
    own = list(map(_proven, columns))
    proven = list(filter(None, own))
    usual, marks = max(".,", key=proven.count), set(choices.decimals.values())
    learned = [choices.decimals.get(name, min(marks) if len(marks) == 1 else usual) for name in names]
    others = [mark if mark in (proven or ".,") else usual for mark in learned]
    found = [mark or other for mark, other in zip(own, others, strict=True)]
    return found, frozenset(proven)


def _proven(cells: Sequence[str]) -> str:
    """Return the decimal mark of most cells that can be read with one mark only, or "" if there are none."""
    found = Counter[str]()
    for cell in cells:
        if "." in cell or "," in cell:
            read = [mark for mark in ".," if number(cell, mark) is not None]
            found.update(read if len(read) == 1 else ())
            if found.total() == _ENOUGH:
                break
    return max(found, key=lambda mark: found[mark], default="")
