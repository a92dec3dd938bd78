"""Tables as text, separated by commas, tabs or semicolons."""

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from shiftsvd.io.base import optional
from shiftsvd.io.formats import triplets
from shiftsvd.io.limits import bounded_lines, open_bytes, packing

_SEPARATORS = ",\t;"
_BLOCK = 1 << 24  # bytes of text that are parsed at once
_WIDEST = 32  # bytes of text of one number
_GAPS = ("", "na", "n/a", "nan", "null", "none")  # in a column of numbers


class Head(NamedTuple):
    """What the first lines of a text tell: how it is cut, what its columns are called, and which are what."""

    separator: str
    width: int
    names: Sequence[str] | None
    skip: int  # lines before the first row
    label: int | None
    triplets: triplets.Positions | None


def head(path: Path, key: str | None) -> Head:
    """From the first line and the first row.

    A first line of numbers only is a row, but for 0, 1, 2, ...: these are the names that pandas gives. The first column
    names the rows if its name is empty or missing, or its first entry is no number.
    """
    skip, lines = _first_lines(path)
    separator = max(_SEPARATORS, key=lines[0].count)
    try:
        first, *others = csv.reader(lines, delimiter=separator, strict=True)
    except csv.Error as error:
        raise ValueError(f"{path} cannot be read: {error} in its first lines") from error
    first = [cell.strip() for cell in first]
    if all(map(_is_number, first)) and first != [str(j) for j in range(len(first))]:
        return Head(separator, len(first), None, skip, None, triplets.positions(first, key) if key else None)
    if not others:
        raise ValueError(f"{path} has no rows, only a header")
    row = others[0]
    if len(row) == len(first) + 1:  # as R writes it
        first = ["", *first]
    where = triplets.positions(first, key)
    if where and key and _is_number(first[2]):
        return Head(separator, len(first), None, skip, None, where)
    is_label = first[0] == "" or not (_is_number(row[0]) or row[0].strip().lower() in _GAPS)
    label = 0 if is_label and not where else None
    if label == 0 and len(first) == 1:
        raise ValueError(f"{path} has no column of numbers; are its columns separated by commas, tabs or semicolons?")
    return Head(separator, len(first), first, skip + 1, label, where)


def _first_lines(path: Path) -> tuple[int, list[str]]:
    """How many empty lines come first, and the two lines after them."""
    skip, lines = 0, []
    with open_bytes(path) as stream:
        for line in bounded_lines(path, stream, None):
            if line.strip():
                lines.append(line.decode("utf-8-sig").rstrip("\r\n"))
            elif not lines:
                skip += 1
            if len(lines) == 2:
                break
    if not lines:
        raise ValueError(f"{path} is empty")
    return skip, lines


def _is_number(text: str) -> bool:
    """Whether a cell is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


@contextmanager
def batches(path: Path, form: Head) -> Iterator[Iterator[Any]]:
    """The rows, many at a time: names and the places of triplets as text, all else as numbers."""
    pa, arrow_csv = optional("pyarrow", "parquet"), optional("pyarrow.csv", "parquet")
    texts = form.triplets[:2] if form.triplets else (form.label,)
    names = [str(j) for j in range(form.width)]
    types = {name: pa.string() if j in texts else pa.float64() for j, name in enumerate(names)}
    if form.triplets:  # columns beside them are not looked at
        types |= {name: pa.string() for j, name in enumerate(names) if j not in form.triplets}
    pack = {"none": None, "gzip": "gzip", "bzip2": "bz2"}[packing(path)]
    with pa.input_stream(str(path), compression=pack) as stream, _naming(path, form.names):
        yield arrow_csv.open_csv(
            stream,
            arrow_csv.ReadOptions(
                skip_rows=form.skip, column_names=names, block_size=max(_BLOCK, _WIDEST * form.width)
            ),
            arrow_csv.ParseOptions(delimiter=form.separator),
            arrow_csv.ConvertOptions(column_types=types),
        )


@contextmanager
def _naming(path: Path, names: Sequence[str] | None) -> Iterator[None]:
    """Call a column in an error by its name."""
    try:
        yield
    except ValueError as error:
        found = re.search(r"column #(\d+).*?(invalid value .*)", str(error), re.DOTALL)
        if not found or str(error).startswith(str(path)):
            raise
        j = int(found[1])
        column = repr(names[j]) if names else str(j)
        raise ValueError(f"{path}: column {column} must be numbers, got the {found[2]}") from error
