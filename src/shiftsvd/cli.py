"""The command: its subcommands, and how it ends when it is interrupted."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from shiftsvd.commands.bench import bench
from shiftsvd.commands.convert import convert
from shiftsvd.commands.estimate import estimate
from shiftsvd.commands.fit import fit
from shiftsvd.commands.info import info
from shiftsvd.commands.inverse import inverse
from shiftsvd.commands.paper import paper
from shiftsvd.commands.report import report
from shiftsvd.commands.running import KEPT
from shiftsvd.commands.transform import transform

# Nothing else is imported up here: `shiftsvd --help` answers at once.

INTERRUPTED = 130
UNREAD = 141  # as shells tell of `cat` when whoever read from it has had enough
TERMINATED = 143
EPILOG = """
\b
Options can be set in the environment: SHIFTSVD_FIT_THREADS=4.
Completion, in ~/.bashrc (also zsh_source, fish_source):
  eval "$(_SHIFTSVD_COMPLETE=bash_source shiftsvd)"
\b
Example:
  shiftsvd fit counts.h5ad -k 10 -o out/
"""


class Command(click.Group):
    """A group whose commands end with 130 when interrupted, as `cat` does when unread, and clean up when terminated."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **extra: Any) -> Any:
        if args is None:
            extra["obj"] = KEPT
        return super().main(args, *more, **extra)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _read_or_not():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        before = signal.signal(signal.SIGTERM, _terminate)
        try:
            with _read_or_not():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted; no output is half written", err=True)
            sys.exit(INTERRUPTED)
        finally:
            signal.signal(signal.SIGTERM, before)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@contextmanager
def _read_or_not() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(UNREAD)


def _terminate(number: int, frame: Any) -> None:
    sys.exit(TERMINATED)


@click.group(
    cls=Command,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "SHIFTSVD"},
)
@click.version_option(package_name="shiftsvd")
def main() -> None:
    """Principal component analysis (PCA) of a file: a table, a sparse matrix, single cells, genotypes.

    To begin: shiftsvd fit table.csv -k 2 -o out/, and open out/report.html in a browser.

    Results go to stdout, messages to stderr. Exit codes: 0 done, 1 data, input or output, or a check that failed,
    2 usage or option values, 130 interrupted, 141 nobody reads on.
    """


for command in (fit, transform, inverse, info, estimate, convert, report, bench, paper):
    main.add_command(command)
