"""Inputs of estimators: validation, feature names and labels, arrays on a device, Dask arrays."""

import math
from collections.abc import Callable, Container, Sequence
from copy import copy
from dataclasses import replace
from functools import wraps
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar, cast

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh, eigvalsh
from scipy.sparse import csr_array, issparse
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from shiftsvd.backends import as_operator, is_lazy, unwrapped
from shiftsvd.backends.device import arrays_of
from shiftsvd.backends.device.arrays import Arrays
from shiftsvd.backends.entries import Places
from shiftsvd.backends.validation import before_sklearn, named
from shiftsvd.errors import Part, Refused, Setting, few, plural
from shiftsvd.io.formats.cells import without_unit
from shiftsvd.kernels import threads
from shiftsvd.missing.gaps import Gaps
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import unmasked
from shiftsvd.operators import Operator, Panel
from shiftsvd.runs.memory import Resources
from shiftsvd.runs.messages import notice, warn_once
from shiftsvd.transforms.chains import kept_of, reordered

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


class Saved:
    """Mixin of estimators that model files store."""

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


class Tagged(Saved, Estimator):
    """Mixin of estimators that describe their input to scikit-learn by `_tags`."""

    @property
    def _tags(self) -> dict[str, Any]:
        return {}

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


# ---- labels and names of features


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


def cosines(coordinates: Panel, squares: Vector) -> Panel:
    shares = coordinates**2
    squares = np.maximum(squares, shares.sum(axis=1))  # of a row that differs from the shift by rounding errors alone
    return np.asarray(shares / np.where(squares > 0, squares, np.inf)[:, None])


def row_squares(A: Operator) -> Vector:
    squares = A.row_squares()
    if squares is None:
        raise ValueError(
            f"squared cosines need squared entries, which {A} does not provide. Pass an array or a sparse matrix."
        )
    return squares


def feature_names_of(model: Any) -> Any:
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else names[kept_of(getattr(model, "preprocess_", ()), len(names))]


def n_empty_of(model: Any) -> int:
    """Return the number of features without any value if these hold all missing values of a fit, else 0."""
    n_missing, m = getattr(getattr(model, "info_", None), "n_missing", None), getattr(model, "n_samples_", 0)
    if not n_missing or not m or n_missing % m:
        return 0
    sizes = np.max(np.abs(model.components_), axis=0, initial=0)
    n_zero = int(np.count_nonzero(sizes <= 8 * np.finfo(sizes.dtype).eps))
    return n_zero if n_missing == m * n_zero else 0


MOST_LOST: Final = 0.5  # of the squared length of any direction among the components, for absent features
MAX_ABSENT: Final = 0.1  # default share of absent features of models that selected features


def absent_limit(fitted: Any, given: float | None) -> float:
    selects = any(each.selects for each in getattr(fitted, "preprocess_", ()))
    return given if given is not None else MAX_ABSENT if selects else 0.0


# Return the model with its features in the order of `names`, the features of `file`. A share `max_absent` of the
# features of the components may be absent, and all features that only enter sums of rows. `remedy` ends the error.
def aligned(fitted: Model, names: Sequence[str], file: str, max_absent: float, *remedy: Part) -> Model:
    pca = cast("Any", fitted)
    model, found = list(map(str, pca.feature_names_in_)), list(map(str, names))
    if model == found:
        return fitted
    place, there = {name: j for j, name in enumerate(model)}, set(found)
    needed = [model[j] for j in kept_of(getattr(pca, "preprocess_", ()), len(model))]
    lacking = _absent(needed, there)
    if len(lacking) > max_absent * len(needed):
        limit = f"limit {100 * max_absent:.3g} %"
        which = f"lacks {len(lacking):,} of the model's {len(needed):,} features ({limit}): {few(lacking)}"
        if len(lacking) == len(needed):
            remedy = ("Pass a file with the feature names of the model.",)
        least = math.ceil(100 * len(lacking) / len(needed)) / 100
        remedy = tuple(Setting("max_absent", least) if each == Setting("max_absent") else each for each in remedy)
        known = {without_unit(name): name for name in lacking}
        pairs = [(known[bare], name) for name in found if name not in place and (bare := without_unit(name)) in known]
        if pairs:
            units = few(f"{mine!r} in the model, {theirs!r} here" for mine, theirs in pairs)
            remedy = (
                f"Names differ in the unit alone: {units}. Convert these columns, and name them as in the model.",
            )
        raise Refused(f"{file} {which}. Its features: {few(found)}. ", *remedy)
    if unknown := _absent(found, place):
        raise ValueError(f"{file} has features that the model does not have: {few(unknown)}. Remove these features.")
    if len(there) < len(found) or len(place) < len(model):
        what = file if len(there) < len(found) else "the model"
        others = f"{file} has another order of features than the model, and {what} has duplicate feature names"
        raise ValueError(f"{others}, so columns cannot be matched. Make the names unique.")
    if lacking:
        which = "features" if len(needed) == len(model) else "features of the components"
        absent = f"{len(lacking):,} of the model's {len(needed):,} {which}: {few(lacking)}"
        notice(f"{file} lacks {absent}. They are treated as missing.")
    return on_places(fitted, np.array([place[name] for name in found], np.intp))


def _absent(names: Sequence[str], known: Container[str]) -> list[str]:
    return [name for name in names if name not in known]


# Return the model for rows whose column j is feature places[j] of the model; other features are unobserved.
def on_places(fitted: Model, places: Places) -> Model:
    pca, moved = cast("Any", fitted), cast("Any", copy(fitted))
    moved.n_features_in_ = len(places)
    if "feature_names_in_" in vars(pca):
        moved.feature_names_in_ = pca.feature_names_in_[places]
    steps, order = reordered(getattr(pca, "preprocess_", ()), places)
    if steps:
        moved.preprocess_ = steps
    moved.components_, moved.mean_ = pca.components_[:, order], pca.mean_[order]
    if len(order) < len(pca.mean_):
        V = least_squares(pca.components_.conj().T, order, feature_names_of(pca))
        moved.components_ = V.conj().T.astype(pca.components_.dtype)
    scale = getattr(pca, "scale_", None)
    moved.scale_ = None if scale is None else scale[order]
    if hasattr(pca, "shift_"):
        moved.shift_ = pca.shift_.at(order)
    return cast("Model", moved)


def least_squares(V: Panel, there: Places, names: Any) -> Panel:
    W = V[there]
    if len(there) == len(V):
        return W
    G = W.conj().T @ W
    squares, axes = eigh(G)
    if len(G) and squares[0] < 1 - MOST_LOST:
        absent, axis = np.setdiff1d(np.arange(len(V)), there), axes[:, 0]
        worst = absent[np.argsort(-np.abs(V[absent] @ axis), kind="stable")]
        which = "" if names is None else f" The most important absent features are {few(names[worst[:3]])}."
        fits = [k for k in range(1, len(G)) if eigvalsh(G[:k, :k])[0] >= 1 - MOST_LOST]
        fewer = f"a model with at most {plural(fits[-1], 'component')}, or on" if fits else "a model on"
        raise ValueError(
            "too many features are absent to compute scores. For a linear combination of the components, mainly "
            f"component {np.argmax(np.abs(axis)) + 1:,}, the features that are present hold only "
            f"{max(squares[0], 0):.0%} of the squared loadings (at least {1 - MOST_LOST:.0%} are needed).{which} Fit "
            f"{fewer} the features that both data sets have."
        )
    return np.asarray(cho_solve(cho_factor(G), W.conj().T).conj().T)


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
