"""Tables as spreadsheets write them: rows and titles beside the table, texts of any name, what people type first."""

import gzip
import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from shiftsvd.commands.settings import Settings
from shiftsvd.commands.writing import usual_kind
from shiftsvd.io import open_matrix
from tests.support.commands import done, invoke
from tests.support.places import needs

pytest.importorskip("pyarrow")

PLOTS = "plot;habitat;A;B;C\nP1;wood;1;2;3,5\nP2;wood;2;1;4,5\nP3;field;3;5;1,25\nP4;field;0;2;7\n"
EMPTY = ";;;;\n"


def written(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def fitted(path: Path, *more: object) -> str:
    return done("fit", path, "-k", 2, *more).stdout.split("\n", 1)[1].split("s\n", 1)[1]


ENDS = (EMPTY, 2 * EMPTY, "; ; ;;\r\n", 3 * EMPTY + ";;;;", "\n" + EMPTY + "\n", 30_000 * EMPTY)
ENCODINGS = ("utf-8-sig", "utf-16", "utf-16-le", "cp1252")


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("end", "encoding"), [*((end, "utf-8") for end in ENDS), *((EMPTY, each) for each in ENCODINGS)]
)
def test_rows_of_empty_cells_below_a_table_are_no_samples(end: str, encoding: str, tmp_path: Path) -> None:
    plain = written(tmp_path / "plain.csv", PLOTS, encoding)
    path = written(tmp_path / "plots.csv", PLOTS + end, encoding)
    out = ("-o", tmp_path / "out", "--force", "--no-report", "--label-column", "habitat", "--encoding", encoding)
    told = done("fit", path, "-k", 2, *out)
    assert "empty cells" in told.stderr
    assert len((tmp_path / "out" / "scores.csv").read_text().splitlines()) == 5
    assert fitted(path, *out) == fitted(plain, *out)


def test_the_number_of_empty_rows_is_told(tmp_path: Path) -> None:
    path = written(tmp_path / "x.csv", "a,b\n1,2\n3,5\n5,4\n,\n,\n")
    assert "the last 2 rows of empty cells are ignored" in done("fit", path, "-k", 1).stderr
    assert open_matrix(path)[0].shape == (3, 2)
    many = written(tmp_path / "many.csv", PLOTS + 30_000 * EMPTY)
    assert "the last 30,000 rows of empty cells" in done("fit", many, "-k", 1, "--drop", "habitat").stderr


def test_rows_that_say_something_stay(tmp_path: Path) -> None:
    A, _ = open_matrix(written(tmp_path / "last.csv", "a,b\n1,2\n3,4\n5,6\n"))
    assert A.shape == (3, 2)
    for rows in ("1,2\nNA,NA\n", "1,2\n,\n3,4\n", "1,2\n7,\n", "x,2\ny,\n"):  # missing; within; half there; named
        told = invoke("fit", written(tmp_path / "x.csv", "a,b\n5,4\n" + rows if rows[0] == "1" else "a,b\n" + rows))
        assert "ignored" not in told.stderr
        assert "missing" in told.stderr
        assert ("1 row of empty cells is used as a sample (row 4)" in told.stderr) == ("\n,\n" in rows)


def test_the_last_cell_of_the_last_row_may_be_empty(tmp_path: Path) -> None:
    path = written(tmp_path / "x.csv", "a,b\n1,2\n4,1\n3,\n,\n")
    assert "1 missing value" in done("fit", path, "-k", 1, "--missing", "mean").stdout


def test_wide_tables_lose_their_empty_rows_too(tmp_path: Path) -> None:
    wide = 3_000
    rows = "".join(",".join(map(str, row)) + "\n" for row in np.random.default_rng(0).integers(0, 9, (4, wide)))
    path = written(tmp_path / "x.csv", ",".join(f"c{j}" for j in range(wide)) + "\n" + rows + "," * (wide - 1) + "\n")
    assert open_matrix(path)[0].shape == (4, wide)


def test_a_title_above_the_header_is_named_with_what_leaves_it_out(tmp_path: Path) -> None:
    path = written(tmp_path / "plots.csv", "Plots of 2021;;;;\n" + PLOTS)
    told = invoke("fit", path, "-k", 2)
    assert told.exit_code == 1
    assert "begin with the line 'plot habitat A B C'. Use --skip 1 to skip 1 line above it" in told.stderr
    plain = fitted(written(tmp_path / "plain.csv", PLOTS), "--drop", "habitat")
    for way in (("--comment", "Plots of 2021"), ("--skip", 1)):
        assert fitted(path, *way, "--drop", "habitat") == plain


BLANK = (";;;;\n", ";;;;\n ; ;;;\n", "\n;;;;\n")


@pytest.mark.parametrize("above", BLANK)
def test_rows_of_empty_cells_above_a_table_are_none_of_it(above: str, tmp_path: Path) -> None:
    plain = written(tmp_path / "plain.csv", PLOTS)
    path = written(tmp_path / "plots.csv", above + PLOTS)
    assert fitted(path, "--drop", "habitat") == fitted(plain, "--drop", "habitat")
    rows = PLOTS.replace("wood", "0").replace("field", "1").replace("P", "").split("\n", 1)[1]  # without a header
    bare, path = written(tmp_path / "bare.csv", rows), written(tmp_path / "rows.csv", above + rows)
    assert fitted(path) == fitted(bare)


@pytest.mark.parametrize("title", ["Plots of 2021;;;;\n", "Plots of 2021\n"])
@pytest.mark.parametrize("between", ["", "\n", *BLANK])
def test_a_title_apart_from_the_table_is_left_out_as_the_message_says(title: str, between: str, tmp_path: Path) -> None:
    path = written(tmp_path / "plots.csv", title + between + PLOTS)
    told = invoke("fit", path, "-k", 2)
    assert told.exit_code == 1
    assert "table" in told.stderr
    assert "begin with the line 'plot habitat A B C'" in told.stderr
    assert fitted(path, "--comment", "Plots of 2021", "--drop", "habitat") == fitted(
        written(tmp_path / "plain.csv", PLOTS), "--drop", "habitat"
    )


@pytest.mark.parametrize("name", ["plots.txt", "PLOTS.TXT", "plots.txt.gz"])
@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_texts_called_txt_are_tables(name: str, mark: str, tmp_path: Path) -> None:
    text = PLOTS.replace(",", ".").replace(";", mark).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    plain = written(tmp_path / "plain.csv", PLOTS)
    assert fitted(tmp_path / name, "--drop", "habitat") == fitted(plain, "--drop", "habitat")


@pytest.mark.parametrize("suffix", [".xlsx", ".xls", ".ods"])
def test_a_damaged_workbook_is_named(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("python_calamine")
    told = invoke("fit", written(tmp_path / f"plots{suffix}", "PK\x03\x04 and more"), "-k", 2)
    assert told.exit_code == 1
    assert f"plots{suffix} cannot be read" in told.stderr
    assert told.stderr.count("\n") == 1


def test_a_text_with_the_suffix_of_a_workbook_is_named(tmp_path: Path) -> None:
    told = invoke("fit", written(tmp_path / "plots.xls", PLOTS), "-k", 2)
    assert told.exit_code == 1
    assert "--format csv" in told.stderr


@pytest.mark.long
def test_scores_of_a_text_are_a_text(tmp_path: Path) -> None:
    done("fit", written(tmp_path / "plots.txt", PLOTS), "--drop", "habitat", "-k", 2, "-o", tmp_path / "out")
    assert (tmp_path / "out" / "scores.csv").exists()
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((5, 3)))
    done("fit", tmp_path / "x.npy", "-k", 2, "-o", tmp_path / "other")
    assert (tmp_path / "other" / "scores.parquet").exists()


def test_scores_of_tables_are_texts_but_for_parquet_and_arrow(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.db") as base:
        base.execute("create table t (x real)")
    texts = ["a.csv", "a.tsv.gz", "a.xlsx", "a.xls", "a.ods::Sheet 2", str(tmp_path / "a.db"), f"{tmp_path}/a.db::t"]
    for name in texts:
        assert usual_kind(Settings(files=(name,))) == "csv", name
    for name in ("a.parquet", "a.feather", "a.npy", "-"):
        assert usual_kind(Settings(files=("a.csv", name))) == "parquet", name


def test_classes_may_colour_the_report(tmp_path: Path) -> None:
    told = invoke("fit", written(tmp_path / "plots.csv", PLOTS), "-k", 2)
    assert "--label-column habitat to colour the report" in told.stderr


def test_columns_without_any_number_are_named(tmp_path: Path) -> None:
    path = written(tmp_path / "x.csv", "n,a,b,c\nr,1,,2\ns,2,,5\nt,4,,4\n")
    told = invoke("fit", path, "-k", 1, "--missing", "mean")
    assert "every column needs an observed entry, got none in column 'b'. Remove this column" in told.stderr
    assert done("fit", path, "-k", 1, "--drop", "b")


def test_estimate_takes_the_gaps_of_a_fit(tmp_path: Path) -> None:
    needs("scanpy")
    path = written(tmp_path / "x.csv", "n,a,b,c\nr,1,3,2\ns,2,,5\nt,4,1,4\n")
    assert "n_passes" in done("estimate", path, "-k", 1, "--missing", "mean").stdout
    for more, steps in (((), 1560), (("--penalty", 0, "--max-iter", 7), 14)):
        told = json.loads(done("estimate", path, "-k", 1, "--missing", "em", *more, "--json").stdout)
        assert told["completion_max_steps"] == steps
        assert 0 < told["completion_max_seconds"] < 10
    for options, said in (
        (("--missing", "mean", "--preprocess", "sqrt"), "--preprocess needs data without missing values"),
        (("--missing", "mean", "--top-features", "2"), "--top-features requires data without missing values"),
    ):
        told = invoke("estimate", path, "-k", 1, *options)
        assert (told.exit_code, said in told.stderr) == (2, True)


def test_gaps_on_standard_input_are_told_with_the_options_that_help() -> None:
    told = invoke("fit", "-", "--format", "csv", "-k", 1, input="n,a,b\nr,1,3\ns,2,\nt,4,1\n")
    assert (
        "standard input: 1 entry is missing (NaN), in column 'b'. Use --missing mean to replace missing values"
        in told.stderr
    )


def test_nothing_is_said_of_values_that_are_not_shown_where_all_are(tmp_path: Path) -> None:
    path = written(tmp_path / "plots.csv", PLOTS)
    assert "not shown" in done("fit", path, "-k", 2, "--drop", "habitat", "-v").stdout
    assert "not shown" not in done("fit", path, "-k", 3, "--drop", "habitat", "-v").stdout
