"""How a verb runs: warnings and errors become single lines on stderr that name options, and exit codes."""

import logging
import os
import re
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from shiftsvd.commands import KEPT
from shiftsvd.commands.options import LINE, as_given, worded, write_options
from shiftsvd.commands.settings import SCALES
from shiftsvd.errors import Worded, plain, plain_lines
from shiftsvd.runs.messages import NOTICE, Notice, ValuesWarning, external_files

CAUGHT: Final = (ValueError, OSError, ImportError, MemoryError)
NO_THREAD: Final = "can't start new thread"  # in the RuntimeError of Python, here and on workers; fits go on without
_SHOWN: Final = 3  # files that a line names
# What helps with missing entries, by the verb that met them.
_FILL: Final = {
    "fit": "--missing mean or --missing em says what stands for them",
    "estimate": "--missing mean puts the means in their place",
    "transform": "fill them, or fit the model with --missing mean or --missing em: it knows what stands for them then",
}


class Subcommand(click.Command):
    """A verb that prints errors of data as one line, and ends with exit code 1."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[LINE] = shlex.join(["shiftsvd", str(ctx.info_name), *args])
        after = [*args[1:], ""]
        whole = [  # --scale may stand alone, before the file too
            f"--scale={SCALES[0]}" if word == "--scale" and follows not in SCALES else word
            for word, follows in zip(args, after, strict=False)
        ]
        return super().parse_args(ctx, whole)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not write_options(self, ctx, formatter):
            super().format_options(ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        verbose = int(ctx.params.get("verbose", 0))
        try:
            quiet = bool(ctx.params.get("quiet"))
            if ctx.obj == KEPT and "memory" in ctx.params:
                _keep_memory(ctx)
            allowed = external_files(bool(ctx.params.get("allow_external")))
            with (
                allowed,
                _warnings_as_lines(quiet, bool(ctx.params.get("trust_values"))),
                _log_as_lines(verbose, quiet),
            ):
                return super().invoke(ctx)
        except BrokenPipeError:
            raise  # `commands.ending` knows what to do
        except (*CAUGHT, RuntimeError) as error:
            if not isinstance(error, CAUGHT) and NO_THREAD not in str(error):
                raise  # a fault of the program, which wants its traceback
            if verbose >= 2:
                click.echo(plain_lines(traceback.format_exc()), err=True)
            raise click.ClickException(_line(_with_remedy(error))) from None


def _keep_memory(ctx: click.Context) -> None:
    from shiftsvd.kernels import default_threads
    from shiftsvd.runs.memory import keep_memory

    # Zarr's dozens of threads and Arrow's allocators keep memory that no estimate counts, and are no faster.
    os.environ.setdefault("ZARR_THREADING__MAX_WORKERS", str(default_threads()))
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    arguments = (each for each in ctx.command.params if isinstance(each, click.Argument))
    given = [ctx.params[str(each.name)] for each in arguments if getattr(each.type, "exists", False)]
    flat = [path for each in given for path in (each if isinstance(each, tuple) else (each,)) if path is not None]
    more = f" and {len(flat) - _SHOWN} more" if len(flat) > _SHOWN else ""
    keep_memory(ctx.params["memory"], plain(as_given(", ".join(map(str, flat[:_SHOWN])) + more)))


def _with_remedy(error: BaseException) -> BaseException:
    """Add the remedy that this verb has to an error about missing or infinite entries."""
    from shiftsvd.backends.validation import NotFinite

    if not isinstance(error, NotFinite):
        return error
    found = error.found
    if found.names is None:  # people count columns from 1
        error = error.but(names={int(place): int(place) + 1 for place in found.columns[0]})
    if found.nothing_else:
        return error
    context = click.get_current_context()
    if found.n_inf:
        return error.but(remedy="replace the infinite ones in the file")
    if context.params.get("preprocess"):
        return error.but(remedy="fill them first: --preprocess is for data without gaps")
    return error.but(remedy=_FILL.get(str(context.command.name), "fill them first"))


def _line(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    elif isinstance(error, OSError) and error.strerror:
        text = error.strerror
    elif NO_THREAD in text:
        text = f"the system starts no more threads ({text}); end other programs, or raise the limit (ulimit -u)"
    elif isinstance(error, MemoryError):
        text = f"not enough memory ({text or 'none left'}); give --memory, or ask for fewer components"
    else:
        text = worded(error)
    return plain(re.sub(r"\s*\n\s*", " ", as_given(text)).strip()) or type(error).__name__


@contextmanager
def _warnings_as_lines(quiet: bool, trusted: bool) -> Iterator[None]:
    """Print each warning of the library once; omit notices with --quiet, and warnings of values with --trust-values."""
    told: set[str] = set()

    def tell(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if str(message) not in told:
            told.add(str(message))
            is_notice = issubclass(category, Notice)
            text = worded(message) if isinstance(message, Warning) else message
            if not ((is_notice and quiet) or (trusted and issubclass(category, ValuesWarning))):
                click.echo(f"{'' if is_notice else 'warning: '}{plain(as_given(text))}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = tell
        yield


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = worded(record.msg) if isinstance(record.msg, Worded) else super().format(record)
        return plain_lines(as_given(text))


@contextmanager
def _log_as_lines(verbose: int, quiet: bool) -> Iterator[None]:
    """Print the log of the library: notices by default, information with -v, details with -vv."""
    logger, handler = logging.getLogger("shiftsvd"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Plain("%(message)s"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel((logging.WARNING if quiet else NOTICE, logging.INFO, logging.DEBUG)[min(verbose, 2)])
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
