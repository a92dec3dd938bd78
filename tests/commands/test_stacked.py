"""`shiftsvd fit A B C`: several files as one matrix, from genotypes of each chromosome to a table of new samples."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shiftsvd as ss
from tests.support.commands import done, invoke, told

M, N = 60, 330


@pytest.fixture
def chromosomes(tmp_path: Path) -> tuple[list[Path], Path]:
    """22 chromosomes and X, of the same samples; with gaps; and all in one file."""
    pytest.importorskip("bed_reader")
    from tests.support.genotypes import genotypes, write

    G = genotypes(M, N, gaps=0.02)
    where = np.sort(np.arange(N) % 23)
    called = np.array([str(i + 1) for i in range(22)] + ["X"])
    names = np.array([f"rs{j}" for j in range(N)])
    paths = []
    for i, name in enumerate(called):
        here = where == i
        own = {"chromosome": [name] * int(here.sum()), "sid": names[here].tolist()}
        paths.append(write(tmp_path / f"chr{name}.bed", np.ascontiguousarray(G[:, here]), **own))
    return paths, write(tmp_path / "all.bed", G, chromosome=called[where].tolist(), sid=names.tolist())


@pytest.mark.one_in(2)
@pytest.mark.parametrize("in_file", [False, True], ids=["in memory", "in the files"])
def test_chromosomes_side_by_side_are_the_one_file(
    chromosomes: tuple[list[Path], Path], in_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support.genotype_files import others, streamed
    from tests.support.genotypes import write

    if in_file:
        streamed(monkeypatch)
    paths, one = chromosomes
    usual = ("-k", 3, "--tol", 1e-8, "--no-report", "--scores", "npy")
    found = told("fit", *paths, "--stack", "columns", *usual, "-o", tmp_path / "parts")
    want = told("fit", one, *usual, "-o", tmp_path / "whole")
    assert found["files"] == [str(path) for path in paths]
    assert found["stack"] == "columns"
    assert "files" not in want
    np.testing.assert_allclose(found["singular_values"], want["singular_values"], rtol=1e-6)  # of single precision
    assert found["genotypes"].pop("eigenvalues") == pytest.approx(want["genotypes"].pop("eigenvalues"), rel=1e-6)
    for fact in ("genotypes", "n_missing", "shape", "stored", "dtype"):
        assert found[fact] == want[fact]
    assert found["genotypes"]["not_on_autosomes"] == N // 23
    models = [ss.load_model(tmp_path / which / "model.safetensors") for which in ("parts", "whole")]
    np.testing.assert_array_equal(models[0].feature_names_in_, models[1].feature_names_in_)
    lines = [(tmp_path / f"{a}.eigenvec").read_text().splitlines() for a in ("parts", "whole")]
    ids = [[line.split()[:2] for line in these] for these in lines]
    assert ids[0] == ids[1]
    # New samples too may lie in a file for each chromosome, in any order.
    G = others()
    G = np.hstack([G, G])[:, :N].copy()
    where = np.sort(np.arange(N) % 23)
    new = []
    for i, path in enumerate(paths):
        here = np.flatnonzero(where == i)
        own = {"sid": [f"rs{j}" for j in here], "chromosome": [path.stem[3:]] * len(here)}
        new.append(write(tmp_path / f"new{i}.bed", np.ascontiguousarray(G[:, here]), **own))
    chromosome = np.array([path.stem[3:] for path in paths])[where].tolist()
    whole = write(tmp_path / "new.bed", G, chromosome=chromosome)
    model = tmp_path / "parts" / "model.safetensors"
    done("transform", model, *new[::-1], "--stack", "columns", "-o", tmp_path / "a.npy")
    done("transform", model, whole, "-o", tmp_path / "b.npy")
    np.testing.assert_allclose(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"), atol=1e-4)
    shown = told("info", *paths, "--stack", "columns")
    assert (shown["samples"], shown["features"], shown["files"]) == (M, N, 23)
    assert shown["n_missing"] == told("info", one)["n_missing"]


def test_samples_of_chromosomes_are_checked(chromosomes: tuple[list[Path], Path], tmp_path: Path) -> None:
    from tests.support.genotypes import genotypes, write

    paths, _ = chromosomes
    order = np.random.default_rng(0).permutation(M)
    G = genotypes(M, 9, gaps=0)
    sids = {"sid": [f"x{j}" for j in range(9)], "chromosome": ["7"] * 9}
    people = {"fid": np.array([f"family{i % 3}" for i in range(M)]), "iid": np.array([f"person{i}" for i in range(M)])}
    moved = write(
        tmp_path / "moved.bed",
        np.ascontiguousarray(G[order]),
        **sids,
        **{name: a[order].tolist() for name, a in people.items()},
    )
    there = write(tmp_path / "there.bed", G, **sids)
    usual = ("--stack", "columns", "-k", 2, "--tol", 1e-8)
    np.testing.assert_allclose(
        *(told("fit", paths[0], last, *usual)["singular_values"] for last in (moved, there)), rtol=1e-6
    )
    filters = ("--mind", 0.9, "--maf", 0.05, "--remove", tmp_path / "one.txt")
    (tmp_path / "one.txt").write_text("family0 person3\n")
    np.testing.assert_allclose(
        *(told("fit", paths[0], last, *usual, *filters)["singular_values"] for last in (moved, there)), rtol=1e-6
    )
    people["iid"][5] = "somebody"
    other = write(tmp_path / "other.bed", G, **sids, **{name: a.tolist() for name, a in people.items()})
    result = invoke("fit", paths[0], other, *usual)
    assert result.exit_code == 1
    said = (
        f"Error: {other} must have the samples of {paths[0]}, but lacks person5. Keep the samples that all files have."
    )
    assert result.stderr == f"{said}\n"
    result = invoke("fit", paths[0], other, "--stack", "rows", "-k", 2)
    assert result.exit_code == 1
    assert "Merge them with plink2" in result.stderr


@pytest.mark.long
def test_donors_on_top_of_each_other_are_the_one_file(tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    X = np.random.default_rng(0).poisson(1.0, (100, 12)).astype(np.float32)
    paths = [tmp_path / f"{i}.h5ad" for i in range(10)]
    for path, part in zip(paths, np.split(X, 10), strict=True):
        anndata.AnnData(part).write_h5ad(path)
    np.save(tmp_path / "X.npy", X)
    found = told("fit", *paths, "--stack", "rows", "-k", 3, "--scores", "npy", "-o", tmp_path / "out")
    want = told("fit", tmp_path / "X.npy", "-k", 3)
    assert found["singular_values"] == want["singular_values"]
    assert found["shape"] == [100, 12]
    done("transform", tmp_path / "out/model.safetensors", *paths, "--stack", "rows", "-o", tmp_path / "Z.npy")
    np.testing.assert_allclose(np.load(tmp_path / "Z.npy"), np.load(tmp_path / "out/scores.npy"), atol=1e-4)
    said = json.loads(done("info", tmp_path / "out/model.safetensors", "--json").stdout)
    assert all(str(path) in str(said["provenance"]) for path in paths)


def test_what_is_wrong_with_several_files_is_said_before_any_work(tmp_path: Path) -> None:
    a, b = tmp_path / "a.npy", tmp_path / "b.npy"
    np.save(a, np.ones((5, 4)))
    np.save(b, np.ones((5, 3)))
    for args, code, line in (
        (
            (a, b),
            2,
            "2 files need --stack rows (if each has different samples) or --stack columns (if each has different",
        ),
        ((a, "-", "--stack", "rows"), 2, "Standard input cannot be stacked with files"),
        ((a, tmp_path / "c.npy", "--stack", "rows"), 2, "c.npy' does not exist"),
        ((a, b, "--stack", "rows"), 1, f"{b} must have the 4 features of {a}, got 3"),
    ):
        result = invoke("fit", *args, "-k", 1, "-o", tmp_path / "out")
        assert result.exit_code == code
        assert line in result.stderr
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("suffix", ["csv", "npz", "mtx"])
@pytest.mark.parametrize("stack", ["rows", "columns"])
def test_the_file_that_holds_a_bad_entry_is_named(stack: str, suffix: str, tmp_path: Path) -> None:
    from scipy import io, sparse

    paths = [tmp_path / f"{i}.{suffix}" for i in range(3)]
    for i, path in enumerate(paths):
        X = np.arange(1.0, 13).reshape(3, 4) + i
        X[1, 2] = np.inf if i == 1 else X[1, 2]
        if suffix == "csv":
            head = ",".join(f"f{j + 4 * i * (stack == 'columns')}" for j in range(4))
            np.savetxt(path, X, delimiter=",", header=head, comments="")
        elif suffix == "npz":
            sparse.save_npz(path, sparse.csr_array(X))
        else:
            io.mmwrite(path, sparse.coo_array(X))
    for missing in ("error", "mean"):
        result = invoke("fit", *paths, "--stack", stack, "-k", 1, "--missing", missing)
        assert result.exit_code == 1
        assert f"Error: {paths[1]}: the matrix must be finite" in result.stderr


def test_the_missing_entries_of_several_files_are_those_of_one(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((40, 8))
    X[X > 1.5] = np.nan
    paths = [tmp_path / f"{i}.npy" for i in range(4)]
    for path, part in zip(paths, np.split(X, 4), strict=True):
        np.save(path, part)
    np.save(tmp_path / "X.npy", X)
    usual = ("-k", 2, "--missing", "mean", "--tol", 1e-10)
    found, want = told("fit", *paths, "--stack", "rows", *usual), told("fit", tmp_path / "X.npy", *usual)
    np.testing.assert_allclose(found["singular_values"], want["singular_values"], rtol=1e-10)
    assert found["n_missing"] == want["n_missing"] == np.isnan(X).sum()


@pytest.mark.long
@pytest.mark.parametrize("stack", ["rows", "columns"])
def test_a_killed_command_goes_on_where_it_was_and_gives_the_same_bits(stack: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(4):
        np.save(tmp_path / f"{i}.npy", rng.standard_normal((10_000, 200) if stack == "rows" else (40_000, 50)))
    line = ["fit", *(str(tmp_path / f"{i}.npy") for i in range(4)), "--stack", stack, "-k", "3", "--memory", "80M"]
    line += ["--solver", "lanczos", "--no-report", "--scores", "npy", "--progress", "json"]
    assert invoke(*line, "-o", tmp_path / "unbroken").exit_code == 0
    line += ["--checkpoint", str(tmp_path / "kept"), "-o", str(tmp_path / "out")]
    command = [sys.executable, "-c", "from shiftsvd.cli import main; main()", *line]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        for event in run.stderr:
            if json.loads(event)["done"] > 2:
                run.kill()
                break
    assert run.returncode == -signal.SIGKILL
    assert list((tmp_path / "kept").glob("read-*.npz"))
    again = invoke(*line)
    assert again.exit_code == 0, again.stderr
    for name in ("scores.npy", "components.csv", "variances.csv"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "unbroken" / name).read_bytes()
