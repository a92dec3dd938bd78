"""Single cells in `fit` and `transform`: columns of obs and var, and highly variable features."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from shiftsvd import Covariates, Operator
from shiftsvd.extend.commands import (
    Hooks,
    Run,
    Settings,
    Table,
    Write,
    need_folder,
    option_of,
    refuse_beside_device,
    texts_for,
)
from shiftsvd.extend.files import Column, Labels, Names, Places, format_of, left_beside, several, some_columns
from shiftsvd.extend.fits import BatchPCA, Design, Observed, asked_for, solver_named
from shiftsvd.extend.operators import Panel, group_bytes
from shiftsvd.extend.running import Refused, Setting, affordable, notice, passes_so_far
from shiftsvd.extend.transforms import NullModel, as_transforms, warn_of_counts, warn_unless_counts
from shiftsvd.scanpy.annotations import Disagreement, Place, of_features, of_samples
from shiftsvd.scanpy.extension import FlavorName
from shiftsvd.scanpy.outputs import annotated
from shiftsvd.scanpy.ranking import Batches, HighlyVariable, Ranking, rank
from shiftsvd.scanpy.stored import booleans, with_selection
from shiftsvd.transforms import Transform

HIGHLY: Final = "highly_variable"  # the column of var that is used where no mask is named, as in scanpy
OF_CELLS: Final = ("h5ad", "zarr", "10x", "10x-h5")  # formats of files that scanpy reads
NONE: Final = "none"  # of --mask: all features
MAX_ABSENT: Final = 0.1  # the share of the features in sums of rows that other samples may lack
OUTPUT: Final = "features.csv"


class CellHooks(Hooks):
    """Single cells: features by a column of var or by their variability, columns of obs that are regressed out."""

    recorded = decisive = ("mask", "top_features", "flavor", "batch", "covariates", "groups")
    files = ("fit.h5ad", OUTPUT)

    mask: str | None = None
    design: Design | None = None
    found: Ranking | None = None

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.lines: list[str] = []  # of the summary

    @cached_property
    def place(self) -> Place:
        """Where columns are looked up: the files, as they are opened."""
        settings = self.settings
        where = {name: value for name, value in settings.where.items() if name != "join"}
        return Place(settings.paths, **where, memory_limit=settings.memory)

    @cached_property
    def of_cells(self) -> bool:
        """Whether the files are of formats that scanpy reads."""
        paths = [path for path in self.settings.paths if str(path) != "-"]
        return len(paths) > 0 and all(format_of(path, self.settings.format) in OF_CELLS for path in paths)

    # fit and estimate

    def check(self) -> None:
        settings, extra = self.settings, self.settings.extra
        regressed = extra["covariates"] or extra["groups"]
        if settings.out is None:
            need_folder("anndata", extra["anndata"])
        if regressed and settings.shift == "none":
            raise click.UsageError("--covariates and --groups subtract means, too: leave out --shift none")
        if (regressed or extra["mask"] not in (None, NONE)) and settings.missing != "error":
            raise click.UsageError("--mask, --covariates and --groups need data without gaps; leave out --missing")
        if settings.device not in (None, "cpu") and extra["top_features"] is not None:
            refuse_beside_device(str(settings.device), [option_of("top_features")])
        if extra["top_features"] is not None:
            self._check_ranking(settings)
        elif others := [f"--{name}" for name in ("flavor", "batch") if extra[name] is not None]:
            raise click.UsageError(f"{' and '.join(others)} chooses among features: give --top-features NUMBER")

    def _check_ranking(self, settings: Settings) -> None:
        if settings.extra["mask"] not in (None, NONE):
            raise click.UsageError("--mask and --top-features both choose features: give one of them")
        if settings.missing != "error":
            raise click.UsageError("--top-features needs data without gaps; leave out --missing")
        try:
            asked, steps = self._asked()
            asked.check_steps(steps)
        except ValueError as error:
            raise click.UsageError(f"--flavor: {error}") from None

    def _asked(self) -> tuple[HighlyVariable, tuple[Transform, ...]]:
        extra, steps = self.settings.extra, as_transforms(self.settings.preprocess)
        usual: FlavorName = "pearson_residuals" if any(isinstance(each, NullModel) for each in steps) else "seurat"
        asked = HighlyVariable(extra["top_features"], extra["flavor"] or usual)
        return asked, steps if asked.of_logarithms else ()

    def outputs(self) -> Mapping[str, str | Path]:
        extra = self.settings.extra
        if extra["anndata"] and find_spec("h5py") is None:
            raise ValueError("--anndata needs h5py: pip install 'shiftsvd[hdf5]'")
        ranked = {"features": OUTPUT} if extra["top_features"] else {}
        return ranked | ({"anndata": "fit.h5ad"} if extra["anndata"] else {})

    def labels_beside(self) -> bool:
        kinds = (format_of(path, self.settings.format) for path in self.settings.paths)
        return all(kind in ("h5ad", "zarr") for kind in kinds)

    def labels(self, column: str) -> Sequence[str] | None:
        if not self.labels_beside():
            return None
        values = of_samples(self.place, column).tolist()  # cells without a label are those of nobody
        return ["" if value is None or value != value else str(value) for value in values]

    def prepare(self, run: Run) -> None:
        settings, extra = self.settings, self.settings.extra
        m, n = run.A.shape
        if settings.filled:
            return
        top = extra["top_features"]
        self.mask, places = self._masked(NONE if top else extra["mask"], run.names.features, n)
        column = partial(of_samples, self.place)
        if extra["covariates"] or extra["groups"]:
            self.design = Design.learn(extra["covariates"] or (), extra["groups"] or (), column)
            run.covariates, run.shift = self.design.of(column), Covariates()
            if len(run.covariates) != m:
                name = self.design.names[0]
                raise ValueError(f"{settings.file}: {m} samples, but {len(run.covariates)} values of {name!r}")
            run.document["regressed_out"] = {"columns": list(self.design.names), "regressors": self.design.width}
            self.lines.append(f"less what {', '.join(self.design.names)} explain")
        if places is not None:
            self._take(run, places, {"mask": self.mask, "taken": len(places), "of": n}, f"by {self.mask}")
        run.width = min(run.width, top or run.width)
        run.scale_ddof = int(self.of_cells)
        if self.of_cells and isinstance(run.A, Operator):
            if how := as_transforms(settings.preprocess):
                warn_unless_counts(how, run.A, self.place.logged)
            else:
                warn_of_counts(run.A, "Components of cells are usually of logarithms: give --preprocess log-normalize.")

    def _take(self, run: Run, places: Places, told: dict[str, Any], how: str) -> None:
        counts = f"{len(places):,} of {run.A.shape[1]:,}"
        run.places, run.width, run.steps = places, len(places), with_selection(run.steps, places)
        run.features, run.document["features"] = f"{counts}, {how}", told
        self.lines.insert(0, f"{counts} features, {how}")

    def _masked(self, name: str | None, features: Labels | None, n: int) -> tuple[str | None, Places | None]:
        if name == NONE or (name is None and not self._by_default()):
            return None, None
        values, names = of_features(self.place, name or HIGHLY)
        values = _in_order(values, names, features, n, several(self.place.paths))
        places = np.flatnonzero(booleans(values, n, f"the column {name or HIGHLY!r}"))
        if name is None:
            notice(f"{len(places)} of {n} features taken, those of {HIGHLY!r}, as scanpy does; --mask none takes all")
        return name or HIGHLY, places

    def _by_default(self) -> bool:
        """Use `var["highly_variable"]` by default; say so where it exists but is ignored."""
        place = self.place
        have = [HIGHLY in place.columns(path, "features") for path in place.paths]
        if not any(have):
            return False
        why = f"is in {sum(have)} of {len(have)} files" if not all(have) else None
        with_gaps = self.settings.left_missing != "error"
        why = why or ("is not used beside missing entries" if with_gaps else _differs(place))
        if why:
            notice(f"{several(place.paths)}: {HIGHLY!r} {why}: all features are taken")
        return why is None

    def select(self, run: Run) -> None:
        settings, column = self.settings, self.settings.extra["batch"]
        if not settings.extra["top_features"]:
            return
        # As many features as there will be, whichever: memory that a fit of them lacks is refused before the ranking.
        A, some = run.A, run.taken()
        assert isinstance(A, Operator)
        assert isinstance(some, Operator)
        memory = left_beside(A, settings.memory)
        k = settings.k if settings.k is not None else min(some.shape)
        solver = solver_named(settings.solver, some, k, settings.tol, memory)
        what = f"finding components of {some.shape[1]} features"
        affordable(solver.peak_bytes(some, asked_for(some, k)), memory, what)
        asked, steps = self._asked()
        batches = Batches.of(None if column is None else of_samples(self.place, column), A.shape[0])
        before = passes_so_far() or 0.0
        self.found = rank(A, asked, steps, batches, run.names.features, memory_limit=memory)
        places, reads = np.flatnonzero(self.found.mask), round((passes_so_far() or 0.0) - before, 2)
        told = {"flavor": asked.flavor, "asked": asked.n_top, "taken": len(places), "of": A.shape[1]}
        told |= {} if column is None else {"batch": column, "batches": batches.n}
        each = "" if column is None else f" in each {column}"
        self._take(run, places, told | {"reads": reads}, f"by flavor {asked.flavor}{each}, in {reads:g} reads")

    def foresee(self, run: Run) -> tuple[float, int]:
        if not self.settings.extra["top_features"]:
            return 0, 0
        assert isinstance(run.A, Operator)
        return 2, group_bytes(run.A, 1, 2)  # margins and moments, or moments twice

    def after_fit(self, run: Run) -> None:
        if self.design is not None:
            run.pca.design_ = self.design

    def writers(
        self, run: Run, table: Table, paths: Mapping[str, Path], outputs: Any
    ) -> Iterable[AbstractContextManager[Write]]:
        if "anndata" in paths:
            yield annotated(outputs.part(paths["anndata"]), table, run.pca, run.names, self.place, self.mask)

    def write(self, run: Run, paths: Mapping[str, Path], outputs: Any) -> None:
        if "features" in paths and self.found is not None:
            _write_features(outputs.part(paths["features"]), self.found, run.names.features)

    def summary(self, document: Mapping[str, Any]) -> Iterator[str]:
        yield from self.lines

    # transform

    def refine(self, pca: BatchPCA, A: Observed, names: Names) -> tuple[Observed, Names]:
        steps, features, file = getattr(pca, "preprocess_", ()), names.features, self.settings.file
        if steps and isinstance(A, Operator):
            warn_unless_counts([each.how for each in steps], A, self.place.logged)
        known = getattr(pca, "feature_names_in_", None)
        if known is None or features is None or not any(each.selects for each in steps):
            return A, names
        there = {str(name) for name in known}
        is_known = np.array([str(name) in there for name in features])
        left, absent = np.count_nonzero(~is_known), len(there.difference(map(str, features)))
        most = MAX_ABSENT if self.settings.max_absent is None else self.settings.max_absent
        if absent > most * len(there):
            raise Refused(
                f"{file}: {absent} of {len(there)} features of the model are absent, more than ",
                *(Setting("max_absent"), " lets be; fit on those of both"),
            )
        if left or absent:
            notice(f"{file}: {left} features that the model does not know left out, {absent} of {len(there)} absent")
        assert isinstance(A, Operator)
        places = np.flatnonzero(is_known)
        return (some_columns(A, places) if left else A), names._replace(features=features[places])

    def covariates(self, pca: BatchPCA) -> Panel | None:
        design = getattr(pca, "design_", None)
        return None if design is None else design.of(partial(of_samples, self.place))


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


def _write_features(path: Path, found: Ranking, names: Any) -> None:
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
