"""Damaged files of the formats that are read range by range: an error with the file's name, or what still holds."""

import json
import os
import resource
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftsvd.backends.source import RowSource
from shiftsvd.io.opening import open_matrix, read_file
from tests.support.chunked import (
    CHUNKED,
    matrix,
    write_h5ad,
    write_hdf5,
    write_netcdf,
    write_npy,
    write_tenx,
    write_zarr,
)
from tests.support.places import ROOT, readable_of

N_MUTATIONS = 10  # `make fuzz` makes as many as there is time for
ROOM = 2**30  # bytes of address space beyond what the libraries take
SECONDS = 200
LIMIT = "500MB"

FORMATS: dict[str, Callable[[Path], Path]] = {
    "npy": write_npy,
    "npy, Fortran": lambda path: write_npy(path, order="F"),
    "h5ad": write_h5ad,
    "h5ad, gzip": lambda path: write_h5ad(path, **CHUNKED),
    "h5ad, CSC": lambda path: write_h5ad(path, matrix().tocsc()),
    "h5ad, dense": lambda path: write_h5ad(path, matrix().toarray()),
    "10x": write_tenx,
    "hdf5": write_hdf5,
    "hdf5, gzip": lambda path: write_hdf5(path, chunks=(10, 4), compression="gzip", shuffle=True),
    "zarr": lambda path: write_zarr(path, chunks=(40,)),
    "zarr, dense": lambda path: write_zarr(path, matrix().toarray()),
    "netcdf": write_netcdf,
    "netcdf, classic": lambda path: write_netcdf(path, "scipy"),
}
FORMATS = readable_of(FORMATS)


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """A part cut off or set to zero, or a few bytes changed, most of them where there is something."""
    size, how = len(content), rng.integers(6)
    if how == 0:
        return content[: rng.integers(size)]
    changed = bytearray(content)
    if how == 1:
        lo = int(rng.integers(size))
        changed[lo : lo + int(rng.integers(1, 64))] = b""
        return bytes(changed)
    used = np.flatnonzero(np.frombuffer(content, np.uint8))
    head = used[: max(len(used) // 10, 20)]
    for at in rng.choice(head if rng.integers(2) else used, rng.integers(1, 5)):
        width = int(rng.choice([1, 2, 8, 64])) if how < 4 else 1
        value = 0 if how == 2 else 255 if how == 3 else int(rng.integers(256))
        changed[at : at + width] = bytes([value]) * len(changed[at : at + width])
    return bytes(changed)


def mutations(sound: Path, folder: Path) -> Iterator[Path]:
    """Copies of a file or folder in which one file is damaged."""
    rng = np.random.default_rng(zlib.crc32(str(folder.name).encode()))
    inside = sorted(file for file in sound.rglob("*") if file.is_file() and file.stat().st_size) or [sound]
    for number in range(N_MUTATIONS):
        place = folder / f"{number}" / sound.name
        for file in inside:
            copy = place / file.relative_to(sound) if sound.is_dir() else place
            copy.parent.mkdir(parents=True, exist_ok=True)
            content = file.read_bytes()
            copy.write_bytes(damaged(content, rng) if file == inside[number % len(inside)] else content)
        yield place


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are those of Linux")
@pytest.mark.filterwarnings("ignore:The (data type|codec)")
def test_damage_is_named_or_harmless(tmp_path: Path) -> None:
    """One process reads all files, since its start takes as long as a hundred of them."""
    paths = {}
    for name in FORMATS:
        folder = tmp_path / name.replace(", ", "-")
        folder.mkdir()
        sound = FORMATS[name](folder)
        paths[str(sound)] = [str(path) for path in mutations(sound, folder)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.io.test_damaged_streaming"],
        cwd=ROOT,
        input=json.dumps(paths),
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    said = done.stdout.splitlines()
    assert done.returncode == 0, f"{done.returncode} at {said[-1:]}\n{done.stderr[-3000:]}"
    outcomes = [json.loads(line) for line in said if line.startswith("{")]
    assert outcomes[: len(paths)] == [{"path": sound} for sound in paths]
    assert len(outcomes) == len(paths) * (N_MUTATIONS + 1)
    for copies in paths.values():
        errors = [outcome for outcome in outcomes if outcome["path"] in copies and "kind" in outcome]
        assert len(errors) > N_MUTATIONS / 10  # else this damages nothing
        for outcome in errors:
            assert outcome["kind"] in ("ValueError", "Refused", "NotFinite", "OSError", "FileNotFoundError"), outcome
            assert outcome["error"].startswith(outcome["path"]), outcome


def child() -> None:
    """Read every file, with little memory, and say how it went; the path first, so that a crash has a name."""
    warnings.simplefilter("ignore")  # what libraries think of damage is not the question
    paths = json.loads(sys.stdin.read())
    for path in paths:  # loads the libraries, and starts their threads, before memory is short
        print(json.dumps({"path": path} | attempt(path)), flush=True)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for path in (damaged for copies in paths.values() for damaged in copies):
        print(path, flush=True)
        print(json.dumps({"path": path} | attempt(path)), flush=True)


def attempt(path: str) -> dict[str, Any]:
    """Open it, in memory and not, and read everything."""
    try:
        source = read_file(Path(path), None, None, LIMIT).matrix
        assert isinstance(source, RowSource)
        for lo, hi in pairwise(source.edges(1000)):
            source.read(lo, hi)
        for stream in (False, True):
            A, _ = open_matrix(path, memory_limit=LIMIT, stream=stream, n_threads=2)
            A.matmat(np.ones((A.shape[1], 1)))
    except Exception as error:  # what is raised is the question
        return {"kind": type(error).__name__, "error": str(error)}
    return {}


if __name__ == "__main__":
    child()
