"""Some of the columns as a step among transformations: what comes before goes over all, what comes after not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator
from sklearn.base import clone

import shiftsvd as ss
from shiftsvd.io import open_matrix
from shiftsvd.preparation.prepare import Preparation
from tests.support.transformed import counts, pearson

X, NEW = counts(150, 40, seed=1).astype(float), counts(30, 40, seed=2).astype(float)
MASK = np.arange(40) % 3 != 1
PLACES = np.flatnonzero(MASK)


def logs(Y: np.ndarray) -> np.ndarray:
    return np.log1p(Y * 1e4 / np.maximum(Y.sum(axis=1), 1)[:, None])


ROWS: dict[str, tuple[Any, Any]] = {
    "alone": ([ss.Select(MASK)], lambda Y: Y[:, MASK]),
    "sums of all": ([ss.LogNormalize(), ss.Select(MASK)], lambda Y: logs(Y)[:, MASK]),
    "sums of those": ([ss.Select(PLACES), ss.LogNormalize()], lambda Y: logs(Y[:, MASK])),
    "between": (["sqrt", ss.LogNormalize(), ss.Select(MASK), "binarize"], lambda Y: (Y[:, MASK] > 0).astype(float)),
    "of those, dense": ([ss.Select(MASK), "pearson"], None),
    "of all, dense": (["pearson", ss.Select(MASK)], None),
}


def transformed(name: str) -> np.ndarray:
    how = ROWS[name][1]
    if how is not None:
        return np.asarray(how(X))
    return pearson(100)(X[:, MASK], X[:, MASK]) if name == "of those, dense" else pearson(100)(X, X)[:, MASK]


@pytest.fixture(params=["dense", "csr", "csc", "wide", "file", "file by columns", "dask"])
def given(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The counts in every container that has columns to take."""
    kind = request.param
    if kind.startswith("file"):
        pytest.importorskip("h5py")
        anndata = pytest.importorskip("anndata")
        of = sparse.csc_matrix if "columns" in kind else sparse.csr_matrix
        anndata.AnnData(of(X)).write_h5ad(tmp_path / "X.h5ad")
        return open_matrix(tmp_path / "X.h5ad", stream=True)[0]
    if kind == "dask":
        da = pytest.importorskip("dask.array")
        return da.from_array(X, chunks=(64, 40)).map_blocks(sparse.csr_array)
    return {"dense": X, "csr": sparse.csr_array(X), "csc": sparse.csc_array(X), "wide": np.asfortranarray(X)}[kind]


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated")
@pytest.mark.parametrize("name", list(ROWS))
def test_what_comes_before_goes_over_all_columns_and_what_comes_after_over_those(name: str, given: Any) -> None:
    D = transformed(name)
    F = ss.svd(given, 4, shift="mean", preprocess=ROWS[name][0], tol=1e-10, rng=0)
    exact = np.linalg.svd(D - D.mean(axis=0))[1][:4]
    np.testing.assert_allclose(F.S, exact, rtol=1e-7)
    assert F.Vh.shape == (4, len(PLACES))


@pytest.mark.parametrize("name", ["alone", "sums of all", "sums of those"])
@pytest.mark.parametrize("scale", [None, True, np.arange(1.0, 28.0)], ids=["no scale", "deviations", "a vector"])
def test_new_rows_of_all_columns_are_treated_alike_also_by_a_loaded_model(
    name: str, scale: Any, tmp_path: Path
) -> None:
    how, dense = ROWS[name]
    pca = ss.PCA(3, preprocess=how, scale=scale, solver="exact", random_state=0)
    pca.feature_names_in_ = None
    pca = clone(pca).fit(sparse.csr_array(X))
    D = dense(X)
    deviation = {None: 1.0}.get(scale, D.std(axis=0)) if scale is None or scale is True else scale
    Z = (dense(NEW) - D.mean(axis=0)) / deviation @ pca.components_.T
    np.testing.assert_allclose(pca.transform(NEW), Z, atol=1e-9 * np.abs(Z).max())
    assert pca.n_features_in_ == 40
    assert pca.components_.shape == (3, len(PLACES))
    assert pca.inverse_transform(Z).shape == (30, len(PLACES))
    pca.feature_names_in_ = np.array([f"g{j}" for j in range(40)], object)
    pca.save(tmp_path / "model.safetensors")
    again = ss.load_model(tmp_path / "model.safetensors", ss.PCA)
    del again.feature_names_in_, pca.feature_names_in_
    np.testing.assert_array_equal(again.transform(NEW), pca.transform(NEW))


@pytest.mark.filterwarnings("ignore:the first component is the mean")
def test_other_estimators_take_it_too() -> None:
    svd = ss.TruncatedSVD(3, preprocess=[ss.Select(MASK)], solver="exact").fit(X + 1)
    np.testing.assert_allclose(svd.singular_values_, np.linalg.svd(X[:, MASK] + 1)[1][:3])
    assert ss.preprocess(X, ss.Select([3, 1])).shape == (150, 2)


def test_plots_name_the_features_that_are_left() -> None:
    from shiftsvd.plot.fitted import read

    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=[f"g{j}" for j in range(40)])
    pca = ss.PCA(2, preprocess=[ss.Select(MASK)]).fit(frame)
    assert read(pca).feature_names() == [f"g{j}" for j in PLACES]


@pytest.mark.parametrize(
    ("places", "message"),
    [
        (np.zeros(40, bool), "keep at least one column"),
        ([], "a mask or indices of columns"),
        (["a"], "a mask or indices of columns"),
        ([1, 1], "nonnegative indices without duplicates"),
        ([-1, 2], "nonnegative indices without duplicates"),
    ],
)
def test_what_can_be_no_columns_is_refused(places: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ss.Select(places)


def test_columns_that_the_data_have_not_are_refused_before_any_work() -> None:
    for places, message in (
        (np.ones(39, bool), "a mask of the 40 columns, got length 39"),
        ([40], "must be in 0..39, got 40"),
    ):
        for call in (
            ss.PCA(2, preprocess=[ss.Select(places)]).fit,
            lambda X, p=places: ss.svd(X, 2, preprocess=ss.Select(p)),
        ):
            with pytest.raises(ValueError, match=message):
                call(X)
    with pytest.raises(ValueError, match="min\\(n_samples, n_features\\)=2"):
        ss.PCA(3, preprocess=[ss.Select([1, 2])]).fit(X)
    with pytest.raises(ValueError, match="changes zeros to other numbers and must be the last step"):
        ss.svd(X, 2, preprocess=["pearson", ss.Select(MASK), "binarize"])
    with pytest.raises(ValueError, match="must be selected before a shift"):
        ss.svd(ss.centered(X), 2, preprocess=ss.Select(MASK))
    with pytest.raises(TypeError, match=r"does not support the selection of columns"):
        ss.svd(aslinearoperator(X), 2, preprocess=ss.Select(MASK))


def test_a_selection_after_another_loses_no_bound_of_what_came_before() -> None:
    A = ss.as_operator(X.astype(np.float32))
    known = [
        Preparation("mean", entries=(ss.LogNormalize(), *selections)).learn(A).perturbation
        for selections in ([ss.Select(PLACES)], [ss.Select(PLACES), ss.Select(np.arange(len(PLACES)))])
    ]
    assert known[0].error > 0
    assert known[0] == known[1]
