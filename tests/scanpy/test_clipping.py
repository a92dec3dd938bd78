"""Scaled values clipped as ``scanpy.pp.scale(max_value=...)`` clips them, from memory, from files, and of new cells."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.scanpy import pca, project
from shiftsvd.wording import settings_of
from tests.support.cells import CELLS, MASK, annotated, assert_alike, counts, logs, written
from tests.support.commands import invoke, told

anndata = pytest.importorskip("anndata")
pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:The 'future.infer_string' option is deprecated", "ignore:The entries look like raw counts"
    ),
]
# As they are; with a gene that no cell has as 0, and a rare one; with means below 0.
FAR = np.where(np.arange(40) == 3, 50.0, 0) + 9 * np.outer(np.arange(CELLS) == 5, np.arange(40) == 7)
DATA = {"logs": logs(counts()), "far": logs(counts()) + FAR, "negative": -logs(counts())}


def clipped(
    D: np.ndarray, most: float, new: np.ndarray | None = None, zero_center: bool = True, ddof: int = 1
) -> np.ndarray:
    """As scanpy clips it: on both sides if centred, else above only."""
    new, mean, std = D if new is None else new, D.mean(axis=0), D.std(axis=0, ddof=ddof)
    std = np.where(std == 0, 1, std)
    return np.clip((new - mean) / std, -most, most) if zero_center else np.minimum(new / std, most)


@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.csc_matrix, np.asarray])
@pytest.mark.parametrize("zero_center", [True, False])
@pytest.mark.parametrize(("name", "most"), [("logs", 0.5), ("logs", 3), ("logs", 10.0), ("far", 2), ("negative", 1.5)])
def test_it_equals_the_dense_formula(name: str, most: float, zero_center: bool, container: Any) -> None:
    D = DATA[name]
    adata = anndata.AnnData(container(D))
    pca(adata, 4, scale=True, max_value=most, zero_center=zero_center, tol=1e-10, dtype="float64")
    Z = clipped(D, most, zero_center=zero_center)
    U, S, Vh = np.linalg.svd(Z - Z.mean(axis=0) * zero_center, full_matrices=False)
    assert_alike(adata.obsm["X_pca"], U[:, :4] * S[:4], 1e-8)
    params = adata.uns["pca"]["params"]
    exact = clipped(D, np.inf, zero_center=zero_center)
    cut = np.abs(exact - Z) > 1e-12
    assert params["clipped_share"] == pytest.approx(cut.mean())
    assert params["clipped_share_of_nonzeros"] == pytest.approx(cut[D != 0].mean())
    N = logs(counts(30, seed=5)) + (7 if name == "far" else 0)
    new = anndata.AnnData(container(N))
    project(new, adata)
    shift = Z.mean(axis=0) * zero_center
    assert_alike(
        new.obsm["X_pca"],
        (clipped(D, most, N, zero_center) - shift) @ (Vh[:4].T * np.sign(np.sum(Vh[:4].T * adata.varm["PCs"], axis=0))),
        1e-8,
    )


def test_entries_at_the_limit_are_not_clipped() -> None:
    adata = anndata.AnnData(np.eye(4))  # scaled: 1.5 and -0.5
    pca(adata, 2, scale=True, max_value=0.5)
    params = adata.uns["pca"]["params"]
    assert (params["clipped_share"], params["clipped_share_of_nonzeros"]) == (0.25, 1)


@pytest.mark.parametrize("margins", ["all", "mask"])
def test_shares_are_those_of_the_selected_genes(margins: Any) -> None:
    adata = annotated()
    pca(adata, 3, preprocess="sqrt", margins=margins, scale=True, max_value=2, dtype="float64")
    D = np.sqrt(counts().astype(float)[:, MASK])
    cut = np.abs((D - D.mean(axis=0)) / D.std(axis=0, ddof=1)) > 2
    assert adata.uns["pca"]["params"]["clipped_share"] == pytest.approx(cut.mean())
    assert adata.uns["pca"]["params"]["clipped_share_of_nonzeros"] == pytest.approx(cut[D != 0].mean())
    new = annotated(counts())
    project(new, adata)
    np.testing.assert_allclose(new.obsm["X_pca"], adata.obsm["X_pca"], atol=1e-12)


@pytest.mark.parametrize("lazily", ["memory", "backed", "dask"])
def test_raw_counts_in_a_mask_wherever_they_are(lazily: str, tmp_path: Path) -> None:
    adata = annotated()
    if lazily == "backed":
        adata = anndata.read_h5ad(written(tmp_path / "X.h5ad", adata), backed="r")
    elif lazily == "dask":
        da = pytest.importorskip("dask.array")
        adata.X = da.from_array(counts(), chunks=(50, 40)).map_blocks(sparse.csr_matrix)
    pca(adata, 3, preprocess="log-normalize", scale=True, max_value=2, tol=1e-10, dtype="float64")
    Z = clipped(logs(counts())[:, MASK], 2)
    U, S, _ = np.linalg.svd(Z - Z.mean(axis=0), full_matrices=False)
    assert_alike(adata.obsm["X_pca"], U[:, :3] * S[:3], 1e-5)
    np.testing.assert_allclose(adata.uns["pca"]["variance"], S[:3] ** 2 / (CELLS - 1), rtol=1e-6)
    assert adata.uns["pca"]["params"]["max_value"] == 2
    if lazily == "backed":
        adata.file.close()


def test_the_command_clips_and_its_model_clips_new_cells(tmp_path: Path) -> None:
    file, out = written(tmp_path / "X.h5ad"), tmp_path / "out"
    line = ("fit", file, "-k", 3, "--preprocess", "log-normalize", "--scale", "--tol", 1e-9, "--no-report", "--anndata")
    done = invoke(*line, "--max-value", 2, "--scores", "csv", "-o", out)
    assert done.exit_code == 0, done.stderr
    D = logs(counts())[:, MASK]
    exact, Z = clipped(D, np.inf), clipped(D, 2)
    share = np.mean(np.abs(exact) > 2)
    assert f"scaled values clipped at 2: {share:.2%} of all entries" in done.stdout
    document = json.loads((out / "result.json").read_text())
    assert document["settings"]["max_value"] == 2
    assert document["clipped"]["clipped_share"] == pytest.approx(share)
    U, S, Vh = np.linalg.svd(Z - Z.mean(axis=0), full_matrices=False)
    scores = np.loadtxt(out / "scores.csv", delimiter=",", skiprows=1, usecols=range(1, 4))
    assert_alike(scores, U[:, :3] * S[:3], 1e-5)
    new = annotated(counts(30, seed=5), seed=5)
    transformed = invoke(
        "transform", out / "model.safetensors", written(tmp_path / "n.h5ad", new), "-o", tmp_path / "n.csv"
    )
    assert transformed.exit_code == 0, transformed.stderr
    got = np.loadtxt(tmp_path / "n.csv", delimiter=",", skiprows=1, usecols=range(1, 4))
    want = (clipped(D, 2, logs(counts(30, seed=5))[:, MASK]) - Z.mean(axis=0)) @ Vh[:3].T
    assert_alike(got, want, 1e-5)
    project(new, anndata.read_h5ad(out / "fit.h5ad"))
    assert_alike(new.obsm["X_pca"], want, 1e-5)
    model = ss.PCA.load(out / "model.safetensors")
    assert isinstance(model, ss.PCA)
    settings = settings_of(model)
    assert settings["chosen"]["features divided by"] == "their standard deviations, then clipped at 2"
    assert "features divided by" not in settings["usual"]


@pytest.mark.parametrize(("suffix", "ddof"), [("h5ad", 1), ("npy", 0)])
def test_deviations_are_those_of_scanpy_for_cells_and_of_scikit_learn_for_other_data(
    suffix: str, ddof: int, tmp_path: Path
) -> None:
    D, file = logs(counts()), tmp_path / f"X.{suffix}"
    np.save(file, D) if suffix == "npy" else anndata.AnnData(D).write_h5ad(file)
    for most in ([], ["--max-value", 2]):
        Z = clipped(D, 2 if most else np.inf, ddof=ddof)
        found = told("fit", file, "-k", 3, "--scale", *most, "--tol", 1e-10)["singular_values"]
        np.testing.assert_allclose(found, np.linalg.svd(Z - Z.mean(axis=0))[1][:3], rtol=1e-8)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"max_value": 0, "scale": True}, "max_value must be a finite number above 0, got 0"),
        ({"max_value": np.nan, "scale": True}, "max_value must be a finite number above 0, got nan"),
        ({"max_value": 3}, "max_value clips scaled values. Add scale=True."),
        ({"max_value": 3, "scale": True, "groups": "batch"}, "max_value cannot follow a regression"),
        ({"max_value": 3, "scale": True, "preprocess": "pearson"}, "max_value requires that zeros stay 0"),
    ],
)
def test_what_cannot_be_clipped_is_refused(more: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        pca(annotated(), 3, **more)
    options = [
        part for name, value in more.items() for part in (f"--{name.replace('_', '-')}", value) if part is not True
    ]
    done = invoke("fit", written(tmp_path / "X.h5ad"), "-k", 3, *options)
    assert done.exit_code == 2
    assert f"Error: {message}".replace("max_value", "--max-value").replace("scale=True", "--scale")[:40] in done.stderr


def test_it_equals_scale_and_pca_of_scanpy() -> None:
    sc = pytest.importorskip("scanpy")
    for most in (2, 10):
        ours, theirs = annotated(), annotated(container=np.array)
        pca(ours, 3, preprocess="log-normalize", scale=True, max_value=most, tol=1e-10)
        theirs.X = theirs.X.astype(np.float64)
        sc.pp.normalize_total(theirs, target_sum=1e4)
        sc.pp.log1p(theirs)
        sc.pp.scale(theirs, max_value=most)
        sc.pp.pca(theirs, n_comps=3, svd_solver="full", dtype="float64")
        np.testing.assert_allclose(ours.uns["pca"]["variance"], theirs.uns["pca"]["variance"], rtol=1e-6)
