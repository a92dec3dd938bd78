"""Run `transform`, `influence`, `inverse` and `report`: read block by block, and write the output."""

import json
import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

import click
import numpy as np

from shiftsvd.algebra.generic import row_blocks
from shiftsvd.backends.files import counted, left_beside
from shiftsvd.backends.validation import named
from shiftsvd.commands.hooks import Hooks, aligned, first_answer, hooks_of
from shiftsvd.commands.mixed import fields_of, labels_of
from shiftsvd.commands.options import check_files, print_message, typed
from shiftsvd.commands.settings import Settings, table_format
from shiftsvd.commands.tables import ENTRIES, Block, Table, component_names, format_named, write_rows
from shiftsvd.commands.writing import model_in, rastering, score_rasters
from shiftsvd.errors import few, plain_lines, plural
from shiftsvd.estimators.attributes import feature_names_of
from shiftsvd.estimators.batches import BatchPCA
from shiftsvd.estimators.contrastive import ContrastivePCA
from shiftsvd.estimators.evidence import largest_turn, rivals_of
from shiftsvd.estimators.graphs import DiffusionMap
from shiftsvd.events import listening
from shiftsvd.io import Names
from shiftsvd.io.choices import NOTHING, Choices
from shiftsvd.io.formats.cells import NO_CLASS
from shiftsvd.io.formats.text import is_utf8
from shiftsvd.io.location import Location
from shiftsvd.io.opening import open_chosen, read_whole
from shiftsvd.missing.gaps import Gaps, Observed
from shiftsvd.missing.opening import open_with_gaps
from shiftsvd.names import resolve
from shiftsvd.operators import Operator
from shiftsvd.runs.memory import peak_bytes
from shiftsvd.runs.messages import warn
from shiftsvd.runs.outputs import Outputs, refuse
from shiftsvd.runs.progress import progress

OTHERS = ContrastivePCA, DiffusionMap  # models other than PCA that `transform` applies
SHOWN = 0.1  # degrees: angles are printed with one decimal
LEAST_WIDTH = 0.02  # degrees between the bounds of an angle that a refit could lessen
SPACE = "space"  # of all components, in place of the name of one
ROW = "row"  # in place of the names of samples: numbers from 1
PREFIXES = {"SpectralEmbedding": "SE", "DiffusionMap": "DC", "ContrastivePCA": "cPC"}  # of columns of scores
# Options of the tables that `fit` writes. Sample names may look like numbers.
SCORES = Choices(ids="sample", keep_total=True, may_lack=("sample",), remembered=True)


def transform(settings: Settings) -> None:
    check_files(settings)
    _check_output(settings)
    hooks = hooks_of(settings)
    kinds = [resolve(place) for each in hooks for place in each.models]
    pca = model_in(settings.model, BatchPCA, *OTHERS, *kinds)
    of_hooks = (each.score(settings.model, pca) for each in hooks)
    made: Any = _scores_of_new(pca, settings) if isinstance(pca, OTHERS) else first_answer(of_hooks)
    features = None
    if made is None:
        pca, A, names = _opened(pca, settings, hooks)
        dtype = np.dtype(settings.dtype or A.dtype)
        table = Table(component_names(pca.n_components_), A.shape[0], dtype, names.samples)
        if isinstance(A, Gaps):
            _tell_missing(A, names, _choices(pca, settings), settings)
        C = first_answer(each.covariates(pca) for each in hooks)
        made, features = (table, pca.iter_scores(A, covariates=C)), names.features
    with named(features), progress(settings.progress, settings.quiet) as listen, listening(listen):
        _write(made[0], made[1], settings)


def _tell_missing(A: Gaps, names: Names, choices: Choices, settings: Settings) -> None:
    """Print the number of missing values of new samples, as `fit` does, and name samples without any value."""
    fields = fields_of(names.features, A.shape[1], choices)
    W = np.isin(np.arange(A.shape[1]), fields).astype(np.float64)[:, None]
    absent = np.concatenate([A.absent(W, rows)[:, 0] for rows in A.row_blocks()])
    if n_missing := round(float(absent.sum())):
        share = n_missing / (len(absent) * len(fields))
        print_message(f"{settings.file}: {plural(n_missing, 'missing value')} ({share:.1%})", settings.quiet)
    empty = np.flatnonzero(np.round(absent) == len(fields))
    if len(empty):
        which = f"{plural(len(empty), 'sample')} {'has' if len(empty) == 1 else 'have'} no values"
        without = "Without values, scores are those of the means of the features."
        warn(f"{settings.file}: {which}: {_called(empty, names)}. {without}")


def _called(rows: Iterable[int], names: Names) -> str:
    return few(f"row {i + 1:,} (counted from 1)" if names.samples is None else names.samples[i] for i in rows)


def _scores_of_new(model: Any, settings: Settings) -> tuple[Table, list[tuple[int, Block]]]:
    choices = _choices(model, settings)
    how = settings.where | vars(settings.resources)
    if isinstance(model, ContrastivePCA):
        A, names = open_chosen(settings.paths, choices, **how)
        model = aligned(model, A.shape[1], names.features, settings.file, settings.max_absent)
        Z, dtype = model.transform(A), A.dtype
    else:
        X, names = read_whole(settings.paths, choices, **how)
        Z, dtype = model.transform(_as_fitted(X, names.features, model, settings.file)), precision(X.dtype)
    return coordinate_table(model, len(Z), settings.dtype or dtype, names.samples), [(0, Z)]


def _choices(model: Any, settings: Settings) -> Choices:
    """Return the settings of the fit, updated by those given; without its encoding for files in UTF-8."""
    features = getattr(model, "feature_names_in_", None)
    choices: Choices = getattr(model, "table_", NOTHING).beside(settings.choices)
    choices = replace(choices, features=() if features is None else tuple(map(str, features)))
    if choices.encoding is None or settings.choices.encoding is not None:
        return choices
    local = [path for path in settings.paths if not isinstance(path, Location) and path.is_file()]
    if len(local) < len(settings.paths) or not all(map(is_utf8, local)):
        return choices
    return replace(choices, encoding=None)


def _as_fitted(X: Any, names: Any, model: Any, file: str) -> Any:
    known = getattr(model, "feature_names_in_", None)
    if names is None or known is None or np.array_equal(names, known):
        return X
    places = {str(name): j for j, name in enumerate(names)}
    if len(places) < len(names) or {*places} != {*map(str, known)}:
        raise ValueError(f"{file} must have a column for each of the {len(known):,} samples of the fit: {few(known)}.")
    return X[:, [places[str(name)] for name in known]]


def coordinate_table(model: Any, n_rows: int, dtype: Any, names: Any) -> Table:
    columns = [f"{PREFIXES[type(model).__name__]}{j + 1}" for j in range(len(model.eigenvalues_))]
    return Table(columns, n_rows, np.dtype(dtype), names)


def precision(dtype: Any) -> np.dtype[Any]:
    return np.dtype(np.float32 if dtype == np.float32 else np.float64)


def influence(settings: Settings) -> None:
    check_files(settings)
    if settings.out is not None:
        _check_output(settings)
    started, hooks = time.perf_counter(), hooks_of(settings)
    pca, A, names = _opened(model_in(settings.model, BatchPCA), settings, hooks)
    groups = None
    if settings.leave_out is not None:
        groups = np.array(labels_of(A.shape[0], "leave_out", settings, _choices(pca, settings), hooks).cells)
        unknown = np.flatnonzero(np.isin(np.char.strip(groups), NO_CLASS))
        if len(unknown):
            raise ValueError(
                f"The column {settings.leave_out!r} is empty for {plural(len(unknown), 'sample')}: "
                f"{_called(unknown, names)}. Write a label for each; samples with the same label are left out together."
            )
    pca.set_params(memory_limit=left_beside(A, settings.memory))
    with counted(A), named(names.features), progress(settings.progress, settings.quiet) as listen, listening(listen):
        found, refitted, own = pca._influence(A, groups, settings.widest, settle=True)
    labels, of = found.labels if groups is not None else names.samples, settings.leave_out or "sample"
    if labels is None:
        labels, of = np.arange(1, A.shape[0] + 1), ROW
    ends = [*found.angles.swapaxes(0, 1), found.subspace]
    columns = [*component_names(pca.n_components_), SPACE]
    document = {
        "turns": [
            _largest_turn(name, each, found.subspace, labels, of) for name, each in zip(columns, ends, strict=True)
        ],
        "n_left_out": len(found.subspace),
        "leave_out": settings.leave_out,
        "widest": settings.widest,
        "n_components": pca.n_components_,
        "model": str(settings.model),
        "file": settings.file,
        "shape": list(A.shape),
        "seconds": round(time.perf_counter() - started, 3),
        "peak_bytes": peak_bytes(),
        "version": version("shiftsvd"),
    }
    if settings.out is not None:
        heads = [f"{name}_{end}" for name in columns for end in ("at_least", "at_most")]
        table, rows = Table(heads, len(found.subspace), np.dtype(np.float64), labels, of), ENTRIES // len(heads) + 1
        parts = ((lo, np.hstack([each[lo : lo + rows] for each in ends])) for lo in range(0, table.n_rows, rows))
        _write(table, parts, settings)
    widths = np.max([np.ptp(each, axis=1) for each in found.angles.swapaxes(0, 1)], axis=0)
    advised = [_narrower(each, widths, refitted) for each in ends]
    lines = [
        _in_words(turn, narrower, of) or _unproven(turn, narrower, *errors)
        for turn, narrower, errors in zip(document["turns"], advised, own.T, strict=True)
    ]
    click.echo(json.dumps(document) if settings.json_out else plain_lines("\n".join(lines)))


def _largest_turn(component: str, ends: Block, spaces: Block, labels: Any, of: str) -> dict[str, Any]:
    """Return the row or group without which a component turns most by the lower bound, and the bounds in degrees.

    For a component, also return the bounds for the space of all components without the same row or group.
    """
    row = largest_turn(ends)
    without = f"row {row + 1:,}" if of == ROW else str(labels[row])
    least, most = ends[row].tolist()
    others = max(int(np.count_nonzero(rivals_of(ends))) - 1, 0)
    turn = {"component": component, "without": without, "at_least": least, "at_most": most, "others": others}
    of_space = dict(zip(("space_at_least", "space_at_most"), spaces[row].tolist(), strict=True))
    return turn if component == SPACE else turn | of_space


def _narrower(ends: Block, widths: Block, refitted: Block) -> float | None:
    """Return a value of --widest by which all rows that may turn a component most are refitted; None if all are."""
    widths = widths[rivals_of(ends) & ~refitted & (widths > LEAST_WIDTH)]
    if not len(widths):
        return None
    least = 0.99 * float(widths.min())
    digit = 10.0 ** math.floor(math.log10(least))
    return math.floor(least / digit) * digit


def _in_words(turn: Mapping[str, Any], narrower: float | None, of: str) -> str | None:
    is_space = turn["component"] == SPACE
    what = "the space of all components" if is_space else turn["component"]
    by = _degrees(turn["at_least"], turn["at_most"])
    if by is None:
        return None
    who = f"{turn['without']} (counted from 1)" if of == ROW else f"{of} {turn['without']}"
    turns = f"Without {who}, {what} turns by {by} degrees"
    if not is_space:
        of_space = _degrees(turn["space_at_least"], turn["space_at_most"])
        turns += f", and the space of all components by {of_space or '0 to 90'}"
    if not turn["others"]:
        return f"{turns}."
    more = f"{turns}. Without {plural(turn['others'], 'other')}, {what} may turn more"
    return f"{more}." if narrower is None else f"{more}: add --widest {narrower:g} to refit without them."


def _unproven(turn: Mapping[str, Any], narrower: float | None, error: float, of_rounding: float) -> str:
    what = "The space of all components" if turn["component"] == SPACE else turn["component"]
    if error - of_rounding >= SHOWN:
        return (
            f"{what}: no angle is proven, because its own error in the fit may be {math.ceil(10 * error) / 10:.1f} "
            "degrees. Fit with a smaller --tol, such as 1e-8."
        )
    why = f"{what}: no angle is proven, because the singular values are too close to others"
    return f"{why}." if narrower is None or error == 90 else f"{why}: add --widest {narrower:g} to refit."


def _degrees(at_least: float, at_most: float) -> str | None:
    least, most = math.floor(10 * at_least) / 10, math.ceil(10 * at_most) / 10
    if (least, most) == (0, 90):
        return None
    return f"at least {least:.1f}" if most == 90 else f"{least:.1f} to {most:.1f}"


def inverse(settings: Settings) -> None:
    _check_output(settings)
    pca = model_in(settings.model, BatchPCA)
    if hasattr(pca, "design_"):
        raise ValueError(
            f"{settings.model}: samples cannot be reconstructed from scores alone, because the fit regressed out "
            f"{few(pca.design_.names)}, and the file of scores does not hold these columns. Pass a model that was "
            "fitted without --covariates and --groups."
        )
    Z, names, places = _open_scores(pca, settings.file, settings)
    features = feature_names_of(pca)
    columns = [f"X{j + 1}" for j in range(len(pca.mean_))] if features is None else [str(f) for f in features]
    dtype = np.result_type(Z.dtype, pca.components_.dtype)
    table = Table(columns, Z.shape[0], np.dtype(settings.dtype or dtype), names.samples)
    blocks = ((first, pca.inverse_transform(block)) for first, block in _rows(Z, len(columns), places))
    _write(table, blocks, settings)


def report(settings: Settings) -> None:
    from shiftsvd import report as page

    out = Path(str(settings.out))
    refuse([out], settings.force)
    if len(settings.files) > 2:
        raise ValueError(
            "report takes at most two files, the scores of the fit and those of new samples, got "
            f"{len(settings.files)}. Remove the other files."
        )
    pca = model_in(settings.model, BatchPCA)
    rasters, news, samples = score_rasters(pca), score_rasters(pca), None
    for i, file in enumerate(settings.files if rasters else ()):
        Z, names, places = _open_scores(pca, file, settings)
        if i == 0:
            add, samples = rastering(rasters, news, _projected(pca, Z.shape[0])), names.samples
        else:  # without names, which would overlap those of the fit
            add = rastering(news, [], None)
        for first, block in _rows(Z, Z.shape[1], places):
            add(first, block)
    page.write(
        out,
        pca,
        scores=rasters if settings.files and rasters else None,
        samples=samples,
        new_scores=news if any(raster.n for raster in news) else None,
        source={"model": str(settings.model)} | dict(zip(("scores", "new scores"), settings.files, strict=False)),
        command=typed(),
        names=feature_names_of(pca),
        force=settings.force,
    )
    print_message(f"written: {out}", settings.quiet)


def _projected(pca: BatchPCA, n_rows: int) -> Any:
    learned = getattr(pca, "learned", None)
    return None if learned is None or len(learned) != n_rows else ~learned


def _opened(pca: BatchPCA, settings: Settings, hooks: Sequence[Hooks]) -> tuple[BatchPCA, Observed, Names]:
    found = first_answer(each.open_new(pca) for each in hooks)
    if found is not None:
        return found
    choices = _choices(pca, settings)
    how = settings.where | {"choices": choices} | vars(settings.resources)
    gaps = {} if pca.missing == "error" else {"unobserved": pca.unobserved}
    A, names = (open_with_gaps if gaps else open_chosen)(settings.paths, **gaps, **how)
    for each in hooks:
        A, names = each.refine(pca, A, names)
    return aligned(pca, A.shape[1], names.features, settings.file, settings.max_absent), A, names


def _open_scores(pca: BatchPCA, file: str, settings: Settings) -> tuple[Operator, Names, Any]:
    Z, names = open_chosen(file, SCORES, format="csv" if file == "-" else None, **vars(settings.resources))
    if Z.shape[1] == pca.n_components_:
        return Z, names, slice(None)
    columns = {} if names.features is None else {str(name): j for j, name in enumerate(names.features)}
    wanted = component_names(pca.n_components_)
    if not all(name in columns for name in wanted):
        raise ValueError(
            f"{file} has {plural(Z.shape[1], 'column')} of numbers, but the model has "
            f"{plural(pca.n_components_, 'component')} ({wanted[0]} to {wanted[-1]}). "
            "Pass scores that `fit` or `transform` wrote for this model."
        )
    return Z, names, [columns[name] for name in wanted]


def _rows(Z: Operator, width: int, places: Any) -> Iterator[tuple[int, Block]]:
    rows = max(1, ENTRIES // width)
    for first, block in row_blocks(Z, rows):
        for lo in range(0, len(block), rows):
            yield first + lo, block[lo : lo + rows, places]


def _check_output(settings: Settings) -> None:
    out = str(settings.out)
    format_named(table_format(out))
    if out != "-":
        refuse([Path(out)], settings.force)


def _write(table: Table, blocks: Iterable[tuple[int, Block]], settings: Settings) -> None:
    out = str(settings.out)
    with ExitStack() as stack:
        file: BinaryIO = sys.stdout.buffer
        if out != "-":
            outputs = stack.enter_context(Outputs([Path(out)], settings.force))
            file = stack.enter_context(outputs.part(Path(out)).open("wb"))
        write_rows(blocks, [stack.enter_context(format_named(table_format(out))(file, table))])
    if out == "-":
        sys.stdout.buffer.flush()
    else:
        print_message(f"written: {out}", settings.quiet)
