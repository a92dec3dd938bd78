"""What a file may claim: nothing is unpacked or allocated on its word before that was held against a bound."""

import bz2
import gzip
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Literal, cast

import numpy as np

from shiftsvd.io.base import Labels
from shiftsvd.runs.memory import beyond, limit_of

_LONGEST_LINE = 1 << 28  # of a text file: a row of ten million numbers
NAME = 100  # bytes of a name, as Python holds it and in an array
COLUMN = 400  # bytes for each column of a text: its name, its cells in the first rows, and what is told of it
_LONGEST_NAME = 1000  # characters; NumPy pads all names to the longest


IN_PARTS = "convert the file to .h5ad where there is room: that is read in parts"
TRANSPOSED = "store it the other way round, as .h5ad, or as triplets: each column of a table takes memory of its own"


def packing(path: Path) -> Literal["none", "gzip", "bzip2"]:
    with open(path, "rb") as file:
        magic = file.read(3)
    return "gzip" if magic[:2] == b"\x1f\x8b" else "bzip2" if magic == b"BZh" else "none"


def open_bytes(path: Path) -> IO[bytes]:
    kind = packing(path)
    if kind == "gzip":
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return bz2.open(path, "rb") if kind == "bzip2" else open(path, "rb")


def bounded(path: Path | str, n_bytes: int, memory_limit: int | str | None, remedy: str = IN_PARTS) -> None:
    limit = limit_of(memory_limit)
    if limit is not None and n_bytes > limit:
        raise ValueError(f"{path} would take about {beyond(n_bytes, limit)} of memory; raise memory_limit, or {remedy}")


def plausible_shape(path: Path, shape: Sequence[int], memory_limit: int | str | None) -> None:
    if len(shape) != 2 or min(shape) < 1:
        raise ValueError(f"{path} must hold a matrix of at least one row and one column, got shape {tuple(shape)}")
    bounded(path, 8 * sum(int(size) for size in shape), memory_limit)


def bounded_lines(
    path: Path, stream: IO[bytes], memory_limit: int | str | None, growth: int = 2, *, kept: bool = True
) -> Iterator[bytes]:
    """The lines of an open file, until what is made of them (`growth` bytes of each byte) would not fit.

    What is made of a line goes with it, unless it is `kept`.
    """
    limit, used = limit_of(memory_limit), 0
    longest = longest_line(memory_limit, growth)
    while line := stream.readline(longest):
        used = growth * len(line) + (used if kept else 0)
        if len(line) == _LONGEST_LINE:
            raise too_long(path, _LONGEST_LINE)
        if limit is not None and used > limit:
            bounded(path, used, memory_limit)
        yield line


def longest_line(memory_limit: int | str | None, growth: int) -> int:
    limit = limit_of(memory_limit)
    return _LONGEST_LINE if limit is None else min(_LONGEST_LINE, limit // growth + 1)


def too_long(path: Path, longest: int) -> ValueError:
    remedy = "" if longest == _LONGEST_LINE else ", and whether memory_limit may be raised"
    return ValueError(f"{path} has a line of more than {longest:,} bytes; look whether it is a text file{remedy}")


def bounded_width(path: Path, n_columns: int, memory_limit: int | str | None, each: int = COLUMN) -> None:
    bounded(f"{path}: {n_columns:,} columns", each * n_columns, memory_limit, TRANSPOSED)


def labels(path: Path, names: Iterable[str], memory_limit: int | str | None) -> Labels:
    names = list(names)
    longest = max(map(len, names), default=0)
    if longest > _LONGEST_NAME:
        raise ValueError(f"{path} has a name of {longest} characters; the longest allowed is {_LONGEST_NAME}")
    bounded(path, 4 * max(longest, 1) * len(names), memory_limit)
    return np.array(names, dtype=np.str_)
