"""`shiftsvd.scanpy` with columns of obs regressed out, and new cells that lack genes."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.preparation.covariates import Design
from shiftsvd.runs.messages import Notice
from shiftsvd.scanpy import pca, project
from tests.support.cells import CELLS, GENES, MASK, Dense, annotated, assert_alike, counts, design, known, logs

anndata, pandas = pytest.importorskip("anndata"), pytest.importorskip("pandas")
pytestmark = pytest.mark.filterwarnings(
    "ignore:The 'future.infer_string' option is deprecated", "ignore:The entries look like raw counts"
)

WAYS: dict[str, tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]] = {
    "numbers": ({"covariates": "pct_mito"}, ("pct_mito",), ()),
    "labels": ({"covariates": ["phase"]}, ("phase",), ()),
    "truths": ({"covariates": ["doublet"]}, ("doublet",), ()),
    "groups": ({"groups": "batch"}, (), ("batch",)),
    "two groups": ({"groups": ["batch", "phase"]}, (), ("batch", "phase")),
    "all": ({"covariates": ["pct_mito", "phase"], "groups": ["batch"]}, ("pct_mito", "phase"), ("batch",)),
}


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("name", list(WAYS))
def test_what_columns_of_obs_explain_is_gone(name: str, scale: bool) -> None:
    options, covariates, groups = WAYS[name]
    adata = annotated()
    pca(adata, 3, preprocess="log-normalize", scale=scale, tol=1e-9, **options)
    D, C = logs(counts())[:, MASK], design(known(), covariates, groups)
    want = Dense(D, C, 3, scale)
    np.testing.assert_allclose(adata.uns["pca"]["variance"], want.variance, rtol=1e-6)
    assert_alike(adata.obsm["X_pca"], want.scores(D, C))
    # Nothing is left of it in the scores.
    left = np.linalg.lstsq(C, adata.obsm["X_pca"].astype(float), rcond=None)[0]
    assert np.abs(C @ left).max() < 1e-5 * np.abs(adata.obsm["X_pca"]).max()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", list(WAYS))
def test_new_cells_lose_what_the_reference_has_learned_also_through_a_file(name: str, tmp_path: Path) -> None:
    options, covariates, groups = WAYS[name]
    adata, N = annotated(), counts(30, seed=5)
    pca(adata, 3, preprocess="log-normalize", scale=True, tol=1e-9, **options)
    adata.write_h5ad(tmp_path / "reference.h5ad")
    new = annotated(N, seed=5)[:, ::-1].copy()
    project(new, anndata.read_h5ad(tmp_path / "reference.h5ad"))
    D = logs(counts())[:, MASK]
    want = Dense(D, design(known(), covariates, groups), 3, scale=True)
    assert_alike(new.obsm["X_pca"], want.scores(logs(N)[:, MASK], design(known(30, 5), covariates, groups)))


def test_it_equals_regress_out_scale_and_pca_of_scanpy() -> None:
    sc = pytest.importorskip("scanpy")
    for keys, options in (
        (["pct_mito"], {"covariates": "pct_mito"}),
        ("phase", {"groups": "phase"}),
        (["pct_mito", "doublet"], {"covariates": ["pct_mito", "doublet"]}),
    ):
        ours, theirs = annotated(), annotated(container=np.array)
        pca(ours, 3, preprocess="log-normalize", scale=True, tol=1e-10, **options)
        sc.pp.normalize_total(theirs, target_sum=1e4)
        sc.pp.log1p(theirs)
        theirs.obs["doublet"] = theirs.obs["doublet"].astype(float)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what scanpy itself calls
            sc.pp.regress_out(theirs, keys)
            sc.pp.scale(theirs)
            sc.pp.pca(theirs, n_comps=3, svd_solver="full")
        np.testing.assert_allclose(ours.uns["pca"]["variance"], theirs.uns["pca"]["variance"], rtol=1e-5)
        assert_alike(ours.obsm["X_pca"], theirs.obsm["X_pca"])


@pytest.mark.parametrize("lazily", ["backed", "dask"])
def test_data_that_are_not_in_memory_give_the_same(lazily: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"covariates": ["pct_mito"], "groups": ["batch"], "scale": True, "tol": 1e-9}
    held = annotated()
    pca(held, 3, preprocess="log-normalize", **options)
    held.write_h5ad(tmp_path / "X.h5ad")
    if lazily == "backed":
        other = anndata.read_h5ad(tmp_path / "X.h5ad", backed="r")
    else:
        da = pytest.importorskip("dask.array")
        other = annotated()
        other.X = da.from_array(counts(), chunks=(50, GENES)).map_blocks(sparse.csr_matrix)
    pca(other, 3, preprocess="log-normalize", **options)
    assert_alike(other.obsm["X_pca"], held.obsm["X_pca"])
    if lazily == "backed":
        other.file.close()


def test_scanpys_data_are_left_as_they_were() -> None:
    adata = annotated()
    before = adata.X.copy()
    pca(adata, 3, covariates="pct_mito", groups="batch", scale=True)
    assert (adata.X != before).nnz == 0
    assert adata.uns["pca"]["params"]["covariates"] == "pct_mito, batch"
    pca(adata, 3)
    assert "design" not in adata.uns["pca"]


def test_columns_that_cannot_be_are_refused() -> None:
    adata = annotated()
    adata.obs["holes"] = np.where(np.arange(CELLS) < 2, np.nan, 1.0)
    adata.obs["gaps"] = adata.obs["phase"].where(np.arange(CELLS) > 2)
    for options, message in (
        ({"covariates": "nobody"}, "must be columns of obs, got 'nobody'"),
        ({"covariates": "holes"}, "'holes' must be finite, got NaN or infinity in 2 of 120"),
        ({"groups": ["gaps"]}, "'gaps' must have a label in every row, got none in 3 of 120"),
        ({"covariates": ["phase"], "groups": ["phase"]}, "different columns, got 'phase' twice"),
        ({"covariates": [3]}, "a column of obs or a list of them"),
        ({"groups": "batch", "zero_center": False}, "Remove zero_center=False and obsm"),
    ):
        with pytest.raises(ValueError, match=message):
            pca(adata, 3, **options)
    with pytest.raises(ValueError, match="covariates must be None unless data is AnnData"):
        pca(adata.X, 3, covariates="phase")
    assert not adata.obsm
    pca(adata, 3, groups="batch")
    new = annotated(counts(30, seed=5), seed=5)
    new.obs["batch"] = 9
    with pytest.raises(ValueError, match="'batch' has labels that did not occur in the training data"):
        project(new, adata)
    del new.obs["batch"]
    with pytest.raises(ValueError, match="must be columns of obs, got 'batch'"):
        project(new, adata)


@pytest.mark.parametrize("how", [None, "log-normalize", "pearson"])
def test_genes_that_are_absent_are_unobserved_and_counted(how: str | None) -> None:
    adata, N = annotated(), counts(30, seed=5)
    pca(adata, 3, preprocess=how, tol=1e-9)
    whole, lacking = annotated(N, seed=5), annotated(N, seed=5)
    absent = np.flatnonzero(MASK)[[4, 9]]
    there = np.setdiff1d(np.arange(GENES), absent)
    project(whole, adata)
    lacking = lacking[:, there[::-1]].copy()
    with pytest.warns(Notice) as told:
        project(lacking, adata)
    lines = [str(each.message) for each in told]
    assert "The new cells lack 2 of the 27 genes of the components: gene6, gene14. These genes" in str(lines)
    assert any("2 of the 40 genes in the library sizes" in line for line in lines) == (how == "log-normalize")
    # Least squares on the genes that are there: what of the cells lies on the components is found without a bias.
    V, shift = adata.varm["PCs"].astype(float), adata.varm["PCs_shift_scale"][:, 0]
    if how is None:
        kept = np.intersect1d(there, np.flatnonzero(MASK))
        want = np.linalg.lstsq(V[kept], (N[:, kept] - shift[kept]).T, rcond=None)[0].T
        np.testing.assert_allclose(lacking.obsm["X_pca"], want, atol=1e-4 * np.abs(want).max())
    size = np.linalg.norm(whole.obsm["X_pca"])
    assert np.linalg.norm(lacking.obsm["X_pca"] - whole.obsm["X_pca"]) < 0.5 * size


def test_cells_on_the_components_have_their_scores_whatever_is_absent() -> None:
    adata = annotated(container=np.asarray)
    pca(adata, 3, mask_var=None, tol=1e-10)
    V, shift = adata.varm["PCs"].astype(float), adata.varm["PCs_shift_scale"][:, 0]
    Z = np.random.default_rng(0).standard_normal((20, 3))
    new = anndata.AnnData(Z @ V.T + shift, var=adata.var)[:, 3:].copy()
    with pytest.warns(Notice, match="lack 3 of the 40 genes of the components"):
        project(new, adata)
    np.testing.assert_allclose(new.obsm["X_pca"], Z, atol=1e-5)


def test_too_many_absent_genes_are_refused_at_a_share_that_can_be_set() -> None:
    adata = annotated()
    pca(adata, 3, mask_var=None)
    few = annotated(counts(30, seed=5), seed=5)[:, 8:].copy()
    with pytest.raises(ValueError, match=r"lack 8 of the 40 genes .*limit 10 %, max_absent.*: gene0, gene1"):
        project(few, adata)
    with pytest.raises(ValueError, match="max_absent must be at least 0 and below 1"):
        project(few, adata, max_absent=1.5)
    with pytest.warns(Notice, match="lack 8 of the 40 genes of the components"):
        project(few, adata, max_absent=0.25)
    # A component that is of absent genes alone cannot be found, however few they are.
    X = counts()
    X[:, 3] *= 1000
    adata = annotated(X)
    pca(adata, 2, mask_var=None)
    without = annotated()[:, np.arange(GENES) != 3].copy()
    with (
        pytest.warns(Notice),
        pytest.raises(ValueError, match=r"hold only 0% of the squared loadings .* absent features are gene3\."),
    ):
        project(without, adata)


def test_dask_arrays_of_csc_chunks_of_whole_columns_are_decomposed() -> None:
    da = pytest.importorskip("dask.array")
    X = da.from_array(counts().astype(float), chunks=(CELLS, 10)).map_blocks(sparse.csc_array)
    np.testing.assert_allclose(ss.svd(X, 2, tol=1e-8).S, np.linalg.svd(counts())[1][:2], rtol=1e-6)
    pca, expected = ss.PCA(2, tol=1e-8).fit(X), ss.PCA(2, solver="exact").fit(counts())
    np.testing.assert_allclose(pca.singular_values_, expected.singular_values_, rtol=1e-6)


@pytest.mark.parametrize("chunks", [(20, GENES), (20, 10)])
def test_the_hint_for_dask_arrays_of_csc_chunks_works(chunks: tuple[int, int]) -> None:
    da = pytest.importorskip("dask.array")
    X = da.from_array(counts().astype(float), chunks=chunks).map_blocks(sparse.csc_array)
    with pytest.raises(ValueError, match=r"sparse chunks must be CSR, got CSC\. ") as refused:
        ss.svd(X, 2)
    hint = str(refused.value).partition("Use X = ")[2].removesuffix(".").replace("scipy.sparse", "sparse")
    assert hint == "X.map_blocks(sparse.csr_array).rechunk({0: 10_000, 1: -1})"
    F = ss.svd(eval(hint), 2, tol=1e-8)
    np.testing.assert_allclose(F.S, np.linalg.svd(counts())[1][:2], rtol=1e-6)


ESTIMATORS = {
    "PCA": lambda X: ss.PCA(2).fit(X),
    "svd": lambda X: ss.svd(X, 2),
    "TruncatedSVD": lambda X: ss.TruncatedSVD(2).fit(X),
    "partial_fit": lambda X: ss.PCA(2).partial_fit(X),
    "missing": lambda X: ss.PCA(2, missing="mean").fit(X),
    "svd, missing": lambda X: ss.svd(X, 2, shift="mean", missing="mean"),
    "transform": lambda X: ss.PCA(2).fit(counts()).transform(X),
    "preprocess": lambda X: ss.preprocess(X, "pearson"),
    "as_operator": ss.as_operator,
    "suggest_k": ss.suggest_k,
    "CorrespondenceAnalysis": lambda X: ss.CorrespondenceAnalysis(2).fit(X),
    "PCoA": lambda X: ss.PCoA(2, metric="euclidean").fit(X),
    "estimate": lambda X: ss.estimate(X, 2),
    "complete_matrix": lambda X: ss.complete_matrix(X, 2),
}


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, "AnnData") for name in ESTIMATORS), ("PCA", "view"), ("svd", "view"), ("svd", "raw")]
)
def test_what_is_no_matrix_but_holds_one_is_refused_with_what_to_call(name: str, kind: str) -> None:
    adata = annotated()
    adata.raw = adata
    given = {"AnnData": adata, "view": adata[:50], "raw": adata.raw}[kind]
    with pytest.raises(
        (TypeError, ValueError), match=r"Use shiftsvd\.scanpy\.pca\(adata\), or pass the matrix adata\.X"
    ):
        ESTIMATORS[name](given)


def test_a_model_of_named_columns_takes_their_labels_and_never_their_order() -> None:
    pd = pytest.importorskip("pandas")
    m = 60
    rng = np.random.default_rng(0)
    obs = pd.DataFrame(
        {"donor": np.array(["b", "a", "c"])[np.arange(m) % 3], "site": np.arange(m) // 20, "age": rng.random(m)}
    )
    X = rng.standard_normal((m, 8)) + 3 * rng.standard_normal((3, 8))[np.arange(m) % 3]

    def fitted(covariates: tuple[str, ...], groups: tuple[str, ...]) -> tuple[Any, Any]:
        design = Design.learn(covariates, groups, lambda name: obs[name].to_numpy())
        C = design.of(lambda name: obs[name].to_numpy())
        model = ss.PCA(2, shift=ss.Covariates(), random_state=0).fit(X, covariates=C)
        model.design_ = design
        return model, C

    one, C = fitted((), ("donor",))
    want = one.transform(X, covariates=C)
    for labels in (obs["donor"], obs["donor"].tolist(), obs["donor"].astype("category"), obs):
        np.testing.assert_array_equal(one.transform(X, groups=labels), want)
    assert one.neighbors(X, 5, groups=obs["donor"]).indices.shape == (m, 5)
    new = one.transform(X[:2], groups=["c", "b"])
    np.testing.assert_allclose(new, one.transform(X[:2], covariates=[[0, 0, 1], [0, 1, 0]]))
    with pytest.raises(ValueError, match="'donor' has labels that did not occur in the training data: 'z'"):
        one.transform(X[:1], groups=["z"])
    several, C = fitted(("age",), ("donor", "site"))
    want = several.transform(X, covariates=C)
    np.testing.assert_array_equal(several.transform(X, groups=obs[["site", "age", "donor"]]), want)
    np.testing.assert_array_equal(several.transform(X, groups=obs[["site", "donor"]], covariates=obs[["age"]]), want)
    for wrong in ({}, {"groups": obs["donor"]}, {"groups": obs[["donor", "age"]]}):
        with pytest.raises(ValueError, match="covariates must be a data frame with the columns 'age', 'donor', 'site'"):
            several.transform(X, **wrong)
    with pytest.raises(ValueError, match="groups must be the labels of 'donor', or a data frame with this column"):
        one.transform(X)
    with pytest.raises(ValueError, match=r"regresses out donor.*without --groups"):
        one.influence(X)


def test_numbers_in_another_unit_than_those_of_the_fit_are_told(tmp_path: Path) -> None:
    m = 60
    obs = pandas.DataFrame({"pct": np.linspace(0.0, 30.0, m), "batch": ["a", "b"] * (m // 2)})
    X = np.random.default_rng(0).random((m, 5))
    design = Design.learn(("pct",), ("batch",), lambda name: obs[name].to_numpy())
    model = ss.PCA(2, shift=ss.Covariates()).fit(X, covariates=design.of(lambda name: obs[name].to_numpy()))
    model.design_ = design
    model.save(tmp_path / "model.safetensors")
    model = ss.load_model(tmp_path / "model.safetensors", ss.PCA)
    for unit in (0.01, 20.0):  # fractions; per mille, or so
        low, high = (f"{unit * each:.3g}" for each in (0.0, 30.0))
        with pytest.warns(Notice, match=f"'pct' is from {low} to {high} in these rows, and from 0 to 30 in the fit"):
            model.transform(X, covariates=obs.assign(pct=unit * obs["pct"]))
    with pytest.warns(Notice, match="'pct' is from 31 to 61"):
        model.transform(X, covariates=obs.assign(pct=obs["pct"] + 31))
    model.transform(X[:3], covariates=obs.iloc[:3])  # a few small ones are no other unit
    model.transform(X, covariates=obs.assign(pct=0.5 * obs["pct"]))
    model.design_ = replace(design, ranges=())  # of an older file
    model.transform(X, covariates=obs.assign(pct=0.01 * obs["pct"]))
