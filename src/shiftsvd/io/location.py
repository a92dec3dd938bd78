"""Addresses of data on servers as paths: located turns what users pass into a path that readers open."""

import io
import os
import stat
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from shiftsvd.errors import is_address, public_address
from shiftsvd.io.servers import METADATA, Http, Stat, Store, failed, joined, timeout
from shiftsvd.numerics.digests import told

_BLOCK: Final = 2**18  # bytes that are read at once where fewer are needed
_LONGEST_RUN, _KEPT = 16, 96  # blocks that are read ahead, and blocks in memory
_PIECE: Final = 2**23  # bytes of a part of a file that is copied


class Connection:
    """Reads of objects below one address; an object that changes between two reads is an error."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._lock = Lock()
        self._seen: dict[str, Stat | None] = {}
        self._folders: dict[str, bool] = {}
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._runs: dict[tuple[str, int], int] = {}  # number of blocks to read at once, by the first one

    @cached_property
    def server(self) -> Http | Store:
        is_http = self.address.lower().startswith(("http://", "https://"))
        return Http(timeout()) if is_http else Store(self.address, timeout())

    def stat(self, address: str) -> Stat:
        if (known := self._seen.get(address)) is not None:
            return known
        return self._checked(address, lambda: (b"", self.server.stat(address)))[1]

    def is_folder(self, address: str) -> bool:
        if address not in self._folders:
            self._folders[address] = self.server.is_folder(address)
        return self._folders[address]

    @cached_property
    def listing(self) -> dict[str, Stat] | None:
        return self.server.listing(self.address)

    def read(self, address: str, lo: int = 0, hi: int | None = None) -> bytes:
        data, found = self._checked(address, lambda: self.server.fetch(address, lo, hi))
        expected = max(0, (found.size if hi is None else min(hi, found.size)) - lo)
        if len(data) != expected:
            raise failed(address, f"cannot be read: the server sent {len(data):,} of {expected:,} bytes.")
        return data

    def _checked(self, address: str, ask: Callable[[], tuple[bytes, Stat]]) -> tuple[bytes, Stat]:
        try:
            answer = ask()
        except FileNotFoundError:
            self._check_same(address, None)
            raise
        self._check_same(address, answer[1])
        return answer

    def _check_same(self, address: str, found: Stat | None) -> None:
        if (known := self._seen.setdefault(address, found)) != found:
            size = f"{known.size:,} bytes" if known else "absent"
            now = f"{found.size:,} bytes" if found else "absent"
            was = f" ({size}, now {now})" if size != now else ""
            raise failed(address, f"was changed on the server while it was read{was}. Start again.")

    def through_blocks(self, address: str, lo: int, hi: int) -> bytes:
        hi = min(hi, self.stat(address).size)
        if hi - lo >= _BLOCK:
            return self.read(address, lo, hi)
        blocks = range(lo // _BLOCK, -(-hi // _BLOCK)) if lo < hi else range(0)
        data = b"".join(self._block(address, each) for each in blocks)
        return data[lo % _BLOCK : lo % _BLOCK + max(0, hi - lo)]

    def _block(self, address: str, i: int) -> bytes:
        with self._lock:
            if (known := self._blocks.get((address, i))) is not None:
                self._blocks.move_to_end((address, i))
                return known
            run = self._runs.pop((address, i), 1)
        data = self.read(address, i * _BLOCK, (i + run) * _BLOCK)
        parts = {(address, i + j): data[j * _BLOCK : (j + 1) * _BLOCK] for j in range(run)}
        with self._lock:
            self._runs[address, i + run] = min(2 * run, _LONGEST_RUN)
            self._blocks |= parts
            while len(self._blocks) > _KEPT:
                self._blocks.popitem(last=False)
            while len(self._runs) > _KEPT:
                self._runs.pop(next(iter(self._runs)))
        return parts[address, i]


if TYPE_CHECKING:
    _Base = Path
else:
    _Base = type(Path())  # subclasses of Path itself have no flavour before Python 3.12


class Location(_Base):
    """An address such as s3://bucket/x.zarr as a path; its text has no credentials."""

    address: str
    connection: Connection

    def __new__(cls, address: str, connection: Connection | None = None) -> "Location":
        return super().__new__(cls, public_address(address))

    def __init__(self, address: str, connection: Connection | None = None) -> None:
        if sys.version_info >= (3, 12):
            super().__init__(public_address(address))
        self.address = address
        self.connection = Connection(address) if connection is None else connection

    def __reduce__(self) -> Any:
        return Location, (self.address,)

    def __str__(self) -> str:
        return public_address(self.address)

    def __repr__(self) -> str:
        return f"Location({str(self)!r})"

    def __fspath__(self) -> str:
        raise OSError(f"{self} cannot be read from a server. Download the file, and pass its path.")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Location) and self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)

    def __truediv__(self, name: Any) -> "Location":
        return Location(joined(self.address, str(name)), self.connection)

    @property
    def parent(self) -> "Location":
        path, mark, query = self.address.partition("?")
        return Location(f"{path.rstrip('/').rpartition('/')[0]}{mark}{query}", self.connection)

    def absolute(self) -> "Location":
        return self

    def resolve(self, strict: bool = False) -> "Location":
        return self

    def exists(self, **_: Any) -> bool:
        try:
            return self.is_dir() or self.connection.stat(self.address) is not None
        except FileNotFoundError:
            return False

    def is_dir(self, **_: Any) -> bool:
        return self.connection.is_folder(self.address)

    def is_file(self, **_: Any) -> bool:
        return self.exists() and not self.is_dir()

    def stat(self, **_: Any) -> os.stat_result:
        kind = stat.S_IFDIR if self.is_dir() else stat.S_IFREG
        size = 0 if kind == stat.S_IFDIR else self.connection.stat(self.address).size
        return os.stat_result((kind, 0, 0, 0, 0, 0, size, 0, 0, 0))

    def open(self, mode: str = "r", *_: Any, **__: Any) -> Any:
        if mode != "rb":
            raise OSError(f"{self} cannot be written: results are written to local folders only.")
        return RangedFile(self)

    def read_bytes(self) -> bytes:
        return self.connection.read(self.address)

    def read_range(self, lo: int, hi: int) -> bytes:
        return self.connection.through_blocks(self.address, lo, hi)

    def pieces(self) -> Iterator[bytes]:
        size = self.connection.stat(self.address).size
        return (self.connection.read(self.address, lo, min(lo + _PIECE, size)) for lo in range(0, size, _PIECE))

    @property
    def n_bytes(self) -> int | None:
        """Size of a file, or of all files of a folder; None if the server does not list the folder."""
        if not self.is_dir():
            return self.connection.stat(self.address).size
        listing = self.connection.listing
        return None if listing is None else sum(each.size for each in listing.values())

    def fingerprint(self, key: str) -> str:
        return f"{self}:{key}:{told(tuple(self._stats(key)))}"

    def _stats(self, key: str) -> Iterator[str]:
        if not self.is_dir():
            yield repr(tuple(self.connection.stat(self.address)))
        elif (listing := self.connection.listing) is not None:
            yield from (f"{name} {tuple(each)}" for name, each in listing.items())
        else:  # a server without lists: the metadata of the folder and of the matrix
            for folder in (self, self / key) if key else (self,):
                for name in METADATA:
                    with suppress(FileNotFoundError, PermissionError):
                        yield f"{name} {tuple(self.connection.stat((folder / name).address))}"


def located(path: str | Path) -> Path:
    """Return the path of a file, or the `Location` of an address."""
    if not is_address(path):
        return path if isinstance(path, Location) else Path(path)
    text = str(path)
    scheme = text.partition("://")[0].lower()
    if scheme == "file":
        parts = urlsplit(text)
        if parts.netloc.lower() not in ("", "localhost"):
            raise ValueError(f"{text} must be a file of this machine: file:///FOLDER/FILE, with three slashes.")
        return Path(unquote(parts.path))
    return Location(scheme + text[len(scheme) :])


class RangedFile(io.RawIOBase):
    """A file of a server, read by ranges of bytes."""

    def __init__(self, location: Location) -> None:
        self.name, self._location, self._at = str(location), location, 0
        self._size = location.connection.stat(location.address).size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise OSError(f"{self.name} has no byte {start + offset:,}.")
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self._location.read_range(self._at, self._at + len(view))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def readall(self) -> bytes:
        data = self._location.read_range(self._at, self._size)
        self._at += len(data)
        return data
