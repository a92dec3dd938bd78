"""Preparation: what is done to data before they are decomposed, as one value, and what does the same to other rows."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shiftsvd.names import TOL
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.operators import Operator, Panel, Scaled
from shiftsvd.preparation.scales import check_scale, is_named, moments_in_units, resolve_scale, squares_in_units
from shiftsvd.preparation.shifts import Learned, check_shift, learn_shift, needs_moments
from shiftsvd.solvers.base import Off
from shiftsvd.transforms.base import Fitted, Transform, units
from shiftsvd.transforms.chains import Own as Changed
from shiftsvd.transforms.chains import apply_all, learn_all, width

# What an entry loses by rounding to single precision.
ROUNDED = 2.0**-24


@dataclass(frozen=True, eq=False)
class Preparation:
    """``diag(sqrt(weights)) (A - shift) diag(1 / scale)``, as it is asked for: nothing is known of A yet.

    Attributes
    ----------
    shift, scale : as in `shiftsvd.svd`
    weights : array of shape (m,), or None
        Frequencies of the rows that it is learned from.
    ddof : 0 or 1
        Deviations are roots of sums of squares over ``m - ddof``, m being the number of rows.
    entries : tuple of transformations
        What is done to the entries before the shift, in this order.
    tol : float
        Relative accuracy of singular values that transformations are to allow.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> from shiftsvd.preparation.prepare import Preparation
    >>> A = ss.as_operator(np.array([[1.0, 2.0], [3.0, 6.0], [5.0, 10.0]]))
    >>> prepared = Preparation("mean", "std").learn(A)
    >>> prepared.points(1), prepared.scale.round(3)
    (array([[3., 6.]]), array([1.633, 3.266]))
    >>> prepared.of(ss.as_operator(np.array([[3.0, 6.0]]))) @ np.eye(2)
    array([[0., 0.]])
    """

    shift: Any = None
    scale: Any = None
    weights: Vector | None = None
    ddof: int = 0
    entries: tuple[Transform, ...] = ()
    tol: float = TOL

    def check(self, n: int) -> None:
        n = width(self.entries, n)
        check_shift(self.shift, n)
        check_scale(self.scale, n, self.ddof)

    def learn(self, A: Operator, moments: Moments | None = None) -> "Prepared":
        weights = self.weights
        changed = learn_all(self.entries, A, weights, self.tol)
        B = changed.B
        if moments is None and needs_moments(self.shift, self.scale):
            moments = B.moments(weights)
        S, shift = learn_shift(self.shift, B, moments, weights)
        own = Own(A, B, S, weights, moments, changed, is_named(self.scale))
        before, after, e = own.in_units if is_named(self.scale) else (None, None, 0)
        scale = resolve_scale(self.scale, B.shape[1], after, before, self.ddof, e, B.shape[0])
        return Prepared(shift, scale, changed.fitted, own)


@dataclass(frozen=True, eq=False)
class Own:
    """The rows that a preparation was learned from, and what is known of them."""

    A: Operator
    B: Operator  # A with its entries changed
    S: Operator | None
    weights: Vector | None
    moments: Moments | None  # of B
    changed: Changed
    scaled_by_itself: bool = False  # whether the scale errs by as much as they do

    @cached_property
    def known_moments(self) -> Moments:
        return self.B.moments(self.weights) if self.moments is None else self.moments

    @cached_property
    def errors(self) -> Vector | float:
        errors, rounded = self.changed.errors, self.changed.rounded
        if rounded is None:
            return errors
        squares = rounded.column_squares(self.weights)
        assert squares is not None  # all kinds whose entries can be changed know them
        return np.asarray(errors + ROUNDED * np.sqrt(squares))

    @cached_property
    def in_units(self) -> tuple[Moments, Moments, Vector | int]:
        return moments_in_units(self.B, self.S, self.known_moments, self.weights)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A shift and a scale that are known, for any rows; `own` where they were learned.

    Attributes
    ----------
    shift : Learned
    scale : array of shape (n,), or None
    entries : tuple of what transformations have learned
    own : Own, or None
    """

    shift: Learned
    scale: Vector | None = None
    entries: tuple[Fitted, ...] = ()
    own: Own | None = None

    def of(self, A: Operator, data: Any = None) -> Operator:
        """``(A - shift) diag(1 / scale)`` of any rows, with what the shift has to know of them.

        The rows that it was learned from have the shift that was found, so that it is not made twice, and their
        weights: ``diag(sqrt(weights)) (A - shift) diag(1 / scale)``.
        """
        if self.own is not None and self.own.A is A:
            return self.of_own
        B = apply_all(self.entries, A)
        return self._scaled(B, self.shift.of(B, data))

    @cached_property
    def of_own(self) -> Operator:
        assert self.own is not None
        rows = None if self.own.weights is None else np.sqrt(self.own.weights)
        return self._scaled(self.own.B, self.own.S, rows)

    def _scaled(self, B: Operator, S: Operator | None, rows: Vector | None = None) -> Operator:
        B = B if S is None else B - S
        cols = None if self.scale is None else 1 / self.scale
        return B if rows is None and cols is None else Scaled(B, rows, cols)

    def points(self, m: int, data: Any = None) -> Panel:
        return self.shift.points(m, data)

    @cached_property
    def total_squares(self) -> tuple[float, int]:
        """(sum of the squared, weighted entries of its own rows over ``4^unit``, unit), without cancellation.

        unit is 0 while squares are numbers. No read where the shift is one vector; else one.
        """
        assert self.own is not None
        _, after, e = self.own.in_units
        if after.M2 is None:
            raise ValueError(f"the variances of the columns are needed, which {self.own.A} cannot give; use svd")
        return squares_in_units(after, self.scale, e, self.of_own)

    @property
    def total_variance(self) -> tuple[float, int]:
        squares, unit = self.total_squares
        return squares / (self.count - 1), unit

    @property
    def column_means(self) -> Vector:
        assert self.own is not None
        return self.own.known_moments.mean

    @property
    def off(self) -> Off | None:
        assert self.own is not None
        if not self.entries:
            return None
        by_itself = (1 + self.own.scaled_by_itself) / (1.0 if self.scale is None else self.scale)
        error, rounding = (
            float(np.linalg.norm(each * by_itself)) for each in (self.own.errors, self.own.changed.rounding)
        )
        return Off(error, rounding, units(*self.own.A.shape) * (1 + self.own.scaled_by_itself))

    @property
    def count(self) -> float:
        assert self.own is not None
        return float(self.own.A.shape[0]) if self.own.weights is None else float(self.own.weights.sum())
