"""Digests of arrays, settings and functions, which identify stored results of reads."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from hashlib import blake2b
from types import CodeType, FunctionType
from typing import Any

import numpy as np

_PIECE = 2**24  # bytes of a non-contiguous array that are copied at once


def told(value: Any) -> str:
    digest = blake2b(digest_size=16)
    for part in _parts(value):
        digest.update(part)
        digest.update(b"|")
    return digest.hexdigest()


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, np.ndarray):
        yield f"{value.dtype.str} {value.shape}".encode()
        yield from _bytes_of(value)
    elif hasattr(value, "indptr"):  # a sparse matrix
        yield from _parts((value.format, value.shape, value.data, value.indices, value.indptr))
    elif isinstance(value, tuple | list):
        yield f"{len(value)}".encode()
        for item in value:
            yield from _parts(item)
    elif is_dataclass(value) and not isinstance(value, type):
        yield type(value).__name__.encode()
        for each in fields(value):
            yield each.name.encode()
            yield from _parts(getattr(value, each.name))
    elif isinstance(value, FunctionType):
        yield from _code(value.__code__)
        yield from _parts([_comparable(each) for each in _values_used_by(value)])
    elif isinstance(value, partial):
        yield from _parts((value.func, value.args, tuple(value.keywords.items())))
    else:
        yield repr(float(value) if type(value) is int else value).encode()


def _code(code: CodeType) -> Iterator[bytes]:
    yield f"{code.co_qualname} {code.co_names}".encode() + code.co_code
    for const in code.co_consts:
        yield from _code(const) if isinstance(const, CodeType) else [repr(const).encode()]


def _values_used_by(function: FunctionType) -> list[Any]:
    nonlocals = [cell.cell_contents for cell in function.__closure__ or ()]
    module_level = [function.__globals__.get(name) for name in function.__code__.co_names]
    return [*nonlocals, *module_level, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _comparable(value: Any) -> Any:
    numbers = (np.ndarray, np.generic, bool, int, float, complex, str, bytes, tuple, list, dict)
    return value if value is None or isinstance(value, numbers) else getattr(value, "__name__", type(value).__name__)


def _bytes_of(array: np.ndarray[Any, Any]) -> Iterator[Any]:
    if array.size and array.flags.c_contiguous:
        yield array.reshape(-1).view(np.uint8)
    elif array.size:
        step = max(1, _PIECE * len(array) // array.nbytes) if array.ndim else 1
        for lo in range(0, len(array), step):
            yield np.ascontiguousarray(array[lo : lo + step]).reshape(-1).view(np.uint8)
