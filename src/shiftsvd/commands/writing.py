"""The files that `shiftsvd fit` writes, and result.json, which verifies them."""

import json
import os
import warnings
from contextlib import ExitStack
from hashlib import file_digest
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, overload

import numpy as np

from shiftsvd.backends.files import DiskRows
from shiftsvd.commands.asked import Fit
from shiftsvd.commands.options import say, typed
from shiftsvd.commands.results import Result, variance_table
from shiftsvd.commands.tables import WRITERS, Table, format_named, write_rows
from shiftsvd.estimators.fitted import FittedPCA
from shiftsvd.estimators.pca import PCA
from shiftsvd.genetics import fitting
from shiftsvd.genetics.fitting import Told, beside
from shiftsvd.genetics.selection import Cohort
from shiftsvd.io import Names
from shiftsvd.io.sniff import FORMATS, format_of, named_format
from shiftsvd.missing.gaps import Observed
from shiftsvd.model_file import load_model
from shiftsvd.operators import Operator
from shiftsvd.runs.outputs import Outputs
from shiftsvd.scanpy.commands import OUTPUT, Known, place_of

MANIFEST: Final = "result.json"
HASHES: Final = "sha256"
# Files up to so many bytes are held against their hashes; larger ones would take longer than what is asked for.
MOST_HASHED: Final = 2**26
Model = TypeVar("Model")
Other = TypeVar("Other")


def write_manifest(document: dict[str, Any], outputs: Outputs, paths: dict[str, Path]) -> None:
    if not paths:
        return
    home = paths["result"].parent
    beside = sorted(path for path in paths.values() if path.parent == home and path.name != MANIFEST)
    document[HASHES] = {path.name: _hash(outputs.part(path)) for path in beside}
    outputs.part(paths["result"]).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


@overload
def model_in(path: str | Path, kind: type[Model]) -> Model: ...


@overload
def model_in(path: str | Path, kind: type[Model], other: type[Other]) -> Model | Other: ...


def model_in(path: str | Path, kind: type[Any], other: type[Any] | None = None) -> Any:
    model = load_model(path, kind if other is None else (kind, other))
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


APART: Final = 100  # times the smallest standard deviation: two orders of magnitude


def are_tables(options: Any) -> bool:
    return all(FORMATS[each].is_table for each in _formats(options))


def are_texts(options: Any) -> bool:
    return all((options.format or named_format(Path(file))) in ("csv", "tsv") for file in options.files)


def _formats(options: Any) -> set[str]:
    if options.file == "-":
        return {options.format}
    return {format_of(Path(file), options.format) for file in options.files}


def advise_scale(A: Any, names: Names, options: Any) -> None:
    is_plain = options.scale is None and options.shift == "mean" and not options.preprocess
    if not is_plain or not isinstance(A, Operator) or not are_tables(options):
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
        options.quiet,
    )


MOST_NUMBERS: Final = 10_000_000  # numbers that are written where nobody asks: 200 MB of text


def planned_components(kind: str | None) -> dict[str, str]:
    if kind == "none":
        return {}
    if kind is not None:
        format_named(kind)
    return {"components": f"components.{kind or 'csv'}"}


def settled_components(pca: Any, options: Any, outputs: Outputs, paths: dict[str, Path]) -> None:
    count = pca.components_.size
    if options.components is not None or "components" not in paths or count <= MOST_NUMBERS:
        return
    path = paths.pop("components")
    outputs.leave_out(path)
    if path.exists():
        warnings.warn(f"{path.parent} keeps {path.name} of an earlier run", stacklevel=2)
    say(
        f"no {path.name}: its {count:,} numbers are in the model; --components csv or --components parquet writes them",
        options.quiet,
    )


def write_components(path: Path, to: Path, pca: Any, features: Any, beside: tuple[tuple[str, Any], ...] = ()) -> None:
    columns = [f"PC{j + 1}" for j in range(pca.n_components_)]
    V = pca.components_.T
    table = Table(columns, len(V), V.dtype, features, "feature", beside)
    with to.open("wb") as file, WRITERS[path.suffix[1:]](file, table) as add:
        write_rows([(0, V)], [add])


def planned(options: Fit) -> dict[str, Path]:
    if options.out is None:
        return {}
    files = {"model": "model.safetensors"}
    kind = options.scores or _usual_kind(options)
    if kind in WRITERS:
        format_named(kind)
        files["scores"] = f"scores.{kind}"
    files |= planned_components(options.components) | {"variances": "variances.csv"}
    if options.top_features:
        files["features"] = OUTPUT
    drawn = all(find_spec(name) for name in ("matplotlib", "jinja2"))
    if options.report and not drawn:
        raise ValueError("a report needs matplotlib and jinja2: pip install 'shiftsvd[plot]'")
    if drawn and options.report is not False:
        files["report"] = "report.html"
    if options.anndata:
        if find_spec("h5py") is None:
            raise ValueError("--anndata needs h5py: pip install 'shiftsvd[hdf5]'")
        files["anndata"] = "fit.h5ad"
    files |= {name: f"{name}.csv" for name in ("tracy_widom", "scan") if getattr(options, name)}
    _tell_of_others(Path(options.out), set(files.values()))
    paths = {name: Path(options.out) / file for name, file in files.items()}
    paths |= fitting.planned_genotypes(options) | {"result": Path(options.out) / MANIFEST}  # which is written last
    for path in paths.values():
        if path.exists() and not path.is_symlink() and any(map(path.samefile, filter(os.path.exists, options.files))):
            raise ValueError(f"{path} is the file that is fitted; name another folder")
    return paths


def _usual_kind(options: Fit) -> str:
    return "csv" if find_spec("pyarrow") is None or are_texts(options) else "parquet"


def _tell_of_others(folder: Path, planned: set[str]) -> None:
    ours = {f"scores.{kind}" for kind in WRITERS} | {"components.csv", "components.parquet"}
    ours |= {"report.html", "fit.h5ad", "tracy_widom.csv", "scan.csv", OUTPUT}
    others = sorted(name for name in ours - planned if (folder / name).exists())
    if others:
        warnings.warn(f"{folder} keeps {', '.join(others)} of an earlier run", stacklevel=2)


class Samples(NamedTuple):
    """Samples whose scores are written, their names, and what is known of them besides."""

    A: Observed
    names: Names
    known: Known
    cohort: Cohort | None


def write_scores(pca: PCA, samples: Samples, options: Fit, outputs: Outputs, paths: dict[str, Path]) -> "Drawn | None":
    A, names, known, cohort = samples
    table = Table(component_names(pca.n_components_), A.shape[0], np.dtype(options.dtype or A.dtype), names.samples)
    with ExitStack() as stack:
        writes: list[Any] = []
        if "scores" in paths:
            file = stack.enter_context(outputs.part(paths["scores"]).open("wb"))
            writes.append(stack.enter_context(WRITERS[paths["scores"].suffix[1:]](file, table)))
        if "anndata" in paths:
            from shiftsvd.scanpy.outputs import annotated

            place = place_of(vars(options), options.files)
            writes.append(
                stack.enter_context(annotated(outputs.part(paths["anndata"]), table, pca, names, place, known.mask))
            )
        if "eigenvec" in paths:
            assert cohort is not None
            writes.append(stack.enter_context(fitting.vectors(outputs.part(paths["eigenvec"]), cohort.samples, pca)))
        rasters = score_rasters(pca) if "report" in paths else []
        writes += [lambda first, block, add=raster.add: add(block) for raster in rasters]
        if writes:
            write_rows(pca.iter_scores(A, covariates=known.C), writes)
    return Drawn(rasters or None, names.samples) if "report" in paths else None


def component_names(k: int) -> list[str]:
    return [f"PC{j + 1}" for j in range(k)]


def score_rasters(pca: FittedPCA) -> list[Any]:
    from shiftsvd.plot.raster import ScoreRaster
    from shiftsvd.report import planes_of

    return [ScoreRaster.of(pca, components=pair, rng=0) for pair in planes_of(pca.n_components_)]


class Drawn(NamedTuple):
    """What the report draws of the scores, and what the samples are called."""

    rasters: Any
    samples: Any


def write_files(
    pca: PCA,
    result: Result,
    outputs: Outputs,
    paths: dict[str, Path],
    drawn: Drawn | None,
    colors: Any,
    told: Told | None,
) -> None:
    if not paths:
        return
    pca.save(outputs.part(paths["model"]), source=", ".join(result.document.get("files", [result.document["file"]])))
    if "components" in paths:
        known = () if told is None else beside(told.cohort.left)
        write_components(paths["components"], outputs.part(paths["components"]), pca, result.features, known)
    variance_table(outputs.part(paths["variances"]), result)
    if "eigenval" in paths:
        fitting.values(outputs.part(paths["eigenval"]), pca)
    if told is not None:
        told.write({name: outputs.part(path) for name, path in paths.items()})
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
