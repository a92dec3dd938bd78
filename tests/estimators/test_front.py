"""svd: what its arguments mean."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.preprocessing import StandardScaler

import shiftsvd as ss
from shiftsvd.solvers.auto import BY_NAME, solver_named
from shiftsvd.solvers.factors import components_for
from tests.support.closeness import assert_close
from tests.support.containers import CONTAINERS, FEW, content
from tests.support.matrices import EPS, Array, in_double, values, with_values
from tests.support.operators import panel

COMPLETE = ss.Exact()


def dense_svd(E: Array, k: int) -> Array:
    return np.linalg.svd(E, compute_uv=False)[:k]


def close(F: ss.SVDResult, E: Array, size: float) -> None:
    eps = float(np.finfo(F.dtype).eps)
    assert_close(F.S, dense_svd(E, len(F.S)), 50 * eps * size)
    part = (F.U * F.S) @ F.Vh
    assert np.linalg.norm(E - part) <= np.linalg.norm(np.linalg.svd(E)[1][len(F.S) :]) * (1 + 1e-6) + 100 * eps * size


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", FEW)
def test_every_kind_of_shift_is_subtracted(name: str) -> None:
    for shape in ((40, 12), (12, 40)):
        D = values(shape, CONTAINERS[name].dtype, 2)
        X, E = CONTAINERS[name].make(D), in_double(D)
        before = content(X)
        L, R = panel(shape[0], 2, E.dtype), panel(shape[1], 2, E.dtype)
        mu = panel(shape[1], 1, E.dtype)[:, 0]
        size = np.linalg.norm(E) + np.linalg.norm(L) * np.linalg.norm(R) + np.linalg.norm(mu) * np.sqrt(shape[0])
        for shift, S in (
            (None, 0),
            ("mean", E.mean(axis=0)),
            (mu, mu),
            (mu.tolist(), mu),
            (np.zeros(shape[1], int), 0),
            (ss.LowRank(L, R), L @ R.conj().T),
            (ss.LowRank(R, L).H, L @ R.conj().T),
            (ss.as_operator(panel(*shape)), panel(*shape)),
        ):
            close(ss.svd(X, 4, shift=shift, solver="exact"), E - S, size)
        assert content(X) == before


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "name", ["array float64", "array float32", "csr float64", "csc float64", "fortran", "duck float64"]
)
def test_every_kind_of_scale_divides_the_columns(name: str) -> None:
    for shape in ((40, 12), (12, 40)):
        D = (1 + values(shape, seed=2)) * (values(shape, seed=4, density=0.8) != 0) * np.geomspace(1, 100, shape[1])
        D = D.astype(CONTAINERS[name].dtype)
        X, E = CONTAINERS[name].make(D), in_double(D)
        deviation, divisor = E.std(axis=0), np.linspace(1, 3, shape[1])
        cases = [(None, np.ones(shape[1])), (False, np.ones(shape[1])), (divisor, divisor), (divisor.tolist(), divisor)]
        if name != "duck float64":
            cases += [("std", deviation), (True, deviation), ("pareto", np.sqrt(deviation))]
        for scale, d in cases:
            for shift, mu in (("mean", E.mean(axis=0)), (None, 0.0)):
                F = ss.svd(X, 4, shift=shift, scale=scale, solver="exact")
                size = np.linalg.norm(E / d) + np.linalg.norm(mu / d) * np.sqrt(shape[0])
                close(F, (E - mu) / d, size)


def test_standard_scale_is_that_of_scikit_learn() -> None:
    X = 5 + values((60, 8)) * np.geomspace(1, 1e3, 8)
    want = dense_svd(StandardScaler().fit_transform(X), 8)
    assert_close(ss.svd(X, 8, shift="mean", scale="std").S, want, 100 * EPS * np.linalg.norm(want))


@pytest.mark.parametrize("fmt", [np.asarray, sparse.csr_array, sparse.csc_array])
def test_columns_without_variance_are_not_scaled_and_counted(fmt) -> None:
    X = values((30, 6))
    X[:, 1], X[:, 4] = 0.1, 0
    scale = np.where(np.isin(np.arange(6), [1, 4]), 1, X.std(axis=0))
    with pytest.warns(UserWarning, match="2 columns are constant and were not scaled"):
        F = ss.svd(fmt(X), 3, shift="mean", scale="std")
    assert_close(F.S, dense_svd((X - X.mean(axis=0)) / scale, 3), 100 * EPS * np.linalg.norm(X / scale))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ss.svd(fmt(X), 3, shift="mean")
        ss.svd(fmt(values((30, 6))), 3, scale="std")


def test_second_moments_that_cannot_be_had_are_asked_for_as_a_vector() -> None:
    with pytest.raises(ValueError, match="scale as a vector"):
        ss.svd(CONTAINERS["duck float64"].make(values((9, 1001))), 2, scale="std")


# --- k as a share of the variance -------------------------------------------------------------------------------


def test_share_picks_the_fewest_components_that_exceed_it() -> None:
    S = np.array([4.0, 3.0, 2.0, 1.0, 1.0])
    shares = np.cumsum(S**2) / np.sum(S**2)
    for shape in ((40, 5), (5, 40)):
        X = with_values(shape, S)
        for k in range(5):
            for share, expected in ((shares[k] - 1e-6, k + 1), (shares[k] + 1e-6, k + 2)):
                if 0 < share < 1 and expected <= 5:
                    for make in (np.asarray, sparse.csr_array, sparse.csc_array):
                        F = ss.svd(make(X), float(share))
                        assert len(F.S) == F.U.shape[1] == F.Vh.shape[0] == expected
                        assert_close(F.S, S[:expected], 100 * EPS * 4)
                        assert F.info.rank == expected


def test_share_is_exceeded_and_not_only_reached() -> None:
    S = np.array([2.0, 1.0, 1.0, 1.0, 1.0])  # the first holds exactly a half
    assert components_for(S**2, 0.5) == 2
    assert components_for(S**2, 0.5 - 1e-12) == 1
    assert components_for(S**2, 0.999) == 5
    assert components_for(S**2, 1 - 1e-16) == 5
    assert components_for(S**2, 1e-9) == 1
    assert components_for(np.zeros(3), 0.9) == 1


def test_share_counts_the_shifted_and_scaled_matrix() -> None:
    X = 1000 + with_values((60, 6), np.array([5.0, 4, 3, 2, 1, 0.5]))
    assert len(ss.svd(X, 0.99).S) == 1
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    S = dense_svd(Z, 6)
    expected = components_for(S**2, 0.8)
    assert 1 < expected < 6
    assert len(ss.svd(X, 0.8, shift="mean", scale="std").S) == expected
    assert len(ss.svd(X, np.float32(0.8), shift="mean", scale="std").S) == expected


def test_truncated_share_keeps_the_whole_norm_in_its_error() -> None:
    X = with_values((60, 6), np.array([5.0, 4, 3, 2, 1, 0.5]))
    F = ss.svd(X, 0.8)
    assert F.info.frobenius_error == pytest.approx(np.linalg.norm(X - (F.U * F.S) @ F.Vh), rel=1e-6)


@pytest.mark.parametrize("solver", ["randomized", "shifted-randomized", ss.RandomizedSVD()])
def test_share_takes_an_exact_solution(solver) -> None:
    with pytest.raises(ValueError, match='"lanczos", "gram" or "exact"'):
        ss.svd(values((9, 4)), 0.5, solver=solver)
    assert len(ss.svd(values((9, 4)), 0.5, solver=ss.Exact()).S) >= 1


# --- solver and tol ---------------------------------------------------------------------------------------------


def test_solvers_are_found_by_name() -> None:
    X = values((60, 20))
    for name, solver in (
        ("exact", ss.Exact()),
        ("randomized", ss.RandomizedSVD()),
        ("shifted-randomized", ss.ShiftedRandomizedSVD()),
        ("auto", ss.Exact()),
    ):
        by_name, direct = (ss.svd(X, 3, shift="mean", solver=s, rng=2) for s in (name, solver))
        assert np.array_equal(by_name.S, direct.S)
        assert by_name.info.solver == repr(solver)


def test_a_solver_that_certifies_itself_is_given_the_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    class Newer(ss.Gram):
        """A solver with a tolerance that nothing lists but the table of names."""

    monkeypatch.setitem(BY_NAME, "newer", Newer)
    for name in ("lanczos", "gram", "newer"):
        assert solver_named(name, ss.as_operator(np.eye(9)), 2, 1e-2).tol == 1e-2
    assert solver_named("exact", ss.as_operator(np.eye(9)), 2, 1e-2) == ss.Exact()


def test_unknown_solvers_are_refused_with_the_names_there_are() -> None:
    with pytest.raises(ValueError, match=r"auto, lanczos, gram, exact, randomized, shifted-randomized.*'arnoldi'"):
        ss.svd(values((9, 4)), 2, solver="arnoldi")


def test_tol_beside_a_solver_object_is_an_error_unless_left_out() -> None:
    X = values((9, 4))
    ss.svd(X, 2, solver=ss.Exact())
    for tol in (1e-4, 1e-6, 0.0):
        with pytest.raises(ValueError, match="tol applies to solvers given by name"):
            ss.svd(X, 2, solver=ss.Exact(), tol=tol)
        ss.svd(X, 2, solver="exact", tol=tol)
        ss.svd(X, 2, tol=tol)
    for tol in (-1e-9, float("nan")):
        with pytest.raises(ValueError, match="tol must be at least 0"):
            ss.svd(X, 2, tol=tol)


@pytest.mark.filterwarnings("ignore:not certified")
def test_certify_reports_for_solvers_by_name_and_object() -> None:
    X = with_values((60, 20), 0.5 ** np.arange(20.0))
    for solver in ("auto", "exact", "randomized", ss.RandomizedSVD(n_iter=2)):
        info = ss.svd(X, 3, solver=solver, rng=0, certify=True).info
        assert info.residuals.shape == info.value_errors.shape == (3,)
        assert info.converged is True
    assert ss.svd(X, 3, rng=0).info.converged is None
    slow = with_values((200, 100), np.arange(1, 101.0) ** -0.1)
    assert ss.svd(slow, 3, solver=ss.RandomizedSVD(n_iter=0), rng=0, certify=True).info.converged is False


def test_auto_solver_sees_the_shifted_operator_and_the_caller_gets_its_factors() -> None:
    X = 7 + values((60, 20))
    F = ss.svd(X, 3, shift="mean")
    assert F.info.solver == "Exact()" or F.info.solver.startswith("Exact(")
    assert F.shape == (60, 20)
    assert ss.spectral_norm(ss.centered(X) - F) == pytest.approx(dense_svd(X - X.mean(axis=0), 4)[3], rel=1e-6)


def test_memory_limit_refuses_what_would_pass_it() -> None:
    X = values((3000, 30))
    with pytest.raises(ValueError, match=r"needs about .* MB, more than the limit of 10 kB"):
        ss.svd(X, 20, memory_limit="10kB")
    for limit in ("4GB", 4 * 10**9, "4 GB", "4000MB"):
        assert len(ss.svd(X, 2, memory_limit=limit).S) == 2


def test_generators_and_seeds_are_taken() -> None:
    X = values((60, 30))
    solver = ss.RandomizedSVD(n_iter=0)
    assert np.array_equal(
        ss.svd(X, 3, solver=solver, rng=1).S, ss.svd(X, 3, solver=solver, rng=np.random.default_rng(1)).S
    )
    assert not np.array_equal(ss.svd(X, 3, solver=solver).S, ss.svd(X, 3, solver=solver).S)


def test_complex_data_and_shifts_work() -> None:
    for shape in ((40, 12), (12, 40)):
        D = values(shape, np.complex128)
        mu = panel(shape[1], 1, np.complex128)[:, 0]
        for make in (np.asarray, sparse.csr_array, sparse.csc_array, np.asfortranarray):
            for solver in ("exact", ss.RandomizedSVD(n_iter=3)):
                F = ss.svd(make(D), 12, shift=mu, solver=solver, rng=0)
                assert F.S.dtype == np.float64
                assert_close((F.U * F.S) @ F.Vh, D - mu, 1e3 * EPS * np.linalg.norm(D - mu))


def test_real_data_with_a_complex_shift_have_complex_vectors() -> None:
    D, mu = values((40, 12)), panel(12, 1, np.complex128)[:, 0]
    F = ss.svd(D, 12, shift=mu)
    assert F.U.dtype == F.Vh.dtype == np.complex128
    assert_close((F.U * F.S) @ F.Vh, D - mu, 1e3 * EPS * np.linalg.norm(D - mu))


def test_list_of_lists_and_frames_are_matrices() -> None:
    D = values((9, 4))
    want = ss.svd(D, 4).S
    for name in ("list", "objects", "pandas", "pandas sparse", "polars", "linear operator float64"):
        assert_close(ss.svd(CONTAINERS[name].make(D), 4).S, want, 50 * EPS * np.linalg.norm(D))


def test_a_warning_about_constant_columns_has_their_names_also_after_a_selection() -> None:
    X = values((30, 6))
    X[:, [1, 4]] = 2
    frame = pd.DataFrame(X, columns=[f"gene {j}" for j in range(6)])
    with pytest.warns(UserWarning, match=r"^2 columns are constant and were not scaled: 'gene 1', 'gene 4'\.$"):
        ss.PCA(2, scale=True).fit(frame)
    with pytest.warns(UserWarning, match=r"^Column 'gene 4' is constant and was not scaled\.$"):
        ss.PCA(2, scale=True, preprocess=ss.Select(np.arange(6) > 2)).fit(frame)
    with pytest.warns(UserWarning, match=r"^Column 1 \(counted from 0\) is constant and was not scaled\.$"):
        ss.PCA(2, scale=True).fit(X[:, :4])
