"""`shiftsvd report`: a page about a model."""

from pathlib import Path
from typing import Any

import click

from shiftsvd.commands import options
from shiftsvd.commands.running import Subcommand

EPILOG = """
\b
Example:
  shiftsvd report out/model.safetensors out/scores.parquet -o report.html
"""


@click.command(cls=Subcommand, epilog=EPILOG)
@click.argument("model", type=options.FILE)
@click.argument("file", metavar="[SCORES]", type=options.MATRIX, required=False)
@click.option("-o", "--out", type=click.Path(), required=True, help="The page, report.html.")
@options.memory
@options.force
@options.talk
def report(model: Path, **given: Any) -> None:
    """Write a page about a model.

    One file that needs no other; with a plot of SCORES (.parquet, .csv, .npy) if they are given.
    """
    from shiftsvd.commands.applying import report as run

    run(model, given)
