"""Components of AnnData objects: scanpy's places and numbers, and what is refused."""

import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

from shiftsvd.scanpy import pca, project
from tests.support.log_counts import CELLS, GENES, annotated, assert_near, chunks_of, counts, explicit
from tests.support.subspaces import angle

anndata = pytest.importorskip("anndata")

# What the newest anndata asks of the newest pandas while it writes a file.
pytestmark = pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated")


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize(
    "container", [np.asarray, np.asfortranarray, sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix]
)
def test_results_are_those_of_the_definition_in_every_container(container: Any, scale: bool) -> None:
    X = counts()
    adata = annotated(container(X))
    assert pca(adata, 3, scale=scale) is None
    scores, components, variances = explicit(X, 3, scale=scale)
    assert_near(adata.obsm["X_pca"], scores, 1e-4)
    assert_near(adata.varm["PCs"].T, components, 1e-4)
    assert_near(adata.uns["pca"]["variance"], variances)
    total = GENES if scale else X.astype(np.float64).var(axis=0, ddof=1).sum()
    assert_near(adata.uns["pca"]["variance_ratio"], variances / total)
    assert adata.obsm["X_pca"].dtype == np.float32
    np.testing.assert_array_equal(adata.X.toarray() if sparse.issparse(adata.X) else adata.X, X)


def test_the_places_are_those_of_scanpy() -> None:
    adata = annotated(sparse.csr_matrix(counts()))
    adata.var["highly_variable"] = np.arange(GENES) % 3 != 0
    pca(adata, 4)
    assert list(adata.obsm) == ["X_pca"]
    assert adata.varm["PCs"].shape == (GENES, 4)
    assert set(adata.uns["pca"]) - {"value_errors"} == {"params", "variance", "variance_ratio"}
    params = adata.uns["pca"]["params"]
    assert params["tol"] == 1e-6
    assert {name: params[name] for name in params if name not in ("tol", "converged", "error_bound")} == {
        "zero_center": True,
        "use_highly_variable": True,
        "mask_var": "highly_variable",
    }


def test_scanpys_other_spellings_are_taken() -> None:
    usual, older, chunked, unmasked, all_genes = (annotated(sparse.csr_array(counts())) for _ in range(5))
    for adata in (usual, older, chunked, unmasked, all_genes):
        adata.var["highly_variable"] = np.arange(GENES) % 3 != 0
    pca(usual, 3)
    pca(older, 3, use_highly_variable=True, svd_solver="tsqr")
    pca(chunked, 3, chunked=True, chunk_size=50)
    pca(unmasked, 3, mask_var=None)
    pca(all_genes, 3, use_highly_variable=False)
    assert older.uns["pca"]["params"] == usual.uns["pca"]["params"]
    assert_near(older.obsm["X_pca"], usual.obsm["X_pca"], 1e-4)
    np.testing.assert_array_equal(chunked.obsm["X_pca"], usual.obsm["X_pca"])
    np.testing.assert_array_equal(all_genes.varm["PCs"], unmasked.varm["PCs"])
    with pytest.raises(ValueError, match="mask_var or use_highly_variable, not both"):
        pca(older, 3, mask_var=None, use_highly_variable=True)


@pytest.mark.parametrize("kind", ["series", "other order", "list", "boolean", "numbered", "names that are no genes"])
def test_a_mask_may_be_a_series_of_the_names_and_is_written_as_an_array(kind: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    mask = np.arange(GENES) % 3 != 0
    adata = annotated(sparse.csr_array(counts()))
    series = pandas.Series(mask, adata.var_names)
    given = {
        "series": series,
        "other order": series[::-1],
        "list": mask.tolist(),
        "boolean": series.astype("boolean"),
        "numbered": pandas.Series(mask),
        "names that are no genes": pandas.Series(mask, ["none", *adata.var_names[:0:-1]]),
    }[kind]
    pca(adata, 3, mask_var=given)
    np.testing.assert_array_equal(adata.varm["PCs"].any(axis=1), mask)
    adata.write_h5ad(tmp_path / "a.h5ad")
    again = anndata.read_h5ad(tmp_path / "a.h5ad")
    np.testing.assert_array_equal(again.uns["pca"]["params"]["mask_var"], mask)


@pytest.mark.parametrize("kind", ["object", "boolean"])
def test_a_column_of_genes_with_gaps_is_named_with_the_remedy(kind: str) -> None:
    adata = annotated(counts())
    column = adata.var_names.to_series().map(lambda name: name != "gene3").astype(kind)
    adata.var["highly_variable"] = column
    pca(adata, 3)
    np.testing.assert_array_equal(adata.varm["PCs"].any(axis=1), np.arange(GENES) != 3)
    adata.var["highly_variable"] = column.where(~column.index.isin(["gene5", "gene6"]))
    told = r"has 2 missing values in 40 genes\. Fill .*\.fillna\(False\)\.astype\(bool\), or pass mask_var=None"
    with pytest.raises(ValueError, match=f"the column 'highly_variable' of var {told}"):
        pca(adata, 3)
    with pytest.raises(ValueError, match=f"but the mask {told}"):
        pca(adata, 3, mask_var=adata.var["highly_variable"])
    adata.var["highly_variable"] = np.where(column, "True", "False").astype(object)
    with pytest.raises(ValueError, match="mask_var must be 40 booleans, got object"):
        pca(adata, 3)


def test_genes_outside_the_mask_have_loadings_of_zero() -> None:
    X = counts()
    mask = np.arange(GENES) % 3 != 0
    by_name, by_array, unmasked = (annotated(sparse.csr_array(X)) for _ in range(3))
    by_name.var["highly_variable"] = mask
    unmasked.var["highly_variable"] = mask
    pca(by_name, 3)
    pca(by_array, 3, mask_var=mask)
    pca(unmasked, 3, mask_var=None)
    scores, components, _ = explicit(X[:, mask], 3)
    for adata in (by_name, by_array):
        assert not adata.varm["PCs"][~mask].any()
        assert_near(adata.varm["PCs"][mask].T, components, 1e-4)
        assert_near(adata.obsm["X_pca"], scores, 1e-4)
    assert_near(unmasked.varm["PCs"].T, explicit(X, 3)[1], 1e-4)


def test_without_centring_the_numbers_are_those_of_truncated_svd() -> None:
    from sklearn.decomposition import TruncatedSVD

    X = counts().astype(np.float64)
    adata = annotated(sparse.csr_matrix(X))
    pca(adata, 3, zero_center=False, dtype="float64")
    other = TruncatedSVD(3, algorithm="arpack", random_state=0)
    scores = other.fit_transform(X)
    assert_near(np.abs(adata.obsm["X_pca"]), np.abs(scores))
    assert_near(adata.uns["pca"]["variance"], other.explained_variance_)
    assert_near(adata.uns["pca"]["variance_ratio"], other.explained_variance_ratio_)
    assert adata.uns["pca"]["params"]["zero_center"] is False


def test_the_default_number_is_fifty_or_one_less_than_there_are() -> None:
    small, large = annotated(counts()), annotated(counts(70, 60))
    pca(small)
    pca(large)
    assert small.obsm["X_pca"].shape == (CELLS, GENES - 1)
    assert large.obsm["X_pca"].shape == (70, 50)
    for few in (counts(1, 40), counts(40, 1)):
        told = f"at least 2 cells, and 2 genes unless n_comps is given, got {len(few)} cells? x {few.shape[1]} genes?"
        with pytest.raises(ValueError, match=told):
            pca(annotated(few))


def test_a_copy_may_have_keys_of_its_own() -> None:
    adata = annotated(sparse.csr_array(counts()))
    pca(adata, 2)
    result = pca(adata[::2], 2, key_added="half", mask_var=np.arange(GENES) < 20, copy=True)
    assert list(result.obsm) == ["X_pca", "half"]
    assert list(adata.obsm) == ["X_pca"]
    assert_near(result.obsm["half"], explicit(counts()[::2, :20], 2)[0], 1e-4)


def test_a_key_names_all_three() -> None:
    adata = annotated(counts())
    pca(adata, 2, key_added="mine")
    assert adata.obsm["mine"].shape == (CELLS, 2)
    assert adata.varm["mine"].shape == (GENES, 2)
    assert "variance" in adata.uns["mine"]
    assert "X_pca" not in adata.obsm


def test_a_layer_and_an_obsm_take_the_place_of_x() -> None:
    X, other = counts(), counts(seed=1)
    adata = annotated(X)
    adata.layers["other"] = sparse.csr_matrix(other)
    adata.obsm["features"] = other[:, :10]
    pca(adata, 2, layer="other")
    assert_near(adata.uns["pca"]["variance"], explicit(other, 2)[2])
    assert adata.uns["pca"]["params"]["layer"] == "other"
    pca(adata, 2, obsm="features", key_added="small")
    assert_near(adata.obsm["small"], explicit(other[:, :10], 2)[0], 1e-4)
    assert adata.uns["small"]["components"].shape == (2, 10)
    assert "small" not in adata.varm


def test_a_copy_leaves_the_original_alone() -> None:
    adata = annotated(counts())
    result = pca(adata, 2, copy=True)
    assert result.obsm["X_pca"].shape == (CELLS, 2)
    assert not adata.obsm
    assert not adata.uns


def test_a_view_becomes_an_object_of_its_own() -> None:
    X = counts()
    adata = annotated(sparse.csr_matrix(X))
    view = adata[10:90, ::2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", anndata.ImplicitModificationWarning)
        pca(view, 2)
    assert_near(view.obsm["X_pca"], explicit(X[10:90, ::2], 2)[0], 1e-4)
    assert not adata.obsm


def test_arrays_give_arrays() -> None:
    X = counts()
    scores, components, variances = explicit(X, 3)
    assert_near(pca(sparse.csr_array(X), 3), scores, 1e-4)
    found = pca(X, 3, return_info=True, dtype="float64")
    assert found[0].dtype == np.float64
    assert_near(found[1], components, 1e-4)
    assert_near(found[2], variances / X.astype(np.float64).var(axis=0, ddof=1).sum())
    assert_near(found[3], variances)


@pytest.mark.parametrize("kind", ["array", "list", "coo", "bsr", "csc", "frame", "sparse frame", "chunked"])
def test_a_mask_takes_genes_of_every_kind_of_matrix(kind: str) -> None:
    pandas = pytest.importorskip("pandas")
    X = counts()
    given = {
        "array": np.asarray,
        "list": np.ndarray.tolist,
        "coo": sparse.coo_matrix,
        "bsr": sparse.bsr_array,
        "csc": sparse.csc_array,
        "frame": pandas.DataFrame,
        "sparse frame": lambda X: pandas.DataFrame.sparse.from_spmatrix(sparse.csr_array(X)),
        "chunked": lambda X: chunks_of(X, sparse.csr_matrix),
    }[kind](X)
    mask = np.arange(GENES) < 20
    assert_near(pca(given, 3, mask_var=mask), explicit(X[:, :20], 3)[0], 1e-4)


def test_an_operator_has_no_genes_to_choose() -> None:
    operator = aslinearoperator(counts())
    with pytest.raises(TypeError, match=r"<Foreign .* does not support the selection of columns\. Pass an array"):
        pca(operator, 3, mask_var=np.arange(GENES) < 20)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"n_comps": 0}, r"n_comps must be an integer in 1\.\.40 for 120 cells x 40 genes, got 0"),
        ({"n_comps": 41}, "got 41"),
        ({"n_comps": 0.5}, r"got 0\.5"),
        ({"layer": "none"}, "adata has no layer 'none'. Its layers: "),
        ({"obsm": "none"}, "adata.obsm has no 'none'. Its entries: "),
        ({"layer": "a", "obsm": "b"}, "Pass layer or obsm, not both"),
        ({"obsm": "b", "mask_var": np.ones(GENES, bool)}, "mask_var selects genes"),
        ({"margins": "alll"}, 'margins must be "all", "mask" or None, got \'alll\''),
        ({"mask_var": "none"}, "mask_var must be a column of var or an array, got 'none'"),
        ({"mask_var": np.ones(3, bool)}, r"mask_var must be 40 booleans, got bool of shape \(3,\)"),
        ({"mask_var": np.arange(GENES)}, "mask_var must be 40 booleans, got int"),
        ({"mask_var": np.zeros(GENES, bool)}, "mask_var must be true for at least one gene"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], match: str) -> None:
    adata = annotated(counts())
    with pytest.raises(ValueError, match=match):
        pca(adata, **settings)
    assert not adata.obsm


def test_settings_of_annotated_data_are_refused_for_arrays() -> None:
    with pytest.raises(ValueError, match="layer, key_added must be None unless data is AnnData, got ndarray"):
        pca(counts(), layer="a", key_added="b")


@pytest.mark.slow
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("masked", [False, True])
def test_scanpy_itself_gives_the_same(container: Any, masked: bool) -> None:
    sc = pytest.importorskip("scanpy")
    ours = annotated(container(counts(400, 100)))
    if masked:
        ours.var["highly_variable"] = np.arange(100) % 3 != 0
    theirs = ours.copy()
    pca(ours)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sc.pp.pca(theirs)
    assert ours.uns["pca"]["params"].items() >= theirs.uns["pca"]["params"].items()
    assert_near(ours.uns["pca"]["variance"], theirs.uns["pca"]["variance"].astype(np.float64), 1e-5)
    assert_near(ours.uns["pca"]["variance_ratio"], theirs.uns["pca"]["variance_ratio"].astype(np.float64), 1e-5)
    for place in ("obsm", "varm"):
        key = {"obsm": "X_pca", "varm": "PCs"}[place]
        mine, other = getattr(ours, place)[key], getattr(theirs, place)[key]
        assert mine.shape == other.shape
        assert_near(mine[:, :3], other[:, :3].astype(np.float64), 1e-3)


@pytest.mark.slow
def test_the_tutorial_goes_on_with_the_same_neighbours() -> None:
    sc = pytest.importorskip("scanpy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw = annotated(sparse.csr_matrix(np.expm1(counts(1500, 600, groups=8)).round()))
        sc.pp.normalize_total(raw, target_sum=1e4)
        sc.pp.log1p(raw)
        sc.pp.highly_variable_genes(raw, n_top_genes=200)
        raw = raw[:, raw.var["highly_variable"]].copy()
        theirs, ours = raw.copy(), raw.copy()
        sc.pp.scale(theirs)
        swapped = theirs.copy()
        sc.pp.pca(theirs, n_comps=30, mask_var=None)
        pca(swapped, n_comps=30, mask_var=None)
        pca(ours, n_comps=30, mask_var=None, scale=True)
        for adata in (theirs, swapped, ours):
            sc.pp.neighbors(adata, n_neighbors=10, n_pcs=15)
        sc.tl.umap(ours)
    edges = set(zip(*theirs.obsp["distances"].nonzero(), strict=True))
    for adata in (swapped, ours):
        assert_near(adata.uns["pca"]["variance"], theirs.uns["pca"]["variance"].astype(np.float64), 1e-5)
        assert angle(adata.varm["PCs"][:, :3].astype(np.float64), theirs.varm["PCs"][:, :3].astype(np.float64)) < 1e-2
        shared = edges & set(zip(*adata.obsp["distances"].nonzero(), strict=True))
        assert len(shared) >= 0.99 * len(edges)
    assert sparse.issparse(ours.X)
    assert ours.obsm["X_umap"].shape == (1500, 2)


@pytest.mark.slow
def test_components_that_scanpy_has_replaced_are_refused() -> None:
    sc = pytest.importorskip("scanpy")
    reference, query = annotated(counts(400, 100)), annotated(counts(20, 100, seed=3))
    pca(reference, 5, scale=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sc.pp.pca(reference, n_comps=5)
    with pytest.raises(ValueError, match=r"changed since shiftsvd\.scanpy\.pca wrote them: 100 of 100 genes differ"):
        project(query, reference)


@pytest.mark.slow
def test_scanpy_draws_as_after_its_own() -> None:
    sc = pytest.importorskip("scanpy")
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib import pyplot

    adata = annotated(counts(400, 100))
    pca(adata, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for draw in (sc.pl.pca, sc.pl.pca_loadings, sc.pl.pca_variance_ratio):
            draw(adata, show=False)
        assert pyplot.get_fignums()
        pyplot.close("all")


@pytest.mark.slow
def test_scanpy_ingests_new_cells_as_after_its_own() -> None:
    sc = pytest.importorskip("scanpy")
    if [int(part) for part in version("pynndescent").split(".")[:2]] >= [0, 6]:
        pytest.skip("ingest of scanpy does not go with pynndescent 0.6 and later")
    placed = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method in (pca, sc.pp.pca):
            reference, query = annotated(counts(400, 100)), annotated(counts(50, 100, seed=3))
            method(reference, n_comps=5)
            sc.pp.neighbors(reference, n_neighbors=10)
            sc.tl.ingest(query, reference, embedding_method="pca")
            placed.append(query.obsm["X_pca"].astype(np.float64))
    assert_near(placed[0], placed[1], 1e-3)
