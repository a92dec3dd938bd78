"""Preparation of a matrix by transformations, shift, scale and weights, and of new rows; `cross` of two matrices."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shiftsvd.algebra.generic import moments_and_gram
from shiftsvd.backends import as_operator
from shiftsvd.errors import Refused, Setting
from shiftsvd.names import TOL, ScaleLike, ScaleName, ShiftName, VectorLike
from shiftsvd.operators import Moments, Operator, Panel, Product, Scaled, Vector
from shiftsvd.preparation import shifts
from shiftsvd.solvers.base import Perturbation
from shiftsvd.solvers.constants import EPS
from shiftsvd.transforms.base import Fitted, Transform, units
from shiftsvd.transforms.chains import Transformed, apply_all, learn_all, width

ROUNDED = 2.0**-24  # relative error of rounding to single precision


@dataclass(frozen=True, eq=False)
class Preparation:
    """Settings of ``diag(sqrt(weights)) (A - shift) diag(1 / scale)``, not yet fitted on A."""

    shift: shifts.ShiftLike = None
    scale: ScaleLike = None
    weights: Vector | None = None  # frequencies of the training rows
    ddof: int = 0  # standard deviations divide by m - ddof
    entries: tuple[Transform, ...] = ()  # transformations of entries, before the shift, in this order
    tol: float = TOL  # relative accuracy of singular values; bounds the error of approximated transformations

    def check(self, n: int) -> None:
        n = width(self.entries, n)
        shifts.check_shift(self.shift, n)
        shifts.resolve_scale(self.scale, n, Moments(2.0, np.zeros(n), np.ones(n)), ddof=self.ddof)

    def learn(self, A: Operator, moments: Moments | None = None, V: Panel | None = None) -> "Prepared":
        # If V is given, multiply it by the Gram matrix of the prepared rows, where the read of the moments serves both.
        weights, product = self.weights, None
        changed = learn_all(self.entries, A, weights, self.tol)
        B = changed.B
        if moments is None and shifts.needs_moments(self.shift, self.scale):
            if V is None or self.scale is not None or self.shift != "mean":
                moments = B.moments(weights)
            else:
                moments, product = moments_and_gram(B, V, weights)
                product = None if product is None else _centred(product, moments, V)
        S, shift = shifts.learn_shift(self.shift, B, moments, weights)
        own = Training(A, B, S, weights, moments, changed, shifts.is_named(self.scale), product)
        before, after, e = own.in_units if shifts.is_named(self.scale) else (None, None, 0)
        scale = shifts.resolve_scale(self.scale, B.shape[1], after, before, self.ddof, e, B.shape[0])
        return Prepared(shift, scale, changed.fitted, own)


def _centred(product: Panel, moments: Moments, V: Panel) -> Panel | None:
    with np.errstate(over="ignore", invalid="ignore"):
        product = product - np.outer(moments.count * moments.mean, moments.mean.conj() @ V)
    return product if np.isfinite(product).all() and product.any() else None


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
    product: Panel | None = None  # of the Gram matrix and some vectors, if it was computed with the moments

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
        return shifts.moments_in_units(self.B, self.S, self.known_moments, self.weights)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Fitted preparation, which applies to any rows; `own` holds the training rows."""

    shift: shifts.Learned
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
        return shifts.squares_in_units(after, self.scale, e, self.of_own)

    @property
    def total_variance(self) -> tuple[float, int]:
        squares, unit = self.total_squares
        return squares / (self.count - 1), unit

    @property
    def column_means(self) -> Vector:
        return self.training.known_moments.mean

    @property
    def perturbation(self) -> Perturbation | None:
        own, of_scale = self.training, self._scale_rounding
        if not self.entries:
            return Perturbation(0.0, of_scale, 0.0) if of_scale else None
        by_itself = (1 + own.scaled_by_itself) / (1.0 if self.scale is None else self.scale)
        error, rounding = (float(np.linalg.norm(each * by_itself)) for each in (own.errors, own.changed.rounding))
        return Perturbation(error, rounding + of_scale, units(*own.A.shape) * (1 + own.scaled_by_itself))

    # Bound the norm of the error that a scale computed from rows after a shift that differs between them causes.
    # Entries and shift round at their own size, and so change the deviation of a column, by which the mean that the
    # shift left in the column is divided. Other shifts leave deviations as they are, or means of 0.
    @property
    def _scale_rounding(self) -> float:
        own, same = self.training, isinstance(self.shift, shifts.MeanShift) and not self.shift.rows
        if self.scale is None or not own.scaled_by_itself or same:
            return 0.0
        before, after, e = own.in_units
        if before.M2 is None or after.M2 is None:
            return 0.0
        size = sum(np.hypot(np.abs(each.mean), np.sqrt(each.variance(0))) for each in (before, after))
        left = np.abs(after.mean) > EPS * max(*own.A.shape, shifts.ROUNDINGS) * size
        means = np.where(left, np.ldexp(np.abs(after.mean), e) / self.scale, 0) * np.sqrt(after.count)
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(left, size / np.sqrt(after.variance(0)), 0)
        rounding = 4 * EPS * float(np.linalg.norm(means * relative))
        # Smaller errors are within the rounding of solvers.
        return rounding if rounding > shifts.ROUNDINGS * EPS * float(np.linalg.norm(means)) else 0.0

    @property
    def count(self) -> float:
        own = self.training
        return float(own.A.shape[0]) if own.weights is None else float(own.weights.sum())


# ---- cross: the operator X^H Y of two prepared matrices with the same rows


def cross(
    X: Any,
    Y: Any,
    *,
    shift: ShiftName | VectorLike | Any | None = None,
    scale: bool | ScaleName | VectorLike | Any | None = None,
    sample_weight: VectorLike | None = None,
    scale_ddof: int = 0,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
) -> Operator:
    """Return ``X^H Y`` of two matrices with the same rows as an operator of shape (p, q), which is never formed.

    With ``shift="mean"`` the operator is the matrix of cross-covariances times ``m - 1``; its singular vectors are
    those of maximum covariance analysis, also called PLS-SVD.

    Parameters
    ----------
    X : anything that `as_operator` takes, of shape (m, p)
        Matrix with the same rows as Y. If both have row labels (pandas or xarray), these must be equal, in the same
        order.
    Y : anything that `as_operator` takes, of shape (m, q)
        Matrix with the same rows as X.
    shift : None, "mean", or as in `svd`; or a tuple of two
        Shift of X and Y; a tuple has one for X and one for Y.
    scale : None, "std" or True, "pareto", or positive array; or a tuple of two
        Divisor of the columns of X and Y after the shift; a tuple has one for X and one for Y.
    sample_weight : array of shape (m,), optional
        Frequencies of the rows, for means, standard deviations and the product ``X^H diag(w) Y``.
    scale_ddof : 0 or 1
        Standard deviations divide by ``m - scale_ddof``.
    n_threads, memory_limit : optional
        As in `as_operator`.

    Returns
    -------
    Operator of shape (p, q)
        A `shiftsvd.operators.Product`, for `svd` and every other function that takes operators; ``cross(X, Y).H`` is
        ``cross(Y, X)``.

    Raises
    ------
    ValueError
        If X and Y do not have the same rows, and as in `svd`.

    See Also
    --------
    svd : Compute singular vectors of the operator.
    xarray.coupled : The same for labelled fields.

    Notes
    -----
    Cost: one pass for means or standard deviations, and one for the norms of X and Y. A product with a panel of b
    columns reads X and Y once and stores m b numbers, so a step of block Lanczos takes two passes. X and Y may be
    sparse, in files, or Dask arrays. `svd` forms small cross products, to compute all components accurately.

    Products are in double precision for all data types. Their rounding errors are relative to ``||X|| ||Y||``, which
    may be far above the largest singular value if X and Y are nearly uncorrelated; the error bounds of the fit include
    them.

    References
    ----------
    Bretherton, Smith & Wallace (1992), An intercomparison of methods for finding coupled patterns in climate data.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.standard_normal((100, 8)), rng.standard_normal((100, 5))
    >>> C = ss.cross(X, Y, shift="mean")
    >>> F = ss.svd(C, 2, rng=0)
    >>> exact = np.linalg.svd((X - X.mean(0)).T @ (Y - Y.mean(0)), compute_uv=False)
    >>> C.shape, bool(np.allclose(F.S, exact[:2]))
    ((8, 5), True)
    """
    _check_labels(X, Y)
    A, B = (as_operator(F, n_threads=n_threads, memory_limit=memory_limit) for F in (X, Y))
    if A.shape[0] != B.shape[0]:
        raise ValueError(
            f"X and Y must have the same rows, got {A.shape[0]:,} and {B.shape[0]:,}. Select the rows that both have."
        )
    weights = shifts.row_weights(sample_weight, A.shape[0])
    asked = [
        Preparation(*of, weights, scale_ddof) for of in zip(_both("shift", shift), _both("scale", scale), strict=True)
    ]
    for preparation, F in zip(asked, (A, B), strict=True):
        preparation.check(F.shape[1])
    P, Q = (preparation.learn(F).of_own for preparation, F in zip(asked, (A, B), strict=True))
    return Product(P.H, Q)


def _both(name: str, setting: Any) -> tuple[Any, Any]:
    if not isinstance(setting, tuple):
        return setting, setting
    if len(setting) != 2:
        rule = f" as a tuple must have one setting for X and one for Y, got {len(setting)}. Pass a vector as an array."
        raise Refused(Setting(name), rule)
    return setting


def _check_labels(X: Any, Y: Any) -> None:
    x, y = _labels(X), _labels(Y)
    if x is None or y is None or len(x) != len(y) or x.equals(y):
        return
    plain = any(np.array_equal(index, np.arange(len(index))) for index in (x, y))
    if plain and set(x) != set(y):
        return  # a default index, 0 to m - 1, does not name the rows
    a, b = next((a, b) for a, b in zip(x, y, strict=True) if a != b)
    differ = f"X and Y must have the same rows, but their labels differ, such as {a!r} and {b!r}."
    raise ValueError(f"{differ} Put their rows in the same order, such as by Y = Y.loc[X.index] for data frames.")


def _labels(F: Any) -> Any | None:
    index = getattr(F, "index", None)
    if hasattr(index, "equals"):
        return index
    dims: Any = getattr(F, "dims", ())
    indexes: Any = getattr(F, "indexes", None)
    return indexes.get(dims[0]) if isinstance(dims, tuple) and dims and hasattr(indexes, "get") else None
