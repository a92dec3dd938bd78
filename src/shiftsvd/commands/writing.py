"""What `shiftsvd fit` writes into its folder: the names of all files first, then scores, then everything else."""

import os
import warnings
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shiftsvd.commands import advice, components, genotypes, manifest
from shiftsvd.commands.asked import Fit
from shiftsvd.commands.cells import Known, place_of
from shiftsvd.commands.cohorts import Told, beside
from shiftsvd.commands.options import typed
from shiftsvd.commands.ranking import OUTPUT
from shiftsvd.commands.results import Result, variance_table
from shiftsvd.commands.tables import FORMATS, Table, format_named, write_rows
from shiftsvd.estimators.fitted import FittedPCA
from shiftsvd.estimators.pca import PCA
from shiftsvd.genetics.selection import Cohort
from shiftsvd.io import Names
from shiftsvd.missing.gaps import Observed
from shiftsvd.runs.outputs import Outputs


def planned(options: Fit) -> dict[str, Path]:
    if options.out is None:
        return {}
    files = {"model": "model.safetensors"}
    kind = options.scores or _usual_kind(options)
    if kind in FORMATS:
        format_named(kind)
        files["scores"] = f"scores.{kind}"
    files |= components.planned(options.components) | {"variances": "variances.csv"}
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
    paths |= genotypes.planned(options) | {"result": Path(options.out) / manifest.NAME}  # which is written last
    for path in paths.values():
        if path.exists() and not path.is_symlink() and any(map(path.samefile, filter(os.path.exists, options.files))):
            raise ValueError(f"{path} is the file that is fitted; name another folder")
    return paths


def _usual_kind(options: Fit) -> str:
    return "csv" if find_spec("pyarrow") is None or advice.are_texts(options) else "parquet"


def _tell_of_others(folder: Path, planned: set[str]) -> None:
    ours = {f"scores.{kind}" for kind in FORMATS} | {"components.csv", "components.parquet"}
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
            writes.append(stack.enter_context(FORMATS[paths["scores"].suffix[1:]](file, table)))
        if "anndata" in paths:
            from shiftsvd.commands.annotated import annotated

            place = place_of(vars(options), options.files)
            writes.append(
                stack.enter_context(annotated(outputs.part(paths["anndata"]), table, pca, names, place, known.mask))
            )
        if "eigenvec" in paths:
            assert cohort is not None
            writes.append(stack.enter_context(genotypes.vectors(outputs.part(paths["eigenvec"]), cohort.samples, pca)))
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
        components.write(paths["components"], outputs.part(paths["components"]), pca, result.features, known)
    variance_table(outputs.part(paths["variances"]), result)
    if "eigenval" in paths:
        genotypes.values(outputs.part(paths["eigenval"]), pca)
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
