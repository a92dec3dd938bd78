"""What a matrix holds in memory, and what that leaves of a limit for the rest of a run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

from shiftsvd.backends.source import RowSource
from shiftsvd.operators import Operator
from shiftsvd.runs.memory import OverLimit, parse_bytes


def bytes_in_memory(A: Any) -> int:
    seen: dict[int, int] = {}
    waiting = [A]
    while waiting:
        one = waiting.pop()
        while isinstance(one, np.ndarray) and isinstance(one.base, np.ndarray):
            one = one.base
        if id(one) in seen:
            continue
        seen[id(one)] = one.nbytes if isinstance(one, np.ndarray) and not isinstance(one, np.memmap) else 0
        waiting += _parts(one)
    return sum(seen.values())


def _parts(one: Any) -> list[Any]:
    if isinstance(one, list | tuple):
        return list(one)
    if isinstance(one, Operator | RowSource) or issparse(one) or (is_dataclass(one) and not isinstance(one, type)):
        return [part for part in vars(one).values() if not isinstance(part, dict)]
    return []


def left_beside(A: Any, memory_limit: int | str | None) -> int | str | None:
    return None if memory_limit is None else max(1, parse_bytes(memory_limit) - bytes_in_memory(A))


@contextmanager
def counted(A: Any) -> Iterator[None]:
    try:
        yield
    except OverLimit as error:
        raise error.beside(bytes_in_memory(A)) from None
