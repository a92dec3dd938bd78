"""Weights are frequencies, scales are units, and shifts need not be the mean."""

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array, random_array
from sklearn import decomposition
from sklearn.preprocessing import StandardScaler

import shiftsvd as ss

EPS = np.finfo(np.float64).eps
SOLVERS = [
    {"solver": "auto"},
    {"solver": "exact"},
    {"solver": "randomized"},
    {"solver": "shifted-randomized"},
    {"solver": ss.RandomizedSVD(n_iter=7)},
    {"solver": ss.ShiftedRandomizedSVD(n_iter=7, n_oversamples=10)},
    {"svd_solver": "full"},
    {"svd_solver": "covariance_eigh"},
    {"svd_solver": "arpack"},
    {"svd_solver": "randomized"},
]
# Scaling flattens the spectrum: there the randomized solvers are exact if they sample everything.
SAMPLE_ALL = [
    {"n_oversamples": 60, **settings} for settings in SOLVERS if isinstance(next(iter(settings.values())), str)
]
SAMPLE_ALL += [{"solver": ss.RandomizedSVD(60)}, {"solver": ss.ShiftedRandomizedSVD(60)}]
SHAPES = [(60, 25), (25, 60)]


def falling(shape, seed=0, ratio=0.5):
    """Singular values ratio^i: at ten samples beyond k and seven iterations no solver errs by more than rounding."""
    rng = np.random.default_rng(seed)
    r = min(shape)
    U, V = (np.linalg.qr(rng.standard_normal((size, r)))[0] for size in shape)
    return (U * (50 * ratio ** np.arange(r))) @ V.T + rng.random(shape[1])


def assert_same_fit(a, b, X):
    """The same model of the same rows, but for the number of rows."""
    size = np.linalg.norm(X)
    variances = b.explained_variance_
    bound = 1000 * EPS * size * size
    assert np.abs(a.mean_ - b.mean_).max() <= 100 * EPS * size
    assert np.abs(a.explained_variance_ - variances).max() <= bound
    assert np.abs(a.singular_values_ - b.singular_values_).max() <= bound / b.singular_values_.min()
    assert np.abs(a.explained_variance_ratio_ - b.explained_variance_ratio_).max() <= bound / variances[0]
    assert abs(a.noise_variance_ - b.noise_variance_) <= bound
    gap = -np.diff(variances).max()
    assert np.abs(a.components_ - b.components_).max() <= bound / gap
    assert np.abs(a.transform(X) - b.transform(X)).max() <= bound / gap * size


@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("settings", SOLVERS, ids=str)
def test_an_integer_weight_is_repetition_and_0_is_removal(settings, shape, container):
    X = falling(shape)
    w = np.random.default_rng(1).integers(0, 4, shape[0])
    assert (w == 0).any()
    weighted = ss.PCA(3, random_state=0, **settings).fit(container(X), sample_weight=w)
    repeated = ss.PCA(3, random_state=0, **settings).fit(container(np.repeat(X, w, axis=0)))
    assert_same_fit(weighted, repeated, X)


@pytest.mark.parametrize("settings", SOLVERS, ids=str)
@pytest.mark.parametrize("scale", [True, "pareto", "vector"])
@pytest.mark.parametrize("shift", ["mean", None, "vector"])
def test_weights_are_repetition_for_every_scale_and_shift(settings, scale, shift):
    X = falling((40, 25))
    rng = np.random.default_rng(2)
    scale = rng.random(25) + 0.5 if scale == "vector" else scale
    shift = rng.random(25) if shift == "vector" else shift
    w = rng.integers(0, 4, 40)
    pca = ss.PCA(3, random_state=0, scale=scale, shift=shift, **settings)
    weighted = pca.fit(X, sample_weight=w)
    repeated = ss.PCA(**pca.get_params()).fit(np.repeat(X, w, axis=0))
    assert np.abs(weighted.scale_ - repeated.scale_).max() <= 1000 * EPS * np.abs(X).max()
    assert_same_fit(weighted, repeated, X / repeated.scale_.min())


@pytest.mark.parametrize("n_components", [0.9, "mle", 4])
def test_weights_choose_as_many_components_as_repetition(n_components):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 4)) @ rng.standard_normal((4, 12)) + 0.1 * rng.standard_normal((80, 12))
    w = rng.integers(1, 4, 80)
    weighted = ss.PCA(n_components).fit(X, sample_weight=w)
    assert weighted.n_components_ == ss.PCA(n_components).fit(np.repeat(X, w, axis=0)).n_components_


def test_fractional_weights_give_the_weighted_covariance():
    X = falling((60, 10))
    w = np.random.default_rng(0).random(60) * 3
    pca = ss.PCA().fit(X, sample_weight=w)
    mean = w @ X / w.sum()
    C = (X - mean).T @ (w[:, None] * (X - mean)) / (w.sum() - 1)
    bound = 100 * EPS * np.linalg.norm(C)
    assert np.abs(pca.mean_ - mean).max() <= 100 * EPS * np.abs(X).max()
    assert np.abs(pca.get_covariance() - C).max() <= bound
    assert pca.explained_variance_.sum() == pytest.approx(np.trace(C), rel=1e-12)


def test_equal_weights_of_one_change_nothing():
    X = falling((30, 12))
    assert_same_fit(ss.PCA(3).fit(X, sample_weight=np.ones(30)), ss.PCA(3).fit(X), X)
    assert_same_fit(ss.PCA(3).fit(X, sample_weight=1), ss.PCA(3).fit(X), X)


def test_fit_transform_scores_every_row_whatever_its_weight():
    X = falling((30, 12))
    w = np.arange(30) % 3
    pca = ss.PCA(3)
    Z = pca.fit_transform(X, sample_weight=w)
    assert Z.shape == (30, 3)
    assert np.array_equal(Z, pca.transform(X))


def test_weights_are_not_modified():
    w = np.arange(30) % 3
    before = w.copy()
    w.flags.writeable = False
    ss.PCA(3).fit(falling((30, 12)), sample_weight=w)
    assert np.array_equal(w, before)


# Scales


@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("settings", SAMPLE_ALL, ids=str)
def test_scale_true_is_a_standard_scaler_before_pca(settings, shape, container):
    X = falling(shape) * np.logspace(-2, 2, shape[1])
    scaled = StandardScaler().fit_transform(X)
    theirs = decomposition.PCA(3, svd_solver="full").fit(scaled)
    for scale in (True, "std"):
        ours = ss.PCA(3, scale=scale, random_state=0, **settings).fit(container(X))
        size = np.linalg.norm(scaled)
        assert np.abs(ours.scale_ - X.std(axis=0)).max() <= 100 * EPS * np.abs(X).max()
        assert np.abs(ours.singular_values_ - theirs.singular_values_).max() <= 1000 * EPS * size
        assert np.abs(ours.explained_variance_ratio_ - theirs.explained_variance_ratio_).max() <= 1000 * EPS
        assert ours.noise_variance_ == pytest.approx(theirs.noise_variance_, rel=1e-10)
        gap = np.abs(np.diff(decomposition.PCA().fit(scaled).singular_values_[:4])).min()
        assert np.abs(ours.components_ - theirs.components_).max() <= 1e4 * EPS * size / gap
        assert np.abs(ours.transform(container(X)) - theirs.transform(scaled)).max() <= 1e4 * EPS * size**2 / gap


def explicit(X, scale):
    """The divisor that a scale stands for."""
    return {"pareto": np.sqrt(X.std(axis=0)), "std": X.std(axis=0)}[scale] if isinstance(scale, str) else scale


@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
@pytest.mark.parametrize("shift", ["mean", None, "vector"])
@pytest.mark.parametrize("scale", ["std", "pareto", np.linspace(0.5, 3, 12)], ids=["std", "pareto", "vector"])
def test_scale_and_shift_equal_the_explicit_matrix(scale, shift, container):
    X = falling((50, 12))
    mu = {"mean": X.mean(axis=0), None: np.zeros(12), "vector": np.linspace(-1, 1, 12)}[shift]
    pca = ss.PCA(4, scale=scale, shift=mu if shift == "vector" else shift).fit(container(X))
    B = (X - mu) / explicit(X, scale)
    S = np.linalg.svd(B, compute_uv=False)
    assert np.abs(pca.mean_ - mu).max() <= 100 * EPS * np.abs(X).max()
    assert np.abs(pca.singular_values_ - S[:4]).max() <= 100 * EPS * np.linalg.norm(B)
    assert np.abs(pca.explained_variance_ - S[:4] ** 2 / 49).max() <= 100 * EPS * S[0] ** 2
    assert np.abs(pca.explained_variance_ratio_ - S[:4] ** 2 / (S**2).sum()).max() <= 100 * EPS
    assert pca.noise_variance_ == pytest.approx((S[4:] ** 2).mean() / 49, rel=1e-9)
    Z = pca.transform(container(X))
    assert np.abs(np.linalg.norm(Z, axis=0) - S[:4]).max() <= 100 * EPS * np.linalg.norm(B)
    assert np.abs(Z - B @ pca.components_.T).max() <= 100 * EPS * np.linalg.norm(B)


@pytest.mark.parametrize("scale", [False, "std", "pareto", np.linspace(0.5, 3, 12)])
@pytest.mark.parametrize("whiten", [False, True])
def test_inverse_transform_of_all_components_gives_x_back(scale, whiten):
    X = falling((50, 12), ratio=0.8)
    pca = ss.PCA(scale=scale, whiten=whiten).fit(X)
    assert np.abs(pca.inverse_transform(pca.transform(X)) - X).max() <= 1000 * EPS * np.linalg.norm(X)


@pytest.mark.parametrize("scale", [False, "std", "pareto", np.linspace(0.5, 3, 12)])
def test_covariance_of_all_components_is_that_of_x(scale):
    X = falling((50, 12), ratio=0.8)
    pca = ss.PCA(scale=scale).fit(X)
    C = np.cov(X, rowvar=False)
    assert np.abs(pca.get_covariance() - C).max() <= 100 * EPS * np.linalg.norm(C)
    inverse = pca.get_precision() @ C
    assert np.abs(inverse - np.eye(12)).max() <= 100 * EPS * np.linalg.cond(C)


@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
@pytest.mark.parametrize("scale", ["std", "pareto", np.linspace(0.5, 3, 12)], ids=["std", "pareto", "vector"])
def test_score_is_the_density_in_the_units_of_x(scale, container):
    # p(x) = p(x / d) / prod(d).
    X = falling((50, 12), ratio=0.8)
    d = explicit(X, scale)
    ours, theirs = ss.PCA(3, scale=scale).fit(X), decomposition.PCA(3).fit(X / d)
    expected = theirs.score_samples(X / d) - np.log(d).sum()
    assert np.abs(ours.score_samples(container(X)) - expected).max() <= 1e-9 * np.abs(expected).max()


def test_columns_without_variance_are_left_as_they_are_with_one_warning_that_counts_them():
    X = falling((50, 12))
    X[:, [2, 5, 7]] = [0.0, 3.0, 1e8 / 3]
    for container in (np.asarray, csr_array, csc_array):
        with pytest.warns(UserWarning, match="3 columns are constant and were not scaled") as caught:
            pca = ss.PCA(3, scale=True).fit(container(X))
        assert len(caught) == 1
        assert caught[0].filename == __file__
        assert np.array_equal(pca.scale_[[2, 5, 7]], [1, 1, 1])
        assert np.all(pca.scale_ > 0)
        assert np.abs(pca.components_[:, [2, 5, 7]]).max() <= 1e-7
        assert np.isfinite(pca.transform(container(X))).all()


def test_weights_of_0_can_leave_a_column_without_variance():
    X = falling((20, 5))
    X[:10, 1] = 4.0
    with pytest.warns(UserWarning, match="is constant and was not scaled"):
        pca = ss.PCA(2, scale=True).fit(X, sample_weight=np.arange(20) < 10)
    assert pca.scale_[1] == 1


# Shifts


@pytest.mark.parametrize("settings", SOLVERS, ids=str)
@pytest.mark.parametrize("container", [np.asarray, csr_array])
def test_any_vector_is_a_shift_for_every_solver(settings, container):
    X = falling((60, 25))
    mu = X.mean(axis=0) + 0.1 * np.random.default_rng(3).standard_normal(25)
    pca = ss.PCA(3, shift=mu, random_state=0, **settings).fit(container(X))
    S = np.linalg.svd(X - mu, compute_uv=False)
    assert np.abs(pca.singular_values_ - S[:3]).max() <= 1000 * EPS * np.linalg.norm(X)
    assert np.array_equal(pca.mean_, mu)


def test_no_shift_is_the_uncentred_decomposition():
    X = random_array((80, 20), density=0.2, format="csr", rng=np.random.default_rng(0))
    pca = ss.PCA(3, shift=None).fit(X)
    S = np.linalg.svd(X.toarray(), compute_uv=False)
    assert np.abs(pca.singular_values_ - S[:3]).max() <= 100 * EPS * S[0]
    assert np.array_equal(pca.mean_, np.zeros(20))
    # Second moments about the shift, not variances: they sum to the mean square.
    assert pca.explained_variance_ratio_[0] == pytest.approx(S[0] ** 2 / (S**2).sum(), rel=1e-12)


def test_the_mean_given_as_a_vector_is_the_mean():
    X = falling((40, 10))
    assert_same_fit(ss.PCA(3, shift=X.mean(axis=0)).fit(X), ss.PCA(3).fit(X), X)


@pytest.mark.parametrize("shift", [ss.LowRank(np.ones(40), np.ones(10)), ss.as_operator(np.ones((40, 10)))])
def test_a_shift_that_means_nothing_for_new_rows_is_refused_in_favour_of_svd(shift):
    with pytest.raises(ValueError, match=r"a shift of PCA must apply to new rows, got .*\. Use shiftsvd\.svd\."):
        ss.PCA(3, shift=shift).fit(falling((40, 10)))
