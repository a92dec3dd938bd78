"""`shiftsvd inverse`: samples from their scores."""

from pathlib import Path
from typing import Any

import click

from shiftsvd.commands import checks, options, tables
from shiftsvd.commands.running import Subcommand

EPILOG = """
\b
Example:
  shiftsvd inverse out/model.safetensors out/scores.parquet -o restored.npy
"""


@click.command(cls=Subcommand, epilog=EPILOG)
@click.argument("model", type=options.FILE)
@click.argument("file", metavar="SCORES", type=options.MATRIX)
@click.option("-o", "--out", type=options.OUTPUT, required=True, help='.npy, .csv or .parquet; "-" prints CSV.')
@options.resources
@options.dtype
@options.force
@tables.option
@options.talk
def inverse(model: Path, **given: Any) -> None:
    """Write the samples that have given scores.

    SCORES is a table (.parquet, .csv, .npy) as `fit` and `transform` write it; the samples are in the units of the
    data.
    """
    checks.tables(given["out"])
    from shiftsvd.commands.applying import inverse as run

    run(model, given)
