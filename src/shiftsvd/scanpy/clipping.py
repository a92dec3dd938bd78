"""Standardize and clip entries as ``scanpy.pp.scale(max_value=...)`` does, as sparse minus a matrix of rank 1."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np

from shiftsvd import Operator
from shiftsvd.extend.fits import deviations
from shiftsvd.extend.operators import Panel, Terms, Vector, generic
from shiftsvd.extend.running import Refused, Setting, refuse
from shiftsvd.transforms import Fitted, Transform

_SHARES: Final = 2  # fitted values of all columns: shares of clipped entries, among the nonzero ones and among all


@dataclass(frozen=True, eq=False)
class ClippedScale(Transform):
    """``clip((x - mean) / std, -max_value, max_value)`` by columns; without centring ``min(x / std, max_value)``.

    A zero has one value in a column, also where it is clipped, so transformed zeros have rank 1, and the clipped
    entries are a part of the stored ones.
    """

    learns: ClassVar[tuple[int, int]] = (2, _SHARES)
    max_value: float = 10.0
    zero_center: bool = True
    ddof: int = 1

    def __post_init__(self) -> None:
        number = self.max_value
        if isinstance(number, bool) or not isinstance(number, int | float | np.number) or not 0 < number < np.inf:
            raise refuse("max_value", "be a finite number above 0", number)
        object.__setattr__(self, "max_value", float(number))

    @property
    def keeps_zeros(self) -> bool:  # type: ignore[override]
        return not self.zero_center

    @property
    def least(self) -> float:
        return -self.max_value if self.zero_center else -np.inf

    def learn_rows(self, A: Operator, weights: Vector, tol: float) -> tuple[Fitted, Panel]:
        moments, none = A.moments(weights), np.zeros((A.shape[0], 0))
        columns = np.stack([moments.mean, deviations(moments, self.ddof, A.shape[0])], axis=1)
        _, sums = generic.entry_sums(A, Terms(partial(_clipped, self), none, columns))
        (cut, nonzero), zeros = sums.T, np.zeros(len(columns))
        cut_zeros = (A.shape[0] - nonzero)[_is_clipped(self, zeros, columns.T)].sum()
        shares = np.array([cut.sum() / max(1.0, nonzero.sum()), (cut.sum() + cut_zeros) / (A.shape[0] * A.shape[1])])
        right = _value(self, zeros, columns.T)[:, None] if self.zero_center else None
        return Fitted(self, columns, shares, right), none

    def entry(self, x: Vector, r: Any, c: Any, known: Vector, table: Panel | None) -> Vector:
        zero = _value(self, np.zeros(len(x)), c)
        cut = _is_clipped(self, x, c) | (np.abs(zero) == self.max_value)
        change = x / c[1]  # no difference, and so no cancellation, if nothing is clipped
        return np.asarray(np.where(cut, _value(self, x, c) - zero, change) if cut.any() else change)


def _scaled(how: ClippedScale, x: Vector, c: Any) -> Vector:
    return np.asarray((x - c[0]) / c[1] if how.zero_center else x / c[1])


def _value(how: ClippedScale, x: Vector, c: Any) -> Vector:
    return np.clip(_scaled(how, x, c), how.least, how.max_value)


def _is_clipped(how: ClippedScale, x: Vector, c: Any) -> Vector:
    z = _scaled(how, x, c)
    return np.asarray((z > how.max_value) | (z < how.least))


def _clipped(how: ClippedScale, x: Vector, r: Any, c: Any) -> tuple[tuple[Vector, ...], tuple[Vector, ...]]:
    nonzero = x != 0
    return (), ((_is_clipped(how, x, c) & nonzero).astype(np.float64), nonzero.astype(np.float64))


def with_clip(
    how: tuple[Transform, ...], max_value: Any, *, scaled: bool, regressed: bool, zero_center: bool, ddof: int = 1
) -> tuple[Transform, ...]:
    """Append the clip to the steps of a fit, or raise an error if it does not fit them."""
    clip, setting = ClippedScale(max_value, zero_center, ddof), Setting("max_value")
    if not scaled:
        raise Refused(setting, " clips scaled values. Add ", Setting("scale", True), ".")
    if regressed:
        rule = " cannot follow a regression, whose residuals are not sparse. Remove it, or "
        raise Refused(setting, rule, Setting("covariates"), " and ", Setting("groups"), ".")
    if others := [str(each) for each in how if not each.keeps_zeros]:
        raise Refused(setting, f" requires that zeros stay 0, but {others[0]} changes them. Remove one.")
    return (*how, clip)


def clipped_shares(fitted: Sequence[Fitted]) -> dict[str, float]:
    """Return the limit of the clip, if any, and the shares of nonzero entries and of all entries that it changed."""
    clips = [(each.how.max_value, *each.known) for each in fitted if isinstance(each.how, ClippedScale)]
    names = "max_value", "clipped_share_of_nonzeros", "clipped_share"
    return {name: float(value) for values in clips for name, value in zip(names, values, strict=True)}
