"""Ranges of rows of an HDF5 dataset; gzip is undone outside of the lock that h5py holds while it reads."""

import math
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, ClassVar
from weakref import ref

import numpy as np
import numpy.typing as npt

from shiftsvd.io.base import optional
from shiftsvd.io.storage.guarded_file import GuardedFile
from shiftsvd.io.storage.outside import refuse_outside, refuse_storage
from shiftsvd.runs.external import external_allowed

# Datasets that are open at once, up to three of a file: of many files that are stacked, the system opens 256 or 1024.
MOST_OPEN = 96
_DEFLATE, _SHUFFLE, _SEQUENCE = 1, 2, 9  # numbers of filters, and of a class of types, fixed by the HDF5 library


@contextmanager
def open_hdf5(path: Path) -> Iterator[Any]:
    """What a file says of itself; numbers are read by way of `H5Array`.

    A file that may reach others is opened by its name: through `GuardedFile` HDF5 would take it for all of them.
    """
    h5py = _h5py()
    if external_allowed():
        with h5py.File(path, "r") as root:
            yield root
        return
    with GuardedFile(path) as file, h5py.File(file, "r") as root:
        refuse_outside(path, root)
        yield root


def attribute_of(node: Any, name: str) -> Any:
    if hasattr(node.attrs, "get_id"):
        sound_type(node.attrs.get_id(name), f"{node.name}: attribute {name}")
    return node.attrs[name]


def sound_type(described: Any, name: str) -> None:
    type_id = described.get_type()
    if type_id.get_class() == _SEQUENCE and type_id.encode()[3] & 15:
        raise ValueError(f"{name} has a type that does not exist; the file is damaged")


def look_through(path: Path) -> None:
    h5py = _h5py()

    def visit(_: str, node: Any) -> None:
        for name in node.attrs:
            attribute_of(node, name)
        if isinstance(node, h5py.Dataset):
            sound_type(node.id, node.name)
            if h5py.check_string_dtype(node.dtype) is not None and node.ndim < 2:
                node[()]

    with open_hdf5(path) as root:
        visit("", root)
        root.visititems(visit)


def _h5py() -> Any:
    h5py = optional("h5py", "hdf5")
    with suppress(ImportError):
        import_module("hdf5plugin")
    return h5py


class H5Array:
    """A dataset by its path: it opens the file when read, again in another process, and after many others have been."""

    _opened: ClassVar[deque[Any]] = deque()  # weak references to those that are open, the first opened first

    def __init__(self, path: Path, key: str, allowed: bool | None = None) -> None:
        self.path, self.key = path, key
        self._allowed = external_allowed() if allowed is None else allowed

    def __reduce__(self) -> Any:
        return type(self), (self.path, self.key, self._allowed)

    @cached_property
    def dataset(self) -> Any:
        self._opened.append(ref(self))
        while len(self._opened) > MOST_OPEN:
            with suppress(IndexError, TypeError):  # another thread was first; the array is gone, and None has no vars
                vars(self._opened.popleft()()).pop("dataset", None)
        dataset = _h5py().File(self.path, "r")[self.key]
        if not self._allowed:
            refuse_storage(self.path, self.key, dataset.id)
        return dataset

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

    @property
    def is_unpacked_here(self) -> bool:
        return bool(self._filters)

    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        lo, hi = rows.start, rows.stop
        return self._unpacked(lo, hi) if self._filters else np.asarray(self.dataset[lo:hi])

    @cached_property
    def _filters(self) -> tuple[int, ...]:
        plist = self.dataset.id.get_create_plist()
        filters = tuple(plist.get_filter(i)[0] for i in range(plist.get_nfilters()))
        plain = import_module("h5py").h5t.py_create(self.dtype) == self.dataset.id.get_type()
        return filters if plain and filters in ((_DEFLATE,), (_SHUFFLE, _DEFLATE)) else ()

    def _unpacked(self, lo: int, hi: int) -> npt.NDArray[Any]:
        out = np.empty((hi - lo, *self.shape[1:]), self.dtype)
        for corner in self._corners(lo, hi):
            chunk = self._chunk(corner)
            first, last = max(lo, corner[0]), min(hi, corner[0] + len(chunk))
            within = (slice(first - corner[0], last - corner[0]), *(slice(None) for _ in corner[1:]))
            target = (slice(first - lo, last - lo), *map(slice, corner[1:], np.add(corner, chunk.shape)[1:].tolist()))
            out[target] = chunk[within]
        return out

    def _corners(self, lo: int, hi: int) -> Iterator[tuple[int, ...]]:
        assert self.chunks is not None
        across = zip(self.shape[1:], self.chunks[1:], strict=True)
        yield from product(
            range(lo - lo % self.chunks[0], hi, self.chunks[0]), *(range(0, size, step) for size, step in across)
        )

    def _chunk(self, corner: tuple[int, ...]) -> npt.NDArray[Any]:
        assert self.chunks is not None
        kept = tuple(slice(min(c, size - k)) for c, size, k in zip(self.chunks, self.shape, corner, strict=True))
        try:
            skipped, raw = self.dataset.id.read_direct_chunk(corner)
        except (RuntimeError, MemoryError):  # h5py asks for the memory of an unknown size where no chunk was written
            if self.dataset.id.get_chunk_info_by_coord(corner).byte_offset is not None:
                raise
            return np.full(self.chunks, self.dataset.fillvalue, self.dtype)[kept]  # never written
        n_bytes = math.prod(self.chunks) * self.dtype.itemsize
        for i, code in reversed(list(enumerate(self._filters))):
            if not skipped >> i & 1:
                raw = _inflated(raw, n_bytes) if code == _DEFLATE else _unshuffled(raw, self.dtype.itemsize)
        if len(raw) != n_bytes:
            raise ValueError(f"{self.path}:{self.key}: a chunk has {len(raw)} bytes, not {n_bytes}; it is damaged")
        return np.frombuffer(raw, self.dtype).reshape(self.chunks)[kept]


def _inflated(raw: bytes, n_bytes: int) -> bytes:
    return zlib.decompressobj().decompress(raw, n_bytes + 1)


def _unshuffled(raw: bytes, itemsize: int) -> npt.NDArray[np.uint8]:
    planes = np.frombuffer(raw, np.uint8).reshape(itemsize, -1)
    out = np.empty(planes.shape[::-1], np.uint8)
    for j, plane in enumerate(planes):  # three times faster than to copy the transpose
        out[:, j] = plane
    return out.reshape(-1)
