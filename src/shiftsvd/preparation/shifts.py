"""Shifts: named, given or fitted on training rows, and the same shifts of new rows."""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, get_args, runtime_checkable

import numpy as np

from shiftsvd.algebra.generic import row_moments
from shiftsvd.algebra.operator import check_same_shape
from shiftsvd.errors import refuse
from shiftsvd.names import ScaleLike, ShiftName, VectorLike
from shiftsvd.operators import LowRank, Moments, Operator, Panel, Vector, repeated
from shiftsvd.preparation.scales import finite_vector, is_named

SHIFTS = 'None, "mean", "rows", "both", a vector, Covariates, GroupMeans, a LowRank or an Operator'
NAMES = get_args(ShiftName)


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
        """Return the shift of A alone; see `learn`.

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
        LowRank of shape (m, n)
            The matrix that is subtracted from A.
        """
        return self.learn(A, moments, weights)[0]

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
        raise ValueError(
            "a shift given as a matrix cannot be applied to other columns, or to another order of columns. Pass the "
            "columns of the fit."
        )

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
