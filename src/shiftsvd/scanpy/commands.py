"""`obs`, `var` and highly variable features in `shiftsvd fit` and `transform`."""

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from shiftsvd.backends.columns import Places, some_columns
from shiftsvd.backends.entries import group_bytes
from shiftsvd.backends.files import left_beside
from shiftsvd.commands.checks import check_choice
from shiftsvd.commands.tables import texts_for
from shiftsvd.events import passes_so_far
from shiftsvd.io.base import Labels, Names
from shiftsvd.io.sniff import format_of
from shiftsvd.io.stacking import several
from shiftsvd.missing.gaps import Observed
from shiftsvd.names import FlavorName
from shiftsvd.operators import Operator, Panel
from shiftsvd.preparation.covariates import Column, Covariates, Design
from shiftsvd.runs.memory import affordable
from shiftsvd.runs.messages import notice
from shiftsvd.scanpy.annotations import Disagreement, Place, of_features, of_samples
from shiftsvd.scanpy.flavors import Batches
from shiftsvd.scanpy.ranking import HighlyVariable, Ranking, rank
from shiftsvd.scanpy.stored import booleans, with_selection
from shiftsvd.solvers.auto import asked_for, solver_named
from shiftsvd.transforms.base import Transform
from shiftsvd.transforms.chains import as_transforms
from shiftsvd.transforms.count_data import warn_of_counts, warn_unless_counts
from shiftsvd.transforms.residuals import NullModel

HIGHLY: Final = "highly_variable"  # the column of var that is used where nothing is said, as scanpy does
OF_CELLS: Final = ("h5ad", "zarr", "10x", "10x-h5")  # formats of files that scanpy reads
NONE: Final = "none"  # of --mask: all features
MAX_ABSENT: Final = 0.1  # the share of the features that sums go over which other samples may lack


@dataclass(frozen=True, eq=False)
class Known:
    """What columns of the file decide of a fit.

    Attributes
    ----------
    mask : str, or None
        The column of var that says which features are taken.
    places : array of int, or None
        Which of the features these are; None for all of them.
    width : int
        How many are taken, of `n`.
    design : Design, or None
        The columns of obs that are regressed out.
    C : array of shape (m, p), or None
        Their matrix.
    ranked : Ranked, or None
        How features were chosen that vary most.
    """

    mask: str | None
    places: Places | None
    width: int
    n: int
    design: Design | None
    C: Panel | None
    ranked: Any = None

    def entries(self, how: tuple[Transform, ...]) -> tuple[Transform, ...]:
        return how if self.places is None else with_selection(how, self.places)

    def taken(self, A: Any) -> Any:
        return some_columns(A, self.places) if self.places is not None and isinstance(A, Operator) else A

    def shift(self, name: str) -> Any:
        return Covariates() if self.design is not None else None if name == NONE else "mean"

    def told(self) -> dict[str, Any]:
        told: dict[str, Any] = {}
        if self.mask is not None:
            told["features"] = {"mask": self.mask, "taken": self.width, "of": self.n}
        if self.ranked is not None:
            told["features"] = self.ranked.told
        if self.design is not None:
            told["regressed_out"] = {"columns": list(self.design.names), "regressors": self.design.width}
        return told


def place_of(given: Mapping[str, Any], paths: tuple[str, ...]) -> Place:
    names = ("stack", "format", "key", "orient", "feature_types")
    return Place([Path(path) for path in paths], **{name: given[name] for name in names}, memory_limit=given["memory"])


def ddof_of(options: Any) -> int:
    return int(of_cells(options))


def of_cells(options: Any) -> bool:
    paths = [Path(file) for file in options.files if file != "-"]
    return len(paths) > 0 and all(format_of(path, options.format) in OF_CELLS for path in paths)


def look_at_values(options: Any, A: Observed) -> None:
    if not of_cells(options) or not isinstance(A, Operator):
        return
    how = as_transforms(options.preprocess)
    if how:
        warn_unless_counts(how, A, place_of(vars(options), options.files).logged)
    else:
        warn_of_counts(A, "Components of cells are usually of logarithms: give --preprocess log-normalize.")


def look_at_other_values(pca: Any, given: Mapping[str, Any], A: Observed) -> None:
    how = [each.how for each in getattr(pca, "preprocess_", ())]
    if how and isinstance(A, Operator):
        warn_unless_counts(how, A, place_of(dict(given) | {"format": given["format_"]}, given["files"]).logged)


def known_of(options: Any, names: Names, shape: tuple[int, int]) -> Known:
    place = place_of(vars(options), options.files)
    name = NONE if options.top_features else options.mask
    mask, places = _mask(name, options.left_missing != "error", place, names.features, shape[1])
    design = _design(options, partial(of_samples, place))
    C = None if design is None else design.of(partial(of_samples, place))
    if C is not None and len(C) != shape[0]:
        raise ValueError(f"{options.file}: {shape[0]} samples, but {len(C)} values of {design.names[0]!r}")  # type: ignore[union-attr]
    width = shape[1] if places is None else len(places)
    return Known(mask, places, width, shape[1], design, C)


def _design(options: Any, column: Callable[[str], Column]) -> Design | None:
    return Design.learn(options.covariates, options.groups, column) if options.covariates or options.groups else None


def _mask(
    name: str | None, with_gaps: bool, place: Place, features: Labels | None, n: int
) -> tuple[str | None, Places | None]:
    if name == NONE or (name is None and not _by_default(place, with_gaps)):
        return None, None
    values, names = of_features(place, name or HIGHLY)
    values = _in_order(values, names, features, n, several(place.paths))
    places = np.flatnonzero(booleans(values, n, f"the column {name or HIGHLY!r}"))
    if name is None:
        notice(f"{len(places)} of {n} features taken, those of {HIGHLY!r}, as scanpy does; --mask none takes all")
    return name or HIGHLY, places


def _by_default(place: Place, with_gaps: bool) -> bool:
    have = [HIGHLY in place.columns(path, "features") for path in place.paths]
    if not any(have):
        return False
    why = f"is in {sum(have)} of {len(have)} files" if not all(have) else None
    why = why or ("is not used beside missing entries" if with_gaps else _differs(place))
    if why:
        notice(f"{several(place.paths)}: {HIGHLY!r} {why}: all features are taken")
    return why is None


def _differs(place: Place) -> str | None:
    try:
        of_features(place, HIGHLY)
    except Disagreement:
        return "is not the same in all files"
    return None


def _in_order(values: Column, names: Labels | None, features: Labels | None, n: int, file: str) -> Column:
    if len(values) == n and (names is None or features is None or np.array_equal(names, features)):
        return values
    if names is None or features is None:
        raise ValueError(f"{file}: {n} features, but {len(values)} in the mask, and no names to go by; --mask none")
    known = dict(zip(names.tolist(), values.tolist(), strict=True))
    return np.array([known[name] for name in features.tolist()])


# --- other samples ---------------------------------------------------------------------------------------------------


def covariates_of(pca: Any, given: Mapping[str, Any]) -> Panel | None:
    design = getattr(pca, "design_", None)
    place = place_of(dict(given) | {"format": given["format_"]}, given["files"])
    return None if design is None else design.of(partial(of_samples, place))


def known_features(
    pca: Any, A: Any, names: Labels | None, file: str, max_absent: float | None
) -> tuple[Any, Labels | None]:
    known = getattr(pca, "feature_names_in_", None)
    if known is None or names is None or not any(each.selects for each in getattr(pca, "preprocess_", ())):
        return A, names
    there = {str(name) for name in known}
    found = [str(name) for name in names]
    places = np.flatnonzero([name in there for name in found])
    left, absent = len(found) - len(places), len(there - set(found))
    if absent > (MAX_ABSENT if max_absent is None else max_absent) * len(there):
        raise ValueError(
            f"{file}: {absent} of {len(there)} features of the model are absent, more than --max-absent lets be; "
            "fit on those of both"
        )
    if left or absent:
        notice(f"{file}: {left} features that the model does not know left out, {absent} of {len(there)} absent")
    return (some_columns(A, places) if left else A), names[places]


OUTPUT: Final = "features.csv"


@dataclass(frozen=True, eq=False)
class Ranked:
    """How features were chosen, for the account of a fit.

    Attributes
    ----------
    found : Ranking
    batch : str, or None
        The column of obs by which they were ranked in batches.
    n_batches : int
    reads : float or None
        Of the data, for the ranking.
    """

    found: Ranking
    batch: str | None
    n_batches: int
    reads: float | None

    @property
    def told(self) -> dict[str, Any]:
        batches = {} if self.batch is None else {"batch": self.batch, "batches": self.n_batches}
        asked, reads = self.found.asked, self.reads
        return {
            "flavor": asked.flavor,
            "asked": asked.n_top,
            "taken": int(self.found.mask.sum()),
            "of": len(self.found.mask),
            **batches,
            "reads": None if reads is None else round(reads, 2),
        }


def check_top_features(given: dict[str, Any]) -> None:
    if given["top_features"] is None:
        if others := [f"--{name}" for name in ("flavor", "batch") if given[name] is not None]:
            raise click.UsageError(f"{' and '.join(others)} chooses among features: give --top-features NUMBER")
        return
    check_choice(given["mask"], given["top_features"])
    if given["missing"] != "error":
        raise click.UsageError("--top-features needs data without gaps; leave out --missing")
    steps = as_transforms(given["preprocess"])
    asked = HighlyVariable(given["top_features"], flavor_of(given["flavor"], steps))
    try:
        asked.check_steps(steps if asked.of_logarithms else ())
    except ValueError as error:
        raise click.UsageError(f"--flavor: {error}") from None


def flavor_of(flavor: FlavorName | None, steps: tuple[Transform, ...]) -> FlavorName:
    usual: FlavorName = "pearson_residuals" if any(isinstance(step, NullModel) for step in steps) else "seurat"
    return flavor or usual


def ranked(
    known: Known, A: Observed, names: Names, k: int | float, options: Any, steps: tuple[Transform, ...]
) -> Known:
    if options.filled or not isinstance(A, Operator):
        raise ValueError(f"{options.file}: variants are not ranked, which are no counts; leave out --top-features")
    asked = HighlyVariable(options.top_features, flavor_of(options.flavor, steps))
    memory = left_beside(A, options.memory)
    _affordable_later(A, k, options, memory)
    labels = None if options.batch is None else of_samples(place_of(vars(options), options.files), options.batch)
    batches, before = Batches.of(labels, A.shape[0]), passes_so_far()
    steps = steps if asked.of_logarithms else ()
    found = rank(A, asked, steps, batches, names.features, memory_limit=memory)
    after = passes_so_far()
    reads = None if before is None or after is None else after - before
    places = np.flatnonzero(found.mask)
    account = Ranked(found, options.batch, batches.n, reads)
    return replace(known, places=places, width=len(places), ranked=account)


def foreseen_ranking(A: Operator) -> tuple[int, int]:
    return 2, group_bytes(A, 1, 2)


def _affordable_later(A: Operator, k: int | float, options: Any, memory: int | str | None) -> None:
    some = some_columns(A, np.arange(min(options.top_features, A.shape[1])))
    solver = solver_named(options.solver, some, k, options.tol, memory)
    what = f"finding components of {some.shape[1]} features"
    affordable(solver.peak_bytes(some, asked_for(some, k)), memory, what)


def write_features(path: Path, found: Ranking, names: Any) -> None:
    columns = [(name, _texts(values)) for name, values in found.columns.items()]
    labels = range(len(found.mask)) if names is None else names
    with path.open("w", newline="", encoding="utf-8") as file, texts_for("features") as text:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["feature", *(name for name, _ in columns)])
        writer.writerows(zip(map(text, labels), *(texts for _, texts in columns), strict=True))


def _texts(values: Any) -> list[str]:
    if values.dtype == bool:
        return ["true" if value else "false" for value in values]
    return ["" if value != value else repr(value) for value in values.tolist()]
