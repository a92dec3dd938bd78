"""Factor analysis of mixed data: PCA of standardized numbers and weighted indicators of categories, kept sparse."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array
from sklearn.utils.validation import check_is_fitted

from shiftsvd.errors import Part, Setting, refuse
from shiftsvd.estimators import supplementary as tables
from shiftsvd.estimators.attributes import cosines, is_pandas, labelled, labels_of
from shiftsvd.estimators.features import Components, checked_table
from shiftsvd.estimators.pca import PCA
from shiftsvd.estimators.settings import as_one_fit
from shiftsvd.estimators.supplementary import Categories, Codes, Column, Numbers
from shiftsvd.names import SolverName
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel
from shiftsvd.result import Info
from shiftsvd.runs.messages import warn
from shiftsvd.solvers import Solver

ROWS = 256  # categories whose distances from the centre are computed at a time
FEW = 10  # different categories in as many rows from which they are taken for identifiers


@dataclass(eq=False, repr=False)
class FAMD(Components):
    """Factor analysis of mixed data: principal components of numbers and categories together.

    Columns of numbers are divided by their standard deviation. Each category becomes a column of zeros and ones,
    divided by the square root of its frequency. All columns are centred: a column of numbers then has inertia 1, a
    column of K categories K - 1. Indicators stay sparse, because the means are a low-rank shift.

    X is a data frame of pandas, polars or pyarrow, or an array, of shape (n_rows, n_columns). Texts, truth values and
    declared categories are categories; convert codes such as 1, 2, 3 with ``astype("category")``.

    Parameters
    ----------
    n_components : int, float in (0, 1) or None
        As in `PCA`.
    missing : "error" or "mean"
        Treatment of missing values, in new rows too: raise ValueError, or put a row at the centre of this column.
        Means, deviations and frequencies are those of the observed values.
    unknown : "error" or "ignore"
        Treatment of categories that did not occur in the training data: raise ValueError, or put such a row at the
        centre of this column.
    solver, tol, random_state, n_threads, memory_limit : optional
        As in `PCA`.

    Attributes
    ----------
    eigenvalues_ : array of shape (n_components,)
        Variances of the scores, with divisor n_rows.
    total_inertia_ : float
        Sum of all eigenvalues: 1 for each column of numbers, K - 1 for each column of K categories.
    percentage_of_variance_ : array of shape (n_components,)
        ``100 eigenvalues_ / total_inertia_``.
    column_coordinates_ : array or DataFrame of shape (n_encoded, n_components)
        Correlations of numbers with the scores; for categories, the mean of the scores of their rows (barycentre).
    column_contributions_ : array or DataFrame of shape (n_encoded, n_components)
        Share of each number and category in the eigenvalue of a component.
    correlation_ratios_ : array or DataFrame of shape (n_columns, n_components)
        Share of the variance of the scores that a column explains: the squared correlation of numbers, the squared
        correlation ratio of categories. The sum over the columns is the eigenvalue.
    column_names_ : list of str
        Names of the encoded columns, such as "age" and "town__Pau".
    categories_ : list of arrays
        The categories of each column that occur; empty for numbers.
    mean_, scale_ : array of shape (n_encoded,)
        Mean and standard deviation of numbers; frequency of a category and its square root.
    pca_ : PCA
        The analysis of the encoded columns.
    components_, singular_values_, info_, n_features_in_, feature_names_in_
        As in `PCA`; the components are those of the encoded columns.

    See Also
    --------
    MultipleCorrespondenceAnalysis : Categories alone.
    supplementary : Place columns that take no part.

    Notes
    -----
    Coordinates, contributions and squared cosines equal those of FAMD in the R package FactoMineR, whose contributions
    are percentages. The Python package prince returns ``barycentre * sqrt(frequency / eigenvalue)`` as coordinates of
    categories. The encoded table takes twelve bytes for each entry of X. A fit costs the passes of `PCA` and one more.

    References
    ----------
    Pagès (2004), Analyse factorielle de données mixtes; Escofier (1979); Kiers (1991).

    Examples
    --------
    >>> import pandas as pd, shiftsvd as ss
    >>> survey = pd.DataFrame({"age": [23, 45, 31, 52], "pet": ["cat", "dog", "cat", "ant"]})
    >>> famd = ss.FAMD(2).fit(survey)
    >>> famd.column_names_, round(famd.total_inertia_, 9)
    (['age', 'pet__ant', 'pet__cat', 'pet__dog'], 3.0)
    >>> famd.transform(survey).shape
    (4, 2)
    """

    n_components: int | float | None = 2
    _: KW_ONLY
    missing: Literal["error", "mean"] = "error"
    unknown: Literal["error", "ignore"] = "error"
    solver: SolverName | Solver = "auto"
    tol: float | None = None
    random_state: Any = None
    n_threads: int | None = None
    memory_limit: int | str | None = None

    def fit_transform(self, X: Any, y: Any = None) -> Panel:
        return self._fit(X)

    def transform(self, X: Any) -> Panel:
        return self.pca_.transform(self._encoded(self._read(X)))

    @as_one_fit
    def row_contributions(self, X: Any) -> Any:
        """Return the share of each row of the training data in the eigenvalue of each component.

        Parameters
        ----------
        X : data frame or array of shape (n_rows, n_columns)
            The rows of the fit. For other rows, the share that such a row would have next to them.

        Returns
        -------
        array, or DataFrame if X is one of pandas, of shape (n_rows, n_components)
            Shares; over all rows of the fit they sum to 1.
        """
        return labelled(self.pca_.row_contributions(self._encoded(self._read(X))), labels_of(X)[0])

    @as_one_fit
    def row_cosine_similarities(self, X: Any) -> Any:
        """Return squared cosines: the share of each component in a row's squared distance from the centre.

        Parameters
        ----------
        X : data frame or array of shape (n_rows, n_columns)
            Rows with the columns of the fit.

        Returns
        -------
        array, or DataFrame if X is one of pandas, of shape (n_rows, n_components)
            The squared cosines of each row.
        """
        return labelled(self.pca_.row_cosine_similarities(self._encoded(self._read(X))), labels_of(X)[0])

    @as_one_fit
    def column_cosine_similarities(self, X: Any) -> Any:
        """Return squared cosines of the columns.

        Those of numbers are squared correlations; those of a category are the shares of the components in the squared
        distance of its barycentre from the centre.

        Parameters
        ----------
        X : data frame or array of shape (n_rows, n_columns)
            The rows of the fit, whose barycentres in all encoded columns are computed.

        Returns
        -------
        array, or DataFrame if X is one of pandas, of shape (n_encoded, n_components)
            The squared cosines of each encoded column.
        """
        columns, m = self._read(X), self.pca_.n_samples_
        if len(columns[0]) != m:
            raise ValueError(f"X must have the {m:,} rows of the fit, got {len(columns[0]):,}")
        Z, coordinates = self._encoded(columns), np.asarray(self.column_coordinates_)
        squares = coordinates**2
        for column, first in zip(columns, self._firsts, strict=True):
            if isinstance(column, Categories):
                distances = self._squared_distances(Z, column)
                part = slice(first, first + len(distances))
                squares[part] = cosines(coordinates[part], distances)
        return labelled(squares, self.column_names_ if is_pandas(X) else None)

    @as_one_fit
    def _fit(self, X: Any) -> Panel:
        for name, least, most in (("missing", "error", "mean"), ("unknown", "error", "ignore")):
            if getattr(self, name) not in (least, most):
                raise refuse(name, f'be "{least}" or "{most}"', getattr(self, name))
        X = checked_table(self, X, reset=True, least=2)
        columns = list(self._learned(X))
        self.categories_ = [column.known if isinstance(column, Categories) else np.empty(0) for column in columns]
        moments = [_moments(column) for column in columns]
        self.mean_, self.scale_ = (np.concatenate(parts) for parts in list(zip(*moments, strict=True))[:2])
        self.total_inertia_ = float(sum(inertia for *_, inertia in moments))
        Z = self._encoded(columns)
        settings = ("solver", "tol", "random_state", "n_threads", "memory_limit")
        self.pca_ = PCA(self.n_components, **{name: getattr(self, name) for name in settings}).fit(Z)
        scores = self.pca_.transform(Z)
        self.eigenvalues_ = self.singular_values_**2 / Z.shape[0]
        total = self.total_inertia_
        self.percentage_of_variance_ = 100 * self.eigenvalues_ / (total if total > 0 else 1)
        sums = tables.Sums(columns, scores.shape[1])
        sums.add(0, scores)
        found = sums.result(tables.JOIN, framed=is_pandas(X))
        self.column_names_, self.column_coordinates_ = found.names, found.coordinates
        self.column_contributions_ = labelled(self.components_.T**2, found.names if is_pandas(X) else None)
        self.correlation_ratios_ = found.correlation_ratios
        return scores

    @property
    def components_(self) -> Panel:
        """Loadings of the scaled columns, of shape (n_components, n_columns)."""
        return self.pca_.components_

    @property
    def singular_values_(self) -> Vector:
        """Singular values of the scaled table, of shape (n_components,)."""
        return self.pca_.singular_values_

    @property
    def info_(self) -> Info:
        """Passes, error bounds and solver of the fit."""
        return self.pca_.info_

    @property
    def _firsts(self) -> Vector:
        return np.cumsum([0, *(max(1, len(known)) for known in self.categories_[:-1])])

    def _columns_of(self, X: Any) -> Iterator[tuple[str, Any]]:
        return tables.columns_of(X, vars(self).get("feature_names_in_"))

    def _learned(self, X: Any) -> Iterator[Column]:
        for name, column in self._columns_of(X):
            if tables.missing_in(column).all():
                raise ValueError(f"column {name} has no observed values. Remove the column.")
            self._refuse_missing(name, column)
            found = tables.read_column(name, column)
            if isinstance(found, Categories):
                counts = np.bincount(found.codes[found.codes >= 0], minlength=len(found.known))
                if len(found.known) == counts.sum() >= FEW:
                    warn(f"Column {name} has a different category in each row. Remove columns of identifiers.")
                places = np.where(counts > 0, np.cumsum(counts > 0) - 1, -1)
                found = Categories(name, np.where(found.codes < 0, -1, places[found.codes]), found.known[counts > 0])
            yield found

    def _read(self, X: Any) -> list[Column]:
        check_is_fitted(self, "pca_")
        return list(self._known(checked_table(self, X, reset=False)))

    def _known(self, X: Any) -> Iterator[Column]:
        for (name, column), known in zip(self._columns_of(X), self.categories_, strict=True):
            self._refuse_missing(name, column)
            missing = tables.missing_in(column)
            if len(known):
                codes = tables.codes_of(column, known)
                if self.unknown == "error":
                    remedy: tuple[Part, ...] = ("Use ", Setting("unknown", "ignore"), " to put them at the centre.")
                    tables.refuse_unknown(name, column, (codes < 0) & ~missing, *remedy)
                yield Categories(name, codes, known)
            else:
                if not missing.all() and tables.is_categorical(name, column):
                    raise ValueError(f"column {name} must have numbers, as in the training data, got categories.")
                yield Numbers.of(name, column)

    def _refuse_missing(self, name: str, column: Any) -> None:
        if self.missing == "error":
            tables.refuse_missing(name, column, "Remove these rows, or use ", Setting("missing", "mean"), ".")

    def _encoded(self, columns: list[Column]) -> csr_array:
        shape = len(columns[0]), len(columns)
        indices, data = np.empty(shape, np.int32), np.empty(shape)
        filled = [csr_array((shape[0], len(self.scale_)))]
        for j, (column, first) in enumerate(zip(columns, self._firsts, strict=True)):
            if isinstance(column, Numbers):
                data[:, j] = np.nan_to_num((column.values - self.mean_[first]) / self.scale_[first], nan=0.0)
                indices[:, j] = first
                continue
            roots = self.scale_[first : first + len(column.known)]
            data[:, j], indices[:, j] = (1 / roots)[column.codes], first + column.codes
            if len(absent := np.flatnonzero(column.codes < 0)):
                indices[absent, j] = -1
                filled.append(_at_centre(absent, roots, first, filled[0].shape))
        there = indices >= 0
        indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        parts = (data.ravel(), indices.ravel()) if there.all() else (data[there], indices[there])
        Z = csr_array((*parts, indptr), shape=filled[0].shape)
        return Z if len(filled) == 1 else sum(filled, Z)

    def _squared_distances(self, Z: csr_array, column: Categories) -> Vector:
        """Return the squared distances of the barycentres of the categories from the centre, in the encoded columns."""
        rows = np.flatnonzero(column.codes >= 0)
        codes, size = column.codes[rows], len(column.known)
        counts = np.bincount(codes, minlength=size)
        sums = csr_array((np.ones(len(rows)), (codes, rows)), shape=(size, Z.shape[0])) @ Z
        centre = np.asarray(self.pca_.mean_)
        blocks = (slice(lo, lo + ROWS) for lo in range(0, size, ROWS))
        apart = (sums[block].toarray() / np.maximum(counts[block], 1)[:, None] - centre for block in blocks)
        return np.concatenate([(block**2).sum(axis=1) for block in apart])

    @property
    def _tags(self) -> dict[str, Any]:
        return {"categorical": True, "string": True, "allow_nan": self.missing == "mean", "preserves_dtype": []}


def _moments(column: Column) -> tuple[Vector, Vector, float]:
    """Return means, divisors and the inertia of the encoded columns."""
    if isinstance(column, Numbers):
        there = ~np.isnan(column.values)
        mean, deviation = tables.mean_and_deviation(column.values[there])
        if deviation == 0:
            warn(f"Column {column.name} is constant and was not scaled.")
        return np.array([mean]), np.array([deviation or 1.0]), (deviation > 0) * float(there.mean())
    counts = np.bincount(column.codes[column.codes >= 0])
    frequencies = counts / counts.sum()
    return frequencies, np.sqrt(frequencies), (len(counts) - 1) * float(counts.sum() / len(column))


def _at_centre(rows: Codes, roots: Vector, first: int, shape: tuple[int, int]) -> csr_array:
    """Return the mean of each indicator in these rows, so that nothing is left when the mean is subtracted."""
    places = np.tile(np.arange(first, first + len(roots)), len(rows))
    return csr_array((np.tile(roots, len(rows)), (np.repeat(rows, len(roots)), places)), shape=shape)
