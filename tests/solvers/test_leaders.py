"""Components beside leaders whose squares drown them: one huge column, graded spectra, shifts that cancel."""

from functools import cache

import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import lapack

import shiftsvd as ss
from shiftsvd.numerics.bounds import Ritz
from shiftsvd.result import Certificate
from shiftsvd.solvers.problem import Budget
from shiftsvd.solvers.reading import Reading, read_with_leaders
from tests.support.closeness import assert_close
from tests.support.matrices import EPS, Array, in_double
from tests.support.sampling import in_turn, pairs

K = 10
CONTAINERS = {"dense": np.asarray, "csr": sparse.csr_array, "csc": sparse.csc_array}
# One-sided Jacobi is right to so many roundings of every value, however its columns are scaled.
REFERENCE = 300 * EPS


def exact(M: Array) -> Array:
    """Singular values to high relative accuracy, for well-conditioned times diagonal (Drmac & Veselic 2008)."""
    M = M if M.shape[0] >= M.shape[1] else M.T
    values, _, _, work, _, info = lapack.dgejsv(M, joba=0, jobu=3, jobv=3, jobr=0, jobt=0, jobp=0)
    assert info == 0
    return np.sort(values * work[0] / work[1])[::-1]


def made(shape: tuple[int, int] = (450, 150), density: float = 0.1, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) * (rng.random(shape) < density)


def led(D: Array, by: float = 1e6) -> Array:
    """D with one column that is much larger than the others."""
    Y = D.copy()
    Y[:, 7] *= by
    return Y


@cache
def led_values(density: float) -> Array:
    return exact(led(made(density=density)))


def graded(shape: tuple[int, int], grade: float, density: float = 1.0, seed: int = 0) -> Array:
    """About `grade` between the first value and the K-th; the rest follows closely."""
    n = min(shape)
    scale = np.r_[np.geomspace(1, 1 / grade, K), np.geomspace(0.9, 0.1, n - K) / grade]
    Y = made((max(shape), n), density, seed) * scale
    return Y if shape[0] >= shape[1] else np.ascontiguousarray(Y.T)


@cache
def graded_values(shape: tuple[int, int], grade: float, density: float, seed: int) -> Array:
    """The values of graded data that were rounded to single precision, which take longer than a fit."""
    return exact(in_double(graded(shape, grade, density, seed).astype(np.float32)))


def assert_found(F: ss.SVDResult, values: Array, tol: float) -> None:
    """Every value within tol and within its bound, nothing missed, vectors orthonormal."""
    k, eps = len(F.S), float(np.finfo(F.dtype).eps)
    errors = np.abs(F.S - values[:k]) / values[:k]
    assert F.info.converged
    assert np.all(errors <= tol)
    assert np.all(errors <= F.info.value_errors + REFERENCE)
    if k < len(values):
        assert values[k] * (1 - REFERENCE) <= F.info.missed_below <= 1.05 * values[k - 1] * (1 + tol)
    assert_close(F.Vh @ F.Vh.conj().T, np.eye(k), 100 * k * eps)
    assert_close(F.U.conj().T @ F.U, np.eye(k), 100 * k * eps)


# --- one column times a million -------------------------------------------------------------------------------


def turned(X: Array) -> Array:
    """A complex matrix with the values of X."""
    rng = np.random.default_rng(9)
    left, right = (np.exp(2j * np.pi * rng.random(side)) for side in X.shape)
    return left[:, None] * X * right


@pytest.mark.parametrize(("container", "density", "tol"), pairs(CONTAINERS, [0.1, 1.0], [1e-4, 1e-8]))
def test_a_leading_column_costs_a_few_passes(container: str, density: float, tol: float) -> None:
    D, make, solver = made(density=density), CONTAINERS[container], ss.BlockLanczos(tol)
    values = led_values(density)
    for turn in (np.asarray, np.transpose, turned):
        with_it, without = (solver(ss.as_operator(make(turn(X))), K, 0) for X in (led(D), D))
        assert_found(with_it, values, tol)
        assert with_it.info.n_passes <= 2 * without.info.n_passes + 6


@pytest.mark.long
@pytest.mark.parametrize(("container", "tol"), in_turn(CONTAINERS, [1e-8, 1e-4], 1))
def test_a_leading_column_costs_a_few_passes_whatever_is_done_to_the_matrix(container: str, tol: float) -> None:
    D, make, solver = made(), CONTAINERS[container], ss.BlockLanczos(tol)
    Y, rng = led(D), np.random.default_rng(1)
    weights, scale = rng.random(len(D)) + 0.5, rng.random(D.shape[1]) + 0.5
    ways = (
        ({"shift": "mean"}, Y - Y.mean(axis=0)),
        ({"shift": "mean", "scale": scale}, (Y - Y.mean(axis=0)) / scale),
        ({"shift": "mean", "sample_weight": weights}, np.sqrt(weights)[:, None] * (Y - weights @ Y / weights.sum())),
    )
    for settings, centred in ways:
        F, G = (ss.svd(make(X), K, solver=solver, rng=0, **settings) for X in (Y, D))
        assert_found(F, exact(centred), tol)
        assert F.info.n_passes <= 2 * G.info.n_passes + 6


@pytest.mark.parametrize("solver", ["auto", "lanczos", "gram", "exact"])
def test_every_solver_finds_what_a_leading_column_hides(solver: str) -> None:
    D = made()
    F = ss.svd(led(D), K, solver=solver, rng=0, certify=True)
    assert_found(F, exact(led(D)), 1e-4)


def test_components_beside_a_leader_turn_by_its_residual() -> None:
    # The first axis leads; its residual couples the second, which was found beside it, to the third, which was not.
    G, axes = np.array([[100.0, 3, 3], [3, 10, 0], [3, 0, 1]]), np.eye(3)
    X, nothing = np.linalg.cholesky(G).T, np.zeros(1)
    leaders = Ritz(G[:1, 0], G[1:, :1], 1, 0.0)
    exact_beside = Certificate(nothing, nothing, np.zeros(0, np.intp), nothing, 1.0, True)
    beside = Reading(axes[:, 1:2], np.sqrt(G[1:2, 1]), exact_beside)
    V, S, certificate = read_with_leaders(ss.as_operator(X), leaders, axes[:, :1], beside, 1e-2, Budget(9))
    U, values, Wh = np.linalg.svd(X)
    assert np.all(np.abs(S - values[:2]) <= certificate.value_errors * S)
    for found, true in ((V, Wh.T), (X @ V / S, U)):
        sines = np.linalg.norm(found - true[:, :2] * np.sum(true[:, :2] * found, axis=0), axis=0)
        assert np.all(sines > 1e-4)
        assert np.all(sines <= certificate.vector_errors)


@pytest.mark.parametrize(("n", "by", "k", "tol"), [(1000, 1e5, 3, 1e-3), (2056, 1e6, 3, 1e-2), (16_000, 1e4, 10, 1e-4)])
def test_leaders_do_not_keep_a_probe_from_a_proof(n: int, by: float, k: int, tol: float) -> None:
    # Rounding of products is below the tolerance here, but a level contains it enlarged.
    values = np.r_[by, 1 / np.arange(1.0, n) ** 0.7]
    F = ss.BlockLanczos(tol)(ss.as_operator(sparse.diags_array(values, format="csr")), k, 0)
    assert_found(F, values, tol)
    assert F.info.n_passes <= 40


def test_single_precision_does_not_keep_a_probe_from_a_proof() -> None:
    values = np.r_[100.0, np.geomspace(1, 0.2, 60), np.linspace(0.15, 0.075, 8931)]
    F = ss.BlockLanczos(1e-2)(ss.as_operator(sparse.diags_array(values, format="csr")), 3, 0)
    assert_found(F, values, 1e-2)
    assert F.info.n_passes <= 30


# --- graded spectra -------------------------------------------------------------------------------------------


@pytest.mark.one_in(2)
@pytest.mark.parametrize("shape", [(450, 150), (150, 450), (1000, 60)])
@pytest.mark.parametrize("grade", [1e4, 1e6, 1e8, 1e10])
def test_graded_values_of_double_data_are_all_found(grade: float, shape: tuple[int, int]) -> None:
    # The limit is some 8 eps sigma_1 / sigma_k: 2e-5 for the steepest.
    for seed in range(2):
        X = graded(shape, grade, seed=seed)
        values = exact(X)
        for tol in (1e-4, 1e-6) if grade < 1e10 else (1e-4,):
            F = ss.BlockLanczos(tol)(ss.as_operator(X), K, seed)
            assert_found(F, values, tol)
            assert F.info.n_passes <= 40


@pytest.mark.one_in(2)
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("grade", [1e2, 1e4, 1e5, 1e6])
def test_graded_values_of_single_data_are_found_by_double_products(grade: float, container: str) -> None:
    for seed in range(2):
        X = graded((450, 150), grade, 0.1, seed).astype(np.float32)
        make = CONTAINERS[container]
        single, double = (ss.BlockLanczos()(ss.as_operator(make(Y)), K, seed) for Y in (X, in_double(X)))
        values = graded_values((450, 150), grade, 0.1, seed)
        assert_found(double, values, 1e-4)
        assert_found(single, values, 1e-4)
        assert single.info.n_passes <= 2 * double.info.n_passes + 6


SINGLY = {
    "lanczos": ss.BlockLanczos(),
    "gram": ss.Gram(),
    "exact": ss.Exact(certify=True),
    "randomized": ss.RandomizedSVD(n_iter=7, certify=True),
    "shifted-randomized": ss.ShiftedRandomizedSVD(n_iter=7, certify=True),
}


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore:.*(did not converge|may have been missed)")
@pytest.mark.parametrize(
    ("name", "container", "grade", "shape"), pairs(SINGLY, CONTAINERS, [1e6, 1e7], [(900, 300), (300, 900)])
)
def test_a_value_below_single_rounding_is_never_called_0_and_converged(
    grade: float, name: str, container: str, shape: tuple[int, int]
) -> None:
    # 1 / grade is below eps sqrt(m) = 4e-6 of single precision, and the values are there: rounding moves them by 6e-8.
    X = graded(shape, grade, seed=1).astype(np.float32)
    values = graded_values(shape, grade, 1.0, 1)[:K]
    F = SINGLY[name](ss.as_operator(CONTAINERS[container](X)), K, 0)
    assert not F.info.converged or np.all(np.abs(F.S - values) <= 1e-4 * values)
    if name in ("lanczos", "gram", "exact"):
        assert np.all(np.abs(F.S - values) <= np.minimum(1e-4, F.info.value_errors + REFERENCE) * values)
        assert F.info.converged


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("rank", [1, 2, 5])
def test_where_the_rank_ends_beside_a_leader_there_are_zeros(rank: int, container: str) -> None:
    rng = np.random.default_rng(rank)
    D = np.zeros((400, 120))
    D[:, :rank] = rng.standard_normal((400, rank)) * np.geomspace(1e6, 1, rank)
    for X in (D, np.ascontiguousarray(D.T)):
        F = ss.BlockLanczos()(ss.as_operator(CONTAINERS[container](X)), 8, 0)
        assert F.info.converged
        assert F.info.rank == rank
        assert np.all(F.S[rank:] == 0)
        values = exact(D[:, :rank])
        assert np.all(np.abs(F.S[:rank] - values) <= 1e-4 * values)
        for V in (F.U, F.Vh.conj().T):
            assert_close(V.conj().T @ V, np.eye(8), 1e3 * EPS)


# --- shifts that cancel ---------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("size", [1e3, 1e5])
@pytest.mark.parametrize("container", CONTAINERS)
def test_single_data_far_from_zero_cost_little_more_than_double_ones(container: str, size: float) -> None:
    rng = np.random.default_rng(0)
    m, n, make = 800, 200, CONTAINERS[container]
    signal = (rng.standard_normal((m, n)) * 0.9 ** np.arange(n)).round(1)
    labels = rng.integers(0, 4, m)
    centres = size * rng.integers(1, 4, (4, n)).astype(float)
    X = (signal + centres[labels]).astype(np.float32)
    groups = np.eye(4)[labels]
    means = np.array([in_double(X)[labels == g].mean(axis=0) for g in range(4)])
    for shift, centre in ((ss.GroupMeans(labels), means), (ss.LowRank(groups, centres.T.copy()), centres)):
        values = np.linalg.svd(in_double(X) - centre[labels], compute_uv=False)
        single, double = (ss.svd(make(Y), K, shift=shift, solver="lanczos", rng=0) for Y in (X, in_double(X)))
        for F in (single, double):
            assert F.info.converged
            assert np.all(np.abs(F.S - values[:K]) <= 1e-4 * values[:K])
        assert single.info.n_passes <= 2.5 * double.info.n_passes
