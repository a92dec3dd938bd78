"""Rows and columns of sparse single precision data that are full: shifted in double precision, and kept in it."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.algebra.generic import fused, shift_of
from shiftsvd.algebra.low_rank import Deflated
from shiftsvd.algebra.scaled import Scaled
from shiftsvd.backends.files import DiskRows
from shiftsvd.solvers import Solver
from tests.support.blocks import cut_small
from tests.support.containers import Held
from tests.support.matrices import EPS, Array, in_double
from tests.support.sampling import pairs

K = 10
SOLVERS: dict[str, Solver] = {
    "lanczos": ss.BlockLanczos(1e-8),
    "lanczos 1e-10": ss.BlockLanczos(1e-10),
    "gram": ss.Gram(1e-8),
    "exact": ss.Exact(certify=True),
}
STORED: dict[str, Callable[[Array], Any]] = {
    "csr": sparse.csr_array,
    "csc": sparse.csc_array,
    "file": lambda D: DiskRows(Held(sparse.csr_array(D))),
}


def with_full_lines(seed: int, rows: bool) -> Array:
    """Sparse numbers beside columns, and perhaps a row, that are far from zero; single precision."""
    rng = np.random.default_rng(seed)
    D = rng.standard_normal((250, 80)) * (rng.random((250, 80)) < 0.1) * 0.9 ** np.arange(80)
    D[:, :20] += 100 * rng.random(20) + rng.standard_normal((250, 20)) * 10 ** rng.uniform(-1, 1)
    if rows:
        D[5, 20:] += 3.1
        D[5, :3] = 0  # not quite full
    return D.astype(np.float32)


@cache
def shifted(seed: int, rows: bool, shift: str) -> tuple[Array, Array]:
    """The numbers, and the leading values of them without their means."""
    D = with_full_lines(seed, rows)
    X = in_double(D)
    C = X - X.mean(axis=0) - (X.mean(axis=1)[:, None] - X.mean() if shift == "both" else 0)
    return D, np.linalg.svd(C, compute_uv=False)[:K]


@pytest.mark.parametrize(("name", "stored", "rows"), pairs(SOLVERS, STORED, [False, True]))
def test_full_lines_of_single_data_lose_nothing_that_the_bounds_do_not_know(name: str, stored: str, rows: bool) -> None:
    for seed in range(1):
        for shift in ("mean", "both"):
            D, values = shifted(seed, rows, shift)
            for turn in (np.asarray, np.transpose) if shift == "both" else (np.asarray,):
                F = ss.svd(STORED[stored](np.ascontiguousarray(turn(D))), K, shift=shift, solver=SOLVERS[name], rng=0)
                errors = np.abs(F.S - values) / values
                assert F.info.converged
                assert np.all(errors <= F.info.value_errors + 30 * EPS * values[0] / values)  # that of the reference
                assert F.U.dtype == F.Vh.dtype == F.dtype == np.float32


def test_full_lines_cost_a_copy_in_double_precision_only_where_they_are() -> None:
    D = with_full_lines(0, rows=False)
    mean = D.mean(axis=0, dtype=np.float64)
    shift = ss.LowRank(np.ones(len(D)), mean)
    A = ss.as_operator(sparse.csr_array(D)) - shift
    bare = ss.as_operator(sparse.csr_array(D[:, 20:])) - ss.LowRank(np.ones(len(D)), mean[20:])
    assert A.ready.dtype == np.float64  # type: ignore[attr-defined]
    assert bare.ready.dtype == np.float32  # type: ignore[attr-defined]
    for B in (A, A.H, fused(A, np.inf), fused(A.H, np.inf)):
        assert B.dtype == np.float32
        assert B.costs.eps == EPS
        assert shift_of(B).frobenius_norm() == pytest.approx(shift.frobenius_norm())  # products round at its level


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("mean", [2, 8, 12, 1000])
def test_full_lines_are_shifted_in_their_entries_only_if_an_implicit_shift_would_cancel(
    mean: int, turned: bool
) -> None:
    rng = np.random.default_rng(0)
    D = rng.standard_normal((300, 40)) * (rng.random((300, 40)) < 0.1)
    D[:, 7] = mean + rng.standard_normal(300)
    D = D.astype(np.float32)
    mu = D.mean(axis=0, dtype=np.float64)
    C, shift = D - mu, ss.LowRank(np.ones(300), mu)
    if turned:
        D, C, shift = np.ascontiguousarray(D.T), C.T, shift.H
    values = np.linalg.svd(C, compute_uv=False)[:5]
    for learned in (False, True):  # the moments decide, whether they are known or not
        A = ss.as_operator(sparse.csr_array(D))
        if learned:
            (A.row_moments if turned else A.moments)()  # type: ignore[attr-defined]
        B = A - shift
        assert B.ready.dtype == (np.float32 if mean < 10 else np.float64)  # type: ignore[attr-defined]
        for F in (B, fused(B, np.inf), fused(B.H, np.inf)):
            np.testing.assert_allclose(
                F.matmat(np.eye(F.shape[1])), C if F.shape == C.shape else C.T, atol=1e-12 * mean
            )
        G = ss.svd(B, 5, solver=ss.BlockLanczos(1e-8), rng=0)
        assert np.all(np.abs(G.S - values) <= G.info.value_errors * G.S)


def test_rounding_at_the_level_of_a_shift_is_known_through_scales_and_projections() -> None:
    D = with_full_lines(0, rows=False).astype(np.float64)[:, :20]
    rng = np.random.default_rng(0)
    rows, cols = rng.random(len(D)) + 0.5, rng.random(20) + 0.5
    shift = ss.LowRank(np.ones(len(D)), D.mean(axis=0))
    A = ss.as_operator(sparse.csr_array(D)) - shift
    V = np.linalg.qr(rng.standard_normal((20, 2)))[0]
    size = np.linalg.norm(rows[:, None] * (cols * D.mean(axis=0)))
    for B in (Scaled(A, rows, cols), Deflated(Scaled(A, rows, cols), V), Scaled(A, rows, cols).H):
        assert shift_of(B).frobenius_norm() == pytest.approx(size)
        assert shift_of(fused(B, np.inf)).frobenius_norm() == pytest.approx(size)
    assert shift_of(Scaled(fused(A, np.inf), rows, cols)).frobenius_norm() == pytest.approx(size)
    assert shift_of(Deflated(fused(A, np.inf), V)).frobenius_norm() == pytest.approx(shift.frobenius_norm())


@pytest.mark.parametrize("seed", range(6))
def test_scaled_columns_far_from_zero_keep_the_bounds_of_a_gram_matrix(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n = 1200, 30
    D = rng.standard_normal((m, 8)) @ rng.standard_normal((8, n)) + 1e-3 * rng.standard_normal((m, n))
    D += 1e8 * (1 + rng.random(n))
    L = np.longdouble
    C = D.astype(L) - D.astype(L).mean(axis=0)
    C /= np.sqrt((C * C).mean(axis=0))
    V = np.linalg.svd(C.astype(float), full_matrices=False)[2][:K].T.astype(L)
    values = np.sqrt(((C @ V) ** 2).sum(axis=0) / (V**2).sum(axis=0))
    F = ss.svd(sparse.csc_array(D), K, shift="mean", scale="std", solver=ss.Gram(1e-2), rng=0)
    assert np.all(np.abs(F.S - values) <= F.info.value_errors * F.S)


def test_full_rows_of_every_block_are_shifted(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch)
    rng = np.random.default_rng(0)
    D = rng.standard_normal((40, 30)) * (rng.random((40, 30)) < 0.2)
    D[::7] = rng.standard_normal(30) + 100
    mean = D.mean(axis=0)
    A = ss.as_operator(sparse.csr_array(D)) - ss.LowRank(np.ones(40), mean)
    np.testing.assert_allclose(A.matmat(np.eye(30)), D - mean, atol=1e3 * EPS)
