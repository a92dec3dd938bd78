"""`shiftsvd estimate`: predict the memory, passes and time of a fit."""

from typing import Any

import click

from shiftsvd.commands import checks
from shiftsvd.commands.fit import asked, options_of_fit
from shiftsvd.commands.running import Subcommand

EPILOG = """
\b
Examples:
  shiftsvd estimate counts.h5ad -k 10
  shiftsvd estimate counts.h5ad -k 10 --preprocess log-normalize --memory 1G -o cells/
"""


@click.command(cls=Subcommand, epilog=EPILOG)
@options_of_fit
def estimate(**given: Any) -> None:
    """Predict the memory, passes and time of a fit.

    The options are those of `shiftsvd fit`: put "estimate" in the place of "fit". Nothing is decomposed or written. The
    memory is that of the data that are held, of the work beside them, and of the program; the time of a read comes
    from a short probe. With --top-features the reads that rank the features are among the passes.
    """
    options = asked(given)
    checks.check_foreseen(options)
    from shiftsvd.commands.facts import lines
    from shiftsvd.commands.predicting import estimated

    click.echo(lines(estimated(options), options.json_out))
