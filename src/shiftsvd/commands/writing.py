"""The files that `shiftsvd fit` writes, and result.json, which verifies them."""

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from hashlib import file_digest
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from shiftsvd.backends.files import DiskRows
from shiftsvd.commands.hooks import Hooks, Run
from shiftsvd.commands.options import say, typed
from shiftsvd.commands.results import Result, variance_table
from shiftsvd.commands.settings import Settings
from shiftsvd.commands.tables import WRITERS, Table, component_names, format_named, write_rows
from shiftsvd.estimators.fitted import FittedPCA
from shiftsvd.io import Names
from shiftsvd.io.sniff import format_of, formats, named_format
from shiftsvd.missing.gaps import Observed
from shiftsvd.model_file import load_model
from shiftsvd.operators import Operator
from shiftsvd.runs.outputs import Outputs

APART: Final = 100  # times the smallest standard deviation: two orders of magnitude
MOST_NUMBERS: Final = 10_000_000  # numbers of a table that is written unless it is asked for: 200 MB of text
# Files that a fit may write into its folder; extensions have more.
FILES: Final = (*(f"scores.{kind}" for kind in WRITERS), "components.csv", "components.parquet", "report.html")
MANIFEST: Final = "result.json"
HASHES: Final = "sha256"
# Files up to so many bytes are held against their hashes; larger ones would take longer than what is asked for.
MOST_HASHED: Final = 2**26
Model = TypeVar("Model")


def _write_manifest(document: dict[str, Any], outputs: Outputs, paths: Mapping[str, Path]) -> None:
    home = paths["result"].parent
    beside = sorted(path for path in paths.values() if path.parent == home and path.name != MANIFEST)
    document[HASHES] = {path.name: _hash(outputs.part(path)) for path in beside}
    outputs.part(paths["result"]).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def model_in(path: str | Path, *kinds: type[Model]) -> Model:
    """Load a model of one of these kinds; warn where its folder holds files of several runs."""
    model: Model = load_model(path, kinds)
    folder = Path(path).parent
    if others := _changed(folder):
        warnings.warn(
            f"{', '.join(others)} in {folder} {'is' if len(others) == 1 else 'are'} not of the run that {MANIFEST} "
            "tells of (files were replaced, or a run was broken off); repeat the fit with --force to have them of one "
            "run",
            stacklevel=2,
        )
    return model


def _changed(folder: Path) -> list[str]:
    found = []
    for name, known in _known(folder / MANIFEST).items():
        file = folder / Path(name).name
        try:
            if file.is_file() and file.stat().st_size <= MOST_HASHED and _hash(file) != known:
                found.append(file.name)
        except OSError:  # it may not be read, as by another user
            continue
    return found


def _known(manifest: Path) -> dict[str, str]:
    try:
        if not manifest.is_file() or manifest.stat().st_size > MOST_HASHED:
            return {}
        told = json.loads(manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    hashes = told.get(HASHES) if isinstance(told, dict) else None
    return hashes if isinstance(hashes, dict) else {}


def _hash(file: Path) -> str:
    with file.open("rb") as content:
        return file_digest(content, HASHES).hexdigest()


def planned(settings: Settings, hooks: Sequence[Hooks]) -> dict[str, Path]:
    """Name and path of every output; refuse those whose packages are missing, and those that would replace an input."""
    if settings.out is None:
        return {}
    files: dict[str, str | Path] = {"model": "model.safetensors"}
    kind = settings.scores or _usual_kind(settings)
    if kind in WRITERS:
        format_named(kind)
        files["scores"] = f"scores.{kind}"
    if settings.components != "none":
        format_named(settings.components or "csv")
        files["components"] = f"components.{settings.components or 'csv'}"
    files["variances"] = "variances.csv"
    drawn = all(find_spec(name) for name in ("matplotlib", "jinja2"))
    if settings.report and not drawn:
        raise ValueError("a report needs matplotlib and jinja2: pip install 'shiftsvd[plot]'")
    if drawn and settings.report is not False:
        files["report"] = "report.html"
    for each in hooks:
        files |= each.outputs()
    folder = Path(settings.out)
    _warn_of_others(folder, {str(file) for file in files.values()}, [name for each in hooks for name in each.files])
    paths = {name: folder / file if isinstance(file, str) else file for name, file in files.items()}
    paths["result"] = folder / MANIFEST  # which is written last
    for path in paths.values():
        if path.exists() and not path.is_symlink() and any(map(path.samefile, filter(os.path.exists, settings.files))):
            raise ValueError(f"{path} is the file that is fitted; name another folder")
    return paths


def _usual_kind(settings: Settings) -> str:
    """CSV for those who came with one, and where nothing else can be written."""
    texts = all((settings.format or named_format(path)) in ("csv", "tsv") for path in settings.paths)
    return "csv" if texts or find_spec("pyarrow") is None else "parquet"


def _warn_of_others(folder: Path, planned: set[str], more: Sequence[str]) -> None:
    """Warn of outputs of an earlier run that this one does not replace: they would pass for its own."""
    others = sorted(name for name in {*FILES, *more} - planned if (folder / name).exists())
    if others:
        warnings.warn(f"{folder} keeps {', '.join(others)} of an earlier run", stacklevel=2)


def advise_scale(A: Observed, names: Names, settings: Settings) -> None:
    """Say that columns of a table differ by orders of magnitude, if no scale was given; a fit has read them by then."""
    is_plain = settings.scale is None and settings.shift == "mean" and not settings.preprocess
    if not is_plain or not isinstance(A, Operator) or not _are_tables(settings):
        return
    moments = A.memo.get("columns") if isinstance(A, DiskRows) else A.moments()
    squares = None if moments is None else moments.M2
    if squares is None or not np.any(squares > 0):
        return
    spread = np.sqrt(squares)
    there = np.flatnonzero(spread)
    least, most = there[np.argmin(spread[there])], there[np.argmax(spread[there])]
    if spread[most] < APART * spread[least]:
        return
    called = [f"column {j + 1}" if names.features is None else repr(str(names.features[j])) for j in (most, least)]
    ratio = spread[most] / spread[least]
    say(
        f"columns differ by orders of magnitude: {called[0]} varies {ratio:,.0f} times as much as {called[1]}, and "
        "weighs as much more; --scale gives all columns the same weight (--scale none: as they are, without this line)",
        settings.quiet,
    )


def _are_tables(settings: Settings) -> bool:
    kinds = (settings.format if str(path) == "-" else format_of(path, settings.format) for path in settings.paths)
    return all(kind is not None and formats()[kind].is_table for kind in kinds)


def leave_out_components(run: Run, outputs: Outputs, paths: dict[str, Path]) -> None:
    """Leave out a long table of components that nobody asked for: the model has the same numbers."""
    count = run.pca.components_.size
    if run.settings.components is not None or "components" not in paths or count <= MOST_NUMBERS:
        return
    path = paths.pop("components")
    outputs.leave_out(path)
    if path.exists():
        warnings.warn(f"{path.parent} keeps {path.name} of an earlier run", stacklevel=2)
    say(
        f"no {path.name}: its {count:,} numbers are in the model; --components csv or --components parquet writes them",
        run.settings.quiet,
    )


class Drawn(NamedTuple):
    """What the report draws of the scores, and the names of the samples."""

    rasters: Any
    samples: Any


def write_scores(run: Run, hooks: Sequence[Hooks], paths: Mapping[str, Path], outputs: Outputs) -> Drawn | None:
    """Write the scores to all requested files in one pass, and return what the report draws of them."""
    pca, A, samples = run.pca, run.A if run.scored is None else run.scored, run.names.samples
    dtype = np.dtype(run.settings.dtype or A.dtype)
    table = Table(component_names(pca.n_components_), A.shape[0], dtype, samples)
    with ExitStack() as stack:
        writes: list[Any] = []
        if "scores" in paths:
            file = stack.enter_context(outputs.part(paths["scores"]).open("wb"))
            writes.append(stack.enter_context(WRITERS[paths["scores"].suffix[1:]](file, table)))
        for each in hooks:
            writes += map(stack.enter_context, each.writers(run, table, paths, outputs))
        rasters = score_rasters(pca) if "report" in paths else []
        writes += [lambda first, block, add=raster.add: add(block) for raster in rasters]
        if writes:
            write_rows(pca.iter_scores(A, covariates=run.covariates), writes)
    return Drawn(rasters or None, samples) if "report" in paths else None


def score_rasters(pca: FittedPCA) -> list[Any]:
    from shiftsvd.plot.raster import ScoreRaster
    from shiftsvd.report import planes_of

    return [ScoreRaster.of(pca, components=pair, rng=0) for pair in planes_of(pca.n_components_)]


def write_files(
    run: Run,
    hooks: Sequence[Hooks],
    result: Result,
    paths: Mapping[str, Path],
    outputs: Outputs,
    drawn: Drawn | None,
    colors: Any,
) -> None:
    """Write all files but the scores; result.json, with the hashes of the others, last."""
    if not paths:
        return
    pca = run.pca
    pca.save(outputs.part(paths["model"]), source=", ".join(result.document.get("files", [result.document["file"]])))
    if "components" in paths:
        path, V = paths["components"], pca.components_.T
        table = Table(component_names(pca.n_components_), len(V), V.dtype, result.features, "feature", run.beside)
        with outputs.part(path).open("wb") as file, WRITERS[path.suffix[1:]](file, table) as add:
            write_rows([(0, V)], [add])
    variance_table(outputs.part(paths["variances"]), result)
    for each in hooks:
        each.write(run, paths, outputs)
    if drawn is not None:
        from shiftsvd import report

        report.write(
            outputs.part(paths["report"]),
            pca,
            scores=drawn.rasters,
            samples=drawn.samples,
            source=result.source,
            command=typed(),
            names=result.features,
            colors=colors,
            seconds=result.document["seconds"],
            peak_bytes=result.document["peak_bytes"],
        )
    _write_manifest(result.document, outputs, paths)
