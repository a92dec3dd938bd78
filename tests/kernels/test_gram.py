"""The kernel of both products in one read."""

import numpy as np
import pytest

from shiftsvd.kernels import twin
from tests.support.closeness import assert_close
from tests.support.compiled import compiled
from tests.support.operators import panel
from tests.support.sampling import pairs
from tests.support.structures import INDICES, PRECISIONS, STRUCTURES, WIDTHS, assert_no_padding, cases, steps


@pytest.mark.parametrize(
    ("structure", "precision", "index", "weighted", "rank"),
    pairs(STRUCTURES, PRECISIONS, INDICES, [False, True], [0, 1, 3]),
)
def test_compiled_gram_is_the_twins(structure, precision, index, weighted, rank):
    data, dtype = PRECISIONS[precision]
    for X, rows, D in cases(structure, data, index):
        w = np.random.default_rng(1).random(len(D)) if weighted else None
        L = panel(len(D), rank, seed=2)
        for width in WIDTHS:
            V, C = panel(X.shape[1], width, dtype, seed=width), panel(rank, width, dtype, seed=3)
            Z, sums = compiled.gram(X, rows, compiled.panel(V, dtype), w, L, compiled.panel(C, dtype))
            want = twin.gram(X, rows, twin.panel(V, dtype), w, L, twin.panel(C, dtype))
            Y = np.abs(D) @ np.abs(V) + np.abs(L) @ np.abs(C)
            eps = np.finfo(dtype).eps * (2 * steps(D) + 4 * rank + 8)
            assert_close(Z.join(), want[0].join(), eps * np.linalg.norm(np.abs(D).T @ Y), f"width {width}, rows {rows}")
            eps = eps + 2 * len(D) * np.finfo(dtype).eps
            assert_close(sums.join(), want[1].join(), eps * np.linalg.norm(np.abs(L).T @ Y), "L^T Y")
            assert_no_padding(Z)
            assert_no_padding(sums)
