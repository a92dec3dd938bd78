"""What array and sparse backends share: a matrix that is read in fixed blocks of rows, with its shift."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property, reduce, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from shiftsvd.algebra.generic import registered
from shiftsvd.algebra.operator import Costs
from shiftsvd.events import read_part
from shiftsvd.kernels import ordered
from shiftsvd.kernels.twin import unwarned
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.operators import LowRank, Operator, Panel, panel_dtype
from shiftsvd.runs import checkpoints

Matrix = TypeVar("Matrix", bound="Blocked")
Given = ParamSpec("Given")
Rows = tuple[int, int]  # first row and one past the last
# Entries of a piece of a block that is made dense to look at what is left of it.
PIECE = 2**18
# A read multiplies some 1e9 to 1e10 pairs of numbers a second, and a disk takes 1e8 to 1e9 bytes, after 10 ms: its
# result is worth keeping from so many products on, and so many more for each number of it.
WORTH, WORTH_EACH = 2.5e7, 40


def kept(
    read: Callable[Concatenate[Matrix, Given], Panel],
) -> Callable[Concatenate[Matrix, Given], Panel]:
    @wraps(read)
    def once(A: Matrix, /, *panels: Given.args, **named: Given.kwargs) -> Panel:
        given: tuple[Any, ...] = (*panels, *named.values())
        width = next((panel.shape[1] for panel in given if np.ndim(panel) == 2), A.shape[1])
        if not checkpoints.kept() or not A.worth_keeping(width):
            return read(A, *panels, **named)
        return A.once(read.__name__, given, lambda: {"Z": read(A, *panels, **named)})["Z"]

    return once


@registered
class Blocked(Operator):
    """A matrix whose rows are the long side, read block by block, each block minus its rows of the shift.

    The blocks depend on the data alone, so results are the same for any number of threads.
    """

    n_threads: int
    shift: LowRank | None
    memo: dict[str, Any]  # of the stored matrix; shared by all that store the same

    @abstractmethod
    def blocks(self) -> list[Rows]: ...

    @abstractmethod
    def block_moments(self, rows: Rows, weights: Vector | None) -> Moments: ...

    @abstractmethod
    def block_row_moments(self, rows: Rows, weights: Vector | None) -> Moments: ...

    def with_shift(self, shift: LowRank) -> "Blocked":
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
        if not checkpoints.kept():  # the fingerprint may be a read
            return read()
        shift = () if self.shift is None else (self.shift.L[: 1 if self.level else None], self.shift.R)
        return checkpoints.once(f"{what} {self.fingerprint}", (*panels, *shift), read)

    def moments(self, weights: Vector | None = None) -> Moments:
        blocks = self._each(lambda rows: self.block_moments(rows, slice_of(weights, rows)), self.moment_workers)
        parts: Iterator[Moments] = (part for _, part in blocks)
        moments = reduce(Moments.merge, parts)
        if weights is None and self.shift is None:
            self.memo["columns"] = moments
        return moments

    def mean_alone(self, weights: Vector | None) -> Moments:
        assert self.shift is not None
        stored = self._replace_shift(None).moments(weights)
        w = np.ones(self.shape[0]) if weights is None else weights
        return Moments(stored.count, stored.mean - (w @ self.shift.L) @ self.shift.R.conj().T / stored.count, None)

    def known_squares(self) -> Vector | None:
        return squares_about(self.memo.get("columns"), self.shift)

    def row_moments(self, weights: Vector | None = None) -> Moments:
        weights = slice_of(weights, (0, self.shape[1]))
        parts = [part for _, part in self._each(lambda rows: self.block_row_moments(rows, weights))]
        squares = np.concatenate([part.M2 for part in parts if part.M2 is not None])
        return Moments(parts[0].count, np.concatenate([part.mean for part in parts]), squares)

    @kept
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

        for _ in self._each(part):
            pass
        return Y

    @abstractmethod
    def dense_pieces(self, rows: Rows) -> Iterator[tuple[int, Panel]]: ...

    def unshifted(self) -> tuple[Operator, LowRank | None]:
        return self._replace_shift(None), self.shift

    def shift_of(self) -> LowRank | None:
        return self.shift

    @abstractmethod
    def _replace_shift(self, shift: LowRank | None) -> "Blocked": ...

    def _each(self, function: Callable[[Rows], Any], workers: int | None = None) -> Iterator[tuple[Rows, Any]]:
        blocks = self.blocks()
        for found in ordered(lambda rows: (rows, function(rows)), blocks, workers or self.workers):
            read_part(1 / len(blocks))
            yield found
            del found  # nobody holds it while the next one is made

    @property
    def workers(self) -> int:
        return self.n_threads

    @property
    def moment_workers(self) -> int:
        return self.workers

    def _sum(self, part: Callable[[Rows], Panel]) -> Panel:
        total: Panel | None = None
        for _, values in self._each(part):
            if total is None:
                total = values.astype(np.result_type(values, np.float64), copy=False)
            else:
                total += values
            del values  # before the next one is made
        assert total is not None
        return total


@unwarned
def squares_about(moments: Moments | None, shift: LowRank | None) -> Vector | None:
    if moments is None:
        return None
    mu = np.zeros(1) if shift is None else shift.row_vector()
    if mu is None:
        return None
    assert moments.M2 is not None
    return np.asarray(moments.M2 + moments.count * np.abs(moments.mean - mu) ** 2)


def cut(n_rows: int, rows: int) -> list[Rows]:
    rows = max(rows, 1)
    return [(lo, min(lo + rows, n_rows)) for lo in range(0, n_rows, rows)] or [(0, 0)]


def slice_of(weights: Vector | None, rows: Rows) -> Vector | None:
    return None if weights is None else np.asarray(weights[rows[0] : rows[1]], np.float64)
