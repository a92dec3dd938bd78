"""Whether steps in one compiled call, compiled steps one by one, and the solver without kernels decide alike.

    python -m benchmarks.certificate.agreement --problems 500

Each sparse problem is solved in three ways, each in a process of its own: "calls" takes several steps in one call,
"steps" takes them one by one and must return the same bits, "python" multiplies by SciPy. All ways check after the same
steps. "python" sums in another order: values must agree within the bounds of both; convergence, passes and the failed
components, whose bounds exceed `tol`, are compared.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice, product
from typing import Any

import numpy as np
from scipy import sparse

import shiftsvd as ss
from benchmarks.certificate.problems import FAMILIES, problem
from shiftsvd.backends.sparse import SparseRows
from shiftsvd.solvers import solve

ROUNDED = 4 * float(np.finfo(np.float32).eps)  # of values that are returned in single precision
SETTINGS = np.array(list(product([None, 8, 16, 32], [None, None, 12])))  # block_size, max_passes
Record = dict[str, Any]


def records(count: int, way: str) -> Iterator[Record]:
    """Solve the problems in this process."""
    take_steps, calls = solve.take_steps, [0]

    def taken(*args: Any) -> int:
        calls.append(take_steps(*args) if way == "calls" else 0)
        return calls[-1]

    vars(solve).update(take_steps=taken)
    if way == "python":  # a run with a step taker checks less often, also where it takes no steps
        SparseRows.step_taker = lambda *_: lambda state: state  # type: ignore[method-assign]
    for seed, name in islice(product(range(count), FAMILIES), count):
        made, rng = problem(name, seed), np.random.default_rng([seed, *name.encode()])
        tol, (block, passes) = rng.choice([1e-3, 1e-4, 1e-6, 1e-8]), rng.choice(SETTINGS)
        solver, calls[:] = ss.BlockLanczos(tol, block_size=block, max_passes=passes), [0]
        F = ss.svd(sparse.csr_array(made.X), made.k, shift=made.shift, scale=made.scale, solver=solver, rng=seed)
        yield {
            "name": f"{name}:{seed} {F.S.dtype} k={made.k} tol={tol:.0e} block={block} max_passes={passes}",
            "converged": bool(F.info.converged),
            "passes": F.info.n_passes,
            "failed": np.flatnonzero(~(F.info.value_errors <= tol)).tolist(),
            "S": F.S.astype(float).tolist(),
            "errors": np.nan_to_num(F.info.value_errors, nan=1, posinf=1e9).tolist(),
            "bits": hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in F)).hexdigest(),
            "most": max(calls),
        }


def of_way(way: str, count: int) -> list[Record]:
    """Solve the problems in another process."""
    command = [sys.executable, "-W", "ignore", "-m", __spec__.name, "--way", way, "--problems", str(count)]
    kernels = {"SHIFTSVD_KERNELS": "off" if way == "python" else "require"}
    printed = subprocess.check_output(command, env=os.environ | kernels)
    return [json.loads(line) for line in printed.splitlines()]


def differing(a: Record, b: Record) -> list[str]:
    """Name what differs beyond the bounds of both."""
    S, other = np.array(a["S"]), np.array(b["S"])
    allowed = (np.array(a["errors"]) + b["errors"] + ROUNDED) * np.maximum(S, other)
    found = [key for key in ("converged", "passes", "failed") if a[key] != b[key]]
    return found + ["values"] * bool(np.any(np.abs(S - other) > allowed))


def main() -> None:
    """Print one line per disagreement, and counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--way", choices=["calls", "steps", "python"], help="print records of this way")
    args = parser.parse_args()
    if args.way:
        print("\n".join(map(json.dumps, records(args.problems, args.way))))
        return
    calls, *others = (of_way(way, args.problems) for way in ("calls", "steps", "python"))
    counts = dict.fromkeys(("bits", "converged", "passes", "failed", "values"), 0)
    for a, steps, python in zip(calls, *others, strict=True):
        found = ["bits"] * any(a[key] != steps[key] for key in a if key != "most") + differing(a, python)
        counts.update((key, counts[key] + 1) for key in found)
        if found:
            told = ", ".join(f"{key} {a[key]} and {python[key]}" for key in ("converged", "passes", "failed"))
            print(f"{a['name']}: {', '.join(found)} differ; {told}")
    several, done = sum(a["most"] > 1 for a in calls), sum(a["converged"] for a in calls)
    print(f"{len(calls)} problems, {several} with several steps in one call, {done} converged; differing: {counts}")


if __name__ == "__main__":
    main()
