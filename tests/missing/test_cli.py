"""`shiftsvd fit --missing`: files with missing entries, as the library treats them."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse

import shiftsvd as ss
from shiftsvd.cli import main
from tests.support.commands import invoke
from tests.support.holes import holed, mean_filled


def told(*args: object) -> dict:
    result = invoke("fit", *args, "--json", "-k", 3)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def X() -> np.ndarray:
    return holed((60, 8))


@pytest.fixture
def file(X: np.ndarray, tmp_path: Path) -> Path:
    np.save(tmp_path / "X.npy", X)
    return tmp_path / "X.npy"


@pytest.fixture
def ratings(X: np.ndarray, tmp_path: Path) -> Path:
    sparse.save_npz(tmp_path / "ratings.npz", sparse.csr_array(np.nan_to_num(X)))
    return tmp_path / "ratings.npz"


def test_missing_entries_are_an_error_unless_something_stands_for_them(file: Path) -> None:
    result = invoke("fit", file)
    assert result.exit_code == 1
    assert "NaN" in result.stderr


@pytest.mark.parametrize("scale", [(), ("--scale",)])
def test_the_mean_stands_for_missing_entries(scale: tuple[str, ...], file: Path, X: np.ndarray) -> None:
    found = told(file, "--missing", "mean", *scale)
    E = mean_filled(X)
    off = (E - E.mean(axis=0)) / (np.nanstd(X, axis=0) if scale else 1)
    np.testing.assert_allclose(found["singular_values"], np.linalg.svd(off)[1][:3], rtol=1e-4)
    assert (found["settings"]["missing"], found["settings"]["unobserved"]) == ("mean", False)
    assert (found["shape"], found["stored"]) == ([60, 8], 480)


def test_what_a_sparse_file_does_not_store_is_zero_or_missing(ratings: Path, X: np.ndarray) -> None:
    values = {line: told(ratings, *line)["singular_values"] for line in ((), ("--missing", "mean", "--unobserved"))}
    for E, found in zip((np.nan_to_num(X), mean_filled(X)), values.values(), strict=True):
        np.testing.assert_allclose(found, np.linalg.svd(E - E.mean(axis=0))[1][:3], rtol=1e-4)


@pytest.mark.parametrize("missing", ["mean", "em"])
@pytest.mark.parametrize("unobserved", [False, True])
def test_new_samples_are_treated_as_the_model_says(missing: str, unobserved: bool, file: Path, ratings: Path) -> None:
    given, more = (ratings, ["--unobserved"]) if unobserved else (file, [])
    out = file.parent / "out"
    told(given, "--missing", missing, *more, "-o", out, "--scores", "npy", "--no-report")
    assert invoke("transform", out / "model.safetensors", given, "-o", out / "Z.npy").exit_code == 0
    np.testing.assert_array_equal(np.load(out / "Z.npy"), np.load(out / "scores.npy"))
    pca = ss.load_model(out / "model.safetensors")
    assert (pca.missing, pca.unobserved) == (missing, unobserved)
    D = sparse.load_npz(given) if unobserved else np.load(given)
    np.testing.assert_allclose(np.load(out / "Z.npy"), pca.transform(D), atol=1e-12)


def test_a_large_file_with_gaps_is_read_in_blocks_and_standard_input_whole(tmp_path: Path) -> None:
    X = holed((20_000, 100), 0.1) * np.geomspace(1, 9, 100)
    np.save(tmp_path / "X.npy", X)
    line = ("fit", "--missing", "mean", "-k", 3, "--scale", "--json", "--solver", "lanczos")
    streamed = invoke(*line, tmp_path / "X.npy", "--memory", "30M", "--checkpoint", tmp_path / "kept")
    data = (tmp_path / "X.npy").read_bytes()
    whole = CliRunner().invoke(main, [str(arg) for arg in (*line, "-", "--format", "npy")], input=data)
    values = [json.loads(result.stdout)["singular_values"] for result in (streamed, whole)]
    np.testing.assert_allclose(*values, rtol=1e-4)
    E = mean_filled(X)
    off = (E - E.mean(axis=0)) / np.nanstd(X, axis=0)
    np.testing.assert_allclose(values[0], np.sqrt(np.linalg.eigvalsh(off.T @ off)[:-4:-1]), rtol=1e-4)


def test_names_of_features_with_gaps_are_matched(X: np.ndarray, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    frame.to_csv(tmp_path / "X.csv", index=False)
    frame[list("hgfedcba")].to_csv(tmp_path / "turned.csv", index=False)
    out = tmp_path / "out"
    told(tmp_path / "X.csv", "--missing", "em", "-o", out, "--scores", "npy", "--no-report")
    result = invoke("transform", out / "model.safetensors", tmp_path / "turned.csv", "-o", out / "Z.npy")
    assert result.exit_code == 0, result.output
    np.testing.assert_allclose(np.load(out / "Z.npy"), np.load(out / "scores.npy"), atol=1e-10)


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (["--unobserved"], 2, "--missing mean or --missing em"),
        (["--missing", "em", "-k", 0.5], 2, "needs a number of components"),
        (["--missing", "mean", "--workers", 2], 2, "Remove --scheduler and --workers"),
        (["--missing", "mean", "--shift", "none"], 1, "--missing mean requires --shift mean"),
        (["--missing", "mean", "--unobserved"], 1, "got a dense one"),
        (["--missing", "em", "--memory", 2000], 1, "more than the limit"),
        (["--max-iter", 9], 2, "--max-iter needs --missing em, got --missing error"),
        (["--missing", "mean", "--penalty", 0], 2, "--penalty needs --missing em, got --missing mean"),
        (["--missing", "em", "--penalty", "much"], 2, "got 'much'"),
        (["--missing", "em", "--penalty", "nan"], 2, "got 'nan'"),
        (["--missing", "em", "--max-iter", 0], 2, "0 is not in the range"),
    ],
)
def test_what_cannot_be_is_one_line(line: list[object], code: int, message: str, file: Path) -> None:
    result = invoke("fit", file, *line)
    assert result.exit_code == code
    assert message in result.stderr.splitlines()[-1]


# --- what is said of missing entries ------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["mean", "em"])
def test_missing_entries_are_counted_and_shares_said_to_be_of_what_they_are_of(
    missing: str, file: Path, X: np.ndarray
) -> None:
    out = file.parent / "out"
    found = told(file, "--missing", missing, "-o", out)
    assert found["n_missing"] == np.isnan(X).sum()
    assert json.loads((out / "result.json").read_text()) == found
    facts = json.loads(invoke("info", out / "model.safetensors", "--json").stdout)
    for name in ("n_missing", "heldout_r2", "completed", "variance_of", "converged"):
        assert facts[name] == found[name]
    text = invoke("fit", file, "--missing", missing, "-k", 3).stdout
    assert f"{found['n_missing']} missing values" in text
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"<dt>Missing values</dt><dd>{found['n_missing']}</dd>" in page
    assert "which is exact" not in page
    if missing == "mean":
        assert (found["heldout_r2"], found["completed"]) == (None, None)
        assert "with missing values replaced by the means" in text
        assert "missing values were replaced by the means of their columns" in page
    else:
        assert found["completed"] is True
        assert isinstance(found["heldout_r2"], float)
        assert f"R^2 = {found['heldout_r2']:.3f}" in text
        assert "shares of the variance refer to the completed matrix" in text
        assert f"R² = {found['heldout_r2']:.3f}" in page
        assert "This is not a share of the data" in page
        assert "of the variance of the completed matrix" in page
        assert (found["settings"]["penalty"], found["settings"]["max_iter"]) == ("auto", 300)


def test_missing_values_of_land_alone_are_no_predictions(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((40, 12))
    X[:, [2, 7]] = np.nan
    np.save(tmp_path / "X.npy", X)
    found = told(tmp_path / "X.npy", "--missing", "em", "-o", tmp_path / "out")
    assert found["variance_of"] == "the data, without 2 features that have no values"
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "All 80 missing values are in\n2 features without any value" in page
    assert "This is not a share of the data" not in page


def test_a_fit_without_gaps_says_what_it_said(tmp_path: Path, X: np.ndarray) -> None:
    np.save(tmp_path / "X.npy", np.nan_to_num(X))
    found = told(tmp_path / "X.npy", "-o", tmp_path / "out")
    assert (found["n_missing"], found["heldout_r2"], found["completed"]) == (None, None, None)
    assert found["variance_of"] == "the data"
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "which was computed from all entries" in page
    assert "Missing values" not in page


@pytest.mark.parametrize("solver", ["auto", pytest.param("randomized", marks=pytest.mark.long)])
def test_a_completion_that_stopped_unfinished_has_not_converged_in_any_output(
    solver: str, file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    line = ("fit", file, "--missing", "em", "-k", 3, "--max-iter", 2, "--penalty", 0.5, "--solver", solver)
    result = invoke(*line, "--tol", 0.5, "--json", "-o", out)
    assert result.exit_code == 0
    assert "did not converge in 2 steps" in result.stderr
    found = json.loads(result.stdout)
    assert (found["converged"], found["completed"]) == (False, False)
    assert (found["settings"]["penalty"], found["settings"]["max_iter"]) == (0.5, 2)
    lines = (out / "variances.csv").read_text().splitlines()
    assert [row.split(",")[-1] for row in lines[1:]] == ["false"] * 3
    facts = json.loads(invoke("info", out / "model.safetensors", "--json").stdout)
    assert (facts["converged"], facts["completed"]) == (False, False)
    assert (facts["settings"]["penalty"], facts["settings"]["max_iter"]) == (0.5, 2)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "The prediction of missing values reached its limit of iterations" in page
    assert "Raise max_iter or penalty" in page
    assert '<td class="yes">' not in page
    assert "The error bounds of component" not in page
    assert "The completion of missing values did not converge" in invoke(*line).stdout


def test_info_counts_what_is_missing_in_a_file(file: Path, ratings: Path, X: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "whole.npy", np.arange(12).reshape(4, 3))
    (tmp_path / "X.csv").write_text("a,b\n1,nan\n2,3\n")
    sparse.save_npz(tmp_path / "stored.npz", sparse.csc_array(X))
    counts = {"X.npy": np.isnan(X).sum(), "whole.npy": 0, "ratings.npz": 0, "stored.npz": np.isnan(X).sum(), "X.csv": 1}
    for name, count in counts.items():
        assert json.loads(invoke("info", tmp_path / name, "--json").stdout)["n_missing"] == count
    assert f"n_missing       {counts['X.npy']}" in invoke("info", file).stdout
    whole = invoke("info", ratings, "--json").stdout
    assert json.loads(whole)["stored"] < X.size
