"""What `open_matrix` makes of tables: how texts are written, and which columns are what."""

import io
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from shiftsvd.io import open_matrix, profile
from shiftsvd.io.formats import delimited

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")


def text(folder: Path, content: str, encoding: str = "utf-8", name: str = "a.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode(encoding))
    return path


def dense(path: Path, **settings):
    A, names = open_matrix(path, **settings)
    return A.matmat(np.eye(A.shape[1])), names


def refusal(path: Path, **settings) -> str:
    with pytest.raises(ValueError) as error:
        dense(path, **settings)
    assert str(error.value).startswith(str(path))
    return str(error.value)


WRITTEN = {
    "pipe": ("a|b\n1.5|2\n3|4\n", {}),
    "semicolon with commas in names": ("a, x;b, y\n1,5;2\n3;4\n", {}),
    "decimal commas": ("a;b\n1,5;2,0\n3,0;4\n", {}),
    "decimal commas in quotes": ('a,b\n"1,5",2\n"3,0",4\n', {}),
    "decimal commas that are said": ("a;b\n1,500;2\n3;4\n", {"decimal": ","}),
    "thousands that show": ("a;b\n0.001,5;2\n3;4\n".replace("0.001,5", "1,5"), {}),
    "a comment": ("# made by hand\n#, yes\na,b\n1.5,2\n# more\n3,4\n", {}),
    "a comment of another kind": ("a,b\n1.5,2\n// more, and more, and more\n3,4\n", {"comment": "//"}),
    "separators at the end of rows": ("a,b\n1.5,2,\n3,4,\n", {}),
    "separators at the end of lines": ("a,b,\n1.5,2,\n3,4,\n", {}),
    "a line for spreadsheets": ("sep=;\na;b\n1,5;2\n3;4\n", {}),
    "spaces": ("a b\n1.5 2\n3 4\n", {"sep": " "}),
    "a separator by its name": ("a\tb\n1.5\t2\n3\t4\n", {"sep": "tab"}),
    "lines of old computers": ("a,b\r1.5,2\r3,4\r", {}),
    "numbers in quotes": ('"a","b"\n"1.5","2"\n"3","4"\n', {}),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_texts_are_read_as_they_are_written(case: str, tmp_path: Path) -> None:
    content, settings = WRITTEN[case]
    X, _ = dense(text(tmp_path, content), **settings)
    assert X.tolist() == [[1.5, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_marks_at_the_beginning_tell_the_encoding(encoding: str, tmp_path: Path) -> None:
    X, names = dense(text(tmp_path, "Größe\tz\n" + "1,5\t2\n" * 3 + "7,5\t9\n", encoding))
    assert names.features.tolist() == ["Größe", "z"]
    assert X[0].tolist() == [1.5, 2]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_zero_bytes_tell_utf_16_without_a_mark(encoding: str, tmp_path: Path) -> None:
    assert dense(text(tmp_path, "é,b\n1,2\n3,5\n", encoding))[1].features.tolist() == ["é", "b"]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_other_encodings_are_refused_until_they_are_said(encoding: str, tmp_path: Path) -> None:
    path = text(tmp_path, "é,b\n1,2\n3,5\n", encoding)
    assert 'encoding="cp1252"' in refusal(path)
    assert dense(path, encoding=encoding)[1].features.tolist() == ["é", "b"]


def test_the_sign_of_the_euro_is_read_by_the_suggested_encoding(tmp_path: Path) -> None:
    path = text(tmp_path, "name;Umsatz\nCafé;1,5 €\nBar;2,5 €\n", "cp1252")
    assert dense(path, **profile(path).settings)[0].tolist() == [[1.5], [2.5]]
    path.write_bytes(b"a,\x80\n1,2\n3,\x81\n")  # no text in cp1252
    assert profile(path).settings["encoding"] == "latin-1"


def test_a_byte_that_is_no_text_beyond_the_first_lines_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = text(tmp_path, "name,b\n" + "".join(f"x{i},2\n" for i in range(300)) + "é,4\n", "latin-1")
    assert 'encoding="cp1252"' in refusal(path)
    assert dense(path, encoding="latin-1")[1].samples[-1] == "é"


def test_thousands_are_recognised_where_the_other_mark_stands_beside_them(tmp_path: Path) -> None:
    assert dense(text(tmp_path, 'a,b\n"1,234.5",2\n"-2,000,000.25",3\n'))[0][:, 0].tolist() == [1234.5, -2000000.25]
    assert dense(text(tmp_path, "a;b\n1.234,5;2\n12;3\n"))[0][:, 0].tolist() == [1234.5, 12]


def test_a_mark_that_may_mean_two_things_is_refused(tmp_path: Path) -> None:
    path = text(tmp_path, "a;b\n1,234;2\n5,678;3\n")
    message = refusal(path)
    assert 'decimal=","' in message
    assert 'thousands=","' in message
    assert dense(path, decimal=",")[0][0, 0] == 1.234
    assert dense(path, thousands=",")[0][0, 0] == 1234


def test_numbers_written_otherwise_far_below(tmp_path: Path) -> None:
    path = text(tmp_path, "a;b\n" + "1,5;2\n" * 300 + "1.234,5;3\n")
    assert dense(path)[0][-1].tolist() == dense(path, thousands=".", decimal=",")[0][-1].tolist() == [1234.5, 3]
    assert 'decimal=","' in refusal(text(tmp_path, "a;b\n" + "1;2\n" * 300 + "1,25;3\n"))


def test_points_are_not_taken_for_thousands_where_they_cut_off_no_three_digits(tmp_path: Path) -> None:
    assert "'1.5'" in refusal(text(tmp_path, "a;b\n1.5;2\n2,5;3\n"), decimal=",", thousands=".")


def test_text_in_a_cell_of_several_lines_survives_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shiftsvd.io.formats.text._BLOCK", 1 << 10)
    rows = "".join(f'"line {i}\n# no comment {i}\nend",{i}.5,2\n' for i in range(400))
    _, names = dense(text(tmp_path, 'name,"a\nb",c\n' + rows))
    assert names.features.tolist() == ["a\nb", "c"]
    assert names.samples[399] == "line 399\n# no comment 399\nend"
    _, names = dense(text(tmp_path, '// x\nname,"a\nb",c\n' + rows), comment="//")
    assert names.samples[399] == "line 399\n# no comment 399\nend"


def test_lines_above_a_table_are_refused_with_the_line_that_begins_it(tmp_path: Path) -> None:
    assert "'Day Text Sum'" in refusal(text(tmp_path, "Account;12\n\nDay;Text;Sum\n1;x;2\n2;y;3\n"))


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (("€ 1,50", "€ 2,50"), [1.5, 2.5]),
        (("1%", "3%"), [1, 3]),
        (("1\u202f234,5", "12,5"), [1234.5, 12.5]),
        (("\u22121.5", "2.5"), [-1.5, 2.5]),
        (("1.25D+00", "3.5D-01"), [1.25, 0.35]),
        (("59.40-", "2.50"), [-59.4, 2.5]),
        (("($2.50)", "$3"), [-2.5, 3]),
        (("1'234.50 CHF", "2 CHF"), [1234.5, 2]),
        (("12 kg", "3.5"), [12, 3.5]),
    ],
)
def test_numbers_are_read_beside_signs_and_units(cells: tuple[str, str], numbers: list, tmp_path: Path) -> None:
    X, names = dense(text(tmp_path, f"a;b\n{cells[0]};2\n{cells[1]};3\n"))
    assert X[:, 0].tolist() == numbers
    assert names.samples is None


def test_brackets_alone_may_be_errors_and_do_not_name_rows(tmp_path: Path) -> None:
    assert "'(1.25)'" in refusal(text(tmp_path, "a,b\n(1.25),2\n(2.25),3\n"))


def test_one_cell_in_another_unit_is_refused(tmp_path: Path) -> None:
    message = refusal(text(tmp_path, "a,b\n12 kg,2\n15 kg,3\n700 g,1\n"))
    assert "column 'a' has 1 cell in another unit: '700 g' (row 4); other cells have 'kg'" in message
    assert 'Convert this cell in the file, or use na="700 g"' in message
    message = refusal(text(tmp_path, "a,b\n0.12,2\n0.15,3\n17%,1\n"))
    assert (
        "other cells have none and may be shares. Convert this cell in the file (to 0.17 if the others are" in message
    )
    assert "another unit" in refusal(text(tmp_path, "height (cm),b\n171,2\n1.82 m,3\n165,1\n"))
    message = refusal(text(tmp_path, "spend ($),b\n€171,2\n€182,3\n€165,1\n"))
    assert "3 cells in another unit: '€171' (rows 2, 3 and 4); the header has '$'" in message


def test_cells_beyond_a_limit_are_missing_or_half_of_it(tmp_path: Path) -> None:
    path = text(tmp_path, "a,b\n<1,2\n4.5,3\n>9,1\n< 0.5,1\n")
    with pytest.raises(ValueError, match="3 entries are missing"):
        dense(path)
    with pytest.raises(ValueError, match="1 entry is missing"):
        dense(path, censored="half")
    assert dense(text(tmp_path, "a,b\n<1,2\n4.5,3\n≤ 0.5,1\n"), censored="half")[0][:, 0].tolist() == [0.5, 4.5, 0.25]


# Which columns are what.
PEOPLE = "id,name,born,sex,height,weight\n" + "".join(
    f"{71 + 3 * i},p{i},19{50 + i}-01-02,{'FM'[i % 2]},{1.5 + i / 50},{60 + i * i % 7}\n" for i in range(12)
)


def test_all_columns_of_text_are_named_with_what_helps(tmp_path: Path) -> None:
    message = refusal(text(tmp_path, PEOPLE))
    assert "'name' (the text 'p0'), 'born' (the date '1950-01-02'), 'sex' (the text 'F')" in message
    assert 'one_hot="sex"' in message
    assert 'ids="name"' in message
    assert "drop=['name', 'born', 'sex']" in message


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_choices_of_columns_are_those_of_pandas(kind: str, tmp_path: Path) -> None:
    path = text(tmp_path, PEOPLE)
    frame = pd.read_csv(path, float_precision="round_trip")
    if kind != "csv":
        path = tmp_path / f"a.{kind}"
        getattr(frame, f"to_{kind}")(path)
    X, names = dense(path, ids="name", drop=["born", "id"], one_hot="sex")
    wanted = pd.concat(
        [pd.get_dummies(frame["sex"], prefix="sex", prefix_sep="="), frame[["height", "weight"]]], axis=1
    )
    assert names.features.tolist() == ["sex=F", "sex=M", "height", "weight"] == list(wanted.columns)
    assert names.samples.tolist() == frame["name"].tolist()
    np.testing.assert_array_equal(X, wanted.to_numpy(float))
    X, names = dense(path, ids="id", columns=["weight", "height"])
    assert names.features.tolist() == ["height", "weight"]
    assert names.samples[:2].tolist() == ["71", "74"]
    np.testing.assert_array_equal(X, frame[["height", "weight"]])


def test_classes_that_are_said_are_those_of_the_columns(tmp_path: Path) -> None:
    path = text(tmp_path, "a,s\n1,+\n2,-\n")
    assert dense(path, one_hot={"s": ["-", "0", "+"]})[0].tolist() == [[1, 0, 0, 1], [2, 1, 0, 0]]
    assert (
        "category '-' (first in row 3), which did not occur in the training data. Known categories: '+', '0'"
        in refusal(path, one_hot={"s": ["+", "0"]})
    )


def test_whole_numbers_as_classes_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    _, names = dense(text(tmp_path, "a,s\n1,10\n2,9\n3,-1\n4,-2\n"), one_hot="s")
    assert names.features.tolist() == ["a", "s=-2", "s=-1", "s=9", "s=10"]


def test_truth_values_are_classes_of_one_name_in_every_file(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.5, 2.5], "well": [True, False]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        assert dense(tmp_path / name, one_hot="well")[1].features.tolist() == ["a", "well=False", "well=True"]


def test_files_on_top_of_each_other_share_their_classes(tmp_path: Path) -> None:
    paths = [text(tmp_path, f"a,s\n1,{kind}\n2,x\n", name=f"{kind}.csv") for kind in "yz"]
    X, names = dense(paths, stack="rows", one_hot="s")
    assert names.features.tolist() == ["a", "s=x", "s=y", "s=z"]
    assert X.tolist() == [[1, 0, 1, 0], [2, 1, 0, 0], [1, 0, 0, 1], [2, 1, 0, 0]]


def test_a_row_without_a_class_is_missing_in_all_of_them(tmp_path: Path) -> None:
    message = refusal(text(tmp_path, "a,s\n1,x\n2,NA\n3,y\n"), one_hot="s")
    assert "'s=x' (1), 's=y' (1)" in message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"drop": "heigth"}, "no column 'heigth', got drop=\"heigth\"\\. Did you mean 'height'"),
        ({"ids": "nobody"}, "no column 'nobody'"),
        ({"columns": []}, "must be numbers"),
        ({"columns": ["sex"]}, "must be numbers"),
        ({"columns": "height", "drop": "height"}, "one use"),
        ({"drop": ["id", "name", "born", "sex", "height", "weight"]}, "no column is left for features: each"),
        ({"sep": ",,"}, "sep must be one character"),
        ({"encoding": "klingon"}, "encoding must be an encoding of Python"),
        ({"decimal": ",", "thousands": ","}, "different characters"),
        ({"comment": ""}, "comment must be"),
    ],
)
def test_choices_that_cannot_be_are_refused(settings: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        open_matrix(text(tmp_path, PEOPLE), **settings)


def test_choices_are_refused_where_there_is_no_table(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.eye(3))
    assert 'ids="x" applies to tables' in refusal(tmp_path / "a.npy", ids="x")
    assert 'drop="value" applies to tables' in refusal(text(tmp_path, "row,column,value\n0,1,2\n"), drop="value")
    pd.DataFrame({"a": [1.0, 2.0]}).to_parquet(tmp_path / "a.parquet")
    assert "sep applies to text files" in refusal(tmp_path / "a.parquet", sep=";")


def test_columns_without_names_are_called_by_their_numbers(tmp_path: Path) -> None:
    X, names = dense(text(tmp_path, "7,1.5,2\n8,3,4\n"), ids="1")
    assert X.tolist() == [[1.5, 2], [3, 4]]
    assert names.samples.tolist() == ["7", "8"]


# What is told.
def warned(path: Path, **settings) -> list[str]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        open_matrix(path, **settings)
    return [str(each.message) for each in told]


def table(folder: Path, **columns) -> Path:
    pd.DataFrame(columns).to_csv(folder / "a.csv", index=False)
    return folder / "a.csv"


SOME = np.random.default_rng(0).normal(size=30).round(3)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("patient_id", 1000 + 7 * np.arange(30)[::-1]),
        ("ID", np.arange(30) ** 2),
        ("sampleNr", np.arange(30) ** 2),
        ("x", np.arange(30)),
        ("when", 20240101 + np.arange(30) // 2),
        ("x", 5 + np.random.default_rng(1).permutation(30)),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_numbers_that_tell_rows_apart_are_named(name: str, values: np.ndarray, kind: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": SOME, name: values, "b": SOME**2})
    path = tmp_path / f"a.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    (message,) = warned(path)
    assert f"column {name!r} looks like identifiers" in message
    assert f'ids="{name}"' in message
    assert f'drop="{name}"' in message
    assert warned(path, ids=name) == warned(path, drop=name) == warned(path, columns=[name, "a", "b"]) == []


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("paid", np.arange(30) ** 2),
        ("id", np.repeat(np.arange(15), 2)),
        ("count", np.random.default_rng(0).poisson(20, 30)),
        ("x", np.arange(30) + 0.5),
        ("id", np.arange(30) / 7),
    ],
)
def test_other_numbers_are_not(name: str, values: np.ndarray, tmp_path: Path) -> None:
    assert warned(table(tmp_path, a=SOME, **{name: values})) == []


def test_classes_that_are_numbers_are_named(tmp_path: Path) -> None:
    (message,) = warned(table(tmp_path, a=SOME, target=np.arange(30) % 3))
    assert "column 'target' looks like categories" in message


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_a_file_of_texts_is_read_as_the_text_it_was_exported_from(kind: str, tmp_path: Path) -> None:
    cells = {"who": ["x", "y", "z", "all"], "a": ["1.234", "2.5", "4", "7.734"], "b": ["1", "3", "2", "6"]}
    frame, path = pd.DataFrame(cells), tmp_path / f"a.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else getattr(frame, f"to_{kind}")(path)
    A, names = open_matrix(path)  # without the row of sums
    np.testing.assert_array_equal(A @ np.eye(2), [[1.234, 1], [2.5, 3], [4, 2]])
    assert names.samples is not None
    assert names.samples.tolist() == ["x", "y", "z"]


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_dates_next_to_categories_are_named(kind: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2, 1, 2], "d": pd.date_range("2026-01-01", periods=4)})
    getattr(frame, f"to_{kind}")(tmp_path / f"a.{kind}")
    assert "column 'd' (the date '2026-01-01 00:00:00') must be numbers" in refusal(tmp_path / f"a.{kind}", one_hot="a")


@pytest.mark.parametrize("name", ["Total", "TOTAL:", "Summe", "Grand total", "mean"])
def test_a_last_row_that_is_called_a_total_is_no_sample(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = text(tmp_path, f"who,a,b\nx,1,2.5\ny,3,4\nz,9,1\n{name},13,7.5\n")
    message = f"the last row is a total ({name!r}) and is not used as a sample. Use keep_total=True to keep it."
    assert message in noticed(caplog, path)
    assert dense(path)[0].tolist() == dense(path, comment=name)[0].tolist() == [[1, 2.5], [3, 4], [9, 1]]
    assert dense(path)[1].samples.tolist() == ["x", "y", "z"]
    assert dense(path, keep_total=True)[0][-1].tolist() == [13, 7.5]
    assert warned(path, keep_total=True) == []


def test_a_total_takes_the_empty_rows_above_it_and_its_labels_with_it(tmp_path: Path) -> None:
    path = text(tmp_path, "id,a,sex\n7,1,F\n8,3,M\n9,2,F\n,,\nSumme,6,\n")
    X, names = dense(path, ids="id", one_hot="sex")
    assert X.tolist() == [[1, 1, 0], [3, 0, 1], [2, 1, 0]]
    assert names.features.tolist() == ["a", "sex=F", "sex=M"]


def test_a_row_is_no_total_where_it_may_be_a_sample(tmp_path: Path) -> None:
    for rows in ("1,0\n0,1\n0,0\n1,1\n", "1,5\n2,7\n3,12\n", "1\n2\n3\n6\n"):
        assert len(dense(text(tmp_path, "a,b\n" + rows if "," in rows else "a\n" + rows))[0]) == rows.count("\n")


def test_a_name_with_the_word_total_and_a_number_is_a_sample(tmp_path: Path) -> None:
    names = dense(text(tmp_path, "who,a,b\nx,1,2.5\ny,3,4\nPlot total 3,9,1\n"))[1].samples
    assert names.tolist() == ["x", "y", "Plot total 3"]


def test_totals_above_the_last_row_are_refused_until_one_says_what_they_are(tmp_path: Path) -> None:
    path = text(tmp_path, "who,a\nTotal,6\nx,1\ny,1\nz,3\n")
    assert "1 row may be totals: 'Total' (row 2)" in refusal(path)
    assert len(dense(path, comment="Total")[0]) == 3
    assert len(dense(path, keep_total=True)[0]) == 4
    classes = text(tmp_path, "part,a\nTotal,1\nLeft,2\nTotal,4\nLeft,4\nTotal,5\n")
    assert "keep_total=True" in refusal(classes, drop="part")
    assert dense(classes, drop="part", keep_total=True)[0].tolist() == [[1], [2], [4], [4], [5]]


def test_a_row_called_total_that_equals_the_only_row_of_its_group_is_a_sample(tmp_path: Path) -> None:
    path = text(tmp_path, "part,a,b\nA,1,2\nB,3,4\nNorth Total,4,6\nC,5,6\nSouth Total,5,6\nD,2,1\nE,7,7\n")
    assert "1 row may be totals: 'North Total' (row 4)" in refusal(path)
    assert len(dense(path, comment="North Total")[0]) == 6


def test_a_last_row_that_is_the_sum_of_the_others_is_no_sample(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    X = np.random.default_rng(0).normal(size=(20, 40))
    path = tmp_path / "a.csv"
    pd.DataFrame(np.vstack([X, X.sum(axis=0)])).to_csv(path, index=False)
    assert "the last row is a total (of sums) and is not used as a sample" in noticed(caplog, path)[-1]
    assert dense(path)[0].shape == (20, 40)
    assert dense(path, keep_total=True)[0].shape == (21, 40)
    pd.DataFrame(np.vstack([X, X.sum(axis=0) + np.eye(40)[30]])).to_csv(path, index=False)
    assert dense(path)[0].shape == (21, 40)


def test_a_last_row_of_means_without_a_name_is_no_sample(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = "name,a,b\nx,1.5,2\ny,3,4.25\nz,9,1\nw,2,6\n"
    path = text(tmp_path, rows + ",3.875,3.3125\n")
    assert (
        "the last row is a row of means and is not used as a sample. Use keep_total=True" in noticed(caplog, path)[-1]
    )
    assert dense(path)[1].samples.tolist() == ["x", "y", "z", "w"]
    assert dense(path, keep_total=True)[0][-1].tolist() == [3.875, 3.3125]
    rounded = text(tmp_path, rows + ",3.88,3.31\n")
    assert "the last row, without a name, holds the rounded means of the others" in noticed(caplog, rounded)[-1]
    assert len(dense(rounded)[0]) == 5
    assert len(dense(rounded, comment=",3.88")[0]) == 4
    assert len(dense(text(tmp_path, rows + "v,3.875,3.3125\n"))[0]) == 5
    assert len(dense(text(tmp_path, rows + ",3.875,3.25\n"))[0]) == 5


def test_a_table_may_begin_below_many_blank_lines(tmp_path: Path) -> None:
    assert dense(text(tmp_path, "\n" * 300 + "a,b\n1,2\n3,4\n"))[0].tolist() == [[1, 2], [3, 4]]


def test_rows_below_repeated_headers_have_their_numbers_in_the_file(tmp_path: Path) -> None:
    rows = [f"s{i},{i}.5,{i * i % 7}\n" for i in range(1, 9)]
    content = "id,a,b\n" + "".join(rows[:3]) + "id,a,b\n" + "".join(rows[3:5]) + "id,a,b\n" + "".join(rows[5:])
    assert "'x' (row 10)" in refusal(text(tmp_path, content.replace("s7,7.5", "s7,x")))
    assert "'Mean' (row 10)" in refusal(text(tmp_path, content.replace("s7,7.5", "Mean,7.5")))


def test_a_column_of_sums_at_the_right_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [(i * i % 7 + 0.5, i * i % 5 + 0.25, i / 2) for i in range(1, 9)]
    content = "a,b,c,Total\n" + "".join(f"{a},{b},{c},{a + b + c}\n" for a, b, c in rows)
    is_sum = "column 'Total' is the sum of the other columns and is used as a feature. Use drop=\"Total\" to exclude"
    assert any(is_sum in message for message in noticed(caplog, text(tmp_path, content)))
    pd.read_csv(io.StringIO(content)).to_parquet(tmp_path / "a.parquet")
    assert any(is_sum in message for message in noticed(caplog, tmp_path / "a.parquet"))
    others = text(tmp_path, content.replace("\n1.5,", "\n9.5,", 1))
    assert not any("is the sum" in message for message in noticed(caplog, others))
    assert dense(others)[0].shape == (8, 4)
    copy = text(tmp_path, "a,Total\n" + "".join(f"{a},{a}\n" for a, *_ in rows))
    assert not any("is the sum" in message for message in noticed(caplog, copy))


def noticed(caplog: pytest.LogCaptureFixture, path: Path, **settings) -> list[str]:
    caplog.clear()
    with caplog.at_level(25, "shiftsvd"):
        open_matrix(path, **settings)
    return [record.getMessage().removeprefix(f"{path}: ") for record in caplog.records if record.levelno > logging.INFO]


def test_why_a_column_names_the_rows_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, ids = text(tmp_path, "who,a\nx,1\ny,2\n"), "To take them from another column, use ids."
    assert noticed(caplog, path) == [
        f"the first column 'who' is used for row names, because it holds text without repeats. {ids}"
    ]
    assert noticed(caplog, path, ids="who") == []
    assert noticed(caplog, text(tmp_path, ",a\n7,1\n8,2\n")) == [
        f"the first column is used for row names, because this column has no name. {ids}"
    ]
    message = f"the first column is used for row names, because the header has no name for this column. {ids}"
    assert noticed(caplog, text(tmp_path, "a,b\n7,1,3\n8,2,4\n")) == [message]


def test_names_that_repeat_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = noticed(caplog, text(tmp_path, ",a,a,b\nx,1,2,3\nx,4,5,6\n"))
    columns, rows = told[1:]
    assert columns.startswith("2 columns have repeated names: 'a'. All of them are used. Rename")
    assert columns.endswith('drop="a" to exclude all of them.')
    assert rows.startswith(
        "2 rows have repeated names: 'x'. All of them are used. To distinguish them, use another column"
    )


def test_a_first_line_that_may_be_a_row_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert "the file has no header" in noticed(caplog, text(tmp_path, "2001,2002\n1.5,2\n3,1\n"))[0]
    assert "used as the header" in noticed(caplog, text(tmp_path, "who,2001,2002\nx,1.5,2\ny,3,1\n"))[0]


def test_text_that_repeats_does_not_name_rows(tmp_path: Path) -> None:
    assert 'one_hot="species"' in refusal(text(tmp_path, "species,a\nx,1\ny,2\nx,3\n"))


def test_a_wrong_decimal_mark_is_named_as_the_cause(tmp_path: Path) -> None:
    content = "a,b\n" + "".join(f"0.{i},1.{i}\n" for i in range(1, 12))
    message = refusal(text(tmp_path, content), decimal=",")
    assert 'must be numbers. Use decimal="." to parse such numbers.' in message
    assert "drop" not in message


def test_missing_entries_are_named_by_their_columns(tmp_path: Path) -> None:
    message = refusal(text(tmp_path, "age,weight,height\n1,,2\n?,,4\n3,5,n/a\n"))
    assert "4 entries are missing (NaN), in 'age' (1), 'weight' (2), 'height' (1). Remove or fill" in message


def test_wide_texts_are_those_of_narrow_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(9, 40)) * 1e5
    frame = pd.DataFrame(X, [f's"{i}",' for i in range(9)], [f"c{j}" for j in range(40)])
    for settings in ({}, {"sep": ";", "decimal": ","}, {"encoding": "utf-16", "sep": "|"}):
        frame.to_csv(tmp_path / "a.csv", **settings)
        narrow = dense(tmp_path / "a.csv", drop="c3")
        with monkeypatch.context() as patched:
            patched.setattr(delimited, "MOST", 4)
            patched.setattr("shiftsvd.io.formats.text._BLOCK", 1000)
            wide = dense(tmp_path / "a.csv", drop="c3")
        np.testing.assert_array_equal(wide[0], narrow[0])
        np.testing.assert_array_equal(wide[0], frame.drop(columns="c3"))
        for one, other in zip(wide[1], narrow[1], strict=True):
            assert one.tolist() == other.tolist()


def test_wide_texts_are_refused_as_narrow_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "MOST", 1)
    assert "'b' has 1 cell that is no number: 'x' (row 302)" in refusal(
        text(tmp_path, "a,b\n" + "1,2\n" * 300 + "1,x\n")
    )
    assert "row 302 has 3 cells" in refusal(text(tmp_path, "a,b\n" + "1,2\n" * 300 + "1,2,3\n"))
    assert "in column 'b'." in refusal(text(tmp_path, "a,b\n" + "1,2\n" * 300 + "1,.\n"))
    assert "'1_0'" in refusal(text(tmp_path, "a,b\n" + "1,2\n" * 300 + "1,1_0\n"))


def wide(tmp_path: Path, rows: Sequence[Sequence[str]], width: int = 1100) -> Path:
    head, *body = rows
    more = [f"g{j}" for j in range(width)], [f"{j % 7 + 0.5}" for j in range(width)]
    return text(tmp_path, "\n".join(",".join([*row, *more[row is not head and row != head]]) for row in (head, *body)))


def test_wide_tables_have_the_notices_of_narrow_ones(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [["part", "a"], ["x", "1"], ["y", "2.5"], ["part", "a"], ["z", "3"], ["w", "7"], ["Total", "13.5"]]
    with caplog.at_level("INFO", "shiftsvd"):
        X, names = dense(wide(tmp_path, rows))
    assert names.samples.tolist() == ["x", "y", "z", "w"]
    np.testing.assert_array_equal(X[:, 0], [1, 2.5, 3, 7])
    assert "the row that repeats the header is not used" in caplog.text
    assert "the last row is a total ('Total')" in caplog.text
    rows = [["part", "a"], *([label, str(i * i)] for i, label in enumerate(["x", "Total", "y", "Total", "z"]))]
    assert "2 rows may be totals: 'Total' (rows 3 and 5)" in refusal(wide(tmp_path, rows))
    assert dense(tmp_path / "a.csv", ids="part", keep_total=True)[0].shape == (5, 1101)


def test_wide_tables_with_marks_quotes_and_gaps(tmp_path: Path) -> None:
    rows = [["part", "a"], ['"x ""y"" z"', '"1,234.5"'], ["", ""], ['5" pipe', "NA"], ['"two\nlines"', "2 kg"]]
    X, names = dense(wide(tmp_path, rows), ids="part", columns=["g0", "g1"])
    assert names.samples.tolist() == ['x "y" z', "", '5" pipe', "two\nlines"]
    np.testing.assert_array_equal(X, [[0.5, 1.5]] * 4)


GROUPED = ["735", "1.250", "930", "1.377"]


@pytest.mark.parametrize("unit", ["", " €"])
@pytest.mark.parametrize("separator", [";", ","])
def test_groups_of_three_digits_among_whole_numbers_are_refused(tmp_path: Path, separator: str, unit: str) -> None:
    path = text(
        tmp_path, "\n".join(f"{cell}{separator}{i}" for i, cell in enumerate(["a", *(c + unit for c in GROUPED)]))
    )
    message = refusal(path)
    assert f"'1.250{unit}' (rows 3 and 5) may mean 1.25 or 1250. Use decimal=\".\"" in message
    assert profile(path).settings == {"thousands": "."}
    assert dense(path, **profile(path).settings)[0][:, 0].tolist() == [735, 1250, 930, 1377]
    assert dense(path, decimal=".")[0][:, 0].tolist() == [735, 1.25, 930, 1.377]


@pytest.mark.parametrize("odd", ["930.5", "0.125", "9300", "1.2500"])
def test_decimals_of_three_digits_are_no_groups(tmp_path: Path, odd: str, caplog: pytest.LogCaptureFixture) -> None:
    path = text(tmp_path, "\n".join(f"{cell};{i * i}" for i, cell in enumerate(["a", *GROUPED, odd])))
    assert dense(path)[0][1, 0] == 1.25
    assert "1.250" not in caplog.text


def test_groups_in_a_file_with_decimals_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = text(tmp_path, "\n".join(f"{cell};{i}.5" for i, cell in enumerate(["a", *GROUPED])))
    assert "'1.250' (rows 3 and 5) is read as 1.25" in noticed(caplog, path)[-1]
