"""One column of a table that is no feature, such as the classes that colour a report."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shiftsvd.io.base import optional, reading
from shiftsvd.io.choices import Choices
from shiftsvd.io.formats import parquet, text_rows
from shiftsvd.io.formats.columns import in_order, texts
from shiftsvd.io.formats.delimited import head_of
from shiftsvd.io.formats.marks import NO_CLASS, Marks, is_gap
from shiftsvd.io.sniff import FORMATS, format_of


@dataclass(frozen=True, eq=False)
class Column:
    """The cells of a column, and what it is called; an array to whoever asks for one."""

    name: str
    cells: Sequence[str]

    def __len__(self) -> int:
        return len(self.cells)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(_values(self.cells), dtype)

    @property
    def classes(self) -> set[str]:
        return {cell.strip() for cell in self.cells} - set(NO_CLASS)


def read_column(paths: Sequence[Path], name: str, format: str | None, choices: Choices, *, along: bool) -> Column:  # noqa: A002
    """The column of that name: of all files, whose rows are `along` each other, or else of the first that has it.

    Raises
    ------
    ValueError
        If the files are no tables, or lack it.
    """
    found = []
    for path in paths:
        with reading(path):
            kind = format_of(path, format)
            if FORMATS[kind].module != "table":
                raise ValueError(f"{path} must be a table to have the column {name!r}, got {kind}")
            cells = _cells(path, name, kind, replace(choices, may_lack=choices.named))
        if cells is None and along:
            raise ValueError(f"{path} has no column {name!r}")
        found += [] if cells is None else [cells]
    if not found:
        raise ValueError(f"{paths[0]} has no column {name!r}")
    return Column(name, [cell for cells in (found if along else found[:1]) for cell in cells])


def with_classes(paths: Sequence[Path], format: str | None, choices: Choices) -> Choices:  # noqa: A002
    found = {
        name: classes or in_order(read_column(paths, name, format, choices, along=True).classes)
        for name, classes in choices.one_hot.items()
    }
    return replace(choices, one_hot=found)


def _cells(path: Path, name: str, kind: str, choices: Choices) -> list[str] | None:
    if kind in ("parquet", "arrow"):
        return _stored_cells(path, name, kind)
    head = head_of(path, "matrix", choices)
    if name not in head.called:
        return None
    with text_rows.batches(path, head, [list(head.called).index(name)], as_text=True) as batches:
        return [cell for batch in batches for cell in texts(batch.column(0))]


def _stored_cells(path: Path, name: str, kind: str) -> list[str] | None:
    if kind == "parquet":
        file = parquet.opened(path)
        names = file.schema_arrow.names
        return None if name not in names else texts(parquet.column(file, names.index(name)).column(0))
    feather = optional("pyarrow.feather", "parquet")
    table = feather.read_table(str(path), memory_map=False)
    return None if name not in table.column_names else texts(table.column(name))


def _values(cells: Sequence[str]) -> npt.NDArray[Any]:
    plain = Marks()
    if all(is_gap(cell) or plain.is_number(cell) for cell in cells):
        numbers = np.array([plain.number(cell) for cell in cells])
        return numbers.astype(np.int64) if np.array_equal(numbers, np.floor(numbers)) else numbers
    return np.array([cell or "missing" for cell in cells], np.str_)
