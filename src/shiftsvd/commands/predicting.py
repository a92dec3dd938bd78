"""What `shiftsvd estimate` says: the memory of each stage of a fit, its passes and its time."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from shiftsvd.backends.files import bytes_in_memory, counted, left_beside
from shiftsvd.backends.validation import named
from shiftsvd.commands.facts import Facts
from shiftsvd.commands.fitting import opened, settled, solver_of
from shiftsvd.commands.settings import Settings, within
from shiftsvd.commands.tables import ENTRIES
from shiftsvd.commands.writing import planned as outputs_of
from shiftsvd.front import planned
from shiftsvd.missing.gaps import Gaps
from shiftsvd.operators import Operator, repeated
from shiftsvd.runs.memory import PROGRAM, MemoryWatch, own_bytes, release
from shiftsvd.solvers import estimate
from shiftsvd.solvers.auto import asked_for

# Bytes of a number of a table while it is text or a column of Arrow, and of a name as a Python object
# (benchmarks/claims/foreseen_memory.py).
AS_TEXT: Final = 100
AS_NAME: Final = 80
# Bytes that drawing the report takes beside its packages (benchmarks/claims/foreseen_memory.py).
DRAWN: Final = 15_000_000


def estimated(given: Settings) -> Facts:
    """Predict the memory, the passes and the time of a fit.

    The data are opened as `fit` opens them, so that what they and the program hold is measured; what a fit does later
    is predicted, stage by stage. Freed memory goes back to the system between stages, so the largest one decides.
    """
    settings, hooks = settled(given)
    _check_foreseen(settings)
    paths = outputs_of(settings, hooks)
    watch = MemoryWatch()
    run = opened(settings, hooks)
    A, names, C = run.A, run.names, run.covariates
    held = bytes_in_memory((A, *names, C))
    release()
    opening, program = watch.passed(), _program(held)
    if isinstance(A, Gaps):
        with named(names.features):
            A = A.filled(repeated(A.moments().mean, A.shape[0]))
        run = replace(run, A=A)
    reads, ranking = (
        (sum(each) for each in zip(*(each.foresee(run) for each in hooks), strict=True)) if hooks else (0, 0)
    )
    B = run.taken()
    assert isinstance(B, Operator)
    k = within(settings.k, B.shape, settings.file)
    memory = left_beside(A, settings.memory)
    solver = solver_of(B, k, settings, memory)
    with counted(A):
        B = planned(B, run.steps, k, solver, settings.tol, memory)
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
    # Columns of covariates about the centre, as a basis, and copies; and the coefficients.
    regressed = 0 if C is None else 8 * C.shape[1] * (5 * B.shape[0] + 2 * B.shape[1])
    count = asked_for(B, k)
    model = (count + 6) * B.shape[1] * 8
    stages = {"opening": opening, "ranking": ranking, "fit": foreseen.peak_bytes + regressed}
    if paths:
        _import_writers(paths)
        release()
        packages = _program(held) - program
        stages["scores"] = model + packages + written_bytes(A, names, count, paths)
        stages["report"] = model + packages + DRAWN * ("report" in paths)
    seconds = foreseen.seconds_per_pass
    return {
        "file": settings.file,
        "samples": B.shape[0],
        "features": B.shape[1],
        "preprocess": list(settings.preprocess) or None,
        "solver": repr(foreseen.solver),
        "reason": foreseen.solver.reason or None,
        "peak_bytes": max(stages.values()),
        "peak_of": max(stages, key=lambda name: stages[name]),
        "held_bytes": held,
        "program_bytes": program,
        "n_passes": foreseen.n_passes + reads,
        "passes_range": [n + reads for n in foreseen.passes_range],
        "seconds_per_pass": seconds,
        "seconds": None if seconds is None or foreseen.seconds is None else foreseen.seconds + seconds * reads,
    }


def _check_foreseen(settings: Settings) -> None:
    if settings.missing == "em" and not settings.filled:
        raise click.UsageError("--missing em cannot be foreseen: it takes as many steps as the gaps ask for; give mean")
    for name in ("device", "scheduler", "workers"):
        if getattr(settings, name) is not None:
            raise click.UsageError(f"estimate is of one process on the host; leave out --{name}")


def _program(held: int) -> int:
    """What the process has for itself beside the data that it holds."""
    own = own_bytes()
    return PROGRAM if own is None else max(own - held, 0)


def _import_writers(paths: Mapping[str, Path]) -> None:
    if any(path.suffix == ".parquet" for path in paths.values()):
        import_module("pyarrow.parquet")
    if "report" in paths:
        for name in ("matplotlib.figure", "matplotlib.backends.backend_svg", "jinja2", "shiftsvd.report"):
            import_module(name)


def written_bytes(A: Operator, names: Iterable[Any], k: int, paths: Mapping[str, Path]) -> int:
    m = A.shape[0]
    if A.costs.file_bytes:
        made = A.costs.working_bytes
    else:
        made = (8 + A.dtype.itemsize) * m * k + 8 * m  # in double and as they are written; the factor of the shift
    rows = min(m, max(1, ENTRIES // k))
    text = rows * (k * AS_TEXT + AS_NAME * (next(iter(names)) is not None))
    return made + text * ("scores" in paths)
