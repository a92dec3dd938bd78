"""Sheets, tables of databases, Parquet and Arrow files: rows in blocks of Arrow columns like those of text files."""

import json
import os
import subprocess
import sys
import tempfile
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from decimal import Decimal
from functools import cached_property, partial
from itertools import chain, islice, pairwise
from pathlib import Path
from threading import Condition
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shiftsvd.backends.source import RowSource
from shiftsvd.errors import Refused, Setting, damaged, few, plural
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
from shiftsvd.io.formats import sheets
from shiftsvd.io.formats.cells import are_dates, arrow, pa, strings
from shiftsvd.io.formats.columns import (
    TRIPLETS,
    Layout,
    column_of_numbers,
    holds_numbers,
    is_text,
    numbers_in,
    sound,
    texts,
    with_indicators,
)
from shiftsvd.io.formats.notices import check_table
from shiftsvd.io.formats.ranges import has_suspect_name
from shiftsvd.io.formats.tally import Tally
from shiftsvd.io.formats.text import LINES
from shiftsvd.io.formats.totals import SUMMED, is_total, rows_of_totals
from shiftsvd.io.location import Location
from shiftsvd.io.sniff import content_of, split_element
from shiftsvd.io.storage.tree import fingerprint_of
from shiftsvd.numerics.digests import told
from shiftsvd.runs.memory import limit_of, shown_bytes

_AT_ONCE: Final = 1 << 10  # rows that a database returns at once
_DUCKDB = _CALAMINE = 1 << 26  # bytes that these need at least
_BLOB: Final = 20  # bytes of a binary value that are shown
_WAL: Final = 2  # version of a SQLite file with a write-ahead log
_EXACT: Final = 1 << 53  # whole numbers below are exact as floats
_INT64: Final = 1 << 63

GRIDS: Final = ("zip", "OLE", "SQLite", "DuckDB")  # contents of files

Rows = Iterator[Sequence[Any]]


class Grid(NamedTuple):
    """Rows of a sheet or a table, from one on; `rows` reads them from the beginning."""

    rows: Callable[[], Rows]
    names: Sequence[str] | None  # columns of a table in a database
    skip: int = 0
    comments: tuple[str, ...] = ()

    def below(self) -> Rows:
        found = islice(self.rows(), self.skip, None)
        return (row for row in found if not shown_row(row).startswith(self.comments)) if self.comments else found

    def batches(self, n_rows: int) -> Iterator[Any]:
        rows = self.below()
        while part := list(islice(rows, n_rows)):
            columns = (None if self.names is None else _numeric(part)) or list(map(_column, zip(*part, strict=True)))
            yield pa.RecordBatch.from_arrays(columns, [str(j + 1) for j in range(len(columns))])


class Stored(NamedTuple):
    """Rows of a Parquet or Arrow file."""

    path: Path
    schema: Any
    is_parquet: bool

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)

    def are_texts(self, places: Sequence[int]) -> bool:
        return all(is_text(self.schema.field(j).type) for j in places)

    def batches(self, n_rows: int) -> Iterator[Any]:
        if self.is_parquet:
            yield from map(sound, opened_parquet(self.path).iter_batches(n_rows, use_threads=False))
            return
        with _arrow(self.path) as (_, stored):
            for batch in map(sound, stored):
                yield from (batch.slice(first, n_rows) for first in range(0, batch.num_rows, n_rows))

    def below(self) -> Rows:
        """Yield the first rows: texts, and 1 for numbers; one row if there are none, or only numbers."""
        are_numbers = [holds_numbers(field.type) for field in self.schema]
        batch = None if all(are_numbers) else next(self.batches(LINES), None)
        if batch is None:
            return iter([[1] * len(are_numbers)])
        columns = zip(are_numbers, batch.columns, strict=True)
        return zip(*([1] * batch.num_rows if number else texts(column) for number, column in columns), strict=True)


@contextmanager
def _arrow(path: Path) -> Iterator[tuple[Any, Iterator[Any]]]:
    ipc = optional("pyarrow.ipc", "parquet")
    with pa.OSFile(str(path)) as source:
        is_stream, pool = source.read(6) != b"ARROW1", pa.system_memory_pool()  # see `_numbers`
        source.seek(0)
        table = ipc.open_stream(source, memory_pool=pool) if is_stream else ipc.open_file(source, memory_pool=pool)
        yield table.schema, table if is_stream else map(table.get_batch, range(table.num_record_batches))


def shown_row(row: Sequence[Any]) -> str:
    return ",".join(map(shown, row))


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def shown(value: Any) -> str:
    """Return the text that a CSV file would have for a value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, bytes):
        return f"x'{value[:_BLOB].hex()}{'…' if len(value) > _BLOB else ''}'"
    return str(sheets.shown(value))


def _numeric(rows: Sequence[Sequence[Any]]) -> list[Any] | None:
    """Return the columns of a database if all their cells are numbers, without a loop in Python."""
    if any(isinstance(value, bool) for value in rows[0]):
        return None
    try:
        X = np.frombuffer(array("d", chain.from_iterable(rows))).reshape(len(rows), -1)
    except (TypeError, OverflowError):
        return None
    exact = bool(np.all(np.abs(X) < _EXACT))
    return [arrow(x.astype(np.int64) if np.all(np.trunc(x) == x) else x) for x in X.T.copy()] if exact else None


def _column(values: Sequence[Any]) -> Any:
    """Return numbers, texts, or both: a structure of the text of each cell, and of its number where it is one."""
    stored = np.array([is_number(value) for value in values])
    numbers = np.array([float(value) if there else np.nan for value, there in zip(values, stored, strict=True)])
    if all(value is None or value == "" for value, there in zip(values, stored, strict=True) if not there):
        entries = [value if there else 0 for value, there in zip(values, stored, strict=True)]
        is_whole = np.any(stored) and all(value == value // 1 and abs(value) < _INT64 for value in entries)
        return arrow(np.array(list(map(int, entries)), np.int64) if is_whole else numbers, stored)
    written = strings(map(shown, values))
    parts = [written, arrow(numbers, stored)]
    return pa.StructArray.from_arrays(parts, ["text", "number"]) if np.any(stored) else written


def grid_of(path: Path, key: str | None, memory_limit: int | str | None) -> Grid | Stored | None:
    """Return the rows of a file that stores cells, or None if `path` is a text file."""
    content, (file, element) = content_of(path), split_element(path)
    if content == "Parquet":
        return Stored(path, bounded_schema(path, memory_limit), True)
    if content == "Arrow":
        with _arrow(path) as (schema, _):
            return Stored(path, schema, False)
    key = element or (None if key in TRIPLETS else key)
    if content in ("zip", "OLE"):
        return Grid(_sheet(file, key, memory_limit), None)
    if content not in ("SQLite", "DuckDB"):
        return None
    connect = partial(_sqlite if content == "SQLite" else _duckdb, file, memory_limit)
    with connect() as query:
        names = [row[0] for row in query(_TABLES[content])[1]]
        table = _chosen(file, key, names, "table")
        columns, _ = query(f"SELECT * FROM {_quoted(table)} LIMIT 0")

    def rows() -> Rows:
        with connect() as query:
            yield from query(f"SELECT * FROM {_quoted(table)}")[1]

    return Grid(rows, columns)


def _chosen(path: Path, key: str | None, names: Sequence[str], what: str, n_numbers: Sequence[int] = ()) -> str:
    # `n_numbers` is the number of numbers in the first rows of each.
    if key in names:
        return str(key)
    if len(names) == 1 and key is None:
        return names[0]
    if not names:
        raise ValueError(f"{path} has no {what}s with cells.")
    found = f"it has {plural(len(names), what)}: {few(map(repr, names), 10)}"
    if key is not None:
        raise ValueError(f"{path} has no {what} {key!r}; {found}.")
    best = names[int(np.argmax(n_numbers))] if n_numbers else names[0]
    raise ValueError(f"{path} must have one {what}, but {found}. Choose one, such as '{path}::{best}'.")


def _sheet(path: Path, key: str | None, memory_limit: int | str | None) -> Callable[[], Rows]:
    """Return the rows of a sheet, which a process of its own writes to a temporary file as lines of JSON."""
    optional("python_calamine", "sheets")
    lines = tempfile.TemporaryFile()  # noqa: SIM115 (closed when the rows are deleted)
    limit = limit_of(memory_limit)
    given = [str(path), key or "", str((limit or 1 << 50) + _CALAMINE)]
    where = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUTF8": "1"}
    command = [sys.executable, "-P", sheets.__file__, *given]
    ended = subprocess.run(command, stdout=lines, stderr=subprocess.PIPE, env=where, text=True)

    def rows() -> Rows:
        lines.seek(begin)
        yield from map(json.loads, lines)

    weakref.finalize(rows, lines.close)
    if ended.returncode:
        why = ended.stderr.strip()
        if ended.returncode == 1 and why and "\n" not in why:
            raise ValueError(f"{path} cannot be read: {why}.")
        most = f"more than the limit of {shown_bytes(limit or 0)} of memory. If it is not damaged, raise "
        raise Refused(f"{path} cannot be read: it is damaged or needs {most}", Setting("memory_limit"), ".")
    lines.seek(0)
    names, n_numbers = json.loads(lines.readline())
    begin = lines.tell()
    _chosen(path, key, names, "sheet", n_numbers)
    return rows


_TABLES: Final = {
    "SQLite": "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND substr(name, 1, 7) <> 'sqlite_'",
    "DuckDB": "SELECT table_name FROM duckdb_tables() WHERE NOT internal AND schema_name = 'main' UNION ALL "
    "SELECT view_name FROM duckdb_views() WHERE NOT internal AND schema_name = 'main'",
}
Query = Callable[[str], tuple[list[str], Rows]]  # names of columns, and rows


def _query(cursor: Any, text: str) -> tuple[list[str], Rows]:
    cursor.execute(text)
    rows = chain.from_iterable(iter(lambda: cursor.fetchmany(_AT_ONCE), []))
    return [str(column[0]) for column in cursor.description], rows


@contextmanager
def _sqlite(path: Path, memory_limit: int | str | None) -> Iterator[Query]:
    import sqlite3  # takes 40 ms

    # The file is never changed, and no -wal or -shm appears next to it: a file with a write-ahead log is read as
    # immutable unless its log exists, as a process may be writing to it.
    log, shared = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    with path.open("rb") as file:
        has_log = file.read(20)[18:] == bytes((_WAL, _WAL))
    is_immutable = has_log and not log.exists()
    if has_log and log.exists() and not shared.exists():
        fold = f"Use `sqlite3 {path.name} 'PRAGMA wal_checkpoint(TRUNCATE)'` to write it to the database."
        raise ValueError(f"{path} has a write-ahead log {log.name} that no process has open. {fold}")
    before = path.stat()
    uri = f"{path.absolute().as_uri()}?{'immutable=1' if is_immutable else 'mode=ro'}"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.text_factory = partial(str, encoding="utf-8", errors="replace")
            for name, value in (("trusted_schema", "OFF"), ("query_only", "ON"), ("cell_size_check", "ON")):
                connection.execute(f"PRAGMA {name}={value}")
            yield partial(_query, connection.cursor())
    except sqlite3.Error as error:
        raise OSError(f"{path} cannot be read: {error}") from error
    after = path.stat()
    if is_immutable and (log.exists() or (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns)):
        raise OSError(f"{path} was changed while it was read. Read it again.")


@contextmanager
def _duckdb(path: Path, memory_limit: int | str | None) -> Iterator[Query]:
    duckdb = optional("duckdb", "duckdb")
    limit = limit_of(memory_limit)
    closed = ("enable_external_access", "autoinstall_known_extensions", "autoload_known_extensions")
    config = dict.fromkeys((*closed, "allow_community_extensions"), "false") | {"lock_configuration": "true"}
    config |= {"temp_directory": "", "threads": "1"}
    config |= {} if limit is None else {"memory_limit": f"{max(limit, _DUCKDB)}B"}
    try:
        with duckdb.connect(str(path), read_only=True, config=config) as connection:
            yield partial(_query, connection)
    except duckdb.Error as error:
        raise OSError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# --- Parquet files: numeric columns as rows, read by row groups ---


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


def read_parquet(path: Path, form: Layout, memory_limit: int | str | None, choices: Choices = NOTHING) -> Opened | None:
    """Return columns of numbers, or None if the rows must be read as those of a text file."""
    file = opened_parquet(path)
    if not can_stream(file, form, choices):
        return None
    names = file.schema_arrow.names
    row_names = _row_names(path, file, form, memory_limit)
    form = form.with_classes((j, stored_column(file, j)) for j in form.unknown)
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
    schema = opened_parquet(path).schema_arrow
    bounded_width(path, len(schema.names), memory_limit, _COLUMN)
    return schema


def _has_totals(file: Any, form: Layout) -> bool:
    for j, field in enumerate(file.schema_arrow):
        if (j == form.label or j in form.texts) and is_text(field.type):
            n_rows, seen, is_first = 0, set[str](), j in (0, form.label)
            for batch in file.iter_batches(columns=[field.name], use_threads=False):
                n_rows += batch.num_rows
                is_end = n_rows == file.metadata.num_rows
                if rows_of_totals(sound(batch).column(0), seen, possible={}, is_first=is_first, is_end=is_end):
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


def stored_column(file: Any, j: int) -> Any:
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
            tally.of.add(column_of_numbers(stored_column(file, j).combine_chunks())[:, None], 1)
            yield tally


def _counts(metadata: Any, name: str) -> bool:
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    columns = (column for group in groups for column in map(group.column, range(group.num_columns)))
    stored = [column.statistics for column in columns if column.path_in_schema == name]
    if not stored or not all(each is not None and each.has_min_max for each in stored):
        return False
    ends = [end for each in stored for end in (each.min, each.max)]
    return bool(max(ends) - min(ends) == metadata.num_rows - 1 or all(map(are_dates, ends)))


def opened_parquet(path: Path, metadata: Any = None, batch: int = _BATCH) -> Any:
    # Without a buffer Arrow holds a whole row group while it decodes the first rows. Each column has its own buffer.
    buffer = _BUFFER if metadata is None else max(4096, min(_BUFFER, batch // max(1, metadata.num_columns)))
    file = path.open("rb") if isinstance(path, Location) else path
    settings = {"metadata": metadata, "buffer_size": buffer, "pre_buffer": False}
    return optional("pyarrow.parquet", "parquet").ParquetFile(file, **settings)


def _row_names(path: Path, file: Any, form: Layout, memory_limit: int | str | None) -> Labels | None:
    if form.label is None:
        return None
    rows = texts(stored_column(file, form.label))
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
        batches = opened_parquet(self._path, self._metadata, self._batch).iter_batches(
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
            numbers = numbers_in(part, self._form.numeric, self._form.dtype)
            numbers = with_indicators(numbers, part, self._form, part.schema.names)
            X[self.row - first : self.row - first + part.num_rows] = numbers
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
