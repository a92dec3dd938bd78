"""All products of the compiled kernels and of their twin: those of the dense matrix."""

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftsvd.kernels import twin
from tests.support.closeness import assert_close
from tests.support.compiled import compiled
from tests.support.matrices import Array, values
from tests.support.operators import panel
from tests.support.structures import INDICES, PRECISIONS, csr, quick, steps


@st.composite
def ranges(draw: Any) -> tuple[Array, int, int, int, int]:
    """(dense matrix, first row, one past the last, width, entries that are read before the next range)."""
    m, n = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    density = draw(st.sampled_from([0.0, 0.05, 0.3, 1.0]))
    D = values((m, n), seed=draw(st.integers(0, 2**20)), density=density)
    lo = draw(st.integers(0, m - 1))
    return D, lo, draw(st.integers(lo + 1, m)), draw(st.integers(1, 70)), draw(st.sampled_from([1, 3, 17, 2**19]))


@quick
@given(ranges(), st.sampled_from(sorted(PRECISIONS)), st.sampled_from(INDICES), st.integers(0, 3))
def test_both_kernels_are_the_dense_products(case, precision, index, rank):
    D, lo, hi, width, entries = case
    data, dtype = PRECISIONS[precision]
    X = csr(D.astype(data), index)
    D = X.toarray().astype(float)[lo:hi]
    V, W = panel(D.shape[1], width, dtype, seed=1), panel(len(D), width, dtype, seed=2)
    L, C, w = panel(len(D), rank, seed=3), panel(rank, width, dtype, seed=4), np.random.default_rng(5).random(len(D))
    A, Y = np.abs(D), np.abs(D) @ np.abs(V) + np.abs(L) @ np.abs(C)
    eps = np.finfo(dtype).eps * (2 * steps(D) + 2 * len(D) + 4 * rank + 8)
    for kernel in (compiled, twin):
        with mock.patch.object(compiled, "ENTRIES", entries):
            P = np.empty((len(D), width), dtype)
            kernel.gather(X, (lo, hi), kernel.panel(V, dtype), P)
            assert_close(P, D @ V, eps * np.linalg.norm(A @ np.abs(V)), "gather")
            Z = kernel.scatter(X, (lo, hi), W, dtype).join()
            assert_close(Z, D.T @ W, eps * np.linalg.norm(A.T @ np.abs(W)), "scatter")
            Z, sums = kernel.gram(X, (lo, hi), kernel.panel(V, dtype), w, L, kernel.panel(C, dtype))
            E = w[:, None] * (D @ V - L @ C)
            assert_close(Z.join(), D.T @ E, eps * np.linalg.norm(A.T @ Y), "gram")
            assert_close(sums.join(), L.T @ E, eps * np.linalg.norm(np.abs(L).T @ Y), "sums of gram")


@pytest.mark.parametrize("kernel", [compiled, twin], ids=["compiled", "SciPy"])
@pytest.mark.parametrize("rows", [(0, 0), (3, 3), (6, 6)], ids=str)
def test_a_range_without_rows_adds_nothing(kernel, rows):
    X, V, none = csr(values((6, 5), seed=1)), panel(5, 3, seed=2), np.zeros((0, 3))
    kernel.gather(X, rows, kernel.panel(V, "f8"), none.copy())
    assert not kernel.scatter(X, rows, none, "f8").join().any()
    Z, sums = kernel.gram(X, rows, kernel.panel(V, "f8"), None, np.zeros((0, 1)), kernel.panel(panel(1, 3), "f8"))
    assert not Z.join().any()
    assert not sums.join().any()
    assert not any(np.any(found) for found in kernel.moments(X, rows, None))
    assert kernel.row_moments(X, rows, None)[0].shape == (0, 3)
    assert not kernel.column_counts(X, rows).any()
    assert not kernel.column_squares(X, rows, np.zeros(0), np.zeros((0, 1)), panel(5, 1)).any()
    assert not kernel.outer(X, rows, None).any()
    assert kernel.inspect(X, rows) == (0, 0, 0, -1, True)
