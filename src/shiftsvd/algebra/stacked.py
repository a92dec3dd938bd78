"""Operators stacked on top of each other, or side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np

from shiftsvd.algebra import generic
from shiftsvd.algebra.low_rank import LowRank
from shiftsvd.algebra.operator import Costs, Operator
from shiftsvd.algebra.scaled import times_powers
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.numerics.orth import folded
from shiftsvd.numerics.panels import Panel


@generic.registered
@dataclass(frozen=True, eq=False, repr=False)
class Above(Operator):
    """The rows of several operators, one above another: nothing is copied, and each keeps its own kind.

    Side by side is the adjoint: `beside`.

    Parameters
    ----------
    parts : tuple of Operator
        All with as many columns.

    Raises
    ------
    ValueError
        If they do not have as many columns.

    See Also
    --------
    operators.Product : One after the other.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> A, B = ss.as_operator(np.ones((3, 2))), ss.as_operator(np.zeros((1, 2)))
    >>> ss.operators.Above((A, B)).matmat(np.eye(2)).tolist()
    [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    """

    parts: tuple[Operator, ...]

    def __post_init__(self) -> None:
        widths = sorted({A.shape[1] for A in self.parts})
        if len(widths) != 1:
            raise ValueError(f"operators above each other need as many columns, got {widths}")
        dtype = np.result_type(*(A.dtype for A in self.parts))
        vars(self).update(shape=(int(self._firsts[-1]), widths[0]), dtype=dtype)

    @cached_property
    def _firsts(self) -> Vector:
        return np.cumsum([0, *(A.shape[0] for A in self.parts)])

    def _cut(self, W: Any) -> Iterator[tuple[Operator, Any]]:
        for A, lo, hi in zip(self.parts, self._firsts[:-1], self._firsts[1:], strict=True):
            yield A, W[lo:hi] if np.ndim(W) else W

    def matmat(self, V: Panel) -> Panel:
        return np.concatenate([A.matmat(V) for A in self.parts])

    def rmatmat(self, W: Panel) -> Panel:
        return reduce(np.add, (A.rmatmat(rows) for A, rows in self._cut(W)))

    def matmat_in_double(self, V: Panel) -> Panel:
        """The products of all parts in double precision, where these can do that.

        Parameters
        ----------
        V : array of shape (n, b)
            The panel that is multiplied.

        Returns
        -------
        array of shape (m, b), in double precision
            The product.
        """
        return np.concatenate([generic.matmat_in_double(A, V) for A in self.parts])

    def rmatmat_in_double(self, W: Panel) -> Panel:
        """The sum of the products of the adjoints in double precision.

        Parameters
        ----------
        W : array of shape (m, b)
            The panel that is multiplied.

        Returns
        -------
        array of shape (n, b), in double precision
            The product.
        """
        return reduce(np.add, (generic.rmatmat_in_double(A, rows) for A, rows in self._cut(W)))

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        return reduce(np.add, (A.gram(V, w) for A, w in self._cut(weights)))

    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        """The sum of the Gram matrices of the parts, formed.

        Parameters
        ----------
        weights : array of shape (m,), optional
            A factor of each row; None is 1 for all.

        Returns
        -------
        array of shape (n, n), in double precision
            The Gram matrix.
        """
        return reduce(np.add, (generic.gram_matrix(A, w) for A, w in self._cut(weights)))

    def triangle(self, weights: Vector | None = None) -> Panel:
        """The triangular factor of all parts, from those of each.

        Parameters
        ----------
        weights : array of shape (m,), optional
            A factor of each row; None is 1 for all.

        Returns
        -------
        array of shape (min(m, n), n)
            The triangular factor of ``diag(sqrt(weights)) A``.
        """
        return reduce(folded, (generic.triangle(A, w) for A, w in self._cut(weights)))

    @cached_property
    def costs(self) -> Costs:
        parts = [A.costs for A in self.parts]
        return Costs.of(
            self,
            eps=max(A.eps for A in parts),
            stored=sum(A.stored for A in parts),
            gram_reads=max(A.gram_reads for A in parts),
            gram_eps=max(A.gram_eps for A in parts),
            gram_in_single=all(A.gram_in_single for A in parts),
            gram_pairs=sum(A.gram_pairs for A in parts),
            panel_columns=(max(A.panel_columns[0] for A in parts), max(A.panel_columns[1] for A in parts)),
            working_bytes=max(A.working_bytes for A in parts),
            column_bytes=max(A.column_bytes for A in parts),
            adjoint_bytes=max(A.adjoint_bytes for A in parts),
            block_bytes=max(A.block_bytes for A in parts),
            file_bytes=sum(A.file_bytes for A in parts),
            square_bytes=sum(A.square_bytes for A in parts),
            strain=max(A.strain for A in parts),
            n_threads=next((A.n_threads for A in parts if A.n_threads), None),
        )

    def passes_per_step(self) -> int:
        """The passes of a step: as many as the part that takes most.

        Returns
        -------
        int
            How often a step of block Lanczos reads the data.
        """
        return max(map(generic.passes_per_step, self.parts))

    def moments(self, weights: Vector | None = None) -> Moments:
        found = [A.moments(w) for A, w in self._cut(weights) if w is None or np.any(w)]
        if all(part.M2 is not None for part in found):
            return reduce(Moments.merge, found)
        count = sum(part.count for part in found)
        return Moments(count, reduce(np.add, (part.mean * (part.count / count) for part in found)), None)

    def row_moments(self, weights: Vector | None = None) -> Moments:
        """The moments of all rows; of parts without squares, the means alone.

        Parameters
        ----------
        weights : array of shape (n,), optional
            A factor of each column; None is 1 for all.

        Returns
        -------
        Moments
            The mean of each row, and the sum of squares about it where that can be had.
        """
        found = [generic.row_moments(A, weights) for A in self.parts]
        squares = [part.M2 for part in found if part.M2 is not None]
        M2 = np.concatenate(squares) if len(squares) == len(found) else None
        return Moments(found[0].count, np.concatenate([part.mean for part in found]), M2)

    def column_squares(self, weights: Vector | None = None) -> Vector | None:
        return _sum([A.column_squares(w) for A, w in self._cut(weights)])

    def row_squares(self, weights: Vector | None = None) -> Vector | None:
        return _joined([A.row_squares(weights) for A in self.parts])

    def squares_beyond(self, V: Panel, W: Panel, weights: Vector | None = None) -> Vector | None:
        """The sum of what the parts leave over; None where one of them does not know it.

        Parameters
        ----------
        V : array of shape (n, b)
            The panel that multiplies from the right.
        W : array of shape (n, b)
            The panel whose adjoint follows it; with the same orthonormal columns as V, ``V W^H`` projects.
        weights : array of shape (m,), optional
            A factor of each row; None is 1 for all.

        Returns
        -------
        array of shape (n,), or None
            Squared norms of the columns of ``diag(sqrt(weights)) (A - A V W^H)``.
        """
        return _sum([generic.squares_beyond(A, V, W, w) for A, w in self._cut(weights)])

    def cancelled(self) -> float:
        """What products of any part cancel, and their shifts, which round at their own level.

        Returns
        -------
        float
            A norm, in the units of the matrix, whose rounding products have.
        """
        shifts = [generic.unshifted(A)[1] for A in self.parts]
        return sum(S.frobenius_norm() for S in shifts if S is not None) + sum(map(generic.cancelled, self.parts))

    def least(self) -> float | None:
        """The least of the numbers of all parts; None where one does not know its own.

        Returns
        -------
        float or None
            The least of the stored numbers.
        """
        found = [generic.least(A) for A in self.parts]
        known = [value for value in found if value is not None]
        return min(known) if len(known) == len(found) else None

    def exponents(self, axis: int) -> Vector | None:
        """Return the largest exponents of the columns over all parts, or the exponents of the rows of all parts.

        Parameters
        ----------
        axis : int
            0 for an exponent of each column, 1 for one of each row.

        Returns
        -------
        array of int, or None
            None where entries cannot be seen.
        """
        found = [generic.exponents(A, axis) for A in self.parts]
        known = [e for e in found if e is not None]
        if len(known) < len(found):
            return None
        return np.concatenate(known) if axis else np.asarray(reduce(np.maximum, known))

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "Above":
        """Every part with its rows and columns times powers of two.

        Parameters
        ----------
        rows : int, or array of shape (m,)
            Exponents of the powers of two for rows.
        cols : int, or array of shape (n,)
            Exponents of the powers of two for columns.

        Returns
        -------
        Above
            This matrix with rows and columns multiplied.
        """
        return Above(tuple(times_powers(A, e, cols) for A, e in self._cut(rows)))

    def with_shift(self, shift: LowRank) -> "Above":
        return Above(tuple(A - LowRank(L, shift.R) for A, L in self._cut(shift.L)))

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        for A, first in zip(self.parts, self._firsts[:-1], strict=True):
            yield from ((int(first) + lo, part) for lo, part in A.row_products(V))

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        """The blocks of one part after the other.

        Parameters
        ----------
        rows : int
            About how many rows a block has.

        Yields
        ------
        (int, array of shape (rows, n))
            The first row of a block, and the block, formed.
        """
        for A, first in zip(self.parts, self._firsts[:-1], strict=True):
            yield from ((int(first) + lo, block) for lo, block in generic.row_blocks(A, rows))

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        """The blocks of columns of all parts, those of the same columns put together.

        Parameters
        ----------
        columns : int
            About how many columns a block has.

        Returns
        -------
        iterator of (int, array)
            The first column of a block, and the block's adjoint, formed.
        """
        return aligned([generic.column_blocks(A, columns) for A in self.parts])


def beside(parts: Sequence[Operator]) -> Operator:
    """Put operators of as many rows beside one another, as one.

    Parameters
    ----------
    parts : sequence of Operator
        All with as many rows.

    Returns
    -------
    Operator
        As wide as all of them together; nothing is copied.

    Raises
    ------
    ValueError
        If they do not have as many rows.

    See Also
    --------
    operators.Above : One above another.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.operators.beside([ss.as_operator(np.ones((3, 2))), ss.as_operator(np.ones((3, 4)))]).shape
    (3, 6)
    """
    return Above(tuple(A.H for A in parts)).H


def aligned(blocks: Sequence[Iterator[tuple[int, Panel]]]) -> Iterator[tuple[int, Panel]]:
    for first, rows in together(blocks):
        yield first, np.hstack(rows)


def together(blocks: Sequence[Iterator[tuple[int, Panel]]]) -> Iterator[tuple[int, list[Panel]]]:
    left, first = [next(each)[1] for each in blocks], 0
    while all(len(block) for block in left):
        rows = min(len(block) for block in left)
        yield first, [block[:rows] for block in left]
        first += rows
        left = [
            block[rows:] if len(block) > rows else _next(each, block[:0])
            for block, each in zip(left, blocks, strict=True)
        ]


def _next(blocks: Iterator[tuple[int, Panel]], empty: Panel) -> Panel:
    return next(blocks, (0, empty))[1]


def _sum(found: list[Vector | None]) -> Vector | None:
    known = [part for part in found if part is not None]
    return reduce(np.add, known) if len(known) == len(found) else None


def _joined(found: list[Vector | None]) -> Vector | None:
    known = [part for part in found if part is not None]
    return np.concatenate(known) if len(known) == len(found) else None
