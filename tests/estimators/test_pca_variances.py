"""Variances: their ratios, and data that have little or none."""

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array

import shiftsvd as ss
from tests.support.pca_data import EPS, NAMES, SHAPES, SOLVERS, counts
from tests.support.sampling import pairs

SIZES = [(name, k) for name in NAMES for k in (None, 1, 10)] + [("auto", 0.5), ("exact", 0.5)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("size", "scale", "shape", "dtype"), pairs(SIZES, [False, True], SHAPES, [np.float32, np.float64])
)
def test_ratios_are_sorted_and_sum_to_at_most_one(size, scale, shape, dtype):
    name, n_components = size
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


CONSTANTS = [
    (0.0, np.float64),
    (0.0, np.float32),
    (1 / 3, np.float64),
    (1 / 3, np.float32),
    (-1e6, np.float64),
    (1e-30, float),
]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("settings", "constant", "shape"), pairs(SOLVERS, CONSTANTS, SHAPES), ids=str)
def test_constant_data_have_ratio_0_and_no_nan(settings, constant, shape):
    value, dtype = constant
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


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("settings", "shape", "container"), pairs(SOLVERS, SHAPES, [np.asarray, csr_array, csc_array]))
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


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("m", "n", "settings"), pairs([2, 3, 4], [1, 2, 3, 4], SOLVERS))
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


@pytest.mark.parametrize("shift", ["mean", "both", "rows", "groups"])
@pytest.mark.parametrize("power", [-300, -100, 100, 300])
def test_noise_follows_the_scale_of_the_data(shift, power):
    X, groups = np.random.default_rng(0).standard_normal((30, 40)), np.arange(30) % 3
    shift, data = (ss.GroupMeans(), {"groups": groups}) if shift == "groups" else (shift, {})
    one, other = (ss.PCA(2, shift=shift, random_state=0).fit(D, **data) for D in (X, np.ldexp(X, power)))
    assert np.ldexp(other.noise_variance_, -2 * power) == pytest.approx(one.noise_variance_, rel=1e-6)


def test_cosines_of_a_row_that_is_its_group_sum_to_at_most_one():
    for seed in range(7):
        rng = np.random.default_rng(seed)
        X = csr_array(rng.standard_normal((10, 32)) * (rng.random((10, 32)) < 0.3))
        groups, weights = np.append(0, np.arange(9) % 2 + 1), rng.uniform(0.3, 3, 10)
        pca = ss.PCA(3, shift=ss.GroupMeans(), random_state=0).fit(X, sample_weight=weights, groups=groups)
        assert np.all(pca.row_cosine_similarities(X, groups=groups).sum(axis=1) <= 1 + 1e-12)
