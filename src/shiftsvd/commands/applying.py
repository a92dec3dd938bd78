"""What `transform`, `inverse` and `report` do with a model: load, apply it block by block, write."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from shiftsvd.algebra.generic import row_blocks
from shiftsvd.backends.validation import named
from shiftsvd.commands.checks import tables
from shiftsvd.commands.options import say, typed, where
from shiftsvd.commands.tables import Block, Table, format_named, write_rows
from shiftsvd.commands.writing import component_names, model_in, score_rasters
from shiftsvd.estimators.batches import BatchPCA
from shiftsvd.estimators.features import aligned as by_names
from shiftsvd.estimators.features import feature_names_of
from shiftsvd.events import listening
from shiftsvd.genetics import GenotypePCA, fitting, scoring
from shiftsvd.genetics.files import filled, joined
from shiftsvd.io import Names
from shiftsvd.io.base import Labels
from shiftsvd.io.choices import NOTHING, Choices
from shiftsvd.io.opening import open_chosen, operator_of
from shiftsvd.io.stacking import several
from shiftsvd.missing.gaps import Observed
from shiftsvd.missing.gaps.opening import open_with_gaps
from shiftsvd.operators import Operator
from shiftsvd.runs.memory import Resources
from shiftsvd.runs.outputs import Outputs, refuse
from shiftsvd.runs.progress import progress
from shiftsvd.scanpy.commands import covariates_of, known_features, look_at_other_values

# Entries of a block of restored samples (64 MB of float64).
ENTRIES = 2**23
# How tables of scores are written: names of the samples may be numbers.
REMEDY = "--max-absent SHARE lets so many be unobserved"
SCORES = Choices(ids="sample", may_lack=("sample",), remembered=True)


def transform(model: Path, given: dict[str, Any]) -> None:
    _check_output(given["out"], given["force"])
    pca = model_in(model, BatchPCA, GenotypePCA)
    if not _are_genotypes(given):
        scoring.refuse_other_files(pca, model, given)
    if isinstance(pca, GenotypePCA) or (
        _are_genotypes(given) and scoring.knows_alleles(pca, model, given["trust_order"])
    ):
        (table, blocks), features = scoring.projected(pca, given), None
    else:
        pca, A, names = _opened(pca, given)
        table = Table(
            component_names(pca.n_components_), A.shape[0], np.dtype(given["dtype"] or A.dtype), names.samples
        )
        blocks, features = pca.iter_scores(A, covariates=covariates_of(pca, given)), names.features
    with named(features), progress(given["progress"], given["quiet"]) as listen, listening(listen):
        _write(given["out"], table, blocks, given)


def inverse(model: Path, given: dict[str, Any]) -> None:
    out = given["out"]
    _check_output(out, given["force"])
    pca = model_in(model, BatchPCA)
    if hasattr(pca, "design_"):
        raise ValueError(
            f"{model} has regressed {', '.join(pca.design_.names)} out, which scores do not tell: use fit.h5ad"
        )
    Z, names, places = _open_scores(pca, given)
    features = feature_names_of(pca)
    columns = [f"X{j + 1}" for j in range(len(pca.mean_))] if features is None else [str(f) for f in features]
    dtype = np.result_type(Z.dtype, pca.components_.dtype)
    table = Table(columns, Z.shape[0], np.dtype(given["dtype"] or dtype), names.samples)
    blocks = ((first, pca.inverse_transform(block)) for first, block in _rows(Z, len(columns), places))
    _write(out, table, blocks, given)


def report(model: Path, given: dict[str, Any]) -> None:
    from shiftsvd import report as page

    out = Path(given["out"])
    refuse([out], given["force"])
    pca = model_in(model, BatchPCA)
    rasters, samples = score_rasters(pca) if given["file"] is not None else [], None
    if rasters:
        Z, (samples, _), places = _open_scores(pca, given)
        for _, block in _rows(Z, Z.shape[1], places):
            for raster in rasters:
                raster.add(block)
    with Outputs([out], given["force"]) as outputs:
        page.write(
            outputs.part(out),
            pca,
            scores=rasters or None,
            samples=samples,
            source={"model": str(model)},
            command=typed(),
            names=feature_names_of(pca),
        )
    say(f"written: {out}", given["quiet"])


def _are_genotypes(given: dict[str, Any]) -> bool:
    stacked = len(given["files"]) > 1 and given["stack"] == "rows"
    return fitting.are_genotypes(given["files"], given["format_"], given["orient"]) and not stacked


def _opened(pca: BatchPCA, given: dict[str, Any]) -> tuple[BatchPCA, Observed, Names]:
    files, resources = [Path(file) for file in given["files"]], Resources(given["memory"], given["threads"])
    if _are_genotypes(given):
        return _opened_genotypes(pca, files, given["key"], resources)
    choices = getattr(pca, "table_", NOTHING).beside(given["choices"])
    how = where(given) | {name: given[name] for name in ("stack", "join")} | {"choices": choices}
    A, names = _samples(pca, files, how | vars(resources))
    look_at_other_values(pca, given, A)
    A, features = known_features(pca, A, names.features, several(files), given["max_absent"])
    return aligned(pca, A.shape[1], features, several(files), given["max_absent"] or 0.0), A, names


def _samples(pca: BatchPCA, files: list[Path], how: dict[str, Any]) -> tuple[Observed, Names]:
    if pca.missing == "error":
        return open_chosen(files, **how)
    return open_with_gaps(files, unobserved=pca.unobserved, **how)


def _opened_genotypes(
    pca: BatchPCA, files: list[Path], key: str | None, resources: Resources
) -> tuple[BatchPCA, Observed, Names]:
    parts = fitting.of_model(files, pca.n_features_in_, key, resources.memory_limit)
    variants = joined(parts)
    pca = aligned(pca, variants.matrix.shape[0], variants.rows, several(files))
    # Without a mean there is nothing that could stand for them: they are refused.
    means = pca.mean_ if pca.shift is not None else np.full(pca.n_features_in_, np.nan)
    A, names = operator_of(files, joined(filled(parts, means)), resources)
    return copy(pca).set_params(missing="error", unobserved=False), A, names


def aligned(pca: BatchPCA, n_features: int, names: Labels | None, file: str, max_absent: float = 0.0) -> BatchPCA:
    if getattr(pca, "feature_names_in_", None) is None or names is None:
        if n_features != pca.n_features_in_:
            raise ValueError(f"{file}: {n_features} features, but the model was fitted on {pca.n_features_in_}")
        return pca
    return by_names(pca, list(names), file, max_absent, REMEDY)


def _open_scores(pca: BatchPCA, given: dict[str, Any]) -> tuple[Operator, Names, Any]:
    resources = Resources(given["memory"], given.get("threads"))
    kind = "csv" if given["file"] == "-" else None
    Z, names = open_chosen(given["file"], SCORES, format=kind, **vars(resources))
    if Z.shape[1] == pca.n_components_:
        return Z, names, slice(None)
    columns = {} if names.features is None else {str(name): j for j, name in enumerate(names.features)}
    if not all(name in columns for name in component_names(pca.n_components_)):
        raise ValueError(f"{given['file']}: {Z.shape[1]} columns of scores, but the model has {pca.n_components_}")
    return Z, names, [columns[name] for name in component_names(pca.n_components_)]


def _rows(Z: Operator, width: int, places: Any) -> Iterator[tuple[int, Block]]:
    rows = max(1, ENTRIES // width)
    for first, block in row_blocks(Z, rows):
        for lo in range(0, len(block), rows):
            yield first + lo, block[lo : lo + rows, places]


def _check_output(out: str, force: bool) -> None:
    format_named(tables(out))
    if out != "-":
        refuse([Path(out)], force)


def _write(out: str, table: Table, blocks: Iterable[tuple[int, Block]], given: dict[str, Any]) -> None:
    with ExitStack() as stack:
        file = stack.enter_context(_destination(out, given["force"]))
        write = stack.enter_context(format_named(tables(out))(file, table))
        write_rows(blocks, [write])
    if out != "-":
        say(f"written: {out}", given["quiet"])


@contextmanager
def _destination(out: str, force: bool) -> Iterator[BinaryIO]:
    if out == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(out)
    with Outputs([path], force) as outputs, outputs.part(path).open("wb") as file:
        yield file
