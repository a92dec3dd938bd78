"""Weighted means and deviations beside exact fractions: full columns have no absent rows, whatever the weights are."""

import warnings
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import shiftsvd as ss
from shiftsvd.algebra.generic import row_moments
from shiftsvd.missing.gaps import gaps_of
from shiftsvd.numerics.moments import Moments, of_block, weight_of_zeros, weight_parts
from tests.support.matrices import EPS, Array

WEIGHTS = ("uniform", "wide", "heavy", "zeros", "frequencies")
MAKERS = {"dense": np.asarray, "CSR": sparse.csr_array, "CSC": sparse.csc_array}
makers = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def weights_like(kind: str, m: int, rng: np.random.Generator) -> Array:
    """Weights of m rows whose sum exceeds 1."""
    w = {
        "uniform": rng.uniform(0.01, 2, m),
        "wide": 10 ** rng.uniform(-3, 12, m),
        "heavy": rng.uniform(0.01, 2, m) * 1e12,
        "zeros": rng.uniform(0.01, 2, m) * (rng.random(m) < 0.5),
        "frequencies": rng.integers(0, 9, m).astype(float),
    }[kind]
    w[rng.integers(m)] += 2
    return w


def columns(m: int, w: Array, rng: np.random.Generator) -> Array:
    """A constant, unix times, what the lightest row lacks, counts, and what most rows lack."""
    times = 1.7e9 + np.round(rng.standard_normal(m) * 10 ** rng.uniform(-2, 5), 3)
    lacking = np.where(np.arange(m) == np.argmin(w), 0, times)
    rare = np.where(rng.random(m) < 0.1, rng.standard_normal(m), 0)
    return np.stack([np.full(m, 1e8 / 3), times, lacking, rng.poisson(1.0, m), rare], axis=1)


def exact(X: Array, w: Array) -> tuple[Array, Array, Array]:
    """Counts, means and squares about them of what is not NaN, in fractions, rounded once."""
    found = []
    for column in X.T.astype(float).tolist():
        there = [(Fraction(v), Fraction(x)) for v, x in zip(w.tolist(), column, strict=True) if x == x]
        count = sum(v for v, _ in there)
        mean = sum(v * x for v, x in there) / (count or 1)
        found.append((count, mean, sum(v * (x - mean) ** 2 for v, x in there)))
    return tuple(np.array([float(part) for part in parts]) for parts in zip(*found, strict=True))  # type: ignore[return-value]


def assert_exact(found: Moments, X: Array, w: Array) -> None:
    """Means and deviations err by a few roundings of the entries, and those of constant columns by nothing."""
    count, mean, M2 = exact(X, w)
    size = np.sqrt(mean**2 + M2 / np.maximum(count, 1e-300))
    assert np.all(np.abs(found.count - count) <= 8 * EPS * count)
    assert np.all(np.abs(found.mean - mean) <= 4 * EPS * size)
    deviation, want = (np.sqrt(squares / np.maximum(count, 1e-300)) for squares in (found.M2, M2))
    assert np.all(np.abs(deviation - want) <= 4 * EPS * (size + want))
    assert np.all(deviation[M2 == 0] <= 0.01 * EPS * size[M2 == 0])


@settings(deadline=None)
@given(st.integers(2, 60), st.sampled_from(WEIGHTS), st.integers(0, 2**31))
def test_moments_are_those_of_exact_fractions_in_all_containers(m, kind, seed):
    rng = np.random.default_rng(seed)
    w = weights_like(kind, m, rng)
    X = columns(m, w, rng)
    for make in MAKERS.values():
        assert_exact(ss.as_operator(make(X)).moments(w), X, w)
        assert_exact(row_moments(ss.as_operator(make(X.T.copy())), w), X, w)
    parts = [slice(lo, lo + 7) for lo in range(0, m, 7)]
    merged = reduce(Moments.merge, (ss.as_operator(sparse.csr_array(X[rows])).moments(w[rows]) for rows in parts))
    assert_exact(merged, X, w)


@settings(deadline=None)
@given(st.integers(2, 60), st.sampled_from(WEIGHTS), st.integers(0, 2**31))
def test_moments_of_observed_entries_are_those_of_exact_fractions(m, kind, seed):
    rng = np.random.default_rng(seed)
    w = weights_like(kind, m, rng)
    X = columns(m, w, rng)
    gaps = rng.random(X.shape) < rng.choice([0.1, 0.8])
    gaps[np.argmax(w)] = False
    X[gaps] = np.nan
    for make in (np.asarray, sparse.csr_array):
        assert_exact(gaps_of(make(X)).moments(w), X, w)
    stored = np.where(X == 0, np.nan, X)
    some = np.nansum(w[:, None] * ~np.isnan(stored), axis=0) > 0
    assert_exact(gaps_of(sparse.csr_array(X)[:, some], unobserved=True).moments(w), stored[:, some], w)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 300), st.sampled_from((*WEIGHTS, "far")), st.integers(0, 2**31))
def test_what_is_left_of_a_total_is_the_sum_of_what_is_left(m, kind, seed):
    rng = np.random.default_rng(seed)
    # Of weights that lie so far apart even the last parts, whose sums are not exact, have all digits.
    w = 10 ** rng.uniform(-40, 0, m) + 2 * (np.arange(m) == m // 2) if kind == "far" else weights_like(kind, m, rng)
    parts = weight_parts(w)
    assert np.array_equal(parts[:, 0] + (parts[:, 1] + parts[:, 2]), w)
    taken = rng.random((m, 4)) < [1.0, 1 - 1 / m, 0.5, 0.0]
    taken[np.argmin(w), 1] = False
    order = rng.permutation(m)  # sums are made in another one
    left = weight_of_zeros(parts, m, taken[order].T.astype(float) @ parts[order])
    assert left[0] == 0
    for j in (1, 2, 3):
        want = float(sum(map(Fraction, w[~taken[:, j]].tolist())))
        assert abs(left[j] - want) <= 4 * EPS * want + 1e-30 * w.sum()


@makers
def test_fits_of_full_columns_have_their_deviations_whatever_the_weights_are(make):
    rng = np.random.default_rng(0)
    for kind in WEIGHTS:
        w = weights_like(kind, 300, rng)
        X = np.stack([np.full(300, 3.7), 1.7e9 + rng.integers(0, 100, 300), rng.standard_normal(300)], axis=1)
        _, mean, M2 = exact(X, w)
        with pytest.warns(UserWarning, match="is constant and was not scaled"):
            pca = ss.PCA(2, scale="std", random_state=0).fit(make(X), sample_weight=w)
        want = np.where(M2 > 0, np.sqrt(M2 / w.sum()), 1)
        assert pca.scale_[0] == 1
        np.testing.assert_allclose(pca.scale_, want, rtol=1e-12)
        E = np.sqrt(w)[:, None] * (X - mean) / want
        np.testing.assert_allclose(pca.singular_values_, np.linalg.svd(E, compute_uv=False)[:2], rtol=1e-12)


@makers
@pytest.mark.parametrize("factor", [1e-1, 1.0, 1e12, 1e15, 1e18])
def test_a_column_varies_whatever_the_weights_sum_to(make, factor):
    X = 1.7e9 + np.arange(60.0).reshape(20, 3) % 7 * 1e-3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pca = ss.PCA(2, scale="std", random_state=0).fit(make(X), sample_weight=np.full(20, factor))
    np.testing.assert_allclose(pca.scale_, np.sqrt(exact(X, np.ones(20))[2] / 20), rtol=1e-9)


def test_a_column_of_many_rows_varies_by_little():
    X = 1.7e9 + np.random.default_rng(0).integers(0, 3, (50_000, 2)) * 2.0**-10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scale = ss.PCA(1, scale="std", random_state=0).fit(X).scale_
    np.testing.assert_allclose(scale, ((X - X[0]) * 2**10).std(axis=0) / 2**10, rtol=1e-6)


def test_a_light_part_keeps_its_mean_beside_a_heavy_one_of_zeros():
    light, heavy = of_block(np.full((3, 1), 0.1), np.full(3, 1e-9)), of_block(np.zeros((4, 1)), np.full(4, 1e12))
    for merged in (light.merge(heavy), heavy.merge(light)):
        assert merged.mean[0] == pytest.approx(3e-10 / 4e12, rel=4 * EPS)


def test_deviations_of_blocks_that_differ_do_not_lose_what_their_means_are_rounded_by():
    X = (1.7e9 + np.linspace(0, 0.01, 4000)).reshape(-1, 1)  # in order, so that every block has another mean
    parts = [of_block(X[lo : lo + 40]) for lo in range(0, 4000, 40)]
    assert_exact(reduce(Moments.merge, parts), X, np.ones(4000))


@pytest.mark.parametrize("make", [sparse.csr_array, np.asarray])
def test_cross_of_columns_far_from_the_origin_has_values(make):
    rng = np.random.default_rng(0)
    X, Y = 1.7e9 + rng.integers(0, 9, (60, 1)), 2.7e6 + np.round(rng.standard_normal((60, 3)), 3)
    F = ss.svd(ss.cross(make(X), make(Y), shift="mean", scale="std"), 1, rng=0)
    D, E = ((Z - Z.mean(axis=0)) / Z.std(axis=0) for Z in (X, Y))
    np.testing.assert_allclose(F.S, np.linalg.svd(D.T @ E, compute_uv=False), rtol=1e-7)


def test_single_precision_with_gaps_is_filled_with_the_mean_and_not_with_its_rounding():
    rng = np.random.default_rng(0)
    X = (1.7e9 + 128 * rng.integers(0, 3, (40, 3))).astype(np.float32)
    X[rng.random(X.shape) < 0.3] = np.nan
    found = [ss.PCA(2, random_state=0, missing="mean").fit(make(X)) for make in (np.asarray, sparse.csr_array)]
    E = np.nan_to_num(X.astype(float) - np.nanmean(X.astype(float), axis=0))
    for pca in found:
        assert pca.components_.dtype == np.float32
        np.testing.assert_allclose(pca.singular_values_, np.linalg.svd(E, compute_uv=False)[:2], rtol=1e-6)


@pytest.mark.parametrize("limit", [float("inf"), "1e30", 1e300])
def test_a_limit_beyond_all_memory_is_no_limit(limit):
    X = sparse.csr_array(np.eye(6))
    assert ss.svd(X, 2, rng=0, memory_limit=limit).S.tolist() == ss.svd(X, 2, rng=0).S.tolist()
