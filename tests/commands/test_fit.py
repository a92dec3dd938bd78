"""`shiftsvd fit`: a file in, a folder out that pandas, scanpy and programs can read."""

import contextlib
import gzip
import json
import os
import re
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import io, sparse

import shiftsvd
from shiftsvd.cli import main
from shiftsvd.commands.fitting import _with_tolerance
from shiftsvd.commands.writing import Result, printed
from shiftsvd.io import open_matrix
from tests.support.commands import done
from tests.support.places import needs

TOP = (
    *("singular_values", "explained_variance", "explained_variance_ratio", "residuals", "value_errors", "converged"),
    *("n_passes", "seconds", "peak_bytes", "outputs"),
)


@pytest.fixture
def X() -> sparse.csr_array:
    X = sparse.random_array((200, 30), density=0.3, format="csr", rng=0)
    X.data = np.ceil(X.data * 9)
    return X


@pytest.fixture
def file(tmp_path: Path, X: sparse.csr_array) -> Path:
    sparse.save_npz(tmp_path / "X.npz", X)
    return tmp_path / "X.npz"


@pytest.fixture
def named(tmp_path: Path, X: sparse.csr_array) -> Path:
    """A table with awkward names of samples, and names of features."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X.toarray(), [f'cell "{i}", é' for i in range(200)], [f"gene {j}" for j in range(30)])
    frame.to_csv(tmp_path / "X.csv")
    return tmp_path / "X.csv"


def exact(X: sparse.csr_array) -> np.ndarray:
    A = X.toarray()
    return np.linalg.svd(A - A.mean(axis=0), compute_uv=False)


def test_without_a_folder_a_table_is_printed_and_nothing_is_written(file: Path, X: sparse.csr_array) -> None:
    result = done("fit", file, "-k", 3)
    assert f"{exact(X)[0]:.6g}" in result.stdout
    assert result.stderr == ""
    assert [path.name for path in file.parent.iterdir()] == ["X.npz"]


@pytest.mark.parametrize("solver", ["auto", "lanczos", "gram", "exact", "randomized", "shifted-randomized"])
def test_json_is_one_object_with_the_promised_names(solver: str, file: Path, X: sparse.csr_array) -> None:
    told = json.loads(done("fit", file, "-k", 5, "--json", "--solver", solver).stdout)
    assert set(TOP) <= set(told)
    assert all(len(told[name]) == 5 for name in TOP[:5])
    within = 0.2 if "randomized" in solver else 1e-4
    np.testing.assert_allclose(told["singular_values"], exact(X)[:5], rtol=within)
    variance = np.sum(exact(X) ** 2) / 199
    np.testing.assert_allclose(told["explained_variance"], np.array(told["singular_values"]) ** 2 / 199)
    np.testing.assert_allclose(told["explained_variance_ratio"], np.array(told["explained_variance"]) / variance)
    assert told["converged"] is ("randomized" not in solver)
    assert told["n_passes"] >= 1
    assert told["peak_bytes"] is None or told["peak_bytes"] > 0
    assert told["outputs"] == {}


def test_outputs_are_what_the_library_computes(named: Path, X: sparse.csr_array) -> None:
    pd = pytest.importorskip("pandas")
    out = named.parent / "deep" / "out"
    told = json.loads(done("fit", named, "-k", 4, "-o", out, "--scores", "csv", "--json", "--no-report").stdout)
    assert {Path(path).name for path in told["outputs"].values()} == {path.name for path in out.iterdir()}
    model = shiftsvd.load_model(out / "model.safetensors")
    np.testing.assert_array_equal(model.singular_values_, told["singular_values"])
    scores = pd.read_csv(out / "scores.csv", index_col=0, float_precision="round_trip")
    assert list(scores.columns) == ["PC1", "PC2", "PC3", "PC4"]
    assert list(scores.index) == [f'cell "{i}", é' for i in range(200)]
    np.testing.assert_allclose(scores, model.transform(pd.DataFrame(X.toarray(), columns=model.feature_names_in_)))
    components = pd.read_csv(out / "components.csv", index_col=0, float_precision="round_trip")
    assert list(components.index) == [f"gene {j}" for j in range(30)]
    np.testing.assert_array_equal(components, model.components_.T)
    variances = pd.read_csv(out / "variances.csv", index_col=0, float_precision="round_trip")
    np.testing.assert_array_equal(variances["ratio"].cumsum(), variances["cumulative"])
    assert variances["converged"].all()
    assert json.loads((out / "result.json").read_text()) == told


@pytest.mark.parametrize("kind", ["csv", "npy", "parquet", "none"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scores_of_every_kind_are_the_same(kind: str, dtype: str, file: Path, X: sparse.csr_array) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    out = file.parent / "out"
    done("fit", file, "-k", 3, "-o", out, "--scores", kind, "--dtype", dtype, "--no-report", "--memory", "1G")
    if kind == "none":
        assert not list(out.glob("scores.*"))
        return
    if kind == "npy":
        scores = np.load(out / "scores.npy")
        assert scores.dtype == dtype
    else:
        pd = pytest.importorskip("pandas")
        table = (
            pd.read_csv(out / "scores.csv", float_precision="round_trip")
            if kind == "csv"
            else pd.read_parquet(out / "scores.parquet")
        )
        assert list(table.columns) == ["PC1", "PC2", "PC3"]
        scores = table.to_numpy(dtype)
    Z = shiftsvd.load_model(out / "model.safetensors").transform(X)
    np.testing.assert_array_equal(scores, Z.astype(dtype))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data that a limit of 20 MB leaves in their file."""
    X = np.random.default_rng(0).standard_normal((15_000, 100)) * np.geomspace(1, 30, 100)
    folder = tmp_path_factory.mktemp("large")
    np.save(folder / "X.npy", X)
    A, _ = open_matrix(folder / "X.npy", memory_limit="20M")
    assert type(A).__name__ == "DiskRows"
    return folder / "X.npy"


@pytest.mark.long
def test_scores_of_data_that_stay_in_their_file_are_those_of_data_in_memory(large: Path, tmp_path: Path) -> None:
    told, Z = {}, {}
    for memory, out in (("20M", tmp_path / "streamed"), ("1G", tmp_path / "held")):
        line = ("-k", 3, "-o", out, "--scores", "npy", "--memory", memory, "--no-report", "--solver", "lanczos")
        told[memory] = json.loads(done("fit", large, *line, "--json").stdout)
        Z[memory] = np.load(out / "scores.npy")
        done("transform", out / "model.safetensors", large, "-o", tmp_path / "Z.npy", "--force", "--memory", "20M")
        np.testing.assert_allclose(np.load(tmp_path / "Z.npy"), Z[memory], atol=1e-10)
    np.testing.assert_allclose(told["20M"]["singular_values"], told["1G"]["singular_values"], rtol=1e-4)
    np.testing.assert_allclose(Z["20M"].std(axis=0), Z["1G"].std(axis=0), rtol=1e-4)


def test_anndata_holds_the_result_where_scanpy_looks_for_it(named: Path) -> None:
    needs("scanpy")
    anndata = pytest.importorskip("anndata")
    out = named.parent / "out"
    done("fit", named, "-k", 3, "-o", out, "--anndata", "--scores", "npy", "--no-report")
    found = anndata.read_h5ad(out / "fit.h5ad")
    model = shiftsvd.load_model(out / "model.safetensors")
    np.testing.assert_array_equal(found.obsm["X_pca"], np.load(out / "scores.npy"))
    np.testing.assert_array_equal(found.varm["PCs"], model.components_.T)
    np.testing.assert_array_equal(found.uns["pca"]["variance"], model.explained_variance_)
    np.testing.assert_array_equal(found.uns["pca"]["variance_ratio"], model.explained_variance_ratio_)
    assert found.uns["pca"]["params"]["zero_center"]
    assert found.obs_names[1] == 'cell "1", é'
    assert found.var_names[29] == "gene 29"


def test_anndata_without_names_counts_from_zero(file: Path) -> None:
    needs("scanpy")
    anndata = pytest.importorskip("anndata")
    done("fit", file, "-k", 1, "-o", file.parent / "out", "--anndata", "--no-report")
    found = anndata.read_h5ad(file.parent / "out" / "fit.h5ad")
    assert list(found.obs_names[:2]) == ["0", "1"]
    assert found.shape == (200, 30)


@pytest.mark.parametrize("k", [1, pytest.param(4, marks=pytest.mark.long)])
def test_a_report_tells_the_command(k: int, named: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    out = named.parent / "out"
    done("fit", named, "-k", k, "-o", out, "--report")
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"shiftsvd fit {named} -k {k}" in page
    assert "gene 2" in page


def test_a_share_of_the_variance_takes_the_fewest_components_that_exceed_it(file: Path) -> None:
    told = json.loads(done("fit", file, "-k", 0.5, "--json").stdout)
    shares = np.cumsum(told["explained_variance_ratio"])
    assert shares[-1] > 0.5 >= shares[-2]


def test_shift_and_scale_are_those_of_the_library(file: Path, X: sparse.csr_array) -> None:
    A = X.toarray()
    centred = A - A.mean(axis=0)
    expected = {
        ("--shift", "none"): A,
        ("--scale",): centred / A.std(axis=0),
        ("--scale", "std"): centred / A.std(axis=0),
        ("--scale", "pareto"): centred / np.sqrt(A.std(axis=0)),
    }
    for options, B in expected.items():
        for line in ((file, *options), (*options, file)):  # a bare --scale does not swallow the file
            told = json.loads(done("fit", *line, "-k", 2, "--json").stdout)
            np.testing.assert_allclose(told["singular_values"], np.linalg.svd(B, compute_uv=False)[:2], rtol=1e-4)


def test_without_the_means_of_features_a_second_moment_is_not_called_a_variance(file: Path) -> None:
    out = file.parent / "out"
    result = done("fit", file, "-k", 3, "--shift", "none", "-o", out)
    scores = np.asarray(shiftsvd.load_model(out / "model.safetensors").transform(open_matrix(file)[0]), float)
    header, first, *_ = (out / "variances.csv").read_text().splitlines()
    told = float(first.split(",")[header.split(",").index("second_moment")])
    assert np.isclose(told, np.sum(scores[:, 0] ** 2) / 199)
    assert "singular value  second moment   share" in result.stdout
    assert "variance" not in result.stdout + header
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "of the total second moment of" in page
    assert "Explained variance" not in page
    assert "<dt>variance</dt>" not in page
    assert len(json.loads((out / "result.json").read_text())["explained_variance"]) == 3
    assert "The first component is the mean of the rows (|cos| = 0.99" in result.stderr
    assert "Use --shift mean" in page


def test_standard_input_is_read(X: sparse.csr_array, file: Path, tmp_path: Path) -> None:
    io.mmwrite(tmp_path / "X.mtx", X)
    text = (tmp_path / "X.mtx").read_bytes()
    told = json.loads(done("fit", "-", "--format", "mtx", "-k", 3, "--json", input=text).stdout)
    from_file = json.loads(done("fit", file, "-k", 3, "--json").stdout)
    np.testing.assert_allclose(told["singular_values"], from_file["singular_values"])
    (tmp_path / "X.mtx.gz").write_bytes(gzip.compress(text))
    packed = json.loads(done("fit", tmp_path / "X.mtx.gz", "-k", 3, "--json").stdout)
    assert packed["singular_values"] == told["singular_values"]


def test_orientation_can_be_stated(X: sparse.csr_array, tmp_path: Path) -> None:
    np.save(tmp_path / "T.npy", X.toarray().T)
    told = json.loads(done("fit", tmp_path / "T.npy", "--orient", "columns", "-k", 3, "--json").stdout)
    assert told["shape"] == [200, 30]
    np.testing.assert_allclose(told["singular_values"], exact(X)[:3], rtol=1e-4)


def test_the_same_seed_gives_the_same_bits_for_any_number_of_threads(file: Path) -> None:
    lines = [("--seed", seed, "--threads", threads) for seed, threads in ((7, 1), (7, 2), (8, 1))]
    results = [
        json.loads(done("fit", file, "-k", 3, "--solver", "randomized", "--json", *line).stdout)["singular_values"]
        for line in lines
    ]
    assert results[0] == results[1] != results[2]


def test_what_did_not_converge_is_named_on_stderr_and_the_command_goes_on(file: Path) -> None:
    result = done("fit", file, "-k", 5, "--solver", "randomized", "--json", "--tol", 1e-12)
    assert json.loads(result.stdout)["converged"] is False
    assert result.stderr.startswith("warning: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("solver", ["auto", "lanczos", "gram", "exact", "randomized"])
def test_what_can_have_been_missed_is_told_beside_the_values(solver: str, file: Path, X: sparse.csr_array) -> None:
    line = ("fit", file, "-k", 5, "--solver", solver)
    told = json.loads(done(*line, "--json").stdout)
    assert len(told["vector_errors"]) == 5
    assert all(0 <= sine <= 1 for sine in told["vector_errors"])
    assert told["missed_below"] * (1 + 1e-12) >= exact(X)[5]
    complete = told["missed_below"] <= told["singular_values"][-1] * 1.05
    assert told["converged"] is (complete and max(told["value_errors"]) <= 1e-4)
    level = told["missed_below"] / told["singular_values"][-1]
    short, long = done(*line).stdout, done(*line, "-v").stdout
    assert f"Singular values not shown are at most {level:.4g} times the last one" in long
    assert "not shown" not in short
    found = re.findall(r"The relative error of all 5 singular values is at most (.*)\.", short)
    assert len(found) == told["converged"]
    assert all(max(told["value_errors"]) <= float(bound) <= 2 * max(told["value_errors"]) for bound in found)


def test_a_value_without_a_bound_leaves_out_the_sentence_on_accuracy(file: Path) -> None:
    document = json.loads(done("fit", file, "-k", 3, "--json").stdout)
    assert document["converged"]
    run: Any = SimpleNamespace(pca=None, settings=SimpleNamespace(verbose=0))
    assert "The relative error of all 3" in printed(Result(document, run, None), ())
    document["value_errors"][2] = None
    assert "The relative error" not in printed(Result(document, run, None), ())


def test_a_fit_that_may_have_missed_a_value_is_not_called_converged(file: Path, monkeypatch) -> None:
    monkeypatch.setattr("shiftsvd.solvers.reading.CERTIFY_SWEEPS", 1)  # a probe that sees next to nothing
    monkeypatch.setattr("shiftsvd.solvers.reading.USUAL_BLOCK", 1)
    result = done("fit", file, "-k", 5, "--solver", "randomized", "--json", "-o", file.parent / "out")
    told = json.loads(result.stdout)
    assert told["missed_below"] is None or told["missed_below"] > 1.05 * told["singular_values"][-1]
    assert told["converged"] is False
    assert result.stderr.startswith("warning: ")
    table = (file.parent / "out" / "variances.csv").read_text().splitlines()
    assert not any(line.endswith(",true") for line in table[1:])


@pytest.mark.parametrize(("level", "tol", "converged"), [(1.04, 1e-8, True), (1.06, 1e-8, False), (1.06, 0.1, True)])
def test_values_that_are_right_have_converged_only_if_none_was_missed(
    level: float, tol: float, converged: bool
) -> None:
    info = shiftsvd.svd(np.diag([3.0, 2.0, 1.0]), 2, solver="exact", certify=True).info
    info = replace(info, converged=False, value_errors=np.zeros(2), missed_below=2 * level)
    with nullcontext() if converged else pytest.warns(UserWarning, match="missed_below"):
        assert _with_tolerance(info, 2.0, tol).converged is converged
    with pytest.warns(UserWarning, match="missed_below"):
        assert _with_tolerance(replace(info, missed_below=None), 2.0, tol).converged is False


def test_certificates_can_be_left_out(file: Path) -> None:
    told = json.loads(done("fit", file, "-k", 3, "--solver", "exact", "--json", "--no-certify").stdout)
    assert told["value_errors"] is None
    assert told["converged"] is None
    assert " - " in done("fit", file, "-k", 3, "--solver", "exact", "--no-certify").stdout


def test_progress_for_machines_is_one_object_a_line(file: Path) -> None:
    result = done("fit", file, "-k", 3, "--solver", "lanczos", "--json", "--progress", "json")
    json.loads(result.stdout)
    events = [json.loads(line) for line in result.stderr.splitlines()]
    assert all(set(event) == {"stage", "done", "total", "worst"} for event in events)
    counts = [event["done"] for event in events if event["stage"] == "passes"]
    assert counts == sorted(counts)
    assert counts[-1] >= json.loads(result.stdout)["n_passes"]
    assert events[-1]["worst"] <= 1e-4


def test_progress_that_is_asked_for_is_told_in_quiet_too(file: Path) -> None:
    lines = done("fit", file, "-k", 3, "--progress", "json", "--quiet").stderr.splitlines()
    assert lines
    assert all(json.loads(line)["stage"] == "passes" for line in lines)
    assert "passes" in done("fit", file, "-k", 3, "--progress", "always", "-q").stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_person_is_told_what_a_folder_would_get(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pty

    ours, theirs = pty.openpty()
    said: list[bytes] = []

    def listen() -> None:  # until the terminal is closed; it holds a few kilobytes
        with contextlib.suppress(OSError):
            while part := os.read(ours, 4096):
                said.append(part)

    listener = threading.Thread(target=listen)
    listener.start()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with pytest.raises(SystemExit, match=r"^0$"):
            main(["fit", str(file), "-k", "3"])
    listener.join()
    os.close(ours)
    assert b"Use -o FOLDER to write the scores" in b"".join(said)


def test_progress_is_silent_where_stderr_is_no_terminal(file: Path) -> None:
    assert done("fit", file, "-k", 3).stderr == ""
    assert done("fit", file, "-k", 3, "--quiet").stderr == ""
    assert "passes" in done("fit", file, "-k", 3, "--progress", "always").stderr


@pytest.mark.long
def test_a_checkpoint_is_gone_when_the_outputs_are_there(large: Path, tmp_path: Path) -> None:
    line = (
        "fit",
        large,
        "-k",
        3,
        "--memory",
        "20M",
        "--solver",
        "lanczos",
        "--checkpoint",
        tmp_path / "kept",
        "--json",
    )
    plain = json.loads(done(*line[:-3], "--json").stdout)
    kept = json.loads(done(*line, "-o", tmp_path / "out").stdout)
    assert kept["singular_values"] == plain["singular_values"]
    assert not (tmp_path / "kept").exists()


def test_environment_variables_are_options(file: Path) -> None:
    told = json.loads(done("fit", file, "--json", env={"SHIFTSVD_FIT_K": "2"}).stdout)
    assert told["n_components"] == 2


def test_fifty_components_or_all_there_are_is_the_default(file: Path) -> None:
    assert json.loads(done("fit", file, "--json").stdout)["n_components"] == 30


def test_colours_can_be_left_out(file: Path) -> None:
    line = ("fit", file, "-k", 3, "--progress", "always")
    assert "\x1b[3" in done(*line, env={"NO_COLOR": None, "TERM": "xterm-256color"}).stderr
    assert "\x1b[3" not in done(*line, env={"NO_COLOR": "1", "TERM": "xterm-256color"}).stderr


def test_outputs_of_an_earlier_run_that_stay_are_named(file: Path) -> None:
    out = file.parent / "out"
    line = ("fit", file, "-k", 2, "-o", out, "--no-report")
    assert "warning" not in done(*line, "--scores", "csv").stderr
    assert (
        f"warning: {out} still contains scores.csv of an earlier run"
        in done(*line, "--scores", "npy", "--force").stderr
    )


def test_verbose_tells_which_solver_and_why(file: Path) -> None:
    result = done("fit", file, "-k", 3, "-v", "--json")
    assert "the solver is Exact() (predicted times for 3 components of a 200 x 30 matrix" in result.stderr
    json.loads(result.stdout)


def test_long_blocks_are_written_in_parts(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("scanpy")
    pytest.importorskip("pyarrow")
    pytest.importorskip("h5py")
    done("fit", file, "-k", 3, "-o", file.parent / "whole", "--scores", "csv", "--no-report", "--anndata")
    monkeypatch.setattr("shiftsvd.commands.tables.ENTRIES", 20)
    done("fit", file, "-k", 3, "-o", file.parent / "parts", "--scores", "csv", "--no-report", "--anndata")
    for name in ("scores.csv", "components.csv", "fit.h5ad"):
        assert (file.parent / "whole" / name).read_bytes() == (file.parent / "parts" / name).read_bytes()
