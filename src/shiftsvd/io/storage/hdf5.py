"""HDF5 files: opened safely, row ranges read outside h5py's lock, writes that survive errors."""

import math
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib import import_module
from io import SEEK_END, FileIO, RawIOBase
from pathlib import Path
from typing import Any, ClassVar, Final
from weakref import ref

import numpy as np
import numpy.typing as npt

from shiftsvd.errors import Refused, Setting, damaged
from shiftsvd.io.base import optional
from shiftsvd.io.location import Location, RangedFile
from shiftsvd.runs.messages import external_allowed

_MOST: Final = 100_000  # maximum number of links: about 12 s
_MOST_GROWN, _SLACK = 2, 2**16  # largest size of a compressed chunk, relative to its numbers, and further bytes
_DEFLATE, _SHUFFLE, _SEQUENCE = 1, 2, 9  # numbers of filters, and of a class of types, fixed by the HDF5 library


@contextmanager
def open_hdf5(path: Path) -> Iterator[Any]:
    # `H5Array` reads the numbers. A file that may refer to others is opened by name: with a `GuardedFile`, HDF5 would
    # read the same file in place of the others.
    h5py = _h5py()
    if external_allowed() and not isinstance(path, Location):
        with h5py.File(path, "r") as root:
            yield root
        return
    guarded = GuardedRanges(path) if isinstance(path, Location) else GuardedFile(path)
    with guarded as file, h5py.File(file, "r") as root:
        file.width = root.id.get_create_plist().get_sizes()[1]
        _check_objects(path, root)
        yield root


def _h5py() -> Any:
    h5py = optional("h5py", "hdf5")
    with suppress(ImportError):
        import_module("hdf5plugin")
    return h5py


def _check_objects(path: Path, root: Any) -> None:
    # Check every link, dataset and attribute before any is read. Refuse links and datasets that lead to other files: a
    # virtual dataset may even name itself, on which HDF5 2.0 crashes. Refuse types that do not exist: it crashes, too.
    h5d, h5l, h5o = (import_module(f"h5py.{part}") for part in ("h5d", "h5l", "h5o"))
    links: list[tuple[bytes, int]] = []

    def note(name: bytes, link: Any) -> bool | None:  # h5py loses exceptions of this function; True ends the visit
        links.append((name, link.type))
        return len(links) > _MOST or None

    root.id.links.visit(note, info=True)
    _check_attributes(path, b"", root.id)
    for name, kind in links:
        if kind not in (h5l.TYPE_HARD, h5l.TYPE_SOFT):
            raise _outside(path, name, "a link into another file")
        if kind == h5l.TYPE_HARD:  # soft links are paths within the file, whose links are all checked
            node = h5o.open(root.id, name)
            _check_attributes(path, name, node)
            if isinstance(node, h5d.DatasetID):
                _check_dataset(path, name, node)
    if len(links) > _MOST:
        many = f"{path} has more than {_MOST:,} links, too many to check for links into other files. Use "
        raise Refused(many, Setting("allow_external", True), " to skip this check for a trusted file.")


def _check_dataset(path: Path, key: bytes, dataset: Any) -> None:
    settings = dataset.get_create_plist()
    if settings.get_layout() == import_module("h5py.h5d").VIRTUAL:
        raise _outside(path, key, "a virtual dataset, made of parts of other files")
    if settings.get_external_count():
        raise _outside(path, key, "a dataset stored in another file")
    _check_type(path, key, dataset)


def _check_attributes(path: Path, key: bytes, node: Any) -> None:
    h5a = import_module("h5py.h5a")
    for i in range(h5a.get_num_attrs(node)):
        _check_type(path, key, h5a.open(node, index=i))


def _check_type(path: Path, key: bytes, described: Any) -> None:
    kind = described.get_type()
    if kind.get_class() == _SEQUENCE and kind.encode()[3] & 15:
        raise damaged(f"{path}:{_shown(key)}", "it has an invalid type")


def _shown(key: bytes) -> str:
    return "/" + key.decode("utf-8", "replace")


def _outside(path: Path, key: bytes, what: str) -> Refused:
    is_outside = f"{path}:{_shown(key)} is {what}, which is not read for safety. Use "
    return Refused(is_outside, Setting("allow_external", True), " to read it from a trusted file.")


def check_texts(path: Path) -> None:
    # Validate a file for a package that opens it itself: read every text once through the `GuardedFile`.
    h5py = _h5py()

    def visit(_: str, node: Any) -> None:
        dict(node.attrs)
        if isinstance(node, h5py.Dataset) and h5py.check_string_dtype(node.dtype) is not None and node.ndim < 2:
            node[()]

    with open_hdf5(path) as root:
        visit("", root)
        root.visititems(visit)


_COLLECTION = b"GCOL\x01\0\0\0"  # begins a collection of texts of variable length: signature, version, reserved
_HEADER = 16  # bytes before the first text of a collection, and before each text


class _Guard(RawIOBase):
    """A file that validates each collection of texts when HDF5 reads it: HDF5 2.0 loops forever on invalid lengths.

    HDF5 reads each of its metadata blocks at once, so a read that begins with the signature starts a collection.
    """

    name: Any
    width = 8  # bytes of a length

    def readinto(self, buffer: Any) -> int:
        at, n_bytes = self.tell(), super().readinto(buffer) or 0
        data = bytes(buffer[:n_bytes])
        if data.startswith(_COLLECTION):
            self._check_collection(at, data)
        return n_bytes

    def _check_collection(self, start: int, data: bytes) -> None:
        size, at, width = int.from_bytes(data[8 : 8 + self.width], "little"), _HEADER, self.width
        if len(data) < size <= self.seek(0, SEEK_END):
            self.seek(start)
            data = self.read(size) or b""
        while at + _HEADER <= size:
            length, free = int.from_bytes(data[at + 8 : at + 8 + width], "little"), data[at : at + 2] == b"\0\0"
            if at + _HEADER > len(data) or (free and length < _HEADER):
                break
            at += length if free else _HEADER + length + -length % 8
        if not size - _HEADER < at <= size:
            raise OSError(
                f"{self.name} cannot be read: its strings at byte {start:,} (global heap) are damaged. Write the file "
                "again."
            )


class GuardedFile(_Guard, FileIO):
    """A local file that is validated as HDF5 reads it."""


class GuardedRanges(_Guard, RangedFile):
    """A file of a server that is validated as HDF5 reads it."""


class ErrorKeepingFile(FileIO):
    """A new binary file that reports success to HDF5 and keeps errors of the system until `check` raises them.

    HDF5 2.0 crashes the interpreter at exit if the disk is full when it closes a file (tests/io/test_convert.py).
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+b")
        self.error: OSError | None = None

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def readinto(self, buffer: Any) -> int:
        buffer[:] = (super().read(len(buffer)) or b"").ljust(len(buffer), b"\0")
        return len(buffer)

    def write(self, data: Any) -> int:
        rest = memoryview(data)
        try:
            while self.error is None and len(rest):
                rest = rest[super().write(rest) :]
        except OSError as error:
            self.error = error
        return len(data)

    def truncate(self, size: Any = None) -> int:
        try:
            if self.error is None:
                super().truncate(size)
        except OSError as error:
            self.error = error
        return int(size)


# Maximum number of open datasets, up to three for each file: many systems limit open files to 256 or 1024.
MOST_OPEN = 96


class H5Array:
    """A dataset by its path: it opens the file when read, again in another process, and after many others have been."""

    _opened: ClassVar[deque[Any]] = deque()  # weak references to open arrays, oldest first

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key

    def __reduce__(self) -> Any:
        return type(self), (self.path, self.key)

    @cached_property
    def dataset(self) -> Any:
        self._opened.append(ref(self))
        while len(self._opened) > MOST_OPEN:
            with suppress(IndexError, TypeError):  # another thread emptied the queue; the array was deleted
                vars(self._opened.popleft()()).pop("dataset", None)
        # By name, HDF5 reads without Python's lock.
        file = RangedFile(self.path) if isinstance(self.path, Location) else self.path
        return _h5py().File(file, "r")[self.key]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.dataset.shape)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.dataset.dtype
        return dtype

    @cached_property
    def chunks(self) -> tuple[int, ...] | None:
        return self.dataset.chunks and tuple(self.dataset.chunks)

    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        lo, hi = rows.start, rows.stop
        return self._unpacked(lo, hi) if self.filters else np.asarray(self.dataset[lo:hi])

    @cached_property
    def filters(self) -> tuple[int, ...]:
        plist = self.dataset.id.get_create_plist()
        filters = tuple(plist.get_filter(i)[0] for i in range(plist.get_nfilters()))
        plain = import_module("h5py").h5t.py_create(self.dtype) == self.dataset.id.get_type()
        return filters if plain and filters in ((_DEFLATE,), (_SHUFFLE, _DEFLATE)) else ()

    def _unpacked(self, lo: int, hi: int) -> npt.NDArray[Any]:
        out = np.empty((hi - lo, *self.shape[1:]), self.dtype)
        everything = (slice(lo, hi), *(slice(0, size) for size in self.shape[1:]))
        chunks = self.dataset.chunks
        for region in self.dataset.iter_chunks(everything) if lo < hi else ():
            corner = tuple(part.start - part.start % step for part, step in zip(region, chunks, strict=True))
            within = tuple(slice(part.start - at, part.stop - at) for part, at in zip(region, corner, strict=True))
            rows, *across = region
            out[slice(rows.start - lo, rows.stop - lo), *across] = self._chunk(corner)[within]
        return out

    def _chunk(self, corner: tuple[int, ...]) -> npt.NDArray[Any]:
        assert self.chunks is not None
        n_bytes = math.prod(self.chunks) * self.dtype.itemsize
        stored = self._stored_chunk(corner, n_bytes)
        if stored is None:
            return np.full(self.chunks, self.dataset.fillvalue, self.dtype)  # never written
        skipped, raw = stored
        for i, code in reversed(list(enumerate(self.filters))):
            if not skipped >> i & 1:
                raw = (
                    zlib.decompressobj().decompress(raw, n_bytes + 1)
                    if code == _DEFLATE
                    else _unshuffled(raw, self.dtype.itemsize)
                )
        if len(raw) != n_bytes:
            raise damaged(f"{self.path}:{self.key}", f"a chunk has {len(raw):,} bytes, not {n_bytes:,}")
        return np.frombuffer(raw, self.dtype).reshape(self.chunks)

    def _stored_chunk(self, corner: tuple[int, ...], n_bytes: int) -> tuple[int, Any] | None:
        # The mask of the skipped filters, and the bytes in the file.
        dataset = self.dataset
        if not isinstance(self.path, Location):
            try:
                return dataset.id.read_direct_chunk(corner)  # type: ignore[no-any-return]
            except (RuntimeError, MemoryError):  # h5py allocates an undefined size for a chunk that was never written
                if dataset.id.get_chunk_info_by_coord(corner).byte_offset is not None:
                    raise
                return None
        found = dataset.id.get_chunk_info_by_coord(corner)
        if found.byte_offset is None:
            return None
        if found.size > _MOST_GROWN * n_bytes + _SLACK:
            has = f"a chunk of {n_bytes:,} bytes has {found.size:,} bytes compressed"
            raise damaged(f"{self.path}:{self.key}", has)
        # HDF5 would hold its lock, which all threads share, while the server answers.
        first = found.byte_offset + dataset.file.userblock_size
        return found.filter_mask, self.path.read_range(first, first + found.size)


def _unshuffled(raw: bytes, itemsize: int) -> npt.NDArray[np.uint8]:
    planes = np.frombuffer(raw, np.uint8).reshape(itemsize, -1)
    out = np.empty(planes.shape[::-1], np.uint8)
    for j, plane in enumerate(planes):  # three times faster than a copy of the transpose
        out[:, j] = plane
    return out.reshape(-1)
