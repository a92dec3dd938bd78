"""Entries of matrices: sums by rows, columns and groups, and entries changed one by one."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, reduce, singledispatch
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array, vstack

from shiftsvd.algebra import generic
from shiftsvd.backends.blocked import Blocked, Rows, cut
from shiftsvd.backends.columns import IN_COLUMNS, IN_ROWS
from shiftsvd.backends.dense import DenseRows
from shiftsvd.backends.files import DiskRows
from shiftsvd.backends.reread import OURS, Reread, rows_operator
from shiftsvd.backends.source import RowSource, rows_of
from shiftsvd.backends.sparse import SparseRows, coordinates
from shiftsvd.kernels import default_threads, ordered
from shiftsvd.kernels.twin import CSR, take_rows
from shiftsvd.numerics.digests import told
from shiftsvd.numerics.entrywise import Change, Grouped, Parts, Table, Terms, Values, table_of
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Adjoint, Operator, Panel
from shiftsvd.runs.memory import spare

Sums = tuple[Panel, Panel]  # of rows, and of columns
SUMMED = 2**16  # entries that are summed at once, or as many as there are columns


# --- sums -----------------------------------------------------------------------------------------------------------


def _of_adjoint(A: Adjoint, terms: Terms) -> Sums:
    return generic.entry_sums(A.A, terms.H)[::-1]


def _of_memory(A: SparseRows | DenseRows, terms: Terms) -> Sums:
    bare(A)
    of_rows, of_columns = [], np.zeros(0)
    for rows, (own, shared) in A._each(lambda rows: _part(A, terms, rows), A.moment_workers):
        of_rows.append(own)
        of_columns = shared if rows[0] == 0 else np.add(of_columns, shared, out=of_columns)
    return np.concatenate(of_rows), of_columns


def _part(A: SparseRows | DenseRows, terms: Terms, rows: Rows) -> Sums:
    return reduce(_below, (_piece(A, terms, piece) for piece in _pieces(A, rows)))


def _pieces(A: SparseRows | DenseRows, rows: Rows) -> list[Rows]:
    per_row = A.costs.stored // A.shape[0] + 1
    return [(rows[0] + lo, rows[0] + hi) for lo, hi in cut(rows[1] - rows[0], max(SUMMED, A.shape[1]) // per_row)]


def _piece(A: SparseRows | DenseRows, terms: Terms, rows: Rows) -> Sums:
    x, i, j = entries(A, rows)
    of_rows, of_columns = terms.rows(*rows).of(x, i, j)
    return _by(i, of_rows, rows[1] - rows[0]), _by(j, of_columns, A.shape[1])


def entries(A: SparseRows | DenseRows, rows: Rows) -> tuple[Vector, Vector, Vector]:
    if isinstance(A, SparseRows):
        X = A.inside.stored(rows)
        return X.data.astype(np.float64), *coordinates(X)  # a copy: functions of users may write in place
    X = A.block(rows).astype(np.float64, copy=False)
    i, j = np.nonzero(X)
    return X[i, j], i, j


def _by(lines: Vector, terms: tuple[Vector, ...], size: int) -> Panel:
    sums = [np.bincount(lines, term, minlength=size) for term in terms]
    return np.stack(sums, axis=1) if sums else np.zeros((size, 0))


def _of_blocks(A: Reread, terms: Terms) -> Sums:
    bare(A)
    asked = told((terms.f, terms.R, terms.C))
    if asked not in A.memo.get("sums", {}):

        def read() -> dict[str, Any]:
            own, shared = A._total("entry_sums", (terms.rows(0, 0),), (terms.R,), _below)
            return {"rows": own, "columns": shared}

        A.memo["sums"] = {asked: A.once(f"sums {asked}", (), read)}
    record = A.memo["sums"][asked]
    return record["rows"], record["columns"]


def _of_block(A: Operator, terms: Terms, R: Panel) -> Sums:
    return generic.entry_sums(A, Terms(terms.f, R, terms.C))


def _below(a: Sums, b: Sums) -> Sums:
    return np.concatenate([a[0], b[0]]), a[1] + b[1]


def bare(A: Blocked) -> None:
    if A.shift is not None:
        raise ValueError("transformations come before shifts: a shifted matrix is not transformed; give the matrix")


# --- values ---------------------------------------------------------------------------------------------------------


def _values_of_memory(A: SparseRows | DenseRows, values: Values) -> Table:
    bare(A)

    def piece(rows: Rows) -> Table:
        x, i, j = entries(A, rows)
        lines = j if values.lines == "columns" else i + rows[0]
        return table_of(lines.astype(np.int64), x, values.rows(*rows).of(x, i, j))

    def part(rows: Rows) -> Table:
        return reduce(_joined, map(piece, _pieces(A, rows)))

    tables: Iterator[Table] = (table for _, table in A._each(part))
    return reduce(_joined, tables)


def _values_of_block(A: Operator, values: Values, R: Panel, rows: Panel) -> Table:
    lines, *rest = generic.entry_values(A, replace(values, R=R))
    return (lines if values.lines == "columns" else rows[lines]), *rest  # type: ignore[return-value]


def _values_of_blocks(A: Reread, values: Values) -> Table:
    bare(A)

    def read() -> dict[str, Any]:
        own = values.R, np.arange(A.shape[0])
        table = A._total("entry_values", (values.rows(0, 0),), own, _joined)
        return dict(zip(("lines", "values", "counts"), table, strict=True))

    record = A.once(f"values {told(values)}", (), read)
    return record["lines"], record["values"], record["counts"]


def _joined(a: Table, b: Table) -> Table:
    return table_of(*(np.concatenate(both) for both in zip(a, b, strict=True)))


def _values_of_adjoint(A: Adjoint, values: Values) -> Table:
    lines, numbers, counts = generic.entry_values(A.A, values.H)
    return lines, numbers, counts


# --- changes --------------------------------------------------------------------------------------------------------


class InMemory(RowSource):
    """A matrix in memory, of which blocks are made as if they were read."""

    def __init__(self, X: Any) -> None:
        self.X, self.shape, self.dtype = X, X.shape, X.dtype
        self.sparse = isinstance(X, csr_array)
        self.stored = int(X.nnz) if self.sparse else X.shape[0] * X.shape[1]
        self.name = "the matrix"

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        return told(self.X)

    def edges(self, n_bytes: int) -> list[int]:
        size = self.stored * (self.dtype.itemsize + 4 * self.sparse)
        return [lo for lo, _ in cut(self.shape[0], self.shape[0] * n_bytes // max(size, 1))] + [self.shape[0]]

    def read(self, lo: int, hi: int) -> Any:
        if not self.sparse:
            return self.X[lo:hi]
        X = take_rows(self.X, lo, hi)  # in a container of its own, which whoever checks it may change
        return csr_array((X.data, X.indices, X.indptr), shape=X.shape, copy=False)


class ChangedEntries(RowSource):
    """A matrix whose entries are changed as it is read."""

    def __init__(self, source: RowSource, change: Change) -> None:
        self.source, self.change = source, change
        self.shape, self.sparse, self.name = source.shape, source.sparse, source.name
        self.stored, self.dtype = source.stored, np.dtype(change.dtype)

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        return f"{self.source.fingerprint} changed {self.change.told}"

    def decoding_bytes(self, readers: int) -> int:
        return self.source.decoding_bytes(readers)

    def edges(self, n_bytes: int) -> list[int]:
        return self.source.edges(n_bytes)

    def place(self, row: int) -> tuple[str, int]:
        return self.source.place(row)

    def read(self, lo: int, hi: int) -> Any:
        # Checked before: a sum of two changed entries is not the change of their sum.
        A: Any = rows_operator(rows_of(self.source, lo, hi), None, None, *self.source.place(lo), 0)
        return changed_rows(A.X, self.change.rows(lo, hi))


def changed_rows(X: Any, change: Change) -> Any:
    if not isinstance(X, csr_array):
        return change.block(X)
    X = X if change.more is None else with_zeros(X, change)
    Y = csr_array((_values(X, change), X.indices, X.indptr), shape=X.shape, copy=False)
    Y.has_canonical_format = True
    return Y


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
    # Marks, of which those beside a stored entry are merged with it: only the structure is wanted.
    a, b = coordinates(X)
    both = csr_array(coo_array((np.ones(len(a) + len(i)), (np.r_[a, i], np.r_[b, j])), shape=X.shape))
    both.sort_indices()
    place = coordinates(both)
    data = np.zeros(both.nnz, X.dtype)
    width = X.shape[1]
    data[np.searchsorted(place[0] * width + place[1].astype(np.int64), a * width + b.astype(np.int64))] = X.data
    return csr_array((data, both.indices, both.indptr), shape=X.shape)


def _of_adjoint_changed(A: Adjoint, change: Change) -> Operator:
    return generic.with_entries(A.A, change.H).H


def _file_changed(A: DiskRows, change: Change) -> Operator:
    bare(A)
    names = ("blocks",) if change.more is not None else ("blocks", "counts", "stored")
    kept = {name: A.memo[name] for name in names if name in A.memo}
    return replace(A, source=ChangedEntries(A.source, change), memo=kept)


def bytes_kept(A: Operator, itemsize: int) -> int:
    if isinstance(A, Adjoint):
        return bytes_kept(A.A, itemsize)
    if not isinstance(A, SparseRows | DenseRows):
        return 0
    needed = int(A.costs.stored) * itemsize
    return needed if _room(A, needed) else 0


def _room(A: SparseRows | DenseRows, needed: float) -> bool:
    return spare(2 * needed, _limit(A))


def _limit(A: SparseRows | DenseRows) -> int | str | None:
    return getattr(A, "memory_limit", None)


def _kept(A: SparseRows | DenseRows, change: Change) -> Operator:
    bare(A)
    size = np.dtype(change.dtype).itemsize
    if not _room(A, A.costs.stored * size + change.n_more() * (size + 4)):
        return DiskRows(ChangedEntries(InMemory(A.X), change), n_threads=A.n_threads, memory_limit=_limit(A))
    blocks = A.blocks()
    if isinstance(A, SparseRows) and change.more is not None:
        made = ordered(lambda rows: changed_rows(_rows(A, rows), change.rows(*rows)), blocks, A.n_threads)
        X = csr_array(vstack(list(made), format="csr"))
        X.has_canonical_format = True
        return replace(A, X=X, memo={}, powers=(0, 0))
    out = np.empty(A.X.nnz if isinstance(A, SparseRows) else A.X.shape, change.dtype)

    def part(rows: Rows) -> None:
        some = change.rows(*rows)
        if isinstance(A, SparseRows):
            out[slice(*A.X.indptr[list(rows)])] = _values(A.inside.stored(rows), some)
        else:
            out[slice(*rows)] = some.block(A.X[slice(*rows)])

    for _ in ordered(part, blocks, A.n_threads):
        pass
    if isinstance(A, DenseRows):
        return replace(A, X=out, memo={})
    X = csr_array((out, A.X.indices, A.X.indptr), shape=A.X.shape, copy=False)
    X.has_canonical_format = True
    return replace(A, X=X, memo={}, powers=(0, 0))


def _rows(A: SparseRows | DenseRows, rows: Rows) -> Any:
    return A.inside.stored(rows) if isinstance(A, SparseRows) else A.X[slice(*rows)]


KINDS: dict[Any, dict[Any, Any]] = {
    generic.entry_sums: {Adjoint: _of_adjoint, SparseRows: _of_memory, DenseRows: _of_memory, Reread: _of_blocks},
    generic.entry_values: {
        Adjoint: _values_of_adjoint,
        SparseRows: _values_of_memory,
        DenseRows: _values_of_memory,
        Reread: _values_of_blocks,
    },
    generic.with_entries: {Adjoint: _of_adjoint_changed, SparseRows: _kept, DenseRows: _kept, DiskRows: _file_changed},
}
for _function, _kinds in KINDS.items():
    for _kind, _made in _kinds.items():
        _function.register(_kind, _made)
OURS |= {"entry_sums": _of_block, "entry_values": _values_of_block}


# Vectors of entries that are looked at, which a thread has at once, and arrays as long as the columns.
VECTORS, LONG = 12, 4


def group_bytes(A: Operator, n_groups: int, n_looks: int) -> int:
    threads = A.costs.n_threads or default_threads()
    width = A.shape[1] * n_groups
    each = 8 * (VECTORS * max(min(SUMMED, A.costs.stored), width) + LONG * width)
    parts = 8 * (1 + 2 * n_looks) * width * (2 * threads + 4)  # of blocks in work, that wait, and merged
    return A.costs.working_bytes + (threads + 1) * each + parts


@singledispatch
def group_moments(A: Operator, what: Grouped) -> Parts:
    """Sums over rows, and moments of the stored entries of each column in each group of rows; a read.

    For rankings of features, which go by the moments of all rows, or of those of each batch.
    """
    raise TypeError(f"the entries of {A!r} cannot be seen; give an array, a sparse matrix, a file or a Dask array")


@group_moments.register
def _(A: Adjoint, what: Grouped) -> Parts:
    return group_moments(A.A, what.H)


@group_moments.register(SparseRows)
@group_moments.register(DenseRows)
def _groups_in_memory(A: SparseRows | DenseRows, what: Grouped) -> Parts:
    bare(A)
    per_row = A.costs.stored // A.shape[0] + 1
    width = A.shape[1] * (1 if what.across else what.n_groups)
    at_once = max(1, max(SUMMED, width) // per_row)

    def piece(rows: Rows) -> Parts:
        return what.part(*rows).of(*entries(A, rows))

    def block(rows: Rows) -> Parts:
        ranges = [(rows[0] + lo, rows[0] + hi) for lo, hi in cut(rows[1] - rows[0], at_once)]
        return reduce(what.joined, map(piece, ranges))

    blocks: Iterator[Parts] = (parts for _, parts in A._each(block))
    return reduce(what.joined, blocks)


@group_moments.register(Reread)
def _groups_in_blocks(A: Reread, what: Grouped) -> Parts:
    bare(A)
    none = what.part(0, 0)

    def read() -> dict[str, Any]:
        sums, moments = A._total("group_moments", (none,), what.lines, what.joined)
        return {"rows": sums, "columns": moments}

    name = f"moments of {what.n_groups} groups {told(what.f)} {what.across}"
    record = A.once(name, (what.codes, what.R, what.C), read)
    A.memo[IN_ROWS if what.across else IN_COLUMNS] = record["columns"][0].sum(axis=1)
    return record["rows"], record["columns"]


def _groups_in_block(A: Operator, what: Grouped, *lines: Any) -> Parts:
    return group_moments(A, what.with_lines(*lines))


OURS |= {"group_moments": _groups_in_block}
