"""Locks of files and folders that end with their process; errors name the process that holds the lock."""

import errno
import json
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

# A missing process has ended for certain only on the same machine, since the same boot, in the same PID namespace.
_PLACE: Final = ("host", "boot", "processes")
_MOST_READ: Final = 2**12  # bytes read from a lock file of another process
_NO_LOCKS: Final = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_TRIES: Final = 20  # attempts to create the folder of a lock, which processes remove when they end


class _Busy(Exception):
    pass


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
        except _Busy:
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
        raise _Busy from None
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
        raise _Busy
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
