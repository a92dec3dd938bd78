"""The file itself: tensors under a JSON header, read with suspicion, written whole or not at all."""

import json
import os
import stat
from collections.abc import Iterable
from hashlib import sha256
from importlib.metadata import version
from json import JSONDecodeError
from math import prod
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shiftsvd.runs.outputs import Outputs

Tensors = dict[str, npt.NDArray[Any]]
Metadata = dict[str, str]

FORMAT, VERSION = "shiftsvd-model", "1"
# Names are tensors, so a header is small whatever the model; what parsing one can take is bounded by this.
MAX_HEADER = 2**20
_DTYPES = {"BOOL": "?", "F16": "<f2", "F32": "<f4", "F64": "<f8"} | {
    f"{sign}{8 * size}": f"<{kind}{size}" for sign, kind in (("I", "i"), ("U", "u")) for size in (1, 2, 4, 8)
}


def write(path: Path, metadata: Metadata, tensors: Tensors, force: bool) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: there is no folder {path.parent}; make it first")
    try:
        with Outputs([path], force) as outputs:
            part = outputs.part(path)
            part.touch()
            mode = part.stat().st_mode  # as any file of this user's; safetensors makes files for the owner alone
            save_file(tensors, part, metadata)
            _sort_header(part)
            part.chmod(mode)
    except (OSError, SafetensorError) as error:
        if isinstance(error, FileExistsError):
            raise
        raise OSError(f"{path} cannot be written: {error}") from error


def _sort_header(part: Path) -> None:
    with part.open("rb+") as file:
        size = int.from_bytes(file.read(8), "little")
        written = file.read(size)
        header = json.dumps(json.loads(written), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        if len(header) <= size:
            file.seek(8)
            file.write(header.ljust(size))


def read(path: Path) -> tuple[Metadata, Tensors]:
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is not a regular file")
    with path.open("rb") as file:
        header, size = _header(file), os.fstat(file.fileno()).st_size
        metadata, start = header.pop("__metadata__", {}), file.tell()
        if not _are_texts(metadata):
            raise ValueError("it is damaged, or no model file: its metadata are no texts")
        placed = {name: _placed(name, tensor, start) for name, tensor in header.items()}
        ends = [start, *sorted(each.end for each in placed.values())]
        _check_length(size, ends[-1])
        if sorted(each.begin for each in placed.values()) != ends[:-1] or ends[-1] != size:
            raise ValueError("it is damaged, or no model file: its tensors overlap, or leave bytes over")
        _check_version(metadata)
        return metadata, {name: each.read(file) for name, each in placed.items()}


class _Placed(NamedTuple):
    """A tensor in a file: its type and shape, and its first byte and the byte after its last one."""

    dtype: np.dtype[Any]
    shape: list[int]
    begin: int
    end: int

    def read(self, file: IO[bytes]) -> npt.NDArray[Any]:
        file.seek(self.begin)
        values = np.fromfile(file, self.dtype, prod(self.shape))
        _check_length(self.begin + values.nbytes, self.end)  # the file may have been truncated meanwhile
        return values.astype(self.dtype.newbyteorder("="), copy=False).reshape(self.shape)


def _header(file: IO[bytes]) -> dict[str, Any]:
    there = os.fstat(file.fileno()).st_size
    size = int.from_bytes(file.read(8), "little")
    if size > MAX_HEADER:
        raise ValueError(f"it is no model file: a header of {size} bytes, where {MAX_HEADER} is the most")
    _check_length(there, 8 + size)
    try:
        return parsed(file.read(size).decode())
    except (UnicodeDecodeError, JSONDecodeError):
        raise ValueError("it is damaged, or no model file: it does not begin with a header of texts") from None


def _are_texts(metadata: Any) -> bool:
    return isinstance(metadata, dict) and all(isinstance(text, str) for text in metadata.values())


def _placed(name: str, tensor: Any, start: int) -> _Placed:
    try:
        dtype, shape, (begin, end) = np.dtype(_DTYPES[tensor["dtype"]]), tensor["shape"], tensor["data_offsets"]
        whole = all(type(count) is int and count >= 0 for count in (*shape, begin, end))
        if whole and end - begin == prod(shape) * dtype.itemsize:
            return _Placed(dtype, shape, start + begin, start + end)
    except (KeyError, TypeError, ValueError):
        pass
    raise ValueError(f"it is damaged, or no model file: its header must hold type, shape and place of {name!r:.80}")


def _check_length(there: int, least: int) -> None:
    if there == 0:
        raise ValueError("it is empty")
    if there < least:
        raise ValueError(
            f"it is damaged: it was cut off, {there:,} bytes are there of at least {least:,}; copy it anew"
        )


def _check_version(metadata: Metadata) -> None:
    if metadata.get("format") != FORMAT:
        raise ValueError(f"it is no model file: its format is {metadata.get('format')!r:.80}, not {FORMAT!r}")
    if metadata.get("version") != VERSION:
        raise ValueError(
            f"it is a model file of version {metadata.get('version')!r:.80}, and shiftsvd {own_version()} reads "
            f"version {VERSION!r}; update with pip install -U shiftsvd"
        )


def parsed(text: str) -> dict[str, Any]:
    found = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    if not isinstance(found, dict):
        raise ValueError(f"its header is damaged: an object is wanted, got {text!r:.80}")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("its header is damaged: a name appears twice")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"its header is damaged: {name} is not a number")


def digest(metadata: Metadata, tensors: Tensors) -> str:
    summed = sha256()
    for name in sorted(set(metadata) - {"sha256"}):
        summed.update(f"{name}={metadata[name]}\n".encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        summed.update(f"{name} {tensor.dtype.name} {list(tensor.shape)}\n".encode())
        summed.update(np.ascontiguousarray(tensor).data.cast("B") if tensor.size else b"")
    return summed.hexdigest()


def listed(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return ", ".join(f"{name!r:.80}" for name in ordered[:5]) + (" ..." if len(ordered) > 5 else "")


def own_version() -> str:
    return version("shiftsvd")
