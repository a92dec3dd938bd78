"""The kernel of the squares of columns about a shift."""

import numpy as np
import pytest

from shiftsvd.kernels import twin
from tests.support.closeness import assert_close
from tests.support.compiled import compiled
from tests.support.matrices import EPS
from tests.support.operators import panel
from tests.support.sampling import pairs
from tests.support.structures import INDICES, STRUCTURES, cases, steps, weights_of


@pytest.mark.parametrize(("structure", "dtype", "index", "rank"), pairs(STRUCTURES, ["f4", "f8"], INDICES, [0, 1, 3]))
def test_compiled_column_squares_are_the_twins(structure, dtype, index, rank):
    for X, rows, D in cases(structure, dtype, index):
        L, R = panel(len(D), rank, seed=1), panel(X.shape[1], rank, seed=2)
        for w in weights_of(len(D)):
            found = compiled.column_squares(X, rows, w, L, R)
            u = np.ones(len(D)) if w is None else w
            shift = np.abs(L) @ np.abs(R).T
            bound = EPS * (steps(D) + 2 * rank) * np.linalg.norm(u @ (D**2 + 2 * np.abs(D) * shift))
            assert_close(found, twin.column_squares(X, rows, w, L, R), bound, f"rows {rows}")
            assert_close(found, u @ (D**2 - 2 * D * (L @ R.T)), bound, f"rows {rows}")
