"""Damage to a store: to the bytes of its files, and to parts of a sparse matrix before a writer stores them."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tests.support.fuzz import damage

Rng: TypeAlias = np.random.Generator
OfFiles: TypeAlias = Callable[[list[Path], Rng], object]  # files that are not empty, the one with the most data last
OfParts: TypeAlias = Callable[[Any, Rng], object]  # data, indices, indptr and shape of a CSR


def one(files: list[Path], rng: Rng) -> Path:
    """Draw a file; the last one more often than others."""
    return files[rng.integers(len(files))] if rng.random() < 0.7 else files[-1]


def content(change: Callable[[bytes, Rng], bytes]) -> OfFiles:
    """Change the bytes of a file."""

    def hurt(files: list[Path], rng: Rng) -> None:
        file = one(files, rng)
        file.write_bytes(change(file.read_bytes(), rng))

    return hurt


def bit(old: bytes, rng: Rng) -> bytes:
    """Flip a bit, in the first bytes as often as anywhere."""
    new, at = bytearray(old), rng.integers(len(old) if rng.random() < 0.5 else min(len(old), 300))
    new[at] ^= 1 << rng.integers(8)
    return bytes(new)


def number(old: bytes, rng: Rng) -> bytes:
    """Replace a number that is written in digits, in the first bytes as often as anywhere; else 4 or 8 bytes."""
    found = list(re.finditer(rb"(?<![\w.])\d+", old if rng.random() < 0.5 else old[:400]))
    if found and b"\0" not in old[:100]:
        it = found[rng.integers(len(found))]
        other = (b"0", b"-1", b"%d" % (int(it[0]) + 1), b"1000000000000", b"9" * 25, b"1.5", b"nan")[rng.integers(7)]
        return old[: it.start()] + other + old[it.end() :]
    size, value = int(rng.choice([4, 8])), int(rng.choice([0, 1, -1, 2**31 - 1, 2**31, 2**40, 2**62, 37, 12]))
    at = int(rng.integers(len(old) if rng.random() < 0.7 else min(300, len(old)))) // size * size
    return old[:at] + (value % 2 ** (8 * size)).to_bytes(size, "little") + old[at + size :]


def swapped(files: list[Path], rng: Rng) -> None:
    """Swap two chunks of a folder, or two parts of a file."""
    chunks = [file for file in files if file.name.rstrip("0123456789") == files[-1].name.rstrip("0123456789")]
    if len(chunks) > 1:
        a, b = (chunks[i] for i in rng.choice(len(chunks), 2, replace=False))
        first = a.read_bytes()
        a.write_bytes(b.read_bytes())
        b.write_bytes(first)
        return
    file, size = one(files, rng), 64
    old = file.read_bytes()
    a, b = sorted(rng.integers(0, max(len(old) - 2 * size, 1), 2).tolist())
    b = max(b, a + size)
    file.write_bytes(old[:a] + old[b : b + size] + old[a + size : b] + old[a : a + size] + old[b + size :])


FILES: dict[str, OfFiles] = {
    "a bit": content(bit),
    "a number": content(number),
    "cut": content(lambda old, rng: old[: rng.integers(len(old))]),
    "swapped": swapped,
    "noise": content(lambda old, rng: damage(old, rng, [old])),
    "missing": lambda files, rng: one(files, rng).unlink(),
    "empty": content(lambda old, rng: b""),
}


def entry(part: str, value: Callable[[Any, int], Any]) -> OfParts:
    """Replace an entry by a function of the array and the place."""

    def hurt(P: Any, rng: Rng) -> None:
        array = getattr(P, part)
        i = int(rng.integers(1, len(array) - 1))
        new = value(array, i)
        setattr(P, part, array.astype(np.float64 if isinstance(new, float) else np.int64))
        getattr(P, part)[i] = new

    return hurt


def row(change: Callable[[Any], Any]) -> OfParts:
    """Change the indices of a row of several entries."""

    def hurt(P: Any, rng: Rng) -> None:
        i = rng.choice(np.flatnonzero(np.diff(P.indptr) > 1))
        where = slice(P.indptr[i], P.indptr[i + 1])
        P.indices[where] = change(P.indices[where])

    return hurt


def whole(part: str, change: Callable[[Any], Any]) -> OfParts:
    """Replace a part by a function of it."""
    return lambda P, rng: setattr(P, part, change(getattr(P, part)))


PARTS: dict[str, OfParts] = {
    "an index beyond": entry("indices", lambda array, i: 11),
    "an index far beyond": entry("indices", lambda array, i: 2**31),
    "a negative index": entry("indices", lambda array, i: -1),
    "a fraction as index": entry("indices", lambda array, i: array[i] + 0.5),
    "unsorted indices": row(lambda indices: indices[::-1]),
    "the same index twice": row(lambda indices: np.r_[indices[1], indices[1:]]),
    "offsets that decrease": entry("indptr", lambda array, i: array[i - 1] - 1),
    "an offset beyond": entry("indptr", lambda array, i: array[-1] + 1),
    "a huge offset": entry("indptr", lambda array, i: 2**62),
    "a negative offset": entry("indptr", lambda array, i: -1),
    "more offsets": whole("indptr", lambda indptr: np.r_[indptr, indptr[-1]]),
    "NaN": entry("data", lambda array, i: float("nan")),
    "infinity": entry("data", lambda array, i: float("inf")),
    "a negative count": entry("data", lambda array, i: -1),
    "fewer values": whole("data", lambda data: data[:-2]),
    "a column more": whole("shape", lambda shape: [shape[0], shape[1] + 1]),
    "a row less": whole("shape", lambda shape: [shape[0] - 1, shape[1]]),
    "turned": whole("shape", lambda shape: shape[::-1]),
    "rows of terabytes": whole("shape", lambda shape: [10**12, shape[1]]),
    "columns of gigabytes": whole("shape", lambda shape: [shape[0], 2**31 - 1]),
}
