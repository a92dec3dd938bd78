"""`shiftsvd info`: what this installation runs on, or what a file holds."""

from typing import Any

import click

from shiftsvd.commands import checks, columns, options
from shiftsvd.commands.running import Subcommand

EPILOG = """
\b
Examples:
  shiftsvd info
  shiftsvd info counts.h5ad
  shiftsvd info out/model.safetensors --json
  shiftsvd info reference/model.safetensors array.bed
"""


@click.command(cls=Subcommand, epilog=EPILOG)
@click.argument("files", metavar="[FILE]...", type=options.MATRIX, nargs=-1)
@options.stack
@options.inside
@columns.table
@options.memory
@options.as_json
@options.talk
def info(**given: Any) -> None:
    """Say what a file holds.

    FILE ("-": standard input) is a matrix or a model; without it: what this installation runs on. Several files are
    one matrix, as `fit` stacks them. After a model of genotypes a .bed, or one for each chromosome: how many variants
    of the model `transform` would find there.
    """
    from shiftsvd.commands import facts
    from shiftsvd.genetics import scoring

    files = given["files"]
    if not files:
        told = facts.installation()
    elif files[0].endswith(".safetensors"):
        told = facts.model(files[0]) if len(files) == 1 else scoring.held_against(files[0], files[1:], given)
    else:
        checks.check_stack(files, given["stack"], given["join"])
        checks.check_format(files[0], given["format_"])
        given["choices"] = columns.chosen(given)
        told = facts.matrix(given)
    click.echo(facts.lines(told, given["json_out"]))
