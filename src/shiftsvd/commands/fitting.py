"""Run `shiftsvd fit` (open, prepare, fit, write, report) and `shiftsvd estimate` (predict the cost of a fit)."""

import logging
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np

from shiftsvd.algebra.operator import Derived
from shiftsvd.backends.blocked import Blocked
from shiftsvd.backends.device import HOST, moved
from shiftsvd.backends.device.arrays import is_out_of_memory
from shiftsvd.backends.files import bytes_in_memory, counted, left_beside
from shiftsvd.backends.validation import named
from shiftsvd.commands import mixed, writing
from shiftsvd.commands.cluster import workers
from shiftsvd.commands.facts import echo
from shiftsvd.commands.hooks import Hooks, Run, first_answer, hooks_of, with_label
from shiftsvd.commands.options import print_message
from shiftsvd.commands.settings import Settings, wanted_count
from shiftsvd.commands.tables import ENTRIES, WRITERS, Block, Table, Write, component_names
from shiftsvd.errors import plural
from shiftsvd.estimators.attributes import cosines, row_squares
from shiftsvd.estimators.supplementary import Sums
from shiftsvd.events import listening
from shiftsvd.front import check_fit, planned, within
from shiftsvd.io import Names
from shiftsvd.io.choices import JOIN
from shiftsvd.io.formats.table import is_text
from shiftsvd.io.location import Location
from shiftsvd.io.opening import open_chosen
from shiftsvd.io.sniff import format_of, formats
from shiftsvd.missing.completion import Effort, mean_rows
from shiftsvd.missing.completion import foreseen as foreseen_completion
from shiftsvd.missing.gaps import FileGaps, Gaps, Observed
from shiftsvd.missing.opening import open_with_gaps
from shiftsvd.names import MAX_ITER, SolverName
from shiftsvd.operators import LowRank, Operator
from shiftsvd.result import Info
from shiftsvd.runs.checkpoints import checkpoint, refuse_others
from shiftsvd.runs.memory import PROGRAM, MemoryWatch, own_bytes, parse_bytes, release, shown_bytes, spare
from shiftsvd.runs.messages import columns_called, notice, warn
from shiftsvd.runs.outputs import Outputs, local
from shiftsvd.runs.progress import progress
from shiftsvd.solvers import BlockLanczos, Gram, Solver, estimate
from shiftsvd.solvers.auto import solver_named
from shiftsvd.solvers.base import NOT_CERTIFIED, most_components
from shiftsvd.solvers.constants import MISSED_TOL
from shiftsvd.solvers.reading import certificate_bytes
from shiftsvd.transforms.chains import as_transforms

if TYPE_CHECKING:
    from shiftsvd.estimators.pca import PCA

LOG = logging.getLogger("shiftsvd")
ESTIMATOR: Final = "shiftsvd.estimators.pca"  # imports scikit-learn, which takes a second
# Memory for the error bounds of solvers that do not compute bounds themselves, if there is no --memory.
ROOM: Final = "1GB"
# Bytes per number while a table is text or Arrow columns, and per name as a Python object
# (benchmarks/claims/foreseen_memory.py).
AS_TEXT: Final = 100
AS_NAME: Final = 80
# Bytes allocated for drawing the report, in addition to its packages (benchmarks/claims/foreseen_memory.py).
DRAWN: Final = 15_000_000
LONG_TEXT: Final = 50_000_000  # bytes of a text that takes seconds to read (30 MB/s on one core)
PANEL: Final = 16  # typical number of columns that a fit multiplies by


def run(given: Settings) -> None:
    settings, hooks = validated(given)
    paths = writing.output_paths(settings, hooks)
    outputs = Outputs(paths.values(), settings.force)
    if settings.checkpoint:
        refuse_others(local(settings.checkpoint))
    started = time.perf_counter()
    run = opened(settings, hooks)
    A, names, settings = run.A, run.names, run.settings
    k = wanted_count(settings.k, (A.shape[0], run.width), settings.file)
    m = A.shape[0] if names.samples is None else len(names.samples)
    label = settings.label_column
    colors = None if label is None else mixed.labels_of(m, "label_column", settings, settings.choices, hooks)
    columns = mixed.supplementary_columns(settings, A.shape[0], names.samples)
    if not settings.json_out:
        click.echo(writing.first_line(settings.file, A))
    seconds = time.perf_counter() - started
    import_module(ESTIMATOR)  # messages about the data are printed before
    started = time.perf_counter() - seconds
    release()
    with ExitStack() as stack:
        stack.enter_context(workers(settings.scheduler, settings.workers))
        stack.enter_context(mixed.naming_columns(settings))
        stack.enter_context(named(names.features))
        listen = stack.enter_context(progress(settings.progress, settings.quiet))
        if settings.checkpoint:
            _notice_unless_kept(run)
            decisive = tuple(name for each in hooks for name in each.decisive)
            stack.enter_context(checkpoint(settings.checkpoint, settings.identity(decisive)))
        # Exit before the checkpoint does, which is removed at its end: a failed write must not lose the fit.
        stack.enter_context(outputs)
        with listening(listen):
            _fit_selected(run, k, hooks)
            if (advice := writing.scale_advice(A, names, given) or writing.mean_advice(run)) is not None:
                print_message(advice, settings.quiet)
            writing.leave_out_components(run, outputs, paths)
            release()
            sums = Sums(columns, run.pca.n_components_)
            with ExitStack() as more:
                writes: list[Write] = [sums.add] if columns else []
                if "contributions" in paths:
                    writes.append(more.enter_context(_contributions(run, outputs.part(paths["contributions"]))))
                rasters = writing.write_scores(run, hooks, paths, outputs, writes)
        release()
        run.pca.set_params(missing=settings.missing_later, memory_limit=settings.memory)
        result = writing.Result.of(run, hooks, paths, time.perf_counter() - started, advice)
        placed = sums.result(JOIN) if columns else None
        if placed is not None:
            mixed.write_supplementary(
                outputs.part(paths["supplementary"]), placed, component_names(run.pca.n_components_)
            )
        writing.write_files(result, hooks, paths, outputs, rasters, colors, placed)
    for each in hooks:
        each.tell(run)
    writing.print_result(settings, result.document, writing.printed(result, hooks))
    if not (settings.out or settings.json_out) and sys.stderr.isatty():  # a person reads it
        print_message(
            "Use -o FOLDER to write the scores, the components, a model for new data, and a report.", settings.quiet
        )


def _fit_selected(run: Run, k: int | float, hooks: Sequence[Hooks]) -> None:
    with counted(run.A):
        for each in hooks:
            each.select(run)
        if run.settings.mixed:
            run.scale = mixed.mixed_scale(run.A, run.names, run.settings)
        run.pca = fitted(run, k)
    for each in hooks:
        each.after_fit(run)


def validated(given: Settings) -> tuple[Settings, list[Hooks]]:
    checked = given.check()
    hooks = hooks_of(checked)
    for each in hooks:
        each.check()
    for each in hooks:
        checked = checked.changed(**each.defaults())
    if checked.scale == "none":
        checked = checked.changed(scale=None)
    checked = with_label(checked, hooks)
    for each in hooks:
        each.settings = checked
    return checked, hooks


def opened(settings: Settings, hooks: Sequence[Hooks]) -> Run:
    settings = mixed.with_categories(settings)
    with mixed.naming_columns(settings):
        A, names = first_answer(each.open() for each in hooks) or _opened(settings)
    shift = None if settings.shift == "none" else settings.shift
    steps = as_transforms(settings.preprocess)
    if settings.on_cluster and isinstance(A, Operator):
        from shiftsvd.backends.dask import on_workers

        A = on_workers(A)
    run = Run(settings, A, names, A.shape[1], steps, shift=shift, scale=settings.scale)
    for each in hooks:
        each.prepare(run)
    return run


def _opened(settings: Settings) -> tuple[Observed, Names]:
    how = vars(settings.resources) | settings.where | {"choices": settings.choices}
    if settings.left_missing != "error":
        whole = settings.missing == "em"
        return open_with_gaps(settings.paths, unobserved=settings.unobserved, whole=whole, **how)
    paths = [path.absolute() for path in settings.paths] if settings.on_cluster else settings.paths
    return open_chosen(paths, stream=settings.on_cluster or None, **how)


@contextmanager
def _contributions(run: Run, path: Path) -> Iterator[Write]:
    """Give a function that writes contributions and squared cosines of a block of scores; one pass."""
    pca, A = run.pca, run.A if run.scored is None else run.scored
    B = pca._in_units(pca._minus_shift(pca._operator(A), None, run.covariates))
    squares, unit = row_squares(B), 2.0**pca._unit
    names = component_names(pca.n_components_)
    columns = [f"{what}_{name}" for what in ("contribution", "cos2") for name in names]
    table = Table(columns, A.shape[0], np.dtype(np.float64), run.names.samples)
    with path.open("wb") as file, WRITERS[path.suffix[1:]](file, table) as write:

        def add(first: int, block: Block) -> None:
            Z = block.astype(np.float64)
            shares = cosines(Z / unit, squares[first : first + len(Z)])
            write(first, np.hstack([pca._contributions(Z), shares]))

        yield add


def _notice_unless_kept(run: Run) -> None:
    inner: Any = run.A.X if isinstance(run.A, FileGaps) else run.A
    while isinstance(inner, Derived):
        inner = inner.A
    if not (isinstance(inner, Blocked) and inner.worth_keeping(PANEL)):
        notice(
            f"--checkpoint saves nothing for {run.settings.file}, because the data are in memory and passes over them "
            "are fast. After an interruption the fit starts again from the beginning."
        )


def pca_of(run: Run, k: int | float, solver: SolverName | Solver, memory: int | str | None) -> "PCA":
    from shiftsvd.estimators.pca import PCA

    settings = run.settings
    return PCA(
        k,
        preprocess=run.steps or None,
        shift=run.shift,
        scale=run.scale,
        scale_ddof=run.scale_ddof,
        solver=solver,
        tol=None if isinstance(solver, Solver) else settings.tol,
        random_state=settings.seed,
        missing=settings.left_missing,
        n_threads=settings.threads,
        memory_limit=memory,
        unobserved=settings.unobserved,
        penalty="auto" if settings.penalty is None else settings.penalty,
        max_iter=settings.max_iter or MAX_ITER,
    )


def fitted(run: Run, k: int | float) -> "PCA":
    settings, A, names = run.settings, run.A, run.names
    memory = left_beside(A, settings.memory)
    solver = solver_of(run.taken(), k, settings, memory)
    pca = pca_of(run, k, solver, memory)
    with warnings.catch_warnings(), columns_called(names.features):
        warnings.filterwarnings("ignore", NOT_CERTIFIED)  # `_with_tolerance` warns, by the tolerance of the command
        _fit(pca, run)
    writing.with_table(pca, names, settings)
    if settings.one_hot and isinstance(A, Gaps):  # indicators of one column miss the same cells
        missing = A.shape[0] - A.moments().count[mixed.fields_of(names.features, A.shape[1], settings)]
        pca.info_ = replace(pca.info_, n_missing=int(missing.sum()))
    if isinstance(solver, Solver) and pca.info_.value_errors is not None:
        pca.info_ = _with_tolerance(pca.info_, float(pca.singular_values_[-1]), settings.tol)
    return pca


def _fit(pca: "PCA", run: Run) -> None:
    settings = run.settings
    try:
        pca.fit(_on_device(run.A, settings, bool(run.steps)), covariates=run.covariates)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        full = f"The memory of {settings.device} is too small for this fit."
        if not settings.cpu_if_full:
            raise ValueError(f"{full} Use --device cpu.") from error
    else:
        return
    warn(f"{full} The fit runs on the CPU instead.")
    pca.fit(run.A, covariates=run.covariates)


def _on_device(A: Observed, settings: Settings, is_changed: bool) -> Observed:
    if settings.device in (None, HOST):
        return A
    if is_changed:
        raise ValueError(
            f"--device {settings.device} cannot select or transform features. Add --mask none to use all features."
        )
    try:
        return moved(A, str(settings.device))
    except TypeError as error:
        raise ValueError(f"--device: {error} A larger --memory may also keep the data in memory.") from None


def _with_tolerance(info: Info, last: float, tol: float) -> Info:
    assert info.value_errors is not None
    late = int(np.sum(~(info.value_errors <= tol)))
    # The solver already compared missed_below with its own tolerance, which may be smaller; MISSED_TOL is the floor.
    complete = bool(info.converged) or (
        info.missed_below is not None and info.missed_below <= last * (1 + max(tol, MISSED_TOL))
    )
    if late:
        warnings.warn(
            f"{late:,} of {plural(len(info.value_errors), 'singular value')} may have a relative error above {tol:g} "
            "(--tol). The column 'error' has the bounds. Raise --tol, or use another --solver.",
            stacklevel=3,
        )
    elif not complete:
        warnings.warn(
            'The fit may have missed a singular value larger than the last one ("missed_below" in result.json bounds '
            "missed values). Use --solver lanczos, which rules this out.",
            stacklevel=3,
        )
    return replace(info, converged=not late and complete and info.completed is not False)


def solver_of(given: Observed, k: int | float, settings: Settings, memory: int | str | None) -> SolverName | Solver:
    # Zeros in place of missing entries cost as much as any other values.
    A = given.filled(LowRank(np.zeros(given.shape[0]), np.zeros(given.shape[1]))) if isinstance(given, Gaps) else given
    named = solver_named(settings.solver, A, k, settings.tol, memory)
    LOG.info("%s: the solver is %s (%s).", settings.file, named, named.reason or "chosen by --solver")
    if isinstance(named, BlockLanczos | Gram):
        return settings.solver
    # Do not ask how much memory is free: a repeated command must make the same choice, to continue from a checkpoint.
    room = spare(certificate_bytes(A, most_components(A, k)), memory or ROOM)
    solver = replace(named, certify=room if settings.certify is None else settings.certify)
    object.__setattr__(solver, "reason", named.reason)
    return solver


# Estimates


def estimated(wanted: Settings) -> None:
    # Open the data as `fit` does, and measure the memory of data and program. Predict the later stages of a fit one by
    # one. Freed memory returns to the system between stages, so the peak is that of the largest stage.
    settings, hooks = validated(wanted)
    for name in ("device", "scheduler", "workers"):
        if getattr(settings, name) is not None:
            raise click.UsageError(f"`estimate` predicts a fit in one process on the CPU. Remove --{name}.")
    paths = writing.output_paths(settings, hooks)
    import_module(ESTIMATOR)  # part of the program, not of the data
    _tell_of_text(settings)
    watch, started = MemoryWatch(), time.perf_counter()
    run = given = opened(settings, hooks)
    to_open = time.perf_counter() - started
    A, names, C = run.A, run.names, run.covariates
    held = bytes_in_memory((A, *names, C))
    release()
    opening, program = watch.passed(), _program(held)
    completion: Effort | None = None
    if isinstance(A, Gaps):
        if settings.missing == "em":
            mean = np.nan_to_num(A.observed_moments(np.ones(A.shape[0])).mean)  # 0 in columns without values
            rank = int(wanted_count(settings.k, A.shape, settings.file))
            penalty = "auto" if settings.penalty is None else settings.penalty
            completion = foreseen_completion(A, rank, penalty, settings.max_iter or MAX_ITER)
        else:
            with named(names.features):
                mean = A.moments().mean
        A = mean_rows(A, mean)  # products with the completed matrix cost as much
        run = replace(given, A=A)
    B = run.taken()
    assert isinstance(B, Operator)
    k = wanted_count(settings.k, B.shape, settings.file)
    memory = left_beside(A, settings.memory)
    solver = solver_of(B, k, settings, memory)
    # Hooks compute some scales while a fit selects features.
    asked = pca_of(replace(given, scale=None), k, solver, memory)._asked(given.A, covariates=C)
    check_fit(asked.preparation, given.A.shape[1], k, solver, settings.left_missing)
    with counted(A):
        predicted = [each.foresee(run) for each in hooks]
        B = planned(B, run.steps, k, solver, settings.tol, memory)
        within(memory, B, k, solver, settings.tol)
    reads, ranking = (sum(each) for each in zip((0, 0), *predicted, strict=True))
    reads += settings.mixed  # for the scale
    foreseen = estimate(
        B,
        k,
        solver,
        tol=settings.tol,
        probe=True,
        preprocess=settings.preprocess,
        shift=None if settings.shift == "none" else "mean",
        memory_limit=memory,
    )
    # Covariates: the centred columns, their basis and copies (5 m per covariate); coefficients (2 n per covariate).
    regressed = 0 if C is None else 8 * C.shape[1] * (5 * B.shape[0] + 2 * B.shape[1])
    count = most_components(B, k)
    model = (count + 6) * B.shape[1] * 8
    stages = {"opening": opening, "ranking": ranking, "fit": foreseen.peak_bytes + regressed}
    if completion is not None:
        stages["completion"] = completion.peak_bytes
    if paths:
        _import_writers(paths)
        release()
        packages = _program(held) - program
        beside = 8 * A.shape[0] * (2 * len(settings.supplementary) + settings.contributions)
        stages["scores"] = model + packages + beside + written_bytes(A, names.samples is not None, count, paths)
        stages["report"] = model + packages + DRAWN * ("report" in paths)
    n_passes = foreseen.n_passes + reads
    assert foreseen.seconds is not None
    assert foreseen.seconds_per_pass is not None
    of_passes = foreseen.seconds + foreseen.seconds_per_pass * reads
    moved = _moved(settings, A, held, n_passes)
    facts = {
        "file": settings.file,
        **moved,
        "samples": B.shape[0],
        "features": B.shape[1],
        "preprocess": list(settings.preprocess) or None,
        "solver": repr(foreseen.solver),
        "reason": foreseen.solver.reason or None,
        "peak_bytes": max(stages.values()),
        "peak_of": max(stages, key=lambda name: stages[name]),
        "held_bytes": held,
        "program_bytes": program,
        "total_bytes": max(stages.values()) + held + program,
        "n_passes": n_passes,
        "passes_range": [n + reads for n in foreseen.passes_range],
        "seconds_to_open": to_open,
        "seconds_per_pass": of_passes / n_passes,
        "seconds": to_open + of_passes,
        **({} if completion is None else completion.facts),
    }
    echo(facts, settings.json_out)


def _tell_of_text(settings: Settings) -> None:
    files = [path for path in settings.paths if not isinstance(path, Location) and path.is_file()]
    texts = [path for path in files if formats()[format_of(path, settings.format)].is_table and is_text(path)]
    if (n_bytes := sum(path.stat().st_size for path in texts)) >= LONG_TEXT:
        print_message(f"Reading {shown_bytes(n_bytes)} of text, as the fit does.", settings.quiet)


def _moved(settings: Settings, A: Operator, held: int, n_passes: int) -> dict[str, int]:
    sizes = [path.n_bytes for path in settings.paths if isinstance(path, Location)]
    if not sizes:
        return {}
    again = A.costs.file_bytes  # 0 if the data are in memory
    known = [size for size in sizes if size is not None]
    once = min(sum(known), again or held) if len(known) == len(sizes) else again or held
    # Copies are smaller than blocks.
    kept = parse_bytes(settings.cache_size or again) if settings.cache and again else 0
    later = (n_passes - 1) * max(0, again - kept) / again if again else 0
    return {"moved_bytes": int(once * (1 + later))}


def _program(held: int) -> int:
    own = own_bytes()
    return PROGRAM if own is None else max(own - held, 0)


def _import_writers(paths: Mapping[str, Path]) -> None:
    if any(path.suffix == ".parquet" for path in paths.values()):
        import_module("pyarrow.parquet")
    if "report" in paths:
        for name in ("matplotlib.figure", "matplotlib.backends.backend_svg", "jinja2", "shiftsvd.report"):
            import_module(name)


def written_bytes(A: Operator, named_rows: bool, k: int, paths: Mapping[str, Path]) -> int:
    m = A.shape[0]
    if A.costs.file_bytes:
        made = A.costs.working_bytes
    else:
        made = (8 + A.dtype.itemsize) * m * k + 8 * m  # scores in double, as written; the left factor of the shift
    rows = min(m, max(1, ENTRIES // k))
    text = rows * (k * AS_TEXT + AS_NAME * named_rows)
    return made + text * ("scores" in paths)
