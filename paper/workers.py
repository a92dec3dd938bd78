"""Independent tasks on all cores: in order, one heavy task at a time, ended at once by an interrupt."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from threadpoolctl import threadpool_limits

from paper.published import Values
from shiftsvd.events import Event, Listener, silent
from shiftsvd.kernels import threads

STAGE: Final = "running the experiments"


@dataclass(frozen=True, eq=False)
class Task:
    """A call; its share of the whole time in any unit; whether it takes too much memory to run beside its like."""

    call: Callable[[], Values]
    weight: float = 1
    heavy: bool = False


def execute(tasks: Sequence[Task], jobs: int, listen: Listener = silent) -> list[Values]:
    total = sum(task.weight for task in tasks)
    finished: Iterator[tuple[Task, Values]]
    results: dict[Task, Values] = {}
    with ExitStack() as stack:
        stack.enter_context(threads())  # BLAS in one thread, as in the workers: the same bits for any number of jobs
        finished = ((task, task.call()) for task in tasks) if jobs == 1 else _in_processes(tasks, jobs, stack)
        done = 0.0
        for task, values in finished:
            results[task] = values
            done += task.weight
            listen(Event(STAGE, done, total))
    return [results[task] for task in tasks]


def _in_processes(tasks: Sequence[Task], jobs: int, stack: ExitStack) -> Iterator[tuple[Task, Values]]:
    futures: dict[Future[Values], Task] = {}
    heavy = any(task.heavy for task in tasks)
    for kind, workers in ((True, 1), (False, jobs - heavy)):
        chosen = [task for task in tasks if task.heavy is kind]
        if chosen:
            pool = stack.enter_context(_pool(workers))
            with _interrupts_later():  # whoever is started has them waiting too, and begins by ignoring them
                futures |= {pool.submit(task.call): task for task in chosen}
    for future in as_completed(futures):
        yield futures[future], future.result()


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    before = set(multiprocessing.active_children())
    # Spawned, not forked: BLAS and the progress bar have threads, and forks of threads hang.
    context: Any = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise
    pool.shutdown()


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Have an interrupt wait for the end of this block, here and for good in the processes that it starts.

    One that meets a process before it ignores interrupts, among its first imports, would print a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(1)
