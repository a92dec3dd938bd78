"""A lock where the file system has none: a file that only one can make, and that says whose it is."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

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
