"""Randomness is an argument: seeds, threads, and the global state that is left alone."""

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array

import shiftsvd as ss
from tests.support.pca_data import NAMES, SHAPES, SOLVERS, assert_same, counts
from tests.support.sampling import pairs

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


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "container", "wide"), pairs([*NAMES, "arpack"], [np.asarray, csr_array, csc_array], [False, True])
)
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
    monkeypatch.setattr("shiftsvd.backends.dense.BLOCK", 16)
    pca = ss.PCA(3).fit(X)
    assert_same(pca, expected, X)
    assert np.allclose(pca.transform(X), (X - pca.mean_) @ pca.components_.T, rtol=0, atol=1e-12)
