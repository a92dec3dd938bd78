"""Read and write safetensors files: validate the header and all offsets; write completely or not at all."""

import json
import os
import stat
from collections.abc import Iterable, Iterator
from hashlib import sha256
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from shiftsvd.runs.outputs import Outputs

Tensors = dict[str, npt.NDArray[Any]]
Metadata = dict[str, str]

FORMAT, VERSION = "shiftsvd-model", "1"
# Limit of the size of a header, and so of the memory for parsing it. Names are stored as tensors, so headers are small.
MAX_HEADER: Final = 2**20
UPDATE: Final = "pip install -U shiftsvd"
# In the order of the tensors in a file, as the package safetensors writes them: numbers of 8 bytes first, aligned.
_NUMBERS: Final = ("U64", "I64", "F64", "F32", "U32", "I32", "F16", "U16", "I16", "I8", "U8")
_DTYPES: Final = {code: np.dtype(f"<{code[0].lower()}{int(code[1:]) // 8}") for code in _NUMBERS} | {
    "BOOL": np.dtype(bool)
}


def write(path: Path, metadata: Metadata, tensors: Tensors, force: bool) -> None:
    codes = {dtype: code for code, dtype in _DTYPES.items()}
    order = sorted(tensors, key=lambda name: ([*codes].index(_little(tensors[name])), name))
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name in order:
        tensor = tensors[name]
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": codes[_little(tensor)], "shape": tensor.shape, "data_offsets": (begin, end)}
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with Outputs([path], force) as outputs, outputs.part(path).open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(_bytes(tensors[name]) for name in order)


def _little(tensor: npt.NDArray[Any]) -> np.dtype[Any]:
    return tensor.dtype.newbyteorder("<")


def _bytes(tensor: npt.NDArray[Any]) -> memoryview:
    return np.asarray(tensor, _little(tensor), order="C").reshape(-1).view(np.uint8).data


def read(path: Path) -> tuple[Metadata, Tensors]:
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("not a regular file. Pass a file that save_model or `shiftsvd fit` wrote.")
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > MAX_HEADER:
            raise ValueError("not a model file. Pass a file that save_model or `shiftsvd fit` wrote.")
        _check_length(file, 8 + size)
        try:
            header = json.loads(file.read(size))
            metadata = header.pop("__metadata__", {})
            _check_version(metadata)
            return metadata, dict(_tensors(file, header))
        except (AttributeError, KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError):
            raise ValueError(
                "damaged, or not a model file. Pass a file that save_model or `shiftsvd fit` wrote."
            ) from None


def _tensors(file: IO[bytes], header: dict[str, Any]) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    start = end = file.tell()
    for name, said in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape = _DTYPES[said["dtype"]], said["shape"]
        begin, end = end, end + dtype.itemsize * prod(shape)
        if said["data_offsets"] != [begin - start, end - start] or min(shape, default=0) < 0:
            raise ValueError(
                f"the file is damaged: wrong offsets of {name!r:.80}, whose shape is {shape!r:.80}. Copy it again."
            )
        _check_length(file, end)  # each time, since the file may be truncated meanwhile
        values = np.fromfile(file, dtype, prod(shape))
        yield name, values.astype(dtype.newbyteorder("="), copy=False).reshape(shape)
    if end != os.fstat(file.fileno()).st_size:
        raise ValueError("the file is damaged: it has bytes after the last tensor. Copy it again.")


def _check_length(file: IO[bytes], least: int) -> None:
    there = os.fstat(file.fileno()).st_size
    if there == 0:
        raise ValueError("the file is empty. Copy it again.")
    if there < least:
        raise ValueError(f"the file is damaged: truncated to {there:,} of at least {least:,} bytes. Copy it again.")


def _check_version(metadata: Metadata) -> None:
    if metadata.get("format") != FORMAT:
        raise ValueError(
            f"not a model file of shiftsvd: its format is {metadata.get('format')!r:.80}. Pass a file that save_model "
            "or `shiftsvd fit` wrote."
        )
    if metadata.get("version") != VERSION:
        raise ValueError(
            f"the model file has version {metadata.get('version')!r:.80}, but shiftsvd {version('shiftsvd')} reads "
            f"version {VERSION!r}. Update with: {UPDATE}"
        )


def digest(metadata: Metadata, tensors: Tensors) -> str:
    summed = sha256()
    for name in sorted(set(metadata) - {"sha256"}):
        summed.update(f"{name}={metadata[name]}\n".encode())
    for name in sorted(tensors):
        summed.update(f"{name} {tensors[name].dtype.name} {list(tensors[name].shape)}\n".encode())
        summed.update(_bytes(tensors[name]))
    return summed.hexdigest()


def listed(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return ", ".join(f"{name!r:.80}" for name in ordered[:5]) + (" ..." if len(ordered) > 5 else "")
