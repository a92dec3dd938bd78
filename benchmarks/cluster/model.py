"""How long a fit takes on a cluster: a model of one sweep, its measured constants, and what it says of a large matrix.

Run: python -m benchmarks.cluster.model measure    the constants: one block, one addition, the client's own arithmetic
     python -m benchmarks.cluster.model            what the model says of 1e9 x 3e4 with 1e12 stored entries
The simulated sweeps that it is held against are those of simulation.py.
"""

import time
import warnings
from dataclasses import dataclass
from functools import partial
from math import ceil, log

import click
import dask
import dask.array as da
import numpy as np

import shiftsvd as ss
from benchmarks import data
from benchmarks.cluster import records, tables
from shiftsvd.backends.dask import ARITY, added

BYTES = 8  # of a stored entry: a float32 and where it is
PANEL = 64  # columns


@dataclass(frozen=True)
class Matrix:
    """The size of the data."""

    rows: float = 1e9
    columns: int = 30_000
    entries: float = 1e12


@dataclass(frozen=True)
class Cluster:
    """Workers of so many threads; bytes a second that each of them sends, and loads (infinite: data in memory)."""

    workers: int = 100
    threads: int = 1
    bandwidth: float = 1.25e9
    load: float = float("inf")


@dataclass(frozen=True)
class Costs:
    """Seconds: of a stored entry times a panel, of an addition, of a task before and while tasks run, of the client."""

    entry: float
    addition: float
    before: float
    handling: float
    client: float


@dataclass(frozen=True)
class Sweep:
    """The parts of one sweep, in seconds, and the bytes that it moves."""

    before: float
    work: float
    handling: float
    network: float
    after: float
    sent: float

    @property
    def seconds(self) -> float:
        """What can be done at the same time is done at the same time."""
        return self.before + max(self.work, self.handling, self.network) + self.after

    @property
    def slowest(self) -> str:
        """What takes longest of what is done at the same time."""
        parts = {"workers": self.work, "scheduler": self.handling, "network": self.network}
        return max(parts, key=lambda name: parts[name])


def n_sums(blocks: int) -> int:
    """Tasks that add results: a tree."""
    total = 0
    while blocks > 1:
        blocks = ceil(blocks / ARITY)
        total += blocks
    return total


def sweep(blocks: int, block_seconds: float, panel_bytes: float, cluster: Cluster, costs: Costs) -> Sweep:
    """One sweep over so many blocks, each of which takes a thread so many seconds."""
    threads, tasks = cluster.workers * cluster.threads, blocks + n_sums(blocks)
    travel, depth = panel_bytes / cluster.bandwidth, ceil(log(max(blocks, 2), ARITY))
    # Blocks are given to whoever is free, so that neighbours are elsewhere: all results but a W-th part travel.
    results = (blocks - 1) * (1 - 1 / cluster.workers)
    return Sweep(
        before=tasks * costs.before + threads * costs.handling + log(cluster.workers, 2) * travel,
        work=ceil(blocks / threads) * block_seconds + (blocks - 1) / threads * costs.addition,
        handling=tasks * costs.handling,
        network=(results / cluster.workers + 1) * travel,
        after=depth * (ARITY - 1) * (travel + costs.addition) + travel + costs.client,
        sent=(cluster.workers + results) * panel_bytes,
    )


def foreseen(matrix: Matrix, block_bytes: float, cluster: Cluster, costs: Costs) -> tuple[int, Sweep]:
    """How many blocks there are, and one sweep."""
    blocks = ceil(BYTES * matrix.entries / block_bytes)
    seconds = matrix.entries / blocks * costs.entry + block_bytes / (cluster.load / cluster.threads)
    return blocks, sweep(blocks, seconds, 8 * matrix.columns * PANEL, cluster, costs)


def measured_costs() -> Costs:
    """From what was measured: blocks and the client here, tasks in the simulated cluster."""
    (block,), empty = records.load("block"), records.load("empty")[0]
    return Costs(block["entry"], block["addition"], empty["before"], empty["scheduler_cpu"], block["client"])


def median_cpu(work, times: int = 5) -> float:
    """CPU seconds of a call."""
    seconds = []
    for _ in range(times):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return float(np.median(seconds))


def measure(columns: int, row_entries: int, block_bytes: float) -> dict:
    """A block of the shape that is wanted, in the function that runs inside the tasks; on one thread."""
    rng, rows = np.random.default_rng(0), int(block_bytes / BYTES / row_entries)
    X = data.uniform(rows, columns, rows * row_entries).astype(np.float32)
    X.indices = X.indices.astype(np.int32)
    chunk = da.map_blocks(lambda block_id: X, chunks=(X.shape[:1], X.shape[1:]), dtype=X.dtype, meta=X[:0])
    V, P = rng.standard_normal((columns, PANEL)).astype(np.float32), rng.standard_normal((columns, PANEL))
    with dask.config.set(scheduler="synchronous"):
        A = ss.as_operator(chunk) - ss.LowRank(np.ones(rows), X.mean(axis=0))
        A.gram(V)
        seconds = median_cpu(partial(A.gram, V))
    return {
        "what": "block",
        "shape": X.shape,
        "stored": int(X.nnz),
        "seconds": seconds,
        "entry": seconds / X.nnz,
        "addition": median_cpu(partial(added, P, P)),
        "client": client_seconds(columns),
    }


def client_seconds(columns: int, k: int = 50, sweeps: int = 12) -> float:
    """CPU seconds of the client's own arithmetic, a sweep: a fit of next to nothing, stopped after so many."""
    X = data.uniform(2 * columns, columns, 2 * columns)
    solver, started = ss.BlockLanczos(tol=1e-3, block_size=PANEL, max_passes=sweeps), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ss.svd(X, k, shift="mean", solver=solver, rng=0)
    return (time.process_time() - started) / sweeps


def large() -> str:
    """A fit of the large matrix on 100 workers, by the number of their threads, the blocks, and where the data are."""
    costs, sweeps, rows = measured_costs(), measured_sweeps(), []
    for threads, load in ((1, float("inf")), (1, 1e9), (16, float("inf")), (16, 1e9)):
        for block_bytes in (64e6, 256e6, 1e9):
            blocks, one = foreseen(Matrix(), block_bytes, Cluster(threads=threads, load=load), costs)
            where = "memory" if load == float("inf") else f"{load / 1e9:g} GB/s a worker"
            row = [str(threads), where, f"{block_bytes / 1e6:g} MB", f"{blocks:,}", one.slowest]
            row += [f"{part:.0f}" for part in (one.before, one.work, one.handling, one.network, one.after, one.seconds)]
            row += [f"{one.sent / 1e9:.0f} GB", f"{sweeps * one.sent / 1e12:.1f} TB"]
            rows.append([*row, f"{sweeps * one.seconds / 3600:.1f}"])
    head = ["threads", "data in", "a block", "blocks", "slowest", "before", "work", "handling", "network", "after"]
    return tables.table([*head, "a sweep, s", "sent in a sweep", f"in {sweeps} sweeps", "hours"], rows)


def constants() -> str:
    """What was measured."""
    costs = measured_costs()
    rows = [
        ["a block: stored entry times a panel of 64 columns", "e", f"{1e9 * costs.entry:.2f} ns"],
        ["an addition of two panels", "a", f"{1e3 * costs.addition:.1f} ms"],
        ["a task, before any of them runs", "g", f"{1e3 * costs.before:.2f} ms"],
        ["a task, in the scheduler while tasks run", "h", f"{1e3 * costs.handling:.2f} ms"],
        ["the client's own arithmetic, a sweep", "q", f"{costs.client:.1f} s"],
    ]
    return tables.table(["what", "letter", "seconds"], rows)


def measured_sweeps() -> int:
    """Of the largest fit that converged: their number depends on the spectrum, not on the size."""
    return max((r["gigabytes"], r["sweeps"]) for r in records.load("fit") if r["name"] == "converged")[1]


@click.command()
@click.argument("what", type=click.Choice(["measure", "print"]), default="print")
def main(what: str) -> None:
    if what == "measure":
        records.save(found := measure(30_000, 1_000, 256e6))
        print(found)
    else:
        print(constants(), large(), sep="\n\n")


if __name__ == "__main__":
    main()
