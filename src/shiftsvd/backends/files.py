"""Matrices that are read again for each product, a block of rows at a time; the memory of matrices."""

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property, partial, reduce
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_array, issparse

from shiftsvd.algebra import generic
from shiftsvd.algebra.combined import VStack
from shiftsvd.algebra.operator import Derived
from shiftsvd.backends.blocked import PIECE, Blocked, Rows, exhaust, journaled
from shiftsvd.backends.dense import BLOCK as MULTIPLIED
from shiftsvd.backends.dense import DenseRows, native_dtype
from shiftsvd.backends.source import Multiplied, RowSource, outside, rows_of
from shiftsvd.backends.sparse import FULL, SparseRows
from shiftsvd.backends.validation import NotFinite, finite_dense, finite_sparse, inspected
from shiftsvd.events import record_read, without_progress
from shiftsvd.kernels import best, default_threads, ordered
from shiftsvd.numerics.digests import told
from shiftsvd.operators import LowRank, Mixer, Moments, Operator, Panel, Vector, panel_dtype
from shiftsvd.runs import checkpoints
from shiftsvd.runs.memory import OverLimit, parse_bytes


def bytes_in_memory(A: Any) -> int:
    seen: dict[int, int] = {}
    waiting = [A]
    while waiting:
        one = waiting.pop()
        while isinstance(one, np.ndarray) and isinstance(one.base, np.ndarray):
            one = one.base
        if id(one) in seen:
            continue
        seen[id(one)] = one.nbytes if isinstance(one, np.ndarray) and not isinstance(one, np.memmap) else 0
        waiting += _parts(one)
    return sum(seen.values())


def _parts(one: Any) -> list[Any]:
    if isinstance(one, list | tuple):
        return list(one)
    if isinstance(one, Operator | RowSource) or issparse(one) or (is_dataclass(one) and not isinstance(one, type)):
        return [part for part in vars(one).values() if not isinstance(part, dict)]
    return []


def left_beside(A: Any, memory_limit: int | str | None) -> int | str | None:
    return None if memory_limit is None else max(1, parse_bytes(memory_limit) - bytes_in_memory(A))


@contextmanager
def counted(A: Any) -> Iterator[None]:
    try:
        yield
    except OverLimit as error:
        raise error.beside(bytes_in_memory(A)) from None


# --- read again for each product ------------------------------------------------------------------------------------

# Bytes of a Lanczos basis on the long side that are allowed even if the data are smaller, and the largest share of the
# memory limit for the basis.
LONG, LONG_SHARE = 2**28, 4
# Least number of columns of a panel, and the least number if memory is scarce: narrower steps converge too slowly.
LEAST_COLUMNS, FEWEST_COLUMNS = 32, 8
# Columns that a run stores per column of its panels: the basis, and copies of panels.
HELD = 40

Panels = tuple[Any, ...]  # panels that a pass multiplies; None for an absent panel
Merge = Callable[[Any, Any], Any]


class Reread(Blocked):
    """Matrix that is not in memory. Each pass creates an operator for every block and calls one of its methods."""

    # Each computation has a name: a method of the operator, or a function of `OURS`. A subclass implements `_total`,
    # which sums the results of all blocks, and `_rows`, which yields them in order. The journal stores sums.

    memory_limit: int | str | None
    most_columns: ClassVar[int]  # of a panel, where the memory allows them

    stored_dtype: np.dtype[Any]

    @property
    @abstractmethod
    def stored(self) -> int: ...

    @abstractmethod
    def _total(self, what: str, panels: Panels = (), own: Panels = (), merge: Merge | None = None) -> Any: ...

    @abstractmethod
    def _rows(self, what: str, *panels: Any) -> Iterator[tuple[int, Any]]: ...

    @abstractmethod
    def _block(self, rows: Rows) -> Operator: ...

    def hold(self, shape: tuple[int, int], dtype: np.dtype[Any], sparse: bool) -> None:
        self.describe(shape, native_dtype(dtype))
        vars(self).update(stored_dtype=dtype, sparse=sparse)

    @property
    def adjoint_bytes(self) -> int:
        return 0

    def worth_keeping(self, columns: int) -> bool:
        return True

    def in_blocks_for(self, memory_limit: int) -> Self:
        memo = self.memo_of(*self.memo.keys() - {"blocks"})
        return replace(self, memory_limit=memory_limit, memo=memo)  # type: ignore[type-var]

    def known_costs(self) -> dict[str, Any]:
        file_bytes = int(self.stored * (self.stored_dtype.itemsize + 4 * self.sparse))
        long_bytes = max(file_bytes, LONG) if self.shape[0] < self.shape[1] else 0
        if self.memory_limit is not None:
            long_bytes = min(long_bytes, parse_bytes(self.memory_limit) // LONG_SHARE)
        return {
            "eps": float(np.finfo(np.float64 if self.sparse else self.dtype).eps),
            "stored": self.stored,
            "file_bytes": file_bytes,
            "panel_columns": self._panel_columns(),
            "adjoint_bytes": self.adjoint_bytes,
            "long_bytes": long_bytes,
        }

    def _panel_columns(self) -> tuple[int, int]:
        # The basis may take a part of the limit, and further memory per column of a panel a quarter.
        if self.memory_limit is None:
            return LEAST_COLUMNS, self.most_columns
        limit = parse_bytes(self.memory_limit)
        most = int(np.clip(limit // (8 * HELD * min(self.shape)) // 16 * 16, LEAST_COLUMNS, self.most_columns))
        if self.adjoint_bytes:
            most = int(np.clip(limit // (4 * self.adjoint_bytes), FEWEST_COLUMNS, most))
        return min(LEAST_COLUMNS, most), most

    @property
    def counts(self) -> Vector:
        return self.remembered("counts", self._counts)

    @journaled
    def _counts(self) -> Vector:
        return self._replace_shift(None)._total("counts")  # type: ignore[no-any-return]

    @property
    def full(self) -> Vector:
        return np.append(self.counts[:-1] > FULL * self.shape[0], self.counts[-1] > 0)

    def matmat(self, V: Panel) -> Panel:
        return self._panel("matmat", V)

    def matmat_in_double(self, V: Panel) -> Panel:
        return self._panel("matmat_in_double", V)

    def _panel(self, what: str, V: Panel) -> Panel:
        Y = np.empty((self.shape[0], V.shape[1]), panel_dtype(np.result_type(self.dtype, V)))
        for lo, part in self._rows(what, V):
            Y[lo : lo + len(part)] = part
        return Y

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        return self._rows("matmat", V)

    @journaled
    def rmatmat(self, W: Panel) -> Panel:
        return self._total("rmatmat", own=(W,))  # type: ignore[no-any-return]

    @journaled
    def rmatmat_in_double(self, W: Panel) -> Panel:
        return self._total("rmatmat_in_double", own=(W,))  # type: ignore[no-any-return]

    @journaled
    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        return self._total("gram", (V,), (in_double(weights),))  # type: ignore[no-any-return]

    def gram_with_double(self, V: Panel, D: Panel, weights: Vector | None = None) -> tuple[Panel, Panel]:
        both = self._gram_with_double(V, D, weights)
        return both[:, : V.shape[1]], both[:, V.shape[1] :]

    @journaled
    def _gram_with_double(self, V: Panel, D: Panel, weights: Vector | None) -> Panel:
        return self._total("gram_with_double", (V, D), (in_double(weights),))  # type: ignore[no-any-return]

    @journaled
    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        return self._total("gram_matrix", own=(in_double(weights),))  # type: ignore[no-any-return]

    @journaled
    def triangle(self, weights: Vector | None = None) -> Panel:
        return generic.by_blocks(self, weights)

    @journaled
    def adjoint_triangle(self, weights: Vector | None = None) -> Panel:
        return generic.by_blocks(self.H, weights)

    def moments_and_gram(self, V: Panel, weights: Vector | None = None) -> tuple[Moments, Panel | None]:
        if self.shape[0] < self.shape[1] or self.shift is not None:
            return self.moments(weights), None
        moments, product = self._read_moments(weights, V)
        return self.remember_moments("columns", moments, weights), product

    def _moments(self, weights: Vector | None) -> Moments:
        return self._read_moments(weights)[0]

    def _read_moments(self, weights: Vector | None, V: Panel | None = None) -> tuple[Moments, Panel | None]:
        def read() -> checkpoints.Record:
            what, panels = ("moments", ()) if V is None else ("moments_and_gram", (V,))
            found, counts, *product = self._total(what, panels, (in_double(weights),), _merged)
            record = {"count": np.array(found.count), "mean": found.mean, "M2": found.M2, "stored": counts}
            return record | ({"product": product[0]} if product else {})

        record = self.once("moments", (weights,) if V is None else (weights, V), read)
        if self.sparse:
            self.memo["counts"] = record["stored"]
        return Moments(float(record["count"]), record["mean"], record["M2"]), record.get("product")

    def _row_moments(self, weights: Vector | None) -> list[Moments]:
        return [part for _, part in self._rows("row_moments", weights)]

    @journaled
    def _column_squares(self, weights: Vector | None) -> Vector:
        return self._total("column_squares", own=(in_double(weights),))  # type: ignore[no-any-return]

    def dense_pieces(self, rows: Rows) -> Iterator[tuple[int, Panel]]:
        return self._formed(rows, max(1, PIECE // self.shape[1]))

    def _formed(self, rows: Rows, at_once: int) -> Iterator[tuple[int, Panel]]:
        return ((rows[0] + lo, part) for lo, part in generic.row_blocks(self._block(rows), at_once))

    def row_squares(self, weights: Vector | None = None) -> Vector:
        return self._joined("row_squares", in_double(weights))

    def exponents(self, axis: int) -> Vector:
        if axis:
            return self._joined("exponents", axis)
        return np.asarray(self._total("exponents", (axis,), merge=np.maximum))

    def mix(self, Omega: Mixer) -> Panel:
        return self._joined("mix", Omega)

    def _joined(self, what: str, *panels: Any) -> Panel:
        return np.concatenate([part for _, part in self._rows(what, *panels)])

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        blocks = self.blocks()
        for block in blocks:
            parts = self._formed(block, rows)
            record_read(1 / len(blocks))
            yield from parts

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        yield 0, np.concatenate([block for _, block in self.row_blocks(self.shape[0])]).conj().T


def in_double(weights: Vector | None) -> Vector | None:
    return None if weights is None else np.asarray(weights, np.float64)


def rows_operator(X: Any, shift: LowRank | None, full: Vector | None, name: str, lo: int, room: int) -> Operator:
    # Validate rows from `lo` on of the matrix `name` and return their operator. `full` is the mask of full columns,
    # with a last entry that is True if a row is full; `room` is the memory in bytes that the operator may use.
    if not isinstance(X, csr_array):
        _check(finite_dense, X, name, lo)
        return DenseRows(X, shift)
    shifted_inside = shift is not None and full is not None and bool(full.any())
    columns = None if shift is None or full is None else full[:-1]
    X = _sound(X, shifted_inside, name, lo)
    return SparseRows(X, shift, memory_limit=room, lines=(None, columns), is_block=True)


def _sound(X: csr_array, shifted_inside: bool, name: str, lo: int) -> csr_array:
    # Small integers are exact in single precision, where products are faster; shifted full lines would not be.
    small = X.dtype.kind in "iub" and X.dtype.itemsize <= 2 and not shifted_inside
    X.data = np.ascontiguousarray(X.data, np.float32 if small else native_dtype(X.dtype))
    found = inspected(X, 1)
    if not found.inside:
        raise outside(X, name, lo)
    if not found.finite:
        _check(finite_sparse, X, name, lo)
    X.has_canonical_format = found.in_order
    if not found.in_order:
        X.sum_duplicates()
    return X


def _check(check: Callable[[Any], None], X: Any, name: str, lo: int) -> None:
    try:
        check(X)
    except NotFinite as error:
        places, counts = error.found.rows
        where = f"{name}, rows {lo} to {lo + X.shape[0]}: "
        raise error.but(where=where, rows=np.stack([lo + places, counts])) from None


def block_part(what: str, A: Operator, *panels: Any) -> Any:
    return (OURS.get(what) or getattr(type(A), what))(A, *panels)


def _counts(A: Operator) -> Vector:
    if not isinstance(A, SparseRows):
        return np.zeros(A.shape[1] + 1, np.int64)
    columns = best.column_counts(A.X, (0, A.shape[0]))
    return np.append(columns, np.count_nonzero(np.diff(A.X.indptr) > FULL * A.shape[1]))


def _least(A: Operator) -> float:
    numbers = A.X.data if isinstance(A, SparseRows) else A.X  # type: ignore[attr-defined]
    return float(numbers.min(initial=0))


OURS: dict[str, Callable[..., Any]] = generic.FUNCTIONS | {
    "counts": _counts,
    "gram_with_double": lambda A, V, D, weights: np.hstack([A.gram(V, weights), A.gram(D, weights)]),
    "moments": lambda A, weights: (A.moments(weights), _counts(A)),
    "moments_and_gram": lambda A, V, weights: (A.moments(weights), _counts(A), A.gram(V, weights)),
    "digest": lambda A: told(A.X).encode(),
    "least": _least,
}


def _merged(a: tuple[Moments, *tuple[Vector, ...]], b: tuple[Moments, *tuple[Vector, ...]]) -> tuple[Any, ...]:
    return a[0].merge(b[0]), *(x + y for x, y in zip(a[1:], b[1:], strict=True))


# --- files ----------------------------------------------------------------------------------------------------------

# Bytes of a block: a few hundredths of a second of work for a thread, and a small share of the memory limit; fewer if
# the rows are the short side, whose panels need the memory.
BLOCK, LEAST_BLOCK, SHARE, SHARE_OF_WIDE = 2**25, 2**20, 32, 128
# Blocks per thread that are read to time a pass.
PROBED = 3


@dataclass(frozen=True, eq=False, repr=False)
class DiskRows(Reread):
    """Matrix in a file minus its shift. The blocks depend on the file and `memory_limit`, never on the threads."""

    source: RowSource
    shift: LowRank | None = None
    n_threads: int | None = None  # type: ignore[assignment]
    memory_limit: int | str | None = None
    memo: dict[str, Any] = field(default_factory=dict)
    # A read of a file takes as long as a product with many columns.
    most_columns: ClassVar[int] = 128

    def __post_init__(self) -> None:
        self.hold(self.source.shape, self.source.dtype, self.source.sparse)

    @property
    def stored(self) -> int:
        return self.source.stored

    @property
    def fingerprint(self) -> str:
        return f"{self.source.fingerprint} {self.block_bytes}"

    @property
    def workers(self) -> int:
        return (self.n_threads or default_threads()) + self.source.readers

    @cached_property
    def block_bytes(self) -> int:
        share = SHARE_OF_WIDE if self.shape[0] < self.shape[1] else SHARE
        most = min(BLOCK, self.source.largest_block)
        limit = most if self.memory_limit is None else parse_bytes(self.memory_limit) // share
        return int(np.clip(limit, min(LEAST_BLOCK, most), most))

    @property
    def adjoint_bytes(self) -> int:
        # Where rows are the short side: the sum, a part that waits, and those of each thread, which has two where its
        # dense block is multiplied in several pieces, or where the sum of a sparse block is rounded to another panel.
        if self.shape[0] >= self.shape[1]:
            return 0
        two = self.sparse or self.block_bytes > MULTIPLIED * self.source.dtype.itemsize
        return (self.workers * (1 + two) + 2) * panel_dtype(self.dtype).itemsize * self.shape[1]

    def known_costs(self) -> dict[str, Any]:
        double = self.block_bytes * np.dtype(np.float64).itemsize // self.source.dtype.itemsize
        blocks = self.source.copies * (self.workers + 1) * self.block_bytes + self.source.decoding_bytes(self.workers)
        working = {"working_bytes": blocks, "block_bytes": double}
        # A selection of columns reads the whole file but multiplies fewer entries, if their number is known.
        return super().known_costs() | working | {"stored": self.memo.get("stored", self.stored)}

    def blocks(self) -> list[Rows]:
        def edges() -> list[Rows]:
            return [(int(lo), int(hi)) for lo, hi in pairwise(self.source.edges(self.block_bytes))]

        return self.remembered("blocks", edges)

    def matmat_in_double(self, V: Panel) -> Panel:
        double = self.sparse or self.costs.eps == np.finfo(np.float64).eps
        return self.matmat(V) if double else self.pieces_times(V)

    def gram_seconds(self, V: Panel) -> float:
        blocks = self.blocks()
        some = blocks[:: max(1, len(blocks) // (PROBED * self.workers))]
        started = time.perf_counter()
        exhaust(ordered(lambda rows: self._block(rows).gram(V), some, self.workers))
        return (time.perf_counter() - started) * len(blocks) / len(some)

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "DiskRows":
        memo, shift = self.memo_of("counts", "blocks", "stored"), self.shift and self.shift.ldexp(rows, cols)
        return replace(self, source=Multiplied(self.source, rows, cols), shift=shift, memo=memo)

    def _total(self, what: str, panels: Panels = (), own: Panels = (), merge: Merge | None = None) -> Any:
        part = partial(self._part, what, panels, own)
        return self._sum(part) if merge is None else reduce(merge, (found for _, found in self._each(part)))

    def _rows(self, what: str, *panels: Any) -> Iterator[tuple[int, Any]]:
        return ((lo, part) for (lo, _), part in self._each(partial(self._part, what, panels, ())))

    def _part(self, what: str, panels: Panels, own: Panels, rows: Rows) -> Any:
        return block_part(what, self._block(rows), *panels, *(None if P is None else P[slice(*rows)] for P in own))

    def _each(self, function: Callable[[Rows], Any], workers: int | None = None) -> Iterator[tuple[Rows, Any]]:
        def part(rows: Rows) -> Any:
            with without_progress(), checkpoints.unkept():
                return function(rows)

        return super()._each(part, workers)

    def _block(self, rows: Rows) -> Operator:
        lo, hi = rows
        shift = None if self.shift is None else LowRank(self.shift.L[lo:hi], self.shift.R)
        X = rows_of(self.source, lo, hi)
        full = self.full if self.sparse and shift is not None else None
        return rows_operator(X, shift, full, *self.source.place(lo), 4 * self.block_bytes)


def larger_blocks(A: Any, more: int) -> Any:
    """Return the operator A with the blocks and panels that its files would have with `more` bytes of memory."""
    if isinstance(A, Reread):
        return A if A.memory_limit is None else A.in_blocks_for(max(parse_bytes(A.memory_limit) + more, 1))
    if isinstance(A, VStack):
        return replace(A, parts=tuple(larger_blocks(part, more) for part in A.parts))
    return replace(A, A=larger_blocks(A.A, more)) if isinstance(A, Derived) else A
