"""Preparation of a matrix by transformations, shift, scale and weights, and the same preparation of new rows."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shiftsvd.names import TOL, ScaleLike
from shiftsvd.operators import Moments, Operator, Panel, Scaled, Vector
from shiftsvd.preparation.scales import check_scale, is_named, moments_in_units, resolve_scale, squares_in_units
from shiftsvd.preparation.shifts import Learned, ShiftLike, check_shift, learn_shift, needs_moments
from shiftsvd.solvers.base import Perturbation
from shiftsvd.transforms.base import Fitted, Transform, units
from shiftsvd.transforms.chains import Transformed, apply_all, learn_all, width

ROUNDED = 2.0**-24  # relative error of rounding to single precision


@dataclass(frozen=True, eq=False)
class Preparation:
    """Settings of ``diag(sqrt(weights)) (A - shift) diag(1 / scale)``, not yet fitted on A."""

    shift: ShiftLike = None
    scale: ScaleLike = None
    weights: Vector | None = None  # frequencies of the training rows
    ddof: int = 0  # standard deviations divide by m - ddof
    entries: tuple[Transform, ...] = ()  # transformations of entries, before the shift, in this order
    tol: float = TOL  # relative accuracy of singular values; bounds the error of approximated transformations

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
        own = Training(A, B, S, weights, moments, changed, is_named(self.scale))
        before, after, e = own.in_units if is_named(self.scale) else (None, None, 0)
        scale = resolve_scale(self.scale, B.shape[1], after, before, self.ddof, e, B.shape[0])
        return Prepared(shift, scale, changed.fitted, own)


@dataclass(frozen=True, eq=False)
class Training:
    """Training rows of a preparation, and their statistics."""

    A: Operator
    B: Operator  # A with its entries transformed
    S: Operator | None
    weights: Vector | None
    moments: Moments | None  # of B
    changed: Transformed
    scaled_by_itself: bool = False  # the scale is computed from these rows, so their errors change the scale, too

    @cached_property
    def known_moments(self) -> Moments:
        return self.B.moments(self.weights) if self.moments is None else self.moments

    @cached_property
    def errors(self) -> Vector | float:
        errors, rounded = self.changed.errors, self.changed.rounded
        if rounded is None:
            return errors
        squares = rounded.column_squares(self.weights)
        assert squares is not None  # every kind of matrix whose entries can be changed computes them
        return np.asarray(errors + ROUNDED * np.sqrt(squares))

    @cached_property
    def in_units(self) -> tuple[Moments, Moments, Vector | int]:
        return moments_in_units(self.B, self.S, self.known_moments, self.weights)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Fitted preparation, which applies to any rows; `own` holds the training rows."""

    shift: Learned
    scale: Vector | None = None
    entries: tuple[Fitted, ...] = ()
    own: Training | None = None

    def of(self, A: Operator, data: Any = None) -> Operator:
        """Return ``(A - shift) diag(1 / scale)``, or `of_own`, which includes the weights, for the training rows."""
        if self.own is not None and self.own.A is A:
            return self.of_own
        B = apply_all(self.entries, A)
        return self._scaled(B, self.shift.of(B, data))

    @property
    def training(self) -> Training:
        assert self.own is not None
        return self.own

    @cached_property
    def of_own(self) -> Operator:
        own = self.training
        return self._scaled(own.B, own.S, None if own.weights is None else np.sqrt(own.weights))

    def _scaled(self, B: Operator, S: Operator | None, rows: Vector | None = None) -> Operator:
        B = B if S is None else B - S
        cols = None if self.scale is None else 1 / self.scale
        return B if rows is None and cols is None else Scaled(B, rows, cols)

    def points(self, m: int, data: Any = None) -> Panel:
        return self.shift.points(m, data)

    @cached_property
    def total_squares(self) -> tuple[float, int]:
        # Return (sum of squares of the weighted training rows over 4^unit, unit), without cancellation. The unit is 0
        # unless squares overflow or underflow. No pass if the shift is the same vector for all rows, else one pass.
        _, after, e = self.training.in_units
        if after.M2 is None:
            without = f"{self.training.A} does not provide them"
            raise ValueError(f"column variances need squares of the entries, and {without}. Use shiftsvd.svd.")
        return squares_in_units(after, self.scale, e, self.of_own)

    @property
    def total_variance(self) -> tuple[float, int]:
        squares, unit = self.total_squares
        return squares / (self.count - 1), unit

    @property
    def column_means(self) -> Vector:
        return self.training.known_moments.mean

    @property
    def perturbation(self) -> Perturbation | None:
        own = self.training
        if not self.entries:
            return None
        by_itself = (1 + own.scaled_by_itself) / (1.0 if self.scale is None else self.scale)
        error, rounding = (float(np.linalg.norm(each * by_itself)) for each in (own.errors, own.changed.rounding))
        return Perturbation(error, rounding, units(*own.A.shape) * (1 + own.scaled_by_itself))

    @property
    def count(self) -> float:
        own = self.training
        return float(own.A.shape[0]) if own.weights is None else float(own.weights.sum())
