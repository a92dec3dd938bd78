"""The verbs, and how the command ends; nothing here imports more than click."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

KEPT: Final = "shiftsvd.commands.kept"  # the object of click where this process is the command, whose memory is kept
INTERRUPTED: Final = 130
UNREAD: Final = 141  # output pipe closed by the reader, as shells say it of `cat`
TERMINATED: Final = 143


@contextmanager
def ending() -> Iterator[None]:
    """Exit with 130 after an interrupt and 141 after a closed output pipe; run clean-up code on SIGTERM."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(TERMINATED))
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(UNREAD)
    except KeyboardInterrupt:
        click.echo("interrupted; no output is half written", err=True)
        sys.exit(INTERRUPTED)
    finally:
        signal.signal(signal.SIGTERM, before)
