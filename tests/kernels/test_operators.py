"""What operators compute by kernels: the same bits by any threads, and integers as doubles."""

import sys
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import shiftsvd as ss
from shiftsvd import kernels
from shiftsvd.backends import sparse
from tests.support.closeness import assert_close
from tests.support.compiled import compiled
from tests.support.matrices import EPS, Array, values
from tests.support.operators import panel
from tests.support.structures import steps


def everything(A: Any, V: Array, W: Array, w: Array, u: Array) -> dict[str, Array]:
    """All that an operator computes by kernels, by name."""
    moments, rows = A.moments(w), A.row_moments(u)
    parts = {
        "matmat": A.matmat(V),
        "rmatmat": A.rmatmat(W),
        "gram": A.gram(V),
        "gram single": A.gram(V.astype(np.float32)),
        "gram weighted": A.gram(V, w),
        "gram matrix": A.gram_matrix(w),
        "mean": A.moments().mean,
        "weighted mean": moments.mean,
        "row mean": rows.mean,
        "column squares": A.column_squares(),
        "weighted column squares": A.column_squares(w),
    }
    squares = {"squares": moments.M2, "row squares": rows.M2}
    return parts | {name: M2 for name, M2 in squares.items() if M2 is not None}


def full_lines(dtype: Any) -> Array:
    D = values((400, 30), dtype, seed=5, density=0.2)
    D[:, 4] = values((400,), dtype, seed=6, density=1.0) + 2
    return D


OPERATORS = {
    "single": lambda: csr_array(values((400, 30), np.float32, seed=1, density=0.2)),
    "double": lambda: csr_array(values((400, 30), np.float64, seed=2, density=0.2)),
    "int16": lambda: csr_array(values((400, 30), np.int16, seed=3, density=0.2)),
    "full column": lambda: csr_array(full_lines(np.float64)),
    "full column single": lambda: csr_array(full_lines(np.float32)),
}


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize("shifted", [False, True], ids=["plain", "shifted"])
@pytest.mark.parametrize("kind", OPERATORS)
def test_every_number_of_threads_gives_the_same_bits_every_time(monkeypatch, kind, shifted):
    monkeypatch.setattr(sparse, "ENTRIES", 32)
    monkeypatch.setattr(sparse, "ACCUMULATOR", 1)
    monkeypatch.setattr(compiled, "ENTRIES", 8)
    before = sys.getswitchinterval()
    X, rng = OPERATORS[kind](), np.random.default_rng(1)
    panels = panel(30, 19, seed=1), panel(400, 19, seed=2), rng.random(400), rng.random(30)
    shift = ss.LowRank(panel(400, 2, seed=3), panel(30, 2, seed=4))
    first = None
    try:
        sys.setswitchinterval(1e-5)
        for n_threads in (1, 2, 3, 8):
            A = ss.as_operator(X, n_threads=n_threads)
            A = A - shift if shifted else A
            assert len(A.blocks()) >= 4
            with kernels.threads():
                for _ in range(2 if n_threads > 1 else 1):
                    parts = everything(A, *panels)
                    first = first or parts
                    for name, part in parts.items():
                        assert part.tobytes() == first[name].tobytes(), f"{name} with {n_threads} threads"
    finally:
        sys.setswitchinterval(before)


def assert_multiplies_as(A: Any, D: Array, eps: float = EPS) -> None:
    """Everything is what it is of the dense matrix D, whose products lose eps."""
    (m, n), rng = D.shape, np.random.default_rng(1)
    V, W, w, u = panel(n, 5, seed=1), panel(m, 5, seed=2), rng.random(m), rng.random(n)
    size, tol = np.linalg.norm(D), steps(D) * eps * np.linalg.norm(D)
    found = everything(A, V, W, w, u)
    assert_close(found["matmat"], D @ V, tol * np.linalg.norm(V), "matmat")
    assert_close(found["rmatmat"], D.T @ W, tol * np.linalg.norm(W), "rmatmat")
    assert_close(found["gram"], D.T @ (D @ V), 2 * tol * size * np.linalg.norm(V), "gram")
    assert_close(found["gram weighted"], D.T @ (w[:, None] * (D @ V)), 2 * tol * size * np.linalg.norm(V), "weighted")
    assert_close(found["gram matrix"], D.T @ (w[:, None] * D), tol * size, "gram matrix")
    assert_close(found["mean"], D.mean(axis=0), tol, "mean")
    assert_close(found["row mean"], D @ u / u.sum(), tol, "row mean")
    assert_close(found["column squares"], (D**2).sum(axis=0), tol * size, "column squares")


@pytest.mark.parametrize("dtype", [f"{s}int{bits}" for s in ("", "u") for bits in (8, 16, 32, 64)] + ["bool"])
def test_integers_multiply_as_doubles(monkeypatch, dtype):
    monkeypatch.setattr(sparse, "ENTRIES", 32)
    rng = np.random.default_rng(1)
    limits = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    D = rng.integers(*limits, (90, 14), dtype=np.uint8 if dtype == "bool" else dtype, endpoint=True)
    X = csr_array((D * (rng.random(D.shape) < 0.3)).astype(dtype))
    assert X.dtype == dtype
    A = ss.as_operator(X)
    assert A.dtype == np.float64
    assert_multiplies_as(A, X.toarray().astype(np.float64))


def test_half_precision_is_converted_to_single():
    X = csr_array(values((40, 9), np.float32, seed=1))
    X.data = X.data.astype(np.float16)
    A = ss.as_operator(X)
    assert A.dtype == np.float32
    D = np.zeros(X.shape)
    D[np.repeat(np.arange(40), np.diff(X.indptr)), X.indices] = X.data
    assert_multiplies_as(A, D)
