"""The layout of AnnData, written block by block, in HDF5 or Zarr."""

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from shiftsvd.backends.validation import sound_structure
from shiftsvd.io.base import Labels, optional
from shiftsvd.io.storage.hdf5 import ErrorKeepingFile
from shiftsvd.runs.outputs import kind_of

Block = csr_array | npt.NDArray[Any]
COMPRESSIONS = (None, "none", "gzip", "zstd")
_EMPTY = ("layers", "obsm", "varm", "obsp", "varp", "uns")
_WRITER = "written-by"  # attribute of the root of Zarr folders that this module writes
_PARTS = {"", "obs", "obs/_index", "var", "var/_index", "X", "X/data", "X/indices", "X/indptr", *_EMPTY}
_ZARR_FILE = re.compile(r"\.zgroup|\.zattrs|\.zarray|\d+(\.\d+)*")
_ENTRIES, _CHUNK = 2**17, 2**20  # entries in a chunk of a sparse matrix; bytes in a chunk of a dense one


class Store(ABC):
    """An open file that is being written."""

    root: Any

    @abstractmethod
    def array(self, group: Any, name: str, dtype: Any, chunk: tuple[int, ...]) -> Any: ...

    @abstractmethod
    def texts(self, group: Any, name: str, labels: list[str]) -> Any: ...

    def check(self) -> None:
        return  # Zarr raises errors of writes itself

    def append(self, array: Any, block: npt.NDArray[Any]) -> None:
        first = array.shape[0]
        array.resize((first + len(block), *array.shape[1:]))
        if len(block):
            array[first:] = block


@dataclass(frozen=True, eq=False)
class H5Store(Store):
    """AnnData in an HDF5 file, written block after block."""

    root: Any
    file: ErrorKeepingFile
    filters: dict[str, Any]

    def append(self, array: Any, block: npt.NDArray[Any]) -> None:
        super().append(array, block)
        self.check()

    def check(self) -> None:
        self.file.check()

    def array(self, group: Any, name: str, dtype: Any, chunk: tuple[int, ...]) -> Any:
        sizes = (0, *chunk[1:])
        return group.create_dataset(name, sizes, dtype, maxshape=(None, *chunk[1:]), chunks=chunk, **self.filters)

    def texts(self, group: Any, name: str, labels: list[str]) -> Any:
        return group.create_dataset(name, data=labels, dtype=optional("h5py", "hdf5").string_dtype(), shape=len(labels))


@dataclass(frozen=True, eq=False)
class ZarrStore(Store):
    """Zarr, of the format that every version of AnnData reads."""

    root: Any
    compressors: Any

    def append(self, array: Any, block: npt.NDArray[Any]) -> None:
        chunk = array.chunks[0]
        ahead = -array.shape[0] % chunk
        for lo, hi in pairwise([0, *range(ahead or chunk, len(block), chunk), len(block)]):
            super().append(array, block[lo:hi])

    def array(self, group: Any, name: str, dtype: Any, chunk: tuple[int, ...]) -> Any:
        sizes = (0, *chunk[1:])
        return group.create_array(name, shape=sizes, dtype=dtype, chunks=chunk, compressors=self.compressors)

    def texts(self, group: Any, name: str, labels: list[str]) -> Any:
        array = group.create_array(name, shape=len(labels), dtype=str, compressors=self.compressors)
        array[:] = np.array(labels, dtype=object)
        return array


@contextmanager
def creating(path: Path, compression: str | None) -> Iterator[Store]:
    packed = compression not in (None, "none")
    if path.suffix == ".zarr":
        zarr, numcodecs = optional("zarr", "zarr"), optional("numcodecs", "zarr")
        codec = (numcodecs.GZip if compression == "gzip" else numcodecs.Zstd)() if packed else None
        root = zarr.open_group(str(path), mode="w-", zarr_format=2)
        root.attrs[_WRITER] = "shiftsvd"
        yield ZarrStore(root, codec)
        return
    filters: dict[str, Any] = {"compression": "gzip", "shuffle": True} if compression == "gzip" else {}
    if compression == "zstd":
        filters = {**optional("hdf5plugin", "hdf5").Zstd(), "shuffle": True}
    with ErrorKeepingFile(path) as file:
        with closing(optional("h5py", "hdf5").File(file, "w")) as root:
            yield H5Store(root, file, filters)
        file.check()


def is_converted(folder: Path) -> bool:
    for home, folders, files in os.walk(folder):
        inside = Path(home)
        ours = inside.relative_to(folder).as_posix().removeprefix(".") in _PARTS
        if not ours or not all(_ZARR_FILE.fullmatch(name) for name in files):
            return False
        if any(kind_of(inside / name) not in ("a file", "a folder") for name in (*folders, *files)):
            return False
    try:
        return bool(json.loads((folder / ".zattrs").read_bytes()).get(_WRITER) == "shiftsvd")
    except (OSError, ValueError, AttributeError):
        return False


def write(
    store: Store, blocks: Iterable[Block], shape: tuple[int, int], names: tuple[Labels | None, Labels | None]
) -> None:
    mark(store.root, "anndata", "0.1.0")
    for frame, labels, size in zip(("obs", "var"), names, shape, strict=True):
        write_frame(store, frame, labels, size)
    for empty in _EMPTY:
        mark(store.root.create_group(empty), "dict", "0.1.0")
    blocks = iter(blocks)
    first = next(blocks)
    written = (_write_dense if isinstance(first, np.ndarray) else _write_sparse)(store, first, blocks, shape)
    if written != shape[0]:
        raise ValueError(
            f"the input ended after {written:,} of {shape[0]:,} rows. It was changed during the conversion, or is "
            "truncated. Convert it again."
        )


def _write_sparse(store: Store, first: Any, blocks: Iterable[Any], shape: tuple[int, int]) -> int:
    group = store.root.create_group("X")
    mark(group, "csr_matrix", "0.1.0")
    group.attrs["shape"] = [int(size) for size in shape]
    data = store.array(group, "data", first.dtype, (_ENTRIES,))
    narrow = shape[1] <= np.iinfo(np.int32).max
    indices = store.array(group, "indices", np.int32 if narrow else np.int64, (_ENTRIES,))
    counts = []
    for block in chain([first], blocks):
        sound_structure(block)
        block.sum_duplicates()
        store.append(data, block.data)
        store.append(indices, block.indices)
        counts.append(np.diff(block.indptr).astype(np.int64))
    lengths = np.concatenate(counts)
    store.append(store.array(group, "indptr", np.int64, (_ENTRIES,)), np.cumsum(np.concatenate([[0], lengths])))
    return len(lengths)


def _write_dense(store: Store, first: Any, blocks: Iterable[Any], shape: tuple[int, int]) -> int:
    rows = int(np.clip(_CHUNK // (shape[1] * first.dtype.itemsize), 1, shape[0]))
    array = store.array(store.root, "X", first.dtype, (rows, shape[1]))
    mark(array, "array", "0.2.0")
    for block in chain([first], blocks):
        store.append(array, block)
    return int(array.shape[0])


def write_frame(store: Store, name: str, labels: Labels | None, size: int) -> list[str]:
    texts = list(map(str, range(size) if labels is None else labels.tolist()))
    group = store.root.create_group(name)
    mark(group, "dataframe", "0.2.0")
    group.attrs["_index"] = "_index"
    group.attrs["column-order"] = []
    mark(store.texts(group, "_index", texts), "string-array", "0.2.0")
    return texts


def mark(node: Any, kind: str, version: str) -> Any:
    node.attrs["encoding-type"] = kind
    node.attrs["encoding-version"] = version
    return node
