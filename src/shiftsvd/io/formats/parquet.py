"""Parquet files: numeric columns as rows, read by row groups."""

import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from threading import Condition
from typing import Any

import numpy as np
import numpy.typing as npt

from shiftsvd.backends.source import RowSource
from shiftsvd.errors import damaged
from shiftsvd.io.base import (
    TRANSPOSED,
    Labels,
    Opened,
    bounded,
    bounded_width,
    labels,
    optional,
    plausible_shape,
    reading,
)
from shiftsvd.io.choices import NOTHING, Choices
from shiftsvd.io.formats.cells import pa
from shiftsvd.io.formats.columns import (
    Layout,
    column_of_numbers,
    holds_numbers,
    is_text,
    sound,
    texts,
    to_numbers,
)
from shiftsvd.io.formats.notices import check_table
from shiftsvd.io.formats.tally import Tally, are_dates, has_suspect_name
from shiftsvd.io.formats.totals import SUMMED, is_total, rows_of_totals
from shiftsvd.io.location import Location
from shiftsvd.io.storage.tree import fingerprint_of
from shiftsvd.numerics.digests import told
from shiftsvd.runs.memory import limit_of

_BATCH, _LEAST, _SHARE = 1 << 25, 1 << 20, 32  # bytes decoded at a time: default, minimum, and share of the limit
_BUFFER = 1 << 20  # bytes of a column read at a time
_SMALLER = "write the file again with smaller row groups"
_PAGE = 1 << 20  # bytes of a column that writers compress together
# Bytes of memory for each column, and for each byte of the footer.
_COLUMN, _PARSED = 12_000, 16


def can_stream(file: Any, form: Layout, choices: Choices) -> bool:
    """Return True if all rows are samples and all features numbers, so that row groups are parts of the matrix."""
    schema = file.schema_arrow
    features = [schema.field(j) for j in form.numeric if schema.names[j] not in choices.one_hot]
    has_sums = bool(features) and is_total([features[-1].name])
    if choices.na or has_sums or not all(holds_numbers(field.type) for field in features):
        return False
    if choices.keep_total:
        return True
    return not (_has_totals(file, form) or all(_ends_with_sum(file, field.name) for field in features))


def read(path: Path, form: Layout, memory_limit: int | str | None, choices: Choices = NOTHING) -> Opened | None:
    """Return columns of numbers, or None if the rows must be read as those of a text file."""
    file = opened(path)
    if not can_stream(file, form, choices):
        return None
    names = file.schema_arrow.names
    row_names = _row_names(path, file, form, memory_limit)
    form = form.with_classes((j, column(file, j)) for j in form.unknown)
    limit = limit_of(memory_limit)
    batch = _BATCH if limit is None else int(np.clip(limit // _SHARE, _LEAST, _BATCH))
    source = ParquetRows(path, file.metadata, form, batch)
    plausible_shape(path, source.shape, memory_limit)
    bounded(f"{path}: a page of each column", source.decoding_bytes(1), memory_limit, _SMALLER)
    found = Opened(source, row_names, labels(path, form.named(names), memory_limit), table=True)
    check_table(path, found, choices, list(_suspects(file, form, choices)))
    return found


def bounded_schema(path: Path, memory_limit: int | str | None) -> Any:
    with path.open("rb") as file:
        file.seek(-min(8, path.stat().st_size), os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
    bounded(f"{path}: its footer", _PARSED * min(length, path.stat().st_size), memory_limit, TRANSPOSED)
    schema = opened(path).schema_arrow
    bounded_width(path, len(schema.names), memory_limit, _COLUMN)
    return schema


def _has_totals(file: Any, form: Layout) -> bool:
    for j, field in enumerate(file.schema_arrow):
        if (j == form.label or j in form.texts) and is_text(field.type):
            n_rows, seen, is_first = 0, set[str](), j in (0, form.label)
            for batch in file.iter_batches(columns=[field.name], use_threads=False):
                n_rows += batch.num_rows
                is_end = n_rows == file.metadata.num_rows
                if rows_of_totals(sound(batch).column(0), seen, is_first=is_first, is_end=is_end):
                    return True
    return False


def _ends_with_sum(file: Any, name: str) -> bool:
    # Whether the last row is a total is decided by the reader of rows, which compares all of its numbers.
    total = size = last = 0.0
    for batch in file.iter_batches(columns=[name], use_threads=False):
        values = column_of_numbers(batch.column(batch.schema.get_field_index(name))).astype(np.float64, copy=False)
        total, size = total + np.nansum(values), size + np.nansum(np.abs(values))
        last = values[-1] if len(values) else last
    return bool(abs(total - 2 * last) <= SUMMED * size)


def column(file: Any, j: int) -> Any:
    name = file.schema_arrow.names[j]
    table = sound(file.read(columns=[name], use_threads=False))
    # Arrow also returns columns whose names extend a name with a dot.
    return table.column(table.schema.get_field_index(name))


def _suspects(file: Any, form: Layout, choices: Choices) -> Iterator[Tally]:
    is_integer, names = pa.types.is_integer, file.schema_arrow.names
    for j in form.numbers:
        is_free = j not in form.classes and names[j] not in choices.columns and names.count(names[j]) == 1
        whole = is_integer(file.schema_arrow.field(j).type)
        if is_free and whole and (has_suspect_name(names[j]) or _counts(file.metadata, names[j])):
            tally = Tally(names[j])
            tally.of.add(column_of_numbers(column(file, j).combine_chunks())[:, None], 1)
            yield tally


def _counts(metadata: Any, name: str) -> bool:
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    columns = (column for group in groups for column in map(group.column, range(group.num_columns)))
    stored = [column.statistics for column in columns if column.path_in_schema == name]
    if not stored or not all(each is not None and each.has_min_max for each in stored):
        return False
    ends = [end for each in stored for end in (each.min, each.max)]
    return bool(max(ends) - min(ends) == metadata.num_rows - 1 or all(map(are_dates, ends)))


def opened(path: Path, metadata: Any = None, batch: int = _BATCH) -> Any:
    # Without a buffer Arrow holds a whole row group while it decodes the first rows. Each column has its own buffer.
    buffer = _BUFFER if metadata is None else max(4096, min(_BUFFER, batch // max(1, metadata.num_columns)))
    file = path.open("rb") if isinstance(path, Location) else path
    settings = {"metadata": metadata, "buffer_size": buffer, "pre_buffer": False}
    return optional("pyarrow.parquet", "parquet").ParquetFile(file, **settings)


def _row_names(path: Path, file: Any, form: Layout, memory_limit: int | str | None) -> Labels | None:
    if form.label is None:
        return None
    rows = texts(column(file, form.label))
    if len(rows) != file.metadata.num_rows:
        raise damaged(path, f"it has {len(rows):,} names for {file.metadata.num_rows:,} rows")
    return labels(path, rows, memory_limit)


class ParquetRows(RowSource):
    """The columns of numbers of a Parquet file."""

    sparse = False

    def __init__(self, path: Path, metadata: Any, form: Layout, batch: int = _BATCH) -> None:
        ends = np.cumsum([0, *(metadata.row_group(g).num_rows for g in range(metadata.num_row_groups))])
        if np.any(ends[1:] < ends[:-1]) or ends[-1] != metadata.num_rows:
            raise damaged(path, f"its row groups do not add up to {metadata.num_rows:,} rows")
        self.shape = int(ends[-1]), form.width
        self.dtype = form.dtype
        self.name = str(path)
        self.fingerprint = fingerprint_of(path, told(form))
        self._path, self._metadata, self._form, self._batch = path, metadata, form, batch
        self._ends: list[int] = ends.tolist()
        self._lock = _OrderedLock()
        self._cursor: _Cursor | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return ParquetRows, (self._path, self._metadata, self._form, self._batch)

    def decoding_bytes(self, readers: int) -> int:
        return self._pages

    @cached_property
    def _pages(self) -> int:
        groups = map(self._metadata.row_group, range(self._metadata.num_row_groups))
        group = max(groups, key=lambda group: int(group.total_byte_size), default=None)
        columns = [] if group is None else map(group.column, range(group.num_columns))
        return 3 * sum(min(int(column.total_uncompressed_size), _PAGE) for column in columns) // 2

    def edges(self, n_bytes: int) -> list[int]:
        step = max(1, n_bytes // (self.dtype.itemsize * self.shape[1]))
        edges = [0]
        for lo, hi in pairwise(self._ends):
            if hi - edges[-1] > step and lo > edges[-1]:
                edges.append(lo)
            if hi - lo > step:
                parts = -(-(hi - lo) // step)
                edges += [lo + (hi - lo) * part // parts for part in range(1, parts + 1)]
        return edges if edges[-1] == self.shape[0] else [*edges, self.shape[0]]

    def read(self, lo: int, hi: int) -> npt.NDArray[Any]:
        with reading(self._path):
            if lo in self._ends and hi in self._ends:
                return self._from(lo, hi - lo).take(hi - lo)
            with self._lock.of(lo):
                # Read the parts of a row group in order: a group can only be decoded from its beginning.
                cursor, self._cursor = self._cursor, None
                start = self._ends[bisect_right(self._ends, lo) - 1]
                if cursor is None or not start <= cursor.row <= lo:
                    cursor = self._from(start, hi - lo)
                cursor.skip(lo - cursor.row)
                X = cursor.take(hi - lo)
                self._cursor = cursor if hi < self.shape[0] else None
                return X

    def _from(self, row: int, count: int) -> "_Cursor":
        # Open a new handle, since several threads read at once; they share the footer.
        groups = list(range(bisect_right(self._ends, row) - 1, len(self._ends) - 1))
        size = max(1, min(count, self._batch // (8 * self.shape[1])))
        batches = opened(self._path, self._metadata, self._batch).iter_batches(
            size, row_groups=groups, use_threads=False
        )
        return _Cursor(batches, row, self._form)


class _Cursor:
    """Decoder of consecutive rows."""

    def __init__(self, batches: Iterator[Any], row: int, form: Layout) -> None:
        self.row = row
        self._batches, self._form = batches, form
        self._left: Any = None

    def take(self, count: int) -> npt.NDArray[Any]:
        X = np.empty((count, self._form.width), self._form.dtype)
        first = self.row
        for part in self._parts(count):
            X[self.row - first : self.row - first + part.num_rows] = to_numbers(part, self._form)
        return X

    def skip(self, count: int) -> None:
        for _ in self._parts(count):
            pass

    def _parts(self, count: int) -> Iterator[Any]:
        while count:
            batch = self._left if self._left is not None else next(self._batches, None)
            if batch is None:
                raise ValueError(f"the file ends before row {self.row:,}. Copy or write it again.")
            part, rest = batch.slice(0, count), batch.slice(count)
            self._left = rest if rest.num_rows else None
            yield part
            self.row += part.num_rows
            count -= part.num_rows


class _OrderedLock:
    """A lock that the lowest waiting row acquires first."""

    def __init__(self) -> None:
        self._change = Condition()
        self._waiting: list[int] = []
        self._busy = False

    @contextmanager
    def of(self, row: int) -> Iterator[None]:
        with self._change:
            self._waiting.append(row)
            self._change.wait_for(lambda: not self._busy and row == min(self._waiting))
            self._waiting.remove(row)
            self._busy = True
        try:
            yield
        finally:
            with self._change:
                self._busy = False
                self._change.notify_all()
