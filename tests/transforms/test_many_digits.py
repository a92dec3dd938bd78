"""Transformations beside 50 digits: what entries and values err by is at most what is told."""

from typing import Any

import numpy as np
import pytest

import shiftsvd as ss
from tests.support.many_digits import CASES, Data, compare, draw

DEVIANCES = [name for name in CASES if name.startswith("deviance")]


def holds(name: str, data: Data, seed: int = 0) -> None:
    found = compare(CASES[name], data, np.random.default_rng(seed))
    assert found.columns <= 1
    assert found.values <= 1


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CASES)
def test_errors_are_at_most_what_is_told(name: str, seed: int) -> None:
    rng = np.random.default_rng([11, seed])
    data = draw(rng, CASES[name])
    found = compare(CASES[name], data, rng)
    assert found.columns <= 1
    assert found.values <= 1


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("size", [1e8, 1e15, 1e100])
@pytest.mark.parametrize("name", DEVIANCES)
def test_counts_far_above_theta_keep_their_digits(name: str, size: float) -> None:
    X = np.rint(size * np.random.default_rng(0).uniform(0.5, 2, (8, 5)))
    X[2, 3] = 0
    holds(name, Data(X, np.ones(8)))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].whole])
def test_counts_whose_weighted_total_is_below_1_have_rates(name: str) -> None:
    X = np.vstack([np.random.default_rng(1).poisson(2.0, (8, 5)), np.zeros((1, 5))]).astype(float)
    holds(name, Data(X, np.append(np.full(8, 1e-3), 2.0)))


def test_rows_of_no_weight_do_not_count() -> None:
    X = np.array([[9.0, 1, 1, 1], [1, 2, 3, 4], [2, 2, 2, 2]])
    how = ss.LogNormalize(exclude_highly_expressed=True, max_fraction=0.5)
    assert how.learn(X, [0.0, 1, 1]).columns.all()
    assert how.learn(X).columns[:, 0].tolist() == [0, 1, 1, 1]
    assert ss.TfIdf(smooth_idf=False).learn([[1.0, 1], [0, 1]], [0.0, 1]).columns[:, 0].tolist() == [0, 1]
    median = ss.LogNormalize(None)
    assert median.learn(X, [0.0, 0.1, 0.1]).known[0] == 9
    assert median.learn(np.arange(1.0, 11)[:, None], np.full(10, 0.1)).known[0] == 5.5


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e200, 1e300])
@pytest.mark.parametrize("how", [ss.TfIdf(), ss.TfIdf("l1"), ss.LogNormalize(), ss.CLR(kind="robust")])
def test_what_knows_no_scale_is_the_same_at_every_scale(how: Any, scale: float) -> None:
    X = np.random.default_rng(2).integers(0, 5, (9, 6)) / 8
    expected = ss.preprocess(X, how) @ np.eye(6)
    np.testing.assert_allclose(ss.preprocess(scale * X, how) @ np.eye(6), expected, rtol=1e-12, atol=1e-12)


def test_sums_beyond_the_range_of_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="sums of rows or columns overflow"):
        ss.svd(np.full((4, 3), 1e308), 1, preprocess=ss.LogNormalize())


@pytest.mark.parametrize("weights", [np.array([1e12, 1e-3, 0.3]), np.array([0.1, 0.7, 1e-9])])
def test_a_light_row_without_a_term_is_not_lost_and_none_is_left_over(weights: np.ndarray) -> None:
    X = np.array([[1.0, 1], [1, 0], [1, 1]])
    idf = ss.BM25().learn(X, weights).columns[:, 0]
    exact = [np.log1p(0.5 / (weights.sum() + 0.5)), np.log1p((weights[1] + 0.5) / (weights[0] + weights[2] + 0.5))]
    np.testing.assert_allclose(idf, exact, rtol=1e-14)
    ranks = ss.Ranks().learn(X, weights)
    np.testing.assert_allclose(ranks.columns[1, 2], (weights[1] + 1) / 2, rtol=1e-12, atol=1e-15 * weights.sum())


def test_what_mutual_information_rounds_includes_the_logarithms_of_shares() -> None:
    X = np.array([[1e12, 1.0], [1e12, 0.0]])
    how = ss.PMI(smoothing=0, context_power=1)
    fitted = how.learn(X)
    L, R = how.rounded_at(fitted.rows(ss.as_operator(X)), fitted)
    assert np.all(np.abs(L) @ np.abs(R).T >= np.abs(np.log(X.sum(axis=0) / X.sum())))
