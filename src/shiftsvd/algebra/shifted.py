"""The difference of two operators: the plain algebra of the shift."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from shiftsvd.algebra import generic
from shiftsvd.algebra.derived import Derived
from shiftsvd.algebra.low_rank import LowRank
from shiftsvd.algebra.operator import Operator, check_same_shape
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import Panel, field_of, panel_dtype
from shiftsvd.numerics.powers import plus


@generic.registered
@dataclass(frozen=True, eq=False, repr=False)
class Shifted(Derived):
    """``A - S``: the plain algebra of the shift, for every operator that cannot fuse it.

    Parameters
    ----------
    A : Operator of shape (m, n)
        What is shifted.
    S : Operator of shape (m, n)
        What is subtracted, such as a `LowRank`.

    See Also
    --------
    operators.Scaled : Rows and columns times numbers.
    LowRank : What is subtracted.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> A = ss.as_operator(np.ones((3, 2))) - ss.LowRank(np.ones(3), np.ones(2))
    >>> A.matmat(np.eye(2)).tolist()
    [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """

    S: Operator

    def __post_init__(self) -> None:
        check_same_shape(self.A, self.S)
        super().__post_init__()
        object.__setattr__(self, "dtype", field_of(self.A.dtype, np.empty(0, self.S.dtype)))

    def matmat(self, V: Panel) -> Panel:
        return self.A.matmat(V) - self.S.matmat(V)

    def rmatmat(self, W: Panel) -> Panel:
        return self.A.rmatmat(W) - self.S.rmatmat(W)

    def matmat_in_double(self, V: Panel) -> Panel:
        """``A V - S V`` in double precision, where A and S can do that.

        Parameters
        ----------
        V : array of shape (n, b)
            The panel that is multiplied.

        Returns
        -------
        array of shape (m, b), in double precision
            The product.
        """
        return generic.matmat_in_double(self.A, V) - generic.matmat_in_double(self.S, V)

    def rmatmat_in_double(self, W: Panel) -> Panel:
        """``A^H W - S^H W`` in double precision, where A and S can do that.

        Parameters
        ----------
        W : array of shape (m, b)
            The panel that is multiplied.

        Returns
        -------
        array of shape (n, b), in double precision
            The product.
        """
        return generic.rmatmat_in_double(self.A, W) - generic.rmatmat_in_double(self.S, W)

    def known_costs(self) -> dict[str, Any]:
        if generic.as_low_rank(self.S) is not None:
            return {}
        A, S = self.A.costs, self.S.costs
        return {"eps": max(A.eps, S.eps), "gram_eps": max(A.gram_eps, S.gram_eps)}

    def fused(self, passes: float) -> Operator:
        """A prepared for so many passes, with the shift fused into its blocks where A can do that.

        Parameters
        ----------
        passes : float
            How many products will follow: what getting ready may cost depends on it.

        Returns
        -------
        Operator
            The same matrix.
        """
        return generic.fused(self.A, passes) - self.S

    def with_shift(self, shift: LowRank) -> Operator | None:
        S = generic.as_low_rank(self.S)
        return None if S is None else Shifted(self.A, shift.merge(S))

    def column_exponents(self) -> Vector | None:
        """The powers of two that no entry exceeds: the larger exponents of A and the shift, and one more.

        Returns
        -------
        array of shape (n,) or None
            Integer exponents. None where they cannot be had.
        """
        a, b = generic.column_exponents(self.A), generic.column_exponents(self.S)
        return None if a is None or b is None else plus(np.maximum(a, b), 1)

    def row_exponents(self) -> Vector | None:
        """The powers of two that no entry exceeds: the larger exponents of A and the shift, and one more.

        Returns
        -------
        array of shape (m,) or None
            Integer exponents. None where they cannot be had.
        """
        return generic.column_exponents(self.H)

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> Operator | None:
        """The difference of the matrix and the shift, both times the powers of two.

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
        A, S = generic.ldexp(self.A, rows, cols), generic.ldexp(self.S, rows, cols)
        return None if A is None or S is None else Shifted(A, S)

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        S = generic.as_low_rank(self.S)
        if S is None:
            yield from super().row_products(V)
            return
        C = S.R.conj().T @ V
        for lo, part in self.A.row_products(V):
            yield lo, part - S.L[lo : lo + len(part)] @ C

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        """The blocks of A minus the same rows of S.

        Parameters
        ----------
        rows : int
            About how many rows a block has.

        Yields
        ------
        (int, array of shape (rows, n))
            The first row of a block, and the block, formed.
        """
        S = generic.as_low_rank(self.S)
        if S is None:
            yield 0, self.matmat(np.eye(self.shape[1], dtype=panel_dtype(self.dtype)))
            return
        for lo, block in generic.row_blocks(self.A, rows):
            yield lo, block - S.rows(lo, lo + len(block))

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        """The row blocks of the adjoint.

        Parameters
        ----------
        columns : int
            About how many columns a block has.

        Returns
        -------
        iterator of (int, array)
            The first column of a block, and the block's adjoint, formed.
        """
        return generic.row_blocks(self.H, columns)

    def unshifted(self) -> tuple[Operator, LowRank | None]:
        """A and the shift, which both round.

        Returns
        -------
        (Operator, LowRank or None)
            The matrix before the shift, and the shift; None where there is none.
        """
        S = generic.as_low_rank(self.S)
        return (self, None) if S is None else (self.A, S)

    @property
    def H(self) -> "Shifted":
        return Shifted(self.A.H, self.S.H)


@generic.difference.register
def _(A: Operator, S: Operator) -> Operator:
    low_rank = generic.as_low_rank(S)
    fused = None if low_rank is None else A.with_shift(low_rank)
    return fused or Shifted(A, S if low_rank is None else low_rank)
