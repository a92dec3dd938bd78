"""`shiftsvd.scanpy.highly_variable`: what scanpy writes for the same counts, wherever these are."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.scanpy import highly_variable, pca
from shiftsvd.scanpy.annotations import AnnotationSource
from tests.support.ranked import FLAVORS, OF_LOGARITHMS, cells, frame_of, logarithms

anndata = pytest.importorskip("anndata")
pytestmark = pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated")

X = cells(300, 130, seed=5)
NAMES = np.array([f"g{j}" for j in np.random.default_rng(0).permutation(130)])
BATCH = np.repeat(["x", "y", "z"], 100)


def annotated(X: Any = X, **layers: Any) -> Any:
    adata = anndata.AnnData(sparse.csr_matrix(X, dtype=np.float32))
    adata.obs_names, adata.var_names = [f"c{i}" for i in range(len(X))], NAMES
    adata.obs["batch"] = BATCH
    for name, values in layers.items():
        adata.layers[name] = sparse.csr_matrix(values, dtype=np.float32)
    return adata


def how_of(flavor: str) -> str | None:
    return "log-normalize" if flavor in OF_LOGARITHMS else None


@pytest.mark.parametrize("flavor", FLAVORS)
@pytest.mark.parametrize("batch", [None, "batch"])
def test_what_is_written_is_what_the_formulas_say_from_memory_and_from_files(
    flavor: Any, batch: Any, tmp_path: Path
) -> None:
    adata, how = annotated(), how_of(flavor)
    adata.write_h5ad(tmp_path / "X.h5ad")
    want = frame_of(X, flavor, 30, BATCH if batch else None, NAMES)
    assert highly_variable(adata, 30, flavor=flavor, batch=batch, preprocess=how) is None
    np.testing.assert_array_equal(adata.var["highly_variable"], want["highly_variable"])
    for name in adata.var:
        np.testing.assert_allclose(adata.var[name].astype(float), want[name].astype(float), rtol=1e-5, atol=1e-5)
    assert adata.uns["hvg"]["flavor"] == flavor
    backed = anndata.read_h5ad(tmp_path / "X.h5ad", backed="r")
    frame = highly_variable(backed, 30, flavor=flavor, batch=batch, preprocess=how, inplace=False)
    assert list(frame) == list(adata.var)
    assert list(frame.index) == NAMES.tolist()
    table = highly_variable(tmp_path / "X.h5ad", 30, flavor=flavor, batch=batch, preprocess=how)
    assert table["names"].tolist() == NAMES.tolist()
    by_labels = highly_variable(sparse.csr_array(X), 30, flavor=flavor, batch=BATCH if batch else None, preprocess=how)
    for mask in (frame["highly_variable"], table["highly_variable"]):
        np.testing.assert_array_equal(mask, adata.var["highly_variable"])
    assert by_labels["highly_variable"].sum() == adata.var["highly_variable"].sum()
    assert "highly_variable" not in backed.var


@pytest.mark.parametrize("flavor", FLAVORS)
@pytest.mark.parametrize("batch", [None, "batch"])
def test_genes_and_columns_are_those_of_scanpy(flavor: Any, batch: Any) -> None:
    sc = pytest.importorskip("scanpy")
    if flavor.startswith("seurat_v3"):
        pytest.importorskip("skmisc")
    Y = X[X.sum(axis=1) > 0]
    assert len(Y) == len(X)
    ours, theirs = annotated(), annotated()
    highly_variable(ours, 30, flavor=flavor, batch=batch, preprocess=how_of(flavor))
    if flavor in OF_LOGARITHMS:
        sc.pp.normalize_total(theirs, target_sum=1e4)
        sc.pp.log1p(theirs)
    rank = sc.experimental.pp if flavor == "pearson_residuals" else sc.pp
    rank.highly_variable_genes(theirs, n_top_genes=30, flavor=flavor, batch_key=batch)
    assert list(ours.var) == list(theirs.var)
    assert ours.uns["hvg"] == theirs.uns["hvg"]
    np.testing.assert_array_equal(ours.var["highly_variable"], theirs.var["highly_variable"])
    for name in ours.var:
        assert ours.var[name].dtype == theirs.var[name].dtype, name
        np.testing.assert_allclose(ours.var[name].astype(float), theirs.var[name].astype(float), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("flavor", OF_LOGARITHMS)
def test_cutoffs_are_those_of_scanpy(flavor: Any) -> None:
    sc = pytest.importorskip("scanpy")
    ours, theirs = annotated(), annotated()
    for adata in (ours, theirs):
        sc.pp.normalize_total(adata, target_sum=1e4)
        sc.pp.log1p(adata, base=2)
    highly_variable(ours, flavor=flavor, max_mean=6.0)
    sc.pp.highly_variable_genes(theirs, flavor=flavor, max_mean=6.0)
    np.testing.assert_array_equal(ours.var["highly_variable"], theirs.var["highly_variable"])
    assert 0 < ours.var["highly_variable"].sum() < 130


@pytest.mark.parametrize("suffix", [None, "h5ad", "zarr"])
@pytest.mark.parametrize("base", [2, None])
@pytest.mark.filterwarnings("ignore:Writing zarr v2 data")
def test_logarithms_are_in_the_base_that_scanpy_noted(base: int | None, suffix: str | None, tmp_path: Path) -> None:
    natural, noted = annotated(logarithms(X)), annotated(logarithms(X) / np.log(base or np.e))
    noted.uns["log1p"] = {"base": base}
    data = noted if suffix is None else tmp_path / f"noted.{suffix}"
    if suffix is not None:
        pytest.importorskip("h5py" if suffix == "h5ad" else "zarr")
        getattr(noted, f"write_{suffix}")(data)
    want, found = (highly_variable(each, 30, inplace=False) for each in (natural, data))
    for name in want:
        np.testing.assert_allclose(found[name].astype(float), want[name].astype(float), rtol=1e-3, err_msg=name)


def test_files_with_logarithms_in_two_bases_are_refused(tmp_path: Path) -> None:
    for base in (2, 10):
        adata = annotated(logarithms(X) / np.log(base))
        adata.uns["log1p"] = {"base": base}
        adata.write_h5ad(tmp_path / f"{base}.h5ad")
    with pytest.raises(ValueError, match="logarithms in different bases"):
        _ = AnnotationSource([tmp_path / "2.h5ad", tmp_path / "10.h5ad"]).log_of_base


def test_components_are_of_the_genes_that_were_found() -> None:
    adata = annotated()
    highly_variable(adata, 30, preprocess="log-normalize")
    pca(adata, 4, preprocess="log-normalize", tol=1e-10)
    D = logarithms(X)[:, adata.var["highly_variable"].to_numpy()]
    np.testing.assert_allclose(
        adata.uns["pca"]["variance"], np.linalg.svd(D - D.mean(axis=0))[1][:4] ** 2 / 299, rtol=1e-5
    )


def test_layers_are_ranked_and_the_data_are_left_as_they_are(tmp_path: Path) -> None:
    adata, raw = annotated(logarithms(X), counts=X), annotated()
    adata.write_h5ad(tmp_path / "X.h5ad")
    before = adata.layers["counts"].data.copy(), adata.X.data.copy()
    highly_variable(adata, 30, flavor="seurat_v3", layer="counts")
    highly_variable(raw, 30, flavor="seurat_v3")
    table = highly_variable(str(tmp_path / "X.h5ad"), 30, flavor="seurat_v3", layer="counts")
    for mask in (raw.var["highly_variable"], table["highly_variable"]):
        np.testing.assert_array_equal(mask, adata.var["highly_variable"])
    assert np.array_equal(adata.layers["counts"].data, before[0])
    assert np.array_equal(adata.X.data, before[1])
    highly_variable(adata, 30, flavor="pearson_residuals", layer="counts")
    assert adata.uns["hvg"] == {"flavor": "pearson_residuals", "computed_on": "counts"}


def test_a_view_and_a_matrix_by_genes_are_ranked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adata = annotated()
    some = adata[BATCH != "z"]
    frame = highly_variable(some, 20, flavor="pearson_residuals", inplace=False)
    want = frame_of(X[BATCH != "z"], "pearson_residuals", 20)
    np.testing.assert_array_equal(frame["highly_variable"], want["highly_variable"])
    adata.X = adata.X.tocsc()
    adata.write_h5ad(tmp_path / "X.h5ad")
    monkeypatch.setattr("shiftsvd.io.opening.held_bytes", lambda source: 2**60)  # the file stays a file
    table = highly_variable(tmp_path / "X.h5ad", 20, flavor="seurat", preprocess="log-normalize", memory_limit="30M")
    np.testing.assert_array_equal(table["highly_variable"], frame_of(X, "seurat", 20)["highly_variable"])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: highly_variable(annotated(), 9, batch="donor"),
            "batch must be a column of obs or an array, got 'donor'",
        ),
        (lambda: highly_variable(X, 9, batch="batch"), "require AnnData or a file, got ndarray"),
        (lambda: highly_variable(X, 9, layer="counts"), "require AnnData or a file, got ndarray"),
        (lambda: highly_variable(annotated(), 9), "all entries are whole numbers"),
        (lambda: highly_variable(annotated(), 9, flavor="seurat_v3", preprocess="sqrt"), "Remove preprocess"),
        (lambda: highly_variable(annotated(), 9, flavor="loess"), "flavor must be one of seurat"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_is_refused(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()


@pytest.mark.long
@pytest.mark.parametrize("name", ["pbmc10k_counts", pytest.param("bladder_counts", marks=pytest.mark.long)])
@pytest.mark.parametrize("flavor", ["seurat", "seurat_v3", "pearson_residuals"])
def test_real_cells_are_ranked_as_by_the_formulas(name: str, flavor: Any) -> None:
    path = Path(os.environ.get("SHIFTSVD_TEST_DATA", "")) / f"{name}.npz"
    if not path.exists():
        pytest.skip("SHIFTSVD_TEST_DATA names no folder with the real counts")
    C = sparse.load_npz(path).tocsr()[:1500, :1000]
    D = C.toarray().astype(float)
    found = highly_variable(C, 200, flavor=flavor, preprocess=how_of(flavor))
    want = frame_of(D, flavor, 200)["highly_variable"].to_numpy()
    assert (found["highly_variable"] & want).sum() >= 199
    assert ss.as_operator(C).shape == D.shape
