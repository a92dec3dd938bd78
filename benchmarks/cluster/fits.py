"""Fits of Dask arrays on worker processes whose memory is limited: sweeps, seconds, peak memory, bytes moved, error.

The chunks are CSR, about 64 MB each, made inside the tasks from a pool of rows that each worker makes once (rows of
`counts`, redrawn and rescaled), so that nothing is read from anywhere. The reference is computed from the pool.
One fit is stopped after so many sweeps, the other ends when it has converged. A sweep is a read of the data; the one
for the moments counts.

Run: python -m benchmarks.cluster.fits
[--gigabytes 20] [--workers 2] [--memory 1.5GB] [-k 50] [--tol 1e-3] [--sweeps 10]
With --workers 1,2 the fits are made on each number of workers, the same chunks every time.
"""

import time
import warnings
from hashlib import blake2b

import click
import numpy as np
from dask.utils import parse_bytes
from distributed import Client, LocalCluster

import shiftsvd as ss
from benchmarks.cluster import data, meter, records, report, tables
from shiftsvd.events import listening


def measured(cluster: LocalCluster, client: Client, gigabytes: float, k: int, solver: ss.BlockLanczos) -> dict:
    """One fit, and what it took."""
    X, tasks, sweeps = data.array(gigabytes), meter.Tasks(), meter.Sweeps()
    before = meter.between_workers(client), meter.loopback()
    cluster.scheduler.add_plugin(tasks, name="tasks")
    started = time.perf_counter()
    with warnings.catch_warnings(), listening(sweeps):
        warnings.simplefilter("ignore")  # of fits that are stopped early
        F = ss.svd(X, k, shift="mean", solver=solver, rng=0)
    seconds = time.perf_counter() - started
    cluster.scheduler.remove_plugin(name="tasks")
    after = meter.between_workers(client), meter.loopback()
    n_sweeps = F.info.n_passes + 1  # the moments
    return {
        "sweeps": n_sweeps,
        "seconds": seconds,
        "sweep_seconds": float(np.median(sweeps.seconds[1:])),
        "values": F.S.tolist(),
        "converged": bool(F.info.converged),
        "digest": blake2b(F.S.tobytes() + F.Vh.tobytes(), digest_size=8).hexdigest(),
        "first_memory": sweeps.first_memory,
        "most_memory": sweeps.most_memory,
        "bytes_between_workers": (after[0] - before[0]) / n_sweeps,
        "bytes_in_all": (after[1] - before[1]) / n_sweeps,
        "block_tasks": tasks.number["gram"] / (n_sweeps - 1),
        "sum_tasks": tasks.number["sum"] / n_sweeps,
        "block_seconds": tasks.mean("gram"),
        "sum_seconds": tasks.mean("sum"),
        "transfer_seconds": tasks.mean("sum", "transfer"),
    }


def fits(gigabytes: float, workers: int, memory: str, k: int, solvers: dict[str, ss.BlockLanczos]) -> list[dict]:
    """All fits on one cluster, and the peaks of its processes."""
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, memory_limit=memory, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.run(data.pool)
        begun = set(client.run(meter.process).values())
        found_by_name = []
        for name, solver in solvers.items():
            print(f"{name}: {solver}, {workers} workers", flush=True)
            found = measured(cluster, client, gigabytes, k, solver)
            peaks = client.run(meter.peak)
            lost = len(begun - set(client.run(meter.process).values()))
            found_by_name.append({"name": name, **found, "worker_peaks": sorted(peaks.values()), "lost_workers": lost})
    size = {"what": "fit", "gigabytes": gigabytes, "workers": workers, "k": k, "limit": parse_bytes(memory)}
    return [{**size, **record} for record in found_by_name]


@click.command()
@click.option("--gigabytes", default=20.0, show_default=True)
@click.option("--workers", default="2", show_default=True, help="Processes, of one thread each; or 1,2.")
@click.option("--memory", default="1.5GB", show_default=True, help="Limit of each worker.")
@click.option("-k", "k", default=50, show_default=True)
@click.option("--tol", default=1e-3, show_default=True)
@click.option("--sweeps", default=10, show_default=True, help="Of the fit that is stopped early.")
def main(gigabytes: float, workers: str, memory: str, k: int, tol: float, sweeps: int) -> None:
    rows, n_chunks = data.sizes(gigabytes)
    print(f"{rows * n_chunks:,} x {data.COLUMNS:,}, {n_chunks} chunks of {rows:,} rows", flush=True)
    # A sweep for the moments, one for the last reading, and Lanczos steps between.
    solvers = {
        "stopped": ss.BlockLanczos(tol=tol, max_passes=sweeps - 2),
        "converged": ss.BlockLanczos(tol=tol),
    }
    measured = [r for number in workers.split(",") for r in fits(gigabytes, int(number), memory, k, solvers)]
    # Last, since it takes memory in the process that holds the scheduler.
    exact = data.exact_values(gigabytes)[:k]
    for record in measured:
        record |= {"error": float(np.max(np.abs(np.array(record.pop("values")) / exact - 1))), "tol": tol}
        record |= {"shape": [rows * n_chunks, data.COLUMNS], "chunks": n_chunks}
        records.save(record)
    print(tables.fits([r for r in records.load("fit") if r["gigabytes"] == gigabytes]))
    report.write()


if __name__ == "__main__":
    # By its name the workers import this file once; as a script each task would bring it along, and make the pool anew.
    from benchmarks.cluster.fits import main as by_name

    by_name()
