"""Parts of matrices: selected rows and columns; sums and values of entries; entries changed one by one."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial, reduce, singledispatch
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array, vstack

from shiftsvd.algebra import generic
from shiftsvd.backends.blocked import Blocked, Rows, cut, exhaust
from shiftsvd.backends.dense import DenseRows
from shiftsvd.backends.files import OURS, DiskRows, Panels, Reread, rows_operator
from shiftsvd.backends.source import Changed, InMemory, RowSource, below, inside_rows_of, rows_of
from shiftsvd.backends.sparse import SparseRows, coordinates, with_data
from shiftsvd.kernels import default_threads, ordered
from shiftsvd.kernels.twin import CSR, take_rows
from shiftsvd.numerics.digests import told
from shiftsvd.numerics.entrywise import Change, Grouped, Parts, Table, Terms, Values, table_of
from shiftsvd.operators import Adjoint, Operator, Panel, Vector
from shiftsvd.runs.memory import affordable, limit_of, spare

Places = npt.NDArray[np.intp]  # of rows: ascending, without repeats


class SomeRows(Changed):
    """Selected rows of a source."""

    def __init__(self, source: RowSource, places: Places) -> None:
        super().__init__(source, f"rows {told(places)}")
        self._places, self.shape = places, (len(places), source.shape[1])

    def edges(self, n_bytes: int) -> list[int]:
        return sorted({0, *np.searchsorted(self._places, self.source.edges(n_bytes)).tolist(), self.shape[0]})

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
        raise ValueError(
            "columns must be selected before a shift is subtracted, and transformations must precede shifts. Pass the "
            "matrix without its shift."
        )


some_lines.register(Adjoint, lambda A, places, axis: some_lines(A.A, places, 1 - axis).H)


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
    return replace(A, X=part, memo={}, lines=(None, None))


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


# --- entries ---------------------------------------------------------------------------------------------------------


Sums = tuple[Panel, Panel]  # of rows, and of columns
Found = TypeVar("Found")
SUMMED = 2**16  # entries that are summed at once, or as many as there are columns


def entries(A: SparseRows | DenseRows, rows: Rows) -> tuple[Vector, Vector, Vector]:
    if isinstance(A, SparseRows):
        X = A.stored_rows(rows)
        return X.data.astype(np.float64), *coordinates(X)  # a copy: functions of users may write in place
    X = A.block(rows).astype(np.float64, copy=False)
    i, j = np.nonzero(X)
    return X[i, j], i, j


def by_pieces(
    A: SparseRows | DenseRows,
    piece: Callable[[Rows], Found],
    join: Callable[[Found, Found], Found],
    width: int,
    workers: int | None = None,
) -> Found:
    bare(A)
    at_once = max(SUMMED, width) // (A.costs.stored // A.shape[0] + 1)

    def block(rows: Rows) -> Found:
        return reduce(join, (piece((rows[0] + lo, rows[0] + hi)) for lo, hi in cut(rows[1] - rows[0], at_once)))

    blocks: Iterator[Found] = (found for _, found in A._each(block, workers))
    return reduce(join, blocks)


# --- sums -----------------------------------------------------------------------------------------------------------


generic.entry_sums.register(Adjoint, lambda A, terms: generic.entry_sums(A.A, terms.H)[::-1])


@generic.entry_sums.register
def _(A: SparseRows | DenseRows, terms: Terms) -> Sums:
    def piece(rows: Rows) -> tuple[list[Panel], Panel]:
        x, i, j = entries(A, rows)
        of_rows, of_columns = terms.rows(*rows).of(x, i, j)
        return [_by(i, of_rows, rows[1] - rows[0])], _by(j, of_columns, A.shape[1])

    def join(a: tuple[list[Panel], Panel], b: tuple[list[Panel], Panel]) -> tuple[list[Panel], Panel]:
        a[0].extend(b[0])
        return a[0], np.add(a[1], b[1], out=a[1])

    of_rows, of_columns = by_pieces(A, piece, join, A.shape[1], A.moment_workers)
    return np.concatenate(of_rows), of_columns


def _by(lines: Vector, terms: tuple[Vector, ...], size: int) -> Panel:
    sums = [np.bincount(lines, term, minlength=size) for term in terms]
    return np.stack(sums, axis=1) if sums else np.zeros((size, 0))


@generic.entry_sums.register
def _(A: Reread, terms: Terms) -> Sums:
    bare(A)  # before sums of the stored matrix, which operators with a shift share
    asked = told((terms.f, terms.R, terms.C))
    if asked not in A.memo.get("sums", {}):
        read = partial(A._total, "entry_sums", (terms.rows(0, 0),), (terms.R,), _below)
        A.memo["sums"] = {asked: _once(A, f"sums {asked}", (), ("rows", "columns"), read)}
    return cast("Sums", A.memo["sums"][asked])


def _once(A: Reread, what: str, given: Panels, names: tuple[str, ...], read: Callable[[], Panels]) -> Panels:
    # Read several arrays in one pass, or take them by these names from the journal.
    bare(A)
    record = A.once(what, given, lambda: dict(zip(names, read(), strict=True)))
    return tuple(record[name] for name in names)


def _below(a: Sums, b: Sums) -> Sums:
    return np.concatenate([a[0], b[0]]), a[1] + b[1]


# --- values ---------------------------------------------------------------------------------------------------------


generic.entry_values.register(Adjoint, lambda A, values: generic.entry_values(A.A, values.H))


@generic.entry_values.register
def _(A: SparseRows | DenseRows, values: Values) -> Table:
    def piece(rows: Rows) -> Table:
        x, i, j = entries(A, rows)
        lines = j if values.lines == "columns" else i + rows[0]
        return table_of(lines.astype(np.int64), x, values.rows(*rows).of(x, i, j))

    return by_pieces(A, piece, _joined, A.shape[1])


@generic.entry_values.register
def _(A: Reread, values: Values) -> Table:
    own = values.R, np.arange(A.shape[0])
    read = partial(A._total, "entry_values", (values.rows(0, 0),), own, _joined)
    return cast("Table", _once(A, f"values {told(values)}", (), ("lines", "values", "counts"), read))


def _values_of_block(A: Operator, values: Values, R: Panel, rows: Panel) -> Table:
    lines, numbers, counts = generic.entry_values(A, replace(values, R=R))
    return (lines if values.lines == "columns" else rows[lines]), numbers, counts


def _joined(a: Table, b: Table) -> Table:
    return table_of(*(np.concatenate(both) for both in zip(a, b, strict=True)))


# --- changes --------------------------------------------------------------------------------------------------------


class ChangedEntries(Changed):
    """Matrix whose entries are transformed in each pass."""

    def __init__(self, source: RowSource, change: Change) -> None:
        super().__init__(source, "changed")
        self.change, self.dtype = change, np.dtype(change.dtype)

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        return f"{self.source.fingerprint} changed {self.change.digest}"

    def read(self, lo: int, hi: int) -> Any:
        # Check for a shift first: the transform of a sum is not the sum of transforms.
        A: Any = rows_operator(rows_of(self.source, lo, hi), None, None, *self.source.place(lo), 0)
        return changed_rows(A.X, self.change.rows(lo, hi))


def changed_rows(X: Any, change: Change) -> Any:
    if not isinstance(X, csr_array):
        return change.block(X)
    X = X if change.more is None else with_zeros(X, change)
    return with_data(X, _values(X, change))


def _values(X: CSR, change: Change) -> Vector:
    i = np.repeat(np.arange(X.shape[0], dtype=np.int32), np.diff(X.indptr))
    return change.values(X.data, i, X.indices)


def with_zeros(X: CSR, change: Change) -> CSR:
    assert change.more is not None
    own, shared = change.R[:, change.more[0]], change.C[:, change.more[1]]
    order = np.argsort(-shared, kind="stable")
    with np.errstate(divide="ignore"):
        counts = np.searchsorted(-shared[order], -1 / own, side="left")
    if not counts.any():
        return X
    i = np.repeat(np.arange(len(own)), counts)
    j = order[np.arange(len(i)) - np.repeat(np.cumsum(counts) - counts, counts)]
    a, b = coordinates(X)
    data = np.r_[X.data, np.zeros(len(i), X.dtype)]
    both = csr_array(coo_array((data, (np.r_[a, i], np.r_[b, j])), shape=X.shape))  # adds what is in one place
    both.sort_indices()
    return both


generic.with_entries.register(Adjoint, lambda A, change: generic.with_entries(A.A, change.H).H)


@generic.with_entries.register
def _(A: DiskRows, change: Change) -> Operator:
    bare(A)
    names = ("blocks",) if change.more is not None else ("blocks", "counts", "stored")
    return replace(A, source=ChangedEntries(A.source, change), memo=A.memo_of(*names))


@generic.with_entries.register
def _(A: SparseRows | DenseRows, change: Change) -> Operator:
    bare(A)
    size = np.dtype(change.dtype).itemsize
    if not spare(2 * (A.costs.stored * size + change.n_more() * (size + 4)), A.memory_limit):
        return DiskRows(ChangedEntries(InMemory(A.X), change), n_threads=A.n_threads, memory_limit=A.memory_limit)
    if isinstance(A, SparseRows) and change.more is not None:
        made = ordered(lambda rows: changed_rows(A.stored_rows(rows), change.rows(*rows)), A.blocks(), A.n_threads)
        X = csr_array(vstack(list(made), format="csr"))
        X.has_canonical_format = True
        return replace(A, X=X, memo={}, powers=(0, 0))
    out = np.empty(A.X.nnz if isinstance(A, SparseRows) else A.X.shape, change.dtype)

    def part(rows: Rows) -> None:
        X, some = A.stored_rows(rows), change.rows(*rows)
        if isinstance(A, SparseRows):
            out[slice(*A.X.indptr[list(rows)])] = _values(X, some)
        else:
            out[slice(*rows)] = some.block(X)

    exhaust(ordered(part, A.blocks(), A.n_threads))
    if isinstance(A, DenseRows):
        return replace(A, X=out, memo={})
    return replace(A, X=with_data(A.X, out), memo={}, powers=(0, 0))


def bytes_kept(A: Operator, itemsize: int) -> int:
    if isinstance(A, Adjoint):
        return bytes_kept(A.A, itemsize)
    if not isinstance(A, SparseRows | DenseRows):
        return 0
    needed = int(A.costs.stored) * itemsize
    return needed if spare(2 * needed, A.memory_limit) else 0


# --- groups ---------------------------------------------------------------------------------------------------------

# Vectors as long as the entries of a block that each thread allocates, and arrays as long as the columns.
VECTORS, LONG = 12, 4


def group_bytes(A: Operator, n_groups: int, n_looks: int) -> int:
    threads = A.costs.n_threads or default_threads()
    width = A.shape[1] * n_groups
    each = 8 * (VECTORS * max(min(SUMMED, A.costs.stored), width) + LONG * width)
    parts = 8 * (1 + 2 * n_looks) * width * (2 * threads + 4)  # of blocks in work, that wait, and merged
    return A.costs.working_bytes + (threads + 1) * each + parts


@singledispatch
def group_moments(A: Operator, what: Grouped) -> Parts:
    # Sums over rows, and moments of the stored entries of each column in each group of rows; a read.
    raise generic.no_entries(A)


group_moments.register(Adjoint, lambda A, what: group_moments(A.A, what.H))


@group_moments.register
def _(A: SparseRows | DenseRows, what: Grouped) -> Parts:
    width = A.shape[1] * (1 if what.transposed else what.n_groups)
    return by_pieces(A, lambda rows: what.part(*rows).of(*entries(A, rows)), what.joined, width)


@group_moments.register
def _(A: Reread, what: Grouped) -> Parts:
    name = f"moments of {what.n_groups} groups {told(what.f)} {what.transposed}"
    read = partial(A._total, "group_moments", (what.part(0, 0),), what.lines, what.joined)
    sums, moments = _once(A, name, (what.codes, what.R, what.C), ("rows", "columns"), read)
    A.memo[IN_ROWS if what.transposed else IN_COLUMNS] = moments[0].sum(axis=1)
    return sums, moments


OURS |= {
    "entry_sums": lambda A, terms, R: generic.entry_sums(A, replace(terms, R=R)),
    "entry_values": _values_of_block,
    "group_moments": lambda A, what, *lines: group_moments(A, what.with_lines(*lines)),
}
