"""Rows of matrices in HDF5 and Zarr: dense arrays, and groups of data, indices and indptr."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from shiftsvd.backends.source import RowSource
from shiftsvd.errors import damaged
from shiftsvd.io.base import bounded, in_rows, plausible_shape, reading
from shiftsvd.io.location import Location
from shiftsvd.io.storage.hdf5 import H5Array
from shiftsvd.runs.memory import shown_bytes
from shiftsvd.runs.messages import log_notice

_SLACK, _MOST_PACKED = 2**30, 10_000  # largest uncompressed size: in bytes, or relative to the size of the file
# More than _MANY chunks are refused if smaller than _TINY bytes, and cause a notice if smaller than _SMALL bytes (the
# smallest automatic chunks of HDF5). Reading a chunk of any size takes _SECONDS (benchmarks/claims/bombs.py).
_MANY, _TINY, _SMALL, _SECONDS = 100_000, 2**10, 2**13, 1e-4


class Stored(Protocol):
    """Shape, dtype and chunks of an array in a file."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> Any: ...

    @property
    def chunks(self) -> tuple[int, ...] | None: ...


class StoredArray(Stored, Protocol):
    """An array in a file: `H5Array`, or an array of Zarr."""

    def __getitem__(self, rows: slice, /) -> Any: ...


@dataclass(frozen=True, eq=False)
class ArrayRows(RowSource):
    """Rows of a dense array."""

    array: StoredArray
    name: str
    fingerprint: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    sparse = False

    @property
    def chunk_rows(self) -> int:
        return self.array.chunks[0] if self.array.chunks else 1

    def edges(self, n_bytes: int) -> list[int]:
        return row_edges(self.shape, self.dtype.itemsize, self.chunk_rows, n_bytes)

    def decoding_bytes(self, readers: int) -> int:
        if isinstance(self.array, H5Array) or not self.array.chunks:
            return readers * _decoding(self.array)
        return readers * self.array.chunks[0] * self.shape[1] * self.dtype.itemsize

    def read(self, lo: int, hi: int) -> npt.NDArray[Any]:
        with reading(self.name):
            return np.ascontiguousarray(self.array[lo:hi], self.dtype)


@dataclass(frozen=True, eq=False)
class CsrRows(RowSource):
    """Rows of a CSR group, or of the adjoint of a CSC group; only `indptr` is in memory."""

    data: StoredArray
    indices: StoredArray
    indptr: npt.NDArray[np.int64]
    name: str
    fingerprint: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    conjugate: bool = False
    sparse = True

    @cached_property
    def stored(self) -> int:
        return int(self.indptr[-1])

    def decoding_bytes(self, readers: int) -> int:
        return readers * max(_decoding(self.data), _decoding(self.indices))

    def edges(self, n_bytes: int) -> list[int]:
        index = 4 if max(n_bytes, self.shape[1]) <= np.iinfo(np.int32).max else 8
        read = self.indptr * (self.dtype.itemsize + index) + np.arange(len(self.indptr)) * 8
        cuts = np.searchsorted(read, np.arange(n_bytes, int(read[-1]), n_bytes))
        return [0, *np.unique(cuts[(cuts > 0) & (cuts < self.shape[0])]).tolist(), self.shape[0]]

    def read(self, lo: int, hi: int) -> csr_array:
        first, last = int(self.indptr[lo]), int(self.indptr[hi])
        with reading(self.name):
            data = np.ascontiguousarray(self.data[first:last], self.dtype)
            indices, indptr = np.asarray(self.indices[first:last]), self.indptr[lo : hi + 1] - first
            if indices.dtype.itemsize <= 4 and max(last - first, self.shape[1]) <= np.iinfo(np.int32).max:
                # SciPy would copy all indices to 64 bits if those of indptr are.
                indices, indptr = indices.astype(np.int32, copy=False), indptr.astype(np.int32)
            if self.conjugate and data.dtype.kind == "c":
                data = data.conj()
            return csr_array((data, indices, indptr), shape=(hi - lo, self.shape[1]))


def _decoding(array: StoredArray) -> int:
    # A chunk is in memory three times: compressed, inflated and unshuffled. Zarr decodes the first and the last chunk
    # of a range at the same time.
    copies = 6
    if isinstance(array, H5Array):
        copies = 3 if array.filters else 0  # otherwise HDF5 holds the copies
    return int(copies * math.prod(array.chunks) * np.dtype(array.dtype).itemsize) if array.chunks else 0


def array_rows(array: StoredArray, path: Path, key: str, memory_limit: int | str | None) -> ArrayRows:
    name = f"{path}:{key}"
    dtype = np.dtype(array.dtype)
    if len(array.shape) != 2 or dtype.kind not in "fciub":
        shape = tuple(array.shape)
        remedy = f". {in_rows(shape)}" if len(shape) > 2 else ""
        raise ValueError(f"{name} must be a matrix of numbers, got shape {shape} of {dtype}{remedy}")
    m, n = map(int, array.shape)
    plausible_shape(name, (m, n), memory_limit)
    check_size(name, path, array, memory_limit)
    bounded(f"{name}: one row", n * dtype.itemsize, memory_limit)
    return ArrayRows(array, name, fingerprint_of(path, key), (m, n), dtype.newbyteorder("="))


def csr_rows(
    parts: dict[str, StoredArray],
    shape: tuple[int, int],
    path: Path,
    key: str,
    memory_limit: int | str | None,
    *,
    conjugate: bool = False,
) -> CsrRows:
    name = f"{path}:{key}"
    data, indices, indptr = (parts[part] for part in ("data", "indices", "indptr"))
    plausible_shape(name, shape, memory_limit)
    for part, array in parts.items():
        kinds = "fciub" if part == "data" else "iu"
        if len(array.shape) != 1 or np.dtype(array.dtype).kind not in kinds:
            got = f"{array.dtype} of shape {array.shape}"
            raise damaged(name, f"{part} must be a flat array of numbers, got {got}")
        check_size(f"{name}/{part}", path, array, memory_limit)
    if indptr.shape[0] != shape[0] + 1:
        raise damaged(name, f"indptr must have {shape[0] + 1:,} entries, got {indptr.shape[0]:,}")
    with reading(name):
        starts = np.asarray(indptr[0 : shape[0] + 1]).astype(np.int64)
    if starts[0] != 0 or np.any(starts[1:] < starts[:-1]):
        raise damaged(name, "indptr must start at 0 and never decrease")
    if not starts[-1] == data.shape[0] == indices.shape[0]:
        counts = f"data has {data.shape[0]:,} and indices has {indices.shape[0]:,} entries"
        raise damaged(name, f"indptr ends at {starts[-1]:,}, but {counts}")
    dtype = np.dtype(data.dtype).newbyteorder("=")
    return CsrRows(data, indices, starts, name, fingerprint_of(path, key), shape, dtype, conjugate)


def row_edges(shape: tuple[int, int], itemsize: int, chunk: int, n_bytes: int) -> list[int]:
    m, n = shape
    step = max(n_bytes // (n * itemsize), 1)
    if chunk <= 2 * step:
        step = max(step // chunk, 1) * chunk
    return [*range(0, m, step), m]


def times_decoded(edges: Sequence[int], chunk: int) -> float:
    # The mean number of the ranges between `edges` that overlap a chunk.
    bounds = np.asarray(edges)
    overlaps = -(-bounds[1:] // chunk) - bounds[:-1] // chunk
    return float(overlaps.sum()) / -(-int(bounds[-1]) // chunk)


def fingerprint_of(path: Path, key: str = "") -> str:
    # mtime can be set, ctime cannot: the fingerprint of a file that was overwritten changes even if its size and its
    # mtime are restored.
    if isinstance(path, Location):
        return path.fingerprint(key)
    stats = _stats(path)
    size, changed = sum(stat.st_size for stat in stats), max(stat.st_mtime_ns for stat in stats)
    return f"{path.absolute()}:{key}:{size}:{changed}:{max(stat.st_ctime_ns for stat in stats)}"


def _stats(path: Path) -> list[os.stat_result]:
    return [file.stat() for file in (path.rglob("*") if path.is_dir() else [path])]


def check_size(name: str, path: Path, array: Stored, memory_limit: int | str | None) -> None:
    itemsize = np.dtype(array.dtype).itemsize
    claimed = math.prod(array.shape) * itemsize
    size = path.n_bytes if isinstance(path, Location) else sum(stat.st_size for stat in _stats(path))
    if size is not None and claimed > max(_SLACK, _MOST_PACKED * size):
        raise damaged(name, f"it declares {claimed:,} bytes, in a file of {size:,} bytes")
    if array.chunks is None:
        return
    chunk = math.prod(array.chunks) * itemsize
    bounded(f"{name}: one chunk", chunk, memory_limit)
    count = math.prod(-(-size // max(step, 1)) for size, step in zip(array.shape, array.chunks, strict=False))
    if count > _MANY and chunk < _TINY:
        raise ValueError(
            f"{name} has {count:,} chunks of {chunk:,} bytes, which take too long to read. Write the file with larger "
            "chunks."
        )
    if count > _MANY and chunk < _SMALL:
        seconds = f"each read takes about {_SECONDS * count:.0f} s. Write it in larger chunks with shiftsvd convert."
        log_notice(f"{name} has {count:,} chunks of {shown_bytes(chunk)}, so {seconds}")
