"""Panels as the kernels want them: cut into groups of columns."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shiftsvd.kernels.twin import LINE, grouped, spans, widths, zeros
from tests.support.compiled import extension
from tests.support.operators import panel
from tests.support.structures import assert_no_padding, quick


@quick
@given(st.integers(1, 600), st.sampled_from(["f4", "f8"]))
def test_groups_cover_every_column_once_with_at_most_a_third_of_padding(width, dtype):
    cut = widths(width, np.dtype(dtype))
    where = spans(cut, width)
    assert [j for span in where for j in range(span.start, span.stop)] == list(range(width))
    assert all(w & (w - 1) == 0 and 0 < w * np.dtype(dtype).itemsize <= extension.panel_bytes for w in cut)
    assert cut == sorted(cut, reverse=True)
    padding = [w - (span.stop - span.start) for w, span in zip(cut, where, strict=True)]
    assert not any(padding[:-1])
    assert 3 * padding[-1] <= cut[-1]


@quick
@given(st.integers(1, 9), st.integers(1, 100), st.sampled_from(["f4", "f8"]))
def test_a_cut_panel_is_the_panel_and_its_rows_cross_no_more_cache_lines_than_they_must(rows, width, dtype):
    V = panel(rows, width, dtype, seed=width)
    groups = grouped(V, dtype)
    np.testing.assert_array_equal(groups.join(), V)
    assert_no_padding(groups)
    assert not zeros(rows, width, dtype).flat.any()
    assert groups.flat.ctypes.data % LINE == 0
    assert groups.flat.size == sum(part.size for part in groups.parts)
    for part in groups.parts:
        assert part.flags.c_contiguous
        assert part.shape[0] == rows
        assert np.shares_memory(part, groups.flat)
        assert part.ctypes.data % min(LINE, part.shape[1] * part.itemsize) == 0
    copy = groups.empty_like(groups.flat.astype(np.float64))
    np.testing.assert_array_equal(copy.join(), V)
