"""`shiftsvd.scanpy.pca` of raw counts: the numbers and the places of scanpy's own, without its dense residuals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.scanpy import pca, project
from tests.support.transformed import ROWS, counts, pearson

anndata = pytest.importorskip("anndata")
pytestmark = pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated")

X, NEW = counts(150, 40, seed=1), counts(30, 40, seed=2)
MASK = np.arange(40) % 3 != 1


def annotated(X: Any, mask: Any = None) -> Any:
    adata = anndata.AnnData(sparse.csr_matrix(X, dtype=np.float32))
    adata.obs_names = [f"cell{i}" for i in range(X.shape[0])]
    adata.var_names = [f"gene{j}" for j in range(X.shape[1])]
    if mask is not None:
        adata.var["highly_variable"] = mask
    return adata


def assert_components(adata: Any, D: np.ndarray, E: np.ndarray, new: Any, mask: Any = slice(None), k: int = 4) -> None:
    """Values, loadings and scores are those of the dense D, and scores of new cells those of E."""
    mean = D.mean(axis=0)
    _, S, Vh = np.linalg.svd(D - mean, full_matrices=False)
    V = np.asarray(adata.varm["PCs"], np.float64)[mask]
    np.testing.assert_allclose(adata.uns["pca"]["variance"], S[:k] ** 2 / (len(D) - 1), rtol=1e-6)
    np.testing.assert_allclose(np.abs(np.sum(V.T * Vh[:k], axis=1)), 1, atol=1e-4)
    size = np.abs(adata.obsm["X_pca"]).max()
    np.testing.assert_allclose(adata.obsm["X_pca"], (D - mean) @ V, atol=2e-5 * size)
    np.testing.assert_allclose(new.obsm["X_pca"], (E - mean) @ V, atol=2e-5 * size)


@pytest.mark.parametrize("mask", [None, MASK])
def test_residuals_are_those_of_scanpy_in_its_places(mask: Any) -> None:
    sc = pytest.importorskip("scanpy")
    cells = X.sum(axis=1) > 0  # scanpy divides by 0 for cells without counts
    ours, theirs = annotated(X[cells], mask), annotated(X[cells], mask)
    pca(ours, 5, preprocess="pearson", tol=1e-10, random_state=0)
    sc.experimental.pp.normalize_pearson_residuals_pca(theirs, n_comps=5, kwargs_pca={"svd_solver": "full"})
    assert set(theirs.obsm) <= set(ours.obsm)
    assert set(theirs.varm) <= set(ours.varm)
    assert set(theirs.uns["pca"]) <= set(ours.uns["pca"])
    assert set(theirs.uns["pca"]["params"]) <= set(ours.uns["pca"]["params"])
    said, told = theirs.uns["pearson_residuals_normalization"], ours.uns["pearson_residuals_normalization"]
    assert set(said) - set(told) == {"pearson_residuals_df"}  # which are dense
    assert {**{name: said[name] for name in told}, "clip": np.sqrt(cells.sum())} == told  # scanpy leaves clip=None
    for name in ("variance", "variance_ratio"):
        np.testing.assert_allclose(ours.uns["pca"][name], theirs.uns["pca"][name], rtol=1e-5)
    signs = np.sign(np.sum(ours.varm["PCs"] * theirs.varm["PCs"], axis=0))
    np.testing.assert_allclose(ours.varm["PCs"] * signs, theirs.varm["PCs"], atol=1e-4)
    size = np.abs(theirs.obsm["X_pca"]).max()
    np.testing.assert_allclose(ours.obsm["X_pca"] * signs, theirs.obsm["X_pca"], atol=1e-4 * size)


def test_log_counts_are_those_of_scanpy_whose_library_sizes_are_of_all_genes() -> None:
    sc = pytest.importorskip("scanpy")
    cells = X.sum(axis=1) > 0
    ours, theirs = annotated(X[cells], MASK), annotated(X[cells], MASK)
    pca(ours, 5, preprocess="log-normalize", tol=1e-10)
    sc.pp.normalize_total(theirs, target_sum=1e4)
    sc.pp.log1p(theirs)
    sc.pp.pca(theirs, n_comps=5, svd_solver="arpack")
    np.testing.assert_allclose(ours.uns["pca"]["variance"], theirs.uns["pca"]["variance"], rtol=1e-5)
    np.testing.assert_allclose(np.abs(ours.varm["PCs"]), np.abs(theirs.varm["PCs"]), atol=1e-4)


def logs(Y: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    return np.log1p(Y * 1e4 / np.maximum(sizes, 1)[:, None])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("margins", [None, "all", "mask"])
@pytest.mark.parametrize("how", ["log-normalize", "pearson"])
def test_sums_go_over_the_genes_that_margins_names(how: str, margins: Any) -> None:
    adata, new = annotated(X, MASK), annotated(NEW)
    pca(adata, 4, preprocess=how, margins=margins, tol=1e-9)
    project(new, adata)
    of_all = margins == "all" or (margins is None and how == "log-normalize")
    if how == "log-normalize":
        D, E = (logs(Y[:, MASK], (Y if of_all else Y[:, MASK]).sum(axis=1)) for Y in (X, NEW))
    elif of_all:
        D, E = (pearson(100)(X, Y)[:, MASK] for Y in (X, NEW))
        E = np.clip(ROWS["pearson, never cut off"].dense(X, NEW)[:, MASK], -np.sqrt(150), np.sqrt(150))
    else:
        D, E = pearson(100)(X[:, MASK], X[:, MASK]), pearson(100)(X[:, MASK], NEW[:, MASK])
        E = np.clip(ROWS["pearson, never cut off"].dense(X[:, MASK], NEW[:, MASK]), -np.sqrt(150), np.sqrt(150))
    assert_components(adata, D, E, new, MASK)


FIRST = {type(ROWS[name].how): name for name in reversed([*ROWS])}.values()  # of each class
LONG = [pytest.param(name, marks=pytest.mark.long) for name in ROWS if name not in FIRST and "each" not in name]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", [*FIRST, *LONG])
def test_new_cells_are_transformed_by_what_was_learned_also_through_a_file(name: str, tmp_path: Path) -> None:
    T, N = counts(), counts(31, seed=3)
    adata, new = annotated(T), annotated(N)
    pca(adata, 3, preprocess=ROWS[name].how, tol=1e-9)
    moved = new[:, np.random.default_rng(0).permutation(T.shape[1])].copy()
    project(moved, adata)
    adata.write_h5ad(tmp_path / "reference.h5ad")
    reference = anndata.read_h5ad(tmp_path / "reference.h5ad")
    project(new, reference)
    np.testing.assert_allclose(moved.obsm["X_pca"], new.obsm["X_pca"], rtol=1e-5, atol=1e-5 * np.ptp(new.obsm["X_pca"]))
    assert_components(reference, ROWS[name].dense(T, T), ROWS[name].dense(T, N), new, k=3)


def test_several_are_learned_before_the_mask_while_sums_are_of_all_genes() -> None:
    adata, new = annotated(X, MASK), annotated(NEW)
    pca(adata, 4, preprocess=["sqrt", "log-normalize", "ranks"], tol=1e-9)
    project(new, adata)
    L, M = (logs(np.sqrt(Y)[:, MASK], np.sqrt(Y).sum(axis=1)) for Y in (X, NEW))
    assert_components(adata, ROWS["ranks"].dense(L, L), ROWS["ranks"].dense(L, M), new, MASK)
    assert "LogNormalize" in adata.uns["pca"]["params"]["preprocess"]
    assert "pearson_residuals_normalization" not in adata.uns


def test_counts_of_a_layer_and_of_a_backed_file(tmp_path: Path) -> None:
    adata = annotated(np.log1p(X), MASK)
    adata.layers["counts"] = sparse.csr_matrix(X)
    pca(adata, 4, preprocess="pearson", layer="counts")
    assert adata.uns["pearson_residuals_normalization"]["computed_on"] == "counts"
    other = annotated(X, MASK)
    other.write_h5ad(tmp_path / "X.h5ad")
    backed = anndata.read_h5ad(tmp_path / "X.h5ad", backed="r")
    for how in ("pearson", "log-normalize"):
        pca(other, 4, preprocess=how, tol=1e-9)
        pca(backed, 4, preprocess=how, tol=1e-9, memory_limit="50MB")
        np.testing.assert_allclose(backed.uns["pca"]["variance"], other.uns["pca"]["variance"], rtol=1e-7)
        size = np.abs(other.obsm["X_pca"]).max()
        np.testing.assert_allclose(backed.obsm["X_pca"], other.obsm["X_pca"], atol=1e-4 * size)
    backed.file.close()


@pytest.mark.filterwarnings("ignore::anndata.ImplicitModificationWarning")
def test_a_view_of_a_dense_matrix_is_an_array() -> None:
    adata = annotated(X, MASK)
    dense = anndata.AnnData(X.astype(np.float32), adata.obs, adata.var)
    view = dense[10:, ::-1]
    pca(view, 3, preprocess="log-normalize")
    whole = dense[10:, ::-1].copy()
    pca(whole, 3, preprocess="log-normalize")
    np.testing.assert_array_equal(view.obsm["X_pca"], whole.obsm["X_pca"])
    for new in (dense[:5].copy(), dense[:5]):
        project(new, whole)
        assert new.obsm["X_pca"].shape == (5, 3)


@pytest.mark.parametrize("options", [{"scale": True}, {"zero_center": False}])
def test_scales_and_centring_come_afterwards(options: dict[str, Any]) -> None:
    scores, components, ratio, variance = pca(
        X, 3, preprocess="pearson", return_info=True, tol=1e-10, dtype="float64", **options
    )
    D = pearson(100)(X, X)
    D = D if "zero_center" in options else (D - D.mean(axis=0)) / D.std(axis=0, ddof=1)
    Vh = np.linalg.svd(D, full_matrices=False)[2][:3]
    np.testing.assert_allclose(np.abs(np.sum(Vh * components, axis=1)), 1, atol=1e-8)
    np.testing.assert_allclose(scores, D @ components.T, atol=1e-8 * np.abs(scores).max())
    spread = scores.var(axis=0, ddof=0 if "zero_center" in options else 1)
    np.testing.assert_allclose(variance, spread, rtol=1e-8)
    total = D.var(axis=0, ddof=0 if "zero_center" in options else 1).sum()
    np.testing.assert_allclose(ratio, spread / total, rtol=1e-8)


def test_an_array_with_a_mask_is_the_object_with_the_mask() -> None:
    adata = annotated(X, MASK)
    for how in ("log-normalize", "pearson"):
        pca(adata, 3, preprocess=how)
        Z = pca(sparse.csr_array(X), 3, preprocess=how, mask_var=MASK)
        np.testing.assert_allclose(Z, adata.obsm["X_pca"], atol=1e-4 * np.abs(Z).max())
    few = np.arange(len(MASK)) < 5
    assert pca(sparse.csr_array(X), preprocess=how, mask_var=few).shape[1] == 4  # one less than there are genes


def test_what_cannot_be_is_refused() -> None:
    adata = annotated(X, MASK)
    for options, message in (
        ({"preprocess": "pearsn"}, "must be one of log-normalize"),
        ({"preprocess": ["pearson", "sqrt"]}, "must be the last step"),
        ({"preprocess": "pearson", "margins": "genes"}, 'margins must be "all", "mask" or None'),
        ({"preprocess": ss.PearsonResiduals(np.ones(40))}, "one for each of the 27 columns"),
    ):
        with pytest.raises(ValueError, match=message):
            pca(adata, 3, **options)
    with pytest.warns(ss.transforms.ValuesWarning, match="look like logarithms"):
        pca(annotated(np.log1p(X)), 3, preprocess="pearson")
    assert not adata.obsm
    pca(adata, 3, preprocess="log-normalize")
    lacking = annotated(NEW)[:, MASK].copy()
    with pytest.raises(ValueError, match="lack 13 of the 40 genes"):  # its library sizes are of all
        project(lacking, adata)
    with pytest.raises(ValueError, match="was fitted on, in the same order"):
        project(annotated(NEW), adata[:, MASK].copy())
    pca(adata, 3, preprocess="pearson")
    few = annotated(NEW)[:, MASK].copy()
    project(few, adata[:, MASK].copy())  # whose residuals are of the mask alone
    assert few.obsm["X_pca"].shape == (30, 3)
