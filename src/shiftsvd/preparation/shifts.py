"""What is subtracted: shifts by their names, and what takes the same from other rows."""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, get_args, runtime_checkable

import numpy as np

from shiftsvd.algebra.generic import row_moments
from shiftsvd.algebra.operator import check_same_shape
from shiftsvd.names import ShiftName
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.operators import LowRank, Operator, Panel, repeated
from shiftsvd.preparation.covariates import Covariates, GroupMeans
from shiftsvd.preparation.scales import is_named
from shiftsvd.preparation.vectors import finite_vector

SHIFTS = 'None, "mean", "rows", "both", a vector, Covariates, GroupMeans, a LowRank or an Operator'
NAMES = get_args(ShiftName)


@runtime_checkable
class Shift(Protocol):
    """A rule for what to subtract, which is known once there is a matrix.

    See Also
    --------
    GroupMeans : One that is learned.
    shifts.Learned : What is learned.
    """

    def resolve(self, A: Operator, moments: Moments, weights: Vector | None) -> LowRank:
        """The shift of A, whose columns have these moments; `weights` has one entry a row."""


class Learned(Protocol):
    """A shift of some rows, with what it takes to shift others in the same way.

    See Also
    --------
    shifts.Shift : Learns one.
    """

    needs: ClassVar[str | None]  # what has to be known of every row

    def of(self, A: Operator, data: Any = None) -> Operator | None:
        """The shift of the rows of A; None where nothing is subtracted."""

    def points(self, m: int, data: Any = None) -> Panel:
        """What is added back to m rows."""

    def at(self, places: Any) -> "Learned":
        """The shift for rows that have their columns in another order, or only some of them."""


@dataclass(frozen=True, eq=False)
class Plain:
    """``1 mean^T``, and the own mean of every row where `rows` says so."""

    needs: ClassVar[str | None] = None
    mean: Vector
    rows: bool = False

    def of(self, A: Operator, data: Any = None) -> LowRank | None:
        """The shift of the rows of A; one read where they have means of their own."""
        m, n = A.shape
        S = repeated(self.mean, m) if np.any(self.mean) else None
        return LowRank(row_moments(A).mean, np.ones(n)).merge(S) if self.rows else S

    def points(self, m: int, data: Any = None) -> Panel:
        """The vector; the own means of rows are not known."""
        return self.mean[None]

    def at(self, places: Any) -> "Plain":
        """The vector for the columns at these places."""
        return Plain(self.mean[places], self.rows)


@dataclass(frozen=True, eq=False)
class Fixed:
    """A matrix, which says what is subtracted from the rows that it was made for, and nothing of others."""

    needs: ClassVar[str | None] = None
    S: Operator

    def of(self, A: Operator, data: Any = None) -> Operator:
        """The matrix that is subtracted, after a look whether its shape is that of A."""
        if not isinstance(self.S, Operator):
            raise TypeError(f"resolve of a shift must return a LowRank, got {type(self.S).__name__}")
        check_same_shape(A, self.S)
        return self.S

    def at(self, places: Any) -> "Fixed":
        """Nothing is known of other rows."""
        raise ValueError("a shift that is a matrix says nothing of rows whose columns are in another order")

    def points(self, m: int, data: Any = None) -> Panel:
        """The matrix that is subtracted, formed, (m, n)."""
        return self.S.matmat(np.eye(self.S.shape[1]))


def plain(name: str, moments: Moments) -> Plain:
    """The shift of that name."""
    if name == "rows":
        return Plain(np.zeros_like(moments.mean), rows=True)
    # X - 1 mu^T - rho 1^T + g 1 1^T, where g is the mean of both: that of mu is left to rho.
    return Plain(moments.mean - moments.mean.mean(), rows=True) if name == "both" else Plain(moments.mean)


def of_each_row(shift: Any) -> bool:
    """Whether every row loses its own mean."""
    return isinstance(shift, str) and shift in ("rows", "both")


def check_shift(shift: Any, n: int) -> None:
    """Refuse what cannot be a shift of n columns, before anything is known of them."""
    if isinstance(shift, str):
        if shift not in NAMES:
            raise ValueError(f"shift must be {SHIFTS}, got {shift!r}")
    elif not (shift is None or isinstance(shift, Operator | Shift)):
        finite_vector("shift", shift, n, "feature")


def learn_shift(
    shift: Any, A: Operator, moments: Moments | None, weights: Vector | None = None
) -> tuple[Operator | None, Learned]:
    """What is subtracted from A, None if nothing is, and what does the same to other rows."""
    n = A.shape[1]
    check_shift(shift, n)
    learned: Learned
    if isinstance(shift, Operator):
        learned = Fixed(shift)
    elif not isinstance(shift, str | Shift):
        learned = Plain(np.zeros(n) if shift is None else finite_vector("shift", shift, n, "feature"))
    else:
        assert moments is not None
        if isinstance(shift, GroupMeans | Covariates):
            return shift.learn(A, moments, weights)
        learned = plain(shift, moments) if isinstance(shift, str) else Fixed(shift.resolve(A, moments, weights))
    return learned.of(A), learned


def needs_moments(shift: Any, scale: Any) -> bool:
    """Whether the moments of the columns are needed to know shift and scale."""
    named = isinstance(shift, str) or (isinstance(shift, Shift) and not isinstance(shift, Operator))
    return named or is_named(scale)
