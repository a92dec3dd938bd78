"""A file for HDF5 to read: what would send the library into an endless loop is refused first."""

from io import SEEK_END, FileIO
from pathlib import Path
from typing import Any

_COLLECTION = b"GCOL\x01\0\0\0"  # where HDF5 keeps texts of any length: signature, version, reserved
_HEADER = 16  # bytes before the first text of a collection, and before each text
_SUPERBLOCK = b"\x89HDF\r\n\x1a\n"


class GuardedFile(FileIO):
    """An open file. HDF5 2.0 never returns from a collection of texts with a length that leads nowhere.

    The library reads each piece of its own bookkeeping in one go, so that a collection is seen at its beginning.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._width = self._length_bytes()

    def readinto(self, buffer: Any) -> int:
        at, n_bytes = self.tell(), super().readinto(buffer) or 0
        data = bytes(buffer[:n_bytes])
        if data.startswith(_COLLECTION):
            self._check_collection(at, data)
        return n_bytes

    def _length_bytes(self) -> int:
        for start in (0, *(2**power for power in range(9, 20))):
            self.seek(start)
            block = self.read(16) or b""
            if block.startswith(_SUPERBLOCK) and len(block) == 16:
                return block[14 if block[8] < 2 else 10]
        raise OSError(f"{self.name} cannot be read: it does not begin like HDF5")

    def _check_collection(self, start: int, data: bytes) -> None:
        size, at = self._number(data, 8), _HEADER
        if len(data) < size <= self.seek(0, SEEK_END):
            self.seek(start)
            data = self.read(size) or b""
        while at + _HEADER <= size:
            length, free = self._number(data, at + 8), data[at : at + 2] == b"\0\0"
            if at + _HEADER > len(data) or (free and length < _HEADER):
                break
            at += length if free else _HEADER + length + -length % 8
        if not size - _HEADER < at <= size:
            raise OSError(f"{self.name} cannot be read: its collection of texts at byte {start} is damaged")

    def _number(self, data: bytes, at: int) -> int:
        return int.from_bytes(data[at : at + self._width], "little")
