"""A file for HDF5 to write: what goes wrong is kept for us, since the library does not survive it."""

from io import FileIO
from pathlib import Path
from typing import Any


class SteadyFile(FileIO):
    """A new binary file whose writes succeed as far as their caller can see.

    HDF5 2.0 crashes the interpreter at its exit if the disk is full when it closes a file (tests/io/test_convert.py).
    Here it can close it; `check` raises what the system said.
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
