"""The memory of the command beside --memory: on files that unpack to gigabytes, and on honest files of 1 to 3 GB.

Run: python -m benchmarks.claims.bombs [--only WORD] [--memory 200M] [--kept keeper|system|none]
     python -m benchmarks.claims.bombs --honest 10 [--memory 500M]
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy import sparse

from shiftsvd.runs.memory import parse_bytes, slack_of
from tests.support.bombs import BOMBS
from tests.support.meter import Measured, measured

# The command without its keeper: click takes words that are given to it for another program's.
BARE = "import sys; from shiftsvd.cli import main; main(sys.argv[1:])"
LIMITED = (
    "import sys, resource; from shiftsvd.cli import main; data = 1024 * int(next(line for line in "
    "open('/proc/self/status') if 'VmData' in line).split()[1]); "
    "resource.setrlimit(resource.RLIMIT_DATA, (data + int(sys.argv.pop(1)),) * 2); main(sys.argv[1:])"
)
BURST = 10**8  # bytes that threads may touch between two looks of the watcher
STOP = 8 * 10**9  # bytes of data that no command gets, kept or not


def command(kept: str, limit: int) -> list[str]:
    """What runs the command, its memory kept by the watcher, by the system, or not at all."""
    if kept == "keeper":
        return [sys.executable, "-c", "from shiftsvd.cli import main; main()"]
    return [sys.executable, "-c", *([LIMITED, str(limit + slack_of(limit))] if kept == "system" else [BARE])]


def start() -> int:
    """Anonymous bytes of the command before it looks at any file."""
    return measured([*command("keeper", 0), "--version"]).peak


def explode(name: str, memory: str, kept: str) -> tuple[Measured, float]:
    """Write one bomb, and run its command."""
    with tempfile.TemporaryDirectory(prefix="bombs-") as folder:
        words = BOMBS[name](Path(folder))
        begun = time.monotonic()
        found = measured([*command(kept, parse_bytes(memory)), *words, "--memory", memory], stop=STOP)
        return found, time.monotonic() - begun


def bombs(only: str, memory: str, kept: str) -> int:
    """Print a line for each bomb, and return how many were not held."""
    limit, before, wrong = parse_bytes(memory), start(), 0
    bound = limit + slack_of(limit) + BURST
    print(f"--memory {memory}; stated: {bound / 1e6:.0f} MB above a start of {before / 1e6:.0f} MB; kept: {kept}")
    print(f"{'bomb':40} {'peak MB':>8} {'seconds':>8} {'code':>5} {'lines':>6}  what was said")
    names = [name for name in BOMBS if only.lower() in name.lower()]
    for name in names:
        found, seconds = explode(name, memory, kept)
        lines = found.err.strip().splitlines()
        held = found.peak - before <= bound and found.code in (0, 1) and (found.code == 0 or len(lines) == 1)
        wrong += not held
        said = (lines or found.out.splitlines() or [""])[-1]
        print(
            f"{name:40} {(found.peak - before) / 1e6:8.0f} {seconds:8.1f} {found.code:5} {len(lines):6}  "
            f"{'' if held else 'NOT HELD '}{said.partition(': ')[2][-100:]}",
            flush=True,
        )
    print(f"{len(names)} bombs, {wrong} not held")
    return wrong


BLOCK = 20_000  # rows that are made at once
COLUMNS = 1000


def dense(rows: int) -> Iterator[Any]:
    """Blocks of rows of rank 5 and noise, of few digits, so that they can be packed."""
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((5, COLUMNS)) * np.array([[9.0], [7], [5], [4], [3]])
    for lo in range(0, rows, BLOCK):
        X = rng.standard_normal((min(BLOCK, rows - lo), 5)) @ loadings + rng.standard_normal(COLUMNS)
        yield np.round(X, 1).astype(np.float32)


def counts(rows: int, density: float = 0.1) -> sparse.csr_array:
    """Counts of a tenth of the entries."""
    rng, each = np.random.default_rng(0), int(density * COLUMNS)
    steps = rng.integers(1, int(2 / density), (rows, each), dtype=np.int32)
    indices = (np.cumsum(steps, axis=1, dtype=np.int32) % COLUMNS).ravel()
    data = (1 + rng.integers(0, 9, rows * each, dtype=np.int32) * (indices % 7 == 0)).astype(np.float32)
    X = sparse.csr_array((data, indices, np.arange(0, rows * each + 1, each)), shape=(rows, COLUMNS))
    X.sum_duplicates()
    return X


def npy(path: Path) -> None:
    """Numbers in single precision."""
    rows = 300_000
    X = np.lib.format.open_memmap(path, "w+", np.float32, (rows, COLUMNS))
    for lo, block in zip(range(0, rows, BLOCK), dense(rows), strict=True):
        X[lo : lo + len(block)] = block


def hdf5(packed: dict[str, Any], rows: int) -> Callable[[Path], None]:
    """A dataset in chunks."""

    def write(path: Path) -> None:
        import h5py

        with h5py.File(path, "w") as file:
            X = file.create_dataset("X", (rows, COLUMNS), "f4", chunks=(1000, COLUMNS), **packed)
            for lo, block in zip(range(0, rows, BLOCK), dense(rows), strict=True):
                X[lo : lo + len(block)] = block

    return write


def anndata(path: Path) -> None:
    """Counts of 1.6 million cells, as AnnData writes them."""
    import h5py

    X, times = counts(400_000), 4
    indptr = np.concatenate([[0], *(X.indptr[1:].astype(np.int64) + X.nnz * i for i in range(times))])
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", (times * X.shape[0], COLUMNS)
        group["indptr"] = indptr
        for name in ("data", "indices"):
            part = getattr(X, name)
            node = group.create_dataset(name, (times * len(part),), part.dtype, chunks=(1 << 20,))
            for i in range(times):
                node[i * len(part) : (i + 1) * len(part)] = part
        for frame, size in (("obs", times * X.shape[0]), ("var", COLUMNS)):
            file.create_group(frame)["_index"] = np.array([f"n{i}" for i in range(size)], "S")
        file.attrs["encoding-type"] = "anndata"


def zarr(path: Path) -> None:
    """An array in chunks, packed by zstd."""
    import zarr as library

    X = library.create_array(str(path), shape=(500_000, COLUMNS), chunks=(2000, COLUMNS), dtype="f4")
    for lo, block in zip(range(0, 500_000, BLOCK), dense(500_000), strict=True):
        X[lo : lo + len(block)] = block


def parquet(path: Path) -> None:
    """Row groups of 20,000."""
    import pyarrow as pa
    from pyarrow import parquet as library

    writer = None
    for block in dense(500_000):
        table = pa.table({f"g{j}": block[:, j] for j in range(COLUMNS)})
        writer = writer or library.ParquetWriter(path, table.schema, compression="snappy", use_dictionary=False)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def feather(path: Path) -> None:
    """Batches of 20,000 rows."""
    import pyarrow as pa

    writer = None
    for block in dense(250_000):
        batch = pa.record_batch({f"g{j}": block[:, j] for j in range(COLUMNS)})
        writer = writer or pa.ipc.new_file(str(path), batch.schema)
        writer.write_batch(batch)
    assert writer is not None
    writer.close()


def netcdf(path: Path) -> None:
    """A field of 1000 cells."""
    import h5netcdf

    with h5netcdf.File(path, "w") as file:
        file.dimensions = {"time": 300_000, "cell": COLUMNS}
        X = file.create_variable("X", ("time", "cell"), "f4", chunks=(1000, COLUMNS))
        for lo, block in zip(range(0, 300_000, BLOCK), dense(300_000), strict=True):
            X[lo : lo + len(block)] = block


def npz(path: Path) -> None:
    """Counts as SciPy writes them."""
    sparse.save_npz(path, counts(1_500_000), compressed=False)


def csv(path: Path) -> None:
    """A text with a header."""
    with path.open("w") as file:
        file.write(",".join(f"g{j}" for j in range(COLUMNS)) + "\n")
        for block in dense(220_000):
            np.savetxt(file, block[:, :COLUMNS], fmt="%.1f", delimiter=",")


# Name of the file, what writes it, and the limit: formats that are read whole need more than those read in blocks.
HONEST: dict[str, tuple[Callable[[Path], None], str]] = {
    "a.npy": (npy, "500M"),
    "plain.h5": (hdf5({}, 300_000), "500M"),
    "a.h5ad": (anndata, "500M"),
    "a.nc": (netcdf, "500M"),
    "a.zarr": (zarr, "500M"),
    "a.parquet": (parquet, "1G"),
    "a.npz": (npz, "3G"),
    "gzip.h5": (hdf5({"compression": "gzip", "compression_opts": 1}, 800_000), "500M"),
    "a.feather": (feather, "6G"),
    "a.csv": (csv, "4G"),
}


def timed(words: list[str]) -> tuple[int, float, float]:
    """Exit code, seconds by the clock and seconds of the processors of a command."""
    begun = time.monotonic()
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    return os.waitstatus_to_exitcode(status), time.monotonic() - begun, used.ru_utime + used.ru_stime


def honest(count: int, only: str, times: int) -> int:
    """Print a line for each honest file, with the keeper and without in turn; return how many were ended."""
    print(f"{'file':12} {'GB':>5} {'--memory':>9} {'peak MB':>8} {'clock s':>8} {'ratio':>6} {'CPU s':>7} {'ratio':>6}")
    ended = 0
    for name in [each for each in HONEST if only in each][:count]:
        write, memory = HONEST[name]
        with tempfile.TemporaryDirectory(prefix="honest-") as folder:
            path = Path(folder) / name
            write(path)
            size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
            words = ["fit", str(path), "-k", "2", "--memory", memory]
            found = measured([*command("keeper", 0), *words])  # the system holds the file from here on
            kept, bare = [], []
            for _ in range(times):
                kept.append(timed([*command("keeper", 0), *words]))
                bare.append(timed([*command("none", 0), *words]))
        codes = {found.code, *(code for code, _, _ in kept + bare)}
        ended += codes != {0}
        (clock, used), (clock_bare, used_bare) = (
            [min(run[at] for run in runs) for at in (1, 2)] for runs in (kept, bare)
        )
        print(
            f"{name:12} {size / 1e9:5.1f} {memory:>9} {found.peak / 1e6:8.0f} {clock:8.1f} {clock / clock_bare:6.3f} "
            f"{used:7.1f} {used / used_bare:6.3f}  {'' if codes == {0} else found.err.strip()[-150:]}",
            flush=True,
        )
    return ended


@click.command()
@click.option("--only", default="", help="Part of the names to run.")
@click.option("--memory", default="200M", help="The limit of bombs.")
@click.option("--kept", type=click.Choice(["keeper", "system", "none"]), default="keeper", help="What holds bombs.")
@click.option("--honest", "count", type=int, default=0, help="So many honest files instead of bombs.")
@click.option("--times", default=3, help="Runs of each honest file with the keeper, and without.")
def main(only: str, memory: str, kept: str, count: int, times: int) -> None:
    """Print the table."""
    sys.exit(bool(honest(count, only, times) if count else bombs(only, memory, kept)))


if __name__ == "__main__":
    main()
