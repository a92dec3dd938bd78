"""Options that several subcommands share, with their validation and their headings in help."""

import csv
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import click

from shiftsvd.errors import plain
from shiftsvd.extend import extensions, merged
from shiftsvd.names import MAX_ITER, TOL, FormatName, MissingName, ScaleName, SolverName
from shiftsvd.runs.progress import KINDS
from shiftsvd.transforms import places

F = TypeVar("F", bound=Callable[..., Any])
# In the order of a help; the headings of extensions stand in the place of "...".
HEADINGS: Final = (
    "Components",
    "Data",
    "Tables",
    "...",
    "Preparation",
    "Missing entries",
    "Resources",
    "Output",
    "Messages",
)
MANY: Final = 12  # options of a help that is cut


def under(heading: str, *options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator; the help lists them under this heading, in this order.

    Where the same heading stands more than once, in one command or another, its options are listed together.
    """

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
            # click keeps what a function was decorated with until the command takes it; the last one is this option.
            vars(vars(function)["__click_params__"][-1])["heading"] = heading
        return function

    return decorate


def heading_of(parameter: click.Parameter) -> str:
    return str(getattr(parameter, "heading", HEADINGS[-1]))


def write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> bool:
    """Write the options under their headings, and return whether there are so many that this helps."""
    options = [each for each in command.get_params(ctx) if isinstance(each, click.Option)]
    told = [(heading_of(each), record) for each in options if (record := each.get_help_record(ctx))]
    if len(told) < MANY:
        return False
    place = HEADINGS.index("...")
    more = dict.fromkeys(heading for heading, _ in told if heading not in HEADINGS)
    for heading in (*HEADINGS[:place], *more, *HEADINGS[place + 1 :]):
        if lines := [record for found, record in told if found == heading]:
            with formatter.section(heading):
                formatter.write_dl(lines)
    return True


EXTERNAL = "shiftsvd.commands.external"  # where click keeps whether files may reach other files
SPOOLED = "shiftsvd.commands.spooled"  # and which files stand for which pipes
TRUSTED = "shiftsvd.commands.trusted"  # where click keeps whether values are what they are taken for
SAFE = "shiftsvd.commands.safe"  # where click keeps whether texts are to be defused for spreadsheets
LINE = "shiftsvd.commands.line"  # where click keeps the command as it was typed


class Matrix(click.Path):
    """A path of data: what comes through a named pipe becomes a file that can be read again, until the command ends."""

    def convert(self, value: Any, parameter: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = os.fsdecode(super().convert(value, parameter, ctx))
        if ctx is None or path == "-" or not stat.S_ISFIFO(os.stat(path).st_mode):
            return path
        from shiftsvd.io.spooling import spooled_pipe

        try:
            file = str(ctx.with_resource(spooled_pipe(Path(path))))
        except (ValueError, OSError) as error:
            raise click.ClickException(str(error)) from None
        ctx.meta.setdefault(SPOOLED, {})[file] = str(path)
        return file


# A matrix may be a folder, and "-" is stdin. Whether there is one, and what it holds, is for the readers to say.
MATRIX: Final = Matrix(exists=True, allow_dash=True)
FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
OUTPUT: Final = click.Path(allow_dash=True)  # that it is no folder is for `checks.tables` to say
SOLVERS: Final = get_args(SolverName)
SCALES: Final = (*get_args(ScaleName), *(name for each in extensions() for name in each.scales), "none")
MISSING: Final = get_args(MissingName)
TRANSFORMS: Final = tuple(places())
FORMATS: Final = (*get_args(FormatName), *merged("formats"))
# Components where none are asked for, if there are so many.
USUAL: Final = 50
# Solvers that cannot be asked for a share of the variance.
COUNTED: Final = ("randomized", "shifted-randomized")


def _components(ctx: click.Context, parameter: click.Parameter, value: str | None) -> int | float | None:
    if value is None:
        return None
    number = _number(value)
    if 0 < number < 1:
        return number
    if number < 1 or not number.is_integer():
        raise click.BadParameter(f"{value!r} is neither a number of components nor a share of the variance in (0, 1)")
    return int(number)


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return -1.0


def _penalty(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | str | None:
    if value is None or value == "auto":
        return value
    number = _number(value)
    if not 0 <= number < float("inf"):
        raise click.BadParameter(f'{value!r} is neither "auto" nor a number of at least 0')
    return number


def _tolerance(ctx: click.Context, parameter: click.Parameter, value: float) -> float:
    if not 0 <= value < 1:
        raise click.BadParameter(f"{value:g} is no relative accuracy: 0 (rounding) or more, and less than 1")
    return value


def _memory(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        from shiftsvd.runs.memory import parse_bytes

        try:
            parse_bytes(value)
        except (ValueError, OverflowError):
            raise click.BadParameter(f"{value!r} is no size; give bytes or a text such as 800M or 1.5GB") from None
    return value


def _transforms(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    if value:
        from shiftsvd.transforms.chains import as_transforms

        try:
            as_transforms(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return value


def names(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = tuple(name.strip() for name in value.split(","))
    if not all(names):
        raise click.BadParameter(f"{value!r} must be names with commas between them")
    return names


def _trust(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    ctx.meta[TRUSTED] = value


def _allow(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    ctx.meta[EXTERNAL] = value


components = under(
    "Components",
    click.option(
        "-k",
        "k",
        metavar="NUMBER",
        callback=_components,
        help="Components; below 1: the share of variance to exceed, by the fewest.  [default: 50, or all there are]",
    ),
)
preprocess = under(
    "Preparation",
    click.option(
        "--preprocess",
        metavar="NAME:KEY=VALUE,...",
        multiple=True,
        callback=_transforms,
        shell_complete=lambda ctx, parameter, begun: [name for name in TRANSFORMS if name.startswith(begun)],
        help="What is done to the entries first, such as pearson, or pearson:theta=10,clip=inf; several times: one "
        f"after another. NAME: {', '.join(TRANSFORMS)}.  [default: nothing]",
    ),
)


trust_values = under(
    "Preparation",
    click.option(
        "--trust-values",
        is_flag=True,
        expose_value=False,
        callback=_trust,
        help="No warning where counts are needed and entries look like logarithms, and no notice of raw counts.",
    ),
)


missing = under(
    "Missing entries",
    click.option(
        "--missing",
        type=click.Choice(MISSING),
        default="error",
        show_default=True,
        help="What NaN stand for: nothing, they are refused; the mean; a model fitted to the other entries.",
    ),
    click.option("--unobserved", is_flag=True, help="What a sparse file does not store is missing too, as in ratings."),
    click.option(
        "--penalty",
        metavar="NUMBER",
        callback=_penalty,
        help="Of --missing em: by what singular values are lessened.  [default: auto, by held-out entries]",
    ),
    click.option(
        "--max-iter", type=click.IntRange(min=1), help=f"Of --missing em: the most steps.  [default: {MAX_ITER}]"
    ),
)
solver = under(
    "Components",
    click.option(
        "--solver",
        type=click.Choice(SOLVERS),
        default="auto",
        show_default=True,
        help="What finds them; auto: the cheapest of lanczos, gram and exact.",
    ),
)
tol = under(
    "Components",
    click.option(
        "--tol", callback=_tolerance, default=TOL, show_default=True, help="Largest relative error of a singular value."
    ),
)
force = under("Output", click.option("--force", is_flag=True, help="Replace outputs that exist."))
as_json = under("Output", click.option("--json", "json_out", is_flag=True, help="Print one JSON object on stdout."))
threads = under(
    "Resources", click.option("--threads", type=click.IntRange(min=1), help="Threads.  [default: the cores there are]")
)
memory = under(
    "Resources",
    click.option(
        "--memory",
        metavar="SIZE",
        callback=_memory,
        help="Memory for data and solver, such as 2G, beside the program (0.15 GB).  [default: half of what is free]",
    ),
)
dtype = under(
    "Output",
    click.option(
        "--dtype",
        type=click.Choice(["float32", "float64"]),
        help="Numbers that are written.  [default: the precision of the data]",
    ),
)
progress = under(
    "Messages",
    click.option(
        "--progress",
        type=click.Choice(KINDS),
        default="auto",
        show_default=True,
        help="Bars on stderr, or one JSON object a line.",
    ),
)
talk = under(
    "Messages",
    click.option(
        "--quiet",
        "-q",
        is_flag=True,
        help="Nothing on stderr but warnings, errors, and a --progress that is asked for.",
    ),
    click.option("--verbose", "-v", count=True, help="Say more; twice: with the place of an error."),
)
inside = under(
    "Data",
    click.option(
        "--format",
        "format_",
        metavar="NAME",
        type=click.Choice(FORMATS),
        help="Format of the file, such as csv, mtx.  [default: by its name and content]",
    ),
    click.option("--key", metavar="NAME", help="Which matrix of the file: layers/counts, raw/X, a variable."),
    click.option("--orient", type=click.Choice(["rows", "columns"]), help="Where the samples are."),
    click.option(
        "--feature-types",
        metavar="NAMES",
        callback=names,
        help='Types of features to take, with commas between them, or all.  [default: of 10x "Gene Expression"]',
    ),
    click.option(
        "--allow-external",
        is_flag=True,
        expose_value=False,
        callback=_allow,
        help="Follow HDF5 and Zarr into other files, by links and virtual datasets, of data you trust.",
    ),
)
stack = under(
    "Data",
    click.option(
        "--stack",
        type=click.Choice(["rows", "columns"]),
        help="Several files as one matrix: rows: each has other samples; columns: other features.",
    ),
    click.option(
        "--join",
        type=click.Choice(["inner", "outer"]),
        help="Features of --stack rows by name: those of all files, or of any, 0 where one lacks.  [default: the same]",
    ),
)
resources = under("Resources", threads, memory)
device = under(
    "Resources",
    click.option(
        "--device",
        metavar="NAME",
        help="Multiply on a card, by PyTorch: cuda, cuda:1; auto: on one if there is one.  [default: cpu]",
    ),
)
workers = under(
    "Resources",
    click.option("--scheduler", metavar="ADDRESS", help="Read and multiply on the workers of a Dask scheduler."),
    click.option("--workers", type=click.IntRange(min=1), help="The same on so many processes of this machine."),
)


def _listed(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.strip() for one in value for row in csv.reader([one], skipinitialspace=True) for name in row)


def _several(name: str, says: str) -> Any:
    return click.option(name, metavar="COLUMNS", multiple=True, callback=_listed, help=says)


table = under(
    "Tables",
    click.option(
        "--ids",
        metavar="COLUMN",
        help="What names the rows.  [default: the first column, if it has no name, or is text that never repeats]",
    ),
    _several("--drop", "Columns that are left out: date,comment; names with commas in quotes."),
    _several("--columns", "The only columns that are features.  [default: all]"),
    _several("--one-hot", "Columns of classes: each class becomes a column of zeros and ones, as in sex=F."),
    click.option("--sep", metavar="CHARACTER", help="What is between cells; also tab, space.  [default: as it looks]"),
    click.option(
        "--decimal", metavar="CHARACTER", help='What is before fractions, such as ",".  [default: as it looks]'
    ),
    click.option("--thousands", metavar="CHARACTER", help="What is between thousands.  [default: as it looks]"),
    click.option("--encoding", metavar="NAME", help="Such as latin-1, cp1252.  [default: UTF-8, or as its mark says]"),
    click.option("--comment", metavar="TEXT", help="Lines that begin so are left out.  [default: # at the beginning]"),
)
label_column = under(
    "Tables",
    click.option(
        "--label-column",
        metavar="COLUMN",
        help="Colour the scores in the report by this column of a table, which is no feature then, or of obs.",
    ),
)


def _safe(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    ctx.meta[SAFE] = value


spreadsheet_safe = under(
    "Output",
    click.option(
        "--spreadsheet-safe",
        is_flag=True,
        expose_value=False,
        callback=_safe,
        help="Put an apostrophe before names in CSV that spreadsheets would take for formulas.",
    ),
)


def typed() -> str:
    return str(click.get_current_context().meta.get(LINE, "shiftsvd"))


def as_given(text: str) -> str:
    context = click.get_current_context(silent=True)
    for file, pipe in ({} if context is None else context.meta.get(SPOOLED, {})).items():
        text = text.replace(file, pipe)
    return text


def say(text: str, quiet: bool = False) -> None:
    if not quiet:
        click.echo(plain(as_given(text)), err=True)
