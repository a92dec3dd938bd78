"""The lines of the tables beside genotypes, and the fields of a .fam or .bim, as PLINK reads them."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from shiftsvd.io.base import reading
from shiftsvd.io.limits import bounded_lines, open_bytes

_N_FIELDS: Final = 6
_CENTIMORGANS: Final = 2  # the field that a .bim may leave out


def rows(path: Path, stream: IO[bytes], memory_limit: int | str | None) -> Iterator[tuple[int, list[str]]]:
    empty = 0
    for number, line in enumerate(bounded_lines(path, stream, memory_limit), 1):
        words = line.decode("utf-8-sig").split()
        if words and empty:
            raise ValueError(f"{path} must have no empty lines between others, got one in line {empty}")
        if words:
            yield number, words
        else:
            empty = empty or number


def fields(path: Path, wanted: Sequence[int], memory_limit: int | str | None = None) -> list[list[str]]:
    """Some of the six fields of each line of a .fam, whose head is left out, or .bim, which may lack the third.

    Raises
    ------
    ValueError, OSError
        If a line is empty, but for those at the end, or shorter than that.
    """
    columns: list[list[str]] = [[] for _ in wanted]
    is_bim = path.suffix.lower() == ".bim"
    with reading(path), open_bytes(path) as stream:
        for number, row in rows(path, stream, memory_limit):
            if not is_bim and not columns[0] and row[0].startswith("#"):
                continue
            if is_bim and len(row) == _N_FIELDS - 1:
                row.insert(_CENTIMORGANS, "0")
            if len(row) < _N_FIELDS:
                raise ValueError(f"{path} must have {_N_FIELDS} fields in each line, got {len(row)} in line {number}")
            for column, place in zip(columns, wanted, strict=True):
                column.append(sys.intern(row[place]))
    return columns
