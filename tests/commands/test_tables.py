"""The command on tables: its options, what the model remembers of them, and what it tells."""

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from shiftsvd.cli import main
from shiftsvd.commands import writing
from shiftsvd.commands.options import joined, quoted
from shiftsvd.io import profile
from shiftsvd.model_file import load_model
from tests.support.commands import done, invoke

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

RNG = np.random.default_rng(3)


@pytest.fixture
def frame() -> "pd.DataFrame":
    m = 30
    return pd.DataFrame(
        {
            "patient_id": 1000 + 3 * np.arange(m),
            "sex": np.resize(["F", "M", "X"], m),
            "date, of birth": [f"19{50 + i}-02-03" for i in range(m)],
            "height": RNG.normal(170, 10, m).round(1),
            "weight": RNG.normal(70, 9, m).round(1),
            "group": np.resize(["case", "control"], m),
        }
    )


@pytest.fixture
def file(tmp_path: Path, frame: "pd.DataFrame") -> Path:
    frame.to_csv(tmp_path / "people.csv", index=False)
    return tmp_path / "people.csv"


CHOSEN = ("--ids", "patient_id", "--one-hot", "sex", "--drop", '"date, of birth"', "--label-column", "group")


def test_transform_reads_other_tables_as_the_fit_read_its_own(
    tmp_path: Path, file: Path, frame: "pd.DataFrame"
) -> None:
    out = tmp_path / "out"
    done("fit", file, "-k", 2, *CHOSEN, "-o", out, "--no-report", "--scores", "csv")
    scores = pd.read_csv(out / "scores.csv", index_col="sample", float_precision="round_trip")
    assert scores.index.tolist() == frame["patient_id"].tolist()
    model = out / "model.safetensors"
    assert load_model(model).feature_names_in_.tolist() == ["sex=F", "sex=M", "sex=X", "height", "weight"]
    # Columns by name: another order, another kind of file, absent labels, and only some of the classes.
    other = frame[["weight", "group", "sex", "height", "patient_id"]].iloc[[4, 0]].drop(columns="group")
    other.to_csv(tmp_path / "new.csv", index=False)
    other.to_parquet(tmp_path / "new.parquet")
    for name in ("new.csv", "new.parquet"):
        done("transform", model, tmp_path / name, "-o", tmp_path / "new-scores.csv", "--force")
        found = pd.read_csv(tmp_path / "new-scores.csv", index_col="sample")
        np.testing.assert_allclose(found, scores.iloc[[4, 0]], atol=1e-12)
        assert found.index.tolist() == [1012, 1000]


def test_transform_refuses_classes_and_features_that_the_model_does_not_know(
    tmp_path: Path, file: Path, frame: "pd.DataFrame"
) -> None:
    done("fit", file, "-k", 2, *CHOSEN, "-o", tmp_path / "out", "--no-report")
    model = tmp_path / "out" / "model.safetensors"
    known = "which did not occur in the training data. Known categories: 'F', 'M', 'X'"
    frame.assign(sex="D").to_csv(tmp_path / "new.csv", index=False)
    result = invoke("transform", model, tmp_path / "new.csv", "-o", "-")
    assert result.exit_code == 1
    assert f"category 'D' (first in row 2), {known}. Remove these rows" in result.stderr
    frame.assign(sex=["m", *frame.sex[1:]]).to_csv(tmp_path / "new.csv", index=False)
    said = invoke("transform", model, tmp_path / "new.csv", "-o", "-").stderr
    assert f"category 'm' (first in row 2), {known}. Write it as 'M'." in said
    frame.assign(age=1.5).to_csv(tmp_path / "new.csv", index=False)
    assert "does not have: age" in invoke("transform", model, tmp_path / "new.csv", "-o", "-").stderr
    done("transform", model, tmp_path / "new.csv", "-o", "-", "--drop", "age")
    assert "no column 'agee'" in invoke("transform", model, tmp_path / "new.csv", "-o", "-", "--drop", "agee").stderr
    # A column that the fit named may be absent, unless it is named again.
    frame.drop(columns=["patient_id", "date, of birth"]).to_csv(tmp_path / "new.csv", index=False)
    done("transform", model, tmp_path / "new.csv", "-o", "-")
    for again, name in ((CHOSEN[:2], "patient_id"), (CHOSEN[4:6], "date, of birth")):
        refused = invoke("transform", model, tmp_path / "new.csv", "-o", "-", *again)
        assert (refused.exit_code, f"no column {name!r}" in refused.stderr) == (1, True)


def test_how_a_text_is_written_is_remembered(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i * i % 7}25;{i % 3},500\n" for i in range(1, 9))
    (tmp_path / "a.csv").write_text(f"!é\nü;b\n{rows}", encoding="latin-1")
    said = ("--encoding", "latin-1", "--comment", "!", "--decimal", ",", "--sep", ";")
    done("fit", tmp_path / "a.csv", "-k", 1, *said, "-o", tmp_path / "out", "--no-report")
    model = tmp_path / "out" / "model.safetensors"
    assert load_model(model).table_.told == {"encoding": "latin-1", "comment": "!", "decimal": ",", "sep": ";"}
    again = done("transform", model, tmp_path / "a.csv", "-o", "-").stdout
    (tmp_path / "b.csv").write_text("ü\tb\n" + rows.replace(",", ".").replace(";", "\t"))
    other = ("--decimal", ".", "--sep", "tab", "--encoding", "utf-8")
    assert done("transform", model, tmp_path / "b.csv", "-o", "-", *other).stdout == again


def test_scores_of_samples_that_are_numbers_are_read_back(tmp_path: Path, file: Path) -> None:
    pytest.importorskip("jinja2")
    out = tmp_path / "out"
    done("fit", file, "-k", 2, *CHOSEN, "-o", out, "--no-report", "--scores", "csv")
    done("inverse", out / "model.safetensors", out / "scores.csv", "-o", tmp_path / "X.csv")
    assert pd.read_csv(tmp_path / "X.csv")["sample"].tolist()[:2] == [1000, 1003]


def test_settings_are_in_the_account(tmp_path: Path, file: Path) -> None:
    found = json.loads(
        done("fit", file, "-k", 2, *CHOSEN, "--json", "--label-column", "group", "-o", tmp_path / "o").stdout
    )
    assert found["table"] == {"ids": "patient_id", "drop": ["date, of birth", "group"], "one_hot": {"sex": []}}


@pytest.mark.parametrize("word", ["info", "estimate", "convert"])
def test_other_subcommands_take_the_same_options(word: str, tmp_path: Path, file: Path) -> None:
    pytest.importorskip("h5py")
    end = (tmp_path / "a.h5ad",) if word == "convert" else ("--json",)
    told = done(word, file, *end, *CHOSEN[:-2], "--drop", "group")
    if word == "convert":
        told = done("info", tmp_path / "a.h5ad", "--json")
    assert json.loads(told.stdout)["features"] == 5


def test_messages_spell_options_as_they_are_typed(file: Path) -> None:
    message = invoke("fit", file).stderr
    assert "--one-hot sex,group to encode each category as a column" in message
    typed = re.search(r"--drop '(.*)' to exclude", message)[1]
    assert typed == 'sex,"date, of birth",group'
    done("fit", file, "--drop", typed, "-k", 1)
    assert joined(["a", 'b "c"', "d,e"]) == 'a,"b ""c""","d,e"'


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--sep", ",,"), 2),
        (("--encoding", "klingon"), 2),
        (("--drop", "height", "--columns", "height"), 2),
        (("--drop", "heigth"), 1),
        (("--label-column", "nobody"), 1),
    ],
)
def test_options_that_cannot_be_are_refused(options: tuple[str, ...], code: int, file: Path, tmp_path: Path) -> None:
    assert invoke("fit", file, *options, "-o", tmp_path / "o").exit_code == code
    assert not (tmp_path / "o").exists()


@pytest.mark.long
@pytest.mark.figures
def test_a_label_column_colours_the_scores_and_is_no_feature(tmp_path: Path, file: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    done("fit", file, "-k", 2, *CHOSEN, "-o", tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert all(word in page for word in (">case<", ">control<", ">group<"))
    assert "group" not in load_model(tmp_path / "out" / "model.safetensors").feature_names_in_
    assert invoke("fit", file, *CHOSEN).exit_code == 2  # nothing to colour


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather", "arrow"])
def test_label_columns_are_read_of_every_kind_of_table(kind: str, file: Path, frame: "pd.DataFrame") -> None:
    from shiftsvd.io.choices import Choices
    from shiftsvd.io.formats.table import read_column

    frame.loc[3, "group"] = None
    path = file.with_suffix(f".{kind}")
    if kind == "arrow":  # a stream
        pa = pytest.importorskip("pyarrow")
        content = pa.Table.from_pandas(frame)
        with pa.ipc.new_stream(path, content.schema) as stream:
            stream.write_table(content, max_chunksize=7)
    else:
        frame.to_csv(path, index=False) if kind == "csv" else getattr(frame, f"to_{kind}")(path)
    found = read_column([path, path], "group", None, Choices.of(drop=["group", "sex", "date, of birth"]), along=True)
    assert np.asarray(found)[:4].tolist() == ["case", "control", "case", "missing"]
    assert len(np.asarray(found)) == 60
    heights = read_column([path], "height", None, Choices.of(drop=["group", "sex", "date, of birth"]), along=True)
    np.testing.assert_array_equal(heights, frame["height"])


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_label_columns_have_the_rows_of_the_matrix_where_the_last_one_is_a_total(kind: str, tmp_path: Path) -> None:
    from shiftsvd.io.choices import Choices
    from shiftsvd.io.formats.table import read_column

    cells = {"who": ["x", "y", "z", "Total"], "a": [1.5, 2.0, 4.0, 7.5], "b": [1.0, 3.0, 2.0, 6.0], "g": [*"uvu", ""]}
    path, frame = tmp_path / f"t.{kind}", pd.DataFrame(cells)
    frame.to_csv(path, index=False) if kind == "csv" else getattr(frame, f"to_{kind}")(path)
    found = read_column([path], "g", None, Choices.of(drop=["g"]), along=True)
    assert np.asarray(found).tolist() == ["u", "v", "u"]


def test_components_are_written_as_asked(tmp_path: Path, file: Path) -> None:
    for kind in ("csv", "parquet", "none"):
        out = tmp_path / kind
        done("fit", file, "-k", 2, *CHOSEN, "-o", out, "--components", kind, "--no-report")
        assert [path.name for path in out.glob("components.*")] == [f"components.{kind}"] * (kind != "none")
    one = pd.read_csv(tmp_path / "csv" / "components.csv", float_precision="round_trip")
    assert one.equals(pd.read_parquet(tmp_path / "parquet" / "components.parquet"))


def test_many_numbers_of_components_are_left_to_the_model(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "MOST_NUMBERS", 9)
    out = tmp_path / "out"
    result = done("fit", file, "-k", 2, *CHOSEN, "-o", out, "--no-report")
    assert "components.csv was not written, because it would have 10 numbers" in result.stderr
    assert "components" not in json.loads((out / "result.json").read_text())["outputs"]
    assert not list(out.glob("*components*"))
    done("fit", file, "-k", 2, *CHOSEN, "-o", out, "--no-report", "--components", "csv", "--force")
    assert (out / "components.csv").exists()
    assert (
        "still contains components.csv of an earlier run"
        in done("fit", file, *CHOSEN, "-o", out, "--no-report", "--force").stderr
    )


@pytest.mark.parametrize("largest", [30, 900])
def test_a_scale_is_advised_where_units_differ(tmp_path: Path, largest: int) -> None:
    X = RNG.normal(size=(40, 3)) * [1, 2, largest]
    pd.DataFrame(X, columns=["a", "b", "salary"]).to_csv(tmp_path / "a.csv", index=False)
    told = "Columns have very different scales: the standard deviation of 'salary' is"
    assert told in done("fit", tmp_path / "a.csv").stderr
    for quiet in (("--scale",), ("--scale", "none"), ("-q",), ("--drop", "salary")):
        assert told not in done("fit", tmp_path / "a.csv", *quiet).stderr
    np.save(tmp_path / "a.npy", X)
    assert told not in done("fit", tmp_path / "a.npy").stderr
    X[3, 0] = np.nan
    pd.DataFrame(X, columns=["a", "b", "salary"]).to_parquet(tmp_path / "a.parquet", index=False)
    for missing in ("mean", "em"):
        assert told in done("fit", tmp_path / "a.parquet", "-k", 1, "--missing", missing).stderr


def test_the_report_has_the_advice_about_the_scale(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    (tmp_path / "a.csv").write_text("a,b\n1,900\n2,\n4,100\n3,5000\n")
    for more, there in (((), True), (("--scale", "none"), False)):
        done("fit", tmp_path / "a.csv", "-k", 1, "--missing", "mean", "-o", tmp_path / "out", "--force", *more)
        page = (tmp_path / "out" / "report.html").read_text()
        assert ("Columns have very different scales" in page) == there


def test_files_side_by_side_have_columns_of_their_own(tmp_path: Path, frame: "pd.DataFrame") -> None:
    frame[["patient_id", "sex", "height"]].to_csv(tmp_path / "a.csv", index=False)
    frame[["patient_id", "weight", "group"]].to_parquet(tmp_path / "b.parquet")
    both = ("fit", tmp_path / "a.csv", tmp_path / "b.parquet", "--stack", "columns", "--ids", "patient_id", "--json")
    found = json.loads(done(*both, "--one-hot", "sex", "--drop", "group").stdout)
    assert found["shape"] == [30, 5]


def test_a_table_on_standard_input_is_told_of_by_that_name(file: Path) -> None:
    result = CliRunner().invoke(
        main, ["fit", "-", "--format", "csv", "--columns", "patient_id2,height"], input=file.read_bytes()
    )
    assert "standard input: the table has no column 'patient_id2'" in result.stderr
    drop = 'sex,group,"date, of birth"'
    result = CliRunner().invoke(main, ["fit", "-", "--format", "csv", "--drop", drop], input=file.read_bytes())
    assert result.exit_code == 0, result.output
    assert "warning: standard input: column 'patient_id' looks like identifiers" in result.stderr


def test_tables_that_are_read_in_blocks_are_advised_a_scale_without_a_read_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = np.random.default_rng(0).normal(size=(60, 4)) * [1, 1, 1, 1e4]
    path = tmp_path / "X.csv"
    path.write_text("a,b,c,salary\n" + "\n".join(",".join(map(repr, row)) for row in X.tolist()) + "\n")
    in_memory = invoke("fit", path, "-k", 2, "--json")
    monkeypatch.setattr("shiftsvd.io.opening.held_bytes", lambda source: 2**50)
    in_blocks = invoke("fit", path, "-k", 2, "--json")
    assert in_blocks.exit_code == 0
    path.write_text(path.read_text() + "1,,1,1\n")
    with_gaps = invoke("fit", path, "-k", 2, "--missing", "mean")
    for found in (in_memory, in_blocks, with_gaps):
        assert "the standard deviation of 'salary' is" in found.stderr


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        ("{}%", "20 cells with the unit '%', such as '1.25%' (rows 2, 3, 4 and 17 more), are read as plain numbers"),
        ("${}", "20 cells with the unit '$'"),
        ("{} kg", "20 cells with the unit 'kg'"),
        ("{}D+00", ""),
        ("\N{MINUS SIGN}{}", ""),
    ],
)
@pytest.mark.parametrize("column", [0, 1])
def test_numbers_are_read_beside_signs_and_a_line_says_so(cell: str, line: str, column: int, tmp_path: Path) -> None:
    rows = [[f"{1.25 + i}", f"{i * i}", f"{-i}"] for i in range(20)]
    for row in rows:
        row[column] = cell.format(float(row[0]))
    (tmp_path / "t.csv").write_text("a,b,c\n" + "".join(",".join(row) + "\n" for row in rows))
    told = done("fit", tmp_path / "t.csv", "-k", 2).stderr
    assert not line or f"column {'abc'[column]!r}: {line}" in told


@pytest.mark.parametrize("header", ["a,b", "2001,2002"])
def test_a_row_of_units_is_refused_as_what_it_is(header: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"{header}\nkg,m/s\n" + "".join(f"{i},{i * i}\n" for i in range(20)))
    told = invoke("fit", tmp_path / "t.csv").stderr
    assert "the row below the header holds labels or units, not numbers. Use --comment kg,m/s to skip it" in told
    done("fit", tmp_path / "t.csv", "--comment", "kg,m/s")


def test_a_scale_that_does_not_exist_is_no_path(file: Path, tmp_path: Path) -> None:
    told = invoke("fit", file, *CHOSEN[:-2], "--drop", "group", "--scale", "yes").stderr
    assert "'yes' is not one of 'std', 'pareto'" in told


def test_options_of_cells_are_repeated_and_remembered(tmp_path: Path) -> None:
    rows = "Plots;;\n//a;;\n!b;;\nplot;x;y\n" + "".join(f"p{i};{i * i % 7},5;{i}\n" for i in range(9)) + "q;k.A.;<3\n"
    (tmp_path / "a.csv").write_text(rows)
    said = ("--skip", 1, "--comment", "//", "--comment", "!", "--na", "k.A.", "--na", "-999", "--censored", "half")
    done("fit", tmp_path / "a.csv", "-k", 1, *said, "--missing", "mean", "-o", tmp_path / "out", "--no-report")
    model = load_model(tmp_path / "out" / "model.safetensors")
    assert model.table_.told == {"ids": "plot", "comment": ["//", "!"], "na": ["k.A.", "-999"], "censored": "half"}
    assert model.mean_[1] == np.mean([*range(9), 1.5])
    (tmp_path / "b.csv").write_text("plot;y;x\nr;<4;-999\ns;1;2,5\n")
    scores = done("transform", tmp_path / "out" / "model.safetensors", tmp_path / "b.csv", "-o", "-").stdout
    assert len(scores.splitlines()) == 3


def test_an_apostrophe_is_quoted_as_people_type_it(tmp_path: Path) -> None:
    assert quoted("'") == '''"'"'''
    assert quoted("k.A.") == "'k.A.'"
    assert quoted("a b") == "'a b'"
    (tmp_path / "a.csv").write_text("a;b\n1'200;2\n3;5\n4'000;1\n")
    for more in ((), ("--thousands", "'")):
        assert json.loads(done("info", tmp_path / "a.csv", "--json", *more).stdout)["features"] == 2


@pytest.mark.parametrize(("cell", "sep"), [("-999.0", ","), ("-999,00", ";"), ("-999 EUR", ","), ("-9.99e2", ",")])
def test_a_mark_that_is_a_number_stands_for_all_cells_of_equal_value(tmp_path: Path, cell: str, sep: str) -> None:
    unit, decimal = " EUR" if "EUR" in cell else "", "," if sep == ";" else "."
    pay = [f"{100 + 7.25 * (i % 5):.2f}{unit}".replace(".", decimal) for i in range(12)]
    rows = [sep.join((each, str(i * i % 11))) for i, each in enumerate(pay)]
    header = f"pay{sep}age"
    for name, first in (("a.csv", cell), ("b.csv", "NA")):
        (tmp_path / name).write_text("\n".join([header, sep.join((first, "3")), *rows]) + "\n")
    found = [
        done("fit", tmp_path / name, "-k", 2, "--na", "-999", "--missing", "mean", "--json")
        for name in ("a.csv", "b.csv")
    ]
    values = [json.loads(each.stdout)["singular_values"] for each in found]
    assert values[0] == values[1]
    assert "--na" not in found[0].stderr
    assert "no cell" not in found[0].stderr
    assert "no cell of a feature has the missing value '-999'" in found[1].stderr


def test_numbers_for_missing_values_are_named_in_chosen_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n" + "".join(f"{i * i % 7 + 0.5},{i}.5\n" for i in range(12)) + "-999,3.5\n")
    assert "--na -999" in done("fit", tmp_path / "a.csv", "-k", 1, "--columns", "a,b").stderr


def test_transform_reads_thousands_as_the_fit_did(tmp_path: Path) -> None:
    price = [51.3 + (7 * i % 11) / 10 for i in range(12)]
    rows = [
        f"F{i};{1 + i * 5 % 9}.{100 + 61 * i};{each:.1f}".replace(f"{each:.1f}", f"{each:.1f}".replace(".", ","))
        for i, each in enumerate(price)
    ]
    (tmp_path / "a.csv").write_text("\n".join(["Filiale;Kunden;Preis", *rows]) + "\n")
    done("fit", tmp_path / "a.csv", "-k", 2, "-o", tmp_path / "out", "--no-report")
    model = tmp_path / "out" / "model.safetensors"
    for name, cells in (("b", "9.191;52"), ("c", "9191;52,0"), ("d", "9191;52.0"), ("e", "9,191;52.0")):
        (tmp_path / f"{name}.csv").write_text(f"Filiale;Kunden;Preis\nF0;{cells}\nF1;{cells}\n")
    scores = {name: done("transform", model, tmp_path / f"{name}.csv", "-o", "-") for name in "bcde"}
    assert len({each.stdout for each in scores.values()}) == 1
    assert "'9.191' (rows 2 and 3) is read as 9191" in scores["b"].stderr
    given = done("transform", model, tmp_path / "b.csv", "-o", "-", "--decimal", ".")
    assert given.stdout != scores["b"].stdout


@pytest.mark.parametrize("cells", [("1,057;52", "521;2,739"), ("1,057;52,739", "1,405;2,739")])
def test_transform_refuses_cells_whose_mark_only_the_fit_knows(
    tmp_path: Path, german: Path, cells: tuple[str, ...]
) -> None:
    rows = "\n".join(("Filiale;Umsatz;Preis", *(f"F{i};{each}" for i, each in enumerate(cells))))
    (tmp_path / "b.csv").write_text(rows)
    transform = "transform", german, tmp_path / "b.csv", "-o", "-"
    refused = invoke(*transform)
    assert refused.exit_code == 1
    assert "'Umsatz': '1,057' (row" in refused.stderr
    assert "may mean 1.057 or 1057. Use --decimal , for the first or --thousands , for the second." in refused.stderr
    as_decimals, as_thousands = (done(*transform, option, ",").stdout for option in ("--decimal", "--thousands"))
    assert as_decimals != as_thousands
    (tmp_path / "b.csv").write_text(rows + "\nF9;12,5;3\n")
    certain = invoke(*transform)
    assert certain.stdout.splitlines()[:3] == as_decimals.splitlines()


@pytest.fixture
def german(tmp_path: Path) -> Path:
    """A model of a table with decimal commas."""
    rows = [f"F{i};1.{100 + 61 * i},{i}0;{51 + 7 * i % 11},2" for i in range(12)]
    (tmp_path / "german.csv").write_text("\n".join(["Filiale;Umsatz;Preis", *rows]) + "\n")
    done("fit", tmp_path / "german.csv", "-k", 2, "-o", tmp_path / "german", "--no-report")
    return tmp_path / "german" / "model.safetensors"


@pytest.mark.parametrize("form", ["{} Total", "Total {}", "Summe {}", "{} Ergebnis", "Subtotal {}"])
@pytest.mark.parametrize("nested", [False, True])
def test_rows_that_are_called_totals_and_are_sums_are_refused(tmp_path: Path, form: str, nested: bool) -> None:
    places = ("North", "East", "South", "West") if nested else ("North", "South")
    rows, whole = list[tuple[str, float, float]](), np.zeros(2)
    for n, place in enumerate(places):
        numbers = RNG.integers(1, 500, (6, 2)) / 10
        rows += [(f"{place}-{i}", *each) for i, each in enumerate(numbers.tolist())]
        rows.append((form.format(place), *numbers.sum(0).round(6).tolist()))
        whole += numbers.sum(0)
        if nested and n % 2:
            rows.append((form.format(f"Half{n}"), *whole.round(6).tolist()))
            whole = np.zeros(2)
    pd.DataFrame(rows, columns=["store", "revenue", "staff"]).to_csv(tmp_path / "a.csv", index=False)
    result = invoke("fit", tmp_path / "a.csv", "-k", 1)
    assert f"{6 if nested else 2} rows may be totals" in result.stderr
    assert form.format("North") in result.stderr
    assert result.exit_code == 1
    samples = json.loads(done("info", tmp_path / "a.csv", "--json").stdout)["samples"]
    assert samples == 6 * len(places)


def test_samples_that_are_called_total_and_are_no_sums_are_used(tmp_path: Path) -> None:
    rows = [(f"{'Total care' if i % 4 == 3 else 'Mini'} {i}", *RNG.normal(9, 2, 3).round(2)) for i in range(12)]
    pd.DataFrame(rows, columns=list("nabc")).to_csv(tmp_path / "a.csv", index=False)
    assert "12 samples x 3 features" in done("fit", tmp_path / "a.csv", "-k", 1).stdout


@pytest.mark.parametrize("label", ["Mittel", "Ø"])
def test_a_last_row_of_means_is_no_sample(tmp_path: Path, label: str) -> None:
    rows = [(f"s{i}", *RNG.normal(9, 2, 3).round(2)) for i in range(12)] + [(label, 8.5, 9.1, 9.25)]
    pd.DataFrame(rows, columns=list("nabc")).to_csv(tmp_path / "a.csv", index=False)
    assert "12 samples x 3 features" in done("fit", tmp_path / "a.csv", "-k", 1).stdout


def test_the_command_of_info_fits_where_its_mark_is_the_only_missing_value(tmp_path: Path) -> None:
    rows = "".join(f"{i * i % 7 + 1},{i * i % 5 + 2}.5\n" for i in range(12))
    (tmp_path / "a.csv").write_text(f"a,b\n{rows}99999,3.5\n")
    command = json.loads(done("info", tmp_path / "a.csv", "--json").stdout)["command"]
    assert "--na 99999" in command
    assert "--missing mean" in command


def test_a_file_in_utf8_is_read_as_such_after_a_fit_of_another_encoding(tmp_path: Path) -> None:
    rows = "Fläche,Höhe\n" + "".join(f"{i * i % 7 + 1},{i * i % 5 + 2}.5\n" for i in range(12))
    (tmp_path / "a.csv").write_text(rows, encoding="cp1252")
    (tmp_path / "b.csv").write_text(rows, encoding="utf-8")
    done("fit", tmp_path / "a.csv", "-k", 1, "--encoding", "cp1252", "-o", tmp_path / "out", "--no-report")
    model = tmp_path / "out" / "model.safetensors"
    found = [done("transform", model, tmp_path / name, "-o", "-").stdout for name in ("a.csv", "b.csv")]
    assert found[0] == found[1]
    given = invoke("transform", model, tmp_path / "b.csv", "-o", "-", "--encoding", "cp1252")
    assert given.exit_code == 1


def test_a_repeated_name_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shiftsvd.io.formats.text._BLOCK", 64)  # bytes: the repeated rows are in different blocks
    rows = [f"s{i},{i * i % 7},{i % 4}.5" for i in range(20)]
    (tmp_path / "a.csv").write_text("\n".join(["store,a,b", *rows[:6], rows[4], *rows[6:], rows[2]]) + "\n")
    said = invoke("fit", tmp_path / "a.csv", "-k", 1).stderr
    assert "'s4' occurs more than once" in said
    assert "--ids store" in said


def test_features_without_a_triplet_are_zero(tmp_path: Path) -> None:
    X = RNG.poisson(0.8, (12, 5)).astype(float)
    X[:, 0] += 1
    X[-1] = [2, 0, 1, 0, 0]
    cells = [f"r{i},w{j},{X[i, j]:g}" for i, j in np.argwhere(X)]
    (tmp_path / "a.csv").write_text("\n".join(["row,column,value", *cells]) + "\n")
    (tmp_path / "b.csv").write_text("row,column,value\nr11,w2,1\nr11,w0,2\n")
    done("fit", tmp_path / "a.csv", "-k", 2, "-o", tmp_path / "out", "--no-report")
    model = tmp_path / "out" / "model.safetensors"
    whole = done("transform", model, tmp_path / "a.csv", "-o", "-").stdout.splitlines()[-1].split(",")
    found = done("transform", model, tmp_path / "b.csv", "-o", "-").stdout.splitlines()[-1].split(",")
    assert found[0] == whole[0] == "r11"
    np.testing.assert_allclose(np.array(found[1:], float), np.array(whole[1:], float), atol=1e-12)
    (tmp_path / "c.csv").write_text("row,column,value\nr11,new,4\nr11,w2,1\nr11,w0,2\nr12,newer,1\n")
    result = done("transform", model, tmp_path / "c.csv", "-o", "-")
    assert "removed 2 features that the model does not have: new, newer." in result.stderr
    scores = np.array([line.split(",")[1:] for line in result.stdout.splitlines()[1:]], float)
    assert scores.shape == (2, 2)
    np.testing.assert_allclose(scores[0], np.array(found[1:], float), atol=1e-12)
    (tmp_path / "d.csv").write_text("row,column,value\nr11,new,4\n")
    assert (
        "has features that the model does not have: new"
        in invoke("transform", model, tmp_path / "d.csv", "-o", "-").stderr
    )


def test_a_column_of_texts_is_not_encoded_as_categories(tmp_path: Path) -> None:
    lines = [
        f"a text of several words about {word},{i}" for i, word in enumerate(["cats", "dogs", "cats", "stocks"] * 5)
    ]
    (tmp_path / "a.csv").write_text("\n".join(["text,year", *lines]) + "\n")
    said = invoke("fit", tmp_path / "a.csv", "-k", 1).stderr
    assert "LSA in Python finds components of texts such as those of 'text'." in said
    assert "--one-hot" not in said
    assert "--drop text" in said


def test_points_that_may_separate_thousands_are_told_where_semicolons_are(tmp_path: Path) -> None:
    cells = [f"{1 + i * i % 7}.{100 + 37 * i};{i * i % 5}" for i in range(12)]
    (tmp_path / "a.csv").write_text("\n".join(["a;b", *cells]) + "\n")
    assert "--thousands '.' if it separates thousands" in done("fit", tmp_path / "a.csv", "-k", 1).stderr


@pytest.mark.parametrize(("usual", "odd", "sep"), [("1,5", "1.5", ";"), ("1.5", "1,5", "\t")])
def test_a_mark_with_the_other_decimal_mark_is_its_text_alone(tmp_path: Path, usual: str, odd: str, sep: str) -> None:
    rows = [f"{cell}{sep}{i * i % 7}" for i, cell in enumerate([usual] * 6 + [usual.replace("5", "7"), odd])]
    (tmp_path / "a.csv").write_text("\n".join([f"a{sep}b", *rows]) + "\n")
    found = profile(tmp_path / "a.csv")
    assert (found.settings, found.n_missing) == ({"na": [odd]}, 1)
    assert profile(tmp_path / "a.csv", na=odd).n_missing == 1


def _in_unit(path: Path, unit: str, times: float = 1.0) -> Path:
    body = "".join(f"p{i},{times * (12.5 + i % 7):.1f}{unit},{40 + i * i % 11}.5,{i}\n" for i in range(9))
    path.write_text("Name,Hb,age,x\n" + body)
    return path


@pytest.mark.parametrize(
    ("fitted", "new", "message"),
    [
        (" g/dL", " g/L", "column 'Hb' has the unit 'g/L', such as '125.0 g/L' (rows 2, 3, 4 and 6 more), but 'g/dL' "),
        (" $", " €", "Convert the column, or remove the units from its cells if the numbers are in '$'."),
        (" %", "", "column 'Hb' has no unit, but '%' in "),
        ("", " %", "column 'Hb' has the unit '%', such as "),
    ],
)
def test_a_unit_other_than_that_of_the_fit_or_of_another_file_is_refused(
    tmp_path: Path, fitted: str, new: str, message: str
) -> None:
    file, other = _in_unit(tmp_path / "a.csv", fitted), _in_unit(tmp_path / "b.csv", new, 10)
    model = tmp_path / "out" / "model.safetensors"
    done("fit", file, "-k", 2, "-o", tmp_path / "out", "--no-report")
    for words in (("transform", model, other, "-o", "-"), ("influence", model, other)):
        found = invoke(*words)
        assert found.exit_code == 1
        assert f"{other}: column 'Hb'" in found.stderr
        assert message in found.stderr
        assert "the fit" in found.stderr
    stacked = invoke("fit", file, other, "--stack", "rows", "-k", 2)
    assert stacked.exit_code == 1
    assert message in stacked.stderr
    assert f" in {file}" in stacked.stderr


@pytest.mark.parametrize(("fitted", "new"), [(" g/dL", ""), (" g/dL", " g/dl"), (" ug", " µg"), ("", " kg")])
def test_files_without_units_or_in_the_same_unit_are_accepted(tmp_path: Path, fitted: str, new: str) -> None:
    file, other = _in_unit(tmp_path / "a.csv", fitted), _in_unit(tmp_path / "b.csv", new)
    done("fit", file, "-k", 2, "-o", tmp_path / "out", "--no-report", "--scores", "csv")
    model = tmp_path / "out" / "model.safetensors"
    assert load_model(model).table_.units == ({"Hb": fitted.strip()} if fitted else {})
    scores = done("transform", model, other, "-o", "-").stdout
    np.testing.assert_allclose(
        *(pd.read_csv(each)[["PC1", "PC2"]] for each in (tmp_path / "out/scores.csv", io.StringIO(scores))), atol=1e-9
    )
    done("fit", file, other, "--stack", "rows", "-k", 2)


def test_transform_compares_cells_with_the_unit_of_the_fit(tmp_path: Path) -> None:
    file = _in_unit(tmp_path / "a.csv", " mg/l")
    done("fit", file, "-k", 2, "-o", tmp_path / "out", "--no-report")
    (tmp_path / "new.csv").write_text(f"{file.read_text().splitlines()[0]}\np,0.07 g/l,50,3\nq,65 mg/l,50,3\n")
    said = invoke("transform", tmp_path / "out" / "model.safetensors", tmp_path / "new.csv", "-o", "-").stderr
    assert "1 cell in another unit: '0.07 g/l' (row 2); other cells have 'mg/l'. Convert this cell in the file" in said


@pytest.mark.parametrize("fill", [(), ("--missing", "mean", "--na", "n.d.")])
def test_transform_advises_what_works_in_transform(fill: tuple[str, ...], tmp_path: Path) -> None:
    rows = [f"s{i},{a:.2f},{b:.2f},{c:.2f}\n" for i, (a, b, c) in enumerate(np.random.default_rng(0).random((20, 3)))]
    (tmp_path / "a.csv").write_text("id,a,b,c\n" + "".join(rows))
    done("fit", tmp_path / "a.csv", "-k", 1, *fill, "-o", tmp_path / "out", "--no-report")
    words = ("transform", tmp_path / "out" / "model.safetensors", tmp_path / "new.csv", "-o", "-")
    (tmp_path / "new.csv").write_text("id,a,b,c\nx,7. Mrz,1,2\ny,1,2,3\nz,2,n.d.,4\nw,2,3,4\n")
    said = invoke(*words).stderr
    assert "Correct this cell in the file, or use --na '7. Mrz' to read it as a missing value." in said
    assert "--drop" not in said
    if fill:  # the texts of the fit are missing values, too
        assert "3 missing" not in done(*words, "--na", "7. Mrz").stderr
    (tmp_path / "new.csv").write_text("id,b,c\nx,1,2\ny,2,3\n")
    said = invoke(*words).stderr
    assert "Raise the limit with --max-absent 0.34, or" in said
    done(*words, "--max-absent", 0.34)


def test_half_of_a_limit_in_another_unit_is_refused(tmp_path: Path) -> None:
    file = _in_unit(tmp_path / "a.csv", " g/dL")
    file.write_text(file.read_text() + "q,<1 g/L,50,3\n")
    found = invoke("fit", file, "-k", 2, "--censored", "half")
    assert found.exit_code == 1
    assert "column 'Hb' has 1 cell in another unit: '<1 g/L' (row 11)" in found.stderr


def test_transform_takes_the_row_names_of_the_fit_where_they_repeat(tmp_path: Path) -> None:
    file = _in_unit(tmp_path / "a.csv", "")
    done("fit", file, "-k", 2, "-o", tmp_path / "out", "--no-report")
    (tmp_path / "new.csv").write_text("Name,Hb,age,x\nu,12,41,3\nu,13,42,4\nw,11,46,6\n")
    scores = done("transform", tmp_path / "out/model.safetensors", tmp_path / "new.csv", "-o", "-").stdout
    assert [line.split(",")[0] for line in scores.splitlines()] == ["sample", "u", "u", "w"]


def test_info_counts_missing_values_as_its_command_reads_them(tmp_path: Path) -> None:
    rows = "".join(
        f"{1000 + i},{1 + i % 2},{'<3' if i % 3 == 0 else i + 4.5},{'n.d.' if i == 4 else i / 7:}\n" for i in range(30)
    )
    (tmp_path / "a.csv").write_text("id,Sex,crp,lab\n" + rows)
    facts = json.loads(done("info", tmp_path / "a.csv", "--json").stdout)
    columns = {each["name"]: each for each in facts["columns"]}
    assert {name: each["n_missing"] for name, each in columns.items()} == {"id": 0, "Sex": 0, "crp": 0, "lab": 1}
    assert facts["n_missing"] == 1
    assert "--na 'n.d.' --censored half --missing mean" in facts["command"]
    assert columns["id"]["use"] == "row names"
    assert "used as numbers" not in " ".join(columns["id"]["notes"])
    assert "2 different whole numbers, which may be categories. Use --one-hot Sex" in columns["Sex"]["notes"][0]
    done(*facts["command"].replace("'", "").split()[1:], "-k", 1)


def test_few_cells_below_a_limit_remain_missing_values(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "x,y\n" + "".join(f"{'<3' if i == 5 else i + 4.5},{i * i % 7}\n" for i in range(30))
    )
    facts = json.loads(done("info", tmp_path / "a.csv", "--json").stdout)
    assert [each["n_missing"] for each in facts["columns"]] == [1, 0]
    assert "censored" not in facts["command"]


def test_info_about_a_model_has_all_names_and_settings_in_words(tmp_path: Path) -> None:
    rows = "".join(f"{40 + i * i % 11}.5,{'abc'[i % 3]},{'mw'[i % 2]}\n" for i in range(20))
    (tmp_path / "a.csv").write_text("age,ward,sex\n" + rows)
    done("fit", tmp_path / "a.csv", "-k", 2, "--mixed", "-o", tmp_path / "out", "--no-report")
    found = done("info", tmp_path / "out" / "model.safetensors").stdout
    assert "age, ward=a, ward=b, ward=c, sex=m, sex=w" in found
    assert "one_hot=[ward, sex], mixed=True" in found
    assert "\\n" not in found


def test_numbers_for_missing_values_in_new_tables_are_named(tmp_path: Path) -> None:
    file, other = _in_unit(tmp_path / "a.csv", ""), _in_unit(tmp_path / "b.csv", "")
    other.write_text(other.read_text() + "q,-999,45.5,3\n")
    done("fit", file, "-k", 2, "-o", tmp_path / "out", "--no-report")
    told = done("transform", tmp_path / "out" / "model.safetensors", other, "-o", "-").stderr
    assert "column 'Hb' has '-999' (row 11), and all others are from 12.5 to 18.5." in told
    assert "identifiers" not in told
