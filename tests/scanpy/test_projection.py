"""Other cells on the components of a reference, and what is refused of its loadings."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from shiftsvd.scanpy import pca, project
from tests.support.log_counts import CELLS, GENES, annotated, assert_near, chunks_of, counts, explicit

anndata = pytest.importorskip("anndata")

# What the newest anndata asks of the newest pandas while it writes a file.
pytestmark = pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated")


@pytest.mark.parametrize("scale", [False, True])
def test_new_cells_are_projected_by_the_means_of_the_reference(scale: bool) -> None:
    X, new = counts(), counts(15, seed=3)
    mask = np.arange(GENES) % 3 != 0
    reference = annotated(sparse.csr_matrix(X))
    pca(reference, 3, mask_var=mask, scale=scale)
    order = np.random.default_rng(0).permutation(GENES)[: GENES - 1]  # an unneeded gene may be absent
    order = np.union1d(order, np.flatnonzero(mask))[::-1]
    query = annotated(sparse.csr_matrix(new))[:, order].copy()
    project(query, reference)
    used = X[:, mask].astype(np.float64)
    deviations = used.std(axis=0, ddof=1) if scale else 1
    _, components, _ = explicit(X[:, mask], 3, scale=scale)
    assert_near(query.obsm["X_pca"], (new[:, mask] - used.mean(axis=0)) / deviations @ components.T, 1e-4)
    assert not query.varm


@pytest.mark.parametrize("kind", ["array", "csr_array", "csc_matrix", "view", "layer", "chunked", "backed"])
def test_new_cells_may_be_of_any_kind(kind: str, tmp_path: Path) -> None:
    X, new = counts(), counts(130, seed=3)
    reference = annotated(sparse.csr_matrix(X))
    pca(reference, 3, scale=True, key_added="mine")
    containers = {"csr_array": sparse.csr_array, "csc_matrix": sparse.csc_matrix}
    order = np.random.default_rng(1).permutation(GENES)  # files are read in their own
    query = annotated(containers.get(kind, np.asarray)(new))[:, order].copy()
    if kind == "view":
        query = annotated(np.vstack([X, new]))[CELLS:, order]
    elif kind == "layer":
        query.X, query.layers["here"] = 0 * new, new[:, order]
    elif kind == "chunked":
        query.X = chunks_of(new[:, order], sparse.csr_matrix)
    elif kind == "backed":
        pytest.importorskip("h5py")
        query.write_h5ad(tmp_path / "new.h5ad")
        query = anndata.read_h5ad(tmp_path / "new.h5ad", backed="r")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", anndata.ImplicitModificationWarning)
        project(query, reference, layer="here" if kind == "layer" else None, key_added="mine")
    if kind == "backed":
        query.file.close()
    seen = X.astype(np.float64)
    _, components, _ = explicit(X, 3, scale=True)
    assert_near(query.obsm["mine"], (new - seen.mean(axis=0)) / seen.std(axis=0, ddof=1) @ components.T, 1e-4)


def test_new_cells_must_have_the_genes() -> None:
    reference = annotated(counts())
    query = annotated(counts(5))[:, 3:].copy()
    with pytest.raises(ValueError, match=r"the reference must have varm\['PCs'\]\. Run shiftsvd\.scanpy\.pca"):
        project(query, reference)
    pca(reference, 2)
    with pytest.raises(ValueError, match=r"lack 3 of the 40 genes of the components .*: gene0, gene1, gene2"):
        project(query, reference, max_absent=0)
    pca(reference, 2, mask_var=np.arange(40) < 9)  # genes outside the mask are known to the reference
    with pytest.raises(
        ValueError, match=r"gene0, gene1, gene2\. Genes of the new cells that the reference lacks: none"
    ):
        project(query, reference)
    query = annotated(counts(5))
    query.var_names = ["same", "same", *query.var_names[2:]]
    with pytest.raises(ValueError, match="must be unique"):
        project(query, reference)


def test_names_of_genes_must_be_unique_where_cells_are_projected() -> None:
    names = annotated(counts()).var_names
    reference, query = annotated(counts()), annotated(counts(5))
    reference.var_names = ["gene1", *names[1:]]
    pca(reference, 2, mask_var=np.arange(GENES) != 1)
    query.var_names = ["gene1", "other", *names[2:]]
    project(query, reference)  # the other gene of this name is outside the mask
    pca(reference, 2)
    with pytest.raises(
        ValueError, match=r"gene names of the reference must be unique, got 'gene1' .* Call \.var_names"
    ):
        project(query, reference)
    query.var_names = ["gene2", *names[1:]]
    with pytest.raises(ValueError, match="gene names of the new cells must be unique, got 'gene2'"):
        project(query, reference)


def test_loadings_that_something_else_has_written_are_refused() -> None:
    reference = annotated(counts())
    pca(reference, 3, scale=True)
    other = pca(reference, 3, copy=True)
    reference.varm["PCs"] = other.varm["PCs"]  # as scanpy does: what belongs to the former ones stays
    told = r"varm\['PCs'\], have changed since shiftsvd\.scanpy\.pca wrote them: 40 of 40 genes differ"
    with pytest.raises(ValueError, match=told):
        project(annotated(counts(5)), reference)
    pca(reference, 3)
    project(annotated(counts(5)), reference)


def test_a_reference_without_genes_of_its_components_is_refused() -> None:
    reference, query = annotated(counts()), annotated(counts(5, seed=3))
    mask = np.arange(GENES) % 3 != 0
    pca(reference, 3, mask_var=mask)
    project(query, reference)
    want = query.obsm["X_pca"]
    project(query, reference[:, mask])
    np.testing.assert_array_equal(query.obsm["X_pca"], want)
    with pytest.raises(ValueError, match=r"the genes of the reference hold [\d.]+ % of the squared loadings"):
        project(query, reference[:, 6:])


def test_loadings_may_be_rounded_cut_to_some_genes_and_of_the_first_version(tmp_path: Path) -> None:
    reference, query = annotated(counts()), annotated(counts(5, seed=3))
    pca(reference, 3, scale=True, dtype="float64")
    project(query, reference)
    want = query.obsm["X_pca"]
    reference.varm["PCs"] = reference.varm["PCs"].astype(np.float32)
    reference.varm["PCs_shift_scale"] = reference.varm["PCs_shift_scale"].astype(np.float32)
    order = np.random.default_rng(0).permutation(GENES)
    reference = reference[:, order].copy()
    reference.write_h5ad(tmp_path / "a.h5ad")
    reference = anndata.read_h5ad(tmp_path / "a.h5ad")
    project(query, reference)
    assert_near(query.obsm["X_pca"], want, 1e-6)
    reference.varm["PCs_shift_scale"] = reference.varm["PCs_shift_scale"][:, :2]
    project(query, reference)
    assert_near(query.obsm["X_pca"], want, 1e-6)


def test_components_of_an_obsm_are_for_no_genes() -> None:
    reference = annotated(counts())
    pca(reference, 3)
    reference.obsm["D"] = counts(seed=1)[:, :10]
    pca(reference, 3, obsm="D")
    with pytest.raises(
        ValueError,
        match=r"must have components of genes, but uns\['pca'\] holds components of obsm='D'\. Run shiftsvd\.scanpy",
    ):
        project(annotated(counts(5)), reference)
    pca(reference, 3, key_added="mine")
    project(annotated(counts(5)), reference, key_added="mine")


def test_scores_of_the_reference_may_be_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    reference, query = annotated(counts()), annotated(counts(5))
    pca(reference, 3, dtype="float64")
    project(query, reference)
    want = query.obsm["X_pca"]
    reference.obsm["X_pca"] = pandas.DataFrame(reference.obsm["X_pca"], reference.obs_names, list("abc"))
    project(query, reference)
    np.testing.assert_array_equal(query.obsm["X_pca"], want)
    assert want.dtype == query.obsm["X_pca"].dtype == np.float64
