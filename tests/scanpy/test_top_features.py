"""--top-features: the command ranks features out of core, and fits those that vary most, as scanpy does in memory."""

import csv
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.backends.files import DiskRows
from tests.support.commands import invoke, told
from tests.support.places import ROOT
from tests.support.ranked import FLAVORS, cells, frame_of, logarithms
from tests.support.transformed import pearson

h5py = pytest.importorskip("h5py")
X = cells(400, 150, seed=3)
GENES = np.array([f"g{j}" for j in np.random.default_rng(0).permutation(150)])
BATCH = np.random.default_rng(1).choice(["b1", "b2"], 400)
TOP = 40


def write(path: Path, X: Any, genes: Any, obs: Any = None, kind: str = "csr") -> Path:
    """The layout of AnnData, compressed by rows or by columns."""
    matrix = getattr(sparse, f"{kind}_array")(X, dtype=np.float32)
    with h5py.File(path, "w") as file:
        file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        group = file.create_group("X")
        group.attrs.update({"encoding-type": f"{kind}_matrix", "encoding-version": "0.1.0", "shape": X.shape})
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(matrix, name)
        names = {"obs": [f"c{i}" for i in range(len(X))], "var": list(genes)}
        for frame, labels in names.items():
            node = file.create_group(frame)
            node.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"})
            node.attrs["column-order"] = list(obs or {}) if frame == "obs" else []
            node["_index"] = np.array(labels, dtype=h5py.string_dtype())
            for name, values in (obs or {}).items() if frame == "obs" else ():
                node[name] = np.array(values, dtype=h5py.string_dtype())
                node[name].attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})
    return path


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read in blocks, and no part of them is held."""
    monkeypatch.setattr("shiftsvd.io.opening.held_bytes", lambda source: 2**50)
    monkeypatch.setattr("shiftsvd.backends.entries.HELD", 2**40)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("cells") / "X.h5ad", X, GENES, {"donor": BATCH.tolist()})


def components_of(D: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    _, S, Vh = np.linalg.svd(D - D.mean(axis=0), full_matrices=False)
    return S[:k], Vh[:k]


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("flavor", FLAVORS)
@pytest.mark.parametrize("batch", [None, "donor"])
def test_the_fit_is_that_of_the_dense_formulas_on_the_genes_they_choose(
    flavor: str, batch: str | None, kind: str, tmp_path: Path, streamed: None
) -> None:
    file = write(tmp_path / "X.h5ad", X, GENES, {"donor": BATCH.tolist()}, kind)
    steps = ["--preprocess", "log-normalize"] if flavor != "pearson_residuals" else ["--preprocess", "pearson"]
    line = [*steps, "--top-features", TOP, "--flavor", flavor, *(["--batch", batch] if batch else [])]
    out = tmp_path / "out"
    found = told("fit", file, "-k", 4, "-o", out, "--no-report", "--tol", 1e-10, *line)
    want = frame_of(X, flavor, TOP, BATCH if batch else None, GENES)
    mask = want["highly_variable"].to_numpy()
    with (out / "features.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert [row["feature"] for row in rows] == GENES.tolist()
    assert [row["highly_variable"] == "true" for row in rows] == mask.tolist()
    D = pearson(100)(X[:, mask], X[:, mask]) if flavor == "pearson_residuals" else logarithms(X)[:, mask]
    S, Vh = components_of(D, 4)
    np.testing.assert_allclose(found["singular_values"], S, rtol=1e-7)
    model = ss.load_model(out / "model.safetensors")
    np.testing.assert_allclose(np.abs(np.sum(model.components_ * Vh, axis=1)), 1, atol=1e-5)
    features = found["features"]
    assert features["flavor"] == flavor
    assert (features["asked"], features["taken"], features["of"]) == (TOP, int(mask.sum()), 150)
    assert features["reads"] == 2
    assert features.get("batch") == batch
    assert json.loads((out / "result.json").read_text())["features"] == features


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_genes_that_fit_into_memory_are_read_once_for_all_of_the_fit(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streamed: None
) -> None:
    file = write(tmp_path / "X.h5ad", X, GENES, kind=kind)
    reads: list[int] = []
    read = DiskRows._block
    monkeypatch.setattr(DiskRows, "_block", lambda self, rows: reads.append(rows[0]) or read(self, rows))
    line = ("fit", file, "-k", 4, "--preprocess", "log-normalize", "--top-features", 10, "--tol", 1e-10)
    many = told(*line), reads.count(0)
    monkeypatch.setattr("shiftsvd.backends.entries.HELD", 2)
    reads.clear()
    few = told(*line), reads.count(0)
    np.testing.assert_allclose(few[0]["singular_values"], many[0]["singular_values"], rtol=1e-8)
    assert few[1] == 3 < many[1]  # library sizes, the ranking, the genes that are kept


def test_other_samples_are_matched_by_name_and_have_library_sizes_of_all_genes(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = ("--preprocess", "log-normalize", "--top-features", TOP, "-o", out, "--no-report", "--tol", 1e-10)
    told("fit", file, "-k", 3, *line)
    model, mask = ss.load_model(out / "model.safetensors"), frame_of(X, "seurat", TOP, None, GENES)["highly_variable"]
    new, order = cells(31, 150, seed=4), np.random.default_rng(5).permutation(150)
    moved = write(tmp_path / "new.h5ad", new[:, order], GENES[order])
    assert invoke("transform", out / "model.safetensors", moved, "-o", tmp_path / "Z.npy").exit_code == 0
    D = logarithms(X)[:, mask]
    Z = (logarithms(new)[:, mask] - D.mean(axis=0)) @ model.components_.T
    np.testing.assert_allclose(np.load(tmp_path / "Z.npy"), Z, atol=2e-6 * np.abs(Z).max())
    np.testing.assert_allclose(model.transform(ss.as_operator(new)), Z, atol=1e-8 * np.abs(Z).max())


@pytest.mark.parametrize("suffix", ["npz", "csv", "mtx", "npy"])
def test_features_of_any_format_are_ranked(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"X.{suffix}"
    if suffix == "npz":
        sparse.save_npz(path, sparse.csr_array(X))
    elif suffix == "npy":
        np.save(path, X)
    elif suffix == "mtx":
        from scipy.io import mmwrite

        mmwrite(path, sparse.coo_array(X), field="integer")
    else:
        np.savetxt(path, X, delimiter=",", header=",".join(GENES), comments="")
    orient = ["--orient", "rows"] if suffix == "mtx" else []
    found = told("fit", path, "-k", 3, "--preprocess", "log-normalize", "--top-features", TOP, "--tol", 1e-10, *orient)
    mask = frame_of(X, "seurat", TOP)["highly_variable"].to_numpy()
    np.testing.assert_allclose(found["singular_values"], components_of(logarithms(X)[:, mask], 3)[0], rtol=1e-8)


def test_logarithms_in_a_file_are_ranked_as_they_are(tmp_path: Path) -> None:
    np.save(tmp_path / "L.npy", logarithms(X))
    found = told("fit", tmp_path / "L.npy", "-k", 3, "--top-features", TOP, "--tol", 1e-10)
    mask = frame_of(X, "seurat", TOP)["highly_variable"].to_numpy()
    np.testing.assert_allclose(found["singular_values"], components_of(logarithms(X)[:, mask], 3)[0], rtol=1e-8)
    assert found["features"]["flavor"] == "seurat"


def test_logarithms_in_a_file_are_ranked_in_the_base_that_scanpy_noted(tmp_path: Path) -> None:
    file = write(tmp_path / "L.h5ad", logarithms(X) / np.log(2), GENES)
    with h5py.File(file, "a") as noted:
        noted["uns/log1p/base"] = 2
    found = told("fit", file, "-k", 3, "--top-features", TOP, "--tol", 1e-10)
    mask = frame_of(X, "seurat", TOP)["highly_variable"].to_numpy()
    D = (logarithms(X)[:, mask] / np.log(2)).astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(found["singular_values"], components_of(D, 3)[0], rtol=1e-8)


def test_the_flavor_goes_with_the_transformation_where_none_is_named(file: Path) -> None:
    line = ("fit", file, "-k", 2, "--top-features", TOP)
    assert told(*line, "--preprocess", "pearson")["features"]["flavor"] == "pearson_residuals"
    assert told(*line, "--preprocess", "log-normalize")["features"]["flavor"] == "seurat"
    shown = invoke(*line, "--preprocess", "log-normalize", "--flavor", "seurat_v3", "--batch", "donor").stdout
    assert "40 of 150 features, by flavor seurat_v3 in each donor" in shown


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (["--flavor", "seurat"], 2, "requires --top-features. Add it"),
        (["--batch", "donor"], 2, "requires --top-features. Add it"),
        (["--top-features", "0"], 2, "--top-features"),
        (["--top-features", "9", "--flavor", "seurt"], 2, "--flavor"),
        (["--top-features", "9", "--mask", "chosen"], 2, "Use one of them"),
        (["--top-features", "9", "--missing", "mean"], 2, "Remove --missing"),
        (["--top-features", "9", "--preprocess", "pearson", "--flavor", "seurat"], 2, "ranks logarithms of counts"),
        (
            ["--top-features", "9"],
            1,
            "all entries are whole numbers. For raw counts, use --preprocess log-normalize or --flavor seurat_v3.",
        ),
        (["--top-features", "9", "--flavor", "seurat_v3", "--batch", "batch"], 1, "no column 'batch' in obs"),
        (["--top-features", "9", "-k", "10", "--preprocess", "log-normalize"], 2, "must be at most 9"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(line: list[str], code: int, said: str, file: Path) -> None:
    result = invoke("fit", file, "-k", "2", *line)
    assert result.exit_code == code
    assert said in result.stderr.replace("\n", " ")


def test_batches_of_a_table_are_refused_with_the_formats_that_have_them(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    result = invoke("fit", tmp_path / "X.npy", "--top-features", 9, "--flavor", "seurat_v3", "--batch", "donor")
    assert result.exit_code == 1
    assert "Pass an .h5ad or an AnnData Zarr store" in result.stderr


# Dies when it has made so many reads, as a kill does: nothing that Python would still do is done.
KILLED = """
import os, signal, sys
from shiftsvd.backends import entries
from shiftsvd.io import opening
opening.held_bytes, entries.HELD = lambda source: 2**50, 2**40
from shiftsvd.runs import checkpoints
keep, reads = checkpoints._Journal.keep, []
def dying(self, what, record):
    keep(self, what, record)
    reads.append(what)
    if len(reads) == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
checkpoints._Journal.keep = dying
from shiftsvd.cli import main
main(sys.argv[2:])
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system has no SIGKILL")
@pytest.mark.parametrize(
    ("flavor", "kills"),
    [
        pytest.param("seurat", (2,), marks=pytest.mark.long),
        pytest.param("seurat_v3", (1, 2, 3, 4), marks=pytest.mark.long),
        pytest.param("pearson_residuals", (2,), marks=pytest.mark.long),
    ],
)
@pytest.mark.slow
def test_a_run_that_is_killed_in_any_phase_goes_on_with_the_same_bits(
    flavor: str, kills: tuple[int, ...], file: Path, tmp_path: Path, streamed: None
) -> None:
    how = "pearson" if flavor == "pearson_residuals" else "log-normalize"
    line = ["fit", str(file), "-k", "3", "--preprocess", how, "--top-features", "40", "--flavor", flavor]
    line += ["--batch", "donor", "--no-report", "--scores", "npy", "--quiet"]
    assert invoke(*line, "-o", tmp_path / "whole").exit_code == 0
    for n_reads in kills:
        out, reads = tmp_path / f"{n_reads}", tmp_path / f"reads{n_reads}"
        again = [*line, "-o", str(out), "--checkpoint", str(reads)]
        killed = subprocess.run([sys.executable, "-c", KILLED, str(n_reads), *again], capture_output=True, text=True)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert len(list(reads.glob("read-*.npz"))) == n_reads
        assert not out.exists() or not list(out.glob("*.npy"))
        other = invoke(*again, "--flavor", "seurat_v3_paper")
        assert other.exit_code == 1
        assert "holds the checkpoint of another run" in other.stderr
        assert invoke(*again).exit_code == 0
        for name in ("scores.npy", "features.csv", "components.csv"):
            assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.long
def test_workers_rank_what_they_read(file: Path) -> None:
    pytest.importorskip("distributed")
    line = ("fit", file, "-k", 3, "--preprocess", "log-normalize", "--top-features", TOP, "--batch", "donor")
    by_workers, here = told(*line, "--workers", 1), told(*line)
    np.testing.assert_allclose(by_workers["singular_values"], here["singular_values"], rtol=1e-5)
    assert by_workers["features"]["taken"] == here["features"]["taken"]


@pytest.mark.long
def test_commands_of_the_guide_run_as_they_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "src" / "shiftsvd" / "scanpy" / "docs" / "genes.rst").read_text(encoding="utf-8")
    page = re.sub(r"\\\n +", "", page)  # continued lines
    lines = [line.removeprefix("   $ shiftsvd ").split() for line in page.splitlines() if line.startswith("   $ ")]
    assert [line[0] for line in lines] == ["fit", "transform", "fit", "fit"]
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "counts.h5ad", X, GENES, {"donor": BATCH.tolist()})
    write(tmp_path / "new.h5ad", cells(20, 150, seed=9), GENES)
    for line in lines:
        result = invoke(*(word if word != "2000" else "60" for word in line))  # of as many genes as there are here
        assert result.exit_code == 0, result.output
    assert len(Path("scores.csv").read_text().splitlines()) == 21
    assert len(Path("out/features.csv").read_text().splitlines()) == 151


def test_all_features_are_ranked_whatever_the_file_says_of_them_and_scanpy_projects_on_what_is_written(
    tmp_path: Path,
) -> None:
    anndata = pytest.importorskip("anndata")
    from shiftsvd.scanpy import project

    adata = anndata.AnnData(sparse.csr_matrix(X, dtype=np.float32))
    adata.obs_names, adata.var_names = [f"c{i}" for i in range(len(X))], GENES
    adata.var["highly_variable"] = np.arange(150) < 9
    adata.write_h5ad(tmp_path / "X.h5ad")
    line = ("-k", 3, "--preprocess", "log-normalize", "--top-features", TOP, "--tol", 1e-9)
    found = told("fit", tmp_path / "X.h5ad", *line, "-o", tmp_path / "out", "--no-report", "--anndata")
    mask = frame_of(X, "seurat", TOP, None, GENES)["highly_variable"].to_numpy()
    assert found["features"]["taken"] == mask.sum()
    reference = anndata.read_h5ad(tmp_path / "out" / "fit.h5ad")
    assert np.array_equal(np.any(reference.varm["PCs"] != 0, axis=1), mask)
    project(adata, reference)
    np.testing.assert_allclose(adata.obsm["X_pca"], reference.obsm["X_pca"], rtol=1e-3, atol=1e-3)


def test_fit_h5ad_has_the_ranking_in_var_and_is_described(file: Path, tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    out = tmp_path / "out"
    told("fit", file, "-k", 3, "--preprocess", "log-normalize", "--top-features", TOP, "--anndata", "-o", out)
    adata, want = anndata.read_h5ad(out / "fit.h5ad"), frame_of(X, "seurat", TOP, None, GENES)
    np.testing.assert_array_equal(adata.var["highly_variable"], want["highly_variable"])
    np.testing.assert_allclose(adata.var["means"], want["means"], rtol=1e-6)
    np.testing.assert_array_equal(np.any(adata.varm["PCs"] != 0, axis=1), want["highly_variable"])
    params = adata.uns["pca"]["params"]
    assert (params["mask_var"], params["use_highly_variable"]) == ("highly_variable", True)
    facts = told("info", out / "fit.h5ad")
    assert (facts["key"], facts["features"], facts["elements"]) == ("obsm/X_pca", 3, None)
    assert facts["command"].endswith("--key obsm/X_pca")
    refused = invoke("fit", out / "fit.h5ad", "-k", 2)
    assert "has no 'X'. It has 4 matrices: 'obsm/X_pca'," in refused.stderr
    assert "Select one with --key." in refused.stderr
