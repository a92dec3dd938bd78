"""Sheets, tables of databases, Parquet and Arrow files: rows in blocks of Arrow columns like those of text files."""

import json
import os
import subprocess
import sys
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from decimal import Decimal
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from shiftsvd.errors import Refused, Setting, few, plural
from shiftsvd.io.base import optional
from shiftsvd.io.formats import parquet, sheets
from shiftsvd.io.formats.cells import arrow, pa, strings
from shiftsvd.io.formats.columns import TRIPLETS, holds_numbers, is_text, sound, texts
from shiftsvd.io.formats.text import LINES
from shiftsvd.io.sniff import content_of, split_element
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
            yield from map(sound, parquet.opened(self.path).iter_batches(n_rows, use_threads=False))
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
        return Stored(path, parquet.bounded_schema(path, memory_limit), True)
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
