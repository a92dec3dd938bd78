"""The kernels of means and squares, of columns and of rows."""

import numpy as np

from shiftsvd.kernels import twin
from shiftsvd.numerics.moments import weight_parts
from tests.support.closeness import assert_close
from tests.support.compiled import compiled
from tests.support.matrices import EPS, Array
from tests.support.structures import cases, csr, data_types, index_types, steps, structures, weights_of


def assert_same_moments(got: tuple[Array, ...], want: tuple[Array, ...], D: Array, w: Array | None) -> None:
    """Weights, means and squares of the columns of D agree to rounding."""
    w = np.ones(len(D)) if w is None else w
    count = np.maximum(w @ (D != 0), 1e-300)
    assert_close(got[0], want[0], 4 * EPS * np.linalg.norm(w @ (D != 0)), "weights")
    assert_close(got[1], want[1], steps(D) * EPS * np.linalg.norm(w @ np.abs(D) / count), "mean")
    assert_close(got[2], want[2], 4 * steps(D) * EPS * np.linalg.norm(w @ np.abs(D) ** 2), "squares")


def plain_moments(D: Array, w: Array | None) -> tuple[Array, ...]:
    """The same of what is not zero, by the definitions."""
    stored = (D != 0) * (np.ones(len(D)) if w is None else w)[:, None]
    mean = (stored * D).sum(axis=0) / np.maximum(stored.sum(axis=0), 1e-300)
    return stored.sum(axis=0), mean, (stored * (D - mean) ** 2).sum(axis=0)


def moments_of(found: tuple[Array, ...]) -> tuple[Array, ...]:
    """Weights, corrected means and squares."""
    stored, mean, correction, squares = found
    return stored.sum(axis=1), mean + correction, squares


def parts_of(w: Array | None) -> Array | None:
    return None if w is None else weight_parts(w)


@structures
@data_types
@index_types
def test_compiled_moments_are_the_twins_and_the_definition(structure, dtype, index):
    for X, rows, D in cases(structure, dtype, index):
        for w in weights_of(len(D)):
            found = moments_of(compiled.moments(X, rows, parts_of(w)))
            assert_same_moments(found, moments_of(twin.moments(X, rows, parts_of(w))), D, w)
            assert_same_moments(found, plain_moments(D, w), D, w)


@structures
@data_types
@index_types
def test_compiled_row_moments_are_the_twins_and_the_definition(structure, dtype, index):
    for X, rows, D in cases(structure, dtype, index):
        for w in weights_of(X.shape[1]):
            found = moments_of(compiled.row_moments(X, rows, parts_of(w)))
            assert_same_moments(found, moments_of(twin.row_moments(X, rows, parts_of(w))), D.T, w)
            assert_same_moments(found, plain_moments(D.T, w), D.T, w)


@data_types
def test_a_constant_column_has_no_variance(dtype):
    X = csr(np.full((1000, 3), [0.1, 3e5, -7e-3]).astype(dtype))
    assert not compiled.moments(X, (0, 1000), None)[3].any()
    assert not compiled.row_moments(csr(X.toarray().T.copy()), (0, 3), None)[3].any()


@structures
@index_types
def test_compiled_column_counts_are_the_twins(structure, index):
    for X, rows, D in cases(structure, "f8", index):
        found = compiled.column_counts(X, rows)
        np.testing.assert_array_equal(found, twin.column_counts(X, rows))
        np.testing.assert_array_equal(found, (D != 0).sum(axis=0))
