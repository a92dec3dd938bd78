"""Checkpoints that something happened to: python -m benchmarks.endurance.damage [CHECKPOINTS]."""

import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.endurance.commands import Command, data, left, mixed, outputs
from benchmarks.endurance.decoys import tree
from benchmarks.endurance.kills import told
from shiftsvd.runs.outputs import stage_of

LEAST = 3  # records of the run that is damaged; a whole run leaves few more
Damage = Callable[[list[Path], np.random.Generator], None]


def record(change: Callable[[bytes, np.random.Generator], bytes]) -> Damage:
    """Some record with other content."""

    def damage(files: list[Path], rng: np.random.Generator) -> None:
        file = files[rng.integers(len(files))]
        file.write_bytes(change(file.read_bytes(), rng))

    return damage


def flipped(old: bytes, rng: np.random.Generator) -> bytes:
    """One bit is another one."""
    new = bytearray(old)
    new[rng.integers(len(new))] ^= 1 << rng.integers(8)
    return bytes(new)


def summed(content: bytes) -> bytes:
    """Content with the checksum of a first record, right or not."""
    return blake2b(content, digest_size=32, person=b"3 0").digest() + content


def swapped(files: list[Path], rng: np.random.Generator) -> None:
    """Two records in each other's place."""
    one, other = rng.choice(len(files), 2, replace=False)
    old = files[one].read_bytes(), files[other].read_bytes()
    files[one].write_bytes(old[1])
    files[other].write_bytes(old[0])


def removed(files: list[Path], rng: np.random.Generator) -> None:
    """A record is not there."""
    files[rng.integers(len(files))].unlink()


def linked(files: list[Path], rng: np.random.Generator) -> None:
    """A record is a link to nothing."""
    file = files[rng.integers(len(files))]
    file.unlink()
    file.symlink_to(file.parent / "nowhere")


def foldered(files: list[Path], rng: np.random.Generator) -> None:
    """A record is a folder."""
    file = files[rng.integers(len(files))]
    file.unlink()
    file.mkdir()


def headed(content: bytes) -> Damage:
    """Another description of the run."""
    return lambda files, rng: (files[0].parent / "run.json").write_bytes(content) and None


CLASSES: dict[str, Damage] = {
    "empty": record(lambda old, rng: b""),
    "truncated": record(lambda old, rng: old[: rng.integers(len(old))]),
    "longer": record(lambda old, rng: old + rng.bytes(9)),
    "zeros": record(lambda old, rng: bytes(len(old))),
    "noise": record(lambda old, rng: rng.bytes(len(old))),
    "a bit": record(flipped),
    "NaN": record(lambda old, rng: old.replace(old[-900:-892], np.array([np.nan]).tobytes())),
    "no checksum": record(lambda old, rng: old[32:]),
    "checksum of noise": record(lambda old, rng: summed(rng.bytes(100))),
    "checksum of nothing": record(lambda old, rng: summed(b"")),
    "of another place": swapped,
    "not there": removed,
    "a link": linked,
    "a folder": foldered,
    "part of a record": lambda files, rng: stage_of(files[0].with_name("read-00099.npz")).write_bytes(b"PK") and None,
    "no head": headed(b""),
    "head that is no JSON": headed(b"{"),
    "head of a list": headed(b"[]"),
    "head of another version": headed(b'{"shiftsvd checkpoint": 99, "run": ""}'),
    "head of another software": headed(b'{"shiftsvd checkpoint": 3, "run": "", "by": {"numpy": "0"}}'),
}


def main(n: int, seed: int = 0) -> Counter[str]:
    """So many damaged checkpoints of a file, each class as often."""
    rng, found = np.random.default_rng(seed), Counter[str]()
    with TemporaryDirectory() as folder:
        home = Path(folder)
        line = data(home / "data")["streamed"]
        assert Command([*line, "-o", home / "whole"], home / "log").ended().code == 0
        want = outputs(home / "whole")
        broken_off(line, home)
        for number in range(n):
            name = list(CLASSES)[number % len(CLASSES)]
            found += damaged(name, line, home, want, rng)
    print(told(found), flush=True)
    return found


def broken_off(line: list[object], home: Path) -> None:
    """A run that is killed once it has left some records."""
    run = Command([*line, "-o", home / "never", "--checkpoint", home / "kept"], home / "log")
    while len(list((home / "kept").glob("read-*.npz"))) < LEAST:
        time.sleep(0.001)
    run.kill()
    run.ended()


def damaged(name: str, line: list[object], home: Path, want: dict[str, str], rng: np.random.Generator) -> Counter[str]:
    """One checkpoint of this class; what came of it, counted."""
    once, found = home / "once", Counter[str]()
    shutil.copytree(home / "kept", once / "kept")
    CLASSES[name](sorted((once / "kept").glob("read-*.npz")), rng)
    before = tree(once)
    ended = Command([*line, "-o", once / "out", "--checkpoint", once / "kept"], once / "log").ended()
    # Without the line that describes the data, which is printed as soon as they are open.
    lines = [text for text in ended.said.splitlines() if "deprecat" not in text.lower() and " samples x " not in text]
    if ended.code == 0 and outputs(once / "out") == want and not mixed(once / "out"):
        found["same bits"] += 1
        found["records named as damaged"] += any("is damaged" in text for text in lines)
    elif (
        ended.code == 1 and sum(not text.startswith("warning:") for text in lines) == 1 and not (once / "out").exists()
    ):
        found["refused in a line"] += 1
    else:
        found[f"WRONG: {name}: {ended.code} {ended.said[:300]!r}"] += 1
    found["tracebacks"] += ended.traced
    found["hidden files left"] += len(left(once, before if ended.code else None))  # what is refused is not touched
    shutil.rmtree(once)
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
