"""Renders events as a progress bar with the time left, on stderr."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from shiftsvd.events import Event, Listener, silent


@contextmanager
def progress_bar() -> Iterator[Listener]:
    """A listener that draws one bar for each stage; silent where stderr is not a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield silent
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bars:
        stages: dict[str, TaskID] = {}

        def listen(event: Event) -> None:
            if event.stage not in stages:
                stages[event.stage] = bars.add_task(event.stage, total=event.total)
            bars.update(stages[event.stage], completed=event.done, total=event.total)

        yield listen
