"""Signals of counts beyond row and column totals."""

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import shiftsvd as ss
from shiftsvd.errors import Refused


def planted(rng: np.random.Generator, rank: int, theta: float = np.inf, size: tuple[int, int] = (200, 160)) -> Any:
    mu = 0.4 * rng.gamma(0.5, 2, (size[0], rank)) @ rng.gamma(0.5, 2, (rank, size[1]))
    return rng.poisson(mu if theta == np.inf else mu * rng.gamma(theta, 1 / theta, mu.shape))


def noise(rng: np.random.Generator, size: tuple[int, int] = (150, 120)) -> Any:
    return rng.poisson(np.outer(rng.gamma(3, 1 / 3, size[0]), rng.gamma(2, 0.5, size[1])))


@pytest.mark.parametrize("theta", [np.inf, 4.0])
@pytest.mark.parametrize("rank", [2, 5])
def test_planted_components_are_counted(rank: int, theta: float) -> None:
    for seed in range(3):
        found = ss.count_signals(planted(np.random.default_rng(seed), rank, theta), theta=theta, rng=0)
        assert found.at_least <= rank - 1 <= found.at_most


def test_noise_has_no_signals() -> None:
    assert sum(ss.count_signals(noise(np.random.default_rng(seed)), rng=0).k > 0 for seed in range(10)) <= 1


def test_scales_that_do_not_converge_name_a_value_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shiftsvd.biwhitening.MOST_SCALINGS", 1)
    with pytest.raises(Refused, match="Pass least_nonzeros=50 to exclude"):
        ss.count_signals(noise(np.random.default_rng(0)), rng=0)


@pytest.mark.long
def test_a_hundred_data_sets_of_each_kind() -> None:
    rngs = [np.random.default_rng(seed) for seed in range(100)]
    assert sum(ss.count_signals(noise(rng), rng=0).k == 0 for rng in rngs) >= 98
    for theta in (np.inf, 4.0):
        found = [ss.count_signals(planted(rng, 4, theta), theta=theta, rng=0) for rng in rngs]
        assert sum(each.at_least <= 3 <= each.at_most for each in found) >= 95


def test_values_are_those_of_the_scaled_matrix() -> None:
    X = planted(np.random.default_rng(0), 3)
    X[:4] = 0
    X[:, 7] = 0
    results = [ss.count_signals(each, rng=0) for each in (X, csr_array(X), X.astype(np.float32), X.T)]
    F = results[0]
    assert not F.row_factors[:4].any()
    assert F.column_factors[7] == 0
    X = X * (F.row_factors[:, None] > 0) * (F.column_factors > 0)
    B = F.row_factors[:, None] * (X - np.outer(X.sum(axis=1), X.sum(axis=0)) / X.sum()) * F.column_factors
    S = np.linalg.svd(B, compute_uv=False)
    np.testing.assert_allclose(F.singular_values, S[: len(F.singular_values)], rtol=1e-5)
    assert F.at_least <= np.count_nonzero(F.edge < S) <= F.at_most
    variances = F.row_factors[:, None] ** 2 * X * F.column_factors**2
    m, n = np.count_nonzero(F.row_factors), np.count_nonzero(F.column_factors)
    np.testing.assert_allclose(variances.sum(axis=1)[F.row_factors > 0], n, rtol=1e-5)
    np.testing.assert_allclose(variances.sum(axis=0)[F.column_factors > 0], m, rtol=1e-5)
    for other in results[1:]:
        assert (other.k, other.at_least, other.at_most) == (F.k, F.at_least, F.at_most)


def test_bad_input_is_refused() -> None:
    X = planted(np.random.default_rng(0), 3)
    for theta in (0, -1, np.nan, "a"):
        with pytest.raises(Refused, match="theta must be a positive number"):
            ss.count_signals(X, theta=theta)
    with pytest.raises(ValueError, match="requires counts from 0"):
        ss.count_signals(X - 1)
    with pytest.raises(ValueError, match="requires counts from 0"):
        ss.count_signals(X * 1e30)
    with pytest.raises(Refused, match="fewer than 20 rows or columns"):
        ss.count_signals(np.eye(100))
    with pytest.warns(UserWarning, match="not integers"):
        ss.count_signals(X * 0.5)


def test_scales_that_do_not_converge_are_refused_without_other_warnings() -> None:
    refused = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        X = rng.poisson(rng.gamma(0.3, 1, (8, 2)) @ rng.gamma(0.3, 1, (2, 8)))
        with warnings.catch_warnings(action="error", category=RuntimeWarning):
            try:
                ss.count_signals(X, theta=10.0, least_nonzeros=1, rng=0)
            except ValueError:
                refused += 1
    assert refused
