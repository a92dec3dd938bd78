"""Peak memory of 38 fits beside what `estimate` said of the same words, each in a process of its own.

The peak is the largest anonymous memory of the process (RssAnon), to which the three sizes of `estimate` add up.
Run: python -m benchmarks.claims.foreseen_memory [--seed 0] [--only WORD]
"""

import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.random import Generator
from scipy import sparse

from benchmarks.claims.memory_promises import anndata, csv, frame, hdf5, mtx, netcdf, npz, tenx_h5
from tests.support.meter import Measured, measured, measured_python

MOST = 1.1  # of what was said
COMMAND = Path(sys.executable).with_name("shiftsvd")
Words = list[Any]


def dense(rng: Generator, m: int, n: int, dtype: str = "f4", rank: int = 4) -> Any:
    """Noise and some components."""
    X = rng.standard_normal((m, n), np.float32)
    X += rng.standard_normal((m, rank), np.float32) @ (4 * rng.standard_normal((rank, n), np.float32))
    return X.astype(dtype, copy=False)


def counts(rng: Generator, m: int, n: int, density: float, dtype: str = "f4") -> Any:
    """CSR of small counts, as many in each row."""
    each = max(1, round(density * n))
    indices = np.sort(rng.integers(0, n, (m, each), np.int32), axis=1).ravel()
    data = rng.integers(1, 9, m * each).astype(dtype)
    X = sparse.csr_array((data, indices, np.arange(0, m * each + 1, each, np.int32)), shape=(m, n))
    X.sum_duplicates()
    return X


def about(rng: Generator, size: int) -> int:
    """The size, or up to a third less or more."""
    return int(size * rng.uniform(0.7, 1.3))


def saved(folder: Path, X: Any, suffix: str, name: str = "X") -> Path:
    """The matrix in a file of the format that its suffix says."""
    path = folder / f"{name}{suffix}"
    writers: dict[str, Callable[[Path, Any], Any]] = {
        ".npy": lambda path, X: np.save(path, X),
        ".npz": npz,
        ".csv": csv,
        ".tsv.gz": csv,
        ".parquet": frame,
        ".h5": hdf5,
        ".10x.h5": tenx_h5,
        ".mtx.gz": mtx,
        ".nc": netcdf,
        ".h5ad": anndata,
        ".zarr": anndata,
    }
    writers[suffix](path, X)
    return path


def observed(folder: Path, rng: Generator, m: int, n: int) -> Path:
    """AnnData with a batch and a number for each cell, in gzip."""
    import anndata as ad
    import pandas as pd

    obs = pd.DataFrame(
        {"batch": pd.Categorical([f"b{i}" for i in rng.integers(0, 12, m)]), "depth": rng.random(m)},
        index=[f"cell-{i}" for i in range(m)],
    )
    path = folder / "X.h5ad"
    ad.AnnData(counts(rng, m, n, 0.05), obs=obs).write_h5ad(path, compression="gzip")
    return path


def genotypes(folder: Path, rng: Generator, m: int, n: int) -> Path:
    """A .bed of so many samples and variants."""
    from tests.support.genotypes import genotypes as made
    from tests.support.genotypes import write

    write(folder / "X.bed", made(m, n))
    return folder / "X.bed"


def gappy(rng: Generator, m: int, n: int) -> Any:
    """Numbers of which one in fifty is missing."""
    X = dense(rng, m, n)
    X[rng.random(X.shape, np.float32) < 0.02] = np.nan
    return X


Make = Callable[[Path, Generator], Words]
CASES: dict[str, Make] = {
    "npy 5,000,000 x 3": lambda f, r: [saved(f, dense(r, about(r, 5_000_000), 3), ".npy"), "-k", 2],
    "npy 5,000,000 x 3, a limit, -o": lambda f, r: [
        saved(f, dense(r, about(r, 5_000_000), 3), ".npy"), "-k", 2, "--memory", "60M", "-o", f / "out",
    ],
    "npy square, k = 40": lambda f, r: [saved(f, dense(r, about(r, 3000), about(r, 3000), "f8"), ".npy"), "-k", 40],
    "npy square, integers": lambda f, r: [
        saved(f, r.integers(0, 99, (about(r, 3000), 3000)).astype("i2"), ".npy"), "-k", 10, "--solver", "lanczos",
    ],
    "npy wide, loaded": lambda f, r: [saved(f, dense(r, 60, about(r, 300_000)), ".npy"), "-k", 5],
    "npy wide, read in blocks": lambda f, r: [
        saved(f, dense(r, 60, about(r, 300_000), "f8"), ".npy"), "-k", 5, "--memory", "250M", "--no-report",
        "-o", f / "out",
    ],
    "npy tall, read in blocks, --scale": lambda f, r: [
        saved(f, dense(r, about(r, 600_000), 60), ".npy"), "-k", 10, "--memory", "80M", "--scale", "std",
    ],
    "npy, gaps": lambda f, r: [saved(f, gappy(r, about(r, 200_000), 50), ".npy"), "-k", 5, "--missing", "mean"],
    "npy, exact": lambda f, r: [saved(f, dense(r, about(r, 150_000), 90), ".npy"), "-k", 5, "--solver", "exact"],
    "npy, randomized, -o": lambda f, r: [
        saved(f, dense(r, about(r, 150_000), 200), ".npy"), "-k", 20, "--solver", "randomized", "-o", f / "out",
    ],
    "npz dense": lambda f, r: [saved(f, dense(r, about(r, 40_000), 300), ".npz"), "-k", 10],
    "npz CSR 60 x 300,000": lambda f, r: [saved(f, counts(r, 60, about(r, 300_000), 0.2), ".npz"), "-k", 5],
    "npz CSR, --scale, -o": lambda f, r: [
        saved(f, counts(r, about(r, 100_000), 3000, 0.04), ".npz"), "-k", 20, "--scale", "std", "-o", f / "out",
    ],
    "csv": lambda f, r: [saved(f, dense(r, about(r, 60_000), 40), ".csv"), "-k", 5, "-o", f / "out"],
    "tsv.gz": lambda f, r: [saved(f, dense(r, about(r, 20_000), 100), ".tsv.gz"), "-k", 5],
    "parquet": lambda f, r: [saved(f, dense(r, about(r, 500_000), 30), ".parquet"), "-k", 5, "-o", f / "out"],
    "parquet, read in blocks": lambda f, r: [
        saved(f, dense(r, about(r, 900_000), 30), ".parquet"), "-k", 5, "--memory", "90M",
    ],
    "h5ad CSR, read in blocks": lambda f, r: [
        saved(f, counts(r, about(r, 137_872), 2000, 0.07), ".h5ad"), "-k", 20, "--memory", "150M", "-o", f / "out",
    ],
    "h5ad CSR, wide, read in blocks": lambda f, r: [
        saved(f, counts(r, 200, about(r, 300_000), 0.2), ".h5ad"), "-k", 5, "--memory", "340M",
    ],
    "h5ad CSR, names of 1,500,000 cells": lambda f, r: [
        saved(f, counts(r, about(r, 1_500_000), 20, 0.2), ".h5ad"), "-k", 3, "-o", f / "out",
    ],
    "h5ad CSC, log-normalize": lambda f, r: [
        saved(f, counts(r, about(r, 60_000), 2000, 0.07).tocsc(), ".h5ad"), "-k", 10, "--preprocess", "log-normalize",
    ],
    "h5ad CSR, pearson, read in blocks": lambda f, r: [
        saved(f, counts(r, about(r, 100_000), 2000, 0.06), ".h5ad"), "-k", 10, "--preprocess", "pearson", "--memory",
        "200M",
    ],
    "h5ad dense": lambda f, r: [saved(f, dense(r, about(r, 50_000), 400), ".h5ad"), "-k", 10, "-o", f / "out"],
    "h5ad, --covariates, --groups": lambda f, r: [
        observed(f, r, about(r, 80_000), 2000), "-k", 10, "--covariates", "depth", "--groups", "batch", "-o", f / "out",
    ],
    "h5ad, --top-features": lambda f, r: [
        saved(f, counts(r, about(r, 60_000), 4000, 0.06), ".h5ad"), "-k", 10, "--preprocess", "log-normalize",
        "--top-features", 800, "--memory", "400M", "-o", f / "out",
    ],
    "h5 dense, gzip, read in blocks": lambda f, r: [
        saved(f, dense(r, about(r, 200_000), 100), ".h5"), "-k", 5, "--memory", "100M",
    ],
    "10x h5": lambda f, r: [saved(f, counts(r, about(r, 40_000), 3000, 0.06), ".10x.h5"), "-k", 10, "-o", f / "out"],
    "mtx.gz": lambda f, r: [saved(f, counts(r, about(r, 12_000), 3000, 0.06), ".mtx.gz"), "-k", 10],
    "zarr CSR, read in blocks": lambda f, r: [
        saved(f, counts(r, about(r, 100_000), 2000, 0.06), ".zarr"), "-k", 10, "--memory", "160M",
    ],
    "NetCDF": lambda f, r: [saved(f, dense(r, 2000, about(r, 12_000)), ".nc"), "-k", 10, "-o", f / "out"],
    "bed": lambda f, r: [genotypes(f, r, 2000, about(r, 50_000)), "-k", 10, "-o", f / "out"],
    "stacked npy and csv": lambda f, r: [
        saved(f, dense(r, about(r, 300_000), 30), ".npy"), saved(f, dense(r, about(r, 30_000), 30, "f8"), ".csv"),
        "--stack", "rows", "-k", 5, "-o", f / "out",
    ],
    "stacked CSR and dense, read in blocks": lambda f, r: [
        saved(f, counts(r, 100_000, 1000, 0.1), ".h5ad"), saved(f, dense(r, 100_000, about(r, 60)), ".h5", "Y"),
        "--stack", "columns", "-k", 5, "--memory", "150M",
    ],
    "a limit that is too tight": lambda f, r: [
        saved(f, dense(r, about(r, 3000), 20_000), ".npy"), "-k", 40, "--memory", "45M",
    ],
}  # fmt: skip

FITTED = """
import json, numpy as np, shiftsvd as ss
from scipy import sparse
kind, m, n, k, given = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), json.loads(sys.argv[5])
rng = np.random.default_rng(0)
X = rng.standard_normal((m, n), np.float32)
if kind == "CSR":
    each = n // 10
    X = sparse.csr_array((rng.random(m * each), np.sort(rng.integers(0, n, (m, each)), axis=1).ravel(),
                          np.arange(0, m * each + 1, each)), shape=(m, n))
    X.sum_duplicates()
weights = rng.random(m) if given.pop("weights", False) else None
ss.svd(np.ones((40, 9)) + np.eye(40, 9), 3, shift="mean", solver="lanczos")
said = ss.estimate(X, k, sample_weight=weights, shift=given["shift"]).peak_bytes
ready()
ss.svd(X, k, rng=0, sample_weight=weights, **given)
print(said)
"""
IN_PYTHON: dict[str, Words] = {
    'svd, shift="both"': ["dense", 5_000_000, 3, 2, '{"shift": "both"}'],
    'svd, shift="rows", weights': ["dense", 5_000_000, 3, 2, '{"shift": "rows", "weights": true}'],
    "svd, weights": ["dense", 5_000_000, 3, 2, '{"shift": "mean", "weights": true}'],
    'svd of CSR, shift="both", scale': ["CSR", 60, 300_000, 5, '{"shift": "both", "scale": "std"}'],
}


def foreseen(words: Words) -> tuple[float | None, str]:
    """The bytes that `estimate` says of a command, or the line by which it refuses it."""
    found = measured([COMMAND, "estimate", *words, "--json"])
    if found.code:
        return None, found.err.strip()
    facts = json.loads(found.out)
    parts = {name: facts[f"{name}_bytes"] for name in ("peak", "held", "program")}
    return sum(parts.values()), ", ".join(f"{name} {size / 1e6:.0f}" for name, size in parts.items())


def row(name: str, said: float | None, how: str, peak: float, found: Measured) -> float | None:
    """Print one line of the table; give the ratio, or None of what was refused."""
    told = (found.err or how).strip().splitlines()
    if said is None or found.refused:
        refused = found.refused and "the limit of" in told[-1]
        print(f"{name:40} {'refused' if refused else 'BROKEN'}: {told[-1] if told else ''}", flush=True)
        return None if refused else float("inf")
    ratio = peak / said
    verdict = "BROKEN " + told[-1] if found.code else "" if ratio <= MOST else "MORE"
    print(f"{name:40} took {peak / 1e6:6.0f} MB  said {said / 1e6:6.0f}  {ratio:5.2f}  ({how}) {verdict}", flush=True)
    return ratio


@click.command()
@click.option("--seed", default=0, show_default=True, help="Of the sizes and the numbers.")
@click.option("--only", default="", help="Lines that have this word.")
def main(seed: int, only: str) -> None:
    """Print a line for each command, and the worst."""
    ratios = []
    for i, (name, make) in enumerate(CASES.items()):
        if only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            words = make(Path(folder), np.random.default_rng([seed, i]))
            said, how = foreseen(words)
            found = measured([COMMAND, "fit", *words, "--quiet"], stop=4 * 10**9)
            ratios.append(row(name, said, how, found.peak, found))
    for name, words in IN_PYTHON.items():
        if only in name:
            found = measured_python(FITTED, *words, stop=4 * 10**9)
            ratios.append(row(name, float(found.out or "nan"), "beyond the data", found.growth, found))
    kept = [ratio for ratio in ratios if ratio is not None]
    refused = len(ratios) - len(kept)
    print(f"{len(ratios)} runs, {refused} refused; largest ratio {max(kept):.2f}, least {min(kept):.2f}, "
          f"median {statistics.median(kept):.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
