"""Some columns of an operator, as an operator of the same kind: copied in memory, taken as they are read in files."""

from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from shiftsvd.backends.blocked import Blocked
from shiftsvd.backends.dense import DenseRows
from shiftsvd.backends.disk import DiskRows
from shiftsvd.backends.selection import Places, SomeColumns, SomeRows
from shiftsvd.backends.sparse import SparseRows
from shiftsvd.operators import Adjoint, Operator
from shiftsvd.runs.memory import affordable


@singledispatch
def some_columns(A: Operator, places: Places) -> Operator:
    """The columns of A at these places, which ascend: of matrices that are not shifted, and no read."""
    raise TypeError(f"columns of {A!r} cannot be taken; take them of an array, a sparse matrix, a file or a Dask array")


@singledispatch
def some_rows(A: Operator, places: Places) -> Operator:
    """The rows of A at these places, which ascend: what columns of an adjoint are."""
    raise TypeError(f"rows of {A!r} cannot be taken; take them of an array, a sparse matrix, a file or a Dask array")


def bare(A: Blocked) -> None:
    """Refuse what is shifted already: full lines of it are shifted inside their entries."""
    if A.shift is not None:
        raise ValueError("columns are taken before a shift: give the matrix that is not shifted")


def _of_sparse(A: SparseRows, X: Any) -> Operator:
    """A part of the rows or columns, whose order is kept."""
    bare(A)
    part = csr_array(X)
    part.has_canonical_format = True
    return replace(A, X=part, memo={}, full_columns=None)


@some_columns.register
def _(A: SparseRows, places: Places) -> Operator:
    affordable(_share(A, len(places) / A.shape[1]), A.memory_limit, f"taking {len(places)} columns")
    return _of_sparse(A, A.X[:, places])


@some_rows.register
def _(A: SparseRows, places: Places) -> Operator:
    affordable(_share(A, len(places) / A.shape[0]), A.memory_limit, f"taking {len(places)} rows")
    return _of_sparse(A, A.X[places])


def _share(A: SparseRows, share: float) -> int:
    """Bytes of such a share of the entries."""
    return int(share * A.X.nnz * (A.X.dtype.itemsize + A.X.indices.itemsize))


@some_columns.register
def _(A: DenseRows, places: Places) -> Operator:
    bare(A)
    return replace(A, X=np.ascontiguousarray(A.X[:, places]), memo={})


@some_rows.register
def _(A: DenseRows, places: Places) -> Operator:
    bare(A)
    return replace(A, X=np.ascontiguousarray(A.X[places]), memo={})


@some_columns.register
def _(A: DiskRows, places: Places) -> Operator:
    bare(A)
    return replace(A, source=SomeColumns(A.source, places), memo={})


@some_rows.register
def _(A: DiskRows, places: Places) -> Operator:
    bare(A)
    return replace(A, source=SomeRows(A.source, places), memo={})


@some_columns.register
def _(A: Adjoint, places: Places) -> Operator:
    return some_rows(A.A, places).H


@some_rows.register
def _(A: Adjoint, places: Places) -> Operator:
    return some_columns(A.A, places).H
