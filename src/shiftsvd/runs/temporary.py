"""Temporary files: their names, which nobody else uses, what killed runs left of them, and renaming when finished."""

import errno
import os
import re
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

MARK: Final = "shiftsvd"
BEFORE: Final = f".{MARK}-before"  # of a folder that is about to be replaced
UNSETTLED: Final = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS)  # of a folder, on some file systems
_KINDS: Final = {
    stat.S_IFREG: "a file",
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def kind_of(path: Path) -> str | None:
    try:
        return _KINDS.get(stat.S_IFMT(path.lstat().st_mode), "no file")
    except (FileNotFoundError, NotADirectoryError):
        return None


def lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.{MARK}-lock")


def stage_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.{MARK}-{token_hex(8)}")


def left_stages(folder: Path, names: str) -> list[Path]:
    """Return the stages in a folder of files whose names match a regular expression; no links, pipes or devices.

    Whoever removes them holds the lock of those files: then the run that made them has ended.
    """
    pattern = re.compile(rf"\.({names})\.{MARK}-[0-9a-f]{{16}}")
    with suppress(PermissionError, FileNotFoundError):  # a folder that can be written to but not listed
        there = [path for path in folder.iterdir() if pattern.fullmatch(path.name)]
        return [path for path in there if kind_of(path) in ("a file", "a folder")]
    return []


def remove_stages(folder: Path, names: str) -> None:
    for path in left_stages(folder, names):
        if kind_of(path) == "a folder":
            for before in path.glob(f"*{BEFORE}"):
                if kind_of(place := folder / before.name.removesuffix(BEFORE)) is None:
                    before.rename(place)
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def replaceable(path: Path, by_folder: bool = False) -> str | None:
    """Return what `kind_of` says of a place for a finished file, or folder.

    Raises
    ------
    FileExistsError
        If it is neither a file nor a link, nor a folder for a folder.
    """
    kind = kind_of(path)
    if kind == "a folder" and not by_folder:
        raise FileExistsError(
            f"{path} cannot be written: it is a folder that shiftsvd did not write; give another name"
        )
    if kind not in (None, "a file", "a link", "a folder"):
        raise FileExistsError(f"{path} cannot be written: it is {kind}, which is never replaced; give another name")
    return kind


def rename(part: Path, path: Path) -> None:
    kind = replaceable(path, part.is_dir())
    if kind is None or not part.is_dir():
        part.replace(path)
        return
    aside = part.with_name(f"{part.name}{BEFORE}")  # no system call replaces a folder that is not empty
    path.rename(aside)
    try:
        part.rename(path)
    except OSError:
        aside.rename(path)
        raise


def settle(part: Path) -> None:
    for each in part.rglob("*") if part.is_dir() else (part,):
        if each.is_file():
            with each.open("rb+") as file:
                os.fsync(file.fileno())


def settle_folder(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except PermissionError:  # of a folder that cannot be listed, and of all folders of Windows
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in UNSETTLED:
            raise
    finally:
        os.close(handle)
