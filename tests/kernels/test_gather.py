"""The kernel that multiplies rows by a panel."""

import numpy as np

from shiftsvd.kernels import twin
from tests.support.closeness import assert_close
from tests.support.compiled import compiled
from tests.support.operators import panel
from tests.support.structures import PRECISIONS, WIDTHS, cases, index_types, products, steps, structures


@structures
@products
@index_types
def test_compiled_gather_is_the_twins(structure, precision, index):
    data, dtype = PRECISIONS[precision]
    for X, rows, D in cases(structure, data, index):
        for width in WIDTHS:
            V = panel(X.shape[1], width, dtype, seed=width)
            around = np.full((len(D) + 2, width + 5), np.nan, dtype)
            Y, Z = around[1:-1, 2 : width + 2], np.empty((len(D), width), dtype)
            compiled.gather(X, rows, compiled.panel(V, dtype), Y)
            twin.gather(X, rows, twin.panel(V, dtype), Z)
            bound = steps(D) * np.finfo(dtype).eps * np.linalg.norm(np.abs(D) @ np.abs(V))
            assert_close(Y, Z, bound, f"width {width}, rows {rows}")
            assert np.isnan(around).sum() == around.size - Y.size, "wrote outside of the panel"
