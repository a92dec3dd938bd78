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

    def replay(self, what: str) -> Record | None:
        """The record of the next read, if there is one; `what` tells the read and its panel from any other."""

    def keep(self, what: str, record: Record) -> None:
        """Take down the record of a read that was made."""


_journal: ContextVar[Journal | None] = ContextVar("_journal", default=None)


def kept_in(journal: Journal) -> AbstractContextManager[None]:
    """Keep the reads of this block in `journal`, and replay those that it holds."""
    return holding(_journal, journal)


def unkept() -> AbstractContextManager[None]:
    """Keep nothing of what happens inside this block: it is a part of a read that is kept as a whole."""
    return holding(_journal, None)


def kept() -> bool:
    """Whether somebody keeps the reads."""
    return _journal.get() is not None


def once(what: str, panels: tuple[npt.NDArray[Any] | None, ...], read: Callable[[], Record]) -> Record:
    """What `read` gives, or gave in a run that was broken off; `panels` are what it depends on."""
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
