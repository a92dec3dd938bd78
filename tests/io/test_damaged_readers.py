"""Damaged files of every format that is read whole or as a table: an error with its name, or what still holds."""

import gzip
import json
import os
import resource
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftsvd.backends.source import RowSource
from shiftsvd.io import open_matrix
from tests.support.places import ROOT
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

N_MUTATIONS = 10  # `make fuzz` makes as many as there is time for
ROOM = 2**30  # bytes of address space beyond what the libraries take
SECONDS = 120


def write_bed(path: Path) -> None:
    bed_reader = pytest.importorskip("bed_reader")
    bed_reader.to_bed(path, np.random.default_rng(5).integers(0, 3, (30, 12)).astype(float))


# A file, what writes it, its reader, and whether it is text.
FORMATS: dict[str, tuple[Callable[[Path], Any], str, bool]] = {
    "csr.npz": (lambda path: write_npz(path, "csr"), "npz", False),
    "coo.npz": (lambda path: write_npz(path, "coo"), "npz", False),
    "bsr.npz": (lambda path: write_npz(path, "bsr"), "npz", False),
    "dia.npz": (lambda path: write_npz(path, "dia"), "npz", False),
    "dense.npz": (lambda path: write_npz(path, "dense"), "npz", False),
    "a.mtx": (write_mtx, "mtx", True),
    "array.mtx": (lambda path: write_mtx(path, truth()), "mtx", True),
    "a.mtx.gz": (write_mtx, "mtx", False),
    "a.mtx.bz2": (write_mtx, "mtx", False),
    "text.mtx.gz": (write_mtx, "mtx", True),
    "10x": (lambda path: write_10x(path, ""), "10x", True),
    "10x_gz": (lambda path: write_10x(path, ".gz"), "10x", False),
    "a.bpcells": (write_bpcells, "bpcells", False),
    "a.csv": (write_csv, "csv", True),
    "a.csv.gz": (write_csv, "csv", False),
    "text.csv.gz": (write_csv, "csv", True),
    "triplets.tsv": (lambda path: triplets(named=True).to_csv(path, sep="\t", index=False), "csv", True),
    "positions.csv": (lambda path: triplets(named=False).to_csv(path, index=False), "csv", True),
    "a.parquet": (lambda path: frame().to_parquet(path, row_group_size=7), "csv", False),
    "plain.parquet": (
        lambda path: frame().to_parquet(path, compression=None, use_dictionary=False, write_statistics=False),
        "csv",
        False,
    ),
    "triplets.parquet": (lambda path: triplets(named=True).to_parquet(path), "csv", False),
    "a.feather": (lambda path: with_names_first().to_feather(path), "csv", False),
    "plain.feather": (lambda path: with_names_first().to_feather(path, compression="uncompressed"), "csv", False),
    "triplets.feather": (
        lambda path: triplets(named=True).to_feather(path, compression="uncompressed"),
        "csv",
        False,
    ),
    **{f"a{suffix}": (write_grid, "csv", False) for suffix in (".xlsx", ".ods", ".xls", ".sqlite", ".duckdb")},
    "a.svmlight": (lambda path: write_svmlight(path, zero_based=True), "svmlight", True),
    "a.svmlight.gz": (lambda path: write_svmlight(path, zero_based=False), "svmlight", False),
    "a.bed": (write_bed, "bed", False),
}


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """A few bytes changed, a part cut off, set to zero, repeated or taken out."""
    size, how = len(content), rng.integers(6)
    lo, hi = sorted(rng.integers(0, size + 1, 2).tolist())
    if how == 0:
        return content[:hi]
    if how == 1:
        return content[:lo] + bytes(hi - lo) + content[hi:]
    if how == 2:
        return content[:lo] + content[min(size, lo + int(rng.integers(1, 9))) :]
    if how == 3:
        return content[:hi] + content[lo:]
    changed = bytearray(content)
    # Where a format keeps its sizes: at the beginning or the end, as often as anywhere.
    region = [(0, size), (0, min(size, 200)), (max(0, size - 200), size)][rng.integers(3)]
    for at in rng.integers(*region, rng.integers(1, 5)):
        changed[at] = rng.integers(256) if how == 4 else changed[at] ^ (1 << rng.integers(8))
    return bytes(changed)


def damaged_text(content: bytes, rng: np.random.Generator) -> bytes:
    """As above, or lines taken out and swapped, or a number grown beyond all bounds; packed again if it was."""
    if content[:2] == b"\x1f\x8b":
        return gzip.compress(damaged_text(gzip.decompress(content), rng))
    if rng.random() < 0.4:
        return damaged(content, rng)
    lines = content.split(b"\n")
    i, j = rng.integers(0, min(len(lines), 4 if rng.random() < 0.5 else len(lines)), 2)
    how = rng.integers(4)
    if how == 0:
        del lines[i]
    elif how == 1:
        lines[i], lines[j] = lines[j], lines[i]
    else:
        huge = [b"9" * int(rng.integers(1, 30)), b"1e400", b"-7", b"nan", b"1:2:3", b'"', b"x" * 5000]
        words = lines[i].replace(b",", b" , ").split(b" ") or [b""]
        words[rng.integers(len(words))] = huge[rng.integers(len(huge))]
        lines[i] = b" ".join(words).replace(b" , ", b",")
    return b"\n".join(lines)


def mutations(folder: Path, sound: Path) -> Iterator[str]:
    """Write damaged copies of what lies beside a sound file, a folder each, one file damaged, and say where."""
    name, root = sound.name, sound.parent
    content = {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}
    rng, hurt = np.random.default_rng(zlib.crc32(name.encode())), damaged_text if FORMATS[name][2] else damaged
    parts = sorted(content)
    for number in range(N_MUTATIONS):
        place = folder / str(number)
        victim = parts[number % len(parts)]
        for part in parts:
            file = place / part
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(hurt(content[part], rng) if part == victim else content[part])
        yield str(place / name)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are those of Linux")
def test_damage_is_named_or_harmless(tmp_path: Path) -> None:
    """One process reads the files of all formats: its start takes as long as a hundred of them."""
    sound = [written(tmp_path / f"sound of {name}", name) for name in FORMATS]
    paths = {str(file): list(mutations(tmp_path / f"damaged {file.name}", file)) for file in sound}
    child = subprocess.run(
        [sys.executable, "-m", "tests.io.test_damaged_readers"],
        cwd=ROOT,
        input=json.dumps(paths),
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    *said, last = child.stdout.splitlines() or [""]
    assert child.returncode == 0, f"{child.returncode} at {last}\n{child.stderr[-3000:]}"
    outcome = [json.loads(line) for line in (*said, last) if line.startswith("{")]
    assert outcome[: len(sound)] == [{"path": path, "loaded": True} for path in paths]
    assert len(outcome) == len(sound) * (N_MUTATIONS + 1)
    for file in sound:
        errors = [found for found in outcome if found["path"] in paths[str(file)] and "error" in found]
        assert len(errors) > N_MUTATIONS / 10, file  # else this damages nothing
        for found in errors:
            assert found["kind"] in ("ValueError", "Refused", "NotFinite", "OSError", "FileNotFoundError"), found
            path = found["path"]
            assert found["error"].startswith(path.removesuffix(".bed")), found


def written(folder: Path, name: str) -> Path:
    """A sound file, or folder, of a format."""
    folder.mkdir()
    FORMATS[name][0](folder / name)
    return folder / name


def child() -> None:
    """Read every file, with little memory, and say how it went; the path first, so that a crash has a name."""
    sniff, names = (import_module(f"shiftsvd.{name}") for name in ("io.sniff", "names"))
    readers = {name: names.resolve(sniff.formats()[FORMATS[name][1]].reader) for name in FORMATS}
    as_operator = import_module("shiftsvd.backends").as_operator
    reading = import_module("shiftsvd.io.base").reading
    paths = json.loads(sys.stdin.read())
    for path in paths:  # loads the libraries before memory is short
        print(json.dumps({"path": path} | attempt(readers, as_operator, reading, Path(path))), flush=True)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for path in (damaged for copies in paths.values() for damaged in copies):
        print(path, flush=True)
        print(json.dumps({"path": path} | attempt(readers, as_operator, reading, Path(path))), flush=True)


def attempt(readers: dict[str, Any], as_operator: Any, reading: Any, path: Path) -> dict[str, Any]:
    """As `open_matrix` does it."""
    try:
        matrix = readers[path.name](path, None, "500MB").matrix
        if isinstance(matrix, RowSource):
            for lo, hi in zip(edges := matrix.edges(1000), edges[1:], strict=False):
                matrix.read(lo, hi)
            matrix = matrix.read(0, matrix.shape[0])
        with reading(path):
            as_operator(matrix, memory_limit="500MB").moments()
    except Exception as error:  # what is raised is the question
        return {"kind": type(error).__name__, "error": str(error)}
    return {"loaded": True}


if __name__ == "__main__":
    child()


@pytest.mark.parametrize("place", ["attribute", "dataset"])
def test_hdf5_types_of_texts_and_lists_are_checked(place: str, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path, lists, cells = tmp_path / "X.h5", h5py.vlen_dtype(np.int8), np.empty(1, object)
    cells[0] = np.ones(2, np.int8)
    with h5py.File(path, "w") as file:
        X = file.create_dataset("X", data=np.ones((3, 2)))
        (X.attrs.create if place == "attribute" else file.create_dataset)("lists", data=cells, dtype=lists)
    known, unknown = b"\x19\0\0\0\x10\0\0\0", b"\x19\2\0\0\x10\0\0\0"  # a sequence, and a kind that HDF5 lacks
    assert known in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(known, unknown))
    with pytest.raises(
        ValueError, match=rf"X.h5:/{'lists' if place == 'dataset' else 'X'} is damaged: .* invalid type"
    ):
        open_matrix(path)
