"""`shiftsvd estimate`: what a fit will take, before it is begun."""

from typing import Any

import click

from shiftsvd.commands import checks, columns, options
from shiftsvd.commands.running import Subcommand

EPILOG = """
\b
Example:
  shiftsvd estimate counts.h5ad -k 10
"""


@click.command(cls=Subcommand, epilog=EPILOG)
@click.argument("file", type=options.MATRIX)
@options.components
@options.preprocess
@options.mask
@options.top_features
@options.inside
@columns.table
@options.missing_mean
@options.solver
@options.tol
@options.resources
@options.as_json
@options.talk
def estimate(**given: Any) -> None:
    """Say what a fit will take.

    The memory beyond the data, what is held of them, what the program itself takes, the number of reads of FILE, and
    the time of one, from a short probe. With --top-features the reads that rank the features are among them.
    """
    checks.check_format(given["file"], given["format_"])
    checks.shares(given["k"], given["solver"])
    checks.check_choice(given["mask"], given["top_features"])
    checks.check_foreseen(given)
    given["choices"] = columns.chosen(given)
    from shiftsvd.commands.facts import estimated, lines

    click.echo(lines(estimated(given), given["json_out"]))
