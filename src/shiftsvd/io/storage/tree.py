"""HDF5 and Zarr: readers of plain files; their matrices, attributes and data frames; folders of Zarr, opened safely."""

import json
import math
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from shiftsvd.backends.source import RowSource
from shiftsvd.errors import Refused, Setting, damaged, few
from shiftsvd.io.base import Labels, Opened, bounded, in_rows, labels, optional, plausible_shape, reading
from shiftsvd.io.location import Location
from shiftsvd.io.sniff import format_claiming, formats, split_element
from shiftsvd.io.storage.hdf5 import H5Array, open_hdf5
from shiftsvd.names import resolve
from shiftsvd.runs.memory import shown_bytes
from shiftsvd.runs.messages import external_allowed, log_notice

# --- rows of matrices: dense arrays, and groups of data, indices and indptr ---

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
        return sorted({0, *cuts.tolist(), self.shape[0]})

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


def _in_rows(array: Any) -> str:
    metadata, attrs = getattr(array, "metadata", None), getattr(array, "attrs", ())
    is_field = getattr(metadata, "dimension_names", None) or "_ARRAY_DIMENSIONS" in attrs  # of Zarr 3 and 2
    return in_rows(tuple(array.shape)) + (" For a field, use shiftsvd.xarray.pca in Python." if is_field else "")


def array_rows(array: StoredArray, path: Path, key: str, memory_limit: int | str | None) -> ArrayRows:
    name = f"{path}:{key}"
    dtype = np.dtype(array.dtype)
    if len(array.shape) != 2 or dtype.kind not in "fciub":
        shape = tuple(array.shape)
        remedy = f". {_in_rows(array)}" if len(shape) > 2 else ""
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
    stats = stats_of(path)
    size, changed = sum(stat.st_size for stat in stats), max(stat.st_mtime_ns for stat in stats)
    return f"{path.absolute()}:{key}:{size}:{changed}:{max(stat.st_ctime_ns for stat in stats)}"


def stats_of(path: Path) -> list[os.stat_result]:
    return [file.stat() for file in (path.rglob("*") if path.is_dir() else [path])]


def check_size(name: str, path: Path, array: Stored, memory_limit: int | str | None) -> None:
    itemsize = np.dtype(array.dtype).itemsize
    claimed = math.prod(array.shape) * itemsize
    size = path.n_bytes if isinstance(path, Location) else sum(stat.st_size for stat in stats_of(path))
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


# --- files, their matrices, attributes and data frames ---

_PARTS = ("data", "indices", "indptr")
_DEEPEST, _MOST, _SHOWN = 6, 1000, 20  # levels and nodes of a group to list; nodes to name in a message
Column = npt.NDArray[Any]  # floats, integers, booleans, or objects: texts, and None for missing values


@dataclass(frozen=True, eq=False)
class Tree:
    """An open file of HDF5, or an open group or array of Zarr."""

    path: Path
    root: Any
    memory_limit: int | str | None = None

    def lazy(self, node: Any) -> StoredArray:
        if not type(node).__module__.startswith("h5py"):
            return cast("StoredArray", node)
        return H5Array(Path(node.file.filename) if external_allowed() else self.path, node.name)

    def find(self, key: str) -> Any:
        if is_array(self.root) or key not in self.root:
            keys = self.matrices()
            use = ("Use ", Setting("key", keys[0])) if len(keys) == 1 else ("Select one with ", Setting("key"))
            raise Refused(f"{self.path} has no {key!r}. It has {self.content()}. ", *use, ".")
        return self.root[key]

    def matrix(self, key: str) -> tuple[RowSource, bool]:
        node = self.find(key) if key else self.root
        if is_array(node):
            return array_rows(self.lazy(node), self.path, key, self.memory_limit), False
        if not is_sparse(node):
            raise ValueError(f"{self.path}:{key} is a group, not a matrix. The file has {self.content()}.")
        kind, (m, n) = _encoding(node, f"{self.path}:{key}")
        by_columns = kind.startswith("csc")
        parts = {part: self.lazy(node[part]) for part in _PARTS}
        shape = (n, m) if by_columns else (m, n)
        return csr_rows(parts, shape, self.path, key, self.memory_limit, conjugate=by_columns), by_columns

    def matrices(self) -> list[str]:
        if is_array(self.root):
            return [""]
        return [key for key, node in _walk(self.root) if _is_matrix(node)]

    def only_matrix(self) -> str:
        keys = self.matrices()
        if not keys:
            raise ValueError(f"{self.path} has no matrix of numbers{self._stacks()}")
        if len(keys) != 1:
            raise Refused(f"{self.path} has {self.content()}. Select one with ", Setting("key"), ".")
        return keys[0]

    def _stacks(self) -> str:
        arrays = ((key, node) for key, node in _walk(self.root) if _is_of_numbers(node))
        found = {repr(key): node for key, node in arrays if len(node.shape) > 2}
        if not found:
            return ". Write the data as a two-dimensional dataset."
        listed = few(f"{key} of shape {tuple(node.shape)}" for key, node in found.items())
        return f", but {listed}. {_in_rows(next(iter(found.values())))}"

    def content(self) -> str:
        keys = self.matrices()
        if not keys:
            return "no matrix of numbers"
        return f"{len(keys):,} {'matrix' if len(keys) == 1 else 'matrices'}: {few(map(repr, keys), _SHOWN)}"

    def texts(self, node: Any, length: int) -> Labels:
        names = ["" if value is None else str(value) for value in self.column(node, length).tolist()]
        return labels(self.path, names, self.memory_limit)

    def column(self, node: Any, length: int | None = None, categories: Any = None) -> Column:
        if is_array(node):
            return self._classes(self.values(node, length), categories)
        if "codes" in node:
            return self._classes(self.values(node["codes"], length), node["categories"])
        values = _plain(self.values(node["values"], length))
        return _without(values, self.values(node["mask"], length).astype(bool)) if "mask" in node else values

    def _classes(self, codes: Column, categories: Any) -> Column:
        if categories is None:
            return _plain(codes)
        known = _plain(self.values(categories, None)).astype(object)
        if codes.dtype.kind not in "iu" or codes.max(initial=-1) >= len(known) or codes.min(initial=0) < -1:
            raise damaged(self.path, f"codes of categories must be in -1..{len(known) - 1:,}")
        return _without(known[np.maximum(codes, 0)] if len(known) else np.full(len(codes), None), codes < 0)

    def values(self, node: Any, length: int | None) -> npt.NDArray[Any]:
        name = f"{self.path}:{node.name}"
        if len(node.shape) != 1 or (length is not None and node.shape[0] != length):
            raise ValueError(f"{name} must hold {length:,} values, got shape {node.shape}. Write the file again.")
        check_size(name, self.path, node, self.memory_limit)
        return np.asarray(node[...])


def _without(values: Column, gaps: Column) -> Column:
    if not gaps.any():
        return values
    kind = np.float64 if values.dtype.kind in "iuf" else object
    values = values.astype(kind)
    values[gaps] = np.nan if kind is np.float64 else None
    return values


def _plain(values: Column) -> Column:
    if values.dtype.kind in "fiub":
        return values
    plain = np.empty(len(values), object)
    plain[:] = [value.decode() if isinstance(value, bytes) else value for value in values.tolist()]
    return plain


def column_names(frame: Any) -> list[str]:
    if is_array(frame):  # before AnnData 0.7
        return [name for name in frame.dtype.names or () if name not in ("index", "_index")]
    index = frame.attrs.get("_index", "_index")
    there = [name for name in frame if name != index and not name.startswith("__")]
    ordered = [_text(name) for name in frame.attrs.get("column-order", ())]
    return [*(name for name in ordered if name in there), *(name for name in there if name not in ordered)]


def column(tree: Tree, frame: Any, name: str, length: int | None = None) -> Column:
    if is_array(frame):
        return tree.column(Field(frame, name), length, tree.root.get(f"uns/{name}_categories"))
    older = frame.get("__categories", {})  # before AnnData 0.8
    return tree.column(frame[name], length, older.get(name))


class Field:
    """One field of a structured array, as AnnData wrote data frames before 0.7."""

    def __init__(self, table: Any, field: str) -> None:
        self._table, self._field = table, field
        self.name, self.shape, self.chunks, self.dtype = table.name, table.shape, table.chunks, table.dtype

    def __getitem__(self, rows: Any) -> Any:
        return self._table[self._field][rows]


def _walk(group: Any) -> Iterator[tuple[str, Any]]:
    level, seen = [("", group)], {_identity(group, "")}
    for _ in range(_DEEPEST):
        below = []
        for prefix, each in level:
            for name in islice(each, _MOST):
                key, node = prefix + name, each[name]
                yield key, node
                identity = _identity(node, key)
                if identity not in seen and not is_array(node) and hasattr(node, "attrs") and not is_sparse(node):
                    seen.add(identity)
                    below.append((f"{key}/", node))
        level = below


def _identity(group: Any, key: str) -> Any:
    return group.id if hasattr(group, "id") else key


def is_array(node: Any) -> bool:
    return hasattr(node, "shape")


def _is_matrix(node: Any) -> bool:
    if not is_array(node):
        return is_sparse(node)
    return _is_of_numbers(node) and len(node.shape) == 2


def _is_of_numbers(node: Any) -> bool:
    return is_array(node) and node.shape is not None and np.dtype(node.dtype).kind in "fciub"


def is_sparse(node: Any) -> bool:
    return not is_array(node) and all(part in node for part in _PARTS)


def attribute(node: Any, *names: str) -> str | None:
    return next((_text(node.attrs[name]) for name in names if name in node.attrs), None)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _encoding(node: Any, name: str) -> tuple[str, tuple[int, int]]:
    kind = attribute(node, "encoding-type", "h5sparse_format") or ""
    sizes = next((node.attrs[key] for key in ("shape", "h5sparse_shape") if key in node.attrs), None)
    if not kind.startswith(("csr", "csc")) or sizes is None or len(sizes) != 2:
        raise ValueError(
            f'{name} must have the attributes encoding-type ("csr_matrix" or "csc_matrix") and shape, '
            f"got encoding-type {kind!r} and shape {sizes}"
        )
    return kind, (int(sizes[0]), int(sizes[1]))


_METADATA: Final = (".zarray", ".zgroup", ".zattrs", ".zmetadata", "zarr.json")
_PARSED: Final = 32  # bytes of memory for each byte of JSON: "[]," is a list
_METADATA_REMEDY: Final = "store large attributes as arrays"
_RUN: Final = ("pickle", "numcodecs.pickle")  # codecs that execute what they read


@contextmanager
def opened_tree(path: Path, memory_limit: int | str | None) -> Iterator[Tree]:
    path, _ = split_element(path)
    with reading(path):
        if path.is_dir():
            yield Tree(path, _open_zarr(path, memory_limit), memory_limit)
        else:
            with open_hdf5(path) as root:
                yield Tree(path, root, memory_limit)


def _open_zarr(path: Path, memory_limit: int | str | None) -> Any:
    zarr = optional("zarr", "zarr")
    if isinstance(path, Location):
        from shiftsvd.io.storage.served import ServedStore  # imports Zarr

        return zarr.open(ServedStore(path, partial(_check_metadata, memory_limit=memory_limit)), mode="r")
    for file in refuse_outside(path):
        if file.name in _METADATA:
            bounded(f"{file.path}: its metadata", _PARSED * file.stat().st_size, memory_limit, _METADATA_REMEDY)
            _refuse_codecs(path, Path(file.path).read_bytes())
    return zarr.open(str(path), mode="r")


def refuse_outside(path: Path) -> list[os.DirEntry[str]]:
    """Return the files of a folder. Raise an error for links out of the folder, pipes and devices."""
    root, files = Path(os.path.realpath(path)), list(_files(path))
    for file in files:
        _refuse_others(path, root, file)
    return files


def _files(folder: Path) -> Iterator[os.DirEntry[str]]:
    waiting = [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def _refuse_others(path: Path, root: Path, entry: os.DirEntry[str]) -> None:
    if entry.is_symlink() and not external_allowed() and not Path(os.path.realpath(entry.path)).is_relative_to(root):
        out = (
            f"{path} has a link out of its folder, {os.path.relpath(entry.path, path)}, which is not read for safety. "
        )
        raise Refused(out, "Use ", Setting("allow_external", True), " to follow it in trusted data.")
    try:
        mode = entry.stat().st_mode
    except FileNotFoundError:
        return  # a broken link; the chunk counts as never written
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ValueError(f"{path} has {os.path.relpath(entry.path, path)}, which is not a regular file. Remove it.")


def _check_metadata(path: Path, name: str, content: bytes, memory_limit: int | str | None) -> None:
    if name.rpartition("/")[2] in _METADATA:
        bounded(f"{path / name}: its metadata", _PARSED * len(content), memory_limit, _METADATA_REMEDY)
        _refuse_codecs(path, content)


def _refuse_codecs(path: Path, content: bytes) -> None:
    def refuse(node: dict[str, Any]) -> None:
        if node.get("id") in _RUN or node.get("name") in _RUN:  # Zarr 2 and Zarr 3
            raise ValueError(
                f"{path} uses the codec pickle, which runs code from the file. Write the file with another codec."
            )

    json.loads(content, object_hook=refuse)


# --- readers of files that no extension claims --------------------------------------------------------------------


def read_hdf5(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    with opened_tree(path, memory_limit) as tree:
        key = (key or tree.only_matrix()).strip("/")
        source, by_columns = tree.matrix(key)
        rows, columns = (_scale(tree, tree.root[key], axis, size) for axis, size in enumerate(source.shape))
        return Opened(source, rows, columns, transposed=by_columns)


def kind(path: Path) -> str:
    with opened_tree(path, None) as tree:
        return format_claiming("HDF5", tree.root) or "hdf5"


def _scale(tree: Tree, node: Any, axis: int, size: int) -> Labels | None:
    h5py = optional("h5py", "hdf5")
    if not isinstance(node, h5py.Dataset) or not len(node.dims[axis]):
        return None
    scale = node.dims[axis][0]
    return tree.texts(scale, size) if h5py.check_string_dtype(scale.dtype) else None


def read_zarr(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    with opened_tree(path, memory_limit) as tree:
        for each in formats().values():
            if each.claims and each.element and resolve(each.claims)(tree.root):
                return cast("Opened", resolve(each.element)(tree, key))
        itself = is_array(tree.root) or is_sparse(tree.root)
        source, by_columns = tree.matrix(key if key is not None else "" if itself else tree.only_matrix())
        return Opened(source, transposed=by_columns)
