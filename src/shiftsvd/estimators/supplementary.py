"""Columns of tables, and their positions: correlations of numbers with scores, barycentres of categories."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from numbers import Number
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from shiftsvd.backends.validation import unmasked_matrix
from shiftsvd.errors import Part, Refused
from shiftsvd.estimators.attributes import is_pandas, is_table, labelled
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.operators import Panel

Codes = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

_UNNAMED: tuple[Part, ...] = ("Remove these rows, or give missing values a category of their own.",)


def columns_of(X: Any, names: Any = None) -> Iterator[tuple[str, Any]]:
    """Yield the name and the values of each column: a Series of pandas, or an array."""
    if is_pandas(X):
        yield from ((str(name), X.iloc[:, j]) for j, name in enumerate(X.columns))
    elif is_table(X):
        columns = X.columns if hasattr(X.columns[0], "to_numpy") else X.get_columns()  # of pyarrow, of polars
        found = X.column_names if hasattr(X, "column_names") else X.columns
        yield from ((str(name), column.to_numpy()) for name, column in zip(found, columns, strict=True))
    else:
        names = [f"x{j}" for j in range(X.shape[1])] if names is None else names
        yield from ((str(name), X[:, j]) for j, name in enumerate(names))


def is_categorical(name: str, column: Any) -> bool:
    """Return True for texts, truth values and declared categories, False for numbers; raise for other columns."""
    kind = column.dtype.kind
    if hasattr(column, "cat") or kind in "bUST":
        return True
    if kind in "mM":
        raise _no_dates(name)
    if kind == "c":
        raise ValueError(f"Complex data not supported: column {name} has dtype {column.dtype}.")
    if kind in "iuf":
        return False
    values = np.asarray(column, object)[~missing_in(column)]
    if any(isinstance(value, date) for value in values):
        raise _no_dates(name)
    are_numbers = [isinstance(value, Number) and not isinstance(value, bool) for value in values]
    if any(are_numbers) and not all(are_numbers):
        one, other = values[are_numbers.index(True)], values[are_numbers.index(False)]
        raise ValueError(
            f"column {name} has numbers and other values, such as {one!r} and {other!r}. Convert the column with "
            "astype(str) for categories, or replace the other values by numbers or NaN."
        )
    return not any(are_numbers)


def _no_dates(name: str) -> ValueError:
    return ValueError(f"column {name} has dates or times. Convert the column to numbers, or remove it.")


def numbers_in(column: Any) -> Vector:
    """Return the numbers of a column as float64, NaN where they are missing."""
    if is_pandas(column):
        return np.asarray(column.to_numpy(np.float64, na_value=np.nan))
    return np.asarray(column, np.float64)  # None becomes NaN


def learned_categories(name: str, column: Any) -> Any:
    if is_pandas(column):
        import pandas as pd

        return pd.Categorical(column).categories.infer_objects()
    try:
        found = np.unique(column[~missing_in(column)])
        numbers = np.array(found.tolist()) if found.dtype.kind == "O" else found
        return numbers if numbers.dtype.kind in "biuf" else found  # not objects, so that model files can hold them
    except TypeError as error:
        raise TypeError(
            f"column {name}: every category argument must be a string or a number ({error}). Convert the column with "
            "astype(str)."
        ) from None


def codes_of(column: Any, known: Any) -> Codes:
    """Return the place of each category in `known`, and -1 for others."""
    if is_pandas(known):
        return np.asarray(known.get_indexer(column))
    known, codes, there = np.asarray(known), np.full(len(column), -1), ~missing_in(column)
    values = np.asarray(column)[there]
    with suppress(TypeError):  # texts among numbers, or numbers among texts
        place = np.minimum(np.searchsorted(known, values), len(known) - 1)
        codes[there] = np.where(known[place] == values, place, -1)
    return codes


def missing_in(column: Any) -> Mask:
    values = column if is_pandas(column) else np.asarray(column)
    if values.dtype.kind == "f":
        return np.asarray(~np.isfinite(values))
    if is_pandas(column):
        return np.asarray(column.isna())
    if values.dtype.kind != "O":
        return np.zeros(len(values), bool)
    return np.fromiter((x is None or x != x for x in values), bool, len(values))


def refuse_missing(name: str, column: Any, *remedy: Part) -> None:
    missing = missing_in(column)
    if missing.any():
        counted = f"{np.count_nonzero(missing):,} of {len(missing):,} rows. "
        what = f"column {name} has missing or infinite values (NaN, inf, None) in {counted}"
        raise Refused(what, *(remedy or _UNNAMED))


def refuse_unknown(name: str, column: Any, absent: Mask, *remedy: Part) -> None:
    """Raise an error about the rows whose categories did not occur in the training data."""
    if absent.any():
        (value, *_), count = np.asarray(column)[absent][:1].tolist(), np.count_nonzero(absent)
        raise Refused(
            f"column {name} has categories that did not occur in the training data, in {count:,} of "
            f"{len(absent):,} rows, such as {value!r}. ",
            *remedy,
        )


# ---- positions of columns


# Scores whose standard deviation is at most this number of rounding units of the largest one are noise.
NOISE: Final = 100
JOIN: Final = "__"  # between the name of a column and a category, as in `MultipleCorrespondenceAnalysis`


@dataclass(frozen=True, eq=False)
class Supplementary:
    """Positions of columns among components; made by `supplementary`.

    Parameters
    ----------
    names : list of str
        "age" for a column of numbers; "town__Pau" for each category of a column of categories.
    columns : list of str
        The column of each position.
    categories : list of str or None
        The category of each position; None for numbers.
    counts : array of shape (n,)
        Number of rows with this number or category.
    coordinates : array or DataFrame of shape (n, n_components)
        Correlations of numbers with the scores; means of the scores over the rows of a category (barycentres).
    v_tests : array or DataFrame of shape (n, n_components)
        Correlation of the numbers, or of the indicator of the category, with the scores, times the square root of the
        number of rows minus 1: beyond 2 in absolute value, a position would be rare if the column and the scores were
        unrelated.
    correlation_ratios : array or DataFrame of shape (n_columns, n_components)
        Share of the variance of the scores that the column explains: the squared correlation of numbers; the variance
        between the categories over the total variance.

    See Also
    --------
    supplementary : Makes one.

    Examples
    --------
    See `supplementary`.
    """

    names: list[str]
    columns: list[str]
    categories: list[str | None]
    counts: Vector
    coordinates: Any
    v_tests: Any
    correlation_ratios: Any


def supplementary(columns: Any, scores: Any) -> Supplementary:
    """Compute the positions of columns that took no part in a fit among its components.

    Rows without a value in a column are left out for this column. Supplementary rows need no function: `transform` of
    the fitted model places them.

    Parameters
    ----------
    columns : data frame of pandas, polars or pyarrow, or array, of shape (m, n_columns)
        Numbers or categories of the rows. Texts, truth values and declared categories are categories.
    scores : array or DataFrame of shape (m, n_components)
        Scores of these rows, as ``fit_transform`` of `PCA`, `FAMD` or another estimator returns them.

    Returns
    -------
    Supplementary
        Correlations of numbers, barycentres of categories, tests and correlation ratios; data frames if `columns` is
        one of pandas. Positions of constant columns, and on components without variance, are 0.

    Raises
    ------
    ValueError
        If the numbers of rows differ, scores are not finite, or a column holds dates, infinite values, or numbers
        among texts.

    See Also
    --------
    FAMD : Components of numbers and categories.

    Notes
    -----
    No pass over the data of the fit. Results equal `quanti.sup` and `quali.sup` of the R package FactoMineR, where
    missing values are a category of their own.

    References
    ----------
    Lebart, Morineau & Piron (2006), Statistique exploratoire multidimensionnelle; Lê, Josse & Husson (2008),
    FactoMineR: an R package for multivariate analysis.

    Examples
    --------
    >>> import numpy as np, pandas as pd, shiftsvd as ss
    >>> X = np.random.default_rng(0).standard_normal((40, 5))
    >>> pca = ss.PCA(2, random_state=0).fit(X)
    >>> more = pd.DataFrame(
    ...     {"sum": X.sum(axis=1), "side": np.where(X[:, 0] > 0, "left", "right")}
    ... )
    >>> found = ss.supplementary(more, pca.transform(X))
    >>> found.names
    ['sum', 'side__left', 'side__right']
    >>> found.coordinates.shape
    (3, 2)
    """
    Z = np.asarray(unmasked_matrix(scores))
    if Z.ndim != 2 or Z.dtype.kind not in "fiu" or not np.isfinite(Z).all():
        raise ValueError(f"scores must be finite real numbers of shape (m, n_components), got {Z.dtype} {Z.shape}")
    given = columns if is_table(columns) else np.asarray(unmasked_matrix(columns))
    given = given[:, None] if len(given.shape) == 1 else given
    if len(given.shape) != 2 or given.shape[0] != len(Z):
        raise ValueError(f"columns must have {len(Z):,} rows, as the scores have, got shape {tuple(given.shape)}")
    sums = Sums([read_column(name, column) for name, column in columns_of(given)], Z.shape[1])
    sums.add(0, Z)
    return sums.result(JOIN, framed=is_pandas(columns))


@dataclass(frozen=True, eq=False)
class Numbers:
    """A column of numbers, NaN where they are missing."""

    name: str
    values: Vector

    @classmethod
    def of(cls, name: str, column: Any) -> Self:
        values = numbers_in(column)
        if np.isinf(values).any():
            raise ValueError(f"column {name} has infinite values. Replace them by numbers or NaN.")
        return cls(name, values)

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, eq=False)
class Categories:
    """A column of categories by their codes, -1 where they are missing."""

    name: str
    codes: Codes
    known: Any  # an array, an index of pandas, or a list

    def __len__(self) -> int:
        return len(self.codes)


Column = Numbers | Categories


def read_column(name: str, column: Any) -> Column:
    if not is_categorical(name, column):
        return Numbers.of(name, column)
    known = learned_categories(name, column)
    return Categories(name, codes_of(column, known), known)


class Sums:
    """Products of columns with scores that are added block by block."""

    def __init__(self, columns: Iterable[Column], k: int) -> None:
        self._columns = [_Sum(column, k) for column in columns]
        self._eps = 0.0

    def add(self, first: int, block: Panel) -> None:
        self._eps = max(self._eps, np.finfo(block.dtype).eps if block.dtype.kind == "f" else 0)
        Z = block.astype(np.float64)
        for each in self._columns:
            each.add(slice(first, first + len(Z)), Z)

    def result(self, join: str, framed: bool = False) -> Supplementary:
        found = [each.positions(NOISE * self._eps) for each in self._columns]
        labels = [(each.name, category) for each in self._columns for category in each.labels]
        names = [name if category is None else f"{name}{join}{category}" for name, category in labels]
        counts, coordinates, tests = (np.concatenate(parts) for parts in list(zip(*found, strict=True))[:3])
        ratios = np.array([ratio for *_, ratio in found])
        tables = (coordinates, names), (tests, names), (ratios, [each.name for each in self._columns])
        framed_ones = [labelled(values, index if framed else None) for values, index in tables]
        columns, categories = [name for name, _ in labels], [category for _, category in labels]
        return Supplementary(names, columns, categories, counts, *framed_ones)


class _Sum:
    """Sums of the scores over the categories of a column, or of their products with its centred numbers."""

    def __init__(self, column: Column, k: int) -> None:
        self.name = column.name
        self.moments = Moments(0.0, np.zeros(k), np.zeros(k))
        if isinstance(column, Categories):
            self.labels: list[str | None] = [str(one) for one in column.known]
            self._codes: Codes | None = column.codes
            self._there = column.codes >= 0
            self.counts = np.bincount(column.codes[self._there], minlength=len(column.known))
        else:
            self.labels = [None]
            self._codes, self._there = None, ~np.isnan(column.values)
            self.counts = np.array([np.count_nonzero(self._there)])
            mean, deviation = mean_and_deviation(column.values[self._there])
            values = column.values
            self._values = np.zeros(len(values)) if deviation == 0 else (values - mean) / deviation
        self.products = np.zeros((len(self.labels), k))

    def add(self, rows: slice, Z: Panel) -> None:
        there = self._there[rows]
        Z = Z if there.all() else Z[there]
        if not len(Z):
            return
        mean = Z.mean(axis=0)
        self.moments = self.moments.merge(Moments(float(len(Z)), mean, ((Z - mean) ** 2).sum(axis=0)))
        if self._codes is None:
            self.products += self._values[rows][there] @ Z
            return
        codes = self._codes[rows][there]
        for j, column in enumerate(Z.T):
            self.products[:, j] += np.bincount(codes, column, minlength=len(self.labels))

    def positions(self, noise: float) -> tuple[Vector, Panel, Panel, Vector]:
        """Return counts, coordinates, tests, and the correlation ratio."""
        n, counts = self.moments.count, self.counts[:, None]
        assert self.moments.M2 is not None
        spread = np.sqrt(self.moments.M2)
        spread = np.where(spread > noise * spread.max(initial=0), spread, 0)
        if self._codes is None:
            products = self.products - self._values[self._there].sum() * self.moments.mean  # the sum is rounding
            r = _over(products, np.sqrt(max(n, 1)) * spread)
            coordinates, ratio = r, r[0] ** 2
        else:
            means = _over(self.products, counts)
            apart = np.where(counts > 0, means - self.moments.mean, 0)
            coordinates = np.where(spread > 0, means, 0)
            r = _over(np.sqrt(counts) * apart, np.sqrt(_over(n - counts, n)) * spread)
            ratio = _over((counts * apart**2).sum(axis=0), spread**2)
        return self.counts, coordinates, np.sqrt(max(n - 1, 0)) * r, ratio


def mean_and_deviation(x: Vector) -> tuple[float, float]:
    """Return the mean and the standard deviation (divisor n) of numbers, 0 if they are equal up to rounding."""
    if not len(x):
        return 0.0, 0.0
    unit = int(np.frexp(np.abs(x).max())[1])  # so that no square overflows or underflows
    y = np.ldexp(x, -unit)
    mean = y.mean()
    mean += (y - mean).mean()
    deviation = np.sqrt(np.mean((y - mean) ** 2))
    deviation = deviation if deviation > 8 * np.finfo(np.float64).eps * np.abs(mean) else 0.0
    return float(np.ldexp(mean, unit)), float(np.ldexp(deviation, unit))


def _over(a: Any, b: Any) -> Any:
    return np.where(b > 0, a / np.where(b > 0, b, 1), 0)
