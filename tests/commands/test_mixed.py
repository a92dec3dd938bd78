"""`fit --mixed`, `--supplementary` and `--contributions` give the numbers of `FAMD` and `supplementary`."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftsvd as ss
from tests.support.commands import done, invoke, told

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

QUIET = ("-q", "--no-report", "--scores", "csv", "--tol", "1e-12")


@pytest.fixture
def frame() -> Any:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 60)
    return pd.DataFrame(
        {
            "age": 40 + 9 * kind + rng.standard_normal(60).round(2),
            "town": np.array(["Pau", "Metz", "b=1"])[np.where(rng.random(60) < 0.7, kind, 0)],
            "visits": rng.poisson(3 + kind),
            "ill": np.where(rng.random(60) < 0.3 * kind, "yes", "no"),
            "country": rng.choice(["DE", "FR"], 60),
            "spend": (kind + rng.standard_normal(60)).round(3),
        }
    )


ACTIVE = ["age", "town", "visits", "ill"]


def scores_in(folder: Path) -> Any:
    return pd.read_csv(folder / "scores.csv").filter(regex="^PC").to_numpy()


def write(frame: Any, path: Path) -> Path:
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        german = {"sep": ";", "decimal": ","} if path.stem == "german" else {}
        frame.to_csv(path, index=False, **german)
    return path


@pytest.mark.one_in(2)
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("name", ["a.csv", "german.csv", "a.parquet"])
def test_scores_and_positions_are_those_of_python(name: str, gaps: bool, frame: Any, tmp_path: Path) -> None:
    more: tuple[str, ...] = ()
    if gaps:
        frame.loc[3, "town"], frame.loc[[5, 6], "age"], frame.loc[7, "country"] = None, np.nan, None
        frame.loc[9, "spend"] = np.nan
        more = ("--missing", "mean")
    file, out = write(frame, tmp_path / name), tmp_path / "out"
    options = ("--mixed", "--supplementary", "country,spend", "--contributions")
    result = told("fit", file, "-k", 3, *options, "-o", out, *QUIET, *more)
    famd = ss.FAMD(3, missing="mean", solver="exact").fit(frame[ACTIVE])
    want, Z = famd.transform(frame[ACTIVE]), scores_in(out)
    turn = np.sign((Z * want).sum(axis=0))
    np.testing.assert_allclose(Z * turn, want, atol=1e-8)
    np.testing.assert_allclose(result["explained_variance"], famd.eigenvalues_ * 60 / 59, rtol=1e-9)
    assert result["settings"]["mixed"] is True
    found = ss.supplementary(frame[["country", "spend"]], Z)
    table = pd.read_csv(out / "supplementary.csv")
    positions = table[table["kind"] != "correlation ratio"]
    np.testing.assert_allclose(positions.filter(regex="^PC"), found.coordinates, atol=1e-10)
    np.testing.assert_allclose(positions.filter(regex="^v_test_PC"), found.v_tests, atol=1e-9)
    assert positions["rows"].tolist() == found.counts.tolist()
    assert table["category"].fillna("").tolist() == ["DE", "FR", "", ""]
    np.testing.assert_allclose(
        table.iloc[-1][["PC1", "PC2", "PC3"]].astype(float), found.correlation_ratios.loc["country"], atol=1e-10
    )
    shares = pd.read_csv(out / "contributions.csv")
    np.testing.assert_allclose(shares.filter(regex="^contrib"), famd.row_contributions(frame[ACTIVE]), atol=1e-8)
    np.testing.assert_allclose(shares.filter(regex="^cos2"), famd.row_cosine_similarities(frame[ACTIVE]), atol=1e-8)
    # Supplementary rows: new samples by names of columns, without the supplementary ones.
    new = write(frame[ACTIVE[::-1]].iloc[10:15], tmp_path / f"new{file.suffix}")
    done("transform", out / "model.safetensors", new, "-o", tmp_path / "new-scores.csv", "-q")
    np.testing.assert_allclose(pd.read_csv(tmp_path / "new-scores.csv"), Z[10:15], atol=1e-9)


def test_stacked_files_and_a_row_of_totals_are_the_same_samples(frame: Any, tmp_path: Path) -> None:
    file = write(frame, tmp_path / "a.csv")
    options = ("-k", 2, "--mixed", "--supplementary", "country", "--supplementary", "spend", *QUIET)
    done("fit", file, *options, "-o", tmp_path / "one")
    total = f"{frame['age'].sum():.2f},,{frame['visits'].sum()},,,\n"
    (tmp_path / "total.csv").write_text(file.read_text() + total)
    parts = [write(part, tmp_path / f"{i}.csv") for i, part in enumerate((frame[:25], frame[25:]))]
    for words in ([tmp_path / "total.csv"], [*parts, "--stack", "rows"]):
        done("fit", *words, *options, "-o", tmp_path / "other", "--force")
        for name in ("scores.csv", "supplementary.csv"):
            found, want = (pd.read_csv(tmp_path / folder / name) for folder in ("other", "one"))
            pd.testing.assert_frame_equal(found, want, atol=1e-9)


def test_codes_and_labels_of_samples_keep_their_uses(frame: Any, tmp_path: Path) -> None:
    frame.insert(0, "name", [f"p{i}" for i in range(60)])
    file = write(frame, tmp_path / "a.csv")
    options = ("-k", 2, "--mixed", "--supplementary", "spend", "--no-report", "-o", tmp_path / "o")
    assert done("fit", file, *options).stderr.count("is used for row names") == 1
    done("fit", file, "-k", 2, "--mixed", "--one-hot", "visits", "--drop", "spend", "-o", tmp_path / "out", *QUIET)
    names = ss.load_model(tmp_path / "out" / "model.safetensors", ss.PCA).feature_names_in_.tolist()
    assert names[:4] == ["age", "town=Metz", "town=Pau", "town=b=1"]
    assert "visits=3" in names
    assert "country=DE" in names
    assert not any(name.startswith(("name", "spend")) for name in names)
    famd = ss.FAMD(2, solver="exact").fit(frame[[*ACTIVE, "country"]].astype({"visits": str}))
    Z = scores_in(tmp_path / "out")
    np.testing.assert_allclose(
        np.abs(Z), np.abs(famd.transform(frame[[*ACTIVE, "country"]].astype({"visits": str}))), atol=1e-7
    )


def test_supplementary_columns_of_a_plain_fit_are_left_out(frame: Any, tmp_path: Path) -> None:
    file, numbers = write(frame.drop(columns=["town", "ill"]), tmp_path / "a.csv"), frame[["age", "visits"]]
    options = ("--supplementary", "country,spend", "--scale", "--contributions", "-o", tmp_path / "out", *QUIET)
    done("fit", file, "-k", 2, *options)
    pca = ss.PCA(2, scale="std", solver="exact").fit(numbers)
    np.testing.assert_allclose(np.abs(scores_in(tmp_path / "out")), np.abs(pca.transform(numbers)), atol=1e-9)
    shares = pd.read_csv(tmp_path / "out" / "contributions.csv")
    assert shares.filter(regex="^contrib").sum().to_numpy() == pytest.approx([1, 1])
    assert shares.filter(regex="^cos2").sum(axis=1).to_numpy() == pytest.approx(np.ones(60))


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("--mixed --supplementary cuntry", 1, "got --supplementary cuntry. Did you mean 'country'?"),
        ("--mixed --scale", 2, "--mixed centres and scales all columns by rules of its own. Remove --scale."),
        ("--mixed --shift none", 2, "--mixed centres and scales all columns by rules of its own. Remove --shift."),
        ("--mixed --orient columns", 2, "--mixed needs one table with samples as rows. Remove --orient columns."),
        ("--supplementary country --drop country", 2, "must have one use, but is in --drop and --supplementary"),
        ("--mixed --drop town,ill,country", 1, "has no column of categories for --mixed"),
        ("--mixed --supplementary day", 1, "'day' (the date '2020-01-01') must be numbers. Use --ids day"),
        ("--mixed --drop day", 1, "Use --missing mean"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(words: str, code: int, message: str, frame: Any, tmp_path: Path) -> None:
    frame["day"] = pd.date_range("2020-01-01", periods=60).astype(str)
    if "--drop day" in words:
        frame.loc[3, "town"] = None
    file = write(frame, tmp_path / "a.csv")
    drop = () if "day" in words else ("--drop", "day") if "--drop" not in words else ()
    result = invoke("fit", file, "-k", 2, *words.split(), *drop, "-o", tmp_path / "out", "-q")
    assert result.exit_code == code, result.output
    assert message in result.stderr
    assert not (tmp_path / "out").exists()
    if "--drop day" in words:
        assert "Use --drop town to exclude" in result.stderr


def test_other_files_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.ones((5, 3)))
    for option in (("--mixed",), ("--supplementary", "a")):
        result = invoke("fit", tmp_path / "X.npy", "-k", 2, *option, "-o", tmp_path / "out")
        assert result.exit_code == 1
        assert f"{option[0]} needs a table such as CSV or Parquet" in result.stderr
        assert "is read twice" in invoke("fit", "-", "--format", "csv", "-k", 2, *option, "-o", tmp_path / "o").stderr
    assert "--supplementary needs an output folder" in invoke("fit", tmp_path / "X.npy", "--supplementary", "a").stderr


@pytest.mark.long
@pytest.mark.figures
def test_the_report_shows_where_supplementary_columns_are(frame: Any, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    file = write(frame.assign(note="=1+1"), tmp_path / "a.csv")
    options = ("--mixed", "--supplementary", "country,spend,note", "--report", "-o")
    for k in (1, 3):
        assert "=1+1" in done("fit", file, "-k", k, *options, tmp_path / str(k)).stderr
        page = (tmp_path / str(k) / "report.html").read_text()
        assert all(name in page for name in ("country=DE", "note==1+1", "<td>spend</td>", "Supplementary columns"))
    assert "Green marks are supplementary columns" in page
    assert "test of PC3" in page
    assert "to supplementary.csv." not in page


def test_the_report_says_that_data_are_mixed(frame: Any, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    file = write(frame[ACTIVE], tmp_path / "a.csv")
    printed = done("fit", file, "--mixed", "--report", "-o", tmp_path / "out").stdout
    assert "2 further components have variance 0." in printed
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<h1>Factor analysis of mixed data (FAMD): 5 components</h1>" in page
    assert "categories by roots of their frequencies" in page
    assert "7 numbers" not in page
    assert "<dd>7, of 4 columns</dd>" in page
    assert re.search(r"large values of <b>[^<]*age[^<]*</b>", page)
    assert re.search(r"<b>[^<]*ill = yes[^<]*</b> (more|less) often", page)


def test_missing_values_are_counted_in_cells_of_the_table(frame: Any, tmp_path: Path) -> None:
    frame.loc[[3, 4], "town"], frame.loc[5, "age"] = None, np.nan
    file = write(frame[ACTIVE], tmp_path / "a.csv")
    for words in (("--mixed",), ("--one-hot", "town,ill")):
        for missing in ("mean", "em"):
            result = told("fit", file, "-k", 2, *words, "--missing", missing)
            assert result["n_missing"] == 3
    assert "3 missing values (1.2%)" in done("fit", file, "-k", 2, "--mixed", "--missing", "mean").stdout
    refused = invoke("fit", file, "-k", 2, "--mixed").stderr
    assert "3 entries are missing (NaN), in 'age' (1), 'town' (2)" in refused
    assert "Use --drop age,town to exclude these columns." in refused
