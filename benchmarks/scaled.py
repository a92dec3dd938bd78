"""PCA of z-scored sparse data: peak memory, and seconds a pass beside the fit without scale.

The matrix is made and written by one process, and each fit runs in one of its own that only reads it, so that the peak
is that of the fit. Run: python benchmarks/scaled.py [--rows 500000] [--columns 5000]
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np
from scipy.sparse import csr_array, vstack

import shiftsvd as ss

K, LEVEL, FACTORS = 50, 0.066, 60  # the level makes 5 % nonzero
FITS = ("plain", "scaled", "plain", "scaled")  # in turns: what else the machine does meets both


def make(folder: Path, rows: int, columns: int) -> None:
    """Gamma-distributed entries at places that follow `FACTORS` hidden factors; single precision, by parts."""
    rng = np.random.default_rng(0)
    strength = 0.5 * 0.97 ** np.arange(FACTORS, dtype=np.float32)[:, None]
    V = strength * rng.standard_normal((FACTORS, columns), np.float32)
    level = LEVEL * np.exp(-(strength**2).sum() / 2) * rng.gamma(4, 0.25, columns).astype(np.float32)
    units = 10 ** rng.uniform(-2, 2, columns).astype(np.float32)
    parts = []
    for lo in range(0, rows, 5_000):
        U = rng.standard_normal((min(5_000, rows - lo), FACTORS), np.float32)
        there = rng.random((len(U), columns), np.float32) < level * np.exp(U @ V)
        i, j = np.nonzero(there)
        data = rng.standard_gamma(2, len(j), np.float32) * units[j]
        parts.append(csr_array((data, (i, j.astype(np.int32))), shape=there.shape))
    X = vstack(parts, format="csr")
    for name in ("data", "indices", "indptr"):
        np.save(folder / f"{name}.npy", getattr(X, name))


def fit(folder: Path, columns: int, fit: str, solver: str) -> None:
    """One fit, and what it took."""
    arrays = [np.load(folder / f"{name}.npy") for name in ("data", "indices", "indptr")]
    X = csr_array(tuple(arrays), shape=(len(arrays[2]) - 1, columns))
    size = sum(array.nbytes for array in arrays)
    started = time.perf_counter()
    pca = ss.PCA(K, scale=fit == "scaled", solver=solver, random_state=0).fit(X)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    info = pca.info_
    print(
        f"{fit:6} {X.shape[0]:,} x {X.shape[1]:,}, {X.nnz / np.prod(X.shape, dtype=float):.1%} nonzero, k = {K}: "
        f"data {size / 1e9:.2f} GB, z-scored in float64 {8 * np.prod(X.shape, dtype=float) / 1e9:.1f} GB, "
        f"process {peak / 1e9:.2f} GB; fit {seconds:.1f} s, solver {info.solver.split('(')[0]} {info.seconds:.1f} s, "
        f"{info.n_passes} passes, {info.seconds / info.n_passes:.3f} s a pass"
    )


@click.command()
@click.option("--rows", default=500_000)
@click.option("--columns", default=5_000)
@click.option("--solver", default="auto")
@click.option("--one", default=None, hidden=True, nargs=2)
def main(rows: int, columns: int, solver: str, one: tuple[str, str] | None) -> None:
    """Make the matrix, and fit it with and without scale."""
    if one:
        fit(Path(one[0]), columns, one[1], solver)
        return
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), rows, columns)
        for name in FITS:
            options = ["--columns", str(columns), "--solver", solver, "--one", folder, name]
            subprocess.run([sys.executable, __file__, *options], check=True)


if __name__ == "__main__":
    main()
