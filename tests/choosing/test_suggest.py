"""How many components: every rule finds what was planted, from data or from a fit, sparse or dense."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd import choosing
from shiftsvd.choosing import METHODS, permuted, suggested
from shiftsvd.front import decompose
from shiftsvd.io import open_matrix
from tests.support.matrices import EPS

FITS = ("elbow", "gavish-donoho")


def planted(shape: tuple[int, int], seed: int, strengths: tuple[float, ...] = (8.0, 6, 4, 3, 2)) -> np.ndarray:
    """Noise of variance 1, off-centre, plus components so many times above its largest singular value."""
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.standard_normal((side, len(strengths))))[0] for side in shape)
    edge = np.sqrt(shape).sum()
    return (U * np.array(strengths) * edge) @ V.T + rng.standard_normal(shape) + 3 * rng.standard_normal(shape[1])


def sparse_blocks(seed: int = 0) -> sparse.csr_array:
    """Sparse noise of one variance, and five blocks of constants with rows and columns of their own."""
    rng = np.random.default_rng(seed)
    D = rng.standard_normal((300, 100)) * (rng.random((300, 100)) < 0.2)
    for i, value in enumerate((4.0, 3.5, 3.0, 2.5, 2.0)):
        D[30 * i : 30 * (i + 1), 12 * i : 12 * (i + 1)] += value
    return sparse.csr_array(D[rng.permutation(300)])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("method", METHODS)
def test_a_planted_rank_of_5_is_found(method: str, seed: int) -> None:
    shape = (240, 90) if seed % 2 else (90, 240)
    found = ss.suggest_k(planted(shape, seed), method, rng=seed, n_threads=1)
    assert found.k == 5
    assert found.method == method


@pytest.mark.parametrize("method", ["parallel", "gavish-donoho", "cv"])
def test_a_strong_component_does_not_hide_weak_ones_and_noise_has_none(method: str) -> None:
    assert ss.suggest_k(planted((160, 70), 0, (30.0, 8, 5, 3, 1.8)), method, rng=0).k == 5
    nothing = [ss.suggest_k(planted((160, 70), seed, ()), method, rng=seed).k for seed in range(10)]
    assert sum(nothing) <= 2


@pytest.mark.one_in(2)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("container", [sparse.csr_array, sparse.coo_array])
def test_sparse_data_say_what_dense_data_say(method: str, container: type) -> None:
    X = sparse_blocks()
    dense = ss.suggest_k(X.toarray(), method, rng=0)
    found = ss.suggest_k(container(X), method, rng=0)
    assert found.k == dense.k == 5


@pytest.mark.one_in(2)
@pytest.mark.parametrize("method", METHODS)
def test_sparse_data_stay_sparse(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, *_: object, **__: object) -> None:
        raise AssertionError("densified")

    X = sparse_blocks()
    for cls in (sparse.csr_array, sparse.csc_array, sparse.coo_array):
        monkeypatch.setattr(cls, "toarray", refuse)
        monkeypatch.setattr(cls, "todense", refuse)
    ss.suggest_k(X, method, rng=0)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("method", METHODS)
def test_fits_are_reused(method: str) -> None:
    D = planted((160, 70), 3)
    X = None if method in FITS else D
    F = ss.svd(D, 20, shift="mean", rng=0)
    pca = ss.PCA(20, random_state=0).fit(D)
    streamed = ss.PCA(20, n_oversamples=50, random_state=0).partial_fit(D[:100]).partial_fit(D[100:])
    assert [ss.suggest_k(fit, method, X=X, rng=0).k for fit in (F, pca, streamed)] == [5, 5, 5]


@pytest.mark.parametrize("shift", ["mean", None])
def test_a_fit_has_the_threshold_of_its_data(shift: str | None) -> None:
    D = planted((160, 70), 3)
    fit = ss.PCA(20, shift=shift, random_state=0).fit(D)
    found, want = (ss.suggest_k(each, "gavish-donoho", shift=shift, max_k=20, rng=0) for each in (fit, D))
    np.testing.assert_allclose(found.table["threshold"], want.table["threshold"], rtol=1e-8)


@pytest.mark.parametrize("method", ["elbow", "gavish-donoho"])
def test_features_that_a_fit_left_out_do_not_count(method: str) -> None:
    D, noise = planted((160, 70), 3), np.random.default_rng(0).standard_normal((160, 900))
    chosen = ss.transforms.Select(np.arange(70))
    pca = ss.PCA(20, preprocess=chosen, random_state=0).fit(np.hstack([D, noise]))
    assert ss.suggest_k(pca, method).k == 5
    assert ss.warm_start(pca).start.shape == (70, 20)


def test_a_fit_that_does_not_know_its_rows_is_refused() -> None:
    svd = ss.TruncatedSVD(4, warn_mean=False).fit(planted((160, 70), 3))
    with pytest.raises(
        TypeError, match=r"TruncatedSVD, .*Pass the matrix that it decomposed, and its shift \(None for"
    ):
        ss.suggest_k(svd)
    with pytest.raises(TypeError, match=r"TruncatedSVD, which does not store the number of rows\.$"):
        ss.warm_start(svd)


def test_fits_of_scikit_learn_are_too() -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    pca = decomposition.PCA(20).fit(planted((160, 70), 3))
    assert [ss.suggest_k(pca, method).k for method in FITS] == [5, 5]


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", ["std", "vector"])
def test_units_do_not_matter_where_a_scale_takes_them_out(method: str, scale: str) -> None:
    D = planted((160, 70), 4, (4.0, 3.5, 3, 2.5, 2))
    units = np.logspace(-3, 3, 70)
    scales = [scale, scale] if scale == "std" else [np.ones(70), units]
    found = [ss.suggest_k(X, method, scale=s, rng=0) for X, s in zip((D, D * units), scales, strict=True)]
    assert found[0].k == found[1].k
    assert scale == "std" or found[0].k == 5  # noise that differs between columns is no noise of one variance
    pca = ss.PCA(20, scale=units, random_state=0).fit(D * units)
    assert ss.suggest_k(pca, method, X=D * units, rng=0).k == 5


@pytest.mark.parametrize("method", ["elbow", "gavish-donoho", "cv"])
def test_without_a_shift_the_mean_is_a_component(method: str) -> None:
    assert ss.suggest_k(planted((160, 70), 5), method, shift=None, rng=0).k == 6


def test_a_fit_without_a_shift_is_refused_as_the_data_without_a_shift_are() -> None:
    D = planted((160, 70), 5)
    with pytest.raises(ValueError, match="keep their means"):
        ss.suggest_k(ss.PCA(20, shift=None).fit(D), "parallel", X=D)


def test_a_vector_is_a_shift() -> None:
    D = planted((160, 70), 6)
    for method in METHODS:
        by_name, by_vector = (ss.suggest_k(D, method, shift=s, rng=0) for s in ("mean", D.mean(axis=0)))
        assert by_name.k == by_vector.k


@pytest.mark.parametrize("method", METHODS)
def test_the_table_is_the_evidence(method: str) -> None:
    found = ss.suggest_k(planted((160, 70), 7), method, max_k=12, rng=0)
    columns = list(found.table.values())
    assert {len(column) for column in columns} == {13 if method == "cv" else 12}
    if method == "cv":
        assert found.k == found.table["components"][np.argmin(found.table["error"])]
    elif method == "elbow":
        assert found.k == np.argmax(found.table["chord"] / found.table["value"])
    else:
        assert found.k == np.sum(found.table["value"] > found.table["threshold"])


def test_held_out_errors_are_those_of_the_formula() -> None:
    D = planted((30, 20), 8, (5.0, 3))
    found = ss.suggest_k(D, "cv", max_k=4, folds=2, rng=9)
    rng = np.random.default_rng(9)
    C = D - D.mean(axis=0)
    rows = _masks(30, rng)
    total = np.zeros(5)
    # The columns are cut anew for each part of the rows, in the order of the loop.
    for i in rows:
        for j in _masks(20, rng):
            U, S, Vh = np.linalg.svd(C[i][:, j])
            for k in range(5):
                inner = (Vh[:k].T / S[:k]) @ U[:, :k].T
                total[k] += np.linalg.norm(C[~i][:, ~j] - C[~i][:, j] @ inner @ C[i][:, ~j]) ** 2
    assert found.table["error"][0] == pytest.approx(total[0] / 600, rel=1e-12)


def _masks(size: int, rng: np.random.Generator) -> list[np.ndarray]:
    part = rng.permutation(size) % 2
    return [part != fold for fold in range(2)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array, sparse.csc_array])
def test_permuted_columns_hold_the_same_values_in_other_rows(make: type) -> None:
    D = sparse_blocks().toarray()[:, ::4]
    P = permuted(make(D), np.random.default_rng(0))
    assert sparse.issparse(P) == sparse.issparse(make(D))
    P = P.toarray() if sparse.issparse(P) else P
    assert np.array_equal(np.sort(P, axis=0), np.sort(D, axis=0))
    assert not np.array_equal(P, D)
    # Every place is as likely as any other: the mean over many draws is the mean of the column.
    rng = np.random.default_rng(1)
    draws = [permuted(make(D), rng) for _ in range(300)]
    mean = sum(P.toarray() if sparse.issparse(P) else P for P in draws) / 300
    assert np.abs(mean - D.mean(axis=0)).max() <= 6 * D.std(axis=0).max() / np.sqrt(300)


def test_the_input_is_not_changed() -> None:
    X = sparse_blocks()
    before = X.copy()
    for method in METHODS:
        ss.suggest_k(X, method, max_k=8, rng=0)
    assert np.array_equal(X.data, before.data)
    assert np.array_equal(X.indices, before.indices)


def test_a_seed_decides() -> None:
    D = planted((90, 60), 9)
    for method in ("parallel", "cv"):
        a, b = (ss.suggest_k(D, method, rng=3) for _ in range(2))
        for name, column in a.table.items():
            assert np.array_equal(column, b.table[name])


def test_more_may_stand_out_than_were_looked_at() -> None:
    D = planted((160, 70), 1)
    with pytest.warns(UserWarning, match=r"All 3 components exceed the threshold. .* such as max_k=6"):
        assert ss.suggest_k(D, "gavish-donoho", max_k=3).k == 3
    assert ss.suggest_k(D, "gavish-donoho", max_k=6).k == 5
    with pytest.warns(
        UserWarning,
        match=r"The fit has no more, but the data may have\. Pass the data: .*\(X, 'gavish-donoho', max_k=8\)",
    ):
        assert ss.suggest_k(ss.PCA(4).fit(D), "gavish-donoho").k == 4
    with pytest.warns(UserWarning, match="The fit has no more"):  # X does not extend the fit
        ss.suggest_k(ss.PCA(4).fit(D), "gavish-donoho", X=D)
    with pytest.warns(UserWarning, match="components reduce the held-out error. .* Pass more folds"):
        assert ss.suggest_k(D[:, :6], "cv", max_k=6, rng=0).k == 4
    assert ss.suggest_k(D, "gavish-donoho", max_k=8).k == 5
    with pytest.warns(UserWarning, match="exceed the threshold. The matrix has no more. .* a share of the variance"):
        suggested(4, {"component": np.arange(1.0, 5)}, "parallel", 4)


def test_files_have_an_elbow_and_a_threshold(tmp_path) -> None:
    np.save(tmp_path / "x.npy", planted((160, 70), 1))
    A, _ = open_matrix(tmp_path / "x.npy")
    assert [ss.suggest_k(A, method, rng=0).k for method in FITS] == [5, 5]
    with pytest.raises(ValueError, match="in memory"):
        ss.suggest_k(A, "parallel")


def test_frames_are_data() -> None:
    pd = pytest.importorskip("pandas")
    for method in METHODS:
        assert ss.suggest_k(pd.DataFrame(planted((160, 70), 1)), method, rng=0).k == 5


@pytest.mark.parametrize("method", METHODS)
def test_the_evidence_can_be_drawn(method: str) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    found = ss.suggest_k(planted((90, 60), 1), method, rng=0)
    ax = found.plot()
    assert f"k = {found.k}" in [text.get_text() for text in ax.get_legend().get_texts()]
    assert found.plot(ax) is ax
    matplotlib.pyplot.close(ax.figure)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "scree"}, "method"),
        ({"max_k": 0}, "max_k"),
        ({"max_k": 31}, "1..20"),
        ({"method": "parallel", "n_draws": 0}, "n_draws"),
        ({"method": "parallel", "n_deviations": -1}, "n_deviations"),
        ({"method": "parallel", "shift": "both"}, "shift"),
        ({"method": "parallel", "shift": None}, "keep their means"),
        ({"method": "cv", "folds": 1}, "folds"),
        ({"rng": -1}, "rng"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ss.suggest_k(planted((30, 20), 0), **settings)


def test_a_fit_alone_is_not_enough_for_rules_that_need_the_data() -> None:
    D = planted((30, 20), 0)
    pca = ss.PCA(5).fit(D)
    for method in ("parallel", "cv"):
        with pytest.raises(ValueError, match="X=X"):
            ss.suggest_k(pca, method)
    with pytest.raises(ValueError, match="at least 3"):
        ss.suggest_k(ss.PCA(2).fit(D), "elbow")


@pytest.mark.parametrize("shape", [(400, 120), (120, 400)])
def test_a_warm_start_finds_more_components_in_fewer_passes(shape: tuple[int, int]) -> None:
    D = planted(shape, 2, tuple(np.linspace(9, 2, 30)))
    F = ss.svd(D, 20, shift="mean", solver="lanczos", rng=0)
    cold = ss.svd(D, 25, shift="mean", solver=ss.BlockLanczos(block_size=8), rng=0)
    from dataclasses import replace

    warm = ss.svd(D, 25, shift="mean", solver=replace(ss.warm_start(F), block_size=8), rng=0)
    exact = np.linalg.svd(D - D.mean(axis=0), compute_uv=False)[:25]
    assert np.all(np.abs(warm.S - exact) <= 1e-4 * exact)
    assert warm.info.converged
    assert warm.info.n_passes <= cold.info.n_passes


def test_an_estimator_is_a_warm_start_too() -> None:
    D = planted((400, 120), 2)
    pca = ss.PCA(5, random_state=0).fit(D)
    more = ss.PCA(8, solver=ss.warm_start(pca), random_state=0).fit(D)
    assert np.allclose(more.singular_values_[:5], pca.singular_values_, rtol=2e-4)
    with pytest.raises(ValueError, match="left"):
        ss.warm_start(ss.PCA(5).fit(D.T))


def test_noise_free_data_have_their_rank() -> None:
    rng = np.random.default_rng(0)
    D = rng.standard_normal((60, 4)) @ rng.standard_normal((4, 30))
    assert ss.suggest_k(D, "gavish-donoho", max_k=10).k == 4
    found = ss.suggest_k(D, "cv", max_k=10, rng=0)
    assert found.table["error"][4] <= 1e3 * EPS * found.table["error"][0]


@pytest.mark.parametrize("method", ["elbow", "parallel", "gavish-donoho", "cv"])
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_a_missing_value_is_named_by_its_column(method: str, container: type) -> None:
    bad = np.random.default_rng(0).random((30, 6))
    bad[4, 3] = np.nan
    with pytest.raises(ValueError, match=r"got 1 NaN in column 3 \(counted from 0\)"):
        ss.suggest_k(container(bad), method)


@pytest.mark.parametrize("may_change", [False, True])
def test_parallel_says_only_where_a_missed_value_could_change_k(
    may_change: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = np.random.default_rng(0).standard_normal((200, 20)) @ np.diag([9.0] * 3 + [1.0] * 17)

    def uncertain(A: Any, k: int, *how: Any) -> Any:
        F = decompose(A, k, *how)
        if k == 1:
            return F
        warnings.warn(
            "Values up to 2 sigma_k may have been missed. Allow more passes, or raise missed_tol.", stacklevel=2
        )
        missed = float(F.S[0] if may_change else F.S[-1])
        return ss.SVDResult(
            F.U, F.S, F.Vh, replace(F.info, value_errors=np.zeros(k), converged=False, missed_below=missed)
        )

    monkeypatch.setattr(choosing, "decompose", uncertain)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert ss.suggest_k(X, "parallel", rng=0, max_k=10).k == 3
    told = [str(each.message) for each in caught]
    assert len(told) == may_change, told
    assert all("The number of components may not be 3" in each and "Pass max_k=4, or data" in each for each in told)


@pytest.mark.parametrize("shape", [(20, 1), (1, 20)])
def test_cross_validation_of_one_column_is_refused(shape) -> None:
    X = np.random.default_rng(0).standard_normal(shape)
    with pytest.raises(ValueError, match="requires at least 2 rows and 2 columns"):
        ss.suggest_k(X, "cv", shift=None, rng=0)
