"""PCA means what scikit-learn's PCA means: every attribute and method, on the same data."""

import numpy as np
import pytest
from sklearn import decomposition
from sklearn.datasets import load_digits

import shiftsvd as ss

SVD_SOLVERS = ["auto", "full", "covariance_eigh", "arpack", "randomized"]
SHAPES = {"tall": (150, 30), "wide": (30, 80), "square": (40, 40)}


def falling(shape, dtype=np.float64, seed=0, ratio=0.8, mean=1.0):
    """A matrix with singular values 30 ratio^i, and columns off zero."""
    rng = np.random.default_rng(seed)
    r = min(shape)
    U, V = (np.linalg.qr(rng.standard_normal((size, r)))[0] for size in shape)
    return ((U * (30 * ratio ** np.arange(r))) @ V.T + mean * rng.random(shape[1])).astype(dtype)


def centred_values(X):
    """All singular values of the centred data, in double."""
    X = X.astype(np.float64)
    return np.linalg.svd(X - X.mean(axis=0), compute_uv=False)


class Bounds:
    """What rounding allows, from eps and the spectrum: of values, of each vector, and of likelihoods."""

    def __init__(self, X, k, how):
        S = centred_values(X)
        eps = np.finfo(X.dtype).eps
        size = np.linalg.norm(X.astype(np.float64))
        # scikit-learn forms X^T X - m mu mu^T where it takes eigenvalues of the covariance.
        squared = size / S[:k] if how in ("auto", "covariance_eigh") else 1.0
        self.values = 10 * eps * size * squared * np.ones(k)
        if how == "randomized":
            ell, q = min(k + 10, len(S)), 7 if k < 0.1 * len(S) else 4
            beyond = S[ell] if ell < len(S) else 0.0
            self.values += 30 * S[:k] * (beyond / S[:k]) ** (2 * q + 1)
        gaps = np.abs(np.diff(S, append=0.0))
        gaps = np.minimum(gaps, np.concatenate([[np.inf], gaps[:-1]]))[:k]
        self.vectors = 10 * self.values / np.maximum(gaps, 1e-300)
        self.told_apart = (self.vectors < 0.01) & (S[:k] > 100 * self.values)
        self.size, self.eps = size, eps


def rows_close(a, b, bound, at):
    error = np.linalg.norm(np.asarray(a, float) - np.asarray(b, float), axis=1)
    assert np.all(error[at] <= bound[at]), (error[at] / bound[at]).max()


def assert_same_model(ours, theirs, X, bounds):
    """Attributes and methods, up to rounding; components that the gaps tell apart with their signs and order."""
    k, m = theirs.n_components_, len(X)
    assert (ours.n_components_, ours.n_samples_, ours.n_features_in_) == (k, m, X.shape[1])
    for name in ("components_", "singular_values_", "explained_variance_", "explained_variance_ratio_"):
        assert getattr(ours, name).dtype == (X.dtype if name == "components_" else np.float64), name
        assert getattr(ours, name).shape == getattr(theirs, name).shape, name
    told = bounds.told_apart
    assert told.any()
    assert list(ours.get_feature_names_out()) == [f"pca{i}" for i in range(k)]
    assert np.linalg.norm(ours.mean_ - theirs.mean_) <= 10 * bounds.eps * bounds.size
    value_error = np.abs(ours.singular_values_.astype(float) - theirs.singular_values_)
    assert np.all(value_error <= bounds.values)
    S = theirs.singular_values_
    variance_error = 3 * S[0] * bounds.values / (m - 1)
    assert np.all(np.abs(ours.explained_variance_ - theirs.explained_variance_) <= variance_error)
    ratio_error = variance_error / (centred_values(X) ** 2).sum() * (m - 1)
    assert np.all(np.abs(ours.explained_variance_ratio_ - theirs.explained_variance_ratio_) <= ratio_error)
    # Where all components are kept it is 0 in truth, and in both only to rounding.
    assert abs(ours.noise_variance_ - theirs.noise_variance_) <= k * variance_error.max()
    rows_close(ours.components_, theirs.components_, bounds.vectors, told)
    deviations = np.sqrt(np.where(told, theirs.explained_variance_, 1)) if ours.whiten else 1
    scores = bounds.vectors * bounds.size / deviations
    rows_close(ours.transform(X).T, theirs.transform(X).T, scores, told)
    rows_close(ours.fit_transform(X).T, theirs.fit_transform(X).T, scores, told)


def assert_same_reconstruction(ours, theirs, X, bounds):
    """``inverse_transform`` of a model's own scores: the data on the space of its components."""
    a, b = ours.inverse_transform(ours.transform(X)), theirs.inverse_transform(theirs.transform(X))
    assert a.dtype == X.dtype
    assert np.linalg.norm(a.astype(float) - b) <= 3 * bounds.vectors.max() * bounds.size


def assert_same_likelihood(ours, theirs, X, bounds):
    """Covariance, precision and scores; their condition is that of the covariance."""
    C, P = theirs.get_covariance(), theirs.get_precision()
    least = np.linalg.eigvalsh(C.astype(np.float64))[0]
    relative = np.abs(ours.get_covariance() - C).max() / np.abs(C).max()
    space = bounds.vectors.max() + 10 * bounds.values.max() / bounds.size
    assert relative <= 10 * space
    condition = np.abs(C).max() * len(C) / least
    assert np.linalg.norm(ours.get_precision() - P) <= 10 * space * condition * np.linalg.norm(P)
    a, b = ours.score_samples(X), theirs.score_samples(X)
    assert a.shape == (len(X),)
    assert np.all(np.abs(a - b) <= 10 * space * condition * (np.abs(b) + X.shape[1]))
    assert ours.score(X) == pytest.approx(a.mean(), rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("n_components", [None, 1, 5, 0.8, "mle"])
@pytest.mark.parametrize("svd_solver", SVD_SOLVERS)
def test_pca_equals_that_of_scikit_learn(svd_solver, n_components, whiten, shape, dtype):
    X = falling(SHAPES[shape], dtype)
    settings = {"n_components": n_components, "whiten": whiten, "svd_solver": svd_solver, "random_state": 0}
    ours, theirs = ss.PCA(**settings), decomposition.PCA(**settings)
    try:
        theirs.fit(X)
    except ValueError:
        with pytest.raises(ValueError, match="n_components"):
            ours.fit(X)
        return
    ours.fit(X)
    if svd_solver == "covariance_eigh" and shape == "wide":
        # There scikit-learn takes the mean over n_features - k left out variances, all but m of them 0; its other
        # solvers, and we, over min(n_samples, n_features) - k.
        settings["svd_solver"] = "full"
        theirs = decomposition.PCA(**settings).fit(X)
    bounds = Bounds(X, theirs.n_components_, svd_solver)
    assert_same_model(ours, theirs, X, bounds)
    assert_same_reconstruction(ours, theirs, X, bounds)
    if (theirs.n_components_ < min(X.shape) - 1 or shape == "tall") and dtype == np.float64:
        assert_same_likelihood(ours, theirs, X, bounds)


SIZES = [(k, dtype) for k in (None, 20, 0.5, 0.95) for dtype in (np.float32, np.float64)]
# In single precision scikit-learn fails with a math domain error: equal eigenvalues.
SIZES += [("mle", np.float64)]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("n_components", "dtype"), SIZES)
@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("svd_solver", [None, "full", "covariance_eigh"])
def test_pca_of_digits_equals_that_of_scikit_learn(svd_solver, n_components, whiten, dtype):
    X = load_digits().data.astype(dtype)
    ours = ss.PCA(n_components, whiten=whiten, svd_solver=svd_solver).fit(X)
    theirs = decomposition.PCA(n_components, whiten=whiten, svd_solver=svd_solver or "full").fit(X)
    k = theirs.n_components_
    if k == 64:  # three pixels are always 0: no direction, and no variance to divide by, is right there
        for name in ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_"):
            setattr(ours, name, getattr(ours, name)[:61])
            setattr(theirs, name, getattr(theirs, name)[:61])
        ours.n_components_ = theirs.n_components_ = 61
        theirs.fit_transform, ours.fit_transform = theirs.transform, ours.transform
    bounds = Bounds(X, min(k, 61), svd_solver)
    assert_same_model(ours, theirs, X, bounds)
    if k < 61 and dtype == np.float64:
        assert_same_reconstruction(ours, theirs, X, bounds)
        assert_same_likelihood(ours, theirs, X, bounds)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7, 0.9, 0.99, 0.999999])
def test_a_share_of_the_variance_takes_as_many_components_as_scikit_learn(share):
    for X in (load_digits().data, falling((50, 20)), falling((20, 50))):
        ours, theirs = ss.PCA(share).fit(X), decomposition.PCA(share, svd_solver="full").fit(X)
        assert ours.n_components_ == theirs.n_components_
        assert ours.explained_variance_ratio_.sum() > share
        assert ours.explained_variance_ratio_[:-1].sum() <= share


def test_minka_chooses_the_same_rank_in_both_precisions():
    X = load_digits().data
    assert ss.PCA("mle").fit(X.astype(np.float32)).n_components_ == ss.PCA("mle").fit(X).n_components_


@pytest.mark.parametrize("seed", range(20))
def test_minka_chooses_the_rank_that_scikit_learn_chooses(seed):
    rng = np.random.default_rng(seed)
    true = int(rng.integers(1, 12))
    X = rng.standard_normal((200, true)) @ rng.standard_normal((true, 15)) + 0.1 * rng.standard_normal((200, 15))
    assert ss.PCA("mle").fit(X).n_components_ == decomposition.PCA("mle").fit(X).n_components_ == true


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "kind", [np.int64, np.int8, np.uint8, np.uint16, bool, np.float16, object, ">f8", np.longdouble]
)
def test_every_kind_of_number_gives_the_model_of_its_float64_values(kind):
    X = (load_digits().data[:300] * 2).astype(kind)
    ours = ss.PCA(5).fit(X)
    exact = ss.PCA(5).fit(X.astype(np.float64))
    single = X.dtype == np.float16
    assert ours.components_.dtype == (np.float32 if single else np.float64)
    bound = 10 * np.finfo(ours.components_.dtype).eps * np.linalg.norm(X.astype(np.float64))
    assert np.abs(ours.singular_values_ - exact.singular_values_).max() <= bound
    rows_close(ours.transform(X).T, exact.transform(X.astype(np.float64)).T, 100 * bound * np.ones(5), slice(None))


@pytest.mark.parametrize("shape", [(60, 20), (20, 60), (30, 30)])
@pytest.mark.parametrize("rank", [1, 5, 15])
def test_data_of_rank_k_leave_no_noise_behind_k_components(shape, rank):
    # What rounding leaves must not pass for a variance: the precision would be 1 over it.
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1]))
        pca = ss.PCA(rank).fit(X)
        assert pca.noise_variance_ == 0
        with pytest.raises(ValueError, match=r"noise variance is 0, so the covariance has no inverse"):
            pca.get_precision()


@pytest.mark.parametrize("solver", ["auto", "exact", "randomized", "shifted-randomized"])
@pytest.mark.parametrize("shape", [(400, 30), (30, 400)])
def test_signs_depend_on_the_components_alone(solver, shape):
    components = ss.PCA(4, solver=solver, random_state=0).fit(falling(shape)).components_
    assert np.all(np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], axis=1) > 0)
    order = np.random.default_rng(1).permutation(shape[0])
    shuffled = ss.PCA(4, solver=solver, random_state=0).fit(falling(shape)[order]).components_
    assert np.all((components * shuffled).sum(axis=1) > 0.99)


@pytest.mark.parametrize("shape", [(60, 20), (20, 60)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_model_read_by_scikit_learn_transforms_alike(shape, dtype):
    # Code that takes components_ and mean_ from a fitted PCA must find there what scikit-learn puts there.
    X = falling(shape, dtype)
    pca = ss.PCA(4, whiten=True).fit(X)
    by_hand = (X - pca.mean_) @ pca.components_.T.astype(float) / np.sqrt(pca.explained_variance_)
    assert np.allclose(pca.transform(X), by_hand, rtol=0, atol=30 * np.finfo(dtype).eps * np.abs(by_hand).max())
