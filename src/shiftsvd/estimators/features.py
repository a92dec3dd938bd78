"""Features and labels of the data of an estimator: checked, matched by name, given back."""

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigvalsh
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from shiftsvd.backends import as_operator, is_lazy, unlabelled
from shiftsvd.backends.columns import Places
from shiftsvd.backends.validation import before_sklearn
from shiftsvd.estimators.native import taken
from shiftsvd.numerics.panels import unmasked
from shiftsvd.operators import Operator, Panel
from shiftsvd.runs.memory import Resources
from shiftsvd.runs.messages import notice
from shiftsvd.transforms.chains import kept_of, reordered

if TYPE_CHECKING:  # of a class whose bases have no types, a type checker would not hold calls to the settings

    class Estimator:
        """What scikit-learn gives its estimators, which has no types."""

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...
        def __sklearn_tags__(self) -> Any: ...

else:

    class Estimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
        """What scikit-learn gives its estimators."""


def labels_of(X: Any) -> tuple[Any, Any]:
    if is_pandas(X):
        return X.index, X.columns
    return (X.ids, X.ids) if has_ids(X) else (None, None)


def is_pandas(X: Any) -> bool:
    return type(X).__module__.partition(".")[0] == "pandas"


def has_ids(X: Any) -> bool:
    ids = getattr(X, "ids", None)  # masked arrays have a method of that name
    return ids is not None and not callable(ids) and hasattr(X, "data") and not is_pandas(X)


def labelled(values: Panel, names: Any) -> Any:
    if names is None:
        return values
    import pandas as pd

    return pd.DataFrame(values, index=names)


def feature_names_of(model: Any) -> Any:
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else names[kept_of(getattr(model, "preprocess_", ()), len(names))]


Model = TypeVar("Model")
# Of the squared length of any direction among the components, what absent features may take.
MOST_LOST: Final = 0.5
NAMED: Final = 3  # features in an error


def aligned(fitted: Model, names: Sequence[Any], file: str, max_absent: float, remedy: str) -> Model:
    """The model with its features in the order of `file`, which has these; some of them may be absent.

    Features that have a part in sums of rows alone may always be absent. `remedy` says how to allow others to be.
    """
    pca: Any = fitted
    known = pca.feature_names_in_
    model, found = [str(name) for name in known], [str(name) for name in names]
    if model == found:
        return fitted
    place = {name: j for j, name in enumerate(model)}
    of_components = kept_of(getattr(pca, "preprocess_", ()), len(model))
    lacking = _lacking([model[j] for j in of_components], place, found, file, max_absent, remedy)
    if len(place) < len(model):
        raise ValueError(f"{file}: features in another order than those of the model, whose names are not unique")
    places = np.array([place[name] for name in found], np.intp)
    moved: Any = copy(pca)
    moved.feature_names_in_, moved.n_features_in_ = known[places], len(places)
    steps, order = reordered(getattr(pca, "preprocess_", ()), places)
    if steps:
        moved.preprocess_ = steps
    moved.components_, moved.mean_ = pca.components_[:, order], pca.mean_[order]
    if lacking:
        V = least_squares(pca.components_.conj().T, order)
        moved.components_ = V.conj().T.astype(pca.components_.dtype)
    moved.scale_ = None if pca.scale_ is None else pca.scale_[order]
    if hasattr(pca, "shift_"):
        moved.shift_ = pca.shift_.at(order)
    result: Model = moved
    return result


def _lacking(
    needed: list[str], place: dict[str, int], found: list[str], file: str, max_absent: float, remedy: str
) -> list[str]:
    there = set(found)
    lacking = [name for name in needed if name not in there]
    if len(lacking) > max_absent * len(needed):
        raise ValueError(f"{file}: lacks features of the model: {_some(lacking)}; {remedy}")
    if unknown := [name for name in found if name not in place]:
        raise ValueError(f"{file}: has features that the model does not know: {_some(unknown)}")
    if len(there) < len(found):
        raise ValueError(f"{file}: names of features are not unique, and in another order than those of the model")
    if lacking:
        notice(f"{file}: {len(lacking)} of {len(needed)} features of the components absent, and unobserved")
    return lacking


def _some(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def least_squares(V: Panel, there: Places) -> Panel:
    W = V[there]
    if len(there) == len(V):
        return W
    G = W.conj().T @ W
    left = float(eigvalsh(G)[0]) if len(G) else 1.0
    if left < 1 - MOST_LOST:
        raise ValueError(
            f"absent features must leave at least {1 - MOST_LOST:.0%} of every direction among the components, they "
            f"leave {max(left, 0):.0%} of one; fit on the features that both have"
        )
    return np.asarray(cho_solve(cho_factor(G), W.conj().T).conj().T)


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
    from shiftsvd.backends.dask import lazy_scores

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
    from shiftsvd.backends.dask import lazy_points

    return lazy_points(_as_it_is(estimator), unlabelled(Z))


def _as_it_is(estimator: Any) -> Any:
    frozen = copy(estimator)
    vars(frozen).pop("_stream", None)
    return frozen
