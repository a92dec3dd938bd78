"""Attributes of fitted models, read without importing scikit-learn: labels, variances, features of other data."""

import math
from collections.abc import Sequence
from copy import copy
from typing import Any, Final, TypeVar, cast

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh, eigvalsh

from shiftsvd.backends.entries import Places
from shiftsvd.errors import Part, Refused, Setting, few, plural
from shiftsvd.io.formats.cells import without_unit
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Operator, Panel
from shiftsvd.runs.messages import notice, warn
from shiftsvd.transforms.chains import kept_of, reordered

Model = TypeVar("Model")
ALIGNED: Final = 0.99  # least |cosine| with the mean of the rows at which `warn_mean` warns
MOST_LOST: Final = 0.5  # of the squared length of any direction among the components, for absent features
MAX_ABSENT: Final = 0.1  # default share of absent features of models that selected features


def labels_of(X: Any) -> tuple[Any, Any]:
    if is_pandas(X):
        return X.index, X.columns
    return (X.ids, X.ids) if has_ids(X) else (None, None)


def is_pandas(X: Any) -> bool:
    return type(X).__module__.partition(".")[0] == "pandas"


def is_table(X: Any) -> bool:
    return type(X).__module__.partition(".")[0] in ("pandas", "polars", "pyarrow") and hasattr(X, "columns")


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


# ---- variances


@np.errstate(over="ignore", under="ignore")
def in_range(explained: Vector, unit: int) -> Vector:
    # Not infinite: files of models, tables and plots hold numbers.
    variances = np.minimum(np.ldexp(explained, 2 * unit), np.finfo(np.float64).max)
    if np.any((explained > 0) & ~_is_number(variances)):
        warn(
            "Some variances are outside the range of float64. explained_variance_ and noise_variance_ hold the largest "
            "float64 number, 0 or an inaccurate number instead; singular_values_, components_, "
            "explained_variance_ratio_ and scores are accurate. Multiply X by a power of two to avoid this."
        )
    return variances


def quantity_of(model: Any) -> str:
    """Return the name of the numbers in `explained_variance_`: variances only if the shift has means of columns."""
    shift = getattr(model, "shift", "mean")
    return "second moment" if shift is None or (isinstance(shift, str) and shift == "rows") else "variance"


def beyond(S: Vector, variances: Vector) -> bool:
    return bool(len(S) and S[0] > 0 and not _is_number(variances[:1])[0])


def _is_number(variances: Vector) -> Vector:
    ends = np.finfo(variances.dtype)
    return np.asarray((variances >= ends.smallest_normal) & (variances < ends.max))


def first_is_mean(cosine: float, k: int) -> str:
    return (
        f"The first component is the mean of the rows (|cos| = {cosine:.4f}), so only {k - 1} of {k} components "
        "describe how rows differ."
    )


# ---- features of other data


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
    lacking = [name for name in needed if name not in there]
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
            convert = f"Names differ in the unit alone: {units}. Convert these columns, and name them as in the model."
            remedy = (convert,)
        raise Refused(f"{file} {which}. Its features: {few(found)}. ", *remedy)
    if unknown := [name for name in found if name not in place]:
        raise ValueError(f"{file} has features that the model does not have: {few(unknown)}. Remove these features.")
    if len(there) < len(found) or len(place) < len(model):
        what = file if len(there) < len(found) else "the model"
        others = f"{file} has another order of features than the model, and {what} has duplicate feature names"
        raise ValueError(f"{others}, so columns cannot be matched. Make the names unique.")
    if lacking:
        which = "features" if len(needed) == len(model) else "features of the components"
        absent = f"{len(lacking):,} of the model's {len(needed):,} {which}: {few(lacking)}"
        notice(f"{file} lacks {absent}. Absent features are treated as missing.")
    return on_places(fitted, np.array([place[name] for name in found], np.intp))


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
