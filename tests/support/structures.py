"""Sparse matrices of every structure, and the ranges of their rows, for the tests of the kernels."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from scipy.sparse import csr_array

from shiftsvd.kernels.twin import Groups
from tests.support.matrices import Array, values

WIDTHS = (1, 2, 3, 5, 7, 8, 13, 16, 17, 24, 31, 32, 33, 50, 100)
INDICES = (np.int32, np.int64)
# (data, panel): all that the products are compiled for.
PRECISIONS = {"single": ("f4", "f4"), "mixed": ("f4", "f8"), "double": ("f8", "f8")}
quick = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
products = pytest.mark.parametrize("precision", PRECISIONS)
index_types = pytest.mark.parametrize("index", INDICES, ids=lambda index: index.__name__)
data_types = pytest.mark.parametrize("dtype", ["f4", "f8"])


def _huge_row() -> Array:
    D = np.zeros((40, 600))
    D[17] = values((600,), seed=1, density=0.9)
    return D


def _without(D: Array, rows: Any, columns: Any) -> Array:
    D[rows], D[:, columns] = 0, 0
    return D


STRUCTURES: dict[str, tuple[Array, list[tuple[int, int]]]] = {
    "plain": (values((37, 23), seed=2, density=0.4), [(0, 37), (0, 11), (9, 30), (36, 37)]),
    "empty rows": (_without(values((30, 12), seed=3), [0, 1, 7, 8, 9, 29], []), [(0, 30), (1, 9), (7, 10), (28, 30)]),
    "empty columns": (_without(values((30, 12), seed=4), [], [0, 5, 6, 11]), [(0, 30), (3, 28)]),
    "no entries": (np.zeros((9, 5)), [(0, 9), (3, 6)]),
    "one huge row": (_huge_row(), [(0, 40), (17, 18), (10, 17), (18, 40)]),
    "one full row": (_without(values((14, 9), seed=5, density=1.0), [*range(6), *range(7, 14)], []), [(0, 14), (6, 8)]),
    "full": (values((20, 15), seed=6, density=1.0), [(0, 20), (7, 8), (2, 19)]),
    "single column": (values((25, 1), seed=7), [(0, 25), (4, 21)]),
    "single row": (values((1, 25), seed=8), [(0, 1)]),
}
structures = pytest.mark.parametrize("structure", STRUCTURES)


def csr(D: Array, index: Any = np.int32) -> Any:
    """D in CSR with this type of indices; SciPy's constructor would narrow them."""
    X = csr_array(D)
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    return X


def cases(structure: str, dtype: Any, index: Any) -> list[tuple[Any, tuple[int, int], Array]]:
    """(matrix, range of rows, those rows in double precision)."""
    D, ranges = STRUCTURES[structure]
    X = csr(D.astype(dtype), index)
    return [(X, (lo, hi), X.toarray().astype(float)[lo:hi]) for lo, hi in ranges]


def assert_no_padding(groups: Groups) -> None:
    """The columns that only fill a group are zeros."""
    for part, where in zip(groups.parts, groups.columns(), strict=True):
        assert not part[:, where.stop - where.start :].any()


def steps(D: Array) -> int:
    """Roundings of a sum over any row or column of D, twice: once for each of two computations of it."""
    there = D != 0
    return 2 * (4 + int(max(there.sum(axis=0).max(initial=0), there.sum(axis=1).max(initial=0))))


def weights_of(length: int) -> list[Array | None]:
    """None, of any size, with many zeros, and all zero."""
    rng = np.random.default_rng(length)
    return [None, rng.random(length), rng.integers(0, 2, length).astype(float), np.zeros(length)]
