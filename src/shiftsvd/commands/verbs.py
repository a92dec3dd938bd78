"""The verbs of the command, with their options; what they do is imported when they run."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Final

import click

from shiftsvd.commands.options import FILE, MATRIX, OF_TABLES, declared, parameters, print_message
from shiftsvd.commands.running import Subcommand
from shiftsvd.commands.settings import USUAL, Settings, check_files, device_named
from shiftsvd.extend import extensions
from shiftsvd.names import resolve

_SETTINGS: Final = {each.name: each for each in fields(Settings)}
_MODEL: Final = click.Argument(["model"], type=FILE)
_DATA: Final = f"format key orient feature_types allow_external {OF_TABLES}"
_TABLE_OUT: Final = click.Path(allow_dash=True)  # that it is no folder is for `settings.table_format` to say


def named(settings: str) -> list[click.Parameter]:
    return [declared(_SETTINGS[name]) for name in settings.split()]


def files(metavar: str, **more: Any) -> click.Argument:
    return click.Argument(["files"], metavar=metavar, type=MATRIX, nargs=-1, **more)


def out(says: str, **more: Any) -> click.Option:
    return declared(_SETTINGS["out"], required=True, help=says, **more)


def of_extensions(verb: str) -> list[click.Parameter]:
    return parameters(*(each for one in extensions() if verb in one.options for each in resolve(one.options[verb])))


def verb(*examples: str, takes: list[click.Parameter]) -> Callable[[Callable[[Settings], None]], click.Command]:
    """Make a command named as the decorated function; append the paragraphs and examples of extensions to its help."""

    def decorate(function: Callable[[Settings], None]) -> click.Command:
        name, said = function.__name__, str(function.__doc__).rstrip()
        text = "\n\n    ".join([said, *(each.help[name] for each in extensions() if name in each.help)])
        lines = [*examples, *(line for each in extensions() for line in each.examples.get(name, ()))]
        told = "\n".join(f"  shiftsvd {line}" for line in lines)
        return Subcommand(
            name,
            params=takes,
            callback=lambda **given: function(Settings.of(given)),
            help=text,
            epilog=f"\b\nExamples:\n{told}",
        )

    return decorate


_OPTIONS_OF_FIT: Final = [
    files("FILE...", required=True),
    *named(f"stack join k {_DATA} label_column preprocess trust_values"),
    *of_extensions("fit"),
    *named("shift scale missing unobserved penalty max_iter solver tol certify seed threads memory device"),
    *named("scheduler workers checkpoint out scores components report dtype json_out force spreadsheet_safe"),
    *named("progress quiet verbose"),
]


@verb(
    "fit counts.mtx.gz -k 0.5 --json",
    "fit table.csv -k 2 --scale -o out/",
    "fit ratings.npz -k 5 --missing em --unobserved",
    "fit counts.npz -k 10 --preprocess pearson --memory 1G -o residuals/",
    takes=_OPTIONS_OF_FIT,
)
def fit(settings: Settings) -> None:
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
    from shiftsvd.commands.fitting import run

    run(settings)


@verb(
    "transform out/model.safetensors new.mtx.gz -o scores.parquet",
    "transform out/model.safetensors new.mtx.gz -o - | head -3",
    takes=[
        _MODEL,
        files("FILE...", required=True),
        *named("stack join"),
        out('.parquet, .csv or .npy; "-" prints CSV.', type=_TABLE_OUT),
        *named("format key orient feature_types allow_external max_absent"),
        *of_extensions("transform"),
        *named(f"trust_values {OF_TABLES} threads memory dtype progress force spreadsheet_safe quiet verbose"),
    ],
)
def transform(settings: Settings) -> None:
    """Write the scores of new samples.

    The samples are those of FILE ("-": standard input), the components those of MODEL, a file that `fit` wrote.
    Where both have names of features, these are matched: another order is no matter, other features are an error.
    Scores of samples that lack some (--max-absent) are those by which the components come nearest to the others, in
    least squares. Several files are one matrix, as `fit` stacks them. Options of tables of the fit hold here, too,
    unless they are given again.
    """
    check_files(settings)
    from shiftsvd.commands.applying import transform as run

    run(settings)


@verb(
    "inverse out/model.safetensors out/scores.parquet -o restored.npy",
    takes=[
        _MODEL,
        click.Argument(["file"], metavar="SCORES", type=MATRIX),
        out('.npy, .csv or .parquet; "-" prints CSV.', type=_TABLE_OUT),
        *named("threads memory dtype force spreadsheet_safe quiet verbose"),
    ],
)
def inverse(settings: Settings) -> None:
    """Write the samples that have given scores.

    SCORES is a table (.parquet, .csv, .npy) as `fit` and `transform` write it; the samples are in the units of the
    data.
    """
    from shiftsvd.commands.applying import inverse as run

    run(settings)


@verb(
    *("info", "info counts.npz", "info out/model.safetensors --json"),
    takes=[files("[FILE]..."), *named(f"stack join {_DATA} memory json_out quiet verbose")],
)
def info(settings: Settings) -> None:
    """Say what a file holds.

    FILE ("-": standard input) is a matrix or a model; without it: what this installation runs on. Several files are
    one matrix, as `fit` stacks them.
    """
    from shiftsvd.commands import facts

    if not settings.files:
        told = facts.installation()
    elif settings.files[0].endswith(".safetensors"):
        told = facts.of_model(settings)
    else:
        check_files(settings)
        told = facts.of_matrix(settings)
    click.echo(facts.lines(told, settings.json_out))


@verb(
    *("estimate counts.npz -k 10", "estimate counts.npz -k 10 --preprocess log-normalize --memory 1G -o out/"),
    takes=_OPTIONS_OF_FIT,
)
def estimate(settings: Settings) -> None:
    """Predict the memory, passes and time of a fit.

    The options are those of `shiftsvd fit`: put "estimate" in the place of "fit". Nothing is decomposed or written. The
    memory is that of the data that are held, of the work beside them, and of the program; the time of a read comes
    from a short probe.
    """
    from shiftsvd.commands.facts import lines
    from shiftsvd.commands.fitting import estimated

    click.echo(lines(estimated(settings), settings.json_out))


@verb(
    *("convert counts.mtx.gz counts.zarr", "convert counts.npz big.h5ad --compression gzip"),
    takes=[
        click.Argument(["file"], metavar="IN", type=MATRIX),
        click.Argument(["out"], metavar="OUT", type=click.Path()),
        *named(f"{_DATA} compression memory force quiet verbose"),
    ],
)
def convert(settings: Settings) -> None:
    """Write a matrix in another format.

    OUT (.h5ad, .h5 or .zarr) has the layout of AnnData: rows are samples, sparse data compressed by rows. What does
    not fit in memory is written block by block; names of samples and features go with it.
    """
    check_files(settings)
    from shiftsvd.io.convert import convert as run

    run(
        settings.files[0],
        str(settings.out),
        format=settings.format,
        key=settings.key,
        orient=settings.orient,
        feature_types=settings.feature_types,
        force=settings.force,
        memory_limit=settings.memory,
        compression=settings.compression,
        choices=settings.choices,
    )
    print_message(f"written: {settings.out}", settings.quiet)


@verb(
    "report out/model.safetensors out/scores.parquet -o report.html",
    takes=[
        _MODEL,
        click.Argument(["file"], metavar="[SCORES]", type=MATRIX, required=False),
        out("The page, report.html.", type=click.Path()),
        *named("memory force quiet verbose"),
    ],
)
def report(settings: Settings) -> None:
    """Write a page about a model.

    One file that needs no other; with a plot of SCORES (.parquet, .csv, .npy) if they are given.
    """
    from shiftsvd.commands.applying import report as run

    run(settings)


@verb(
    "bench counts.npz -k 5 --solver gram --solver lanczos --rounds 1",
    takes=[
        click.Argument(["file"], type=FILE),
        declared(
            _SETTINGS["k"],
            type=click.IntRange(min=1),
            default=USUAL,
            show_default=True,
            metavar=None,
            callback=None,
            help="Components.",
        ),
        *named("solvers rounds tol devices"),
        declared(_SETTINGS["json_out"], help="Print one JSON object instead of a table."),
    ],
)
def bench(settings: Settings) -> None:
    """Time the solvers on a file.

    FILE is a matrix in any format that `shiftsvd info` reads; its columns are centred.
    """
    from shiftsvd.commands.timing import run

    run(replace(settings, devices=tuple(dict.fromkeys(map(device_named, settings.devices)))))
