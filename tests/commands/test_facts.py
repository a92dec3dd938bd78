"""`shiftsvd info`, `estimate` and `convert`, as they are typed."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scipy import io, sparse

import shiftsvd
from shiftsvd.io import open_matrix
from tests.support.commands import done, invoke, told
from tests.support.places import needs


@pytest.fixture
def X() -> sparse.csr_array:
    return sparse.random_array((80, 25), density=0.2, format="csr", rng=0)


@pytest.fixture
def file(tmp_path: Path, X: sparse.csr_array) -> Path:
    sparse.save_npz(tmp_path / "X.npz", X)
    return tmp_path / "X.npz"


def test_info_says_what_a_sparse_file_holds(file: Path, X: sparse.csr_array) -> None:
    facts = told("info", file)
    assert (facts["format"], facts["samples"], facts["features"], facts["stored"]) == ("npz", 80, 25, X.nnz)
    assert facts["dtype"] == "float64"
    assert facts["memory_bytes"] >= X.data.nbytes
    assert facts["sample_names"] is None
    assert told("info", file, "--orient", "columns")["samples"] == 25
    text = invoke("info", file).stdout
    assert "feature_names   none" in text


def test_info_says_what_a_dense_file_holds_and_that_it_can_be_read_in_blocks(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.ones((30, 4), np.float32))
    facts = told("info", tmp_path / "X.npy")
    assert facts["read_in_blocks"]
    assert "read_in_blocks  if larger than half of the memory limit" in invoke("info", tmp_path / "X.npy").stdout
    assert facts["memory_bytes"] == 30 * 4 * 4


@pytest.mark.parametrize(
    "name",
    [
        "-x.csv",
        "a b.csv",
        "it's.csv",
        "$HOME`x`'.csv",
        "n\nl\t'\\x.csv",
        "\x1b[1m.csv",
        "\u202eabc.csv",
        "bad\udcff.csv",
    ],
)
def test_the_command_of_info_can_be_pasted_into_a_shell(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    monkeypatch.chdir(tmp_path)
    Path(name).write_text("a,b\n1,2\n3,5\n7,6\n")
    command = done("info", "--", name).stdout.splitlines()[-1].partition(" ")[2].strip()
    said = subprocess.run(
        ["bash", "-c", f'set -- {command}; printf "%s\\0" "$@"'], capture_output=True, check=True
    ).stdout
    words = [os.fsdecode(word) for word in said.split(b"\0")[:-1]]
    assert words[:2] == ["shiftsvd", "fit"]
    assert Path(words[2]) == Path(name)
    done(*words[1:], "-k", 1)


def test_info_gives_the_first_names(tmp_path: Path) -> None:
    (tmp_path / "X.csv").write_text(",a,b,c,d\nr1,1,2,3,4\nr2,5,6,7,8\n")
    facts = told("info", tmp_path / "X.csv")
    assert facts["feature_names"] == ["a", "b", "c"]
    assert facts["sample_names"] == ["r1", "r2"]
    assert "a, b, c" in invoke("info", tmp_path / "X.csv").stdout


def test_info_reads_standard_input(X: sparse.csr_array, tmp_path: Path) -> None:
    io.mmwrite(tmp_path / "X.mtx", X)
    facts = told("info", "-", "--format", "mtx", input=(tmp_path / "X.mtx").read_bytes())
    assert (facts["samples"], facts["features"]) == (80, 25)
    assert facts == told("info", tmp_path / "X.mtx") | {"file": "-"}


def test_info_counts_missing_values_of_standard_input(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.array([[1.0, np.nan], [2.0, 3.0]]))
    facts = told("info", "-", "--format", "npy", input=(tmp_path / "X.npy").read_bytes())
    assert (facts["n_missing"], facts["file"]) == (1, "-")


def test_info_says_what_a_model_holds(file: Path, tmp_path: Path) -> None:
    fit = invoke("fit", file, "-k", 3, "--seed", 5, "-o", tmp_path / "out", "--no-report", "--scores", "none")
    assert fit.exit_code == 0, fit.output
    facts = told("info", tmp_path / "out" / "model.safetensors")
    assert (facts["n_components"], facts["n_samples"], facts["n_features"]) == (3, 80, 25)
    assert facts["settings"]["random_state"] == 5
    assert facts["provenance"]["source"] == str(file)
    assert facts["converged"] is True
    assert "BlockLanczos" in facts["solver"] or "Gram" in facts["solver"] or "Exact" in facts["solver"]


def test_estimate_says_what_the_library_says(file: Path, X: sparse.csr_array) -> None:
    facts = told("estimate", file, "-k", 5, "--solver", "lanczos")
    expected = shiftsvd.estimate(X, 5, "lanczos", probe=True, shift="mean")
    assert facts["peak_bytes"] == expected.peak_bytes
    assert facts["peak_of"] == "fit"
    assert facts["n_passes"] == expected.n_passes
    assert facts["passes_range"] == list(expected.passes_range)
    assert expected.passes_range[0] <= expected.n_passes <= expected.passes_range[1]
    assert facts["seconds_per_pass"] > 0
    chosen = told("estimate", file, "-k", 5)
    kind = chosen["solver"].partition("(")[0]
    # The reason says what the numbers say, without the time of opening.
    assert f"{kind} {chosen['seconds'] - chosen['seconds_to_open']:.2g} s" in chosen["reason"]
    assert "peak_bytes" in invoke("estimate", file, "-k", 5).stdout
    assert invoke("estimate", file, "-k", 26).exit_code == 2


def test_estimate_counts_the_time_of_reading_a_text(tmp_path: Path) -> None:
    (tmp_path / "X.csv").write_text("a,b,c\n" + "1.25,2.5,3.75\n4.5,1.5,0.25\n" * 50_000)
    facts = told("estimate", tmp_path / "X.csv", "-k", 1)
    passes = facts["n_passes"] * facts["seconds_per_pass"]
    assert facts["seconds"] == pytest.approx(facts["seconds_to_open"] + passes)
    assert facts["seconds_to_open"] > passes


@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_convert_writes_the_same_matrix_and_names(suffix: str, tmp_path: Path) -> None:
    needs("scanpy")  # which reads the names in the layout of AnnData
    pytest.importorskip({"h5ad": "h5py", "zarr": "zarr"}[suffix])
    (tmp_path / "X.csv").write_text(",a,b,c\nr1,1,0,3\nr2,0,6,7\n")
    out = tmp_path / f"X.{suffix}"
    result = invoke("convert", tmp_path / "X.csv", out)
    assert result.exit_code == 0, result.output
    A, names = open_matrix(out)
    np.testing.assert_array_equal(A @ np.eye(3), [[1, 0, 3], [0, 6, 7]])
    assert list(names.samples) == ["r1", "r2"]
    assert list(names.features) == ["a", "b", "c"]
    again = invoke("convert", tmp_path / "X.csv", out)
    assert again.exit_code == 1
    assert "--force" in again.stderr
    assert invoke("convert", tmp_path / "X.csv", out, "--force", "--compression", "gzip").exit_code == 0


def test_info_refuses_a_name_that_fit_refuses(tmp_path: Path) -> None:
    for name, row in (("n" * 1001, "a"), ("n", "a" * 1001)):
        (tmp_path / "X.csv").write_text(f"id,{name},c\n{row},1,2.5\nb,3,1.5\nc,2,3.5\n")
        info, fit = (invoke(verb, tmp_path / "X.csv") for verb in ("info", "fit"))
        assert (info.exit_code, fit.exit_code, info.stderr in fit.stderr) == (1, 1, True)
        assert "has a name of 1,001 characters. Shorten it to at most 1,000." in info.stderr
