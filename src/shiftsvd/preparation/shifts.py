"""Shifts and scales: named, given or fitted on training rows, and the same of new rows."""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, get_args, runtime_checkable

import numpy as np

from shiftsvd.algebra.generic import as_low_rank, exponents, row_moments
from shiftsvd.algebra.operator import check_same_shape
from shiftsvd.algebra.scaled import times_powers
from shiftsvd.errors import Refused, Setting, few, plural, refuse
from shiftsvd.names import ScaleLike, ShiftName, VectorLike
from shiftsvd.numerics.panels import unmasked
from shiftsvd.numerics.powers import LEAST_SQUARES, MOST_SQUARES, ZERO_EXPONENT
from shiftsvd.operators import LowRank, Moments, Operator, Panel, Vector, repeated
from shiftsvd.runs.messages import column_names, warn

SHIFTS = 'None, "mean", "rows", "both", a vector, Covariates, GroupMeans, a LowRank or an Operator'
NAMES = get_args(ShiftName)
SMALLEST = float(np.finfo(np.float64).smallest_normal)


@runtime_checkable
class Shift(Protocol):
    """Protocol of shifts: any class with a method `resolve` that returns the matrix to subtract.

    See Also
    --------
    GroupMeans : A shift that is fitted on training rows.
    shifts.Learned : A fitted shift.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> class FirstRow:  # subtracts the first row from all
    ...     def resolve(self, A, moments, weights):
    ...         first = np.eye(A.shape[0])[:, :1]
    ...         return ss.LowRank(np.ones(A.shape[0]), A.rmatmat(first))
    >>> isinstance(FirstRow(), ss.shifts.Shift)
    True
    >>> ss.svd(np.array([[1.0, 2.0], [4.0, 6.0]]), 1, shift=FirstRow()).S
    array([5.])
    """

    def resolve(self, A: Operator, moments: Moments, weights: Vector | None) -> LowRank:
        """Return the matrix to subtract from A; called once per fit.

        Parameters
        ----------
        A : Operator of shape (m, n)
            The matrix that is shifted.
        moments : Moments
            The moments of its columns, with the same weights.
        weights : array of shape (m,), or None
            How much each row counts; None is 1 for all.

        Returns
        -------
        LowRank of shape (m, n)
            The matrix that is subtracted from A.
        """


ShiftLike = str | VectorLike | Shift | Operator | None


class Learned(Protocol):
    """Shift that was fitted on training rows and applies to new rows.

    Attributes
    ----------
    needs : str or None
        The argument of `fit` that holds the data of every row that the shift depends on, such as "groups".

    See Also
    --------
    shifts.Shift : The protocol of shifts before they are fitted.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> A = ss.as_operator(np.array([[1.0], [3.0], [10.0]]))
    >>> shift, learned = ss.GroupMeans(["a", "a", "b"]).learn(A, A.moments())
    >>> learned.needs, learned.of(A, ["b", "b", "a"]).matmat(np.ones((1, 1))).ravel().tolist()
    ('groups', [10.0, 10.0, 2.0])
    """

    needs: ClassVar[str | None]

    def of(self, A: Operator, data: Any = None) -> Operator | None:
        """Return the shift of the rows of A, or None for a shift of 0.

        Parameters
        ----------
        A : Operator of shape (m, n)
            The rows.
        data : array of shape (m,) or (m, p), optional
            The data of each row that `needs` names, such as its group.

        Returns
        -------
        Operator of shape (m, n), or None
            The matrix to subtract from A.
        """

    def points(self, m: int, data: Any = None) -> Panel:
        """Return the shift of m rows as an array, which `inverse_transform` adds back.

        Parameters
        ----------
        m : int
            Number of rows.
        data : array of shape (m,) or (m, p), optional
            The data of each row that `needs` names, such as its group.

        Returns
        -------
        array of shape (m, n), or (1, n) for a shift that all rows share
            The shift as a dense array.
        """

    def at(self, places: Any) -> "Learned":
        """Return the shift for a selection of the columns, or another order of the columns.

        Parameters
        ----------
        places : array of int or bool, or slice
            Columns to keep, in the new order.

        Returns
        -------
        Learned
            The shift of these columns.
        """


class Learning:
    """Base class of shifts that are fitted on training rows and apply to new rows."""

    def resolve(self, A: Operator, moments: Moments, weights: Vector | None = None) -> LowRank:
        return self.learn(A, moments, weights)[0]

    resolve.__doc__ = Shift.resolve.__doc__

    def learn(self, A: Operator, moments: Moments, weights: Vector | None = None) -> tuple[LowRank, Learned]:
        """Fit the shift on the rows of A.

        Parameters
        ----------
        A : Operator of shape (m, n)
            The matrix that the shift is learned from.
        moments : Moments
            The moments of its columns, with the same weights.
        weights : array of shape (m,), optional
            How much each row counts; None is 1 for all.

        Returns
        -------
        (LowRank of shape (m, n), Learned)
            The matrix that is subtracted from A, and the shift for new rows.
        """
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class MeanShift(Learned):
    """Shift ``1 mean^T``, and with `rows` also the mean of each row."""

    needs: ClassVar[str | None] = None
    mean: Vector
    rows: bool = False

    def of(self, A: Operator, data: Any = None) -> LowRank | None:
        m, n = A.shape
        S = repeated(self.mean, m) if np.any(self.mean) else None
        return LowRank(row_moments(A).mean, np.ones(n)).merge(S) if self.rows else S

    def points(self, m: int, data: Any = None) -> Panel:
        return self.mean[None]

    def at(self, places: Any) -> "MeanShift":
        return MeanShift(self.mean[places], self.rows)


@dataclass(frozen=True, eq=False)
class MatrixShift(Learned):
    """Shift that is a given matrix, for the rows of that matrix only."""

    needs: ClassVar[str | None] = None
    S: Operator

    def of(self, A: Operator, data: Any = None) -> Operator:
        if not isinstance(self.S, Operator):
            raise TypeError(f"the method resolve of a shift must return a LowRank, got {type(self.S).__name__}")
        check_same_shape(A, self.S)
        return self.S

    def at(self, places: Any) -> "MatrixShift":
        others = "cannot be applied to other columns, or to another order of columns. Pass the columns of the fit."
        raise ValueError(f"a shift given as a matrix {others}")

    def points(self, m: int, data: Any = None) -> Panel:
        return self.S.matmat(np.eye(self.S.shape[1]))


def mean_shift(name: str, moments: Moments) -> MeanShift:
    if name == "rows":
        return MeanShift(np.zeros_like(moments.mean), rows=True)
    # X - 1 mu^T - rho 1^T + g 1 1^T with g the mean of all entries: subtract g from mu here; rho is not changed.
    return MeanShift(moments.mean - moments.mean.mean(), rows=True) if name == "both" else MeanShift(moments.mean)


def of_each_row(shift: ShiftLike) -> bool:
    return isinstance(shift, str) and shift in ("rows", "both")


def check_shift(shift: ShiftLike, n: int) -> None:
    if isinstance(shift, str):
        if shift not in NAMES:
            raise refuse("shift", f"be {SHIFTS}", shift)
    elif not (shift is None or isinstance(shift, Operator | Shift)):
        finite_vector("shift", shift, n, "feature")


def learn_shift(
    shift: ShiftLike, A: Operator, moments: Moments | None, weights: Vector | None = None
) -> tuple[Operator | None, Learned]:
    n = A.shape[1]
    check_shift(shift, n)
    learned: Learned
    if isinstance(shift, Operator):
        learned = MatrixShift(shift)
    elif not isinstance(shift, str | Shift):
        learned = MeanShift(np.zeros(n) if shift is None else finite_vector("shift", shift, n, "feature"))
    else:
        assert moments is not None
        if isinstance(shift, Learning):
            return shift.learn(A, moments, weights)
        learned = (
            mean_shift(shift, moments) if isinstance(shift, str) else MatrixShift(shift.resolve(A, moments, weights))
        )
    return learned.of(A), learned


def needs_moments(shift: ShiftLike, scale: ScaleLike) -> bool:
    named = isinstance(shift, str) or (isinstance(shift, Shift) and not isinstance(shift, Operator))
    return named or is_named(scale)


# --- scales, the moments that scales are computed from, and validation of vectors ---


def finite_vector(name: str, values: Any, size: int, per: str) -> Vector:
    vector = np.asarray(unmasked(name, values))
    if vector.dtype.kind not in "fciub" or vector.shape != (size,):
        shape = f"shape ({size},), got {vector.dtype} {vector.shape}"
        raise Refused(Setting(name), f" must be a numeric vector with one entry per {per}, {shape}")
    return finite(name, vector)


def finite(name: str, values: Panel) -> Panel:
    values = values.astype(np.result_type(values, np.float64))  # a copy, which the caller cannot change
    if bad := int((~np.isfinite(values)).sum()):
        counted = plural(bad, "NaN or infinite value")
        raise Refused(Setting(name), f" must be finite, got {counted}. Replace these values.")
    return values


def row_weights(sample_weight: Any, m: int, of_a_batch: bool = False) -> Vector | None:
    if sample_weight is None:
        return None
    name = "sample_weight"
    weights = np.asarray(unmasked(name, sample_weight))
    weights = np.full(m, float(weights)) if weights.ndim == 0 else weights
    weights = finite_vector(name, weights, m, "sample")
    if np.iscomplexobj(weights):
        raise Refused(Setting(name), " must be real, got complex numbers")
    if np.any(weights < 0):
        raise Refused(Setting(name), f" must not be negative, got {plural(int((weights < 0).sum()), 'negative value')}")
    if not (of_a_batch or weights.sum() > 1):
        rule = " must not be all zero, and must sum to more than 1, since weights count rows"
        raise Refused(Setting(name), f"{rule}, got a sum of {weights.sum():g}")
    return weights


SCALES = 'None, "std", "pareto" or a vector'
# Operators without `column_squares` are multiplied by unit vectors, COLUMNS at a time, to compute the squares of at
# most MOST_COLUMNS columns.
MOST_COLUMNS, COLUMNS = 1000, 64
ROUNDINGS = 8  # rounding units by which entries of a constant column may differ
LEAST_SIZE = 2.0**-300  # columns of smaller size, or larger than 1 / LEAST_SIZE, are rescaled before they are squared


def moments_after(A: Operator, S: Operator | None, moments: Moments, weights: Vector | None = None) -> Moments:
    low = None if S is None else as_low_rank(S)
    mu = low.row_vector() if low is not None else None
    if moments.M2 is not None and (S is None or mu is not None):
        return moments if mu is None else Moments(moments.count, moments.mean - mu, moments.M2)
    mean = moments.mean if S is None else moments.mean - S.moments(weights).mean
    B = A if S is None else A - S
    # The means are subtracted before entries are squared: a difference of squares would cancel.
    return Moments(moments.count, mean, _squares(B - repeated(mean, A.shape[0]), weights))


def moments_in_units(
    A: Operator, S: Operator | None, moments: Moments, weights: Vector | None = None
) -> tuple[Moments, Moments, Vector | int]:
    # Return the moments before and after the shift, of columns divided by 2^e, and e. The exponents e are 0 unless
    # squares of a column overflow or underflow; then A is read two or three times more.
    after = moments_after(A, S, moments, weights)
    if _in_range(moments) and _in_range(after):
        return moments, after, 0
    e = exponents(A, 0)
    if e is None:
        return moments, after, 0
    e = np.where(e == ZERO_EXPONENT, 0, e)
    B, T = times_powers(A, 0, -e), None if S is None else times_powers(S, 0, -e)
    found = B.moments(weights)
    # Missing entries are replaced by means: they do not count, and add nothing to the squares.
    before = Moments(moments.count, found.mean, found.M2)
    return before, moments_after(B, T, before, weights), e


def squares_in_units(after: Moments, scale: Vector | None, e: Vector | int, B: Operator) -> tuple[float, int]:
    # Return (sum of squares of all shifted, scaled entries over 4^unit, unit), where unit is 0 unless squares overflow
    # or underflow. Compute the sum from the moments of columns over 2^e; if these overflow, read the prepared matrix B.
    assert after.M2 is not None
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        squares = after.M2 + after.count * after.mean**2
        total = float((squares if scale is None else squares / scale**2).sum())
    if not np.any(e) and LEAST_SQUARES < total < MOST_SQUARES:
        return total, 0
    norm = B.frobenius_norm()
    if norm is None:
        return total, 0
    unit = int(np.frexp(norm)[1])
    return float(np.ldexp(norm, -unit)) ** 2, unit


def _in_range(moments: Moments) -> bool:
    squares = np.zeros(1) if moments.M2 is None else moments.M2
    size = np.maximum(np.abs(moments.mean), np.sqrt(squares))
    seen = (size > LEAST_SIZE) | (size == 0)
    return bool(np.all(seen & (size < 1 / LEAST_SIZE)))


def _squares(A: Operator, weights: Vector | None) -> Vector | None:
    squares, n = A.column_squares(weights), A.shape[1]
    if squares is not None or n > MOST_COLUMNS:
        return squares
    w = np.ones(A.shape[0]) if weights is None else weights
    blocks = (A.matmat(np.eye(n)[:, lo : lo + COLUMNS]) for lo in range(0, n, COLUMNS))
    return np.concatenate([w @ np.abs(block) ** 2 for block in blocks])


def is_named(scale: ScaleLike) -> bool:
    return scale is True or isinstance(scale, str)


def resolve_scale(
    scale: ScaleLike,
    n: int,
    after: Moments | None,
    before: Moments | None = None,
    ddof: int = 0,
    exponents: Vector | int = 0,
    rows: int = 1,
) -> Vector | None:
    if isinstance(ddof, bool) or ddof not in (0, 1):
        raise refuse("scale_ddof", "be 0 or 1", ddof)
    if scale is None or scale is False:
        return None
    if is_named(scale):
        if scale not in (True, "std", "pareto") or after is None:
            raise refuse("scale", f"be {SCALES}", scale)
        deviation = deviations(after, ddof, rows, before, exponents)
        return np.sqrt(deviation) if scale == "pareto" else _divisors(deviation)
    divisor = finite_vector("scale", scale, n, "feature")
    if np.iscomplexobj(divisor) or np.any(divisor <= 0):
        bad = int(np.sum(~(divisor.real > 0)))
        counted = f"{bad:,} {'entry' if bad == 1 else 'entries'}"
        raise Refused(Setting("scale"), f" must be positive, got {counted} of 0 or less")
    return _divisors(divisor)


def _divisors(scale: Vector) -> Vector:
    if len(small := np.flatnonzero(scale < SMALLEST)):
        least = f" must be at least {SMALLEST:.1e} for each column, so that its reciprocal is a number, got "
        found = f"{scale[small[0]]:.3g} for column {small[0]} (counted from 0). "
        remedy = "Multiply X and a given scale by a power of two, such as 2.0**100."
        raise Refused(Setting("scale"), least, found, remedy)
    return scale


def _constant(places: Vector, n: int) -> str:
    names = column_names()
    if names is not None and len(names) == n:
        which, counted = few([repr(str(names[j])) for j in places]), ""
    else:
        which, counted = few(places), " (counted from 0)"
    if len(places) == 1:
        return f"Column {which}{counted} is constant and was not scaled."
    return f"{len(places):,} columns are constant and were not scaled: {which}{counted}."


def deviations(
    after: Moments, ddof: int, rows: int, before: Moments | None = None, exponents: Vector | int = 0
) -> Vector:
    """Return the standard deviations of the columns, 1 for constant columns, with a warning about these."""
    before = after if before is None else before
    variance = after.variance(ddof)
    # Entries of a constant column differ from its mean by a few rounding units; after a shift of a rank above 1 by as
    # many as there are rows, as in scikit-learn. Sums of weights are no measure of that: they may be 1e12.
    roundings = ROUNDINGS if after.M2 is before.M2 else max(rows, ROUNDINGS)
    size = np.abs(before.mean) ** 2 + (0 if before.M2 is None else before.variance(0))
    rounding = roundings * np.finfo(np.float64).eps
    constant = (variance == 0) | (after.variance(0) <= rounding**2 * size)
    if constant.any():
        warn(_constant(np.flatnonzero(constant), len(constant)))
    return np.where(constant, 1.0, np.ldexp(np.sqrt(np.where(constant, 1.0, variance)), exponents))
