"""Streaming: batches and merges give one sketch, exact in mean and variance, and near the best components."""

import pickle
from functools import reduce

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from helpers import EPS, decaying
from shiftsvd.streaming import ScatterSketch, nystrom

CONTAINERS = {"dense": np.asarray, "csr": sparse.csr_array, "csc": sparse.csc_array, "fortran": np.asfortranarray}


def counts_like(rows: int = 600, columns: int = 80, groups: int = 6, seed: int = 0) -> sparse.csr_array:
    """Sparse counts of a few groups of rows, on the log scale."""
    rng = np.random.default_rng(seed)
    profiles = rng.gamma(0.35, 1.0, columns) * rng.lognormal(0, 1, (groups, columns))
    return sparse.csr_array(np.log1p(rng.poisson(profiles[rng.integers(0, groups, rows)])))


def batches(X: object, count: int, seed: int = 0) -> list:
    """The rows in random order, cut at random places into so many batches, the last of one row."""
    rng = np.random.default_rng(seed)
    m = X.shape[0]
    order = rng.permutation(m)
    cuts = np.sort(rng.choice(np.arange(1, m - 1), count - 2, replace=False)) if count > 2 else []
    return [X[part] for part in np.split(order, [*cuts, m - 1])] if count > 1 else [X[order]]


def streamed(parts: list, k: int = 5, **settings: object) -> ss.PCA:
    pca = ss.PCA(k, random_state=0, **{"n_oversamples": k} | settings)  # ell = 2 k
    for part in parts:
        pca.partial_fit(part)
    return pca


def tree(models: list, seed: int) -> ss.PCA:
    """All models merged, two random ones at a time."""
    rng = np.random.default_rng(seed)
    while len(models) > 1:
        i, j = sorted(rng.choice(len(models), 2, replace=False))
        b, a = models.pop(j), models.pop(i)
        models.append(ss.merge(a, b) if rng.random() < 0.5 else ss.merge(b, a))
    return models[0]


def total_variance(pca: ss.PCA) -> float:
    """What the ratios are shares of."""
    left_out = min(pca.n_samples_, pca.n_features_in_) - pca.n_components_
    return float(pca.explained_variance_.sum() + pca.noise_variance_ * left_out)


def projection_error(X: np.ndarray, V: np.ndarray) -> float:
    """Frobenius norm of what the components leave of the centred rows."""
    C = X - X.mean(axis=0)
    return float(np.linalg.norm(C - (C @ V.T) @ V))


def assert_exact_moments(pca: ss.PCA, D: np.ndarray) -> None:
    mean, total = D.mean(axis=0), D.var(axis=0, ddof=1).sum()
    assert np.linalg.norm(pca.mean_ - mean) <= 1e-12 * np.linalg.norm(mean)
    assert abs(total_variance(pca) - total) <= 1e-12 * total
    assert pca.explained_variance_ratio_.sum() <= 1


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("count", [1, 2, 7, 300])
def test_mean_and_total_variance_are_exact_and_the_error_is_near_the_optimum(container: str, count: int) -> None:
    D = counts_like().toarray()
    make = CONTAINERS[container]
    pca = streamed([make(part) for part in batches(D, count)])
    assert_exact_moments(pca, D)
    best = projection_error(D, np.linalg.svd(D - D.mean(axis=0))[2][:5])
    assert projection_error(D, pca.components_) <= 1.1 * best


def test_a_thousand_batches_and_a_random_tree_of_merges_are_as_good_as_one() -> None:
    X = counts_like(2000, 60)
    parts = batches(X, 1000)
    assert parts[-1].shape[0] == 1
    merged = tree([streamed(parts[lo : lo + 50]) for lo in range(0, 1000, 50)], 0)
    assert_exact_moments(merged, X.toarray())
    assert np.allclose(merged.explained_variance_, streamed([X]).explained_variance_, rtol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_merging_over_a_random_tree_is_fitting_in_one_go(seed: int) -> None:
    X = counts_like()
    parts = batches(X, 40, seed)
    whole = streamed([X])
    merged = tree([streamed(chunk) for chunk in (parts[:1], parts[1:9], parts[9:20], parts[20:39], parts[39:])], seed)
    assert_exact_moments(merged, X.toarray())
    scale = np.linalg.norm(whole._sketch.Y)
    assert np.linalg.norm(merged._sketch.Y - whole._sketch.Y) <= 1e3 * EPS * scale
    assert np.allclose(merged.explained_variance_, whole.explained_variance_, rtol=1e-10)
    assert merged.n_samples_ == whole.n_samples_ == 600


def test_the_sketch_is_the_scatter_times_the_test_matrix() -> None:
    D = np.random.default_rng(0).random((50, 9)) + 1e6
    sketch = reduce(lambda s, part: s.update(ss.as_operator(part)), batches(D, 20), ScatterSketch.empty(9, 4, 0))
    C = D - D.mean(axis=0)
    Y = C.T @ C @ sketch.Omega
    assert np.linalg.norm(sketch.Y - Y) <= 1e-9 * np.linalg.norm(Y)  # the data are rounded to 1e-10


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_data_far_off_centre_lose_nothing(dtype: type) -> None:
    near = decaying((300, 20), 0.7, seed=1)
    far = (near + 1e4).astype(dtype)
    known = far.astype(np.float64)
    pca = streamed(batches(far, 30), 4)
    C = known - known.mean(axis=0)
    exact = streamed([C], 4)
    assert pca.components_.dtype == dtype
    assert np.allclose(pca.singular_values_, exact.singular_values_, rtol=1e-5 if dtype == np.float32 else 1e-9)


def test_every_exact_variance_lies_within_what_was_not_seen() -> None:
    D = counts_like().toarray()
    exact = np.linalg.svd(D - D.mean(axis=0), compute_uv=False)[:5] ** 2 / 599
    for pca in (streamed([D]), streamed([D]).refine(D), streamed([D], n_oversamples=40)):
        assert np.all(pca.explained_variance_ <= exact * (1 + 1e-12))
        assert np.all(exact <= pca.explained_variance_ + pca.unseen_variance_)
        bound = pca.info_.value_errors * pca.singular_values_
        assert np.all(np.sqrt(exact * 599) - pca.singular_values_ <= bound * (1 + 1e-9) + 1e-9)


def test_a_sketch_of_all_columns_is_exact() -> None:
    D = counts_like().toarray()
    exact = ss.PCA(5, solver="exact").fit(D)
    pca = streamed(batches(D, 50), n_oversamples=80)
    assert pca.info_.converged
    assert np.allclose(pca.explained_variance_, exact.explained_variance_, rtol=1e-10)
    assert np.allclose(pca.components_, exact.components_, atol=1e-8)
    assert pca.unseen_variance_ <= 1e-12 * total_variance(pca)


def test_refining_brings_the_components_to_the_exact_ones() -> None:
    X = counts_like()
    D = X.toarray()
    pca = streamed(batches(X, 10))
    errors = [projection_error(D, pca.components_)]
    unseen = [pca.unseen_variance_]
    for _ in range(3):
        pca.refine(X)
        errors.append(projection_error(D, pca.components_))
        unseen.append(pca.unseen_variance_)
    assert errors == sorted(errors, reverse=True)
    assert unseen == sorted(unseen, reverse=True)
    exact = ss.PCA(5, solver="exact").fit(D)
    pca.refine(X, passes=20)
    assert np.allclose(pca.explained_variance_, exact.explained_variance_, rtol=1e-4)
    assert_exact_moments(pca, D)


def test_a_refined_stream_goes_on() -> None:
    X = counts_like()
    pca = streamed([X[:400]]).refine(X[:400]).partial_fit(X[400:])
    assert_exact_moments(pca, X.toarray())
    assert projection_error(X.toarray(), pca.components_) <= projection_error(X.toarray(), streamed([X]).components_)


def test_rows_one_at_a_time_from_the_first_on() -> None:
    X = counts_like(40, 12)
    pca = ss.PCA(3, random_state=0).partial_fit(X[[0]])
    assert not hasattr(pca, "components_")
    for i in range(1, 40):
        pca.partial_fit(X[[i]])
        assert pca.n_components_ == min(3, i + 1)
    assert_exact_moments(pca, X.toarray())
    assert np.allclose(pca.components_ @ pca.components_.T, np.eye(3), atol=1e-12)


def test_no_batch_is_densified(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, *_: object, **__: object) -> None:
        raise AssertionError("densified")

    X = counts_like()
    for cls in (sparse.csr_array, sparse.csc_array):
        monkeypatch.setattr(cls, "toarray", refuse)
        monkeypatch.setattr(cls, "todense", refuse)
    streamed(batches(X, 5)).refine(X).transform(X)


@pytest.mark.parametrize("shift", [None, "vector"])
@pytest.mark.parametrize("scaled", [False, True])
def test_shift_and_scale_are_those_of_fit(shift: str | None, scaled: bool) -> None:
    D = counts_like(200, 12).toarray()
    rng = np.random.default_rng(3)
    settings = {
        "shift": rng.random(12) if shift else None,
        "scale": rng.random(12) * 100 + 0.01 if scaled else False,
    }
    exact = ss.PCA(3, solver="exact", **settings).fit(D)
    pca = streamed(batches(D, 9), 3, n_oversamples=9, **settings)
    assert np.allclose(pca.explained_variance_, exact.explained_variance_, rtol=1e-9)
    assert np.allclose(pca.explained_variance_ratio_, exact.explained_variance_ratio_, rtol=1e-9)
    assert np.allclose(pca.transform(D), exact.transform(D), atol=1e-6 * np.linalg.norm(exact.transform(D)))
    assert np.isclose(pca.noise_variance_, exact.noise_variance_, rtol=1e-8)


def test_a_small_sketch_with_a_wide_range_of_scales_finds_the_scaled_components() -> None:
    D = decaying((300, 40), 0.5, seed=2)
    scale = np.logspace(-4, 4, 40)
    exact = ss.PCA(3, solver="exact", scale=scale).fit(D * scale)
    pca = streamed(batches(D * scale, 9), 3, scale=scale)
    assert np.allclose(pca.explained_variance_, exact.explained_variance_, rtol=0.1)


def test_constant_and_repeated_rows() -> None:
    pca = streamed([np.full((1, 6), 0.1), np.full((4, 6), 0.1)], 2)
    assert np.all(pca.explained_variance_ <= EPS**2)
    assert pca.explained_variance_ratio_.sum() <= 1
    pca = streamed([np.ones((5, 6))], 2)
    assert np.all(pca.explained_variance_ == 0)
    assert np.all(pca.explained_variance_ratio_ == 0)
    assert np.isfinite(pca.components_).all()
    pca = streamed([np.outer(np.arange(10.0), np.arange(6.0))], 4)
    assert pca.info_.rank == 1
    assert np.allclose(pca.transform(np.zeros((1, 6)))[:, 1:], 0, atol=1e-10)


def test_the_components_are_made_when_they_are_asked_for() -> None:
    X = counts_like()
    pca = ss.PCA(5, random_state=0).partial_fit(X)
    assert "components_" not in vars(pca)
    assert pca.components_ is pca.components_
    pca.partial_fit(X)
    assert pca.n_samples_ == 1200
    with pytest.raises(AttributeError, match="no attribute 'component_'"):
        pca.component_  # noqa: B018


def test_streams_pickle_and_go_on() -> None:
    X = counts_like()
    pca = pickle.loads(pickle.dumps(streamed([X[:300]]))).partial_fit(X[300:])
    assert_exact_moments(pca, X.toarray())


def test_a_streamed_model_is_saved_as_any_other(tmp_path) -> None:
    X = counts_like()
    pca = streamed([X[:300], X[300:]])
    pca.save(tmp_path / "model.safetensors")
    assert np.array_equal(ss.load(tmp_path / "model.safetensors").transform(X), pca.transform(X))


def test_fit_forgets_the_stream() -> None:
    X = counts_like()
    pca = streamed([X[:300]]).fit(X)
    assert not hasattr(pca, "unseen_variance_")
    assert pca.partial_fit(X[:50]).n_samples_ == 50


def test_frames_keep_their_names_and_must_go_on_with_them() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(counts_like(100, 4).toarray(), columns=list("abcd"))
    pca = streamed([frame[:50], frame[50:]], 2)
    assert list(pca.feature_names_in_) == list("abcd")
    with pytest.raises(ValueError, match="feature names"):
        pca.partial_fit(frame[["b", "a", "c", "d"]])
    other = streamed([frame.rename(columns={"a": "z"})], 2)
    with pytest.raises(ValueError, match="same features"):
        ss.merge(pca, other)


def test_merge_changes_neither() -> None:
    X = counts_like()
    a, b = streamed([X[:100]]), streamed([X[100:]])
    before = a.components_.copy()
    ss.merge(a, b)
    assert np.array_equal(a.components_, before)
    assert (a.n_samples_, b.n_samples_) == (100, 500)


def refusals() -> dict:
    X = counts_like(50, 10)
    other_seed = ss.PCA(5, random_state=1)
    return {
        "learned scale": (lambda: streamed([X], scale=True), "cannot learn"),
        "pareto": (lambda: streamed([X], scale="pareto"), "cannot learn"),
        "share": (lambda: streamed([X], 0.9), "n_components"),
        "mle": (lambda: streamed([X], "mle"), "n_components"),
        "too many": (lambda: streamed([X], 11), "n_components"),
        "features": (lambda: streamed([X, X[:, :9]]), "9 features"),
        "gaps": (lambda: streamed([np.full((2, 10), np.nan)]), "NaN|finite"),
        "shift": (lambda: streamed([X], shift="median"), "shift"),
        "no stream": (lambda: ss.PCA(2).fit(X).refine(X), "partial_fit first"),
        "rows": (lambda: streamed([X], 2).refine(X[:40]), "50 rows"),
        "passes": (lambda: streamed([X], 2).refine(X, passes=0), "passes"),
        "seed": (lambda: ss.merge(streamed([X], 2), ss.PCA(2, random_state=1).partial_fit(X)), "test matrix"),
        "ell": (lambda: ss.merge(streamed([X], 2), streamed([X], 2, n_oversamples=5)), "test matrix"),
        "merge fit": (lambda: ss.merge(streamed([X], 2), other_seed.fit(X)), "partial_fit"),
        "memory": (lambda: streamed([X], memory_limit=100), "memory_limit"),
    }


@pytest.mark.parametrize("case", refusals())
def test_what_cannot_be_is_refused(case: str) -> None:
    refused, message = refusals()[case]
    with pytest.raises(ValueError, match=message):
        refused()


def test_a_refused_batch_leaves_the_stream_as_it_was() -> None:
    X = counts_like(50, 10)
    pca = streamed([X], 2)
    before = pca.components_.copy()
    with pytest.raises(ValueError, match="features"):
        pca.partial_fit(X[:, :5])
    assert np.array_equal(pca.components_, before)
    assert pca.partial_fit(X).n_samples_ == 100


@pytest.mark.parametrize("n", [6, 30])
def test_nystrom_recovers_a_matrix_of_low_rank(n: int) -> None:
    V = np.linalg.qr(np.random.default_rng(0).standard_normal((n, 3)))[0]
    S = (V * [4.0, 2.0, 1.0]) @ V.T
    Omega = np.random.default_rng(1).standard_normal((n, 6))
    values, vectors = nystrom(S @ Omega, Omega)
    assert np.allclose(values[:3], [4, 2, 1], rtol=1e-10)
    assert np.all(values[3:] <= 1e-10)
    assert np.allclose(np.abs(vectors[:, :3].T @ V), np.eye(3), atol=1e-6)


def test_an_open_file_is_a_batch(tmp_path) -> None:
    D = counts_like(60, 10).toarray()
    np.save(tmp_path / "x.npy", D)
    from shiftsvd.io import open_matrix

    A, _ = open_matrix(tmp_path / "x.npy")
    pca = streamed([A], 3)
    assert_exact_moments(pca, D)
