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
from shiftsvd.backends.source import Changed, RowSource, below, inside_rows_of
from shiftsvd.backends.sparse import SparseRows
from shiftsvd.kernels import default_threads
from shiftsvd.kernels.twin import take_rows
from shiftsvd.numerics.digests import told
from shiftsvd.operators import Adjoint, Operator
from shiftsvd.runs.memory import affordable, limit_of

Places = npt.NDArray[np.intp]  # of rows: ascending, without repeats


class SomeRows(Changed):
    """Selected rows of a source."""

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
    """Selected columns of a source; every column is read."""

    def __init__(self, source: RowSource, places: Places) -> None:
        super().__init__(source, f"columns {told(places)}")
        self._places, self.shape = places, (source.shape[0], len(places))

    def read(self, lo: int, hi: int) -> csr_array | npt.NDArray[Any]:
        X = inside_rows_of(self.source, lo, hi)
        return X[:, self._places] if isinstance(X, csr_array) else np.ascontiguousarray(X[:, self._places])


class Among(Changed):
    """Columns of a source at ascending places among `n` columns; the other columns are 0."""

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


# Keys of the memo for the number of stored entries of each row and each column, set after a pass over the whole file.
IN_ROWS, IN_COLUMNS = STORED = "stored in rows", "stored in columns"
# Share of the memory limit for entries of a file that are kept in memory, including their transformed copies; and
# numbers that solvers store per line of the short side: the basis and panels of about a hundred components.
HELD, PANELS = 2, 2500


def some_columns(A: Operator, places: Places) -> Operator:
    return some_lines(A, places, 1)


def some_rows(A: Operator, places: Places) -> Operator:
    return some_lines(A, places, 0)


LINES = "rows", "columns"


@singledispatch
def some_lines(A: Operator, places: Places, axis: int) -> Operator:
    what, kinds = LINES[axis], "an array, a sparse matrix, a file or a Dask array"
    raise TypeError(f"{A!r} does not support the selection of {what}. Pass {kinds}.")


def at(places: Places, axis: int) -> tuple[Any, ...]:
    return (slice(None), places) if axis else (places,)


def bare(A: Blocked) -> None:
    if A.shift is not None:
        raise ValueError("columns must be selected before a shift is subtracted. Pass the matrix without its shift.")


@some_lines.register
def _(A: Adjoint, places: Places, axis: int) -> Operator:
    return some_lines(A.A, places, 1 - axis).H


@some_lines.register
def _(A: DenseRows, places: Places, axis: int) -> Operator:
    bare(A)
    return replace(A, X=np.ascontiguousarray(A.X[at(places, axis)]), memo={})


@some_lines.register
def _(A: SparseRows, places: Places, axis: int) -> Operator:
    stored = len(places) / A.shape[axis] * A.X.nnz * (A.X.dtype.itemsize + A.X.indices.itemsize)
    affordable(int(stored), A.memory_limit, f"taking {len(places)} {LINES[axis]}")
    bare(A)
    part = csr_array(take_rows(A.X, 0, A.shape[0])[at(places, axis)])
    part.has_canonical_format = True
    return replace(A, X=part, memo={}, full_columns=None)


@some_lines.register
def _(A: DiskRows, places: Places, axis: int) -> Operator:
    bare(A)
    source, stored = (SomeRows, SomeColumns)[axis](A.source, places), A.memo.get(STORED[axis])
    held: tuple[str, Operator] = A.memo.get("held", ("", A))
    if held[0] == source.fingerprint:
        return held[1]
    if not source.sparse or stored is None:
        return replace(A, source=source, memo={})
    # If the number of entries of each line is known, and the selected lines take a small part of the memory limit, read
    # these lines once and keep them in memory.
    n_stored = int(stored[places].sum())
    B = replace(A, source=source, memo={"stored": n_stored})
    limit, needed = limit_of(A.memory_limit), 16 * n_stored + 8 * B.shape[0]
    if limit is None or needed > limit // HELD or needed + 8 * PANELS * min(B.shape) > limit:
        return B
    X = below((part.X for _, part in B._each(B._block)), B.shape, n_stored)
    X.has_canonical_format = True
    threads = B.n_threads or default_threads()
    C = SparseRows(X, n_threads=threads, memory_limit=B.memory_limit, held_bytes=needed)
    A.memo["held"] = source.fingerprint, C
    return C
