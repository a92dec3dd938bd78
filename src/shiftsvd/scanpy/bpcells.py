"""Read and write matrices of BPCells: bit-packed counts in folders and in groups of HDF5 files."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from shiftsvd.extend import files as io
from shiftsvd.extend.operators import kernels
from shiftsvd.extend.running import Refused, Setting

# The layout is that of https://bnprks.github.io/BPCells/articles/web-only/bitpacking-format.html, version 2.
_KINDS: Final = re.compile(r"(un)?packed-(uint|float|double)-matrix-v([12])")
_VALUES: Final[dict[str, np.dtype[Any]]] = {
    "uint": np.dtype("<u4"),
    "float": np.dtype("<f4"),
    "double": np.dtype("<f8"),
}
_INTEGER: Final[np.dtype[Any]] = np.dtype("<u4")
_LONG: Final[np.dtype[Any]] = np.dtype("<u8")
_HEADERS: Final = {
    _INTEGER: b"UINT32v1",
    _LONG: b"UINT64v1",
    _VALUES["float"]: b"FLOATSv1",
    _VALUES["double"]: b"DOUBLEv1",
}
_HEADER: Final = 8  # bytes
_CHUNK, _WORDS_PER_BIT, _WORD_BITS = 128, 4, 32  # numbers of a chunk; words of a chunk for each bit of its numbers
_EXACT_BITS: Final = 24  # integers up to 2**24 are exact in single precision
_AT_ONCE: Final = 2**20  # numbers or chunks that are checked or copied at once
_DENSE: Final = 2**18  # entries of dense blocks that are compressed at once: 30 bytes each, however few an entry has
_LONGEST_NAME, _NAMES_AT_ONCE = 1000, 2**16  # bytes; names
_LONGEST: Final = 100  # bytes of the files `version` and `storage_order`
_WRITER: Final = "written-by"  # file that marks folders of this module; BPCells ignores it
_PACKED: Final = ("data", "idx", "idx_offsets")


def _file(path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"{path.parent} has no file {path.name!r}, so it is not a matrix of BPCells. Write it again.")
    return path


def damaged(what: object, rule: str) -> ValueError:
    return ValueError(f"{what} is damaged: {rule}. Write it again.")


class FlatArray:
    """Array of numbers in a file of its own, after a header with the type."""

    chunks = None

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self.path, self.dtype = path, dtype
        with _file(path).open("rb") as file:
            header = file.read(_HEADER)
            n_bytes = os.fstat(file.fileno()).st_size - _HEADER
        if header != _HEADERS[dtype]:
            raise damaged(path, f"it must begin with {_HEADERS[dtype].decode()}, got {header!r}")
        if n_bytes % dtype.itemsize:
            raise ValueError(f"{path} is truncated: its last number is incomplete. Write it again.")
        self.shape = (n_bytes // dtype.itemsize,)

    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        count, start = rows.stop - rows.start, _HEADER + rows.start * self.dtype.itemsize
        numbers = np.fromfile(self.path, self.dtype, count, offset=start)
        if len(numbers) != count:
            raise ValueError(f"{self.path} is truncated: it was changed after it was opened. Write it again.")
        return numbers


@dataclass(frozen=True, eq=False)
class PackedArray:
    """Array of integers in chunks, each with the number of bits of its largest integer."""

    name: str
    length: int
    data: io.StoredArray  # words of all chunks
    idx: io.StoredArray  # first word of each chunk, modulo 2**32
    offsets: npt.NDArray[np.int64]  # chunk i has offset o * 2**32 if offsets[o] <= i < offsets[o + 1]
    starts: io.StoredArray | None  # first integers of the chunks of differences; None if counts are packed
    chunks = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.length,)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        bits = self._check()
        if self.starts is not None:
            return np.dtype(np.int32)
        # Products in single precision take half of the time of those in double precision.
        return np.dtype(np.float32 if bits <= _EXACT_BITS else np.uint32)

    def _check(self) -> int:
        # Return the most bits of an integer.
        count, most = -(-self.length // _CHUNK), 0
        lengths = {"idx": (self.idx, count + 1), **({} if self.starts is None else {"starts": (self.starts, count)})}
        for part, (array, wanted) in lengths.items():
            if array.shape != (wanted,):
                got = " x ".join(f"{size:,}" for size in array.shape)
                raise damaged(f"{self.name}_{part}", f"it must have the length {wanted:,}, got {got}")
        for lo in range(0, count, _AT_ONCE):
            edges = self._edges(lo, min(lo + _AT_ONCE, count))
            steps = np.diff(edges)
            inside = edges.min() >= 0 and edges.max() <= self.data.shape[0]
            if not inside or steps.min() < 0 or steps.max() > _CHUNK or np.any(steps % _WORDS_PER_BIT):
                rule = f"it must cut the {self.data.shape[0]:,} words into chunks of at most {_CHUNK}"
                raise damaged(f"{self.name}_idx", f"{rule}, but does not from chunk {lo:,} on")
            most = max(most, int(steps.max()) // _WORDS_PER_BIT)
        return most

    def _edges(self, lo: int, hi: int) -> npt.NDArray[np.int64]:
        above = np.searchsorted(self.offsets, np.arange(lo, hi + 1), "right") - 1
        return np.asarray(self.idx[lo : hi + 1]).astype(np.int64) + (above << _WORD_BITS)

    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        lo, hi = rows.start // _CHUNK, -(-rows.stop // _CHUNK)
        edges = self._edges(lo, max(lo, hi))
        words = self.data[int(edges[0]) : int(edges[-1])].astype(np.uint32, copy=False)
        edges, first, out = edges - edges[0], rows.start - lo * _CHUNK, np.empty(rows.stop - rows.start, self.dtype)
        if self.starts is None:
            kernels.unpack_counts(words, edges, first, out)
        else:
            starts = self.starts[lo : max(lo, hi)].astype(np.uint32, copy=False)
            kernels.unpack_differences(words, edges, starts, first, out.view(np.uint32))
        return out


# --- reading ------------------------------------------------------------------------------------------------------

Array = Callable[[str, np.dtype[Any]], io.StoredArray]  # opens an array of a matrix by its name


def is_bpcells(path: Path) -> bool:
    return (path / "version").is_file() and "-matrix-v" in _text(path / "version")


def read_folder(path: Path, key: str | None, memory_limit: int | str | None) -> io.Opened:
    with io.reading(path):
        io.refuse_key(path, key)
        io.refuse_outside(path)
        version, order = (_text(_file(path / name)) for name in ("version", "storage_order"))

        def array(name: str, dtype: np.dtype[Any]) -> io.StoredArray:
            return FlatArray(path / name, dtype)

        names = partial(_names_of_lines, path, memory_limit=memory_limit)
        opened = _opened(path, "matrix", version, order, array, names, memory_limit)
        return replace(opened, unsaid=None) if _is_ours(path) else opened


def groups(root: Any) -> list[str]:
    """Return the keys of the groups of an HDF5 file that are matrices of BPCells."""
    inside = [] if io.is_array(root) else [f"{name}" for name in root]
    return [key for key in ("/", *inside) if _is_group(root if key == "/" else root.get(key))]


def _is_group(node: Any) -> bool:
    return node is not None and not io.is_array(node) and "-matrix-v" in (io.attribute(node, "version") or "")


def read_group(path: Path, key: str | None, memory_limit: int | str | None) -> io.Opened:
    with io.opened_tree(path, memory_limit) as tree:
        found = groups(tree.root)
        if key is None and len(found) != 1:
            few = f"{path} must have one matrix of BPCells, got {', '.join(found) or 'none'}. To choose one, pass its "
            raise Refused(few, "name as ", Setting("key"), ".")
        key = key or found[0]
        group = tree.root if key == "/" else tree.find(key.strip("/"))
        if not _is_group(group):
            raise ValueError(f"{path} has no matrix of BPCells {key!r}. Its matrices: {', '.join(found) or 'none'}.")

        def array(name: str, dtype: np.dtype[Any]) -> io.StoredArray:
            if name not in group:
                raise damaged(f"{path}:{key}", f"it has no {name!r}")
            node = tree.lazy(group[name])
            if np.dtype(node.dtype).kind != dtype.kind or len(node.shape) != 1:
                raise damaged(f"{path}:{key}/{name}", f"it must be a flat array of {dtype}, got {node.dtype}")
            return node

        def names(name: str, size: int) -> io.Labels | None:
            there = name in group and io.is_array(group[name]) and group[name].shape not in ((0,), None)
            return tree.texts(group[name], size) if there else None

        order = tree.texts(group["storage_order"], 1)[0] if "storage_order" in group else "missing"
        return _opened(path, key, io.attribute(group, "version") or "", str(order), array, names, memory_limit)


def _opened(
    path: Path,
    key: str,
    version: str,
    order: str,
    array: Array,
    names: Callable[[str, int], io.Labels | None],
    memory_limit: int | str | None,
) -> io.Opened:
    kind = _KINDS.fullmatch(version)
    if kind is None:
        raise ValueError(f"{path} has the version {version!r}, which is unknown. Write it as packed-uint-matrix-v2.")
    if order not in ("col", "row"):
        raise damaged(path, f"storage_order must be 'col' or 'row', got {order!r}")
    first = kind[3] == "1"
    sizes = array("shape", _INTEGER)
    if sizes.shape != (2,):
        raise damaged(path, f"shape must have 2 numbers, got {sizes.shape[0]:,}")
    m, n = map(int, sizes[0:2])
    shape = (m, n) if order == "row" else (n, m)
    indptr = array("idxptr", _INTEGER if first else _LONG)
    if indptr.shape != (shape[0] + 1,):
        raise damaged(path, f"idxptr must have {shape[0] + 1:,} numbers, got {indptr.shape[0]:,}")
    length = int(indptr[shape[0] : shape[0] + 1][0])
    packed = partial(_packed, path, length, array, first)
    unpacked = kind[1] is not None
    parts = {
        "data": array("val", _VALUES[kind[2]]) if unpacked or kind[2] != "uint" else packed("val"),
        "indices": array("index", _INTEGER) if unpacked else packed("index"),
        "indptr": indptr,
    }
    source = io.csr_rows(parts, shape, path, key, memory_limit)
    if np.diff(source.indptr).max() > shape[1]:  # few bytes may declare a row that fits in no memory
        raise damaged(path, f"idxptr has more than {shape[1]:,} entries of one line")
    rows, columns = names("row_names", m), names("col_names", n)
    # The package for R stores cells as columns and their names; that for Python stores no names, and any axis.
    which = f"{path}: using the {n:,} columns as samples, as BPCells does. To use the rows, pass "
    unsaid = (which, Setting("orient", "rows"), ".") if order == "row" or columns is None else None
    return io.Opened(source, rows, columns, "columns", transposed=order == "col", unsaid=unsaid)


def _packed(path: Path, length: int, array: Array, first: bool, name: str) -> PackedArray:
    if length > np.iinfo(np.int64).max // _CHUNK:
        raise damaged(path, f"idxptr ends at {length:,}")
    data, idx = (array(f"{name}_{part}", _INTEGER) for part in _PACKED[:2])
    offsets = np.zeros(1, np.int64)
    if not first:
        stored = array(f"{name}_idx_offsets", _LONG)
        if not 1 <= stored.shape[0] <= (data.shape[0] >> _WORD_BITS) + 2:
            raise damaged(path, f"{name}_idx_offsets has {stored.shape[0]:,} numbers")
        offsets = np.asarray(stored[0 : stored.shape[0]]).astype(np.int64)
    starts = array("index_starts", _INTEGER) if name == "index" else None
    return PackedArray(f"{path}: {name}", length, data, idx, offsets, starts)


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_LONGEST).decode("ascii", "replace").strip()


def _names_of_lines(folder: Path, name: str, size: int, memory_limit: int | str | None) -> io.Labels | None:
    path = folder / name
    if not path.is_file() or not path.stat().st_size:
        return None
    # Millions of names as a list of strings would take several times the memory of the array.
    io.bounded(path, path.stat().st_size, memory_limit)
    content = np.fromfile(path, np.uint8)
    ends = np.flatnonzero(content == ord("\n"))
    if content[-1] != ord("\n"):
        ends = np.append(ends, len(content))
    if len(ends) != size:
        raise damaged(folder, f"{name} must have {size:,} lines, got {len(ends):,}")
    longest = int(np.diff(ends, prepend=-1).max()) - 1
    if longest > _LONGEST_NAME:
        raise ValueError(f"{path} has a name of {longest:,} bytes. Shorten it to at most {_LONGEST_NAME:,}.")
    io.bounded(path, 4 * max(longest, 1) * size, memory_limit)
    found, first = np.empty(size, f"U{max(longest, 1)}"), 0
    for lo in range(0, size, _NAMES_AT_ONCE):
        last = ends[lo : lo + _NAMES_AT_ONCE][-1]
        found[lo : lo + _NAMES_AT_ONCE] = content[first:last].tobytes().decode("utf-8").split("\n")
        first = last + 1
    return found


# --- writing ------------------------------------------------------------------------------------------------------


class FlatWriter:
    """File of numbers that is written in one pass."""

    def __init__(self, files: ExitStack, path: Path, dtype: np.dtype[Any]) -> None:
        self.dtype, self.file = dtype, files.enter_context(path.open("wb"))
        self.file.write(_HEADERS[dtype])

    def write(self, numbers: npt.ArrayLike) -> None:
        self.file.write(np.ascontiguousarray(numbers, self.dtype).data)


class PackedWriter:
    """Files of packed integers that are written in one pass."""

    def __init__(self, files: ExitStack, folder: Path, name: str, differences: bool) -> None:
        self.data, self.idx = (FlatWriter(files, folder / f"{name}_{part}", _INTEGER) for part in _PACKED[:2])
        self.offsets = FlatWriter(files, folder / f"{name}_idx_offsets", _LONG)
        self.starts = FlatWriter(files, folder / f"{name}_starts", _INTEGER) if differences else None
        self.left, self.words, self.edges = np.empty(0, np.uint32), 0, 1
        self.idx.write([0])
        self.offsets.write([0])

    def write(self, numbers: npt.NDArray[np.uint32]) -> None:
        numbers = np.concatenate([self.left, numbers])
        whole = len(numbers) - len(numbers) % _CHUNK
        self._pack(numbers[:whole])
        self.left = numbers[whole:].copy()

    def finish(self) -> None:
        self._pack(self.left)
        self.offsets.write([self.edges])

    def _pack(self, numbers: npt.NDArray[np.uint32]) -> None:
        if not len(numbers):
            return
        packed = kernels.pack(numbers, self.starts is not None)
        edges = self.words + packed.edges
        self.data.write(packed.words)
        self.idx.write(edges[1:] & np.int64(2**_WORD_BITS - 1))
        self.offsets.write(np.flatnonzero(np.diff(edges >> _WORD_BITS)) + self.edges)
        if self.starts is not None:
            self.starts.write(packed.starts)
        self.words, self.edges = int(edges[-1]), self.edges + len(edges) - 1


class ValueWriter:
    """Values of a matrix: packed while they are counts, and floats from the first other value on."""

    def __init__(self, files: ExitStack, folder: Path) -> None:
        self.files, self.folder, self.kind, self.length = files, folder, "uint", 0
        self.counts = PackedWriter(files, folder, "val", differences=False)
        self.floats: FlatWriter | None = None

    def write(self, values: npt.NDArray[Any]) -> None:
        counts = _as_counts(values) if self.floats is None else None
        if counts is not None:
            self.counts.write(counts)
        else:
            (self.floats or self._begin_floats(values.dtype)).write(values)
        self.length += len(values)

    def finish(self) -> None:
        if self.floats is None:
            self.counts.finish()

    def _begin_floats(self, dtype: np.dtype[Any]) -> FlatWriter:
        self.kind = "float" if dtype.kind == "f" and dtype.itemsize <= 4 else "double"
        self.floats = FlatWriter(self.files, self.folder / "val", _VALUES[self.kind])
        self.counts.finish()
        for part in (self.counts.data, self.counts.idx, self.counts.offsets):
            part.file.close()
        packed = _packed(self.folder, self.length, lambda name, kind: FlatArray(self.folder / name, kind), False, "val")
        for lo in range(0, self.length, _AT_ONCE):
            self.floats.write(packed[lo : min(lo + _AT_ONCE, self.length)])
        for name in _PACKED:
            (self.folder / f"val_{name}").unlink()
        return self.floats


def _as_counts(values: npt.NDArray[Any]) -> npt.NDArray[np.uint32] | None:
    if len(values) and not (values.min() >= 0 and values.max() < 2**_WORD_BITS):
        return None
    counts = values.astype(np.uint32)
    return counts if np.array_equal(counts, values) else None


def write(path: Path, blocks: Iterable[io.Block], shape: tuple[int, int], names: io.Names) -> None:
    """Write blocks of samples in the layout of BPCells: the samples are the columns, which are stored one by one."""
    if max(shape) >= 2**_WORD_BITS:
        raise ValueError(f"BPCells cannot store more than 2**32 - 1 rows or columns, got the shape {shape}.")
    path.mkdir()
    for name, given in zip(("col_names", "row_names"), names, strict=True):
        with (path / name).open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(_lines([] if given is None else given))
    with ExitStack() as files:
        index, values = PackedWriter(files, path, "index", differences=True), ValueWriter(files, path)
        idxptr, written = FlatWriter(files, path / "idxptr", _LONG), 0
        idxptr.write([0])
        for block in map(_entries, _parts(blocks)):
            idxptr.write(values.length + block.indptr[1:].astype(np.int64))
            index.write(block.indices.astype(np.uint32))
            values.write(block.data)
            written += block.shape[0]
        index.finish()
        values.finish()
        FlatWriter(files, path / "shape", _INTEGER).write(shape[::-1])
    if written != shape[0]:
        raise ValueError(
            f"the input ended after {written:,} of {shape[0]:,} rows. It was changed during the conversion, or is "
            "truncated. Convert it again."
        )
    texts = {"version": f"packed-{values.kind}-matrix-v2", "storage_order": "col", _WRITER: "shiftsvd"}
    for name, text in texts.items():
        (path / name).write_text(f"{text}\n")


def _parts(blocks: Iterable[io.Block]) -> Iterator[io.Block]:
    for block in blocks:
        rows = max(1, _DENSE // block.shape[1]) if isinstance(block, np.ndarray) else block.shape[0]
        for lo in range(0, block.shape[0], rows):
            yield block[lo : lo + rows] if rows < block.shape[0] else block


def _entries(block: io.Block) -> Any:
    if block.dtype.kind == "c":
        raise ValueError("BPCells stores real numbers, got complex ones. Write .h5ad instead.")
    X = csr_array(block.astype(np.float32) if block.dtype == np.float16 else block)
    io.sound_structure(X)
    X.sum_duplicates()
    X.eliminate_zeros()
    return X


def _lines(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        if "\n" in name:
            raise ValueError(f"BPCells cannot store the name {str(name)!r}, which has a line break. Rename it.")
        yield f"{name}\n"


def is_written(folder: Path) -> bool:
    """Return True if the folder has only files that `write` wrote."""
    arrays = {"val", *(f"{name}_{part}" for name in ("index", "val") for part in (*_PACKED, "starts"))}
    known = arrays | {"version", "storage_order", "shape", "row_names", "col_names", "idxptr", _WRITER}
    files = list(folder.iterdir()) if folder.is_dir() else []
    ours = all(file.name in known and file.is_file() and not file.is_symlink() for file in files)
    return ours and _is_ours(folder)


def _is_ours(folder: Path) -> bool:
    return (folder / _WRITER).is_file() and _text(folder / _WRITER) == "shiftsvd"
