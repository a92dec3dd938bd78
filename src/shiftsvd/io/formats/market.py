"""The text of MatrixMarket, also packed with gzip or bzip2: the numbers in it, held against what it claims."""

import math
import zlib
from itertools import islice, takewhile
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from scipy.io import mmread

from shiftsvd.io.base import reading
from shiftsvd.io.limits import bounded, open_bytes, packing, plausible_shape

_HEADER, _COMMENTS = 1 << 20, 100  # bytes of comments before the line of the sizes, and lines that are looked at
_BEST = {"none": 1, "gzip": 1032, "bzip2": math.inf}  # times that a packed text can be longer


def read_matrix(path: Path, memory_limit: int | str | None) -> Any:
    """The matrix, after its header was held against the size of the file and the memory."""
    with reading(path):
        with open_bytes(path) as stream:
            _check_header(path, stream, memory_limit)
        with open_bytes(path) as stream:
            text = _Text(stream)
            try:
                matrix: Any = mmread(cast("IO[bytes]", text), spmatrix=False)
            finally:
                if text.error:
                    raise text.error
        return matrix if isinstance(matrix, np.ndarray) else matrix.tocsr()


def _check_header(path: Path, stream: IO[bytes], memory_limit: int | str | None) -> None:
    """Refuse sizes that the file cannot hold, or the memory."""
    sparse, sizes = _sizes(path, stream)
    if len(sizes) != (3 if sparse else 2) or min(sizes) < 0:
        raise ValueError(f"{path} must give its sizes as {'m n entries' if sparse else 'm n'}, got {sizes}")
    plausible_shape(path, sizes[:2], memory_limit)
    entries = sizes[2] if sparse else (sizes[0] * (sizes[1] - 1)) // 2  # the half below the diagonal may be all
    shortest = len("1 1\n") if sparse else len("1\n")
    if entries * shortest > path.stat().st_size * _BEST[packing(path)] + 1:
        raise ValueError(f"{path} is damaged: its header claims {entries} entries, more than its bytes can hold")
    # Triplets as they are read, doubled where the matrix is symmetric, and their CSR.
    bounded(path, 48 * entries if sparse else 16 * sizes[0] * sizes[1], memory_limit)


def _sizes(path: Path, stream: IO[bytes]) -> tuple[bool, list[int]]:
    """Whether the entries have positions, and the numbers of the line of sizes."""
    banner = stream.readline(_HEADER).decode("ascii", "replace").lower().split()
    if len(banner) < 3 or banner[0] != "%%matrixmarket" or banner[2] not in ("coordinate", "array"):
        raise ValueError(
            f"{path} is no MatrixMarket file: it must begin with '%%MatrixMarket matrix coordinate' (or array)"
        )
    left = _HEADER
    while line := stream.readline(left):
        left -= len(line)
        if left > 0 and line.strip() and not line.startswith(b"%"):
            return banner[2] == "coordinate", [int(word) for word in line.split()]
    raise ValueError(f"{path} is damaged: it ends before the line of its sizes")


def comments(path: Path) -> str:
    """What stands before the line of the sizes."""
    with reading(path), open_bytes(path) as stream:
        lines = iter(lambda: stream.readline(_HEADER), b"")
        head = takewhile(lambda line: line.startswith(b"%") or not line.strip(), lines)
        return b"".join(islice(head, _COMMENTS)).decode("utf-8", "replace")


class _Text:
    """An open file that can only be read, keeps its error, and ends with a line end.

    SciPy's reader ends the interpreter where a read or a seek fails, and runs past the last line if a number in it is
    followed by something else than a line end: a letter, or a zero byte.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._last = b"\n"
        self._long = 0  # bytes since the last line end
        self.error: Exception | None = None

    def read(self, size: int) -> bytes:
        """The next bytes; none after an error, nor of a line that would be held whole."""
        try:
            text = b"" if self.error else self._stream.read(size)
        except (OSError, EOFError, zlib.error) as error:
            self.error, text = error, b""
        if b"\0" in text:
            self.error, text = ValueError("it has a byte 0, which no text has"), b""
        end = text.rfind(b"\n")
        self._long = self._long + len(text) if end < 0 else len(text) - end
        if self._long > _HEADER:
            self.error, text = ValueError(f"it has a line of more than {_HEADER} bytes"), b""
        if not text and self._last != b"\n":
            text = b"\n"
        self._last = text[-1:] or self._last
        return text
