"""Checks of options that need or exclude each other."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from shiftsvd.commands.options import option_of

if TYPE_CHECKING:
    from shiftsvd.commands.settings import Settings


NO_SHARE: Final = "needs a number of components, not a share of the variance."


def need_folder(name: str, value: Any) -> None:
    if value:
        raise click.UsageError(f"{option_of(name)} needs an output folder. Add one, such as -o out/.")


def wrong_k(text: str) -> click.BadParameter:
    return click.BadParameter(text, param_hint="'-k'")


def check_files(settings: "Settings") -> None:
    files, stack = settings.files, settings.stack
    if len(files) > 1 and stack is None:
        raise click.UsageError(
            f"{len(files):,} files need --stack rows (if each has different samples) or --stack columns (if each has "
            "different features, such as a chromosome)."
        )
    if settings.join is not None and (stack != "rows" or len(files) < 2):
        raise click.UsageError("--join needs several files and --stack rows.")
    if len(files) > 1 and "-" in files:
        raise click.UsageError("Standard input cannot be stacked with files. Write it to a file first.")
    if files[0] == "-" and settings.format is None:
        raise click.UsageError("Standard input needs a format. Add one, such as --format csv, mtx or npy.")


def check_uses(settings: "Settings") -> None:
    """Raise UsageError for options that --mixed and --supplementary contradict."""
    for option, given in (("--mixed", settings.mixed), ("--supplementary", settings.supplementary)):
        if not given:
            continue
        for name, wrong in (("stack", "columns"), ("orient", "columns")):
            if getattr(settings, name) == wrong:
                raise click.UsageError(f"{option} needs one table with samples as rows. Remove --{name} {wrong}.")
    if settings.mixed:
        usual = {"scale": None, "shift": "mean", "preprocess": (), "unobserved": False}
        for name, value in usual.items():
            if getattr(settings, name) != value:
                raise click.UsageError(f"--mixed sets the scale of all columns. Remove --{name}.")
    for name in settings.supplementary:
        for other in ("ids", "drop", "columns", "one_hot"):
            uses = getattr(settings, other) or ()
            if name in ((uses,) if isinstance(uses, str) else uses):
                option = f"--{other.replace('_', '-')}"
                raise click.UsageError(f"Column {name!r} must have one use, but is in {option} and --supplementary.")


def check_workers(settings: "Settings") -> None:
    if settings.scheduler is not None and settings.workers is not None:
        raise click.UsageError(
            "--workers and --scheduler exclude each other. Use --workers to start worker processes, or --scheduler to "
            "use those of a running scheduler."
        )
    if settings.files[0] == "-" and settings.on_cluster:
        raise click.UsageError("Worker processes cannot read standard input. Write the data to a file.")
    if settings.cache is not None and settings.on_cluster:
        raise click.UsageError("Worker processes keep no copies. Remove --cache, or --scheduler and --workers.")
    if settings.cache_size is not None and settings.cache is None:
        raise click.UsageError("--cache-size limits the copies of --cache. Add --cache FOLDER.")


def check_missing(settings: "Settings") -> None:
    if settings.unobserved and settings.missing == "error":
        raise click.UsageError("--unobserved needs --missing mean or --missing em, which replace missing values.")
    if settings.missing == "em" and isinstance(settings.k, float):
        raise wrong_k(f"--missing em {NO_SHARE} Pass an integer, such as -k 10.")
    if settings.missing != "error" and settings.on_cluster:
        raise click.UsageError("--missing cannot be used on worker processes. Remove --scheduler and --workers.")
    for name in ("penalty", "max_iter"):
        if settings.missing != "em" and getattr(settings, name) is not None:
            raise click.UsageError(f"{option_of(name)} needs --missing em, got --missing {settings.missing}.")


def device_named(name: str) -> str:
    from shiftsvd.backends.device import chosen

    try:
        return chosen(name)
    except ValueError as error:
        raise click.UsageError(f"--device: {error}") from None


def with_device(settings: "Settings") -> "Settings":
    """Resolve the name of the device; raise UsageError for options that a GPU does not support."""
    if settings.device is None:
        return settings
    from shiftsvd.backends.device import HOST

    device = device_named(settings.device)
    if device != HOST:
        usual = {"missing": "error", "scheduler": None, "workers": None, "preprocess": (), "checkpoint": None}
        given = [option_of(name) for name, value in usual.items() if getattr(settings, name) != value]
        refuse_with_device(settings.device, given)
    return replace(settings, device=device, cpu_if_full=settings.device == "auto")


def refuse_with_device(device: str, options: list[str]) -> None:
    if options:
        raise click.UsageError(
            f"--device {device} needs data in memory without missing values or transformations. Remove "
            f"{' and '.join(options)}."
        )
