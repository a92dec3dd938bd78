"""Damages files of every format for as long as one likes, and keeps those that a reader neither reads nor refuses.

``python -m tests.support.fuzz --minutes 10`` (``make fuzz MINUTES=10``): the corpus is written first, a file of each
hostile class and sound ones of each format; then files are drawn from it, damaged, and read in children with little
memory and time. What goes wrong is kept in a folder, for a test to be made of it.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.support.hostile_files import CASES
from tests.support.hostile_run import SECONDS, attempt, canary_at, limited, load_libraries, timed
from tests.support.hostile_trees import Case, anndata, h5, sparse_group, zarr_folder
from tests.support.places import readable_of
from tests.support.workbooks import write_grid
from tests.support.written import (
    frame,
    triplets,
    truth,
    with_names_first,
    write_10x,
    write_bpcells,
    write_csv,
    write_mtx,
    write_npz,
    write_svmlight,
)

SLOW = ("bomb", "claims", "special", "pipe", "objects", "pickle")  # classes that are no better for being damaged
WORDS = (b"-1", b"9" * 20, b"nan", b"\x1b[2J", b"../..", b"0x1", b'"', b"\n", b"\x00", b"1e999", b"{", b"[[")
AT_ONCE = 50  # files of one child


def corpus(folder: Path, rng: np.random.Generator, each: int = 6) -> list[tuple[str, Path, Path]]:
    """(class, folder, path) of a hostile file of each class, and of several sound ones of each format."""
    canary, found = canary_at(folder), []
    classes = {name: case for name, case in CASES.items() if not any(word in name for word in SLOW)}
    for number, (name, case) in enumerate([*classes.items(), *each * list(SOUND.items())]):
        place = folder / str(number)
        place.mkdir()
        found.append((name, place, case(place, rng, canary)))
    return found


def sound(name: str, write: Callable[[Path], object]) -> Case:
    """What writes a file that nothing is wrong with."""

    def case(folder: Path, rng: np.random.Generator, canary: Path) -> Path:
        write(folder / name)
        return folder / name

    return case


def write_h5(path: Path) -> None:
    with h5().File(path, "w") as file:
        file.create_dataset("X", data=truth(), chunks=(7, 5), compression="gzip", shuffle=True)


def write_sparse_h5(path: Path) -> None:
    with h5().File(path, "w") as file:
        sparse_group(file, np.random.default_rng(0))


def write_netcdf(path: Path) -> None:
    import xarray

    xarray.Dataset({"X": (("time", "space"), truth())}).to_netcdf(path, engine="h5netcdf")


def write_bed(path: Path) -> None:
    import bed_reader

    bed_reader.to_bed(path, np.random.default_rng(5).integers(0, 3, (30, 12)).astype(float))


def write_model(path: Path) -> None:
    import shiftsvd as ss

    ss.PCA(3, random_state=0).fit(truth()).save(path)


SOUND: dict[str, Case] = {
    f"sound {name}": sound(name, write)
    for name, write in {
        "csr.npz": lambda path: write_npz(path, "csr"),
        "coo.npz": lambda path: write_npz(path, "coo"),
        "dense.npz": lambda path: write_npz(path, "dense"),
        "a.npy": lambda path: np.save(path, truth()),
        "a.mtx": write_mtx,
        "a.mtx.gz": write_mtx,
        "a.csv": write_csv,
        "triplets.tsv": lambda path: triplets(named=True).to_csv(path, sep="\t", index=False),
        "a.parquet": lambda path: frame().to_parquet(path, row_group_size=7),
        "plain.parquet": lambda path: frame().to_parquet(path, compression=None, use_dictionary=False),
        "a.feather": lambda path: with_names_first().to_feather(path),
        **{f"a{suffix}": write_grid for suffix in (".xlsx", ".ods", ".xls", ".sqlite", ".duckdb")},
        "a.svmlight": lambda path: write_svmlight(path, zero_based=True),
        "10x": lambda path: write_10x(path, ""),
        "a.bpcells": write_bpcells,
        "a.h5": write_h5,
        "sparse.h5": write_sparse_h5,
        "a.h5ad": lambda path: anndata(path, np.random.default_rng(0)),
        "a.nc": write_netcdf,
        "a.zarr": lambda path: zarr_folder(path.parent, np.random.default_rng(0)),
        "a.bed": write_bed,
        "a.safetensors": write_model,
    }.items()
}
SOUND = readable_of(SOUND)


def damage(content: bytes, rng: np.random.Generator, others: list[bytes]) -> bytes:
    """A few things done to the bytes: flipped, cut, repeated, numbers of note put in, mixed with another file."""
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        size = max(len(data), 1)
        at, length = int(rng.integers(size)), int(rng.integers(1, 17))
        how = rng.integers(7)
        if how == 0 and data:
            data[at % len(data)] ^= 1 << int(rng.integers(8))
        elif how == 1:
            data[at : at + length] = rng.bytes(length)
        elif how == 2:
            data[at:at] = data[at : at + int(rng.integers(1, 200))]
        elif how == 3:
            del data[at : at + int(rng.integers(1, 200))]
        elif how == 4:
            value = int(rng.choice([0, -1, 2**31 - 1, -(2**31), 2**32 - 1, 2**62, 255, 256]))
            data[at : at + 8] = (value % 2**64).to_bytes(8, ["little", "big"][rng.integers(2)])
        elif how == 5:
            data[at : at + length] = WORDS[rng.integers(len(WORDS))]
        else:
            other = others[rng.integers(len(others))]
            start = int(rng.integers(max(len(other), 1)))
            data[at : at + 64] = other[start : start + 64]
    return bytes(data)


def child(files: list[tuple[str, Path, Path]], seed: int, folder: Path, writes: int) -> None:
    """Damage and read some files, each in a folder of its own that stays until it was read; never come back."""
    rng = np.random.default_rng(seed)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        for number in range(AT_ONCE):
            name, place, path = files[rng.integers(len(files))]
            copy = folder / str(number)
            shutil.copytree(place, copy, symlinks=True)
            parts = [part for part in sorted(copy.rglob("*")) if part.is_file() and not part.is_symlink()]
            if not parts:
                continue
            others = [part.read_bytes() for part in parts]
            which = int(rng.integers(len(parts)))
            parts[which].write_bytes(damage(others[which], rng, others))
            os.write(writes, (json.dumps(["begun", name]) + "\n").encode())
            limited(True)
            timed(SECONDS)
            outcome = attempt(copy / path.relative_to(place))
            timed(0)
            limited(False)
            os.write(writes, (json.dumps([outcome[0], outcome[1]]) + "\n").encode())
            if outcome[0] in ("loaded", "refused"):
                shutil.rmtree(copy)
            else:
                copy.rename(folder / f"kept-{number}")
    finally:
        os._exit(0)


def turn(files: list[tuple[str, Path, Path]], seed: int, kept: Path, told: Counter[str]) -> None:
    """One child, and what it leaves."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        reads, writes = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reads)
            child(files, seed, Path(place), writes)
        os.close(writes)
        with os.fdopen(reads) as stream:
            lines = [json.loads(line) for line in stream]
        os.waitpid(pid, 0)
        told.update(end for end, _ in lines if end != "begun")
        if lines and lines[-1][0] == "begun":
            told["died or hung"] += 1
        for number, left in enumerate(Path(place).iterdir()):
            if left.name.startswith("kept-") or (lines and lines[-1][0] == "begun"):
                kept.mkdir(parents=True, exist_ok=True)
                shutil.copytree(left, kept / f"{seed}-{number}", symlinks=True, dirs_exist_ok=True)
                print(f"kept: {kept / f'{seed}-{number}'} ({lines[-1][1]})", flush=True)


def main() -> int:
    """Fuzz, and say how it went; 1 if anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kept", type=Path, default=Path("fuzz-out"))
    asked = parser.parse_args()
    load_libraries()
    told: Counter[str] = Counter()
    until, seed = time.monotonic() + 60 * asked.minutes, asked.seed
    with tempfile.TemporaryDirectory(prefix="fuzz-corpus-") as place:
        files = corpus(Path(place), np.random.default_rng(seed))
        print(f"seed {seed}; a corpus of {len(files)} files", flush=True)
        while time.monotonic() < until:
            seed += 1
            turn(files, seed, asked.kept, told)
    print(f"{sum(told.values())} files: {dict(told)}")
    return int(any(end not in ("loaded", "refused") for end in told))


if __name__ == "__main__":
    sys.exit(main())
