"""Threads over fixed blocks: the same blocks and the same order of sums for any number of threads."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import chain, islice
from typing import Generic, TypeVar

from threadpoolctl import ThreadpoolController

Block = TypeVar("Block")
Part = TypeVar("Part")


_limit: ContextVar[int | None] = ContextVar("_limit", default=None)


class _Pools:
    """The threads of one fit, started when first needed; starting them for each product takes milliseconds."""

    def __init__(self) -> None:
        self._pools: dict[int, ThreadPoolExecutor] = {}

    def of(self, n_threads: int) -> ThreadPoolExecutor:
        """A pool of so many threads."""
        if n_threads not in self._pools:
            self._pools[n_threads] = ThreadPoolExecutor(n_threads)
        return self._pools[n_threads]

    def close(self) -> None:
        """End the threads."""
        for pool in self._pools.values():
            pool.shutdown()


_pools: ContextVar[_Pools | None] = ContextVar("_pools", default=None)


def default_threads() -> int:
    """The threads of the running fit; outside of one, the cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return _limit.get() or (len(affinity(0)) if affinity else os.cpu_count()) or 1


def ordered(function: Callable[[Block], Part], blocks: Iterable[Block], n_threads: int) -> Iterator[Part]:
    """``function(block)`` for each block, in the order of the blocks, at most ``n_threads + 1`` alive.

    The calling thread is one of the `n_threads`: it works on a block of its own while the others are busy.
    """
    source = iter(blocks)
    ahead = list(islice(source, 2))
    if n_threads == 1 or len(ahead) < 2:
        yield from map(function, chain(ahead, source))
        return
    source = chain(ahead, source)
    with _borrowed(n_threads - 1) as pool:
        waiting: deque[_Task[Block, Part]] = deque()
        try:
            while True:
                while len(waiting) <= n_threads and (block := next(source, _END)) is not _END:
                    waiting.append(_Task(function, block, pool))  # type: ignore[arg-type]
                if not waiting:
                    return
                while not waiting[0].done and any(task.run_here() for task in waiting):
                    pass
                yield waiting.popleft().result()
        finally:
            for task in waiting:  # after an error: nothing goes on in the background
                task.future.cancel()


_END = object()


class _Task(Generic[Block, Part]):
    """A block that a thread of the pool works on, unless the caller is first."""

    def __init__(self, function: Callable[[Block], Part], block: Block, pool: ThreadPoolExecutor) -> None:
        self.function, self.block = function, block
        self.future: Future[Part] = pool.submit(function, block)
        self.part: list[Part] = []

    @property
    def done(self) -> bool:
        """Whether there is a result, or an error."""
        return bool(self.part) or (self.future.done() and not self.future.cancelled())

    def run_here(self) -> bool:
        """Do it in this thread, if no other has begun."""
        if self.part or not self.future.cancel():
            return False
        self.part.append(self.function(self.block))
        return True

    def result(self) -> Part:
        """The part; waits for it."""
        return self.part[0] if self.part else self.future.result()


@contextmanager
def _borrowed(n_threads: int) -> Iterator[ThreadPoolExecutor]:
    """The pool of the running fit, or one of its own outside of any."""
    pools = _pools.get()
    if pools is not None:
        yield pools.of(n_threads)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        yield pool


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
    pools = None if _pools.get() else _Pools()
    outer = _pools.set(_pools.get() or pools)
    try:
        with _controller().limit(limits=1, user_api="blas"):
            yield
    finally:
        _pools.reset(outer)
        _limit.reset(before)
        if pools is not None:
            pools.close()
