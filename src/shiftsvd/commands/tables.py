"""Write tables block by block as CSV, Parquet or NumPy files."""

import csv
import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, BinaryIO, Final, cast

import click
import numpy as np

from shiftsvd.errors import plain
from shiftsvd.extend import merged
from shiftsvd.names import resolve
from shiftsvd.runs.messages import Notice

_MARKS: Final = re.compile('[,"\r\n]')
LINES: Final = 1024  # of a CSV that are in memory at once: a number takes about 60 bytes there
_BEGINS: Final = "=+-@\t\r\uff1d\uff0b\uff0d\uff20"  # the last four are full-width = + - @
_ODD: Final = re.compile(f'[,"\r\n]|^[{re.escape(_BEGINS)}]')  # cells to quote, or perhaps formulas


@contextmanager
def texts_for(table: str) -> Iterator[Callable[[Any], str]]:
    context = click.get_current_context(silent=True)
    safe = context is not None and bool(context.params.get("spreadsheet_safe"))
    found: list[str] = []  # the first formula, then "" for each further one: names may be many and long

    def text(value: Any) -> str:
        written = str(value)
        if not is_formula(written):
            return written
        found.append("" if found else written)
        return f"'{written}" if safe else written

    yield text
    if found and not safe:
        warnings.warn(
            f"A spreadsheet would run {len(found):,} names of {table} as formulas, such as {plain(found[0])[:40]!r}. "
            "Use --spreadsheet-safe to write an apostrophe before such names.",
            Notice,
            stacklevel=2,
        )


def is_formula(text: str) -> bool:
    if not text.startswith(tuple(_BEGINS)) or len(text) == 1:
        return False
    with suppress(ValueError):
        float(text)
        return False
    return True


Block = np.ndarray[Any, Any]
# Numbers formatted at a time. As text, a number takes about 100 bytes (26 MB).
ENTRIES: Final = 2**18
Write = Callable[[int, Block], None]  # first row, rows from there on; called in order


@dataclass(frozen=True, eq=False)
class Table:
    """The header, size and names of a table, known before its first row."""

    columns: list[str]
    n_rows: int
    dtype: np.dtype[Any]
    names: Any = None  # names of the rows, written as the first column
    of: str = "sample"  # header of the column of names
    beside: tuple[tuple[str, Any], ...] = ()  # header and texts of further columns after the names, in CSV only

    @property
    def head(self) -> list[str]:
        return [self.of] * (self.names is not None) + [head for head, _ in self.beside] + self.columns


@contextmanager
def csv_table(file: BinaryIO, table: Table) -> Iterator[Write]:
    text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
    is_terminal = file.isatty()
    terminal = plain if is_terminal else str
    # %r is the shortest text that parses back to the same double; nine digits suffice for single precision.
    line = ",".join(["%.9g" if table.dtype.itemsize == 4 else "%r"] * len(table.columns)) + "\n"

    with texts_for(f"{table.of}s") as name:

        def written(value: Any) -> str:
            cell = str(value)
            return _quoted(terminal(name(cell))) if is_terminal or _ODD.search(cell) else cell

        def write(first: int, block: Block) -> None:
            for lo in range(0, len(block), LINES):
                part = block[lo : lo + LINES].astype(table.dtype, copy=False)
                rows = slice(first + lo, first + lo + len(part))
                lines = [line % tuple(row) for row in part.tolist()]
                if table.names is not None:
                    texts = [map(written, each[rows]) for each in (table.names, *(texts for _, texts in table.beside))]
                    lines = [",".join(cells) for cells in zip(*texts, lines, strict=True)]
                text.write("".join(lines))

        csv.writer(text, lineterminator="\n").writerow([terminal(name(head)) for head in table.head])
        yield write
    text.detach()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if _MARKS.search(name) else name


@contextmanager
def npy_table(file: BinaryIO, table: Table) -> Iterator[Write]:
    shape = (table.n_rows, len(table.columns))
    header = {"descr": np.lib.format.dtype_to_descr(table.dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)

    def write(first: int, block: Block) -> None:
        file.write(np.ascontiguousarray(block, table.dtype).data)

    yield write


@contextmanager
def parquet_table(file: BinaryIO, table: Table) -> Iterator[Write]:
    import pyarrow as pa
    from pyarrow import parquet

    numbers = pa.from_numpy_dtype(table.dtype)
    fields = [(table.of, pa.string())] * (table.names is not None) + [(name, numbers) for name in table.columns]
    with parquet.ParquetWriter(file, pa.schema(fields)) as writer:

        def write(first: int, block: Block) -> None:
            columns = [pa.array(column) for column in np.asfortranarray(block, table.dtype).T]
            if table.names is not None:
                columns.insert(0, pa.array([str(name) for name in table.names[first : first + len(block)]]))
            writer.write_batch(pa.record_batch(columns, schema=writer.schema))

        yield write


Format = Callable[[BinaryIO, Table], AbstractContextManager[Write]]
WRITERS: Final[dict[str, Format]] = {"parquet": parquet_table, "csv": csv_table, "npy": npy_table}


def format_named(name: str) -> Format:
    if name == "parquet" and find_spec("pyarrow") is None:
        install = "Install it with: pip install 'shiftsvd[parquet]'. Or use .csv or .npy."
        raise ValueError(f"Parquet files need pyarrow. {install}")
    return WRITERS[name] if name in WRITERS else cast("Format", resolve(merged("writers")[name]))


def write_rows(blocks: Iterable[tuple[int, Block]], writes: Iterable[Write]) -> None:
    writes = list(writes)
    for first, block in blocks:
        rows = max(1, ENTRIES // block.shape[1])
        for lo in range(0, len(block), rows):
            part = block[lo : lo + rows] + 0.0  # turn -0.0 into 0.0, which arises where signs of components are flipped
            for write in writes:
                write(first + lo, part)


def component_names(k: int) -> list[str]:
    return [f"PC{j + 1}" for j in range(k)]
