"""Data far from the origin: single precision keeps the digits that the stored values have."""

from functools import cache

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from tests.support.matrices import EPS, Array, with_values
from tests.support.operators import Minimal

SINGLE = 2e-6
RUNS = {
    "default": lambda X: ss.svd(X, 10, shift="mean", rng=0),
    "randomized": lambda X: ss.svd(X, 10, shift="mean", solver=ss.RandomizedSVD(), rng=0),
    "randomized auto name": lambda X: ss.svd(X, 10, shift="mean", solver="randomized", rng=0),
    "exact": lambda X: ss.svd(X, 10, shift="mean", solver=ss.Exact()),
    "paper": lambda X: ss.svd(X, 10, shift="mean", solver=ss.ShiftedRandomizedSVD(n_iter=3), rng=0),
}


@cache
def off_centre(shape: tuple[int, int], ratio: float) -> Array:
    """Columns of unit spread, with values falling like 1/j to j = 15, around means of +-`ratio`, float32."""
    m, n = shape
    S = np.r_[1 / np.arange(1.0, 16), np.full(min(m, n) - 15, 1e-4)]
    X = with_values(shape, S)
    X *= np.sqrt(m * n) / np.linalg.norm(X)
    X -= X.mean(axis=0)
    return (X + ratio * np.random.default_rng(0).choice([-1.0, 1.0], n)).astype(np.float32)


def exact_values(X: Array) -> Array:
    """Singular values of the stored numbers minus their means, the subtraction in extended precision."""
    E = X.astype(np.longdouble)
    return np.linalg.svd((E - E.mean(axis=0)).astype(np.float64), compute_uv=False)[:10]


def error(F: ss.SVDResult, want: Array) -> float:
    return float(np.abs(F.S / want - 1).max())


@pytest.mark.parametrize("ratio", [0.0, 1e3, 1e5])
@pytest.mark.parametrize("shape", [(1200, 40), (40, 1200), (90, 90)], ids=str)
@pytest.mark.parametrize("run", RUNS)
def test_dense_single_precision_keeps_ten_values(run: str, shape, ratio: float) -> None:
    X = off_centre(shape, ratio)
    want = exact_values(X)
    for Y in (X, np.asfortranarray(X)):
        assert error(RUNS[run](Y), want) <= SINGLE


@pytest.mark.usefixtures("small_blocks")
def test_dense_single_precision_keeps_ten_values_over_many_blocks() -> None:
    X = off_centre((200, 20), 1e5)
    for run in ("exact", "randomized"):
        assert error(RUNS[run](X), exact_values(X)) <= SINGLE


@cache
def nearly_full(m: int, n: int, fraction: float, ratio: float) -> Array:
    """Off-centre data of which a fraction of every column is stored; all directions are needed for the gaps."""
    D = off_centre((m, n), ratio).copy()
    rng = np.random.default_rng(1)
    for j in range(n):
        D[rng.permutation(m)[: round((1 - fraction) * m)], j] = 0
    return D


@pytest.mark.parametrize("fraction", [0.5, 0.9, 0.99, 0.999, 1.0])
@pytest.mark.parametrize("ratio", [1e3, 1e5])
@pytest.mark.parametrize("fmt", [sparse.csr_array, sparse.csc_array])
@pytest.mark.parametrize("run", ["default", "randomized", "exact"])
def test_sparse_single_precision_keeps_ten_values(run: str, fmt, ratio: float, fraction: float) -> None:
    for m, n in ((1000, 20), (20, 1000)):
        D = nearly_full(m, n, fraction, ratio)
        assert error(RUNS[run](fmt(D)), exact_values(D)) <= SINGLE


@pytest.mark.parametrize("run", ["default", "randomized", "exact"])
@pytest.mark.parametrize("fmt", [sparse.csr_array, sparse.csc_array])
def test_one_full_column_far_from_the_origin_spoils_no_other(run: str, fmt) -> None:
    rng = np.random.default_rng(0)
    for shape in ((2000, 20), (20, 2000)):
        D = (rng.standard_normal(shape) * (rng.random(shape) < 0.3)).astype(np.float32)
        D[:, 3] = 1e5 + rng.standard_normal(shape[0])
        assert error(RUNS[run](fmt(D)), exact_values(D)) <= SINGLE


def test_product_then_subtraction_would_lose_the_digits() -> None:
    # What the blocks are for: the plain algebra in single precision is off by orders at mean/sd = 1e5.
    X = off_centre((1200, 40), 1e5)

    class Single(Minimal):
        def matmat(self, V: Array) -> Array:
            return (self.D @ V.astype(np.float32)).astype(np.float64)

        def rmatmat(self, W: Array) -> Array:
            return (self.D.T @ W.astype(np.float32)).astype(np.float64)

    assert error(RUNS["randomized"](Single(X)), exact_values(X)) > 100 * SINGLE


# --- PAPER.md section 5, check 7 --------------------------------------------------------------------------------


@cache
def centred(seed: int) -> Array:
    """2000 samples of 100 features: values 1/j to j = 15, then 1e-4."""
    S = np.r_[1 / np.arange(1.0, 16), np.full(85, 1e-4)]
    X = with_values((2000, 100), S, seed=seed)
    return X - X.mean(axis=0)


@cache
def spectrum_of_section_5(ratio: float, dtype, seed: int) -> tuple[Array, Array]:
    """The data of PAPER.md section 5, ||mu|| being `ratio` times the spread, and their exact values."""
    X = centred(seed)
    mu = np.random.default_rng(seed).standard_normal(100)
    mu *= ratio * np.linalg.norm(X) / np.sqrt(2000) / np.linalg.norm(mu)
    X = (X + mu).astype(dtype)
    return X, exact_values(X)


def median_error(ratio: float, dtype, make, solver) -> float:
    errors = []
    for seed in range(3):
        X, want = spectrum_of_section_5(ratio, dtype, seed)
        errors.append(error(solver(ss.centered(make(X)), 10, seed), want))
    return float(np.median(errors))


SECTION_5 = ss.RandomizedSVD(n_oversamples=10, n_iter=2)


@pytest.mark.parametrize("ratio", [1.0, 1e2, 1e4, 1e6])
@pytest.mark.parametrize("make", [np.asarray, lambda X: X.T.copy().T], ids=["C", "Fortran"])
def test_single_precision_blocks_keep_six_digits_to_ratio_1e6(make, ratio: float) -> None:
    assert median_error(ratio, np.float32, make, SECTION_5) <= 1e-6


@pytest.mark.parametrize("ratio", [1.0, 1e2, 1e4, 1e6, 1e8])
def test_double_precision_blocks_keep_fourteen_digits_to_ratio_1e8(ratio: float) -> None:
    assert median_error(ratio, np.float64, np.asarray, SECTION_5) <= 1e-14


@pytest.mark.parametrize("ratio", [1.0, 1e2, 1e4, 1e6, 1e8])
def test_implicit_shift_in_double_errs_by_eps_times_the_ratio(ratio: float) -> None:
    assert median_error(ratio, np.float64, Minimal, SECTION_5) <= max(1e-14, EPS * ratio)


@pytest.mark.parametrize("ratio", [1e4, 1e8])
def test_full_sparse_data_in_double_keep_fourteen_digits(ratio: float) -> None:
    assert median_error(ratio, np.float64, sparse.csr_array, SECTION_5) <= 1e-14


@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csc_array])
def test_squares_keep_their_digits_where_a_shift_cancels_what_a_column_stores(make) -> None:
    # Neither a row nor a column is full, so that the shift stays beside the entries.
    rng = np.random.default_rng(0)
    L = (rng.permutation(200) % 2 == np.arange(2)[:, None]).T.astype(float)
    R = 1e7 * (np.arange(10) % 2 == np.arange(2)[:, None]).T
    X = (L @ R.T + rng.standard_normal((200, 10))) * (L @ R.T > 0)
    squares = (X - L @ R.T) ** 2
    for A in (ss.as_operator(make(X)) - ss.LowRank(L, R), (ss.as_operator(make(X.T)) - ss.LowRank(R, L)).H):
        np.testing.assert_allclose(A.column_squares(), squares.sum(axis=0), rtol=1e-12)
        np.testing.assert_allclose(A.row_squares(), squares.sum(axis=1), rtol=1e-12)
