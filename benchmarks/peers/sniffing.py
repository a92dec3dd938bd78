"""Count how often DuckDB, clevercsv, Python's csv and shiftsvd find the delimiter and the header of odd tables.

Run: python -m benchmarks.peers.sniffing [-v] (needs duckdb and clevercsv). The right delimiter of a table is the one
with which its right matrix is read (tests/support/odd.py), the right header its line with the names of columns.
"""

import csv
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from shiftsvd.errors import Refused
from shiftsvd.io.choices import Choices
from shiftsvd.io.formats.header import head_of, text_rows
from shiftsvd.io.formats.table import profile
from shiftsvd.io.formats.text import TextRows
from tests.support.odd import made

Found = tuple[str, tuple[str, ...]]  # delimiter, names of columns


def by_shiftsvd(path: Path) -> Found:
    separator = text_rows(path, Choices(), None)[0].separator
    try:
        return separator, tuple(head_of(path, "matrix", Choices()).called)
    except Refused as error:  # names the setting with which the header is found
        return separator, (str(error),)


def by_shiftsvd_profile(path: Path) -> Found:
    found = profile(path)
    return found.choices.sep or _separator(path, found.choices), tuple(column.name for column in found.columns)


def by_duckdb(path: Path) -> Found:
    import duckdb

    file = str(path).replace("'", "''")
    row = duckdb.execute(f"SELECT Delimiter, Columns FROM sniff_csv('{file}')").fetchone() or ("", [])
    return row[0], tuple(each["name"] for each in row[1])


def by_clevercsv(path: Path) -> Found:
    import clevercsv

    text = path.read_bytes().decode()
    dialect = clevercsv.Sniffer().sniff(text)
    return dialect.delimiter, _first(text, dialect.to_csv_dialect())


def by_csv(path: Path) -> Found:
    text = path.read_bytes().decode()
    dialect = csv.Sniffer().sniff(text)
    return dialect.delimiter, _first(text, dialect)


def _first(text: str, dialect: type[csv.Dialect]) -> tuple[str, ...]:
    return tuple(next(csv.reader(text.splitlines(keepends=True), dialect)))


def _separator(path: Path, choices: Choices) -> str:
    head = head_of(path, "matrix", choices)
    assert isinstance(head.source, TextRows)
    return head.source.separator


SNIFFERS: dict[str, Callable[[Path], Found]] = {
    "csv.Sniffer": by_csv,
    "clevercsv": by_clevercsv,
    "DuckDB sniff_csv": by_duckdb,
    "shiftsvd": by_shiftsvd,
    "shiftsvd, settings of the profile": by_shiftsvd_profile,
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        counts = {name: [0, 0, 0.0] for name in SNIFFERS}
        tables = [each for each in made() if each.right and len(each.right) > 1]
        for each in tables:
            path.write_bytes(each.content)
            separator, names = by_shiftsvd_profile(path)
            for name, sniff in SNIFFERS.items():
                start = perf_counter()
                try:
                    found = sniff(path)
                except Exception as error:  # a sniffer that raises has not found the dialect
                    found = ("", (type(error).__name__,))
                counts[name][2] += perf_counter() - start
                is_blank = {found[0], separator} <= {" ", "\t"}  # runs of blanks become tabs
                right = found[0] == separator or is_blank, [n.strip() for n in found[1]] == [n.strip() for n in names]
                counts[name][0] += right[0]
                counts[name][1] += all(right)
                if "-v" in sys.argv and not all(right):
                    print(f"{name}: {each.name}: {found}"[:200])
        print(f"of {len(tables)} tables{'':24} delimiter  and header  ms each")
        for name, (delimiters, both, seconds) in counts.items():
            print(f"{name:36} {delimiters:9} {both:11} {1e3 * seconds / len(tables):8.1f}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
