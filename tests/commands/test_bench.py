"""`shiftsvd bench` and `shiftsvd info`, as they are typed."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import io, sparse

from shiftsvd.kernels import instruction_set
from tests.support.commands import invoke


@pytest.fixture
def X() -> sparse.csr_array:
    return sparse.random_array((400, 60), density=0.2, format="csr", rng=0)


def test_info_names_the_kernels_and_the_threads() -> None:
    assert instruction_set() in invoke("info").output
    facts = json.loads(invoke("info", "--json").output)
    assert facts["kernels"] == instruction_set()
    assert facts["threads"] >= 1
    assert "kernels_lacking" not in facts


def test_info_says_what_helps_where_the_kernels_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shiftsvd.commands.facts.lacking", "missing: do this")
    assert "missing: do this" in invoke("info").output
    assert json.loads(invoke("info", "--json").output)["kernels_lacking"] == "missing: do this"


@pytest.mark.parametrize("name", ["X.npz", "X.npy", "X.mtx"])
def test_bench_times_each_solver_on_a_file(name: str, tmp_path: Path, X: sparse.csr_array) -> None:
    file = tmp_path / name
    if name == "X.npz":
        sparse.save_npz(file, X)
    elif name == "X.npy":
        np.save(file, X.toarray())
    else:
        io.mmwrite(file, X)
    done = invoke("bench", str(file), "-k", "5", "--rounds", "1")
    assert done.exit_code == 0
    for solver in ("auto", "lanczos", "gram", "randomized"):
        assert f"\n{solver} " in done.output
    told = json.loads(invoke("bench", str(file), "-k", "5", "--rounds", "1", "--solver", "gram", "--json").output)
    assert told["shape"] == [400, 60]
    assert told["solvers"][0]["value_error"] <= 1e-4


def test_bench_compares_with_the_values_of_the_smallest_bound(tmp_path: Path, X: sparse.csr_array) -> None:
    sparse.save_npz(tmp_path / "X.npz", X)
    done = invoke("bench", tmp_path / "X.npz", "-k", "5", "--rounds", "1", "--tol", "1e-2", "--json")
    rows = json.loads(done.output)["solvers"]
    best = min((row for row in rows if row["value_error"] is not None), key=lambda row: row["value_error"])
    assert best["difference"] == 0 < max(row["difference"] for row in rows)


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        (b"nonsense", "X.npy", "the content is text, or of an unknown format"),
        (b"1", "X.dat", "has an unknown format"),
        (b"", "X.npz", "the content is text, or of an unknown format"),
    ],
)
def test_bench_refuses_a_file_that_is_no_matrix(content: bytes, name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    done = invoke("bench", str(tmp_path / name))
    assert done.exit_code == 1
    assert said in done.output


def test_bench_refuses_too_many_components(tmp_path: Path, X: sparse.csr_array) -> None:
    sparse.save_npz(tmp_path / "X.npz", X)
    done = invoke("bench", str(tmp_path / "X.npz"), "-k", "61")
    assert done.exit_code == 2
    assert "Invalid value for '-k'" in done.output
    assert "must be at most 60, as" in done.output
    assert invoke("bench", str(tmp_path / "none.npz")).exit_code == 2
