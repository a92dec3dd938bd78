"""What `shiftsvd estimate` says: the memory of each stage of a fit, its passes and its time."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from shiftsvd.backends.columns import some_columns
from shiftsvd.backends.files import bytes_in_memory, counted, left_beside
from shiftsvd.backends.validation import named
from shiftsvd.commands.asked import Fit
from shiftsvd.commands.checks import within
from shiftsvd.commands.facts import Facts
from shiftsvd.commands.fitting import opened_samples, solver_of
from shiftsvd.commands.tables import ENTRIES
from shiftsvd.commands.writing import planned as outputs_of
from shiftsvd.front import planned
from shiftsvd.genetics import fitting
from shiftsvd.missing.gaps import Gaps
from shiftsvd.operators import Operator, repeated
from shiftsvd.runs.memory import PROGRAM, MemoryWatch, own_bytes, release
from shiftsvd.scanpy.commands import Known, foreseen_ranking, known_of
from shiftsvd.solvers import estimate
from shiftsvd.solvers.auto import asked_for
from shiftsvd.transforms.chains import as_transforms

# Bytes of a number of a table while it is text or a column of Arrow, and of a name as a Python object
# (benchmarks/claims/foreseen_memory.py).
AS_TEXT: Final = 100
AS_NAME: Final = 80
# Bytes that drawing the report takes beside its packages (benchmarks/claims/foreseen_memory.py).
DRAWN: Final = 15_000_000


def estimated(given: Fit) -> Facts:
    """Predict the memory, the passes and the time of a fit.

    The data are opened as `fit` opens them, so that what they and the program hold is measured; what a fit does later
    is predicted, stage by stage. Freed memory goes back to the system between stages, so the largest one decides.
    """
    options = replace(given, **fitting.genotype_settings(given))
    paths = outputs_of(options)
    watch = MemoryWatch()
    A, names, _ = opened_samples(options)
    known = known_of(options, names, A.shape)
    held = bytes_in_memory((A, *names, known.C))
    release()
    opening, program = watch.passed(), _program(held)
    if isinstance(A, Gaps):
        with named(names.features):
            A = A.filled(repeated(A.moments().mean, A.shape[0]))
    reads, ranking = (0, 0) if options.top_features is None else foreseen_ranking(A)
    B = _taken(A, known, options.top_features)
    k = within(options.k, B.shape, options.file)
    memory = left_beside(A, options.memory)
    solver = solver_of(B, k, options, memory)
    entries = known.entries(as_transforms(options.preprocess))
    with counted(A):
        B = planned(B, entries, k, solver, options.tol, memory)
    foreseen = estimate(
        B,
        k,
        solver,
        tol=options.tol,
        probe=True,
        preprocess=options.preprocess,
        shift=None if options.shift == "none" else "mean",
        memory_limit=memory,
    )
    fit = foreseen.peak_bytes + regressed_bytes(known, B)
    count = asked_for(B, k)
    model = (count + 6) * B.shape[1] * 8
    stages = {"opening": opening, "ranking": ranking, "fit": fit}
    if paths:
        _import_writers(paths)
        release()
        packages = _program(held) - program
        stages["scores"] = model + packages + written_bytes(A, names, count, paths)
        stages["report"] = model + packages + DRAWN * ("report" in paths)
    seconds = foreseen.seconds_per_pass
    return {
        "file": options.file,
        "samples": B.shape[0],
        "features": B.shape[1],
        "preprocess": list(options.preprocess) or None,
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


def _program(held: int) -> int:
    own = own_bytes()
    return PROGRAM if own is None else max(own - held, 0)


def _taken(A: Operator, known: Known, top_features: int | None) -> Operator:
    if top_features is None:
        taken: Operator = known.taken(A)
        return taken
    return some_columns(A, np.arange(min(top_features, A.shape[1])))


def _import_writers(paths: Mapping[str, Path]) -> None:
    if any(path.suffix == ".parquet" for path in paths.values()):
        import_module("pyarrow.parquet")
    if "report" in paths:
        for name in ("matplotlib.figure", "matplotlib.backends.backend_svg", "jinja2", "shiftsvd.report"):
            import_module(name)


def regressed_bytes(known: Known, A: Operator) -> int:
    return 0 if known.C is None else 8 * known.C.shape[1] * (5 * A.shape[0] + 2 * A.shape[1])


def written_bytes(A: Operator, names: Iterable[Any], k: int, paths: Mapping[str, Path]) -> int:
    m = A.shape[0]
    if A.costs.file_bytes:
        made = A.costs.working_bytes
    else:
        made = (8 + A.dtype.itemsize) * m * k + 8 * m  # in double and as they are written; the factor of the shift
    rows = min(m, max(1, ENTRIES // k))
    text = rows * (k * AS_TEXT + AS_NAME * (next(iter(names)) is not None))
    return made + text * ("scores" in paths)
