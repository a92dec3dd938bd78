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
    Operator : ``A.H`` is this, or a view of its own kind.

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
        return generic.placed(self.A, V)

    def matmat(self, V: Panel) -> Panel:
        return self.A.rmatmat(V)

    def rmatmat(self, W: Panel) -> Panel:
        return self.A.matmat(W)

    def matmat_in_double(self, V: Panel) -> Panel:
        by_columns = generic.transposed(self.A, 0)
        if by_columns is None:
            return generic.rmatmat_in_double(self.A, V)
        return generic.matmat_in_double(by_columns, V)

    def rmatmat_in_double(self, W: Panel) -> Panel:
        return generic.matmat_in_double(self.A, W)

    def moments(self, weights: Vector | None = None) -> Moments:
        moments = generic.row_moments(self.A, weights)
        return Moments(moments.count, moments.mean.conj(), moments.M2)

    def row_moments(self, weights: Vector | None = None) -> Moments:
        moments = self.A.moments(weights)
        return Moments(moments.count, moments.mean.conj(), moments.M2)

    def least(self) -> float | None:
        return generic.least(self.A)

    def triangle(self, weights: Vector | None = None) -> Panel:
        return generic.adjoint_triangle(self.A, weights)

    def column_squares(self, weights: Vector | None = None) -> Vector | None:
        return self.A.row_squares(weights)

    def row_squares(self, weights: Vector | None = None) -> Vector | None:
        return self.A.column_squares(weights)

    def squares_beyond(self, V: Panel, W: Panel, weights: Vector | None = None) -> Vector | None:
        by_columns = generic.transposed(self.A, np.inf)
        return None if by_columns is None else generic.squares_beyond(by_columns, V, W, weights)

    def exponents(self, axis: int) -> Vector | None:
        return generic.exponents(self.A, 1 - axis)

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> Operator | None:
        B = generic.ldexp(self.A, cols, rows)
        return None if B is None else B.H

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        return generic.column_blocks(self.A, rows)

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        return generic.row_blocks(self.A, columns)

    def gram_seconds(self, V: Panel) -> float:
        return generic.timed(self, V)

    def passes_per_step(self) -> int:
        return 2 if self.A.costs.file_bytes else generic.passes_per_step(self.A)

    def known_costs(self) -> dict[str, Any]:
        # The parts of a Gram matrix would be as long as the data: none is sent. The panel between the two products of
        # `gram` is as long as the rows of this matrix.
        A = self.A.costs
        known: dict[str, Any] = {"square_bytes": float("inf") if A.square_bytes else 0.0}
        if A.adjoint_bytes:
            between = self.shape[0] * panel_dtype(self.dtype).itemsize
            known |= {"column_bytes": A.column_bytes + A.adjoint_bytes + between, "adjoint_bytes": 0}
            known |= {"square_columns": self.shape[1]}
        return known

    def fused(self, passes: float) -> Operator:
        return generic.transposed(self.A, passes) or self

    def with_shift(self, shift: LowRank) -> Operator | None:
        fused = self.A.with_shift(shift.H)
        return None if fused is None else fused.H

    def unshifted(self) -> tuple[Operator, LowRank | None]:
        return generic.unshifted(self.A)[0].H, self.shift_of()

    def shift_of(self) -> LowRank | None:
        shift = generic.shift_of(self.A)
        return None if shift is None else shift.H

    def as_low_rank(self) -> LowRank | None:
        low_rank = generic.as_low_rank(self.A)
        return None if low_rank is None else low_rank.H

    @property
    def H(self) -> Operator:
        return self.A
