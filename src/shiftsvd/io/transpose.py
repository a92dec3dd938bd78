"""The adjoint of a matrix in a file, row block by row block, in bounded memory."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array

from shiftsvd.backends.source import RowSource
from shiftsvd.backends.validation import sound_structure
from shiftsvd.io.storage.chunked import row_edges

Bucket = tuple[int, int]  # columns of the file: rows of the adjoint


def adjoint_blocks(source: RowSource, n_bytes: int, folder: Path) -> Iterator[csr_array | npt.NDArray[Any]]:
    """Blocks of rows of the adjoint, of about so many bytes.

    The file is read once (twice if it is sparse: entries are counted first, so that buckets are of equal size). Every
    block is scattered over the buckets, files in `folder`; then each bucket is read once.
    """
    if source.sparse:
        yield from _sparse(source, n_bytes, folder)
    else:
        yield from _dense(source, n_bytes, folder)


def _dense(source: RowSource, n_bytes: int, folder: Path) -> Iterator[npt.NDArray[Any]]:
    m, n = source.shape
    buckets = list(pairwise(row_edges((n, m), source.dtype.itemsize, 1, n_bytes)))
    for block in _blocks(source, n_bytes):
        for bucket in buckets:
            _append(folder, bucket, np.ascontiguousarray(block[:, slice(*bucket)]))
    for lo, hi in buckets:
        columns = _take(folder, (lo, hi), source.dtype).reshape(m, hi - lo)
        yield np.ascontiguousarray(columns.conj().T)


def _sparse(source: RowSource, n_bytes: int, folder: Path) -> Iterator[csr_array]:
    m, n = source.shape
    entry = np.dtype([("row", np.int64), ("column", np.int64), ("value", source.dtype)])
    counts = np.zeros(n, np.int64)
    for block in _blocks(source, n_bytes):
        counts += np.bincount(block.indices, minlength=n)
    buckets = _equal(counts * entry.itemsize, n_bytes)
    first = 0
    for block in _blocks(source, n_bytes):
        C = block.tocsc()
        for lo, hi in buckets:
            entries = np.empty(C.indptr[hi] - C.indptr[lo], entry)
            entries["row"] = C.indices[C.indptr[lo] : C.indptr[hi]] + np.int64(first)
            entries["column"] = np.repeat(np.arange(hi - lo), np.diff(C.indptr[lo : hi + 1]))
            entries["value"] = C.data[C.indptr[lo] : C.indptr[hi]].conj()
            _append(folder, (lo, hi), entries)
        first += block.shape[0]
    for lo, hi in buckets:
        entries = _take(folder, (lo, hi), entry)
        yield csr_array(coo_array((entries["value"], (entries["column"], entries["row"])), shape=(hi - lo, m)))


def _blocks(source: RowSource, n_bytes: int) -> Iterator[Any]:
    for lo, hi in pairwise(source.edges(n_bytes)):
        block = source.read(lo, hi)
        if not isinstance(block, np.ndarray):
            sound_structure(block)
        yield block


def _equal(sizes: npt.NDArray[np.int64], n_bytes: int) -> list[Bucket]:
    ends = np.cumsum(sizes)
    cuts = np.searchsorted(ends, np.arange(n_bytes, int(ends[-1]), n_bytes), side="right")
    return list(pairwise([0, *np.unique(cuts[(cuts > 0) & (cuts < len(sizes))]).tolist(), len(sizes)]))


def _append(folder: Path, bucket: Bucket, values: npt.NDArray[Any]) -> None:
    with (folder / f"{bucket[0]}").open("ab") as file:
        file.write(values.tobytes())


def _take(folder: Path, bucket: Bucket, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    path = folder / f"{bucket[0]}"
    values = np.fromfile(path, dtype)
    path.unlink()
    return values
