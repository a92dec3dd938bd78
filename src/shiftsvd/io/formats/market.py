"""MatrixMarket files: validate each line; samples are rows unless an extension finds tables in the same folder."""

import math
import re
import zlib
from itertools import islice, takewhile
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

import numpy as np

from shiftsvd.errors import Part, Setting, damaged
from shiftsvd.extend import extensions
from shiftsvd.io.base import PIPED, Opened, bounded, called, open_bytes, packing, plausible_shape, reading, refuse_key
from shiftsvd.names import resolve

_PIECE: Final = 1 << 20  # bytes that are validated at once
_LONGEST: Final = 1 << 16  # bytes of a line
_SHOWN: Final = 40  # bytes of a line in an error
_GAP: Final = rb"[ \t]++"
_WHOLE: Final = rb"[+-]?+\d++"
_REAL: Final = rb"[+-]?+(?:(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eEdD][+-]?+\d++)?+|(?i:nan|inf(?:inity)?))"
_VALUES: Final = {"pattern": [], "integer": [_WHOLE], "unsigned-integer": [_WHOLE], "complex": [_REAL, _REAL]}
_FORTRAN: Final = re.compile(rb"(?<=[\d.])[dD](?=[+\-\d])")
_PLUS: Final = re.compile(rb"(?<=[ \t\n])\+(?=[\d.])|\A\+(?=[\d.])")


def read(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    refuse_key(path, key)
    matrix = read_matrix(path, memory_limit)
    places = [each.beside for each in extensions() if each.beside is not None]
    found = (resolve(place)(path, matrix, memory_limit) for place in places)
    plain = Opened(matrix, unsaid=unsaid(path, matrix.shape[0])) if path.name == PIPED else Opened(matrix)
    return next((opened for opened in found if opened is not None), plain)


def unsaid(path: Path, m: int) -> tuple[Part, ...]:
    taken = f"{called(path)}: the {m:,} rows are used as samples. Use "
    return taken, Setting("orient", "columns"), " if the samples are columns, as the cells in 10x matrices."


def line_of(field: str, sparse: bool) -> re.Pattern[bytes]:
    cells = [rb"\d++"] * (2 if sparse else 0) + _VALUES.get(field, [_REAL])
    return re.compile(rb"(?:[ \t]*+(?:" + _GAP.join(cells) + rb")?+[ \t\r]*+\n)*+")


class CheckedLines:
    """A file for SciPy's reader: validate lines before they are passed on, keep errors, end with a line end.

    The reader ends the interpreter if a read or a seek fails, and reads past the end if the last line has no line end
    after its last number.
    """

    def __init__(self, stream: IO[bytes], n_header: int, lines: re.Pattern[bytes]) -> None:
        self._stream, self._lines, self._number = stream, lines, n_header
        self._ready = b"".join(stream.readline() for _ in range(n_header))
        self._rest, self._ended = b"", False
        self.error: Exception | None = None

    def read(self, size: int) -> bytes:
        while len(self._ready) < size and not self._ended:
            try:
                self._ready += self._checked()
            except (OSError, EOFError, ValueError, zlib.error) as error:
                self.error, self._ready, self._ended = error, b"", True
        text, self._ready = self._ready[:size], self._ready[size:]
        return text

    def _checked(self) -> bytes:
        text = self._stream.read(_PIECE)
        self._ended = not text
        text = self._rest + text
        end = text.rfind(b"\n") + 1
        if self._ended and end < len(text):
            text, end = text + b"\n", len(text) + 1
        text, self._rest = text[:end], text[end:]
        found = self._lines.match(text)
        if len(self._rest) > _LONGEST or found is None or found.end() < len(text):
            self._refuse(text + self._rest, 0 if found is None else found.end())
        self._number += text.count(b"\n")
        return _as_scipy(text)

    def _refuse(self, text: bytes, at: int) -> None:
        number = self._number + text.count(b"\n", 0, at) + 1
        line = text[at : at + _SHOWN].partition(b"\n")[0].decode("utf-8", "replace")
        raise ValueError(
            f"line {number:,} does not have the numbers that the header declares: {line!r}. Correct this line."
        )


def _as_scipy(text: bytes) -> bytes:
    if b"d" in text or b"D" in text:
        text = _FORTRAN.sub(b"e", text)
    return _PLUS.sub(b"", text) if b"+" in text else text


_HEADER, _COMMENTS = 1 << 20, 100  # bytes of comments before the line of sizes; lines that `comments` returns
_BEST = {"none": 1, "gzip": 1032, "bzip2": math.inf}  # largest compression ratio


def read_matrix(path: Path, memory_limit: int | str | None) -> Any:
    from scipy.io import mmread  # which loads the readers of other formats too

    with reading(path):
        with open_bytes(path) as stream:
            header = _header(path, stream)
        _check_header(path, header, memory_limit)
        with open_bytes(path) as stream:
            text = CheckedLines(stream, header.n_lines, line_of(header.field, header.sparse))
            try:
                matrix: Any = mmread(cast("IO[bytes]", text), spmatrix=False)
            finally:
                if text.error:
                    raise text.error
        return matrix if isinstance(matrix, np.ndarray) else matrix.tocsr()


class _Header(NamedTuple):
    """Header of a MatrixMarket file: kind of matrix and of entries, sizes, and its number of lines."""

    sparse: bool
    field: str
    sizes: list[int]
    n_lines: int


def _check_header(path: Path, header: _Header, memory_limit: int | str | None) -> None:
    sparse, sizes = header.sparse, header.sizes
    if len(sizes) != (3 if sparse else 2) or min(sizes) < 0:
        rule = "the numbers of rows, columns and entries" if sparse else "the numbers of rows and columns"
        must = f"the size line must hold {rule}, got {' '.join(map(str, sizes))}. Write the file again."
        raise ValueError(f"{path}, line {header.n_lines:,}: {must}")
    plausible_shape(path, sizes[:2], memory_limit)
    # A symmetric array may hold the half below the diagonal alone.
    entries = sizes[2] if sparse else (sizes[0] * (sizes[1] - 1)) // 2
    shortest = len("1 1\n") if sparse else len("1\n")
    if entries * shortest > path.stat().st_size * _BEST[packing(path)] + 1:
        raise damaged(path, f"its header declares {entries:,} entries, which need a larger file")
    # Memory of the triplets, doubled if the matrix is symmetric, and of their CSR.
    bounded(path, 48 * entries if sparse else 16 * sizes[0] * sizes[1], memory_limit)


def _header(path: Path, stream: IO[bytes]) -> _Header:
    banner = stream.readline(_HEADER).decode("ascii", "replace").lower().split()
    if len(banner) < 3 or banner[0] != "%%matrixmarket" or banner[2] not in ("coordinate", "array"):
        must = "it must begin with '%%MatrixMarket matrix coordinate' (or array). Write it with scipy.io.mmwrite."
        raise ValueError(f"{path} is not a MatrixMarket file: {must}")
    left, count = _HEADER, 1
    while line := stream.readline(left):
        left, count = left - len(line), count + 1
        if left > 0 and line.strip() and not line.startswith(b"%"):
            field = banner[3] if len(banner) > 3 else "real"
            return _Header(banner[2] == "coordinate", field, [int(word) for word in line.split()], count)
    raise damaged(path, "it ends before the line of its sizes")


def comments(path: Path) -> str:
    with reading(path), open_bytes(path) as stream:
        lines = iter(lambda: stream.readline(_HEADER), b"")
        head = takewhile(lambda line: line.startswith(b"%") or not line.strip(), lines)
        return b"".join(islice(head, _COMMENTS)).decode("utf-8", "replace")
