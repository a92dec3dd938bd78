"""Fits of atlases of cells in BPCells folders: seconds, reads, memory, and bytes on disk, by the number of cells.

    python -m benchmarks.claims.atlas --cells 100000 --cells 1000000 --memory 2GB
    python -m benchmarks.claims.atlas --cells 10000000 --memory 4GB --folder /scratch     # 8 GB on disk, 4e9 entries

Each cell is a cell of the 10,000 PBMC of SHIFTSVD_TEST_DATA (else a simulated one) with 20 copies of its 1,000 genes,
whose counts are thinned independently to a library size of its own, so that 2 % of 20,000 genes are nonzero.
Seconds of unpacking and of products are those of the processor, of one thread.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy import sparse, stats

import shiftsvd as ss
from shiftsvd.backends.files import DiskRows
from shiftsvd.backends.source import RowSource
from shiftsvd.io import Names, convert, open_matrix
from shiftsvd.io.caching import Watched
from shiftsvd.kernels import ordered, threads
from shiftsvd.scanpy import bpcells

GENES, NONZERO = 20_000, 0.02
BLOCK = 2_000  # cells that are made at once
MOST, LEVELS, BITS = 64, 16, 12  # largest count that is thinned exactly; library sizes; bits of a random number
BLOCK_BYTES = 2**25
WIDTH = 64  # columns of the panel of a product
COMPARED = 100_000  # most cells that are also written as .h5ad


def cells() -> Any:
    """Real counts of cells by 1,000 genes, or simulated ones of ten groups."""
    file = Path(os.environ.get("SHIFTSVD_TEST_DATA", "")) / "pbmc10k_counts.npz"
    if file.is_file():
        return sparse.csr_array(sparse.load_npz(file))
    rng = np.random.default_rng(0)
    profiles = rng.gamma(0.2, 0.5, 1000) * rng.lognormal(0, 1, (10, 1000))
    return sparse.csr_array(rng.poisson(profiles[rng.integers(10, size=10_000)]).astype(np.float32))


class Atlas:
    """Blocks of cells, each with a generator of its own."""

    def __init__(self, n_cells: int) -> None:
        some = cells()
        self.copies = sparse.csr_array(sparse.hstack([some] * (GENES // some.shape[1]), format="csr"))
        self.copies.data = np.minimum(self.copies.data, MOST - 1).astype(np.uint8)
        self.edges = [*range(0, n_cells, BLOCK), n_cells]
        shares = self._share() * np.exp(0.5 * stats.norm.ppf((np.arange(LEVELS) + 0.5) / LEVELS))
        quantiles = (np.arange(2**BITS) + 0.5) / 2**BITS
        tables = stats.binom.ppf(quantiles, np.arange(MOST)[:, None], np.minimum(shares, 1)[:, None, None])
        self.thinned = tables.astype(np.uint8).reshape(-1)

    def _share(self) -> float:
        # The share of molecules to keep, by bisection.
        counts = np.bincount(self.copies.data, minlength=MOST) / self.copies.shape[0]
        lo, hi = 0.0, 1.0
        for _ in range(30):
            middle = (lo + hi) / 2
            left = counts @ (1 - (1 - middle) ** np.arange(MOST))
            lo, hi = (lo, middle) if left > NONZERO * GENES else (middle, hi)
        return lo

    def block(self, rows: tuple[int, int]) -> Any:
        rng, size = np.random.default_rng(rows[0]), rows[1] - rows[0]
        X = self.copies[rng.integers(self.copies.shape[0], size=size)]
        entries = np.diff(X.indptr)
        places = np.repeat(rng.integers(LEVELS, size=size, dtype=np.int32) * MOST, entries)
        places += X.data
        places <<= BITS
        places += rng.integers(2**BITS, size=X.nnz, dtype=np.uint16)
        data = self.thinned[places]
        kept = np.flatnonzero(data)
        indptr = np.searchsorted(kept, X.indptr)
        return sparse.csr_array((data[kept], X.indices[kept], indptr), shape=X.shape)

    def blocks(self) -> Iterator[Any]:
        return (X for _, X in ordered(self._with_rows, list(pairwise(self.edges)), 2))

    def _with_rows(self, rows: tuple[int, int]) -> Any:
        return rows, self.block(rows)


def written(path: Path, n_cells: int) -> None:
    """Make the folder of an atlas."""
    started, used = time.perf_counter(), time.process_time()
    blocks: Any = Atlas(n_cells).blocks()
    bpcells.write(path, blocks, (n_cells, GENES), Names())
    seconds = time.perf_counter() - started, time.process_time() - used
    source = opened(path)
    size = sum(file.stat().st_size for file in path.iterdir())
    print(
        f"{n_cells:,} x {GENES:,}: {source.stored:,} entries ({source.stored / n_cells / GENES:.2%}) made in "
        f"{seconds[0]:.0f} s ({seconds[1]:.0f} s of processors); {size / 1e6:,.0f} MB, "
        f"{8 * size / source.stored:.1f} bits an entry",
        flush=True,
    )


def opened(path: Path) -> RowSource:
    A, _ = open_matrix(path, stream=True, orient="rows" if path.suffix == ".h5ad" else None)
    source: Any = A.source  # type: ignore[attr-defined]
    return source.source if isinstance(source, Watched) else source  # type: ignore[no-any-return]


def of_entry(source: Any, work: Callable[[tuple[int, int]], object]) -> float:
    """Least nanoseconds of the processor for an entry, of three passes over at most 64 blocks."""
    ranges, seconds = list(pairwise(source.edges(BLOCK_BYTES)))[:64], []
    for _ in range(3):
        started = time.process_time()
        for rows in ranges:
            work(rows)
        seconds.append(time.process_time() - started)
    return 1e9 * min(seconds) / int(source.indptr[ranges[-1][1]])


def speeds(name: str, path: Path) -> None:
    """Print nanoseconds of an entry: its index and value, the checked block of rows, and a product with it."""
    source: Any = opened(path)
    A = ss.as_operator(DiskRows(source))
    V = np.random.default_rng(0).standard_normal((GENES, WIDTH)).astype(np.float32)

    def numbers(rows: tuple[int, int]) -> None:
        first, last = map(int, source.indptr[list(rows)])
        source.indices[first:last], source.data[first:last]

    with threads(1):
        found = [of_entry(source, work) for work in (numbers, A._block, lambda rows: A._block(rows).gram(V))]
    print(
        f"  {name:10} ns an entry: {found[0]:.2f} index and value, {found[1]:.2f} checked block, "
        f"{found[2]:.2f} with a product of {WIDTH} columns",
        flush=True,
    )


def fit(path: Path, how: str | None, memory: str) -> None:
    """In a process of its own: fit, and print what it took."""
    started = time.perf_counter()
    A, _ = open_matrix(path, memory_limit=memory, stream=True)
    pca = ss.PCA(50, preprocess=how, memory_limit=memory, random_state=0).fit(A)
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = {"seconds": time.perf_counter() - started, "processor": time.process_time(), "peak": peak}
    print(json.dumps(found | {"reads": pca.info_.n_passes, "solver": pca.info_.solver.partition("(")[0]}))


def fitted(name: str, path: Path, how: str | None, memory: str) -> None:
    """Print the line of a fit."""
    words = [sys.executable, "-m", "benchmarks.claims.atlas", "--fit", str(path), "--memory", memory]
    words += ["--preprocess", how] if how else []
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    print(
        f"  {name:10} PCA(50), {how or 'plain':13}: {found['seconds']:.0f} s ({found['processor']:.0f} s of "
        f"processors), {found['reads']:g} reads, {found['peak'] / 1e6:,.0f} MB at most ({found['solver']})",
        flush=True,
    )


@click.command(help=__doc__)
@click.option("--cells", "sizes", multiple=True, type=int, default=(100_000,))
@click.option("--memory", default="2GB")
@click.option("--folder", type=click.Path(path_type=Path), help="Folder to keep the atlases in.")
@click.option("--fit", "to_fit", type=click.Path(path_type=Path), hidden=True)
@click.option("--preprocess", hidden=True)
def main(sizes: tuple[int, ...], memory: str, folder: Path | None, to_fit: Path | None, preprocess: str | None) -> None:
    """Make atlases, and measure."""
    if to_fit is not None:
        fit(to_fit, preprocess, memory)
        return
    for n_cells in sizes:
        with nullcontext(folder) if folder else tempfile.TemporaryDirectory(prefix="atlas-") as place:
            path = Path(place) / f"{n_cells}.bpcells"
            if not path.exists():
                written(path, n_cells)
            files = {"BPCells": path}
            for compression in ("none", "gzip", "zstd") if n_cells <= COMPARED else ():
                name = f"h5ad {compression}"
                files[name] = path.with_suffix(f".{compression}.h5ad")
                convert(path, files[name], compression=compression)
                print(f"  {name:10} {files[name].stat().st_size / 1e6:,.0f} MB")
            for name, file in files.items():
                speeds(name, file)
            for name in ("BPCells", "h5ad none"):
                for how in (None, "log-normalize") if name in files else ():
                    fitted(name, files[name], how, memory)


if __name__ == "__main__":
    main()
