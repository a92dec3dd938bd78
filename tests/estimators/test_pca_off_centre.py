"""Far from the origin: what single precision stores of such data is found to the last digits stored."""

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array

import shiftsvd as ss

SETTINGS = [
    {"solver": "auto"},
    {"solver": "exact"},
    {"solver": "randomized"},
    {"solver": "shifted-randomized"},
    {"solver": ss.RandomizedSVD(n_iter=7)},
    {"svd_solver": "auto"},
    {"svd_solver": "full"},
    {"svd_solver": "covariance_eigh"},
    {"svd_solver": "arpack"},
    {"svd_solver": "randomized"},
]
ALLOWED = 2e-6  # the promise for the ten leading values, relative


def far_off(shape, ratio, seed=0):
    """float32 data of standard deviation about 1 and means about `ratio`; a spectrum that falls by halves."""
    rng = np.random.default_rng(seed)
    r = min(shape)
    U, V = (np.linalg.qr(rng.standard_normal((size, r)))[0] for size in shape)
    X = (U * (np.sqrt(shape[0] * shape[1]) * 0.6 ** np.arange(r))) @ V.T
    mean = ratio * (1 + rng.random(shape[1])) * rng.choice([-1, 1], shape[1])
    return (X + mean).astype(np.float32)


def values_of_the_stored(X):
    """The ten leading singular values, in double, of what is stored."""
    X = X.astype(np.float64)
    return np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[:10]


@pytest.mark.parametrize("ratio", [1e3, 1e5])
@pytest.mark.parametrize("shape", [(3000, 60), (60, 3000), (300, 300)])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_ten_leading_values_of_single_precision_data_are_those_of_double(settings, shape, ratio):
    X = far_off(shape, ratio)
    pca = ss.PCA(10, random_state=0, **settings).fit(X)
    S = values_of_the_stored(X)
    assert pca.singular_values_.dtype == np.float64
    assert np.abs(pca.singular_values_ / S - 1).max() <= ALLOWED


@pytest.mark.parametrize("ratio", [1e3, 1e5])
@pytest.mark.parametrize("density", [0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("container", [csr_array, csc_array])
@pytest.mark.parametrize("shape", [(2000, 60), (60, 2000)])
def test_ten_leading_values_of_nearly_full_sparse_data_are_those_of_double(shape, container, density, ratio):
    X = far_off(shape, ratio)
    X[np.random.default_rng(1).random(shape) > density] = 0
    S = values_of_the_stored(X)
    for solver in ("exact", "randomized"):
        # Zeros among far off values are noise without a decay: randomly sampled, they take all samples.
        pca = ss.PCA(10, solver=solver, n_oversamples=60, random_state=0).fit(container(X))
        assert np.abs(pca.singular_values_ / S - 1).max() <= ALLOWED


@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
@pytest.mark.parametrize("shape", [(3000, 60), (60, 3000)])
def test_scores_of_single_precision_data_far_off_centre_are_those_of_double(shape, container):
    X = far_off(shape, 1e5)
    pca = ss.PCA(5).fit(container(X))
    Z = pca.transform(container(X)).astype(float)
    expected = (X.astype(float) - X.astype(float).mean(axis=0)) @ pca.components_.T.astype(float)
    # Dense blocks are shifted in double and multiplied in single precision, with its sum of n products.
    size = np.linalg.norm(X.astype(float) - X.astype(float).mean(axis=0), axis=1).max()
    assert np.abs(Z - expected).max() <= np.sqrt(shape[1]) * np.finfo(np.float32).eps * size


@pytest.mark.parametrize("ratio", [1e3, 1e5, 1e8])
@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
def test_variances_far_off_centre_are_without_cancellation(container, ratio):
    X = far_off((2000, 30), ratio).astype(np.float64) + np.random.default_rng(2).standard_normal((2000, 30))
    pca = ss.PCA(scale=True).fit(container(X))
    long = X.astype(np.longdouble)
    centred = long - long.mean(axis=0)
    deviation = np.sqrt((centred**2).mean(axis=0))
    eps = np.finfo(float).eps
    assert np.abs(pca.scale_ / deviation - 1).max() <= 100 * eps * max(1, ratio * 1e-3)
    assert pca.explained_variance_ratio_.sum() == pytest.approx(1, rel=100 * eps * max(1, ratio * 1e-3))
    S = np.linalg.svd((centred / deviation).astype(float), compute_uv=False)
    assert np.abs(pca.singular_values_ / S - 1).max() <= 1000 * eps * ratio


@pytest.mark.parametrize("svd_solver", ["auto", "full", "covariance_eigh"])
def test_the_likelihood_of_data_far_off_centre_is_that_of_the_same_data_near_it(svd_solver):
    rng = np.random.default_rng(0)
    near = np.round(rng.standard_normal((200, 10)) * 2**10) / 2**10 * (1 + np.arange(10))
    far = near + 2**20
    a, b = (ss.PCA(4, svd_solver=svd_solver).fit(X).score_samples(X) for X in (near, far))
    assert np.abs(a - b).max() <= 1e-6 * np.abs(a).max()
