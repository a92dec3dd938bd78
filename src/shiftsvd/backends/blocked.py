"""Base class of stored matrices, which are read in fixed blocks of rows, each minus its rows of the shift."""

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, reduce, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

import numpy as np

from shiftsvd.algebra.generic import row_means
from shiftsvd.algebra.operator import Costs
from shiftsvd.events import record_read
from shiftsvd.kernels import ordered
from shiftsvd.kernels.twin import range_errors_ignored
from shiftsvd.operators import LowRank, Moments, Operator, Panel, Vector, field_of, panel_dtype
from shiftsvd.runs import checkpoints

Matrix = TypeVar("Matrix", bound="Blocked")
Given = ParamSpec("Given")
Made = TypeVar("Made")
Rows = tuple[int, int]  # first row and one past the last
# Entries of a piece of a block that is formed in double precision.
PIECE = 2**18
# Store a result in the journal if computing it takes at least WORTH + WORTH_EACH * (numbers of the result) products:
# a pass computes 1e9 to 1e10 products a second, and a disk writes 1e8 to 1e9 bytes a second after 10 ms.
WORTH, WORTH_EACH = 2.5e7, 40


def journaled(
    read: Callable[Concatenate[Matrix, Given], Panel],
) -> Callable[Concatenate[Matrix, Given], Panel]:
    @wraps(read)
    def once(A: Matrix, /, *panels: Given.args, **named: Given.kwargs) -> Panel:
        given: tuple[Any, ...] = (*panels, *named.values())
        width = next((panel.shape[1] for panel in given if np.ndim(panel) == 2), A.shape[1])
        if not checkpoints.kept() or not A.worth_keeping(width):
            return read(A, *panels, **named)
        (found,) = A.once(read.__name__, given, lambda: {"Z": read(A, *panels, **named)}).values()
        return found

    return once


class Blocked(Operator):
    """Matrix read in blocks of rows, minus its shift. The blocks depend on the data alone, not on the threads."""

    n_threads: int
    shift: LowRank | None
    memo: dict[str, Any]  # cached properties of the stored matrix, shared by all operators on it
    memory_limit: int | str | None = None
    sparse: bool = False

    @abstractmethod
    def blocks(self) -> list[Rows]: ...

    # Methods of a block. Operators that are not in memory compute all blocks at once instead.

    formed: Callable[[Rows], Panel]
    block_moments: Callable[[Rows, Vector | None], Moments]
    block_row_moments: Callable[[Rows, Vector | None], Moments]
    turned: Callable[[], Self]  # the adjoint, read by its own rows

    def describe(self, shape: tuple[int, ...], kind: np.dtype[Any]) -> None:
        parts = () if self.shift is None else (self.shift.L, self.shift.R)
        vars(self).update(shape=(int(shape[0]), int(shape[1])), dtype=field_of(kind, *parts))

    def remembered(self, name: str, make: Callable[[], Made]) -> Made:
        if name not in self.memo:
            self.memo[name] = make()
        return cast("Made", self.memo[name])

    def memo_of(self, *names: str) -> dict[str, Any]:
        return {name: self.memo[name] for name in names if name in self.memo}

    def with_shift(self, shift: LowRank) -> Self:
        return self._replace_shift(shift.merge(self.shift))

    @cached_property
    def costs(self) -> Costs:
        double = float(np.finfo(np.float64).eps)
        return Costs.of(self, gram_reads=1, gram_eps=double, n_threads=self.n_threads, **self.known_costs())

    def known_costs(self) -> dict[str, Any]:
        return {}

    @property
    def fingerprint(self) -> str | None:
        return None

    @property
    def level(self) -> bool:
        return self.shift is not None and self.shift.level

    def worth_keeping(self, columns: int) -> bool:
        products = self.costs.stored * columns
        return products > WORTH + WORTH_EACH * self.shape[1] * columns and self.fingerprint is not None

    def once(self, what: str, panels: tuple[Any, ...], read: Callable[[], checkpoints.Record]) -> checkpoints.Record:
        if not checkpoints.kept():  # the fingerprint may take a pass
            return read()
        shift = () if self.shift is None else (self.shift.L[: 1 if self.level else None], self.shift.R)
        return checkpoints.once(f"{what} {self.fingerprint}", (*panels, *shift), read)

    def moments(self, weights: Vector | None = None) -> Moments:
        if self.shift is not None and self.sparse:
            stored = self._replace_shift(None).moments(weights)
            w = np.ones(self.shape[0]) if weights is None else weights
            mean = stored.mean - (w @ self.shift.L) @ self.shift.R.conj().T / stored.count
            return Moments(stored.count, mean, None)
        return self.remember_moments("columns", self._moments(weights), weights)

    def remember_moments(self, lines: str, moments: Moments, weights: Vector | None) -> Moments:
        if weights is None and self.shift is None:
            self.memo[lines] = moments
        return moments

    def _moments(self, weights: Vector | None) -> Moments:
        blocks = self._each(lambda rows: self.block_moments(rows, slice_of(weights, rows)), self.moment_workers)
        parts: Iterator[Moments] = (part for _, part in blocks)
        return reduce(Moments.merge, parts)

    def row_moments(self, weights: Vector | None = None) -> Moments:
        if self.shift is not None and self.sparse:
            return row_means(self, weights)
        parts = self._row_moments(slice_of(weights, (0, self.shape[1])))
        mean, M2 = (np.concatenate([getattr(part, name) for part in parts]) for name in ("mean", "M2"))
        return self.remember_moments("rows", Moments(parts[0].count, mean, M2), weights)

    def _row_moments(self, weights: Vector | None) -> list[Moments]:
        return [part for _, part in self._each(lambda rows: self.block_row_moments(rows, weights))]

    def column_squares(self, weights: Vector | None = None) -> Vector:
        known: Any = self.memo.get("columns") if weights is None else None
        mu = None if known is None else np.zeros(1) if self.shift is None else self.shift.row_vector()
        return self._column_squares(weights) if mu is None else squares_about(known, mu)

    @abstractmethod
    def _column_squares(self, weights: Vector | None) -> Vector: ...

    @journaled
    def squares_beyond(self, V: Panel, W: Panel, weights: Vector | None = None) -> Vector:
        Wh = W.conj().T

        def part(rows: Rows) -> Vector:
            squares = np.zeros(self.shape[1])
            for lo, piece in self.dense_pieces(rows):
                left = np.abs(piece - (piece @ V) @ Wh) ** 2
                w = slice_of(weights, (lo, lo + len(left)))
                squares += left.sum(axis=0) if w is None else w @ left
            return squares

        return np.asarray(self._sum(part))

    def pieces_times(self, V: Panel) -> Panel:
        Y = np.empty((self.shape[0], V.shape[1]), np.result_type(panel_dtype(self.dtype), V))

        def part(rows: Rows) -> None:
            for lo, piece in self.dense_pieces(rows):
                Y[lo : lo + len(piece)] = piece @ V

        exhaust(self._each(part))
        return Y

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        return ((lo, self.formed((lo, hi))) for lo, hi in cut(self.shape[0], rows))

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        return self.turned().row_blocks(columns)

    def dense_pieces(self, rows: Rows) -> Iterator[tuple[int, Panel]]:
        for lo, hi in cut(rows[1] - rows[0], PIECE // max(self.shape[1], 1)):
            yield rows[0] + lo, self.formed((rows[0] + lo, rows[0] + hi))

    def unshifted(self) -> tuple[Operator, LowRank | None]:
        return self._replace_shift(None), self.shift

    def _replace_shift(self, shift: LowRank | None) -> Self:
        return replace(self, shift=shift)  # type: ignore[type-var]

    def _each(self, function: Callable[[Rows], Any], workers: int | None = None) -> Iterator[tuple[Rows, Any]]:
        blocks = self.blocks()
        rows = iter(blocks)
        for found in ordered(function, blocks, workers or self.workers):
            record_read(1 / len(blocks))
            yield next(rows), found
            del found  # free the block before the next one is computed

    @property
    def workers(self) -> int:
        return self.n_threads

    @property
    def moment_workers(self) -> int:
        return self.workers

    def _stack(self, part: Callable[[Rows], Panel]) -> Panel:
        return np.concatenate([values for _, values in self._each(part)])

    def _sum(self, part: Callable[[Rows], Panel]) -> Panel:
        total: Panel | None = None
        for _, values in self._each(part):
            if total is None:
                total = values.astype(np.result_type(values, np.float64), copy=False)
            else:
                total += values
            del values  # free the values before the next ones are computed
        assert total is not None
        return total


@range_errors_ignored
def squares_about(moments: Moments, mu: Vector) -> Vector:
    assert moments.M2 is not None
    return np.asarray(moments.M2 + moments.count * np.abs(moments.mean - mu) ** 2)


def cut(n_rows: int, rows: int) -> list[Rows]:
    rows = max(rows, 1)
    return [(lo, min(lo + rows, n_rows)) for lo in range(0, n_rows, rows)] or [(0, 0)]


def slice_of(weights: Vector | None, rows: Rows) -> Vector | None:
    return None if weights is None else np.asarray(weights[rows[0] : rows[1]], np.float64)


def exhaust(parts: Iterator[Any]) -> None:
    deque(parts, maxlen=0)
