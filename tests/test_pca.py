"""PCA on every container, in every place where scikit-learn's PCA is used."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from scipy.sparse import csc_array, csc_matrix, csr_array, csr_matrix, random_array
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import shiftsvd as ss

EPS = np.finfo(np.float64).eps
NAMES = ["auto", "exact", "randomized", "shifted-randomized"]
SOLVERS = [
    *({"solver": name} for name in NAMES),
    *({"svd_solver": name} for name in ("auto", "full", "covariance_eigh", "arpack", "randomized")),
    {"solver": ss.RandomizedSVD()},
    {"solver": ss.ShiftedRandomizedSVD(n_oversamples=12, n_iter=1)},
    {"solver": ss.Exact()},
]
SHAPES = [(70, 30), (30, 70), (40, 40)]


def counts(shape, dtype=np.float64, density=0.2, seed=0):
    """Sparse positive data, off centre."""
    rng = np.random.default_rng(seed)
    X = random_array(shape, density=density, format="csr", rng=rng, data_sampler=lambda size: 1 + rng.random(size))
    return X.astype(dtype)


def int64_indices(kind):
    def made(X):
        X = kind(X)
        X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
        return X

    return made


def unsorted_with_duplicates(X):
    """The same matrix with each entry in two halves, columns backwards."""
    X = csr_array(X)
    indices = np.concatenate([np.tile(X.indices[a:b][::-1], 2) for a, b in zip(X.indptr, X.indptr[1:], strict=False)])
    data = np.concatenate([np.tile(X.data[a:b][::-1] / 2, 2) for a, b in zip(X.indptr, X.indptr[1:], strict=False)])
    return csr_array((data, indices, 2 * X.indptr), shape=X.shape)


def with_explicit_zeros(X):
    X = csr_array(X)
    X.data[::7] = 0
    dense = X.toarray()
    assert np.count_nonzero(dense) < X.nnz
    return X


def sparse_frame(X):
    return pd.DataFrame.sparse.from_spmatrix(csr_array(X), columns=[f"g{j}" for j in range(X.shape[1])])


CONTAINERS = {
    "csr_array": csr_array,
    "csr_matrix": csr_matrix,
    "csc_array": csc_array,
    "csc_matrix": csc_matrix,
    "csr_int64": int64_indices(csr_array),
    "csc_int64": int64_indices(csc_array),
    "coo": sparse.coo_array,
    "lil": sparse.lil_array,
    "bsr": sparse.bsr_array,
    "dok": sparse.dok_array,
    "duplicates": unsorted_with_duplicates,
    "pandas_sparse": sparse_frame,
}


def assert_same(a, b, X, settings=None):
    """Two fits of one algorithm on the same numbers: equal up to rounding, components up to their gaps."""
    size = sparse.linalg.norm(X) if sparse.issparse(X) else np.linalg.norm(X)
    S = b.singular_values_.astype(float)
    eps = np.finfo(b.components_.dtype).eps
    gap = max(np.abs(np.diff(S, append=b.noise_variance_**0.5 * (b.n_samples_ - 1) ** 0.5)).min(), EPS * size)
    assert a.components_.dtype == b.components_.dtype
    assert np.abs(a.mean_ - b.mean_).max() <= 10 * EPS * size
    assert np.abs(a.singular_values_ - S).max() <= 30 * eps * size
    assert np.abs(a.explained_variance_ratio_ - b.explained_variance_ratio_).max() <= 30 * eps * size / S[0]
    assert a.noise_variance_ == pytest.approx(b.noise_variance_, rel=30 * eps * size / S[0])
    assert np.abs(a.components_ - b.components_).max() <= 1000 * eps * size / gap


# Containers


CORE = ["csr_array", "csr_matrix", "csc_array", "csc_matrix", "csr_int64", "csc_int64"]
CASES = [(container, settings) for container in CORE for settings in SOLVERS]
CASES += [(container, settings) for container in CONTAINERS if container not in CORE for settings in SOLVERS[:3]]


@pytest.mark.parametrize(("container", "settings"), CASES, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_sparse_equals_dense_for_every_solver(container, settings, shape):
    X = counts(shape)
    dense = ss.PCA(4, random_state=0, **settings).fit(X.toarray())
    A = CONTAINERS[container](X)
    pca = ss.PCA(4, random_state=0, **settings)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "pandas.DataFrame with sparse columns found")
        Z = pca.fit_transform(A)
    assert_same(pca, dense, X)
    assert isinstance(Z, np.ndarray)
    gap = np.abs(np.diff(dense.singular_values_)).min()
    size = sparse.linalg.norm(X)
    assert np.abs(Z - dense.transform(X.toarray())).max() <= 1000 * EPS * size**2 / gap


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int32, np.uint8, np.int8, bool, np.float16])
@pytest.mark.parametrize("container", [csr_array, csc_array])
def test_sparse_numbers_of_every_kind_equal_their_dense_values(dtype, container):
    X = (counts((60, 25)) * 3).astype(dtype) if dtype is not np.float16 else counts((60, 25)) * 3
    dense = X.toarray().astype(dtype)
    A = container(X)
    if dtype is np.float16:
        A.data = A.data.astype(dtype)
    pca = ss.PCA(4).fit(A)
    exact = ss.PCA(4).fit(dense.astype(np.float64))
    single = dtype in (np.float32, np.float16)
    assert pca.components_.dtype == (np.float32 if single else np.float64)
    eps = np.finfo(pca.components_.dtype).eps
    assert np.abs(pca.singular_values_ - exact.singular_values_).max() <= 30 * eps * np.linalg.norm(dense.astype(float))
    assert np.abs(np.abs((pca.components_ * exact.components_).sum(axis=1)) - 1).max() <= 1000 * eps


@pytest.mark.parametrize("settings", SOLVERS, ids=str)
def test_explicit_zeros_change_nothing(settings):
    X = with_explicit_zeros(counts((60, 25)))
    pruned = X.copy()
    pruned.eliminate_zeros()
    a, b = (ss.PCA(3, random_state=0, **settings).fit(A) for A in (X, pruned))
    assert_same(a, b, X)


class NeverDense(csr_matrix):
    """A sparse matrix that cannot become dense."""

    def toarray(self, *args, **kwargs):
        raise AssertionError("densified")

    todense = toarray
    __array__ = toarray


@pytest.mark.parametrize("settings", SOLVERS, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_sparse_matrix_is_never_densified(settings, shape, monkeypatch):
    X = counts(shape)
    for kind in (csr_array, csc_array, csr_matrix, csc_matrix, sparse.coo_array):
        for name in ("toarray", "todense"):
            monkeypatch.setattr(kind, name, NeverDense.toarray)
    A = NeverDense(X)
    pca = ss.PCA(3, random_state=0, **settings).fit(A)
    Z = pca.transform(A)
    assert pca.fit_transform(A).shape == (shape[0], 3)
    assert np.isfinite(Z).all()
    pca.score_samples(A)
    pca.set_params(scale=True, whiten=True).fit(A, sample_weight=np.ones(shape[0])).transform(A)
    if "svd_solver" not in settings and settings["solver"] in ("auto", "exact"):
        ss.PCA(0.5).fit(A)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_order_of_a_dense_array_in_memory_changes_nothing(order, shape):
    X = counts(shape).toarray()
    assert_same(ss.PCA(4).fit(np.asarray(X, order=order)), ss.PCA(4).fit(X), X)
    strided = np.zeros((2 * shape[0], 3 * shape[1]))[::2, ::-3]
    strided[...] = X
    assert_same(ss.PCA(4).fit(strided), ss.PCA(4).fit(X), X)


def test_a_memory_map_and_a_read_only_array_are_read_in_place(tmp_path):
    X = load_digits().data[:200]
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    frozen = X.copy()
    frozen.flags.writeable = False
    for A in (mapped, frozen):
        pca = ss.PCA(5)
        Z = pca.fit_transform(A)
        assert np.array_equal(pca.components_, ss.PCA(5).fit(X).components_)
        assert np.array_equal(Z, pca.transform(X))


def test_read_only_sparse_arrays_are_read_in_place():
    X = counts((60, 25))
    for container in (csr_array, csc_array):
        A = container(X)
        for part in (A.data, A.indices, A.indptr):
            part.flags.writeable = False
        assert_same(ss.PCA(3).fit(A), ss.PCA(3).fit(X), X)
        assert ss.PCA(3).fit(A).transform(A).shape == (60, 3)


@pytest.mark.parametrize("settings", SOLVERS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("copy", [True, False])
def test_input_is_never_modified(settings, dtype, copy):
    X = (10 * counts((50, 20))).astype(dtype)
    weights = np.arange(50) % 3
    inputs = [X.toarray(), np.asfortranarray(X.toarray()), X, csc_array(X)]
    if dtype is not np.uint8:
        inputs.append(unsorted_with_duplicates(X))
    for A in inputs:
        parts = [A] if isinstance(A, np.ndarray) else [A.data, A.indices, A.indptr]
        before = [part.copy() for part in parts]
        pca = ss.PCA(3, random_state=0, scale=True, copy=copy, **settings)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*have no variance")
            pca.fit(A, sample_weight=weights)
        pca.transform(A)
        pca.score_samples(A)
        for part, old in zip(parts, before, strict=True):
            assert np.array_equal(part, old)
        assert parts[0].dtype == dtype


@pytest.mark.parametrize("copy", [True, False])
def test_a_vector_of_settings_is_stored_untouched(copy):
    mu, scale = np.linspace(-1, 1, 20), np.linspace(1, 2, 20)
    pca = ss.PCA(3, shift=mu, scale=scale, copy=copy)
    assert pca.get_params()["shift"] is mu
    pca.fit(counts((50, 20)))
    assert pca.shift is mu
    assert pca.scale is scale
    assert np.array_equal(mu, np.linspace(-1, 1, 20))
    # What was fitted does not follow when the caller's array changes.
    fitted = pca.mean_.copy()
    mu[:] = 7
    scale[:] = 7
    assert np.array_equal(pca.mean_, fitted)
    assert np.array_equal(pca.scale_, np.linspace(1, 2, 20))


# Frames, names, pipelines


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


# transform


@pytest.mark.parametrize(("scale", "whiten"), [(False, False), (True, True)])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
@pytest.mark.parametrize("settings", SOLVERS, ids=str)
def test_fit_transform_is_fit_then_transform_to_the_bit(settings, container, shape, scale, whiten):
    X = container(counts(shape).toarray())
    make = lambda: ss.PCA(4, random_state=0, scale=scale, whiten=whiten, **settings)  # noqa: E731
    assert np.array_equal(make().fit_transform(X), make().fit(X).transform(X))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
def test_new_rows_are_centred_with_the_mean_of_the_training_rows(container, dtype):
    X, new = counts((80, 30), dtype), counts((7, 30), dtype, seed=1)
    pca = ss.PCA(5).fit(container(X.toarray()))
    Z = pca.transform(container(new.toarray()))
    expected = (new.toarray().astype(float) - pca.mean_) @ pca.components_.T.astype(float)
    assert Z.dtype == dtype
    assert np.abs(Z - expected).max() <= 10 * np.finfo(dtype).eps * np.linalg.norm(new.toarray(), axis=1).max()


@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
def test_a_single_row_gives_the_scores_it_has_in_a_batch(container):
    X = counts((80, 30)).toarray()
    pca = ss.PCA(5).fit(X)
    Z = pca.transform(container(X))
    for i in (0, 17, 79):
        alone = pca.transform(container(X[i : i + 1]))
        assert alone.shape == (1, 5)
        assert np.abs(alone - Z[i]).max() <= 10 * EPS * np.linalg.norm(X[i])


def test_scores_of_the_training_rows_have_the_variances_and_no_correlation():
    X = counts((200, 30))
    for whiten in (False, True):
        pca = ss.PCA(6, whiten=whiten).fit(X)
        C = np.cov(pca.transform(X), rowvar=False)
        expected = np.eye(6) if whiten else np.diag(pca.explained_variance_)
        assert np.abs(C - expected).max() <= 1000 * EPS * np.abs(expected).max()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("whiten", [False, True])
def test_inverse_transform_is_the_projection_on_the_components(whiten, dtype):
    X = counts((60, 25), dtype)
    pca = ss.PCA(5, whiten=whiten).fit(X)
    V = pca.components_.astype(float)
    dense = X.toarray().astype(float)
    expected = (dense - pca.mean_) @ V.T @ V + pca.mean_
    back = pca.inverse_transform(pca.transform(X))
    assert back.dtype == dtype
    assert np.abs(back - expected).max() <= 30 * np.finfo(dtype).eps * np.linalg.norm(dense)


def test_inverse_transform_refuses_scores_of_another_number_of_components():
    pca = ss.PCA(5).fit(counts((60, 25)))
    for Z in (np.ones((3, 4)), np.ones(5), np.ones((2, 5, 1))):
        with pytest.raises(ValueError, match=r"scores must have shape \(n_samples, 5\), got \("):
            pca.inverse_transform(Z)


# The probabilistic model


@pytest.mark.parametrize("container", [csr_array, csc_array])
@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_likelihoods_of_sparse_data_are_those_of_dense(shape, whiten, container):
    X = counts(shape)
    dense = ss.PCA(4, whiten=whiten).fit(X.toarray())
    pca = ss.PCA(4, whiten=whiten).fit(container(X))
    bound = 1e4 * EPS * dense.explained_variance_[0] / dense.noise_variance_
    expected = dense.score_samples(X.toarray())
    assert np.abs(pca.score_samples(container(X)) - expected).max() <= bound * np.abs(expected).max()
    assert pca.score(container(X)) == pytest.approx(expected.mean(), rel=bound)
    assert np.abs(pca.get_covariance() - dense.get_covariance()).max() <= bound
    inverse = pca.get_precision() @ pca.get_covariance()
    assert np.abs(inverse - np.eye(shape[1])).max() <= bound


def test_score_samples_is_the_density_of_the_normal_distribution_of_the_model():
    from scipy.stats import multivariate_normal

    X = counts((100, 12))
    pca = ss.PCA(4).fit(X)
    density = multivariate_normal(pca.mean_, pca.get_covariance())
    assert np.allclose(pca.score_samples(X), density.logpdf(X.toarray()), rtol=1e-10, atol=0)


def test_a_likelihood_without_noise_is_minus_infinity_off_the_components():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((10, 30))
    pca = ss.PCA().fit(X)
    assert np.isfinite(pca.score_samples(X)).all()
    assert np.all(pca.score_samples(rng.standard_normal((5, 30))) == -np.inf)


@pytest.mark.parametrize("k", [1, 4, 29, 30])
def test_covariance_of_a_model_has_the_total_variance(k):
    X = counts((100, 30))
    pca = ss.PCA(k).fit(X)
    assert np.trace(pca.get_covariance()) == pytest.approx(X.toarray().var(axis=0, ddof=1).sum(), rel=1e-12)


# Variances


SIZES = [(name, k) for name in NAMES for k in (None, 1, 10)] + [("auto", 0.5), ("exact", 0.5)]


@pytest.mark.parametrize(("name", "n_components"), SIZES)
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ratios_are_sorted_and_sum_to_at_most_one(name, n_components, dtype, shape, scale):
    pca = ss.PCA(n_components, solver=name, scale=scale, random_state=0).fit(counts(shape, dtype))
    ratio = pca.explained_variance_ratio_
    eps = np.finfo(dtype).eps
    assert np.all(np.diff(ratio) <= 0)
    assert np.all(ratio >= 0)
    assert ratio.sum() <= 1 + len(ratio) * eps
    if n_components is None:
        assert ratio.sum() >= 1 - 10 * len(ratio) * eps


@pytest.mark.parametrize("container", [csr_array, csc_array])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_share_of_the_variance_of_sparse_data_takes_the_fewest_components(shape, share, container):
    X = counts(shape)
    pca = ss.PCA(share).fit(container(X))
    assert pca.n_components_ == ss.PCA(share).fit(X.toarray()).n_components_
    assert pca.explained_variance_ratio_.sum() > share >= pca.explained_variance_ratio_[:-1].sum()


@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
@pytest.mark.parametrize("shape", SHAPES)
def test_more_components_leave_the_first_ones_as_they_are(shape, container):
    X = counts(shape).toarray()
    few, more = (ss.PCA(k).fit(container(X)) for k in (3, 6))
    gap = np.abs(np.diff(more.singular_values_)).min()
    bound = 100 * EPS * np.linalg.norm(X)
    assert np.abs(few.singular_values_ - more.singular_values_[:3]).max() <= bound
    assert np.abs(few.components_ - more.components_[:3]).max() <= 10 * bound / gap


@pytest.mark.parametrize("name", NAMES)
def test_the_denominator_of_the_ratio_is_the_exact_total_variance(name):
    X = counts((200, 60))
    pca = ss.PCA(3, solver=name, random_state=0, iterated_power=0).fit(X)
    total = X.toarray().var(axis=0, ddof=1).sum()
    assert np.allclose(pca.explained_variance_ratio_ * total, pca.explained_variance_, rtol=1e-12, atol=0)


@pytest.mark.parametrize("shape", [(200, 60), (60, 200)])
@pytest.mark.parametrize("name", NAMES)
def test_no_component_has_more_variance_than_the_best_one(name, shape):
    X = counts(shape)
    S = ss.PCA(solver="exact").fit(X).singular_values_
    for seed in range(10):
        found = ss.PCA(5, solver=name, random_state=seed, iterated_power=1).fit(X).singular_values_
        assert np.all(found <= S[:5] * (1 + 100 * EPS))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (0.0, np.float64),
        (0.0, np.float32),
        (1 / 3, np.float64),
        (1 / 3, np.float32),
        (-1e6, np.float64),
        (1e-30, float),
    ],
)
@pytest.mark.parametrize("settings", SOLVERS, ids=str)
def test_constant_data_have_ratio_0_and_no_nan(settings, value, shape, dtype):
    X = np.full(shape, value, dtype)
    for A in (X, csr_array(X), csc_array(X)):
        pca = ss.PCA(3, random_state=0, **settings).fit(A)
        assert np.array_equal(pca.explained_variance_ratio_, np.zeros(3))
        assert np.array_equal(pca.singular_values_, np.zeros(3))
        assert pca.noise_variance_ == 0
        assert pca.info_.rank == 0
        V = pca.components_.astype(float)
        assert np.abs(V @ V.T - np.eye(3)).max() <= 30 * np.finfo(dtype).eps
        assert np.abs(pca.transform(A)).max() <= 100 * np.finfo(dtype).eps * abs(value)


def test_constant_data_whiten_without_nan():
    X = np.ones((20, 5))
    pca = ss.PCA(2, whiten=True).fit(X)
    assert np.array_equal(pca.transform(X), np.zeros((20, 2)))
    assert np.allclose(pca.inverse_transform(pca.transform(X)), X, rtol=1e-15)


@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("settings", SOLVERS, ids=str)
def test_a_rank_below_k_gives_trailing_zeros_and_says_the_rank(settings, shape, container):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((shape[0], 3)) @ rng.standard_normal((3, shape[1])) + 5
    pca = ss.PCA(6, random_state=0, **settings).fit(container(X))
    assert pca.info_.rank == 3
    assert np.all(pca.singular_values_[:3] > 0.1)
    assert np.array_equal(pca.singular_values_[3:], np.zeros(3))
    assert np.array_equal(pca.explained_variance_ratio_[3:], np.zeros(3))
    assert pca.explained_variance_ratio_.sum() == pytest.approx(1, rel=1e-12)
    assert np.abs(pca.components_ @ pca.components_.T - np.eye(6)).max() <= 100 * EPS


@pytest.mark.parametrize("m", [2, 3, 4])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("settings", SOLVERS, ids=str)
def test_the_smallest_matrices_work(m, n, settings):
    X = np.random.default_rng(0).standard_normal((m, n))
    S = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    for k in range(1, min(m, n) + 1):
        for A in (X, csr_array(X), csc_array(X)):
            pca = ss.PCA(k, random_state=0, **settings).fit(A)
            assert np.abs(pca.singular_values_ - S[:k]).max() <= 100 * EPS * np.linalg.norm(X)
            assert pca.transform(A).shape == (m, k)


@pytest.mark.parametrize("name", NAMES)
def test_values_of_extreme_size_neither_overflow_nor_vanish(name):
    X = counts((60, 20))
    S = ss.PCA(3, solver=name, random_state=0).fit(X).singular_values_
    for power in (-100, 100):
        pca = ss.PCA(3, solver=name, random_state=0).fit(X * 10.0**power)
        assert np.allclose(pca.singular_values_ / 10.0**power, S, rtol=1e-12)
        assert np.isfinite(pca.explained_variance_ratio_).all()


# Randomness


RANDOM = [settings for settings in SOLVERS if "random" in str(settings)]


@pytest.mark.parametrize("settings", RANDOM, ids=str)
@pytest.mark.parametrize("container", [np.asarray, csr_array])
@pytest.mark.parametrize("state", [int, np.random.default_rng, np.random.RandomState])
def test_the_same_seed_gives_the_same_bits(settings, container, state):
    X = container(counts((300, 200)).toarray())
    a, b = (ss.PCA(5, random_state=state(42), **settings).fit(X) for _ in range(2))
    assert np.array_equal(a.components_, b.components_)
    assert np.array_equal(a.singular_values_, b.singular_values_)
    assert np.array_equal(a.transform(X), b.transform(X))


@pytest.mark.parametrize("settings", RANDOM, ids=str)
def test_another_seed_and_fresh_entropy_give_other_bits(settings):
    # One iteration at most: otherwise converged components agree to the last bit.
    settings = {"iterated_power": 0, **settings}
    X = counts((300, 200))
    fits = [ss.PCA(5, random_state=seed, **settings).fit(X).components_ for seed in (0, 1, None, None)]
    assert not any(np.array_equal(a, b) for i, a in enumerate(fits) for b in fits[:i])


@pytest.mark.parametrize("settings", RANDOM, ids=str)
def test_a_generator_moves_on_and_a_seed_does_not(settings):
    X = counts((300, 200))
    for state in (np.random.default_rng(0), np.random.RandomState(0)):
        pca = ss.PCA(5, random_state=state, **{"iterated_power": 0, **settings})
        assert not np.array_equal(pca.fit(X).components_, pca.fit(X).components_)
    pca = ss.PCA(5, random_state=0, **settings)
    assert np.array_equal(pca.fit(X).components_, pca.fit(X).components_)


@pytest.mark.parametrize("random_state", [None, 0, np.random.default_rng(0), np.random.RandomState(0)])
@pytest.mark.parametrize("settings", SOLVERS, ids=str)
def test_the_global_state_is_neither_read_nor_written(settings, random_state):
    X = counts((50, 20))
    np.random.seed(7)  # noqa: NPY002
    before = np.random.get_state()  # noqa: NPY002
    ss.PCA(3, random_state=random_state, **settings).fit_transform(X)
    after = np.random.get_state()  # noqa: NPY002
    assert before[0] == after[0]
    assert np.array_equal(before[1], after[1])
    assert before[2:] == after[2:]


@pytest.mark.parametrize("name", ["randomized", "shifted-randomized"])
def test_without_a_seed_the_global_seed_decides_nothing(name):
    X = counts((300, 200))
    found = []
    for _ in range(2):
        np.random.seed(7)  # noqa: NPY002
        found.append(ss.PCA(5, solver=name, iterated_power=0).fit(X).components_)
    assert not np.array_equal(*found)


@pytest.mark.parametrize("name", [*NAMES, "arpack"])
@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
@pytest.mark.parametrize("wide", [False, True])
def test_the_number_of_threads_changes_no_bit(name, container, wide):
    # Large enough for several blocks in every loop.
    X = counts((30_000, 60), density=0.5)
    X = container((X.T if wide else X).toarray())
    settings = {"svd_solver": name} if name == "arpack" else {"solver": name}
    one, many = (ss.PCA(3, random_state=0, iterated_power=1, n_threads=t, **settings) for t in (1, 5))
    Z = [pca.fit_transform(X) for pca in (one, many)]
    assert np.array_equal(one.components_, many.components_)
    assert np.array_equal(one.singular_values_, many.singular_values_)
    assert np.array_equal(*Z)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_longer_than_a_block_is_still_read(shape, monkeypatch):
    X = counts(shape).toarray()
    expected = ss.PCA(3).fit(X)
    monkeypatch.setattr("shiftsvd.backends.array.BLOCK", 16)
    pca = ss.PCA(3).fit(X)
    assert_same(pca, expected, X)
    assert np.allclose(pca.transform(X), (X - pca.mean_) @ pca.components_.T, rtol=0, atol=1e-12)


# Settings of scikit-learn


def test_settings_of_the_randomized_solver_arrive_there():
    X = counts((200, 100))
    pca = ss.PCA(5, svd_solver="randomized", random_state=0, iterated_power=3, n_oversamples=21).fit(X)
    assert pca.info_.sample_size == 26
    assert "n_oversamples=21" in pca.info_.solver
    more = ss.PCA(5, svd_solver="randomized", random_state=0, iterated_power=9, n_oversamples=21).fit(X)
    assert more.info_.n_passes == pca.info_.n_passes + 12
    auto = ss.PCA(5, svd_solver="randomized", random_state=0).fit(X)
    seven = ss.PCA(5, svd_solver="randomized", random_state=0, iterated_power=7).fit(X)
    assert np.array_equal(auto.components_, seven.components_)
    for normalizer in ("auto", "QR", "LU", "CholeskyQR2", "none"):
        pca = ss.PCA(
            2, svd_solver="randomized", random_state=0, power_iteration_normalizer=normalizer, iterated_power=2
        )
        assert np.isfinite(pca.fit(X).components_).all()


@pytest.mark.parametrize(
    ("svd_solver", "name"),
    [("full", "Exact"), ("covariance_eigh", "Exact"), ("arpack", "Arpack"), ("randomized", "RandomizedSVD")],
)
def test_the_account_names_the_solver_that_ran(svd_solver, name):
    pca = ss.PCA(3, svd_solver=svd_solver).fit(counts((50, 20)))
    assert pca.info_.solver.startswith(name)
    assert pca.info_.n_passes >= 1
    assert pca.info_.seconds >= 0


def test_arpack_is_exact_to_machine_precision():
    for shape in SHAPES:
        X = counts(shape)
        S = np.linalg.svd(X.toarray() - X.toarray().mean(axis=0), compute_uv=False)
        found = ss.PCA(5, svd_solver="arpack").fit(X).singular_values_
        assert np.abs(found - S[:5]).max() <= 100 * EPS * S[0]


def test_zero_components_are_accepted_where_scikit_learn_accepts_them():
    X = counts((30, 10)).toarray()
    pca = ss.PCA(0, svd_solver="full").fit(X)
    assert pca.components_.shape == (0, 10)
    assert pca.transform(X).shape == (30, 0)
    assert pca.noise_variance_ == pytest.approx(X.var(axis=0, ddof=1).mean(), rel=1e-12)


def test_fit_leaves_stdout_and_stderr_silent_in_a_fresh_process():
    code = (
        "import numpy as np, shiftsvd as ss; X = np.random.default_rng(0).standard_normal((50, 9));"
        "ss.PCA(2, verbose=1).fit_transform(X); ss.PCA(2, solver='randomized', random_state=0).fit(X)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
