"""Matrices in files, read a block of rows at a time; the memory that matrices hold."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse

from shiftsvd.algebra.generic import registered
from shiftsvd.backends.blocked import Blocked, Rows
from shiftsvd.backends.dense import BLOCK as MULTIPLIED
from shiftsvd.backends.reread import Merge, Panels, Reread, block_part, rows_operator
from shiftsvd.backends.source import Multiplied, RowSource, rows_of
from shiftsvd.events import unheard
from shiftsvd.kernels import default_threads, ordered
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import LowRank, Operator, Panel, panel_dtype
from shiftsvd.runs.checkpoints import unkept
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


# Bytes of a block: enough to keep a thread busy for some hundredths of a second, and a small share of the limit; less
# where the rows are the short side, whose panels need the room.
BLOCK, LEAST_BLOCK, SHARE, SHARE_OF_WIDE = 2**25, 2**20, 32, 128
# Blocks for each thread that a pass is timed by.
PROBED = 3


@registered
@dataclass(frozen=True, eq=False, repr=False)
class DiskRows(Reread):
    """A matrix in a file minus its shift, never held in memory.

    Each block is read, checked, and multiplied by the backend for matrices in memory; while one thread waits for the
    file the others multiply. The blocks depend on the file and `memory_limit`, never on the threads.
    """

    source: RowSource
    shift: LowRank | None = None
    n_threads: int | None = None  # type: ignore[assignment]
    memory_limit: int | str | None = None
    memo: dict[str, Any] = field(default_factory=dict)
    # A read of a file costs as much as a product with many columns.
    most_columns: ClassVar[int] = 128

    @property
    def data(self) -> RowSource:
        return self.source

    @property
    def sparse(self) -> bool:
        return self.source.sparse

    @property
    def stored(self) -> int:
        return self.source.stored

    @property
    def fingerprint(self) -> str:
        return f"{self.source.fingerprint} {self.block_bytes}"

    @property
    def workers(self) -> int:
        return (self.n_threads or default_threads()) + 1

    @property
    def block_bytes(self) -> int:
        share = SHARE_OF_WIDE if self.wide else SHARE
        limit = BLOCK if self.memory_limit is None else parse_bytes(self.memory_limit) // share
        return int(np.clip(limit, LEAST_BLOCK, BLOCK))

    @property
    def wide(self) -> bool:
        return self.source.shape[0] < self.source.shape[1]

    @property
    def adjoint_bytes(self) -> int:
        """Of rows on the short side, the parts of each thread, one that waits, and their sum.

        A thread has two parts where its dense block is multiplied in several, and of a sparse block, whose sum is
        rounded to another panel.
        """
        if not self.wide:
            return 0
        two = self.sparse or self.block_bytes > MULTIPLIED * self.source.dtype.itemsize
        return (self.workers * (1 + two) + 2) * panel_dtype(self.dtype).itemsize * self.shape[1]

    def known_costs(self) -> dict[str, Any]:
        double = self.block_bytes * np.dtype(np.float64).itemsize // self.source.dtype.itemsize
        blocks = self.source.copies * (self.workers + 1) * self.block_bytes + self.source.decoding_bytes(self.workers)
        working = {"working_bytes": blocks, "block_bytes": double}
        # Of some columns of a file all is read, but less is multiplied, if somebody has counted how much.
        return super().known_costs() | working | {"stored": self.memo.get("stored", self.stored)}

    def blocks(self) -> list[Rows]:
        if "blocks" not in self.memo:
            self.memo["blocks"] = [(int(lo), int(hi)) for lo, hi in pairwise(self.source.edges(self.block_bytes))]
        blocks: list[Rows] = self.memo["blocks"]
        return blocks

    def matmat_in_double(self, V: Panel) -> Panel:
        double = self.sparse or self.costs.eps == np.finfo(np.float64).eps
        return self.matmat(V) if double else self.pieces_times(V)

    def squares_beyond(self, V: Panel, W: Panel, weights: Vector | None = None) -> Vector:
        read = lambda: {"squares": Blocked.squares_beyond(self, V, W, weights)}  # noqa: E731
        return self.once("beyond", (V, W, weights), read)["squares"]

    def gram_seconds(self, V: Panel) -> float:
        blocks = self.blocks()
        some = blocks[:: max(1, len(blocks) // (PROBED * self.workers))]
        started = time.perf_counter()
        for _ in ordered(lambda rows: self._block(rows).gram(V), some, self.workers):
            pass
        return (time.perf_counter() - started) * len(blocks) / len(some)

    def in_blocks_for(self, memory_limit: int) -> "DiskRows":
        return replace(
            self, memory_limit=memory_limit, memo={n: each for n, each in self.memo.items() if n != "blocks"}
        )

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "DiskRows":
        kept: dict[str, Any] = {name: self.memo[name] for name in ("counts", "blocks", "stored") if name in self.memo}
        shift = self.shift and self.shift.ldexp(rows, cols)
        return replace(self, source=Multiplied(self.source, rows, cols), shift=shift, memo=kept)

    def _replace_shift(self, shift: LowRank | None) -> "DiskRows":
        return replace(self, shift=shift)

    def _total(self, what: str, panels: Panels = (), own: Panels = (), merge: Merge | None = None) -> Any:
        part = lambda rows: self._part(what, rows, panels, own)  # noqa: E731
        return self._sum(part) if merge is None else reduce(merge, (found for _, found in self._each(part)))

    def _rows(self, what: str, *panels: Any) -> Iterator[tuple[int, Any]]:
        return ((lo, part) for (lo, _), part in self._each(lambda rows: self._part(what, rows, panels, ())))

    def _part(self, what: str, rows: Rows, panels: tuple[Any, ...], own: tuple[Vector | None, ...]) -> Any:
        return block_part(what, self._block(rows), *panels, *(None if P is None else P[slice(*rows)] for P in own))

    def _each(self, function: Callable[[Rows], Any], workers: int | None = None) -> Iterator[tuple[Rows, Any]]:
        def part(rows: Rows) -> Any:
            with unheard(), unkept():
                return function(rows)

        return super()._each(part, workers)

    def _block(self, rows: Rows) -> Operator:
        lo, hi = rows
        shift = None if self.shift is None else LowRank(self.shift.L[lo:hi], self.shift.R)
        X = rows_of(self.source, lo, hi)
        full = self.full if self.sparse and shift is not None else None
        return rows_operator(X, shift, full, *self.source.place(lo), 4 * self.block_bytes)
