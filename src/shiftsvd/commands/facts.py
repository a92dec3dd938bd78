"""Collect and print the facts of `info` about the installation, a matrix or a model."""

import json
import platform
from collections.abc import Collection
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import numpy as np

from shiftsvd.backends.device import devices, products
from shiftsvd.backends.source import RowSource
from shiftsvd.commands.options import as_given, check_files, quoted, spelled, worded
from shiftsvd.commands.settings import Settings
from shiftsvd.errors import Setting, few, plain, plural
from shiftsvd.io.base import reading
from shiftsvd.io.formats.table import ColumnProfile, TableProfile, far_apart, profiled
from shiftsvd.io.opening import held_bytes, read_files
from shiftsvd.io.sniff import format_of, formats
from shiftsvd.io.spooling import rereadable
from shiftsvd.io.storage.tree import is_array, opened_tree
from shiftsvd.kernels import default_threads, instruction_set, lacking
from shiftsvd.names import resolve
from shiftsvd.runs.memory import shown_bytes

Facts = dict[str, Any]
_OF_MISSING = ("feature_types", "mask")  # options of a fit of data with missing values
_SHOWN = 60  # columns that are printed; --json has all of them
_FIRST = 6  # values of a setting
_WIDEST = 40  # characters of a cell
SAMPLED = 2**26  # and where a sample is described, up to this size
COUNTED = 2**30  # count missing entries up to this size in bytes: counting reads the whole matrix


def info(settings: Settings) -> None:
    if not settings.files:
        found = installation()
    elif settings.files[0].endswith(".safetensors"):
        found = of_model(settings)
    else:
        check_files(settings)
        found = of_matrix(settings)
    echo(found, settings.json_out)


def echo(facts: Facts, as_json: bool) -> None:
    click.echo(as_given(json.dumps(facts)) if as_json else _lines(facts))


def _lines(facts: Facts) -> str:
    single = {name: value for name, value in facts.items() if name not in ("columns", "notes")}
    if single.get("density") == 1:  # would read as "nothing is missing"
        del single["density"]
    if single.get("n_missing", 0) is None:  # a large matrix
        single["n_missing"] = "not counted"
    width = max(len(name) for name in single) + 1
    found = [f"{name:{width}} {plain(as_given(_of_unit(name, value)))}" for name, value in single.items()]
    columns = [plain(line) for line in _of_columns(facts["columns"])] if "columns" in facts else []
    notes = [plain(as_given(note)) for note in facts.get("notes", ())]
    n_last = sum(name.endswith("command") for name in single)
    return "\n".join([*found[:-n_last], *columns, *notes, *found[-n_last:]] if columns or notes else found)


def _of_columns(columns: list[Facts]) -> list[str]:
    cells = [("column", "kind", "use", "missing", "range", "examples")]
    for each in columns[:_SHOWN]:
        ends = "" if each["low"] is None else f"{each['low']:g} to {each['high']:g} {each['unit']}".strip()
        if each["kind"] in ("label", "text") and each["n_texts"] is not None:
            ends = plural(each["n_texts"], "text")
        cells.append(
            (each["name"], each["kind"], each["use"], f"{each['n_missing']:,}", ends, ", ".join(each["examples"]))
        )
    cut = [[text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…" for text in row] for row in cells]
    widths = [max(map(len, column)) for column in zip(*cut, strict=True)]
    lined = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cut]
    found = ["", lined[0]]
    for line, each in zip(lined[1:], columns, strict=False):
        marks = [f"{mark!r} ({count:,})" for mark, count in each["missing"].items() if mark]
        missing = [f"cells that are missing values: {few(marks)}"] if marks else []
        found += [line, *(f"    {note}" for note in (*missing, *each["notes"]))]
    return [*found, *([f"and {plural(len(columns) - _SHOWN, 'more column')}"] if len(columns) > _SHOWN else []), ""]


def _of_unit(name: str, value: Any) -> str:
    if value is not None and name.endswith("_bytes"):
        return shown_bytes(value)
    if name == "read_in_blocks":
        return "if larger than half of the memory limit" if value else "never"
    return f"{value:.2g} s" if value is not None and name.startswith("seconds") else _shown(value)


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{name}={_of_setting(item)}" for name, item in value.items())
    if isinstance(value, list):
        return few(map(_shown, value), _SHOWN)
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _of_setting(value: Any) -> str:
    if isinstance(value, dict):
        value = [f"{name}: {item}" for name, item in value.items()]
    return f"[{few(map(_shown, value), _FIRST)}]" if isinstance(value, list) else str(value)


def installation() -> Facts:
    facts: Facts = {"shiftsvd": version("shiftsvd"), "kernels": instruction_set()}
    facts |= {"kernels_lacking": lacking} if lacking else {}
    facts |= {"threads": default_threads()}
    facts |= {"devices": {name: products(name.partition(" ")[0]) for name in found}} if (found := devices()) else {}
    facts |= {"machine": platform.machine(), "python": platform.python_version()}
    return facts | {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}


def of_matrix(settings: Settings) -> Facts:
    """Describe a matrix file. Count missing entries, which reads the whole matrix, up to `COUNTED` bytes."""
    with rereadable(settings.paths, settings.format) as paths:
        kinds = dict.fromkeys(format_of(path, settings.format) for path in paths)
        if len(paths) == 1 and formats()[next(iter(kinds))].is_table:
            with reading(paths[0]):
                found = profiled(paths[0], settings.format, settings.key, settings.choices, settings.memory, worded)
            if found is not None:
                return _of_table(found, settings)
        return _of_files(paths, ", ".join(kinds), settings)


def _of_files(paths: list[Path], kinds: str, settings: Settings) -> Facts:
    settings = settings if settings.key or len(paths) > 1 else _with_key(paths[0], kinds, settings)
    where, memory = settings.where, settings.memory
    from shiftsvd.missing.opening import n_missing  # imports the solvers

    opened = read_files(paths, **where, memory_limit=memory, choices=settings.choices)
    X = opened.matrix
    shape = X.shape[::-1] if opened.by_features else X.shape
    facts: Facts = {"file": settings.file, "format": kinds}
    facts |= {"key": settings.key} if settings.key else {}
    facts |= {"samples": shape[0], "features": shape[1]}
    facts |= {"samples_are": opened.samples} if len(paths) == 1 else {"files": len(paths), "stack": settings.stack}
    stored, held = _size(X)
    profile = _describer(paths, kinds, settings.stack, memory)
    few_bytes = held <= (COUNTED if profile is None else SAMPLED)
    facts |= _numbers(shape, stored, X.dtype) | {"n_missing": n_missing(X) if few_bytes else None}
    facts |= {"memory_bytes": held, "read_in_blocks": isinstance(X, RowSource)}
    facts |= _named(*opened.names)
    more = {} if profile is None else dict(profile(paths, opened, settings.key, memory))
    if not more:
        return facts
    found = more.pop("settings")
    if facts["n_missing"] and not {"key", "missing"} & set(found):  # the sample may have missed them
        found = {name: value for name, value in found.items() if name in _OF_MISSING} | {"missing": "mean"}
    types = settings.feature_types and ",".join(settings.feature_types)
    given = settings.where | {"feature_types": types, "allow_external": settings.allow_external or None}
    given |= {name: value for name, value in found.items() if given.get(name) is None}
    return facts | more | {"command": _command_with(settings, given)}


def _with_key(path: Path, kind: str, settings: Settings) -> Settings:
    """Select a matrix of AnnData without X, such as the result of a fit."""
    if kind not in ("h5ad", "zarr"):
        return settings
    with opened_tree(path, settings.memory) as tree:
        if is_array(tree.root) or "X" in tree.root or "obs" not in tree.root:
            return settings
        return settings.changed(key=next(iter(tree.matrices()), None))


def _describer(paths: list[Path], kinds: str, stack: str | None, memory: str | None) -> Any:
    if (len(paths) > 1 and stack != "columns") or kinds not in formats():
        return None
    place = formats()[kinds].describe
    if kinds == "zarr":
        with opened_tree(paths[0], memory) as tree:
            claimed = (each for each in formats().values() if each.claims and each.element)
            place = next((each.describe for each in claimed if resolve(str(each.claims))(tree.root)), None)
    return None if place is None else resolve(place)


def _command_with(settings: Settings, found: Facts) -> str:
    options = [spelled(Setting(name, value)) for name, value in found.items() if value is not None]
    files = [as_given(str(file)) for file in settings.files]
    # A name that begins with a dash is not an option.
    names = [f"./{file}" if file.startswith("-") and file != "-" else file for file in files]
    return " ".join(["shiftsvd fit", *map(quoted, names), *options])


def _of_table(found: TableProfile, settings: Settings) -> Facts:
    flip = -1 if settings.orient == "columns" else 1
    samples, features = (found.n_rows, len(found.features))[::flip]
    facts: Facts = {"file": settings.file, "format": found.format, "samples": samples, "features": features}
    facts |= {"samples_are": settings.orient or "rows"}
    facts |= _numbers((samples, features), samples * features, found.dtype) | {"n_missing": found.n_missing}
    facts |= {"memory_bytes": samples * features * np.dtype(found.dtype).itemsize}
    facts |= {"read_in_blocks": found.format == "parquet"}
    facts |= _named(*(found.samples or None, found.features or None)[::flip])
    reasons = {} if flip < 0 else _labels(found, settings)
    facts |= {"columns": [_of_column(each, reasons.get(each.name)) for each in found.columns]}
    facts |= {"notes": list(found.notes)}
    categories = [name for name, why in reasons.items() if not why]
    if categories and found.features:
        facts |= {"mixed_command": _command(found, settings, categories)}
    only = () if found.features else categories
    return facts | {"command": _command(found, settings, only) if found.features or only else None}


def _labels(found: TableProfile, settings: Settings) -> dict[str, str]:
    """Return the columns of labels that are excluded, each with the reason why it does not hold categories, or ""."""
    excluded = [each for each in found.columns if each.kind == "label" and each.use == "excluded"]
    named = settings.choices.named
    return {each.name: _no_category(each, found.n_rows) for each in excluded if each.name not in named}


def _of_column(column: ColumnProfile, why: str | None) -> Facts:
    misfits = {text: list(rows) for text, rows in column.misfits.items()}
    notes = [*column.notes, *([f"no categories: {why}"] if why else ())]
    return vars(column) | {"misfits": misfits, "notes": notes}


def _no_category(column: ColumnProfile, n_rows: int) -> str:
    """Return why a column of texts that repeat does not hold categories, or ""."""
    n_filled = n_rows - column.n_missing
    if 2 * n_filled < n_rows:
        return f"{column.n_missing:,} of {n_rows:,} cells are missing"
    if column.n_texts == 1:
        return "all its texts are equal"
    return "most of its texts differ" if 2 * (column.n_texts or 0) > n_filled else ""


def _command(found: TableProfile, settings: Settings, categories: Collection[str] = ()) -> str:
    """Return the fit that reads the table with these settings, and with these columns of categories."""
    told = {name: list(value) if isinstance(value, dict) else value for name, value in found.settings.items()}
    told["drop"] = [name for name in told.get("drop", ()) if name not in categories] or None
    n_missing = found.n_missing + sum(each.n_missing for each in found.columns if each.name in categories)
    more: Facts = {"format": settings.format, "orient": settings.orient, "missing": "mean" if n_missing else None}
    deviations = [each.deviation for each in found.columns if each.use == "feature" and each.deviation is not None]
    are_apart = settings.orient != "columns" and far_apart(deviations) is not None
    more |= {"mixed": True} if categories else {"scale": True if are_apart else None}
    return _command_with(settings, {name: value for name, value in told.items() if value is not False} | more)


def _size(X: Any) -> tuple[int, int]:
    if isinstance(X, RowSource):
        return X.stored, held_bytes(X)
    if hasattr(X, "nnz"):
        return int(X.nnz), int(X.nnz) * (X.dtype.itemsize + 4) + 8 * X.shape[0]
    return X.size, X.nbytes


def _numbers(shape: tuple[int, int], stored: int, dtype: Any) -> Facts:
    share = stored / max(1, shape[0] * shape[1])
    return {"stored": int(stored), "density": share, "dtype": str(np.dtype(dtype))}


def _named(samples: Any, features: Any) -> Facts:
    named = {"sample_names": samples, "feature_names": features}
    return {key: None if names is None else [str(name) for name in names[:3]] for key, names in named.items()}


def of_model(settings: Settings) -> Facts:
    # Imported here, as `info` of a table takes half of the time without the solvers.
    from shiftsvd.commands.hooks import first_answer, hooks_of
    from shiftsvd.commands.writing import model_in, of_gaps
    from shiftsvd.estimators.batches import BatchPCA
    from shiftsvd.model_file import describe

    file, *others = settings.files
    hooks = hooks_of(settings)
    if others:
        comparison = first_answer(each.compare(file, others) for each in hooks)
        if comparison is None:
            raise click.UsageError(
                f"{file} is a model, and `info` describes one model at a time. Remove the other files."
            )
        return dict(comparison)
    pca = model_in(file, object)
    if not isinstance(pca, BatchPCA):
        content = describe(file)
        return {"file": file, **{name: content[name] for name in ("kind", "settings", "provenance", "tensors")}}
    info, names = pca.info_, getattr(pca, "feature_names_in_", None)
    return {
        "file": file,
        "kind": type(pca).__name__,
        "n_components": int(pca.n_components_),
        "n_samples": int(pca.n_samples_),
        "n_features": int(pca.n_features_in_),
        "dtype": str(pca.components_.dtype),
        "settings": {name: _plain(value) for name, value in pca.get_params(deep=False).items()},
        "solver": info.solver,
        "n_passes": info.n_passes,
        "converged": info.converged,
        "provenance": describe(file)["provenance"],
        "explained_variance_ratio": float(np.sum(pca.explained_variance_ratio_)),
        **of_gaps(pca),
        **{name: value for each in hooks for name, value in each.facts(pca).items()},
        **_of_model_table(pca),
        "feature_names": None if names is None else [str(name) for name in names],
    }


def _of_model_table(pca: Any) -> Facts:
    choices = getattr(pca, "table_", None)
    if choices is None:
        return {}
    told = {name: list(value) if isinstance(value, dict) else value for name, value in choices.told.items()}
    told |= {"units": choices.units} if choices.units else {}
    told |= {"mixed": True} if isinstance(pca.get_params().get("scale"), np.ndarray) else {}
    return {"table": told} if told else {}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
