"""PCA in every place where scikit-learn's is used: frames, pipelines, searches, pickles."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import shiftsvd as ss
from tests.support.pca_data import EPS, SOLVERS, counts


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_set_output_gives_frames_with_the_names_of_the_components(library):
    X = load_digits().data[:100]
    frame = pd.DataFrame if library == "pandas" else pl.DataFrame
    names = [f"pixel{j}" for j in range(64)]
    data = pd.DataFrame(X, columns=names, index=range(5, 105)) if library == "pandas" else pl.DataFrame(X, schema=names)
    pca = ss.PCA(3).set_output(transform=library)
    Z = pca.fit_transform(data)
    assert isinstance(Z, frame)
    assert list(Z.columns) == ["pca0", "pca1", "pca2"]
    assert list(pca.feature_names_in_) == names
    # A frame keeps its columns together: BLAS adds in another order there.
    assert np.abs(Z.to_numpy() - ss.PCA(3).fit_transform(X)).max() <= 100 * EPS * np.linalg.norm(X)
    if library == "pandas":
        assert list(Z.index) == list(range(5, 105))


def test_scores_of_sparse_data_become_frames_too():
    X = counts((50, 20))
    Z = ss.PCA(3).set_output(transform="pandas").fit_transform(X)
    assert list(Z.columns) == ["pca0", "pca1", "pca2"]
    assert np.array_equal(Z.to_numpy(), ss.PCA(3).fit_transform(X))


def test_frames_with_integers_booleans_and_nullable_columns_are_numbers():
    X = load_digits().data[:80, 10:16]
    expected = ss.PCA(2).fit(X).singular_values_
    frames = [
        pd.DataFrame(X).astype("Int64"),
        pd.DataFrame(X).astype("int16"),
        pd.DataFrame(X).astype({0: "Int64", 1: "float32", 2: "uint8"}),
        pl.DataFrame(X).cast(pl.Int32),
    ]
    for frame in frames:
        assert np.abs(ss.PCA(2).fit(frame).singular_values_ - expected).max() <= 100 * EPS * np.linalg.norm(X)


def test_columns_in_another_order_or_missing_are_named_in_the_error():
    data = pd.DataFrame(load_digits().data[:50, 2:6], columns=list("abcd"))
    pca = ss.PCA(2).fit(data)
    with pytest.raises(ValueError, match=r"(?s)feature names.*same order"):
        pca.transform(data[list("dcba")])
    with pytest.raises(ValueError, match=r"(?s)feature names.*missing.*- d"):
        pca.transform(data[list("abc")])
    with pytest.raises(ValueError, match="X has 3 features, but PCA is expecting 4 features"):
        ss.PCA(2).fit(data.to_numpy()).transform(data.to_numpy()[:, :3])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        pca.transform(data.to_numpy())


def test_pipeline_grid_search_clone_and_set_params_work():
    X, y = load_digits(return_X_y=True)
    X, y = X[:200], y[:200]
    pipe = make_pipeline(StandardScaler(), ss.PCA(random_state=0), LogisticRegression(max_iter=1000))
    grid = {"pca__n_components": [1, 20], "pca__whiten": [True, False]}
    search = GridSearchCV(pipe, grid, cv=2).fit(X, y)
    assert search.best_params_["pca__n_components"] == 20
    assert search.best_score_ > 0.8
    solvers = GridSearchCV(
        ss.PCA(3), {"solver": ["exact", ss.RandomizedSVD(n_iter=3)], "scale": [0.5 + np.ones(64)]}, cv=2
    )
    assert np.isfinite(solvers.fit(X).best_score_)
    pca = clone(pipe[1]).set_params(n_components=2, scale="pareto", shift=None)
    assert (pca.n_components, pca.scale, pca.shift, pca.random_state) == (2, "pareto", None, 0)
    with pytest.raises(ValueError, match="Invalid parameter 'ncomponents'"):
        pca.set_params(ncomponents=2)


@pytest.mark.parametrize("container", [np.asarray, csr_array])
def test_a_pipeline_takes_sample_weight_and_sparse_data(container):
    X = load_digits().data[:60]
    pipe = make_pipeline(ss.PCA(3))
    w = np.arange(60) % 2
    pipe.fit(container(X), pca__sample_weight=w)
    assert np.allclose(pipe[0].mean_, X[1::2].mean(axis=0), rtol=1e-14)


def test_parameters_are_those_of_scikit_learn_in_their_order_and_more():
    ours, theirs = ss.PCA().get_params(), __import__("sklearn.decomposition").decomposition.PCA().get_params()
    assert set(theirs) <= set(ours)
    for name in ("n_components", "copy", "whiten", "iterated_power", "n_oversamples", "random_state"):
        assert ours[name] == theirs[name]
    with pytest.raises(TypeError):
        ss.PCA(2, True)


def test_fit_can_be_repeated_with_other_features():
    pca = ss.PCA(2, scale=True).fit(counts((50, 20), density=0.9).toarray())
    pca.set_params(scale=False).fit(counts((40, 30)))
    assert pca.n_features_in_ == 30
    assert pca.components_.shape == (2, 30)
    assert pca.scale_ is None
    data = pd.DataFrame(np.eye(5), columns=list("abcde"))
    assert hasattr(pca.fit(data), "feature_names_in_")
    assert not hasattr(pca.fit(data.to_numpy()), "feature_names_in_")


def test_an_unfitted_model_says_so():
    for method in ("transform", "inverse_transform", "score", "score_samples"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(ss.PCA(2), method)(np.eye(3))
    for method in ("get_covariance", "get_precision", "get_feature_names_out"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(ss.PCA(2), method)()


@pytest.mark.parametrize("settings", SOLVERS, ids=str)
@pytest.mark.parametrize("container", [np.asarray, csr_array])
def test_a_pickled_model_transforms_alike(settings, container):
    X = container(counts((60, 25)).toarray())
    pca = ss.PCA(3, random_state=0, scale="std", **settings).fit(X)
    again = pickle.loads(pickle.dumps(pca))
    assert np.array_equal(again.transform(X), pca.transform(X))
    assert np.array_equal(again.score_samples(X), pca.score_samples(X))
    assert again.get_params().keys() == pca.get_params().keys()
    assert again.info_.solver == pca.info_.solver


def test_a_pickled_model_does_not_carry_the_data():
    X = np.random.default_rng(0).standard_normal((20000, 10))
    assert len(pickle.dumps(ss.PCA(3).fit(X))) < 20_000
    assert len(pickle.dumps(ss.PCA(3, solver="randomized").fit(X.T[:, :2000]))) < 200_000
