"""--top-features: those that vary most are found before a fit, and are what it takes; what is told of them."""

import csv
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from shiftsvd.backends.columns import some_columns
from shiftsvd.backends.grouped import group_bytes
from shiftsvd.backends.holding import left_beside
from shiftsvd.commands.cells import Known, place_of
from shiftsvd.commands.checks import check_choice
from shiftsvd.commands.spreadsheet import texts_for
from shiftsvd.events import passes_so_far
from shiftsvd.features.batches import Batches
from shiftsvd.features.ranking import HighlyVariable, Ranking, rank
from shiftsvd.io.base import Names
from shiftsvd.io.annotations import of_samples
from shiftsvd.missing.gaps import Observed
from shiftsvd.names import FlavorName
from shiftsvd.operators import Operator
from shiftsvd.runs.memory import affordable
from shiftsvd.solvers.auto import asked_for, solver_named
from shiftsvd.transforms.base import Transform
from shiftsvd.transforms.named import as_transforms
from shiftsvd.transforms.residuals import NullModel

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
