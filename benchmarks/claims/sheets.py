"""Profile and fit a table of 20 million rows and 12 columns within a memory limit: text, SQLite, Parquet, messy text.

Run: python -m benchmarks.claims.sheets [--gigabytes 2] [--memory 500M] [--formats csv,sqlite,parquet,messy]
"""

import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt

from shiftsvd.runs.memory import parse_bytes
from tests.support.meter import measured

COLUMNS = 12
CELL = 8.4  # bytes of text of a number, with its separator
BLOCK = 100_000  # rows that are written at once


def blocks(n_rows: int) -> Iterator[npt.NDArray[np.float64]]:
    """Numbers of three decimals with three strong directions."""
    rng = np.random.default_rng(0)
    V = rng.standard_normal((3, COLUMNS)) * [[9], [5], [3]]
    for first in range(0, n_rows, BLOCK):
        count = min(BLOCK, n_rows - first)
        yield (100 + rng.standard_normal((count, 3)) @ V + rng.standard_normal((count, COLUMNS))).round(3)


def as_csv(path: Path, n_rows: int) -> None:
    import pyarrow as pa
    from pyarrow import csv

    with path.open("wb") as file:
        file.write((",".join(f"v{j}" for j in range(COLUMNS)) + "\n").encode())
        for X in blocks(n_rows):
            csv.write_csv(
                pa.table(list(X.T), names=[*map(str, range(COLUMNS))]), file, csv.WriteOptions(include_header=False)
            )


def as_sqlite(path: Path, n_rows: int) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE t ({', '.join(f'v{j} REAL' for j in range(COLUMNS))})")
        for X in blocks(n_rows):
            connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * COLUMNS)})", X.tolist())


def as_parquet(path: Path, n_rows: int) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetWriter(path, pa.schema([(f"v{j}", pa.float64()) for j in range(COLUMNS)])) as file:
        for X in blocks(n_rows):
            file.write_table(pa.table(list(X.T), schema=file.schema))


def as_messy(path: Path, n_rows: int) -> None:
    """Columns of identifiers, classes, dates, currency, shares, units, and numbers with marks of missing values."""
    with path.open("w") as file:
        file.write("id,city,date,price,share,weight,a,b,c,d,e,f\n")
        row = 0
        for X in blocks(n_rows):
            for a, b, c, *numbers in np.abs(X).tolist():
                row += 1
                date = f"2023-{1 + row % 12:02d}-{1 + row % 28:02d}"
                mark = "k.A." if row % 5000 == 0 else f"{numbers[0]:.3f}"
                cells = f'S{row:09d},town {row % 5},{date},"${10 * a:,.2f}",{b:.1f} %,{c:.1f} kg,{mark}'
                file.write(",".join([cells, *(f"{x:.3f}" for x in numbers[1:6])]) + "\n")


WRITERS: dict[str, Callable[[Path, int], None]] = {
    "csv": as_csv,
    "sqlite": as_sqlite,
    "parquet": as_parquet,
    "messy": as_messy,
}


@click.command()
@click.option("--gigabytes", default=2.0)
@click.option("--memory", default="500M")
@click.option("--formats", default=",".join(WRITERS))
def main(gigabytes: float, memory: str, formats: str) -> None:
    """Print the seconds and the peak of anonymous memory of each command."""
    n_rows = int(gigabytes * 1e9 / CELL / COLUMNS)
    limit = parse_bytes(memory)
    click.echo(f"{n_rows:,} rows x {COLUMNS} columns, --memory {memory}")
    with tempfile.TemporaryDirectory(prefix="shiftsvd-") as folder:
        for kind in formats.split(","):
            path = Path(folder) / f"table.{kind.replace('messy', 'csv')}"
            WRITERS[kind](path, n_rows)
            more = ["--drop", "city,date", "--na", "k.A.", "--missing", "mean"] if kind == "messy" else []
            for words in (["info", path], ["fit", path, "-k", 3, "--seed", 0, *more]):
                start = time.perf_counter()
                found = measured([Path(sys.executable).parent / "shiftsvd", *words, "--memory", memory])
                seconds = time.perf_counter() - start
                size = path.stat().st_size / 1e6
                click.echo(
                    f"{kind:8} {size:6,.0f} MB  {words[0]:5} {seconds:6.1f} s  peak {found.peak / 1e6:5,.0f} MB "
                    f"({found.peak / limit:.2f} of the limit)  exit {found.code}"
                )
                if found.code:
                    click.echo(found.err)
            path.unlink()


if __name__ == "__main__":
    main()
