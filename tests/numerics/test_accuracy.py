"""Error norms, residuals and bounds against what they are defined as."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import shiftsvd as ss
from tests.support.closeness import assert_close
from tests.support.containers import CONTAINERS, FEW
from tests.support.matrices import EPS, decaying, in_double, values, with_values
from tests.support.operators import Counting, panel


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", FEW)
def test_spectral_norm_is_the_largest_singular_value_from_below(name: str) -> None:
    for shape in ((40, 15), (15, 40), (1, 9), (9, 1), (1, 1)):
        D = values(shape, CONTAINERS[name].dtype, 3, 1.0)
        A = ss.as_operator(CONTAINERS[name].make(D))
        exact = np.linalg.norm(in_double(D), 2)
        found = ss.spectral_norm(CONTAINERS[name].make(D))
        assert isinstance(found, float)
        assert found <= exact * (1 + 20 * A.costs.eps)
        assert found >= exact * (1 - 1e-6 - 20 * A.costs.eps)


def test_spectral_norm_of_nearly_equal_values_is_right() -> None:
    for S in (np.ones(30), np.linspace(1, 0.99, 30), np.r_[1, 1, np.zeros(28)]):
        for seed in range(5):
            D = with_values((50, 30), S, seed=seed)
            assert 1 - 1e-4 <= ss.spectral_norm(D, rng=seed) <= 1 + 50 * EPS


def test_spectral_norm_of_nothing_is_zero() -> None:
    assert ss.spectral_norm(np.zeros((5, 3))) == 0
    assert ss.spectral_norm(CONTAINERS["csr float64"].make(np.zeros((5, 3)))) == 0


def test_spectral_norm_of_a_difference_does_not_cancel() -> None:
    D = decaying((60, 20), 0.3)
    A = ss.as_operator(D)
    for k in (1, 4, 8):
        F = ss.Exact()(A, k, 0)
        assert ss.spectral_norm(A - F) == pytest.approx(0.3**k, rel=1e-6 + 100 * EPS / 0.3**k)


def test_spectral_norm_settles_in_few_steps_and_says_how_many_at_most() -> None:
    A = Counting(decaying((60, 40), 0.5))
    ss.spectral_norm(A)
    assert A.reads < 15
    A.calls.clear()
    ss.spectral_norm(A, max_iter=3)
    assert A.reads == 3


def test_spectral_norm_follows_its_seed_alone() -> None:
    D = values((40, 30), density=1.0)
    assert ss.spectral_norm(D, rng=0) == ss.spectral_norm(D, rng=0)
    assert ss.spectral_norm(D, max_iter=2, rng=1) != ss.spectral_norm(D, max_iter=2, rng=2)
    assert ss.spectral_norm(D, max_iter=2, rng=np.random.default_rng(1)) == ss.spectral_norm(D, max_iter=2, rng=1)


@pytest.mark.parametrize("name", FEW)
def test_residuals_are_both_halves_of_the_definition(name: str) -> None:
    for shape in ((40, 15), (15, 40)):
        D = values(shape, CONTAINERS[name].dtype, 1)
        E = in_double(D)
        A = ss.as_operator(CONTAINERS[name].make(D))
        F = ss.RandomizedSVD(n_iter=1, n_oversamples=1)(A, 4, 0)
        U, S, V = F.U, F.S, F.Vh.conj().T
        right, left = np.linalg.norm(E @ V - U * S, axis=0), np.linalg.norm(E.conj().T @ U - V * S, axis=0)
        want = np.sqrt((right**2 + left**2) / 2) / S[0]
        assert want.max() > 1e-3
        assert_close(ss.residuals(CONTAINERS[name].make(D), F), want, 100 * max(A.costs.eps, np.finfo(F.dtype).eps))
        exact = np.linalg.svd(E, compute_uv=False)
        for value, residual in zip(S, want, strict=True):
            assert np.abs(exact - value).min() <= np.sqrt(2) * residual * S[0]


def test_residuals_of_an_exact_result_are_rounding() -> None:
    for shape in ((40, 15), (15, 40)):
        A = ss.centered(values(shape))
        assert ss.residuals(A, ss.Exact()(A, 5, 0)).max() <= 100 * EPS


def test_residuals_see_a_swapped_sign_and_a_wrong_vector() -> None:
    A = ss.as_operator(decaying((40, 15), 0.6))
    F = ss.Exact()(A, 3, 0)
    flipped = ss.SVDResult(F.U * [1, -1, 1], F.S, F.Vh, F.info)
    assert_close(ss.residuals(A, flipped), [0, 2 * 0.6, 0], 100 * EPS)
    shuffled = ss.SVDResult(F.U[:, [0, 2, 1]], F.S, F.Vh, F.info)
    assert np.all(ss.residuals(A, shuffled)[1:] > 0.3)


@pytest.mark.parametrize("name", ["array float64", "csr float64", "csc complex64", "array complex128"])
def test_frobenius_error_is_exact_without_a_floor(name: str) -> None:
    D = with_values((40, 15), 0.1 ** np.arange(15.0), CONTAINERS[name].dtype)
    X = CONTAINERS[name].make(D)
    for k in (1, 3, 5):
        F = ss.RandomizedSVD(n_iter=2)(ss.as_operator(X), k, 0)
        want = np.linalg.norm(in_double(D) - (F.U.astype(complex) * F.S) @ F.Vh.astype(complex))
        assert ss.frobenius_error(X, F) == pytest.approx(want, abs=50 * float(np.finfo(F.dtype).eps))
    assert ss.frobenius_error(Counting(values((6, 4))), ss.Exact()(Counting(values((6, 4))), 2, 0)) is None


def test_frobenius_error_and_that_of_info_have_no_floor() -> None:
    D = with_values((40, 15), np.r_[1, np.full(14, 1e-12)])
    F = ss.Exact()(ss.as_operator(D), 1, 0)
    assert F.info.frobenius_error == pytest.approx(1e-12 * np.sqrt(14), rel=1e-2)
    assert ss.frobenius_error(D, F) == pytest.approx(1e-12 * np.sqrt(14), rel=1e-2)


# --- bounds ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 9), (9, 3), (30, 50)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("solver", ["lanczos", "gram", "randomized"])
def test_rows_of_weight_zero_do_not_raise_the_frobenius_error(shape, dtype, solver) -> None:
    rng = np.random.default_rng(0)
    X = (rng.standard_normal(shape) + 1e3).astype(dtype)
    weights = rng.integers(0, 2, len(X))
    weights[:3] = 1, 0, 2
    F = ss.svd(X, int(min(np.count_nonzero(weights), shape[1])), sample_weight=weights, solver=solver, rng=0)
    B = np.sqrt(weights)[:, None] * X.astype(np.float64)
    error = np.linalg.norm(B - (F.U * F.S) @ F.Vh)
    assert F.info.frobenius_error == pytest.approx(error, rel=0.01, abs=10 * np.finfo(dtype).eps * np.linalg.norm(B))


@pytest.mark.parametrize("columns", [1, 2])
def test_sparse_residuals_whose_terms_cancel_have_no_floor(columns: int) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((90, columns)) * (rng.random((90, columns)) < 0.05)
        F = ss.svd(csr_array(X), columns, shift="mean", solver="gram", rng=0)
        assert F.info.frobenius_error <= 100 * EPS * np.linalg.norm(X)


def test_published_bound_has_the_values_computed_by_hand() -> None:
    S = np.r_[np.full(10, 9.0), 1.0, 0.5]
    # m = 100, k = 10: 1 + 4 sqrt(200 / 9) = 19.856..., its cube root, its fifth root (PAPER.md section 4)
    assert ss.halko_bound(S, 10, 0, (100, 1000)) == pytest.approx(1 + 4 * 200**0.5 / 3, rel=4 * EPS)
    assert ss.halko_bound(S, 10, 0, (1000, 100)) == pytest.approx(19.856, abs=5e-4)
    assert ss.halko_bound(S, 10, 1, (100, 1000)) == pytest.approx(2.708, abs=5e-4)
    assert ss.halko_bound(S, 10, 2, (100, 1000)) == pytest.approx(1.818, abs=5e-4)
    assert ss.halko_bound(S[8:], 2, 0, (100, 1000)) == pytest.approx(1 + 4 * 200**0.5, rel=4 * EPS)


def test_bound_with_oversamples_is_corollary_10_10() -> None:
    S = np.r_[np.full(10, 9.0), 2.0]
    # k = 10, p = 5, min(m, n) = 110: 1 + sqrt(10/4) + e sqrt(15)/5 sqrt(100)
    factor = 1 + 2.5**0.5 + 2.718281828459045 * 15**0.5 / 5 * 10
    assert ss.halko_bound(S, 10, 0, (110, 300), 5) == pytest.approx(2 * factor, rel=10 * EPS)
    assert ss.halko_bound(S, 10, 2, (110, 300), 5) == pytest.approx(2 * factor ** (1 / 5), rel=10 * EPS)


def test_truncation_adds_the_next_singular_value() -> None:
    S = np.geomspace(8, 1, 12)
    for p in (None, 4):
        for q in (0, 3):
            whole = ss.halko_bound(S, 5, q, (50, 60), p)
            assert ss.halko_bound(S, 5, q, (50, 60), p, truncated=True) == pytest.approx(whole + S[5], rel=4 * EPS)


@pytest.mark.parametrize(
    ("k", "q", "p", "message"),
    [
        (1, 0, None, "k must be in 2..4"),
        (5, 0, None, "k must be in 2..4"),
        (2, -1, None, "n_iter >= 0"),
        (2, 0, 1, "n_oversamples >= 2"),
    ],
)
def test_settings_outside_the_theorems_are_refused(k, q, p, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ss.halko_bound(np.ones(5), k, q, (10, 10), p)


@pytest.mark.long
@pytest.mark.parametrize("q", [0, 1, 2])
@pytest.mark.parametrize("p", [None, 5])
def test_error_of_the_exact_sample_is_under_the_bound(q: int, p: int | None) -> None:
    k = 6
    for spectrum in (1 / np.arange(1.0, 41), 0.8 ** np.arange(40.0), np.arange(1.0, 41) ** -0.25, np.ones(40)):
        for shape in ((40, 90), (90, 40)):
            D = with_values(shape, spectrum) + 3
            E = D - D.mean(axis=0)
            S = np.linalg.svd(E, compute_uv=False)
            ell = 2 * k if p is None else k + p
            for seed in range(2):
                A = ss.centered(D)
                whole = ss.RandomizedSVD(n_iter=q, n_oversamples=0)(A, ell, seed)
                assert np.linalg.norm(E - (whole.U * whole.S) @ whole.Vh, 2) <= ss.halko_bound(S, k, q, shape, p)
                F = ss.RandomizedSVD(n_iter=q, n_oversamples=ell - k)(A, k, seed)
                error = np.linalg.norm(E - (F.U * F.S) @ F.Vh, 2)
                assert S[k] * (1 - 100 * EPS) <= error <= ss.halko_bound(S, k, q, shape, p, truncated=True)


SPECTRA = {
    "geometric": 0.6 ** np.arange(50.0),
    "steep": 0.2 ** np.arange(20.0),
    "harmonic": 1 / np.arange(1.0, 51),
    "step": np.r_[np.linspace(1, 0.8, 5), np.full(45, 0.01)],
}
CERTIFIED = (
    ss.RandomizedSVD(n_iter=0, n_oversamples=5, certify=True),
    ss.RandomizedSVD(n_iter=1, n_oversamples=5, certify=True),
    ss.RandomizedSVD(n_iter=1, n_oversamples=5, finish="last", certify=True),
    ss.RandomizedSVD(n_iter=3, certify=True),
    ss.ShiftedRandomizedSVD(n_iter=1, certify=True),
    ss.Exact(certify=True),
)


@pytest.mark.filterwarnings("ignore:not certified")
@pytest.mark.parametrize("shape", [(200, 50), (50, 200)])
@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("solver", CERTIFIED, ids=repr)
def test_value_errors_bound_the_true_error(solver, spectrum: str, shape) -> None:
    S = SPECTRA[spectrum]
    for seed in range(4):
        D = with_values(shape, S, seed=seed)
        F = solver(ss.as_operator(D), 5, seed)
        error = np.abs(F.S - S[:5])
        # Where every value has its exact partner nearby, as the bound requires:
        if np.all(error < np.abs(np.diff(S[:6])) / 2):
            assert np.all(error <= F.info.value_errors * F.S + 100 * EPS * S[0])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:not certified")
def test_converged_runs_are_within_tol() -> None:
    for tol in (1e-2, 1e-4, 1e-8):
        n_converged = 0
        for spectrum in ("geometric", "harmonic", "step"):
            for q in (0, 1, 2, 4, 8):
                for shape in ((200, 50), (50, 200)):
                    F = ss.RandomizedSVD(n_iter=q, n_oversamples=5, certify=True)(
                        ss.as_operator(with_values(shape, SPECTRA[spectrum], seed=q)), 5, q, tol=tol
                    )
                    if F.info.converged:
                        n_converged += 1
                        S = SPECTRA[spectrum][:5]
                        assert np.all(np.abs(F.S - S) <= tol * F.S + 100 * EPS)
        assert n_converged >= 5


def test_residuals_take_the_shift_into_account() -> None:
    D = 10 + values((40, 15))
    F = ss.Exact()(ss.centered(D), 3, 0)
    assert ss.residuals(ss.centered(D), F).max() <= 100 * EPS * 10
    assert ss.residuals(D, F).max() > 0.1
    shifted = ss.as_operator(D) - ss.LowRank(panel(40, 1), panel(15, 1))
    assert ss.residuals(shifted, ss.Exact()(shifted, 3, 0)).max() <= 100 * EPS
