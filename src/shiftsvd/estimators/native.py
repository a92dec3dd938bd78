"""Estimators and arrays on a device: what they take of them, and where what they have learned lies."""

from collections.abc import Callable
from copy import copy
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast
from warnings import warn

import numpy as np
from scipy.sparse import csr_array
from sklearn import get_config

from shiftsvd.backends.device import Arrays, arrays_of
from shiftsvd.kernels import threads

Model = TypeVar("Model")
P = ParamSpec("P")
R = TypeVar("R")
DISPATCH = "sklearn.set_config(array_api_dispatch=True)"
_told: set[str] = set()  # libraries whose users have read the notice


def dispatched(X: Any) -> Arrays | None:
    arrays = arrays_of(X)
    return arrays if arrays is not None and get_config()["array_api_dispatch"] else None


# Estimators work on the host: with a tensor there as NumPy's or SciPy's, after one notice. An array on another device
# is refused, since nobody asked for a copy of it.
def taken(X: Any) -> Any:
    arrays = arrays_of(X)
    if arrays is None:
        return X
    if not arrays.on_host:
        raise TypeError(
            f"estimators take arrays on the host, got one of {arrays!r}; call {DISPATCH} for PCA to work "
            "there, use svd, or give a copy on the host"
        )
    library = type(X).__module__.partition(".")[0]
    if library not in _told:
        _told.add(library)
        warn(f"arrays of {library} are taken as NumPy's, and so are the results; {DISPATCH} leaves them", stacklevel=2)
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


def settled(estimator: Any, X: Any) -> None:
    """Move what was learned from X to the device of X; the host keeps its own."""
    arrays = dispatched(X)
    vars(estimator).pop("_learned", None)
    if arrays is not None:
        host = {name: x for name, x in vars(estimator).items() if isinstance(x, np.ndarray) and x.dtype.kind in "fc"}
        estimator._learned = arrays, host
        vars(estimator).update({name: arrays.up(np.ascontiguousarray(value)) for name, value in host.items()})


def natively(method: Callable[P, R]) -> Callable[P, R]:
    """Compute on the host, with one BLAS thread, and return arrays on the device of X."""

    @wraps(method)
    def inside(*args: P.args, **named: P.kwargs) -> R:
        self, *given = cast("tuple[Any, ...]", args)
        learned = vars(self).get("_learned")
        X = given[0] if given else named.get("X")
        arrays = dispatched(X) if X is not None else learned and learned[0]
        with threads(self.n_threads):
            found: Any = cast("Any", method)(self if learned is None else hosted(self), *given, **named)
        return cast("R", arrays.up(np.ascontiguousarray(found)) if arrays and isinstance(found, np.ndarray) else found)

    return inside


def hosted(estimator: Model) -> Model:
    learned = vars(estimator).get("_learned")
    if learned is None:
        return estimator
    host = copy(estimator)
    vars(host).pop("_learned")
    vars(host).update(learned[1])
    return host
