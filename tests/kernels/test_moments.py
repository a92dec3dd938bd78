"""The kernels of means and squares, of columns and of rows."""

import numpy as np

from shiftsvd.kernels import twin
from tests.support.closeness import assert_close
from tests.support.compiled import compiled
from tests.support.matrices import EPS, Array
from tests.support.structures import cases, csr, data_types, index_types, steps, structures, weights_of


def assert_same_moments(got: tuple[Array, Array], want: tuple[Array, Array], D: Array, w: Array | None) -> None:
    """Means and squares of the columns of D agree to rounding."""
    w = np.ones(len(D)) if w is None else w
    size = np.linalg.norm(w @ np.abs(D)) / max(w.sum(), 1e-300)
    assert_close(got[0], want[0], steps(D) * EPS * size, "mean")
    assert_close(got[1], want[1], 4 * steps(D) * EPS * np.linalg.norm(w @ np.abs(D) ** 2), "squares")


@structures
@data_types
@index_types
def test_compiled_moments_are_the_twins(structure, dtype, index):
    for X, rows, D in cases(structure, dtype, index):
        for w in weights_of(len(D)):
            total = float(len(D)) if w is None else float(w.sum())
            found = compiled.moments(X, rows, w, total)
            assert_same_moments(found, twin.moments(X, rows, w, total), D, w)
            if total > 0:
                u = np.ones(len(D)) if w is None else w
                mean = u @ D / total
                assert_same_moments(found, (mean, u @ (D - mean) ** 2), D, w)


@structures
@data_types
@index_types
def test_compiled_row_moments_are_the_twins(structure, dtype, index):
    for X, rows, D in cases(structure, dtype, index):
        for w in weights_of(X.shape[1]):
            total = float(X.shape[1]) if w is None else float(w.sum())
            found = compiled.row_moments(X, rows, w, total)
            assert_same_moments(found, twin.row_moments(X, rows, w, total), D.T, w)
            if total > 0:
                u = np.ones(X.shape[1]) if w is None else w
                mean = D @ u / total
                assert_same_moments(found, (mean, (D - mean[:, None]) ** 2 @ u), D.T, w)


@data_types
def test_a_constant_column_has_no_variance(dtype):
    X = csr(np.full((1000, 3), [0.1, 3e5, -7e-3]).astype(dtype))
    assert not compiled.moments(X, (0, 1000), None, 1000.0)[1].any()
    assert not compiled.row_moments(csr(X.toarray().T.copy()), (0, 3), None, 1000.0)[1].any()


@structures
@index_types
def test_compiled_column_counts_are_the_twins(structure, index):
    for X, rows, D in cases(structure, "f8", index):
        found = compiled.column_counts(X, rows)
        np.testing.assert_array_equal(found, twin.column_counts(X, rows))
        np.testing.assert_array_equal(found, (D != 0).sum(axis=0))
