"""Correspondence analysis of tables of counts, and multiple correspondence analysis of categorical columns."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array
from sklearn.utils.validation import check_array, check_is_fitted

from shiftsvd.algebra.generic import gram_matrix, least
from shiftsvd.backends import as_operator
from shiftsvd.backends.validation import before_sklearn
from shiftsvd.errors import Refused, Setting, plural, refuse
from shiftsvd.estimators.attributes import cosines, is_pandas, labelled, labels_of, row_squares
from shiftsvd.estimators.features import Components, checked, checked_table, is_unread
from shiftsvd.estimators.settings import as_one_fit, random_generator
from shiftsvd.estimators.supplementary import codes_of, columns_of, learned_categories, refuse_missing, refuse_unknown
from shiftsvd.front import decompose, integer, tolerance
from shiftsvd.kernels import threads
from shiftsvd.names import SolverName
from shiftsvd.numerics.panels import Vector
from shiftsvd.numerics.powers import check_size
from shiftsvd.operators import LowRank, Operator, Panel, Scaled
from shiftsvd.runs.memory import affordable
from shiftsvd.solvers import Solver
from shiftsvd.solvers.auto import check_solver


@dataclass(eq=False, repr=False)
class CorrespondenceAnalysis(Components):
    """Correspondence analysis of a table of counts: ``D_r^-1/2 (P - r c^T) D_c^-1/2 = U S V^T``.

    P is the table divided by its total, r and c are the row and column sums of P. The expectation ``r c^T`` is a
    low-rank shift, so a sparse table stays sparse. Entries must be at least 0; for an operator only the row and column
    sums are checked. `transform` returns `row_coordinates` as an array, or in the container set by `set_output`.

    Parameters
    ----------
    n_components : int
        Number of dimensions.
    solver, tol, random_state, n_threads, memory_limit : optional
        As in `PCA`.

    Attributes
    ----------
    eigenvalues_ : array of shape (n_components,)
        Inertia of each component: the squared singular values.
    total_inertia_ : float
        Inertia of all components: chi-square of the table divided by its total.
    percentage_of_variance_ : array of shape (n_components,)
        ``100 eigenvalues_ / total_inertia_``.
    row_coordinates_, column_coordinates_ : array or DataFrame of shape (n_rows, n_components), (n_columns, ...)
        Principal coordinates ``D_r^-1/2 U S`` and ``D_c^-1/2 V S``. Empty rows and columns are at 0.
    row_contributions_, column_contributions_ : array or DataFrame, shapes as above
        Share of each row or column in the inertia of a component.
    row_masses_, column_masses_ : array of shape (n_rows,), (n_columns,)
        r and c.
    components_ : array of shape (n_components, n_columns)
        ``V^T``; the largest entry of each is positive.
    n_features_in_, feature_names_in_, info_
        As in `PCA`.

    See Also
    --------
    MultipleCorrespondenceAnalysis : Correspondence analysis of categorical columns.

    Notes
    -----
    Four passes, and those of the solver (`Info.n_passes`).

    References
    ----------
    Benzécri (1973), L'analyse des données; Greenacre (1984), Theory and Applications of Correspondence Analysis.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> table = np.array([[20, 5, 1], [6, 18, 4], [2, 7, 25]])
    >>> ca = ss.CorrespondenceAnalysis().fit(table)
    >>> ca.percentage_of_variance_.sum().round(6)
    np.float64(100.0)
    >>> ca.row_coordinates(table).shape
    (3, 2)
    """

    n_components: int = 2
    _: KW_ONLY
    solver: SolverName | Solver = "auto"
    tol: float | None = None
    random_state: Any = None
    n_threads: int | None = None
    memory_limit: int | str | None = None

    @as_one_fit
    def fit(self, X: Any, y: Any = None) -> Self:
        check_solver(self.solver, self.n_components)
        self._fit(self._table(X, reset=True), labels_of(X)[0], self._column_names(X))
        return self

    def _fit(self, A: Operator, rows: Any, columns: Any) -> None:
        of = f" for a table of {A.shape[0]} x {A.shape[1]}"
        k = integer("n_components", self.n_components, 1, min(A.shape), of)
        tol = tolerance(self.solver, self.tol)
        rng = random_generator(self.random_state)
        B, r, c = independent(A)
        inertia = B.frobenius_norm()
        if inertia is None:
            raise ValueError(f"the total inertia needs squared entries, which {A} does not provide. Use shiftsvd.svd.")
        F = decompose(B, k, self.solver, tol, rng, self.memory_limit)
        S = np.asarray(F.S, np.float64)
        # A component without inertia has no vectors, and what is empty has no part in any.
        U, V = (np.where((mass[:, None] > 0) & (S > 0), side, 0) for mass, side in ((r, np.asarray(F.U)), (c, F.Vh.T)))
        self.row_masses_, self.column_masses_ = r, c
        self.components_ = np.asarray(F.Vh, A.dtype)
        self.singular_values_ = S
        self.eigenvalues_, self.total_inertia_ = S**2, inertia**2
        total = self.total_inertia_
        self.percentage_of_variance_ = 100 * (self.eigenvalues_ / total) if total > 0 else np.zeros(k)
        self.row_coordinates_ = labelled((_power(r, -0.5)[:, None] * U * S).astype(A.dtype), rows)
        self.column_coordinates_ = labelled((_power(c, -0.5)[:, None] * V * S).astype(A.dtype), columns)
        self.row_contributions_, self.column_contributions_ = labelled(U**2, rows), labelled(V**2, columns)
        self.info_ = F.info

    def row_coordinates(self, X: Any) -> Any:
        """Return principal coordinates of rows, of the fitted table or of others with the same columns.

        Parameters
        ----------
        X : array, sparse matrix, data frame, Dask array or Operator of shape (n_rows, n_columns)
            Rows with the columns of the fit.

        Returns
        -------
        array, or DataFrame if X is one, of shape (n_rows, n_components)
            The coordinates of each row.
        """
        return labelled(self._project(X), labels_of(X)[0])

    def transform(self, X: Any) -> Panel:
        return self._project(X)

    @as_one_fit
    def row_cosine_similarities(self, X: Any) -> Any:
        """Return squared cosines: the share of each component in a row's squared distance from the centre.

        Parameters
        ----------
        X : array, sparse matrix, data frame, Dask array or Operator of shape (n_rows, n_columns)
            Rows with the columns of the fit.

        Returns
        -------
        array, or DataFrame if X is one, of shape (n_rows, n_components)
            The squared cosines of each row.
        """
        profiles = _profiles(self._table(X), self.column_masses_)
        return labelled(cosines(profiles.matmat(self.components_.T), row_squares(profiles)), labels_of(X)[0])

    @as_one_fit
    def column_coordinates(self, X: Any) -> Any:
        """Return principal coordinates of columns, of the fitted table or of others with the same rows.

        Parameters
        ----------
        X : array, sparse matrix, data frame, Dask array or Operator of shape (n_rows, any number)
            The table that was fitted, or columns over its rows.

        Returns
        -------
        array, or DataFrame if X is one, with a row for each column of X
            The coordinates of each column.
        """
        profiles, U = self._column_profiles(X)
        return labelled(profiles.matmat(U), self._column_names(X))

    @as_one_fit
    def column_cosine_similarities(self, X: Any) -> Any:
        """Return squared cosines: the share of each component in a column's squared distance from the centre.

        Parameters
        ----------
        X : array, sparse matrix, data frame, Dask array or Operator of shape (n_rows, any number)
            The table that was fitted, or columns over its rows.

        Returns
        -------
        array, or DataFrame if X is one, of shape (n_columns, n_components)
            The squared cosines of each column.
        """
        profiles, U = self._column_profiles(X)
        return labelled(cosines(profiles.matmat(U), row_squares(profiles)), self._column_names(X))

    @as_one_fit
    def _project(self, X: Any) -> Panel:
        A = self._table(X)
        return np.asarray(_profiles(A, self.column_masses_).matmat(self.components_.T.astype(np.float64)), A.dtype)

    def _column_profiles(self, X: Any) -> tuple[Operator, Panel]:
        check_is_fitted(self, "components_")
        A = self._columns(X)
        r, S = self.row_masses_, self.singular_values_
        if A.shape[0] != len(r):
            raise ValueError(f"columns must have {len(r):,} rows, as the fitted table has, got {A.shape[0]:,}")
        return _profiles(A.H, r), np.sqrt(r)[:, None] * np.asarray(self.row_coordinates_) * _power(S, -1)

    def _table(self, X: Any, reset: bool = False) -> Operator:
        if not reset:
            check_is_fitted(self, "components_")
        return self._counts(checked(self, X, reset))

    def _columns(self, X: Any) -> Operator:
        if not is_unread(X):
            X = check_array(before_sklearn(X), accept_sparse=("csr", "csc"), ensure_all_finite=False)
        return self._counts(X)

    def _counts(self, X: Any) -> Operator:
        A = as_operator(X, **vars(self._resources))
        smallest = least(A) if is_unread(X) else (X.data if hasattr(X, "nnz") else X).min(initial=0)
        if smallest is not None and smallest < 0:
            raise ValueError(
                f"Negative values in data passed to {type(self).__name__}: a table must hold counts or other "
                f"numbers of at least 0, got {smallest:g}"
            )
        return A

    def _column_names(self, X: Any) -> Any:
        return labels_of(X)[1]

    @property
    def _tags(self) -> dict[str, Any]:
        return super()._tags | {"positive_only": True}


def independent(A: Operator) -> tuple[Scaled, Vector, Vector]:
    with threads(A.costs.n_threads):
        rows, columns = (np.asarray(T.matmat(np.ones((T.shape[1], 1)))[:, 0]) for T in (A, A.H))
    for name, sums in (("row", rows), ("column", columns)):
        if np.any(sums < 0):
            found = plural(int((sums < 0).sum()), f"negative {name} sum")
            raise ValueError(f"a table must hold counts or other numbers of at least 0, got {found}.")
        _check_sums(sums)
    total = float(rows.sum())
    if not total > 0:
        raise ValueError("a table must have a positive sum, got 0. Pass a table with counts above 0.")
    c = columns / total
    return Scaled(A - LowRank(rows, c), _power(rows, -0.5), _power(columns, -0.5)), rows / total, c


def _profiles(A: Operator, masses: Vector) -> Scaled:
    sums = A.matmat((masses > 0).astype(np.float64)[:, None])[:, 0]  # a column without mass is as if it were not there
    _check_sums(sums)
    return Scaled(A - LowRank(sums, masses), _power(sums, -1), _power(masses, -0.5))


def _check_sums(sums: Vector) -> None:
    for size in (sums.max(initial=0), sums.min(where=sums > 0, initial=1)):
        check_size("sums of the rows and columns of a table", float(size))


def _power(x: Vector, p: float) -> Vector:
    return np.where(x > 0, np.where(x > 0, x, 1) ** p, 0)


CORRECTIONS = (None, "benzecri", "greenacre")


@dataclass(eq=False, repr=False)
class MultipleCorrespondenceAnalysis(CorrespondenceAnalysis):
    """Multiple correspondence analysis: correspondence analysis of the one-hot encoding Z of categorical columns.

    X is a data frame or array of shape (n_rows, n_columns) in all methods, also in `column_coordinates`. Every distinct
    value is a category; categorical columns of pandas have their declared categories. Missing values raise ValueError.

    Parameters
    ----------
    n_components, solver, tol, random_state, n_threads, memory_limit : optional
        As in `CorrespondenceAnalysis`.
    correction : None, "benzecri" or "greenacre"
        Indicators inflate the inertia. With K columns, an eigenvalue above 1/K becomes
        ``(K / (K - 1) (lambda - 1/K))^2`` and any other 0; percentages are of the sum of these (Benzécri), or of
        ``K / (K - 1) (sum lambda^2 - (J - K) / K^2)`` (Greenacre; J categories). Coordinates do not change.
    unknown : "error" or "ignore"
        Treatment of categories that did not occur in the training data: raise ValueError, or compute the scores of
        such a row from its other columns.

    Attributes
    ----------
    categories_ : list of arrays
        The categories of each column, in the order of the columns of Z.
    column_names_ : list of str
        Names of the columns of Z, such as "colour__red"; the index of `column_coordinates_` if X is a data frame.
    eigenvalues_ : array of shape (n_components,)
        Inertia of each component, corrected.
    total_inertia_ : float
        Inertia of all components, without correction: ``J / K - 1``.
    percentage_of_variance_, row_coordinates_, column_coordinates_, row_contributions_, column_contributions_
        As in `CorrespondenceAnalysis`, for Z; so are its other attributes.

    See Also
    --------
    CorrespondenceAnalysis : Correspondence analysis of a table of counts.

    Notes
    -----
    Z takes five bytes an entry. A correction forms ``Z^T Z``, of J x J numbers, for the sums over all components.

    References
    ----------
    Benzécri (1979), Sur le calcul des taux d'inertie; Greenacre (2007), Correspondence Analysis in Practice.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.array(
    ...     [
    ...         ["red", "round"],
    ...         ["red", "long"],
    ...         ["green", "round"],
    ...         ["green", "long"],
    ...         ["red", "round"],
    ...     ]
    ... )
    >>> mca = ss.MultipleCorrespondenceAnalysis(correction="greenacre").fit(X)
    >>> mca.column_names_
    ['x0__green', 'x0__red', 'x1__long', 'x1__round']
    >>> mca.row_coordinates(X).shape
    (5, 2)
    """

    _: KW_ONLY
    correction: str | None = None
    unknown: str = "error"

    @as_one_fit
    def fit(self, X: Any, y: Any = None) -> Self:
        if self.correction not in CORRECTIONS:
            raise refuse("correction", 'be None, "benzecri" or "greenacre"', self.correction)
        if self.unknown not in ("error", "ignore"):
            raise refuse("unknown", 'be "error" or "ignore"', self.unknown)
        X = checked_table(self, X, reset=True)
        columns = list(self._columns_of(X))
        for name, column in columns:
            refuse_missing(name, column)
        self.categories_ = [learned_categories(name, column) for name, column in columns]
        known = zip(columns, self.categories_, strict=True)
        self.column_names_ = [f"{name}__{category}" for (name, _), own in known for category in own]
        Z = self._indicators(X)
        self._fit(Z, labels_of(X)[0], self._column_names(X))
        if self.correction is not None:
            self._correct(Z)
        return self

    def _correct(self, Z: Operator) -> None:
        J, K = Z.shape[1], self.n_features_in_
        if K < 2:
            raise Refused(f"a correction needs at least 2 columns, got {K}. Use ", Setting("correction", None), ".")
        affordable(24 * J * J, self.memory_limit, f"correcting for {J} categories")
        with threads(Z.costs.n_threads):
            everything = np.linalg.eigvalsh(gram_matrix(independent(Z)[0]))
        if self.correction == "benzecri":
            total = float(_adjusted(everything, K).sum())
        else:
            total = K / (K - 1) * (float(np.sum(everything**2)) - (np.count_nonzero(self.column_masses_) - K) / K**2)
        self.eigenvalues_ = _adjusted(self.eigenvalues_, K)
        self.percentage_of_variance_ = 100 * self.eigenvalues_ / total if total > 0 else 0 * self.eigenvalues_

    def _table(self, X: Any, reset: bool = False) -> Operator:
        if not reset:
            check_is_fitted(self, "categories_")
        return self._indicators(checked_table(self, X, reset))

    def _columns(self, X: Any) -> Operator:
        return self._table(X)

    def _column_names(self, X: Any) -> Any:
        return self.column_names_ if is_pandas(X) else None

    def _columns_of(self, X: Any) -> Iterator[tuple[str, Any]]:
        return columns_of(X, getattr(self, "feature_names_in_", None))

    def _indicators(self, X: Any) -> Operator:
        sizes = [len(known) for known in self.categories_]
        first = np.concatenate([[0], np.cumsum(sizes)])
        indices = np.empty((X.shape[0], len(sizes)), np.int32)
        for j, (name, column) in enumerate(self._columns_of(X)):
            codes = codes_of(column, self.categories_[j])
            absent = codes < 0
            if absent.any():
                refuse_missing(name, column)
                if self.unknown == "error":
                    remedy = " to compute the scores of such rows from their other columns."
                    refuse_unknown(name, column, absent, "Use ", Setting("unknown", "ignore"), remedy)
            np.add(codes, first[j], out=indices[:, j], casting="unsafe")
            indices[absent, j] = -1
        there = indices >= 0
        indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        kept = indices.ravel() if there.all() else indices[there]
        Z = csr_array((np.ones(len(kept), np.int8), kept, indptr), shape=(len(indices), int(first[-1])))
        return as_operator(Z, **vars(self._resources))

    @property
    def _tags(self) -> dict[str, Any]:
        return {"categorical": True, "string": True, "preserves_dtype": []}


def _adjusted(eigenvalues: Vector, K: int) -> Vector:
    return np.where(eigenvalues > 1 / K, (K / (K - 1) * (eigenvalues - 1 / K)) ** 2, 0)
