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
        click.echo("Interrupted. Each output file is either complete or was not written.", err=True)
        sys.exit(INTERRUPTED)
    finally:
        signal.signal(signal.SIGTERM, before)
