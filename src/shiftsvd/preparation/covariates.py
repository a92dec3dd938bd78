"""Shifts learned from groups or covariates, and the design matrix of named columns."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.linalg import qr, solve_triangular

from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.numerics.panels import unmasked
from shiftsvd.numerics.powers import check_size
from shiftsvd.operators import LowRank, Operator, Panel, repeated
from shiftsvd.runs.memory import beyond, limit_of

Column = npt.NDArray[Any]  # numbers, truth values, or objects: labels
Lookup = Callable[[str], Column]  # a column by its name
_SHOWN = 5  # labels in an error


@dataclass(frozen=True)
class Design:
    """Columns that stand for what is known of each row.

    Attributes
    ----------
    names : tuple of str
    sizes : tuple of int
        How many labels each of them has; 0 for numbers.
    levels : tuple of str
        The labels of all of them, one after another.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    levels: tuple[str, ...] = ()

    @classmethod
    def learn(cls, covariates: Sequence[str], groups: Sequence[str], column: Lookup) -> "Design":
        """Numbers and labels as the columns are; those of `groups` are labels also where they are numbers.

        Raises
        ------
        ValueError
            If a column is named twice, or has a label for every row.
        """
        names = (*covariates, *groups)
        if twice := [name for j, name in enumerate(names) if name in names[:j]]:
            raise ValueError(f"covariates and groups must be different columns, got {twice[0]!r} twice")
        sizes, levels = [], list[str]()
        for name in names:
            values = column(name)
            known = _levels(name, values) if name in groups or values.dtype == object else []
            if len(known) == len(values) > 1:
                raise ValueError(f"{name!r} has another label for each of {len(values)} rows: nothing would be left")
            sizes.append(len(known))
            levels += known
        return cls(names, tuple(sizes), tuple(levels))

    @property
    def width(self) -> int:
        return sum(max(size, 1) for size in self.sizes)

    def of(self, column: Lookup) -> Panel:
        """The matrix of these rows, shape (m, width), in double precision.

        Raises
        ------
        ValueError
            For missing values, labels that no row had that it was learned from, and what takes too much memory.
        """
        parts, first = list[Panel](), 0
        for name, size in zip(self.names, self.sizes, strict=True):
            values = column(name)
            self._affordable(len(values))
            known = self.levels[first : first + size]
            parts.append(_indicators(name, values, known) if size else _numbers(name, values)[:, None])
            first += size
        return np.concatenate(parts, axis=1)

    def _affordable(self, m: int) -> None:
        needed, limit = 3 * 8 * m * self.width, limit_of(None)
        if limit is not None and needed > limit:
            raise ValueError(
                f"{self.width} covariates of {m} rows need about {beyond(needed, limit)}; put rare groups together"
            )


def _texts(name: str, values: Column) -> list[str]:
    items = values.tolist()
    if missing := sum(item is None or type(item).__name__ == "NAType" or item != item for item in items):
        raise ValueError(f"{name!r} must have a label for every row, {missing} of {len(items)} have none")
    return [str(int(item)) if isinstance(item, float) and item.is_integer() else str(item) for item in items]


def _levels(name: str, values: Column) -> list[str]:
    return sorted(set(_texts(name, values)))


def _indicators(name: str, values: Column, levels: Iterable[str]) -> Panel:
    place = {label: j for j, label in enumerate(levels)}
    texts = _texts(name, values)
    if unseen := sorted(set(texts) - place.keys()):
        few = ", ".join(map(repr, unseen[:_SHOWN]))
        raise ValueError(
            f"{name!r} has {len(unseen)} labels that no row had that was learned from, whose share is unknown: "
            f"{few}; fit with rows of every label"
        )
    L = np.zeros((len(texts), len(place)))
    L[np.arange(len(texts)), [place[text] for text in texts]] = 1
    return L


def _numbers(name: str, values: Column) -> Column:
    if values.dtype.kind not in "fiub":
        raise ValueError(f"{name!r} must be numbers, as in the rows that were learned from, got {values.dtype}")
    numbers = values.astype(np.float64)
    if bad := int((~np.isfinite(numbers)).sum()):
        raise ValueError(f"{name!r} must be finite numbers, {bad} of {len(numbers)} are not; fill them")
    return numbers


@dataclass(frozen=True)
class GroupMeans:
    """The mean of the group that a row belongs to: what batches, sites or subjects have in common.

    Parameters
    ----------
    labels : array of shape (m,), optional
        The group of each row: numbers or texts. Left out in `PCA`, which takes them as ``fit(X, groups=labels)``.

    See Also
    --------
    Covariates : What columns of numbers explain, too.

    Notes
    -----
    ``X - L R^H``, where L says which row is in which group and R holds the means, weighted where there are weights.
    One read more than the column means take, two of single precision data. The means are as many numbers as groups
    times columns.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.array([[1.0, 2.0], [3.0, 6.0], [100.0, 0.0], [102.0, 4.0]])
    >>> ss.svd(X, 1, shift=ss.GroupMeans(["a", "a", "b", "b"])).S
    array([4.47213595])
    """

    labels: Any = field(default=None, compare=False, repr=False)

    def resolve(self, A: Operator, moments: Moments, weights: Vector | None = None) -> LowRank:
        """The means of the groups, one for each row, as a matrix of low rank.

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
            In each row the mean of its group: an indicator of groups times their means.
        """
        return self.learn(A, moments, weights)[0]

    def learn(self, A: Operator, moments: Moments, weights: Vector | None = None) -> "tuple[LowRank, LearnedGroups]":
        """The shift of A, and that of other rows of the same groups.

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
        (LowRank of shape (m, n), LearnedGroups)
            What is subtracted from A, and what subtracts the same from other rows.
        """
        labels = _labels(self.labels, A.shape[0])
        w = np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64)
        known = {label for label, weight in zip(labels, w, strict=True) if weight > 0}
        groups = tuple(sorted(known, key=lambda label: (type(label).__name__, label)))
        L = _one_hot(labels, groups)
        weighted = L if weights is None else w[:, None] * L
        means = np.tile(moments.mean, (len(groups), 1))
        # About what is known: single precision data far off-centre lose digits, which the second round finds.
        for _ in range(2 if np.finfo(A.dtype).eps > 1e-10 else 1):
            means = means + (A - LowRank(L, means.conj().T)).rmatmat(weighted).conj().T / (w @ L)[:, None]
        learned = LearnedGroups(groups, means)
        return LowRank(L, learned.means.conj().T), learned


@dataclass(frozen=True, eq=False)
class LearnedGroups:
    """The groups that a fit has seen and their means: what `GroupMeans` subtracts from other rows.

    Parameters
    ----------
    groups : tuple
        The labels of the groups, sorted.
    means : array of shape (groups, n)
        The mean of each column in each group.

    See Also
    --------
    GroupMeans : Learns them.

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
        """The means of the groups of the rows of A, as a matrix of low rank.

        Parameters
        ----------
        A : Operator of shape (m, n)
            The rows.
        data : array of shape (m,)
            The group of each row, one of `groups`.

        Returns
        -------
        LowRank of shape (m, n)
            The matrix to subtract from A.
        """
        return LowRank(self._places(data, A.shape[0]), self.means.conj().T)

    def points(self, m: int, data: Any = None) -> Panel:
        """The mean of the group of each row.

        Parameters
        ----------
        m : int
            How many rows there are.
        data : array of shape (m,)
            The group of each row, one of `groups`.

        Returns
        -------
        array of shape (m, n)
            The means, formed, for `inverse_transform`.
        """
        return np.asarray(self._places(data, m) @ self.means)

    def at(self, places: Any) -> "LearnedGroups":
        """The means for the columns at these places.

        Parameters
        ----------
        places : array of int or bool, or slice
            Which columns stay, in the order of the rows that are to come.

        Returns
        -------
        LearnedGroups
            The same groups with the means of those columns alone.
        """
        return LearnedGroups(self.groups, self.means[:, places])

    def _places(self, labels: Any, m: int) -> Panel:
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

    See Also
    --------
    GroupMeans : Means of groups of rows alone.

    Notes
    -----
    ``(I - Q Q^H) X = X - Q (X^H Q)^H`` with an orthonormal basis Q of the design, from a QR with pivoting; with weights
    w, that of ``diag(sqrt(w))`` times the design, and the regression is the weighted one. One read more than the
    column means take, two of dense single precision data.

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
        """The shift that the design explains of the data, as a matrix of low rank.

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
            The fitted values of the regression of every column, of the rank of the design.
        """
        return self.learn(A, moments, weights)[0]

    def learn(
        self, A: Operator, moments: Moments, weights: Vector | None = None
    ) -> "tuple[LowRank, LearnedCovariates]":
        """The shift of A, and that of other rows by the same coefficients.

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
        (LowRank of shape (m, n), LearnedCovariates)
            What is subtracted from A, and what subtracts the same from other rows.
        """
        m, n = A.shape
        C = _design(self.values, m)
        w = np.ones(m) if weights is None else np.asarray(weights, np.float64)
        centre = w @ C / w.sum() if self.intercept else np.zeros(C.shape[1])
        mean = moments.mean if self.intercept else np.zeros(n)
        L, to_basis = _basis(C, centre, w)
        # About what is known, in any case the column means: single precision data far off-centre lose digits, which the
        # second round finds.
        known, R = repeated(moments.mean, m), np.zeros((n, L.shape[1]))
        rounds = 2 if A.costs.eps > 1e-10 else 1
        for _ in range(rounds if L.shape[1] else 0):
            R = R + (A - LowRank(L, R).merge(known)).rmatmat(w[:, None] * L)
        if not self.intercept:
            R = R + np.outer(moments.mean.conj(), w @ L)
        learned = LearnedCovariates(mean, centre, to_basis @ R.conj().T)
        return LowRank(L, R).merge(repeated(mean, m)), learned


@dataclass(frozen=True, eq=False)
class LearnedCovariates:
    """A regression on covariates, ``mean + (C - centre) coefficients``: what `Covariates` subtracts from other rows.

    Parameters
    ----------
    mean : array of shape (n,)
        The mean of each column; 0 without an intercept.
    centre : array of shape (p,)
        The mean of each covariate; 0 without an intercept.
    coefficients : array of shape (p, n)
        What a unit of each covariate adds to each column.

    See Also
    --------
    Covariates : Learns them.

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
        """What the covariates of the rows of A explain, as a matrix of low rank.

        Parameters
        ----------
        A : Operator of shape (m, n)
            The rows.
        data : array of shape (m, p) or (m,)
            The covariates of each row, in the columns of the fit.

        Returns
        -------
        LowRank of shape (m, n)
            The matrix to subtract from A.
        """
        m = A.shape[0]
        return LowRank(self._off(data, m), self.coefficients.conj().T).merge(repeated(self.mean, m))

    def points(self, m: int, data: Any = None) -> Panel:
        """What the covariates explain, formed.

        Parameters
        ----------
        m : int
            How many rows there are.
        data : array of shape (m, p) or (m,)
            The covariates of each row, in the columns of the fit.

        Returns
        -------
        array of shape (m, n)
            The fitted values, formed, for `inverse_transform`.
        """
        return np.asarray(self.mean + self._off(data, m) @ self.coefficients)

    def at(self, places: Any) -> "LearnedCovariates":
        """The regression for the columns at these places.

        Parameters
        ----------
        places : array of int or bool, or slice
            Which columns stay, in the order of the rows that are to come.

        Returns
        -------
        LearnedCovariates
            The same covariates with the coefficients of those columns alone.
        """
        return LearnedCovariates(self.mean[places], self.centre, self.coefficients[:, places])

    def _off(self, values: Any, m: int) -> Panel:
        C = _design(values, m)
        if C.shape[1] != len(self.centre):
            raise ValueError(f"covariates must have {len(self.centre)} columns, as in fit, got {C.shape[1]}")
        return C - self.centre


def _labels(labels: Any, m: int) -> list[Any]:
    if labels is None:
        raise ValueError("GroupMeans needs the group of every row: GroupMeans(labels), or fit(X, groups=labels) of PCA")
    array = np.asarray(unmasked("groups", labels, "give these rows a label of their own"))
    if array.shape != (m,):
        raise ValueError(f"groups must hold one label per row, shape ({m},), got shape {array.shape}")
    known: list[Any] = array.tolist()
    missing = sum(type(label).__name__ in ("NoneType", "NAType") or label != label for label in known)
    if missing:
        raise ValueError(f"groups must not hold missing labels, got {missing}; give them a label of their own")
    return known


def _one_hot(labels: list[Any], groups: tuple[Any, ...]) -> Panel:
    needed, limit = 3 * 8 * len(labels) * len(groups), limit_of(None)
    if limit is not None and needed > limit:
        raise ValueError(
            f"{len(groups)} groups of {len(labels)} rows need about {beyond(needed, limit)}; put rare groups together"
        )
    place = {group: j for j, group in enumerate(groups)}
    places = np.array([place.get(label, -1) for label in labels])
    known = np.flatnonzero(places >= 0)
    L = np.zeros((len(labels), len(groups)))
    L[known, places[known]] = 1
    return L


def _design(values: Any, m: int) -> Panel:
    if values is None:
        raise ValueError("Covariates needs a design matrix: Covariates(values), or fit(X, covariates=values) of PCA")
    C = np.asarray(unmasked("covariates", values))
    C = C[:, None] if C.ndim == 1 else C
    if C.ndim != 2 or C.dtype.kind not in "fciub" or len(C) != m or not C.shape[1]:
        raise ValueError(
            f"covariates must be a numeric array of shape ({m}, p) or ({m},), got {C.dtype} {np.shape(values)}; "
            "one-hot encode categories"
        )
    C = C.astype(np.result_type(C, np.float64))
    if not np.isfinite(C).all():
        raise ValueError(f"covariates must be finite, got {int((~np.isfinite(C)).sum())} NaN or infinite entries")
    for size in np.abs(C).max(axis=0, initial=0):
        check_size("covariates", float(size))
    return C


def _basis(C: Panel, centre: Vector, w: Vector) -> tuple[Panel, Panel]:
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
