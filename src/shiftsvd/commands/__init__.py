"""Subcommands and exit codes of the command. This module imports only click."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

# `ctx.obj` of click if this process runs nothing but the command, so that `keep_memory` may end it at the limit.
OWN_PROCESS: Final = "shiftsvd.commands.own_process"
INTERRUPTED: Final = 130
UNREAD: Final = 141  # output pipe closed by the reader; shells report 128 + SIGPIPE for `cat`
TERMINATED: Final = 143
# The summary of each subcommand, which `shiftsvd --help` lists and its own help begins with.
VERBS: Final = {
    "fit": "Compute the principal components of a data file.",
    "transform": "Compute the scores of new samples.",
    "influence": "Bound the angle by which each component turns if a sample is left out.",
    "inverse": "Reconstruct samples from their scores.",
    "info": "Describe a data file, a model or this installation.",
    "estimate": "Predict the memory, passes and time of a fit.",
    "convert": "Convert a matrix to AnnData (.h5ad, .h5, .zarr) or BPCells (.bpcells).",
    "report": "Write an HTML report about a model.",
    "embed": "Compute a spectral embedding (Laplacian eigenmap) of samples or of a graph.",
    "diffmap": "Compute a diffusion map of a graph.",
    "contrast": "Find directions that vary more in one file than in another (contrastive PCA).",
    "bench": "Time the solvers on a data file.",
}


def open_closed_streams() -> None:
    """Replace standard streams that the caller closed by the null device, so that no data file gets their number."""
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def of_system(error: OSError) -> str:
    """Return the line for an error of the system; without a name, it is that of a stream or a temporary file."""
    from shiftsvd.runs.outputs import FULL  # `shiftsvd --help` needs no other module

    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if error.errno not in FULL:
        return str(error.strerror)
    return f"Standard output or a temporary file cannot be written: {error.strerror}. Free disk space."


@contextmanager
def ending() -> Iterator[None]:
    """Exit with 130 after an interrupt and 141 after a closed output pipe; run clean-up code on SIGTERM."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(TERMINATED))
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(UNREAD)
    except OSError as error:  # of --help and --version; subcommands print their own
        if not error.strerror:
            raise
        raise click.ClickException(of_system(error)) from None
    except KeyboardInterrupt:
        click.echo("Interrupted. Each output file is either complete or was not written.", err=True)
        sys.exit(INTERRUPTED)
    finally:
        signal.signal(signal.SIGTERM, before)
