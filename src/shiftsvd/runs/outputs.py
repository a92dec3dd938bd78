"""Outputs that appear whole or not at all, and never replace others unasked."""

import errno
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from glob import escape
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from shiftsvd.runs.locks import held

FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def refuse(paths: Iterable[Path], force: bool) -> None:
    """Raise before any work if an output exists, or cannot be made.

    Raises
    ------
    OSError
        If a path exists and `force` is false, or its folder can neither be written to nor be made.
    """
    for path in paths:
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder; an output of that name is to be written")
        if path.exists() and not force:
            raise FileExistsError(f"{path} exists; give --force to replace it, or another name")
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise NotADirectoryError(f"{path} cannot be written: {folder} is not a folder that may be written to")


class Outputs:
    """Files that are written under other names first, and get their own together when all are complete.

    Where the block ends with an exception, what was there before is there still, and nothing else. Meanwhile no other
    process can write files of these names.
    """

    def __init__(self, paths: Iterable[Path], force: bool) -> None:
        self._parts = {path: path.with_name(f".{os.getpid()}.part.{path.name}") for path in paths}
        self._force = force
        self._made: list[Path] = []
        self._locks = ExitStack()
        refuse(self._parts, force)

    def part(self, path: Path) -> Path:
        """Where to write what will be at `path`; the suffix is the same."""
        return self._parts[path]

    def leave_out(self, path: Path) -> None:
        """Not write one of them after all."""
        self._parts.pop(path).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        """Make the folders, and nothing in them but locks."""
        with ExitStack() as undone:
            undone.callback(self._remove_folders)
            for path in self._parts:
                self._made += [parent for parent in path.parents if not parent.exists()]
                path.parent.mkdir(parents=True, exist_ok=True)
            locks = undone.enter_context(ExitStack())
            for path in self._parts:
                locks.enter_context(held(path.with_name(f".{path.name}.lock"), path))
                for part in path.parent.glob(f".*.part.{escape(path.name)}"):  # of a run that was killed
                    part.unlink()
            refuse(self._parts, self._force)  # by now another process may have written them
            self._locks = locks.pop_all()
            undone.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Rename everything, or remove everything."""
        try:
            if kind is None:
                for part in self._parts.values():
                    settle(part)
                for path, part in self._parts.items():
                    part.replace(path)
                self._made = []
        finally:
            for part in self._parts.values():
                part.unlink(missing_ok=True)
            self._locks.close()
            self._remove_folders()
        if isinstance(error, OSError) and error.errno in FULL:
            where = next(iter(self._parts)) if len(self._parts) == 1 else next(iter(self._parts)).parent
            raise OSError(f"{where} cannot be written: {error.strerror}; what was there before is there still")

    def _remove_folders(self) -> None:
        """Remove folders that were made here, unless something is in them."""
        for folder in self._made:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def write_all(files: Mapping[Path, bytes], force: bool = True) -> None:
    """Write every file, or none."""
    with Outputs(files, force) as outputs:
        for path, content in files.items():
            outputs.part(path).write_bytes(content)


def settle(part: Path) -> None:
    """Have the file on the disk before it gets its name: a crash must not leave an empty one under it."""
    with part.open("rb+") as file:
        os.fsync(file.fileno())


def settle_folder(folder: Path) -> None:
    """Have the names in a folder on the disk too, where the system lets folders be opened."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
