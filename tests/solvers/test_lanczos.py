"""Block Lanczos and the formed Gram matrix: when they stop, what they promise, and what they cost."""

import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.algebra.generic import fused, gram_matrix
from shiftsvd.solvers.direct import GramOperator
from shiftsvd.solvers.krylov import Factorization
from shiftsvd.solvers.probe import Probe
from tests.support.closeness import assert_close
from tests.support.matrices import EPS, Array, in_double, values, with_values
from tests.support.operators import Counting

S = 0.97 ** np.arange(200.0)


def relative(F: ss.SVDResult, exact: np.ndarray) -> float:
    return float(np.max(np.abs(F.S - exact[: len(F.S)]) / exact[: len(F.S)]))


# --- accuracy and stopping ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-8, 0])
@pytest.mark.parametrize("solver", [ss.BlockLanczos, ss.Gram])
def test_values_are_within_the_bounds_that_are_reported(solver, tol: float) -> None:
    X = with_values((600, 300), S)
    F = solver(tol=tol)(ss.as_operator(X), 25, 0)
    assert F.info.converged
    errors = np.abs(F.S - S[:25]) / S[:25]
    assert np.all(errors <= F.info.value_errors + 10 * EPS)
    assert np.all(F.info.value_errors <= max(tol, 1e-12))


@pytest.mark.parametrize("shape", [(600, 300), (300, 600)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_vectors_span_the_leading_subspace(shape, dtype) -> None:
    X = with_values(shape, S, dtype)
    F = ss.BlockLanczos(tol=1e-6)(ss.as_operator(X), 10, 0)
    eps = float(np.finfo(dtype).eps)
    assert relative(F, S) <= 1e-6 + 20 * eps
    assert_close(F.U.conj().T @ F.U, np.eye(10), 100 * eps)
    assert_close(F.Vh @ F.Vh.conj().T, np.eye(10), 100 * eps)
    residual = np.linalg.norm(X @ F.Vh.conj().T - F.U * F.S, axis=0)
    assert np.all(residual <= 2e-3)


def test_single_precision_data_are_multiplied_in_double_where_the_spectrum_needs_it() -> None:
    steep = 1e-4 ** (np.arange(60) / 19)
    X = with_values((500, 300), steep, np.float32)
    exact = np.linalg.svd(X.astype(np.float64), compute_uv=False)
    F = ss.BlockLanczos()(ss.as_operator(X), 20, 0)
    assert F.info.converged
    assert relative(F, exact) <= 1e-4


@pytest.mark.parametrize("shape", [(4000, 60), (60, 4000)])
def test_double_precision_begins_where_single_left_off_also_in_a_small_space(shape) -> None:
    X = (values(shape, density=0.5) + 3 * values((1, shape[1]), seed=1, density=1.0)).astype(np.float32)
    exact = np.linalg.svd(X.astype(np.float64) - X.astype(np.float64).mean(axis=0), compute_uv=False)
    for k in (1, 3, 20, 59):
        F = ss.svd(X, k, shift="mean", solver=ss.BlockLanczos(1e-6), rng=5)
        assert F.info.converged
        assert relative(F, exact) <= 1e-6 + 20 * np.finfo(np.float32).eps


def test_too_few_passes_are_told_with_the_names_of_the_components() -> None:
    A = ss.as_operator(with_values((900, 600), np.arange(1, 601.0) ** -0.1))
    with pytest.warns(UserWarning, match=r"components did not converge: [0-9]+-20 \("):
        F = ss.BlockLanczos(block_size=8, max_passes=5)(A, 20, 0)
    assert F.info.converged is False
    assert F.info.value_errors.max() > 1e-4
    assert F.info.n_passes <= 6


def test_a_start_from_the_solution_saves_passes() -> None:
    A = ss.as_operator(with_values((900, 600), 0.99 ** np.arange(600.0)))
    solver = ss.BlockLanczos(
        1e-8, block_size=8
    )  # so accurate that the probe, which takes as long as ever, is not most of it
    first = solver(A, 20, 0)
    for start in (first.Vh.T, 1j * first.Vh.T):  # of real data the imaginary parts are as good
        again = replace(solver, start=start)(A, 20, 1)
        assert again.info.converged
        assert again.info.n_passes <= 0.75 * first.info.n_passes
        # The start makes no panel wider: the widest is that of the probe, in which 20 components go along.
        assert first.info.sample_size == again.info.sample_size == 8 + 20


def diagonal(S: np.ndarray) -> ss.Operator:
    return ss.as_operator(sparse.csr_array(sparse.diags_array(S)))


def bulk(name: str, n: int) -> np.ndarray:
    """What lies below 1: a crowd at its edge, or an even fall to 0."""
    return {"0.9": np.linspace(0.9, 0.45, n), "0.98": np.linspace(0.98, 0.49, n), "even": np.linspace(0.95, 0, n)}[name]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("n", [2_000, 5_000])
@pytest.mark.parametrize("rest", ["0.9", "0.98", "even"])
@pytest.mark.parametrize("off", [1e-7, 1e-3])
def test_what_a_start_lacks_is_found(off: float, rest: str, n: int) -> None:
    k = 20
    values = np.r_[np.linspace(3, 1, k), bulk(rest, n - k)]
    for lacking in (1, 5):
        rng = np.random.default_rng(lacking)
        start = np.zeros((n, k))
        start[np.r_[rng.permutation(k)[lacking:], rng.choice(np.arange(k, n), lacking, False)], np.arange(k)] = 1
        start += off * rng.standard_normal((n, k)) / np.sqrt(n)
        F = ss.BlockLanczos(start=start)(diagonal(values), k, lacking)
        assert F.info.converged
        assert relative(F, values) <= 1e-4
        assert values[k] <= F.info.missed_below <= 1.05 * (1 + 1e-6)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("n", [2_000, 5_000])
@pytest.mark.parametrize("rest", ["0.9", "0.98", "even"])
def test_a_new_value_beside_a_start_of_exact_vectors_is_found(rest: str, n: int) -> None:
    k = 10
    values = np.r_[np.linspace(3, 1, k), bulk(rest, n - k)]
    values[n // 2] = 1.2
    exact = np.sort(values)[::-1]
    for seed in range(2):
        F = ss.BlockLanczos(start=np.eye(n, k))(diagonal(values), k, seed)
        assert F.info.converged
        assert relative(F, exact) <= 1e-4


@pytest.mark.long
@pytest.mark.parametrize("tol", [1e-4, 1e-8])
def test_an_exact_start_at_the_edge_of_an_even_bulk_waits_for_what_it_cannot_be_told_from(tol: float) -> None:
    n, k = 2_000, 10
    values = np.linspace(1, 0, n)
    for start in (np.eye(n, k), np.eye(n, k)[:, [*range(k - 1), -1]]):  # all of them, or all but the last
        F = ss.BlockLanczos(tol, start=start)(diagonal(values), k, 0)
        assert F.info.converged
        assert relative(F, values) <= tol


ODD_STARTS = {
    "dependent columns": lambda V, rng: V[:, [0, 0, 1, 1, 2, 2]],
    "nearly dependent columns": lambda V, rng: V[:, :1] + 1e-15 * rng.standard_normal((len(V), 6)),
    "zeros": lambda V, rng: np.zeros((len(V), 5)),
    "some zeros": lambda V, rng: np.hstack([V[:, :3], np.zeros((len(V), 3))]),
    "more columns than rows": lambda V, rng: rng.standard_normal((len(V), 2 * len(V))),
    "as many columns as rows": lambda V, rng: np.eye(len(V)),
    "many copies": lambda V, rng: np.hstack([V] * 20),
    "one column": lambda V, rng: V[:, :1],
    "no column": lambda V, rng: V[:, :0],
    "complex": lambda V, rng: V + 1e-3j * rng.standard_normal(V.shape),
    "imaginary": lambda V, rng: 1j * V,
    "single precision": lambda V, rng: V.astype(np.complex64 if np.iscomplexobj(V) else np.float32),
    "integers": lambda V, rng: np.eye(*V.shape, dtype=int),
    "huge": lambda V, rng: 1e300 * V.astype(np.result_type(V, np.float64)),
    "tiny": lambda V, rng: 1e-300 * V.astype(np.result_type(V, np.float64)),
    "graded": lambda V, rng: V * 10.0 ** np.arange(0, -8 * 19, -19),
    "lists": lambda V, rng: V.tolist(),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("name", ODD_STARTS)
def test_a_fit_begins_from_any_columns(name: str, dtype) -> None:
    X = with_values((300, 120), 0.95 ** np.arange(120.0), dtype)
    _, exact, Vh = np.linalg.svd(in_double(X), full_matrices=False)
    start = ODD_STARTS[name](Vh[:8].conj().T.astype(dtype), np.random.default_rng(0))
    for A in (ss.as_operator(X), ss.as_operator(X).H):  # of either shape it is on the short side
        F = ss.BlockLanczos(1e-6, start=start)(A, 8, 0)
        assert F.info.converged
        assert relative(F, exact) <= 1e-6
        assert F.dtype == dtype
        assert F.info.sample_size <= 16 + 8  # never wider than a block, beside which 8 components go along
        assert_close(F.Vh @ F.Vh.conj().T, np.eye(8), 200 * float(np.finfo(dtype).eps))


def test_a_start_of_many_columns_makes_no_product_wider_than_the_block() -> None:
    class Widths(Counting):
        def gram(self, V, weights=None):
            widths.append(V.shape[1])
            return super().gram(V, weights)

    X = with_values((400, 250), S)
    start = np.linalg.svd(X)[2][:120].T
    for block_size in (3, 16):
        widths: list[int] = []
        F = ss.BlockLanczos(1e-8, block_size, start=start)(Widths(X), 20, 0)
        assert F.info.converged
        assert relative(F, S) <= 1e-8
        probing = max(block_size, 8)  # the probe has at least 8 columns
        wide = [width for width in widths if width > block_size and width != probing]
        assert wide in ([20], [20 + probing])  # the reading, by itself or with a block of the probe


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1j * np.inf])
def test_a_start_that_is_not_finite_is_refused(bad: complex) -> None:
    start = np.ones((20, 2), type(bad))
    start[7, 1] = bad
    with pytest.raises(ValueError, match="start must be finite"):
        ss.BlockLanczos(start=start)(ss.as_operator(values((50, 20))), 3, 0)


def test_a_start_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="start must have 20 rows"):
        ss.BlockLanczos(start=np.ones((7, 2)))(ss.as_operator(values((50, 20))), 3, 0)


@pytest.mark.parametrize("block_size", [1, 3, 4])
@pytest.mark.parametrize("tol", [0.0, 1e-4])
@pytest.mark.parametrize("rest", [0.0, 0.729])
def test_fewer_start_vectors_than_components_give_all_components(rest: float, tol: float, block_size: int) -> None:
    X = with_values((100, 60), np.r_[1, 0.9, 0.81, np.full(57, rest)])
    start = np.linalg.svd(X, full_matrices=False)[2][:3].T
    F = ss.svd(X, 20, solver=ss.BlockLanczos(tol, block_size, start=start), rng=0)
    assert F.info.converged
    np.testing.assert_allclose(F.S, [1, 0.9, 0.81, *17 * [rest]], rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize("settings", [{"tol": -1}, {"block_size": 0}, {"max_basis": 1.5}, {"max_passes": -3}])
def test_settings_that_cannot_be_are_refused(settings) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        ss.BlockLanczos(**settings)


@pytest.mark.parametrize("block_size", [1, 3, 16, 40])
@pytest.mark.parametrize("max_basis", [None, 1, 70])
def test_any_block_and_any_basis_give_the_same_values(block_size: int, max_basis: int | None, monkeypatch) -> None:
    extend = Factorization.extend

    def within(basis: Factorization, W: np.ndarray) -> None:
        extend(basis, W)
        assert basis.suspended is not None or basis.size + basis.width <= basis.columns

    monkeypatch.setattr(Factorization, "extend", within)
    X = with_values((400, 250), S)
    F = ss.BlockLanczos(1e-8, block_size, max_basis)(ss.as_operator(X), 12, 0)
    assert F.info.converged
    assert relative(F, S) <= 1e-8


def test_residuals_that_a_fit_gives_are_those_of_its_factors() -> None:
    A = ss.as_operator(with_values((400, 250), S))
    for solver in (ss.BlockLanczos(1e-2), ss.BlockLanczos(1e-8), ss.Gram()):
        F = solver(A, 4, 0)
        assert_close(F.info.residuals, ss.residuals(A, F), 100 * EPS)


# --- shares of the variance -----------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", [ss.BlockLanczos(1e-8), ss.Gram(1e-8), ss.Exact()], ids=repr)
@pytest.mark.parametrize("share", [0.05, 0.5, 0.9, 0.99])
def test_a_share_gives_the_smallest_rank_that_exceeds_it(solver, share: float) -> None:
    X = with_values((400, 250), S)
    total = np.sum(S**2)
    F = solver(ss.as_operator(X), share, 0)
    k = len(F.S)
    assert np.sum(S[:k] ** 2) > share * total
    assert np.sum(S[: k - 1] ** 2) <= share * total


def test_a_share_without_a_total_is_refused() -> None:
    class Bare(Counting):
        def frobenius_norm(self) -> None:
            return None

    with pytest.raises(ValueError, match="needs the total"):
        ss.BlockLanczos()(Bare(values((50, 20))), 0.5, 0)


# --- costs ----------------------------------------------------------------------------------------------------


def test_sparse_wide_data_are_read_once_a_step() -> None:
    X = sparse.random_array((60, 3000), density=0.05, format="csr", rng=0)
    for A in (ss.centered(X), ss.centered(X.T), ss.centered(sparse.csc_array(X)), ss.centered(sparse.csc_array(X.T))):
        B = A if A.shape[0] >= A.shape[1] else A.H
        assert fused(B, 20).costs.gram_reads == 1
        V = np.random.default_rng(0).standard_normal((60, 5))
        assert_close(fused(B, 20).gram(V), B.rmatmat(B.matmat(V)), 1e4 * EPS)


def test_no_second_copy_is_made_against_the_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shiftsvd.backends.sparse.ACCUMULATOR", 2**10)  # sums of blocks take less than a copy
    X = sparse.random_array((700, 800), density=0.5, format="csr", rng=0)
    A = ss.as_operator(X, memory_limit=1000).H
    assert fused(A, 100) is A
    F, G = (ss.BlockLanczos()(ss.as_operator(X, memory_limit=limit), 5, 0) for limit in (1000, None))
    assert_close(F.S, G.S, 1e-4 * G.S[0])


def test_a_fit_makes_no_panel_on_the_long_side() -> None:
    counting = Counting(with_values((3000, 120), S[:100]))
    ss.BlockLanczos()(counting, 5, 0)
    assert set(counting.calls) == {"gram"}


# --- the Gram matrix ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array, sparse.csc_array], ids=lambda c: c.__name__)
def test_gram_keeps_its_digits_beside_a_full_column_far_off_centre(container) -> None:
    X = sparse.random_array((2000, 40), density=0.1, rng=0).toarray()
    X[:, 3] = 1e5 + np.random.default_rng(1).standard_normal(2000)
    exact = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    F = ss.Gram(1e-9)(ss.centered(container(X)), 10, 0)
    assert F.info.converged
    assert relative(F, exact) <= 1e-9


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array, sparse.csc_array], ids=lambda c: c.__name__)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_gram_matrix_is_that_of_the_shifted_scaled_weighted_matrix(container, dtype) -> None:
    D = values((70, 12), dtype, density=0.4)
    rng = np.random.default_rng(0)
    shift = ss.LowRank(rng.standard_normal((70, 2)), rng.standard_normal((12, 2)))
    rows, cols, weights = rng.random(70), rng.random(12) + 0.5, rng.random(70)
    A = ss.operators.Scaled(ss.as_operator(container(D)) - shift, rows, cols)
    E = rows[:, None] * (D - shift.L @ shift.R.T) * cols
    for w in (None, weights):
        want = E.conj().T @ (E if w is None else w[:, None] * E)
        size = np.linalg.norm(E) ** 2 + np.linalg.norm(D) ** 2 + shift.frobenius_norm() ** 2
        V = rng.standard_normal((12, 3))
        eps = 1e3 * (EPS if dtype != np.float32 else np.finfo(np.float32).eps)
        assert_close(gram_matrix(A, w), want, 1e3 * EPS * size)
        assert_close(A.gram(V, w), want @ V, eps * size * np.linalg.norm(V))
        assert_close(gram_matrix(A.H), E @ E.conj().T, eps * size)


def test_a_formed_matrix_multiplies_and_nothing_else() -> None:
    G = GramOperator(np.diag([2.0, 1.0]))
    assert_close(G.gram(np.eye(2)), np.diag([2.0, 1.0]), 0)
    for product in (G.matmat, G.rmatmat):
        with pytest.raises(NotImplementedError):
            product(np.eye(2))


# --- the basis ------------------------------------------------------------------------------------------------


def test_the_lanczos_relation_holds_through_restarts_and_fresh_directions() -> None:
    rng = np.random.default_rng(0)
    G = values((80, 80), density=1.0)
    G = G @ G.T
    basis = Factorization.of(rng.standard_normal((80, 6)), 60, rng)
    for step in range(12):
        basis.extend(G @ basis.block)
        if step in (3, 7):
            basis.begin_probe(4)
            basis.extend(G @ basis.block)
            basis.end_probe()
        if basis.size + 2 * basis.width > 60:
            basis.restart(12)
        B, Q = basis.B[:, : basis.size], basis.block
        both = np.hstack([B, Q])
        size = np.linalg.norm(G)
        assert_close(both.T @ both, np.eye(both.shape[1]), 1e3 * EPS)
        assert_close(B.T @ G @ B, basis.H[: basis.size, : basis.size], 1e3 * EPS * size)
        E = np.zeros((basis.last, basis.size))
        E[:, basis.size - basis.last :] = np.eye(basis.last)
        assert_close(G @ B - B @ (B.T @ G @ B), Q @ basis.C @ E, 1e3 * EPS * size)


def test_an_invariant_subspace_is_left_by_fresh_directions() -> None:
    X = with_values((60, 40), np.array([3.0, 2.0, 1.0]))
    F = ss.BlockLanczos(block_size=3)(ss.as_operator(X), 6, 0)
    assert F.info.rank == 3
    assert_close(F.S, [3, 2, 1, 0, 0, 0], 100 * EPS)
    assert_close(F.Vh @ F.Vh.T, np.eye(6), 100 * EPS)
    zero = ss.BlockLanczos()(ss.as_operator(np.zeros((30, 20))), 4, 0)
    assert np.all(zero.S == 0)


# --- auto and estimate ----------------------------------------------------------------------------------------


def test_estimate_foresees_passes_and_memory_without_reading() -> None:
    X = sparse.random_array((5000, 400), density=0.02, format="csr", rng=0)
    for name in ("auto", "lanczos", "gram", "exact", "randomized", "shifted-randomized"):
        seen = ss.estimate(X, 10, name)
        F = ss.svd(X, 10, solver=name, rng=0)
        assert seen.solver == ss.estimate(X, 10, seen.solver).solver
        assert 0.5 * seen.n_passes - 2 <= F.info.n_passes <= 2 * seen.n_passes + 2
        assert seen.peak_bytes > 0
        assert seen.seconds_per_pass is None
    assert ss.estimate(X, 10, probe=True).seconds_per_pass > 0
    assert ss.estimate(X, 10, "exact").passes_range == (1, 1)
    assert ss.estimate(X, 10, ss.Exact(1e-4)).passes_range == (1, 2)
    assert ss.estimate(X, 10, "gram").passes_range == (2, 2)
    assert ss.estimate(X, 10, ss.Gram(last_pass=False)).passes_range == (1, 2)
    with pytest.raises(ValueError, match="k must be"):
        ss.estimate(X, 401)


@pytest.mark.parametrize("k", [1, 10, 30])
@pytest.mark.parametrize("shape", [(200, 30), (30, 200)])
@pytest.mark.parametrize("density", [1.0, 0.1])
@pytest.mark.parametrize(
    "solver",
    [
        ss.Exact(certify=True),
        ss.Exact(1e-4, certify=True),
        ss.RandomizedSVD(certify=True),
        ss.ShiftedRandomizedSVD(certify=True),
        ss.Gram(0),
        ss.Gram(1e-12),
    ],
)
@pytest.mark.filterwarnings("ignore:not certified")
def test_the_passes_of_certificates_and_of_small_values_are_predicted(
    solver: ss.solvers.Solver, density: float, shape: tuple[int, int], k: int
) -> None:
    X = sparse.random_array(shape, density=density, format="csr", rng=0)
    predicted = ss.estimate(X, k, solver)
    least, most = predicted.passes_range
    assert least <= predicted.n_passes <= most
    assert least <= ss.svd(X, k, solver=solver, rng=0).info.n_passes <= most


@pytest.mark.parametrize("solver", ["auto", "lanczos", "randomized"])
def test_a_sparse_matrix_without_entries_is_timed(solver: str) -> None:
    predicted = ss.estimate(sparse.csr_array((30, 20)), 2, solver, probe=True)
    assert predicted.seconds is not None


@pytest.mark.parametrize(("shape", "k"), [((54, 7776), 10), ((40, 400), 10), ((300, 3000), 50), ((500, 2000), 10)])
def test_the_expected_passes_lie_within_their_range(shape: tuple[int, int], k: int) -> None:
    predicted = ss.estimate(np.ones(shape), k, "lanczos", tol=1e-6)
    assert predicted.passes_range[0] <= predicted.n_passes <= predicted.passes_range[1]


@pytest.mark.long
@pytest.mark.parametrize("k", [5, 20, 50])
@pytest.mark.parametrize("spectrum", ["j**-2.0", "j**-0.5", "np.exp(-j / 60)", "1 - j / 2000", "0.8 ** (j // 7)"])
def test_the_reads_of_fast_and_slow_spectra_lie_within_what_was_foreseen(spectrum: str, k: int) -> None:
    rng, j = np.random.default_rng(k), np.arange(1.0, 1001)
    Q = np.linalg.qr(rng.normal(size=(1000, 1000)))[0]
    X = eval(spectrum, {"np": np, "j": j})[:, None] * Q
    solver = ss.BlockLanczos()
    least, most = ss.estimate(X, k, solver).passes_range
    assert least <= ss.svd(X, k, solver=solver, rng=0).info.n_passes <= most


def test_the_choice_does_not_depend_on_the_number_of_threads() -> None:
    X = values((300, 250), density=0.3)
    assert len({ss.auto_solver(ss.as_operator(X, n_threads=n), 20) for n in (1, 2, 3, 8)}) == 1


def test_what_converged_is_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ss.svd(with_values((200, 150), S[:150]), 10, solver="lanczos", tol=1e-7, rng=0).info.converged


# --- the precision of products --------------------------------------------------------------------------------


class Watched(Counting):
    """Notes the precision of the panels that it multiplies."""

    @property
    def costs(self):
        return replace(super().costs, gram_in_single=True)

    def gram(self, V, weights=None):
        self.panels.append(V.dtype)
        return super().gram(V, weights)


@cache
def wide_text(scale: float = 1.0) -> sparse.csr_array:
    """Double data whose panels leave the cache, with a decaying spectrum and a column that is nearly full."""
    rng = np.random.default_rng(0)
    X = sparse.random_array((9_000, 9_500), density=1e-3, rng=rng, format="lil")
    X[:-20, 7] = 5 + rng.random((8_980, 1))
    topics = sparse.random_array((9_000, 12), density=0.02, rng=rng) @ sparse.random_array(
        (12, 9_500), density=0.02, rng=rng
    )
    return sparse.csr_array(scale * (X.tocsr() + 10 * topics))


@cache
def values_of_wide_text() -> Array:
    return ss.svd(wide_text(), 8, shift="mean", solver=ss.BlockLanczos(tol=1e-10), rng=1).S


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("scale", "transpose"), [(1.0, False), (1e25, True), (1e-25, False), (1e60, True)])
def test_double_data_multiplied_in_single_precision_keep_the_tolerance(scale: float, transpose: bool) -> None:
    X, exact = wide_text(), values_of_wide_text()
    X = sparse.csr_array(scale * X)
    A = ss.centered(X)
    solver = ss.BlockLanczos(tol=1e-4)
    assert solver.single(fused(A, 100))
    assert not ss.BlockLanczos(tol=1e-10).single(fused(A, 100))
    F = solver(A.H if transpose else A, 8, 0)
    assert F.info.converged
    assert relative(F, scale * exact) <= 1e-4
    # The last reading is in double: what is left are the tails of the vectors.
    assert np.all(np.abs(F.S / scale - exact) / exact <= F.info.value_errors + 1e-9)


def test_the_last_reading_of_double_data_is_in_double() -> None:
    A = Watched(ss.as_operator(with_values((300, 200), S)))
    A.panels = []
    F = ss.BlockLanczos(tol=1e-4)(A, 5, 0)
    assert F.info.converged
    # The second product is two columns in double precision: they measure what single precision did to the first.
    single, double = np.dtype(np.float32), np.dtype(np.float64)
    assert A.panels == [single, double, *[single] * (len(A.panels) - 3), double]
    assert F.info.n_passes == len(A.panels)


class Widths(Counting):
    """Counts the columns of each product."""

    doubles_in_single = False

    @property
    def costs(self):
        return replace(super().costs, gram_in_single=self.doubles_in_single or self.dtype == np.float32)

    def gram(self, V, weights=None):
        self.calls.append(V.shape[1])
        return self.A.gram(V, weights)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tol", [1e-2, 1e-5])
def test_the_reading_goes_along_with_a_product_of_the_probe(tol: float, dtype: type) -> None:
    A, k, b = Widths(with_values((600, 400), S, dtype)), 20, 16
    F = ss.BlockLanczos(tol=tol, block_size=b)(A, k, 0)
    assert F.info.converged
    assert F.info.n_passes == len(A.calls)
    assert relative(F, S) <= tol
    assert sorted(set(A.calls) - {2}) == [b, b + k]
    assert A.calls.count(b + k) == 1


def test_double_data_that_were_multiplied_in_single_precision_are_read_off_in_double_alone() -> None:
    A, k, b = Widths(with_values((600, 400), S)), 20, 16
    A.doubles_in_single = True
    F = ss.BlockLanczos(tol=1e-3, block_size=b)(A, k, 0)
    assert F.info.converged
    assert A.calls[-1] == k
    assert sorted(set(A.calls)) == [2, b, k]


def test_a_value_that_a_probe_finds_beside_the_reading_is_there_in_the_end() -> None:
    n, k = 400, 20
    rng = np.random.default_rng(3)
    V = np.linalg.qr(rng.standard_normal((n, n)))[0]
    d = np.append(0.9 ** np.arange(60.0), np.full(n - 60, 1e-3))
    A = Widths((V * d) @ V.T)
    start = np.delete(V[:, : k + 1], 4, axis=1)  # all but one, and exactly
    F = ss.BlockLanczos(tol=1e-6, start=start)(A, k, 0)
    assert F.info.converged
    assert relative(F, d) <= 1e-6


# Where levels prove less than what is inferred before them, and the bases that they begin from are small.
CROWDED = {
    1e-1: np.linspace(1, 0.1, 600) ** 1.5,
    3e-2: np.linspace(1, 0.1, 600) ** 1.5,
    1e-2: (1 + np.arange(600.0)) ** -0.3,
    3e-3: (1 + np.arange(600.0)) ** -0.2,
}


@pytest.mark.parametrize("tol", CROWDED)
def test_no_step_follows_a_probe_that_has_found_nothing(tol: float, monkeypatch: pytest.MonkeyPatch) -> None:
    A, after, d = Widths(np.diag(CROWDED[tol])), [], CROWDED[tol]
    end = Probe.finish

    def watched(probe: Probe) -> None:
        end(probe)
        after.append(len(A.calls))

    monkeypatch.setattr(Probe, "finish", watched)
    F = ss.BlockLanczos(tol=tol)(A, 30, 0)
    assert F.info.converged
    assert np.all(np.abs(F.S - d[:30]) / d[:30] <= F.info.value_errors)
    assert len(after) == 1
    assert len(A.calls) - after[0] <= 1  # a reading, if the probe has not taken it along


@pytest.mark.parametrize("storage", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("seed", range(4))
def test_a_basis_in_single_precision_ends_where_only_rounding_is_left(storage, seed: int) -> None:
    # What a probe saw of rows that stand three times was rounding alone: taken for directions, it cost everything.
    rng = np.random.default_rng(seed)
    m, n, k = (174, 309, 44) if seed % 2 else (60, 260, 25)
    X = np.where(rng.random((m, n)) < 0.1, rng.random((m, n)), 0).astype(np.float32)
    X = np.vstack([X, X, X[::-1]])
    exact = np.linalg.svd(X.astype(float) - X.mean(axis=0, dtype=float), compute_uv=False)[:k]
    F = ss.svd(storage(X), k, shift="mean", solver="lanczos", rng=seed)
    assert F.info.converged
    assert np.all(np.abs(F.S - exact) <= F.info.value_errors * exact)
    assert F.info.n_passes <= 40


@pytest.mark.parametrize("seed", range(3))
def test_a_basis_in_single_precision_stays_orthonormal_to_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, worst = np.random.default_rng(seed), []
    extend = Factorization.extend

    def watched(basis: Factorization, W: np.ndarray) -> None:
        extend(basis, W)
        assert basis.single
        B = basis.B[:, : basis.size + basis.width].astype(float)
        worst.append(np.linalg.norm(B.T @ B - np.eye(B.shape[1]), 2))

    monkeypatch.setattr(Factorization, "extend", watched)
    S = 10.0 ** -np.linspace(0, (0.7, 1, 3)[seed], 300)
    U, V = (np.linalg.qr(rng.standard_normal((size, 300)))[0] for size in (900, 300))
    F = ss.svd(((U * S) @ V.T).astype(np.float32), 10, solver=ss.BlockLanczos(1e-3), rng=seed)
    assert F.info.converged
    assert max(worst) <= 1e-5
