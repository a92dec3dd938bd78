"""Write outputs completely or not at all, and replace files only by `force`: temporary files, renaming, locks."""

import errno
import json
import os
import re
import shutil
import socket
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Any, Final, Self

from shiftsvd.errors import Part, Setting, Worded, is_address, public_address

MARK: Final = "shiftsvd"
BEFORE: Final = f".{MARK}-before"  # suffix of a folder that is being replaced
FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LONGEST_NAME: Final = 255  # bytes, of file systems
_DEVICES: Final = Path("/dev")  # /dev/stdout is a link: --force would replace it for all users of the machine
_NO_SYNC: Final = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS)  # fsync of a folder is not supported
_KINDS: Final = {
    stat.S_IFREG: "a file",
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class OutputExists(Worded, FileExistsError):
    """An output exists, or its folder is a broken link."""

    def __init__(self, *parts: Part) -> None:
        self.args = parts  # OSError would interpret two arguments as errno and strerror


def local(path: str | os.PathLike[str]) -> Path:
    if is_address(path):
        raise ValueError(f"{public_address(str(path))} cannot be written: pass a path of this machine.")
    return Path(path)


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
    """Return the temporary files and folders left in `folder` for outputs whose names match a regular expression.

    Hold the lock of these outputs before removing them, so that the run that created them has ended.
    """
    pattern = re.compile(rf"\.({names})\.{MARK}-[0-9a-f]{{16}}")
    with suppress(PermissionError, FileNotFoundError):  # a folder that can be written to but not listed
        there = [path for path in folder.iterdir() if pattern.fullmatch(path.name)]
        return [path for path in there if kind_of(path) in ("a file", "a folder")]
    return []


def remove_stages(folder: Path, names: str) -> None:
    for path in left_stages(folder, names):
        if kind_of(path) == "a file":
            path.unlink(missing_ok=True)
            continue
        for before in path.glob(f"*{BEFORE}"):
            if kind_of(place := folder / before.name.removesuffix(BEFORE)) is None:
                before.rename(place)
        shutil.rmtree(path, ignore_errors=True)


def _replaceable(path: Path, by_folder: bool) -> str | None:
    kind = kind_of(path)
    if kind == "a folder" and not by_folder:
        raise FileExistsError(
            f"{path} cannot be written: it is a folder that shiftsvd did not write. Use another name."
        )
    if kind not in (None, "a file", "a link", "a folder"):
        raise FileExistsError(f"{path} cannot be written: it is {kind}, which is never replaced. Use another name.")
    return kind


def rename(part: Path, path: Path) -> None:
    kind = _replaceable(path, part.is_dir())
    if kind is None or not part.is_dir():
        part.replace(path)
        return
    aside = part.with_name(f"{part.name}{BEFORE}")  # no system call replaces a nonempty folder
    path.rename(aside)
    try:
        part.rename(path)
    except OSError:
        aside.rename(path)
        raise


def sync(part: Path) -> None:
    for each in part.rglob("*") if part.is_dir() else (part,):
        if each.is_file():
            with each.open("rb+") as file:
                os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except PermissionError:  # a folder without read permission; any folder on Windows
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(handle)


def refuse(paths: Iterable[Path], force: bool, recognised: Callable[[Path], bool] = lambda path: False) -> None:
    """Raise OSError before any work if an output exists or cannot be created.

    With `force`, an output may replace a file, a link (never its target), or a folder that is `recognised` as an
    earlier output.
    """
    for path in paths:
        if _replaceable(path, recognised(path)) is not None and not force:
            raise _exists(f"{path} exists")
        folder = next(parent for parent in path.absolute().parents if kind_of(parent) is not None)
        if folder == path.absolute().parent and not folder.exists():
            if not force:
                raise _exists(f"{folder} is a broken link")
            folder = next(parent for parent in folder.parents if kind_of(parent) is not None)
        if not folder.is_dir() or not os.access(folder, os.W_OK) or folder.resolve() == _DEVICES:
            raise NotADirectoryError(
                f"{path} cannot be written: {folder} is not a writable folder. Use another folder."
            )
        for part in path.absolute().relative_to(folder).parts:
            if len(os.fsencode(_guard(_marker(lock_of(Path(part)))).name)) > _LONGEST_NAME:
                raise OSError(f"{path} cannot be written: the name {part} is too long. Use a shorter name.")


def _exists(what: str) -> OutputExists:
    return OutputExists(f"{what}. Use ", Setting("force", True), " to replace it, or another name.")


class _NoRoom(OSError):
    def __init__(self, paths: list[Path], reason: str | None) -> None:
        where = paths[0] if len(paths) == 1 else paths[0].parent
        super().__init__(f"{where} cannot be written: {reason}. Existing files are unchanged.")
        self.reason = reason


class Outputs:
    """Write files into a temporary folder, and move all of them to their places when the block ends.

    A new folder appears with all of its files in one step; in an existing folder, files are replaced one by one, in
    order. If the block ends with an exception, existing files remain unchanged and no file is added. Locks prevent
    other processes from writing the same files.
    """

    def __init__(
        self, paths: Iterable[Path], force: bool, recognised: Callable[[Path], bool] = lambda path: False
    ) -> None:
        self._paths, self._force, self._recognised = list(paths), force, recognised
        self._stages: dict[Path, Path] = {}  # temporary folder of each output folder
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
                    self._made += [parent for parent in folder.parents if not parent.exists()]
                    folder.parent.mkdir(parents=True, exist_ok=True)
                    self._lock(folder)
                locked = folder
                if folder.exists():  # another process may have created it before the lock
                    _remove_left_stages(folder)
                    locked = self._in(folder)[0]
                    for path in self._in(folder):
                        self._lock(path)
                remove_stages(locked.parent, re.escape(locked.name))
                self._stages[folder] = stage_of(locked)
                self._stages[folder].mkdir()
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
                    sync(self.part(path))
                for folder in reversed(dict.fromkeys(path.parent for path in reversed(self._paths))):
                    self._publish(folder)
                self._made = []
        finally:
            self._undo()
        if isinstance(error, OSError) and error.errno in FULL:
            raise _NoRoom(self._paths, error.strerror)
        if isinstance(error, _NoRoom):  # of a file inside of the temporary folder
            raise _NoRoom(self._paths, error.reason) from None

    def _publish(self, folder: Path) -> None:
        stage = self._stages[folder]
        sync_folder(stage)
        if not folder.exists():
            if folder.is_symlink():  # a broken link, over which no folder can be renamed
                folder.unlink()
            stage.rename(folder)
        else:
            for path in self._in(folder):
                rename(self.part(path), path)
            sync_folder(folder)
        sync_folder(folder.parent)

    def _in(self, folder: Path) -> list[Path]:
        return [path for path in self._paths if path.parent == folder]

    def _lock(self, path: Path) -> None:
        self._locks.enter_context(held(lock_of(path), path))

    def _undo(self) -> None:
        for stage in self._stages.values():
            shutil.rmtree(stage, ignore_errors=True)
        self._locks.close()
        for folder in self._made:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def _remove_left_stages(folder: Path) -> None:
    lock = lock_of(folder) if folder.name else folder
    with suppress(OSError):  # fails if another run holds the lock, or if its name is too long
        if lock.is_file():
            with held(lock, folder):
                remove_stages(folder.parent, re.escape(folder.name))


def write_all(files: Mapping[Path, bytes], force: bool = True) -> None:
    with Outputs(files, force) as outputs:
        for path, content in files.items():
            outputs.part(path).write_bytes(content)


# --- locks of files and folders that end with their process; errors name the process that holds the lock ---


# A missing process has ended for certain only on the same machine, since the same boot, in the same PID namespace.
_PLACE: Final = ("host", "boot", "processes")
_MOST_READ: Final = 2**12  # bytes read from a lock file of another process
_NO_LOCKS: Final = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_TRIES: Final = 20  # attempts to create the folder of a lock, which processes remove when they end


@contextmanager
def held(lock: Path, what: Path) -> Iterator[None]:
    """Lock `what`, a file or a folder, by the file `lock`.

    Raises
    ------
    BlockingIOError
        If another process, or another thread of this process, holds the lock; the message names it.
    FileExistsError
        If a file that is not a lock of this library has the name of the lock.
    """
    if not _is_free(lock):
        raise FileExistsError(
            f"{lock} has the name of a lock file, but shiftsvd did not write it. Remove it, or use another name than "
            f"{what}."
        )
    with ExitStack() as stack:
        try:
            _enter(stack, lock)
        except BlockingIOError:
            raise BlockingIOError(_busy(lock, what)) from None
        yield


def _is_free(lock: Path) -> bool:
    try:
        return stat.S_ISREG(lock.lstat().st_mode) and b'"pid"' in (lock.read_bytes() or b'"pid"')
    except (FileNotFoundError, NotADirectoryError):
        return True


def files_of(lock: Path) -> set[Path]:
    return {lock, _marker(lock), _guard(_marker(lock))}


def _marker(lock: Path) -> Path:
    return lock.with_name(f"{lock.name}-file")


def _guard(marker: Path) -> Path:
    return marker.with_name(f"{marker.name}-removing")


def _enter(stack: ExitStack, lock: Path) -> None:
    take: Callable[[Path], AbstractContextManager[None]] = _of_system
    file = lock
    for left in reversed(range(_TRIES)):
        lock.parent.mkdir(parents=True, exist_ok=True)
        try:
            stack.enter_context(take(file))
            return
        except FileNotFoundError:  # another process has just ended and removed the folder
            if not left:
                raise
        except (OSError, NotImplementedError) as error:
            if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
                raise
            with suppress(OSError):
                lock.unlink()  # `FileLock` created it, but the file system has no locks
            take, file = _of_marker, _marker(lock)


@contextmanager
def _of_system(lock: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout  # which loads asyncio, and most fits lock nothing

    taken = FileLock(lock, thread_local=False, fallback_to_soft=False)
    try:
        taken.acquire(timeout=0)
    except Timeout:
        raise BlockingIOError from None
    try:
        with suppress(OSError):  # the name of the holder is optional
            lock.write_text(json.dumps(this_process()))
        yield
    finally:
        # Unlink while holding the lock: a process that has already opened the file then notices and tries again.
        with suppress(OSError):  # Windows cannot remove an open file
            lock.unlink()
        taken.release()


@contextmanager
def _of_marker(marker: Path) -> Iterator[None]:
    # For file systems without locks. Remove the marker of a killed process if it ran on this machine since its last
    # start. Keep other markers, as their processes may still run, and name the process in the error.
    if not _make(marker) and not (_remove_left(marker) and _make(marker)):
        raise BlockingIOError
    try:
        yield
    finally:
        marker.unlink(missing_ok=True)


def _make(file: Path) -> bool:
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return False
    try:
        with os.fdopen(handle, "w") as out:
            json.dump(this_process(), out)
            out.flush()
            os.fsync(out.fileno())
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    return True


def _remove_left(marker: Path) -> bool:
    guard = _guard(marker)  # of two processes that find the marker, one could remove the new marker of the other
    if not _left(marker) or not _make(guard):
        return False
    try:
        if _left(marker):
            marker.unlink(missing_ok=True)
        return True
    finally:
        guard.unlink(missing_ok=True)


def _left(marker: Path) -> bool:
    holder, here = _holder(marker), this_process()
    pid = holder.get("pid")
    is_here = here["boot"] and all(holder.get(name) == here[name] for name in _PLACE)
    if not is_here or not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError) as error:
        return isinstance(error, ProcessLookupError)  # PermissionError: a process of another user
    return False


def _holder(file: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        handle = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as text:
            found = json.loads(text.read(_MOST_READ))
            return found if isinstance(found, dict) else {}
    return {}


def this_process() -> dict[str, str | int]:
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now().astimezone().isoformat(timespec="seconds"),
        "boot": _or_empty(lambda: Path("/proc/sys/kernel/random/boot_id").read_text().strip()),
        "processes": _or_empty(lambda: os.readlink("/proc/self/ns/pid")),
    }


def _or_empty(read: Callable[[], str]) -> str:
    try:
        return read()
    except OSError:
        return ""


def _busy(lock: Path, what: Path) -> str:
    marker = _marker(lock)
    holder = _holder(marker) or _holder(lock)
    named = {"pid", "host", "since"} <= set(holder)
    who = f"process {holder['pid']} on {holder['host']}, since {holder['since']}" if named else "another process"
    stale = f" If that process has ended, delete {marker}." if marker.exists() else ""
    return f"{what} is in use by {who}. Wait until it ends, or use another name.{stale}"
