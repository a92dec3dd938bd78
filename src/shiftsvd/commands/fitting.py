"""What `shiftsvd fit` does: open, fit, write everything in one more read of the data, say how it went."""

import json
import logging
import time
import warnings
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np

from shiftsvd.commands import genotypes
from shiftsvd.commands.cells import Known, ddof_of, known_of, place_of
from shiftsvd.commands.cluster import asked_for, workers
from shiftsvd.commands.options import say, typed, within
from shiftsvd.commands.ranking import OUTPUT, ranked, write_features
from shiftsvd.commands.results import Result, component_table, printed, variance_table
from shiftsvd.commands.tables import FORMATS, Table, format_named, write_rows
from shiftsvd.estimators.labels import feature_names_of
from shiftsvd.estimators.pca import PCA
from shiftsvd.events import listening
from shiftsvd.genetics.several import joined
from shiftsvd.io import Names, open_matrix
from shiftsvd.io.opening import operator_of
from shiftsvd.io.stacking import several
from shiftsvd.missing.gaps import Gaps, Observed
from shiftsvd.missing.gaps.opening import open_with_gaps
from shiftsvd.names import MAX_ITER, MissingName, ScaleName, SolverName
from shiftsvd.operators import LowRank
from shiftsvd.result import Info
from shiftsvd.runs.checkpoints import checkpoint
from shiftsvd.runs.memory import Resources, spare
from shiftsvd.runs.outputs import Outputs
from shiftsvd.runs.progress import progress
from shiftsvd.solvers import BlockLanczos, Gram, Solver
from shiftsvd.solvers.auto import solver_named
from shiftsvd.solvers.base import CERTIFIED
from shiftsvd.solvers.probe import MISSED_TOL
from shiftsvd.transforms.named import as_transforms

LOG = logging.getLogger("shiftsvd")
# What says which matrix of which files is meant.
WHERE = ("stack", "format", "key", "orient", "feature_types", "join")
# For bounds of errors that a solver does not give by itself, where no limit is set.
ROOM = "1GB"


@dataclass(frozen=True)
class Fit:
    """The options of the command, as they were given."""

    files: tuple[str, ...]
    stack: Any
    k: int | float | None
    out: str | None
    format: str | None
    key: str | None
    orient: Any
    preprocess: tuple[str, ...]
    shift: str
    scale: ScaleName | Literal["patterson"] | None
    missing: MissingName
    unobserved: bool
    solver: SolverName
    tol: float
    certify: bool | None
    seed: int
    threads: int | None
    memory: str | None
    scheduler: str | None
    workers: int | None
    dtype: str | None
    checkpoint: str | None
    scores: str | None
    anndata: bool
    report: bool | None
    json_out: bool
    progress: str
    force: bool
    quiet: bool
    verbose: int
    chromosomes: str | None = None
    filled: bool = False  # whether the reader of the file leaves nothing missing
    penalty: float | Literal["auto"] | None = None
    max_iter: int | None = None
    mask: str | None = None
    top_features: int | None = None
    flavor: Any = None
    batch: str | None = None
    covariates: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    feature_types: tuple[str, ...] | None = None
    join: Any = None

    @property
    def file(self) -> str:
        """What the files are called."""
        return several([Path(file) for file in self.files])

    @property
    def left_missing(self) -> MissingName:
        """What is to be done with missing entries that the reader leaves."""
        return "error" if self.filled else self.missing

    @property
    def missing_later(self) -> MissingName:
        """What the model does with missing entries of other samples: a mean is known where it is subtracted."""
        return self.missing if self.shift == "mean" else self.left_missing

    @property
    def identity(self) -> str:
        """What tells this run from others: all that its numbers depend on."""
        data = (*WHERE, "files", "chromosomes", "missing", "unobserved", "memory", "mask", "covariates", "groups")
        chosen = ("top_features", "flavor", "batch", "preprocess", "penalty", "max_iter", "k")
        ours = (*data, *chosen, "shift", "scale", "solver", "tol", "certify", "seed")
        return json.dumps({name: value for name, value in asdict(self).items() if name in ours})


def run(options: Fit) -> None:
    """Fit, and print or write the result."""
    options = replace(options, **genotypes.settled(options))
    paths = planned(options)
    outputs = Outputs(paths.values(), options.force)
    started = time.perf_counter()
    A, names = opened_samples(options)
    known = known_of(options, names, A.shape)
    k = within(options.k, (A.shape[0], min(known.width, options.top_features or known.width)), options.file)
    with ExitStack() as stack:
        stack.enter_context(workers(options.scheduler, options.workers))
        listen = stack.enter_context(progress("never" if options.quiet else options.progress))
        if options.checkpoint:
            stack.enter_context(checkpoint(options.checkpoint, options.identity))
        stack.enter_context(outputs)  # ends before the checkpoint does: what cannot be written can be written later
        with listening(listen):
            if options.top_features:
                known = ranked(known, A, names, options, as_transforms(options.preprocess))
            pca = fitted(A, names, k, options, known)
            raster = write_scores(pca, A, names, options, outputs, paths, known)
        pca.set_params(missing=options.missing_later)
        if options.filled:
            pca.info_ = replace(pca.info_, n_missing=genotypes.n_missing_of(options))
        given, seconds = asdict(options) | {"file": options.file}, time.perf_counter() - started
        result = Result.of(pca, A, feature_names_of(pca), given, paths, seconds)
        n_left_out = genotypes.n_left_out(options, A.shape[1])
        if options.scale == genotypes.SCALE:
            result.document["genotypes"] = genotypes.told(pca, n_left_out)
        result.document.update(known.told())
        write_files(pca, result, outputs, paths, raster)
        if "features" in paths and known.ranked is not None:
            write_features(outputs.part(paths["features"]), known.ranked.found, names.features)
    if n_left_out:
        say(f"{n_left_out:,} variants that are not on autosomes left out; --chromosomes all keeps them", options.quiet)
    tell(result, options)


def opened_samples(options: Fit) -> tuple[Observed, Names]:
    """The matrix and its names; for a cluster, one whose blocks the workers read from the path."""
    resources = Resources(options.memory, options.threads)
    where = vars(resources) | {name: getattr(options, name) for name in WHERE}
    if options.left_missing != "error":
        return open_with_gaps(options.files, unobserved=options.unobserved, whole=options.missing == "em", **where)
    on_cluster = asked_for(options.scheduler, options.workers)
    files, stream = [Path(file) for file in options.files], on_cluster or None
    files = [file.absolute() for file in files] if on_cluster else files
    if options.chromosomes:
        parts = genotypes.of_choice(files, options.chromosomes, options.key, options.memory)
        A, names = operator_of(files, joined(parts), resources, stream)
    else:
        A, names = open_matrix(files, stream=stream, **where)
    if not on_cluster:
        return A, names
    from shiftsvd.backends.dask.file import on_workers

    return on_workers(A), names


def tell(result: Result, options: Fit) -> None:
    """The result on stdout, and on stderr where the files are."""
    click.echo(json.dumps(result.document) if options.json_out else printed(result))
    if options.out:
        say(f"written: {', '.join(result.document['outputs'].values())}", options.quiet)


def planned(options: Fit) -> dict[str, Path]:
    """Name and path of every output; whether the packages for it are there is found out now."""
    if options.out is None:
        return {}
    files = {"model": "model.safetensors"}
    kind = options.scores or ("csv" if find_spec("pyarrow") is None else "parquet")
    if kind in FORMATS:
        format_named(kind)
        files["scores"] = f"scores.{kind}"
    files |= {"components": "components.csv", "variances": "variances.csv", "result": "result.json"}
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
    _tell_of_others(Path(options.out), set(files.values()))
    return {name: Path(options.out) / file for name, file in files.items()} | genotypes.planned(options)


def _tell_of_others(folder: Path, planned: set[str]) -> None:
    """Outputs of an earlier run that this one does not replace would pass for its own."""
    ours = {f"scores.{kind}" for kind in FORMATS} | {"report.html", "fit.h5ad", OUTPUT}
    others = sorted(name for name in ours - planned if (folder / name).exists())
    if others:
        warnings.warn(f"{folder} keeps {', '.join(others)} of an earlier run", stacklevel=2)


def fitted(A: Observed, names: Names, k: int | float, options: Fit, known: Known) -> PCA:
    """The components, with bounds of their errors."""
    solver = _solver(known.taken(A), k, options)
    pca = PCA(
        k,
        preprocess=known.entries(as_transforms(options.preprocess)) or None,
        shift=known.shift(options.shift),
        scale=genotypes.divisors(A.moments().mean) if options.scale == genotypes.SCALE else options.scale,
        scale_ddof=ddof_of(options),
        solver=solver,
        tol=None if isinstance(solver, Solver) else options.tol,
        random_state=options.seed,
        missing=options.left_missing,
        n_threads=options.threads,
        memory_limit=options.memory,
        unobserved=options.unobserved,
        penalty="auto" if options.penalty is None else options.penalty,
        max_iter=options.max_iter or MAX_ITER,
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", CERTIFIED)  # `_judged` says it by the tolerance of the command
        pca.fit(A, covariates=known.C)
    if names.features is not None:
        pca.feature_names_in_ = np.asarray(names.features, object)
    if known.design is not None:
        pca.design_ = known.design
    if isinstance(solver, Solver) and pca.info_.value_errors is not None:
        pca.info_ = _judged(pca.info_, float(pca.singular_values_[-1]), options.tol)
    return pca


def _judged(info: Info, last: float, tol: float) -> Info:
    """The account of a fit by a solver that knows no tolerance, with what did not converge by this one."""
    assert info.value_errors is not None
    late = int(np.sum(~(info.value_errors <= tol)))
    # By a smaller tolerance it was judged already, and the level has a floor of its own.
    complete = bool(info.converged) or (
        info.missed_below is not None and info.missed_below <= last * (1 + max(tol, MISSED_TOL))
    )
    if late:
        warnings.warn(f"{late} components are not certain to {tol:g}: see value_errors", stacklevel=3)
    elif not complete:
        warnings.warn("values above the last one may have been missed: see missed_below", stacklevel=3)
    return replace(info, converged=not late and complete and info.completed is not False)


def _solver(given: Observed, k: int | float, options: Fit) -> SolverName | Solver:
    """The name of a solver that bounds its errors; else the solver, told to do so if wished or if there is room."""
    # With zeros for what is missing it costs as much.
    A = given.filled(LowRank(np.zeros(given.shape[0]), np.zeros(given.shape[1]))) if isinstance(given, Gaps) else given
    named = solver_named(options.solver, A, k, options.tol)
    LOG.info("%s, %d x %d: %s; %s", options.file, *A.shape, named, named.reason or "as asked for")
    if isinstance(named, BlockLanczos | Gram):
        return options.solver
    # Both factors and their products are held for that, in double precision: half of the limit at most. What is free
    # does not matter: the same command does the same again, which it must to go on from a checkpoint.
    count = k if isinstance(k, int) else min(A.shape)
    room = spare(6 * 8 * count * sum(A.shape), options.memory or ROOM)
    return replace(named, certify=room if options.certify is None else options.certify)


def write_scores(
    pca: PCA, A: Observed, names: Names, options: Fit, outputs: Outputs, paths: dict[str, Path], known: Known
) -> Any:
    """Scores to every file that wants them, in one read, block by block; what the report draws of them."""
    table = Table(component_names(pca), A.shape[0], np.dtype(options.dtype or A.dtype), names.samples)
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
            writes.append(
                stack.enter_context(genotypes.vectors(outputs.part(paths["eigenvec"]), options.files[0], pca))
            )
        raster = score_raster(pca) if "report" in paths else None
        if raster is not None:
            writes.append(lambda first, block: raster.add(block))
        if writes:
            write_rows(pca.iter_scores(A, covariates=known.C), writes)
    return raster


def component_names(pca: PCA) -> list[str]:
    """PC1, PC2, ..."""
    return [f"PC{j + 1}" for j in range(pca.n_components_)]


def score_raster(pca: PCA) -> Any:
    """What a report draws of the scores, however many they are; None where there is no second component."""
    from shiftsvd.plot.raster import ScoreRaster

    return ScoreRaster.of(pca, rng=0) if pca.n_components_ > 1 else None


def write_files(pca: PCA, result: Result, outputs: Outputs, paths: dict[str, Path], raster: Any) -> None:
    """Everything but the scores."""
    if not paths:
        return
    pca.save(outputs.part(paths["model"]), source=", ".join(result.document.get("files", [result.document["file"]])))
    component_table(outputs.part(paths["components"]), pca, result)
    variance_table(outputs.part(paths["variances"]), result)
    if "eigenval" in paths:
        genotypes.values(outputs.part(paths["eigenval"]), pca)
    outputs.part(paths["result"]).write_text(json.dumps(result.document, indent=1) + "\n", encoding="utf-8")
    if "report" in paths:
        from shiftsvd import report

        report.write(
            outputs.part(paths["report"]),
            pca,
            scores=raster,
            source=result.source,
            command=typed(),
            names=result.features,
            seconds=result.document["seconds"],
            peak_bytes=result.document["peak_bytes"],
        )
