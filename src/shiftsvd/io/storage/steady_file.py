"""A file for HDF5 to write: what goes wrong is kept for us, since the library does not survive it."""

from pathlib import Path
from typing import Self


class SteadyFile:
    """A new binary file whose writes succeed as far as their caller can see.

    HDF5 2.0 crashes the interpreter at its exit if the disk is full when it closes a file (tests/test_io_convert.py).
    Here it can close it; `check` raises what the system said.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b", buffering=0)
        self.error: OSError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def check(self) -> None:
        """Raise the first error there was."""
        if self.error is not None:
            raise self.error

    def seek(self, offset: int, whence: int = 0) -> int:
        """As of any file."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """As of any file."""
        return self._file.tell()

    def read(self, size: int) -> bytes:
        """As many bytes as asked for, zeros where none could be written."""
        return (self._file.read(size) or b"").ljust(size, b"\0")

    def readinto(self, buffer: memoryview) -> int:
        """As `read`."""
        buffer[:] = self.read(len(buffer))
        return len(buffer)

    def write(self, data: bytes | memoryview) -> int:
        """All of the data, or none once something went wrong."""
        rest = memoryview(data)
        try:
            while self.error is None and len(rest):
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self.error = error
        return len(data)

    def truncate(self, size: int) -> int:
        """The length that HDF5 has in mind."""
        try:
            if self.error is None:
                self._file.truncate(size)
        except OSError as error:
            self.error = error
        return size

    def flush(self) -> None:
        """Nothing waits."""
