"""Progress of a long computation, reported to a listener while it runs."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, TypeVar

__all__ = ["Event", "Listener", "listening"]

Value = TypeVar("Value")


@dataclass(frozen=True)
class Event:
    """Progress of one stage of a computation: `done` of `total` units are finished.

    Parameters
    ----------
    stage : str
        "passes" for reads of the data; `done` grows block by block.
    done : float
        Finished units, including fractions.
    total : float or None
        Units that the solver expects; None if it cannot predict them.
    worst : float or None
        The largest bound of the relative errors of the wanted singular values, at the last check.

    See Also
    --------
    events.listening : Receive these events.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> events: list[ss.events.Event] = []
    >>> with ss.events.listening(events.append):
    ...     F = ss.svd(np.eye(50)[:, :20], 3, solver="lanczos", rng=0)
    >>> isinstance(events[0], ss.events.Event)
    True
    """

    stage: str
    done: float
    total: float | None = None
    worst: float | None = None


class Listener(Protocol):
    """Anything that can be called with an `Event`.

    See Also
    --------
    events.listening : Register a listener.

    Examples
    --------
    >>> import shiftsvd as ss
    >>> def show(event: ss.events.Event) -> None:
    ...     print(event.stage)
    """

    def __call__(self, event: Event) -> None:
        """Handle the event; never raise."""


def silent(event: Event) -> None: ...


@dataclass
class Progress:
    """Passes over the data so far, expected passes, and the listener."""

    listener: Listener
    passes: float = 0.0
    expected: float | None = None
    worst: float | None = None

    def report(self) -> None:
        total = None if self.expected is None else max(self.expected, self.passes)
        self.listener(Event("passes", self.passes, total, self.worst))


_progress: ContextVar[Progress | None] = ContextVar("_progress", default=None)


@contextmanager
def set_within(variable: ContextVar[Value], value: Value) -> Iterator[None]:
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)


def listening(listener: Listener) -> AbstractContextManager[None]:
    """Report the progress of every fit inside a ``with`` block to `listener`.

    Parameters
    ----------
    listener : callable
        Called with an `Event`, in the thread that computes: it should be quick, and never raise.

    Returns
    -------
    context manager
        For ``with``; fits of other threads are not reported.

    See Also
    --------
    events.Event : The argument of the listener.
    checkpoint : Keep the results of reads.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> stages: set[str] = set()
    >>> with ss.events.listening(lambda event: stages.add(event.stage)):
    ...     F = ss.svd(np.eye(50)[:, :20], 3, solver="lanczos", rng=0)
    >>> bool(stages)
    True
    """
    return set_within(_progress, Progress(listener))


def without_progress() -> AbstractContextManager[None]:
    return set_within(_progress, None)


def passes_so_far() -> float | None:
    progress = _progress.get()
    return None if progress is None else progress.passes


def record_read(share: float) -> None:
    progress = _progress.get()
    if progress is not None:
        progress.passes += share
        progress.report()


def set_expected_passes(passes: float) -> None:
    progress = _progress.get()
    if progress is not None:
        progress.expected = progress.passes + passes
        progress.report()


def report_error_bound(worst: float) -> None:
    progress = _progress.get()
    if progress is not None:
        progress.worst = worst
        progress.report()
