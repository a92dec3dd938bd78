"""What is subtracted and what is divided by: shifts and scales from their names, from groups, from covariates.

A shift of one's own is an object that can say what it is for a given matrix:

>>> import numpy as np, shiftsvd as ss
>>> class Controls:  # subtracts the mean of the first three rows
...     def resolve(self, A, moments, weights):
...         controls = (np.arange(A.shape[0]) < 3) / 3
...         return ss.LowRank(np.ones(A.shape[0]), A.rmatmat(controls[:, None]))
>>> X = np.arange(12.0).reshape(6, 2) ** 2
>>> F = ss.svd(X, 2, shift=Controls())
>>> bool(np.allclose(F.S, np.linalg.svd(X - X[:3].mean(axis=0), compute_uv=False)))
True
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, get_args, runtime_checkable

import numpy as np

from shiftsvd.names import ShiftName
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.operators import LowRank, Operator, Panel, repeated
from shiftsvd.preparation.covariates import Covariates, GroupMeans, LearnedCovariates, LearnedGroups
from shiftsvd.preparation.scales import moments_after, resolve_scale
from shiftsvd.preparation.vectors import finite_vector, row_weights

__all__ = [
    "NAMES",
    "Covariates",
    "GroupMeans",
    "Learned",
    "LearnedCovariates",
    "LearnedGroups",
    "Plain",
    "Shift",
    "finite_vector",
    "moments_after",
    "needs_moments",
    "of_each_row",
    "plain",
    "resolve_scale",
    "resolve_shift",
    "row_weights",
]

SHIFTS = 'None, "mean", "rows", "both", a vector, Covariates, GroupMeans, a LowRank or an Operator'
NAMES = get_args(ShiftName)


@runtime_checkable
class Shift(Protocol):
    """A rule for what to subtract, which is known once there is a matrix."""

    def resolve(self, A: Operator, moments: Moments, weights: Vector | None) -> LowRank:
        """The shift of A, whose columns have these moments; `weights` has one entry a row."""


class Learned(Protocol):
    """A shift of some rows, with what it takes to shift others in the same way."""

    needs: ClassVar[str | None]  # what has to be known of every row

    def of(self, A: Operator, data: Any) -> LowRank | None:
        """The shift of the rows of A."""

    def points(self, m: int, data: Any) -> Panel:
        """What is added back to m rows."""


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
        return LowRank(A.row_moments().mean, np.ones(n)).merge(S) if self.rows else S

    def points(self, m: int, data: Any = None) -> Panel:
        """The vector; the own means of rows are not known."""
        return self.mean[None]


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


def resolve_shift(shift: Any, A: Operator, moments: Moments | None, weights: Vector | None = None) -> Operator | None:
    """The shift as an operator of the shape of A; None if there is none."""
    if shift is None:
        return None
    check_shift(shift, A.shape[1])
    if isinstance(shift, str):
        assert moments is not None
        return plain(shift, moments).of(A)
    if not isinstance(shift, Operator):
        if not isinstance(shift, Shift):
            return repeated(finite_vector("shift", shift, A.shape[1], "feature"), A.shape[0])
        assert moments is not None
        shift = shift.resolve(A, moments, weights)
        if not isinstance(shift, Operator):
            raise TypeError(f"resolve of a shift must return a LowRank, got {type(shift).__name__}")
    if shift.shape != A.shape:
        raise ValueError(f"the shift has shape {shift.shape}, the matrix {A.shape}: they must be equal")
    return shift


def needs_moments(shift: Any, scale: Any) -> bool:
    """Whether the moments of the columns are needed to know shift and scale."""
    named = isinstance(shift, str) or (isinstance(shift, Shift) and not isinstance(shift, Operator))
    return named or isinstance(scale, str) or scale is True
