"""Components of AnnData objects whose matrix stays in its file or comes in chunks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from shiftsvd import PCA
from shiftsvd.scanpy import highly_variable, pca, project
from tests.support.log_counts import GENES, annotated, assert_near, chunks_of, counts, explicit

anndata = pytest.importorskip("anndata")

# What the newest anndata asks of the newest pandas while it writes a file.
pytestmark = pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
def test_a_backed_file_gives_what_memory_gives(
    container: Any, streamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("h5py")
    if streamed:  # what is held takes more than half of a limit of nothing, and is read in many blocks
        monkeypatch.setattr("shiftsvd.io.opening.limit_of", lambda limit: 0)
        monkeypatch.setattr("shiftsvd.backends.files.LEAST_BLOCK", 4096)
        monkeypatch.setattr("shiftsvd.backends.files.BLOCK", 4096)
    X = counts(2000, 30)
    mask = np.arange(30) % 4 != 1
    adata = annotated(container(X))
    adata.var["highly_variable"] = mask
    adata.write_h5ad(tmp_path / "a.h5ad")
    backed = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    pca(backed, 2, scale=True)
    scores, components, variances = explicit(X[:, mask], 2, scale=True)
    assert_near(backed.obsm["X_pca"], scores, 1e-4)
    assert_near(backed.varm["PCs"][mask].T, components, 1e-4)
    assert_near(backed.uns["pca"]["variance"], variances)
    with pytest.raises(ValueError, match="copy must be False for a backed AnnData object"):
        pca(backed, 2, copy=True)
    with pytest.raises(ValueError, match=r"Call its method \.to_memory\(\) first"):
        pca(backed[:50], 2)
    backed.file.close()


@pytest.mark.parametrize("where", ["memory", "held", "streamed"])
def test_missing_entries_are_told_by_the_names_of_genes(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = counts()
    X[3, 20] = np.nan
    adata = annotated(X)
    adata.var["highly_variable"] = np.arange(GENES) > 9
    if where != "memory":
        pytest.importorskip("h5py")
        adata.write_h5ad(tmp_path / "a.h5ad")
        adata = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    if where == "streamed":
        monkeypatch.setattr("shiftsvd.io.opening.limit_of", lambda limit: 0)
    for call in (pca, highly_variable):
        with pytest.raises(ValueError, match="in column 'gene20'"):
            call(adata)
    if where != "memory":
        adata.file.close()


def test_the_layer_of_a_backed_file_is_taken(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    adata, other = annotated(counts()), counts(seed=1)
    adata.layers["other"] = sparse.csr_matrix(other)
    adata.write_h5ad(tmp_path / "a.h5ad")
    backed = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    pca(backed, 2, layer="other", key_added="mine")
    assert_near(backed.obsm["mine"], explicit(other, 2)[0], 1e-4)
    backed.file.close()


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_matrix, sparse.csr_array])
def test_chunked_matrices_give_the_same(container: Any) -> None:
    X = counts()
    held, chunked = annotated(container(X)), annotated(container(X))
    chunked.X = chunks_of(X, container)
    for adata in (held, chunked):
        adata.var["highly_variable"] = np.arange(GENES) % 3 != 0
        pca(adata, 3, scale=True)
    assert_near(chunked.obsm["X_pca"], held.obsm["X_pca"].astype(np.float64), 1e-5)
    assert_near(chunked.uns["pca"]["variance"], held.uns["pca"]["variance"].astype(np.float64), 1e-6)


def test_a_layer_may_be_chunked() -> None:
    X = counts()
    adata = annotated(0 * X)
    adata.layers["chunked"] = chunks_of(X, sparse.csr_matrix)
    result = pca(adata, 2, layer="chunked", copy=True)
    assert_near(result.obsm["X_pca"], explicit(X, 2)[0], 1e-4)
    project(adata, result, layer="chunked")
    assert_near(adata.obsm["X_pca"], result.obsm["X_pca"].astype(np.float64), 1e-5)


def test_results_survive_a_file(tmp_path: Path) -> None:
    adata = annotated(sparse.csr_matrix(counts()))
    pca(adata, 3, scale=True)
    adata.write_h5ad(tmp_path / "a.h5ad")
    again = anndata.read_h5ad(tmp_path / "a.h5ad")
    np.testing.assert_array_equal(again.varm["PCs"], adata.varm["PCs"])
    project(again, again)
    assert_near(again.obsm["X_pca"], adata.obsm["X_pca"].astype(np.float64), 1e-6)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("form", ["csr", "csc", "array"])
def test_a_lazy_matrix_is_fitted_without_being_loaded(form: str, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    pytest.importorskip("dask.array")
    X = sparse.random_array((2300, 1100), density=0.01, rng=np.random.default_rng(0))
    X = X @ sparse.diags_array(np.geomspace(1, 1e-3, 1100))  # few passes find the first two
    anndata.AnnData(X.toarray() if form == "array" else X.asformat(form)).write_h5ad(tmp_path / "X.h5ad")
    expected = PCA(2, random_state=0, tol=1e-9).fit(X)
    sizes: list[int] = []

    def seen(block: Any) -> Any:
        sizes.append(block.shape[0] * block.shape[1])
        return block

    with h5py.File(tmp_path / "X.h5ad") as root:
        adata = anndata.experimental.read_lazy(root)
        adata.X = adata.X.map_blocks(seen, dtype=adata.X.dtype, meta=adata.X._meta)
        fits = [PCA(2, random_state=0, tol=1e-9).fit(adata.X)]
        pca(adata, 2)
        assert max(sizes) < X.shape[0] * X.shape[1]
        if form != "array":  # the matrix in the file itself
            fits.append(PCA(2, random_state=0, tol=1e-9).fit(anndata.io.sparse_dataset(root["X"])))
        assert_near(adata.obsm["X_pca"], fits[0].transform(X), 1e-3)
    for fit in fits:
        assert np.allclose(fit.singular_values_, expected.singular_values_, rtol=1e-9)
