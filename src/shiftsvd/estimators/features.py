"""Data of an estimator, checked by scikit-learn or only counted, and what it gives of them, lazily of Dask arrays."""

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from shiftsvd.backends import as_operator, is_lazy, unlabelled
from shiftsvd.backends.validation import before_sklearn
from shiftsvd.estimators.native import taken
from shiftsvd.numerics.panels import unmasked
from shiftsvd.operators import Operator, Panel
from shiftsvd.runs.memory import Resources

if TYPE_CHECKING:  # of a class whose bases have no types, a type checker would not hold calls to the settings

    class Estimator:
        """What scikit-learn gives its estimators, which has no types."""

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...
        def __sklearn_tags__(self) -> Any: ...

else:

    class Estimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
        """What scikit-learn gives its estimators."""


class Named(Estimator):
    """What scikit-learn asks of every estimator that finds components: names for its output."""

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    @property
    def _resources(self) -> Resources:
        return Resources(self.memory_limit, self.n_threads)


class Components(Named):
    """Tags of scikit-learn that estimators of components have: sparse data are taken."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def is_unread(X: Any) -> bool:
    return isinstance(X, Operator) or is_lazy(X)


def counted(estimator: Any, X: Any, reset: bool) -> Operator:
    A = as_operator(X, memory_limit=estimator.memory_limit)
    count_columns(estimator, A, reset)
    return A


def validated(estimator: Any, X: Any, reset: bool, **kinds: Any) -> Any:
    X = taken(X)
    if not kinds.keys() - {"ensure_min_samples"} and _as_it_is_read(estimator, X, reset, **kinds):
        count_columns(estimator, X, reset)
        return X
    X = before_sklearn(X)
    kinds = {"accept_sparse": ("csr", "csc"), "dtype": "numeric", "ensure_all_finite": False, **kinds}
    return validate_data(estimator, X, reset=reset, **kinds)


def _as_it_is_read(estimator: Any, X: Any, reset: bool, ensure_min_samples: int = 1) -> bool:
    if type(X) is not np.ndarray or X.dtype not in (np.float32, np.float64) or X.ndim != 2:
        return False
    known = vars(estimator)
    alike = "feature_names_in_" not in known and known.get("n_features_in_") == X.shape[1]
    return X.shape[0] >= max(ensure_min_samples, 1) and X.shape[1] >= 1 and (reset or alike)


def count_columns(estimator: Any, A: Any, reset: bool) -> None:
    name = type(estimator).__name__
    if A.dtype.kind == "c":
        raise ValueError(f"Complex data not supported by {name}, got {A}; use svd")
    if reset:
        estimator.n_features_in_ = A.shape[1]
        for name in ("feature_names_in_", "table_"):
            vars(estimator).pop(name, None)
    elif A.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X has {A.shape[1]} features, but {name} is expecting {estimator.n_features_in_} features as input"
        )


def scores(estimator: Any, X: Any, found: Callable[[Any], Any], by_row: bool = True) -> Any:
    if not (is_lazy(X) and by_row):
        return found(X)
    from shiftsvd.backends.dask.lazy import lazy_scores

    counted(estimator, X, reset=False)
    return lazy_scores(_as_it_is(estimator), unlabelled(X))


def points(estimator: Any, Z: Any, found: Callable[[Panel], Panel], by_row: bool = True) -> Any:
    lazy = is_lazy(Z) and by_row
    Z = Z if lazy else np.asarray(unmasked("scores", Z))
    k = len(estimator.components_)
    if Z.ndim != 2 or Z.shape[1] != k:
        raise ValueError(f"scores must have shape (n_samples, {k}), got {Z.shape}")
    if not lazy:
        return found(Z)
    from shiftsvd.backends.dask.lazy import lazy_points

    return lazy_points(_as_it_is(estimator), unlabelled(Z))


def _as_it_is(estimator: Any) -> Any:
    frozen = copy(estimator)
    vars(frozen).pop("_stream", None)
    return frozen
