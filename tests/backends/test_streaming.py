"""Streaming: batches and merges give the fit of all rows, exactly while S is whole, and nearly by a sketch of it."""

import pickle

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from tests.support.matrices import EPS, decaying

# A sketch is small here on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:The components of .* come from a sketch", "ignore:.* did not converge")
# A limit that the scatter matrix of 60 features and more does not fit in: what is kept is a sketch.
SKETCH = {"memory_limit": 200_000}
KINDS = {"whole": {}, "sketch": SKETCH}
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
    pca = ss.PCA(k, random_state=0, **{"n_oversamples": k} | settings)  # ell = 2 k, where it is a sketch
    for part in parts:
        pca.partial_fit(part)
    return pca


def assert_same_fit(pca: ss.PCA, other: ss.PCA, rtol: float = 1e-10) -> None:
    """The same model to rounding, but for the number of rows."""
    assert np.allclose(pca.mean_, other.mean_, rtol=1e-12, atol=1e-14)
    assert np.allclose(pca.explained_variance_, other.explained_variance_, rtol=rtol)
    assert np.allclose(pca.explained_variance_ratio_, other.explained_variance_ratio_, rtol=rtol)
    assert np.isclose(pca.noise_variance_, other.noise_variance_, rtol=rtol)
    assert np.allclose(pca.components_, other.components_, atol=1e4 * rtol)


def tree(models: list, seed: int) -> ss.PCA:
    """All models merged, two random ones at a time."""
    rng = np.random.default_rng(seed)
    while len(models) > 1:
        i, j = sorted(rng.choice(len(models), 2, replace=False))
        b, a = models.pop(j), models.pop(i)
        models.append(ss.merge_pca(a, b) if rng.random() < 0.5 else ss.merge_pca(b, a))
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("count", [1, 2, 7, 300])
def test_mean_and_total_variance_are_exact_and_the_error_is_near_the_optimum(
    container: str, count: int, kind: str
) -> None:
    D = counts_like().toarray()
    make = CONTAINERS[container]
    pca = streamed([make(part) for part in batches(D, count)], **KINDS[kind])
    assert_exact_moments(pca, D)
    best = projection_error(D, np.linalg.svd(D - D.mean(axis=0))[2][:5])
    allowed = {"whole": 1 + 1e-12, "sketch": 1.002}[kind]
    assert projection_error(D, pca.components_) <= allowed * best


@pytest.mark.parametrize("count", [1, 7, 60])
def test_a_sketch_of_2k_columns_is_no_worse_than_incremental_pca(count: int) -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    D = counts_like(1200, 100, 8, seed=4).toarray()
    parts = np.array_split(np.random.default_rng(0).permutation(1200), count)
    incremental = decomposition.IncrementalPCA(6)
    for part in parts:
        incremental.partial_fit(D[part])
    best = projection_error(D, np.linalg.svd(D - D.mean(axis=0))[2][:6])
    pca = streamed([D[part] for part in parts], 6, **SKETCH)
    assert pca.info_.sample_size == 12
    # In one batch both are the optimum; what iteration leaves is allowed for.
    assert projection_error(D, pca.components_) <= max(projection_error(D, incremental.components_), 1.0001 * best)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_batches_and_a_random_tree_of_merges_are_as_good_as_one(kind: str) -> None:
    X = counts_like(2000, 60)
    D = X.toarray()
    parts = batches(X, 1000)
    assert parts[-1].shape[0] == 1
    merged = tree([streamed(parts[lo : lo + 50], **KINDS[kind]) for lo in range(0, 1000, 50)], 0)
    assert_exact_moments(merged, D)
    best = projection_error(D, np.linalg.svd(D - D.mean(axis=0))[2][:5])
    assert projection_error(D, merged.components_) <= {"whole": 1 + 1e-12, "sketch": 1.002}[kind] * best
    if kind == "whole":
        assert_same_fit(merged, streamed([X]))


@pytest.mark.parametrize("seed", range(3))
def test_merging_over_a_random_tree_is_fitting_in_one_go(seed: int) -> None:
    X = counts_like()
    parts = batches(X, 40, seed)
    merged = tree([streamed(chunk) for chunk in (parts[:1], parts[1:9], parts[9:20], parts[20:39], parts[39:])], seed)
    assert_exact_moments(merged, X.toarray())
    assert_same_fit(merged, streamed([X]))
    assert merged.n_samples_ == 600
    assert pytest.approx(0) == merged.unseen_variance_


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_data_far_off_centre_lose_nothing(dtype: type, kind: str) -> None:
    near = decaying((300, 60), 0.5, seed=1)
    far = (near + 1e4).astype(dtype)
    known = far.astype(np.float64)
    pca = streamed(batches(far, 30), 4, **KINDS[kind])
    C = known - known.mean(axis=0)
    exact = ss.PCA(4, solver="exact").fit(C)
    assert pca.components_.dtype == dtype
    assert np.allclose(pca.singular_values_, exact.singular_values_, rtol=1e-5 if dtype == np.float32 else 1e-9)


def test_every_exact_variance_lies_within_what_was_not_seen() -> None:
    D = counts_like().toarray()
    exact = np.linalg.svd(D - D.mean(axis=0), compute_uv=False)[:5] ** 2 / 599
    for parts in ([D], batches(D, 9), batches(D, 200), [*np.array_split(D[np.argsort(D[:, 0])], 30)]):
        for pca in (streamed(parts, **SKETCH), streamed(parts, **SKETCH).refine(D), streamed(parts)):
            assert np.all(pca.explained_variance_ <= exact * (1 + 1e-12))
            assert np.all(exact <= pca.explained_variance_ * (1 + 1e-12) + pca.unseen_variance_)
            bound = pca.info_.value_errors * pca.singular_values_
            assert np.all(np.sqrt(exact * 599) - pca.singular_values_ <= bound * (1 + 1e-9) + 1e-9)


def test_all_of_the_scatter_matrix_is_exact() -> None:
    D = counts_like().toarray()
    exact = ss.PCA(5, solver="exact").fit(D)
    for settings in ({}, {"n_oversamples": 80, "memory_limit": 2 * 10**6}):
        pca = streamed(batches(D, 50), **settings)
        assert pca.info_.converged
        assert pca.info_.sample_size == 80
        assert_same_fit(pca, exact)
        assert pca.unseen_variance_ == 0


def test_refining_brings_the_components_to_the_exact_ones() -> None:
    X = counts_like()
    D = X.toarray()
    pca = streamed(batches(X, 10), **SKETCH)
    values = [pca.explained_variance_]
    for _ in range(3):
        pca.refine(X)
        values.append(pca.explained_variance_)
        assert np.all(values[-1] >= values[-2] * (1 - 1e-12))
    exact = ss.PCA(5, solver="exact").fit(D)
    pca.refine(X, passes=20)
    assert np.allclose(pca.explained_variance_, exact.explained_variance_, rtol=1e-6)
    assert_exact_moments(pca, D)


@pytest.mark.parametrize("kind", KINDS)
def test_a_refined_stream_goes_on_and_merges(kind: str) -> None:
    X = counts_like()
    D = X.toarray()
    refined = streamed([X[:400]], **KINDS[kind]).refine(X[:400])
    both = ss.merge_pca(refined, streamed([X[400:]], **KINDS[kind]))
    for pca in (refined.partial_fit(X[400:]), both):
        assert_exact_moments(pca, D)
        exact = ss.PCA(5, solver="exact").fit(D)
        assert projection_error(D, pca.components_) <= 1.001 * projection_error(D, exact.components_)


@pytest.mark.parametrize("kinds", [("f4", "f8"), ("f8", "f4"), ("f4", "f4")])
def test_a_merged_fit_is_as_precise_as_the_more_precise_part(kinds: tuple[str, str]) -> None:
    a, b = (streamed([counts_like(40, 12).astype(kind)]) for kind in kinds)
    assert ss.merge_pca(a, b).components_.dtype == np.result_type(*kinds)


@pytest.mark.parametrize("kind", KINDS)
def test_a_merged_fit_has_the_rounding_of_both_parts(kind: str) -> None:
    X = counts_like()
    a, b = (streamed([part], **KINDS[kind]) for part in (X[:300], X[300:]))
    whole, *parts = (pca._stream.scatter.slack for pca in (ss.merge_pca(a, b), a, b))
    assert np.all(whole >= sum(parts))
    assert all(part.any() for part in parts)


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
    for settings in KINDS.values():
        streamed(batches(X, 5), **settings).refine(X).transform(X)


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
    pca = streamed(batches(D, 9), 3, **settings)
    assert np.allclose(pca.explained_variance_, exact.explained_variance_, rtol=1e-9)
    assert np.allclose(pca.explained_variance_ratio_, exact.explained_variance_ratio_, rtol=1e-9)
    assert np.allclose(pca.transform(D), exact.transform(D), atol=1e-6 * np.linalg.norm(exact.transform(D)))
    assert np.isclose(pca.noise_variance_, exact.noise_variance_, rtol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_a_wide_range_of_scales_does_no_harm(kind: str) -> None:
    D = decaying((300, 60), 0.5, seed=2)
    scale = np.logspace(-4, 4, 60)
    exact = ss.PCA(3, solver="exact", scale=scale).fit(D * scale)
    pca = streamed(batches(D * scale, 9), 3, scale=scale, **KINDS[kind])
    assert np.allclose(pca.explained_variance_, exact.explained_variance_, rtol=1e-6)


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


@pytest.mark.parametrize("kind", KINDS)
def test_streams_pickle_and_go_on(kind: str) -> None:
    X = counts_like()
    pca = pickle.loads(pickle.dumps(streamed([X[:300]], **KINDS[kind]))).partial_fit(X[300:])
    assert_exact_moments(pca, X.toarray())
    assert_same_fit(pca, streamed([X[:300], X[300:]], **KINDS[kind]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("container", CONTAINERS)
def test_an_integer_weight_is_repetition_and_0_is_no_row(kind: str, container: str) -> None:
    X = decaying((300, 60), 0.5, seed=3)
    make = CONTAINERS[container]
    w = np.random.default_rng(5).integers(0, 4, 300)
    w[100:150] = 0  # a whole batch of no rows
    weighted, repeated, present = (ss.PCA(4, random_state=0, n_oversamples=4, **KINDS[kind]) for _ in range(3))
    for lo in range(0, 300, 50):
        part, weights = X[lo : lo + 50], w[lo : lo + 50]
        weighted.partial_fit(make(part), sample_weight=weights)
        if weights.any():
            repeated.partial_fit(make(np.repeat(part, weights, axis=0)))
            present.partial_fit(make(part[weights > 0]), sample_weight=weights[weights > 0])
    assert_same_fit(weighted, repeated, 1e-9)
    assert_same_fit(weighted, present, 1e-9)
    assert weighted.n_samples_ == 300
    everything = ss.PCA(4, solver="exact").fit(X, sample_weight=w)
    assert_same_fit(weighted.refine(make(X), sample_weight=w), everything, 1e-9)


def test_weights_of_one_number_and_of_fractions() -> None:
    D = counts_like().toarray()
    w = np.random.default_rng(0).random(600)
    pca = ss.PCA(5).partial_fit(D[:50], sample_weight=w[:50]).partial_fit(D[50:], sample_weight=w[50:])
    assert_same_fit(pca, ss.PCA(5, solver="exact").fit(D, sample_weight=w))
    doubled = ss.PCA(5).partial_fit(D, sample_weight=2)
    assert_same_fit(doubled, streamed([D, D]))


def test_a_streamed_model_is_saved_as_any_other(tmp_path) -> None:
    X = counts_like()
    pca = streamed([X[:300], X[300:]])
    pca.save(tmp_path / "model.safetensors")
    with pytest.warns(UserWarning, match="not its stream"):
        loaded = ss.load_model(tmp_path / "model.safetensors")
    assert np.array_equal(loaded.transform(X), pca.transform(X))


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
        ss.merge_pca(pca, other)


@pytest.mark.parametrize("kind", KINDS)
def test_merge_changes_neither(kind: str) -> None:
    X = counts_like()
    a, b = streamed([X[:100]], **KINDS[kind]), streamed([X[100:]], **KINDS[kind])
    before = [a.components_.copy(), b.components_.copy()]
    ss.merge_pca(a, b).partial_fit(X).components_  # noqa: B018
    for pca, components in zip((a, b), before, strict=True):
        assert np.array_equal(pca.components_, components)
        again = pickle.loads(pickle.dumps(pca))
        vars(again).pop("components_"), vars(again).pop("info_")
        assert np.array_equal(again.components_, components)
    assert (a.n_samples_, b.n_samples_) == (100, 500)


def streamed_of_seed_1(X: sparse.csr_array) -> ss.PCA:
    return ss.PCA(5, n_oversamples=5, random_state=1, **SKETCH).partial_fit(X)


def refusals() -> dict:
    X = counts_like(50, 10)
    wide = counts_like(50, 60)
    return {
        "learned scale": (lambda: streamed([X], scale=True), "does not support"),
        "pareto": (lambda: streamed([X], scale="pareto"), "does not support"),
        "share": (lambda: streamed([X], 0.9), "n_components"),
        "mle": (lambda: streamed([X], "mle"), "n_components"),
        "too many": (lambda: streamed([X], 11), "n_components"),
        "features": (lambda: streamed([X, X[:, :9]]), "9 features"),
        "gaps": (lambda: streamed([np.full((2, 10), np.nan)]), "NaN|finite"),
        "shift": (lambda: streamed([X], shift="median"), "shift"),
        "no stream": (lambda: ss.PCA(2).fit(X).refine(X), "Call partial_fit for each batch first"),
        "rows": (lambda: streamed([X], 2).refine(X[:40]), "50 rows"),
        "passes": (lambda: streamed([X], 2).refine(X, passes=0), "passes"),
        "weights at refine": (lambda: streamed([X], 2).refine(X, sample_weight=np.full(50, 2)), "weights"),
        "negative weights": (lambda: ss.PCA(2).partial_fit(X, sample_weight=np.full(50, -1)), "negative"),
        "too few weights": (lambda: ss.PCA(2).partial_fit(X, sample_weight=np.ones(49)), "one entry per sample"),
        "seed": (lambda: ss.merge_pca(streamed([wide], **SKETCH), streamed_of_seed_1(wide)), "test matrix"),
        "ell": (lambda: ss.merge_pca(*(streamed([wide], n_oversamples=p, **SKETCH) for p in (5, 6))), "test matrix"),
        "kind": (lambda: ss.merge_pca(streamed([wide], **SKETCH), streamed([wide])), "memory_limit"),
        "scale": (lambda: ss.merge_pca(*(streamed([X], 2, scale=scale) for scale in (None, np.ones(10) / 2))), "scale"),
        "merge fit": (lambda: ss.merge_pca(streamed([X], 2), ss.PCA(5).fit(X)), "partial_fit"),
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


def test_a_batch_that_fails_halfway_leaves_the_stream_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    X = counts_like(600, 80)
    for settings in KINDS.values():
        pca = streamed([X[:300]], **settings)
        before = pca.components_.copy()

        def fail(*_: object) -> None:
            raise OSError("the disk is gone")

        with monkeypatch.context() as broken:
            broken.setattr(type(ss.as_operator(X)), "gram", fail)
            broken.setattr(type(ss.as_operator(X)), "gram_matrix", fail)
            with pytest.raises(OSError, match="gone"):
                pca.partial_fit(X[300:])
        assert np.array_equal(pca.components_, before)
        assert_same_fit(pca.partial_fit(X[300:]), streamed([X[:300], X[300:]], **settings))


def test_an_open_file_is_a_batch(tmp_path) -> None:
    D = counts_like(60, 10).toarray()
    np.save(tmp_path / "x.npy", D)
    from shiftsvd.io import open_matrix

    A, _ = open_matrix(tmp_path / "x.npy")
    pca = streamed([A], 3)
    assert_exact_moments(pca, D)
