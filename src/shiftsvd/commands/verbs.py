"""The verbs of the command, with their options; what they do is imported when they run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from shiftsvd.commands import options
from shiftsvd.commands.options import under
from shiftsvd.commands.running import Subcommand
from shiftsvd.commands.settings import Settings, check_files, device_named, table_format
from shiftsvd.extend import extensions
from shiftsvd.names import resolve

Declare = Callable[[Any], Any]


def declared(*decorators: Declare) -> Declare:
    """Several options as one decorator, in this order."""

    def decorate(function: Any) -> Any:
        for option in reversed(decorators):
            function = option(function)
        return function

    return decorate


def of_extensions(verb: str) -> Declare:
    """The options that extensions declare for a verb."""
    return declared(
        *(option for each in extensions() if verb in each.options for option in resolve(each.options[verb]))
    )


def verb(*examples: str) -> Declare:
    """A command named as its function, with the paragraphs and the examples that extensions add to its help."""

    def decorate(function: Any) -> click.Command:
        name = function.__name__
        more = [each.help[name] for each in extensions() if name in each.help]
        function.__doc__ = "\n\n    ".join([function.__doc__.rstrip(), *more])
        lines = [*examples, *(line for each in extensions() for line in each.examples.get(name, ()))]
        told = "\n".join(f"  shiftsvd {line}" for line in lines)
        command: click.Command = click.command(cls=Subcommand, epilog=f"\b\nExamples:\n{told}")(function)
        return command

    return decorate


_OPTIONS_OF_FIT: Final = declared(
    click.argument("files", metavar="FILE...", type=options.MATRIX, nargs=-1, required=True),
    options.stack,
    options.components,
    options.inside,
    options.table,
    options.label_column,
    options.preprocess,
    options.trust_values,
    of_extensions("fit"),
    under(
        "Preparation",
        click.option(
            "--shift", type=click.Choice(["mean", "none"]), default="mean", show_default=True, help="What to subtract."
        ),
        click.option(
            "--scale",
            type=click.Choice(options.SCALES),
            metavar=f"[{'|'.join(options.SCALES)}]",
            help="Divide features by their standard deviation (also alone: --scale), by its root (pareto), or "
            "genotypes by sqrt(2 p (1 - p)) with allele frequency p (patterson).  [default: none; patterson for .bed]",
        ),
    ),
    options.missing,
    options.solver,
    options.tol,
    under(
        "Components",
        click.option(
            "--certify/--no-certify",
            default=None,
            help="Bound the errors of solvers that do not do so themselves, such as randomized.",
        ),
        click.option(
            "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The same seed, the same bits."
        ),
    ),
    options.resources,
    options.device,
    options.workers,
    under(
        "Resources",
        click.option(
            "--checkpoint",
            type=click.Path(file_okay=False),
            help="Folder that keeps each read; the same command continues after it was killed.",
        ),
    ),
    under(
        "Output",
        click.option(
            "-o", "--out", type=click.Path(file_okay=False), help="Folder.  [default: print, and write nothing]"
        ),
        click.option(
            "--scores",
            type=click.Choice(["parquet", "csv", "npy", "none"]),
            help="Format of the scores.  [default: csv for a CSV or TSV, else parquet if pyarrow is installed]",
        ),
        click.option(
            "--components",
            type=click.Choice(["csv", "parquet", "none"]),
            help="Format of the components; the model has the same numbers.  "
            "[default: csv; none above 10 million numbers]",
        ),
        click.option(
            "--report/--no-report",
            default=None,
            help="Also write report.html.  [default: if matplotlib and jinja2 are installed]",
        ),
    ),
    options.dtype,
    options.as_json,
    options.force,
    options.spreadsheet_safe,
    options.progress,
    options.talk,
)


@verb(
    "fit counts.mtx.gz -k 0.5 --json",
    "fit table.csv -k 2 --scale -o out/",
    "fit ratings.npz -k 5 --missing em --unobserved",
    "fit counts.npz -k 10 --preprocess pearson --memory 1G -o residuals/",
)
@_OPTIONS_OF_FIT
def fit(**given: Any) -> None:
    """Find the principal components of a file.

    FILE ("-": standard input) is a table with a sample in each row, or a matrix in any other format that `shiftsvd
    info` reads. Sparse data stay sparse, and data larger than --memory are read in blocks, with --scheduler or
    --workers by processes that all see FILE under its path. Without -o a table of the components is printed; with it
    the folder gets model.safetensors, scores, components.csv, variances.csv, result.json and report.html. Components
    that did not converge are named in a warning.

    With --missing the model keeps how missing entries are treated, and `transform` treats them alike. Shares of the
    variance are then of the matrix with its gaps filled; with --missing em, "heldout_r2" says how much better than the
    means the model predicts entries that it has not seen.

    --preprocess changes the entries block by block as they are read: the file keeps raw counts, nothing becomes dense,
    and `transform` does the same to other samples by what was learned from these. The shift, the scale and the
    variances are then those of the changed entries.

    Several files are one matrix: --stack rows for files with other samples and the same features, --stack columns for
    the same samples and other features. Names decide what is the same; files of several formats may be mixed. Where
    features are not the same in all, --join takes those of all files, or of any.
    """
    settings = Settings.of(given)
    from shiftsvd.commands.fitting import run

    run(settings)


@verb(
    "transform out/model.safetensors new.mtx.gz -o scores.parquet",
    "transform out/model.safetensors new.mtx.gz -o - | head -3",
)
@click.argument("model", type=options.FILE)
@click.argument("files", metavar="FILE...", type=options.MATRIX, nargs=-1, required=True)
@options.stack
@under(
    "Output",
    click.option("-o", "--out", type=options.OUTPUT, required=True, help='.parquet, .csv or .npy; "-" prints CSV.'),
)
@options.inside
@under(
    "Data",
    click.option(
        "--max-absent",
        metavar="SHARE",
        type=click.FloatRange(0, 1),
        help="Largest share of the features of MODEL that may be absent; they are unobserved.  [default: 0, or 0.1 "
        "where MODEL takes some of the features of its file]",
    ),
)
@of_extensions("transform")
@options.trust_values
@options.table
@options.resources
@options.dtype
@options.progress
@options.force
@options.spreadsheet_safe
@options.talk
def transform(model: Path, **given: Any) -> None:
    """Write the scores of new samples.

    The samples are those of FILE ("-": standard input), the components those of MODEL, a file that `fit` wrote.
    Where both have names of features, these are matched: another order is no matter, other features are an error.
    Scores of samples that lack some (--max-absent) are those by which the components come nearest to the others, in
    least squares. Several files are one matrix, as `fit` stacks them. Options of tables of the fit hold here, too,
    unless they are given again.
    """
    settings = Settings.of(given)
    check_files(settings)
    table_format(str(settings.out))
    from shiftsvd.commands.applying import transform as run

    run(model, settings)


@verb("inverse out/model.safetensors out/scores.parquet -o restored.npy")
@click.argument("model", type=options.FILE)
@click.argument("file", metavar="SCORES", type=options.MATRIX)
@click.option("-o", "--out", type=options.OUTPUT, required=True, help='.npy, .csv or .parquet; "-" prints CSV.')
@options.resources
@options.dtype
@options.force
@options.spreadsheet_safe
@options.talk
def inverse(model: Path, file: str, **given: Any) -> None:
    """Write the samples that have given scores.

    SCORES is a table (.parquet, .csv, .npy) as `fit` and `transform` write it; the samples are in the units of the
    data.
    """
    settings = Settings.of(given | {"files": (file,)})
    table_format(str(settings.out))
    from shiftsvd.commands.applying import inverse as run

    run(model, settings)


@verb("info", "info counts.npz", "info out/model.safetensors --json")
@click.argument("files", metavar="[FILE]...", type=options.MATRIX, nargs=-1)
@options.stack
@options.inside
@options.table
@options.memory
@options.as_json
@options.talk
def info(**given: Any) -> None:
    """Say what a file holds.

    FILE ("-": standard input) is a matrix or a model; without it: what this installation runs on. Several files are
    one matrix, as `fit` stacks them.
    """
    settings = Settings.of(given)
    from shiftsvd.commands import facts

    if not settings.files:
        told = facts.installation()
    elif settings.files[0].endswith(".safetensors"):
        told = facts.of_model(settings)
    else:
        check_files(settings)
        told = facts.of_matrix(settings)
    click.echo(facts.lines(told, settings.json_out))


@verb("estimate counts.npz -k 10", "estimate counts.npz -k 10 --preprocess log-normalize --memory 1G -o out/")
@_OPTIONS_OF_FIT
def estimate(**given: Any) -> None:
    """Predict the memory, passes and time of a fit.

    The options are those of `shiftsvd fit`: put "estimate" in the place of "fit". Nothing is decomposed or written. The
    memory is that of the data that are held, of the work beside them, and of the program; the time of a read comes
    from a short probe.
    """
    settings = Settings.of(given)
    from shiftsvd.commands.facts import lines
    from shiftsvd.commands.predicting import estimated

    click.echo(lines(estimated(settings), settings.json_out))


@verb("convert counts.mtx.gz counts.zarr", "convert counts.npz big.h5ad --compression gzip")
@click.argument("file", metavar="IN", type=options.MATRIX)
@click.argument("out", metavar="OUT", type=click.Path())
@options.inside
@options.table
@click.option("--compression", type=click.Choice(["none", "gzip", "zstd"]), help="Of OUT.  [default: none]")
@options.memory
@options.force
@options.talk
def convert(file: str, out: str, compression: str | None, **given: Any) -> None:
    """Write a matrix in another format.

    OUT (.h5ad, .h5 or .zarr) has the layout of AnnData: rows are samples, sparse data compressed by rows. What does
    not fit in memory is written block by block; names of samples and features go with it.
    """
    settings = Settings.of(given | {"files": (file,)})
    check_files(settings)
    from shiftsvd.io.convert import convert as run

    run(
        file,
        out,
        format=settings.format,
        key=settings.key,
        orient=settings.orient,
        feature_types=settings.feature_types,
        force=settings.force,
        memory_limit=settings.memory,
        compression=compression,
        choices=settings.choices,
    )
    options.say(f"written: {out}", settings.quiet)


@verb("report out/model.safetensors out/scores.parquet -o report.html")
@click.argument("model", type=options.FILE)
@click.argument("file", metavar="[SCORES]", type=options.MATRIX, required=False)
@click.option("-o", "--out", type=click.Path(), required=True, help="The page, report.html.")
@options.memory
@options.force
@options.talk
def report(model: Path, file: str | None, **given: Any) -> None:
    """Write a page about a model.

    One file that needs no other; with a plot of SCORES (.parquet, .csv, .npy) if they are given.
    """
    settings = Settings.of(given | {"files": () if file is None else (file,)})
    from shiftsvd.commands.applying import report as run

    run(model, settings)


@verb("bench counts.npz -k 5 --solver gram --solver lanczos --rounds 1")
@click.argument("file", type=options.FILE)
@click.option("-k", "k", type=click.IntRange(min=1), default=options.USUAL, show_default=True, help="Components.")
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
    help="Where to multiply: cpu, or a GPU by PyTorch: cuda, cuda:1; auto: a GPU if there is one. May be given "
    "several times.",
)
@click.option("--json", "json_out", is_flag=True, help="Print one JSON object instead of a table.")
def bench(file: Path, k: int, devices: tuple[str, ...], json_out: bool, **asked: Any) -> None:
    """Time the solvers on a file.

    FILE is a matrix in any format that `shiftsvd info` reads; its columns are centred.
    """
    from shiftsvd.commands.timing import Asked, run

    run(file, k, Asked(devices=tuple(dict.fromkeys(map(device_named, devices))), **asked), json_out)
