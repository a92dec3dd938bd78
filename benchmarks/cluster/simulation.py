"""One sweep of a cluster that is not there: the real graph and the real scheduler, tasks that only sleep.

The scheduler and the client are a process each, and the workers share a few: each has one thread, and for every block
it sleeps as long as such a block takes, then returns a panel. Panels are `shrunk` times smaller than real ones,
and workers send them over a network that is slower by as much, each worker one after the other. The graph is that of
`DaskRows.gram`; only the functions in its tasks are others.

Run: python -m benchmarks.cluster.simulation [--workers 100] [--runs 8000:,31250:,8000:0.1]
"""

import asyncio
import logging
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from unittest.mock import patch

import click
import dask
import dask.array as da
import numpy as np
from distributed import Client, Scheduler, Worker
from scipy.sparse import csr_array

from benchmarks.cluster import meter, model, records, report, tables
from benchmarks.cluster.model import PANEL, Cluster, Costs
from benchmarks.places import ROOT
from shiftsvd.backends import as_operator

QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.admin.large-graph-warning-threshold": "1TB",
    "distributed.comm.timeouts.connect": "600s",
    "distributed.scheduler.worker-ttl": None,
}
ROWS = 1_000  # of a block: nothing depends on it
# Of the workers: all are connected with all, and a process may have so many files open (20,000 is usual).
PROCESSES = 2
TASK = ("before", "client_cpu", "scheduler_cpu", "workers_cpu")  # what a task costs
RUNS = "Blocks, and seconds of one, with commas between; seconds left out: a share of 1e12 entries."


@dataclass
class Injected:
    """What the tasks take: seconds of one block, of one addition, and bytes a second that a worker sends."""

    block: float = 0.0
    addition: float = 0.0
    bandwidth: float = float("inf")
    began: float | None = None  # when the first block did


TIMES = Injected()  # of this process


def part_of(own, chunk, shared):
    """In place of the product of a block: as long as it takes, and a panel of the right size."""
    TIMES.began = TIMES.began or time.monotonic()
    time.sleep(TIMES.block * np.random.default_rng(own.number).uniform(0.9, 1.1))
    return np.ones_like(shared.panels[0], np.float64)


def added(a, b):
    """In place of the sum of two panels."""
    time.sleep(TIMES.addition)
    return a + b


def nothing(block_id):
    """In place of a chunk."""


class Slow(Worker):
    """A worker whose network sends one panel after the other."""

    def __init__(self, *args, **settings) -> None:
        super().__init__(*args, **settings)
        self.line = asyncio.Lock()

    async def get_data(self, comm, keys, who=None, serializers=None):
        """Wait for as long as the panels travel, then send them."""
        if self.transfer_outgoing_count >= self.transfer_outgoing_count_limit:
            return {"status": "busy"}  # as from any other machine: on one machine Dask allows more at a time
        bytes_ = sum(self.state.tasks[key].nbytes or 0 for key in keys if key in self.state.tasks)
        self.transfer_outgoing_count += 1
        async with self.line:
            await asyncio.sleep(bytes_ / TIMES.bandwidth)
        self.transfer_outgoing_count -= 1
        return await super().get_data(comm, keys, who, serializers)


async def run_workers(address: str, number: int) -> None:
    """So many workers in this process, until it is ended."""
    workers = [Slow(address, nthreads=1, memory_limit=0, dashboard=False) for _ in range(number)]
    await asyncio.gather(*workers)
    print("ready", flush=True)
    await asyncio.gather(*(worker.finished() for worker in workers))


async def run_scheduler() -> None:
    """A scheduler, until it is ended."""
    async with Scheduler(host="127.0.0.1", port=0, dashboard_address="127.0.0.1:0") as scheduler:
        print(scheduler.address, flush=True)
        await scheduler.finished()


@contextmanager
def cluster(workers: int, saturation: float):
    """A client of a scheduler in a process of its own, with workers in another."""
    environment = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_SATURATION": str(saturation)}
    scheduler = _started(["scheduler"], environment)
    address = scheduler.stdout.readline().strip()
    shares = [workers // PROCESSES + (i < workers % PROCESSES) for i in range(PROCESSES)]
    others = [_started(["workers", address, str(share)], environment) for share in shares]
    for process in others:
        process.stdout.readline()
    try:
        with dask.config.set(QUIET), Client(address) as client:
            yield client
    finally:
        for process in (*others, scheduler):
            process.kill()


def _started(arguments: list[str], environment: dict[str, str]) -> subprocess.Popen:
    """A process that runs this file by its name, so that tasks find their functions."""
    code = "import sys; from benchmarks.cluster import simulation; simulation.part(*sys.argv[1:])"
    command = ["env", *(f"{name}={value}" for name, value in environment.items()), sys.executable, "-c", code]
    return subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT)


def part(name: str, address: str = "", number: str = "0") -> None:
    """The scheduler, or the workers."""
    logging.getLogger("distributed").setLevel(logging.ERROR)
    dask.config.set(QUIET)
    asyncio.run(run_scheduler() if name == "scheduler" else run_workers(address, int(number)))


def inject(times: dict) -> None:
    """Set what the tasks take, in the process of the workers."""
    for name, value in times.items():
        setattr(TIMES, name, value)


def began() -> float:
    """When the first block began, in the process of the workers."""
    return TIMES.began


def matrix(blocks: int, columns: int):
    """An operator of so many blocks of which there is nothing but their graph."""
    chunks = (ROWS,) * blocks, (columns,)
    meta = csr_array((0, 0), dtype=np.float32)
    return as_operator(da.map_blocks(nothing, chunks=chunks, dtype=np.float32, meta=meta))


def sweep(client: Client, A, times: Injected) -> dict:
    """Seconds of one sweep, CPU seconds of each process, and bytes that were sent."""
    client.run(inject, asdict(times))
    V = np.ones((A.shape[1], PANEL), np.float32)
    before, sent = _cpu(client), meter.between_workers(client)
    started = time.monotonic()
    with patch("shiftsvd.backends.dask.part_of", part_of), patch("shiftsvd.backends.dask.added", added):
        total = A.gram(V)
    seconds = time.monotonic() - started
    after = _cpu(client)
    if not np.all(total == len(A.blocks())):
        raise RuntimeError("some blocks were not in the sum")
    return {
        "seconds": seconds,
        "before": min(client.run(began).values()) - started,
        "sent": meter.between_workers(client) - sent,
        **{f"{name}_cpu": max(after[name][where] - then for where, then in before[name].items()) for name in after},
    }


def _cpu(client: Client) -> dict[str, dict]:
    """CPU seconds so far of each process, that of a worker under the name of each that it holds."""
    return {
        "client": {"": time.process_time()},
        "scheduler": {"": client.run_on_scheduler(time.process_time)},
        "workers": client.run(time.process_time),
    }


def calibrated(client: Client, columns: int, blocks: int) -> dict:
    """What a task costs where it does nothing, in seconds: before any of them runs, and CPU of each process."""
    sweep(client, matrix(500, columns), Injected())  # connections are made
    found = sweep(client, matrix(blocks, columns), Injected())
    tasks = blocks + model.n_sums(blocks)
    record = {"what": "empty", "blocks": blocks, **{name: found[name] / tasks for name in TASK}}
    # By the clock: scheduler and workers share two cores here. On a real cluster the scheduler has one of its own.
    return {**record, "handling": (found["seconds"] - found["before"]) / tasks}


def simulated(client: Client, columns: int, blocks: int, times: Injected, network: Cluster, costs: Costs) -> dict:
    """One sweep, and what the model says of it."""
    found = sweep(client, matrix(blocks, columns), times)
    foreseen = model.sweep(blocks, times.block, 8 * columns * PANEL, network, costs)
    record = {"what": "sweep", "workers": network.workers, "blocks": blocks, "block_seconds": times.block, **found}
    return {**record, "slowest": foreseen.slowest, "model_seconds": foreseen.seconds, "model_sent": foreseen.sent}


@click.command()
@click.option("--workers", default=100, show_default=True, help="Of one thread each.")
@click.option("--runs", default="8000:,31250:,8000:0.1", show_default=True, help=RUNS)
@click.option("--empty", default=8000, show_default=True, help="Blocks of the sweep that tells what a task costs.")
@click.option("--shrunk", default=50, show_default=True, help="How many times smaller panels are.")
@click.option("--bandwidth", default=1.25e9, show_default=True, help="Bytes a second that a worker sends.")
@click.option("--saturation", default=1.1, show_default=True, help="Dask's worker-saturation; inf: no queue.")
def main(workers: int, runs: str, empty: int, shrunk: int, bandwidth: float, saturation: float) -> None:
    (block,) = records.load("block")
    columns, network = block["shape"][1] // shrunk, Cluster(workers, 1, bandwidth / shrunk)
    with cluster(workers, saturation) as client:
        none = calibrated(client, columns, empty)
        records.save({**none, "name": f"saturation {saturation}"})
        print(*(f"{name} {1e3 * none[name]:.2f} ms" for name in TASK), flush=True)
        costs = Costs(0.0, block["addition"], none["before"], none["handling"], 0.0)
        for run in runs.split(","):
            blocks, seconds = run.split(":")
            each = float(seconds or block["entry"] * model.Matrix().entries / int(blocks))
            times = Injected(each, block["addition"], network.bandwidth)
            record = simulated(client, columns, int(blocks), times, network, costs)
            record |= {"name": f"{run}, saturation {saturation}", "saturation": saturation, "shrunk": shrunk}
            records.save(record)
            print(tables.sweeps([record]), flush=True)
    report.write()


if __name__ == "__main__":
    from benchmarks.cluster.simulation import main as by_name

    by_name()
