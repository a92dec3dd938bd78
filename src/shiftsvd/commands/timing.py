"""`shiftsvd bench`: our solvers on a file of the user, timed one after the other in turns."""

import json
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import click
import numpy as np

from shiftsvd.backends import centered
from shiftsvd.commands.checks import within
from shiftsvd.io import open_matrix
from shiftsvd.kernels import default_threads, instruction_set
from shiftsvd.names import SolverName
from shiftsvd.operators import Operator
from shiftsvd.result import SVDResult
from shiftsvd.solvers import auto_solver, estimate
from shiftsvd.solvers.auto import solver_named


def run(path: Path, k: int, solvers: tuple[SolverName, ...], rounds: int, tol: float, json_out: bool) -> None:
    """Print a line for each solver: median seconds, passes, memory foreseen, accuracy certified and measured."""
    X, _ = open_matrix(path)
    within(k, X.shape, str(path))
    A = centered(X)
    runs: dict[SolverName, list[SVDResult]] = {name: [] for name in solvers}
    seconds: dict[SolverName, list[float]] = {name: [] for name in solvers}
    for _ in range(rounds):
        for name in solvers:
            started = time.perf_counter()
            runs[name].append(_fit(A, k, name, tol))
            seconds[name].append(time.perf_counter() - started)
    rows = [_row(A, k, name, tol, statistics.median(seconds[name]), runs) for name in solvers]
    if json_out:
        document = {"file": str(path), "shape": list(A.shape), "stored": A.costs.stored, "k": k, "solvers": rows}
        click.echo(json.dumps(document))
        return
    click.echo(f"{path}: {A.shape[0]:,} x {A.shape[1]:,}, {A.costs.stored:,} numbers, {A.dtype}, centred; k = {k}")
    click.echo(f"{default_threads()} threads, {instruction_set()} kernels; medians of {rounds}\n")
    click.echo("solver               seconds  passes  foreseen MB  bound of error  largest difference")
    for row in rows:
        bound = "none" if row["value_error"] is None else f"{row['value_error']:.0e}"
        click.echo(
            f"{row['solver']:20} {row['seconds']:7.2f}  {row['n_passes']:6}  {row['foreseen_bytes'] / 1e6:11,.0f}  "
            f"{bound:>14}  {row['difference']:18.0e}"
        )
    click.echo(f"\nauto would take {auto_solver(A, k, tol)}: {auto_solver(A, k, tol).reason}")


def _fit(A: Operator, k: int, name: SolverName, tol: float) -> SVDResult:
    """One run of a solver, without warnings: what did not converge shows in the table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return solver_named(name, A, k, tol)(A, k, 0)


def _bound(F: SVDResult) -> float:
    """The largest bound of an error."""
    return float(np.max(F.info.value_errors)) if F.info.value_errors is not None else np.inf


def _row(
    A: Operator, k: int, name: SolverName, tol: float, seconds: float, runs: dict[SolverName, list[SVDResult]]
) -> dict[str, Any]:
    """The account of one solver; values are compared with the most certain ones of all."""
    certain = [F for F in (results[0] for results in runs.values()) if F.info.value_errors is not None]
    best = min(certain, key=_bound, default=runs[name][0])
    S, reference = runs[name][0].S.astype(np.float64), best.S.astype(np.float64)
    errors = runs[name][0].info.value_errors
    return {
        "solver": name,
        "settings": runs[name][0].info.solver,
        "seconds": seconds,
        "n_passes": runs[name][0].info.n_passes,
        "foreseen_bytes": estimate(A, k, name, tol=tol).peak_bytes,
        "value_error": None if errors is None else float(np.max(errors)),
        "difference": float(np.max(np.abs(S - reference) / np.maximum(reference, np.finfo(float).tiny))),
    }
