"""Show progress on stderr: bars with the time left, or one JSON object per line."""

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
# Minimum seconds between two JSON lines that complete no further unit.
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
    # Print each completed unit at once, and intermediate progress twice a second.
    printed: dict[str, tuple[int, float]] = {}  # completed units of each stage, and the time of its last line

    def listen(event: Event) -> None:
        now, whole = time.monotonic(), math.floor(event.done + 1e-6)  # shares of a pass sum to 1 up to rounding
        before, when = printed.get(event.stage, (-1, 0.0))
        if whole != before or now - when >= PAUSE:
            printed[event.stage] = whole, now
            line = {"stage": event.stage, "done": round(event.done, 6), "total": event.total, "worst": event.worst}
            print(json.dumps(line), file=stream, flush=True)

    return listen
