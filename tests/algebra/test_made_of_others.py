"""Operators that are made of others: one above or beside another; each is its dense matrix."""

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.algebra.generic import gram_matrix, triangle
from shiftsvd.operators import VStack, hstack
from shiftsvd.testing import check_operator
from tests.support.closeness import assert_close
from tests.support.containers import CONTAINERS, FEW
from tests.support.matrices import EPS, in_double, values
from tests.support.operators import Minimal, assert_is
from tests.support.sampling import in_turn


@pytest.mark.parametrize(("name", "heights"), in_turn(FEW, [(7, 4, 12), (3,), (2, 2)], 1))
def test_operators_above_and_beside_each_other_are_stacked(name: str, heights: tuple[int, ...]) -> None:
    parts = [values((m, 6), CONTAINERS[name].dtype, i) for i, m in enumerate(heights)]
    E = np.vstack([in_double(D) for D in parts])
    size = np.linalg.norm(E) + 1
    mu = np.linspace(1, 2, 6)
    A = VStack(tuple(ss.as_operator(CONTAINERS[name].make(D)) for D in parts))
    assert_is(A, E, size)
    assert_is(A - ss.LowRank(np.ones(len(E)), mu), E - mu, size + np.linalg.norm(np.ones((len(E), 1)) * mu))
    wide = hstack([ss.as_operator(CONTAINERS[name].make(np.ascontiguousarray(D.T))) for D in parts])
    assert_is(wide, np.hstack([in_double(D).T for D in parts]), size)
    check_operator(A)
    w = np.linspace(0, 2, len(E))
    assert_close(gram_matrix(A, w), E.conj().T @ (w[:, None] * E), 100 * A.costs.gram_eps * size**2)
    R = triangle(A, w)
    assert_close(R.conj().T @ R, E.conj().T @ (w[:, None] * E), 100 * EPS * size**2)


def test_parts_of_different_kinds_have_components_of_all() -> None:
    rng = np.random.default_rng(0)
    D, E, G = (rng.standard_normal((40, n)) + 20 for n in (30, 25, 20))
    A = hstack([ss.as_operator(D), ss.as_operator(sparse.csr_array(E)), Minimal(G)])
    F = ss.svd(A, 3, shift="mean", tol=1e-9, rng=0)
    X = np.hstack([D, E, G])
    np.testing.assert_allclose(F.S, np.linalg.svd(X - X.mean(0), compute_uv=False)[:3], rtol=1e-8)
    with pytest.raises(ValueError, match=r"equal numbers of columns, got \[25, 30\]"):
        VStack((ss.as_operator(D), ss.as_operator(E)))


@pytest.mark.parametrize("scale", [1e-200, 1e180])
def test_stacked_operators_have_values_at_any_scale(scale: float) -> None:
    D, E = values((30, 8), seed=1), values((20, 8), seed=2)
    F = ss.svd(VStack((ss.as_operator(D * scale), ss.as_operator(E * scale))), 3, solver="lanczos", rng=0)
    np.testing.assert_allclose(F.S / scale, np.linalg.svd(np.vstack([D, E]))[1][:3], rtol=1e-4)
