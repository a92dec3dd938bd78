"""Base classes of transformations of entries: settings, fitted values, and operators of transformed rows."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from shiftsvd.algebra import generic
from shiftsvd.backends import as_operator
from shiftsvd.backends.entries import Places, some_columns
from shiftsvd.errors import Refused, Setting, damaged, plural, refuse
from shiftsvd.names import TOL
from shiftsvd.numerics.digests import told
from shiftsvd.numerics.entrywise import Change, Quantities, Terms
from shiftsvd.numerics.moments import weight_of_zeros, weight_parts
from shiftsvd.numerics.panels import Vector, unmasked
from shiftsvd.operators import LowRank, Operator, Panel
from shiftsvd.transforms import shown
from shiftsvd.transforms.count_data import warn_unless_counts
from shiftsvd.transforms.smooth import Smooth

# At this tolerance or a larger one, transformed entries of single-precision data are stored in single precision.
SINGLE = 1e-5
# Largest number of clipped zeros to store, as a share of the stored entries of a sparse matrix.
MORE = 0.25
EPS = float(np.finfo(np.float64).eps)
# Bound of the rounding error of the operations on an entry, in units of EPS.
OPERATIONS = 8.0
SumsOf = tuple[tuple[Vector, ...], tuple[Vector, ...]]  # terms of rows, and of columns


@dataclass(frozen=True, eq=False)
class Transform(ABC):
    """Base class for the settings of a transformation of entries, before it is fitted.

    A subclass fits values of the columns (`learn_rows`), sums terms over each row (`terms`, `quantities`), transforms
    entries (`entry`), and represents transformed zeros as a product of two factors (`left`, and `Fitted.right`).

    See Also
    --------
    Elementwise : Apply a function to every entry.
    transforms.Fitted : A fitted transformation, which `learn` returns.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np, shiftsvd as ss
    >>> @dataclass(frozen=True, eq=False)
    ... class Squares(ss.transforms.Transform):
    ...     def learn_rows(self, A, weights, tol):
    ...         m, n = A.shape
    ...         return ss.transforms.Fitted(self, np.zeros((n, 0)), np.zeros(0)), np.zeros(
    ...             (m, 0)
    ...         )
    ...
    ...     def entry(self, x, r, c, known, table):
    ...         return x**2
    >>> ss.preprocess(np.array([[1.0, 2.0], [0.0, 3.0]]), Squares()) @ np.eye(2)
    array([[1., 4.],
           [0., 9.]])
    """

    keeps_zeros: ClassVar[bool] = True  # zeros stay zeros; a transformation that changes zeros must be the last step
    learns: ClassVar[tuple[int, int]] = (0, 0)  # number of fitted values of each column, and of all columns together
    of_counts: ClassVar[bool] = False  # requires counts: raise an error for negative entries, warn of logarithms
    selects: ClassVar[bool] = False  # removes columns and changes no entry
    # Indices of a quantity of rows and of columns: zeros are stored as entries if the product of these exceeds 1.
    stored_zeros: ClassVar[tuple[int, int] | None] = None

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and told(self) == told(other)

    def __hash__(self) -> int:
        return hash(told(self))

    @abstractmethod
    def learn_rows(self, A: Operator, weights: Vector, tol: float) -> tuple["Fitted", Panel]:
        """Fit the transformation on the rows of A. `learn` and estimators call this method once.

        Parameters
        ----------
        A : Operator of shape (m, n)
            The training rows; the operator must give access to its entries.
        weights : array of shape (m,)
            Weight of each row, as a number of repetitions.
        tol : float
            Relative accuracy of singular values, for which transformed zeros may be approximated.

        Returns
        -------
        (Fitted, array of shape (m, p))
            The fitted transformation, and the quantities of the rows of A.
        """

    def terms(self, x: Vector, c: Quantities) -> tuple[Vector, ...]:
        """Compute the terms of each entry that are summed over its row.

        Parameters
        ----------
        x : array of shape (nnz,)
            Entries.
        c : tuple of q arrays of shape (nnz,)
            Fitted values of the column of each entry.

        Returns
        -------
        tuple of p arrays of shape (nnz,)
            The terms; none by default.
        """
        return ()

    def quantities(self, sums: Panel, fitted: "Fitted") -> Panel:
        """Compute the quantities of rows from the sums of their terms.

        Parameters
        ----------
        sums : array of shape (m, p)
            The sums of `terms` over each row.
        fitted : Fitted
            The fitted transformation.

        Returns
        -------
        array of shape (m, p)
            The quantities to pass to `entry` for the row of each entry; the sums themselves by default.
        """
        return sums

    @abstractmethod
    def entry(self, x: Vector, r: Quantities, c: Quantities, known: Vector, table: Panel | None) -> Vector:
        """Transform entries, and subtract the transformed value of a zero in the same place.

        Parameters
        ----------
        x : array of shape (nnz,)
            Entries.
        r : tuple of p arrays of shape (nnz,)
            The quantities of the row of each entry.
        c : tuple of q arrays of shape (nnz,)
            Fitted values of the column of each entry.
        known : array
            Fitted values of all columns together.
        table : array of shape (t, 3), or None
            Table of the values of all columns, for transformations that store one, such as `Ranks`.

        Returns
        -------
        array of shape (nnz,)
            The differences.
        """

    def left(self, R: Panel, fitted: "Fitted") -> Panel:
        """Compute the factor L of transformed zeros, ``L R^T``.

        Parameters
        ----------
        R : array of shape (m, p)
            The quantities of the rows.
        fitted : Fitted
            The fitted transformation; its `right` is the factor of the columns.

        Returns
        -------
        array of shape (m, s)
            The factor of the rows; ones by default.
        """
        return np.ones((len(R), 1))

    def rounded_at(self, R: Panel, fitted: "Fitted") -> tuple[Panel, Panel]:
        """Bound the absolute values of the terms whose difference is an entry, by a product ``|L| |R|^T``.

        The rounding errors of entries are proportional to this bound.

        Parameters
        ----------
        R : array of shape (m, p)
            The quantities of the rows.
        fitted : Fitted
            The fitted transformation.

        Returns
        -------
        (array of shape (m, s), array of shape (n, s))
            The factors; by default those of transformed zeros, with s = 0 if zeros stay zeros.
        """
        if fitted.right is None:
            return np.zeros((len(R), 0)), np.zeros((len(fitted.columns), 0))
        return self.left(R, fitted), fitted.right

    def of_some(self, known: Vector, columns: Panel, places: Vector) -> Vector:
        """Adapt the fitted values of all columns together to rows that have only some of the columns.

        Parameters
        ----------
        known : array
            Fitted values of all columns together.
        columns : array of shape (n, q)
            Fitted values of each column.
        places : array of int
            Indices of the columns that the rows have.

        Returns
        -------
        array
            The values for these columns; unchanged by default.
        """
        return known

    def n_columns(self, n: int) -> int:
        """Return the number of columns after the transformation.

        Parameters
        ----------
        n : int
            Number of columns before the transformation.

        Returns
        -------
        int
            Number of columns after the transformation; n by default.
        """
        return n

    def learn(self, A: Any, weights: Any = None, *, tol: float = TOL) -> "Fitted":
        """Fit the transformation on the rows of A.

        Parameters
        ----------
        A : anything that `as_operator` takes, of shape (m, n)
            The training rows.
        weights : array of shape (m,), optional
            Weight of each row, as a number of repetitions.
        tol : float
            Relative accuracy of singular values, for which transformed zeros may be approximated.

        Returns
        -------
        Fitted
            The fitted transformation, which can transform new rows.
        """
        A = checked(as_operator(A))
        warn_unless_counts([self], A)
        return self.learn_rows(A, frequencies(weights, A), tol)[0]


@dataclass(frozen=True, eq=False)
class OfCounts(Transform):
    """Base class for transformations of counts that use the sum of each row."""

    of_counts: ClassVar[bool] = True

    def terms(self, x: Vector, c: Quantities) -> tuple[Vector, ...]:
        return (x,)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted transformation, which returns the operator of transformed rows.

    Parameters
    ----------
    how : Transform
        The settings.
    columns : array of shape (n, q)
        Fitted values of each column.
    known : array
        Fitted values of all columns together.
    right : array of shape (n, s), or None
        Factor R of transformed zeros, ``L R^T``, as far as these have an exact low rank; None if zeros stay zeros.
    smooth : Smooth, or None
        Interpolated part of transformed zeros, in addition to ``L R^T``.
    table : array of shape (t, 3), or None
        Values of all columns, one column after another, for transformations that need them, such as `Ranks`.
    tol : float
        Relative accuracy of singular values that transformed entries must allow. At 1e-5 or more, transformed entries
        of single-precision data are stored in single precision.

    See Also
    --------
    transforms.Transform : Settings of a transformation, whose method `learn` returns this class.
    preprocess : Fit and apply several transformations.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> learned = ss.PMI().learn(np.array([[3.0, 0.0], [1.0, 4.0]]))
    >>> learned.of(np.array([[2.0, 2.0]])).shape, learned.at([1]).columns.shape[0]
    ((1, 2), 1)
    """

    how: Transform
    columns: Panel
    known: Vector
    right: Panel | None = None
    smooth: Smooth | None = None
    table: Panel | None = None
    tol: float = 0.0

    def check(self, n: int) -> None:
        """Validate values that were read from a file.

        Parameters
        ----------
        n : int
            Number of columns of the model.

        Raises
        ------
        ValueError
            If shapes do not fit n columns, or if values are NaN, or if transformed zeros are not finite.
        """
        q, count = self.how.learns
        sizes = [(self.columns, (n, q)), (self.known, (count,))]
        sizes += [] if self.right is None else [(self.right, (n, self.right.shape[-1]))]
        sizes += [] if self.table is None else [(self.table, (len(self.table), 3))]
        sizes += [] if self.smooth is None else [(self.smooth.offsets, (n,)), (self.smooth.scale, (n,))]
        if any(F.shape != size or F.dtype != np.float64 or np.isnan(F).any() for F, size in sizes):
            raise damaged("the file", f"fitted values of {self.how} must be numbers for {n:,} columns")
        if (self.right is None) != self.how.keeps_zeros or not (self.right is None or np.isfinite(self.right).all()):
            raise damaged("the file", f"the values of transformed zeros of {self.how} must be finite")

    @property
    def selects(self) -> bool:
        """True if the step removes columns."""
        return self.how.selects

    @property
    def kept(self) -> Places:
        """Indices of the columns to keep, for a step that selects columns."""
        return np.flatnonzero(self.columns[:, 0])

    def at(self, places: Any) -> "Fitted":
        """Return the fitted transformation for rows with a subset of the columns, or with another order of columns.

        For null models, ``r_i`` is then the sum of the counts of a row divided by the sum of ``c_j / T``, both over the
        present columns. Other sums and norms of rows are over the present columns.

        Parameters
        ----------
        places : array of int or bool, or slice
            The columns of these rows, in order.

        Returns
        -------
        Fitted
            The fitted transformation of these columns.
        """
        j = np.arange(len(self.columns))[places]
        smooth = self.smooth
        return replace(
            self,
            columns=self.columns[j],
            known=self.how.of_some(self.known, self.columns, j),
            right=None if self.right is None else self.right[j],
            smooth=None if smooth is None else replace(smooth, offsets=smooth.offsets[j], scale=smooth.scale[j]),
        )

    def rows(self, A: Operator) -> Panel:
        """Compute the quantities of the rows of A, in one read, or without a read if the transformation has no terms.

        Parameters
        ----------
        A : Operator of shape (m, n)
            The rows, before the transformation.

        Returns
        -------
        array of shape (m, p)
            The quantities, from the sums of each row.
        """
        none = np.zeros((A.shape[0], 0))
        if not self.how.terms(np.ones(0), tuple(np.ones((self.columns.shape[1], 0)))):
            return none
        sums, _ = generic.entry_sums(A, Terms(partial(_row_terms, self.how), none, self.columns))
        return self.how.quantities(finite_sums(sums), self)

    def of(self, A: Any, R: Panel | None = None) -> Operator:
        """Transform the rows of A.

        Parameters
        ----------
        A : anything that `as_operator` takes, of shape (m, n)
            The rows, before the transformation.
        R : array of shape (m, p), optional
            The quantities of the rows; computed by `rows` by default.

        Returns
        -------
        Operator of shape (m, n), with fewer columns after a selection
            The transformed rows: sparse, minus low rank if zeros become other numbers.

        Raises
        ------
        ValueError
            If the number of columns differs from that of the training data, if A is complex, or if entries are outside
            the domain of the transformation.
        """
        A = checked(as_operator(A))
        if A.shape[1] != len(self.columns):
            raise ValueError(
                f"{type(self.how).__name__} was fitted on {plural(len(self.columns), 'column')}, got {A.shape[1]:,}. "
                "Pass the columns of the fit."
            )
        B, Z = parts(self, A, self.rows(A) if R is None else R)
        return B if Z is None else B - Z


def parts(fitted: Fitted, A: Operator, R: Panel) -> tuple[Operator, LowRank | None]:
    # The transformed entries of A, and the low-rank matrix of transformed zeros, which is subtracted from them.
    if fitted.selects:
        return some_columns(A, fitted.kept), None
    return generic.with_entries(A, _change(fitted, A, R)), zeros_of(fitted, R)


def _change(fitted: Fitted, A: Operator, R: Panel) -> Change:
    how, dtype = fitted.how, held_as(A, fitted.tol)
    change = Change(FittedEntry(how, fitted.known, fitted.table), R, fitted.columns, dtype=dtype, more=how.stored_zeros)
    n_more = change.n_more()
    if not n_more:
        return replace(change, more=None)
    (m, n), stored = A.shape, A.costs.stored
    if n_more > MORE * stored and stored < m * n:
        raise Refused(
            f"{how} would clip up to {n_more:,} zeros, which must be stored: more than {MORE:.0%} of the {stored:,} ",
            *("stored entries. Raise ", Setting("clip"), ", or lower ", Setting("theta"), " to at most clip^2."),
        )
    return change


def zeros_of(fitted: Fitted, R: Panel) -> LowRank | None:
    if fitted.right is None:
        return None
    exact, smooth = fitted.how.left(R, fitted), fitted.smooth
    if smooth is None:
        return LowRank(-exact, fitted.right)
    smooth = smooth.reaching(R[:, 0])
    return LowRank(-np.hstack([exact, smooth.left(R[:, 0])]), np.hstack([fitted.right, smooth.right]))


def bounds(fitted: Fitted, R: Panel, weights: Vector | None) -> tuple[Vector | float, Vector]:
    # Bound the norms of the columns of diag(sqrt(weights)) E, for two matrices E: the interpolation error of
    # transformed zeros, and the rounding error of entries that are differences (besides `units` times each entry).
    L, right = fitted.how.rounded_at(R, fitted)
    errors: Vector | float = 0.0
    if fitted.smooth is not None:
        errors = fitted.smooth.errors(R[:, 0], weights)
        L, right = np.hstack([L, fitted.smooth.left(R[:, 0])]), np.hstack([right, fitted.smooth.right_sizes])
    squares = np.sum(L**2 if weights is None else weights[:, None] * L**2, axis=0)
    return errors, np.asarray(units(fitted.columns.shape[0], len(R)) * (np.abs(right) @ np.sqrt(squares)))


@dataclass(frozen=True, eq=False)
class FittedEntry:
    """Function for `with_entries`, as a class so that it can be pickled for workers of a cluster."""

    how: Transform
    known: Vector
    table: Panel | None

    def __call__(self, x: Vector, r: Quantities, c: Quantities) -> Vector:
        check_counts(self.how, x)
        return self.how.entry(x, r, c, self.known, self.table)


def _row_terms(how: Transform, x: Vector, r: Quantities, c: Quantities) -> SumsOf:
    check_counts(how, x)
    return how.terms(x, c), ()


def _margin_terms(how: Transform, x: Vector, parts: Quantities, c: Quantities) -> SumsOf:
    check_counts(how, x)
    x = x * c[0] if c else x
    return (x,), (sum(parts) * x, *(part * (x != 0) for part in parts))


class Margins(NamedTuple):
    """Sums of rows and columns, and by column the total weight of rows with and without an entry."""

    rows: Vector
    columns: Vector
    present: Vector
    absent: Vector


def margins(how: Transform, A: Operator, weights: Vector, columns: Panel | None = None) -> Margins:
    parts = weight_parts(weights)
    C = np.zeros((A.shape[1], 0)) if columns is None else columns
    r, c = generic.entry_sums(A, Terms(partial(_margin_terms, how), parts, C))
    present = c[:, 1:]
    absent = weight_of_zeros(parts, len(weights), present)
    return Margins(finite_sums(r)[:, 0], finite_sums(c)[:, 0], present.sum(axis=1), absent)


def finite_sums(sums: Panel) -> Panel:
    if not np.isfinite(sums).all():
        raise ValueError("sums of rows or columns overflow. Divide the data by a power of two.")
    return sums


def shares(x: Vector) -> Vector:
    total = x.sum(axis=0)
    return np.asarray(x / np.where(total > 0, total, 1))


def units(*shape: int) -> float:
    return EPS * (OPERATIONS + float(np.sqrt(max(shape))))


def held_as(A: Operator, tol: float) -> np.dtype[Any]:
    return np.dtype(np.float32 if A.dtype == np.float32 and tol >= SINGLE else np.float64)


def checked(A: Operator) -> Operator:
    if A.dtype.kind == "c":
        raise ValueError(f"transformations require real numbers, got {A!r}")
    return A


def frequencies(weights: Any, A: Operator) -> Vector:
    return np.ones(A.shape[0]) if weights is None else np.asarray(unmasked("weights", weights), np.float64)


def check_counts(how: Transform, x: Vector) -> None:
    if how.of_counts and x.size and x.min() < 0:
        raise Refused(shown(how), f" requires counts of at least 0, got {x.min():g}. Pass raw counts.")


def require(kept: bool, name: str, rule: str, value: Any) -> None:
    if not kept:
        raise refuse(name, rule, value)
