"""What is refused of options, alone and beside each other, before any work."""

from pathlib import Path
from typing import Any

import click

from shiftsvd.commands.options import COUNTED, SCALES, USUAL
from shiftsvd.names import MAX_ITER


def check_stack(files: tuple[str, ...], stack: str | None, join: str | None = None) -> None:
    if len(files) > 1 and stack is None:
        raise click.UsageError(
            f"{len(files)} files need --stack rows (each has other samples) or --stack columns (other features)"
        )
    if join is not None and (stack != "rows" or len(files) < 2):
        raise click.UsageError("--join is for several files with --stack rows")
    if len(files) > 1 and "-" in files:
        raise click.UsageError("standard input cannot be stacked with files; write it to a file")


def check_format(file: str, format_: str | None) -> None:
    if file == "-" and format_ is None:
        raise click.UsageError("say what comes on standard input: --format mtx, csv, npy, ...")


def check_projection(given: dict[str, Any]) -> None:
    named = {"--project": given["project"], "--match": given["match"], "--trust-ambiguous": given["trust_ambiguous"]}
    if given["trust_order"] and any(named.values()):
        raise click.UsageError(f"--trust-order looks at no alleles; leave out {next(n for n in named if named[n])}")


def check_workers(scheduler: str | None, n_workers: int | None, file: str) -> None:
    if scheduler is not None and n_workers is not None:
        raise click.UsageError("--workers starts workers, --scheduler has them already: give one of them")
    if file == "-" and (scheduler is not None or n_workers is not None):
        raise click.UsageError("workers read the file themselves, and cannot read standard input; give a path")


def device_there(name: str) -> str:
    from shiftsvd.backends.device.moving import chosen

    try:
        return chosen(name)
    except ValueError as error:
        raise click.UsageError(f"--device: {error}") from None


def check_device(given: dict[str, Any]) -> None:
    if given["device"] is None:
        return
    from shiftsvd.backends.device.moving import HOST

    given["device"] = device_there(given["device"])
    if given["device"] == HOST:
        return
    usual = {"missing": "error", "scheduler": None, "workers": None, "preprocess": (), "checkpoint": None}
    usual["top_features"] = None
    if beside := [f"--{name.replace('_', '-')}" for name, value in usual.items() if given[name] != value]:
        needs = f"--device {given['device']} needs data as they are, in memory"
        raise click.UsageError(f"{needs}: leave out {' and '.join(beside)}")


def check_cells(given: dict[str, Any]) -> None:
    if (given["covariates"] or given["groups"]) and given["shift"] == "none":
        raise click.UsageError("--covariates and --groups subtract means, too: leave out --shift none")
    if (given["covariates"] or given["groups"] or given["mask"] not in (None, "none")) and given["missing"] != "error":
        raise click.UsageError("--mask, --covariates and --groups need data without gaps; leave out --missing")


def check_weights(given: dict[str, Any]) -> None:
    others = [f"--{name.replace('_', '-')}" for name in ("scale", "join", "top_features", "mask") if given[name]]
    if given["weights"] == "coslat" and (others or given["files"][0] == "-"):
        beside = others[0] if others else "standard input"
        raise click.UsageError(f"--weights coslat is of all cells of files as they are: leave out {beside}")


def check_choice(mask: str | None, top_features: int | None) -> None:
    if top_features is not None and mask not in (None, "none"):
        raise click.UsageError("--mask and --top-features both choose features: give one of them")


def check_missing(missing: str, unobserved: bool, k: int | float | None, on_workers: bool) -> None:
    if unobserved and missing == "error":
        raise click.UsageError("--unobserved needs to know what is to stand there: --missing mean or --missing em")
    if missing == "em" and isinstance(k, float):
        raise click.BadParameter("--missing em needs a number of components, not a share", param_hint="'-k'")
    if missing != "error" and on_workers:
        raise click.UsageError("--missing is for one process; leave out --scheduler and --workers")


def check_foreseen(options: Any) -> None:
    if options.missing == "em":
        raise click.UsageError("--missing em cannot be foreseen: it takes as many steps as the gaps ask for; give mean")
    for name in ("device", "scheduler", "workers"):
        if getattr(options, name) is not None:
            raise click.UsageError(f"estimate is of one process on the host; leave out --{name}")


def check_preprocess(preprocess: tuple[str, ...], missing: str, scale: str | None = None) -> None:
    if preprocess and missing != "error":
        raise click.UsageError(
            "--preprocess is for data without gaps: leave out --missing, and fill or drop them first"
        )
    if preprocess and scale == SCALES[2]:
        raise click.UsageError("--scale patterson is of counts of an allele; leave out --preprocess")


def completion_of(missing: str, penalty: float | str | None, max_iter: int | None) -> dict[str, Any]:
    for name, value in (("--penalty", penalty), ("--max-iter", max_iter)):
        if missing != "em" and value is not None:
            raise click.UsageError(f"{name} is for --missing em, got --missing {missing}")
    if missing != "em":
        return {}
    return {"penalty": "auto" if penalty is None else penalty, "max_iter": max_iter or MAX_ITER}


def within(k: int | float | None, shape: tuple[int, int], file: str) -> int | float:
    if k is None:
        return min(USUAL, *shape)
    if isinstance(k, int) and k > min(shape):
        m, n = shape
        raise click.BadParameter(f"{file} is {m} x {n}: at most {min(m, n)} components, got {k}", param_hint="'-k'")
    return k


def shares(k: int | float | None, solver: str) -> None:
    if isinstance(k, float) and solver in COUNTED:
        raise click.BadParameter(f"a share of the variance needs another solver than {solver}", param_hint="'-k'")


def tables(path: str) -> str:
    suffix = "csv" if path == "-" else Path(path).suffix.lstrip(".").lower()
    if suffix not in ("parquet", "csv", "npy"):
        is_folder = path.endswith("/") or Path(path).is_dir()
        remedy = f"; {path} is a folder: {Path(path) / 'scores.csv'} is a file in it" if is_folder else ""
        raise click.BadParameter(f"{path} must end in .parquet, .csv or .npy{remedy}", param_hint="'-o'")
    return suffix
