"""Threads over fixed blocks: the same blocks and the same order of sums for any number of threads."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

Block = TypeVar("Block")
Part = TypeVar("Part")


_limit: ContextVar[int | None] = ContextVar("_limit", default=None)


def default_threads() -> int:
    """The threads of the running fit; outside of one, the cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return _limit.get() or (len(affinity(0)) if affinity else os.cpu_count()) or 1


def ordered(function: Callable[[Block], Part], blocks: Iterable[Block], n_threads: int) -> Iterator[Part]:
    """``function(block)`` for each block, in the order of the blocks, at most ``n_threads + 1`` alive."""
    if n_threads == 1 or (isinstance(blocks, Sized) and len(blocks) == 1):
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


def given_threads() -> int | None:
    """The threads that the running fit was given, if it was."""
    return _limit.get()


@contextmanager
def threads(n_threads: int | None = None) -> Iterator[None]:
    """Run blocks in so many threads (None: as many as around this), and BLAS in one.

    The splitting that BLAS does by itself would make results depend on the number of threads.
    """
    before = _limit.set(n_threads or _limit.get())
    try:
        with _controller().limit(limits=1, user_api="blas"):
            yield
    finally:
        _limit.reset(before)
