"""CSR arrays that their owner breaks after `as_operator`: no use of them leaves the arrays."""

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.algebra.generic import exponents, gram_matrix, row_moments
from shiftsvd.backends.entries import some_columns, some_rows
from tests.support.matrices import values
from tests.support.operators import panel

M, N = 40, 12
BREAKS: dict[str, Callable[[Any], None]] = {
    "an index beyond the columns": lambda X: X.indices.__setitem__(7, N),
    "indices far beyond": lambda X: X.indices.__setitem__(slice(None), 2**31 - 1),
    "a negative index": lambda X: X.indices.__setitem__(7, -1),
    "indices far below": lambda X: X.indices.__setitem__(slice(None), -(2**31)),
    "a row that begins beyond the entries": lambda X: X.indptr.__setitem__(8, 2**31 - 1),
    "a row that begins before them": lambda X: X.indptr.__setitem__(8, -(2**31)),
    "rows that decrease": lambda X: X.indptr.__setitem__(slice(None), X.indptr[::-1].copy()),
    "an end beyond the entries": lambda X: X.indptr.__setitem__(-1, 2**31 - 1),
    "a beginning far beyond": lambda X: X.indptr.__setitem__(0, 2**30),
}
USES: dict[str, Callable[[Any], Any]] = {
    "matmat": lambda A: A.matmat(panel(A.shape[1], 3)),
    "rmatmat": lambda A: A.rmatmat(panel(A.shape[0], 3)),
    "gram": lambda A: A.gram(panel(A.shape[1], 3)),
    "gram of a shifted matrix": lambda A: (A - ss.LowRank(np.ones(A.shape[0]), np.ones(A.shape[1]))).gram(
        np.eye(A.shape[1])
    ),
    "gram matrix": gram_matrix,
    "moments": lambda A: A.moments(np.arange(A.shape[0]) / 7),
    "row moments": row_moments,
    "squares": lambda A: (A.column_squares(), A.row_squares()),
    "exponents": lambda A: (exponents(A, 0), exponents(A, 1)),
    "columns": lambda A: some_columns(A, np.arange(3)),
    "rows": lambda A: some_rows(A, np.arange(3)),
    "the adjoint": lambda A: next(A.H.row_blocks(4)),
    "a fit": lambda A: ss.svd(A, 2, shift="mean", scale="std", rng=0),
    "a transformation": lambda A: ss.PCA(2, preprocess="log-normalize", random_state=0).fit(A),
}


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "c16"])
@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csc_array])
@pytest.mark.parametrize("use", USES)
def test_arrays_that_are_broken_after_as_operator_crash_nothing(use, make, dtype):
    for broken in BREAKS.values():
        X = make((np.abs(values((M, N), density=0.6)) * 9).astype(dtype))
        A = ss.as_operator(X)
        broken(X)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with contextlib.suppress(ValueError, IndexError):
                USES[use](A)


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_a_product_says_that_the_arrays_were_changed(dtype):
    X = sparse.csr_array(values((M, N), density=0.6).astype(dtype))
    A = ss.as_operator(X)
    X.indices[3] = N
    for use in ("matmat", "rmatmat", "gram", "moments", "a fit"):
        with pytest.raises(ValueError, match=r"(?i)changed after as_operator.*create the matrix"):
            USES[use](A)
