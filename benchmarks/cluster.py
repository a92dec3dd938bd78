"""Fits of Dask arrays on worker processes whose memory is limited: sweeps, seconds, peak memory, error.

The chunks are CSR, about 64 MB each, made inside the tasks from a pool of rows that each worker makes once (rows of
`counts`, redrawn and rescaled), so that nothing is read from anywhere. The reference is computed from the pool.

Run: python benchmarks/cluster.py [--gigabytes 20] [--workers 2] [--memory 1.5GB] [-k 50] [--tol 1e-3] [--sweeps 10]
"""

import resource
import time
import warnings
from functools import cache

import click
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from scipy.sparse import csr_array

import data
import shiftsvd as ss

POOL, COLUMNS = 20_000, 2_000
CHUNK_BYTES = 64e6


@cache
def pool() -> csr_array:
    """The rows that chunks are drawn from; made once in a process."""
    return data.counts(POOL, COLUMNS, seed=7)


def drawn(number: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Which rows of the pool a chunk has, and what they are multiplied by."""
    rng = np.random.default_rng((7, number))
    return rng.integers(0, POOL, rows), rng.lognormal(0, 0.2, rows).astype(np.float32)


def chunk(rows: int, block_id: tuple[int, int]) -> csr_array:
    """One chunk, made where it is needed."""
    which, scale = drawn(block_id[0], rows)
    block = pool()[which]
    block.data *= np.repeat(scale, np.diff(block.indptr))
    return csr_array(block)


def array(rows: int, n_chunks: int) -> da.Array:
    """The matrix, of which nothing is there."""
    shape = ((rows,) * n_chunks, (COLUMNS,))
    return da.map_blocks(chunk, rows, chunks=shape, dtype=np.float32, meta=csr_array((0, 0), dtype=np.float32))


def exact_values(rows: int, n_chunks: int) -> np.ndarray:
    """Singular values of the rows minus their mean, by the Gram matrix of the pool in double precision."""
    squares, sums = np.zeros(POOL), np.zeros(POOL)
    for number in range(n_chunks):
        which, scale = drawn(number, rows)
        np.add.at(squares, which, scale.astype(np.float64) ** 2)
        np.add.at(sums, which, scale.astype(np.float64))
    m = rows * n_chunks
    G, mean = np.zeros((COLUMNS, COLUMNS)), sums @ pool() / m
    for lo in range(0, POOL, 5_000):
        part = pool()[lo : lo + 5_000].toarray().astype(np.float64)
        G += part.T @ (part * squares[lo : lo + 5_000, None])
    return np.sqrt(np.maximum(np.linalg.eigvalsh(G - m * np.outer(mean, mean))[::-1], 0))


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measured(client: Client, X: da.Array, k: int, solver: ss.BlockLanczos, exact: np.ndarray) -> None:
    """One fit, and a line about it."""
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that are stopped early
        F = ss.svd(X, k, shift="mean", solver=solver, rng=0)
    seconds = time.perf_counter() - started
    workers = ", ".join(f"{bytes_ / 1e9:.2f}" for bytes_ in client.run(peak).values())
    error = float(np.max(np.abs(F.S / exact[:k] - 1)))
    print(
        f"{solver}: {F.info.n_passes} sweeps and one for the moments, {seconds:.0f} s, error {error:.1e}, "
        f"converged={F.info.converged}; peak GB: workers {workers}, client and scheduler {peak() / 1e9:.2f}",
        flush=True,
    )


@click.command()
@click.option("--gigabytes", default=20.0, show_default=True)
@click.option("--workers", default=2, show_default=True, help="Processes, of one thread each.")
@click.option("--memory", default="1.5GB", show_default=True, help="Limit of each worker.")
@click.option("-k", "k", default=50, show_default=True)
@click.option("--tol", default=1e-3, show_default=True)
@click.option("--sweeps", default=10, show_default=True, help="Of the fit that is stopped early.")
def main(gigabytes: float, workers: int, memory: str, k: int, tol: float, sweeps: int) -> None:
    rows = int(CHUNK_BYTES / (8 * pool().nnz / POOL))
    n_chunks = max(1, round(gigabytes * 1e9 / CHUNK_BYTES))
    exact = exact_values(rows, n_chunks)
    X = array(rows, n_chunks)
    print(f"{X.shape[0]:,} x {COLUMNS:,}, {n_chunks} chunks of {rows:,} rows, {workers} workers", flush=True)
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, memory_limit=memory, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for solver in (ss.BlockLanczos(tol=tol, max_passes=sweeps - 1), ss.BlockLanczos(tol=tol)):
            measured(client, X, k, solver, exact)


if __name__ == "__main__":
    # By its name the workers import this file once; as a script each task would bring it along, and make the pool anew.
    from cluster import main as by_name

    by_name()
