"""`info` of single cells: what their values look like in a sample, their columns, and a command that works."""

import json
import shlex
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from shiftsvd.io import open_matrix
from tests.support.cells import CELLS, GENES, annotated, counts, logs, written
from tests.support.commands import invoke
from tests.support.tenx import write_folder

anndata = pytest.importorskip("anndata")
pandas = pytest.importorskip("pandas")
pytest.importorskip("h5py")
pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated"),
]


def facts(path: Path, *more: Any) -> dict[str, Any]:
    told = invoke("info", path, "--json", *more)
    assert told.exit_code == 0, told.stderr
    found: dict[str, Any] = json.loads(told.stdout)
    assert f"command         {found['command']}" in invoke("info", path, *more).stdout
    return found


def runs(command: str) -> dict[str, Any]:
    """What the printed command finds, as printed but for its output."""
    words = shlex.split(command)
    assert words[:2] == ["shiftsvd", "fit"]
    done = invoke(*words[1:], "--json", "-q")
    assert done.exit_code == 0, done.stderr
    assert "look like" not in done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def of(X: Any, **more: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return anndata.AnnData(sparse.csr_matrix(X), **more)


C = counts()
NORMALIZED = C / C.sum(axis=1, keepdims=True) * 1e4
SCALED = (logs(C) - logs(C).mean(axis=0)) / logs(C).std(axis=0)
VALUES = {
    "counts": (C, "counts: integers up to", "--preprocess log-normalize"),
    "counts of doubles": (C.astype(np.float64), "counts", "log-normalize"),
    "logs": (logs(C).astype(np.float32), "logarithms", ""),
    "log2": (np.log2(1 + NORMALIZED), "logarithms", ""),
    "normalized": (NORMALIZED, "normalized counts without a logarithm: every cell has the sum 10,000", "log-normalize"),
    "scaled": (SCALED, "scaled or centred values, with negative ones", ""),
    "clipped": (np.clip(SCALED, -2, 2), "clipped at 2", ""),
    "zeros": (np.zeros((30, 8)) + (np.arange(8) == 3), "zeros and ones", ""),
    "gaps": (
        np.where(np.arange(C.size).reshape(C.shape) % 7 == 3, np.nan, logs(C)),
        "of the sampled values are missing",
        "--missing mean",
    ),
    "a gap": (np.where(np.arange(C.size).reshape(C.shape) == GENES * 119 + 3, np.nan, C), "", "--missing mean"),
    "others": (np.random.default_rng(0).random((50, 9)) ** 3 * 500, "numbers of an unknown kind: ", ""),
}


@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.csc_matrix, np.asarray])
@pytest.mark.parametrize("name", list(VALUES))
def test_values_are_recognised_in_a_sample_and_the_command_works(name: str, container: Any, tmp_path: Path) -> None:
    X, looks, options = VALUES[name]
    if container is sparse.csc_matrix and name == "normalized":
        looks = "numbers of an unknown kind"  # genes are sampled, which have no sums of cells
        options = ""
    adata = of(X)
    adata.X = container(X)
    found = facts(written(tmp_path / "a file.h5ad", adata))
    assert looks in found["looks_like"]
    m = "40 genes" if container is sparse.csc_matrix and name not in ("zeros", "others") else "cells"
    assert m in found["sampled"] or "genes" in found["sampled"]
    assert options in found["command"]
    assert any("For counts of words" in note for note in found["notes"]) == looks.startswith("counts")
    if not options:
        assert found["command"] == f"shiftsvd fit '{tmp_path}/a file.h5ad'"
    runs(found["command"])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("suffix", [".h5ad", ".zarr"])
def test_elements_columns_batches_and_the_mask(suffix: str, tmp_path: Path) -> None:
    if suffix == ".zarr":
        pytest.importorskip("zarr")
    adata = annotated(logs(C))
    adata.layers["counts"] = sparse.csr_matrix(C)
    adata.obsm["X_pca"] = np.ones((CELLS, 5))
    adata.obs["donor"] = pandas.Categorical(np.array(["a", "b", "c"])[np.arange(CELLS) % 3]).remove_categories("c")
    adata.obs["sample id"], adata.obs["study"] = np.arange(CELLS) % 4, "one"
    adata.obs["library"] = [f"cell{i}" for i in range(CELLS)]  # a name for each
    adata.var["gene_ids"] = [f"ENSG{j:011}" for j in range(GENES)]
    path = written(tmp_path / f"a{suffix}", adata)
    found = facts(path)
    assert found["looks_like"].startswith("logarithms")
    assert found["elements"] == {"layers/counts": f"counts: integers up to {int(C.max())}"}
    assert found["obsm"] == {"X_pca": "120 x 5"}
    assert found["mask"] == "highly_variable, 27 of 40"
    assert found["gene_names"] == ["gene_symbols", "gene_ids"]
    assert found["batches"] == ["obs/batch (numbers)", "obs/donor (2 categories)", "obs/sample id (numbers)"]
    by_name = {each["name"]: each for each in found["columns"]}
    donor = by_name["obs/donor"]
    assert (donor["kind"], donor["use"], donor["n_missing"]) == ("2 categories", "batch", 40)
    assert donor["examples"] == ["a (40)", "b (40)"]
    assert by_name["obs/study"]["kind"] == "1 category"
    assert by_name["obs/library"]["kind"] == "text"
    assert by_name["obs/doublet"]["kind"] == "true or false"
    assert by_name["var/highly_variable"]["use"] == "mask"
    assert (by_name["obs/pct_mito"]["kind"], by_name["obs/pct_mito"]["use"]) == ("numbers", "")
    assert found["command"] == f"shiftsvd fit {path} --key layers/counts --preprocess log-normalize"
    assert runs(found["command"])["features"]["taken"] == 27
    assert "--groups batch" in found["notes"][0]
    by_key = facts(path, "--key", "X")
    assert by_key["command"] == f"shiftsvd fit {path} --key X"
    runs(by_key["command"])


def test_a_raw_matrix_and_masks_that_cannot_be_used(tmp_path: Path) -> None:
    adata = annotated(SCALED)
    adata.var["highly_variable"] = np.where(np.arange(GENES) == 3, None, "True")
    raw = of(C)
    raw.var_names = adata.var_names
    adata.raw = raw
    found = facts(written(tmp_path / "raw.h5ad", adata))
    assert "--key raw/X --preprocess log-normalize" in found["command"]
    assert found["mask"] is None  # raw/var has none
    runs(found["command"])
    del adata.raw
    found = facts(written(tmp_path / "no.h5ad", adata))
    assert found["mask"] == "highly_variable, unusable"
    assert found["command"].endswith("no.h5ad --mask none")
    runs(found["command"])


def test_many_genes_are_ranked_and_types_are_kept_apart(tmp_path: Path) -> None:
    adata = of(np.random.default_rng(0).poisson(0.3, (40, 4100)).astype(np.float32))
    found = facts(written(tmp_path / "wide.h5ad", adata))
    assert "--top-features 2000" in found["command"]
    assert runs(found["command"])["features"]["taken"] >= 2000
    adata = annotated()
    adata.var["feature_types"] = np.where(np.arange(GENES) < 35, "Gene Expression", "Antibody Capture")
    path = written(tmp_path / "types.h5ad", adata)
    found = facts(path)
    assert "--feature-types 'Gene Expression'" in found["command"]
    runs(found["command"])
    found = facts(path, "--feature-types", "Antibody Capture,Gene Expression")
    assert "--feature-types 'Antibody Capture,Gene Expression'" in found["command"]


def test_10x_is_described_too(tmp_path: Path) -> None:
    found = facts(write_folder(tmp_path / "mtx"))
    assert found["looks_like"].startswith("counts: integers up to ")
    assert found["sampled"] == "30 of 30 cells"
    assert found["gene_names"] == ["gene_symbols", "gene_ids"]
    runs(found["command"])


def test_a_damaged_column_or_layer_is_named_and_the_rest_described(tmp_path: Path) -> None:
    import h5py

    path = written(tmp_path / "a.h5ad", annotated())
    with h5py.File(path, "a") as root:
        del root["obs/pct_mito"]
        root["obs"].create_dataset("pct_mito", data=np.ones(3))
        root["layers"].create_dataset("bad", data=np.ones((2, 2, 2)))
    found = facts(path)
    by_name = {each["name"]: each for each in found["columns"]}
    assert by_name["obs/pct_mito"]["kind"] == "unreadable"
    assert "must hold 120 values" in by_name["obs/pct_mito"]["notes"][0]
    assert found["elements"]["layers/bad"].startswith("unreadable")
    runs(found["command"])


def test_the_matrix_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shiftsvd.backends.source import RowSource

    read: list[int] = []
    monkeypatch.setattr("shiftsvd.commands.facts.SAMPLED", 0)
    path = written(tmp_path / "a.h5ad", of(np.ones((2000, 5)) + np.arange(5)))
    for cls in RowSource.__subclasses__():
        own = cls.__dict__.get("read")
        if own is not None:
            monkeypatch.setattr(cls, "read", lambda self, lo, hi, own=own: read.append(hi - lo) or own(self, lo, hi))
    found = facts(path)
    assert found["n_missing"] is None
    assert "n_missing       not counted\n" in invoke("info", path).stdout
    assert found["sampled"] == "256 of 2,000 cells"
    assert 0 < max(read) <= 64


def test_the_layout_before_0_7_has_its_raw_counts_its_embeddings_and_names(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    X = sparse.csr_array(np.random.default_rng(0).poisson(1.0, (40, 6)).astype(np.float32))
    with h5py.File(tmp_path / "old.h5ad", "w") as file:
        file["X"] = X.toarray() - 1
        file["obs"] = np.array([(f"c{i}", i % 3) for i in range(40)], [("index", "S3"), ("batch", "i4")])
        file["var"] = file["raw.var"] = np.array([(f"g{j}",) for j in range(6)], [("index", "S2")])
        file["obsm"] = np.zeros(40, [("X_pca", "f4", (5,)), ("X_umap", "f8", (2,))])
        for part in ("data", "indices", "indptr"):
            file[f"raw.X/{part}"] = getattr(X, part)
        file["raw.X"].attrs["h5sparse_format"], file["raw.X"].attrs["h5sparse_shape"] = b"csr", X.shape
    found = facts(tmp_path / "old.h5ad")
    assert found["elements"]["raw.X"].startswith("counts: integers")
    assert found["obsm"] == {"X_pca": "40 x 5", "X_umap": "40 x 2"}
    assert "--key raw.X" in found["command"]
    _, names = open_matrix(tmp_path / "old.h5ad", key="raw.X")
    assert names.samples.tolist() == [f"c{i}" for i in range(40)]
    assert names.features.tolist() == [f"g{j}" for j in range(6)]


def test_an_index_of_ids_is_named_as_such(tmp_path: Path) -> None:
    adata = of(C)
    adata.var_names = [f"ENSG{j:011}.{j}" for j in range(adata.n_vars)]
    path = written(tmp_path / "ids.h5ad", adata)
    assert facts(path)["gene_names"] == ["gene_ids"]
    assert facts(path)["notes"] == []  # no words
    assert facts(path, "--var-names", "gene_ids")["gene_names"] == ["gene_ids"]
    assert invoke("info", path, "--key", "layers/counts").stderr.rstrip().endswith("It has 1 matrix: 'X'. Use --key X.")
