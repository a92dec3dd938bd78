"""One process at a time: a lock that ends with whoever holds it, also by a kill, and that says who that is."""

import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

NO_LOCKS: Final = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@contextmanager
def held(lock: Path, what: Path) -> Iterator[None]:
    """Be the only one who works on `what`: a file or folder that is known by the file of its lock.

    Raises
    ------
    BlockingIOError
        If another process does, or another thread of this one; it says who.
    """
    taken = _taken(lock, what)
    try:
        with suppress(OSError):  # who holds it is told as far as it can be
            lock.write_text(json.dumps(_myself()))
        yield
    finally:
        # While the lock is held: whoever has the file open already finds that it has no name any more, and tries anew.
        with suppress(OSError):  # some systems keep what is open
            lock.unlink()
        taken.release()


def files_of(lock: Path) -> set[Path]:
    """What stands in the folder of a lock for it."""
    return {lock, _soft(lock)}


def _soft(lock: Path) -> Path:
    """A file that is there while somebody works, where the file system has no locks."""
    return lock.with_name(f"{lock.name}-soft")


def _taken(lock: Path, what: Path) -> BaseFileLock:
    """The lock; a file in its place where the file system has none."""
    try:
        return _acquired(FileLock(lock, thread_local=False), lock, what)
    except (OSError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno not in NO_LOCKS:
            raise
        return _acquired(SoftFileLock(_soft(lock), thread_local=False), lock, what)


def _acquired(taken: BaseFileLock, lock: Path, what: Path) -> BaseFileLock:
    """The lock, or an error that says who has it."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        try:
            taken.acquire(timeout=0)
        except FileNotFoundError:  # whoever has just ended removed the folder
            lock.parent.mkdir(parents=True, exist_ok=True)
            taken.acquire(timeout=0)
    except Timeout:
        raise BlockingIOError(_busy(lock, what)) from None
    return taken


def _myself() -> dict[str, str | int]:
    """What another process is told."""
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def _busy(lock: Path, what: Path) -> str:
    """Who holds a lock, as far as is known."""
    try:
        known = json.loads(lock.read_text())
        who = f"process {known['pid']} on {known['host']}, since {known['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        who = "another process"
    stale = f"; if that process is dead, delete {_soft(lock)}" if _soft(lock).exists() else ""
    return f"{what} is in use by {who}; wait for it, or give another name{stale}"
