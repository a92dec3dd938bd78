"""Define the `shiftsvd` command; a subcommand is imported when it runs."""

from collections.abc import Sequence
from typing import Any

import click

from shiftsvd.commands import OWN_PROCESS, VERBS, ending, open_closed_streams
from shiftsvd.extend import merged
from shiftsvd.names import resolve

# Import nothing heavy here: `shiftsvd --help` must not wait for NumPy.
EPILOG = """
\b
Environment variables set options: SHIFTSVD_FIT_THREADS=4 is `fit --threads 4`.
Shell completion, in ~/.bashrc (zsh: zsh_source, fish: fish_source):
  eval "$(_SHIFTSVD_COMPLETE=bash_source shiftsvd)"
\b
Example:
  shiftsvd fit table.csv -k 2 -o out/
"""


class Command(click.Group):
    """Import subcommands on demand, and exit with the codes of `commands.ending`."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **extra: Any) -> Any:
        if args is None:
            extra["obj"] = OWN_PROCESS
            open_closed_streams()
        return super().main(args, *more, **extra)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with ending():  # --help prints here, possibly into a closed pipe
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
        summaries = VERBS | {name: text for name, (_, text) in merged("verbs").items()}
        with formatter.section("Commands"):
            formatter.write_dl(list(summaries.items()))


@click.group(
    cls=Command,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "SHIFTSVD"},
)
@click.version_option(package_name="shiftsvd")
def main() -> None:
    """Principal component analysis (PCA) of a data file: a table, a sparse matrix, cells, genotypes or fields.

    To begin, run `shiftsvd fit table.csv -k 2 -o out/` and open out/report.html in a browser.

    Results go to stdout, messages to stderr. Exit codes: 0 success; 1 invalid data, a read or write error, or a failed
    check; 2 invalid options; 130 interrupted; 141 output pipe closed by the reader; 143 terminated.
    """
