"""Tables as exports leave them: each is read right at once, or after following the hints of one message."""

import json
import shlex
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from shiftsvd.io import Choices, profile
from shiftsvd.io.opening import read_files
from tests.support.commands import done, invoke
from tests.support.habits import habits
from tests.support.odd import Odd, follow, judge, made, read
from tests.support.printouts import printouts

pytest.importorskip("pyarrow")
TABLES = [*made(), *habits(), *printouts()]


@pytest.mark.one_in(6)
@pytest.mark.parametrize("each", TABLES, ids=lambda each: each.name)
def test_a_table_is_right_after_one_hint_at_most(each: Odd, tmp_path: Path) -> None:
    course = follow(each, tmp_path)
    assert course.rounds in (0, 1), course
    assert not any((course.silent, course.misled, course.loops)), course


RIGHT = [each for each in TABLES if each.right]


@pytest.mark.one_in(12)
@pytest.mark.parametrize("each", RIGHT, ids=lambda each: each.name)
def test_info_prints_a_command_that_reads_the_table(each: Odd, tmp_path: Path) -> None:
    path = tmp_path / f"table{each.suffix}"
    path.write_bytes(each.content)
    found = json.loads(done("info", path, "--json").stdout)
    name, verb, file, *options = shlex.split(found["command"])
    assert (name, verb, file) == ("shiftsvd", "fit", str(path))
    matrix, stderr = read(path, options)
    assert matrix is not None, stderr
    assert judge(each, matrix) != "wrong" or each.either, (options, stderr)
    assert found["samples"] == len(matrix[0][1])
    assert found["feature_names"] == [column for column, _ in matrix[:3]]
    assert "warning" not in stderr.replace("warning: 1 of 1 singular", "")


def test_the_profile_of_a_table_is_a_value(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(
        "Ward 3,,,,\nwho,sex,day,weight (kg),cluster\n"
        + "".join(f"p{i},{'FM'[i % 2]},2026-01-0{i + 1},{60 + i / 4},{i % 2}\n" for i in range(8))
        + "p8,F,2026-02-01,k.A.,0\np9,F,2026-02-02,NA,1\nTotal,,,489,4\n"
    )
    found = profile(path)
    assert [column.kind for column in found.columns] == ["identifier", "label", "date", "measurement", "measurement"]
    assert [column.use for column in found.columns] == ["row names", "excluded", "excluded", "feature", "excluded"]
    assert (found.n_rows, found.n_missing, found.features) == (10, 2, ("weight (kg)",))
    weight = found.columns[3]
    assert (weight.misfits, weight.n_misfits, weight.missing) == ({"k.A.": (11,)}, 1, {"NA": 1})
    assert (weight.low, weight.high, weight.examples) == (60, 61.75, ("60.0", "60.25", "60.5"))
    assert found.settings == {"drop": ["sex", "day", "cluster"], "skip": 1, "na": ["k.A."]}
    text = done("info", path).stdout
    assert "'k.A.' (row 11)" in text
    assert "the last row is a total ('Total') and is not used as a sample" in text


def test_info_says_in_one_line_why_a_file_is_no_table(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,b,c\n1,2\n4,5,6\n7,8\n")
    told = invoke("info", path)
    assert told.exit_code == 1
    assert told.stderr.count("\n") == 1
    assert "row 2 has 2 cells, but the header has 3" in told.stderr


@pytest.mark.parametrize("kind", ["parquet", "arrow", "sqlite"])
def test_stored_texts_are_read_as_those_of_a_text_file(kind: str, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(40, 9, (30, 3)).round(2)
    cells = {"who": [f"p{i}" for i in range(30)], "a": [f"{x:g}" for x in X[:, 0]]}
    cells |= {"b": [f"{x:.2f} kg".replace(".", ",") for x in X[:, 1]], "c": X[:, 2]}
    table = pd.DataFrame(cells)
    table.loc[30] = ["Total", "9", "7 kg", 3.0]
    table.loc[[3, 5], "a"] = ["k.A.", "<1"]
    table = table.reset_index(drop=True)
    path = tmp_path / f"a.{kind}"
    if kind == "sqlite":
        with closing(sqlite3.connect(path)) as connection:
            table.to_sql("a", connection, index=False)
    else:
        (table.to_parquet if kind == "parquet" else table.to_feather)(path)
    table.to_csv(tmp_path / "a.csv", index=False)
    found = profile(path)
    assert found.settings == profile(tmp_path / "a.csv").settings == {"na": ["k.A."]}
    X[[3, 5], 0] = np.nan
    for each in (path, tmp_path / "a.csv"):
        opened = read_files([each], None, found.choices)
        np.testing.assert_array_equal(opened.matrix, X)
        assert opened.names.samples[-1] == "p29"
    assert (found.n_rows, found.features) == (30, ("a", "b", "c"))


@pytest.mark.parametrize(("sex", "option"), [("F", ""), ("", "--missing mean ")])
def test_info_suggests_a_mixed_fit_for_numbers_and_categories(sex: str, option: str, tmp_path: Path) -> None:
    path, sexes = tmp_path / "a.csv", [sex, *"MFMF" * 5]
    path.write_text("who,age,sex,note\n" + "".join(f"p{i},{20 + i * i % 7},{sexes[i]},x{i}\n" for i in range(20)))
    found = json.loads(done("info", path, "--json").stdout)
    assert found["command"] == f"shiftsvd fit {path} --drop sex,note"
    assert found["mixed_command"] == f"shiftsvd fit {path} --drop note {option}--mixed"
    done(*shlex.split(found["mixed_command"])[1:], "-k", 1)
    path.write_text("pet,sex\n" + "".join(f"{['cat', 'dog', 'cow'][i % 3]},{'FM'[i % 2]}\n" for i in range(20)))
    found = json.loads(done("info", path, "--json").stdout)
    assert (found["command"], found.get("mixed_command")) == (f"shiftsvd fit {path} --mixed", None)


def test_info_excludes_texts_that_are_no_categories_and_names_variants(tmp_path: Path) -> None:
    path, shops = tmp_path / "a.csv", ["Shop", "Phone", "Shop", "App", "app"]
    comments = {3: "nice", 9: "nice", 30: "late"}
    rows = [f"p{i},{20 + i * i % 7},{shops[i % 5]},{comments.get(i, '')},DE" for i in range(60)]
    path.write_text("\n".join(["who,age,channel,comment,country", *rows]) + "\n")
    found = json.loads(done("info", path, "--json").stdout)
    assert found["mixed_command"] == f"shiftsvd fit {path} --drop comment,country --mixed"
    columns = {each["name"]: each for each in found["columns"]}
    assert (columns["channel"]["examples"], columns["channel"]["n_texts"]) == (["Shop", "Phone", "App"], 4)
    assert "'App' and 'app' differ in case or blanks only" in columns["channel"]["notes"][0]
    assert columns["comment"]["notes"] == ["no categories: 57 of 60 cells are missing"]
    assert columns["country"]["notes"] == ["no categories: all its texts are equal"]
    told = done("fit", path, "-k", 1, "--one-hot", "channel", "--drop", "comment,country").stderr
    assert "'App' and 'app' differ in case or blanks only" in told


@pytest.mark.parametrize("gap", ["", "3"])
@pytest.mark.parametrize(("unit", "options"), [(1, ""), (12, " --scale")])
def test_info_suggests_a_scale_where_fit_does(tmp_path: Path, unit: int, options: str, gap: str) -> None:
    path, missing = tmp_path / "a.csv", " --missing mean" * (not gap)
    rows = "".join(f"{i * i % 7},{i * i % 11 * unit},5\n" for i in range(9))
    path.write_text(f"a,b,constant\n{gap},{7 * unit},5\n{rows}")
    assert json.loads(done("info", path, "--json").stdout)["command"] == f"shiftsvd fit {path}{missing}{options}"
    told = done("fit", path, "-k", 1, *missing.split()).stderr
    assert ("Columns have very different scales" in told) == bool(options)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_texts_of_numbers_are_features_and_totals_are_found_in_typed_tables(kind: str, tmp_path: Path) -> None:
    x = [1.25, 2.5, 4.75, 3.5, 9.0, 7.0]
    tables: dict[str, tuple[dict[str, Sequence[object]], Sequence[Sequence[float]]]] = {
        "first": ({"a": [f"{v}" for v in x], "x": x}, [[v, v] for v in x]),
        "categories": (
            {"a": pd.Categorical([f"{v}" for v in x]), "b": x[::-1]},
            [[*v] for v in zip(x, x[::-1], strict=True)],
        ),
        "commas": ({"x": x, "b": [f"{v}".replace(".", ",") for v in x]}, [[v, v] for v in x]),
        "total": ({"who": [*"abcde", "Total"], "x": x}, [[v] for v in x[:5]]),
        "sums": ({"x": [*x, sum(x)], "b": [*x[::-1], sum(x)]}, [[*v] for v in zip(x, x[::-1], strict=True)]),
        "sums of differences": (
            {"x": [*x, -9.0, sum(x) - 9], "b": [*x, -1.5, sum(x) - 1.5]},
            [*([v, v] for v in x), [-9, -1.5]],
        ),
        "sums beside a sign": ({"who": [*"abcdef", "*"], "x": [*x, sum(x)], "b": [*x, sum(x)]}, [[v, v] for v in x]),
        "sums in single precision": (
            {
                name: np.append(np.cbrt(v), np.cbrt(v).sum(dtype="f4"))
                for name, v in (("x", np.float32(x)), ("b", np.float32(x[::-1])))
            },
            np.cbrt(np.float32([x, x[::-1]])).T.tolist(),
        ),
        "one sum": ({"x": [*x, sum(x)], "b": [*x, 1.0]}, [*([v, v] for v in x), [sum(x), 1]]),
    }
    for cells, right in tables.values():
        path = tmp_path / f"a.{kind}"
        table = pd.DataFrame(cells)
        (table.to_parquet if kind == "parquet" else table.to_feather)(path)
        found = profile(path)
        matrix = read_files([path], None, found.choices).matrix
        rows = matrix if isinstance(matrix, np.ndarray) else matrix.read(0, matrix.shape[0])
        np.testing.assert_array_equal(rows, right)
        assert (found.n_rows, len(found.features)) == matrix.shape
    table = pd.DataFrame({"x": x, "who": [*"ab", "Total", *"cde"]})
    (table.to_parquet if kind == "parquet" else table.to_feather)(path)
    with pytest.raises(ValueError, match=r"1 row may be totals: 'Total' \(row 3\)"):
        read_files([path], None, Choices(drop=("who",)))


@pytest.mark.parametrize("kind", ["parquet", "arrow", "sqlite"])
def test_labels_of_totals_and_notes_among_stored_rows_are_profiled(kind: str, tmp_path: Path) -> None:
    # The remedy for lines of a text is none for a table of a database: the profile once followed it for ever.
    path = tmp_path / f"a.{kind}"
    for last in (["Total", 5.0, 3.0], ["Source: registry", None, None]):
        rows = [["Total", 1.0, 5.0], ["Left", 2.0, 4.0], ["Total", 3.0, 9.0], ["Left", 4.0, 1.0], last]
        table = pd.DataFrame(rows, columns=["part", "a", "b"])
        path.unlink(missing_ok=True)
        if kind == "sqlite":
            with closing(sqlite3.connect(path)) as connection:
                table.to_sql("a", connection, index=False)
        else:
            (table.to_parquet if kind == "parquet" else table.to_feather)(path)
        with pytest.raises(
            ValueError, match=r"Use keep_total=True to use all rows as samples|Remove it from the table"
        ):
            read_files([path], None, Choices.of(ids="part"))
        if last[0] == "Total":
            assert profile(path).settings["keep_total"]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (
            "4.7",
            "'4.7' (row 5). Write this cell in the file with a decimal comma, as the other cells, or use --na 4.7 ",
        ),
        ("1.234", "'1.234' (row 5) may mean 1.234 or 1234; all other numbers are below 100. Write this cell in the "),
    ],
)
def test_points_among_decimal_commas_are_refused(tmp_path: Path, cell: str, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a;b\n" + "".join(f"{cell if i == 3 else f'{3 + i % 4},5'};{i * i % 7},25\n" for i in range(12)))
    assert message in invoke("fit", path, "-k", 1).stderr
    assert message in done("info", path).stdout
    assert "--decimal" not in done("info", path).stdout.splitlines()[-1]
    path.write_text(path.read_text().replace("6,5;", "612,5;"))  # among hundreds, the point separates thousands
    assert cell == "4.7" or f"'{cell}' (row 5) is read as 1234" in done("fit", path, "-k", 1).stderr


@pytest.mark.parametrize(("fitted", "new"), [("height [cm]", "height [m]"), ("height", "height (m)")])
def test_a_header_with_another_unit_is_refused_and_named(tmp_path: Path, fitted: str, new: str) -> None:
    for name, header in (("a", fitted), ("b", new)):
        rows = "".join(f"{160 + i * i % 7},{60 + i * i % 11}\n" for i in range(12))
        (tmp_path / f"{name}.csv").write_text(f"{header},weight [kg]\n{rows}")
    done("fit", tmp_path / "a.csv", "-k", 1, "-o", tmp_path / "out", "--no-report")
    said = invoke("transform", tmp_path / "out" / "model.safetensors", tmp_path / "b.csv", "-o", "-").stderr
    assert f"{fitted!r} in the model, {new!r} here. Convert these columns, and name them as in the model." in said
    assert "--max-absent" not in said.partition("Names differ")[2]


def test_the_command_of_info_runs_where_cells_in_another_unit_are_missing_values(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("who,share,b\n" + "".join(f"p{i},{'3.5%' if i == 2 else i / 10},{i * i}\n" for i in range(6)))
    found = json.loads(done("info", path, "--json").stdout)
    assert found["n_missing"] == 1
    done(*shlex.split(found["command"])[1:])


@pytest.mark.parametrize(
    ("text", "never"),
    [
        ("who,a,b\np0,1.5,3\np1,2.5,5\np2,4,6\n,,\nitem,price,stock\nq0,9.5,7\n", "--na"),
        ("who,a,b\np0,1,5,3,0\np1,2,5,5,5\np2,4,0,6,5\n", "--skip"),
        ('{"who": "p0", "a": 1.5}\n{"who": "p1", "a": 2.5}\n{"who": "p2", "a": 4}\n', "--comment"),
    ],
)
def test_no_option_is_suggested_where_it_would_misread_the_table(tmp_path: Path, text: str, never: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    result = invoke("fit", path, "-k", 1)
    assert result.exit_code == 1
    assert never not in result.stderr


@pytest.mark.parametrize("blank", [" ", "\u00a0"])
def test_blanks_around_cells_belong_to_no_name(tmp_path: Path, blank: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        f"|{blank}who{blank}|{blank}a{blank}|\n" + "".join(f"|{blank}p{i}{blank}|{i * i}|\n" for i in range(5))
    )
    names = read_files([path], None, Choices()).names
    assert (list(names.samples), list(names.features)) == ([f"p{i}" for i in range(5)], ["a"])


def test_an_infinite_value_is_named_and_no_product_of_it(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("who,a,b\np,1,3\nq,inf,5\nr,2,9\ns,4,1\n")
    said = invoke("fit", path, "-k", 1).stderr
    assert "column 'a' has 'inf' (row 3)" in said
    assert "invalid value" not in said


def test_a_delimiter_is_not_suggested_again(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("who،a\np0،1.5\np1،2.5\np2،4\n")
    assert "--sep ';'" in invoke("fit", path, "-k", 1).stderr
    assert "--sep ';'" not in invoke("fit", path, "-k", 1, "--sep", ";").stderr


@pytest.mark.parametrize("text", ["[[12.5 3.]\n [7.25 5.]]\n", '[{"a": 1}, {"a": 2}]', '{"a": [1, 2]}', "<table><tr>"])
def test_a_printed_array_or_json_is_no_table(text: str, tmp_path: Path) -> None:
    path = tmp_path / "table.txt"
    path.write_text(text)
    told = invoke("fit", path, "-k", 1).stderr
    assert told == f"Error: {path} holds a printed array, JSON or HTML, not a table. Save the data as CSV.\n"


def test_a_row_of_numbers_and_texts_as_the_header_is_named(tmp_path: Path) -> None:
    path = tmp_path / "table.txt"
    path.write_text("r 44.12 p0\ns 26.74 p1\nt 6.72 p2\n")
    assert "'44.12' is a number" in done("fit", path, "-k", 1, "--columns", "44.12").stderr
