"""Columns of data frames and arrays: numbers or categories, their codes, and errors about missing values."""

from collections.abc import Iterator
from datetime import date
from numbers import Number
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import validate_data

from shiftsvd.errors import Part, Refused
from shiftsvd.estimators.features import is_pandas
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import unmasked

Codes = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

_UNNAMED: tuple[Part, ...] = ("Remove these rows, or give missing values a category of their own.",)


def is_table(X: Any) -> bool:
    return type(X).__module__.partition(".")[0] in ("pandas", "polars", "pyarrow") and hasattr(X, "columns")


def checked_table(estimator: Any, X: Any, reset: bool, least: int = 1) -> Any:
    """Validate names and sizes of a table whose columns may hold anything; frames are not converted."""
    if is_table(X):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        for count, what, minimum in zip(X.shape, ("sample", "feature"), (least, 1), strict=True):
            if count < minimum:
                raise ValueError(f"Found array with {count} {what}(s) while a minimum of {minimum} is required")
        return X
    unmasked("categories", X, "give them a category of their own")
    how = {"dtype": None, "ensure_all_finite": "allow-nan", "ensure_min_samples": least}
    return validate_data(estimator, X, reset=reset, **how)


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
    try:
        place = np.minimum(np.searchsorted(known, values), len(known) - 1)
        codes[there] = np.where(known[place] == values, place, -1)
    except TypeError:  # texts among numbers, or numbers among texts
        pass
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
