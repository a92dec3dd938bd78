"""Fits of files larger than the memory that they may take: reads, seconds a pass, peak memory, error.

Makes a CSR matrix in HDF5 (rows of `counts`, redrawn and rescaled) or a dense .npy, and measures side by side: a plain
sequential read of the same bytes, a pass, the product of blocks that are in memory, and whole fits. The reference is
computed from the pool of rows, without us. The page cache is dropped before each read where the system allows it.

Run: python -m benchmarks.claims.streaming [--gigabytes 12] [--kind csr|gzip|zstd|dense] [--memory 1G]
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path

import click
import h5py
import numpy as np

import shiftsvd as ss
from benchmarks import data
from shiftsvd.backends.files import DiskRows
from shiftsvd.backends.source import RowSource
from shiftsvd.io import open_matrix
from shiftsvd.kernels import threads

POOL, COLUMNS, K = 120_000, 2_000, 50
AT_ONCE = 50_000  # rows that are made at a time
PIECE = 2**25
BATCH = 2_000  # rows of a batch of IncrementalPCA


def make(file: Path, kind: str, gigabytes: float) -> np.ndarray:
    """Write the file; the singular values of its centred matrix, from the pool."""
    rng = np.random.default_rng(7)
    pool = data.counts(POOL if kind != "dense" else 20_000, COLUMNS, seed=7)
    per_row = 4 * COLUMNS if kind == "dense" else 8 * pool.nnz / pool.shape[0]
    rows = int(gigabytes * 1e9 / per_row)
    squares, sums = np.zeros(pool.shape[0]), np.zeros(pool.shape[0])
    write = _Dense(file, rows) if kind == "dense" else _Sparse(file, rows, kind)
    for lo in range(0, rows, AT_ONCE):
        drawn = rng.integers(0, pool.shape[0], min(AT_ONCE, rows - lo))
        scale = rng.lognormal(0, 0.2, len(drawn)).astype(np.float32)
        np.add.at(squares, drawn, scale.astype(np.float64) ** 2)
        np.add.at(sums, drawn, scale.astype(np.float64))
        block = pool[drawn]
        block.data *= np.repeat(scale, np.diff(block.indptr))
        write.add(lo, block)
    write.close()
    return _values(pool, squares, sums, rows)


class _Sparse:
    """The layout of AnnData in HDF5."""

    def __init__(self, file: Path, rows: int, kind: str) -> None:
        settings: dict = {"chunks": (2**18,), "maxshape": (None,)}
        if kind == "gzip":
            settings |= {"compression": "gzip", "compression_opts": 1, "shuffle": True}
        if kind == "zstd":
            import hdf5plugin

            settings |= dict(hdf5plugin.Zstd(clevel=1))
        self.file = h5py.File(file, "w")
        X = self.file.create_group("X")
        X.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": (rows, COLUMNS)})
        self.parts = [X.create_dataset(*part, **settings) for part in (("data", (0,), "f4"), ("indices", (0,), "i4"))]
        self.X, self.ends = X, [np.zeros(1, np.int64)]

    def add(self, lo: int, block) -> None:
        end = int(self.ends[-1][-1])
        for part, values in zip(self.parts, (block.data, block.indices), strict=True):
            part.resize((end + block.nnz,))
            part[end:] = values
        self.ends.append(end + block.indptr[1:].astype(np.int64))

    def close(self) -> None:
        self.X.create_dataset("indptr", data=np.concatenate(self.ends))
        for name in ("obs", "var"):
            frame = self.file.create_group(name)
            frame.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"})
        self.file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        self.file.close()


class _Dense:
    """A .npy of float32, written without a map of it."""

    def __init__(self, file: Path, rows: int) -> None:
        self.out = file.open("wb")
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows, COLUMNS)}
        np.lib.format.write_array_header_1_0(self.out, header)

    def add(self, lo: int, block) -> None:
        self.out.write(block.toarray().tobytes())

    def close(self) -> None:
        self.out.close()


def _values(pool, squares: np.ndarray, sums: np.ndarray, rows: int) -> np.ndarray:
    """Singular values of the drawn rows minus their mean, by the Gram matrix of the pool in double precision."""
    G, mean = np.zeros((COLUMNS, COLUMNS)), sums @ pool / rows
    for lo in range(0, pool.shape[0], 10_000):
        part = pool[lo : lo + 10_000].toarray().astype(np.float64)
        G += part.T @ (part * squares[lo : lo + 10_000, None])
    return np.sqrt(np.maximum(np.linalg.eigvalsh(G - rows * np.outer(mean, mean))[::-1], 0))


def forget(file: Path) -> None:
    """Drop what the system keeps of a file in memory."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def plain_read(file: Path, kind: str) -> float:
    """Seconds to read the numbers one after the other, and do nothing with them."""
    forget(file)
    started = time.perf_counter()
    if kind == "dense":
        with file.open("rb", buffering=0) as opened:
            buffer = bytearray(PIECE)
            while opened.readinto(buffer):
                pass
        return time.perf_counter() - started
    if kind == "zstd":
        import hdf5plugin  # noqa: F401
    with h5py.File(file) as opened:
        parts = [opened["X/data"], opened["X/indices"]]
        step = PIECE // 8
        for lo in range(0, len(parts[0]), step):
            for part in parts:
                part[lo : lo + step]
    return time.perf_counter() - started


class Held(RowSource):
    """Some blocks of a file, in memory."""

    def __init__(self, source: RowSource, blocks: dict) -> None:
        for name in ("shape", "dtype", "sparse", "stored", "name", "fingerprint"):
            setattr(self, name, getattr(source, name))
        self.blocks = blocks

    def edges(self, n_bytes: int) -> list[int]:
        raise NotImplementedError

    def read(self, lo: int, hi: int):
        return self.blocks[lo, hi].copy()


def one_pass(file: Path, memory: str, columns: int) -> tuple[float, float]:
    """(seconds of a fused product with the file, seconds of the same product with blocks in memory)."""
    A, _ = open_matrix(file, memory_limit=memory, stream=True)
    assert isinstance(A, DiskRows)
    V = np.random.default_rng(0).standard_normal((COLUMNS, columns)).astype(np.float32)
    with threads():
        forget(file)
        started = time.perf_counter()
        A.gram(V)
        streamed = time.perf_counter() - started
        blocks = A.blocks()
        some = blocks[:: max(1, len(blocks) // 40)]
        held = {rows: A.source.read(*rows) for rows in some}
        share = sum(hi - lo for lo, hi in some) / A.shape[0]

        inside = replace(A, source=Held(A.source, held), memo={"blocks": some})
        started = time.perf_counter()
        inside.gram(V)
        return streamed, (time.perf_counter() - started) / share


def fit(file: Path, memory: str, solver: str, tol: float, max_passes: int | None) -> dict:
    """A fit in a process of its own."""
    job = json.dumps([str(file), memory, solver, tol, max_passes])
    forget(file)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.claims.streaming", "--job", job], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def largest() -> int:
    """Bytes of memory that this process had at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def job(file: str, memory: str, solver: str, tol: float, max_passes: int | None) -> dict:
    """What that process does."""
    started = time.perf_counter()
    if solver == "IncrementalPCA":
        return incremental(file, started)
    A, _ = open_matrix(file, memory_limit=memory, stream=True)
    chosen = ss.BlockLanczos(tol, max_passes=max_passes) if max_passes else solver
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pca = ss.PCA(K, solver=chosen, tol=None if max_passes else tol, random_state=0, memory_limit=memory).fit(A)
    return {
        "seconds": time.perf_counter() - started,
        "peak": largest(),
        "reads": pca.info_.n_passes + 1,  # and the moments
        "converged": pca.info_.converged,
        "values": pca.singular_values_.tolist(),
        "columns": pca.info_.sample_size,
    }


def incremental(file: str, started: float) -> dict:
    """scikit-learn's answer to files: dense batches, merged one after the other."""
    from sklearn.decomposition import IncrementalPCA

    A, _ = open_matrix(file, stream=True)
    assert isinstance(A, DiskRows)
    pca = IncrementalPCA(K)
    for lo in range(0, A.shape[0], BATCH):
        pca.partial_fit(A.source.read(lo, min(lo + BATCH, A.shape[0])).toarray())
    return {
        "seconds": time.perf_counter() - started,
        "peak": largest(),
        "reads": 1,
        "converged": None,
        "values": pca.singular_values_.tolist(),
        "columns": BATCH,
    }


def said(name: str, found: dict, exact: np.ndarray) -> None:
    """A line of the table."""
    error = np.max(np.abs(np.array(found["values"]) / exact - 1))
    print(
        f"{name:18} {found['seconds']:7.1f} s  {found['reads']:3} reads  panels of {found['columns']:4}  "
        f"peak {found['peak'] / 1e6:6.0f} MB  error {error:.1e}  converged {found['converged']}",
        flush=True,
    )


@click.command()
@click.option("--gigabytes", default=12.0, show_default=True)
@click.option("--kind", type=click.Choice(["csr", "gzip", "zstd", "dense"]), default="csr", show_default=True)
@click.option("--memory", default="1G", show_default=True)
@click.option(
    "--folder", type=click.Path(path_type=Path), help="Where the file is made and kept.  [default: a temporary one]"
)
@click.option("--make-only", is_flag=True, help="Make the file, and measure nothing.")
@click.option("--stop", default=9, show_default=True, help="Reads of the fit that is stopped early.")
@click.option("--peer", is_flag=True, help="Also scikit-learn's IncrementalPCA, which takes an hour for 12 GB.")
@click.option("--job", "job_of", hidden=True)
def main(
    gigabytes: float,
    kind: str,
    memory: str,
    folder: Path | None,
    make_only: bool,
    stop: int,
    peer: bool,
    job_of: str | None,
) -> None:
    if job_of:
        print(json.dumps(job(*json.loads(job_of))))
        return
    with tempfile.TemporaryDirectory() as scratch:
        home = folder or Path(scratch)
        file = home / f"{kind}-{gigabytes:g}{'.npy' if kind == 'dense' else '.h5ad'}"
        values = file.with_suffix(".values")
        if not values.exists():
            started = time.perf_counter()
            values.write_text(json.dumps(make(file, kind, gigabytes)[:K].tolist()))
            print(f"made in {time.perf_counter() - started:.0f} s", flush=True)
        if make_only:
            return
        exact = np.array(json.loads(values.read_text()))
        size = file.stat().st_size
        print(f"{kind}: {size / 1e9:.1f} GB on disk", flush=True)
        reads = sorted(plain_read(file, kind) for _ in range(3))
        print(f"plain sequential read: {reads[1]:.1f} s ({size / reads[1] / 1e9:.2f} GB/s)", flush=True)
        streamed, held = one_pass(file, memory, 96)
        bound = max(1.5 * reads[1], 1.3 * held)
        print(
            f"a pass, 96 columns: {streamed:.1f} s; the same product in memory {held:.1f} s; that is "
            f"{streamed / reads[1]:.2f} reads, {streamed / held:.2f} products, {streamed / bound:.2f} of the limit",
            flush=True,
        )
        for name, solver, tol, most in (
            ("lanczos to 1e-3", "lanczos", 1e-3, None),
            (f"lanczos, {stop} reads", "lanczos", 1e-3, stop - 2),
            ("auto to 1e-4", "auto", 1e-4, None),
        ):
            found = fit(file, memory, solver, tol, most)
            said(name, found, exact)
        if peer:
            said("IncrementalPCA", fit(file, memory, "IncrementalPCA", 0.0, None), exact)


if __name__ == "__main__":
    main()
