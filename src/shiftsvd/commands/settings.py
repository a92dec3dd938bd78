"""The settings of a run of the command: one typed value made from the options, which all verbs read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import click

from shiftsvd.commands.options import COUNTED, USUAL, as_given
from shiftsvd.names import MAX_ITER, TOL, MissingName, SolverName

if TYPE_CHECKING:
    from shiftsvd.io.choices import Choices
    from shiftsvd.runs.memory import Resources

Orient = Literal["rows", "columns"]
# Options of tables, which become `choices`.
OF_TABLES: Final = ("ids", "drop", "columns", "one_hot", "sep", "decimal", "thousands", "encoding", "comment")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of a verb; what it lacks has its default. `extra` holds the options that extensions declare."""

    files: tuple[str, ...] = ()
    stack: Orient | None = None
    join: Literal["inner", "outer"] | None = None
    format: str | None = None
    key: str | None = None
    orient: Orient | None = None
    feature_types: tuple[str, ...] | None = None
    choices: "Choices"
    label_column: str | None = None
    k: int | float | None = None
    preprocess: tuple[str, ...] = ()
    shift: str = "mean"
    scale: str | None = None
    missing: MissingName = "error"
    unobserved: bool = False
    filled: bool = False  # whether the reader of the files leaves no missing entries
    penalty: float | Literal["auto"] | None = None
    max_iter: int | None = None
    solver: SolverName = "auto"
    tol: float = TOL
    certify: bool | None = None
    seed: int = 0
    threads: int | None = None
    memory: str | None = None
    scheduler: str | None = None
    workers: int | None = None
    device: str | None = None
    dtype: str | None = None
    checkpoint: str | None = None
    out: str | None = None
    scores: str | None = None
    components: str | None = None
    report: bool | None = None
    max_absent: float | None = None
    json_out: bool = False
    progress: str = "auto"
    force: bool = False
    quiet: bool = False
    verbose: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The settings of the options as click gives them; refuses options of tables that no table can have."""
        from shiftsvd.io.choices import Choices

        given = {name.rstrip("_"): value for name, value in given.items()}
        known = {each.name for each in fields(cls)}
        said = {name: given.pop(name) for name in OF_TABLES if name in given}
        extra = {name: given.pop(name) for name in list(given) if name not in known}
        try:
            choices = Choices.of(**said)
        except ValueError as error:
            from shiftsvd.commands.running import worded

            raise click.UsageError(worded(error)) from None
        return cls(**given, choices=choices, extra=extra)

    @property
    def file(self) -> str:
        """What the files are called in messages."""
        from shiftsvd.io.stacking import several

        return as_given(several(self.paths))

    @property
    def paths(self) -> list[Path]:
        return [Path(file) for file in self.files]

    @property
    def where(self) -> dict[str, Any]:
        """Which matrix of the files is meant, as `io.open_matrix` takes it."""
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
        """How to treat the missing entries that the reader leaves."""
        return "error" if self.filled else self.missing

    @property
    def missing_later(self) -> MissingName:
        """How the model treats missing entries of other samples: a mean is known where it is subtracted."""
        return self.missing if self.shift == "mean" else self.left_missing

    def identity(self, extra: tuple[str, ...]) -> str:
        """All that the numbers of a fit depend on, to tell one run from another."""
        solved = ("k", "preprocess", "shift", "scale", "solver", "tol", "certify", "seed", "penalty", "max_iter")
        names = ("files", "missing", "unobserved", "memory", *solved)
        told = self.where | {name: getattr(self, name) for name in names} | {"choices": vars(self.choices)}
        return json.dumps(told | {name: self.extra[name] for name in extra}, default=list)

    def changed(self, **values: Any) -> Self:
        """The settings with other values, of options of extensions too."""
        extra = {name: value for name, value in values.items() if name in self.extra}
        known = {name: value for name, value in values.items() if name not in extra}
        return replace(self, **known, extra={**self.extra, **extra})

    def check(self) -> "Settings":
        """The settings of a fit, whose options are held against each other before anything is read."""
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


def option_of(name: str) -> str:
    """The option of a setting as it is typed."""
    return f"--{name.replace('_', '-')}"


def need_folder(name: str, value: Any) -> None:
    """Refuse an option that writes into a folder where there is none."""
    if value:
        raise click.UsageError(f"{option_of(name)} needs a folder: -o out/")


def check_files(settings: Settings) -> None:
    """Refuse several files that nobody says how to put together, and standard input without a format."""
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
    """The device that an option names; refused where it is not there."""
    from shiftsvd.backends.device import chosen

    try:
        return chosen(name)
    except ValueError as error:
        raise click.UsageError(f"--device: {error}") from None


def _with_device(settings: Settings) -> Settings:
    """The settings with the card that is meant; what data on a card cannot have beside them is refused."""
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
    """Refuse a share of the variance where the solver needs a number."""
    if isinstance(k, float) and solver in COUNTED:
        raise click.BadParameter(f"a share of the variance needs another solver than {solver}", param_hint="'-k'")


def within(k: int | float | None, shape: tuple[int, int], file: str) -> int | float:
    """The number of components, or the usual one; more than there are is refused."""
    if k is None:
        return min(USUAL, *shape)
    if isinstance(k, int) and k > min(shape):
        m, n = shape
        raise click.BadParameter(f"{file} is {m} x {n}: at most {min(m, n)} components, got {k}", param_hint="'-k'")
    return k


def table_format(path: str) -> str:
    """The format of a table that is written, by its name; standard output is CSV."""
    suffix = "csv" if path == "-" else Path(path).suffix.lstrip(".").lower()
    if suffix not in ("parquet", "csv", "npy"):
        is_folder = path.endswith("/") or Path(path).is_dir()
        remedy = f"; {path} is a folder: {Path(path) / 'scores.csv'} is a file in it" if is_folder else ""
        raise click.BadParameter(f"{path} must end in .parquet, .csv or .npy{remedy}", param_hint="'-o'")
    return suffix
