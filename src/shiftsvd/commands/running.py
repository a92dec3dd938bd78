"""Run a subcommand: print warnings and errors as single lines that name options, and set the exit code."""

import logging
import os
import re
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, TextIO

import click

from shiftsvd.commands import OWN_PROCESS, of_system
from shiftsvd.commands.options import LINE, SPOOLED, as_given, worded, write_options
from shiftsvd.commands.settings import SCALES
from shiftsvd.errors import Worded, few, is_address, plain, plain_lines, plural, public_address
from shiftsvd.runs.messages import NOTICE, Notice, ValuesWarning, external_files

CAUGHT: Final = (ValueError, OSError, ImportError, MemoryError)
NO_THREAD: Final = "can't start new thread"  # text of Python's RuntimeError, in this process and on workers
# Remedies for missing values, by subcommand.
_PREDICT: Final = (
    "use --missing mean to replace missing values by the mean, or --missing em to predict them, also in columns "
    "without values"
)
_FILL: Final = {
    "fit": _PREDICT,
    "estimate": _PREDICT,
    "transform": "fill missing values in the file, or repeat the fit with --missing mean or --missing em, whose models "
    "accept missing values",
}


class Subcommand(click.Command):
    """A subcommand that prints errors of the data in one line and exits with code 1."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        shown = {word: public_address(word) for word in sorted(args, key=len, reverse=True) if is_address(word)}
        ctx.meta.setdefault(SPOOLED, {}).update(shown)
        ctx.meta[LINE] = shlex.join(["shiftsvd", str(ctx.info_name), *(shown.get(word, word) for word in args)])
        after = [*args[1:], ""]
        whole = [  # --scale needs no value, even in front of FILE
            f"--scale={SCALES[0]}" if word == "--scale" and not _is_value(follows) else word
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
            if ctx.obj == OWN_PROCESS and "memory" in ctx.params:
                _keep_memory(ctx)
            allowed = external_files(bool(ctx.params.get("allow_external")))
            with (
                allowed,
                _copies(ctx),
                _warnings_as_lines(quiet, bool(ctx.params.get("trust_values"))),
                _log_as_lines(verbose, quiet),
            ):
                return super().invoke(ctx)
        except BrokenPipeError:
            raise  # `commands.ending` exits with 141
        except (*CAUGHT, RuntimeError) as error:
            if not isinstance(error, CAUGHT) and NO_THREAD not in str(error):
                raise  # a bug: print the traceback
            if verbose >= 2:
                click.echo(plain_lines(traceback.format_exc()), err=True)
            raise click.ClickException(_line(_with_remedy(error))) from None


def _copies(ctx: click.Context) -> AbstractContextManager[None]:
    folder = ctx.params.get("cache")
    if folder is None:
        return nullcontext()
    from shiftsvd.io.caching import cache

    return cache(folder, ctx.params["cache_size"])


def _is_value(word: str) -> bool:
    """Return True unless a word is an option or a path, which may follow --scale."""
    return word in SCALES or not (not word or word.startswith("-") or "." in word or Path(word).exists())


def _keep_memory(ctx: click.Context) -> None:
    from shiftsvd.kernels import default_threads
    from shiftsvd.runs.memory import keep_memory

    # The threads of Zarr and the allocators of Arrow hold memory that `estimate` does not include, and are no faster.
    os.environ.setdefault("ZARR_THREADING__MAX_WORKERS", str(default_threads()))
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    arguments = (each for each in ctx.command.params if isinstance(each, click.Argument))
    given = [ctx.params[str(each.name)] for each in arguments if getattr(each.type, "exists", False)]
    flat = [path for each in given for path in (each if isinstance(each, tuple) else (each,)) if path is not None]
    keep_memory(ctx.params["memory"], plain(as_given(few(flat) if flat else "")))


def _with_remedy(error: BaseException) -> BaseException:
    from shiftsvd.backends.validation import NotFinite

    if not isinstance(error, NotFinite):
        return error
    found = error.found
    if found.names is None:  # the command counts columns from 1
        error = error.but(names={int(place): int(place) + 1 for place in found.columns[0]})
    if found.nothing_else:
        return error
    context = click.get_current_context()
    if found.n_inf:
        return error.but(remedy="replace the infinite values in the file")
    if context.params.get("preprocess"):
        return error.but(remedy="fill missing values in the file, because --preprocess needs complete data")
    if "missing" in context.params and not _accepts_missing(context.params):
        return error.but(remedy="fill missing values in the file, because the other options need complete data")
    if found.n_empty and context.command.name in ("fit", "estimate"):
        verbs = ("has", "gets") if found.n_empty == 1 else ("have", "get")
        empty = f"{plural(found.n_empty, 'column')} {verbs[0]} no values, and {verbs[1]} components of 0"
        return error.but(remedy=f"use --missing em, because {empty}")
    verb = str(context.command.name)
    drop = None if verb == "transform" else found.drop  # a model needs its columns
    return error.but(remedy=_FILL.get(verb, "fill missing values in the file"), drop=drop)


def _accepts_missing(given: Mapping[str, Any]) -> bool:
    from shiftsvd.commands.fitting import validated
    from shiftsvd.commands.settings import Settings

    try:
        validated(Settings.of({**given, "missing": "mean"}))
    except (click.UsageError, ValueError):
        return False
    return True


def _line(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = of_system(error)
    elif NO_THREAD in text:
        text = f"The system cannot start another thread ({text}). End other programs, or raise the limit (ulimit -u)."
    elif isinstance(error, MemoryError):
        text = f"Not enough memory ({text or 'allocation failed'}). Set --memory, or use fewer components."
    else:
        text = worded(error)
    return plain(re.sub(r"\s*\n\s*", " ", as_given(text)).strip()) or type(error).__name__


@contextmanager
def _warnings_as_lines(quiet: bool, trusted: bool) -> Iterator[None]:
    """Print each warning of the library once; omit notices with --quiet, and `ValuesWarning` with --trust-values."""
    printed: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if str(message) not in printed:
            printed.add(str(message))
            is_notice = issubclass(category, Notice)
            text = worded(message) if isinstance(message, Warning) else message
            if not ((is_notice and quiet) or (trusted and issubclass(category, ValuesWarning))):
                click.echo(f"{'' if is_notice else 'warning: '}{plain(as_given(text))}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = show
        yield


class _Lines(logging.StreamHandler[TextIO]):
    """Print messages with options in place of settings; print a notice once, such as one about each read of a file."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.printed: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = str(record.msg)
        is_new = record.levelno != NOTICE or text not in self.printed
        self.printed.add(text)
        return is_new

    def format(self, record: logging.LogRecord) -> str:
        text = worded(record.msg) if isinstance(record.msg, Worded) else super().format(record)
        return plain_lines(as_given(text))


@contextmanager
def _log_as_lines(verbose: int, quiet: bool) -> Iterator[None]:
    """Print the log of the library: notices by default, information with -v, details with -vv."""
    logger, handler = logging.getLogger("shiftsvd"), _Lines()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel((logging.WARNING if quiet else NOTICE, logging.INFO, logging.DEBUG)[min(verbose, 2)])
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
