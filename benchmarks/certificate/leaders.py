"""Shifts that cancel and leaders that dominate: passes, columns, and the true relative error of every component.

Cancelling: single precision CSR at 1e5, each column stored for some groups of rows only, minus `GroupMeans` or the same
as `LowRank`; and its double. Leaders: one or three columns times 1e4 to 1e8, or columns whose sizes fall geometrically,
so that sigma_1 / sigma_k is 1e4 to 1e10; the lines "no leader" are what the rest costs by itself.

Exact values: one-sided Jacobi (LAPACK's gejsv) of the matrix as it is stored, in double: it gives every value of B D, B
well-conditioned and D diagonal, to a few roundings of itself (Demmel & Veselic 1992). Of shifted matrices, after
explicit subtraction in extended precision.

late: components whose error is above tol; bad: those above their own bound. Beside them PRIMME's svds at the same tol,
each of its methods with its own test (residual within tol ||A||) and with one within tol sigma_j; 2 products of one
vector are one column here. Two minutes, and as many to build PRIMME the first time.

Run: python -m benchmarks.certificate.leaders [--tols 1e-4,1e-8] [--no-peer] [--solver auto]
"""

import json
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy import sparse
from scipy.linalg.lapack import dgejsv

import shiftsvd as ss
from benchmarks.certificate.counted import counted
from benchmarks.peers import environments
from benchmarks.places import WORK

K = 10
EPS = float(np.finfo(float).eps)


def jacobi(D: np.ndarray) -> np.ndarray:
    """All singular values, descending, each to a few roundings of itself where D is graded by its columns."""
    D = D if D.shape[0] >= D.shape[1] else D.T
    values, _, _, work, _, failed = dgejsv(np.asfortranarray(D), joba=0, jobu=3, jobv=3, jobr=0, jobt=0, jobp=0)
    if failed:
        raise RuntimeError(f"gejsv did not converge: {failed}")
    return np.sort(values * (work[0] / work[1]))[::-1]


def grouped(rng: np.random.Generator, level: float = 1e5) -> tuple[sparse.csr_array, np.ndarray]:
    """(X, labels): a falling spectrum on top of the means of groups, of which each column stores some only."""
    m, n, groups = 3_000, 400, 6
    labels = rng.integers(0, groups, m)
    noise = rng.standard_normal((m, n)) * np.arange(1, n + 1) ** -0.4
    there = (rng.random((groups, n)) < 0.5)[labels]
    X = np.where(there, level * rng.uniform(0.5, 1.5, (groups, n))[labels] + noise, 0)
    return sparse.csr_array(X.astype(np.float32)), labels


def _shifted(kind: str, level: float, dtype: str) -> tuple[Any, Any, np.ndarray]:
    X, labels = grouped(np.random.default_rng(11), level)
    X = X.astype(dtype)
    D, L = X.toarray().astype(np.longdouble), (labels[:, None] == np.unique(labels)).astype(float)
    means = np.vstack([D[labels == group].mean(axis=0) for group in np.unique(labels)])
    if kind == "groups":
        return X, ss.GroupMeans(labels), (D - means[labels]).astype(float)
    given = means.astype(float)
    return X, ss.LowRank(L, given.T.copy()), (D - given[labels]).astype(float)


def _columns(scales: dict[int, float] | np.ndarray, dtype: str, thin: bool) -> tuple[Any, None, np.ndarray]:
    rng = np.random.default_rng(12)
    m, n = (900, 300) if thin else (2_000, 400)
    B = rng.standard_normal((m, n)) / np.sqrt(m)
    if thin:
        B *= rng.random((m, n)) < 0.05
        B[rng.integers(0, m, n), np.arange(n)] += 1
    d = np.arange(1, n + 1) ** -0.5
    if isinstance(scales, dict):
        for column, scale in scales.items():
            d[column] *= scale
    else:
        d[: len(scales)] *= scales
    D = (B * d).astype(dtype)
    return sparse.csr_array(D) if thin else D, None, D.astype(float)


def _graded(ratio: float) -> np.ndarray:
    """The columns of the k leading values, so that the first is about `ratio` times the k-th."""
    return 2 * ratio ** np.linspace(1, 0, K) * np.arange(1, K + 1) ** 0.5


CASES: dict[str, Callable[[], tuple[Any, Any, np.ndarray]]] = {
    "GroupMeans 1e5, single": lambda: _shifted("groups", 1e5, "float32"),
    "LowRank 1e5, single": lambda: _shifted("low rank", 1e5, "float32"),
    "GroupMeans 1e5, double": lambda: _shifted("groups", 1e5, "float64"),
    "LowRank 1e5, double": lambda: _shifted("low rank", 1e5, "float64"),
    "LowRank 1e3, single": lambda: _shifted("low rank", 1e3, "float32"),
    "LowRank 1, single": lambda: _shifted("low rank", 1.0, "float32"),
    "dense, no leader": lambda: _columns({}, "float64", False),
    "dense, a column 1e6": lambda: _columns({7: 1e6}, "float64", False),
    "dense, three 1e4 1e6 1e8": lambda: _columns({7: 1e4, 50: 1e6, 99: 1e8}, "float64", False),
    "sparse, no leader": lambda: _columns({}, "float64", True),
    "sparse, a column 1e6": lambda: _columns({7: 1e6}, "float64", True),
    "sparse single, a column 1e6": lambda: _columns({7: 1e6}, "float32", True),
    **{f"sparse, graded {r:.0e}": lambda r=r: _columns(_graded(r), "float64", True) for r in (1e4, 1e6, 1e8, 1e10)},
    **{f"dense, graded {r:.0e}": lambda r=r: _columns(_graded(r), "float64", False) for r in (1e4, 1e6, 1e8, 1e10)},
    **{f"sparse single, graded {r:.0e}": lambda r=r: _columns(_graded(r), "float32", True) for r in (1e4, 1e6)},
}


def ours(X: Any, shift: Any, exact: np.ndarray, tol: float, solver: str) -> str:
    """The figures of one fit."""
    A, started = counted(X), time.perf_counter()
    chosen = ss.BlockLanczos(tol=tol) if solver == "lanczos" else solver
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        F = ss.svd(A, K, shift=shift, solver=chosen, rng=0, **({} if solver == "lanczos" else {"tol": tol}))
    seconds, errors = time.perf_counter() - started, np.abs(F.S.astype(float) - exact) / exact
    allowed = 16 * EPS * np.sqrt(len(exact))
    bounds = np.full(K, np.inf) if F.info.value_errors is None else F.info.value_errors
    said = str(caught[0].message).split(". ")[-1][:40] if caught else ""
    name = F.info.solver.split("(")[0]
    return (
        f"{name:14} {F.info.n_passes:6} {A.tally.columns(True):6} {A.tally.columns(False):6} {seconds:8.3f} "
        f"{F.info.converged!s:>5} {errors.max():9.1e} {np.sum(errors > tol):4} {np.sum(errors > bounds + allowed):4} "
        f"{errors[0]:8.1e} {errors[1]:8.1e} {errors[-1]:8.1e}  {said}"
    )


def peer(D: np.ndarray, exact: np.ndarray, tol: float, python: Path) -> list[str]:
    """The figures of PRIMME, by method."""
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        np.save(file.name, D)
        command = [str(python), "-m", "benchmarks.certificate.leaders_peer", file.name, str(K), str(tol)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = []
    for told in map(json.loads, done.stdout.splitlines()):
        name = f"{told['method'][:15]} {told['test']}"
        if "failed" in told:
            lines.append(f"  primme {name:28} {told['failed']}")
            continue
        values = np.array(told["values"] + [0.0] * (K - len(told["values"])))
        errors = np.abs(values - exact) / exact
        lines.append(
            f"  primme {name:28} {told['matvecs'] / 2:6.0f} columns {told['seconds']:8.3f} s, "
            f"worst {errors.max():.1e}, late {np.sum(errors > tol)}"
        )
    return lines


HEAD = f"{'case':27} {'s1/sk':>7} {'tol':>6} {'solver':14} {'passes':>6} {'single':>6} {'double':>6} {'seconds':>8} "
HEAD += f"{'conv':>5} {'worst':>9} {'late':>4} {'bad':>4} {'first':>8} {'second':>8} {'last':>8}  remedy"


@click.command()
@click.option("--tols", default="1e-4,1e-8")
@click.option("--peer/--no-peer", "beside", default=True)
@click.option("--solver", default="lanczos", help='"lanczos", or any name that svd takes.')
@click.option("--only", default="", help="Cases whose name has this.")
def main(tols: str, beside: bool, solver: str, only: str) -> None:
    """The table."""
    python = environments.interpreter("primme", WORK) if beside else None
    print(HEAD, flush=True)
    for name, make in CASES.items():
        if only not in name:
            continue
        X, shift, D = make()
        exact = jacobi(D)[:K]
        for tol in map(float, tols.split(",")):
            print(f"{name:27} {exact[0] / exact[-1]:7.0e} {tol:6.0e} {ours(X, shift, exact, tol, solver)}", flush=True)
            if python and "double" not in name:  # single data are given to the peer in double
                print("\n".join(peer(D, exact, tol, python)), flush=True)


if __name__ == "__main__":
    main()
