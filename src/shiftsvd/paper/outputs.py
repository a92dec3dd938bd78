"""Files that appear whole or not at all, and never replace others unasked."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from shiftsvd.paper import DataError


def refuse(paths: Iterable[Path], force: bool) -> None:
    """Raise before any work if an output exists, or cannot be made.

    Raises
    ------
    DataError
        If a path exists and `force` is false, or its folder can neither be written to nor be made.
    """
    for path in paths:
        if path.is_dir():
            raise DataError(f"{path} is a folder; an output of that name is to be written")
        if path.exists() and not force:
            raise DataError(f"{path} exists; give --force to replace it, or another name")
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise DataError(f"{path} cannot be written: {folder} is not a folder that may be written to")


def write_all(files: Mapping[Path, bytes]) -> None:
    """Write every file under another name first, then rename them all."""
    parts = {path: path.with_name(f".{path.name}.{os.getpid()}.part") for path in files}
    try:
        for path, part in parts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(files[path])
        for path, part in parts.items():
            part.replace(path)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
