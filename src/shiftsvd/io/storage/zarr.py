"""Zarr folders: links, stray files and codecs that are refused."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from shiftsvd.io.base import bounded, optional
from shiftsvd.runs.messages import external_allowed

_METADATA: Final = (".zarray", ".zgroup", ".zattrs", ".zmetadata", "zarr.json")
_PARSED: Final = 32  # bytes of memory for each byte of JSON: "[]," is a list
_METADATA_REMEDY: Final = "remove attributes that hold data: they belong in arrays"
_RUN: Final = ("pickle", "numcodecs.pickle")  # codecs that execute what they read


def open_zarr(path: Path, memory_limit: int | str | None) -> Any:
    zarr = optional("zarr", "zarr")
    root = Path(os.path.realpath(path))
    for file in _files(path):
        _refuse_others(path, root, file)
        if file.name in _METADATA:
            bounded(f"{file.path}: its metadata", _PARSED * file.stat().st_size, memory_limit, _METADATA_REMEDY)
            _refuse_codecs(path, Path(file.path))
    return zarr.open(str(path), mode="r")


def _files(folder: Path) -> Iterator[os.DirEntry[str]]:
    waiting = [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def _refuse_others(path: Path, root: Path, entry: os.DirEntry[str]) -> None:
    if entry.is_symlink() and not external_allowed() and not Path(os.path.realpath(entry.path)).is_relative_to(root):
        raise ValueError(
            f"{path} has a link out of its folder, {os.path.relpath(entry.path, path)}, which is not followed; "
            "allow_external=True follows it, if you trust the file"
        )
    try:
        mode = entry.stat().st_mode
    except FileNotFoundError:
        return  # a link to what is not there: a chunk that was never written
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ValueError(f"{path} has {os.path.relpath(entry.path, path)}, which is no file; remove it")


def _refuse_codecs(path: Path, file: Path) -> None:
    try:
        told = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    waiting = [told]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            # "id" in the second version of the format, "name" in the third.
            if any(node.get(what) in _RUN for what in ("id", "name") if isinstance(node.get(what), str)):
                raise ValueError(f"{path} is packed with pickle, which runs what it reads; write it with another codec")
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
