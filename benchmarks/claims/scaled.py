"""PCA of z-scored sparse data: peak memory, and seconds a pass beside the fit without scale.

The matrix is made and written by one process, and each fit runs in one of its own that only reads it, so that the peak
is that of the fit (a process begins with the peak of the one that started it, so that one does nothing).

Run: python -m benchmarks.claims.scaled [--rows 500000] [--columns 5000]
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
STEPS = ("make", "plain", "scaled", "passes")


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
        part = getattr(X, name)
        np.save(folder / f"{name}.npy", part if name == "data" else part.astype(np.int32))


def read(folder: Path, columns: int) -> csr_array:
    """The matrix, its arrays as they were written."""
    arrays = [np.load(folder / f"{name}.npy") for name in ("data", "indices", "indptr")]
    return csr_array(tuple(arrays), shape=(len(arrays[2]) - 1, columns))


def fit(folder: Path, columns: int, fit: str, solver: str) -> None:
    """One fit, and what it took."""
    X = read(folder, columns)
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
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


def passes(folder: Path, columns: int) -> None:
    """The same pass with and without scale, in turns."""
    X = read(folder, columns)
    plain = ss.centered(X)
    scaled = ss.operators.Scaled(plain, cols=1 / np.sqrt(ss.as_operator(X).moments().variance()))
    V = np.random.default_rng(0).standard_normal((columns, 16))
    seconds: dict[str, list[float]] = {"plain": [], "scaled": []}
    for _ in range(5):
        for name, A in (("plain", plain), ("scaled", scaled)):
            started = time.perf_counter()
            A.gram(V)
            seconds[name].append(time.perf_counter() - started)
    medians = {name: float(np.median(times)) for name, times in seconds.items()}
    print(
        f"a pass with 16 columns: plain {medians['plain']:.3f} s, scaled {medians['scaled']:.3f} s, "
        f"{medians['scaled'] / medians['plain']:.2f} times"
    )


@click.command()
@click.option("--rows", default=500_000)
@click.option("--columns", default=5_000)
@click.option("--solver", default="auto")
@click.option("--one", default=None, hidden=True, nargs=2)
def main(rows: int, columns: int, solver: str, one: tuple[str, str] | None) -> None:
    """Make the matrix, and fit it with and without scale."""
    if one:
        if one[1] == "make":
            make(Path(one[0]), rows, columns)
        elif one[1] == "passes":
            passes(Path(one[0]), columns)
        else:
            fit(Path(one[0]), columns, one[1], solver)
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in STEPS:
            options = ["--rows", str(rows), "--columns", str(columns), "--solver", solver, "--one", folder, name]
            subprocess.run([sys.executable, "-m", "benchmarks.claims.scaled", *options], check=True)


if __name__ == "__main__":
    main()
