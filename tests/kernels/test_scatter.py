"""The kernel that multiplies a panel by the transpose of rows."""

import numpy as np
import pytest

from shiftsvd.kernels import twin
from tests.support.closeness import assert_close
from tests.support.compiled import compiled
from tests.support.matrices import EPS, values
from tests.support.operators import panel
from tests.support.structures import (
    PRECISIONS,
    WIDTHS,
    assert_no_padding,
    cases,
    csr,
    index_types,
    products,
    steps,
    structures,
)


@structures
@products
@index_types
def test_compiled_scatter_is_the_twins(structure, precision, index):
    data, dtype = PRECISIONS[precision]
    for X, rows, D in cases(structure, data, index):
        for width in WIDTHS:
            W = panel(len(D), width, dtype, seed=width)
            Z = compiled.scatter(X, rows, W, dtype)
            bound = steps(D) * np.finfo(dtype).eps * np.linalg.norm(np.abs(D).T @ np.abs(W))
            assert_close(Z.join(), twin.scatter(X, rows, W, dtype).join(), bound, f"width {width}, rows {rows}")
            assert Z.flat.dtype == dtype
            assert_no_padding(Z)


@pytest.mark.parametrize(
    "layout",
    [
        np.asfortranarray,
        lambda W: W[:, ::-1],
        lambda W: W[::-1],
        lambda W: np.repeat(np.repeat(W, 2, 0), 3, 1)[::2, ::3],
        lambda W: np.lib.stride_tricks.as_strided(W, writeable=False),
    ],
    ids=["fortran", "columns backwards", "rows backwards", "strided", "read-only"],
)
def test_scatter_takes_a_panel_in_any_layout(layout):
    X, W = csr(values((30, 12), seed=1)), layout(panel(30, 21, seed=2))
    found, want = compiled.scatter(X, (0, 30), W, np.float64).join(), X.toarray().T @ W
    assert_close(found, want, steps(X.toarray()) * EPS * np.linalg.norm(X.toarray()) * np.linalg.norm(W))
