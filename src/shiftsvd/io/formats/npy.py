"""NumPy .npy files: plain reads of row ranges, no memory map."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shiftsvd.backends.source import RowSource
from shiftsvd.io.base import Opened, reading
from shiftsvd.io.limits import plausible_shape
from shiftsvd.io.storage.chunked import fingerprint_of, row_edges

_HEADER = 1 << 16  # more than any header of a matrix of numbers


def read(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    with reading(path):
        if key is not None:
            raise ValueError(f"{path} holds one array, which has no key; got key={key!r}")
        shape, fortran, dtype, offset = _header(path)
        plausible_shape(path, shape, memory_limit)
        claimed, there = offset + shape[0] * shape[1] * dtype.itemsize, path.stat().st_size
        if claimed != there:
            raise ValueError(f"{path} should have {claimed} bytes by its header, but has {there}; it is damaged")
    source = NpyRows(path, shape[::-1] if fortran else shape, dtype, offset, conjugate=fortran)
    return Opened(source, transposed=fortran)


def _header(path: Path) -> tuple[tuple[int, int], bool, np.dtype[Any], int]:
    with path.open("rb") as file:
        head = io.BytesIO(file.read(_HEADER))
    version = np.lib.format.read_magic(head)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"{path} has version {version} of the format, which is not for matrices of numbers")
    parse = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = parse(head)
    if len(shape) != 2 or dtype.kind not in "fciub":
        raise ValueError(f"{path} must hold a matrix of numbers, got shape {shape} of {dtype}")
    return shape, fortran, dtype, head.tell()


@dataclass(frozen=True, eq=False)
class NpyRows(RowSource):
    """Rows of a matrix that lies in a file row after row, from `offset` on."""

    path: Path
    shape: tuple[int, int]
    stored_dtype: np.dtype[Any]
    offset: int
    conjugate: bool = False
    sparse = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", self.stored_dtype.newbyteorder("="))

    @property
    def name(self) -> str:  # type: ignore[override]
        return str(self.path)

    @property
    def fingerprint(self) -> str:  # type: ignore[override]
        return fingerprint_of(self.path)

    def edges(self, n_bytes: int) -> list[int]:
        return row_edges(self.shape, self.dtype.itemsize, 1, n_bytes)

    def read(self, lo: int, hi: int) -> np.ndarray[Any, Any]:
        n = self.shape[1]
        with reading(self.name):
            flat = np.fromfile(
                self.path, self.stored_dtype, (hi - lo) * n, offset=self.offset + lo * n * self.dtype.itemsize
            )
            if len(flat) < (hi - lo) * n:
                raise ValueError(f"{self.name} ends within rows {lo} to {hi}; it was cut off")
            block = flat.reshape(hi - lo, n).astype(self.dtype, copy=False)
            return block.conj() if self.conjugate and self.dtype.kind == "c" else block
