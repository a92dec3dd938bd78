"""What survives a kill: the result of every read of the data, kept by whoever listens, replayed when run again."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Protocol

import numpy.typing as npt

from shiftsvd.events import holding
from shiftsvd.numerics.digests import told

Record = Mapping[str, npt.NDArray[Any]]


class Journal(Protocol):
    """Keeps one record for each read of the data, in their order.

    A solver is a function of its seed and of what its reads gave. Replaying those repeats a broken run bit by bit,
    whatever the solver, and nothing of its inner state has to be stored.
    """

    def replay(self, what: str) -> Record | None: ...

    def keep(self, what: str, record: Record) -> None: ...


_journal: ContextVar[Journal | None] = ContextVar("_journal", default=None)


def kept_in(journal: Journal) -> AbstractContextManager[None]:
    return holding(_journal, journal)


def unkept() -> AbstractContextManager[None]:
    return holding(_journal, None)


def kept() -> bool:
    return _journal.get() is not None


def once(what: str, panels: tuple[npt.NDArray[Any] | None, ...], read: Callable[[], Record]) -> Record:
    journal = _journal.get()
    if journal is None:
        return read()
    name = f"{what} {told(panels)}"
    record = journal.replay(name)
    if record is None:
        with unkept():
            record = read()
        journal.keep(name, record)
    return record
