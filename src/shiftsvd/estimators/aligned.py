"""A fitted model for rows whose features are in another order, or lack some: by the names of features."""

from collections.abc import Sequence
from copy import copy
from typing import Any, Final, TypeVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigvalsh

from shiftsvd.backends.selection import Places
from shiftsvd.operators import Panel
from shiftsvd.runs.warned import notice
from shiftsvd.transforms.chains import kept_of, reordered

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
