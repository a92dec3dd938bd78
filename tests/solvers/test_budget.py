"""Reads of the data: never more than `max_passes` and one, whatever a fit has to do, and as many as were foreseen."""

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.linalg import eigvalsh_tridiagonal

import shiftsvd as ss
from shiftsvd.algebra.operator import Costs
from shiftsvd.solvers.hermitian import HermitianLanczos
from tests.support.matrices import Array, with_values
from tests.support.operators import Counting
from tests.support.sampling import in_turn

j = np.arange(1.0, 121.0)
SPECTRA = {
    "a leader": np.r_[1e9, 1 / j[1:]],
    "leaders of leaders": np.r_[1e12, 1e8, 1e4, j[3:] ** -0.5],
    "clusters": np.repeat(0.9 ** np.arange(24), 5),
    "flat": np.linspace(1, 0.9, 120),
}


class TwoReads(ss.Operator):
    """A matrix that knows its products from both sides alone, and how many there were."""

    def __init__(self, X: Array) -> None:
        self.X, self.shape, self.dtype, self.reads = X, X.shape, X.dtype, 0

    def matmat(self, V: Array) -> Array:
        self.reads += 1
        return self.X @ V

    def rmatmat(self, W: Array) -> Array:
        self.reads += 1
        return self.X.T @ W


@pytest.mark.parametrize(("name", "limit"), in_turn(SPECTRA, [1, 2, 3, 5, 8, 13, 20, 40], 2))
@pytest.mark.parametrize("kind", [Counting, TwoReads])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_fit_reads_more_than_max_passes_and_once(kind: Any, name: str, limit: int, dtype: type) -> None:
    solver = ss.BlockLanczos(1e-6, max_passes=limit, block_size=4, max_basis=40)
    X = with_values((200, 120), SPECTRA[name]).astype(dtype)
    A = kind(X)
    F = solver.factorize(A, 10, np.random.default_rng(limit))
    assert A.reads == F.n_passes <= limit + 1
    known = F.certificate
    assert known is not None
    if known.converged:
        exact = np.linalg.svd(X.astype(np.float64), compute_uv=False)[: len(F.S)]
        assert np.all(np.abs(F.S - exact) <= (known.value_errors + 1e-12) * F.S)


def test_a_hermitian_basis_has_as_many_blocks_as_the_values_need() -> None:
    A = ss.as_operator(np.diag(np.arange(60.0)))
    found = HermitianLanczos(block_size=2, max_passes=1)(A, 5, np.random.default_rng(0))
    assert (len(found.values), found.n_passes) == (5, 3)


def test_single_data_go_over_to_double_even_when_the_basis_holds_everything() -> None:
    X = with_values((60, 33), np.r_[1e6, 1 / j[1:33]]).astype(np.float32)
    F = ss.svd(X, 4, solver=ss.BlockLanczos(1e-3, block_size=32), rng=0)
    assert F.info.converged
    np.testing.assert_allclose(F.S, np.linalg.svd(X.astype(np.float64), compute_uv=False)[:4], rtol=1e-3)


@pytest.mark.parametrize("block_size", [1, 4])
def test_no_small_value_is_taken_for_0_where_no_pass_is_left_to_tell(block_size: int) -> None:
    S = np.r_[np.linspace(1, 0.5, 14), np.full(15, 1e-11)]
    X, spent = with_values((127, 29), S), -(-29 // block_size)
    for limit in (spent - 1, spent, spent + 1):
        solver = ss.BlockLanczos(0.0, block_size, max_passes=limit)
        F = solver.factorize(ss.as_operator(X), 25, np.random.default_rng(0))
        known = F.certificate
        assert known is not None
        if known.converged:
            assert np.all(np.abs(F.S - S[:25]) <= (known.value_errors + 1e-12) * F.S)
        assert known.converged or limit <= spent


# --- foreseen -------------------------------------------------------------------------------------------------


class Diagonal(ss.Operator):
    """A diagonal matrix, of which one product is one read: what a fit reads depends on the singular values alone."""

    def __init__(self, S: Array) -> None:
        self.S, self.shape, self.dtype = S, (len(S), len(S)), S.dtype

    def matmat(self, V: Array) -> Array:
        return self.S[:, None] * V

    rmatmat = matmat

    def gram(self, V: Array, weights: Array | None = None) -> Array:
        return (self.S**2)[:, None] * V

    @property
    def costs(self) -> Costs:
        return Costs.of(self, gram_reads=1)


def noise(n: int, m: int, rng: np.random.Generator) -> Array:
    """The singular values of m x n standard normal numbers (Dumitriu & Edelman 2002)."""
    d, e = np.sqrt(rng.chisquare(np.arange(m, m - n, -1))), np.sqrt(rng.chisquare(np.arange(n - 1, 0, -1)))
    return np.sqrt(eigvalsh_tridiagonal(d**2 + np.r_[0, e**2], d[:-1] * e)[::-1])


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("n", "m"), [(60, 90), (500, 20_000), (4000, 200_000)])
@pytest.mark.parametrize("k", [1, 10, 30])
def test_the_passes_of_noise_are_within_the_range(n: int, m: int, k: int) -> None:
    A = Diagonal(noise(n, m, np.random.default_rng([n, k])))
    for tol in (1e-4, 1e-6) if n < 4000 else (1e-4,):
        solver = ss.BlockLanczos(tol)
        least, most = solver.passes_range(A, k)
        assert least <= solver.factorize(A, k, np.random.default_rng(k)).n_passes <= most


@pytest.mark.parametrize("k", [1, 5, 20])
def test_the_passes_of_steep_and_of_exact_rank_are_within_the_range(k: int) -> None:
    place = np.arange(1.0, 301.0)
    for S in (place**-2.0, np.exp(-place / 5), np.where(place <= 30, 2 - place / 30, 0.0), np.ones(300)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            took = ss.BlockLanczos().factorize(Diagonal(S), k, np.random.default_rng(k)).n_passes
        least, most = ss.BlockLanczos().passes_range(Diagonal(S), k)
        assert least <= took <= most
