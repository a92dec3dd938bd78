"""What a value must be: by its annotation, or as an array whose sizes agree with those of the others."""

import math
from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

from shiftsvd.result import Info

# Sizes by their letters, and the type of the data: the first array that has one says what it is for all.
Sizes = dict[str, Any]
Check = Callable[[str, Any, Sizes], None]  # of a value by its name; raises ValueError

POSITIVE = float(np.nextafter(0.0, 1.0))


def check_type(name: str, value: Any, hint: Any) -> None:
    if not _is(value, hint):
        wanted = getattr(hint, "__name__", None) or str(hint)
        raise ValueError(f"{name} must be {wanted}, got {value!r:.80}")


def _is(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    # Since NumPy 2.5 NDArray[...] is a name for a type, and no class.
    if (named := getattr(origin or hint, "__value__", None)) is not None:
        return _is(value, named)
    if origin in (Union, UnionType):
        return any(_is(value, part) for part in get_args(hint))
    if origin is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if hint is Any:
        return not isinstance(value, np.ndarray | Info)
    if hint is float:
        return isinstance(value, float | int)
    return isinstance(value, origin or hint)


def any_text(hint: Any) -> Any:
    if get_origin(hint) in (Union, UnionType):
        return reduce(or_, map(any_text, get_args(hint)))
    return str if get_origin(hint) is Literal else hint


def check_finite(name: str, value: Any) -> None:
    if isinstance(value, np.ndarray) and value.dtype.kind == "f" and not np.isfinite(value).all():
        raise ValueError(f"{name} must be finite, got {int((~np.isfinite(value)).sum())} NaN or infinite entries")


def _sized(name: str, value: Any, dtype: str | np.dtype[Any], letters: str, sizes: Sizes) -> None:
    there = isinstance(value, np.ndarray) and value.ndim == len(letters)
    for letter, size in zip(letters, value.shape if there else (), strict=False):
        sizes.setdefault(letter, size)
    shape = tuple(sizes.get(letter, letter) for letter in letters)
    if not there or value.dtype != dtype or value.shape != shape:
        wanted = f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
        got = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else f"{value!r:.80}"
        raise ValueError(f"{name} must be an array of {dtype} and shape {wanted}, got {got}")


def numbers(letters: str, dtype: str = "float64", least: float = -math.inf, most: float = math.inf) -> Check:
    """Finite numbers of this type within these bounds; "data" is the type of the first such array, single or double.

    Truth values are "bool". "values" are double; older files hold them in the type of the data, and load.
    """

    def check(name: str, value: Any, sizes: Sizes) -> None:
        if dtype == "values":
            single = sizes.get("dtype") == getattr(value, "dtype", None) == np.float32
            return numbers(letters, "float32" if single else "float64", least, most)(name, value, sizes)
        if dtype == "data" and "dtype" not in sizes:
            own = str(getattr(value, "dtype", None))
            sizes["dtype"] = own if own in ("float32", "float64") else "float32 or float64"
        _sized(name, value, sizes["dtype"] if dtype == "data" else dtype, letters, sizes)
        check_finite(name, value)
        if np.any(value < least):
            raise ValueError(f"{name} must not be {'negative' if least == 0 else 'below the least positive number'}")
        if np.any(value > most):
            raise ValueError(f"{name} must not be above {most:g}")
        return None

    return check


def texts(letter: str, fixed: bool = False) -> Check:
    def check(name: str, value: Any, sizes: Sizes) -> None:
        own = getattr(value, "dtype", np.dtype(object))
        _sized(name, value, own if fixed and own.kind == "U" else "str" if fixed else "object", letter, sizes)

    return check


def names(letter: str) -> Check:
    def check(name: str, value: Any, sizes: Sizes) -> None:
        if not isinstance(value, list) or len(value) != sizes[letter] or not all(isinstance(x, str) for x in value):
            raise ValueError(f"{name} must be a list of {sizes[letter]} texts, got {value!r:.80}")

    return check


def vectors(letter: str) -> Check:
    def check(name: str, value: Any, sizes: Sizes) -> None:
        if not isinstance(value, list) or sizes.setdefault(letter, len(value)) != len(value):
            raise ValueError(f"{name} must be a list of {sizes.get(letter, 'some')} vectors, got {value!r:.80}")
        for one in value:
            check_finite(name, np.asarray(one))

    return check


def named(inner: Check) -> Check:
    def check(name: str, value: Any, sizes: Sizes) -> None:
        inner(name, value.to_numpy() if hasattr(value, "to_numpy") else value, sizes)

    return check


def optional(inner: Check) -> Check:
    def check(name: str, value: Any, sizes: Sizes) -> None:
        if value is not None:
            inner(name, value, sizes)

    return check


def count(letter: str | None = None, least: int = 1) -> Check:
    def check(name: str, value: Any, sizes: Sizes) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            wanted = "a positive integer" if least == 1 else f"an integer of at least {least}"
            raise ValueError(f"{name} must be {wanted}, got {value!r:.80}")
        if letter is not None and sizes.setdefault(letter, value) != value:
            raise ValueError(f"{name} must be {sizes[letter]}, as the arrays are, got {value}")

    return check


def number(least: float = -math.inf, most: float = math.inf) -> Check:
    def check(name: str, value: Any, sizes: Sizes) -> None:
        if not isinstance(value, float) or not math.isfinite(value) or not least <= value <= most:
            bounds = "" if least == -math.inf else f" of at least {least:g}"
            bounds += "" if most == math.inf else f" and at most {most:g}"
            raise ValueError(f"{name} must be a number{bounds}, got {value!r:.80}")

    return check


def account(name: str, value: Any, sizes: Sizes) -> None:
    check_type(name, value, Info)
    for known in (value.residuals, value.value_errors, value.vector_errors):
        if known is not None and known.shape != (max(sizes["k"], 1),):
            raise ValueError(f"{name} must have one residual and one bound for each of {sizes['k']} components")
    optional(number(least=0))(f"{name}.missed_below", value.missed_below, sizes)
    optional(count(least=0))(f"{name}.n_missing", value.n_missing, sizes)
    if value.heldout_r2 is not None:
        number(most=1)(f"{name}.heldout_r2", float(value.heldout_r2), sizes)
    if value.completed is False and value.converged is not False:
        raise ValueError(f"{name} has an unfinished completion, and must not have converged, got {value.converged}")


def record(**kinds: Mapping[str, Check]) -> Check:
    def check(name: str, value: Any, sizes: Sizes) -> None:
        kind = type(value).__name__
        if kind not in kinds:
            raise ValueError(f"{name} must be {' or '.join(kinds)}, got {value!r:.80}")
        for field, inner in kinds[kind].items():
            inner(f"{name}.{field}", getattr(value, field), sizes)

    return check
