"""Settings of a subcommand as one typed value; each field declares its option."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, get_args

import click

from shiftsvd.commands import options
from shiftsvd.commands.options import NO_SHARE, OF_FILES, OF_TABLES, as_given, need_folder, option_of, worded, wrong_k
from shiftsvd.errors import is_address, plural, public_address
from shiftsvd.extend import extensions, merged
from shiftsvd.names import MAX_ITER, TOL, FormatName, MissingName, ScaleName, SolverName, VarNamesName
from shiftsvd.runs.progress import KINDS
from shiftsvd.transforms import places

if TYPE_CHECKING:
    from shiftsvd.io.choices import Choices
    from shiftsvd.runs.memory import Resources

SCALES: Final = (*get_args(ScaleName), *(name for each in extensions() for name in each.scales), "none")
TRANSFORMS: Final = tuple(places())
FORMATS: Final = (*get_args(FormatName), *merged("formats"))
# Settings of the core that the results depend on; result.json lists them.
RECORDED: Final = (
    f"k {OF_FILES} join mixed preprocess shift scale missing unobserved penalty max_iter solver tol seed".split()
)
# Settings that standard input, which can be read once, cannot have.
READ_TWICE: Final = {
    "checkpoint": "standard input cannot be read again when the command is repeated",
    "label_column": "the labels are read in a second pass",
    **dict.fromkeys(("mixed", "supplementary"), "the table is read twice"),
}
USUAL: Final = 50  # default number of components, or the smaller side of the matrix
COUNTED: Final = ("randomized", "shifted-randomized")  # solvers that need a number of components, not a share
_ON_DEVICE: Final = "Compute on cpu or, by PyTorch, on a GPU such as cuda or cuda:1; auto: on a GPU if there is one."
Orient = Literal["rows", "columns"]


def option(text: str, *names: str, default: Any = None, **more: Any) -> Any:
    """Declare a field of `Settings` with its option; the name and type of the field give those of the option."""
    return field(default=default, metadata={"option": (names, text, more)})


def _flag(text: str, *names: str) -> Any:
    return option(text, *names, default=False)


def _several(text: str, metavar: str, **more: Any) -> Any:
    return option(text, default=(), metavar=metavar, multiple=True, **more)


def _columns(text: str) -> Any:
    return _several(text, "COLUMNS", callback=options.columns)


def _nonnegative(text: str, *names: str, default: Any = 1.0, **more: Any) -> Any:
    check = options.nonnegative
    return option(text, *names, default=default, type=float, metavar="NUMBER", callback=check, **more)


def _completed(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    return [name for name in TRANSFORMS if name.startswith(begun)]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of a subcommand, with defaults for options it does not have; `extra` holds those of extensions."""

    model: Path = Path()
    files: tuple[str, ...] = ()
    stack: Orient | None = option(
        "Combine several files into one matrix: rows if each has different samples, columns if each has different "
        "features."
    )
    join: Literal["inner", "outer"] | None = option(
        "With --stack rows, match features by name: inner keeps the features common to all files; outer keeps all "
        "features, with 0 where a file lacks one.  [default: all files must have the same features]"
    )
    format: str | None = option(
        "Format of the file, such as csv or mtx.  [default: detected from name and content]",
        metavar="NAME",
        type=click.Choice(FORMATS),
    )
    key: str | None = option("Matrix in a file that holds several, such as layers/counts or raw/X.", metavar="NAME")
    orient: Orient | None = option(
        "Axis of the samples in the file: rows or columns.  [default: rows, unless the format is known to store "
        "samples as columns]"
    )
    feature_types: tuple[str, ...] | None = option(
        'Types of features to keep, separated by commas, or all.  [default: "Gene Expression" of 10x files]',
        metavar="NAMES",
        callback=options.split_names,
    )
    var_names: VarNamesName | None = option(
        "Names of the genes in 10x and AnnData files: gene_symbols or gene_ids. The model keeps both, and `transform` "
        "matches files with either.  [default: symbols of 10x files, the index of var of AnnData; ids if one occurs "
        "twice]"
    )
    measurement: str | None = option(
        "Measurement of a TileDB-SOMA experiment.  [default: the only one, or RNA]", metavar="NAME"
    )
    obs_query: str | None = option(
        "Cells of a TileDB-SOMA experiment to read: a condition on columns of obs, such as 'cell_type == \"T cell\"'.  "
        "[default: all cells]",
        metavar="CONDITION",
    )
    allow_external: bool = _flag(
        "Follow links and virtual datasets of HDF5 and Zarr files into other files. Use for trusted files only."
    )
    max_absent: float | None = option(
        "Largest share (0 to 1) of the features of MODEL that FILE may lack. Absent features are treated as missing "
        "values.  [default: 0; 0.1 if the fit selected features]",
        metavar="SHARE",
        type=click.FloatRange(0, 1),
    )
    compression: Literal["none", "gzip", "zstd"] | None = option("Compression of the arrays in OUT.  [default: none]")

    ids: str | None = option(
        "Column of sample names.  [default: the first column, if it has no header, or holds text that does not "
        "repeat or has a usual name such as sample]",
        metavar="COLUMN",
    )
    drop: tuple[str, ...] = _columns("Columns to exclude, such as date,comment. Quote names that contain commas.")
    columns: tuple[str, ...] = _columns("Columns to use as features; exclude all others.  [default: all]")
    one_hot: tuple[str, ...] = _columns(
        "Categorical columns to encode: each category becomes a column of zeros and ones, such as sex=F."
    )
    sep: str | None = option(
        "Delimiter between cells: a character, tab or space.  [default: detected]", metavar="CHARACTER"
    )
    decimal: str | None = option('Decimal mark, such as ",".  [default: detected]', metavar="CHARACTER")
    thousands: str | None = option("Thousands separator.  [default: detected]", metavar="CHARACTER")
    encoding: str | None = option(
        "Text encoding, such as latin-1 or cp1252.  [default: that of the byte order mark, else UTF-8]", metavar="NAME"
    )
    comment: tuple[str, ...] = _several(
        "Skip lines that begin with this text. Repeat the option for several.  [default: skip lines with # above the "
        "header]",
        "TEXT",
    )
    skip: int = option(
        "Number of lines to skip at the beginning of the file, such as titles.  [default: 0]",
        default=0,
        type=click.IntRange(min=0),
        show_default=False,
    )
    na: tuple[str, ...] = _several(
        "Text of a cell that is a missing value, such as k.A. or -999, in addition to empty cells, NA, NaN, NULL, -, "
        "? and similar texts. Repeat the option for several.",
        "TEXT",
    )
    censored: Literal["missing", "half"] = option(
        "Value of a cell such as <0.5: missing, or half of this limit.", default="missing"
    )
    keep_total: bool = _flag(
        "Use a last row of totals as a sample.  [default: exclude a last row that is called Total, Summe or the like, "
        "or that is the sum of the others]"
    )
    label_column: str | None = option(
        "Column of a table, of obs, or of a .fam or .psam (SEX, PHENO1), whose labels colour the scores in the report. "
        "It is not used as a feature.",
        metavar="COLUMN",
    )

    mixed: bool = _flag(
        "Analyse numbers and categories together (factor analysis of mixed data): columns of repeated texts and of "
        "--one-hot are categories. Numbers are divided by their standard deviation, categories by the square root of "
        "their frequency."
    )
    supplementary: tuple[str, ...] = _columns(
        "Columns that take no part in the fit, such as country,income. Their positions among the components are "
        "written to supplementary.csv and drawn in the report."
    )

    preprocess: tuple[str, ...] = _several(
        "Transform the entries before the fit, such as pearson or pearson:theta=10,clip=inf. Repeat the option to "
        f"apply several in order. NAME: {', '.join(TRANSFORMS)}.  [default: none]",
        "NAME:KEY=VALUE,...",
        callback=options.checked_by("shiftsvd.transforms.chains:as_transforms"),
        shell_complete=_completed,
    )
    trust_values: bool = _flag(
        "Suppress the warning that entries look like logarithms where counts are needed, and the notice about raw "
        "counts."
    )
    shift: Literal["mean", "none"] = option("Subtract the mean of each feature, or nothing.", default="mean")
    scale: str | None = option(
        "Divide each feature by its standard deviation (std, or --scale alone), by the square root of its standard "
        "deviation (pareto), or by sqrt(2 p (1 - p)) for genotypes with allele frequency p (patterson).  [default: "
        "none; patterson for .bed]",
        type=click.Choice(SCALES),
        metavar=f"[{'|'.join(SCALES)}]",
    )

    missing: MissingName = option(
        "Treatment of missing values (NaN): raise an error, replace them by the mean of the feature, or predict them "
        "by the components (em).",
        default="error",
    )
    filled: bool = False  # whether the reader of the files fills missing values
    unobserved: bool = _flag(
        "Treat entries that a sparse file does not store as missing values, not as zeros, as in ratings."
    )
    penalty: float | Literal["auto"] | None = option(
        "For --missing em: amount by which singular values are shrunk.  [default: auto, chosen on held-out entries]",
        metavar="NUMBER",
        callback=options.penalty,
    )
    max_iter: int | None = option(f"For --missing em: largest number of iterations.  [default: {MAX_ITER}]")

    k: int | float | None = option(
        "Number of components. A value below 1 is a share of the variance: use the fewest components that exceed it.  "
        "[default: 50, or the smaller side of the matrix]",
        "-k",
        type=str,
        metavar="NUMBER",
        callback=options.components,
    )
    affinity: Literal["nearest_neighbors", "cosine", "precomputed"] = option(
        "Weights of the edges of the graph: nearest_neighbors joins each sample to its nearest neighbours; cosine "
        "weighs all pairs by the cosine of their rows, which must be nonnegative; precomputed reads the weights from "
        "FILE.",
        default="nearest_neighbors",
    )
    n_neighbors: int | None = option(
        "Number of neighbours of a sample, including itself.  [default: a tenth of the samples]", "--neighbors"
    )
    drop_first: bool = option(
        "Drop the trivial coordinates, which are constant on each connected component of the graph, or write them "
        "first.  [default: drop]",
        "--drop-first/--keep-first",
        default=True,
        show_default=False,
    )
    alpha: float = _nonnegative(
        "Exponent of the density of the samples that affinities are divided by: 1 removes its influence, 0 keeps it."
    )
    alphas: tuple[float, ...] = _nonnegative(
        "Weight of the background: larger values remove more of its variation. Repeat the option for several.",
        "--alpha",
        default=(1.0,),
        multiple=True,
    )
    choose: int | None = option(
        "Keep the N values of --alpha whose components represent those of the others; without --alpha, of 0 and 40 "
        "values from 0.1 to 1000.",
        type=click.IntRange(1),
        metavar="N",
    )
    ridge: float | None = _nonnegative(
        "Maximize the variance in TARGET over that in the background plus this variance, instead of a difference.",
        default=None,
    )
    t: float = _nonnegative("Number of steps of the random walk; later coordinates shrink with more steps.", "--steps")
    leave_out: str | None = option(
        "Column of a table or of obs with groups, such as donors: leave out one group at a time.  [default: one sample "
        "at a time]",
        metavar="COLUMN",
    )
    widest: float = option(
        "Refit without a sample or group if the bounds of an angle differ by more than this number of degrees.  "
        "[default: 90; for small data, refit also to find the sample that turns a component most]",
        default=90.0,
        type=click.FloatRange(0, 90),
        metavar="DEGREES",
        show_default=False,
    )
    background: str | None = option(
        "File with the samples whose variation is of no interest, and with the features of TARGET.",
        type=options.Matrix(exists=True),
        metavar="FILE",
        required=True,
    )
    max_products: int | None = option("Largest number of products of the graph with 8 vectors.  [default: 20,000]")
    max_passes: int | None = option("Largest number of passes over each file.  [default: enough to converge]")
    solver: SolverName = option(
        "Algorithm of the decomposition; auto selects the cheapest of lanczos, gram and exact.", default="auto"
    )
    solvers: tuple[SolverName, ...] = option(
        "Solver to time. Repeat the option for several.",
        "--solver",
        default=("auto", "lanczos", "gram", "randomized"),
        multiple=True,
        type=click.Choice(["auto", "lanczos", "gram", "exact", "randomized"]),
    )
    rounds: int = option("Number of runs of each solver.", default=3)
    tol: float = option(
        "Largest relative error allowed for a singular value.",
        default=TOL,
        callback=options.checked_by("shiftsvd.solvers.base:check_tol"),
    )
    certify: bool | None = option(
        "Compute error bounds for solvers that do not compute bounds themselves, such as randomized.  [default: if "
        "memory suffices]",
        "--certify/--no-certify",
    )
    seed: int = option(
        "Seed of the random numbers; the same seed gives identical results.", default=0, type=click.IntRange(min=0)
    )

    threads: int | None = option("Number of threads.  [default: number of available cores]")
    memory: str | None = option(
        "Memory for data and solver, such as 2G; the program itself takes 0.15 GB more, and 0.2 GB if it writes a "
        "report.  [default: half of the available memory]",
        metavar="SIZE",
        callback=options.checked_by("shiftsvd.runs.memory:parse_bytes"),
    )
    device: str | None = option(f"{_ON_DEVICE}  [default: cpu]", metavar="NAME")
    devices: tuple[str, ...] = option(
        f"{_ON_DEVICE} Repeat the option for several.",
        "--device",
        default=("cpu",),
        metavar="NAME",
        multiple=True,
    )
    scheduler: str | None = option(
        "Read and compute on the workers of the Dask scheduler at this address.", metavar="ADDRESS"
    )
    workers: int | None = option("Start this number of worker processes, and read and compute on them.")
    checkpoint: str | None = option(
        "Folder for the result of each pass over the data; repeat an interrupted command to continue.",
        type=options.Local(file_okay=False),
    )
    cache: str | None = option(
        "Folder for packed copies of what the first pass reads in blocks, from a server or a slow disk; later passes "
        "read the copies, which are removed at the end.",
        type=options.Local(file_okay=False),
    )
    cache_size: str | None = option(
        "Largest size of the copies of --cache, such as 20G; other blocks are read again.  [default: half of the free "
        "space of the disk]",
        metavar="SIZE",
        callback=options.checked_by("shiftsvd.runs.memory:parse_bytes"),
    )

    out: str | None = option(
        "Output folder.  [default: print the result and write no files]",
        *("-o", "--out"),
        type=options.Local(file_okay=False),
    )
    scores: Literal["parquet", "csv", "npy", "none"] | None = option(
        "Format of the scores.  [default: csv for tables other than Parquet and Arrow files; else parquet, or csv "
        "without pyarrow]"
    )
    components: Literal["csv", "parquet", "none"] | None = option(
        "Format of the table of components, which the model also stores.  [default: csv; none above 10 million numbers]"
    )
    report: bool | None = option(
        "Also write report.html.  [default: if matplotlib and jinja2 are installed]", "--report/--no-report"
    )
    dtype: Literal["float32", "float64"] | None = option(
        "Precision of the numbers written.  [default: precision of the data]"
    )
    contributions: bool = _flag(
        "Also write the contribution of each sample to each component, and its squared cosines, in the format of the "
        "scores."
    )
    json_out: bool = _flag("Print the result as one JSON object on stdout.", "--json")
    force: bool = _flag("Overwrite existing outputs.")
    spreadsheet_safe: bool = _flag(
        "Write an apostrophe before names in CSV files that spreadsheets would run as formulas."
    )

    progress: str = option(
        "Show progress on stderr: bars, or one JSON object per line (json). auto: bars in a terminal.",
        default="auto",
        type=click.Choice(KINDS),
    )
    quiet: bool = _flag("Print only warnings, errors and an explicit --progress on stderr.", *("--quiet", "-q"))
    verbose: int = option(
        "Print more messages; -vv also prints the traceback of an error.",
        *("--verbose", "-v"),
        default=0,
        count=True,
        type=click.IntRange(min=0),
        show_default=False,
    )
    placed_texts: tuple[str, ...] = ()  # columns of --supplementary that hold categories
    cpu_if_full: bool = False  # whether to compute on the CPU if the memory of the GPU is too small
    labelled: bool = False  # whether --label-column is a column of the table, to be excluded from the features
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Make settings from the values that click has parsed; raise UsageError for invalid options of tables."""
        known = {each.name for each in fields(cls)}
        own = {name: value for name, value in given.items() if name in known}
        if "file" in given:  # subcommands of one file
            own["files"] = () if given["file"] is None else (str(given["file"]),)
        extra = {name: value for name, value in given.items() if name not in known and name != "file"}
        settings = cls(**own, extra=extra)
        try:
            settings.choices  # noqa: B018  # `Choices.of` checks them
        except ValueError as error:
            raise click.UsageError(worded(error)) from None
        return settings

    @cached_property
    def choices(self) -> "Choices":
        from shiftsvd.io.choices import Choices

        made = Choices.of(**{name: getattr(self, name) for name in OF_TABLES.split()})
        others = (*self.supplementary, *([self.label_column] if self.labelled else []))
        return replace(made, drop=tuple(dict.fromkeys((*made.drop, *map(str, others))))) if others else made

    @property
    def file(self) -> str:
        from shiftsvd.io.stacking import several

        return as_given(several(self.paths))

    @cached_property
    def paths(self) -> list[Path]:
        from shiftsvd.io.location import located

        return [located(file) for file in self.files]

    @property
    def where(self) -> dict[str, Any]:
        """The arguments of `io.open_matrix` that select a matrix in the files."""
        return {name: getattr(self, name) for name in f"format {OF_FILES} stack join".split()}

    @property
    def resources(self) -> "Resources":
        from shiftsvd.runs.memory import Resources

        return Resources(self.memory, self.threads)

    @property
    def on_cluster(self) -> bool:
        return not (self.scheduler is None and self.workers is None)

    @property
    def left_missing(self) -> MissingName:
        """Treatment of missing values in the fit: "error" if the reader has filled them."""
        return "error" if self.filled else self.missing

    @property
    def missing_later(self) -> MissingName:
        """Treatment of missing values in new samples, which the mean can replace if the model subtracts the mean."""
        return self.missing if self.shift == "mean" else self.left_missing

    def identity(self, extra: tuple[str, ...]) -> str:
        """Return all settings that the results of a fit depend on, as the identity of a checkpoint."""
        names = ("files", "memory", "certify", *RECORDED)
        own = self.where | {name: getattr(self, name) for name in names} | {"choices": vars(self.choices)}
        own["files"] = [public_address(file) if is_address(file) else file for file in self.files]  # tokens expire
        return json.dumps(own | {name: self.extra[name] for name in extra}, default=list)

    def given(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the options of extensions that the user set, with their values; 0 counts as a value."""
        found = {name: self.extra.get(name) for name in names}
        return {name: value for name, value in found.items() if value is not None and value is not False}

    def changed(self, **values: Any) -> Self:
        """Replace settings, including those of extensions."""
        extra = {name: value for name, value in values.items() if name in self.extra}
        known = {name: value for name, value in values.items() if name not in extra}
        return replace(self, **known, extra={**self.extra, **extra})

    def check(self) -> "Settings":
        """Raise UsageError if options of a fit contradict each other; return the settings with the device resolved."""
        options.check_files(self)
        if isinstance(self.k, float) and self.solver in COUNTED:
            raise wrong_k(f"--solver {self.solver} {NO_SHARE} Use --solver lanczos.")
        for name, why in READ_TWICE.items():
            if self.files[0] == "-" and getattr(self, name):
                raise click.UsageError(f"{option_of(name)} needs a file, because {why}. Write the data to a file.")
        checked = options.with_device(self)
        options.check_uses(self)
        options.check_workers(self)
        options.check_missing(self)
        if self.preprocess and self.missing != "error":
            raise click.UsageError(
                "--preprocess needs data without missing values. Fill or remove missing values in the file, and remove "
                "--missing."
            )
        if self.out is None:
            for option in ("scores", "report", "components", "label_column", "supplementary", "contributions", "dtype"):
                need_folder(option, getattr(self, option))
        if self.missing == "em":
            penalty, max_iter = "auto" if self.penalty is None else self.penalty, self.max_iter or MAX_ITER
            checked = replace(checked, penalty=penalty, max_iter=max_iter)
        return checked


def wanted_count(k: int | float | None, shape: tuple[int, int], file: str) -> int | float:
    if k is None:
        return min(USUAL, *shape)
    if isinstance(k, int) and k > min(shape):
        m, n = shape
        sizes = f"{plural(m, 'sample')} and {plural(n, 'feature')}"
        raise wrong_k(f"must be at most {min(m, n):,}, as {file} has {sizes}, got {k:,}.")
    return k


def table_format(path: str) -> str:
    """Return the format of an output table by its suffix; standard output is CSV."""
    suffix = "csv" if path == "-" else Path(path).suffix.lstrip(".").lower()
    if suffix not in ("parquet", "csv", "npy", *merged("writers")):
        is_folder = path.endswith("/") or Path(path).is_dir()
        remedy = f" {path} is a folder. Name a file in it, such as {Path(path) / 'scores.csv'}." if is_folder else ""
        kinds = ".parquet, .csv or .npy, or in .eigenvec for scores of genotypes"
        raise click.BadParameter(f"must end in {kinds}, got {path}.{remedy}", param_hint="'-o'")
    return suffix
