"""An operator that is another one and keeps count of the columns that it multiplies, by precision and by product."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import groupby
from typing import Any

import numpy as np

import shiftsvd as ss
from shiftsvd.algebra.generic import FUNCTIONS, as_low_rank, registered
from shiftsvd.algebra.operator import Operator

# Parameters that are panels: whatever public method of an operator takes one of them first multiplies it. So new
# products of later versions are counted too.
PANELS = ("V", "W", "Omega")
NOT_PRODUCTS = ("gram_seconds", "placed")


@dataclass
class Tally:
    """What was multiplied: (name of the product, columns, whether in single precision), in order."""

    products: list[tuple[str, int, bool]] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def columns(self, single: bool | None = None) -> int:
        """The sum of the widths of the panels; of one precision, or of both."""
        return sum(width for _, width, low in self.products if single is None or low == single)

    def __str__(self) -> str:
        """Widths in order, runs together: "26x16 2x32 | 50d" means two precisions, d that of double ones."""
        told = [f"{width}{'s' if low else 'd'}" for _, width, low in self.products]
        runs = [(each, len(list(run))) for each, run in groupby(told)]
        return " ".join(each if count == 1 else f"{count}x{each}" for each, count in runs)


class Counted(Operator):
    """A, and a `Tally` of its products; what is made of it (shifted, adjoint, sorted) keeps the same tally."""

    def __init__(self, A: Any, tally: Tally) -> None:
        self.inner, self.tally = ss.as_operator(A), tally
        self.shape, self.dtype = self.inner.shape, self.inner.dtype

    def matmat(self, V):
        return self._count("matmat", V)

    def rmatmat(self, W):
        return self._count("rmatmat", W)

    def _count(self, name: str, V: Any, *args: Any, **settings: Any) -> Any:
        single = getattr(V, "dtype", np.dtype(float)).name in ("float32", "complex64")
        self.tally.products.append((name, V.shape[1], single))
        return _of(self.inner, name)(V, *args, **settings)

    def _kept(self, found: Any) -> Any:
        """Operators as wide and as high as this one, or its adjoint, go on being counted."""
        if isinstance(found, Operator) and as_low_rank(found) is None:
            return Counted(found, self.tally)
        if isinstance(found, tuple):
            return tuple(self._kept(part) for part in found)
        return found


def _of(A: Operator, name: str) -> Callable[..., Any]:
    """A method of A, or a generic function of it."""
    return partial(FUNCTIONS[name], A) if name in FUNCTIONS else getattr(A, name)


def _counted(name: str) -> Callable[..., Any]:
    def product(self: Counted, V: Any, *args: Any, **settings: Any) -> Any:
        return self._count(name, V, *args, **settings)

    return product


def _forwarded(name: str) -> Callable[..., Any]:
    def other(self: Counted, *args: Any, **settings: Any) -> Any:
        self.tally.others.append(name)
        return self._kept(_of(self.inner, name)(*args, **settings))

    return other


def _read(name: str) -> property:
    return property(lambda self: self._kept(getattr(self.inner, name)))


for _name in [*dir(Operator), *FUNCTIONS]:
    _member = FUNCTIONS.get(_name) or inspect.getattr_static(Operator, _name)
    if _name.startswith("_") or _name in ("matmat", "rmatmat", "shape", "dtype"):
        continue
    if isinstance(_member, property | cached_property):
        setattr(Counted, _name, _read(_name))
    elif callable(_member):
        _first = list(inspect.signature(_member).parameters)[1:2]
        counted = bool(_first) and _first[0] in PANELS and _name not in NOT_PRODUCTS
        setattr(Counted, _name, _counted(_name) if counted else _forwarded(_name))
Counted.__abstractmethods__ = frozenset()
registered(Counted)


def counted(X: Any) -> Counted:
    """X as an operator that counts, with a tally of its own."""
    return Counted(X, Tally())
