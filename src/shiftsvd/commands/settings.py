"""The settings of a run of the command, each with its option: one typed value, which all verbs read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, get_args

import click

from shiftsvd.commands import options
from shiftsvd.commands.options import OF_TABLES, as_given, option_of, worded
from shiftsvd.extend import extensions, merged
from shiftsvd.names import MAX_ITER, TOL, FormatName, MissingName, ScaleName, SolverName
from shiftsvd.runs.progress import KINDS
from shiftsvd.transforms import places

if TYPE_CHECKING:
    from shiftsvd.io.choices import Choices
    from shiftsvd.runs.memory import Resources

SCALES: Final = (*get_args(ScaleName), *(name for each in extensions() for name in each.scales), "none")
TRANSFORMS: Final = tuple(places())
FORMATS: Final = (*get_args(FormatName), *merged("formats"))
# Settings of the core that numbers depend on; result.json lists them.
OF_RESULTS: Final = (
    *("k", "feature_types", "join", "preprocess", "shift", "scale", "missing", "unobserved", "penalty", "max_iter"),
    *("solver", "tol", "seed"),
)
USUAL: Final = 50  # components where none are asked for, if there are so many
COUNTED: Final = ("randomized", "shifted-randomized")  # solvers that cannot be asked for a share of the variance
Orient = Literal["rows", "columns"]


def option(says: str, *names: str, default: Any = None, **more: Any) -> Any:
    """Declare a field of `Settings` with an option, whose name and type in click follow from those of the field."""
    return field(default=default, metadata={"option": (names, says, more)})


def _columns(says: str) -> Any:
    return option(says, default=(), metavar="COLUMNS", multiple=True, callback=options.columns)


def _completed(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    return [name for name in TRANSFORMS if name.startswith(begun)]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of a verb; options that the verb lacks have defaults. `extra` holds the options of extensions."""

    model: Path = Path()
    files: tuple[str, ...] = ()
    stack: Orient | None = option("Several files as one matrix: rows: each has other samples; columns: other features.")
    join: Literal["inner", "outer"] | None = option(
        "Features of --stack rows by name: those of all files, or of any, 0 where one lacks.  [default: the same]"
    )
    format: str | None = option(
        "Format of the file, such as csv, mtx.  [default: by its name and content]",
        metavar="NAME",
        type=click.Choice(FORMATS),
    )
    key: str | None = option("Which matrix of the file: layers/counts, raw/X, a variable.", metavar="NAME")
    orient: Orient | None = option("Where the samples are.")
    feature_types: tuple[str, ...] | None = option(
        'Types of features to take, with commas between them, or all.  [default: of 10x "Gene Expression"]',
        metavar="NAMES",
        callback=options.split_names,
    )
    allow_external: bool = option(
        "Follow HDF5 and Zarr into other files, by links and virtual datasets, of data you trust.", default=False
    )
    max_absent: float | None = option(
        "Largest share of the features of MODEL that may be absent; they are unobserved.  [default: 0, or 0.1 where "
        "MODEL takes some of the features of its file]",
        metavar="SHARE",
        type=click.FloatRange(0, 1),
    )
    compression: Literal["none", "gzip", "zstd"] | None = option("Of OUT.  [default: none]")

    ids: str | None = option(
        "What names the rows.  [default: the first column, if it has no name, or is text that never repeats]",
        metavar="COLUMN",
    )
    drop: tuple[str, ...] = _columns("Columns that are left out: date,comment; names with commas in quotes.")
    columns: tuple[str, ...] = _columns("The only columns that are features.  [default: all]")
    one_hot: tuple[str, ...] = _columns(
        "Columns of classes: each class becomes a column of zeros and ones, as in sex=F."
    )
    sep: str | None = option("What is between cells; also tab, space.  [default: as it looks]", metavar="CHARACTER")
    decimal: str | None = option('What is before fractions, such as ",".  [default: as it looks]', metavar="CHARACTER")
    thousands: str | None = option("What is between thousands.  [default: as it looks]", metavar="CHARACTER")
    encoding: str | None = option("Such as latin-1, cp1252.  [default: UTF-8, or as its mark says]", metavar="NAME")
    comment: str | None = option("Lines that begin so are left out.  [default: # at the beginning]", metavar="TEXT")
    label_column: str | None = option(
        "Colour the scores in the report by this column of a table, which is no feature then, or of obs.",
        metavar="COLUMN",
    )

    preprocess: tuple[str, ...] = option(
        "What is done to the entries first, such as pearson, or pearson:theta=10,clip=inf; several times: one after "
        f"another. NAME: {', '.join(TRANSFORMS)}.  [default: nothing]",
        default=(),
        metavar="NAME:KEY=VALUE,...",
        multiple=True,
        callback=options.checked_by("shiftsvd.transforms.chains:as_transforms"),
        shell_complete=_completed,
    )
    trust_values: bool = option(
        "No warning where counts are needed and entries look like logarithms, and no notice of raw counts.",
        default=False,
    )
    shift: Literal["mean", "none"] = option("What to subtract.", default="mean")
    scale: str | None = option(
        "Divide features by their standard deviation (also alone: --scale), by its root (pareto), or genotypes by "
        "sqrt(2 p (1 - p)) with allele frequency p (patterson).  [default: none; patterson for .bed]",
        type=click.Choice(SCALES),
        metavar=f"[{'|'.join(SCALES)}]",
    )

    missing: MissingName = option(
        "What NaN stand for: nothing, they are refused; the mean; a model fitted to the other entries.", default="error"
    )
    filled: bool = False  # whether the reader of the files leaves no missing entries
    unobserved: bool = option("What a sparse file does not store is missing too, as in ratings.", default=False)
    penalty: float | Literal["auto"] | None = option(
        "Of --missing em: by what singular values are lessened.  [default: auto, by held-out entries]",
        metavar="NUMBER",
        callback=options.penalty,
    )
    max_iter: int | None = option(f"Of --missing em: the most steps.  [default: {MAX_ITER}]")

    k: int | float | None = option(
        "Components; below 1: the share of variance to exceed, by the fewest.  [default: 50, or all there are]",
        "-k",
        type=str,
        metavar="NUMBER",
        callback=options.components,
    )
    solver: SolverName = option("What finds them; auto: the cheapest of lanczos, gram and exact.", default="auto")
    solvers: tuple[SolverName, ...] = option(
        "May be given several times.",
        "--solver",
        default=("auto", "lanczos", "gram", "randomized"),
        multiple=True,
        type=click.Choice(["auto", "lanczos", "gram", "exact", "randomized"]),
    )
    rounds: int = option("Runs of each solver.", default=3)
    tol: float = option(
        "Largest relative error of a singular value.",
        default=TOL,
        callback=options.checked_by("shiftsvd.solvers.base:check_tol"),
    )
    certify: bool | None = option(
        "Bound the errors of solvers that do not do so themselves, such as randomized.", "--certify/--no-certify"
    )
    seed: int = option("The same seed, the same bits.", default=0, type=click.IntRange(min=0))

    threads: int | None = option("Threads.  [default: the cores there are]")
    memory: str | None = option(
        "Memory for data and solver, such as 2G, beside the program (0.15 GB).  [default: half of what is free]",
        metavar="SIZE",
        callback=options.checked_by("shiftsvd.runs.memory:parse_bytes"),
    )
    device: str | None = option(
        "Multiply on a card, by PyTorch: cuda, cuda:1; auto: on one if there is one.  [default: cpu]", metavar="NAME"
    )
    devices: tuple[str, ...] = option(
        "Where to multiply: cpu, or a GPU by PyTorch: cuda, cuda:1; auto: a GPU if there is one. May be given several "
        "times.",
        "--device",
        default=("cpu",),
        metavar="NAME",
        multiple=True,
    )
    scheduler: str | None = option("Read and multiply on the workers of a Dask scheduler.", metavar="ADDRESS")
    workers: int | None = option("The same on so many processes of this machine.")
    checkpoint: str | None = option(
        "Folder that keeps each read; the same command continues after it was killed.", type=click.Path(file_okay=False)
    )

    out: str | None = option(
        "Folder.  [default: print, and write nothing]", *("-o", "--out"), type=click.Path(file_okay=False)
    )
    scores: Literal["parquet", "csv", "npy", "none"] | None = option(
        "Format of the scores.  [default: csv for a CSV or TSV, else parquet if pyarrow is installed]"
    )
    components: Literal["csv", "parquet", "none"] | None = option(
        "Format of the components; the model has the same numbers.  [default: csv; none above 10 million numbers]"
    )
    report: bool | None = option(
        "Also write report.html.  [default: if matplotlib and jinja2 are installed]", "--report/--no-report"
    )
    dtype: Literal["float32", "float64"] | None = option(
        "Numbers that are written.  [default: the precision of the data]"
    )
    json_out: bool = option("Print one JSON object on stdout.", "--json", default=False)
    force: bool = option("Replace outputs that exist.", default=False)
    spreadsheet_safe: bool = option(
        "Put an apostrophe before names in CSV that spreadsheets would take for formulas.", default=False
    )

    progress: str = option("Bars on stderr, or one JSON object a line.", default="auto", type=click.Choice(KINDS))
    quiet: bool = option(
        "Nothing on stderr but warnings, errors, and a --progress that is asked for.", *("--quiet", "-q"), default=False
    )
    verbose: int = option(
        "Say more; twice: with the place of an error.",
        *("--verbose", "-v"),
        default=0,
        count=True,
        type=click.IntRange(min=0),
        show_default=False,
    )
    labelled: bool = False  # whether the column of labels is one of the table, which is no feature
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Make settings of the values that click has parsed; raise UsageError for impossible options of tables."""
        known = {each.name for each in fields(cls)}
        said = {name: value for name, value in given.items() if name in known}
        if "file" in given:  # verbs of one file
            said["files"] = () if given["file"] is None else (str(given["file"]),)
        extra = {name: value for name, value in given.items() if name not in known and name != "file"}
        settings = cls(**said, extra=extra)
        try:
            settings.choices  # noqa: B018  # checked when they are made
        except ValueError as error:
            raise click.UsageError(worded(error)) from None
        return settings

    @cached_property
    def choices(self) -> "Choices":
        from shiftsvd.io.choices import Choices

        made = Choices.of(**{name: getattr(self, name) for name in OF_TABLES.split()})
        label = self.label_column if self.labelled else None
        return made if label is None else replace(made, drop=(*made.drop, label))

    @property
    def file(self) -> str:
        from shiftsvd.io.stacking import several

        return as_given(several(self.paths))

    @property
    def paths(self) -> list[Path]:
        return [Path(file) for file in self.files]

    @property
    def where(self) -> dict[str, Any]:
        """The arguments of `io.open_matrix` that choose a matrix of the files."""
        names = ("format", "key", "orient", "feature_types", "stack", "join")
        return {name: getattr(self, name) for name in names}

    @property
    def resources(self) -> "Resources":
        from shiftsvd.runs.memory import Resources

        return Resources(self.memory, self.threads)

    @property
    def on_cluster(self) -> bool:
        return not (self.scheduler is None and self.workers is None)

    @property
    def left_missing(self) -> MissingName:
        """Treatment of missing entries in the fit: none are left if the reader fills them."""
        return "error" if self.filled else self.missing

    @property
    def missing_later(self) -> MissingName:
        """Treatment of missing entries in new samples, which the mean can replace if the model subtracts it."""
        return self.missing if self.shift == "mean" else self.left_missing

    def identity(self, extra: tuple[str, ...]) -> str:
        """Return all settings that the numbers of a fit depend on, as the identity of a checkpoint."""
        names = ("files", "memory", "certify", *OF_RESULTS)
        told = self.where | {name: getattr(self, name) for name in names} | {"choices": vars(self.choices)}
        return json.dumps(told | {name: self.extra[name] for name in extra}, default=list)

    def changed(self, **values: Any) -> Self:
        """Replace settings, including those of extensions."""
        extra = {name: value for name, value in values.items() if name in self.extra}
        known = {name: value for name, value in values.items() if name not in extra}
        return replace(self, **known, extra={**self.extra, **extra})

    def check(self) -> "Settings":
        """Raise UsageError if options of a fit contradict each other; return the settings with the device resolved."""
        check_files(self)
        check_share(self.k, self.solver)
        if self.files[0] == "-" and self.checkpoint:
            raise click.UsageError("--checkpoint needs a file that is there again when the command is repeated")
        if self.files[0] == "-" and self.label_column:
            raise click.UsageError("--label-column is read by itself, and needs a file: standard input is gone by then")
        checked = _with_device(self)
        _check_workers(self)
        _check_missing(self)
        if self.preprocess and self.missing != "error":
            raise click.UsageError(
                "--preprocess is for data without gaps: leave out --missing, and fill or drop them first"
            )
        if self.out is None:
            for option in ("scores", "report", "components", "label_column"):
                need_folder(option, getattr(self, option))
        if self.missing == "em":
            penalty, max_iter = "auto" if self.penalty is None else self.penalty, self.max_iter or MAX_ITER
            checked = replace(checked, penalty=penalty, max_iter=max_iter)
        return checked


def need_folder(name: str, value: Any) -> None:
    if value:
        raise click.UsageError(f"{option_of(name)} needs a folder: -o out/")


def check_files(settings: Settings) -> None:
    files, stack = settings.files, settings.stack
    if len(files) > 1 and stack is None:
        raise click.UsageError(
            f"{len(files)} files need --stack rows (each has other samples) or --stack columns (other features)"
        )
    if settings.join is not None and (stack != "rows" or len(files) < 2):
        raise click.UsageError("--join is for several files with --stack rows")
    if len(files) > 1 and "-" in files:
        raise click.UsageError("standard input cannot be stacked with files; write it to a file")
    if files[0] == "-" and settings.format is None:
        raise click.UsageError("say what comes on standard input: --format mtx, csv, npy, ...")


def _check_workers(settings: Settings) -> None:
    if settings.scheduler is not None and settings.workers is not None:
        raise click.UsageError("--workers starts workers, --scheduler has them already: give one of them")
    if settings.files[0] == "-" and settings.on_cluster:
        raise click.UsageError("workers read the file themselves, and cannot read standard input; give a path")


def _check_missing(settings: Settings) -> None:
    if settings.unobserved and settings.missing == "error":
        raise click.UsageError("--unobserved needs to know what is to stand there: --missing mean or --missing em")
    if settings.missing == "em" and isinstance(settings.k, float):
        raise click.BadParameter("--missing em needs a number of components, not a share", param_hint="'-k'")
    if settings.missing != "error" and settings.on_cluster:
        raise click.UsageError("--missing is for one process; leave out --scheduler and --workers")
    for name in ("penalty", "max_iter"):
        if settings.missing != "em" and getattr(settings, name) is not None:
            raise click.UsageError(f"{option_of(name)} is for --missing em, got --missing {settings.missing}")


def device_named(name: str) -> str:
    from shiftsvd.backends.device import chosen

    try:
        return chosen(name)
    except ValueError as error:
        raise click.UsageError(f"--device: {error}") from None


def _with_device(settings: Settings) -> Settings:
    """Resolve the name of the device; raise UsageError for options that a GPU does not support."""
    if settings.device is None:
        return settings
    from shiftsvd.backends.device import HOST

    device = device_named(settings.device)
    if device != HOST:
        usual = {"missing": "error", "scheduler": None, "workers": None, "preprocess": (), "checkpoint": None}
        beside = [option_of(name) for name, value in usual.items() if getattr(settings, name) != value]
        refuse_beside_device(device, beside)
    return replace(settings, device=device)


def refuse_beside_device(device: str, options: list[str]) -> None:
    if options:
        needs = f"--device {device} needs data as they are, in memory"
        raise click.UsageError(f"{needs}: leave out {' and '.join(options)}")


def check_share(k: int | float | None, solver: str) -> None:
    if isinstance(k, float) and solver in COUNTED:
        raise click.BadParameter(f"a share of the variance needs another solver than {solver}", param_hint="'-k'")


def within(k: int | float | None, shape: tuple[int, int], file: str) -> int | float:
    if k is None:
        return min(USUAL, *shape)
    if isinstance(k, int) and k > min(shape):
        m, n = shape
        raise click.BadParameter(f"{file} is {m} x {n}: at most {min(m, n)} components, got {k}", param_hint="'-k'")
    return k


def table_format(path: str) -> str:
    """Return the format of an output table by its suffix; standard output is CSV."""
    suffix = "csv" if path == "-" else Path(path).suffix.lstrip(".").lower()
    if suffix not in ("parquet", "csv", "npy"):
        is_folder = path.endswith("/") or Path(path).is_dir()
        remedy = f"; {path} is a folder: {Path(path) / 'scores.csv'} is a file in it" if is_folder else ""
        raise click.BadParameter(f"{path} must end in .parquet, .csv or .npy{remedy}", param_hint="'-o'")
    return suffix
