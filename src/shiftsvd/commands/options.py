"""Options that several subcommands share: what they are called, what they take, what is wrong with a value.

A new one is declared with `under(heading, click.option(...))`: the heading says where long helps list it.
"""

from pathlib import Path
from typing import Any, Final, get_args

import click

from shiftsvd.commands.headings import under
from shiftsvd.names import (
    MAX_ITER,
    TOL,
    Chromosomes,
    FlavorName,
    MatchName,
    MissingName,
    ProjectName,
    ScaleName,
    SolverName,
    TransformName,
)
from shiftsvd.runs.progress import KINDS

LINE = "shiftsvd.commands.line"  # where click keeps the command as it was typed

# A matrix may be a folder, and "-" is stdin. Whether there is one, and what it holds, is for the readers to say.
MATRIX: Final = click.Path(exists=True, allow_dash=True)
FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
OUTPUT: Final = click.Path(dir_okay=False, allow_dash=True)
SOLVERS: Final = get_args(SolverName)
SCALES: Final = (*get_args(ScaleName), "patterson", "none")
MISSING: Final = get_args(MissingName)
TRANSFORMS: Final = get_args(TransformName)
FLAVORS: Final = get_args(FlavorName)
CHROMOSOMES: Final = get_args(Chromosomes)
PROJECTIONS: Final = get_args(ProjectName)
MATCHES: Final = get_args(MatchName)
# Components where none are asked for, if there are so many.
USUAL: Final = 50
# Solvers that cannot be asked for a share of the variance.
COUNTED: Final = ("randomized", "shifted-randomized")


def _components(ctx: click.Context, parameter: click.Parameter, value: str | None) -> int | float | None:
    """A number of components of at least 1, or a share of the variance in (0, 1)."""
    if value is None:
        return None
    number = _number(value)
    if 0 < number < 1:
        return number
    if number < 1 or not number.is_integer():
        raise click.BadParameter(f"{value!r} is neither a number of components nor a share of the variance in (0, 1)")
    return int(number)


def _number(value: str) -> float:
    """A number, or -1 for what is none: both are refused."""
    try:
        return float(value)
    except ValueError:
        return -1.0


def _penalty(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | str | None:
    """ "auto", or a number of at least 0."""
    if value is None or value == "auto":
        return value
    number = _number(value)
    if not 0 <= number < float("inf"):
        raise click.BadParameter(f'{value!r} is neither "auto" nor a number of at least 0')
    return number


def _memory(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A size that the library can read."""
    if value is not None:
        from shiftsvd.runs.memory import parse_bytes

        try:
            parse_bytes(value)
        except (ValueError, OverflowError):
            raise click.BadParameter(f"{value!r} is no size; give bytes or a text such as 800M or 1.5GB") from None
    return value


def _transforms(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Transformations that there are, and that can follow each other."""
    if value:
        from shiftsvd.transforms.named import as_transforms

        try:
            as_transforms(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return value


def _names(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Names with commas between them."""
    if value is None:
        return None
    names = tuple(name.strip() for name in value.split(","))
    if not all(names):
        raise click.BadParameter(f"{value!r} must be names with commas between them")
    return names


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
        help="What is done to the entries first, such as pearson, or pearson:theta=10,clip=inf; several times: one "
        f"after another. NAME: {', '.join(TRANSFORMS)}.  [default: nothing]",
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
projection = under(
    "Genotypes",
    click.option(
        "--project",
        type=click.Choice(PROJECTIONS),
        help="Scores by least squares on what is there; by OADP, without the shrinkage of many variants; with "
        "means in place of what is missing, which shrinks scores.  [default: lsq]",
    ),
    click.option(
        "--match",
        type=click.Choice(MATCHES),
        help="What finds a variant; auto: its position, and its name where positions are not known or of "
        "another build.  [default: auto]",
    ),
    click.option(
        "--trust-ambiguous",
        is_flag=True,
        help="Keep variants A/T and C/G, of which letters cannot tell the strand: it must be that of MODEL.",
    ),
    click.option(
        "--trust-order",
        is_flag=True,
        help="For a MODEL without alleles: the file has its variants and counts the same alleles.",
    ),
)
solver = under(
    "Components",
    click.option(
        "--solver",
        type=click.Choice(SOLVERS),
        default="auto",
        show_default=True,
        help="What finds them; auto: the cheapest that bounds its errors.",
    ),
)
tol = under(
    "Components",
    click.option(
        "--tol", type=click.FloatRange(min=0), default=TOL, show_default=True, help="Relative accuracy of the values."
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
        "--memory", metavar="SIZE", callback=_memory, help="Memory, such as 2G.  [default: half of what is free]"
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
    click.option("--quiet", "-q", is_flag=True, help="Nothing on stderr but warnings and errors."),
    click.option("--verbose", "-v", count=True, help="Say more; twice: with the place of an error."),
)
inside = under(
    "Data",
    click.option("--format", "format_", metavar="NAME", help="Format of the file.  [default: by its name and content]"),
    click.option("--key", metavar="NAME", help="Which matrix of the file: layers/counts, raw/X, a variable."),
    click.option("--orient", type=click.Choice(["rows", "columns"]), help="Where the samples are."),
    click.option(
        "--feature-types",
        metavar="NAMES",
        callback=_names,
        help='Types of features to take, with commas between them, or all.  [default: of 10x "Gene Expression"]',
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
mask = under(
    "Features",
    click.option(
        "--mask",
        metavar="COLUMN",
        help="Features to take, a column of var; none: all.  [default: highly_variable, where var has it]",
    ),
)
regressed = under(
    "Preparation",
    click.option(
        "--covariates",
        metavar="COLUMNS",
        callback=_names,
        help="Columns of obs to regress out: numbers as they are, a coefficient for each label of others.",
    ),
    click.option(
        "--groups", metavar="COLUMNS", callback=_names, help="Columns of obs whose groups lose their means, as batches."
    ),
)
resources = under("Resources", threads, memory)
workers = under(
    "Resources",
    click.option("--scheduler", metavar="ADDRESS", help="Read and multiply on the workers of a Dask scheduler."),
    click.option("--workers", type=click.IntRange(min=1), help="The same on so many processes of this machine."),
)


def where(given: dict[str, Any]) -> dict[str, Any]:
    """What says which matrix of a file is meant, as the library calls it."""
    names = ("key", "orient", "feature_types")
    return {"format": given["format_"], **{name: given[name] for name in names}}


def check_cells(given: dict[str, Any]) -> None:
    """Refuse what columns of obs and var cannot have beside them."""
    if (given["covariates"] or given["groups"]) and given["shift"] == "none":
        raise click.UsageError("--covariates and --groups subtract means, too: leave out --shift none")
    if (given["covariates"] or given["groups"] or given["mask"] not in (None, "none")) and given["missing"] != "error":
        raise click.UsageError("--mask, --covariates and --groups need data without gaps; leave out --missing")


def check_stack(files: tuple[str, ...], stack: str | None, join: str | None = None) -> None:
    """Refuse several files that nobody says how to put together, and standard input among them."""
    if len(files) > 1 and stack is None:
        raise click.UsageError(
            f"{len(files)} files need --stack rows (each has other samples) or --stack columns (other features)"
        )
    if join is not None and (stack != "rows" or len(files) < 2):
        raise click.UsageError("--join is for several files with --stack rows")
    if len(files) > 1 and "-" in files:
        raise click.UsageError("standard input cannot be stacked with files; write it to a file")


def check_format(file: str, format_: str | None) -> None:
    """Refuse a format that there is not; standard input has no name to tell its format by."""
    if file == "-" and format_ is None:
        raise click.UsageError("say what comes on standard input: --format mtx, csv, npy, ...")
    if format_ is not None:
        from shiftsvd.io.sniff import FORMATS

        if format_ not in FORMATS:
            raise click.BadParameter(f"{format_!r} is none of {', '.join(FORMATS)}", param_hint="'--format'")


def check_projection(given: dict[str, Any]) -> None:
    """Refuse to look at alleles and not to look at them."""
    named = {"--project": given["project"], "--match": given["match"], "--trust-ambiguous": given["trust_ambiguous"]}
    if given["trust_order"] and any(named.values()):
        raise click.UsageError(f"--trust-order looks at no alleles; leave out {next(n for n in named if named[n])}")


def check_workers(scheduler: str | None, n_workers: int | None, file: str) -> None:
    """Refuse two clusters at once, and data that only this process can see."""
    if scheduler is not None and n_workers is not None:
        raise click.UsageError("--workers starts workers, --scheduler has them already: give one of them")
    if file == "-" and (scheduler is not None or n_workers is not None):
        raise click.UsageError("workers read the file themselves, and cannot read standard input; give a path")


def check_missing(missing: str, unobserved: bool, k: int | float | None, on_workers: bool) -> None:
    """Refuse what no treatment of missing entries can be."""
    if unobserved and missing == "error":
        raise click.UsageError("--unobserved needs to know what is to stand there: --missing mean or --missing em")
    if missing == "em" and isinstance(k, float):
        raise click.BadParameter("--missing em needs a number of components, not a share", param_hint="'-k'")
    if missing != "error" and on_workers:
        raise click.UsageError("--missing is for one process; leave out --scheduler and --workers")


def check_preprocess(preprocess: tuple[str, ...], missing: str, scale: str | None = None) -> None:
    """Refuse what transformed entries cannot have beside them."""
    if preprocess and missing != "error":
        raise click.UsageError("--preprocess needs sums of rows and columns without gaps; leave out --missing")
    if preprocess and scale == SCALES[2]:
        raise click.UsageError("--scale patterson is of counts of an allele; leave out --preprocess")


def completion_of(missing: str, penalty: float | str | None, max_iter: int | None) -> dict[str, Any]:
    """Settings of the completion, if there is one; refuses them where there is none."""
    for name, value in (("--penalty", penalty), ("--max-iter", max_iter)):
        if missing != "em" and value is not None:
            raise click.UsageError(f"{name} is for --missing em, got --missing {missing}")
    if missing != "em":
        return {}
    return {"penalty": "auto" if penalty is None else penalty, "max_iter": max_iter or MAX_ITER}


def typed() -> str:
    """The command as it was typed."""
    return str(click.get_current_context().meta.get(LINE, "shiftsvd"))


def within(k: int | float | None, shape: tuple[int, int], file: str) -> int | float:
    """The number of components, or the usual one; more than there are is refused."""
    if k is None:
        return min(USUAL, *shape)
    if isinstance(k, int) and k > min(shape):
        m, n = shape
        raise click.BadParameter(f"{file} is {m} x {n}: at most {min(m, n)} components, got {k}", param_hint="'-k'")
    return k


def shares(k: int | float | None, solver: str) -> None:
    """Refuse a share of the variance where the solver needs a number."""
    if isinstance(k, float) and solver in COUNTED:
        raise click.BadParameter(f"a share of the variance needs another solver than {solver}", param_hint="'-k'")


def tables(path: str) -> str:
    """The format of a table by its name; standard output is CSV."""
    suffix = "csv" if path == "-" else Path(path).suffix.lstrip(".").lower()
    if suffix not in ("parquet", "csv", "npy"):
        raise click.BadParameter(f"{path} must end in .parquet, .csv or .npy", param_hint="'-o'")
    return suffix


def say(text: str, quiet: bool = False) -> None:
    """A line on stderr, for people."""
    if not quiet:
        click.echo(text, err=True)
