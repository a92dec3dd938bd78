"""Principal coordinates: largest algebraic eigenvalues of the doubly centred distances, and what scikit-bio gives."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist, squareform
from sklearn.utils.estimator_checks import parametrize_with_checks

import shiftsvd as ss
from shiftsvd.estimators import pcoa as module
from shiftsvd.solvers.hermitian import HermitianLanczos
from tests.support.operators import Counting, Minimal

# Unweighted UniFrac between the gut communities of nine mice, the example that scikit-bio is tested with.
IDS = ("PC.636", "PC.635", "PC.356", "PC.481", "PC.354", "PC.593", "PC.355", "PC.607", "PC.634")
MICE = squareform(
    [
        0.60737953696,
        0.748276547061,
        0.669767446745,
        0.747947798007,
        0.7377413135,
        0.70062016649,
        0.722772498498,
        0.581124366673,
        0.72197480583,
        0.655979250216,
        0.70672669146,
        0.745154628257,
        0.745509981365,
        0.659269044234,
        0.558850879936,
        0.697796152694,
        0.610208881707,
        0.718770654329,
        0.615310834175,
        0.735768463546,
        0.788355481145,
        0.595087696488,
        0.657351659549,
        0.647258584304,
        0.686601452856,
        0.663208945591,
        0.585097582096,
        0.599541095803,
        0.726258935536,
        0.781832289452,
        0.660981656067,
        0.713741192899,
        0.763317384716,
        0.77062394744,
        0.753575681654,
        0.726387392797,
    ]
)


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


def test_published_values_of_the_nine_mice():
    pcoa = ss.PCoA().fit(MICE)
    values = [0.51236726, 0.30071909, 0.26791207, 0.20898868, 0.19169895, 0.16054235, 0.15017696, 0.12245775, 0]
    assert pcoa.eigenvalues_ == pytest.approx(values, abs=1e-8)
    shares = [0.2675738328, 0.157044696, 0.1399118638, 0.1091402725, 0.1001110485, 0.0838401162, 0.0784269939]
    assert pcoa.proportion_explained_ == pytest.approx([*shares, 0.0639511764, 0], abs=1e-9)
    assert pcoa.negative_share_ == 0


@pytest.mark.parametrize("D", [MICE, metric(), metric(name="euclidean")], ids=["mice", "bray-curtis", "euclidean"])
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


@pytest.mark.one_in(3)
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


@pytest.mark.one_in(4)
@pytest.mark.parametrize("seed", range(8))
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
    values = np.concatenate([np.linspace(1, 2, 30), np.linspace(-3, 0.99, 270)])
    Q = np.linalg.qr(rng.standard_normal((300, 300)))[0]
    A = ss.as_operator(Q * values @ Q.T)
    for settings in ({}, {"max_basis": 40, "block_size": 4}, {"block_size": 1}):
        pairs = HermitianLanczos(1e-6, **settings)(A, 5, np.random.default_rng(1))
        assert pairs.values == pytest.approx(np.sort(values)[::-1][:5], rel=2e-6)
        assert np.linalg.norm(pairs.vectors.T @ pairs.vectors - np.eye(5)) < 1e-12


def test_exact_eigenpairs_have_not_converged_while_others_may_have_been_missed():
    # The start lacks the first axis, and no pass is left to look for it.
    A, start = ss.as_operator(np.diag(np.arange(40.0, 0, -1))), np.eye(40)[:, 1:3]
    pairs = HermitianLanczos(1e-6, block_size=2, max_passes=1)(A, 1, np.random.default_rng(0), start)
    assert pairs.values == pytest.approx([39], rel=1e-14)
    assert pairs.limit == np.inf
    assert not pairs.converged


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
    frame = pd.DataFrame(MICE, index=IDS, columns=IDS)
    for X in (frame, SimpleNamespace(data=MICE, ids=IDS)):
        assert list(ss.PCoA(2).fit(X).coordinates_.index) == list(IDS)
    assert isinstance(ss.PCoA(2).fit(MICE).coordinates_, np.ndarray)
    assert isinstance(ss.PCoA(2).fit_transform(frame), np.ndarray)
    assert list(ss.PCoA(2).fit(MICE).get_feature_names_out()) == ["pcoa0", "pcoa1"]


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
        (MICE[:4], {}, "square"),
        (MICE + np.eye(9), {}, "diagonal"),
        (MICE + np.triu(MICE), {}, "symmetric"),
        (-MICE, {}, "at least 0"),
        (np.where(MICE > 0.78, np.nan, MICE), {}, "NaN"),
        (MICE, {"n_components": 10}, r"1\.\.9"),
        (MICE, {"n_components": 2.5}, "integer"),
        (MICE, {"tol": -1.0}, "at least 0"),
        (ss.as_operator(MICE + np.triu(MICE)), {}, "symmetric"),
        (ss.as_operator(-(MICE**2)), {}, "negative sum"),
        (ss.as_operator(MICE[:4]), {}, "square"),
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


@pytest.mark.parametrize("n", [9, 40])
@pytest.mark.filterwarnings("ignore:The result contains negative eigenvalues", "ignore:EIGH")
def test_equals_scikit_bio(n):
    skbio = pytest.importorskip("skbio")
    D = MICE if n == 9 else metric(n)
    theirs = skbio.stats.ordination.pcoa(skbio.DistanceMatrix(D, IDS if n == 9 else None))
    ours = ss.PCoA().fit(skbio.DistanceMatrix(D, IDS if n == 9 else None))
    np.testing.assert_allclose(np.maximum(ours.eigenvalues_, 0), theirs.eigvals, atol=1e-10)
    np.testing.assert_allclose(ours.proportion_explained_, theirs.proportion_explained, atol=1e-10)
    np.testing.assert_allclose(np.abs(ours.coordinates_), np.abs(theirs.samples.to_numpy()), atol=1e-6)
    assert list(ours.coordinates_.index) == list(theirs.samples.index)


@pytest.mark.long
@parametrize_with_checks([ss.PCoA(n_components=2), ss.PCoA(n_components=2, metric="euclidean")])
def test_every_check_of_scikit_learn_passes(estimator, check):
    check(estimator)


def test_small_distances_take_one_pass_and_that_of_their_means():
    S = Counting(Minimal(metric(40) ** 2))
    pcoa = ss.PCoA(4).fit(S)
    assert pcoa.n_passes_ + 1 == len(S.calls)


def test_an_operator_leaves_no_names_of_an_earlier_frame():
    D = metric(30)
    pcoa = ss.PCoA(2).fit(pd.DataFrame(D, columns=[f"s{i}" for i in range(30)]))
    assert pcoa.feature_names_in_[0] == "s0"
    assert not hasattr(pcoa.fit(Minimal(D**2)), "feature_names_in_")
