"""Threads over fixed blocks, in a fixed order, and one BLAS thread during a fit."""

import ctypes
import os
import sys
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from functools import cache, lru_cache
from itertools import chain, islice, product
from numbers import Integral
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import RLock, Thread, get_ident, local
from typing import Any, Generic, NamedTuple, TypeVar

from threadpoolctl import ThreadpoolController

from shiftsvd.errors import refuse


class Library(NamedTuple):
    """BLAS library: functions to get and set its number of threads, and whether that number is per thread."""

    path: str
    get: Callable[[], int | None]
    set: Callable[[int], object]
    by_thread: bool


def libraries() -> list[Library]:
    return _found(len(sys.modules))


@lru_cache(maxsize=1)
def _found(n_modules: int) -> list[Library]:
    found = [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]
    return [
        Library(library.filepath, library.get_num_threads, _setter(library), _by_thread(library)) for library in found
    ]


def _by_thread(library: Any) -> bool:
    kind: str = library.internal_api
    return kind == "mkl" or (kind == "openblas" and str(library.threading_layer) == "openmp")


def _setter(library: Any) -> Callable[[int], object]:
    # If the number of threads belongs to the process, threadpoolctl from 3.7 on accepts limits from one thread only,
    # and silently ignores those of other threads until that thread has left its limit. A fit in another thread would
    # neither get one BLAS thread nor restore the old number. So call OpenBLAS directly, by any prefix of its names.
    if library.internal_api == "openblas" and not _by_thread(library):
        loaded = ctypes.CDLL(library.filepath)
        for prefix, suffix in product(("", "scipy_"), ("", "64_", "_64")):
            own: Callable[[int], object] | None = getattr(loaded, f"{prefix}openblas_set_num_threads{suffix}", None)
            if own is not None:
                return own
    set_: Callable[[int], object] = library.set_num_threads
    return set_


class OneThread:
    """Limit BLAS to one thread in the whole process while any fit runs."""

    # If the number of threads is raised during a fit, such as at the end of a limit by another library, limit BLAS
    # again at the start of the next fit, and restore that number after the last.

    def __init__(self) -> None:
        self.lock = RLock()  # the garbage collector may end an abandoned fit while this thread is inside
        self.holders: dict[object, int] = {}  # an object for each running fit, and its thread
        self.saved: dict[str, tuple[Library, int]] = {}  # numbers of threads to restore

    @contextmanager
    def held(self) -> Iterator[None]:
        holder = object()
        try:
            self._take(holder)
            yield
        finally:
            try:
                self._drop(holder)
            except BaseException:  # an interrupt: try again
                self._drop(holder)
                raise

    def _take(self, holder: object) -> None:
        with self.lock:
            self.holders[holder] = get_ident()
            for library in libraries():
                number = None if library.by_thread else library.get()
                if number is not None and number > 1:
                    self.saved[library.path] = library, number
                    library.set(1)

    def _drop(self, holder: object) -> None:
        with self.lock:
            self.holders.pop(holder, None)
            self._lift()

    def _lift(self) -> None:
        while self.saved and not self.holders:
            library, number = next(iter(self.saved.values()))
            if library.get() == 1:
                library.set(number)
            self.saved.pop(library.path, None)

    def after_fork(self) -> None:
        self.lock = RLock()
        self.holders = {holder: ident for holder, ident in self.holders.items() if ident == get_ident()}
        self._lift()


process = OneThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=process.after_fork)


_here = local()


def limited_here() -> bool:
    return getattr(_here, "limited", False)


def limit_here() -> None:
    _here.limited = True
    for library in libraries():
        if library.by_thread:
            library.set(1)


@contextmanager
def one_thread() -> Iterator[None]:
    before = limited_here()
    mine = [(library, number) for library in libraries() if library.by_thread and (number := library.get())]
    with process.held():
        try:
            limit_here()
            yield
        finally:
            _here.limited = before
            for library, number in mine:
                library.set(number)


Block = TypeVar("Block")
Part = TypeVar("Part")


class _Pool:
    """Pool of helper threads; smaller or empty if the system cannot start more threads."""

    # Do not use ThreadPoolExecutor or Event: an interrupt inside their Python code can leave a lock acquired for ever,
    # and the next waiter hangs (tests/runs/test_overlap.py). The same holds for `Thread.start`, so another thread,
    # which receives no signals, starts threads. This thread only makes single calls of C functions.

    def __init__(self, n_threads: int) -> None:
        self.wanted, self.launched = n_threads, False
        self.queue: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self.ready: SimpleQueue[None] = SimpleQueue()
        self.threads: list[Thread] = []

    def submit(self, run: Callable[[], object]) -> None:
        if not self.launched:
            self.launched = True
            try:
                start_new_thread(self._launch, ())
            except RuntimeError:  # can't start new thread
                self.wanted = 0
                self.ready.put(None)
        if self.wanted:
            self.queue.put(run)

    def _launch(self) -> None:
        try:
            while len(self.threads) < self.wanted:
                thread = Thread(target=_work, args=(self.queue,), daemon=True)
                thread.start()
                self.threads.append(thread)
        except RuntimeError:  # can't start new thread
            self.wanted = len(self.threads)
        finally:
            self.ready.put(None)

    def close(self) -> None:
        self.wanted = 0
        if self.launched:
            with suppress(Empty):  # empty after an interrupt between setting `launched` and the launch
                self.ready.get(timeout=1)
            self.ready.put(None)
        while alive := [thread for thread in self.threads if thread.is_alive()]:
            for _ in alive:  # one for each thread, because any thread may take any of them
                self.queue.put(None)
            alive[0].join(0.05)


def _work(queue: "SimpleQueue[Callable[[], object] | None]") -> None:
    limit_here()
    while (run := queue.get()) is not None:
        with suppress(BaseException):  # the task stores its error and raises it when its result is read
            run()
        del run


# Thread pools of one fit, by their number of threads. A pool starts when it is first used and serves all products,
# because starting threads takes milliseconds.
_Pools = dict[int, _Pool]


def _close(pools: _Pools) -> None:
    for pool in pools.values():
        pool.close()


class _RunningFit:
    """Running fit: its number of threads, and its pools, which it shares with an enclosing fit."""

    def __init__(self, n_threads: int | None, pools: _Pools | None) -> None:
        self.outer: _RunningFit | None = _running.get()
        self.n_threads = n_threads or given_threads()
        outer = self.outer.pools if pools is None and self.outer else pools
        self.pools: _Pools = {} if outer is None else outer
        self.owns, self.over = outer is None, False

    def end(self) -> None:
        self.over = True
        left = fit = _running.get()
        while fit is not None:  # after an interrupt, an inner fit may end after its outer fit
            left, fit = (fit.outer if fit.over else left), fit.outer
        _running.set(left)
        if self.owns:
            _close(self.pools)


_running: ContextVar[_RunningFit | None] = ContextVar("_running", default=None)


def given_threads() -> int | None:
    fit = _running.get()
    return fit.n_threads if fit else None


def default_threads() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    cores = (len(affinity(0)) if affinity else os.cpu_count()) or 1
    return given_threads() or min(cores, _quota() or cores)


# Files of control groups, versions 2 and 1, with the CPU quota of a container: microseconds per period.
QUOTAS = ("/sys/fs/cgroup/cpu.max",), ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us")


@cache
def _quota() -> int | None:
    for files in QUOTAS:
        with suppress(OSError, ValueError):  # no such file, or "max"
            quota, period = (int(x) for file in files for x in Path(file).read_text(encoding="ascii").split())
            return max(1, -(-quota // period)) if quota > 0 else None
    return None


def thread_count(n_threads: Any = None) -> int:
    count = default_threads() if n_threads is None else n_threads
    if not isinstance(count, Integral) or count < 1:
        raise refuse("n_threads", "be a positive integer or None", n_threads)
    return int(count)


@contextmanager
def threads(n_threads: int | None = None, pools: _Pools | None = None) -> Iterator[None]:
    # Blocks run in `n_threads` threads (None: as in the enclosing context), and BLAS in one thread: BLAS with several
    # threads would make results depend on the number of threads.
    outer = _running.get()
    if outer and pools is None and limited_here() and not outer.over and n_threads in (None, outer.n_threads):
        yield
        return
    fit = _RunningFit(None if n_threads is None else thread_count(n_threads), pools)
    with one_thread():
        try:
            _running.set(fit)
            yield
        finally:
            try:
                fit.end()
            except BaseException:  # an interrupt
                fit.end()
                raise


def stepwise(parts: Generator[Part, None, None], n_threads: int | None = None) -> Iterator[Part]:
    pools: _Pools = {}
    try:
        with closing(parts):
            while True:
                with threads(n_threads, pools):
                    part = next(parts, _END)
                if part is _END:
                    return
                yield part  # type: ignore[misc]
    finally:
        _close(pools)


def ordered(function: Callable[[Block], Part], blocks: Iterable[Block], n_threads: int) -> Iterator[Part]:
    # Yield ``function(block)`` for each block, in the order of the blocks, with at most ``n_threads + 1`` results in
    # memory. The calling thread is one of the `n_threads`: it works on blocks while the next result is not ready, and
    # on all blocks if the system cannot start other threads. BLAS uses one thread during this time.
    source = iter(blocks)
    ahead = list(islice(source, 2))
    is_one = len(ahead) < 2
    source = chain(ahead, source)
    del ahead  # free the first blocks as soon as they are done
    if n_threads == 1 or is_one:
        yield from (_with_limit(function, block) for block in source)
        return
    waiting: deque[_Task[Block, Part]] = deque()
    with process.held(), _shared_pool(n_threads - 1) as pool:
        try:
            while True:
                while len(waiting) <= n_threads and (block := next(source, _END)) is not _END:
                    waiting.append(_Task(function, block))  # type: ignore[arg-type]
                    pool.submit(waiting[-1].run)
                if not waiting:
                    return
                while not waiting[0].over and any(_with_limit(_Task.run, task) for task in waiting):
                    pass
                waiting[0].wait()
                yield waiting.popleft().result()
        finally:
            for task in waiting:  # after an error: stop all background work
                task.give_up()


_END = object()


def _with_limit(function: Callable[[Block], Part], block: Block) -> Part:
    if limited_here():
        return function(block)
    with one_thread():
        return function(block)


class _Task(Generic[Block, Part]):
    """Block for a thread of the pool, or for the caller if the caller takes it first."""

    def __init__(self, function: Callable[[Block], Part], block: Block) -> None:
        self.function, self.block = function, block
        self.over, self.part = False, list[Part]()
        self.error: BaseException | None = None
        self._finished: SimpleQueue[None] = SimpleQueue()
        self._thread: dict[str, int] = {}

    def _claim(self) -> bool:
        return self._thread.setdefault("thread", get_ident()) == get_ident()  # atomic, also under interrupts

    def run(self) -> bool:
        if self.over or not self._claim():
            return False
        try:
            self.part.append(self.function(self.block))
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.over = True
            self._finished.put(None)
        return True

    def wait(self) -> None:
        while not self.over:
            self._finished.get()

    def result(self) -> Part:
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # breaks a reference cycle: the traceback of the error refers to this task
        return self.part.pop()

    def give_up(self) -> None:
        if not self._claim():
            self.wait()


@contextmanager
def _shared_pool(n_threads: int) -> Iterator[_Pool]:
    fit, own = _running.get(), _Pools()
    pools = fit.pools if fit else own
    try:
        if n_threads not in pools:
            pools[n_threads] = _Pool(n_threads)
        yield pools[n_threads]
    finally:
        _close(own)
