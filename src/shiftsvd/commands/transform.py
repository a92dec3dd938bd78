"""`shiftsvd transform`: scores of new samples."""

from pathlib import Path
from typing import Any

import click

from shiftsvd.commands import columns, options
from shiftsvd.commands.headings import under
from shiftsvd.commands.running import Subcommand

EPILOG = """
\b
Examples:
  shiftsvd transform out/model.safetensors new.mtx.gz -o scores.parquet
  shiftsvd transform out/model.safetensors new.mtx.gz -o - | head -3
"""


@click.command(cls=Subcommand, epilog=EPILOG)
@click.argument("model", type=options.FILE)
@click.argument("files", metavar="FILE...", type=options.MATRIX, nargs=-1, required=True)
@options.stack
@under(
    "Output",
    click.option("-o", "--out", type=options.OUTPUT, required=True, help='.parquet, .csv or .npy; "-" prints CSV.'),
)
@options.inside
@columns.table
@options.resources
@options.dtype
@options.progress
@options.force
@options.talk
def transform(model: Path, **given: Any) -> None:
    """Write the scores of new samples.

    The samples are those of FILE ("-": standard input), the components those of MODEL, a file that `fit` wrote.
    Where both have names of features, these are matched: another order is no matter, other features are an error.
    Several files are one matrix, as `fit` stacks them. What was said of a table in the fit holds here too, unless it
    is said otherwise.
    Missing genotypes of a .bed are the means of MODEL; if it was fitted to autosomes, other variants are left out.
    """
    options.check_stack(given["files"], given["stack"])
    options.check_format(given["files"][0], given["format_"])
    options.tables(given["out"])
    given["choices"] = columns.chosen(given)
    from shiftsvd.commands.applying import transform as run

    run(model, given)
