"""Text files of svmlight and LIBSVM: a label, then index:value pairs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sklearn.datasets import load_svmlight_file

from shiftsvd.io.base import Opened, bounded_lines, open_bytes, plausible_shape, reading, refuse_key

_GROWTH = 12  # bytes of memory that a byte of text can become: "1:1 " is two numbers, sorted once


def read(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    refuse_key(path, key)
    with reading(path), open_bytes(path) as stream:
        matrix, _ = load_svmlight_file(_Lines(path, stream, memory_limit), multilabel=True)  # labels may be lists
        plausible_shape(path, matrix.shape, memory_limit)
    return Opened(matrix)


@dataclass(frozen=True, eq=False)
class _Lines:
    """The part of a file object that `load_svmlight_file` uses."""

    path: Path
    stream: IO[bytes]
    memory_limit: int | str | None

    def __iter__(self) -> Iterator[bytes]:
        return bounded_lines(self.path, self.stream, self.memory_limit, _GROWTH)

    def read(self, size: int = -1) -> bytes:
        return self.stream.read(size)
