"""Shifts fitted on groups or covariates of rows, and the design matrix of named columns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.linalg import qr, solve_triangular

from shiftsvd.algebra import generic
from shiftsvd.errors import Part, Refused, Setting, few
from shiftsvd.numerics.moments import Moments
from shiftsvd.numerics.panels import Vector, unmasked
from shiftsvd.numerics.powers import check_size
from shiftsvd.operators import LowRank, Operator, Panel, repeated
from shiftsvd.preparation.shifts import Learned, Learning, finite
from shiftsvd.runs.memory import beyond, limit_of
from shiftsvd.runs.messages import notice

Column = npt.NDArray[Any]  # numbers, truth values, or objects: labels
Lookup = Callable[[str], Column]  # a column by its name
_OTHER_UNIT, _MANY = 10, 20  # ratio of largest values, as of fractions and percentages; rows in which it is no chance


@dataclass(frozen=True)
class Design:
    """Design matrix of named columns: numeric columns unchanged, labels one-hot encoded."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]  # labels of each column; 0 for numbers
    levels: tuple[str, ...] = ()  # the labels of all columns, one after another
    ranges: tuple[float, ...] = ()  # least and largest of each numeric column in the fit; empty in older files

    @classmethod
    def learn(cls, covariates: Sequence[str], groups: Sequence[str], column: Lookup) -> "Design":
        # Encode all `groups` one-hot, and the `covariates` that are not numeric.
        names = (*covariates, *groups)
        if twice := [name for j, name in enumerate(names) if name in names[:j]]:
            what = Setting("covariates"), " and ", Setting("groups")
            raise Refused(*what, f" must be different columns, got {twice[0]!r} twice")
        sizes, levels, ranges = [], list[str](), list[float]()
        for name in names:
            values = column(name)
            known = sorted(set(_texts(name, values))) if name in groups or values.dtype == object else []
            if len(known) == len(values) > 1:
                each = f"{name!r} has a different label in each of {len(values):,} rows"
                raise ValueError(f"{each}, so no variation would remain. Remove this column.")
            sizes.append(len(known))
            levels += known
            ranges += () if known else _range(_numbers(name, values))
        return cls(names, tuple(sizes), tuple(levels), tuple(ranges))

    @property
    def width(self) -> int:
        return sum(max(size, 1) for size in self.sizes)

    def of(self, column: Lookup) -> Panel:
        parts, first, ranges = list[Panel](), 0, iter(zip(self.ranges[::2], self.ranges[1::2], strict=True))
        for name, size in zip(self.names, self.sizes, strict=True):
            values = column(name)
            _affordable(len(values), self.width, "covariates")
            known = self.levels[first : first + size]
            parts.append(_one_hot(repr(name), _texts(name, values), known) if size else _numbers(name, values))
            first += size
            if not size and (fitted := next(ranges, None)) is not None:
                _notify_range(name, parts[-1], fitted)
        return np.concatenate(parts, axis=1)

    def of_rows(self, groups: Any, covariates: Any) -> Any:
        """Return the design matrix of data frames with the named columns, or of the labels of a single column."""
        frames = [each for each in (covariates, groups) if hasattr(each, "columns")]
        columns = {str(name): frame[name] for frame in frames for name in frame.columns}
        alone = len(self.names) == 1 and self.sizes[0] > 0
        if not frames and groups is None and covariates is not None:
            return covariates
        if not frames and groups is not None and alone:
            columns = {self.names[0]: unmasked("groups", groups, "give these rows a label of their own")}
        if not all(name in columns for name in self.names):
            names, end = ", ".join(map(repr, self.names)), ", which the fit regressed out."
            if alone:
                labels = f" must be the labels of {names}, or a data frame with this column"
                raise Refused(Setting("groups"), labels, end)
            raise Refused(Setting("covariates"), f" must be a data frame with the columns {names}", end)
        return self.of(lambda name: np.asarray(columns[name]))


def _texts(name: str, values: Column) -> list[str]:
    items = values.tolist()
    if missing := sum(map(_is_missing, items)):
        must = f"{name!r} must have a label in every row, got none in {missing:,} of {len(items):,} rows."
        raise ValueError(f"{must} Remove these rows, or give missing labels a label of their own.")
    return [str(int(item)) if isinstance(item, float) and item.is_integer() else str(item) for item in items]


def _is_missing(label: Any) -> bool:
    return type(label).__name__ in ("NoneType", "NAType") or bool(label != label)


def _numbers(name: str, values: Column) -> Panel:
    if values.dtype.kind not in "fiub":
        text = f"{name!r} must be numeric, as in the training data, got {values.dtype}. Convert the column to numbers."
        raise ValueError(text)
    numbers = values.astype(np.float64)
    if bad := int((~np.isfinite(numbers)).sum()):
        raise ValueError(
            f"{name!r} must be finite, got NaN or infinity in {bad:,} of {len(numbers):,} rows. Fill them."
        )
    return numbers[:, None]


def _range(numbers: Panel) -> tuple[float, float]:
    return float(numbers.min()), float(numbers.max())


def _notify_range(name: str, numbers: Panel, fitted: tuple[float, float]) -> None:
    """Log a notice if the numbers are outside those of the fit, or so small that they may have another unit."""
    if not len(numbers):
        return
    (low, high), size = _range(numbers), max(map(abs, fitted))
    smaller = len(numbers) >= _MANY and 0 < _OTHER_UNIT * max(abs(low), abs(high)) < size
    if low > fitted[1] or high < fitted[0] or max(abs(low), abs(high)) > _OTHER_UNIT * size or smaller:
        of_fit = f"from {fitted[0]:.3g} to {fitted[1]:.3g} in the fit"
        notice(f"{name!r} is from {low:.3g} to {high:.3g} in these rows, and {of_fit}. Check its unit.")


def _affordable(m: int, width: int, what: str) -> None:
    needed, limit = 3 * 8 * m * width, limit_of(None)
    if limit is not None and needed > limit:
        raise ValueError(
            f"{width:,} {what} of {m:,} rows need about {beyond(needed, limit)} of memory. Merge rare groups."
        )


def _one_hot(what: Part, labels: Sequence[Any], known: Sequence[Any]) -> Panel:
    place = {label: j for j, label in enumerate(known)}
    if unseen := sorted(map(repr, set(labels) - place.keys())):
        raise Refused(
            what, f" has labels that did not occur in the training data: {few(unseen)}. Fit on rows of every label."
        )
    return _indicators(labels, place)


def _indicators(labels: Sequence[Any], place: dict[Any, int]) -> Panel:
    _affordable(len(labels), len(place), "groups")
    places = np.array([place.get(label, -1) for label in labels])
    known = np.flatnonzero(places >= 0)
    L = np.zeros((len(labels), len(place)))
    L[known, places[known]] = 1
    return L


@dataclass(frozen=True)
class GroupMeans(Learning):
    """Subtract from each row the mean of its group, such as a batch, a site or a subject.

    Parameters
    ----------
    labels : array of shape (m,), optional
        The group of each row: numbers or texts. Omit them with `PCA`, and pass them to ``fit(X, groups=labels)``.

    See Also
    --------
    Covariates : Regression on columns of numbers.

    Notes
    -----
    ``X - L R^H``: L has a column of indicators for each group, and R holds the means, weighted by `sample_weight`. The
    means take one pass more than the column means, and ``8 * groups * n`` bytes.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.array([[1.0, 2.0], [3.0, 6.0], [100.0, 0.0], [102.0, 4.0]])
    >>> ss.svd(X, 1, shift=ss.GroupMeans(["a", "a", "b", "b"])).S
    array([4.47213595])
    """

    labels: Any = field(default=None, compare=False, repr=False)

    def learn(self, A: Operator, moments: Moments, weights: Vector | None = None) -> "tuple[LowRank, LearnedGroups]":
        labels = _labels(self.labels, A.shape[0])
        w = np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64)
        there = {label for label, weight in zip(labels, w, strict=True) if weight > 0}
        groups = tuple(sorted(there, key=lambda label: (type(label).__name__, label)))
        L = _indicators(labels, {group: j for j, group in enumerate(groups)})
        weighted = L if weights is None else w[:, None] * L
        # In double precision, because a fit of single precision data computes values down to the rounding of doubles.
        sums = generic.rmatmat_in_double(A - repeated(moments.mean, len(w)), weighted)
        learned = LearnedGroups(groups, moments.mean + sums.conj().T / (w @ L)[:, None])
        return LowRank(L, learned.means.conj().T), learned


@dataclass(frozen=True, eq=False)
class LearnedGroups(Learned):
    """The groups of a fit and their means, which `GroupMeans` subtracts from other rows.

    Parameters
    ----------
    groups : tuple
        The labels of the groups, sorted.
    means : array of shape (groups, n)
        The mean of each column in each group.

    See Also
    --------
    GroupMeans : The shift that fits them.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.array([[1.0, 2.0], [3.0, 6.0], [100.0, 0.0], [102.0, 4.0]])
    >>> A = ss.as_operator(X)
    >>> shift, learned = ss.GroupMeans(["a", "a", "b", "b"]).learn(A, A.moments())
    >>> learned.groups, learned.points(1, ["b"]).tolist()
    (('a', 'b'), [[101.0, 2.0]])
    """

    needs: ClassVar[str | None] = "groups"
    groups: tuple[Any, ...]
    means: Panel

    def of(self, A: Operator, data: Any = None) -> LowRank:
        return LowRank(self._indicators(data, A.shape[0]), self.means.conj().T)

    def points(self, m: int, data: Any = None) -> Panel:
        return np.asarray(self._indicators(data, m) @ self.means)

    def at(self, places: Any) -> "LearnedGroups":
        return LearnedGroups(self.groups, self.means[:, places])

    def _indicators(self, labels: Any, m: int) -> Panel:
        return _one_hot(Setting("groups"), _labels(labels, m), self.groups)


@dataclass(frozen=True)
class Covariates(Learning):
    """Subtract a linear regression of every column on known covariates, and keep the residuals.

    Parameters
    ----------
    values : array of shape (m, p) or (m,), optional
        The design matrix. Omit it with `PCA`, and pass it to ``fit(X, covariates=values)``. Columns may be linearly
        dependent. Categories must be one-hot encoded.
    intercept : bool
        Also remove the column means.

    See Also
    --------
    GroupMeans : Means of groups of rows alone.

    Notes
    -----
    ``(I - Q Q^H) X = X - Q (X^H Q)^H`` with an orthonormal basis Q of the design, from a QR with pivoting. With weights
    w, Q is a basis of ``diag(sqrt(w))`` times the design, and the regression is the weighted one. One read more than
    the column means take.

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

    def learn(
        self, A: Operator, moments: Moments, weights: Vector | None = None
    ) -> "tuple[LowRank, LearnedCovariates]":
        m, n = A.shape
        C = _design(self.values, m)
        w = np.ones(m) if weights is None else np.asarray(weights, np.float64)
        centre = w @ C / w.sum() if self.intercept else np.zeros(C.shape[1])
        mean = moments.mean if self.intercept else np.zeros(n)
        L, to_basis = _basis(C, centre, w)
        # Regress the residuals of the column means, in double precision as the means of groups.
        R = np.zeros((n, 0))
        if L.shape[1]:
            R = generic.rmatmat_in_double(A - repeated(moments.mean, m), w[:, None] * L)
        if not self.intercept:
            R = R + np.outer(moments.mean.conj(), w @ L)
        learned = LearnedCovariates(mean, centre, to_basis @ R.conj().T)
        return LowRank(L, R).merge(repeated(mean, m)), learned


@dataclass(frozen=True, eq=False)
class LearnedCovariates(Learned):
    """A regression on covariates, ``mean + (C - centre) coefficients``, which `Covariates` subtracts from other rows.

    Parameters
    ----------
    mean : array of shape (n,)
        The mean of each column; 0 without an intercept.
    centre : array of shape (p,)
        The mean of each covariate; 0 without an intercept.
    coefficients : array of shape (p, n)
        The change of each column for a unit of each covariate.

    See Also
    --------
    Covariates : The shift that fits them.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> age = np.array([20.0, 30.0, 40.0, 50.0])
    >>> A = ss.as_operator(np.column_stack([2 * age, 1 - age]))
    >>> shift, learned = ss.Covariates(age).learn(A, A.moments())
    >>> learned.coefficients.round(6).tolist(), learned.points(1, [60.0]).round(6).tolist()
    ([[2.0, -1.0]], [[120.0, -59.0]])
    """

    needs: ClassVar[str | None] = "covariates"
    mean: Vector
    centre: Vector
    coefficients: Panel

    def of(self, A: Operator, data: Any = None) -> LowRank:
        m = A.shape[0]
        return LowRank(self._centred(data, m), self.coefficients.conj().T).merge(repeated(self.mean, m))

    def points(self, m: int, data: Any = None) -> Panel:
        return np.asarray(self.mean + self._centred(data, m) @ self.coefficients)

    def at(self, places: Any) -> "LearnedCovariates":
        return LearnedCovariates(self.mean[places], self.centre, self.coefficients[:, places])

    def _centred(self, values: Any, m: int) -> Panel:
        C = _design(values, m)
        if C.shape[1] != len(self.centre):
            width = f" must have {len(self.centre):,} columns, as in the training data, got {C.shape[1]:,}"
            raise Refused(Setting("covariates"), width)
        return C - self.centre


def _labels(labels: Any, m: int) -> list[Any]:
    if labels is None:
        raise ValueError("GroupMeans needs a label per row. Use GroupMeans(labels), or PCA with fit(X, groups=labels).")
    return labels_of_rows("groups", labels, m)


def labels_of_rows(name: str, labels: Any, m: int) -> list[Any]:
    groups = Setting(name)
    array = np.asarray(unmasked(name, labels, "give these rows a label of their own"))
    if array.shape != (m,):
        raise Refused(groups, f" must hold one label per row, shape ({m},), got shape {array.shape}")
    known: list[Any] = array.tolist()
    if missing := sum(map(_is_missing, known)):
        raise Refused(groups, f" must not hold missing labels, got {missing:,}. Give these rows a label of their own.")
    return known


def _design(values: Any, m: int) -> Panel:
    if values is None:
        use = "Use Covariates(values), or PCA with fit(X, covariates=values)."
        raise ValueError(f"Covariates needs a design matrix. {use}")
    C = np.asarray(unmasked("covariates", values))
    C = C[:, None] if C.ndim == 1 else C
    if C.ndim != 2 or C.dtype.kind not in "fciub" or len(C) != m or not C.shape[1]:
        got = f"got {C.dtype} {np.shape(values)}. One-hot encode categories: pandas.get_dummies(values, dtype=float)."
        raise Refused(Setting("covariates"), f" must be a numeric array of shape ({m}, p) or ({m},), {got}")
    C = finite("covariates", C)
    for size in np.abs(C).max(axis=0, initial=0):
        check_size("covariates", float(size))
    return C


def _basis(C: Panel, centre: Vector, w: Vector) -> tuple[Panel, Panel]:
    D, root = C - centre, np.sqrt(w)[:, None]
    eps = max(C.shape) * float(np.finfo(np.float64).eps)
    norms = np.linalg.norm(root * D, axis=0)
    # Ignore constant columns: after centring they hold rounding errors only.
    there = norms > eps * np.linalg.norm(root * C, axis=0)
    unit = np.where(there, 1 / np.where(there, norms, 1), 0)
    Q, R, order = qr(root * D * unit, mode="economic", pivoting=True)
    diagonal = np.abs(np.diag(R))
    r = int(np.sum(diagonal > eps * diagonal[0]))
    T = np.zeros((C.shape[1], r), R.dtype)
    T[order[:r]] = solve_triangular(R[:r, :r], np.eye(r))
    T *= unit[:, None]
    # Q is orthonormal even if D is ill-conditioned. Rows without weight are 0 in Q, so compute them as D T.
    return np.where(root > 0, Q[:, :r] / np.where(root > 0, root, 1), D @ T), T
