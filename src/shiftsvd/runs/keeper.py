"""The keeper of a command's memory: a watcher that ends the process with one line once it passes its limit.

The compiled watcher is a thread without the GIL, which libraries hold while they unpack a chunk. Limits of the system
do not serve: RLIMIT_DATA counts what is reserved and never touched, and libraries abort where they get no memory
(benchmarks/claims/bombs.py).
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Final

from shiftsvd.kernels import best
from shiftsvd.runs.memory import limit_by_default, limit_of, shown_bytes

# Bytes that the command takes for itself: 150 MB with the packages of a format, 40 MB while a report is drawn, 30 MB as
# the client of Dask's workers, and some room (fits of 3000 x 60 in each format took up to 195 MB in all).
_OWN: Final = 250_000_000
_PAUSE: Final = 0.002  # seconds between two looks of the watcher in Python
_PAGE: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
_STATM: Final = Path("/proc/self/statm")

_folders: list[str] = []


def slack_of(limit: int) -> int:
    return limit // 10 + _OWN


def keep_memory(memory_limit: int | str | None, files: str) -> None:
    """End this process with code 1 once its anonymous memory has grown by more than the limit and the slack.

    Without a limit the default of this moment holds until the process ends. Systems without /proc have no keeper.
    """
    limit = limit_of(memory_limit)
    if limit is None:
        return
    if memory_limit is None:
        limit_by_default(limit)
    line = (
        f"Error: {files} took more memory than the limit of {shown_bytes(limit)} and a slack of "
        f"{shown_bytes(slack_of(limit))} allow. If the file is sound, give a larger --memory."
    )
    _keep(limit + slack_of(limit), line)


@contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as folder:
        _folders.append(folder)
        _discard(_folders)
        try:
            yield Path(folder)
        finally:
            _folders.remove(folder)
            _discard(_folders)


def _keep_in_python(limit: int, line: str) -> None:
    if _STATM.exists():
        Thread(target=_watch, args=(_anonymous() + limit, line), daemon=True).start()


def _watch(most: int, line: str) -> None:
    while _anonymous() <= most:
        time.sleep(_PAUSE)
    if sys.stderr.isatty():
        line = f"\r\x1b[2K\x1b[?25h{line}"  # a progress bar may have hidden the cursor in the middle of a line
    os.write(2, f"{line}\n".encode())
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _anonymous() -> int:
    _, resident, shared, *_ = map(int, _STATM.read_text().split())
    return (resident - shared) * _PAGE


def _leave(folders: Sequence[str]) -> None: ...


_native = getattr(best, "_compiled", None)
_keep: Callable[[int, str], object] = getattr(_native, "keep", _keep_in_python)
_discard: Callable[[Sequence[str]], None] = getattr(_native, "discard", _leave)
