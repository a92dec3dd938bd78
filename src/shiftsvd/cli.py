"""The command: its verbs, which are imported when they are named."""

from collections.abc import Sequence
from typing import Any

import click

from shiftsvd.commands import KEPT, ending
from shiftsvd.extend import merged
from shiftsvd.names import resolve

# Nothing else is imported up here: `shiftsvd --help` answers at once.
VERBS = {
    "fit": "Find the principal components of a file.",
    "transform": "Write the scores of new samples.",
    "inverse": "Write the samples that have given scores.",
    "info": "Say what a file holds.",
    "estimate": "Predict the memory, passes and time of a fit.",
    "convert": "Write a matrix in another format.",
    "report": "Write a page about a model.",
    "bench": "Time the solvers on a file.",
}
EPILOG = """
\b
Options can be set in the environment: SHIFTSVD_FIT_THREADS=4.
Completion, in ~/.bashrc (also zsh_source, fish_source):
  eval "$(_SHIFTSVD_COMPLETE=bash_source shiftsvd)"
\b
Example:
  shiftsvd fit table.csv -k 2 -o out/
"""


class Command(click.Group):
    """A group that imports a verb when it is named, with the exit codes of `commands.ending`."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **extra: Any) -> Any:
        if args is None:
            extra["obj"] = KEPT  # this process is the command: its memory is kept
        return super().main(args, *more, **extra)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with ending():  # which may print the help
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with ending():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*VERBS, *(merged("verbs"))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = f"shiftsvd.commands.verbs:{cmd_name}" if cmd_name in VERBS else merged("verbs").get(cmd_name, ("",))[0]
        found: click.Command | None = resolve(place) if place else None
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        told = VERBS | {name: text for name, (_, text) in merged("verbs").items()}
        with formatter.section("Commands"):
            formatter.write_dl(list(told.items()))


@click.group(
    cls=Command,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "SHIFTSVD"},
)
@click.version_option(package_name="shiftsvd")
def main() -> None:
    """Principal component analysis (PCA) of a file: a table, a sparse matrix, single cells, genotypes.

    To begin: shiftsvd fit table.csv -k 2 -o out/, and open out/report.html in a browser.

    Results go to stdout, messages to stderr. Exit codes: 0 done, 1 data, input or output, or a check that failed,
    2 usage or option values, 130 interrupted, 141 output pipe closed by the reader.
    """
