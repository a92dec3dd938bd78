"""Moments of columns within groups of rows, of matrices in memory and in files: one read."""

from collections.abc import Iterator
from functools import reduce, singledispatch
from typing import Any

from shiftsvd.backends.blocked import Rows, cut
from shiftsvd.backends.columns import IN_COLUMNS, IN_ROWS
from shiftsvd.backends.dense import DenseRows
from shiftsvd.backends.entries import SUMMED, bare, entries
from shiftsvd.backends.reread import OURS, Reread
from shiftsvd.backends.sparse import SparseRows
from shiftsvd.kernels import default_threads
from shiftsvd.numerics.digests import told
from shiftsvd.numerics.grouped import Grouped, Parts
from shiftsvd.operators import Adjoint, Operator

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
def _of_memory(A: SparseRows | DenseRows, what: Grouped) -> Parts:
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
def _of_blocks(A: Reread, what: Grouped) -> Parts:
    bare(A)
    none = what.part(0, 0)

    def read() -> dict[str, Any]:
        sums, moments = A._total("group_moments", (none,), what.lines, what.joined)
        return {"rows": sums, "columns": moments}

    name = f"moments of {what.n_groups} groups {told(what.f)} {what.across}"
    record = A.once(name, (what.codes, what.R, what.C), read)
    A.memo[IN_ROWS if what.across else IN_COLUMNS] = record["columns"][0].sum(axis=1)
    return record["rows"], record["columns"]


def _of_block(A: Operator, what: Grouped, *lines: Any) -> Parts:
    return group_moments(A, what.with_lines(*lines))


OURS |= {"group_moments": _of_block}
