"""Run `shiftsvd bench`: time solvers on a data file, alternating between solvers."""

import json
import statistics
import time
import warnings
from collections.abc import Iterator
from typing import Any

import click
import numpy as np

from shiftsvd.backends import as_operator, centered
from shiftsvd.backends.device import HOST, moved
from shiftsvd.commands.options import device_named
from shiftsvd.commands.settings import USUAL, Settings, wanted_count
from shiftsvd.errors import plural
from shiftsvd.io import open_matrix
from shiftsvd.kernels import default_threads, instruction_set
from shiftsvd.names import SolverName
from shiftsvd.operators import Operator
from shiftsvd.result import SVDResult
from shiftsvd.solvers import auto_solver, estimate
from shiftsvd.solvers.auto import solver_named

Row = tuple[str, SolverName]  # a device, and a solver on it


def run(settings: Settings) -> None:
    path, k, devices = settings.files[0], int(settings.k or USUAL), dict.fromkeys(map(device_named, settings.devices))
    X, _ = open_matrix(path)
    wanted_count(k, X.shape, path)
    A = centered(X)
    placed = {device: centered(_on_device(X, device)) for device in devices}
    for device in devices:
        if device != HOST:
            _fit(placed[device], k, settings.solvers[0], settings.tol)  # compile GPU kernels before timing
    rows = list(_timed(placed, k, settings))
    if settings.json_out:
        document = {"file": path, "shape": list(A.shape), "stored": A.costs.stored, "k": k, "solvers": rows}
        click.echo(json.dumps(document))
        return
    click.echo(f"{path}: {A.shape[0]:,} x {A.shape[1]:,}, {A.costs.stored:,} numbers, {A.dtype}, centred; k = {k}")
    runs = plural(settings.rounds, "run")
    click.echo(f"{plural(default_threads(), 'thread')}, {instruction_set()} kernels; medians of {runs}\n")
    click.echo("solver               seconds  passes  predicted MB  error bound       difference  device")
    for row in rows:
        bound = "none" if row["value_error"] is None else f"{row['value_error']:.0e}"
        click.echo(
            f"{row['solver']:20} {row['seconds']:7.2f}  {row['n_passes']:6}  {row['foreseen_bytes'] / 1e6:12,.0f}  "
            f"{bound:>11}  {row['difference']:15.0e}  {row['device']}"
        )
    click.echo("difference: largest relative difference from the singular values with the smallest error bound")
    selected = auto_solver(A, k, settings.tol)
    click.echo(f"\n--solver auto selects {selected}. Reason: {selected.reason}.")


def _on_device(X: Any, device: str) -> Any:
    try:
        return X if device == HOST else moved(as_operator(X), device)
    except TypeError as error:
        raise ValueError(f"--device: {error}") from None


def _timed(placed: dict[str, Operator], k: int, settings: Settings) -> Iterator[dict[str, Any]]:
    seconds: dict[Row, list[float]] = {(device, name): [] for device in placed for name in settings.solvers}
    found: dict[Row, SVDResult] = {}
    for _ in range(settings.rounds):
        for device, name in seconds:
            started = time.perf_counter()
            found[device, name] = _fit(placed[device], k, name, settings.tol)
            seconds[device, name].append(time.perf_counter() - started)
    errors = {row: F.info.value_errors for row, F in found.items()}
    bounds = {row: float(np.max(bound)) for row, bound in errors.items() if bound is not None}
    best = min(bounds, key=bounds.__getitem__, default=None)
    for (device, name), F in found.items():
        S, reference = (G.S.astype(np.float64) for G in (F, F if best is None else found[best]))
        yield {
            "device": device,
            "solver": name,
            "settings": F.info.solver,
            "seconds": statistics.median(seconds[device, name]),
            "n_passes": F.info.n_passes,
            "foreseen_bytes": estimate(placed[device], k, name, tol=settings.tol).peak_bytes,
            "value_error": bounds.get((device, name)),
            "difference": float(np.max(np.abs(S - reference) / np.maximum(reference, np.finfo(float).tiny))),
        }


def _fit(A: Operator, k: int, name: SolverName, tol: float) -> SVDResult:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return solver_named(name, A, k, tol)(A, k, 0)
