"""Base classes of estimators, and their inputs: validation, arrays on a device, Dask arrays."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import wraps
from os import PathLike
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from shiftsvd.backends import as_operator, is_lazy, unwrapped
from shiftsvd.backends.device import arrays_of
from shiftsvd.backends.device.arrays import Arrays
from shiftsvd.backends.validation import before_sklearn, named
from shiftsvd.estimators.attributes import is_table
from shiftsvd.kernels import threads
from shiftsvd.missing.gaps import Gaps
from shiftsvd.numerics.panels import unmasked
from shiftsvd.operators import Operator, Panel
from shiftsvd.runs.memory import Resources
from shiftsvd.runs.messages import warn_once

Model = TypeVar("Model")
P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:  # of a class whose bases have no types, a type checker would not hold calls to the settings

    class Estimator:
        """Typed stand-in for scikit-learn's base classes, which have no type hints."""

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...
        def __sklearn_tags__(self) -> Any: ...

else:

    class Estimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
        """scikit-learn's base classes of transformers."""


class Tagged(Estimator):
    """Base class of estimators that model files store; `_tags` describes their input to scikit-learn."""

    def save(
        self,
        path: str | PathLike[str],
        *,
        force: bool = False,
        names: Sequence[str] | None = None,
        source: str | None = None,
    ) -> None:
        """Write the fitted model to a file without pickle; see `shiftsvd.save_model`.

        Parameters
        ----------
        path, force, names, source
            As in `shiftsvd.save_model`.
        """
        from shiftsvd.model_file import save_model

        save_model(host_copy(self), path, force=force, names=names, source=source)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a fitted model from a file that `save` wrote; see `shiftsvd.load_model`."""
        from shiftsvd.model_file import load_model

        return load_model(path, cls)

    def __sklearn_tags__(self) -> Any:
        tags, known = super().__sklearn_tags__(), dict(self._tags)
        tags.transformer_tags.preserves_dtype = known.pop("preserves_dtype", ["float64"])
        tags.input_tags = replace(tags.input_tags, **known)
        return tags


class Components(Tagged):
    """Base class of estimators of components: the number of output columns, and scikit-learn's tags."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the estimator to X.

        Parameters
        ----------
        X : array, sparse matrix, data frame, Dask array or Operator of shape (n_samples, n_features)
            Training data; some classes take other data, see the description of the class.
        y : ignored
            For scikit-learn.

        Returns
        -------
        The estimator itself.

        Raises
        ------
        ValueError
            For invalid data or settings, before anything is computed.
        """
        self._fit(X)
        return self

    def transform(self, X: Any) -> Any:
        """Return the scores of the rows of X on the fitted components.

        Parameters
        ----------
        X : array, sparse matrix, data frame, Dask array or Operator of shape (n_samples, n_features)
            Rows with the features of the fit.

        Returns
        -------
        array of shape (n_samples, n_components)
            Of a Dask array, a Dask array with the same chunks of rows; nothing is computed.
        """
        raise NotImplementedError

    def fit_transform(self, X: Any, y: Any = None) -> Panel:
        """Fit to X and return its scores, as `transform` does."""
        scores: Panel = self.fit(X, y).transform(X)
        return scores

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    @property
    def _resources(self) -> Resources:
        return Resources(self.memory_limit, self.n_threads)

    def _operator(self, X: Any, reset: bool = False, least: int = 1) -> Operator:
        X = checked(self, X, reset, least)
        with named(vars(self).get("feature_names_in_")):
            return as_operator(X, **vars(self._resources))

    @property
    def _tags(self) -> dict[str, Any]:
        return {"sparse": True, "preserves_dtype": ["float64", "float32"]}


# ---- data


def is_unread(X: Any) -> bool:
    return isinstance(X, Operator) or is_lazy(X)


def checked(estimator: Any, X: Any, reset: bool, least: int = 1, on_device: bool = False) -> Any:
    """Validate X: at least `least` rows, and the features of the fit unless `reset`."""
    name, known = type(estimator).__name__, vars(estimator)
    if not _is_plain(X, least) or ("feature_names_in_" in known and not reset):
        if hasattr(X, "rmatmat") and not isinstance(X, Operator):
            kinds = "an array, sparse matrix, data frame or result of open_matrix"
            raise TypeError(f"{name} needs {kinds}, got {type(X).__name__}. Use shiftsvd.svd for other operators.")
        if isinstance(X, list | tuple) and len(X) and all(isinstance(one, str) for one in X):
            raise ValueError(
                f"{name} needs a matrix of numbers, got a list of texts. Use shiftsvd.LSA, which weights the terms of "
                "texts by tf-idf and computes their SVD."
            )
        check_columns(name, X)
        if not (is_unread(X) or isinstance(X, Gaps) or (on_device and dispatched(X))):
            how = {"accept_sparse": ("csr", "csc"), "ensure_all_finite": False, "ensure_min_samples": least}
            return validate_data(estimator, before_sklearn(taken(X)), reset=reset, **how)
        X = X if isinstance(X, Gaps) else as_operator(X, memory_limit=estimator.memory_limit)
        if X.shape[0] < least:
            raise ValueError(
                f"Found array with {X.shape[0]} sample(s) while a minimum of {least} is required by {name}"
            )
    if X.dtype.kind == "c":
        raise ValueError(f"Complex data not supported by {name}, got {X}. Use shiftsvd.svd.")
    if reset:
        estimator.n_features_in_ = X.shape[1]
        for attribute in ("feature_names_in_", "table_"):
            known.pop(attribute, None)
    elif X.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X has {X.shape[1]} features, but {name} is expecting {estimator.n_features_in_} features as input"
        )
    return X


def check_columns(name: str, X: Any) -> None:
    # scikit-learn's message, which begins with the same words, does not name the column.
    for j, dtype in enumerate(X.dtypes if hasattr(X, "iloc") and hasattr(X, "columns") else ()):
        cells = X.iloc[:, j] if dtype.kind == "O" else ()
        text = next((cell for cell in cells if isinstance(cell, str) and not _is_number(cell)), None)
        if text is not None:
            raise ValueError(
                f"could not convert string to float: {text!r:.60} in column {X.columns[j]!r}. {name} needs one row per "
                "sample and one column of numbers per feature. Encode or remove this column; for rows of (user, item, "
                "n), pass a scipy.sparse.coo_array of numbered users and items."
            )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


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


def _is_plain(X: Any, least: int) -> bool:
    # `as_operator` checks these arrays itself, so scikit-learn need not.
    plain = type(X) is np.ndarray and X.dtype in (np.float32, np.float64)
    sparse = not plain and issparse(X)
    if sparse:
        plain = X.format in ("csr", "csc") and X.dtype.kind in "fiub"
    return plain and X.ndim == 2 and X.shape[0] >= least and X.shape[1] >= 1


def scores_by_row(estimator: Any, X: Any) -> Any:
    from shiftsvd.backends.dask import lazy_scores

    checked(estimator, X, reset=False)
    return lazy_scores(_without_stream(estimator), unwrapped(X))


def points(estimator: Any, Z: Any, found: Callable[[Panel], Panel], by_row: bool = True) -> Any:
    lazy = is_lazy(Z) and by_row
    Z = Z if lazy else np.asarray(unmasked("scores", Z))
    k = len(estimator.components_)
    if Z.ndim != 2 or Z.shape[1] != k:
        raise ValueError(f"scores must have shape (n_samples, {k}), got shape {Z.shape}")
    if not lazy:
        return found(Z)
    from shiftsvd.backends.dask import lazy_points

    return lazy_points(_without_stream(estimator), unwrapped(Z))


def _without_stream(estimator: Any) -> Any:
    frozen = copy(estimator)
    vars(frozen).pop("_stream", None)
    return frozen


# ---- arrays on a device


def dispatched(X: Any) -> Arrays | None:
    arrays = arrays_of(X)
    return arrays if arrays is not None and get_config()["array_api_dispatch"] else None


# Estimators work on the host. Tensors on the host are converted to NumPy or SciPy, with one notice. Arrays on another
# device raise TypeError, because a copy to the host is slow and must be requested.
def taken(X: Any) -> Any:
    arrays, dispatch = arrays_of(X), "sklearn.set_config(array_api_dispatch=True)"
    if arrays is None:
        return X
    if not arrays.on_host:
        raise TypeError(
            f"estimators need an array on the host, got an array of {arrays!r}. Call {dispatch} to fit PCA on the "
            "device, use shiftsvd.svd, or copy the array to the host."
        )
    library = type(X).__module__.partition(".")[0]
    warn_once(
        f"{library} arrays are converted to NumPy, and results are NumPy arrays. "
        f"Call {dispatch} to keep {library} arrays."
    )
    arrays.check(X)
    if not arrays.is_sparse(X):
        return arrays.down(X)
    C, by_columns = arrays.sound_csr(X)
    data, indices, indptr = (arrays.down(part) for part in arrays.parts(C))
    S = csr_array((data, indices, indptr), shape=tuple(C.shape))
    return S.T if by_columns else S


def on_host(Z: Any) -> Any:
    arrays = arrays_of(Z)
    return Z if arrays is None else arrays.down(Z)


def move_fitted(estimator: Any, X: Any) -> None:
    """Copy fitted arrays to the device of X, and keep the NumPy arrays in `_learned`."""
    arrays = dispatched(X)
    vars(estimator).pop("_learned", None)
    if arrays is not None:
        host = {name: x for name, x in vars(estimator).items() if isinstance(x, np.ndarray) and x.dtype.kind in "fc"}
        estimator._learned = arrays, host
        vars(estimator).update({name: arrays.up(np.ascontiguousarray(value)) for name, value in host.items()})


def on_device_of_input(method: Callable[P, R]) -> Callable[P, R]:
    """Compute on the host, with one BLAS thread, and return arrays on the device of X."""

    @wraps(method)
    def inside(*args: P.args, **named: P.kwargs) -> R:
        self, *given = cast("tuple[Any, ...]", args)
        learned = vars(self).get("_learned")
        X = given[0] if given else named.get("X")
        arrays = dispatched(X) if X is not None else learned and learned[0]
        with threads(self.n_threads):
            found: Any = cast("Any", method)(self if learned is None else host_copy(self), *given, **named)
        return cast("R", arrays.up(np.ascontiguousarray(found)) if arrays and isinstance(found, np.ndarray) else found)

    return inside


def host_copy(estimator: Model) -> Model:
    learned = vars(estimator).get("_learned")
    if learned is None:
        return estimator
    host = copy(estimator)
    vars(host).pop("_learned")
    vars(host).update(learned[1])
    return host
