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

import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from scipy.linalg import qr, solve_triangular

from shiftsvd.backends.memory import limit_of
from shiftsvd.moments import Moments, Vector
from shiftsvd.operators import LowRank, Operator, Panel

SHIFTS = 'None, "mean", "rows", "both", a vector, Covariates, GroupMeans, a LowRank or an Operator'
SCALES = 'None, "std", "pareto" or a vector'
NAMES = ("mean", "rows", "both")
# Of operators that only multiply, the squares of so many columns are worth their products, so many at a time.
MOST_COLUMNS, COLUMNS = 1000, 64


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
        S = _constant(self.mean, m) if np.any(self.mean) else None
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


@dataclass(frozen=True)
class GroupMeans:
    """The mean of the group that a row belongs to: what batches, sites or subjects have in common.

    Parameters
    ----------
    labels : array of shape (m,), optional
        The group of each row: numbers or texts. Left out in `PCA`, which takes them as ``fit(X, groups=labels)``.

    Notes
    -----
    ``X - L R^H``, where L says which row is in which group and R holds the means, weighted where there are weights.
    One read more than the column means take. The means are as many numbers as groups times columns.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.array([[1.0, 2.0], [3.0, 6.0], [100.0, 0.0], [102.0, 4.0]])
    >>> ss.svd(X, 1, shift=ss.GroupMeans(["a", "a", "b", "b"])).S
    array([4.47213595])
    """

    labels: Any = field(default=None, compare=False, repr=False)

    def resolve(self, A: Operator, moments: Moments, weights: Vector | None = None) -> LowRank:
        """The means of the groups, one for each row."""
        return self.learn(A, moments, weights)[0]

    def learn(self, A: Operator, moments: Moments, weights: Vector | None = None) -> "tuple[LowRank, LearnedGroups]":
        """The shift of A, and that of other rows of the same groups."""
        labels = _labels(self.labels, A.shape[0])
        w = np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64)
        known = {label for label, weight in zip(labels, w, strict=True) if weight > 0}
        groups = tuple(sorted(known, key=lambda label: (type(label).__name__, label)))
        L = _one_hot(labels, groups)
        # About the overall mean, or single precision data far off-centre would lose digits.
        off = A - _constant(moments.mean, A.shape[0])
        sums = off.rmatmat(L if weights is None else w[:, None] * L).conj().T
        learned = LearnedGroups(groups, moments.mean + sums / (w @ L)[:, None])
        return LowRank(L, learned.means.conj().T), learned


@dataclass(frozen=True, eq=False)
class LearnedGroups:
    """Groups and their means."""

    needs: ClassVar[str | None] = "groups"
    groups: tuple[Any, ...]
    means: Panel

    def of(self, A: Operator, data: Any) -> LowRank:
        """The means of the groups of the rows of A."""
        return LowRank(self._places(data, A.shape[0]), self.means.conj().T)

    def points(self, m: int, data: Any) -> Panel:
        """The mean of the group of each row."""
        return np.asarray(self._places(data, m) @ self.means)

    def _places(self, labels: Any, m: int) -> Panel:
        """One row for each label, which must be known."""
        labels = _labels(labels, m)
        if unseen := set(labels) - set(self.groups):
            few = ", ".join(sorted(map(repr, unseen))[:5])
            raise ValueError(
                f"groups holds {len(unseen)} labels that no training row has, whose mean is unknown: {few}; "
                "fit with rows of every group"
            )
        return _one_hot(labels, self.groups)


@dataclass(frozen=True)
class Covariates:
    """What a linear regression of every column on known covariates explains; the residuals are left.

    Parameters
    ----------
    values : array of shape (m, p) or (m,), optional
        The design matrix. Left out in `PCA`, which takes it as ``fit(X, covariates=values)``. Columns that depend on
        others are no error. Categories are one-hot encoded first.
    intercept : bool
        Also remove the column means.

    Notes
    -----
    ``(I - Q Q^H) X = X - Q (X^H Q)^H`` with an orthonormal basis Q of the design, from a QR with pivoting; with weights
    w, that of ``diag(sqrt(w))`` times the design, and the regression is the weighted one. One read more than the
    column means take.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> age = np.array([20.0, 30.0, 40.0, 50.0])
    >>> X = np.column_stack([2 * age + [1, -1, -1, 1], 1 - age])
    >>> ss.svd(X, 1, shift=ss.Covariates(age)).S
    array([2.])
    """

    values: Any = field(default=None, compare=False, repr=False)
    intercept: bool = True

    def resolve(self, A: Operator, moments: Moments, weights: Vector | None = None) -> LowRank:
        """What the design explains."""
        return self.learn(A, moments, weights)[0]

    def learn(
        self, A: Operator, moments: Moments, weights: Vector | None = None
    ) -> "tuple[LowRank, LearnedCovariates]":
        """The shift of A, and that of other rows by the same coefficients."""
        m, n = A.shape
        C = _design(self.values, m)
        w = np.ones(m) if weights is None else np.asarray(weights, np.float64)
        centre = w @ C / w.sum() if self.intercept else np.zeros(C.shape[1])
        mean = moments.mean if self.intercept else np.zeros(n)
        L, to_basis = _basis(C, centre, w)
        # About the column means in any case, or single precision data far off-centre would lose digits.
        R = (A - _constant(moments.mean, m)).rmatmat(w[:, None] * L) if L.shape[1] else np.zeros((n, 0))
        if not self.intercept:
            R = R + np.outer(moments.mean.conj(), w @ L)
        learned = LearnedCovariates(mean, centre, to_basis @ R.conj().T)
        return LowRank(L, R).merge(_constant(mean, m)), learned


@dataclass(frozen=True, eq=False)
class LearnedCovariates:
    """The coefficients of a regression: ``mean + (C - centre) coefficients``."""

    needs: ClassVar[str | None] = "covariates"
    mean: Vector
    centre: Vector
    coefficients: Panel

    def of(self, A: Operator, data: Any) -> LowRank:
        """What the covariates of the rows of A explain."""
        m = A.shape[0]
        return LowRank(self._off(data, m), self.coefficients.conj().T).merge(_constant(self.mean, m))

    def points(self, m: int, data: Any) -> Panel:
        """What the covariates explain, formed."""
        return np.asarray(self.mean + self._off(data, m) @ self.coefficients)

    def _off(self, values: Any, m: int) -> Panel:
        """The covariates about their centre."""
        C = _design(values, m)
        if C.shape[1] != len(self.centre):
            raise ValueError(f"covariates must have {len(self.centre)} columns, as in fit, got {C.shape[1]}")
        return C - self.centre


def resolve_shift(shift: Any, A: Operator, moments: Moments | None, weights: Vector | None = None) -> Operator | None:
    """The shift as an operator of the shape of A; None if there is none."""
    if shift is None:
        return None
    if isinstance(shift, str):
        if shift not in NAMES or moments is None:
            raise ValueError(f"shift must be {SHIFTS}, got {shift!r}")
        return plain(shift, moments).of(A)
    if not isinstance(shift, Operator):
        if not isinstance(shift, Shift):
            return _constant(finite_vector("shift", shift, A.shape[1], "feature"), A.shape[0])
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


def moments_after(A: Operator, S: Operator | None, moments: Moments, weights: Vector | None = None) -> Moments:
    """Moments of the columns of ``A - S``; one read, or none where S is the same for all rows."""
    low = None if S is None else S.as_low_rank()
    mu = low.row_vector() if low is not None else None
    if moments.M2 is not None and (S is None or mu is not None):
        return moments if mu is None else Moments(moments.count, moments.mean - mu, moments.M2)
    mean = moments.mean if S is None else moments.mean - S.moments(weights).mean
    B = A if S is None else A - S
    # The means go inside too: a difference of squares would cancel.
    return Moments(moments.count, mean, _squares(B - _constant(mean, A.shape[0]), weights))


def _squares(A: Operator, weights: Vector | None) -> Vector | None:
    """Squared column norms; of a few columns by products with the identity, where A knows no better."""
    squares, n = A.column_squares(weights), A.shape[1]
    if squares is not None or n > MOST_COLUMNS:
        return squares
    w = np.ones(A.shape[0]) if weights is None else weights
    blocks = (A.matmat(np.eye(n)[:, lo : lo + COLUMNS]) for lo in range(0, n, COLUMNS))
    return np.concatenate([w @ np.abs(block) ** 2 for block in blocks])


def resolve_scale(
    scale: Any, n: int, after: Moments | None, before: Moments | None = None, ddof: int = 0
) -> Vector | None:
    """What the n columns are divided by, from their moments after the shift and before it; None if nothing."""
    if isinstance(ddof, bool) or ddof not in (0, 1):
        raise ValueError(f"scale_ddof must be 0 or 1, got {ddof!r}")
    if scale is None or scale is False:
        return None
    if scale is True or isinstance(scale, str):
        if scale not in (True, "std", "pareto") or after is None:
            raise ValueError(f"scale must be {SCALES}, got {scale!r}")
        deviation = _deviations(after, before or after, ddof)
        return np.sqrt(deviation) if scale == "pareto" else deviation
    divisor = finite_vector("scale", scale, n, "feature")
    if np.iscomplexobj(divisor) or np.any(divisor <= 0):
        raise ValueError(f"scale must be positive, got {int(np.sum(~(divisor.real > 0)))} entries that are not")
    return divisor


def _deviations(after: Moments, before: Moments, ddof: int) -> Vector:
    """Standard deviations, 1 for columns without variance."""
    variance = after.variance(ddof)
    # What rounding leaves of a constant column, as scikit-learn judges it; of a shifted one, by what was shifted.
    rounding = after.count * np.finfo(np.float64).eps
    size = np.abs(before.mean) ** 2 + (0 if before.M2 is None else before.variance(0))
    constant = variance <= rounding * variance + rounding**2 * size
    if constant.any():
        warnings.warn(f"{int(constant.sum())} columns have no variance and are not scaled", stacklevel=4)
    return np.where(constant, 1.0, np.sqrt(np.where(constant, 1.0, variance)))


def finite_vector(name: str, values: Any, size: int, per: str) -> Vector:
    """A finite numeric vector of the given length, in double precision."""
    vector = np.asarray(values)
    if vector.dtype.kind not in "fciub" or vector.shape != (size,):
        raise ValueError(
            f"{name} must be a numeric vector with one entry per {per}, shape ({size},), "
            f"got {vector.dtype} {vector.shape}"
        )
    vector = vector.astype(np.result_type(vector, np.float64))  # a copy: what the caller does to his is his
    if not np.isfinite(vector).all():
        raise ValueError(f"{name} must be finite, got {int((~np.isfinite(vector)).sum())} NaN or infinite entries")
    return vector


def row_weights(sample_weight: Any, m: int) -> Vector | None:
    """Frequencies of the rows, checked."""
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight)
    weights = np.full(m, float(weights)) if weights.ndim == 0 else weights
    weights = finite_vector("sample_weight", weights, m, "sample")
    if np.iscomplexobj(weights):
        raise ValueError("sample_weight must be real, got complex numbers")
    if np.any(weights < 0):
        raise ValueError(f"sample_weight must not be negative, got {int((weights < 0).sum())} negative entries")
    if not weights.sum() > 1:
        raise ValueError(
            f"sample_weight counts rows: not all may be zero, and their sum must exceed 1, got {weights.sum():g}"
        )
    return weights


def _constant(mean: Vector, m: int) -> LowRank:
    """``1 mean^T`` with m rows."""
    return LowRank(np.ones(m), mean.conj())


def _labels(labels: Any, m: int) -> list[Any]:
    """One label for each of m rows, none of them missing."""
    if labels is None:
        raise ValueError("GroupMeans needs the group of every row: GroupMeans(labels), or fit(X, groups=labels) of PCA")
    array = np.asarray(labels)
    if array.shape != (m,):
        raise ValueError(f"groups must hold one label per row, shape ({m},), got shape {array.shape}")
    known: list[Any] = array.tolist()
    missing = sum(type(label).__name__ in ("NoneType", "NAType") or label != label for label in known)
    if missing:
        raise ValueError(f"groups must not hold missing labels, got {missing}; give them a label of their own")
    return known


def _one_hot(labels: list[Any], groups: tuple[Any, ...]) -> Panel:
    """1 where a row is in a group, shape (rows, groups)."""
    needed, limit = 3 * 8 * len(labels) * len(groups), limit_of(None)
    if limit is not None and needed > limit:
        raise ValueError(
            f"{len(groups)} groups of {len(labels)} rows need about {needed / 1e9:.3g} GB, more than the limit of "
            f"{limit / 1e9:.3g} GB; put rare groups together"
        )
    place = {group: j for j, group in enumerate(groups)}
    places = np.array([place.get(label, -1) for label in labels])
    known = np.flatnonzero(places >= 0)
    L = np.zeros((len(labels), len(groups)))
    L[known, places[known]] = 1
    return L


def _design(values: Any, m: int) -> Panel:
    """A finite design matrix of m rows in double precision."""
    if values is None:
        raise ValueError("Covariates needs a design matrix: Covariates(values), or fit(X, covariates=values) of PCA")
    C = np.asarray(values)
    C = C[:, None] if C.ndim == 1 else C
    if C.ndim != 2 or C.dtype.kind not in "fciub" or len(C) != m or not C.shape[1]:
        raise ValueError(
            f"covariates must be a numeric array of shape ({m}, p) or ({m},), got {C.dtype} {np.shape(values)}; "
            "one-hot encode categories"
        )
    C = C.astype(np.result_type(C, np.float64))
    if not np.isfinite(C).all():
        raise ValueError(f"covariates must be finite, got {int((~np.isfinite(C)).sum())} NaN or infinite entries")
    return C


def _basis(C: Panel, centre: Vector, w: Vector) -> tuple[Panel, Panel]:
    """L with ``L^H diag(w) L = I`` that spans ``D = C - 1 centre^T``, and T with ``L = D T``."""
    D, root = C - centre, np.sqrt(w)[:, None]
    eps = max(C.shape) * float(np.finfo(np.float64).eps)
    norms = np.linalg.norm(root * D, axis=0)
    # What rounding leaves of a constant column is no direction.
    there = norms > eps * np.linalg.norm(root * C, axis=0)
    unit = np.where(there, 1 / np.where(there, norms, 1), 0)
    Q, R, order = qr(root * D * unit, mode="economic", pivoting=True)
    diagonal = np.abs(np.diag(R))
    r = int(np.sum(diagonal > eps * diagonal[0]))
    T = np.zeros((C.shape[1], r), R.dtype)
    T[order[:r]] = solve_triangular(R[:r, :r], np.eye(r))
    T *= unit[:, None]
    # Q is orthonormal whatever the condition of D; only rows without weight are not in it.
    return np.where(root > 0, Q[:, :r] / np.where(root > 0, root, 1), D @ T), T
