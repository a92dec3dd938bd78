"""Sheets of workbooks and tables of databases: rows of values, in blocks of Arrow columns like those of text files."""

import re
import sqlite3
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial, reduce
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from shiftsvd.errors import few, plural
from shiftsvd.io.base import bounded, optional
from shiftsvd.io.choices import Choices
from shiftsvd.io.formats.columns import TRIPLETS
from shiftsvd.io.sniff import content_of, split_element
from shiftsvd.runs.memory import limit_of

_OF_CELL, _INFLATED = 64, 3  # bytes of memory for a cell of a sheet, and for each byte of its texts
_PLACE: Final = re.compile(rb'\br="([A-Z]{1,3})([0-9]{1,7})"')  # of a cell in a sheet
_CHUNK, _LONGEST = 1 << 20, 16  # bytes of a sheet that are searched at once; characters of a place
_AT_ONCE: Final = 1 << 10  # rows that a database returns at once
_BLOB: Final = 20  # bytes of a binary value that are shown
_WAL: Final = 2  # version of a SQLite file with a write-ahead log
_INT64: Final = 1 << 63

GRIDS: Final = ("zip", "OLE", "SQLite", "DuckDB")  # contents of files

Rows = Iterator[Sequence[Any]]


class Grid(NamedTuple):
    """Rows of a sheet or a table, from one on; `rows` reads them from the beginning."""

    rows: Callable[[], Rows]
    names: Sequence[str] | None  # columns of a table in a database
    skip: int
    comments: tuple[str, ...]

    def below(self) -> Rows:
        found = islice(self.rows(), self.skip, None)
        return (row for row in found if not self.comments or not shown_row(row).startswith(self.comments))

    def batches(self, n_rows: int) -> Iterator[Any]:
        pa, rows = optional("pyarrow", "parquet"), self.below()
        while part := list(islice(rows, n_rows)):
            columns = [_column(column) for column in zip(*part, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, [str(j + 1) for j in range(len(columns))])


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
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if isinstance(value, timedelta):
        minutes, seconds = divmod(int(value.total_seconds()), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    if isinstance(value, bytes):
        return f"x'{value[:_BLOB].hex()}{'…' if len(value) > _BLOB else ''}'"
    return value.isoformat() if isinstance(value, date | time) else str(value)


def _column(values: Sequence[Any]) -> Any:
    """Return numbers, texts, or both: a structure of the text of each cell, and of its number where it is one."""
    pa = optional("pyarrow", "parquet")
    stored = [is_number(value) for value in values]
    numbers = [value if there else None for value, there in zip(values, stored, strict=True)]
    n_empty = sum(value is None or value == "" for value in values)
    if sum(stored) + n_empty == len(values):
        whole = all(value is None or (value == value // 1 and abs(value) < _INT64) for value in numbers)
        if whole and any(stored):
            return pa.array([None if value is None else int(value) for value in numbers], pa.int64())
        return _floats(numbers)
    texts = pa.array(map(shown, values), pa.string())
    return pa.StructArray.from_arrays([texts, _floats(numbers)], ["text", "number"]) if any(stored) else texts


def _floats(numbers: Sequence[Any]) -> Any:
    pa = optional("pyarrow", "parquet")
    return pa.array([None if value is None else float(value) for value in numbers], pa.float64())


def grid_of(path: Path, key: str | None, choices: Choices, memory_limit: int | str | None) -> Grid | None:
    """Return the rows of a workbook or a database, or None if `path` is a file of another kind."""
    content, (file, element) = content_of(path), split_element(path)
    key = element or (None if key in TRIPLETS else key)
    if content in ("zip", "OLE"):
        return Grid(_sheet(file, key, memory_limit), None, choices.skip, choices.comments)
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

    return Grid(rows, columns, 0, ())


def _chosen(path: Path, key: str | None, names: Sequence[str], what: str) -> str:
    if key in names:
        return str(key)
    if len(names) == 1 and key is None:
        return names[0]
    if not names:
        raise ValueError(f"{path} has no {what}s with cells.")
    found = f"it has {plural(len(names), what)}: {few(map(repr, names), 10)}"
    if key is not None:
        raise ValueError(f"{path} has no {what} {key!r}; {found}.")
    raise ValueError(f"{path} must have one {what}, but {found}. Choose one, such as '{path}::{names[0]}'.")


def _sheet(path: Path, key: str | None, memory_limit: int | str | None) -> Callable[[], Rows]:
    bounded(path, _unpacked(path), memory_limit)
    calamine = optional("python_calamine", "sheets")
    try:
        with path.open("rb") as file, calamine.load_workbook(file) as book:
            kinds = {sheet.name: sheet.typ for sheet in book.sheets_metadata}
            names = [name for name, kind in kinds.items() if kind == calamine.SheetTypeEnum.WorkSheet]
            if key not in names and len(names) > 1:
                names = [name for name in names if book.get_sheet_by_name(name).total_height]
            sheet = book.get_sheet_by_name(_chosen(path, key, names, "sheet"))
    except calamine.CalamineError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    return lambda: iter(sheet.to_python(skip_empty_area=False))


def _unpacked(path: Path) -> int:
    """Return the bytes that a workbook may take: calamine holds the rectangle around all filled cells."""
    if not zipfile.is_zipfile(path):
        return path.stat().st_size
    n_bytes = 0
    with zipfile.ZipFile(path) as book:
        for part in book.infolist():
            if re.fullmatch(r"xl/worksheets/[^/]*\.xml", part.filename):
                n_rows, n_columns = _corner(book.open(part))
                n_bytes = max(n_bytes, _OF_CELL * n_rows * n_columns)
            elif part.filename in ("xl/sharedStrings.xml", "content.xml"):
                n_bytes += _INFLATED * part.file_size
    return n_bytes


def _corner(stream: IO[bytes]) -> tuple[int, int]:
    n_rows, columns, rest = 0, set[bytes](), b""
    with stream:
        while chunk := stream.read(_CHUNK):
            found = _PLACE.findall(rest + chunk)
            rest = chunk[-_LONGEST:]
            columns.update(column for column, _ in found)
            n_rows = max([n_rows, *(int(row) for _, row in found)])
    numbers = ([letter - 64 for letter in column] for column in columns)
    return n_rows, max((reduce(lambda before, letter: 26 * before + letter, each) for each in numbers), default=0)


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
    # The file is never changed, and no -wal or -shm appears next to it: a file with a write-ahead log is read as
    # immutable unless its log exists, as a process may be writing to it.
    log, shared = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    has_log = path.read_bytes()[18:20] == bytes((_WAL, _WAL))
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
    config |= {"temp_directory": "", "threads": "1"} | ({} if limit is None else {"memory_limit": f"{limit}B"})
    try:
        with duckdb.connect(str(path), read_only=True, config=config) as connection:
            yield partial(_query, connection)
    except duckdb.Error as error:
        raise OSError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
