"""How a subcommand runs: warnings and errors as single lines, and exit codes."""

import logging
import os
import re
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from shiftsvd.backends.validation import NotFinite
from shiftsvd.commands.options import EXTERNAL, LINE, SCALES, TRUSTED, as_given, write_options
from shiftsvd.commands.spelling import spelled
from shiftsvd.errors import plain, plain_lines
from shiftsvd.runs.messages import NOTICE, Notice, ValuesWarning, external_files

IN_FIT = "--missing mean or --missing em says what stands for them"
IN_ESTIMATE = "--missing mean puts the means in their place"
IN_TRANSFORM = "fill them, or fit the model with --missing mean or --missing em: it knows what stands for them then"
BEFORE = "fill them first: --preprocess is for data without gaps"
ELSEWHERE = "fill them first"
INFINITE = "replace the infinite ones in the file"


def remedied(error: BaseException) -> BaseException:
    if not isinstance(error, NotFinite):
        return error
    found = error.found
    if found.names is None:
        error = error.but(names={int(place): int(place) + 1 for place in found.columns[0]})
    if found.nothing_else:
        return error
    return error.but(remedy=INFINITE if found.n_inf else _of_missing(click.get_current_context().command))


def _of_missing(command: click.Command) -> str:
    if click.get_current_context().params.get("preprocess"):  # which has no --missing beside it
        return BEFORE
    return {"fit": IN_FIT, "estimate": IN_ESTIMATE, "transform": IN_TRANSFORM}.get(str(command.name), ELSEWHERE)


CAUGHT = (ValueError, OSError, ImportError, MemoryError)
KEPT = "shiftsvd.commands.kept"  # the object of click where this process is the command, whose memory is kept
NO_THREAD = "can't start new thread"  # in the RuntimeError of Python, here and on workers; fits go on without
_SHOWN = 3  # files that a line names


class Subcommand(click.Command):
    """A command whose data errors end with 1, in a line that says what is wrong."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[LINE] = shlex.join(["shiftsvd", str(ctx.info_name), *args])
        after = [*args[1:], ""]
        spelled = [
            f"--scale={SCALES[0]}" if word == "--scale" and follows not in SCALES else word
            for word, follows in zip(args, after, strict=False)
        ]
        return super().parse_args(ctx, spelled)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not write_options(self, ctx, formatter):
            super().format_options(ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        verbose = int(ctx.params.get("verbose", 0))
        try:
            quiet = bool(ctx.params.get("quiet"))
            if ctx.obj == KEPT and "memory" in ctx.params:
                _keep_memory(ctx)
            allowed = external_files(bool(ctx.meta.get(EXTERNAL)))
            with allowed, _warnings_told(quiet, bool(ctx.meta.get(TRUSTED))), _log_told(verbose, quiet):
                return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the reader of our output has had enough; click knows what to do
        except (*CAUGHT, RuntimeError) as error:
            if not isinstance(error, CAUGHT) and NO_THREAD not in str(error):
                raise  # a fault of the program, which wants its traceback
            if verbose >= 2:
                click.echo(plain_lines(traceback.format_exc()), err=True)
            raise click.ClickException(_line(_remedied(error))) from None


def _keep_memory(ctx: click.Context) -> None:
    from shiftsvd.kernels import default_threads
    from shiftsvd.runs.memory import keep_memory

    # Zarr's dozens of threads and Arrow's allocators keep memory that no estimate counts, and are no faster.
    os.environ.setdefault("ZARR_THREADING__MAX_WORKERS", str(default_threads()))
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    sources = [each for each in ctx.command.params if isinstance(each, click.Argument) and _is_read(each.type)]
    given = [ctx.params[str(each.name)] for each in sources]
    flat = [path for each in given for path in (each if isinstance(each, tuple) else (each,)) if path is not None]
    more = f" and {len(flat) - _SHOWN} more" if len(flat) > _SHOWN else ""
    keep_memory(ctx.params["memory"], plain(as_given(", ".join(map(str, flat[:_SHOWN])) + more)))


def _is_read(kind: Any) -> bool:
    return isinstance(kind, click.Path) and kind.exists


def _remedied(error: BaseException) -> BaseException:

    return remedied(error)


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
    return plain(re.sub(r"\s*\n\s*", " ", spelled(text)).strip()) or type(error).__name__


@contextmanager
def _warnings_told(quiet: bool, trusted: bool) -> Iterator[None]:
    told: set[str] = set()

    def tell(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if str(message) not in told:
            told.add(str(message))
            is_notice = issubclass(category, Notice)
            if not ((is_notice and quiet) or (trusted and issubclass(category, ValuesWarning))):
                click.echo(f"{'' if is_notice else 'warning: '}{plain(spelled(str(message)))}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = tell
        yield


class _Plain(logging.Formatter):
    """Lines of the log without what steers a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return plain_lines(spelled(super().format(record)))


@contextmanager
def _log_told(verbose: int, quiet: bool) -> Iterator[None]:
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
