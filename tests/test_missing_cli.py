"""`shiftsvd fit --missing`: files with missing entries, as the library treats them."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse

import shiftsvd as ss
from holes import holed, mean_filled
from shiftsvd.cli import main


def invoke(*args: object):
    return CliRunner().invoke(main, [str(arg) for arg in args])


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
    pca = ss.load(out / "model.safetensors")
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
        (["--missing", "mean", "--workers", 2], 2, "leave out --scheduler and --workers"),
        (["--missing", "mean", "--shift", "none"], 1, 'shift="mean"'),
        (["--missing", "mean", "--unobserved"], 1, "it is dense"),
        (["--missing", "em", "--memory", 2000], 1, "more than the limit"),
    ],
)
def test_what_cannot_be_is_one_line(line: list[object], code: int, message: str, file: Path) -> None:
    result = invoke("fit", file, *line)
    assert result.exit_code == code
    assert message in result.stderr.splitlines()[-1]
