"""Contrastive PCA beside explicit covariance matrices."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array

import shiftsvd as ss

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


@pytest.mark.filterwarnings("ignore:Components")
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


@pytest.mark.filterwarnings("ignore:Components")
def test_few_passes_give_all_components_unconverged() -> None:
    X, B = RNG.standard_normal((40, 90)), RNG.standard_normal((50, 90))
    model = ss.ContrastivePCA(30, max_passes=1, random_state=0).fit(X, background=B)
    assert model.components_.shape == (30, 90)
    assert not model.converged_
