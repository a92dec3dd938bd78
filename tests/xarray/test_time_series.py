"""Lagged copies of a field and analytic signals as operators: each is its dense matrix."""

from typing import Any

import numpy as np
import pytest
from scipy import signal

import shiftsvd as ss
from shiftsvd.algebra.generic import gram_matrix, row_moments
from shiftsvd.algebra.low_rank import Deflated
from shiftsvd.operators import Product
from shiftsvd.testing import check_operator
from shiftsvd.xarray.travelling import AnalyticSignal, Lagged
from tests.support.closeness import assert_close
from tests.support.containers import CONTAINERS, FEW
from tests.support.matrices import EPS, Array, in_double, values
from tests.support.operators import assert_is, panel


def stacked_lags(D: Array, lags: tuple[int, ...]) -> Array:
    n = D.shape[1] - max(lags)
    return np.vstack([D[:, lag : lag + n] for lag in lags])


@pytest.mark.parametrize("name", [*FEW, "csc float64", "array float32"])
@pytest.mark.parametrize("lags", [(0, 1, 2), (0, 5), (2, 3, 9), (4,)])
def test_lags_are_those_of_the_stacked_matrix(name: str, lags: tuple[int, ...]) -> None:
    D = values((6, 17), CONTAINERS[name].dtype, 3)
    A = Lagged(ss.as_operator(CONTAINERS[name].make(D)), lags)
    E = stacked_lags(in_double(D), lags)
    size = np.linalg.norm(E)
    assert_is(A, E, size)
    check_operator(A)
    for w in (None, np.linspace(0, 2, len(E))):
        G = E.conj().T @ (E if w is None else w[:, None] * E)
        assert_close(gram_matrix(A, w), G, 100 * A.costs.gram_eps * size**2)
    level = np.full((E.shape[1], 1), E.shape[1] ** -0.5)
    C = Deflated(A, level)
    centred = E - E.mean(axis=1, keepdims=True)
    assert_close(gram_matrix(C), centred.conj().T @ centred, 100 * A.costs.gram_eps * size**2)
    np.testing.assert_allclose(row_moments(A).mean, E.mean(axis=1), atol=A.costs.eps * 100 * size)


@pytest.mark.parametrize("solver", ["gram", "lanczos", "exact"])
def test_components_of_lags_are_those_of_the_stacked_matrix(solver: Any) -> None:
    D = np.random.default_rng(0).standard_normal((50, 200)) * np.linspace(3, 0.1, 50)[:, None]
    E = stacked_lags(D, (0, 3, 6))
    given = {} if solver == "exact" else {"tol": 1e-9}
    F = ss.svd(Lagged(ss.as_operator(D), (0, 3, 6)), 4, solver=solver, rng=0, **given)
    np.testing.assert_allclose(F.S, np.linalg.svd(E, compute_uv=False)[:4], rtol=1e-6)
    for e in (-700, 600):
        B = ss.as_operator(D * 2.0**e)
        np.testing.assert_allclose(
            ss.svd(Lagged(B, (0, 3, 6)), 4, solver=solver, rng=0, **given).S * 2.0**-e, F.S, rtol=1e-6
        )


def padded(x: Array, decay: float) -> Array:
    """By the definition: the trend goes on, and what the ends are off it decays."""
    m = len(x)
    t, line = np.arange(m), np.polynomial.polynomial.polyfit(np.arange(m), x, 1)
    trend = [np.polynomial.polynomial.polyval(t + shift, line).T for shift in (-m, 0, m)]
    fading = np.exp(-t / (decay * m))[:, None]
    first, last = (x - trend[1])[0], (x - trend[1])[-1]
    return np.concatenate([trend[0] + fading[::-1] * first, x, trend[2] + fading * last])


@pytest.mark.parametrize("m", [1, 2, 7, 24])
@pytest.mark.parametrize("decay", [None, 0.05, 0.2])
def test_analytic_signals_are_those_of_scipy(m: int, decay: float | None) -> None:
    if m == 1 and decay is not None:
        pytest.skip("a single step has no trend")
    x = np.random.default_rng(m).standard_normal((m, 5))
    T = AnalyticSignal(m, decay, np.complex128)
    z = signal.hilbert(x if decay is None else padded(x, decay), axis=0)
    z = z if decay is None else z[m : 2 * m]
    z = z - z.mean(axis=0)
    assert_close(T.matmat(x), z, 1e3 * EPS * np.linalg.norm(x))
    check_operator(T)
    D = values((m, 9), seed=4)
    check_operator(Product(T, ss.as_operator(D)))
    G = T.matmat(D)
    assert_close(gram_matrix(Product(T, ss.as_operator(D)).H), G @ G.conj().T, 1e4 * EPS * np.linalg.norm(D) ** 2)
    assert_close(Product(T, ss.as_operator(D)) @ panel(9, 2), G @ panel(9, 2), 1e4 * EPS * np.linalg.norm(D))
