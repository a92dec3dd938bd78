"""The command: every subcommand checks its arguments, does its work, and says how it ended."""

import signal
import sys
from pathlib import Path
from typing import Any

import click

from shiftsvd.paper import EXPERIMENTS

# Nothing else is imported up here: `shiftsvd --help` answers at once.

INTERRUPTED = 130
TERMINATED = 143


class Command(click.Group):
    """A group whose commands end with 130 when interrupted, and clean up when terminated."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand."""
        before = signal.signal(signal.SIGTERM, _terminate)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted; no output is half written", err=True)
            sys.exit(INTERRUPTED)
        finally:
            signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: Any) -> None:
    """End by an exception, so that temporary files and worker processes go too."""
    sys.exit(TERMINATED)


@click.group(cls=Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="shiftsvd")
def main() -> None:
    """Singular vectors and principal components of a matrix minus a shift, without forming it.

    Exit codes: 0 done, 1 data, input or output, or a check that failed, 2 usage or option values, 130 interrupted.
    """


def _experiments(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    """The chosen experiments, in the order of the paper."""
    chosen = EXPERIMENTS if value is None else tuple(name.strip() for name in value.split(","))
    unknown = [name for name in chosen if name not in EXPERIMENTS]
    if unknown:
        raise click.BadParameter(f"unknown experiment {unknown[0]!r}; choose from {', '.join(EXPERIMENTS)}")
    return tuple(name for name in EXPERIMENTS if name in chosen)


FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@main.command()
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
def paper(
    only: tuple[str, ...],
    seeds: int | None,
    quick: bool,
    out: Path,
    json_file: Path | None,
    force: bool,
    jobs: int | None,
    **data: Any,
) -> None:
    """Reproduce every table and figure of Basirat (2019), published beside measured.

    Writes paper.html, results.json and the figures (SVG, PNG) to the folder --out, prints every check, and exits
    with 1 if one fails. Without data options the faces and the text are those that packages carry.
    """
    from shiftsvd.paper import DataError
    from shiftsvd.paper.command import run

    if data["lfw"] and data["faces"]:
        raise click.UsageError("give --lfw or --faces, not both")
    settings = {"only": only, "seeds": seeds or (3 if quick else 30), "quick": quick, **data}
    if jobs:
        settings["jobs"] = jobs
    try:
        passed = run(settings, out, json_file, force)
    except (DataError, OSError) as error:
        raise click.ClickException(str(error)) from None
    sys.exit(0 if passed else 1)


@main.command()
@click.argument("file", type=FILE)
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
@click.option("--tol", type=click.FloatRange(min=0), default=1e-4, show_default=True, help="Relative accuracy.")
@click.option("--json", "json_out", is_flag=True, help="Print one JSON object instead of a table.")
def bench(file: Path, k: int, solvers: tuple[str, ...], rounds: int, tol: float, json_out: bool) -> None:
    """Time our solvers on FILE (.npz of SciPy, .npy, .mtx, .mtx.gz), its rows centred."""
    from shiftsvd.bench import run

    run(file, k, solvers, rounds, tol, json_out)


@main.command()
@click.option("--json", "json_out", is_flag=True, help="Print one JSON object instead of lines.")
def info(json_out: bool) -> None:
    """Say what this installation runs on: version, instruction set of the kernels, threads."""
    import json
    import platform
    from importlib.metadata import version

    from shiftsvd.kernels import default_threads, instruction_set

    facts = {"shiftsvd": version("shiftsvd"), "kernels": instruction_set(), "threads": default_threads()}
    facts |= {"machine": platform.machine(), "python": platform.python_version()}
    facts |= {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    click.echo(json.dumps(facts) if json_out else "\n".join(f"{name:13} {value}" for name, value in facts.items()))
