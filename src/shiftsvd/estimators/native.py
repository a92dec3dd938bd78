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

P = ParamSpec("P")
R = TypeVar("R")
DISPATCH = "sklearn.set_config(array_api_dispatch=True)"
_told: set[str] = set()  # libraries whose users have read the notice


def dispatched(X: Any) -> Arrays | None:
    return arrays_of(X) if get_config()["array_api_dispatch"] else None


def taken(X: Any) -> Any:
    """X for an estimator that works on the host: a tensor there as NumPy's or SciPy's, with one notice.

    An array on another device is refused: a copy of it would be nothing that anybody asked for.
    """
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


def here(Z: Any) -> Any:
    arrays = arrays_of(Z)
    return Z if arrays is None else arrays.down(Z)


def fitted_natively(fit: Callable[P, R]) -> Callable[P, R]:
    @wraps(fit)
    def inside(*args: P.args, **named: P.kwargs) -> R:
        self = cast("Any", args[0])
        arrays = dispatched(args[1] if len(args) > 1 else named.get("X"))
        fitted = fit(*args, **named)
        vars(self).pop("_learned", None)
        if arrays is not None:
            here = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
            here = {name: value for name, value in here.items() if value.dtype.kind in "fc"}
            self._learned = arrays, here
            vars(self).update({name: arrays.up(np.ascontiguousarray(value)) for name, value in here.items()})
        return fitted

    return inside


def natively(method: Callable[P, R]) -> Callable[P, R]:
    @wraps(method)
    def inside(*args: P.args, **named: P.kwargs) -> R:
        self, *given = args
        learned = vars(self).get("_learned")
        X = given[0] if given else named.get("X")
        arrays = dispatched(X) if X is not None else learned and learned[0]
        found: Any = cast("Any", method)(hosted(self), *given, **named)
        return cast("R", arrays.up(np.ascontiguousarray(found)) if arrays and isinstance(found, np.ndarray) else found)

    return inside


def hosted(estimator: Any) -> Any:
    learned = vars(estimator).get("_learned")
    if learned is None:
        return estimator
    host = copy(estimator)
    vars(host).pop("_learned")
    vars(host).update(learned[1])
    return host
