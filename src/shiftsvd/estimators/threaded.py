"""Methods of estimators that run as one fit: in the threads they were given, and BLAS in one."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from shiftsvd.kernels import threads

P = ParamSpec("P")
R = TypeVar("R")


def as_one_fit(method: Callable[P, R]) -> Callable[P, R]:
    @wraps(method)
    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        with threads(cast("Any", args[0]).n_threads):
            return method(*args, **kwargs)

    return inside
