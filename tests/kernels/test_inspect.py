"""The kernel that looks whether a matrix is sound."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from shiftsvd.kernels import twin
from tests.support.compiled import compiled
from tests.support.structures import INDICES, cases, data_types, index_types, quick, structures


@structures
@data_types
@index_types
def test_compiled_inspect_is_the_twins_on_sound_matrices(structure, dtype, index):
    for X, rows, D in cases(structure, dtype, index):
        there = np.flatnonzero(D.any(axis=0))
        ends = (int(there[0]), int(there[-1])) if len(there) else (0, -1)
        assert compiled.inspect(X, rows) == twin.inspect(X, rows) == (0, 0, *ends, True)


@quick
@given(
    st.lists(st.lists(st.integers(-3, 30), max_size=6), min_size=1, max_size=8),
    st.sampled_from(INDICES),
    st.integers(0, 2**20),
)
@example([[3, 5], [], [4]], np.int32, 0)
@example([[-2]], np.int64, 0)
def test_compiled_inspect_is_the_twins_on_any_indices(lines, index, seed):
    indices = np.array([j for line in lines for j in line], index)
    data = np.random.default_rng(seed).choice([1.0, 0.0, np.nan, np.inf, -np.inf], len(indices))
    X = csr_array((len(lines), 31))
    X.indices, X.data = indices, data
    X.indptr = np.cumsum([0, *map(len, lines)]).astype(index)
    n_inf = int(np.isinf(data).sum())
    ordered = all(np.all(np.diff(line) > 0) for line in lines)
    ends = (int(indices.min()), int(indices.max())) if len(indices) else (0, -1)
    want = (int(np.isnan(data).sum()), n_inf, *ends, ordered)
    assert twin.inspect(X, (0, len(lines))) == want
    assert compiled.inspect(X, (0, len(lines))) == want
