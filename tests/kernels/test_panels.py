"""The compiled kernels of tall panels: what NumPy computes, for every layout, width and instruction set."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiftsvd.backends import sparse
from shiftsvd.kernels import twin
from shiftsvd.kernels.twin import grouped
from shiftsvd.numerics.orth import inner, subtract_product
from tests.support.closeness import assert_close
from tests.support.compiled import compiled, extension
from tests.support.matrices import Array
from tests.support.operators import panel

quick = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
data_types = pytest.mark.parametrize("dtype", ["f4", "f8"])
EPS = float(np.finfo(np.float64).eps)
# Whether the entries of a row lie side by side, with a gap after the row or none; columns; and what no kernel takes.
LAYOUTS: dict[str, Any] = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "some columns": lambda D: np.hstack([D, D, D])[:, D.shape[1] : 2 * D.shape[1]],
    "some rows of columns": lambda D: np.asfortranarray(np.vstack([D, D, D]))[len(D) : 2 * len(D)],
    "every other column": lambda D: np.repeat(D, 2, 1)[:, ::2],
    "backwards": lambda D: D[::-1].copy()[::-1],
    "big-endian": lambda D: D.astype(D.dtype.newbyteorder(">")),
}


@pytest.fixture(autouse=True)
def every_width(monkeypatch):
    """The kernels take panels of any width, on instruction sets where BLAS is quicker, too."""
    monkeypatch.setattr(compiled, "NARROW", dict.fromkeys(compiled.NARROW, 1000))
    monkeypatch.setattr(compiled, "LEAST", 0)


def for_panels(B: Array, W: Array) -> Any:
    """The kernels that a product of these is made by."""
    return compiled if compiled.thin(B, W) else twin


def rounding(dtype: str, B: Array, W: Array) -> float:
    """What a product of these may be off by: some roundings of sums over rows or columns."""
    return float(np.finfo(dtype).eps) * max(B.shape) * float(np.linalg.norm(B) * np.linalg.norm(W))


@data_types
@pytest.mark.parametrize(("left", "right"), list(product(LAYOUTS, LAYOUTS)))
def test_inner_products_are_the_twins(dtype, left, right):
    for rows, columns, width in ((0, 3, 4), (1, 1, 1), (5, 3, 16), (255, 17, 7), (256, 16, 32), (700, 33, 50)):
        B, W = panel(rows, columns, dtype, seed=1), panel(rows, width, dtype, seed=2)
        B, W = LAYOUTS[left](B), LAYOUTS[right](W)
        found = for_panels(B, W).inner(B, W)
        assert found.dtype == np.float64
        assert_close(found, B.T.astype(float) @ W, rounding(dtype, B, W))


@data_types
@pytest.mark.parametrize(("left", "right"), list(product(LAYOUTS, LAYOUTS)))
def test_subtracted_products_are_the_twins(dtype, left, right):
    for rows, columns, width in ((0, 3, 4), (1, 1, 1), (5, 3, 16), (255, 17, 7), (256, 16, 32), (700, 33, 50)):
        B, W = panel(rows, columns, dtype, seed=1), LAYOUTS[right](panel(rows, width, dtype, seed=2))
        C, whole = panel(columns, width, dtype, seed=3), W.copy()
        B = LAYOUTS[left](B)
        for_panels(B, W).subtract_product(W, B, C)
        bound = rounding(dtype, B, C) + float(np.finfo(dtype).eps) * float(np.linalg.norm(whole))
        assert_close(W, whole - B.astype(float) @ C, bound)


@quick
@given(st.integers(0, 600), st.integers(1, 70), st.integers(1, 70), st.sampled_from(["f4", "f8"]), st.booleans())
def test_kernels_write_nothing_but_their_own_columns(rows, columns, width, dtype, by_columns):
    B = panel(rows, columns, dtype, seed=1)
    B = np.asfortranarray(B) if by_columns else B
    around = np.full((rows + 2, width + 2), 7, dtype)
    W = around[1:-1, 1:-1]
    W[:] = panel(rows, width, dtype, seed=2)
    want = W - B.astype(float) @ panel(columns, width, dtype, seed=3)
    for_panels(B, W).subtract_product(W, B, panel(columns, width, dtype, seed=3))
    assert_close(W, want, rounding(dtype, B, panel(columns, width, dtype, seed=3)) + 1e-6 * float(np.abs(want).sum()))
    W[:] = 7
    assert (around == 7).all()


def test_sums_in_single_precision_are_short_and_go_on_in_double():
    # 2^24 + 1 is no number of single precision: one long sum would lose all that comes after the first row.
    B, W = np.ones((2**16, 1), np.float32), np.ones((2**16, 16), np.float32)
    B[0] = 2**24
    assert (compiled.inner(B, W) >= 2**24 + 2**16 - 512).all()


def test_a_panel_that_must_not_be_written_to_is_not():
    W = panel(40, 16, seed=1)
    W.flags.writeable = False
    with pytest.raises((TypeError, ValueError)):
        compiled.subtract_product(W, panel(40, 16, seed=2), panel(16, 16, seed=3))


@pytest.mark.parametrize("W", [np.ones((4, 16)), np.ones((5, 15)), np.ones((5, 32))[:, ::2]], ids=str)
def test_panels_that_do_not_fit_are_refused(W):
    with pytest.raises(ValueError, match=r"as many rows|fill registers|contiguous"):
        extension.inner(np.ones((5, 3)), W, np.zeros((3, W.shape[1])), 1)
    with pytest.raises(ValueError, match=r"W must have|fill registers"):
        extension.subtract_product(np.ones((5, 3)), np.ones((3, W.shape[1])), W, 1)


@data_types
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_blocks_and_threads_change_no_bit(dtype, threads):
    from shiftsvd.kernels import threads as in_threads

    B, W = np.asfortranarray(panel(20_000, 40, dtype, seed=1)), panel(20_000, 16, dtype, seed=2)
    with in_threads(1):
        part, alone = inner(B, W), W.copy()
        subtract_product(alone, B, part)
    with in_threads(threads):
        again, beside = inner(B, W), W.copy()
        subtract_product(beside, B, again)
    np.testing.assert_array_equal(part, again)
    np.testing.assert_array_equal(alone, beside)


@pytest.mark.parametrize("count", [1, 2, 8, 9, 20])
@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize("width", [1, 7, 16, 33, 100])
@data_types
def test_sums_of_panels_are_those_of_numpy_in_double(dtype, width, rank, count):
    n = 301
    panels = [panel(n, width, dtype, seed=b) for b in range(count)]
    small = [panel(rank, width, seed=b) for b in range(count)]
    R = panel(n, rank, seed=99)
    want = sum(P.astype(float) for P in panels) - R @ sum(small)
    bound = (
        2 * count * EPS * float(sum(np.abs(P).sum() for P in panels)) + float(np.finfo(dtype).eps) * np.abs(want).max()
    )
    for kernels, cut in ((compiled, grouped), (twin, twin.panel)):
        for threads in (1, 3):
            room = np.full((n + 2, width + 2), 7, dtype)
            parts = ((cut(P.copy(), dtype), S) for P, S in zip(panels, small, strict=True))
            sparse.add_up(kernels, parts, count, R, room[1:-1, 1:-1], threads)
            assert np.abs(room[1:-1, 1:-1] - want).max() <= bound
            room[1:-1, 1:-1] = 7
            assert (room == 7).all()


def test_threads_change_no_bit_of_a_sum(monkeypatch):
    monkeypatch.setattr(sparse, "ROUNDED", 500)
    parts = [(grouped(panel(5000, 20, "f4", seed=b), "f4"), panel(2, 20, seed=b)) for b in range(12)]
    found = []
    for threads in (1, 2, 5):
        Y = np.empty((5000, 20), np.float32)
        sparse.add_up(compiled, iter(parts), len(parts), panel(5000, 2, seed=5), Y, threads)
        found.append(Y)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
