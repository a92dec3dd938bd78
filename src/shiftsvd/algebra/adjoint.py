"""The conjugate transpose of an operator, a view."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from shiftsvd.algebra import generic
from shiftsvd.algebra.low_rank import LowRank
from shiftsvd.algebra.operator import Derived, Operator
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.numerics.panels import Panel, panel_dtype


@generic.registered
@dataclass(frozen=True, eq=False, repr=False)
class Adjoint(Derived):
    """The conjugate transpose of an operator, of shape (m, n).

    Parameters
    ----------
    A : Operator of shape (n, m)
        The operator; nothing of it is copied.

    See Also
    --------
    Operator : ``A.H`` gives one.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> ss.as_operator(np.ones((3, 2))).H.shape
    (2, 3)
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shape", self.A.shape[::-1])

    def placed(self, V: Panel) -> Panel:
        """The panel where A multiplies.

        Parameters
        ----------
        V : array of shape (n, b)
            A panel on the host.

        Returns
        -------
        array of shape (n, b)
            The same numbers there.
        """
        return generic.placed(self.A, V)

    def matmat(self, V: Panel) -> Panel:
        return self.A.rmatmat(V)

    def rmatmat(self, W: Panel) -> Panel:
        return self.A.matmat(W)

    def matmat_in_double(self, V: Panel) -> Panel:
        """The products in double precision, from a copy of A sorted by its columns where there is one.

        Parameters
        ----------
        V : array of shape (n, b)
            The panel that is multiplied.

        Returns
        -------
        array of shape (m, b), in double precision
            The product.
        """
        by_columns = generic.transposed(self.A, 0)
        if by_columns is None:
            return generic.rmatmat_in_double(self.A, V)
        return generic.matmat_in_double(by_columns, V)

    def rmatmat_in_double(self, W: Panel) -> Panel:
        """The products with A in double precision.

        Parameters
        ----------
        W : array of shape (m, b)
            The panel that is multiplied.

        Returns
        -------
        array of shape (n, b), in double precision
            The product.
        """
        return generic.matmat_in_double(self.A, W)

    def moments(self, weights: Vector | None = None) -> Moments:
        moments = generic.row_moments(self.A, weights)
        return Moments(moments.count, moments.mean.conj(), moments.M2)

    def least(self) -> float | None:
        """The least entry of A, which is that of its transpose; None where A does not tell it.

        Returns
        -------
        float or None
            The least of the stored numbers.
        """
        return generic.least(self.A)

    def row_moments(self, weights: Vector | None = None) -> Moments:
        """The moments of the rows, which are those of the columns of A, conjugated.

        Parameters
        ----------
        weights : array of shape (n,), optional
            A factor of each column; None is 1 for all.

        Returns
        -------
        Moments
            The mean of each row, and the sum of squares about it where that can be had.
        """
        moments = self.A.moments(weights)
        return Moments(moments.count, moments.mean.conj(), moments.M2)

    def triangle(self, weights: Vector | None = None) -> Panel:
        """The triangular factor of this adjoint, by the way in which A itself is read.

        Parameters
        ----------
        weights : array of shape (m,), optional
            A factor of each row; None is 1 for all.

        Returns
        -------
        array of shape (min(m, n), n)
            The factor R of ``diag(sqrt(weights)) B = Q R``, where B is this operator.
        """
        return generic.adjoint_triangle(self.A, weights)

    def column_squares(self, weights: Vector | None = None) -> Vector | None:
        return self.A.row_squares(weights)

    def row_squares(self, weights: Vector | None = None) -> Vector | None:
        return self.A.column_squares(weights)

    def squares_beyond(self, V: Panel, W: Panel, weights: Vector | None = None) -> Vector | None:
        """The squares that products leave over, from A sorted by its columns; None where A cannot be sorted so.

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
            Squared norms of the columns of ``diag(sqrt(weights)) (B - B V W^H)``, where B is this operator.
        """
        by_columns = generic.transposed(self.A, np.inf)
        return None if by_columns is None else generic.squares_beyond(by_columns, V, W, weights)

    def exponents(self, axis: int) -> Vector | None:
        """Return the exponents of A along its other axis.

        Parameters
        ----------
        axis : int
            0 for an exponent of each column, 1 for one of each row.

        Returns
        -------
        array of int, or None
            None where entries cannot be seen.
        """
        return generic.exponents(self.A, 1 - axis)

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> Operator | None:
        """``(diag(2^cols) A diag(2^rows))^H``: rows and columns of the adjoint times powers of two, by those of A.

        Parameters
        ----------
        rows : int, or array of shape (m,)
            Exponents of the powers of two for rows.
        cols : int, or array of shape (n,)
            Exponents of the powers of two for columns.

        Returns
        -------
        Operator or None
            This matrix with rows and columns multiplied; None where it cannot be.
        """
        B = generic.ldexp(self.A, cols, rows)
        return None if B is None else B.H

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        """The blocks of rows of ``A^H``, which are blocks of columns of A.

        Parameters
        ----------
        rows : int
            About how many rows a block has.

        Returns
        -------
        iterator of (int, array of shape (rows, n))
            The first row of a block, and the block, formed.
        """
        return generic.column_blocks(self.A, rows)

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        """The blocks of columns of ``A^H``, which are blocks of rows of A.

        Parameters
        ----------
        columns : int
            About how many columns a block has.

        Returns
        -------
        iterator of (int, array)
            The first column of a block, and the block's adjoint, formed.
        """
        return generic.row_blocks(self.A, columns)

    def gram_seconds(self, V: Panel) -> float:
        return generic.timed(self, V)

    def passes_per_step(self) -> int:
        return 2 if self.A.costs.file_bytes else generic.passes_per_step(self.A)

    def known_costs(self) -> dict[str, Any]:
        """A `gram` has a panel between its two products that is as long as the rows of this matrix.

        Where anything travels, the parts of it would be as long as the data.
        """
        A = self.A.costs
        known: dict[str, Any] = {"square_bytes": float("inf") if A.square_bytes else 0.0}
        if A.adjoint_bytes:
            between = self.shape[0] * panel_dtype(self.dtype).itemsize
            known |= {"column_bytes": A.column_bytes + A.adjoint_bytes + between, "adjoint_bytes": 0}
            known |= {"square_columns": self.shape[1]}
        return known

    def fused(self, passes: float) -> Operator:
        """A sorted the other way, where that pays.

        Parameters
        ----------
        passes : float
            How many products will follow: what getting ready may cost depends on it.

        Returns
        -------
        Operator
            The same matrix.
        """
        return generic.transposed(self.A, passes) or self

    def with_shift(self, shift: LowRank) -> Operator | None:
        fused = self.A.with_shift(shift.H)
        return None if fused is None else fused.H

    def unshifted(self) -> tuple[Operator, LowRank | None]:
        """The parts of A, each conjugate-transposed.

        Returns
        -------
        (Operator, LowRank or None)
            The matrix before the shift, and the shift; None where there is none.
        """
        return generic.unshifted(self.A)[0].H, self.shift_of()

    def shift_of(self) -> LowRank | None:
        """The shift of A, conjugate-transposed.

        Returns
        -------
        LowRank or None
            None where there is none.
        """
        shift = generic.shift_of(self.A)
        return None if shift is None else shift.H

    def as_low_rank(self) -> LowRank | None:
        """``R L^H``, if A is ``L R^H``.

        Returns
        -------
        LowRank or None
            The adjoint with the factors exchanged; None where A is of no known low rank.
        """
        low_rank = generic.as_low_rank(self.A)
        return None if low_rank is None else low_rank.H

    @property
    def H(self) -> Operator:
        return self.A


generic.adjoint.register(Operator, Adjoint)
