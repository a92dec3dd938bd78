"""Reads hostile files in children with little memory and little time, and says what came of each.

``python -m tests.support.hostile_run 2000`` makes so many files in all, and prints a table.
"""

import json
import os
import resource
import signal
import sys
import tempfile
import warnings
import zlib
from collections import Counter
from pathlib import Path

import numpy as np

# Arrow's own asks for a gigabyte at once, and waits for it; it reads this when it is first imported.
os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
ROOM = 2**30  # bytes of address space beyond what the libraries take
SECONDS = 20  # of the processor; three times as many by the clock, for machines that do other things too
MARK = b"canary-5f0e8d"  # what stands in the file elsewhere
NUMBER = 7.25e77  # and the same as a number
LIMIT = "300MB"
Outcome = tuple[str, str]  # "loaded", "refused", or what is wrong; with the message


def canary_at(folder: Path) -> Path:
    """A file of bytes, and one of HDF5, that no reader is told of."""
    import h5py

    path = folder / "canary.bin"
    path.write_bytes((np.full(8, NUMBER).tobytes() + MARK.ljust(16)) * 200)
    with h5py.File(path.with_suffix(".h5"), "w") as file:
        file["X"] = np.full((12, 5), NUMBER)
        file["names"] = [MARK] * 12
    return path


def attempt(path: Path) -> Outcome:
    """As a user would: all numbers, all names, in memory and block by block."""
    from shiftsvd.io import open_matrix
    from shiftsvd.model_file import load_model

    said: list[bytes] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if path.suffix == ".safetensors":
                said.append(repr(vars(load_model(path))).encode())
            else:
                for stream in (None, True):
                    A, names = open_matrix(path, stream=stream, memory_limit=LIMIT)
                    said += [repr(each.tolist()).encode() for each in names if each is not None]
                    said.append(np.ascontiguousarray(A.matmat(np.eye(A.shape[1], min(A.shape[1], 8)))).tobytes())
                    said.append(repr(A.moments()).encode())
        end = "loaded"
    except (ValueError, OSError, ImportError, TypeError, OverflowError) as error:
        said.append(str(error).encode("utf-8", "surrogatepass"))
        whole = "cannot be read in blocks" in str(error)  # it was read, and cannot be read in blocks
        kind = "refused" if isinstance(error, (ValueError, OSError)) else f"raised {type(error).__name__}"
        end = "loaded" if whole else kind
        if any((ord(letter) < 32 and letter not in "\n\t") or letter in "\x7f\x9b" for letter in str(error)):
            end = "control characters"
    told = b"\n".join(said)
    escaped = MARK in told or np.array(NUMBER).tobytes() in told or b"7.25e+77" in told or b"root:x:" in told
    return ("escaped" if escaped else end), said[-1][:300].decode("utf-8", "replace")


def run(jobs: list[tuple[str, int]], seed: int = 0) -> list[Outcome]:
    """What came of files, each named by its class and a number; each child goes on where the last one died."""
    found: list[Outcome] = []
    while len(found) < len(jobs):
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reads)
            _child(jobs[len(found) :], seed, writes)
        os.close(writes)
        with os.fdopen(reads) as stream:
            found += [tuple(json.loads(line)) for line in stream]
        _, status = os.waitpid(child, 0)
        if len(found) < len(jobs):
            signal_ = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            end = "hung" if signal_ in (signal.SIGALRM, signal.SIGPROF) else f"died ({signal_ or status >> 8})"
            found.append((end, jobs[len(found)][0]))
    return found


def _child(jobs: list[tuple[str, int]], seed: int, writes: int) -> None:
    """Make and read files, one after another, and never come back."""
    from tests.support.hostile_files import CASES

    code, null = 1, os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        for name, number in jobs:
            with tempfile.TemporaryDirectory(prefix="hostile-") as place:
                canary = canary_at(Path(place))
                folder = Path(place) / "files"
                folder.mkdir()
                path = CASES[name](folder, np.random.default_rng([seed, number, zlib.crc32(name.encode())]), canary)
                limited(True)
                timed(SECONDS)
                outcome = attempt(path)
                timed(0)
                limited(False)
                if (folder / "ran").exists():
                    outcome = ("ran code", outcome[1])
                os.write(writes, (json.dumps(outcome) + "\n").encode())
        code = 0
    except MemoryError:
        code = 99
    finally:
        os._exit(code)


def timed(seconds: int) -> None:
    """End the process after so many seconds of its processor, or three times as many by the clock; 0: never."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(3 * seconds)


def limited(on: bool) -> None:
    """Little memory while a file is read; writing one may take more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + ROOM if on else resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def load_libraries() -> None:
    """Everything that readers import, before children are made."""
    for name in (
        "h5py",
        "hdf5plugin",
        "zarr",
        "pyarrow.parquet",
        "pyarrow.csv",
        "pandas",
        "xarray",
        "h5netcdf",
        "bed_reader",
        "pgenlib",
    ):
        try:
            __import__(name)
        except ImportError:
            print(f"{name} is not there: its classes are left out", file=sys.stderr)
    import shiftsvd.io
    import shiftsvd.model_file  # noqa: F401


def main(files: int) -> int:
    """A line for each class, and the number of those that went wrong."""
    from tests.support.hostile_files import CASES

    load_libraries()
    each, wrong = -(-files // len(CASES)), 0
    total: Counter[str] = Counter()
    jobs = [(name, number) for name in CASES for number in range(each)]
    ends = run(jobs)
    for name in CASES:
        outcomes = [end for (of, _), end in zip(jobs, ends, strict=True) if of == name]
        told = Counter(end for end, _ in outcomes)
        total += told
        bad = [outcome for outcome in outcomes if outcome[0] not in ("loaded", "refused")]
        wrong += len(bad)
        print(f"{name:40} {each:4}  {dict(told)}", flush=True)
        for outcome in bad[:3]:
            print(f"    {outcome}", flush=True)
    print(f"{len(CASES)} classes, {each * len(CASES)} files: {dict(total)}")
    return wrong


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)))
