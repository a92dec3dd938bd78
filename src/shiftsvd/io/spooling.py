"""Copy standard input and named pipes, which can be read only once, to temporary files that can be read again."""

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Final, cast

from shiftsvd.backends.validation import NotFinite
from shiftsvd.errors import Refused, Setting, Worded
from shiftsvd.io.base import PIPED, raisable, reading
from shiftsvd.io.location import Location
from shiftsvd.io.sniff import decoder_of, format_of, formats, opening_address, split_element
from shiftsvd.runs.memory import temporary_folder
from shiftsvd.runs.outputs import FULL

_PATIENCE: Final = 10.0  # seconds to wait for a process that writes to a pipe
_PAUSE: Final = 0.02  # seconds between two attempts
_PIECE: Final = 1 << 20  # bytes that are copied at once


@contextmanager
def rereadable(paths: Sequence[Path], format: str | None) -> Iterator[list[Path]]:  # noqa: A002
    with ExitStack() as stack:
        yield [stack.enter_context(_rereadable(path, format)) for path in paths]


def _rereadable(path: Path, format: str | None) -> AbstractContextManager[Path]:  # noqa: A002
    if isinstance(path, Location):
        return spooled_download(path, format)
    if str(path) != "-":
        return spooled_pipe(path) if path.is_fifo() else nullcontext(path)
    if format is None or format not in formats():
        one_of = f". Use one of {', '.join(formats())}."
        raise Refused("standard input needs a ", Setting("format"), f", got {format!r}", one_of)
    if "folder" in formats()[format].contents:
        raise ValueError(f"standard input cannot be {format}, which is a folder. Pass the path of the folder.")
    return _copied(iter(lambda: sys.stdin.buffer.read(_PIECE), b""), PIPED, PIPED)


def spooled_pipe(pipe: Path) -> AbstractContextManager[Path]:
    return _copied(_pieces_of_pipe(pipe), pipe.name, str(pipe))


@contextmanager
def spooled_download(location: Location, format: str | None) -> Iterator[Path]:  # noqa: A002
    """Copy an object of a server to a temporary file, unless readers of its format read ranges of it."""
    file, element = split_element(location)
    if opening_address(location, format):
        yield location
        return
    with reading(location):
        if not file.exists():
            hint = ", or is a folder that is not Zarr. Download other folders." if file.suffix != ".zarr" else ""
            raise FileNotFoundError(f"{file} does not exist{hint}")
        refuse_decoded(file)
        kind = format_of(location, format)
        how = formats()[kind].remote
        if how == "refused" or (how == "copied" and file.is_dir()):
            raise ValueError(f"{file} is one of several files of the format {kind!r}. Download all of them.")
    if how == "read":
        yield location
        return
    with _copied(cast("Location", file).pieces(), file.name or "data", str(file)) as path:
        yield path if element is None else Path(f"{path}::{element}")


def refuse_decoded(path: Path) -> None:
    if isinstance(path, Location) and decoder_of(path) is not None:
        raise ValueError(f"{path} can only be converted, which decodes a local file. Download it first.")


def refuse_device(path: Path) -> None:
    if path.is_socket() or path.is_char_device() or path.is_block_device():
        kind = "a socket" if path.is_socket() else "a device"
        raise ValueError(f"{path} is {kind}, not a file, a folder or a pipe.")


@contextmanager
def _copied(pieces: Iterable[bytes], name: str, shown: str) -> Iterator[Path]:
    with temporary_folder("shiftsvd-") as folder:
        path = folder / name
        try:
            with path.open("wb") as file:
                file.writelines(pieces)
        except OSError as error:
            if error.errno not in FULL:
                raise
            full = f"{shown} cannot be copied to {folder.parent}: {error.strerror}"
            raise OSError(f"{full}. Free disk space, or set TMPDIR to a folder on another disk.") from None
        try:
            yield path
        except NotFinite as error:
            raise error.but(where=error.found.where.replace(str(path), shown)) from error
        except Worded as error:
            parts = (part.replace(str(path), shown) if isinstance(part, str) else part for part in error.args)
            raise type(error)(*parts) from error
        except (ValueError, OSError) as error:
            raise raisable(error)(str(error).replace(str(path), shown)) from error


def _pieces_of_pipe(pipe: Path) -> Iterator[bytes]:
    handle = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    until = time.monotonic() + _PATIENCE
    with open(handle, "rb", buffering=0) as file:
        # A read that does not wait returns None if a process has opened the pipe for writing, else b"".
        while (first := file.read(_PIECE)) == b"":
            if time.monotonic() > until:
                raise ValueError(f"{pipe} is a pipe, and no process has written to it for {_PATIENCE:g} s. Start one.")
            time.sleep(_PAUSE)
        os.set_blocking(handle, True)
        yield first or b""
        yield from iter(lambda: file.read(_PIECE) or b"", b"")
