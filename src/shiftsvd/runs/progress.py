"""Renders events on stderr: as bars with the time left, or as one JSON object a line."""

import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any, Final, TextIO

from shiftsvd.events import Event, Listener, silent

KINDS: Final = ("auto", "always", "never", "json")
# Seconds between two lines of JSON, unless a unit was completed between them.
PAUSE: Final = 0.5


@contextmanager
def progress(kind: str = "auto", quiet: bool = False) -> Iterator[Listener]:
    if kind == "json":
        yield _json_lines(sys.stderr)
    elif (kind == "always" or (kind == "auto" and not quiet and sys.stderr.isatty())) and _threads_start():
        with _bars() as listen:
            yield listen
    else:
        yield silent


def _threads_start() -> bool:
    try:
        Thread(target=int).start()
    except RuntimeError:  # can't start new thread
        return False
    return True


@contextmanager
def _bars() -> Iterator[Listener]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
    from rich.table import Column

    columns = (
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[worst]}", table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[count]}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=1)),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True, force_terminal=True)
    with Progress(*columns, console=console, speed_estimate_period=300, transient=True, expand=True) as bars:
        stages: dict[str, TaskID] = {}

        def listen(event: Event) -> None:
            total = "?" if event.total is None else f"{round(event.total, 1):g}"
            fields: dict[str, Any] = {"count": f"{round(event.done, 1):g}/{total}"}
            fields["worst"] = "" if event.worst is None else f"worst error {event.worst:.0e}"
            if event.stage not in stages:
                stages[event.stage] = bars.add_task(event.stage, total=event.total, **fields)
            bars.update(stages[event.stage], completed=event.done, total=event.total, **fields)

        yield listen


def _json_lines(stream: TextIO) -> Listener:
    # For machines: every completed unit, and twice a second between.
    told: dict[str, tuple[int, float]] = {}  # of each stage the whole units done, and when that was written

    def listen(event: Event) -> None:
        now, whole = time.monotonic(), math.floor(event.done + 1e-6)  # shares of a pass add up to it but for rounding
        before, when = told.get(event.stage, (-1, 0.0))
        if whole != before or now - when >= PAUSE:
            told[event.stage] = whole, now
            line = {"stage": event.stage, "done": round(event.done, 6), "total": event.total, "worst": event.worst}
            print(json.dumps(line), file=stream, flush=True)

    return listen
