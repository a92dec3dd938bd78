"""Sheets of workbooks and tables of databases go through the rules of text tables."""

import hashlib
import json
import shlex
import sqlite3
import sys
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftsvd.io import open_matrix, profile
from tests.support.commands import done, invoke
from tests.support.odd import follow, judge, made, read
from tests.support.workbooks import BOOKS, in_duckdb, in_sqlite, write_xlsx

pytest.importorskip("pyarrow")


MESSY = [
    ["Patients of ward 3", None, None, None],
    [None, None, None, None],
    ["who", "born", "weight (kg)", "dose"],
    ["x", date(1990, 1, 2), 0.1 + 0.2, "1,5 %"],
    ["y", date(1985, 3, 4), "k.A.", "2,25 %"],
    ["z", date(1971, 5, 6), 1e-17, "3 %"],
    ["Total", None, 0.1 + 0.2, None],
]


def values(path: Path | str, **settings: Any) -> Any:
    A = open_matrix(path, **settings)[0]
    return A @ np.eye(A.shape[1])


@pytest.fixture(params=BOOKS)
def book(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    pytest.importorskip("python_calamine")
    return BOOKS[request.param](tmp_path / f"book{request.param}", {"Sheet 1": MESSY})


def test_a_sheet_is_profiled_and_read_as_a_text_table(book: Path) -> None:
    found = profile(book)
    assert [column.kind for column in found.columns] == ["identifier", "date", "measurement", "measurement"]
    assert found.columns[1].examples == ("1990-01-02", "1985-03-04", "1971-05-06")
    assert found.columns[2].misfits == {"k.A.": (5,)}
    assert found.columns[3].unit == "%"
    assert (found.n_rows, found.settings) == (3, {"drop": ["born"], "skip": 2, "na": ["k.A."]})
    right = np.array([[0.1 + 0.2, 1.5], [np.nan, 2.25], [1e-17, 3]])
    command = done("info", book).stdout.splitlines()[-1]
    assert "--skip 2" in command
    assert "--missing mean" in command
    with pytest.raises(ValueError, match=r"seems to begin with the line 'who born.* skip=2"):
        values(book)
    with pytest.raises(ValueError, match=r"missing"):
        values(book, **found.settings)
    opened = values(book, **(found.settings | {"drop": ["born", "weight (kg)"]}))
    np.testing.assert_array_equal(opened, right[:, 1:])
    full = values(book, **(found.settings | {"na": (), "drop": ["born", "dose"], "comment": "y"}))
    np.testing.assert_array_equal(full, right[[0, 2], :1])


def test_one_sheet_of_several_is_chosen(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine")
    numbers = [["a", "b"], [1.5, 2], [3.5, 1], [2.5, 4]]
    path = write_xlsx(tmp_path / "b.xlsx", {"Sheet 2": numbers, "it's & <b>": numbers[:3], "empty": []})
    with pytest.raises(ValueError, match=r"2 sheets: 'Sheet 2', \"it's & <b>\".*b.xlsx::Sheet 2"):
        open_matrix(path)
    assert len(values(f"{path}::Sheet 2")) == 3
    assert len(values(f"{path}::it's & <b>")) == len(values(path, key="it's & <b>")) == 2
    assert len(values([f"{path}::Sheet 2", f"{path}::it's & <b>"], stack="rows")) == 5
    with pytest.raises(ValueError, match="has no sheet 'Sheet 3'"):
        open_matrix(f"{path}::Sheet 3")
    about = write_xlsx(tmp_path / "about.xlsx", {"Readme": [["version", "of"], [1.5, 2]], "Data": numbers})
    with pytest.raises(ValueError, match=r"about.xlsx::Data'"):
        profile(about)
    only = write_xlsx(tmp_path / "only.xlsx", {"one": numbers, "two": [], "three": []})
    assert len(values(only)) == 3
    told = invoke("fit", f"{path}::Sheet 2", "-k", 1)
    assert told.exit_code == 0, told.stderr
    assert "3 samples x 2 features" in told.stdout + told.stderr
    assert invoke("info", path).exit_code == 1
    assert f"shiftsvd fit '{path}::Sheet 2'" in done("info", f"{path}::Sheet 2").stdout


def test_an_element_of_another_format_has_the_same_mark(tmp_path: Path) -> None:
    with pytest.importorskip("h5py").File(tmp_path / "a.h5", "w") as file:
        file["one"], file["two"] = np.ones((3, 2)), np.eye(2)
    np.testing.assert_array_equal(values(tmp_path / "a.h5::two"), np.eye(2))
    (tmp_path / "a::b.csv").write_text("a,b\n1,2\n3,5\n")  # a name of a file
    assert len(values(tmp_path / "a::b.csv")) == 2
    (tmp_path / "c.csv").write_text("a,b\n1,2\n3,5\n")
    with pytest.raises(ValueError, match="holds one table"):
        open_matrix(tmp_path / "c.csv::a")
    with pytest.raises(ValueError, match="names an element"):
        open_matrix(tmp_path / "a.h5::two", key="one")


def test_a_workbook_comes_from_standard_input(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine")
    path = write_xlsx(tmp_path / "b.xlsx", {"S": [["a", "b"], [1.5, 2], [3.5, 1], [2.5, 4]]})
    told = invoke("fit", "-", "--format", "sheet", "-k", 1, "--json", input=path.read_bytes())
    assert told.exit_code == 0, told.stderr


# As a spreadsheet program stores them: numbers as numbers, everything else as texts.
TYPED = ("k.A. far below", "two padded titles", "numeric ids and a last row Total", "one 12 kg", "-999 for missing")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("each", [each for each in made() if each.name in TYPED], ids=lambda each: each.name)
def test_an_odd_table_as_a_sheet_is_right_after_one_hint(each: Any, tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("python_calamine")
    rows = [line.split(",") for line in each.content.decode().splitlines()]
    path = write_xlsx(tmp_path / "table.xlsx", {"S": [[_stored(cell) for cell in row] for row in rows]})
    monkeypatch.setattr("tests.support.odd.read", lambda _, options: read(path, options))
    course = follow(each, tmp_path)
    assert course.rounds in (0, 1), course
    assert not any((course.silent, course.misled, course.loops)), course
    matrix, stderr = read(path, shlex.split(done("info", path).stdout.splitlines()[-1])[4:])
    assert matrix is not None
    assert judge(each, matrix) != "wrong", stderr


def _stored(cell: str) -> Any:
    try:
        return float(cell) if cell else None
    except ValueError:
        return cell


@pytest.mark.parametrize(
    ("text", "settings", "number"),
    [
        ("2,5", {}, 2.5),
        ("1,234", {"decimal": ","}, 1.234),
        ("1,234", {"thousands": ","}, 1234),
        ("1.234", {"decimal": "."}, 1.234),
        ("1.234", {"thousands": "."}, 1234),
    ],
)
def test_stored_numbers_do_not_depend_on_how_texts_are_written(
    text: str, settings: dict[str, str], number: float, tmp_path: Path
) -> None:
    pytest.importorskip("python_calamine")
    rows = [["a", "b"], [1.234, 2], [3.5, 1], [text, 4], [1234.5, 7]]
    path = write_xlsx(tmp_path / "b.xlsx", {"S": rows})
    np.testing.assert_array_equal(values(path, **settings)[:, 0], [1.234, 3.5, number, 1234.5])
    if text in ("1,234", "1.234"):
        with pytest.raises(ValueError, match=r"'1.234' \(row 4\) may mean 1\.234 or 1234"):
            open_matrix(path)


def test_errors_of_formulas_are_missing(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine")
    rows = [["a", "b"], [1.5, 2], ["#DIV/0!", 1], ["#N/A", 4], [2, 3]]
    path = write_xlsx(tmp_path / "b.xlsx", {"S": rows})
    found = profile(path)
    assert (found.n_missing, found.settings) == (2, {})


def test_a_sheet_with_a_cell_far_away_does_not_end_the_process(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine")
    path, far = write_xlsx(tmp_path / "a.xlsx", {"S": [[1.5], [2.5]]}), tmp_path / "far.xlsx"
    with zipfile.ZipFile(path) as book, zipfile.ZipFile(far, "w") as other:
        for name in book.namelist():
            other.writestr(name, book.read(name).replace(b'"A2"', b'"XFD1048576"').replace(b'r="2"', b'r="1048576"'))
    with pytest.raises(ValueError, match=r"needs more than the limit of 100 MB of memory.* raise memory_limit"):
        open_matrix(far, memory_limit="100MB")


def test_a_workbook_without_its_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_xlsx(tmp_path / "b.xlsx", {"S": [["a"], [1], [2]]})
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(ImportError, match=r"pip install 'shiftsvd\[sheets\]'"):
        open_matrix(path)


# Databases


@pytest.fixture(params=["sqlite", "duckdb"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    write = in_sqlite if request.param == "sqlite" else in_duckdb
    yield lambda query: write(tmp_path / "data.db", query)
    assert [each.name for each in tmp_path.iterdir()] == ["data.db"]  # no log, no folder for temporary files


TABLE = (
    'CREATE TABLE "say ""a""; --" (who VARCHAR, "h, cm" DOUBLE, n BIGINT, note VARCHAR);'
    "INSERT INTO \"say \"\"a\"\"; --\" VALUES ('x', 1.25, 9007199254740993, 'late'), ('y', NULL, 2, NULL),"
    " ('z', 3.5, 3, 'late');"
)


def test_a_table_of_a_database_is_read_and_its_file_stays_as_it_is(database: Callable[[str], Path]) -> None:
    path = database(TABLE)
    before = hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns
    found = profile(path)
    assert [column.kind for column in found.columns] == ["identifier", "measurement", "measurement", "label"]
    assert (found.samples, found.n_missing, found.settings) == (("x", "y", "z"), 1, {"drop": ["note"]})
    A, names = open_matrix(f'{path}::say "a"; --', drop=["note", "h, cm"])
    np.testing.assert_array_equal(A @ np.eye(1), [[2**53], [2], [3]])
    assert names.samples is not None
    assert names.samples.tolist() == ["x", "y", "z"]
    told = invoke("fit", f'{path}::say "a"; --', "-k", 1, "--drop", "note", "--missing", "mean")
    assert told.exit_code == 0, told.stderr
    with pytest.raises(ValueError, match="has no table 'b'"):
        open_matrix(f"{path}::b")
    assert (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns) == before


def test_a_view_is_a_table_and_one_of_several_is_chosen(database: Callable[[str], Path]) -> None:
    path = database(
        "CREATE TABLE t (a DOUBLE, b DOUBLE); INSERT INTO t VALUES (1, 2), (3, 5), (4, 1);"
        "CREATE VIEW v AS SELECT a, b, a + b AS c FROM t WHERE a > 1;"
    )
    with pytest.raises(ValueError, match=r"2 tables: 't', 'v'"):
        open_matrix(path)
    np.testing.assert_array_equal(values(f"{path}::v"), [[3, 5, 8], [4, 1, 5]])
    with pytest.raises(ValueError, match="applies to text files"):
        open_matrix(f"{path}::v", skip=2)


def test_triplets_in_a_database_are_a_sparse_matrix(database: Callable[[str], Path]) -> None:
    path = database("CREATE TABLE t (i BIGINT, j BIGINT, value DOUBLE); INSERT INTO t VALUES (0, 1, 2.5), (2, 0, 1);")
    np.testing.assert_array_equal(values(path), [[0, 2.5], [0, 0], [1, 0]])


def test_cells_of_other_types_are_single_bad_cells(tmp_path: Path) -> None:
    path = in_sqlite(
        tmp_path / "a.sqlite",
        "CREATE TABLE t (a INTEGER, b REAL); INSERT INTO t VALUES (1, 2.5), (3, 'twelve'), (x'00ff', 1.5), (5, 4.5),"
        " (6, 7);",
    )
    with pytest.raises(
        ValueError, match=r"'a' has 1 cell .* \"x'00ff'\" \(row 3\).*'b' has 1 cell .*'twelve' \(row 2\)"
    ):
        open_matrix(path)
    found = profile(path)
    assert found.settings == {"na": ["x'00ff'", "twelve"]}
    assert found.n_missing == 2


def test_a_writer_at_work_is_neither_disturbed_nor_misread(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("CREATE TABLE t (a REAL, b REAL)")
        writer.executemany("INSERT INTO t VALUES (?, ?)", [(1.5, 2), (3, 4), (6, 5)])
        writer.commit()
        writer.execute("INSERT INTO t VALUES (100, 100)")  # not committed
        np.testing.assert_array_equal(values(path), [[1.5, 2], [3, 4], [6, 5]])
        writer.commit()
        assert len(values(path)) == 4
    assert [each.name for each in tmp_path.iterdir()] == ["live.db"]
    assert len(values(path)) == 4  # of a file with a log, whose log is gone
    assert [each.name for each in tmp_path.iterdir()] == ["live.db"]


def test_a_log_without_a_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("CREATE TABLE t (a REAL, b REAL)")
        writer.execute("INSERT INTO t VALUES (1, 2)")
        writer.commit()
        (tmp_path / "copy.db").write_bytes(path.read_bytes())
        (tmp_path / "copy.db-wal").write_bytes((tmp_path / "live.db-wal").read_bytes())
    with pytest.raises(ValueError, match=r"write-ahead log copy.db-wal .*PRAGMA wal_checkpoint"):
        open_matrix(tmp_path / "copy.db")
    assert not (tmp_path / "copy.db-shm").exists()


def test_a_view_of_duckdb_reads_no_other_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n1,2\n3,5\n")
    path = in_duckdb(tmp_path / "a.duckdb", f"CREATE VIEW v AS SELECT * FROM read_csv('{secret}')")
    with pytest.raises((ValueError, OSError), match=r"cannot be read: Permission Error"):
        open_matrix(path)


def test_a_large_table_is_read_in_blocks_within_the_limit(tmp_path: Path) -> None:
    X = np.arange(60_000.0).reshape(20_000, 3) % 7919
    path = in_sqlite(tmp_path / "a.sqlite", "CREATE TABLE t (a REAL, b REAL, c REAL)")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", X.tolist())
    text = tmp_path / "a.csv"
    np.savetxt(text, X, delimiter=",", header="a,b,c", comments="", fmt="%g")
    for file in (path, text):
        A, _ = open_matrix(file, memory_limit="700kB")
        assert type(A).__name__ == "DiskRows"
        np.testing.assert_array_equal(A @ np.eye(3), X)
        folder = Path(A.source.file).parent  # type: ignore[attr-defined]
        assert folder.exists()
        del A
        assert not folder.exists()


def test_fits_of_a_spilled_table_are_those_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = np.random.default_rng(0).normal(size=(2000, 4)).round(3)
    path.write_text("a,b,c,d\n" + 100 * "".join(",".join(map(str, row)) + "\n" for row in rows.tolist()))
    told = [json.loads(done("fit", path, "-k", 2, "--json", "--memory", memory).stdout) for memory in ("12MB", "1GB")]
    assert told[0]["singular_values"] == pytest.approx(told[1]["singular_values"], rel=1e-9)


def test_a_database_is_not_read_into_memory(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE large (x BLOB)")
        connection.execute("INSERT INTO large VALUES (zeroblob(30000000))")
        connection.execute("CREATE TABLE small (x REAL, y REAL)")
        connection.executemany("INSERT INTO small VALUES (?, ?)", [(j + 0.5, j * j) for j in range(9)])
        connection.commit()
    open_matrix(f"{file}::small")  # imports
    tracemalloc.start()
    A = open_matrix(f"{file}::small")[0]
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 10_000_000
    assert np.array_equal(A @ np.eye(2), [(j + 0.5, j * j) for j in range(9)])


@pytest.mark.parametrize(
    "numbers", [[1.0, 2.0, None], [0.5, None, 3.0], [1e300, 2.0, 5.0], [2.0**63, 1.0, 0.0], [-0.0, 1.0, 2.0**53]]
)
def test_numbers_of_a_database_keep_all_their_digits(numbers: list[float | None], tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("CREATE TABLE t (name TEXT, x REAL, y REAL)")
        connection.executemany("INSERT INTO t VALUES (?, ?, 0.5)", [(f"s{j}", x) for j, x in enumerate(numbers)])
        connection.commit()
    if None not in numbers:
        assert values(tmp_path / "a.db")[:, 0].tolist() == numbers
    else:
        described = profile(tmp_path / "a.db").columns[1]
        assert (described.n_missing, described.low) == (1, min(x for x in numbers if x is not None))


def test_a_last_column_without_a_name_may_mean_that_names_are_shifted(tmp_path: Path) -> None:
    file = tmp_path / "cars.csv"
    file.write_text("mpg,cyl,\nMazda,21,6\nDatsun,22.8,4\nHornet,21.4,6\nValiant,18.1,5\n")
    with pytest.warns(UserWarning, match="the last column has no name.* may be shifted by one column"):
        open_matrix(file)
    file.write_text("car,mpg,cyl,\nMazda,21,6,\nDatsun,22.8,4,\nHornet,21.4,6,\nValiant,18.1,5,\n")
    open_matrix(file)  # separators at the end of rows
