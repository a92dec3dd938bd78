"""Rotated components: the largest criterion, the same data, uncorrelated scores or such that correlate."""

from typing import Any

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.optimize import minimize

import shiftsvd as ss
from shiftsvd.estimators.rotation import varimax_criterion


def decomposed(k: int = 4) -> tuple[Any, Any, Any, Any]:
    """Data of a few sparse patterns, and their singular triplets."""
    rng = np.random.default_rng(0)
    patterns = np.where(rng.random((k, 40)) < 0.25, rng.standard_normal((k, 40)), 0.05)
    X = rng.standard_normal((60, k)) * np.arange(k + 1, 1, -1) @ patterns + 0.01 * rng.standard_normal((60, 40))
    return X, *ss.svd(X, k, shift="mean", solver="exact")


@pytest.mark.parametrize("kaiser", [True, False])
def test_no_rotation_nearby_has_a_larger_criterion(kaiser: bool) -> None:
    _, _, S, Vh = decomposed()
    L = Vh.T * S
    found = ss.rotate(Vh.T, S, kaiser=kaiser)
    assert found.converged
    assert found.criterion > 1.05 * varimax_criterion(L, kaiser)
    loadings = (found.components * np.sqrt(found.squares)[:, None]).T

    def worse(w: Any) -> float:
        A = np.zeros((4, 4))
        A[np.triu_indices(4, 1)] = w
        return -varimax_criterion(loadings @ expm(A - A.T), kaiser)

    best = minimize(worse, np.zeros(6), tol=1e-12)
    assert -best.fun <= found.criterion * (1 + 1e-9)


@pytest.mark.parametrize("turn", [1, np.array([1, -1, 1, -1])])
@pytest.mark.parametrize("method", ["varimax", "promax"])
def test_rotated_components_make_up_the_same_data(method: Any, turn: Any) -> None:
    X, U, S, Vh = decomposed()
    U, Vh = U * turn, (Vh.T * turn).T
    found = ss.rotate(Vh.T, S, method)
    scores = (U * S) @ found.to_scores
    np.testing.assert_allclose(scores @ found.components, (U * S) @ Vh, atol=1e-10)
    np.testing.assert_allclose((X - X.mean(axis=0)) @ found.duals.T, scores, atol=1e-10)
    np.testing.assert_allclose(np.linalg.norm(found.components, axis=1), 1)
    np.testing.assert_allclose(np.linalg.norm(scores, axis=0) ** 2, found.squares)
    np.testing.assert_allclose(np.corrcoef(scores, rowvar=False), found.correlations, atol=1e-10)
    assert np.all(np.diff(found.squares) <= 0)
    assert np.all(found.components[np.arange(4), np.abs(found.components).argmax(axis=1)] > 0)
    if method == "varimax":
        np.testing.assert_allclose(found.correlations, np.eye(4), atol=1e-10)
        np.testing.assert_allclose(found.squares.sum(), (S**2).sum())


def test_promax_makes_small_loadings_smaller_where_patterns_correlate() -> None:
    rng = np.random.default_rng(1)
    patterns = np.kron(np.eye(3), np.ones(10))
    scores = rng.standard_normal((400, 3)) @ np.linalg.cholesky(np.full((3, 3), 0.5) + 0.5 * np.eye(3)).T
    X = scores @ patterns + 0.1 * rng.standard_normal((400, 30))
    _, S, Vh = ss.svd(X, 3, shift="mean", solver="exact")
    small = [np.sort(np.abs(ss.rotate(Vh.T, S, method).components))[:, :20].max() for method in ("varimax", "promax")]
    assert small[1] < 0.3 * small[0]
    correlations = ss.rotate(Vh.T, S, "promax").correlations[np.triu_indices(3, 1)]
    np.testing.assert_allclose(np.abs(correlations), 0.5, atol=0.12)


def test_one_component_and_equal_ones_stay_what_they_are() -> None:
    _, _, S, Vh = decomposed()
    one = ss.rotate(Vh[:1].T, S[:1])
    np.testing.assert_allclose(one.components, Vh[:1])
    simple = ss.rotate(np.eye(5)[:, :3], np.ones(3))
    np.testing.assert_allclose(np.sort(simple.components, axis=0)[-1], [1, 1, 1, 0, 0])


def test_what_cannot_be_rotated_is_refused() -> None:
    _, _, S, Vh = decomposed()
    for arguments, match in (
        ((Vh, S), r"V must have shape \(n, k\) with k at most n"),
        ((Vh.T, S[:2]), r"and S shape \(k,\), got \(40, 4\) and \(2,\)"),
        ((Vh.T, 0 * S), "S finite and positive"),
        ((Vh.T * 1j, S), "V and S must be real numbers, got complex128"),
        ((Vh.T, S, "oblimin"), 'method must be "varimax" or "promax"'),
    ):
        with pytest.raises(ValueError, match=match):
            ss.rotate(*arguments)
    with pytest.raises(ValueError, match="power must be a number above 1, got 1"):
        ss.rotate(Vh.T, S, "promax", power=1)
    with pytest.warns(UserWarning, match=r"did not converge within 1 sweeps?\. Raise max_iter"):
        assert not ss.rotate(Vh.T, S, max_iter=1).converged
