"""Contrastive PCA beside explicit covariance matrices."""

from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.sparse import csc_array, csr_array

import shiftsvd as ss
from shiftsvd.solvers import pencil

RNG = np.random.default_rng(0)
KINDS = ("dense", "sparse", "offset", "same", "low rank", "single", "wide")


def pair(kind: str, rng: np.random.Generator) -> tuple[Any, Any]:
    m, n, p = (30, 60, 80) if kind == "wide" else (120, 20, 90)
    X, B = (rng.standard_normal((rows, n)) * rng.lognormal(0, 1, n) for rows in (m, p))
    if kind == "sparse":
        return csr_array(np.where(rng.random(X.shape) < 0.2, X, 0)), csc_array(
            np.where(rng.random(B.shape) < 0.2, B, 0)
        )
    if kind == "low rank":
        X = X[:, :3] @ rng.standard_normal((3, n))
    return {
        "offset": (X + 1e4, B - 1e3),
        "same": (X, X.copy()),
        "single": (X.astype(np.float32), B.astype(np.float32)),
    }.get(kind, (X, B))


def covariance(X: Any) -> np.ndarray:
    D = np.asarray(X.toarray() if hasattr(X, "toarray") else X, np.longdouble)
    D = D - D.mean(axis=0)
    return np.asarray(D.T @ D / (len(D) - 1), np.float64)


@pytest.mark.filterwarnings("ignore:Component")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", [0.0, 1.0, 30.0])
def test_components_are_those_of_the_difference_of_covariances(kind: str, alpha: float) -> None:
    X, B = pair(kind, np.random.default_rng(1))
    model = ss.ContrastivePCA(4, alpha=alpha, tol=1e-8, random_state=0).fit(X, background=B)
    C, E = covariance(X), covariance(B)
    values, V = np.linalg.eigh(C - alpha * E)[0][::-1][:4], model.components_.T
    rounding = 1e-13 * (np.trace(C) + alpha * np.trace(E))
    assert np.all(np.abs(model.eigenvalues_ - values) <= model.eigenvalue_errors_ + rounding)
    assert np.allclose(V.T @ V, np.eye(4), atol=1e-12)
    assert np.allclose(model.target_variance_ - alpha * model.background_variance_, model.eigenvalues_)
    assert np.allclose(model.target_variance_, np.diag(V.T @ C @ V), rtol=1e-8, atol=rounding)
    # Rounding errors of data far from the origin exceed the tolerance; equal values have no vectors of their own.
    if kind in ("dense", "sparse", "single", "wide"):
        assert model.converged_
        R = (C - alpha * E) @ V - V * values
        assert np.linalg.norm(R) <= 1e-6 * np.abs(values).max() + 100 * rounding
    dense = X.toarray() if hasattr(X, "toarray") else X
    assert np.allclose(model.transform(X), (dense - dense.mean(axis=0)) @ V, rtol=1e-4, atol=1e-4 * np.abs(dense).max())


@pytest.mark.filterwarnings("ignore:Component")
@pytest.mark.parametrize("kind", ["dense", "shared", "same", "low rank", "wide"])
@pytest.mark.parametrize("exact_side", [0, 1000])
def test_a_path_holds_its_bounds_for_every_alpha(kind: str, exact_side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pencil, "EXACT_SIDE", exact_side)
    rng, n, alphas = np.random.default_rng(3), 100, [2.0, 0.0, 0.1, 40.0, 2.0, 7.5]
    X, B = rng.standard_normal((200, n)), rng.standard_normal((400, n))
    if kind == "shared":
        V = np.linalg.qr(rng.standard_normal((n, 6)))[0].T
        X = 0.3 * X + rng.standard_normal((200, 6)) * [20, 9, 9, 4, 2, 2] @ V
        B = 0.3 * B + rng.standard_normal((400, 6)) * [20, 9, 1, 2, 1, 0.1] @ V
    X = {"same": B, "low rank": X[:, :2] @ rng.standard_normal((2, n)), "wide": X[:9]}.get(kind, X)
    path = ss.ContrastivePCA(3, tol=1e-6, random_state=0).path(X, background=B, alphas=alphas)
    C, E = np.cov(X, rowvar=False), np.cov(B, rowvar=False)
    assert [model.alpha for model in path] == alphas
    for alpha, model in zip(alphas, path, strict=True):
        assert model.converged_ == np.all(model.vector_errors_ <= 1e-6)
        assert model.converged_ or kind in ("same", "low rank")
        values, W = np.linalg.eigh(C - alpha * E)
        values, W, V = values[::-1], W[:, ::-1], model.components_.T
        rounding = 1e-13 * (np.trace(C) + alpha * np.trace(E))
        assert np.all(np.abs(model.eigenvalues_ - values[:3]) <= model.eigenvalue_errors_ + rounding)
        assert np.allclose(model.target_variance_, np.diag(V.T @ C @ V), rtol=1e-8, atol=rounding)
        assert np.allclose(V.T @ V, np.eye(3), atol=1e-12)
        for j, bound in enumerate(model.vector_errors_):
            own = W[:, np.abs(values - values[j]) <= 10 * rounding]
            assert np.linalg.norm(V[:, j] - own @ (own.T @ V[:, j])) <= bound + 1e-9


@pytest.mark.filterwarnings("ignore:Component")
@pytest.mark.parametrize("kind", ["multiple of the target", "same", "wide"])
def test_more_components_than_one_block_of_products_finds(kind: str) -> None:
    rng, k = np.random.default_rng(0), 60
    X = rng.standard_normal((9, 80)) if kind == "wide" else np.vstack([np.eye(80), -np.eye(80)])
    B = {"multiple of the target": 2 * X, "same": X, "wide": rng.standard_normal((9, 80))}[kind]
    difference = np.cov(X, rowvar=False) - np.cov(B, rowvar=False)
    for most in (1, 5, None):
        model = ss.ContrastivePCA(k, max_passes=most, random_state=0).fit(X, background=B)
        assert np.allclose(model.components_ @ model.components_.T, np.eye(k), atol=1e-12)
        found = np.diag(model.components_ @ difference @ model.components_.T)
        assert np.allclose(model.eigenvalues_, found, atol=1e-13)
        if kind != "wide" or model.converged_:
            exact = np.linalg.eigvalsh(difference)[::-1][:k]
            assert np.all(np.abs(model.eigenvalues_ - exact) <= model.eigenvalue_errors_ + 1e-14)


@pytest.mark.filterwarnings("ignore:Component")
def test_restarts_keep_residuals_of_a_target_far_smaller_than_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pencil, "columns_of", lambda *_: 80)
    monkeypatch.setattr(pencil, "EXACT_SIDE", 0)
    rng, n = np.random.default_rng(1), 150
    X, B = (rng.standard_normal((300, n)) * rng.permutation(0.98 ** np.arange(n)) * size for size in (1e-4, 1e3))
    estimator = ss.ContrastivePCA(3, max_passes=8, random_state=0)
    for model in estimator.path(X, background=B, alphas=[0.0, 1e-14, 1.0]):
        values = np.linalg.eigvalsh(np.cov(X, rowvar=False) - model.alpha * np.cov(B, rowvar=False))
        errors = np.abs(model.eigenvalues_[:, None] - values).min(axis=1)
        assert np.all(errors <= model.eigenvalue_errors_)


@pytest.mark.parametrize("exact_side", [0, 1000])
def test_twenty_alphas_take_at_most_three_times_the_passes_of_one(
    exact_side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pencil, "EXACT_SIDE", exact_side)
    rng, n = np.random.default_rng(4), 400
    scales = 30 * 0.8 ** np.arange(40)
    V = np.linalg.qr(rng.standard_normal((n, 40)))[0].T
    X, B = (rng.standard_normal((600, 40)) * rng.permutation(scales) @ V for _ in range(2))
    path = ss.ContrastivePCA(5, random_state=0).path(X, background=B, alphas=np.geomspace(0.01, 10, 20))
    assert all(model.converged_ for model in path)
    one = ss.ContrastivePCA(5, alpha=path[10].alpha, random_state=0).fit(X, background=B)
    assert path[0].n_passes_ <= 3 * one.n_passes_


def test_a_path_of_few_features_multiplies_all_unit_vectors_once() -> None:
    X, B = RNG.standard_normal((400, 300)), RNG.standard_normal((400, 300))
    alphas = np.geomspace(0.01, 100, 20)
    path = ss.ContrastivePCA(5, random_state=0).path(X, background=B, alphas=alphas)
    assert path[0].n_passes_ == 1 + 3  # the moments, and three blocks of at most 128 vectors
    for model in path:
        values = np.linalg.eigvalsh(covariance(X) - model.alpha * covariance(B))[::-1][:5]
        assert model.converged_
        assert np.all(np.abs(model.eigenvalues_ - values) <= model.eigenvalue_errors_ + 1e-13 * (1 + model.alpha))


@pytest.mark.filterwarnings("ignore:Component")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ridge", [0.0, 0.01, 50.0])
def test_components_of_ratios_are_those_of_the_generalized_eigenproblem(kind: str, ridge: float) -> None:
    X, B = pair(kind, np.random.default_rng(1))
    if kind == "wide":
        B, ridge = B[:25], max(ridge, 1e-3)
    model = ss.ContrastivePCA(3, ridge=ridge, tol=1e-8, random_state=0).fit(X, background=B)
    C, E = covariance(X), covariance(B)
    M = E + ridge * np.eye(len(E))
    values, V = eigh(C, M, eigvals_only=True)[::-1][:3], model.components_.T
    errors = np.abs(model.eigenvalues_ - values)
    rounding = 1e-15 * np.linalg.cond(M) * values[0]  # of the reference
    assert np.all(errors <= 1e-8 * values)
    assert np.all(errors <= model.eigenvalue_errors_ + rounding)
    assert np.allclose(np.linalg.norm(V, axis=0), 1, rtol=1e-12)
    assert np.allclose(model.target_variance_, np.diag(V.T @ C @ V), rtol=1e-8)
    assert np.allclose(model.background_variance_, np.diag(V.T @ E @ V), rtol=1e-8)
    assert np.allclose(model.target_variance_, model.eigenvalues_ * (model.background_variance_ + ridge), rtol=1e-10)
    if kind not in ("offset", "same", "low rank"):  # of rounding errors above `tol`, and of equal values
        assert model.converged_
        assert np.linalg.norm(C @ V - M @ V * values) <= 1e-6 * np.linalg.norm(M @ V * values)
    dense = X.toarray() if hasattr(X, "toarray") else X
    assert np.allclose(model.transform(X), (dense - dense.mean(axis=0)) @ V, rtol=1e-4, atol=1e-4 * np.abs(dense).max())


def exact_ratios(X: Any, B: Any, ridge: float) -> tuple[list[Any], list[Any], Any]:
    """Return values, vectors and ``C_background + ridge I`` at 60 digits."""

    def covariance_of(Y: Any) -> Any:
        D = mpmath.matrix(Y.astype(float).tolist())
        D -= mpmath.ones(D.rows, 1) * ((mpmath.ones(1, D.rows) * D) / D.rows)
        return D.T * D / (D.rows - 1)

    C, M = covariance_of(X), covariance_of(B) + mpmath.mpf(ridge) * mpmath.eye(X.shape[1])
    inverse = mpmath.cholesky(M) ** -1
    S = inverse * C * inverse.T
    values, V = mpmath.eigsy((S + S.T) / 2)
    V = inverse.T * V
    return list(values)[::-1], [V[:, j] for j in reversed(range(V.cols))], M


def hard_pair(case: int, rng: np.random.Generator) -> tuple[Any, Any]:
    n, spread = int(rng.integers(2, 7)), rng.uniform(0, 4)
    m, p = rng.integers(4, 20, 2)
    V, U = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    X = rng.standard_normal((m, n)) * 10 ** rng.uniform(-spread, spread, n) @ V
    B = rng.standard_normal((p, n)) * 10 ** rng.uniform(-spread, spread, n) @ (V if case % 3 else U)
    if case % 5 == 1:
        X, B = X + 100 * rng.standard_normal(n), B - 1e3
    if case % 7 == 2:
        B[:, 0] = 3
    if case % 7 == 3:
        B[:, 0], X[:, 0] = B[:, -1], X[:, -1]
    return (X.astype(np.float32), B.astype(np.float32)) if case % 6 == 4 else (X, B)


@pytest.mark.filterwarnings("ignore:Component")
@pytest.mark.parametrize("case", range(40))
def test_bounds_of_ratios_hold_for_ill_conditioned_backgrounds_at_any_scale(case: int) -> None:
    rng = np.random.default_rng(case)
    X, B = hard_pair(case, rng)
    k, ridge = int(rng.integers(1, X.shape[1] + 1)), 0.0 if case % 2 else 10 ** rng.uniform(-9, 3)
    try:
        ss.ContrastivePCA(k, ridge=ridge, random_state=0).fit(X, background=B)
    except ValueError as error:  # the ridge that the message names is enough
        ridge = float(str(error).partition("Use ")[2].split()[0])
    with mpmath.workdps(60):
        values, vectors, M = exact_ratios(X, B, ridge)
        for unit in (1.0, 2.0**-240, 2.0**220):
            if X.dtype == np.float32 and unit != 1:
                continue
            model = ss.ContrastivePCA(k, ridge=ridge * unit**2, random_state=0).fit(X * unit, background=B * unit)
            for j in range(k):
                assert abs(mpmath.mpf(float(model.eigenvalues_[j])) - values[j]) <= model.eigenvalue_errors_[j]
                close = [i for i, value in enumerate(values) if abs(value - values[j]) <= 1e-9 * values[0]]
                v = mpmath.matrix(model.components_[j].astype(float).tolist())
                inside = sum((vectors[i].T * M * v)[0] ** 2 for i in close) / (v.T * M * v)[0]
                assert 1 - inside <= mpmath.mpf(float(model.vector_errors_[j])) ** 2


def test_ratios_of_backgrounds_with_fewer_samples_than_features() -> None:
    rng, n = np.random.default_rng(0), 400
    V = np.linalg.qr(rng.standard_normal((n, 4)))[0].T
    X = rng.standard_normal((300, n)) + rng.standard_normal((300, 4)) * [30, 20, 9, 6] @ V
    B = rng.standard_normal((50, n)) + rng.standard_normal((50, 4)) * [30, 1, 1, 1] @ V
    for Y in (B, csr_array(np.where(np.abs(B) > 1, B, 0))):
        model = ss.ContrastivePCA(2, ridge=2, random_state=0).fit(X, background=Y)
        values = eigh(covariance(X), covariance(Y) + 2 * np.eye(n), eigvals_only=True)[::-1]
        assert model.converged_
        assert np.allclose(model.eigenvalues_, values[:2], rtol=1e-8)
        assert np.all(np.abs(model.eigenvalues_ - values[:2]) <= model.eigenvalue_errors_ + 1e-12 * values[0])


def test_a_background_too_large_to_be_decomposed_is_refused_before_it_is() -> None:
    X = csr_array((np.ones(20_000), (np.arange(20_000),) * 2), (20_000, 20_000))
    message = "^whitening the background needs about .* GB, more than .* Raise memory_limit, or use fewer features, or "
    with pytest.raises(ValueError, match=message):
        ss.ContrastivePCA(1, ridge=1, memory_limit="2GB").fit(X, background=X)


def test_chosen_alphas_represent_the_different_components() -> None:
    rng = np.random.default_rng(5)
    X, B = rng.standard_normal((400, 6)) * [20, 9, 3, 1, 1, 1], rng.standard_normal((400, 6)) * [9, 1.5, 0.1, 1, 1, 1]
    alphas = [0, 0.01, 0.1, 1, 8, 10, 12, 15, 200, 300, 500]  # the first axis, the second, the third
    chosen = ss.ContrastivePCA(1, random_state=0).path(X, background=B, alphas=alphas, choose=2)
    assert [int(np.abs(model.components_).argmax()) for model in chosen] == [1, 2]
    for order in ([0, 10], [10, 0]):
        (one,) = ss.ContrastivePCA(1, random_state=0).path(X, background=B, alphas=order, choose=1)
        assert one.alpha == 10
    shuffled = ss.ContrastivePCA(1, random_state=0).path(X, background=B, alphas=alphas[::-1], choose=4)
    chosen = ss.ContrastivePCA(1, random_state=0).path(X, background=B, alphas=alphas, choose=4)
    assert [model.alpha for model in shuffled[::-1]] == [model.alpha for model in chosen]
    every = ss.ContrastivePCA(1, random_state=0).path(X, background=B, alphas=alphas[:3], choose=5)
    assert [model.alpha for model in every] == alphas[:3]
    same = ss.ContrastivePCA(1, random_state=0).path(X, background=B, alphas=[0, 0, 0, 0], choose=3)
    assert len(same) == 3


def test_of_two_equally_good_alphas_the_least_is_chosen_in_any_order() -> None:
    rng, scales = np.random.default_rng(0), 0.9 ** np.arange(250)
    X, B = rng.standard_normal((300, 250)) * scales, rng.standard_normal((300, 250)) * scales[::-1]
    for alphas in ([10, 0, 5], [0, 10, 5]):
        (one,) = ss.ContrastivePCA(2, random_state=0).path(X, background=B, alphas=alphas, choose=1)
        assert one.alpha == 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(({"alphas": value}, "^alphas must be a sequence of numbers") for value in ([], 1.0, "12", None)),
        *(({"alphas": [0, value]}, "^alpha must be a number of at least 0") for value in (-1, np.nan, "1", [1])),
        *(({"choose": value}, "^choose must be a positive") for value in (0, 1.5, True)),
    ],
)
def test_bad_alphas_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ss.ContrastivePCA(1).path(np.eye(4), background=np.eye(4), **settings)


def test_ratios_have_no_alphas() -> None:
    with pytest.raises(ValueError, match=r"^ridge must be None for several alphas, got 1\. Use fit"):
        ss.ContrastivePCA(1, ridge=1).path(np.eye(4), background=np.eye(4))


def test_data_frames_and_operators_need_the_same_features() -> None:
    pd = pytest.importorskip("pandas")
    X, B = pair("dense", np.random.default_rng(2))
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])])
    other = pd.DataFrame(B, columns=[f"f{i}" for i in range(B.shape[1])])
    named = ss.ContrastivePCA(2, random_state=0).fit(frame, background=other)
    plain = ss.ContrastivePCA(2, random_state=0).fit(ss.as_operator(X), background=ss.as_operator(B))
    assert np.array_equal(named.components_, plain.components_)
    with pytest.raises(ValueError, match="feature names should match"):
        ss.ContrastivePCA(2).fit(frame, background=other[other.columns[::-1]])
    with pytest.raises(ValueError, match="20 features"):
        ss.ContrastivePCA(2).fit(X, background=B[:, 1:])


@pytest.mark.parametrize(
    ("settings", "background", "message"),
    [
        ({}, None, r"background is missing: fit\(X, background=...\). For X alone, use PCA"),
        ({"alpha": -1}, np.ones((3, 4)), "alpha must be a number of at least 0"),
        *(
            ({"ridge": value}, np.ones((3, 4)), "^ridge must be a number of at least 0, got")
            for value in (-1, np.nan, "1", True)
        ),
        ({"ridge": 0}, np.eye(4), "^ridge must be larger, because variances .*, got 0.0. Use .* or more"),
        ({"ridge": 0}, np.zeros((9, 4)), "^ridge must be larger, because variances .*, got 0.0$"),
        ({"ridge": 1e-30}, np.eye(4), "^ridge must be larger, because variances .*, got 1e-30"),
        ({"alpha": 1e200}, np.eye(4), "alpha must be smaller than .* for this background"),
        ({"alpha": np.nan}, np.ones((3, 4)), "alpha must be a number of at least 0"),
        *(
            ({"alpha": value}, np.ones((3, 4)), "^alpha must be a number of at least 0, got")
            for value in (True, "1", [], 1j)
        ),
        *(({"n_components": value}, None, "^n_components must be a positive") for value in (True, np.nan, 0, "2", [])),
        *(({"max_passes": value}, None, "^max_passes must be a positive") for value in (True, 0, 1.5)),
        *(({"tol": value}, None, "^tol must be at least 0 and less than 1") for value in (True, False, np.nan, "1")),
        ({"n_components": 5}, np.ones((3, 4)), "n_components must be .*4"),
        ({}, np.ones((1, 4)), "needs at least 2 samples, got 1"),
        ({}, np.full((3, 4), np.nan), "NaN"),
    ],
)
def test_bad_input_is_refused(settings: dict[str, Any], background: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ss.ContrastivePCA(**settings).fit(RNG.standard_normal((6, 4)), background=background)


@pytest.mark.filterwarnings("ignore:Component")
def test_few_passes_give_all_components_unconverged() -> None:
    X, B = RNG.standard_normal((40, 90)), RNG.standard_normal((50, 90))
    model = ss.ContrastivePCA(30, max_passes=1, random_state=0).fit(X, background=B)
    assert model.components_.shape == (30, 90)
    assert not model.converged_


def test_plans_of_a_later_pass_hold_after_a_missed_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [1]  # vectors that the first probe finds
    monkeypatch.setattr(pencil, "EXACT_SIDE", 0)
    monkeypatch.setattr(pencil, "AT_ONCE", 1)
    monkeypatch.setattr(pencil, "columns_of", lambda *_: 100)
    monkeypatch.setattr(
        pencil.Family, "plans", lambda self, members: [plan for i in members if (plan := self.plan([i])) is not None]
    )
    monkeypatch.setattr(pencil.ProbeChain, "missed", lambda self: self.basis.Q[:, : found.pop() if found else 0])
    rng, n = np.random.default_rng(0), 200
    X, B = (rng.standard_normal((400, n)) * rng.permutation(0.9 ** np.arange(n)) for _ in range(2))
    path = ss.ContrastivePCA(3, random_state=0).path(X, background=B, alphas=[0.0, 1.0, 10.0])
    assert all(model.converged_ for model in path)


def test_a_failure_of_lapack_is_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr(pencil, "EXACT_SIDE", 0)
    X, B = pair("dense", np.random.default_rng(6))
    X, B = np.hstack([X] * 6) + RNG.standard_normal((120, 120)), np.hstack([B] * 6)
    expected = ss.ContrastivePCA(2, random_state=0).path(X, background=B, alphas=[0.0, 1.0, 9.0])
    monkeypatch.setattr(np.linalg, "svd", fail)
    path = ss.ContrastivePCA(2, random_state=0).path(X, background=B, alphas=[0.0, 1.0, 9.0])
    for model, one in zip(path, expected, strict=True):
        assert np.allclose(model.eigenvalues_, one.eigenvalues_, rtol=1e-8, atol=1e-10)


def test_a_missing_proof_is_named() -> None:
    rng, scales = np.random.default_rng(0), 0.9 ** np.arange(250)
    X, B = rng.standard_normal((300, 250)) * scales, rng.standard_normal((300, 250)) * scales[::-1]
    with pytest.warns(UserWarning, match="^Components may have been missed: 5 passes could not rule this out"):
        model = ss.ContrastivePCA(2, tol=1e-2, max_passes=4, random_state=0).fit(X, background=B)
    assert np.all(model.vector_errors_ <= 1e-2)
    assert not model.converged_


def test_small_gaps_of_few_features_end_at_exact_vectors_without_a_restart() -> None:
    rng, n = np.random.default_rng(0), 300
    target, background = (rng.standard_normal((900, n)) / np.sqrt(np.arange(1, n + 1)) for _ in range(2))
    contrast = ss.ContrastivePCA(5, alpha=100, random_state=0).fit(target, background=background)
    exact = np.linalg.eigvalsh(np.cov(target.T) - 100 * np.cov(background.T))[:-6:-1]
    assert contrast.converged_
    assert contrast.n_passes_ <= n // 16 + 3
    assert contrast.eigenvalues_ == pytest.approx(exact, rel=0, abs=1e-12)
