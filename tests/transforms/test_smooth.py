"""What zeros become, by interpolation: to the accuracy that is asked for, for any margins, and bounded."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import shiftsvd as ss
from shiftsvd.result import Info
from shiftsvd.solvers.base import widen_bounds
from shiftsvd.transforms.chains import apply_all, learn_all
from shiftsvd.transforms.smooth import SHARE, Smooth, chebyshev, interpolation
from tests.support.matrices import EPS
from tests.support.transformed import counts, deviance, pearson


def exact(name: str, mu: np.ndarray, theta: Any) -> np.ndarray:
    return -np.sqrt(mu / (1 + mu / theta)) if name == "pearson" else -np.sqrt(2 * theta * np.log1p(mu / theta))


@pytest.mark.long
@settings(deadline=None)
@given(
    name=st.sampled_from(["pearson", "deviance"]),
    low=st.floats(-14, 4),
    length=st.floats(0, 23),
    theta=st.floats(0.01, 1e4),
    largest=st.floats(-10, 12),
    tol=st.sampled_from([1e-2, 1e-4, 1e-6]),
)
def test_every_entry_is_as_accurate_as_was_asked_for(
    name: Any, low: float, length: float, theta: float, largest: float, tol: float
) -> None:
    c, r = np.exp(np.linspace(low, low + length, 301)), np.exp(np.linspace(largest - 30, largest, 200))
    S = Smooth(name, np.log(c / theta), np.full(301, np.sqrt(theta)), float(r[-1]), tol)
    E = S.left(r) @ S.right.T - exact(name, np.outer(r, c), theta)
    size = max(1.0, float(np.abs(exact(name, r[-1] * c[-1], theta))))
    assert np.abs(E).max() <= 1.5 * SHARE * tol + 1e-12 * size
    # The bound of each column, of rows that are there as often as they are.
    errors = S.errors(r, None)
    assert np.all(errors * (1 + 1e-9) + 1e-13 * size >= np.linalg.norm(E, axis=0))


def test_rounding_errors_of_the_factor_of_columns_are_within_its_sizes() -> None:
    S = Smooth("deviance", np.linspace(-20, 2, 500), np.ones(500), 1e6, 1e-12)
    nodes, mix = S.basis
    exact = interpolation(nodes, S.offsets).astype(np.longdouble) @ mix.astype(np.longdouble)
    assert np.all(np.abs(S.right - exact) <= len(nodes) * EPS * S.right_sizes)


def test_rows_of_larger_margins_than_those_of_the_training_are_as_accurate() -> None:
    c = np.geomspace(1e-6, 1e-2, 500)
    S = Smooth("pearson", np.log(c / 100), np.full(500, 10.0), 1e3, 1e-4)
    r = np.geomspace(1e-9, 1e12, 400)
    T = S.reaching(r)
    assert T is not S
    assert S.reaching(np.array([999.0])) is S
    assert np.abs(T.left(r) @ T.right.T - exact("pearson", np.outer(r, c), 100)).max() <= 1.5e-8
    assert T.left(np.zeros(1)) @ T.right.T == pytest.approx(0)  # a row of nothing


@pytest.mark.parametrize(
    ("how", "dense"), [(ss.PearsonResiduals(3), pearson(3)), (ss.DevianceResiduals("nb", 3), deviance("nb", 3))]
)
@pytest.mark.parametrize("times", [1, 1000, 10**6])
def test_new_rows_beyond_the_training_are_transformed_as_accurately(how: Any, dense: Any, times: int) -> None:
    X, new = counts(), times * counts(31, seed=3)
    own = learn_all((how,), ss.as_operator(sparse.csr_array(X)), None, 1e-6)
    A = apply_all(own.fitted, ss.as_operator(sparse.csr_array(new)))
    np.testing.assert_allclose(A @ np.eye(24), dense(X, new), atol=1e-8, rtol=1e-8)


def test_more_nodes_are_taken_for_longer_intervals_and_smaller_errors() -> None:
    assert len(chebyshev(0, 1, 1e-8)) < len(chebyshev(0, 10, 1e-8)) < len(chebyshev(0, 23, 1e-8)) <= 96
    assert len(chebyshev(0, 23, 1e-3)) < len(chebyshev(0, 23, 1e-12))
    nodes = chebyshev(-3, 2, 1e-10)
    np.testing.assert_array_equal(interpolation(nodes, nodes), np.eye(len(nodes)))


def test_what_zeros_err_by_is_part_of_every_bound() -> None:
    X = sparse.csr_array(counts(400, 60, seed=2))
    # At so loose a tolerance the error can be seen, beside values that are exact to rounding.
    own = learn_all((ss.PearsonResiduals(1.0),), ss.as_operator(X), None, 1e3)
    D = pearson(1.0)(X.toarray(), X.toarray())
    E = own.B @ np.eye(60) - D
    assert 1e-6 < np.linalg.norm(E, 2) <= np.linalg.norm(own.errors)
    S = np.linalg.svd(D)[1]
    F = widen_bounds(ss.svd(own.B, 5, solver="exact", certify=True), float(np.linalg.norm(own.errors)), 1.0)
    assert np.all(np.abs(F.S - S[:5]) > 1e-12)
    assert np.all(np.abs(F.S - S[:5]) <= F.info.value_errors * F.S)
    assert F.info.missed_below is not None
    assert F.info.missed_below >= np.linalg.svd(own.B @ np.eye(60))[1][5] + np.linalg.norm(own.errors)
    V = np.linalg.svd(D)[2][:5]
    sines = np.sqrt(np.maximum(1 - np.sum(F.Vh * V, axis=1) ** 2, 0))
    assert np.all(sines <= F.info.vector_errors)


def test_an_error_of_entries_turns_a_vector_by_more_than_its_share_of_the_gap() -> None:
    # The second left vector leans to the first by 2/3 of the error, and to the third by all of it: 1.2 of it together.
    D, error = np.diag([2.0, 1.0, 0.0]), 1e-3
    E = error * np.eye(3, k=-1)
    F = widen_bounds(ss.svd(D + E, 3, solver="exact", certify=True), error, 1.0)
    sine = np.linalg.norm(np.delete(F.U[:, 1], 1))
    assert 1.2 * error < sine <= F.info.vector_errors[1] < 2.1 * error


@pytest.mark.filterwarnings("ignore:not certified")
def test_a_fit_says_what_it_does_not_know() -> None:
    F = ss.svd(counts(), 3, solver="exact", certify=True)
    before: Info = F.info
    with pytest.warns(UserWarning, match="The error bounds of 3 components exceed tol="):
        assert widen_bounds(F, 1.0, 1e-6).info.converged is False
    assert before.converged
    plain = ss.svd(counts(), 3, solver="exact")
    assert plain.info.value_errors is None
    with pytest.warns(UserWarning, match="The error bounds of 3 components exceed tol="):
        told = widen_bounds(plain, 1.0, 1e-6).info
    np.testing.assert_allclose(told.value_errors, 1 / plain.S)
    assert told.converged is False


@pytest.mark.filterwarnings("ignore:not certified")
@pytest.mark.parametrize("how", [ss.PearsonResiduals(), ss.LogNormalize()])
def test_a_solver_without_bounds_gets_none_from_the_entries(how: Any) -> None:
    X, solver = counts(400, 60, seed=2), ss.RandomizedSVD(n_iter=0)
    S = ss.svd(X, 5, preprocess=how, solver="exact").S
    assert ss.svd(X, 5, preprocess=how, solver=solver, rng=0).info.value_errors is None
    F = ss.svd(X, 5, preprocess=how, solver=solver, rng=0, certify=True)
    assert F.info.value_errors is not None
    assert np.all((S - F.S > 1e-9 * S) & (S - F.S <= F.info.value_errors * F.S))


def test_the_tolerance_and_the_solver_stay_as_they_were_asked_for() -> None:
    X = sparse.csr_array(counts(400, 60, seed=2))
    F = ss.svd(X, 5, preprocess=ss.PearsonResiduals(), solver=ss.BlockLanczos(1e-6), rng=0)
    assert F.info.solver == repr(ss.BlockLanczos(1e-6))
    assert F.info.value_errors is not None
    assert F.info.value_errors.max() <= 1e-6
