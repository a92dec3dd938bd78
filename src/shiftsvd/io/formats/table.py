"""Tables: CSV, TSV, Parquet and Arrow files as matrices, and one column read by itself."""

import weakref
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from shiftsvd.errors import Refused, Setting
from shiftsvd.io.base import NAME, Labels, Opened, bounded, labels, plausible_shape, reading
from shiftsvd.io.choices import NOTHING, Choices, shown
from shiftsvd.io.formats import parquet
from shiftsvd.io.formats.cells import NO_CLASS, is_gap, number
from shiftsvd.io.formats.columns import (
    TRIPLETS,
    gather,
    in_order,
    texts,
)
from shiftsvd.io.formats.delimited import Rows
from shiftsvd.io.formats.grid import GRIDS, Stored
from shiftsvd.io.formats.header import Head, head_of
from shiftsvd.io.formats.notices import check_table, log_findings, notice_header, notice_label, refused
from shiftsvd.io.formats.numpy_files import NpyRows
from shiftsvd.io.location import Location
from shiftsvd.io.sniff import content_of, format_of, formats, split_element
from shiftsvd.io.stacking import several
from shiftsvd.io.storage.chunked import fingerprint_of
from shiftsvd.numerics.digests import told
from shiftsvd.runs.memory import limit_of, temporary_folder


@dataclass(frozen=True, eq=False)
class Column:
    """Name and cells of a column; NumPy converts it to an array of numbers or texts."""

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
    # From all files if their rows are stacked (`along`), else from the first file with the column.
    found = []
    for path in paths:
        with reading(path):
            kind = format_of(path, format)
            if not formats()[kind].is_table:
                raise ValueError(f"{path} must be a table to read column {name!r}, got format {kind!r}.")
            cells, names = _cells(path, name, kind, replace(choices, may_lack=choices.named))
        if cells is None and (along or len(paths) == 1):
            raise ValueError(f"{path} has no column {name!r}. The columns are {shown(names)}.")
        found += [] if cells is None else [cells]
    if not found:
        raise ValueError(f"{several(paths)} have no column {name!r}.")
    return Column(name, [cell for cells in (found if along else found[:1]) for cell in cells])


def with_decimals(paths: Sequence[Path], format: str | None, choices: Choices) -> Choices:  # noqa: A002
    """Return settings with the decimal marks of text files, if they have decimal commas and can be read again."""
    found: dict[str, str] = {}
    for path in paths if choices.decimal is None and choices.thousands is None else ():
        if isinstance(path, Location) or not split_element(path)[0].is_file():
            continue
        if formats()[format_of(path, format)].is_table and content_of(path) not in (*GRIDS, "Parquet", "Arrow"):
            head = head_of(path, "matrix", replace(choices, may_lack=choices.named))
            marks = zip(head.called, head.decimals, strict=True)
            found = {name: mark for name, mark in marks if mark in head.proven} | found
    return replace(choices, decimals=found if "," in found.values() else {})


def with_classes(paths: Sequence[Path], format: str | None, choices: Choices) -> Choices:  # noqa: A002
    found = {
        name: classes or in_order(read_column(paths, name, format, choices, along=True).classes)
        for name, classes in choices.one_hot.items()
    }
    return replace(choices, one_hot=found)


def _cells(path: Path, name: str, kind: str, choices: Choices) -> tuple[list[str] | None, Sequence[str]]:
    head = head_of(path, "matrix", replace(choices, one_hot={}))
    if name not in head.called:
        return None, head.called
    place = list(head.called).index(name)
    if kind == "parquet" and parquet.can_stream(file := parquet.opened(path), head.form, choices):
        return texts(parquet.column(file, place)), head.called
    return [cell for block in Rows(path, head, choices) for cell in texts(block.cells.column(place))], head.called


def _values(cells: Sequence[str]) -> npt.NDArray[Any]:
    read = [None if is_gap(cell) else number(cell) for cell in cells]
    if all(is_gap(cell) or found is not None for cell, found in zip(cells, read, strict=True)):
        numbers = np.array([np.nan if found is None else found.value for found in read])
        return numbers.astype(np.int64) if np.array_equal(numbers, np.floor(numbers)) else numbers
    return np.array([cell or "missing" for cell in cells], np.str_)


def read(path: Path, key: str | None, memory_limit: int | str | None, choices: Choices = NOTHING) -> Opened:
    # A table with the three columns row, column, value (or row, col; i, j; user, item; and x, rating) holds triplets.
    # Rows and columns are positions from 0, or names in order of first use; values at the same position are summed. The
    # key "matrix" or "triplets" overrides the names.
    with reading(path):
        content = content_of(path)
        if key not in TRIPLETS and content not in GRIDS:
            must = f' of a table must be "matrix" or "triplets", got {key!r}'
            raise Refused(f"{path}: the ", Setting("key"), must)
        refuse_settings(content, choices)
        if content not in GRIDS and split_element(path)[1] is not None:
            raise ValueError(f"{path}: this file holds one table. Pass it without the name of a table.")
        head = head_of(path, key, choices, memory_limit)
        found = None
        if content == "Parquet" and not head.triplets:
            found = parquet.read(path, head.form, memory_limit, choices)
        return _read_rows(path, head, memory_limit, choices) if found is None else found


def refuse_settings(content: str, choices: Choices) -> None:
    is_sheet, of_texts = content in ("zip", "OLE"), ("sep", "encoding", "comment", "skip")
    is_stored = is_sheet or content in ("Parquet", "Arrow", "SQLite", "DuckDB")
    given = [name for name in choices.given if is_stored and name in (of_texts[:2] if is_sheet else of_texts)]
    if given and not choices.remembered:
        got = "a sheet" if is_sheet else f"a {content} file"
        raise Refused(Setting(given[0]), f" applies to text files, got {got}. Remove it.")


def _read_rows(path: Path, head: Head, memory_limit: int | str | None, choices: Choices) -> Opened:
    rows = Rows(path, head, choices, memory_limit)
    if head.triplets:
        choices.refuse_for("triplets", choices.of_texts)
        digits = not isinstance(head.source, Stored)
        found = gather(path, rows.triplets(), head.triplets, memory_limit, digits=digits, features=choices.features)
    else:
        notice_header(path, head.names)
        notice_label(path, head.called[0], head.form.why)
        parts = ((block.numbers, block.names) for block in rows)
        found = _gather(path, parts, rows.names, head.form.label is not None, memory_limit, (rows.form, choices))
    findings = rows.findings()
    if errors := [each for each in findings if each.is_error]:
        raise refused(errors)
    log_findings(path, findings)
    if not head.triplets:
        check_table(path, found, choices, rows.read_tallies)
    return found


def _below(matrix: npt.NDArray[Any] | None, block: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if matrix is None:
        return block
    if matrix.base is not None or not matrix.flags.c_contiguous:
        matrix = np.array(matrix, order="C")
    first = len(matrix)
    matrix.resize((first + len(block), matrix.shape[1]), refcheck=False)
    matrix[first:] = block
    return matrix


def _gather(
    path: Path,
    parts: Iterable[tuple[npt.NDArray[Any], Sequence[str]]],
    names: Iterable[str] | None,
    is_named: bool,
    memory_limit: int | str | None,
    settings: object,
) -> Opened:
    # In memory up to half of the limit; a larger table is written to a temporary file, and read from there in blocks.
    matrix, rows, n_rows, limit = None, list[str](), 0, limit_of(memory_limit)
    with ExitStack() as stack:
        spilled: BinaryIO | None = None
        for block, called in parts:
            bounded(path, 2 * block.nbytes + NAME * (len(rows) + len(called)), memory_limit)
            rows += called
            n_rows += len(block)
            if spilled is None:
                matrix = _below(matrix, block)
                if limit is None or 2 * matrix.nbytes <= limit:
                    continue
                folder = stack.enter_context(temporary_folder("shiftsvd-"))
                spilled, block = stack.enter_context((folder / "rows").open("wb")), matrix
            matrix = np.empty((0, block.shape[1]), block.dtype)
            spilled.write(np.ascontiguousarray(block).data)
        if matrix is None:
            raise ValueError(f"{path} has no rows. Check that the file is complete.")
        shape = n_rows, matrix.shape[1]
        plausible_shape(path, shape, memory_limit)
        found: Any = matrix
        if spilled is not None:
            spilled.close()
            about = str(path), fingerprint_of(split_element(path)[0], told((str(path), settings)))
            found = NpyRows(*about, shape, matrix.dtype, matrix.dtype, 0, False, spilled.name)
            weakref.finalize(found, stack.pop_all().close)
    columns: Labels | None = None if names is None else labels(path, names, memory_limit)
    return Opened(found, labels(path, rows, memory_limit) if is_named else None, columns, table=True)
