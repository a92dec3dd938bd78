"""Principal coordinates: largest algebraic eigenvalues of the doubly centred distances, and what scikit-bio gives."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist, squareform
from sklearn.utils.estimator_checks import parametrize_with_checks

import shiftsvd as ss
from helpers import Counting, Minimal
from shiftsvd.estimators import pcoa as module
from shiftsvd.solvers.hermitian import HermitianLanczos

# The distances between six samples that scikit-bio's documentation of ordination begins with.
IDS = ("A", "B", "C", "D", "E", "F")
SIX = squareform([0.8, 0.4, 0.9, 0.7, 0.5, 0.6, 0.3, 0.2, 0.8, 0.7, 0.5, 0.6, 0.4, 0.9, 0.8])


def metric(n=120, seed=0, name="braycurtis"):
    """Distances between n samples of abundances; Bray-Curtis ones are not Euclidean."""
    rng = np.random.default_rng(seed)
    return squareform(pdist(rng.gamma(0.5, 1, (n, 40)) + np.eye(3, 40)[rng.integers(0, 3, n)] * 5, name))


def gower(D):
    J = np.eye(len(D)) - 1 / len(D)
    return -J @ D**2 @ J / 2


@pytest.fixture
def never_small(monkeypatch):
    """Lanczos whatever the size."""
    monkeypatch.setattr(module, "SMALL", 1)


@pytest.mark.parametrize("D", [SIX, metric(), metric(name="euclidean")], ids=["six", "bray-curtis", "euclidean"])
def test_all_coordinates_equal_the_dense_computation(D):
    pcoa = ss.PCoA().fit(D)
    values, vectors = np.linalg.eigh(gower(D))
    values, vectors = values[::-1], vectors[:, ::-1]
    size = np.abs(values).max()
    np.testing.assert_allclose(pcoa.eigenvalues_, values, atol=1e-13 * size * len(D))
    outer = pcoa.coordinates_ @ pcoa.coordinates_.T
    np.testing.assert_allclose(outer, (vectors * np.maximum(values, 0)) @ vectors.T, atol=1e-12 * size)
    positive = np.maximum(values, 0)
    assert pcoa.proportion_explained_ == pytest.approx(positive / positive.sum(), abs=1e-12)
    assert pcoa.negative_share_ == pytest.approx(-np.minimum(values, 0).sum() / np.abs(values).sum(), abs=1e-12)
    assert pcoa.trace_ == pytest.approx(values.sum(), rel=1e-12)
    assert pcoa.lowest_eigenvalue_ == pytest.approx(values[-1], abs=1e-12 * size)


@pytest.mark.usefixtures("never_small")
@pytest.mark.parametrize("seed", range(5))
def test_lanczos_finds_the_largest_algebraic_eigenvalues(seed):
    D = squareform(np.random.default_rng(seed).random(300 * 299 // 2))  # far from any points
    pcoa = ss.PCoA(10, tol=1e-8, random_state=seed).fit(D)
    values = np.linalg.eigvalsh(gower(D))[::-1]
    assert -values[-1] > values[9]  # an SVD would have put these between the wanted ones
    assert pcoa.eigenvalues_ == pytest.approx(values[:10], rel=2e-8)
    assert np.all(pcoa.value_errors_ <= 1e-8)
    negative = -np.minimum(values, 0).sum()
    assert pcoa.negative_share_ == pytest.approx(negative / np.abs(values).sum(), rel=0.15)
    assert pcoa.lowest_eigenvalue_ >= values[-1] - 1e-10
    B, V = gower(D), pcoa.coordinates_ / np.sqrt(pcoa.eigenvalues_)
    assert np.linalg.norm(B @ V - V * pcoa.eigenvalues_) <= 1e-3 * values[0]


@pytest.mark.usefixtures("never_small")
def test_euclidean_distances_give_the_principal_components():
    X = np.random.default_rng(0).standard_normal((400, 8)) * 2.0 ** -np.arange(8)
    pcoa = ss.PCoA(3, tol=1e-9, random_state=0).fit(squareform(pdist(X)))
    pca = ss.PCA(3).fit(X)
    np.testing.assert_allclose(np.abs(pcoa.coordinates_), np.abs(pca.transform(X)), atol=1e-6)
    assert pcoa.negative_share_ < 1e-10
    assert pcoa.proportion_explained_ == pytest.approx(pca.explained_variance_ratio_, rel=1e-8)


@pytest.mark.usefixtures("never_small")
@pytest.mark.parametrize("k", [5, 40])
def test_equal_distances_have_one_value_in_many_copies(k):
    n = 200
    pcoa = ss.PCoA(k, random_state=0).fit(1 - np.eye(n))
    assert pcoa.eigenvalues_ == pytest.approx(np.full(k, 0.5), rel=1e-12)
    np.testing.assert_allclose(pcoa.coordinates_.T @ pcoa.coordinates_, np.eye(k) / 2, atol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_copies_of_a_value_beyond_the_block_are_found(seed):
    # Twenty copies, from a block of eight: residuals alone would certify the eight.
    rng = np.random.default_rng(seed)
    values = np.concatenate([np.full(20, 3.0), rng.uniform(-4, 1, 380)])
    Q = np.linalg.qr(rng.standard_normal((400, 400)))[0]
    pairs = HermitianLanczos(1e-6, block_size=8)(ss.as_operator(Q * values @ Q.T), 25, rng)
    assert pairs.converged
    assert pairs.values == pytest.approx(np.sort(values)[::-1][:25], rel=2e-6)


def test_restarts_and_small_bases_give_the_same():
    rng = np.random.default_rng(0)
    values = np.concatenate([np.linspace(1, 2, 60), np.linspace(-3, 0.99, 540)])
    Q = np.linalg.qr(rng.standard_normal((600, 600)))[0]
    A = ss.as_operator(Q * values @ Q.T)
    for settings in ({}, {"max_basis": 40, "block_size": 4}, {"block_size": 1}):
        pairs = HermitianLanczos(1e-6, **settings)(A, 5, np.random.default_rng(1))
        assert pairs.values == pytest.approx(np.sort(values)[::-1][:5], rel=2e-6)
        assert np.linalg.norm(pairs.vectors.T @ pairs.vectors - np.eye(5)) < 1e-12


@pytest.mark.usefixtures("never_small")
def test_a_distance_operator_is_only_multiplied():
    D = metric(300)
    S = Counting(Minimal(D**2))
    pcoa = ss.PCoA(4, random_state=0).fit(S)
    assert set(S.calls) == {"matmat"}
    assert len(S.calls) == pcoa.n_passes_ + 1
    assert pcoa.eigenvalues_ == pytest.approx(np.linalg.eigvalsh(gower(D))[::-1][:4], rel=1e-4)


@pytest.mark.usefixtures("never_small")
def test_what_does_not_converge_is_said(monkeypatch):
    monkeypatch.setattr(module, "HermitianLanczos", lambda tol: HermitianLanczos(tol, max_passes=1))
    with pytest.warns(UserWarning, match="did not converge"):
        ss.PCoA(2, random_state=0).fit(metric(300))


@pytest.mark.parametrize("name", ["euclidean", "braycurtis"])
def test_a_metric_makes_the_distances(name):
    X = np.random.default_rng(0).random((40, 5))
    features, distances = ss.PCoA(3, metric=name).fit(X), ss.PCoA(3).fit(squareform(pdist(X, name)))
    np.testing.assert_allclose(features.coordinates_, distances.coordinates_, atol=1e-7)
    np.testing.assert_allclose(features.transform(X[:7]), features.coordinates_[:7], atol=1e-7)
    with pytest.raises(ValueError, match="precomputed"):
        features.fit(ss.as_operator(X))


def test_labels_in_labels_out():
    frame = pd.DataFrame(SIX, index=IDS, columns=IDS)
    for X in (frame, SimpleNamespace(data=SIX, ids=IDS)):
        assert list(ss.PCoA(2).fit(X).coordinates_.index) == list(IDS)
    assert isinstance(ss.PCoA(2).fit(SIX).coordinates_, np.ndarray)
    assert isinstance(ss.PCoA(2).fit_transform(frame), np.ndarray)
    assert list(ss.PCoA(2).fit(SIX).get_feature_names_out()) == ["pcoa0", "pcoa1"]


def test_further_points_are_placed_among_the_fitted():
    X = np.random.default_rng(0).standard_normal((60, 3))
    D = squareform(pdist(X))
    pcoa = ss.PCoA(3).fit(D[:50, :50])
    everything = np.vstack([pcoa.coordinates_, pcoa.transform(D[50:, :50])])
    np.testing.assert_allclose(squareform(pdist(everything)), D, atol=1e-10)
    np.testing.assert_allclose(pcoa.transform(D[:50, :50]), pcoa.coordinates_, atol=1e-12)


@pytest.mark.parametrize(
    ("D", "settings", "message"),
    [
        (SIX[:4], {}, "square"),
        (SIX + np.eye(6), {}, "diagonal"),
        (SIX + np.triu(SIX), {}, "symmetric"),
        (-SIX, {}, "at least 0"),
        (np.where(SIX == 0.2, np.nan, SIX), {}, "NaN"),
        (SIX, {"n_components": 7}, r"1\.\.6"),
        (SIX, {"n_components": 2.5}, "integer"),
        (SIX, {"tol": -1.0}, "at least 0"),
        (ss.as_operator(SIX + np.triu(SIX)), {}, "symmetric"),
        (ss.as_operator(-(SIX**2)), {}, "negative sum"),
        (ss.as_operator(SIX[:4]), {}, "square"),
    ],
)
def test_what_cannot_be_is_refused(D, settings, message):
    with pytest.raises(ValueError, match=message):
        ss.PCoA(**settings).fit(D)


def test_points_that_coincide_are_at_the_origin():
    pcoa = ss.PCoA().fit(np.zeros((5, 5)))
    assert not pcoa.coordinates_.any()
    assert not pcoa.proportion_explained_.any()
    assert pcoa.negative_share_ == 0


@pytest.mark.parametrize("n", [6, 40])
@pytest.mark.filterwarnings("ignore:The result contains negative eigenvalues", "ignore:EIGH")
def test_equals_scikit_bio(n):
    skbio = pytest.importorskip("skbio")
    D = SIX if n == 6 else metric(n)
    theirs = skbio.stats.ordination.pcoa(skbio.DistanceMatrix(D, IDS if n == 6 else None))
    ours = ss.PCoA().fit(skbio.DistanceMatrix(D, IDS if n == 6 else None))
    np.testing.assert_allclose(np.maximum(ours.eigenvalues_, 0), theirs.eigvals, atol=1e-10)
    np.testing.assert_allclose(ours.proportion_explained_, theirs.proportion_explained, atol=1e-10)
    np.testing.assert_allclose(np.abs(ours.coordinates_), np.abs(theirs.samples.to_numpy()), atol=1e-6)
    assert list(ours.coordinates_.index) == list(theirs.samples.index)


# Where the input is pairwise, scikit-learn's checks hand over inner products, which are no distances: refused.
@parametrize_with_checks([ss.PCoA(n_components=2, metric="euclidean")])
def test_every_check_of_scikit_learn_passes_with_a_metric(estimator, check):
    check(estimator)
