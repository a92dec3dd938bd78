"""Where panels lie: what is done with panels on the host by NumPy, and elsewhere by methods of the panel itself."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.panels import Panel

# Rows of a block that are put into a panel at once, whose columns are contiguous: they stay in the first cache.
TRANSPOSED = 512


class Elsewhere:
    """A panel that lies elsewhere than in NumPy's memory, such as on a device: solvers use it as they use an array.

    A kind of them has a shape, NumPy's dtype, slices to read and to write, ``astype`` and ``copy``; it takes ``@``,
    ``-``, ``*`` and ``/`` with panels of the same place and with small arrays of the host, which are sent there; and it
    has a method for each of the functions that go `by_place`. To type checkers it is a `Panel`.
    """

    __array_ufunc__ = None  # NumPy leaves ``array * panel`` to the panel


Function = TypeVar("Function", bound=Callable[..., Any])
BY_PLACE: set[str] = set()  # the names of the functions that a panel elsewhere has methods for


def by_place(on_host: Function) -> Function:
    name = on_host.__name__
    BY_PLACE.add(name)

    @wraps(on_host)
    def there(V: Any, *others: Any) -> Any:
        return getattr(V, name)(*others) if isinstance(V, Elsewhere) else on_host(V, *others)

    return cast("Function", there)


@by_place
def room(V: Panel, columns: int, dtype: np.dtype[Any]) -> Panel:
    return np.empty((len(V), columns), dtype, order="F")


@by_place
def sent(V: Panel, x: Panel) -> Panel:
    return x


@by_place
def on_host(V: Panel) -> Panel:
    return V


@by_place
def beside(V: Panel, W: Panel) -> Panel:
    return np.hstack([V, W])


@by_place
def put(B: Panel, at: int, Q: Panel) -> None:
    for lo in range(0, len(Q), TRANSPOSED):
        B[lo : lo + TRANSPOSED, at : at + Q.shape[1]] = Q[lo : lo + TRANSPOSED]


@by_place
def in_dtype(W: Panel, dtype: np.dtype[Any]) -> Panel:
    return np.asarray(W, dtype)


@by_place
def to_spare(product: Panel, given: Panel) -> bool:
    return bool(product.flags.writeable) and not np.may_share_memory(product, given)


@by_place
def largest(W: Panel) -> float:
    return float(np.max(np.abs(W)))


@by_place
def norms(W: Panel) -> Vector:
    return np.asarray(np.linalg.norm(W, axis=0))


@by_place
def lengths(W: Panel) -> Vector:
    W = W.astype(np.result_type(W, np.float64), copy=False)
    return np.asarray(np.sqrt(np.einsum("ij,ij->j", W.conj(), W).real))
