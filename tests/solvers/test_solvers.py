"""Solvers: what they return, how often they read, what they do at low rank, and their settings."""

import pickle
import warnings
from dataclasses import FrozenInstanceError, replace
from importlib import import_module
from typing import ClassVar

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.kernels.threads import _Pool
from shiftsvd.solvers import Solver
from tests.support.closeness import assert_close
from tests.support.containers import CONTAINERS, FEW, Duck, content
from tests.support.matrices import EPS, decaying, in_double, values, with_values
from tests.support.operators import Counting, Minimal, assert_is
from tests.support.subspaces import angle, assert_orthonormal

RANDOMIZED = (
    ss.RandomizedSVD(),
    ss.RandomizedSVD(n_iter=2),
    ss.RandomizedSVD(n_iter=0, n_oversamples=4),
    ss.RandomizedSVD(n_iter=3, finish="last"),
    ss.RandomizedSVD(n_iter=3, power_iteration_normalizer="QR"),
    ss.RandomizedSVD(n_iter=3, power_iteration_normalizer="LU", finish="last"),
    ss.RandomizedSVD(n_iter=3, power_iteration_normalizer="CholeskyQR2"),
    ss.RandomizedSVD(n_iter=1, power_iteration_normalizer="none"),
    ss.ShiftedRandomizedSVD(),
    ss.ShiftedRandomizedSVD(n_iter=2, n_oversamples=6),
)
UNCERTAIN = (*RANDOMIZED, ss.Exact())  # without a stopping rule
CERTAIN = (ss.BlockLanczos(tol=0), ss.Gram(tol=0))
SOLVERS = (*UNCERTAIN, *CERTAIN)
SHAPES = ((60, 20), (20, 60), (30, 30))
DTYPES = (np.float32, np.float64, np.complex64, np.complex128)


def low_rank(shape: tuple[int, int], rank: int, dtype=np.float64, seed: int = 0) -> np.ndarray:
    """A matrix of exact rank with values 1, 1/2, ..., 1/rank."""
    return with_values(shape, 1 / np.arange(1.0, rank + 1), dtype, seed)


def eps(dtype) -> float:
    return float(np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_factors_of_a_matrix_of_low_rank_are_its_svd(solver: Solver, shape, dtype) -> None:
    # Every method is exact where the sample holds the whole row space.
    D = low_rank(shape, 4, dtype)
    F = solver(ss.as_operator(D), 4, 1)
    tol = 2e3 * eps(dtype)
    assert (F.U.shape, F.Vh.shape) == ((shape[0], 4), (4, shape[1]))
    assert F.U.dtype == F.Vh.dtype == dtype
    assert F.S.dtype == np.float64  # its bounds would not hold for rounded values
    assert_close(F.S, 1 / np.arange(1.0, 5), tol)
    assert_close((F.U * F.S) @ F.Vh, D, tol)
    assert_orthonormal(F.U, eps(dtype))
    assert_orthonormal(F.Vh.conj().T, eps(dtype))


@pytest.mark.parametrize("shape", [(1, 9), (9, 1), (1, 1), (2, 7), (6, 6)])
@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_all_components_make_the_matrix(solver: Solver, shape) -> None:
    for dtype in (np.float64, np.complex128):
        D = values(shape, dtype, 3, 1.0)
        k = min(shape)
        F = solver(ss.as_operator(D), k, 0)
        assert_close((F.U * F.S) @ F.Vh, D, 1e3 * EPS * np.linalg.norm(D))
        assert_close(F.S, np.linalg.svd(D, compute_uv=False), 1e3 * EPS * np.linalg.norm(D))


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("solver", [ss.Exact(), ss.RandomizedSVD(), *CERTAIN], ids=repr)
def test_values_are_those_of_the_shifted_matrix_in_every_container(solver: Solver, name: str) -> None:
    for shape in ((50, 12), (12, 50)):
        D = values(shape, CONTAINERS[name].dtype, 1)
        X = CONTAINERS[name].make(D)
        before = content(X)
        E = in_double(D) - in_double(D).mean(axis=0)
        A = ss.centered(X)
        F = solver(A, 5, 0)
        exact = np.linalg.svd(E, compute_uv=False)
        precise = A.dtype in (np.float64, np.complex128)
        # 12 columns are fewer than 5 + 10 samples: nothing is left to chance.
        assert_close(F.S, exact[:5], 100 * (EPS if precise else eps(np.float32)) * np.linalg.norm(in_double(D)))
        assert content(X) == before


@pytest.mark.one_in(2)
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", ["array float64", "csr float64", "csc complex64", "array complex128", "fortran"])
@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_solvers_do_not_see_how_the_matrix_is_cut(solver: Solver, name: str) -> None:
    for shape in ((40, 9), (9, 40), (14, 14)):
        D = values(shape, CONTAINERS[name].dtype, 2)
        E = in_double(D)
        F = solver(ss.as_operator(CONTAINERS[name].make(D)), min(shape), 0)
        assert_close((F.U * F.S) @ F.Vh, E, 1e3 * eps(F.dtype) * np.linalg.norm(E))
        assert_orthonormal(F.U, eps(F.dtype))
        assert_orthonormal(F.Vh.conj().T, eps(F.dtype))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_largest_entry_of_each_right_vector_is_real_and_positive(solver: Solver) -> None:
    for shape in SHAPES:
        for dtype in DTYPES:
            A = ss.as_operator(values(shape, dtype, 7))
            for B in (A, A.H, A - ss.LowRank(np.ones(shape[0]), np.arange(shape[1]))):
                F = solver(B, 4, 0)
                if B is not A:  # the order in which factors are asked for must not matter
                    F.U.sum()
                for row in F.Vh:
                    largest = row[np.argmax(np.abs(row))]
                    assert largest.real > 0
                    assert abs(np.imag(largest)) <= 10 * eps(dtype) * abs(largest)
                # The phase of U goes along: U^H A V is diagonal, real and positive.
                core = F.U.conj().T @ (B @ F.Vh.conj().T)
                assert np.all(np.diagonal(core).real > 0)


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_adjoint_has_the_same_values_and_swapped_vectors(solver: Solver) -> None:
    D = decaying((40, 15), 0.5, np.complex128)
    F, G = solver(ss.as_operator(D), 3, 0), solver(ss.as_operator(D.conj().T.copy()), 3, 0)
    precise = not isinstance(solver, ss.ShiftedRandomizedSVD) and solver != RANDOMIZED[2]
    tol = 1e-6 if precise else 0.3  # samples of other sides, unfinished
    assert_close(F.S, G.S, tol)
    assert angle(F.U, G.Vh.conj().T) <= tol


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_values_beyond_the_rank_are_exactly_zero(solver: Solver, shape, rank: int) -> None:
    for dtype in DTYPES:
        # Products of small whole numbers: of this rank in every precision.
        D = np.rint(9 * values((shape[0], rank), dtype, 1)) @ np.rint(9 * values((rank, shape[1]), dtype, 2))
        for X in (D, sparse.csr_array(D), sparse.csc_array(D)):
            F = solver(ss.as_operator(X), 6, 0)
            assert F.info.rank == rank
            assert np.all(F.S[:rank] > 0)
            assert np.all(F.S[rank:] == 0.0)
            assert_orthonormal(F.U, eps(dtype))
            assert_orthonormal(F.Vh.conj().T, eps(dtype))


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_centring_a_constant_matrix_leaves_nothing(solver: Solver) -> None:
    for shape in ((30, 8), (8, 30)):
        for X in (np.full(shape, 3.0), np.full(shape, 7, np.int8), sparse.csr_array(np.full(shape, 0.1))):
            F = solver(ss.centered(X), 4, 0)
            assert np.all(F.S <= 50 * EPS * 7 * np.sqrt(240))
            assert_orthonormal(F.U)


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_the_zero_matrix_has_rank_zero_and_orthonormal_vectors(solver: Solver) -> None:
    for X in (np.zeros((12, 5)), np.zeros((5, 12), np.complex64), sparse.csr_array((12, 5)), sparse.csc_array((12, 5))):
        for k in (1, 5):
            F = replace(solver, certify=True)(ss.as_operator(X), k, 0)
            assert np.array_equal(F.S, np.zeros(k))
            assert F.info.rank == 0
            assert np.array_equal(F.info.residuals, np.zeros(k))
            assert F.info.converged is True
            assert F.info.frobenius_error == 0
            assert_orthonormal(F.U, eps(F.dtype))
            assert_orthonormal(F.Vh.conj().T, eps(F.dtype))


def test_rank_floor_knows_the_precision_of_the_products() -> None:
    # 1e-9 is a value in double, rounding in single precision, and a value again where sparse products are double.
    for shape in ((300, 40), (40, 300)):
        D = with_values(shape, np.array([1.0, 1e-9]), seed=1)
        assert ss.Exact()(ss.as_operator(D), 2, 0).info.rank == 2
        assert ss.RandomizedSVD()(ss.as_operator(D.astype(np.float32)), 2, 0).info.rank in (1, 2)
        assert ss.RandomizedSVD()(ss.as_operator(sparse.csr_array(D)), 2, 0).info.rank == 2


# --- reads ----------------------------------------------------------------------------------------------------

READS = [
    *((ss.RandomizedSVD(n_iter=q), 2 * q + 2) for q in (0, 1, 2, 5)),
    *((ss.RandomizedSVD(n_iter=q, finish="last"), 2 * q + 1) for q in (1, 2, 5)),
    *((ss.RandomizedSVD(n_iter=2, power_iteration_normalizer=name), 6) for name in ("QR", "LU", "CholeskyQR2", "none")),
    *(
        (ss.RandomizedSVD(n_iter=1, sketch=sketch), 4)
        for sketch in (ss.sketch.SRFT(), ss.sketch.SparseSign(), ss.sketch.Rademacher())
    ),
    *((ss.ShiftedRandomizedSVD(n_iter=q), 2 * q + 2) for q in (0, 1, 3)),
    (ss.ShiftedRandomizedSVD(sketch=ss.sketch.SRFT()), 2),
    (ss.Exact(), 1),
]


@pytest.mark.filterwarnings("ignore:not certified")
@pytest.mark.parametrize("shift", [None, "mean"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("solver", "reads"), READS, ids=lambda value: repr(value))
def test_info_counts_the_reads_of_the_data(solver: Solver, reads: int, shape, shift) -> None:
    counting = Counting(values(shape))
    A = counting if shift is None else counting - ss.LowRank(np.ones(shape[0]), np.arange(shape[1]))
    F = solver(A, 3, 0)
    assert F.info.n_passes == counting.reads == reads
    counting.calls.clear()
    G = replace(solver, certify=True)(A, 3, 0)
    # The long factor of Exact is one read more, and only because the certificate asks for it; a probe is some more,
    # where not all values are known.
    assert G.info.n_passes == counting.reads
    assert counting.reads == reads + 4 if isinstance(solver, ss.Exact) else counting.reads > reads + 3


@pytest.mark.parametrize("solver", [ss.BlockLanczos(), ss.BlockLanczos(tol=0, block_size=2)], ids=repr)
def test_lanczos_counts_its_products(solver: Solver) -> None:
    for shape in ((80, 60), (60, 80)):
        counting = Counting(values(shape))
        assert solver(counting, 3, 0).info.n_passes == counting.reads > 3
        assert replace(solver, certify=True)(counting, 3, 0).info.converged


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("solver", [ss.Exact(), ss.RandomizedSVD(), ss.ShiftedRandomizedSVD()], ids=repr)
def test_long_factor_is_not_made_unless_asked_for(solver: Solver, shape) -> None:
    counting = Counting(values(shape))
    F = solver(counting, 3, 0)
    before = counting.reads
    # The paper's algorithm leaves the samples for last, whichever side they are.
    samples_last = shape[0] >= shape[1] or isinstance(solver, ss.ShiftedRandomizedSVD)
    assert callable(F._U if samples_last else F._Vh)
    assert repr(F)
    assert len(F.S) == 3
    if samples_last:
        assert F.Vh.shape == (3, shape[1])
        assert callable(F._U)
    assert counting.reads == before
    U, _, Vh = F
    extra = 1 if isinstance(solver, ss.Exact) else 0
    assert counting.reads == before + extra
    assert F.U is U
    assert F.Vh is Vh
    assert counting.reads == before + extra


def test_sample_size_is_the_columns_of_the_largest_panel() -> None:
    A = ss.as_operator(values((40, 30)))
    for solver, k, expected in (
        (ss.RandomizedSVD(), 5, 15),
        (ss.RandomizedSVD(n_oversamples=0), 5, 5),
        (ss.RandomizedSVD(), 25, 30),
        (ss.ShiftedRandomizedSVD(), 5, 10),
        (ss.ShiftedRandomizedSVD(), 20, 30),
        (ss.ShiftedRandomizedSVD(n_oversamples=3), 5, 8),
        (ss.ShiftedRandomizedSVD(n_oversamples=0), 5, 5),
        (ss.Exact(), 5, 30),
    ):
        assert solver(A, k, 0).info.sample_size == solver(A.H, k, 0).info.sample_size == expected


@pytest.mark.parametrize("block", [4, 12])
@pytest.mark.parametrize("top", [1.0, 1e8])  # with one and without one that is deflated
def test_sample_size_counts_what_a_probe_and_the_last_reading_multiply(top: float, block: int) -> None:
    X = with_values((300, 200), np.r_[top, 0.9 ** np.arange(199.0)])
    widths: list[int] = []

    class Watched(Minimal):
        def matmat(self, V):
            widths.append(V.shape[1])
            return super().matmat(V)

    F = ss.BlockLanczos(1e-3, block_size=block)(Watched(X), 20, 0)
    assert F.info.sample_size == max(widths)


def test_auto_iterations_are_those_of_scikit_learn() -> None:
    A = Counting(values((200, 60)))
    assert ss.RandomizedSVD()(A, 5, 0).info.n_passes == 2 * 7 + 2
    assert ss.RandomizedSVD()(A, 6, 0).info.n_passes == 2 * 4 + 2


class _Watched(_Pool):
    """A pool that remembers how many threads it was given."""

    sizes: ClassVar[list[int]] = []

    def __init__(self, n_threads: int) -> None:
        self.sizes.append(n_threads)
        super().__init__(n_threads)


@pytest.mark.one_in(4)
@pytest.mark.filterwarnings("ignore:not certified")
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("solver", UNCERTAIN, ids=repr)
def test_as_many_threads_run_as_were_asked_for(solver: Solver, monkeypatch) -> None:
    monkeypatch.setattr(import_module("shiftsvd.kernels.threads"), "_Pool", _Watched)
    for D in (values((60, 12)), values((12, 60))):
        for X in (D, sparse.csr_array(D), sparse.csc_array(D)):
            for n_threads in (1, 3):
                _Watched.sizes.clear()
                ss.svd(X, 3, shift="mean", scale="std", solver=solver, rng=0, n_threads=n_threads, certify=True)
                # The calling thread is one of them.
                assert set(_Watched.sizes) == ({n_threads - 1} if n_threads > 1 else set())


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("solver", [ss.Exact(), ss.RandomizedSVD(), ss.ShiftedRandomizedSVD()], ids=repr)
def test_the_long_factor_is_made_in_as_many_threads_as_the_rest(solver: Solver, monkeypatch) -> None:
    monkeypatch.setattr(import_module("shiftsvd.kernels.threads"), "_Pool", _Watched)
    for D in (values((60, 12)), values((12, 60))):
        _Watched.sizes.clear()
        F = ss.svd(D, 3, shift="mean", solver=solver, rng=0, n_threads=1)
        assert (F.U * F.S @ F.Vh).shape == D.shape
        assert not _Watched.sizes


@pytest.mark.usefixtures("small_blocks")
def test_the_number_of_threads_holds_for_operators_of_ones_own(monkeypatch) -> None:
    monkeypatch.setattr(import_module("shiftsvd.kernels.threads"), "_Pool", _Watched)
    for X in (Minimal(values((60, 12))), Duck(values((60, 12)))):
        _Watched.sizes.clear()
        ss.svd(X, 3, rng=0, n_threads=1)
        assert not _Watched.sizes


# --- info -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", UNCERTAIN, ids=repr)
def test_info_tells_solver_error_and_time(solver: Solver) -> None:
    D = decaying((50, 20), 0.7)
    F = solver(ss.as_operator(D), 4, 0)
    info = F.info
    assert info.solver == repr(solver)
    assert info.residuals is info.value_errors is info.converged is None
    assert info.seconds > 0
    assert info.peak_bytes is None or info.peak_bytes >= 0
    # ||A - Q Q^H A||^2 = ||A||^2 - ||S||^2 for every projection.
    error = np.linalg.norm(D - (F.U * F.S) @ F.Vh)
    assert info.frobenius_error == pytest.approx(error, rel=1e-6)


def test_the_frobenius_error_of_data_of_rank_k_is_rounding() -> None:
    D = low_rank((50, 20), 3)
    for solver in UNCERTAIN:
        F = solver(ss.as_operator(D), 3, 0)
        assert F.info.frobenius_error <= 50 * EPS * np.linalg.norm(D)


def test_without_the_norm_only_a_solver_that_finds_all_values_knows_the_frobenius_error() -> None:
    D = decaying((50, 20), 0.7)
    assert ss.BlockLanczos()(Counting(D), 3, 0).info.frobenius_error is None
    F = ss.Exact()(Counting(D), 3, 0)
    assert F.info.frobenius_error == pytest.approx(np.linalg.norm(D - (F.U * F.S) @ F.Vh), rel=1e-12)


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore:not certified")
@pytest.mark.parametrize("solver", UNCERTAIN, ids=repr)
def test_certificate_fills_in_residuals_and_a_verdict(solver: Solver) -> None:
    for shape in SHAPES:
        A = ss.as_operator(decaying(shape, 0.3))
        F = replace(solver, certify=True)(A, 3, 0, tol=0.5)
        assert_close(F.info.residuals, ss.residuals(A, F), 100 * EPS * 3)
        assert F.info.value_errors.shape == (3,)
        assert F.info.converged is bool(np.all(F.info.value_errors <= 0.5))
        strict = replace(solver, certify=True)(A, 3, 0, tol=0.0)
        assert strict.info.converged is bool(np.all(strict.info.value_errors <= 0))


# --- the randomized solver ------------------------------------------------------------------------------------


def test_more_iterations_come_closer() -> None:
    D = with_values((300, 100), np.arange(1, 101.0) ** -0.5)
    S = np.linalg.svd(D, compute_uv=False)[:5]
    errors = [
        np.abs(ss.RandomizedSVD(n_iter=q, n_oversamples=5)(ss.as_operator(D), 5, 0).S - S).max() for q in range(6)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[5] < errors[0] / 20


def test_last_finish_is_as_good_as_one_half_iteration_less() -> None:
    # finish="last" spans (A^H A)^q A^H A Omega: between q - 1 and q iterations of the full one.
    D = with_values((300, 100), np.arange(1, 101.0) ** -0.5)
    S = np.linalg.svd(D, compute_uv=False)[:5]

    def error(**settings) -> float:
        return float(np.abs(ss.RandomizedSVD(n_oversamples=5, **settings)(ss.as_operator(D), 5, 0).S - S).sum())

    assert error(n_iter=2) < error(n_iter=2, finish="last") < error(n_iter=1)


@pytest.mark.parametrize("finish", ["project", "last"])
@pytest.mark.parametrize("normalizer", ["auto", "QR", "LU", "CholeskyQR2"])
def test_normalizer_does_not_change_the_result(normalizer: str, finish: str) -> None:
    for shape in ((120, 50), (50, 120)):
        # Condition 1e12 of the sample: a power iteration without normalization keeps one direction of it.
        D = with_values(shape, np.geomspace(1, 1e-12, 50), seed=3)
        A = ss.as_operator(D)
        want = ss.RandomizedSVD(n_iter=4, power_iteration_normalizer="QR", finish=finish)(A, 20, 0)
        found = ss.RandomizedSVD(n_iter=4, power_iteration_normalizer=normalizer, finish=finish)(A, 20, 0)
        assert_close(found.S, want.S, 100 * EPS)
        exact = np.geomspace(1, 1e-12, 50)[:20]
        assert np.all(np.abs(found.S - exact) <= 1e3 * EPS)
        gap = exact[4] - exact[5]
        assert angle(found.U[:, :5], want.U[:, :5]) <= 100 * EPS / gap


def test_no_normalizer_loses_what_is_below_its_reach() -> None:
    D = with_values((120, 50), np.geomspace(1, 1e-12, 50), seed=3)
    S = ss.RandomizedSVD(n_iter=4, power_iteration_normalizer="none")(ss.as_operator(D), 20, 0).S
    exact = np.geomspace(1, 1e-12, 50)[:20]
    reach = EPS ** (1 / 9)
    assert np.all(np.abs(S - exact)[exact > 10 * reach] <= 1e-6)
    assert np.abs(S / exact - 1).max() > 0.1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_oversamples": -1}, "n_oversamples must be at least 0, got -1"),
        ({"n_iter": -1}, "n_iter must be"),
        ({"n_iter": 1.5}, "n_iter must be"),
        ({"n_iter": "many"}, "n_iter must be"),
        ({"power_iteration_normalizer": "qr"}, "normalizer must be one of auto, QR, LU, CholeskyQR2, none, got 'qr'"),
        ({"finish": "first"}, "finish must be"),
        ({"finish": "last", "n_iter": 0}, "n_iter >= 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ss.RandomizedSVD(**settings)


def test_settings_of_the_paper_that_cannot_be_are_refused() -> None:
    for settings in ({"n_iter": -1}, {"n_oversamples": -1}):
        with pytest.raises(ValueError, match="at least 0"):
            ss.ShiftedRandomizedSVD(**settings)


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_solvers_are_frozen_values(solver: Solver) -> None:
    assert pickle.loads(pickle.dumps(solver)) == solver
    assert replace(solver) == solver
    object.__setattr__(chosen := replace(solver), "reason", "because")  # as `auto_solver` does
    assert chosen == solver
    assert replace(solver, certify=True) != solver
    assert hash(replace(solver)) == hash(solver)
    with pytest.raises(FrozenInstanceError):
        solver.certify = True  # type: ignore[misc]


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@pytest.mark.parametrize("k", [0, -1, 6, 2.0, True, "3", None])
def test_k_out_of_range_is_refused(solver: Solver, k) -> None:
    with pytest.raises(ValueError, match=r"k must be an integer in 1\.\.5"):
        solver(ss.as_operator(values((9, 5))), k, 0)


def test_numpy_integers_are_integers() -> None:
    assert len(ss.Exact()(ss.as_operator(values((9, 5))), np.int32(3)).S) == 3
    assert ss.RandomizedSVD(n_iter=np.int64(2))(Counting(values((9, 5))), 3, 0).info.n_passes == 6


# --- auto -----------------------------------------------------------------------------------------------------


class _Sized(Counting):
    """An operator that only says how large it is."""

    def __init__(self, shape: tuple[int, int], stored: int | None = None) -> None:
        self.shape, self.dtype, self.calls = shape, np.dtype(float), []
        self._stored = stored

    @property
    def stored(self) -> int:
        return self._stored or self.shape[0] * self.shape[1]


def test_auto_has_all_digits_where_that_takes_no_time() -> None:
    for shape in ((100, 20), (20, 100), (150, 150), (2_000, 100)):
        assert isinstance(ss.auto_solver(_Sized(shape), 5), ss.Exact)


def test_auto_forms_the_gram_matrix_of_a_short_side_whose_rows_are_sparse() -> None:
    assert isinstance(ss.auto_solver(_Sized((300_000, 1000), 6_000_000), 100), ss.Gram)
    assert isinstance(ss.auto_solver(_Sized((330, 2_000_000), 6_600_000), 100), ss.Gram)
    assert isinstance(ss.auto_solver(_Sized((10**6, 100)), 10), ss.Gram)


def test_auto_iterates_on_large_matrices() -> None:
    for shape in ((10**6, 5000), (5000, 10**6), (20_000, 20_000)):
        assert ss.auto_solver(_Sized(shape), 5, tol=1e-3) == ss.BlockLanczos(1e-3)
    assert isinstance(ss.auto_solver(_Sized((200_000, 20_000), 4_000_000), 50), ss.BlockLanczos)


def test_auto_gives_its_reason_and_reads_nothing() -> None:
    for A in (_Sized((100, 20)), _Sized((10**6, 5000))):
        solver = ss.auto_solver(A, 5)
        assert f"{min(A.shape):,}" in solver.reason
        assert "Gram" in solver.reason
        assert A.reads == 0


# --- the result -----------------------------------------------------------------------------------------------


@pytest.fixture
def result() -> ss.SVDResult:
    return ss.RandomizedSVD(n_iter=3, certify=True)(ss.as_operator(decaying((30, 12), 0.7, np.complex128)), 5, 0)


def test_result_unpacks(result: ss.SVDResult) -> None:
    U, S, Vh = result
    assert (U.shape, S.shape, Vh.shape) == ((30, 5), (5,), (5, 12))
    assert np.all(np.diff(S) <= 0)


def test_result_is_the_operator_u_s_vh(result: ss.SVDResult) -> None:
    U, S, Vh = result
    D = (U * S) @ Vh
    assert result.shape == (30, 12)
    assert result.dtype == np.complex128
    assert_is(result, D, np.linalg.norm(D))
    assert_is(ss.as_operator(D) - result, np.zeros((30, 12)), 2 * np.linalg.norm(D))
    assert_is(result - ss.LowRank(np.ones(30), np.ones(12)), D - 1, np.linalg.norm(D) + 20)
    assert result.frobenius_norm() == pytest.approx(np.linalg.norm(D), rel=100 * EPS)


def test_adjoint_of_a_result_is_a_result(result: ss.SVDResult) -> None:
    U, S, Vh = result
    G = result.H
    assert isinstance(G, ss.SVDResult)
    assert np.array_equal(G.U, Vh.conj().T)
    assert np.array_equal(G.Vh, U.conj().T)
    assert np.array_equal(G.S, S)
    assert G.shape == (12, 30)
    assert np.array_equal(G.H.U, U)
    assert G.info == result.info


def test_truncated_result_has_the_first_components_and_their_error(result: ss.SVDResult) -> None:
    D = decaying((30, 12), 0.7, np.complex128)
    for k in (1, 3, 5):
        T = result.truncate(k)
        assert np.array_equal(T.U, result.U[:, :k])
        assert np.array_equal(T.S, result.S[:k])
        assert np.array_equal(T.Vh, result.Vh[:k])
        error = np.linalg.norm(D - (T.U * T.S) @ T.Vh)
        assert T.info.frobenius_error == pytest.approx(error, rel=1e-6)
        assert T.info.rank == k
        assert np.array_equal(T.info.residuals, result.info.residuals[:k])
        assert np.array_equal(T.info.value_errors, result.info.value_errors[:k])
    # A value that is left out may be as large as its bound says.
    known = replace(result.info, value_errors=np.full(5, 0.5), missed_below=0.1)
    for k, level in ((2, 1.5 * result.S[2]), (5, 0.1)):
        assert ss.SVDResult(*result, known).truncate(k).info.missed_below == pytest.approx(level)
    for k in (0, 6, -1):
        with pytest.raises(ValueError, match=r"k must be in 1\.\.5"):
            result.truncate(k)


def test_truncating_does_not_make_the_long_factor() -> None:
    counting = Counting(values((40, 9)))
    F = ss.Exact()(counting, 5, 0)
    T = F.truncate(2)
    assert T.Vh.shape == (2, 9)
    assert repr(T.H)
    assert counting.reads == 1
    assert T.U.shape == (40, 2)
    assert counting.reads == 2


def test_result_survives_pickling(result: ss.SVDResult) -> None:
    for F in (result, ss.Exact()(ss.as_operator(values((9, 30))), 3, 0), result.truncate(2), result.H):
        G = pickle.loads(pickle.dumps(F))
        for a, b in zip(F, G, strict=True):
            assert np.array_equal(a, b)
        assert G.info.solver == F.info.solver
        assert G.info.n_passes == F.info.n_passes


def test_result_prints_its_size_and_solver(result: ss.SVDResult) -> None:
    assert repr(result) == f"<SVDResult of 5 components by {result.info.solver}>"


def test_length_of_a_result_is_that_of_what_it_unpacks_to(result: ss.SVDResult) -> None:
    assert len(list(result)) == 3


def test_a_share_of_rounding_errors_takes_one_component() -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        x = rng.standard_normal(int(rng.integers(1, 20)))
        A = ss.LowRank(np.eye(8), np.tile(x[:, None], 8))
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            S = ss.svd(A, 0.3, shift="mean", solver="lanczos", rng=0).S
        assert np.max(S) <= 1e-14 * np.linalg.norm(x)


@pytest.mark.parametrize(("dtype", "remedy"), [(np.float32, "double precision"), (np.float64, 'solver="exact"')])
def test_a_remedy_does_not_name_the_precision_that_the_data_have(dtype, remedy) -> None:
    D = (np.linalg.qr(np.random.default_rng(0).standard_normal((100, 30)))[0] * 0.5 ** np.arange(30.0)).astype(dtype)
    with pytest.warns(UserWarning, match=f"Raise tol or the number of passes, or .*{remedy}"):
        ss.svd(D, 10, solver=ss.BlockLanczos(tol=1e-13, max_passes=3), rng=0)
