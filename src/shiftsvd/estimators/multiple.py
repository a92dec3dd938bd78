"""Multiple correspondence analysis: correspondence analysis of categories, of which the indicators stay sparse."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array
from sklearn.utils.validation import check_is_fitted, validate_data

from shiftsvd.algebra.generic import gram_matrix
from shiftsvd.backends import as_operator
from shiftsvd.estimators.correspondence import CorrespondenceAnalysis, independent
from shiftsvd.estimators.labels import is_pandas, labels_of
from shiftsvd.estimators.threaded import as_one_fit
from shiftsvd.kernels import threads
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import unmasked
from shiftsvd.operators import Operator, Panel
from shiftsvd.runs.memory import affordable

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
