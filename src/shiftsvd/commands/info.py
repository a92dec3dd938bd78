"""`shiftsvd info`: what this installation runs on, or what a file holds."""

from typing import Any

import click

from shiftsvd.commands import options
from shiftsvd.commands.running import Subcommand

EPILOG = """
\b
Examples:
  shiftsvd info
  shiftsvd info counts.h5ad
  shiftsvd info out/model.safetensors --json
"""


@click.command(cls=Subcommand, epilog=EPILOG)
@click.argument("file", type=options.MATRIX, required=False)
@options.inside
@options.memory
@options.as_json
@options.talk
def info(**given: Any) -> None:
    """Say what a file holds.

    FILE ("-": standard input) is a matrix or a model; without it: what this installation runs on.
    """
    from shiftsvd.commands import facts

    if given["file"] is None:
        told = facts.installation()
    elif given["file"].endswith(".safetensors"):
        told = facts.model(given["file"])
    else:
        options.check_format(given["file"], given["format_"])
        told = facts.matrix(given)
    click.echo(facts.lines(told, given["json_out"]))
