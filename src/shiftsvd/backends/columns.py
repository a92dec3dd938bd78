"""Some rows or some columns of an operator."""

from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from shiftsvd.backends.blocked import Blocked
from shiftsvd.backends.dense import DenseRows
from shiftsvd.backends.files import DiskRows
from shiftsvd.backends.source import Changed, RowSource, inside_rows_of
from shiftsvd.backends.sparse import SparseRows
from shiftsvd.kernels import default_threads
from shiftsvd.kernels.twin import take_rows
from shiftsvd.numerics.digests import told
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Adjoint, Operator
from shiftsvd.runs.memory import affordable, limit_of

Places = npt.NDArray[np.intp]  # of rows: ascending, without repeats


class SomeRows(Changed):
    """The rows of a source at these places."""

    def __init__(self, source: RowSource, places: Places) -> None:
        super().__init__(source, f"rows {told(places)}")
        self._places, self.shape = places, (len(places), source.shape[1])

    def edges(self, n_bytes: int) -> list[int]:
        cuts = np.searchsorted(self._places, self.source.edges(n_bytes))
        return [0, *np.unique(cuts[(cuts > 0) & (cuts < self.shape[0])]).tolist(), self.shape[0]]

    def place(self, row: int) -> tuple[str, int]:
        return self.source.place(int(self._places[row]))

    def read(self, lo: int, hi: int) -> csr_array | npt.NDArray[Any]:
        places = self._places[lo:hi]
        first = int(places[0])
        return self.source.read(first, int(places[-1]) + 1)[places - first]


class SomeColumns(Changed):
    """The columns of a source at these places; all of it is read."""

    def __init__(self, source: RowSource, places: Places) -> None:
        super().__init__(source, f"columns {told(places)}")
        self._places, self.shape = places, (source.shape[0], len(places))

    def read(self, lo: int, hi: int) -> csr_array | npt.NDArray[Any]:
        X = inside_rows_of(self.source, lo, hi)
        return X[:, self._places] if isinstance(X, csr_array) else np.ascontiguousarray(X[:, self._places])


class Among(Changed):
    """The columns of a source at these places, which ascend, among `n` columns; the others are zeros."""

    def __init__(self, source: RowSource, places: Places, n: int) -> None:
        super().__init__(source, f"among {n} columns {told(places)}")
        self._places, self.shape = places, (source.shape[0], n)
        self.stored = source.stored if self.sparse else self.shape[0] * n

    def read(self, lo: int, hi: int) -> csr_array | npt.NDArray[Any]:
        X = inside_rows_of(self.source, lo, hi)
        if isinstance(X, csr_array):
            return csr_array((X.data, self._places[X.indices], X.indptr), shape=(hi - lo, self.shape[1]))
        wide = np.zeros((hi - lo, self.shape[1]), X.dtype)
        wide[:, self._places] = X
        return wide


# Where whoever has read all of a file leaves how many numbers are stored in each of its columns, or of its rows.
IN_COLUMNS, IN_ROWS = "stored in columns", "stored in rows"
# The part of the limit that may hold what is kept of a file: its entries, changed ones beside them. What solvers hold
# beside it, for each line of its short side: numbers of the basis and of panels, of some hundred components.
HELD, PANELS = 2, 2500


@singledispatch
def some_columns(A: Operator, places: Places) -> Operator:
    raise TypeError(f"columns of {A!r} cannot be taken; take them of an array, a sparse matrix, a file or a Dask array")


@singledispatch
def some_rows(A: Operator, places: Places) -> Operator:
    raise TypeError(f"rows of {A!r} cannot be taken; take them of an array, a sparse matrix, a file or a Dask array")


def bare(A: Blocked) -> None:
    if A.shift is not None:
        raise ValueError("columns are taken before a shift: give the matrix that is not shifted")


def _of_sparse(A: SparseRows, X: Any) -> Operator:
    bare(A)
    part = csr_array(X)
    part.has_canonical_format = True
    return replace(A, X=part, memo={}, full_columns=None)


@some_columns.register
def _(A: SparseRows, places: Places) -> Operator:
    affordable(_share(A, len(places) / A.shape[1]), A.memory_limit, f"taking {len(places)} columns")
    return _of_sparse(A, take_rows(A.X, 0, A.shape[0])[:, places])


@some_rows.register
def _(A: SparseRows, places: Places) -> Operator:
    affordable(_share(A, len(places) / A.shape[0]), A.memory_limit, f"taking {len(places)} rows")
    return _of_sparse(A, take_rows(A.X, 0, A.shape[0])[places])


def _share(A: SparseRows, share: float) -> int:
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
    return _of_file(A, SomeColumns(A.source, places), A.memo.get(IN_COLUMNS), places)


@some_rows.register
def _(A: DiskRows, places: Places) -> Operator:
    bare(A)
    return _of_file(A, SomeRows(A.source, places), A.memo.get(IN_ROWS), places)


def _of_file(A: DiskRows, source: RowSource, stored: Vector | None, places: Places) -> Operator:
    """A part of a file: read again for each product, or once, where it is known to take a small part of the limit.

    `stored` are the numbers of each line of the file, if somebody has counted them. What is held is kept for whoever
    asks for the same part again.
    """
    n_stored = None if stored is None or not source.sparse else int(stored[places].sum())
    B = replace(A, source=source, memo={} if n_stored is None else {"stored": n_stored})
    if A.memo.get("held", ("",))[0] == source.fingerprint:
        held: Operator = A.memo["held"][1]
        return held
    limit = limit_of(A.memory_limit)
    if n_stored is None or limit is None:
        return B
    needed = 16 * n_stored + 8 * B.shape[0]
    if needed > limit // HELD or needed + 8 * PANELS * min(B.shape) > limit:
        return B
    A.memo["held"] = source.fingerprint, replace(_held(B, n_stored), held_bytes=needed)
    return _of_file(A, source, stored, places)


def _held(B: DiskRows, n_stored: int) -> SparseRows:
    index = np.int32 if max(n_stored, B.shape[1]) <= np.iinfo(np.int32).max else np.int64
    indices, ends, used = np.empty(n_stored, index), [np.zeros(1, index)], 0
    data = np.empty(0, B.dtype)
    for _, part in B._each(B._block):
        X = part.X
        data = data if used else np.empty(n_stored, X.dtype)
        data[used : used + X.nnz], indices[used : used + X.nnz] = X.data, X.indices
        ends.append((used + X.indptr[1:]).astype(index))
        used += X.nnz
    X = csr_array((data[:used], indices[:used], np.concatenate(ends)), shape=B.shape, copy=False)
    X.has_canonical_format = True
    return SparseRows(X, n_threads=B.n_threads or default_threads(), memory_limit=B.memory_limit)


@some_columns.register
def _(A: Adjoint, places: Places) -> Operator:
    return some_rows(A.A, places).H


@some_rows.register
def _(A: Adjoint, places: Places) -> Operator:
    return some_columns(A.A, places).H
