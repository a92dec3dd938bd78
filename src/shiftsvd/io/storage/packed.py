"""What packed bytes unpack to, found out before their codec does it: codecs take the memory for all that comes."""

import bz2
import lzma
import os
import zlib
from collections.abc import Callable, Mapping
from typing import IO, Any, Final, Protocol

# How many times codecs can shrink bytes, at most; what cannot pass the limit is not looked at.
RATIOS: Final = {
    "zstd": 33_000,
    "blosc": 33_000,
    "gzip": 1_032,
    "zlib": 1_032,
    "bz2": 2_000_000,
    "lzma": 8_000,
    "lz4": 256,
}
_PIECE: Final = 1 << 20
_LIKE_GZIP: Final = 32 + zlib.MAX_WBITS  # gzip or zlib, whatever the head says
_ZSTD_MAGIC, _SKIPPED_MAGIC = 0xFD2FB528, 0x184D2A50
_ZSTD_BLOCK: Final = 1 << 17  # bytes that a block holds at most
_RAW, _REPEATED = 0, 1  # kinds of blocks that say how much they hold


class _Unpacker(Protocol):
    """What the standard library unpacks a stream with, piece by piece."""

    @property
    def eof(self) -> bool:
        """Whether the end of a stream was seen."""

    @property
    def unused_data(self) -> bytes:
        """What follows that end."""

    @property
    def needs_input(self) -> bool:
        """Whether nothing is left to be unpacked."""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """At most so many bytes of what is unpacked."""


def unpacked(codec: str, stream: IO[bytes], size: int, limit: int, settings: Mapping[str, Any]) -> int:
    """How many bytes the next `size` ones of a stream unpack to, or more than the limit; 0 where they are damaged."""
    end = stream.tell() + size
    try:
        if codec == "blosc":
            return int.from_bytes(stream.read(8)[4:], "little")
        if codec == "lz4":
            return int.from_bytes(stream.read(4), "little")
        if codec == "zstd":
            return _frames(stream, end)
        return _counted(_unpackers(codec, limit, settings), stream, size, limit)
    except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
        # No memory for a dictionary is more than the limit; all else is damage, of which the codec will tell.
        return limit + 1 if "Memory usage limit" in str(error) else 0


def _unpackers(codec: str, limit: int, settings: Mapping[str, Any]) -> Callable[[], _Unpacker]:
    """What makes an unpacker for each of several streams that may follow each other."""
    if codec == "bz2":
        return bz2.BZ2Decompressor
    if codec == "lzma":
        form = settings.get("format") or lzma.FORMAT_XZ
        if form == lzma.FORMAT_RAW:
            return lambda: lzma.LZMADecompressor(form, filters=settings.get("filters"))
        return lambda: lzma.LZMADecompressor(form, memlimit=limit)
    return _Inflater


class _Inflater:
    """zlib's unpacker with the manners of the others: it keeps what it has not unpacked yet."""

    def __init__(self) -> None:
        self._inner, self._rest = zlib.decompressobj(_LIKE_GZIP), b""

    @property
    def eof(self) -> bool:
        """Whether the end of a stream was seen."""
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        """What follows that end."""
        return self._inner.unused_data

    @property
    def needs_input(self) -> bool:
        """Whether nothing is left to be unpacked."""
        return not self._rest

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """At most so many bytes of what is unpacked."""
        out = self._inner.decompress(self._rest + data, max_length)
        self._rest = self._inner.unconsumed_tail
        return out


def _counted(make: Callable[[], _Unpacker], stream: IO[bytes], size: int, limit: int) -> int:
    """Bytes that streams after each other unpack to, piece by piece, none of them kept."""
    total, left, unpacker, rest = 0, size, make(), b""
    while total <= limit:
        if unpacker.eof:
            unpacker, rest = make(), unpacker.unused_data
        data = rest
        if not data and unpacker.needs_input:
            data = stream.read(min(_PIECE, left))
            left -= len(data)
            if not data:
                break
        rest = b""
        total += len(unpacker.decompress(data, _PIECE))
    return total


def _frames(stream: IO[bytes], end: int) -> int:
    """Bytes of the frames of zstd up to `end`: what each says, or so many as its blocks can hold."""
    total = 0
    while stream.tell() < end:
        magic = _number(stream, 4)
        if magic & ~0xF == _SKIPPED_MAGIC:
            stream.seek(_number(stream, 4), os.SEEK_CUR)
            continue
        if magic != _ZSTD_MAGIC:
            break
        flags = _number(stream, 1)
        single, width = bool(flags & 0x20), (0, 2, 4, 8)[flags >> 6]
        stream.seek((0 if single else 1) + (0, 1, 2, 4)[flags & 3], os.SEEK_CUR)
        width = width or int(single)
        claimed = _number(stream, width) + (256 if width == 2 else 0)
        held = _blocks(stream, end)
        total += claimed if width else held
        stream.seek(4 if flags & 4 else 0, os.SEEK_CUR)  # a checksum
    return total


def _blocks(stream: IO[bytes], end: int) -> int:
    """Bytes that the blocks of a frame can hold, at most; the stream is behind them afterwards."""
    total, last = 0, False
    while not last and stream.tell() < end:
        head = _number(stream, 3)
        last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
        total += size if kind in (_RAW, _REPEATED) else _ZSTD_BLOCK
        stream.seek(1 if kind == _REPEATED else size, os.SEEK_CUR)
    return total


def _number(stream: IO[bytes], width: int) -> int:
    """The next bytes as a number, the lowest first."""
    data = stream.read(width)
    if len(data) < width:
        raise EOFError("the bytes end within a frame")
    return int.from_bytes(data, "little")
