"""The algebra: differences, scalings and adjoints in any order are those of the dense matrix."""

import pickle

import numpy as np
import pytest

import shiftsvd as ss
from shiftsvd.algebra.generic import unshifted
from shiftsvd.operators import Panel, panel_dtype
from shiftsvd.testing import check_operator
from tests.support.closeness import assert_close
from tests.support.containers import CONTAINERS, FEW, content
from tests.support.matrices import EPS, Array, in_double, values
from tests.support.operators import Minimal, assert_is, panel
from tests.support.sampling import in_turn


def one_step(step: str, A: ss.Operator, D: Array, size: float, rng: np.random.Generator):
    """One operation of the algebra on the operator and on its dense matrix; the norm of all parts grows along."""
    (m, n), seed = D.shape, int(rng.integers(1000))
    if step == "adjoint":
        return A.H, D.conj().T, size
    if step == "scale":
        rows = rng.random(m) + 0.5 if rng.random() < 0.7 else None
        cols = values((n, 1), rng.choice([np.float64, np.complex128]), seed, 1.0)[:, 0] if rng.random() < 0.7 else None
        r, c = np.ones(m) if rows is None else rows, np.ones(n) if cols is None else cols
        return ss.operators.Scaled(A, rows, cols), r[:, None] * D * c, size * np.abs(r).max() * np.abs(c).max()
    if step == "mean":
        mu = A.moments().mean
        assert_close(mu, D.mean(axis=0), 20 * A.costs.eps * max(size, 1.0), "mean")
        E = np.ones((m, 1)) * mu
        return A - ss.LowRank(np.ones(m), mu.conj()), D - E, size + np.linalg.norm(E) + size
    if step == "operator":
        E = values((m, n), seed=seed)
        return A - Minimal(E), D - E, size + np.linalg.norm(E)
    if step == "product":
        E = values((int(rng.integers(1, 20)), m), seed=seed)
        return ss.operators.Product(Minimal(E), A), E @ D, size * max(np.linalg.norm(E), 1)
    r = int(rng.integers(1, 4))
    L, R = (
        panel(side, r, rng.choice([np.float64, np.float32, np.complex128]), seed + i) for i, side in ((0, m), (1, n))
    )
    shift = ss.LowRank(L, R)
    E = in_double(L) @ in_double(R).conj().T
    if step == "adjoint of a shift":
        shift = ss.operators.Adjoint(ss.LowRank(R, L))
    return A - shift, D - E, size + np.linalg.norm(in_double(L)) * np.linalg.norm(in_double(R))


STEPS = ("adjoint", "scale", "mean", "operator", "product", "shift", "shift", "adjoint of a shift")


@pytest.mark.parametrize(("name", "seed"), in_turn(CONTAINERS, range(50), 1))
def test_algebra_in_any_order_equals_the_dense_matrix(name: str, seed: int) -> None:
    rng = np.random.default_rng([seed, len(name)])
    D = values(tuple(rng.integers(1, 20, 2)), CONTAINERS[name].dtype, seed)
    X = CONTAINERS[name].make(D)
    before = content(X)
    A, E = ss.as_operator(X), in_double(D)
    size = np.linalg.norm(E)
    for step in rng.choice(STEPS, rng.integers(1, 5)):
        A, E, size = one_step(step, A, E, size, rng)
    assert_is(A, E, max(size, 1.0))
    assert content(X) == before


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("name", "seed"), in_turn(FEW, range(50), 2))
def test_algebra_over_many_blocks_equals_the_dense_matrix(name: str, seed: int) -> None:
    rng = np.random.default_rng([seed, 7])
    D = values(tuple(rng.integers(2, 25, 2)), CONTAINERS[name].dtype, seed)
    A, E = ss.as_operator(CONTAINERS[name].make(D), n_threads=2), in_double(D)
    size = np.linalg.norm(E)
    for step in rng.choice(STEPS, rng.integers(1, 5)):
        A, E, size = one_step(step, A, E, size, rng)
    assert_is(A, E, max(size, 1.0))


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("name", "rank"), in_turn(FEW, [1, 2, 3], 1))
def test_shift_equals_explicit_subtraction(name: str, rank: int) -> None:
    for shape in ((17, 6), (6, 17), (1, 5), (5, 1)):
        D = values(shape, CONTAINERS[name].dtype, rank)
        L, R = panel(shape[0], rank, seed=1), panel(shape[1], rank, seed=2)
        A = ss.as_operator(CONTAINERS[name].make(D)) - ss.LowRank(L, R)
        assert_is(A, in_double(D) - L @ R.T, np.linalg.norm(in_double(D)) + np.linalg.norm(L) * np.linalg.norm(R))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", FEW)
def test_two_shifts_equal_their_sum(name: str) -> None:
    D = values((15, 8), CONTAINERS[name].dtype)
    A = ss.as_operator(CONTAINERS[name].make(D))
    S, T = ss.LowRank(panel(15, 1), panel(8, 1)), ss.LowRank(panel(15, 2, seed=3), panel(8, 2, seed=4))
    E = in_double(D) - S.L @ S.R.T - T.L @ T.R.T
    size = np.linalg.norm(in_double(D)) + S.frobenius_norm() + T.frobenius_norm()
    assert_is(A - S - T, E, 2 * size)
    assert_is((A.H - S.H - T.H).H, E, 2 * size)
    assert_is(ss.operators.Shifted(ss.operators.Shifted(A, S), T), E, 2 * size)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", FEW)
def test_unshifted_gives_back_the_matrix_and_the_shift(name: str) -> None:
    D = values((15, 8), CONTAINERS[name].dtype)
    A = ss.as_operator(CONTAINERS[name].make(D))
    S = ss.LowRank(panel(15, 2), panel(8, 2))
    for B, E, shift in (
        (A - S, in_double(D), S),
        ((A - S).H, in_double(D).conj().T, S.H),
        (A.H - S.H, in_double(D).conj().T, S.H),
    ):
        X, found = unshifted(B)
        assert_is(X, E, np.linalg.norm(E))
        assert_close(found.L @ found.R.conj().T, shift.L @ shift.R.conj().T, 20 * EPS * S.frobenius_norm())
    assert unshifted(A)[1] is None


def test_dense_shift_is_subtracted_in_double_and_rounded_once() -> None:
    # A shift rounded to single precision first would be off by eps |mu| in every entry.
    D = (1e4 + values((50, 6), density=1.0)).astype(np.float32)
    mu = np.full(6, 1e4 + 1 / 3)
    A = ss.as_operator(D) - ss.LowRank(np.ones(50), mu)
    exact = (in_double(D) - mu).astype(np.float32)
    assert np.array_equal(A.matmat(np.eye(6)).astype(np.float32), exact)


def test_complex_shift_of_real_data_makes_a_complex_matrix() -> None:
    for dtype, expected in ((np.float32, np.complex64), (np.float64, np.complex128), (np.int8, np.complex128)):
        for X in (
            values((9, 4), dtype),
            CONTAINERS["csr float64"].make(values((9, 4), dtype)),
            Minimal(values((9, 4)).astype("f8")),
        ):
            shift = ss.LowRank(panel(9, 1, np.complex128), panel(4, 1))
            A = ss.as_operator(X) - shift
            if not isinstance(X, Minimal):
                assert A.dtype == expected
            D = X.D if isinstance(X, Minimal) else X if isinstance(X, np.ndarray) else X.toarray()
            assert_is(A, D - shift.L @ shift.R.conj().T, np.linalg.norm(D) + shift.frobenius_norm())


def test_double_shift_keeps_the_dtype_of_single_precision_data() -> None:
    shift = ss.LowRank(panel(9, 1), panel(4, 1))
    for A in map(
        ss.as_operator, (values((9, 4), np.float32), CONTAINERS["csr float32"].make(values((9, 4), np.float32)))
    ):
        assert (A - shift).dtype == (A - shift).H.dtype == ss.operators.Scaled(A, cols=np.ones(4)).dtype == np.float32


class TestLowRank:
    def test_is_the_product_of_its_factors(self) -> None:
        for m, n, r in ((9, 4, 2), (4, 9, 3), (1, 5, 1), (5, 1, 2)):
            for dtype in (np.float64, np.complex128):
                L, R = panel(m, r, dtype, 1), panel(n, r, dtype, 2)
                assert_is(ss.LowRank(L, R), L @ R.conj().T, np.linalg.norm(L) * np.linalg.norm(R))

    def test_vectors_are_single_columns(self) -> None:
        S = ss.LowRank(np.ones(3), [1, 2])
        assert np.array_equal(S @ np.eye(2), [[1, 2]] * 3)
        assert S.dtype == np.float64

    def test_row_vector_is_mu_of_one_mu_transposed(self) -> None:
        mu = panel(4, 1, np.complex128)[:, 0]
        S = ss.LowRank(np.ones(3), mu.conj())
        assert np.array_equal(S.row_vector(), mu)
        assert_close(S @ np.eye(4), np.ones((3, 1)) * mu, EPS * 10 * np.linalg.norm(mu))
        assert ss.LowRank(np.arange(3.0), mu).row_vector() is None
        assert ss.LowRank(np.ones((3, 2)) * [[1], [1], [2]], np.ones((4, 2))).row_vector() is None

    def test_row_vector_is_found_however_it_is_written(self) -> None:
        for dtype in (np.float64, np.complex128):
            left, R = panel(1, 3, dtype, 1), panel(4, 3, dtype, 2)
            S = ss.LowRank(np.ones((5, 1)) * left, R)
            mu = (left @ R.conj().T)[0]
            assert_close(S.row_vector(), mu, 20 * EPS * np.linalg.norm(left) * np.linalg.norm(R))

    def test_frobenius_norm_does_not_cancel(self) -> None:
        # ||L R^H||^2 as a trace of Gram products would lose every digit here.
        u, v = panel(30, 1, seed=1), panel(20, 1, seed=2)
        L, R = np.hstack([u, u]), np.hstack([v, -v * (1 - 1e-9)])
        want = np.linalg.norm(L @ R.T)
        assert ss.LowRank(L, R).frobenius_norm() == pytest.approx(want, rel=1e3 * EPS / 1e-9)

    @pytest.mark.parametrize("size", [1e-150, 1.0, 1e150])
    def test_frobenius_norm_counts_a_repeated_row_as_often_as_it_is_there(self, size: float) -> None:
        row, R = size * panel(1, 2), panel(4, 2)
        for k in (1, 2):
            S = ss.LowRank(np.broadcast_to(row[:, :k], (9, k)), R[:, :k])
            want = 3 * size * np.linalg.norm(row[:, :k] / size @ R[:, :k].T)
            assert S.frobenius_norm() == pytest.approx(want, rel=100 * EPS)

    def test_merge_adds(self) -> None:
        S, T = ss.LowRank(panel(5, 1), panel(4, 1)), ss.LowRank(panel(5, 2, seed=1), panel(4, 2, seed=2))
        assert_close(S.merge(T) @ np.eye(4), S @ np.eye(4) + T @ np.eye(4), 20 * EPS * 10)
        assert S.merge(None) is S

    def test_less_another_it_is_their_difference(self) -> None:
        S, T = ss.LowRank(panel(5, 1), panel(4, 1)), ss.LowRank(panel(5, 2, seed=1), panel(4, 2, seed=2))
        for difference in (S - T, S.with_shift(T)):
            assert_close(difference @ np.eye(4), S @ np.eye(4) - T @ np.eye(4), 20 * EPS * 10)

    @pytest.mark.parametrize(
        ("L", "R", "message"),
        [
            (np.ones((3, 2)), np.ones((4, 1)), "the same r"),
            (np.ones((3, 2, 1)), np.ones((4, 2)), "L must be"),
            (np.ones(3), np.array(["a"] * 4), "R must be"),
            (np.array([1, np.nan, 1]), np.ones(4), "L must be finite"),
            (np.ones(3), np.array([np.inf, 1, 1, 1]), "R must be finite"),
        ],
    )
    def test_refuses_factors_that_do_not_fit(self, L: Panel, R: Panel, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            ss.LowRank(L, R)


def test_products_with_panels_that_do_not_fit_are_refused() -> None:
    A = ss.as_operator(values((5, 3)))
    for bad in (np.ones(5), np.ones((4, 2)), np.ones((3, 2, 2)), 2.0):
        with pytest.raises(ValueError, match="3 rows"):
            A @ bad


def test_differences_of_unequal_shapes_are_refused() -> None:
    A = ss.as_operator(values((5, 3)))
    with pytest.raises(ValueError, match="the shift must have the shape"):
        A - ss.LowRank(np.ones(4), np.ones(3))
    with pytest.raises(ValueError, match="the shift must have the shape"):
        ss.operators.Shifted(A, ss.LowRank(np.ones(5), np.ones(4)))
    with pytest.raises(ValueError, match=r"cols must have shape \(3,\)"):
        ss.operators.Scaled(A, cols=np.ones(5))
    with pytest.raises(TypeError):
        A - np.ones((5, 3))
    with pytest.raises(TypeError):
        np.ones((5, 3)) - A


def test_operators_print_their_size_and_compare_by_identity() -> None:
    A = ss.as_operator(values((5, 3)))
    assert repr(A) == "<DenseRows 5 x 3 float64>"
    assert repr(A.H) == "<Adjoint 3 x 5 float64>"
    assert A != ss.as_operator(values((5, 3)))
    assert A == A


@pytest.mark.parametrize("name", ["array float64", "csr float64", "csc complex64", "minimal float64"])
def test_operators_survive_pickling(name: str) -> None:
    D = values((12, 5), CONTAINERS[name].dtype)
    S = ss.LowRank(np.ones(12), panel(5, 1))
    A = ss.operators.Scaled(ss.as_operator(CONTAINERS[name].make(D)) - S, cols=np.arange(1.0, 6)).H
    B = pickle.loads(pickle.dumps(A))
    V = panel(12, 2)
    assert np.array_equal(A @ V, B @ V)


def test_panels_are_computed_in_double() -> None:
    assert panel_dtype(np.float32) == panel_dtype(np.int8) == np.float64
    assert panel_dtype(np.complex64) == np.complex128


class _Broken(Minimal):
    """An operator with one fault."""

    def __init__(self, D: Array, fault: str) -> None:
        super().__init__(D)
        self.fault = fault

    def matmat(self, V: Array) -> Array:
        Y = self.D @ V
        return Y.T if self.fault == "shape" else Y**2 if self.fault == "linear" else Y

    def rmatmat(self, W: Array) -> Array:
        if self.fault == "adjoint shape":
            return (self.D.T @ W)[:-1]
        return self.D.T @ W * (1 + 1e-9 * (self.fault == "adjoint"))

    def gram(self, V: Array) -> Array:
        return super().gram(V) * (1 + 1e-9 * (self.fault == "gram"))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("shape", "matmat must map"),
        ("adjoint shape", "rmatmat must map"),
        ("adjoint", "must equal"),
        ("linear", "linear|must equal"),
        ("gram", "gram must equal"),
    ],
)
def test_check_operator_names_the_fault(fault: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_operator(_Broken(values((12, 5)), fault))
    check_operator(_Broken(values((12, 5)), "none"))


def test_check_operator_notices_a_transpose_in_place_of_the_adjoint() -> None:
    class Transposing(Minimal):
        def rmatmat(self, W: Array) -> Array:
            return self.D.T @ W

    with pytest.raises(AssertionError, match="must equal"):
        check_operator(Transposing(values((12, 5), np.complex128)))
