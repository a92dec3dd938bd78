"""Bounds that fits publish, against exact values and vectors: where something was missed, where vectors are no Ritz
vectors, where rounding is all there is."""

import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

import shiftsvd as ss
from shiftsvd.result import SVDResult
from shiftsvd.solvers import reading
from shiftsvd.solvers.base import Factors, Solver
from tests.support.matrices import EPS

Array = NDArray[np.float64]
SINGLE = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class Given(Solver):
    """Returns the vectors it was given, with ``||A v||`` for values."""

    V: tuple[tuple[float, ...], ...] = ()

    def factorize(self, A, k, rng):
        V = np.array(self.V)
        AV = A.matmat(V)
        S = np.linalg.norm(AV, axis=0)
        order = np.argsort(-S)
        return Factors((AV / S)[:, order], S[order], V.T[order], 1, k)

    def expected_passes(self, A, k):
        return 1.0

    def peak_bytes(self, A, k):
        return 0


def certified(X: Array, V: Array) -> ss.SVDResult:
    """V with a certificate."""
    solver = Given(certify=True, V=tuple(map(tuple, V)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ss.svd(X, V.shape[1], solver=solver, rng=0)


def slack(S: Array) -> Array:
    """What the reference may be off by, relative to each value."""
    return 4 * EPS * np.sqrt(len(S)) * S[0] / S


def rotated(S: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """(X, left vectors, right vectors) with values S."""
    n = len(S)
    U, V = (np.linalg.qr(rng.standard_normal((side, n)))[0] for side in (n + 20, n))
    return (U * S) @ V.T, U, V


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("top", [1.003, 1.02, 1.2, 3.0])
def test_bounds_by_place_hold_for_vectors_that_lack_the_largest_value(seed: int, top: float) -> None:
    rng = np.random.default_rng(seed)
    S = np.append(top, np.linspace(1, 0.9 if seed % 2 else 0.5, 119))
    X, _, V = rotated(S, rng)
    k = int(rng.integers(1, 6))
    off = 10.0 ** rng.uniform(-1.8, -0.5)  # far enough not to pass for converged: missing 1.05 sigma_k is allowed then
    F = certified(X, np.linalg.qr(V[:, 1 : k + 1] + off * rng.standard_normal((120, k)) / 11)[0])
    error = np.abs(F.S - S[:k])
    assert not F.info.converged
    for by in (F.S, S[:k]):  # relative to either
        assert np.all(error <= (F.info.value_errors + slack(S)[:k]) * by)
    assert S[k] <= F.info.missed_below * (1 + 10 * EPS)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("seed", range(40))
def test_bounds_hold_for_orthonormal_vectors_that_are_no_ritz_vectors(seed: int) -> None:
    rng = np.random.default_rng([1, seed])
    k, n = int(rng.integers(2, 9)), int(rng.integers(20, 80))
    width = rng.choice([0, 1e-12, 1e-6, 1e-3, 1e-1])
    S = np.concatenate([np.sort(1 + width * rng.random(k))[::-1], 0.5 * np.sort(rng.random(n - k))[::-1]])
    X, U, V = rotated(S, rng)
    off = 10.0 ** rng.uniform(-9, -0.7, k) / np.sqrt(k)
    turn = np.linalg.qr(rng.standard_normal((k, k)))[0]
    rest = V[:, k:] @ rng.standard_normal((n - k, 1 if seed % 2 else k))
    F = certified(X, np.linalg.qr(V[:, :k] @ turn + off * rest / np.linalg.norm(rest, axis=0))[0])
    error = np.abs(F.S - S[:k])
    for by in (F.S, S[:k]):
        assert np.all(error <= (F.info.value_errors + slack(S)[:k]) * by)
    # A space that contains that of any group of the k: every bound is of a sine that is no smaller than to that.
    for v, basis in ((F.Vh.T, V), (F.U, U)):
        sines = np.linalg.norm(v - basis[:, :k] @ (basis[:, :k].T @ v), axis=0)
        assert np.all(sines <= F.info.vector_errors + 100 * EPS * np.sqrt(n))


def test_vectors_turned_within_a_group_lean_as_far_as_its_worst() -> None:
    # The second axis is off by 0.3 of the third, the first hardly: turned by 45 degrees, both are off by its half.
    X = np.array([[1, 0, 1e-3], [0, 1, 0.3], [1e-3, 0.3, 0.2]])
    V = np.array([[1, 1], [1, -1], [0, 0]]) / np.sqrt(2)
    F = certified(X, V)
    right = np.linalg.svd(X)[2][:2]
    sines = np.linalg.norm(F.Vh - (F.Vh @ right.T) @ right, axis=1)
    assert np.all(sines > 0.1)
    assert np.all(sines <= F.info.vector_errors)


def test_left_vectors_that_are_not_those_of_the_right_ones_are_as_uncertain_as_they_are_turned() -> None:
    X, sine = np.diag([3.0, 2.0, 1.0]), 0.1
    F = ss.svd(X, 2, solver="exact")
    U = np.array([[np.sqrt(1 - sine**2), 0], [0, 1], [sine, 0]])
    turned = SVDResult(U, F.S, np.eye(2, 3), F.info)
    errors = reading.certify(ss.as_operator(X), turned, np.random.default_rng(0), 1e-6).info.vector_errors
    assert sine <= errors[0] < 1.1 * sine
    assert errors[1] <= 1e4 * EPS


@pytest.mark.parametrize("seed", range(8))
def test_flat_spectra_stay_within_their_bounds_at_loose_tolerances(seed: int) -> None:
    # Where nothing is proven, growth is inferred; from the next value and its residual it was too small by 1.7.
    S = np.append(1 + 0.05 * (seed % 2), np.linspace(1, 0.9, 299))
    solver = ss.BlockLanczos(0.1, block_size=4, max_basis=80)
    F = ss.svd(sparse.csr_array(np.diag(S)), 20, solver=solver, rng=seed // 2)
    assert np.all(np.abs(F.S - S[:20]) <= F.info.value_errors * S[:20])


SOLVERS = [ss.BlockLanczos(1e-6, block_size=8), ss.BlockLanczos(1e-10), ss.Gram(1e-4), ss.Exact(certify=True)]


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_vectors_of_what_is_reported_as_zero_have_no_bound(solver: Solver, dtype: type) -> None:
    rng = np.random.default_rng(3)
    S = np.zeros(90)
    S[:16] = 0.3 ** np.arange(16.0)
    X = rotated(S, rng)[0].astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        F = ss.svd(X, 20, solver=solver, rng=0)
    assert np.all(F.info.vector_errors[F.S == 0] == 1)
    exact, V = np.linalg.svd(X.astype(float), full_matrices=False)[1:]
    for j in np.flatnonzero(F.info.vector_errors < 1):
        v = F.Vh[j].astype(float)
        sine = np.linalg.norm(v - V[j] * (V[j] @ v)) / np.linalg.norm(v)
        # Of the reference: rounding over the gap.
        own = 100 * EPS / np.min(np.abs(np.delete(exact, j) - exact[j]))
        assert sine <= F.info.vector_errors[j] + own
    if dtype is np.float32:  # they are returned in single precision: half a unit of each entry
        assert np.all(F.info.vector_errors >= SINGLE / 4)


@pytest.mark.parametrize("far", [1e3, 1e5, 1e7])
@pytest.mark.parametrize("solver", [ss.BlockLanczos(1e-8), ss.Gram(1e-8)], ids=repr)
def test_bounds_know_that_products_round_at_the_level_of_the_data(far: float, solver: Solver) -> None:
    rng = np.random.default_rng(4)
    X = sparse.random_array((400, 60), density=0.3, rng=rng, format="csr")
    L, R = rng.standard_normal((400, 2)), far * rng.standard_normal((60, 2))
    D = X.toarray()
    shift = L @ R.T
    # What is left is known: the data are the shift, rounded, and something else.
    data = sparse.csr_array(D + shift)
    exact = np.linalg.svd((data.toarray().astype(np.longdouble) - L.astype(np.longdouble) @ R.T).astype(float))[1][:5]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        F = ss.svd(data, 5, shift=ss.LowRank(L, R), solver=solver, rng=0)
    assert np.all(np.abs(F.S - exact) <= F.info.value_errors * F.S)
    assert np.all(F.info.value_errors >= 4 * EPS * np.linalg.norm(shift) / F.S)


@pytest.mark.long
def test_single_products_of_counts_round_at_the_level_of_their_means() -> None:
    # The first value was off by 1.7 units of what rounding was said to do: the means are three times as long as it.
    rng = np.random.default_rng(5)
    worst = 0.0
    for _ in range(40):
        m, n = int(rng.integers(500, 900)), int(rng.integers(100, 250))
        rate = rng.gamma(0.3, 0.5, n) * rng.lognormal(0, 0.7, (6, n))
        X = sparse.csr_array(np.log1p(rng.poisson(rate[rng.integers(0, 6, m)])).astype(np.float32))
        D = X.toarray().astype(float)
        exact = np.linalg.svd(D - D.mean(axis=0), compute_uv=False)[:10]
        F = ss.svd(X, 10, shift="mean", solver=ss.BlockLanczos(1e-4), rng=0)
        worst = max(worst, float(np.max(np.abs(F.S - exact) / exact / F.info.value_errors)))
        assert F.info.converged
    assert worst <= 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shift", ["mean", None])
def test_bounds_hold_where_long_columns_are_summed_in_single_precision(seed: int, shift: str | None) -> None:
    # Components lie along a few full columns: sums of 3000 terms, of which random vectors show next to nothing.
    rng, m, n, k = np.random.default_rng(seed), 3000, 400, 5
    full = (rng.standard_normal((m, k)) * 3 * 0.8 ** np.arange(k)).astype(np.float32)
    rest = sparse.random_array((m, n - k), density=0.01, rng=rng, format="csc", dtype=np.float32)
    X = sparse.csr_array(sparse.hstack([sparse.csc_array(full), rest]))
    exact = ss.svd(X.astype(np.float64), k, shift=shift, solver=ss.Exact(), rng=0).S
    F = ss.svd(X, k, shift=shift, solver=ss.BlockLanczos(1e-3), rng=0)
    assert F.info.converged
    assert np.all(np.abs(F.S - exact) / exact <= F.info.value_errors)


@pytest.mark.filterwarnings("ignore:.* components? did not converge")
@pytest.mark.parametrize("seed", range(6))
def test_bounds_hold_for_a_part_of_a_group_of_single_precision_data(seed: int) -> None:
    # Of five values that squares in single precision cannot part, four are read off in double, without the fifth.
    rng, n, k = np.random.default_rng(seed), 68, 4
    S = np.append(10 + 1e-4 * np.sort(rng.random(5))[::-1], np.linspace(5, 1, n - 5))
    U, V = (np.linalg.qr(rng.standard_normal((m, n)))[0] for m in (311, n))
    X = ((U * S) @ V.T).astype(np.float32)
    exact = np.linalg.svd(X.astype(np.float64), compute_uv=False)[:k]
    F = ss.BlockLanczos(1e-6, block_size=16, max_basis=48)(ss.as_operator(X), k, seed)
    assert np.all(np.abs(F.S - exact) / exact <= F.info.value_errors + 4 * EPS)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(6))
def test_bounds_that_are_told_hold_at_a_loose_tolerance_just_above_a_bulk(seed: int) -> None:
    # Inferred bounds were up to 2.2 times too small here; they say that a value has converged, and are not told.
    S = np.append(1.003, np.linspace(1, 0.999, (1200, 2500, 5000)[seed % 3]))
    for solver in (ss.Gram(0.01), ss.BlockLanczos(0.01)):
        F = solver(ss.as_operator(sparse.csr_array(sparse.diags_array(S.astype(np.float32)))), 1, seed)
        exact = float(np.float32(1.003))
        assert abs(F.S[0] - exact) / exact <= F.info.value_errors[0]


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
@pytest.mark.parametrize("solver", [ss.Gram, ss.BlockLanczos])
def test_bounds_of_leading_values_are_proven_although_the_last_ones_are_close_to_the_next(solver, tol) -> None:
    S = np.concatenate([[9.0, 5.0, 3.0], np.linspace(1.02, 1, 400), np.linspace(0.99, 0.1, 800)])
    F = solver(tol)(ss.as_operator(sparse.csr_array(sparse.diags_array(S))), 20, 0)
    assert np.all(np.abs(F.S - S[:20]) / F.S <= F.info.value_errors + EPS)
    assert np.max(F.info.value_errors) == tol
    assert np.max(F.info.value_errors[:3]) < 1e-10


def test_values_that_rounding_joins_with_values_that_were_not_read_are_as_certain_as_squares() -> None:
    read, noise, nothing = np.array([3.0, 1.0]), 1e-6, np.zeros(3)
    for others, joined in (([1 - 1e-7], [False, True]), ([0.5], [False, False]), ([], [False, False])):
        theta = np.append(read, others)
        found = reading._mixing_errors(read, theta, nothing[:2], nothing[: len(others)], noise)
        np.testing.assert_allclose(found, np.where(joined, noise / (2 * read), 0))


@pytest.mark.parametrize("tol", [1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("scale", [None, "std"])
def test_bounds_with_the_rounding_of_transformed_entries_are_within_the_tolerance(tol, scale):
    X = np.random.default_rng(0).random((400, 300))
    info = ss.PCA(9, solver="lanczos", tol=tol, preprocess="sqrt", scale=scale, random_state=0).fit(X).info_
    assert info.converged
    assert np.max(info.value_errors) <= tol
