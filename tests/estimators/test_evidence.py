"""Neighbours that are safe, and components without a row or a group, beside exact decompositions."""

import re
import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import shiftsvd as ss
from shiftsvd.errors import Refused
from shiftsvd.estimators import evidence
from shiftsvd.estimators.evidence import nearest_rows
from shiftsvd.runs.memory import OverLimit


def counts(rng: np.random.Generator, m: int, n: int) -> Any:
    return rng.poisson(0.5 * rng.gamma(1, 1, (m, 4)) @ rng.gamma(1, 1, (4, n))).astype(float)


KINDS: dict[str, Any] = {
    "dense": lambda X: X,
    "single": lambda X: X.astype(np.float32),
    "sparse": csr_array,
    "sparse single": lambda X: csr_array(X.astype(np.float32)),
    "off centre": lambda X: X + 1e5,
    "small": lambda X: np.ldexp(X, -500),
}
CASES = [*((kind, 60, 30, 3) for kind in KINDS), ("dense", 25, 60, 2), ("sparse", 40, 12, 12)]


def exact(A: Any, k: int) -> Any:
    S, Vh = np.linalg.svd(A, full_matrices=False)[1:]
    return np.append(S, np.zeros(k))[:k], Vh[:k]


def sine(V: Any, W: Any) -> float:
    return min(float(np.linalg.norm(V.T - W.T @ (W @ V.T), 2)), 1.0)


def centred(X: Any, scale: Any = None) -> Any:
    return (X - X.mean(axis=0)) / (1 if scale is None else scale)


def as_array(X: Any) -> Any:
    return (X.toarray() if hasattr(X, "toarray") else X).astype(float)


@pytest.mark.parametrize(("kind", "m", "n", "k"), CASES)
@pytest.mark.parametrize("tol", [0.05, 1e-6])
@pytest.mark.filterwarnings("ignore:Only .* of the neighbours are safe")
def test_a_safe_neighbour_is_one_by_the_exact_components(kind: str, m: int, n: int, k: int, tol: float) -> None:
    X = KINDS[kind](counts(np.random.default_rng(m), m, n))
    pca = ss.PCA(k, solver=ss.BlockLanczos(tol, block_size=4), random_state=0).fit(X)
    found = pca.neighbors(X, 5)
    A = centred(np.ldexp(as_array(X), 500) if kind == "small" else as_array(X))
    W = exact(A, k)[1]
    assert sine(np.linalg.qr(pca.components_.T.astype(float))[0].T, W) <= found.sine + 1e-12
    D = np.linalg.norm((A @ W.T)[:, None] - A @ W.T, axis=2)
    np.fill_diagonal(D, np.inf)
    nearest = np.argsort(D, axis=1)[:, :5]
    assert all(
        set(chosen[safe]) <= set(exactly)
        for chosen, safe, exactly in zip(found.indices, found.safe, nearest, strict=True)
    )
    if tol < 1e-5 and kind != "off centre":
        assert found.safe.mean() > 0.8
    np.testing.assert_allclose(np.sort(found.distances), found.distances)


@pytest.mark.slow
@pytest.mark.parametrize("tol", [0.05, 1e-3, 1e-6])
@pytest.mark.filterwarnings("ignore:Only .* of the neighbours are safe")
def test_no_safe_edge_of_a_hundred_thousand_differs(tol: float) -> None:
    X = counts(np.random.default_rng(4), 2000, 80)
    found = ss.PCA(4, solver=ss.BlockLanczos(tol, block_size=4), random_state=0).fit(csr_array(X)).neighbors(X, 50)
    A = centred(X)
    Y = A @ exact(A, 4)[1].T
    for i, (chosen, safe) in enumerate(zip(found.indices, found.safe, strict=True)):
        d = np.linalg.norm(Y - Y[i], axis=1)
        d[i] = np.inf
        assert set(chosen[safe]) <= set(np.argsort(d)[:50])
    assert found.safe.mean() > (0.9 if tol < 1e-5 else -1)


@pytest.mark.slow
@pytest.mark.parametrize("widest", [90, 1])
def test_values_of_500_refits_are_within_their_intervals(widest: float) -> None:
    X = counts(np.random.default_rng(5), 500, 40)
    found = ss.PCA(3, random_state=0).fit(X).influence(X, widest=widest)
    W = exact(centred(X), 3)[1]
    for i in range(500):
        s, w = exact(centred(np.delete(X, i, 0)), 3)
        assert np.all(found.singular_values[i, :, 0] <= s * (1 + 1e-12))
        assert np.all(s <= found.singular_values[i, :, 1] * (1 + 1e-12))
        turned = np.degrees(np.arccos(np.minimum(np.abs(np.sum(w * W, axis=1)), 1)))
        assert np.all(found.angles[i, :, 0] - 1e-4 <= turned)
        assert np.all(turned <= found.angles[i, :, 1] + 1e-4)
    assert np.ptp(found.angles, axis=2).max() <= widest


def test_distances_are_those_of_scores_that_are_not_whitened() -> None:
    X = counts(np.random.default_rng(0), 50, 20)
    found, Z = ss.PCA(3, whiten=True).fit(X).neighbors(X, 4), ss.PCA(3).fit_transform(X)
    expected = np.linalg.norm(Z[:, None] - Z[found.indices], axis=2)
    np.testing.assert_allclose(found.distances, expected, atol=1e-9)


def test_few_safe_neighbours_by_a_large_tolerance_raise_a_warning_with_the_remedy() -> None:
    X = csr_array(counts(np.random.default_rng(4), 300, 80))
    words = r"Only (\d+\.\d) % of the neighbours are safe, .* (\d+\.\d) % would be safe.* fit with a smaller tol\."
    with pytest.warns(UserWarning, match=words) as warned:
        few = ss.PCA(4, solver=ss.BlockLanczos(0.01, block_size=4), random_state=0).fit(X).neighbors(X, 10)
    share, attainable = (float(one) / 100 for one in re.search(words, str(warned[0].message)).groups())
    assert share == pytest.approx(few.safe.mean(), abs=5e-4)
    many = ss.PCA(4, solver=ss.BlockLanczos(1e-12, block_size=4), random_state=0).fit(X).neighbors(X, 10)
    assert many.safe.mean() == pytest.approx(attainable, abs=5e-3)


def test_no_neighbour_is_safe_without_a_gap() -> None:
    X = np.vstack([np.eye(6), -np.eye(6)])
    with pytest.warns(UserWarning, match="No gap after component 2"):
        found = ss.PCA(2, random_state=0).fit(X).neighbors(X, 11)
    assert found.sine == 1
    assert not found.safe.any()


def test_nearest_rows_are_exact_where_products_lose_all_digits() -> None:
    rng = np.random.default_rng(0)
    Y = np.vstack([rng.standard_normal((30, 3)) * 1e-9, 1e3 + rng.standard_normal((30, 3)) * 1e-9, np.zeros((4, 3))])
    D = np.linalg.norm(Y[:, None] - Y, axis=2)
    np.fill_diagonal(D, np.inf)
    ((_, nearest, d, others),) = nearest_rows(Y, 6)
    np.testing.assert_allclose(d, np.sort(D, axis=1)[:, :6], rtol=1e-14)
    for i, chosen in enumerate(nearest):
        assert np.all(others[i][np.isfinite(others[i])] <= np.delete(D[i], [i, *chosen]) * (1 + 1e-15))


@pytest.mark.parametrize(("kind", "m", "n", "k"), CASES)
@pytest.mark.parametrize(("tol", "grouped", "scale"), [(0.05, False, None), (1e-6, False, "std"), (1e-6, True, None)])
def test_refits_are_within_the_bounds(
    kind: str, m: int, n: int, k: int, tol: float, grouped: bool, scale: str | None
) -> None:
    rng = np.random.default_rng(m)
    X, groups = KINDS[kind](counts(rng, m, n)), rng.integers(0, 4, m)
    pca = ss.PCA(k, solver=ss.BlockLanczos(tol, block_size=4), random_state=0, scale=scale).fit(X)
    found = pca.influence(X, leave_out=groups if grouped else None)
    unit = 2.0**500 if kind == "small" else 1.0
    A, divisor = as_array(X) * unit, None if scale is None else pca.scale_ * unit
    S, W = exact(centred(A, divisor), k)
    # Beside the bounds, the references have rounding errors of their own.
    slack, turn = S[0] * (1e-8 if kind == "off centre" else 1e-11), 1e-4
    values = found.singular_values * (1.0 if scale else unit)
    for at, label in list(enumerate(found.labels))[:: max(len(found.labels) // 8, 1)]:
        kept = groups != label if grouped else np.arange(m) != label
        s, w = exact(centred(A[kept], divisor), k)
        assert np.all(values[at, :, 0] - slack <= s)
        assert np.all(s <= values[at, :, 1] + slack)
        if len(w) < k:
            continue
        turned = np.degrees(np.arccos(np.minimum(np.abs(np.sum(w * W, axis=1)), 1)))
        of_space = np.degrees(np.arcsin(sine(w, W)))
        for found_angle, bounds in ((turned, found.angles[at].T), (of_space, found.subspace[at])):
            assert np.all(bounds[0] - turn <= found_angle)
            assert np.all(found_angle <= bounds[1] + turn)


@pytest.mark.parametrize("gap", [1e-4, 1e-12])
@pytest.mark.parametrize("solver", ["lanczos", "randomized"])
def test_values_of_a_graded_spectrum_with_a_tiny_gap_are_within_the_bounds(gap: float, solver: Any) -> None:
    rng = np.random.default_rng(5)
    U, V = (np.linalg.qr(rng.standard_normal((size, size)))[0] for size in (30, 12))
    X = U[:, :12] * [1e9, 3e4, 1 + gap, *[1] * 5, *[0.1] * 4] @ V.T
    found = ss.PCA(3, random_state=1, solver=solver, shift=None).fit(X).influence(X)
    for i, (lower, upper) in enumerate(found.singular_values.swapaxes(1, 2)):
        S = np.linalg.svd(np.delete(X, i, 0), compute_uv=False)[:3]
        assert np.all(lower - 1e-5 <= S)
        assert np.all(upper + 1e-5 >= S)


@pytest.mark.parametrize("shift", [None, "rows", "both", "vector"])
def test_other_shifts_stay_those_of_the_fit(shift: Any) -> None:
    rng = np.random.default_rng(1)
    X = counts(rng, 30, 15) + 1
    shift = np.arange(15) * 0.1 if shift == "vector" else shift
    found = ss.PCA(2, shift=shift, random_state=0).fit(X).influence(X)
    for i in range(0, 30, 3):
        S = ss.svd(np.delete(X, i, 0), 2, shift=shift, solver="exact").S
        assert np.all(
            (found.singular_values[i, :, 0] <= S * (1 + 1e-12)) & (S <= found.singular_values[i, :, 1] * (1 + 1e-12))
        )


def test_the_row_that_makes_a_component_is_found() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 10)) * [9, 6, *[1] * 8]
    X[17] = 0
    X[17, 9] = 60
    found = ss.PCA(3, random_state=0).fit(X).influence(X)
    assert found.angles[17, 2, 0] > 25
    others = np.arange(200) != 17
    assert found.angles[others, 2, 1].max() < 25
    assert np.all(np.ptp(found.singular_values[others], axis=2) < 0.001 * found.singular_values[others, :, 1])


def test_bad_input_is_refused() -> None:
    X = counts(np.random.default_rng(0), 30, 10)
    pca = ss.PCA(2).fit(X)
    for n_neighbors in (0, 30, 1.5):
        with pytest.raises(Refused, match=r"n_neighbors must be an integer in 1\.\.29"):
            pca.neighbors(X, n_neighbors)
    with pytest.raises(ValueError, match="30 rows of the fit, got 29"):
        pca.influence(X[1:])
    with pytest.raises(ValueError, match="mean of X differs"):
        pca.influence(X + 1)
    with pytest.raises(Refused, match="leave_out must be the labels of at least 2 groups, got one"):
        pca.influence(X, leave_out=np.zeros(30))
    for gap in (None, np.nan):
        with pytest.raises(Refused, match="leave_out must not hold missing labels, got 15"):
            pca.influence(X, leave_out=np.array(["a", gap] * 15, object))
    with pytest.raises(Refused, match=r"leave_out must hold one label per row, shape \(30,\), got shape \(29,\)"):
        pca.influence(X, leave_out=np.arange(29))
    with pytest.raises(Refused, match="approximates transformed zeros"):
        ss.PCA(2, preprocess="pearson").fit(X).neighbors(X, 3)
    counted = ss.PCA(2, preprocess="pearson", random_state=0).fit(X)
    assert counted.stability(X, n_resamples=2).standard_errors.shape == (2, 10)  # no bounds
    with pytest.raises(ValueError, match="sample weights"):
        ss.PCA(2).fit(X, sample_weight=np.arange(30) % 3 + 1).neighbors(X, 3)
    with pytest.raises(Refused, match="missing"):
        ss.PCA(2, missing="em").fit(np.where(np.arange(10) == np.arange(30)[:, None], np.nan, X)).influence(X)
    with pytest.raises(Refused, match="other shifts change"):
        ss.PCA(2, shift=ss.GroupMeans()).fit(X, groups=np.arange(30) % 2).influence(X)


@pytest.mark.parametrize("leave_out", [None, np.arange(60_000) % 4])
def test_influence_takes_the_memory_that_it_announces(leave_out: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "BLOCK", 2**15)
    X = np.random.default_rng(0).standard_normal((60_000, 6)) * [9, 7, 5, 1, 1, 1]
    pca = ss.PCA(3, random_state=0, memory_limit="20MB").fit(X).set_params(memory_limit="2MB")
    with pytest.raises(OverLimit, match=r"influence of .* needs about .* Raise memory_limit") as refused:
        pca.influence(X, leave_out)
    pca.set_params(memory_limit=refused.value.needed)
    tracemalloc.start()
    pca.influence(X, leave_out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.5 * refused.value.needed < peak < refused.value.needed


def test_both_rows_of_an_edge_turn_by_what_lies_outside_of_the_components() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 8)) * [9, 5, 1, 0.5, 0.1, 0.1, 0.1, 0.1]
    X[::5, 2] += 6  # rows of large parts outside of the components
    A, V = ss.as_operator(X), np.linalg.qr(np.eye(8)[:, :2] + 1e-4 * rng.standard_normal((8, 2)))[0]
    found, known = (
        evidence.neighbors(A, V, 4, np.random.default_rng(1))[0],
        evidence.subspace(A, V, np.random.default_rng(1)),
    )
    rests = np.sqrt(evidence.squared_rests(A, known))
    rounded = evidence.row_rounding(A, known, rests)
    turned = known.sine * (rests + rounded) + rounded
    D = np.linalg.norm(known.scores[:, None] - known.scores, axis=2)
    for i, (nearest, safe) in enumerate(zip(found.indices, found.safe, strict=True)):
        others = np.setdiff1d(np.arange(60), [i, *nearest])
        first = np.min(np.sqrt(1 - known.sine**2) * D[i, others] - turned[others]) - turned[i]
        np.testing.assert_array_equal(safe, D[i, nearest] + turned[i] + turned[nearest] < first)
    assert 0 < found.sine < 1
    assert 0 < found.safe.mean() < 1


@pytest.mark.parametrize(("kind", "grouped"), [("dense", False), ("sparse single", True), ("small", True)])
def test_refits_narrow_the_bounds(kind: str, grouped: bool) -> None:
    rng = np.random.default_rng(2)
    X, groups = KINDS[kind](counts(rng, 60, 30)), rng.integers(0, 4, 60)
    left_out = groups if grouped else None
    pca = ss.PCA(3, random_state=0).fit(X)
    wide, found = (pca.influence(X, left_out, widest) for widest in (90, 0.5))
    for name in ("singular_values", "angles", "subspace"):
        assert np.all(getattr(found, name)[..., 0] >= getattr(wide, name)[..., 0])
        assert np.all(getattr(found, name)[..., 1] <= getattr(wide, name)[..., 1])
    assert np.ptp(wide.angles, axis=2).max() > 10
    assert np.ptp(found.angles, axis=2).max() < 0.5
    A = as_array(X) * (2.0**500 if kind == "small" else 1)
    W = exact(centred(A), 3)[1]
    for at, label in enumerate(found.labels):
        w = exact(centred(A[groups != label if grouped else np.arange(60) != label]), 3)[1]
        turned = np.degrees(np.arccos(np.minimum(np.abs(np.sum(w * W, axis=1)), 1)))
        assert np.all(found.angles[at, :, 0] - 1e-4 <= turned)
        assert np.all(turned <= found.angles[at, :, 1] + 1e-4)


@pytest.mark.parametrize("shift", ["mean", None])
@pytest.mark.parametrize("kind", ["dense", "sparse single", "off centre", "small"])
def test_jackknife_errors_are_those_of_explicit_fits(kind: str, shift: Any) -> None:
    rng = np.random.default_rng(0)
    X, groups = KINDS[kind](counts(rng, 60, 30)), rng.integers(0, 7, 60)
    pca = ss.PCA(3, random_state=0, tol=1e-10, shift=shift).fit(X)
    found = pca.stability(X, groups, "jackknife")
    A = as_array(X) * (2.0**500 if kind == "small" else 1)
    V = pca.components_.astype(float)
    W = [exact(centred(A[groups != g]) if shift else A[groups != g], 3)[1] for g in range(7)]
    W = [w * np.sign(np.sum(w * V, axis=1))[:, None] for w in W]
    expected = np.sqrt(6 * np.var(W, axis=0))
    np.testing.assert_allclose(found.standard_errors, expected, atol=1e-5)
    cosines = np.array([np.sum(w * V, axis=1) for w in W])
    np.testing.assert_allclose(found.angles, np.degrees(np.arccos(np.minimum(cosines, 1))), atol=0.05)


@pytest.mark.parametrize("method", ["bootstrap", "jackknife"])
def test_standard_errors_are_the_asymptotic_ones(method: Any) -> None:
    variances = np.array([81, 25, 9, 4, 1, 1, 1, 0.5])
    X = np.random.default_rng(0).standard_normal((2000, 8)) * np.sqrt(variances)
    pca = ss.PCA(3, random_state=0).fit(X)
    found, again = (pca.stability(X, method=method, n_resamples=200) for _ in range(2))
    # Anderson (1963)
    gaps = variances - variances[:3, None]
    ratio = np.sqrt(variances * variances[:3, None] / 2000) / np.where(gaps == 0, np.inf, np.abs(gaps))
    off = np.arange(8) != np.arange(3)[:, None]
    np.testing.assert_allclose(found.standard_errors[off], ratio[off], rtol=0.25)
    assert np.all(found.standard_errors[~off] < 0.01)
    np.testing.assert_array_equal(found.standard_errors, again.standard_errors)
    assert found.angles.shape == (200, 3)
    assert found.n_passes >= 200


def test_components_that_exchange_places_are_matched() -> None:
    X = np.zeros((50, 6))
    X[:10, 1], X[10:, 0] = np.tile([30, -30], 5), np.tile([9, -9], 20)
    pca = ss.PCA(2, random_state=0).fit(X)
    found = pca.stability(X, np.arange(50) // 8, "jackknife")  # without the first group they exchange places
    assert found.angles.max() < 1e-4


def test_refused_resamples() -> None:
    X = counts(np.random.default_rng(0), 30, 10)
    pca = ss.PCA(5, random_state=0).fit(X)
    with pytest.raises(Refused, match='method must be "bootstrap" or "jackknife"'):
        pca.stability(X, method="other")  # type: ignore[arg-type]
    with pytest.raises(Refused, match="n_resamples must be an integer of at least 2"):
        pca.stability(X, n_resamples=1)
    with pytest.raises(Refused, match="groups must be the labels of at least 2 groups"):
        pca.stability(X, np.zeros(30))
    with pytest.raises(ValueError, match="A resample has 3 different rows, too few for 5 components"):
        pca.stability(X, np.arange(30) < 3, "jackknife")
    for widest in (-1, np.nan, "1", True):
        with pytest.raises(Refused, match="widest must be a number of at least 0"):
            pca.influence(X, widest=widest)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="stability needs the 30 rows of the fit"):
        pca.stability(X[1:])
