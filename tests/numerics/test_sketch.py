"""Test matrices: their shapes, their distributions, and sketches applied without being formed."""

import tracemalloc

import numpy as np
import pytest
from scipy import stats

import shiftsvd as ss
from shiftsvd.sketch import Sketch
from tests.support.closeness import assert_close
from tests.support.containers import CONTAINERS, FEW
from tests.support.matrices import EPS, in_double, values

SKETCHES = (
    ss.sketch.Gaussian(),
    ss.sketch.Rademacher(),
    ss.sketch.SparseSign(),
    ss.sketch.SparseSign(nonzeros=3),
    ss.sketch.SRFT(),
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("sketch", SKETCHES, ids=repr)
def test_draws_have_the_shape_asked_for_and_follow_the_seed(sketch: Sketch) -> None:
    for n, ell in ((1, 1), (2, 1), (2, 2), (9, 4), (9, 9), (10, 9), (64, 20)):
        Omega = sketch.draw(n, ell, rng(3))
        assert Omega.shape == (n, ell)
        assert Omega.dtype == np.float64
        assert np.array_equal(Omega, sketch.draw(n, ell, rng(3)))
        assert n * ell < 30 or not np.array_equal(Omega, sketch.draw(n, ell, rng(4)))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("sketch", SKETCHES, ids=repr)
def test_columns_are_uncorrelated_and_of_equal_size_on_average(sketch: Sketch) -> None:
    # E Omega Omega^T = c I and E Omega^T Omega = c' I, which makes the sample unbiased.
    n, ell, draws = 12, 6, 4000
    Omegas = np.stack([sketch.draw(n, ell, rng(seed)) for seed in range(draws)])
    outer = np.einsum("dij,dkj->ik", Omegas, Omegas) / draws
    scale = np.trace(outer) / n
    assert np.abs(outer / scale - np.eye(n)).max() <= 6 / np.sqrt(draws)
    assert np.abs(Omegas.mean(axis=0)).max() <= 6 * Omegas.std() / np.sqrt(draws)


def test_gaussian_entries_are_standard_normals_of_the_generator() -> None:
    assert np.array_equal(ss.sketch.Gaussian().draw(40, 5, rng(7)), rng(7).standard_normal((40, 5)))
    assert stats.kstest(ss.sketch.Gaussian().draw(400, 10, rng(0)).ravel(), "norm").pvalue > 1e-3


def test_rademacher_entries_are_signs_in_equal_numbers() -> None:
    Omega = ss.sketch.Rademacher().draw(1000, 10, rng(0))
    assert set(np.unique(Omega)) == {-1.0, 1.0}
    assert abs(Omega.mean()) <= 5 / np.sqrt(Omega.size)


@pytest.mark.parametrize(("nonzeros", "ell"), [(8, 20), (3, 20), (8, 8), (8, 5), (1, 4)])
def test_sparse_sign_rows_hold_a_few_signs_of_unit_length(nonzeros: int, ell: int) -> None:
    Omega = ss.sketch.SparseSign(nonzeros).draw(3000, ell, rng(0))
    zeta = min(nonzeros, ell)
    assert np.all((Omega != 0).sum(axis=1) == zeta)
    np.testing.assert_allclose(np.abs(Omega[Omega != 0]), 1 / np.sqrt(zeta), rtol=4 * EPS)
    used = (Omega != 0).mean(axis=0)
    assert np.abs(used - zeta / ell).max() <= 5 * np.sqrt(0.25 / 3000)


@pytest.mark.parametrize("n", range(1, 25))
def test_srft_columns_are_orthogonal_for_every_size(n: int) -> None:
    for ell in range(1, n + 1):
        Omega = ss.sketch.SRFT().draw(n, ell, rng(n))
        assert Omega.shape == (n, ell)
        gram = Omega.T @ Omega
        assert_close(gram, np.diag(np.diag(gram)), 20 * EPS * n * ell)
        np.testing.assert_allclose(np.diag(gram), n, rtol=20 * EPS)


@pytest.mark.parametrize(
    ("n", "ell"), [(64, 10), (60, 7), (61, 12), (32, 32), (37, 36), (37, 37), (8, 1), (2, 2), (1, 1)]
)
def test_srft_is_applied_as_the_matrix_that_it_draws(n: int, ell: int) -> None:
    for name in FEW:
        for m in (3, n + 2):
            D = values((m, n), CONTAINERS[name].dtype, n)
            A = ss.as_operator(CONTAINERS[name].make(D))
            want = in_double(D) @ ss.sketch.SRFT().draw(n, ell, rng(5))
            found = ss.sketch.SRFT().apply(A, ell, rng(5))
            assert_close(found, want, 20 * A.costs.eps * np.linalg.norm(in_double(D)) * np.sqrt(n * ell), name)


@pytest.mark.parametrize("n", [1024, 1000, 1021])  # a power of 2, a smooth number, a prime
def test_srft_needs_the_memory_of_a_few_blocks_for_every_size(n: int) -> None:
    X = values((2048, n), density=1.0)
    A = ss.as_operator(X)
    tracemalloc.start()
    ss.sketch.SRFT().apply(A, 64, rng())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Blocks of 8 MiB; complex, transformed, signed.
    assert peak <= 20 * 2**23


def test_srft_is_applied_to_shifted_blocks() -> None:
    D = values((40, 30))
    want = (D - D.mean(axis=0)) @ ss.sketch.SRFT().draw(30, 8, rng(1))
    for B in (D, np.asfortranarray(D), CONTAINERS["csr float64"].make(D), CONTAINERS["duck float64"].make(D)):
        found = ss.sketch.SRFT().apply(ss.centered(B), 8, rng(1))
        assert_close(found, want, 40 * EPS * np.linalg.norm(D) * np.sqrt(30 * 8))


@pytest.mark.parametrize("sketch", SKETCHES, ids=repr)
def test_apply_is_the_product_with_a_draw(sketch: Sketch) -> None:
    for dtype in (np.float64, np.complex128):
        D = values((30, 17), dtype)
        for A, E in ((ss.as_operator(D), D), (ss.as_operator(D).H, D.conj().T)):
            Omega = sketch.draw(E.shape[1], 6, rng(2))
            found = sketch.apply(A, 6, rng(2))
            assert_close(found, E @ Omega, 20 * EPS * np.linalg.norm(D) * np.linalg.norm(Omega))


@pytest.mark.parametrize("sketch", SKETCHES, ids=repr)
@pytest.mark.parametrize("name", ["array float64", "array complex128", "csr float64", "csc float64", "duck float64"])
def test_every_sketch_finds_a_matrix_of_low_rank(sketch: Sketch, name: str) -> None:
    for shape in ((80, 30), (30, 80)):
        dtype = CONTAINERS[name].dtype
        D = values((shape[0], 4), dtype, 1) @ values((4, shape[1]), dtype, 2)
        F = ss.RandomizedSVD(n_oversamples=6, n_iter=0, sketch=sketch)(ss.as_operator(CONTAINERS[name].make(D)), 4, 0)
        S = np.linalg.svd(D, compute_uv=False)
        # One product, no iteration: the digits that a draw loses are its condition on the row space.
        assert_close(F.S, S[:4], 1e4 * EPS * S[0])
        assert_close((F.U * F.S) @ F.Vh, D, 1e4 * EPS * S[0])


@pytest.mark.parametrize("sketch", SKETCHES, ids=repr)
def test_every_sketch_works_in_the_algorithm_of_the_paper(sketch: Sketch) -> None:
    D = values((40, 25))
    F = ss.ShiftedRandomizedSVD(n_iter=6, n_oversamples=15, sketch=sketch)(ss.centered(D), 5, 0)
    S = np.linalg.svd(D - D.mean(axis=0), compute_uv=False)
    assert np.abs(F.S - S[:5]).max() <= 1e-2 * S[0]


def test_sketches_are_values() -> None:
    assert ss.sketch.SparseSign() == ss.sketch.SparseSign(nonzeros=8) != ss.sketch.SparseSign(nonzeros=4)
    assert len({ss.sketch.Gaussian(), ss.sketch.Gaussian(), ss.sketch.SRFT(), ss.sketch.Rademacher()}) == 3
    assert repr(ss.sketch.SparseSign(4)) == "SparseSign(nonzeros=4)"
