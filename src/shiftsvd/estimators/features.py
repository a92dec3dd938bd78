"""Data that scikit-learn's checks do not read: operators and Dask arrays, whose columns are only counted."""

from collections.abc import Callable
from typing import Any

from shiftsvd.backends import as_operator, is_lazy
from shiftsvd.operators import Operator


def is_unread(X: Any) -> bool:
    """Whether X is nothing that may be looked at: `counted` is for it."""
    return isinstance(X, Operator) or is_lazy(X)


def counted(estimator: Any, X: Any, reset: bool) -> Operator:
    """X as an operator, after its columns are counted."""
    A = as_operator(X, memory_limit=estimator.memory_limit)
    count_columns(estimator, A, reset)
    return A


def count_columns(estimator: Any, A: Any, reset: bool) -> None:
    """Remember the columns of A (`reset`), or compare them with those of the fit."""
    name = type(estimator).__name__
    if A.dtype.kind == "c":
        raise ValueError(f"Complex data not supported by {name}, got {A}; use svd")
    if reset:
        estimator.n_features_in_ = A.shape[1]
        vars(estimator).pop("feature_names_in_", None)
    elif A.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X has {A.shape[1]} features, but {name} is expecting {estimator.n_features_in_} features as input"
        )


def scores(estimator: Any, X: Any, found: Callable[[Any], Any], by_row: bool = True) -> Any:
    """``found(X)``; where X is a Dask array, and a row's score takes nothing but the row, a Dask array of them."""
    if not (is_lazy(X) and by_row):
        return found(X)
    from shiftsvd.backends.dask import lazy_scores

    return lazy_scores(estimator, X)
