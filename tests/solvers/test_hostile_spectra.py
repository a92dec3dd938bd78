"""What hostile spectra and means have shown: equal values, shares of them, and rounding at the level of a shift."""

from itertools import product

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.solvers.direct import _eigenpairs

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # what is looked at is the account


def of_values(m: int, d: np.ndarray, seed: int = 0) -> np.ndarray:
    """m x n with singular values d."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((size, len(d))))[0] for size in (m, len(d)))
    return (left * d) @ right.T


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("levels", [[1.0], [2.0, 1.0], [3.0, 1.0, 1.0, 1.0]])
def test_few_eigenvalues_are_all_found_where_many_are_equal(levels: list[float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(60, 260))
    d = np.sort(np.resize(levels, n))[::-1]
    X = of_values(n + int(rng.integers(1, 300)), d, seed)
    for count in (1, 2, 5, int(0.14 * n)):
        theta, Z, _ = _eigenpairs(X.T @ X, count, 1e-6, np.random.default_rng(0))
        assert len(theta) >= count
        assert Z.shape == (n, len(theta))
        np.testing.assert_allclose(theta[:count], d[:count] ** 2, rtol=1e-12)
        F = ss.svd(X, count, solver="gram", rng=0)
        np.testing.assert_allclose(F.S, d[:count], rtol=1e-12)


def test_orthonormal_columns_have_as_many_values_as_are_asked_for() -> None:
    rng = np.random.default_rng(77)
    X = np.linalg.qr(rng.standard_normal((400, 100)))[0]
    for k in (1, 2, 5, 9):
        np.testing.assert_allclose(ss.svd(X, k, solver="gram", rng=0).S, np.ones(k), rtol=1e-13)


@pytest.mark.parametrize(
    "d",
    [
        np.ones(240),
        1 + 1e-9 * np.random.default_rng(0).random(225),
        np.repeat([2.0, 1.0], 112),
        np.repeat([3.0, 1.0], [15, 225]),
        np.repeat(np.arange(8.0, 0, -1), 30),
    ],
    ids=["equal", "within 1e-9", "two levels", "a few above", "eight levels"],
)
def test_a_share_of_the_variance_is_reached_whatever_the_values(d: np.ndarray) -> None:
    X, d = of_values(340, d), np.sort(d)[::-1]
    for share, solver in product((0.3, 0.6, 0.9), ("lanczos", "auto")):
        F = ss.svd(X, share, solver=solver, rng=0)
        assert F.info.converged
        needed = int(np.searchsorted(np.cumsum(d**2) / np.sum(d**2), share, side="right")) + 1
        assert abs(len(F.S) - needed) <= 1  # rounding decides where a sum is the share itself
        assert np.sum(F.S**2) >= (share - 1e-9) * np.sum(d**2)


def test_a_share_of_sparse_classes_is_reached() -> None:
    rows = 4000
    X = sparse.csr_array((np.ones(rows), (np.arange(rows), np.arange(rows) % 500)), shape=(rows, 500))
    F = ss.svd(X, 0.5, solver="lanczos", rng=0)
    assert F.info.converged
    assert np.sum(F.S**2) >= 0.5 * rows - 1e-6


def test_a_share_that_the_passes_do_not_reach_has_not_converged() -> None:
    X = of_values(900, np.ones(640))
    F = ss.svd(X, 0.9, solver=ss.BlockLanczos(max_passes=12), rng=0)
    assert np.sum(F.S**2) < 0.9 * 640
    assert F.info.converged is False


@pytest.mark.long
@pytest.mark.parametrize("solver", ["gram", "lanczos"])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.csc_array])
@pytest.mark.parametrize("shift", ["mean", "both"])
@pytest.mark.parametrize("shape", [(300, 310), (310, 300)])
@pytest.mark.parametrize("mean", [1e4, 1e8])
def test_bounds_know_of_the_rounding_of_large_means_in_every_layout(
    mean: float, shape: tuple[int, int], shift: str, kind: object, solver: str
) -> None:
    rng = np.random.default_rng(0)
    X = mean * rng.random(shape[1]) + rng.standard_normal(shape)
    exact = X.astype(np.longdouble)
    exact = exact - exact.mean(0)
    exact = exact - exact.mean(1, keepdims=True) if shift == "both" else exact
    u, s, _ = np.linalg.svd(exact.astype(np.float64), full_matrices=False)
    F = ss.svd(kind(X), 10, shift=shift, solver=solver, tol=1e-12, rng=0)  # type: ignore[operator]
    assert np.all(np.abs(F.S - s[:10]) <= F.info.value_errors * s[:10])
    leaning = np.linalg.norm(F.U - u[:, :10] * np.sum(u[:, :10] * F.U, axis=0), axis=0)
    assert np.all(leaning <= F.info.vector_errors)


@pytest.mark.parametrize("mean", [1e2, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("solver", ["gram", "lanczos", "exact", "randomized"])
def test_bounds_of_vectors_know_of_the_rounding_of_means(solver: str, mean: float) -> None:
    rng = np.random.default_rng(0)
    X = mean * (1 + rng.random(50)) + rng.standard_normal((200, 50))
    X[:, 0] += 30 * rng.standard_normal(200)
    exact = X.astype(np.longdouble)
    u, _, vh = np.linalg.svd((exact - exact.mean(0)).astype(np.float64), full_matrices=False)
    F = ss.svd(X, 3, shift="mean", solver=solver, tol=1e-8, rng=0, certify=True)
    for true, found in ((u[:, 0], np.asarray(F.U)[:, 0]), (vh[0], np.asarray(F.Vh)[0])):
        assert np.linalg.norm(found - true * (true @ found)) <= F.info.vector_errors[0]


@pytest.mark.parametrize("solver", ["exact", "gram"])
def test_what_is_reported_as_zero_is_left_over(solver: str) -> None:
    X = of_values(372, 0.3 ** np.arange(88))
    F = ss.svd(X, 88, solver=solver, rng=0)
    true = np.linalg.norm(X - (F.U * F.S) @ F.Vh)
    assert F.info.rank < 88
    assert abs(F.info.frobenius_error - true) <= 1e-15 + 0.05 * true


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("first", [1.0, 1e2, 1e4])
def test_values_of_zero_beside_a_large_one_send_no_warning_of_numpy(first: float) -> None:
    X = of_values(80, np.r_[first, np.ones(5)]).astype(np.float32)
    F = ss.svd(np.hstack([X, np.zeros((80, 34), np.float32)]), 40, solver=ss.BlockLanczos(block_size=4), rng=0)
    np.testing.assert_allclose(F.S, np.r_[first, np.ones(5), np.zeros(34)], rtol=1e-3, atol=1e-6 * first)
