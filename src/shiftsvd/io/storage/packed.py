"""Packed chunks of Zarr that would not fit once they are unpacked: the codecs take the memory for all that comes."""

import zlib
from pathlib import Path
from typing import Final

from shiftsvd.io.limits import bounded

_GZIP, _ZSTD = 1032, 33_000  # times that they can shrink, at most
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_PIECE: Final = 1 << 20
_LIKE_GZIP: Final = 32 + zlib.MAX_WBITS  # gzip or zlib, whatever the head says


def refuse_bomb(file: Path, size: int, limit: int | None) -> None:
    """Refuse a chunk that unpacks to more than the limit; only where it can at all, since gzip has to be unpacked."""
    if limit is None or size * _ZSTD <= limit:
        return
    with file.open("rb") as stream:
        head = stream.read(18)
        if head.startswith(_ZSTD_MAGIC):
            bounded(f"{file}, unpacked,", _claimed(head), limit)
        elif size * _GZIP > limit and (head[:2] == b"\x1f\x8b" or _is_zlib(head)):
            stream.seek(0)
            unpacker, total, rest = zlib.decompressobj(_LIKE_GZIP), 0, b""
            while total <= limit and (data := rest or stream.read(_PIECE)):
                try:
                    total += len(unpacker.decompress(data, _PIECE))
                except zlib.error:
                    return  # no gzip after all, or damaged: its codec will say so
                rest = unpacker.unconsumed_tail
                if unpacker.eof:
                    rest, unpacker = unpacker.unused_data, zlib.decompressobj(_LIKE_GZIP)
            bounded(f"{file}, unpacked,", total, limit)


def _is_zlib(head: bytes) -> bool:
    """Whether bytes are the head of a zlib stream."""
    return len(head) > 1 and head[0] == 0x78 and int.from_bytes(head[:2]) % 31 == 0


def _claimed(head: bytes) -> int:
    """The bytes that a frame of zstd says it unpacks to; 0 where it says nothing, which its codec refuses."""
    flags = head[4]
    single, width = bool(flags & 0x20), (0, 2, 4, 8)[flags >> 6]
    at = 5 + (0 if single else 1) + (0, 1, 2, 4)[flags & 3]
    size = width or int(single)
    return int.from_bytes(head[at : at + size], "little") + (256 if width == 2 else 0)
