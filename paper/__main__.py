"""The reproduction of the paper: `python -m paper --help`."""

import sys
from pathlib import Path
from typing import Any

import click

from paper import EXPERIMENTS
from shiftsvd.commands import ending
from shiftsvd.commands.options import FILE, worded
from shiftsvd.commands.running import Subcommand

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
EPILOG = """
\b
Example:
  python -m paper --only digits --quick --out paper-out
"""


def _experiments(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    chosen = EXPERIMENTS if value is None else tuple(name.strip() for name in value.split(","))
    unknown = [name for name in chosen if name not in EXPERIMENTS]
    if unknown:
        raise click.BadParameter(f"unknown experiment {unknown[0]!r}; choose from {', '.join(EXPERIMENTS)}")
    return tuple(name for name in EXPERIMENTS if name in chosen)


class Reproduction(Subcommand):
    """A command that ends as those of shiftsvd do."""

    def invoke(self, ctx: click.Context) -> Any:
        with ending():
            return super().invoke(ctx)


@click.command(cls=Reproduction, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", metavar="NAMES", callback=_experiments, help=f"Some of: {', '.join(EXPERIMENTS)}.")
@click.option("--seeds", type=click.IntRange(min=2), help="Independent runs.  [default: 30, 3 with --quick]")
@click.option("--quick", is_flag=True, help="A few seeds and the small sizes; nothing is downloaded.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("paper-out"), show_default=True, help="Folder.")
@click.option("--lfw", type=FOLDER, help="Faces: any tree of image files, read to 250 x 250 grey.")
@click.option("--faces", type=FILE, help="Faces: NPZ file with a uint8 array `images`, N x pixels or N x h x w.")
@click.option("--corpus", type=FILE, help="Words: UTF-8 text or MediaWiki XML, also .gz or .bz2.")
@click.option(
    "--normalise",
    type=click.Choice(["context", "target"]),
    default="target",
    show_default=True,
    help="Divide co-occurrences by the count of the context (the printed formula) or the target (the printed numbers).",
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Also write results.json here.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes.  [default: the cores there are]")
@click.option("--force", is_flag=True, help="Replace outputs that exist.")
def paper(**given: Any) -> None:
    """Reproduce the paper.

    Every table and figure of Basirat (2019), published beside measured. Writes paper.html, results.json and the
    figures (SVG, PNG) to the folder --out, prints every check, and exits with 1 if one fails. Without data options
    the faces and the text are those that packages carry.
    """
    from paper import DataError
    from paper.command import run
    from shiftsvd.kernels import default_threads

    if given["lfw"] and given["faces"]:
        raise click.UsageError("give --lfw or --faces, not both")
    out, json_file, force = (given.pop(name) for name in ("out", "json_file", "force"))
    given["seeds"] = given["seeds"] or (3 if given["quick"] else 30)
    given["jobs"] = given["jobs"] or default_threads()
    try:
        passed = run(given, out, json_file, force)
    except (DataError, OSError) as error:
        raise click.ClickException(worded(error)) from None
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    paper()
