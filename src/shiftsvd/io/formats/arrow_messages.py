"""What the batches of an Arrow file unpack to, by their messages, before pyarrow takes the memory for it.

The layout of messages is that of Arrow's columnar format, and of FlatBuffers, in which their heads are written: each
packed buffer begins with the number of its bytes once it is unpacked.
"""

import os
import struct
from collections.abc import Callable, Iterator
from typing import IO, Final, NamedTuple

from shiftsvd.io.base import optional

Part = Callable[[int, int], bytes]  # so many bytes of a body, from a place on
Message = tuple[bytes, Part]  # the head of a message, and its body
_NAME: Final = b"ARROW1"  # which a file ends with, too, behind the length of its foot
_CONTINUED: Final = b"\xff\xff\xff\xff"  # what the length of a message follows, but in older files
_LONGEST: Final = 1 << 26  # bytes of a head or a foot
_BLOCKS: Final = (2, 3)  # fields of the foot: where dictionaries and batches are
_BLOCK: Final = "<qixxxxq"  # place, bytes of the head, bytes of the body
_DICTIONARY, _BATCH = 2, 3  # kinds of messages
_HEADER_TYPE, _HEADER = 1, 2  # fields of a message
_DATA: Final = 1  # the batch of a dictionary
_LENGTH, _BUFFERS, _COMPRESSION = 0, 2, 3  # fields of a batch


class Batches(NamedTuple):
    """What the heads of all batches say.

    Attributes
    ----------
    rows, longest : int
        Rows of all batches, and of the longest.
    unpacked : int
        Bytes of the largest packed batch or dictionary, unpacked.
    """

    rows: int
    longest: int
    unpacked: int


def measured(source: IO[bytes], stream: bool) -> Batches:
    """What the heads of the batches of a file or a stream say.

    Raises
    ------
    ValueError
        If a message is damaged.
    """
    try:
        messages = _of_stream(source) if stream else _of_file(source)
        found = [(_rows(head), _unpacked(head, body)) for head, body in messages]
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError(f"a message is damaged: {error}") from error
    rows = [n_rows for n_rows, _ in found]
    return Batches(sum(rows), max(rows, default=0), max((n_bytes for _, n_bytes in found), default=0))


def _of_stream(source: IO[bytes]) -> Iterator[Message]:
    """Heads and bodies of messages, one after another."""
    for message in optional("pyarrow.ipc", "parquet").MessageReader.open_stream(source):
        yield message.metadata.to_pybytes(), _in_memory(memoryview(message.body or b""))


def _of_file(source: IO[bytes]) -> Iterator[Message]:
    """Heads and bodies of the messages that the foot of a file names."""
    source.seek(-len(_NAME) - 4, os.SEEK_END)
    end = source.tell()
    length = _number(source.read(4), 0, 4)
    source.seek(max(0, end - length))
    foot = _head(source, length)
    table = _Table(foot, _number(foot, 0, 4))
    for field in _BLOCKS:
        for at, n_head, n_body in table.structs(field, _BLOCK):
            source.seek(max(at, 0))
            head = _head(source, n_head)
            skipped = 8 if head.startswith(_CONTINUED) else 4
            yield head[skipped:], _on_disk(source, at + n_head, n_body)


def _head(source: IO[bytes], size: int) -> bytes:
    """So many bytes that describe others, unless these are too many for that."""
    if not 0 <= size <= _LONGEST:
        raise IndexError(f"a head of {size} bytes")
    return source.read(size)


def _in_memory(body: memoryview) -> Part:
    """What gives bytes of a body that is held."""
    return lambda at, count: bytes(body[at : at + count])


def _on_disk(source: IO[bytes], begin: int, n_body: int) -> Part:
    """What gives bytes of a body that is read where it is needed."""

    def part(at: int, count: int) -> bytes:
        source.seek(begin + min(at, n_body))
        return source.read(count)

    return part


def _rows(head: bytes) -> int:
    """Rows of a message that is a batch, else 0."""
    message = _Table(head, _number(head, 0, 4))
    batch = message.table(_HEADER) if message.byte(_HEADER_TYPE) == _BATCH else None
    at = batch.place(_LENGTH) if batch is not None else 0
    return max(0, struct.unpack_from("<q", head, at)[0]) if at else 0


def _unpacked(head: bytes, body: Part) -> int:
    """Bytes that the packed buffers of a message say they have; 0 where nothing is packed."""
    message = _Table(head, _number(head, 0, 4))
    kind, batch = message.byte(_HEADER_TYPE), message.table(_HEADER)
    if kind == _DICTIONARY and batch is not None:
        batch = batch.table(_DATA)
    elif kind != _BATCH:
        batch = None
    if batch is None or not batch.place(_COMPRESSION):
        return 0
    buffers = batch.structs(_BUFFERS, "<qq")
    claimed = (int.from_bytes(body(at, 8), "little", signed=True) for at, size in buffers if size and at >= 0)
    return sum(size for size in claimed if size > 0)


class _Table:
    """A table of FlatBuffers: fields by their numbers, those that were never written left out."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at
        self.fields = at - struct.unpack_from("<i", data, at)[0]

    def place(self, field: int) -> int:
        """Where a field is, or 0."""
        at = 4 + 2 * field
        there = at < _number(self.data, self.fields, 2)
        offset = _number(self.data, self.fields + at, 2) if there else 0
        return self.at + offset if offset else 0

    def byte(self, field: int) -> int:
        """A field of one byte."""
        at = self.place(field)
        return self.data[at] if at else 0

    def table(self, field: int) -> "_Table | None":
        """A field that is a table itself."""
        at = self.place(field)
        return _Table(self.data, at + _number(self.data, at, 4)) if at else None

    def structs(self, field: int, form: str) -> Iterator[tuple[int, ...]]:
        """A field that is a vector of structures."""
        at = self.place(field)
        if not at:
            return
        at += _number(self.data, at, 4)
        for j in range(_number(self.data, at, 4)):
            yield struct.unpack_from(form, self.data, at + 4 + struct.calcsize(form) * j)


def _number(data: bytes, at: int, width: int) -> int:
    """Bytes as a number, the lowest first."""
    found: int = struct.unpack_from({2: "<H", 4: "<I"}[width], data, at)[0]
    return found
