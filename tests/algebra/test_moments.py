"""Moments and norms: stable far from the origin, mergeable in any order, exact where the shift cancels."""

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.algebra.generic import row_moments
from shiftsvd.numerics.moments import Moments, of_block
from tests.support.closeness import assert_close
from tests.support.containers import compressed
from tests.support.matrices import EPS, values
from tests.support.operators import Counting, panel


def columns_at(mean: float, shape=(4000, 3), seed: int = 0) -> np.ndarray:
    """Columns of unit spread around a mean; every entry a multiple of 2^-20, so that the sums below are exact."""
    return mean + np.round(values(shape, seed=seed, density=1.0) * 2**20) / 2**20


def exact(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and M2 in extended precision."""
    X = X.astype(np.longdouble)
    mean = X.mean(axis=0)
    return mean.astype(float), ((X - mean) ** 2).sum(axis=0).astype(float)


@pytest.mark.parametrize("blocks", ["one", "many"])
@pytest.mark.parametrize("mean", [0.0, 1e3, 1e6, 1e9])
def test_moments_keep_their_digits_far_from_the_origin(mean: float, blocks: str, request) -> None:
    if blocks == "many":
        request.getfixturevalue("small_blocks")
    X = columns_at(mean)
    mu, M2 = exact(X)
    # E[x^2] - mean^2 errs by eps (mean/sd)^2: nothing is left at 1e9. The stable sum errs by eps, and by (eps mean)^2;
    # merging many blocks of a few rows by eps mean/sd, since their means are rounded.
    rel = 100 * EPS + (4 * EPS * mean) ** 2 * 10 + (blocks == "many") * EPS * mean
    for A in map(ss.as_operator, (X, np.asfortranarray(X), sparse.csr_array(X), sparse.csc_array(X))):
        found = A.moments()
        np.testing.assert_allclose(found.mean, mu, rtol=20 * EPS, atol=20 * EPS * 4)
        np.testing.assert_allclose(found.M2, M2, rtol=rel)
        across = A.H.row_moments()
        np.testing.assert_allclose(across.M2, M2, rtol=rel)
    wide = ss.as_operator(X.T.copy())
    np.testing.assert_allclose(wide.row_moments().M2, M2, rtol=rel)


def test_single_precision_data_have_moments_in_double() -> None:
    X = columns_at(1e3).astype(np.float32)
    mu, M2 = exact(X)
    for A in map(ss.as_operator, (X, sparse.csr_array(X), sparse.csc_array(X), X[::1, :])):
        found = A.moments()
        assert found.mean.dtype == found.M2.dtype == np.float64
        np.testing.assert_allclose(found.mean, mu, rtol=20 * EPS)
        np.testing.assert_allclose(found.M2, M2, rtol=100 * EPS)


def test_moments_merge_in_any_order_and_grouping() -> None:
    for dtype in (np.float64, np.complex128):
        X = 100 + values((60, 4), dtype, density=1.0)
        parts = [of_block(X[lo:hi]) for lo, hi in ((0, 1), (1, 20), (20, 20), (20, 59), (59, 60)) if hi > lo]
        left = parts[0].merge(parts[1]).merge(parts[2]).merge(parts[3])
        right = parts[3].merge(parts[2].merge(parts[1].merge(parts[0])))
        whole = of_block(X)
        for found in (left, right):
            assert found.count == whole.count == 60
            np.testing.assert_allclose(found.mean, X.mean(axis=0), rtol=20 * EPS)
            np.testing.assert_allclose(found.M2, (np.abs(X - X.mean(axis=0)) ** 2).sum(axis=0), rtol=100 * EPS)


def test_merging_nothing_changes_nothing() -> None:
    empty = Moments(0.0, np.zeros(3), np.zeros(3))
    some = of_block(values((5, 3)))
    for merged in (empty.merge(some), some.merge(empty)):
        np.testing.assert_array_equal(merged.mean, some.mean)
        np.testing.assert_array_equal(merged.M2, some.M2)
    assert empty.merge(empty).count == 0


def test_merging_with_unknown_second_moments_leaves_them_unknown() -> None:
    some = of_block(values((5, 3)))
    merged = some.merge(Moments(5.0, some.mean, None))
    assert merged.M2 is None
    assert merged.count == 10
    with pytest.raises(ValueError, match="cannot compute variances"):
        merged.variance()


def test_variance_divides_by_the_count_less_ddof() -> None:
    X = values((20, 3))
    for ddof in (0, 1):
        np.testing.assert_allclose(of_block(X).variance(ddof), X.var(axis=0, ddof=ddof), rtol=100 * EPS)
    np.testing.assert_array_equal(of_block(X).variance(), of_block(X).variance(1))


@pytest.mark.parametrize("make", [np.asarray, np.asfortranarray, compressed(), compressed(sparse.csc_array)])
@pytest.mark.parametrize("blocks", ["one", "many"])
def test_integer_weights_equal_repeated_rows(make, blocks: str, request) -> None:
    if blocks == "many":
        request.getfixturevalue("small_blocks")
    for shape in ((30, 6), (6, 30)):
        X = 5 * (values(shape, density=0.7) != 0) + values(shape, density=0.7)
        w = np.random.default_rng(0).integers(0, 4, shape[0])
        w[:3] = 0  # whole blocks without weight
        found, repeated = ss.as_operator(make(X)).moments(w.astype(float)), np.repeat(X, w, axis=0)
        assert found.count == w.sum()
        np.testing.assert_allclose(found.mean, repeated.mean(axis=0), rtol=50 * EPS, atol=20 * EPS * 5)
        M2 = ((repeated - repeated.mean(axis=0)) ** 2).sum(axis=0)
        np.testing.assert_allclose(found.M2, M2, rtol=100 * EPS, atol=20 * EPS * 25)


@pytest.mark.parametrize("fmt", [sparse.csr_array, sparse.csc_array])
def test_absent_entries_count_as_zeros(fmt) -> None:
    X = np.zeros((5, 3))
    X[0, 0] = X[3, 2] = 10.0
    found = ss.as_operator(fmt(X)).moments()
    np.testing.assert_allclose(found.mean, [2, 0, 2], rtol=4 * EPS)
    np.testing.assert_allclose(found.M2, [80, 0, 80], rtol=8 * EPS)


def test_moments_are_one_read_of_the_data() -> None:
    A = Counting(values((20, 5)))
    mean = A.moments().mean
    assert A.reads == 1
    row_moments(A)
    assert A.reads == 2
    np.testing.assert_allclose(mean, A.A.moments().mean, atol=20 * EPS)


@pytest.mark.parametrize("density", [0.01, 0.3, 0.9, 0.98, 0.995, 1.0])
@pytest.mark.parametrize("fmt", [sparse.csr_array, sparse.csc_array])
def test_norm_of_the_centred_sparse_matrix_keeps_its_digits(fmt, density: float) -> None:
    D = np.where(np.random.default_rng(1).random((3000, 12)) < density, columns_at(1e3, (3000, 12)), 0)
    mu, M2 = exact(D)
    A = ss.centered(fmt(D))
    # A column with a stored fraction p up to 0.99 loses the factor p / (1 - p) to cancellation, a fuller one nothing.
    lost = 100 * EPS * 200 + 10 * (EPS * 1e3) ** 2
    np.testing.assert_allclose(A.column_squares(), M2, rtol=lost)
    assert A.frobenius_norm() == pytest.approx(np.sqrt(M2.sum()), rel=lost)
    rows = ((D.astype(np.longdouble) - mu) ** 2).sum(axis=1).astype(float)
    np.testing.assert_allclose(A.row_squares(), rows, rtol=lost * 50, atol=lost * M2.sum() / 3000)


@pytest.mark.parametrize("mean", [1.0, 1e4, 1e7])
def test_norm_of_a_centred_dense_matrix_keeps_its_digits(mean: float) -> None:
    X = columns_at(mean)
    _, M2 = exact(X)
    rel = 100 * EPS + 20 * (EPS * mean) ** 2
    for Y in (X, X.T.copy()):
        A = ss.centered(Y) if Y is X else ss.centered(X).H
        squares = A.column_squares() if Y is X else A.row_squares()
        np.testing.assert_allclose(squares, M2, rtol=rel)
        assert A.frobenius_norm() == pytest.approx(np.sqrt(M2.sum()), rel=rel)


def test_squares_of_a_shift_that_removes_nearly_everything_are_right() -> None:
    # Not full, yet the shift hits the stored entries and is nearly 0 elsewhere: the difference of squares would cancel.
    u, v = (np.random.default_rng(0).random(60) < 0.5) * 1.0, (np.random.default_rng(1).random(40) < 0.5) * 1.0
    noise = 1e-7 * values((60, 40), seed=2, density=1.0)
    D = np.outer(u, v) * (1 + noise)
    E = D - np.outer(u, v)
    for fmt in (sparse.csr_array, sparse.csc_array):
        A = ss.as_operator(fmt(D)) - ss.LowRank(u, v)
        tol = 10 * EPS / 1e-7  # the entries of D themselves are rounded
        kept_columns, kept_rows = v > 0, u > 0
        np.testing.assert_allclose(A.column_squares()[kept_columns], (E**2).sum(axis=0)[kept_columns], rtol=tol)
        np.testing.assert_allclose(A.row_squares()[kept_rows], (E**2).sum(axis=1)[kept_rows], rtol=tol)
        assert A.frobenius_norm() == pytest.approx(np.linalg.norm(E), rel=tol)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("fmt", [sparse.csr_array, sparse.csc_array])
def test_squares_of_a_complex_shift_are_those_of_the_dense_matrix(fmt, rank: int) -> None:
    D = values((30, 14), density=0.3)
    S = ss.LowRank(panel(30, rank, np.complex128, 1), panel(14, rank, np.complex128, 2))
    E = D - S.L @ S.R.conj().T
    A = ss.as_operator(fmt(D)) - S
    w, u = np.arange(30.0), np.arange(14.0)
    tol = 100 * EPS * np.linalg.norm(E) ** 2
    assert_close(A.column_squares(), (np.abs(E) ** 2).sum(axis=0), tol)
    assert_close(A.row_squares(), (np.abs(E) ** 2).sum(axis=1), tol)
    assert_close(A.column_squares(w), w @ np.abs(E) ** 2, 30 * tol)
    assert_close(A.row_squares(u), np.abs(E) ** 2 @ u, 14 * tol)
    assert A.frobenius_norm() == pytest.approx(np.linalg.norm(E), rel=100 * EPS)


def test_operators_without_cheap_squares_say_so() -> None:
    A = Counting(values((8, 3)))
    assert A.column_squares() is A.row_squares() is A.frobenius_norm() is None
    assert ss.operators.Scaled(A, cols=np.ones(3)).frobenius_norm() is None
    assert (A - ss.LowRank(np.ones(8), np.ones(3))).H.frobenius_norm() is None
    assert A.reads == 0


def test_row_squares_are_accurate_where_terms_of_the_shift_cancel() -> None:
    X, rng = sparse.random_array((30, 20), density=0.2, rng=0, format="csr"), np.random.default_rng(0)
    a, b = 1e8 * rng.standard_normal(20), rng.standard_normal(20)
    R = np.stack([a, b - a], axis=1)
    expected = np.sum((X.toarray() - R.sum(axis=1)) ** 2, axis=1)
    found = (ss.as_operator(X) - ss.LowRank(np.ones((30, 2)), R)).row_squares()
    np.testing.assert_allclose(found, expected, rtol=1e-12)
