"""Columns of tables with other uses: categories next to numbers (`--mixed`), and columns that only are placed."""

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from shiftsvd.backends.source import RowSource
from shiftsvd.backends.validation import SHOWN, NotFinite
from shiftsvd.commands.hooks import Hooks, first_answer
from shiftsvd.commands.options import joined, option_of
from shiftsvd.commands.settings import Settings
from shiftsvd.commands.tables import texts_for
from shiftsvd.errors import Refused
from shiftsvd.estimators.supplementary import Categories, Column, Numbers, Supplementary
from shiftsvd.io import Names
from shiftsvd.io.choices import JOIN, Choices, naming
from shiftsvd.io.formats.table import Column as Texts
from shiftsvd.io.formats.table import ColumnProfile, profiled, read_column
from shiftsvd.io.opening import read_files
from shiftsvd.io.sniff import format_of, formats
from shiftsvd.missing.gaps import Observed
from shiftsvd.missing.opening import BLOCK
from shiftsvd.numerics.moments import Vector
from shiftsvd.preparation.shifts import resolve_scale

_TEXTS: Final = ("label", "text", "identifier")  # kinds of columns whose cells are categories, if they are no numbers


def with_categories(settings: Settings) -> Settings:
    """Return settings with the columns of categories for --mixed and --supplementary; one read of the tables."""
    if not (settings.mixed or settings.supplementary):
        return settings
    texts = [each for each in _columns(settings) if each.kind in _TEXTS and each.low is None]
    placed = tuple(dict.fromkeys(each.name for each in texts if each.name in settings.supplementary))
    if not settings.mixed:
        return replace(settings, placed_texts=placed)
    labels = (each for each in texts if each.kind == "label" and each.use != "row names")
    names = [each.name for each in labels if not settings.choices.leaves_out(each.name)]
    one_hot = tuple(dict.fromkeys([*settings.one_hot, *names]))
    if not one_hot:
        none = f"{settings.file} has no column of categories for --mixed: no column holds texts that repeat."
        raise ValueError(f"{none} Use --one-hot to name columns of categories, or --scale for numbers alone.")
    return replace(settings, one_hot=one_hot, placed_texts=placed)


def mixed_scale(A: Observed, names: Names, settings: Settings) -> Vector:
    """Return standard deviations of numbers, and the square roots of the frequencies of categories; one pass."""
    assert names.features is not None  # a table has names, or numbers in their place
    classes = settings.choices.learned(names.features).one_hot
    indicators = {f"{name}{JOIN}{one}" for name, known in classes.items() for one in known}
    is_number = np.array([str(name) not in indicators for name in names.features])
    moments = A.moments()
    assert moments.M2 is not None
    count = np.broadcast_to(moments.count, is_number.shape)[is_number]
    numbers = replace(moments, count=count, mean=moments.mean[is_number], M2=moments.M2[is_number], low=0.0)
    deviations = resolve_scale("std", len(count), numbers)
    assert deviations is not None
    scale = np.sqrt(np.where(moments.mean > 0, moments.mean, 1))
    scale[is_number] = deviations
    return scale


@contextmanager
def naming_columns(settings: Settings) -> Iterator[None]:
    """Let errors about missing values count cells of the table, and name its columns: town for town=Pau."""
    try:
        yield
    except NotFinite as error:
        found = error.found
        if not settings.one_hot or found.names is None:
            raise
        places, counts = found.columns
        names = _columns_of([found.names[j] for j in places], settings)
        first = _first(names)
        drop = naming("drop", [names[i] for i in first]) if len(first) <= SHOWN else None
        n_nan = found.n_nan - int(counts.sum() - counts[first].sum())
        columns, called = found.columns[:, first], dict(zip(places.tolist(), names, strict=True))
        raise error.but(n_nan=n_nan, columns=columns, names=called, drop=drop) from None


def fields_of(features: Any, n: int, settings: Settings | Choices) -> Vector:
    """Return one place for each column of the table, among features that may be indicators of its categories."""
    whole = features is None or not settings.one_hot
    return np.arange(n) if whole else _first(_columns_of(list(map(str, features)), settings))


def _columns_of(features: Sequence[str], settings: Settings | Choices) -> list[str]:
    columns = {f"{name}{JOIN}": name for name in settings.one_hot}
    return [next((own for begin, own in columns.items() if name.startswith(begin)), name) for name in features]


def _first(names: Sequence[str]) -> Vector:
    return np.sort(np.unique(names, return_index=True)[1])


def labels_of(m: int, option: str, settings: Settings, choices: Choices, hooks: Sequence[Hooks]) -> Texts:
    """Return the label of each of m samples in the column that an option names."""
    name = getattr(settings, option)
    found = first_answer(each.labels(name) for each in hooks)
    if found is not None:
        label = Texts(name, found)
    else:
        label = read_column(settings.paths, name, settings.format, choices, along=settings.stack != "columns")
    if len(label) != m:
        must = f"{option_of(option)} must name a column with one value per sample"
        raise ValueError(f"{must}, got {len(label):,} values for {m:,} samples.")
    return label


def supplementary_columns(settings: Settings, m: int, samples: Any) -> list[Column]:
    """Read the columns of --supplementary: numbers, or codes of categories; one read of the tables."""
    wanted = settings.supplementary
    if not wanted:
        return []
    uses: dict[str, Any] = {"drop": (), "columns": wanted, "one_hot": dict.fromkeys(settings.placed_texts, ())}
    # `remembered`, so that settings of text files are no error for Parquet.
    choices = replace(settings.choices, **uses, keep_total=True, remembered=True)
    try:
        opened = read_files(settings.paths, settings.memory, choices, **settings.where | {"join": None})
    except Refused as error:  # the column is excluded already
        without = f"--supplementary without {joined(wanted)}"
        raise Refused(*(without if getattr(each, "name", "") == "drop" else each for each in error.args)) from None
    X, names = opened.matrix, opened.names
    # One more row is a last row of totals, which is no sample.
    differ = names.samples is not None and samples is not None and list(names.samples[:m]) != list(samples)
    if not m <= X.shape[0] <= m + 1 or differ:
        raise ValueError(
            f"--supplementary must name columns with one value per sample, got {X.shape[0]:,} rows for {m:,} samples."
        )
    blocks = (X.with_nan().read(lo, hi) for lo, hi in pairwise(X.edges(BLOCK))) if isinstance(X, RowSource) else [X]
    assert names.features is not None  # a table has names, or numbers in their place
    features = [str(name) for name in names.features]
    classes = choices.learned(features).one_hot
    places = [features.index(f"{name}{JOIN}{classes[name][0]}" if name in classes else name) for name in wanted]
    read = [_narrow(block, places, [classes.get(name, ()) for name in wanted]) for block in blocks]
    columns = zip(wanted, np.concatenate(read)[:m].T, strict=True)
    return [_placed(name, column, classes.get(name)) for name, column in columns]


def _narrow(block: Any, places: Sequence[int], classes: Sequence[Sequence[str]]) -> Any:
    """Return numbers, and codes in place of indicators, as float64; NaN is a missing value."""
    X = np.empty((len(block), len(places)))
    for j, (place, known) in enumerate(zip(places, classes, strict=True)):
        part = np.asarray(block[:, place : place + max(1, len(known))], np.float64)
        X[:, j] = np.where(np.isnan(part[:, 0]), np.nan, part.argmax(axis=1)) if len(known) else part[:, 0]
    return X


def _placed(name: str, column: Vector, known: Sequence[str] | None) -> Column:
    if known is None:
        return Numbers(name, column)
    codes = np.where(np.isnan(column), -1, column).astype(np.intp)
    counts = np.bincount(codes[codes >= 0], minlength=len(known))
    places = np.where(counts > 0, np.cumsum(counts > 0) - 1, -1)  # a row of totals has no category
    return Categories(name, np.where(codes < 0, -1, places[codes]), [*np.array(known, object)[counts > 0]])


def _columns(settings: Settings) -> Iterator[ColumnProfile]:
    for path in settings.paths:
        kind = format_of(path, settings.format)
        read = settings.format, settings.key, settings.choices, settings.memory
        found = profiled(path, *read) if formats()[kind].is_table else None
        if found is None:
            option = "--mixed" if settings.mixed else "--supplementary"
            must = "a table such as CSV or Parquet, with a column for each feature and at most 1,024 columns"
            raise ValueError(f"{option} needs {must}, got {path} of format {kind!r}.")
        yield from found.columns


def write_supplementary(path: Path, found: Supplementary, components: Sequence[str]) -> None:
    header = ["column", "category", "kind", "rows", *components, *(f"v_test_{name}" for name in components)]
    with path.open("w", newline="", encoding="utf-8") as file, texts_for("columns") as text:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for j, (column, category) in enumerate(zip(found.columns, found.categories, strict=True)):
            kind = "correlation" if category is None else "barycentre"
            cells = [text(column), "" if category is None else text(category), kind, int(found.counts[j])]
            writer.writerow([*cells, *(found.coordinates[j] + 0.0).tolist(), *(found.v_tests[j] + 0.0).tolist()])
        for column, ratios in zip(dict.fromkeys(found.columns), found.correlation_ratios, strict=True):
            of_column = [j for j, name in enumerate(found.columns) if name == column]
            if found.categories[of_column[0]] is not None:
                cells = [text(column), "", "correlation ratio", int(found.counts[of_column].sum())]
                writer.writerow([*cells, *ratios.tolist(), *[""] * len(components)])
