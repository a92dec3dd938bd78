"""How the chunks of Zarr arrays are packed, by their metadata, and those that unpack to more than fits, refused."""

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final, NamedTuple

from shiftsvd.io.limits import bounded
from shiftsvd.io.storage.packed import RATIOS, unpacked

METADATA: Final = (".zarray", ".zgroup", ".zattrs", ".zmetadata", "zarr.json")
_SHARD: Final = "sharding_indexed"
_INDEX: Final = ["bytes", "crc32c"]  # how the index of a shard is written unless something else is asked for
_ENTRY, _CHECKSUM, _ABSENT = 16, 4, 2**64 - 1
_CHECKSUMS: Final = ("crc32c",)  # what may lie around packed bytes, behind them
_HIDDEN: Final = "in a way that hides what it unpacks to; write it with one codec, as zstd or blosc"


class Packing(NamedTuple):
    """How bytes are packed: by a codec with its settings, or as so many packed parts with an index."""

    codec: str | None = None
    settings: Mapping[str, Any] = MappingProxyType({})
    parts: int = 0
    index_first: bool = False


class Packings:
    """How the files of one folder are packed, which the metadata of the array around each say."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.of = lru_cache(maxsize=256)(self._of)

    def refuse_bomb(self, file: Path, size: int, limit: int | None) -> None:
        """Refuse a chunk that unpacks to more than the limit, or parts of one that do."""
        packing = self.of(file.parent)
        if limit is None or packing.codec is None or size * RATIOS[packing.codec] <= limit:
            return
        with file.open("rb") as stream:
            for lo, length in _places(stream, size, packing):
                if length * RATIOS[packing.codec] > limit:
                    stream.seek(lo)
                    found = unpacked(packing.codec, stream, length, limit, packing.settings)
                    bounded(f"{file}, unpacked,", found, limit)

    def _of(self, folder: Path) -> Packing:
        """How the array that a folder belongs to is packed."""
        for name in (".zarray", "zarr.json"):
            if (folder / name).is_file():
                told = json.loads((folder / name).read_bytes())
                return _packing(folder, told) if isinstance(told, dict) else Packing()
        return Packing() if folder == self.root or folder == folder.parent else self.of(folder.parent)


def _packing(folder: Path, told: dict[str, Any]) -> Packing:
    """What the metadata of an array say."""
    if "codecs" not in told:  # the second version of the format, or a group
        steps = [*(told.get("filters") or ()), told.get("compressor")]
        return _outermost(folder, [(step["id"], step) for step in steps if isinstance(step, dict) and "id" in step])
    steps = _named(told["codecs"])
    shard = next((settings for name, settings in steps if name == _SHARD), None)
    if shard is None:
        return _outermost(folder, steps)
    packing = _outermost(folder, _named(shard.get("codecs", ())))
    if packing.codec is None:
        return packing
    try:
        whole, each = told["chunk_grid"]["configuration"]["chunk_shape"], shard["chunk_shape"]
        count = math.prod(-(-int(a) // max(int(b), 1)) for a, b in zip(whole, each, strict=True))
        plain = steps[-1][0] == _SHARD and [name for name, _ in _named(shard["index_codecs"])] == _INDEX
    except (KeyError, TypeError, ValueError):
        plain = False
    if not plain:
        raise ValueError(f"{folder} is packed {_HIDDEN}")
    return packing._replace(parts=count, index_first=shard.get("index_location") == "start")


def _named(codecs: Any) -> list[tuple[str, dict[str, Any]]]:
    """Names and settings of the codecs of the third version of the format."""
    told = [step for step in codecs if isinstance(step, dict) and isinstance(step.get("name"), str)]
    return [(step["name"].removeprefix("numcodecs."), step.get("configuration") or {}) for step in told]


def _outermost(folder: Path, steps: list[tuple[str, dict[str, Any]]]) -> Packing:
    """The one codec that packs, behind which nothing but checksums comes."""
    steps = [step for step in steps if step[0] not in _CHECKSUMS]
    packed = [name for name, _ in steps if name in RATIOS or name == _SHARD]
    if not packed:
        return Packing()
    if len(packed) > 1 or steps[-1][0] != packed[0] or packed[0] not in RATIOS:
        raise ValueError(f"{folder} is packed {_HIDDEN}")
    return Packing(*steps[-1])


def _places(stream: IO[bytes], size: int, packing: Packing) -> list[tuple[int, int]]:
    """Where packed bytes lie in a file, and how many: one after another, or where the index of a shard says."""
    if not packing.parts:
        return [(0, size)]
    length = _ENTRY * packing.parts
    if length + _CHECKSUM > size:
        return []  # no index: Zarr says so
    stream.seek(0 if packing.index_first else size - length - _CHECKSUM)
    index = stream.read(length)
    numbers = [int.from_bytes(index[at : at + 8], "little") for at in range(0, length, 8)]
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return [(lo, min(count, size)) for lo, count in pairs if lo != _ABSENT and lo < size]
