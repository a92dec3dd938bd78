"""Features and labels of the data of an estimator: checked, matched by name, given back."""

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigvalsh
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from shiftsvd.backends import as_operator, is_lazy, unlabelled
from shiftsvd.backends.columns import Places
from shiftsvd.backends.validation import before_sklearn
from shiftsvd.errors import Part, Refused
from shiftsvd.estimators.native import dispatched, taken
from shiftsvd.missing.gaps import Gaps
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


# The model with its features in the order of `file`, which has these. Some may be absent: so many of the features of
# components, and any that only enter sums of rows. `remedy` says how to allow more.
def aligned(fitted: Model, names: Sequence[str], file: str, max_absent: float, *remedy: Part) -> Model:
    pca: Any = fitted
    known = pca.feature_names_in_
    model, found = [str(name) for name in known], [str(name) for name in names]
    if model == found:
        return fitted
    place, there = {name: j for j, name in enumerate(model)}, set(found)
    needed = [model[j] for j in kept_of(getattr(pca, "preprocess_", ()), len(model))]
    lacking = [name for name in needed if name not in there]
    if len(lacking) > max_absent * len(needed):
        raise Refused(f"{file}: lacks features of the model: {_some(lacking)}; ", *remedy)
    if unknown := [name for name in found if name not in place]:
        raise ValueError(f"{file}: has features that the model does not know: {_some(unknown)}")
    if len(there) < len(found) or len(place) < len(model):
        of = "" if len(there) < len(found) else " of the model"
        why = "and file and model have different orders, so columns cannot be matched. Make the names unique."
        raise ValueError(f"{file}: names of features{of} are not unique, {why}")
    if lacking:
        notice(f"{file}: {len(lacking)} of {len(needed)} features of the components absent, and unobserved")
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


class Components(Estimator):
    """What scikit-learn asks of estimators of components: the number of output columns, and tags for sparse data."""

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    @property
    def _resources(self) -> Resources:
        return Resources(self.memory_limit, self.n_threads)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def is_unread(X: Any) -> bool:
    return isinstance(X, Operator) or is_lazy(X)


def checked(estimator: Any, X: Any, reset: bool, least: int = 1, on_device: bool = False) -> Any:
    """Return what `as_operator` takes: at least `least` rows with the features of the estimator, or new ones."""
    if _as_it_is_read(estimator, X, reset, least):
        count_columns(estimator, X, reset)
        return X
    name = type(estimator).__name__
    if is_unread(X) or isinstance(X, Gaps) or (on_device and dispatched(X)):
        A = X if isinstance(X, Gaps) else as_operator(X, memory_limit=estimator.memory_limit)
        if A.shape[0] < least:
            given = f"Found array with {A.shape[0]} sample(s)"
            raise ValueError(f"{given} while a minimum of {least} is required by {name}")
        count_columns(estimator, A, reset)
        return A
    if hasattr(X, "rmatmat"):
        raise TypeError(
            f"{name} takes arrays, sparse matrices, data frames and what open_matrix gives, got {type(X).__name__}; "
            "use svd, which takes any operator"
        )
    return validate_data(
        estimator,
        before_sklearn(taken(X)),
        reset=reset,
        accept_sparse=("csr", "csc"),
        dtype="numeric",
        ensure_all_finite=False,
        ensure_min_samples=least,
    )


def _as_it_is_read(estimator: Any, X: Any, reset: bool, least: int) -> bool:
    plain = type(X) is np.ndarray and X.dtype in (np.float32, np.float64)
    sparse = not plain and issparse(X)
    if sparse:
        plain = X.format in ("csr", "csc") and X.dtype.kind in "fiub"
    if not plain or X.ndim != 2 or X.shape[0] < least or X.shape[1] < 1:
        return False
    known = vars(estimator)
    return reset or ("feature_names_in_" not in known and known.get("n_features_in_") == X.shape[1])


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


def scores_by_row(estimator: Any, X: Any) -> Any:
    """Return the scores of a Dask array as one; nothing is computed."""
    from shiftsvd.backends.dask import lazy_scores

    checked(estimator, X, reset=False)
    return lazy_scores(_without_stream(estimator), unlabelled(X))


def points(estimator: Any, Z: Any, found: Callable[[Panel], Panel], by_row: bool = True) -> Any:
    lazy = is_lazy(Z) and by_row
    Z = Z if lazy else np.asarray(unmasked("scores", Z))
    k = len(estimator.components_)
    if Z.ndim != 2 or Z.shape[1] != k:
        raise ValueError(f"scores must have shape (n_samples, {k}), got {Z.shape}")
    if not lazy:
        return found(Z)
    from shiftsvd.backends.dask import lazy_points

    return lazy_points(_without_stream(estimator), unlabelled(Z))


def _without_stream(estimator: Any) -> Any:
    frozen = copy(estimator)
    vars(frozen).pop("_stream", None)
    return frozen
