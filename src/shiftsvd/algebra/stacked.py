"""Operators stacked on top of each other, or side by side."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, TypeVar

import numpy as np

from shiftsvd.algebra import generic
from shiftsvd.algebra.low_rank import LowRank
from shiftsvd.algebra.operator import Costs, Operator, costs_together
from shiftsvd.algebra.scaled import times_powers
from shiftsvd.numerics.moments import Moments
from shiftsvd.numerics.orth import folded
from shiftsvd.numerics.panels import Panel, Vector

Part = TypeVar("Part")


@generic.registered
@dataclass(frozen=True, eq=False, repr=False)
class VStack(Operator):
    """Operators with equal numbers of columns, one above another, as one operator. No part is copied.

    Parameters
    ----------
    parts : tuple of Operator
        Operators of shapes ``(m_1, n)``, ``(m_2, n)`` and so on.

    Raises
    ------
    ValueError
        If the numbers of columns differ.

    See Also
    --------
    operators.hstack : Operators side by side.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> A, B = ss.as_operator(np.ones((3, 2))), ss.as_operator(np.zeros((1, 2)))
    >>> ss.operators.VStack((A, B)).matmat(np.eye(2)).tolist()
    [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    """

    parts: tuple[Operator, ...]

    def __post_init__(self) -> None:
        widths = sorted({A.shape[1] for A in self.parts})
        if len(widths) != 1:
            raise ValueError(f"stacked operators must have equal numbers of columns, got {widths}")
        dtype = np.result_type(*(A.dtype for A in self.parts))
        vars(self).update(shape=(int(self._firsts[-1]), widths[0]), dtype=dtype)

    @cached_property
    def _firsts(self) -> Vector:
        return np.cumsum([0, *(A.shape[0] for A in self.parts)])

    def _cut(self, W: Any) -> Iterator[tuple[Operator, Any]]:
        for A, lo, hi in zip(self.parts, self._firsts[:-1], self._firsts[1:], strict=True):
            yield A, W[lo:hi] if np.ndim(W) else W

    def _in_order(self, blocks: Callable[[Operator], Iterator[tuple[int, Panel]]]) -> Iterator[tuple[int, Panel]]:
        for A, first in zip(self.parts, self._firsts[:-1], strict=True):
            yield from ((int(first) + lo, block) for lo, block in blocks(A))

    def matmat(self, V: Panel) -> Panel:
        return np.concatenate([A.matmat(V) for A in self.parts])

    def rmatmat(self, W: Panel) -> Panel:
        return reduce(np.add, (A.rmatmat(rows) for A, rows in self._cut(W)))

    def matmat_in_double(self, V: Panel) -> Panel:
        return np.concatenate([generic.matmat_in_double(A, V) for A in self.parts])

    def rmatmat_in_double(self, W: Panel) -> Panel:
        return reduce(np.add, (generic.rmatmat_in_double(A, rows) for A, rows in self._cut(W)))

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        return reduce(np.add, (A.gram(V, w) for A, w in self._cut(weights)))

    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        return reduce(np.add, (generic.gram_matrix(A, w) for A, w in self._cut(weights)))

    def triangle(self, weights: Vector | None = None) -> Panel:
        return reduce(folded, (generic.triangle(A, w) for A, w in self._cut(weights)))

    @cached_property
    def costs(self) -> Costs:
        most = ("working_bytes", "column_bytes", "adjoint_bytes", "strain")
        in_single = all(A.costs.gram_in_single for A in self.parts)
        return costs_together(self, self.parts, most, ("gram_pairs", "square_bytes"), gram_in_single=in_single)

    def passes_per_step(self) -> int:
        return max(map(generic.passes_per_step, self.parts))

    def moments(self, weights: Vector | None = None) -> Moments:
        found = [A.moments(w) for A, w in self._cut(weights) if w is None or np.any(w)]
        if all(part.M2 is not None for part in found):
            return reduce(Moments.merge, found)
        count = sum(part.count for part in found)
        return Moments(count, reduce(np.add, (part.mean * (part.count / count) for part in found)), None)

    def row_moments(self, weights: Vector | None = None) -> Moments:
        found = [generic.row_moments(A, weights) for A in self.parts]
        M2 = _of_all(np.concatenate, (part.M2 for part in found))
        return Moments(found[0].count, np.concatenate([part.mean for part in found]), M2)

    def column_squares(self, weights: Vector | None = None) -> Vector | None:
        return _of_all(_sum, (A.column_squares(w) for A, w in self._cut(weights)))

    def row_squares(self, weights: Vector | None = None) -> Vector | None:
        return _of_all(np.concatenate, (A.row_squares(weights) for A in self.parts))

    def squares_beyond(self, V: Panel, W: Panel, weights: Vector | None = None) -> Vector | None:
        return _of_all(_sum, (generic.squares_beyond(A, V, W, w) for A, w in self._cut(weights)))

    def cancelled(self) -> float:
        # The shift of a part, too: its products round at the level of the shift.
        shifts = map(generic.shift_of, self.parts)
        return sum(S.frobenius_norm() for S in shifts if S is not None) + sum(map(generic.cancelled, self.parts))

    def least(self) -> float | None:
        return _of_all(min, map(generic.least, self.parts))

    def exponents(self, axis: int) -> Vector | None:
        return _of_all(np.concatenate if axis else _largest, (generic.exponents(A, axis) for A in self.parts))

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "VStack":
        return VStack(tuple(times_powers(A, e, cols) for A, e in self._cut(rows)))

    def with_shift(self, shift: LowRank) -> "VStack":
        return VStack(tuple(A - LowRank(L, shift.R) for A, L in self._cut(shift.L)))

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        return self._in_order(lambda A: A.row_products(V))

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        return self._in_order(lambda A: generic.row_blocks(A, rows))

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        for first, blocks in together([generic.column_blocks(A, columns) for A in self.parts]):
            yield first, np.hstack(blocks)


def hstack(parts: Sequence[Operator]) -> Operator:
    """Return operators with equal numbers of rows side by side, as one operator.

    Parameters
    ----------
    parts : sequence of Operator
        Operators of shapes ``(m, n_1)``, ``(m, n_2)`` and so on.

    Returns
    -------
    Operator
        The operator of shape ``(m, n_1 + n_2 + ...)``; its parts are not copied.

    Raises
    ------
    ValueError
        If the numbers of rows differ.

    See Also
    --------
    operators.VStack : One above another.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.operators.hstack([ss.as_operator(np.ones((3, 2))), ss.as_operator(np.ones((3, 4)))]).shape
    (3, 6)
    """
    return VStack(tuple(A.H for A in parts)).H


def together(blocks: Sequence[Iterator[tuple[int, Panel]]]) -> Iterator[tuple[int, list[Panel]]]:
    # Blocks of the same rows of several matrices, as long as the shortest of those that are left.
    left, first = [next(each)[1] for each in blocks], 0
    while all(len(block) for block in left):
        rows = min(len(block) for block in left)
        yield first, [block[:rows] for block in left]
        first += rows
        left = [
            block[rows:] if len(block) > rows else next(each, (0, block[:0]))[1]
            for block, each in zip(left, blocks, strict=True)
        ]


def _of_all(how: Callable[[list[Part]], Part], found: Iterable[Part | None]) -> Part | None:
    parts = list(found)
    known = [part for part in parts if part is not None]
    return how(known) if len(known) == len(parts) else None


def _sum(vectors: list[Vector]) -> Vector:
    return reduce(np.add, vectors)


def _largest(vectors: list[Vector]) -> Vector:
    return reduce(np.maximum, vectors)
