"""The kernel of a Gram matrix."""

import numpy as np
from scipy.sparse import random_array

from shiftsvd.kernels import twin
from tests.support.closeness import assert_close
from tests.support.compiled import compiled
from tests.support.matrices import EPS
from tests.support.structures import cases, data_types, index_types, steps, structures, weights_of


@structures
@data_types
@index_types
def test_compiled_outer_is_the_twins(structure, dtype, index):
    for X, rows, D in cases(structure, dtype, index):
        for w in weights_of(len(D)):
            found = compiled.outer(X, rows, w)
            u = np.ones(len(D)) if w is None else w
            bound = EPS * steps(D) * np.linalg.norm((u[:, None] * np.abs(D)).T @ np.abs(D))
            assert_close(found, twin.outer(X, rows, w), bound, f"rows {rows}")
            assert_close(found, np.tril((u[:, None] * D).T @ D), bound, f"rows {rows}")
            assert not np.triu(found, 1).any()


def test_rows_of_more_entries_than_a_range_are_multiplied_once():
    X = random_array((1100, 300), density=0.4, format="csr", rng=0)  # three ranges of 65,536 entries
    X.sort_indices()
    w = np.random.default_rng(1).random(1100)
    found = compiled.outer(X, (0, 1100), w)
    assert_close(found, np.tril(X.toarray().T @ (w[:, None] * X.toarray())), 1e-12 * np.abs(found).max(), "all rows")
