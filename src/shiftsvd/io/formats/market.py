"""The text of MatrixMarket, also packed with gzip or bzip2: the numbers in it, held against what it claims."""

import math
from itertools import islice, takewhile
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
from scipy.io import mmread

from shiftsvd.io.base import reading
from shiftsvd.io.formats.market_lines import CheckedLines, line_of
from shiftsvd.io.limits import bounded, open_bytes, packing, plausible_shape

_HEADER, _COMMENTS = 1 << 20, 100  # bytes of comments before the line of the sizes, and lines that are looked at
_BEST = {"none": 1, "gzip": 1032, "bzip2": math.inf}  # times that a packed text can be longer


def read_matrix(path: Path, memory_limit: int | str | None) -> Any:
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
    """Whether entries have positions, what they are, the numbers of the line of sizes, and how many lines that took."""

    sparse: bool
    field: str
    sizes: list[int]
    n_lines: int


def _check_header(path: Path, header: _Header, memory_limit: int | str | None) -> None:
    sparse, sizes = header.sparse, header.sizes
    if len(sizes) != (3 if sparse else 2) or min(sizes) < 0:
        raise ValueError(f"{path} must give its sizes as {'m n entries' if sparse else 'm n'}, got {sizes}")
    plausible_shape(path, sizes[:2], memory_limit)
    entries = sizes[2] if sparse else (sizes[0] * (sizes[1] - 1)) // 2  # the half below the diagonal may be all
    shortest = len("1 1\n") if sparse else len("1\n")
    if entries * shortest > path.stat().st_size * _BEST[packing(path)] + 1:
        raise ValueError(f"{path} is damaged: its header claims {entries} entries, more than its bytes can hold")
    # Triplets as they are read, doubled where the matrix is symmetric, and their CSR.
    bounded(path, 48 * entries if sparse else 16 * sizes[0] * sizes[1], memory_limit)


def _header(path: Path, stream: IO[bytes]) -> _Header:
    banner = stream.readline(_HEADER).decode("ascii", "replace").lower().split()
    if len(banner) < 3 or banner[0] != "%%matrixmarket" or banner[2] not in ("coordinate", "array"):
        raise ValueError(
            f"{path} is no MatrixMarket file: it must begin with '%%MatrixMarket matrix coordinate' (or array)"
        )
    left, count = _HEADER, 1
    while line := stream.readline(left):
        left, count = left - len(line), count + 1
        if left > 0 and line.strip() and not line.startswith(b"%"):
            field = banner[3] if len(banner) > 3 else "real"
            return _Header(banner[2] == "coordinate", field, [int(word) for word in line.split()], count)
    raise ValueError(f"{path} is damaged: it ends before the line of its sizes")


def comments(path: Path) -> str:
    with reading(path), open_bytes(path) as stream:
        lines = iter(lambda: stream.readline(_HEADER), b"")
        head = takewhile(lambda line: line.startswith(b"%") or not line.strip(), lines)
        return b"".join(islice(head, _COMMENTS)).decode("utf-8", "replace")
