"""`shiftsvd bench`: our solvers on a file of the user."""

from pathlib import Path

import click

from shiftsvd.commands import options
from shiftsvd.commands.running import Subcommand
from shiftsvd.names import SolverName

EPILOG = """
\b
Example:
  shiftsvd bench counts.npz -k 5 --solver gram --solver lanczos --rounds 1
"""


@click.command(cls=Subcommand, epilog=EPILOG)
@click.argument("file", type=options.FILE)
@click.option("-k", "k", type=click.IntRange(min=1), default=50, show_default=True, help="Components.")
@click.option(
    "--solver",
    "solvers",
    multiple=True,
    type=click.Choice(["auto", "lanczos", "gram", "exact", "randomized"]),
    default=("auto", "lanczos", "gram", "randomized"),
    show_default=True,
    help="May be given several times.",
)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each solver.")
@options.tol
@click.option(
    "--device",
    "devices",
    metavar="NAME",
    multiple=True,
    default=("cpu",),
    show_default=True,
    help="Where to multiply: cpu, or a card by PyTorch: cuda, cuda:1; auto: a card if there is one. May be given "
    "several times.",
)
@click.option("--json", "json_out", is_flag=True, help="Print one JSON object instead of a table.")
def bench(
    file: Path,
    k: int,
    solvers: tuple[SolverName, ...],
    rounds: int,
    tol: float,
    devices: tuple[str, ...],
    json_out: bool,
) -> None:
    """Time the solvers on a file.

    FILE is a matrix in any format that `shiftsvd info` reads; its columns are centred.
    """
    from shiftsvd.commands.checks import device_there
    from shiftsvd.commands.timing import Asked, run

    there = tuple(dict.fromkeys(device_there(name) for name in devices))
    run(file, k, Asked(solvers, there, rounds, tol), json_out)
