"""One process at a time: a lock that ends with its holder, and that says who that is."""

import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout

from shiftsvd.runs.temporary import kind_of

# What tells a machine, its start and its set of processes: where these are the same, who is not there has ended.
_PLACE = ("host", "boot", "processes")
_MOST = 2**12  # bytes that are read of what another wrote


class TakenError(Exception):
    """Another process has the lock file; whoever asked for it says so with the names that users know."""


@contextmanager
def made(file: Path) -> Iterator[None]:
    """Be the only one whose file this is, from its making, which fails where it is there, to its removal.

    A file that a killed process of this machine left is removed; of one on another machine, or before a restart, nobody
    can know, so it stays, and `known` says whose it is.
    """
    if not _make(file) and not (_remove_left(file) and _make(file)):
        raise TakenError
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def known(file: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        handle = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as text:
            found = json.loads(text.read(_MOST))
            return found if isinstance(found, dict) else {}
    return {}


def myself() -> dict[str, str | int]:
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now().astimezone().isoformat(timespec="seconds"),
        "boot": _told(lambda: Path("/proc/sys/kernel/random/boot_id").read_text().strip()),
        "processes": _told(lambda: os.readlink("/proc/self/ns/pid")),
    }


def _told(ask: Any) -> str:
    try:
        return str(ask())
    except OSError:
        return ""


def _make(file: Path) -> bool:
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return False
    try:
        with os.fdopen(handle, "w") as out:
            json.dump(myself(), out)
            out.flush()
            os.fsync(out.fileno())
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    return True


def _remove_left(file: Path) -> bool:
    guard = guard_of(file)
    if not _left(file) or not _make(guard):
        return False
    try:
        if _left(file):
            file.unlink(missing_ok=True)
        return True
    finally:
        guard.unlink(missing_ok=True)


def guard_of(file: Path) -> Path:
    return file.with_name(f"{file.name}-removing")


def _left(file: Path) -> bool:
    holder, here = known(file), myself()
    pid = holder.get("pid")
    if (
        not here["boot"]
        or not isinstance(pid, int)
        or pid <= 0
        or any(holder.get(name) != here[name] for name in _PLACE)
    ):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # somebody else's
        return False
    return False


NO_LOCKS: Final = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_TRIES: Final = 20  # to make the folder of a lock, which those who end remove


@contextmanager
def held(lock: Path, what: Path) -> Iterator[None]:
    """Be the only one who works on `what`: a file or folder that is known by the file of its lock.

    Raises
    ------
    BlockingIOError
        If another process does, or another thread of this one; it says who.
    FileExistsError
        If a file that is no lock of this library has the name of the lock.
    """
    if not _is_free(lock):
        raise FileExistsError(f"{lock} is not a lock of shiftsvd; remove it, or give another name than {what}")
    with ExitStack() as stack:
        try:
            _enter(stack, lock)
        except (Timeout, TakenError):
            raise BlockingIOError(_busy(lock, what)) from None
        yield


def _is_free(lock: Path) -> bool:
    kind = kind_of(lock)
    try:
        return kind is None or (kind == "a file" and b'"pid"' in (lock.read_bytes() or b'"pid"'))
    except FileNotFoundError:  # removed just now
        return True


def files_of(lock: Path) -> set[Path]:
    return {lock, _soft(lock), guard_of(_soft(lock))}


def _soft(lock: Path) -> Path:
    return lock.with_name(f"{lock.name}-file")


def _enter(stack: ExitStack, lock: Path) -> None:
    for tries in range(_TRIES):
        lock.parent.mkdir(parents=True, exist_ok=True)
        try:
            _enter_there(stack, lock)
            break
        except FileNotFoundError:  # whoever has just ended removed the folder
            if tries == _TRIES - 1:
                raise


def _enter_there(stack: ExitStack, lock: Path) -> None:
    try:
        stack.enter_context(_of_system(lock))
    except (OSError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno not in NO_LOCKS:
            raise
        with suppress(OSError):
            lock.unlink()  # no lock, though it has the name of one
        stack.enter_context(made(_soft(lock)))


@contextmanager
def _of_system(lock: Path) -> Iterator[None]:
    taken = _file_lock(lock)
    taken.acquire(timeout=0)
    try:
        with suppress(OSError):  # who holds it is told as far as it can be
            lock.write_text(json.dumps(myself()))
        yield
    finally:
        # While the lock is held: whoever has the file open already finds that it has no name any more, and tries anew.
        with suppress(OSError):  # some systems keep what is open
            lock.unlink()
        taken.release()


def _file_lock(lock: Path) -> Any:
    return FileLock(lock, thread_local=False, fallback_to_soft=False)


def _busy(lock: Path, what: Path) -> str:
    soft = _soft(lock)
    holder = known(soft) or known(lock)
    named = {"pid", "host", "since"} <= set(holder)
    who = f"process {holder['pid']} on {holder['host']}, since {holder['since']}" if named else "another process"
    stale = f"; if that process has ended, delete {soft}" if soft.exists() else ""
    return f"{what} is in use by {who}; wait for it, or give another name{stale}"
