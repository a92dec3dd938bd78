"""Fits of files on a server held to 50 MB/s and 20 ms an answer: answers, bytes moved, seconds; seconds from the disk.

A second table has fits of counts by `tol`, without and with --cache: reads, bytes moved and seconds.

Run: python -m benchmarks.claims.remote [--cells 10000] [--megabytes 50] [--milliseconds 20] [--only-cache]
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy import sparse

from benchmarks import data
from shiftsvd.io import convert
from tests.support.server import FolderServer, serving

GENES = 2000
MEMORY = "300M"
WIDE, WIDE_MEMORY = 10_000, "120M"  # genes of the second table: Lanczos, which reads once for each step
FIT = [sys.executable, "-c", "from shiftsvd.cli import main; main()", "fit"]


def written(folder: Path, n_cells: int) -> list[Path]:
    """Write counts as CSR in .h5ad and Zarr, as dense .npy, and as Zarr in shards."""
    import zarr

    X = sparse.random_array((n_cells, GENES), density=0.1, format="csr", rng=np.random.default_rng(0), dtype=np.float32)
    X.data = np.ceil(8 * X.data)
    sparse.save_npz(folder / "X.npz", sparse.csr_matrix(X))
    for name, compression in (("plain.h5ad", None), ("gzip.h5ad", "gzip"), ("chunks.zarr", "zstd")):
        convert(folder / "X.npz", folder / name, compression=compression)
    zarr.consolidate_metadata(str(folder / "chunks.zarr"))
    np.save(folder / "dense.npy", X.toarray())
    shards = (n_cells // 4, GENES)
    made = zarr.create_array(
        str(folder / "shards.zarr"), shape=X.shape, dtype=X.dtype, chunks=(n_cells // 200, GENES), shards=shards
    )
    made[:] = X.toarray()
    return [folder / name for name in ("plain.h5ad", "gzip.h5ad", "chunks.zarr", "dense.npy", "shards.zarr")]


def fitted(place: object, *words: str) -> float:
    """Seconds of a fit of ten components."""
    begun = time.monotonic()
    subprocess.run([*FIT, str(place), "-k", "10", "--json", *words], check=True, capture_output=True)
    return time.monotonic() - begun


def measure(file: Path, server: FolderServer, *words: str) -> dict[str, Any]:
    """Fit a file from the server and from the disk."""
    local = fitted(file, *words)
    server.n_answers = server.n_bytes = 0
    seconds = fitted(f"{server.address}/{file.name}", *words)
    files = [file] if file.is_file() else [each for each in file.rglob("*") if each.is_file()]
    size = sum(each.stat().st_size for each in files)
    return {"size": size, "answers": server.n_answers, "moved": server.n_bytes, "seconds": seconds, "local": local}


def by_tolerance(folder: Path, server: FolderServer, n_cells: int) -> None:
    """Print a line for each tolerance."""
    X = data.counts(n_cells, WIDE)
    X.data = np.ceil(np.expm1(X.data))
    sparse.save_npz(folder / "counts.npz", X)
    convert(folder / "counts.npz", folder / "counts.h5ad")
    size = (folder / "counts.h5ad").stat().st_size
    print(f"{n_cells:,} x {WIDE:,} counts, {size / 1e6:.1f} MB")
    for tol in (1e-1, 1e-2, 1e-4, 1e-6):
        line = f"tol {tol:5.0e}"
        for words in ((), ("--cache", str(folder / "copies"))):
            server.n_bytes, begun = 0, time.monotonic()
            place = f"{server.address}/counts.h5ad"
            fit = [*FIT, place, "-k", "10", "--tol", str(tol), "--memory", WIDE_MEMORY, "--json", *words]
            told = json.loads(subprocess.run(fit, check=True, capture_output=True).stdout)
            moved, seconds = server.n_bytes / 1e6, time.monotonic() - begun
            line += f"{' | cached' if words else ''} {told['n_passes']:3} reads {moved:7.1f} MB {seconds:6.1f} s"
        print(line, flush=True)


@click.command()
@click.option("--cells", default=10000)
@click.option("--megabytes", default=50.0, help="Of the server, each second.")
@click.option("--milliseconds", default=20.0, help="Of each answer.")
@click.option("--only-cache", is_flag=True, help="The second table alone.")
def main(cells: int, megabytes: float, milliseconds: float, only_cache: bool) -> None:
    """Print a line for each file, loaded and read in blocks, and for each tolerance."""
    with tempfile.TemporaryDirectory(prefix="remote-") as folder, serving(Path(folder)) as server:
        server.rate, server.pause = 1e6 * megabytes, milliseconds / 1000
        by_tolerance(Path(folder), server, cells)
        if only_cache:
            return
        print(f"{'file':12} {'memory':8} {'size':>8} {'answers':>8} {'moved':>9} {'seconds':>8} {'disk':>6}")
        for file in written(Path(folder), cells):
            for words in ((), ("--memory", MEMORY)):
                found = measure(file, server, *words)
                sizes = f"{found['size'] / 1e6:6.1f}MB {found['answers']:8} {found['moved'] / 1e6:7.1f}MB"
                memory = words[-1] if words else "default"
                print(f"{file.name:12} {memory:8} {sizes} {found['seconds']:8.1f} {found['local']:6.1f}", flush=True)


if __name__ == "__main__":
    main()
