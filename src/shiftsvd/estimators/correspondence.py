"""Correspondence analysis of a table, and multiple correspondence analysis of categories; nothing is formed."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from shiftsvd.algebra.generic import gram_matrix, least
from shiftsvd.backends import as_operator
from shiftsvd.backends.validation import before_sklearn
from shiftsvd.estimators.features import Components, counted, is_pandas, is_unread, labelled, labels_of, validated
from shiftsvd.estimators.settings import as_one_fit, random_generator, tolerance
from shiftsvd.front import decompose
from shiftsvd.kernels import threads
from shiftsvd.names import SolverName
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import unmasked
from shiftsvd.numerics.powers import check_size
from shiftsvd.operators import LowRank, Operator, Panel, Scaled
from shiftsvd.runs.memory import affordable
from shiftsvd.solvers import Solver
from shiftsvd.solvers.auto import check_solver


@dataclass(eq=False, repr=False)
class CorrespondenceAnalysis(Components):
    """Rows and columns of a table of counts as points: ``D_r^-1/2 (P - r c^T) D_c^-1/2 = U S V^T``.

    P is the table divided by its total, r and c are its row and column sums. The expectation ``r c^T`` is a
    low-rank shift, so that a sparse table stays sparse.

    Parameters
    ----------
    n_components : int
        How many dimensions to find.
    solver : str or Solver
        As in `svd`.
    tol : float, optional
        Relative accuracy of the singular values, for solvers given by name. Default 1e-4.
    random_state : int, Generator, RandomState or None
        None is fresh entropy; the global state is never read.
    n_threads : int, optional
        Default: the cores that this process may use. The result does not depend on it.
    memory_limit : int (bytes) or str such as "2GB", optional
        Default: half of the available memory. What would need more is refused.

    Attributes
    ----------
    eigenvalues_ : array of shape (n_components,)
        Inertia of each component: the squared singular values.
    total_inertia_ : float
        Of all components: chi-square of the table divided by its total.
    percentage_of_variance_ : array of shape (n_components,)
        ``100 eigenvalues_ / total_inertia_``.
    row_coordinates_, column_coordinates_ : array or DataFrame of shape (n_rows, n_components), (n_columns, ...)
        Principal coordinates ``D_r^-1/2 U S`` and ``D_c^-1/2 V S``. Empty rows and columns are at 0.
    row_contributions_, column_contributions_ : array or DataFrame, shapes as above
        The part of a component's inertia that is due to each row or column; the parts sum to 1.
    row_masses_, column_masses_ : array of shape (n_rows,), (n_columns,)
        r and c.
    components_ : array of shape (n_components, n_columns)
        ``V^T``; the largest entry of each is positive.
    n_features_in_ : int
    feature_names_in_ : array of str
        If the table was a data frame.
    info_ : Info
        Solver, passes, rank, and what is known of the accuracy.

    See Also
    --------
    MultipleCorrespondenceAnalysis : Of columns of categories.

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
        """Find the components of a table.

        Parameters
        ----------
        X : array, sparse matrix, data frame, Dask array or Operator of shape (n_rows, n_columns)
            Counts, or other numbers of at least 0 (of an operator, only their sums are looked at).
        y : ignored
            Not used; there for scikit-learn.

        Returns
        -------
        CorrespondenceAnalysis
            The fitted estimator itself.

        Raises
        ------
        ValueError
            For negative numbers, an empty table, or settings that cannot be.
        """
        check_solver(self.solver, self.n_components)
        A = self._table(X, reset=True)
        self._fit(A, labels_of(X)[0], self._column_names(X))
        return self

    def _fit(self, A: Operator, rows: Any, columns: Any) -> None:
        k = _components(self.n_components, A.shape)
        tol = tolerance(self.tol, self.solver)
        rng = random_generator(self.random_state)
        B, r, c = independent(A)
        inertia = B.frobenius_norm()
        if inertia is None:
            raise ValueError(f"the total inertia needs the squares of the entries, which {A} cannot give; use svd")
        F = decompose(B, k, self.solver, tol, rng, self.memory_limit)
        S = np.asarray(F.S, np.float64)
        # A component without inertia has no vectors, and what is empty has no part in any.
        U, V = (np.where((mass[:, None] > 0) & (S > 0), side, 0) for mass, side in ((r, np.asarray(F.U)), (c, F.Vh.T)))
        self.row_masses_, self.column_masses_ = r, c
        self.components_ = np.asarray(F.Vh, A.dtype)
        self.singular_values_ = S
        self.eigenvalues_ = S**2
        self.total_inertia_ = inertia**2
        self.percentage_of_variance_ = 100 * _share(self.eigenvalues_, self.total_inertia_)
        self.row_coordinates_ = labelled((_power(r, -0.5)[:, None] * U * S).astype(A.dtype), rows)
        self.column_coordinates_ = labelled((_power(c, -0.5)[:, None] * V * S).astype(A.dtype), columns)
        self.row_contributions_, self.column_contributions_ = labelled(U**2, rows), labelled(V**2, columns)
        self.info_ = F.info

    def row_coordinates(self, X: Any) -> Any:
        """Principal coordinates of rows, of the fitted table or further ones with the same columns.

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

    def fit_transform(self, X: Any, y: Any = None) -> Panel:
        """``fit(X).transform(X)``: principal coordinates of the rows, shape (n_rows, n_components)."""
        return self.fit(X).transform(X)

    def transform(self, X: Any) -> Panel:
        """`row_coordinates` as an array, or as `set_output` says.

        Parameters
        ----------
        X : array, sparse matrix, data frame, Dask array or Operator of shape (n_rows, n_columns)
            Rows with the columns of the fit.

        Returns
        -------
        array of shape (n_rows, n_components)
            The principal coordinates of each row; a data frame where `set_output` says so.
        """
        return self._project(X)

    @as_one_fit
    def row_cosine_similarities(self, X: Any) -> Any:
        """Squared cosines: how much of a row's squared distance from the centre each component shows.

        Parameters
        ----------
        X : array, sparse matrix, data frame, Dask array or Operator of shape (n_rows, n_columns)
            Rows with the columns of the fit.

        Returns
        -------
        array, or DataFrame if X is one, of shape (n_rows, n_components)
            The share of each component in the squared distance of a row from the centre.
        """
        check_is_fitted(self, "components_")
        profiles = self._row_profiles(self._table(X, reset=False))
        return labelled(_cosines(profiles, self.components_.T), labels_of(X)[0])

    @as_one_fit
    def column_coordinates(self, X: Any) -> Any:
        """Principal coordinates of columns, of the fitted table or further ones with the same rows.

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
        """Squared cosines: how much of a column's squared distance from the centre each component shows.

        Parameters
        ----------
        X : array, sparse matrix, data frame, Dask array or Operator of shape (n_rows, any number)
            The table that was fitted, or columns over its rows.

        Returns
        -------
        array, or DataFrame if X is one, of shape (n_columns, n_components)
            The share of each component in the squared distance of a column from the centre.
        """
        profiles, U = self._column_profiles(X)
        return labelled(_cosines(profiles, U), self._column_names(X))

    @as_one_fit
    def _project(self, X: Any) -> Panel:
        check_is_fitted(self, "components_")
        A = self._table(X, reset=False)
        F = self._row_profiles(A).matmat(self.components_.T.astype(np.float64))
        return np.asarray(F, A.dtype)

    def _row_profiles(self, A: Operator) -> Scaled:
        c = self.column_masses_
        sums = A.matmat((c > 0).astype(np.float64)[:, None])[:, 0]  # a column without mass is as if it were not there
        _check_sums(sums)
        return Scaled(A - LowRank(sums, c), _power(sums, -1), _power(c, -0.5))

    def _column_profiles(self, X: Any) -> tuple[Scaled, Panel]:
        check_is_fitted(self, "components_")
        A = self._columns(X)
        r, S = self.row_masses_, self.singular_values_
        if A.shape[0] != len(r):
            raise ValueError(f"columns must have the {len(r)} rows of the fitted table, got {A.shape[0]}")
        sums = A.rmatmat((r > 0).astype(np.float64)[:, None])[:, 0]
        _check_sums(sums)
        profiles = Scaled(A - LowRank(r, sums), _power(r, -0.5), _power(sums, -1)).H
        return profiles, np.sqrt(r)[:, None] * np.asarray(self.row_coordinates_) * _power(S, -1)

    def _table(self, X: Any, reset: bool) -> Operator:
        return self._checked(counted(self, X, reset) if is_unread(X) else validated(self, X, reset))

    def _columns(self, X: Any) -> Operator:
        kinds = ("csr", "csc")
        return self._checked(
            X if is_unread(X) else check_array(before_sklearn(X), accept_sparse=kinds, ensure_all_finite=False)
        )

    def _checked(self, X: Any) -> Operator:
        A = as_operator(X, **vars(self._resources))
        entries = X.data if hasattr(X, "nnz") else X
        smallest = least(A) if is_unread(X) else entries.min(initial=0)
        if smallest is not None and smallest < 0:
            raise ValueError(
                f"Negative values in data passed to {type(self).__name__}: a table must hold counts or other "
                f"numbers of at least 0, got {smallest}"
            )
        return A

    def _column_names(self, X: Any) -> Any:
        return labels_of(X)[1]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags


def _components(k: Any, shape: tuple[int, int]) -> int:
    most = min(shape)
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= most:
        raise ValueError(
            f"n_components must be an integer in 1..{most} for a table of {shape[0]} x {shape[1]}, got {k!r}"
        )
    return int(k)


def independent(A: Operator) -> tuple[Scaled, Vector, Vector]:
    rows, columns = _sums(A)
    total = float(rows.sum())
    if not total > 0:
        raise ValueError("a table must hold something, got one whose sum is 0")
    _check_sums(rows)
    _check_sums(columns)
    c = columns / total
    return Scaled(A - LowRank(rows, c), _power(rows, -0.5), _power(columns, -0.5)), rows / total, c


def _sums(A: Operator) -> tuple[Vector, Vector]:
    with threads(A.costs.n_threads):
        rows, columns = (np.asarray(T.matmat(np.ones((T.shape[1], 1)))[:, 0]) for T in (A, A.H))
    for name, sums in (("row", rows), ("column", columns)):
        if np.any(sums < 0):
            raise ValueError(f"a table must hold no negative numbers, got {int((sums < 0).sum())} negative {name} sums")
    return rows, columns


def _check_sums(sums: Vector) -> None:
    for size in (sums.max(initial=0), sums.min(where=sums > 0, initial=1)):
        check_size("sums of the rows and columns of a table", float(size))


def _power(x: Vector, p: float) -> Vector:
    return np.where(x > 0, np.where(x > 0, x, 1) ** p, 0)


def _share(values: Vector, total: float) -> Vector:
    return values / total if total > 0 else np.zeros_like(values)


def _cosines(profiles: Operator, V: Panel) -> Panel:
    coordinates, squares = profiles.matmat(V), profiles.row_squares()
    if squares is None:
        raise ValueError(f"cosines need the squares of the entries, which {profiles} cannot give")
    return np.asarray(coordinates**2 * _power(squares, -1)[:, None])


CORRECTIONS = (None, "benzecri", "greenacre")


@dataclass(eq=False, repr=False)
class MultipleCorrespondenceAnalysis(CorrespondenceAnalysis):
    """Correspondence analysis of the indicator matrix Z of categorical columns, one entry a row and column.

    Parameters
    ----------
    n_components : int
        How many dimensions to find.
    solver : str or Solver
        As in `svd`.
    tol : float, optional
        Relative accuracy of the singular values, for solvers given by name. Default 1e-4.
    random_state : int, Generator, RandomState or None
        As in `PCA`.
    n_threads : int, optional
        Default: the cores that this process may use. The result does not depend on it.
    memory_limit : int (bytes) or str such as "2GB", optional
        Default: half of the available memory. What would need more is refused.
    correction : None, "benzecri" or "greenacre"
        Indicators inflate the inertia. With K columns, an eigenvalue above 1/K becomes
        ``(K / (K - 1) (lambda - 1/K))^2`` and any other 0; percentages are of the sum of these (Benzécri), or of
        ``K / (K - 1) (sum lambda^2 - (J - K) / K^2)`` (Greenacre; J categories). Coordinates stay as they are.
    unknown : "error" or "ignore"
        What `transform` does with a category that was not seen: refuse it, or place the row by its other columns.

    Attributes
    ----------
    categories_ : list of arrays
        The categories of each column, in the order of the columns of Z.
    column_names_ : list of str
        Of the columns of Z, such as "colour__red"; the index of `column_coordinates_` where the data are a frame.
    eigenvalues_ : array of shape (n_components,)
        Inertia of each component, corrected.
    total_inertia_ : float
        Of all components, not corrected: ``J / K - 1``.
    percentage_of_variance_, row_coordinates_, column_coordinates_, row_contributions_, column_contributions_
        And the others of `CorrespondenceAnalysis`, of Z.

    See Also
    --------
    CorrespondenceAnalysis : Of a table of counts.

    Notes
    -----
    Z takes five bytes an entry. A correction forms ``Z^T Z``, of J x J numbers, for the sums over all components.

    References
    ----------
    Benzécri (1979), Sur le calcul des taux d'inertie; Greenacre (2007), Correspondence Analysis in Practice.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.array([["red", "round"], ["red", "long"], ["green", "round"], ["green", "long"], ["red", "round"]])
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
        """Find the components of categories.

        Parameters
        ----------
        X : data frame or array of shape (n_rows, n_columns)
            Every distinct value is a category; the declared ones of pandas' categorical columns are.
        y : ignored

        Returns
        -------
        MultipleCorrespondenceAnalysis

        Raises
        ------
        ValueError
            For missing values, or settings that cannot be.
        """
        if self.correction not in CORRECTIONS:
            raise ValueError(f'correction must be None, "benzecri" or "greenacre", got {self.correction!r}')
        if self.unknown not in ("error", "ignore"):
            raise ValueError(f'unknown must be "error" or "ignore", got {self.unknown!r}')
        X = self._categories(X, reset=True)
        names = [name for name, _ in self._columns_of(X)]
        self.categories_ = [_learned(name, column) for name, column in self._columns_of(X)]
        self.column_names_ = [
            f"{name}__{category}" for name, known in zip(names, self.categories_, strict=True) for category in known
        ]
        Z = self._indicators(X)
        self._fit(Z, labels_of(X)[0], self._column_names(X))
        if self.correction is not None:
            self._correct(Z)
        return self

    def column_coordinates(self, X: Any) -> Any:
        """Principal coordinates of the categories of the fitted columns, for rows like the fitted ones.

        Parameters
        ----------
        X : data frame or array of shape (n_rows, n_columns)

        Returns
        -------
        array, or DataFrame if X is one, with a row for each category
        """
        return super().column_coordinates(X)

    def _correct(self, Z: Operator) -> None:
        J, K = Z.shape[1], self.n_features_in_
        if K < 2:
            raise ValueError(f"a correction needs at least 2 columns, got {K}; use correction=None")
        affordable(24 * J * J, self.memory_limit, f"correcting for {J} categories")
        with threads(Z.costs.n_threads):
            everything = np.linalg.eigvalsh(gram_matrix(independent(Z)[0]))
        if self.correction == "benzecri":
            total = float(_adjusted(everything, K).sum())
        else:
            total = K / (K - 1) * (float(np.sum(everything**2)) - (np.count_nonzero(self.column_masses_) - K) / K**2)
        self.eigenvalues_ = _adjusted(self.eigenvalues_, K)
        self.percentage_of_variance_ = 100 * self.eigenvalues_ / total if total > 0 else 0 * self.eigenvalues_

    def _table(self, X: Any, reset: bool) -> Operator:
        return self._indicators(self._categories(X, reset))

    def _columns(self, X: Any) -> Operator:
        return self._table(X, reset=False)

    def _column_names(self, X: Any) -> Any:
        return self.column_names_ if is_pandas(X) else None

    def _categories(self, X: Any, reset: bool) -> Any:
        if not reset:
            check_is_fitted(self, "categories_")
        if is_pandas(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            if not len(X):
                raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required")
            return X
        unmasked("categories", X, "give them a category of their own")
        return validate_data(self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan")

    def _names(self) -> list[str]:
        return [str(name) for name in getattr(self, "feature_names_in_", map("x{}".format, range(self.n_features_in_)))]

    def _columns_of(self, X: Any) -> Iterator[tuple[str, Any]]:
        if is_pandas(X):
            yield from ((str(name), X.iloc[:, j]) for j, name in enumerate(X.columns))
        else:
            yield from ((name, X[:, j]) for j, name in enumerate(self._names()))

    def _indicators(self, X: Any) -> Operator:
        m = X.shape[0]
        sizes = [len(known) for known in self.categories_]
        first = np.concatenate([[0], np.cumsum(sizes)])
        indices = np.empty((m, len(sizes)), np.int32)
        absent = np.zeros(m, np.int64)
        for j, (name, column) in enumerate(self._columns_of(X)):
            codes = _codes(column, self.categories_[j])
            if (codes < 0).any():
                _refuse_missing(name, column)
                if self.unknown == "error":
                    _refuse_unknown(name, column, codes)
                absent += codes < 0
            np.add(codes, first[j], out=indices[:, j], casting="unsafe")
            indices[codes < 0, j] = -1
        indptr = np.concatenate([[0], np.cumsum(len(sizes) - absent)])
        kept = indices[indices >= 0] if absent.any() else indices.ravel()
        Z = csr_array((np.ones(len(kept), np.int8), kept, indptr), shape=(m, int(first[-1])))
        return as_operator(Z, **vars(self._resources))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.positive_only = False
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def _adjusted(eigenvalues: Vector, K: int) -> Vector:
    return np.where(eigenvalues > 1 / K, (K / (K - 1) * (eigenvalues - 1 / K)) ** 2, 0)


def _learned(name: str, column: Any) -> Any:
    _refuse_missing(name, column)
    if is_pandas(column):
        import pandas as pd

        return pd.Categorical(column).categories
    try:
        return np.unique(column)
    except TypeError as error:
        raise TypeError(f"column {name}: categories argument must be a string or a number each: {error}") from None


def _codes(column: Any, known: Any) -> Panel:
    if is_pandas(known):
        return np.asarray(known.get_indexer(column))
    known = np.asarray(known)
    place = np.minimum(np.searchsorted(known, column), len(known) - 1)
    return np.where(known[place] == column, place, -1)


def _refuse_missing(name: str, column: Any) -> None:
    n = _missing(column)
    if n:
        raise ValueError(
            f"column {name} holds {n} missing or infinite values (NaN, inf, None); drop them, or fill them with a "
            "category of their own"
        )


def _missing(column: Any) -> int:
    values = column if is_pandas(column) else np.asarray(column)
    if values.dtype.kind == "f":
        return int((~np.isfinite(values)).sum())
    if is_pandas(column):
        return int(column.isna().sum())
    return sum(x is None or x != x for x in values) if values.dtype.kind == "O" else 0


def _refuse_unknown(name: str, column: Any, codes: Panel) -> None:
    value = np.asarray(column)[codes < 0][0]
    raise ValueError(
        f"column {name} holds {int((codes < 0).sum())} values of categories that were not in the fitted data, such as "
        f'{value!r}; use unknown="ignore" to place their rows by the other columns'
    )
