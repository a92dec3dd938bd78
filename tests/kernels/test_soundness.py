"""Nothing unsound reaches a kernel."""

from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_array, csr_array

import shiftsvd as ss
from shiftsvd.kernels import twin
from tests.support.closeness import assert_close
from tests.support.compiled import compiled
from tests.support.matrices import EPS, Array, values
from tests.support.operators import panel
from tests.support.structures import INDICES, quick, steps


@st.composite
def mutations(draw: Any) -> tuple[Any, str]:
    """A sparse matrix of either format whose index arrays have been changed behind SciPy's back."""
    D = values((draw(st.integers(1, 9)), draw(st.integers(1, 9))), seed=draw(st.integers(0, 99)))
    X = draw(st.sampled_from([csr_array, csc_array]))(D)
    index = draw(st.sampled_from(INDICES))
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    name = draw(st.sampled_from(["indptr", "indices"]))
    array = getattr(X, name).copy()
    how = draw(st.sampled_from(["put", "longer", "shorter", "swap", "shape", "type", "data"]))
    edge = st.sampled_from([-1, 0, 1, 2**31 - 1, -(2**31), X.shape[0], X.shape[1], X.nnz, X.nnz + 1, X.nnz - 1])
    if how in ("put", "swap") and len(array):
        i = draw(st.integers(0, len(array) - 1))
        array[i] = array[draw(st.integers(0, len(array) - 1))] if how == "swap" else draw(edge)
    elif how == "longer":
        array = np.append(array, draw(edge)).astype(index)
    elif how == "shorter":
        array = array[: -draw(st.integers(1, 2))]
    elif how == "shape":
        array = array[:, None]
    elif how == "type":
        array = array.astype(draw(st.sampled_from([float, complex, "U8", object])))
    elif how == "data":
        X.data = X.data[:-1] if draw(st.booleans()) else np.append(X.data, 1.0)
    setattr(X, name, array)
    return X, how


def soundness(X: Any) -> bool:
    """Whether the arrays say what a matrix is, by the definition of the format, one entry at a time."""
    lines, across = X.shape if X.format == "csr" else X.shape[::-1]
    for array in (X.indptr, X.indices):
        if array.ndim != 1 or array.dtype.kind not in "iu":
            return False
    if X.data.ndim != 1:
        return False
    indptr, indices = X.indptr.tolist(), X.indices.tolist()
    if len(indptr) != lines + 1 or indptr[0] != 0 or indptr != sorted(indptr):
        return False
    n = indptr[-1]
    return n <= min(len(indices), len(X.data)) and all(0 <= j < across for j in indices[:n])


def dense_of(X: Any) -> Array:
    """The matrix that sound arrays mean."""
    lines, across = X.shape if X.format == "csr" else X.shape[::-1]
    D = np.zeros((lines, across))
    for i in range(lines):
        for k in range(X.indptr[i], X.indptr[i + 1]):
            D[i, X.indices[k]] += X.data[k]
    return D if X.format == "csr" else D.T


NAMES = ("gather", "scatter", "gram", "moments", "row_moments", "column_counts", "column_squares", "outer")


@dataclass
class Watch:
    """Kernels that refuse to work on an unsound matrix, and count what they worked on."""

    calls: list[str] = field(default_factory=list)

    def around(self, name: str, kernel: Any) -> Any:
        def watched(X: Any, *rest: Any) -> Any:
            assert soundness(X), f"{name} was given an unsound matrix"
            self.calls.append(name)
            return kernel(X, *rest)

        return watched


@settings(quick, max_examples=200)
@given(mutations())
def test_a_corrupt_matrix_is_refused_by_its_rule_and_reaches_no_kernel(mutation):
    X, _ = mutation
    watch = Watch()
    names = {compiled: (*NAMES, "gram_of_all", "gram_of_both"), twin: NAMES}
    patches = {module: {n: watch.around(n, getattr(module, n)) for n in names[module]} for module in names}
    with mock.patch.multiple(compiled, **patches[compiled]), mock.patch.multiple(twin, **patches[twin]):
        if not soundness(X):
            with pytest.raises(ValueError, match=rf"\Acorrupt {X.format.upper()} structure: "):
                ss.as_operator(X)
            assert not watch.calls
            return
        D = dense_of(X)
        A, V = ss.as_operator(X), panel(X.shape[1], 3, seed=1)
        tol = (steps(D) + 2 * len(X.indices)) * EPS * np.abs(X.data).sum()
        assert_close(A.matmat(V), D @ V, tol * np.linalg.norm(V))
        assert_close(A.gram(V), D.T @ (D @ V), tol * np.abs(X.data).sum() * np.linalg.norm(V))
        assert len(watch.calls) >= 2
