"""`shiftsvd bench`: our solvers on a file of the user, timed one after the other in turns."""

import json
import statistics
import time
import warnings
from typing import Any

import click
import numpy as np

from shiftsvd.backends import as_operator, centered
from shiftsvd.backends.device import HOST, moved
from shiftsvd.commands.settings import USUAL, Settings, within
from shiftsvd.io import open_matrix
from shiftsvd.kernels import default_threads, instruction_set
from shiftsvd.names import SolverName
from shiftsvd.operators import Operator
from shiftsvd.result import SVDResult
from shiftsvd.solvers import auto_solver, estimate
from shiftsvd.solvers.auto import solver_named

Row = tuple[str, SolverName]  # a device, and a solver on it


def run(asked: Settings) -> None:
    path, k = asked.files[0], int(asked.k or USUAL)
    X, _ = open_matrix(path)
    within(k, X.shape, path)
    A = centered(X)
    placed = {device: centered(_placed(X, device)) for device in asked.devices}
    for device in asked.devices:
        if device != HOST:
            _fit(placed[device], k, asked.solvers[0], asked.tol)  # what is compiled for a card is compiled once
    rows = _timed(placed, k, asked)
    if asked.json_out:
        document = {"file": path, "shape": list(A.shape), "stored": A.costs.stored, "k": k, "solvers": rows}
        click.echo(json.dumps(document))
        return
    click.echo(f"{path}: {A.shape[0]:,} x {A.shape[1]:,}, {A.costs.stored:,} numbers, {A.dtype}, centred; k = {k}")
    click.echo(f"{default_threads()} threads, {instruction_set()} kernels; medians of {asked.rounds}\n")
    click.echo("solver               seconds  passes  foreseen MB  bound of error  largest difference  device")
    for row in rows:
        bound = "none" if row["value_error"] is None else f"{row['value_error']:.0e}"
        click.echo(
            f"{row['solver']:20} {row['seconds']:7.2f}  {row['n_passes']:6}  {row['foreseen_bytes'] / 1e6:11,.0f}  "
            f"{bound:>14}  {row['difference']:18.0e}  {row['device']}"
        )
    click.echo(f"\nauto would take {auto_solver(A, k, asked.tol)}: {auto_solver(A, k, asked.tol).reason}")


def _placed(X: Any, device: str) -> Any:
    try:
        return X if device == HOST else moved(as_operator(X), device)
    except TypeError as error:
        raise ValueError(f"--device: {error}") from None


def _timed(placed: dict[str, Operator], k: int, asked: Settings) -> list[dict[str, Any]]:
    runs: dict[Row, list[SVDResult]] = {(device, name): [] for device in placed for name in asked.solvers}
    seconds: dict[Row, list[float]] = {row: [] for row in runs}
    for _ in range(asked.rounds):
        for row in runs:
            started = time.perf_counter()
            runs[row].append(_fit(placed[row[0]], k, row[1], asked.tol))
            seconds[row].append(time.perf_counter() - started)
    return [_row(placed[row[0]], k, row, asked.tol, statistics.median(seconds[row]), runs) for row in runs]


def _fit(A: Operator, k: int, name: SolverName, tol: float) -> SVDResult:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return solver_named(name, A, k, tol)(A, k, 0)


def _row(A: Operator, k: int, row: Row, tol: float, seconds: float, runs: dict[Row, list[SVDResult]]) -> dict[str, Any]:
    bounds = [(float(np.max(F.info.value_errors)), F) for F, *_ in runs.values() if F.info.value_errors is not None]
    best = min(bounds, key=lambda pair: pair[0])[1] if bounds else runs[row][0]
    S, reference = runs[row][0].S.astype(np.float64), best.S.astype(np.float64)
    errors = runs[row][0].info.value_errors
    return {
        "device": row[0],
        "solver": row[1],
        "settings": runs[row][0].info.solver,
        "seconds": seconds,
        "n_passes": runs[row][0].info.n_passes,
        "foreseen_bytes": estimate(A, k, row[1], tol=tol).peak_bytes,
        "value_error": None if errors is None else float(np.max(errors)),
        "difference": float(np.max(np.abs(S - reference) / np.maximum(reference, np.finfo(float).tiny))),
    }
