"""What a long computation tells a listener while it runs."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Event:
    """`done` of `total` units of one stage; a total of None is not known beforehand."""

    stage: str
    done: float
    total: float | None = None


class Listener(Protocol):
    """Anything that can be called with an `Event`."""

    def __call__(self, event: Event) -> None:
        """Take note of the event; never raise."""


def silent(event: Event) -> None:
    """The listener that does nothing."""
