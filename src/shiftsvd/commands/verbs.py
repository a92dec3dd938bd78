"""Define the subcommands and their options; the code of a subcommand is imported when it runs."""

from collections.abc import Callable
from dataclasses import fields
from inspect import cleandoc
from typing import Any, Final

import click

from shiftsvd.commands import VERBS
from shiftsvd.commands.options import FILE, MATRIX, MODEL, OF_FILES, OF_TABLES, Local, declared, parameters
from shiftsvd.commands.running import Subcommand
from shiftsvd.commands.settings import USUAL, Settings
from shiftsvd.extend import extensions
from shiftsvd.names import resolve

_SETTINGS: Final = {each.name: each for each in fields(Settings)}
_MODEL: Final = click.Argument(["model"], type=MODEL)
_DATA: Final = f"format {OF_FILES} allow_external {OF_TABLES}"
_TABLE_OUT: Final = Local(allow_dash=True)  # `settings.table_format` refuses folders


def named(*settings: str) -> list[click.Parameter]:
    return [declared(_SETTINGS[name]) for name in " ".join(settings).split()]


def files(metavar: str, **more: Any) -> click.Argument:
    return click.Argument(["files"], metavar=metavar, type=MATRIX, nargs=-1, **more)


def out(text: str, **more: Any) -> click.Option:
    return declared(_SETTINGS["out"], required=True, help=text, **more)


def of_extensions(verb: str) -> list[click.Parameter]:
    return parameters(*(each for one in extensions() if verb in one.options for each in resolve(one.options[verb])))


def verb(*examples: str, takes: list[click.Parameter], run: str) -> Callable[[Callable[[], None]], click.Command]:
    """Make a subcommand that calls `run`; its help is the summary, the docstring, and what extensions add."""

    def decorate(function: Callable[[], None]) -> click.Command:
        name, more = function.__name__, (each.help for each in extensions())
        about = [str(function.__doc__), *(each[name] for each in more if name in each)]
        text = "\n\n".join([VERBS[name], *map(cleandoc, about)])
        lines = [*examples, *(line for each in extensions() for line in each.examples.get(name, ()))]
        shown = "\n".join(f"  shiftsvd {line}" for line in lines)
        return Subcommand(
            name,
            params=takes,
            callback=lambda **given: resolve(f"shiftsvd.commands.{run}")(Settings.of(given)),
            help=text,
            epilog=f"\b\nExamples:\n{shown}",
        )

    return decorate


_OPTIONS_OF_FIT: Final = [
    files("FILE...", required=True),
    *named(f"stack join k {_DATA} label_column mixed supplementary preprocess trust_values"),
    *of_extensions("fit"),
    *named(
        "shift scale missing unobserved penalty max_iter solver tol certify seed threads memory device scheduler",
        "workers checkpoint cache cache_size out scores components contributions report dtype json_out force",
        "spreadsheet_safe progress quiet verbose",
    ),
]


@verb(
    "fit counts.mtx.gz -k 0.5 --json",
    "fit table.csv -k 2 --scale -o out/",
    "fit survey.csv -k 2 --mixed --supplementary country -o out/",
    "fit ratings.npz -k 5 --missing em --unobserved",
    "fit counts.npz -k 10 --preprocess pearson --memory 1G -o residuals/",
    takes=_OPTIONS_OF_FIT,
    run="fitting:run",
)
def fit() -> None:
    """FILE ("-": standard input) is a table with one sample per row, or a matrix in any other format that `shiftsvd
    info` reads. Sparse data remain sparse. Data larger than --memory are read in blocks; with --scheduler or --workers,
    worker processes read the blocks, and FILE must exist at the same path for all of them. Without -o, the components
    are printed as a table. With -o, the folder gets model.safetensors, scores, components.csv, variances.csv,
    result.json and report.html; --supplementary and --contributions add a file each. A warning lists components that
    did not converge.

    --missing is stored in the model, and `transform` treats missing values in the same way. Shares of the variance
    then refer to the matrix with its missing values filled. With --missing em, "heldout_r2" in result.json is the R^2
    of the model on observed entries that were held out of the fit (0: no better than the means).

    --preprocess transforms the entries of each block after reading it. The file remains unchanged, and sparse data
    remain sparse. The model stores the parameters of the transformation for `transform`. The shift, the scale and the
    variances refer to the transformed entries.

    Several files form one matrix: use --stack rows for files with different samples and the same features, --stack
    columns for files with the same samples and different features. Samples and features are matched by name. The
    files may have different formats. If their features differ, use --join to select the common features or all of
    them.
    """


@verb(
    "transform out/model.safetensors new.mtx.gz -o scores.parquet",
    "transform out/model.safetensors new.mtx.gz -o - | head -3",
    takes=[
        _MODEL,
        files("FILE...", required=True),
        *named("stack join"),
        out(
            'File for the scores: .parquet, .csv, .npy, or .eigenvec of genotypes; "-": CSV on standard output.',
            type=_TABLE_OUT,
        ),
        *named(f"format {OF_FILES} allow_external max_absent"),
        *of_extensions("transform"),
        *named(f"trust_values {OF_TABLES} threads memory dtype progress force spreadsheet_safe quiet verbose"),
    ],
    run="applying:transform",
)
def transform() -> None:
    """FILE ("-": standard input) holds the samples; MODEL is a file that `fit` wrote. Features are matched by name, in
    any order, if both have names. A feature of MODEL that FILE lacks is an error, unless --max-absent allows it; scores
    are then fitted to the remaining features by least squares. Features that MODEL lacks are an error, too, but are
    removed from triplets, such as counts of new words. Several files form one matrix, as in `fit`. Options of
    tables default to those of the fit.
    """


@verb(
    "influence out/model.safetensors counts.npz -o influence.csv",
    takes=[
        _MODEL,
        files("FILE...", required=True),
        *named("stack join leave_out widest"),
        declared(_SETTINGS["out"], type=Local(), help="File for the bounds of all samples: .parquet, .csv or .npy."),
        *of_extensions("influence"),
        *named(f"{_DATA} threads memory json_out progress force spreadsheet_safe quiet verbose"),
    ],
    run="applying:influence",
)
def influence() -> None:
    """FILE holds the samples by which `fit` made MODEL. For each component, the sample without which it turns most is
    printed, with the least and the largest angle in degrees, and the angle of the space of all components without the
    same sample. The last line names the sample without which this space turns most. The bounds hold for a PCA of the
    other samples, with the scale and the transformations of MODEL. Small data are fitted again without the samples that
    may turn a component most; large data with --widest only. OUT has a row for each sample, and two columns for each
    component and for the space of all components.
    """


@verb(
    "inverse out/model.safetensors out/scores.parquet -o restored.npy",
    takes=[
        _MODEL,
        click.Argument(["file"], metavar="SCORES", type=MATRIX),
        out('File for the samples: .npy, .csv or .parquet; "-": CSV on standard output.', type=_TABLE_OUT),
        *named("threads memory dtype force spreadsheet_safe quiet verbose"),
    ],
    run="applying:inverse",
)
def inverse() -> None:
    """SCORES is a table (.parquet, .csv, .npy) that `fit` or `transform` wrote. The reconstructed samples have the
    units of the data.
    """


@verb(
    *("info", "info counts.npz", "info table.csv", "info out/model.safetensors --json"),
    takes=[files("[FILE]..."), *named(f"stack join {_DATA} memory json_out quiet verbose")],
    run="facts:info",
)
def info() -> None:
    """FILE ("-": standard input) is a matrix or a model. For a table, `info` describes each column: its kind, its use,
    missing values, range and examples, and the cells that cannot be read as numbers. The last line is a `shiftsvd fit`
    command that reads the table. Without FILE, the versions, threads and devices of this installation are printed.
    Several files form one matrix, as in `fit`.
    """


@verb(
    *("estimate counts.npz -k 10", "estimate counts.npz -k 10 --preprocess log-normalize --memory 1G -o out/"),
    takes=_OPTIONS_OF_FIT,
    run="fitting:estimated",
)
def estimate() -> None:
    """The options are those of `shiftsvd fit`: replace "fit" by "estimate". Nothing is fitted or written. total_bytes
    is the peak memory of a fit: the data (held_bytes), the work (peak_bytes) and the program. If `fit` would stop
    because --memory is too small, so does `estimate`. The passes of nine of ten fits are within passes_range. Beyond
    n_passes of `fit`, `estimate` counts two passes of --top-features and one of --mixed. The time per pass is measured
    on a short sample of the data; seconds is seconds_to_open (to read a table of text, all of it) plus n_passes times
    seconds_per_pass. The time of writing results is not included.
    """


@verb(
    *("convert counts.mtx.gz counts.zarr", "convert counts.npz big.h5ad --compression gzip"),
    takes=[
        click.Argument(["file"], metavar="IN", type=MATRIX),
        click.Argument(["out"], metavar="OUT", type=Local()),
        *named(f"{_DATA} compression memory force quiet verbose"),
    ],
    run="converting:convert",
)
def convert() -> None:
    """OUT has the layout of AnnData: rows are samples, and sparse data are compressed by rows (CSR). Names of samples
    and features are kept; a notice names columns that are not. A matrix larger than --memory is converted block by
    block.
    """


@verb(
    "report out/model.safetensors out/scores.parquet -o report.html",
    takes=[
        _MODEL,
        click.Argument(["files"], metavar="[SCORES [NEW]]", type=MATRIX, nargs=-1),
        out("File for the report, such as report.html.", type=Local()),
        *named("memory force quiet verbose"),
    ],
    run="applying:report",
)
def report() -> None:
    """The report is a single file that needs no network. SCORES and NEW are tables (.parquet, .csv, .npy). The report
    plots SCORES, which `fit` wrote, and on the same axes NEW, the scores of new samples, which `transform` wrote.
    """


def _count(text: str, default: int = 2, **more: Any) -> click.Option:
    """Return -k as a number of components."""
    count = {"type": click.IntRange(min=1), "default": default, "show_default": True, "callback": None, "help": text}
    return declared(_SETTINGS["k"], **count, **more)


def _of_embedding(what: str, own: str, metavar: str | None = None) -> list[click.Parameter]:
    return [
        click.Argument(["file"], metavar=metavar, type=MATRIX),
        _count(f"Number of {what}."),
        declared(_SETTINGS["tol"], help="Largest sine of the angle of a component to its exact direction."),
        *named(own, _DATA, "label_column seed threads memory out scores report dtype json_out force spreadsheet_safe"),
        *named("progress quiet verbose"),
    ]


@verb(
    "embed table.csv -k 5 -o embedding/",
    "embed counts.npz --affinity cosine -k 10 -o embedding/",
    takes=_of_embedding("coordinates", "affinity n_neighbors drop_first max_products trust_values"),
    run="embedding:embed",
)
def embed() -> None:
    """Samples that are close, or joined by heavy edges, get close coordinates, for plots and clustering. FILE ("-":
    standard input) is a table or matrix with one sample per row; with --affinity precomputed, it is a square matrix
    with the nonnegative weights of the edges of a graph, the same in both directions. Without -o, the eigenvalues are
    printed, with bounds of their errors and of the angles of the coordinates. With -o, the folder gets the scores,
    result.json and report.html.
    """


@verb(
    "diffmap graph.npz -k 3 -o walk/",
    "diffmap cells.h5ad --key obsp/connectivities -k 10 -o walk/",
    takes=_of_embedding("coordinates", "alpha t drop_first max_products"),
    run="embedding:diffmap",
)
def diffmap() -> None:
    """The coordinates describe where a random walk on the graph leads. FILE ("-": standard input) is a square matrix of
    nonnegative affinities of samples, the same in both directions, such as --key obsp/connectivities of an .h5ad.
    With -o, the folder gets the scores, result.json with bounds of the errors, report.html, and model.safetensors,
    with which `transform` computes coordinates of new samples from their affinities to those of FILE.
    """


@verb(
    "contrast table.csv --background controls.csv --alpha 2 -o contrast/",
    "contrast table.csv --background controls.csv --choose 3 --json",
    takes=_of_embedding("components", "background alphas choose ridge max_passes trust_values", "TARGET"),
    run="embedding:contrast",
)
def contrast() -> None:
    """TARGET and the background are tables or matrices with one sample per row, and features that are matched by name.
    The components maximize the variance in TARGET minus alpha times that in the background, or with --ridge the ratio
    of both. With -o, the folder gets the scores of TARGET, model.safetensors for `transform`, report.html, and
    result.json with bounds of the errors. Several values of alpha share their passes over the files; the names of the
    files end in alpha, such as scores_alpha2.csv, or with --choose in a number, such as scores_1.csv.
    """


@verb(
    "bench counts.npz -k 5 --solver gram --solver lanczos --rounds 1",
    takes=[
        click.Argument(["file"], type=FILE),
        _count("Number of components.", USUAL, metavar=None),
        *named("solvers rounds tol devices"),
        declared(_SETTINGS["json_out"], help="Print one JSON object instead of a table."),
    ],
    run="timing:run",
)
def bench() -> None:
    """FILE is a matrix in any format that `shiftsvd info` reads. Its columns are centred."""
