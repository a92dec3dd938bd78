"""NumPy files: .npy read by row ranges, .npz with a sparse matrix or arrays."""

import io
import math
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from zipfile import ZipFile

import numpy as np
from scipy import sparse

from shiftsvd.backends.source import RowSource
from shiftsvd.errors import Refused, Setting, damaged
from shiftsvd.io.base import Labels, Opened, bounded, in_rows, labels, plausible_shape, reading, refuse_key
from shiftsvd.io.location import Location
from shiftsvd.io.storage.tree import fingerprint_of, row_edges

_HEADER = 1 << 16  # bytes; longer than any header of a numeric matrix
# Columns of a tall matrix that is stored column by column, whose rows are read in parts of each column: at least 4 kB
# each. With more columns, reading the transposed matrix is faster.
_FEW = 256
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def _header(name: str, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"{name} has an unknown version of the format: {version}. Save it again with numpy.save.")
    try:
        shape, fortran, dtype = _HEADERS[version](file)
    except (SyntaxError, tokenize.TokenError) as error:
        raise damaged(name, "its header cannot be parsed") from error
    if dtype.hasobject:
        raise ValueError(f"{name} holds Python objects, which are not loaded for safety. Save numbers or text.")
    if any(size < 0 for size in shape):
        raise damaged(name, f"it has the shape {shape}")
    return shape, fortran, dtype


def read_npy(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    with reading(path):
        refuse_key(path, key)
        with path.open("rb") as file:
            head = io.BytesIO(file.read(_HEADER))
        shape, fortran, dtype = _header(str(path), head)
        if len(shape) != 2 or dtype.kind not in "fciub":
            remedy = in_rows(shape) if len(shape) > 2 else "Save such an array with numpy.save."
            raise ValueError(
                f"{path} must hold a matrix of numbers with two dimensions, got shape {shape} of {dtype}. {remedy}"
            )
        plausible_shape(path, shape, memory_limit)
        claimed, there = head.tell() + shape[0] * shape[1] * dtype.itemsize, path.stat().st_size
        if claimed != there:
            raise damaged(path, f"its header declares {claimed:,} bytes, but the file has {there:,}")
        place = path if isinstance(path, Location) else ""
        by_columns = fortran and 0 < shape[1] <= min(_FEW, shape[0]) and place == ""
        turned = fortran and not by_columns
        about = str(path), fingerprint_of(path), shape[::-1] if turned else shape, dtype.newbyteorder("=")
        return Opened(NpyRows(*about, dtype, head.tell(), turned, place, by_columns), transposed=turned)


@dataclass(frozen=True, eq=False)
class NpyRows(RowSource):
    """Rows of a matrix that lies in a file from `offset` on, row after row or column after column."""

    name: str
    fingerprint: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    stored_dtype: np.dtype[Any]
    offset: int
    conjugate: bool
    file: str | Location = ""  # path, if `name` is none
    by_columns: bool = False
    sparse = False

    @property
    def is_copied(self) -> bool:  # type: ignore[override]
        return isinstance(self.file, str) and self.file != ""

    def edges(self, n_bytes: int) -> list[int]:
        return row_edges(self.shape, self.dtype.itemsize, 1, n_bytes)

    def read(self, lo: int, hi: int) -> np.ndarray[Any, Any]:
        m, n = self.shape
        starts, count = ([j * m + lo for j in range(n)], hi - lo) if self.by_columns else ([lo * n], (hi - lo) * n)
        with reading(self.name):
            parts = [self._flat(self.offset + start * self.dtype.itemsize, count) for start in starts]
            if any(len(part) < count for part in parts):
                raise ValueError(f"{self.name} is truncated: it ends within rows {lo:,} to {hi:,}. Copy it again.")
            block = np.stack(parts).T if self.by_columns else parts[0].reshape(hi - lo, n)
            block = block.astype(self.dtype, copy=False)
            return block.conj() if self.conjugate and self.dtype.kind == "c" else block

    def _flat(self, start: int, count: int) -> np.ndarray[Any, Any]:
        if not isinstance(self.file, Location):
            return np.fromfile(self.file or self.name, self.stored_dtype, count, offset=start)
        raw = self.file.read_range(start, start + count * self.dtype.itemsize)
        return np.frombuffer(raw[: len(raw) // self.dtype.itemsize * self.dtype.itemsize], self.stored_dtype)


_NAMES = ("row_names", "column_names")
_PLACES = {"indices", "indptr", "row", "col", "offsets"}  # members with positions of values
_FORMATS = ("csr", "csc", "coo", "bsr", "dia")


def read_npz(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    with reading(path):
        members = _members(path, memory_limit)
        with np.load(path, allow_pickle=False) as archive:
            if key is None and "format" in members:
                matrix = _sparse(path, archive, members, memory_limit)
            else:
                matrix = archive[_pick(path, members, key)]
                plausible_shape(path, matrix.shape, memory_limit)
            rows, columns = (_names(path, archive, axis, matrix.shape, memory_limit) for axis in (0, 1))
    return Opened(matrix, rows, columns)


def _members(path: Path, memory_limit: int | str | None) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    members = {}
    with ZipFile(path) as archive:
        bounded(path, sum(info.file_size for info in archive.infolist()), memory_limit)
        for info in archive.infolist():
            if not info.filename.endswith(".npy"):
                continue
            with archive.open(info) as file:
                shape, _, dtype = _header(f"{path}: {info.filename}", file)
                n_bytes = math.prod(shape) * dtype.itemsize + file.tell()
            if n_bytes != info.file_size:
                raise damaged(path, f"{info.filename} has {info.file_size:,} bytes, not {n_bytes:,}")
            members[info.filename.removesuffix(".npy")] = (shape, dtype)
    return members


def _sparse(path: Path, archive: Any, members: dict[str, Any], memory_limit: int | str | None) -> Any:
    if members.get("shape", ((), None))[0] != (2,):
        raise damaged(path, "its array 'shape' must hold two numbers")
    kind, shape = archive["format"].item(), archive["shape"].tolist()
    kind = kind.decode("ascii") if isinstance(kind, bytes) else kind
    if kind not in _FORMATS:
        raise ValueError(
            f"{path} holds a sparse matrix of format {kind!r}. Convert it to one of {', '.join(_FORMATS)}."
        )
    plausible_shape(path, [int(size) for size in shape], memory_limit)
    for name in _PLACES & members.keys():
        if members[name][1].kind not in "iu":
            raise damaged(path, f"its {name} must be integers, got {members[name][1]}")
    matrix: Any = sparse.load_npz(path)
    if kind in ("csr", "csc", "bsr"):
        matrix.check_format(full_check=True)  # a conversion would read outside the arrays for invalid indices
    return matrix


def _pick(path: Path, members: dict[str, tuple[tuple[int, ...], np.dtype[Any]]], key: str | None) -> str:
    found = [name for name, (shape, dtype) in members.items() if len(shape) == 2 and dtype.kind in "fciub"]
    if key in found:
        return key
    listed = ", ".join(found) or "none"
    if key is not None:
        raise ValueError(f"{path} has no 2-D array of numbers named {key!r}. Its 2-D arrays: {listed}.")
    if not found:
        raise ValueError(f"{path} has no 2-D array of numbers. Save one with numpy.savez.")
    if len(found) != 1:
        one = f"{path} must hold exactly one 2-D array of numbers, got {listed}. Select one with "
        raise Refused(one, Setting("key"), ".")
    return found[0]


def _names(
    path: Path, archive: Any, axis: int, shape: tuple[int, int], memory_limit: int | str | None
) -> Labels | None:
    if _NAMES[axis] not in archive:
        return None
    names = archive[_NAMES[axis]]
    if names.shape != (shape[axis],):
        raise ValueError(
            f"{path}: {_NAMES[axis]} must have {shape[axis]} entries, got shape {names.shape}. Save it again."
        )
    return labels(path, names.astype(np.str_).tolist(), memory_limit)
