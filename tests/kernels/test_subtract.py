"""The kernels of dense blocks: a shift subtracted, moments of columns, and sums in double precision."""

import numpy as np
import pytest

from shiftsvd.kernels import twin
from tests.support.closeness import assert_close
from tests.support.compiled import compiled
from tests.support.layouts import LAYOUTS
from tests.support.matrices import EPS, values
from tests.support.operators import panel
from tests.support.structures import data_types


@data_types
def test_add_adds_in_double_precision(dtype):
    part, total = values((1001,), dtype, seed=1), values((1001,), seed=2)
    want = total + part
    compiled.add(part, total)
    np.testing.assert_array_equal(total, want)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rank", [0, 1, 3])
@data_types
def test_compiled_subtract_is_the_twins(dtype, rank, layout):
    for shape in ((7, 1), (7, 2), (1, 255), (5, 256), (3, 257), (2, 700), (0, 4)):
        X = LAYOUTS[layout](values(shape, dtype, seed=1, density=1.0))
        L, Rt = panel(shape[0], rank, seed=2), panel(rank, shape[1], seed=3)
        found = compiled.subtract(X, L, Rt, np.dtype(dtype))
        # Both are rounded to the type of the data once, on either side of a value between two numbers of it.
        bound = (np.finfo(dtype).eps + 2 * (rank + 1) * EPS) * np.linalg.norm(np.abs(X) + np.abs(L) @ np.abs(Rt))
        assert_close(found, twin.subtract(X, L, Rt, np.dtype(dtype)), bound, f"shape {shape}")
        assert_close(found, X - L @ Rt, bound, f"shape {shape}")
        assert found.dtype == dtype


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("weighted", [False, True])
@data_types
def test_compiled_moments_of_dense_blocks_are_the_twins(dtype, weighted, layout):
    for shape in ((1, 1), (3, 64), (4, 65), (257, 3), (700, 130), (5, 0)):
        X = LAYOUTS[layout](values(shape, dtype, seed=1, density=1.0) + np.array(100, dtype))
        w = np.random.default_rng(2).integers(0, 3, len(X)).astype(float) if weighted else None
        total = float(len(X) if w is None else max(w.sum(), 1))
        size = np.abs(X).astype(np.float64)
        for power, (found, want) in enumerate(
            zip(compiled.dense_moments(X, w, total), twin.dense_moments(X, w, total), strict=True)
        ):
            assert_close(found, want, 1e-13 * (1 + size.sum()) * (1 + size.max(initial=0)) ** power, f"shape {shape}")
            assert found.dtype == np.float64
