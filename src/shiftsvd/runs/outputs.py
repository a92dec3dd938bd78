"""Outputs that appear whole or not at all, and never replace others unasked."""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from shiftsvd.runs.locks import held
from shiftsvd.runs.temporary import (
    kind_of,
    lock_of,
    remove_stages,
    rename,
    replaceable,
    settle,
    settle_folder,
    stage_of,
)

FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
DEVICES: Final = Path("/dev")  # /dev/stdout is a link: --force would replace it for all users of the machine


def _no_folder(path: Path) -> bool:
    return False


def refuse(paths: Iterable[Path], force: bool, recognised: Callable[[Path], bool] = _no_folder) -> None:
    """Raise before any work if an output exists, or cannot be made.

    With `force` an output replaces a file, a link (never its target), or a folder that is `recognised` as an earlier
    output; nothing else.

    Raises
    ------
    OSError
        If a path exists and cannot be replaced, or its folder can neither be written to nor be made.
    """
    for path in paths:
        if replaceable(path, recognised(path)) is not None and not force:
            raise FileExistsError(f"{path} exists; give force=True to replace it, or another name")
        _refuse_folder(path, force)


def _refuse_folder(path: Path, force: bool) -> None:
    folder = next(parent for parent in path.absolute().parents if kind_of(parent) is not None)
    if folder == path.absolute().parent and not folder.exists():
        if not force:
            raise FileExistsError(f"{folder} is a link to nothing; give force=True to replace it, or another name")
        folder = next(parent for parent in folder.parents if kind_of(parent) is not None)
    if not folder.is_dir() or not os.access(folder, os.W_OK) or folder.resolve() == DEVICES:
        raise NotADirectoryError(f"{path} cannot be written: {folder} is not a folder that may be written to")


class Outputs:
    """Files that are written in a folder beside their places first, and get these together when all are complete.

    A folder that is not there yet appears with all of its files in one step; in one that is there the files are
    replaced one by one, in their order. Where the block ends with an exception, what was there before is there still,
    and nothing else. Meanwhile no other process can write files of these names.
    """

    def __init__(self, paths: Iterable[Path], force: bool, recognised: Callable[[Path], bool] = _no_folder) -> None:
        self._paths, self._force, self._recognised = list(paths), force, recognised
        self._stages: dict[Path, Path] = {}  # of each folder, where its files are written
        self._made: list[Path] = []
        self._locks = ExitStack()
        self._refuse()

    def part(self, path: Path) -> Path:
        return self._stages[path.parent] / path.name

    def leave_out(self, path: Path) -> None:
        self._paths.remove(path)
        self.part(path).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        with ExitStack() as undone:
            undone.callback(self._undo)
            for folder in dict.fromkeys(path.parent for path in self._paths):
                if not folder.exists():
                    self._make_parents(folder)
                    self._lock(folder)
                if folder.exists():  # by now, maybe
                    _free(folder)
                    for path in self._in(folder):
                        self._lock(path)
                self._stage(folder, self._in(folder)[0] if folder.exists() else folder)
            self._refuse()  # by now another process may have written them
            undone.pop_all()
        return self

    def _refuse(self) -> None:
        refuse(self._paths, self._force, self._recognised)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._refuse()  # other programs may have written them during the run
                for path in self._paths:
                    settle(self.part(path))
                for folder in reversed(dict.fromkeys(path.parent for path in reversed(self._paths))):
                    self._publish(folder)
                self._made = []
        finally:
            self._undo()
        if isinstance(error, OSError) and error.errno in FULL:
            where = self._paths[0] if len(self._paths) == 1 else self._paths[0].parent
            raise OSError(f"{where} cannot be written: {error.strerror}; what was there before is there still")

    def _publish(self, folder: Path) -> None:
        stage = self._stages[folder]
        settle_folder(stage)
        if not folder.exists():
            if folder.is_symlink():  # to nothing; no folder can be renamed over it
                folder.unlink()
            stage.rename(folder)
        else:
            for path in self._in(folder):
                rename(self.part(path), path)
            settle_folder(folder)
        settle_folder(folder.parent)

    def _in(self, folder: Path) -> list[Path]:
        return [path for path in self._paths if path.parent == folder]

    def _lock(self, path: Path) -> None:
        self._locks.enter_context(held(lock_of(path), path))

    def _stage(self, folder: Path, locked: Path) -> None:
        remove_stages(locked.parent, re.escape(locked.name))
        self._stages[folder] = stage_of(locked)
        self._stages[folder].mkdir()

    def _make_parents(self, folder: Path) -> None:
        self._made += [parent for parent in folder.parents if not parent.exists()]
        folder.parent.mkdir(parents=True, exist_ok=True)

    def _undo(self) -> None:
        for stage in self._stages.values():
            shutil.rmtree(stage, ignore_errors=True)
        self._locks.close()
        for folder in self._made:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def _free(folder: Path) -> None:
    lock = lock_of(folder) if folder.name else folder
    if lock.is_file():
        with suppress(OSError), held(lock, folder):  # unless it is another run's
            remove_stages(folder.parent, re.escape(folder.name))


def write_all(files: Mapping[Path, bytes], force: bool = True) -> None:
    with Outputs(files, force) as outputs:
        for path, content in files.items():
            outputs.part(path).write_bytes(content)
