"""Threads over fixed blocks: the same blocks and the same order of sums for any number of threads."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

Block = TypeVar("Block")
Part = TypeVar("Part")


def default_threads() -> int:
    """The cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def ordered(function: Callable[[Block], Part], blocks: Sequence[Block], n_threads: int) -> Iterator[Part]:
    """``function(block)`` for each block, in the order of the blocks, at most ``n_threads + 1`` alive."""
    if n_threads == 1 or len(blocks) == 1:
        yield from map(function, blocks)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        alive: deque[Future[Part]] = deque()
        for block in blocks:
            alive.append(pool.submit(function, block))
            if len(alive) > n_threads:
                yield alive.popleft().result()
        while alive:
            yield alive.popleft().result()


@cache
def _controller() -> ThreadpoolController:
    """The thread pools of the libraries that are loaded; found once, since looking takes milliseconds."""
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """Limit BLAS to one thread: its own splitting would make results depend on the number of threads."""
    limit: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limit
