"""`shiftsvd fit`: open, fit, write, report."""

import json
import logging
import time
import warnings
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from shiftsvd.algebra.operator import Derived
from shiftsvd.backends.blocked import Blocked
from shiftsvd.backends.device.moving import HOST, moved
from shiftsvd.backends.files import counted, left_beside
from shiftsvd.backends.validation import named
from shiftsvd.commands import writing
from shiftsvd.commands.asked import WHERE, Fit
from shiftsvd.commands.checks import within
from shiftsvd.commands.cluster import has_cluster, workers
from shiftsvd.commands.columns import label_of
from shiftsvd.commands.options import say
from shiftsvd.commands.results import Result, printed
from shiftsvd.commands.writing import Samples, advise_scale, planned, write_files, write_scores
from shiftsvd.estimators.features import feature_names_of
from shiftsvd.estimators.pca import PCA
from shiftsvd.events import listening
from shiftsvd.genetics import fitting
from shiftsvd.genetics.files import Parts, joined
from shiftsvd.genetics.fitting import Told, all_samples, opened_cohort, tell_removed
from shiftsvd.genetics.selection import Cohort
from shiftsvd.io import Names
from shiftsvd.io.opening import open_chosen, operator_of
from shiftsvd.missing.gaps import Gaps, Observed
from shiftsvd.missing.gaps.file import FileGaps
from shiftsvd.missing.gaps.opening import open_with_gaps
from shiftsvd.names import MAX_ITER, SolverName
from shiftsvd.operators import LowRank, Operator
from shiftsvd.result import Info
from shiftsvd.runs.checkpoints import checkpoint
from shiftsvd.runs.memory import Resources, release, spare
from shiftsvd.runs.messages import notice
from shiftsvd.runs.outputs import Outputs
from shiftsvd.runs.progress import progress
from shiftsvd.scanpy.commands import Known, ddof_of, known_of, look_at_values, ranked, write_features
from shiftsvd.solvers import BlockLanczos, Gram, Solver
from shiftsvd.solvers.auto import asked_for, solver_named
from shiftsvd.solvers.base import CERTIFIED
from shiftsvd.solvers.certify import certificate_bytes
from shiftsvd.solvers.probe import MISSED_TOL
from shiftsvd.transforms.chains import as_transforms
from shiftsvd.xarray.commands import cell_divisors, look_at_fields

PANEL: Final = 16  # columns of the panels that most fits multiply by, about


def opened_samples(options: Any) -> tuple[Observed, Names, Cohort | None]:
    resources = Resources(options.memory, options.threads)
    where = vars(resources) | {name: getattr(options, name) for name in (*WHERE, "choices")}
    if options.left_missing != "error":
        A, names = open_with_gaps(options.files, unobserved=options.unobserved, whole=options.missing == "em", **where)
        return A, names, None
    if options.chromosomes:
        options.choices.refuse_for("genotypes")
        cohort = opened_cohort(files_of(options), options)
        return genotypes_of(cohort.training, options), joined(cohort.parts).names, cohort
    B, names = open_chosen(files_of(options), stream=has_cluster(options.scheduler, options.workers) or None, **where)
    return spread(B, options), names, None


def tell_unless_kept(A: Observed, options: Any) -> None:
    inner: Any = A.X if isinstance(A, FileGaps) else A
    while isinstance(inner, Derived):
        inner = inner.A
    if not (isinstance(inner, Blocked) and inner.worth_keeping(PANEL)):
        notice(
            f"{options.file} is in memory, where its reads take no longer than to keep them: after a kill the fit "
            "begins again"
        )


def files_of(options: Any) -> list[Path]:
    on_cluster = has_cluster(options.scheduler, options.workers)
    return [Path(file).absolute() if on_cluster else Path(file) for file in options.files]


def genotypes_of(parts: Parts, options: Any) -> Operator:
    stream = has_cluster(options.scheduler, options.workers) or None
    A, _ = operator_of(files_of(options), joined(parts), Resources(options.memory, options.threads), stream)
    return spread(A, options)


def everybody(cohort: Cohort, pca: PCA, options: Any) -> Operator:
    return genotypes_of(all_samples(cohort, pca), options)


def spread(A: Operator, options: Any) -> Operator:
    if not has_cluster(options.scheduler, options.workers):
        return A
    from shiftsvd.backends.dask import on_workers

    return on_workers(A)


LOG = logging.getLogger("shiftsvd")
# For bounds of errors that a solver does not give by itself, where no limit is set.
ROOM = "1GB"


def run(options: Fit) -> None:
    asked, options = options, replace(options, **fitting.genotype_settings(options))
    paths = planned(options)
    outputs = Outputs(paths.values(), options.force)
    started = time.perf_counter()
    A, names, cohort = opened_samples(options)
    known = known_of(options, names, A.shape)
    look_at_values(options, A)
    look_at_fields(options, A)
    k = within(options.k, (A.shape[0], min(known.width, options.top_features or known.width)), options.file)
    colors = label_of(options, A.shape[0])
    release()
    with ExitStack() as stack:
        stack.enter_context(workers(options.scheduler, options.workers))
        stack.enter_context(named(names.features))
        listen = stack.enter_context(progress(options.progress, options.quiet))
        if options.checkpoint:
            tell_unless_kept(A, options)
            stack.enter_context(checkpoint(options.checkpoint, options.identity))
        stack.enter_context(outputs)  # ends before the checkpoint does: what cannot be written can be written later
        with listening(listen):
            with counted(A):
                if options.top_features:
                    known = ranked(known, A, names, k, options, as_transforms(options.preprocess))
                pca = fitted(A, names, k, options, known)
            advise_scale(A, names, asked)
            writing.settled_components(pca, options, outputs, paths)
            release()
            scored = A if cohort is None or cohort.learned is None else everybody(cohort, pca, options)
            drawn = write_scores(pca, Samples(scored, names, known, cohort), options, outputs, paths)
            told = Told.of(cohort, pca, A, options) if cohort is not None and isinstance(A, Operator) else None
        release()
        pca.set_params(missing=options.missing_later)
        if options.filled:
            assert cohort is not None
            pca.variants_ = cohort.left
            pca.info_ = replace(pca.info_, n_missing=fitting.n_missing_of(cohort.training))
        given = asdict(options) | {"file": options.file, "table": options.choices.told}
        result = Result.of(pca, A, feature_names_of(pca), given, paths, time.perf_counter() - started)
        if options.scale == fitting.SCALE:
            n_left_out = 0 if cohort is None else cohort.removed.get("chromosomes", 0)
            result.document["genotypes"] = fitting.genotypes_told(pca, n_left_out)
        result.document.update(known.told() if told is None else told.document())
        write_files(pca, result, outputs, paths, drawn, colors, told)
        if "features" in paths and known.ranked is not None:
            write_features(outputs.part(paths["features"]), known.ranked.found, names.features)
        writing.write_manifest(result.document, outputs, paths)
    if cohort is not None:
        tell_removed(cohort, options.quiet)
    tell(result, options)


def tell(result: Result, options: Fit) -> None:
    click.echo(json.dumps(result.document) if options.json_out else printed(result))
    if options.out:
        say(f"written: {', '.join(result.document['outputs'].values())}", options.quiet)


def fitted(A: Observed, names: Names, k: int | float, options: Fit, known: Known) -> PCA:
    memory = left_beside(A, options.memory)
    solver = solver_of(known.taken(A), k, options, memory)
    pca = PCA(
        k,
        preprocess=known.entries(as_transforms(options.preprocess)) or None,
        shift=known.shift(options.shift),
        scale=_scale(A, options),
        scale_ddof=ddof_of(options),
        solver=solver,
        tol=None if isinstance(solver, Solver) else options.tol,
        random_state=options.seed,
        missing=options.left_missing,
        n_threads=options.threads,
        memory_limit=memory,
        unobserved=options.unobserved,
        penalty="auto" if options.penalty is None else options.penalty,
        max_iter=options.max_iter or MAX_ITER,
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", CERTIFIED)  # `_judged` says it by the tolerance of the command
        pca.fit(_placed(A, options, bool(pca.preprocess)), covariates=known.C)
    if names.features is not None:
        pca.feature_names_in_ = np.asarray(names.features, object)
    if known.design is not None:
        pca.design_ = known.design
    if options.choices.given:
        pca.table_ = options.choices.learned(names.features)
    if isinstance(solver, Solver) and pca.info_.value_errors is not None:
        pca.info_ = _judged(pca.info_, float(pca.singular_values_[-1]), options.tol)
    return pca


def _scale(A: Observed, options: Fit) -> Any:
    if options.scale == fitting.SCALE:
        return fitting.divisors(A.moments().mean)
    return cell_divisors(options) if options.weights == "coslat" else options.scale


def _placed(A: Observed, options: Fit, is_changed: bool) -> Observed:
    if options.device in (None, HOST):
        return A
    if is_changed:
        raise ValueError(f"--device {options.device} needs all features as they are: give --mask none")
    try:
        return moved(A, str(options.device))
    except TypeError as error:
        raise ValueError(f"--device: {error}; more --memory may hold them") from None


def _judged(info: Info, last: float, tol: float) -> Info:
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


def solver_of(given: Observed, k: int | float, options: Fit, memory: int | str | None) -> SolverName | Solver:
    # With zeros for what is missing it costs as much.
    A = given.filled(LowRank(np.zeros(given.shape[0]), np.zeros(given.shape[1]))) if isinstance(given, Gaps) else given
    named = solver_named(options.solver, A, k, options.tol, memory)
    LOG.info("%s, %d x %d: %s; %s", options.file, *A.shape, named, named.reason or "as asked for")
    if isinstance(named, BlockLanczos | Gram):
        return options.solver
    # What is free does not matter: the same command does the same again, which it must to go on from a checkpoint.
    room = spare(certificate_bytes(A, asked_for(A, k)), memory or ROOM)
    solver = replace(named, certify=room if options.certify is None else options.certify)
    object.__setattr__(solver, "reason", named.reason)
    return solver
