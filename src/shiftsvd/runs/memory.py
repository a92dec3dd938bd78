"""Memory: parse and print sizes, measure free and used memory, and enforce the limit."""

import ctypes
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any, Final

from shiftsvd.errors import Refused, Setting, Spell, refuse
from shiftsvd.kernels import best, thread_count

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
# Bytes that the command allocates whatever the data: for imported packages, including those of formats and reports
# (benchmarks/claims/memory_promises.py).
PROGRAM = 150_000_000
_MOST_READ = 2**14  # bytes read of /proc/self/status and /proc/meminfo: all of the first, the head of the second


def parse_bytes(size: int | float | str) -> int:
    if isinstance(size, str):
        text = size.strip().upper().removesuffix("B").removesuffix("I")
        unit = text[-1:] if text[-1:] in _UNITS else ""
        try:
            size = float(text.removesuffix(unit)) * _UNITS[unit]
        except ValueError:
            raise refuse("memory_limit", 'be bytes or a text such as "2GB"', size) from None
    if not size > 0:
        raise refuse("memory_limit", "be positive", size)
    return int(min(size, sys.maxsize))  # inf: no limit


def shown_bytes(n_bytes: float, digits: int = 3) -> str:
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= factor:
            size = f"{n_bytes / factor:.{digits}g}"
            return f"{n_bytes / factor:,.0f} {unit}" if "e" in size else f"{size} {unit}"
    return f"{n_bytes:.0f} bytes"


ROUNDED_UP: Final = 100  # a need is shown with at least 3 digits, so up to one part in so many larger


def enough_bytes(needed: float, digits: int = 3) -> str:
    unit = 10.0 ** (math.floor(math.log10(max(needed, 1))) + 1 - digits)
    return shown_bytes(math.ceil(needed / unit) * unit if unit > 1 else needed, digits)


def beyond(needed: float, limit: int) -> str:
    for digits in range(3, 9):  # print enough digits for the two numbers to differ
        if enough_bytes(needed, digits) != shown_bytes(limit, digits):
            break
    return f"{enough_bytes(needed, digits)}, more than the limit of {shown_bytes(limit, digits)}"


def available_memory() -> int | None:
    try:
        (free,) = _kilobytes("/proc/meminfo", "MemAvailable")
        return None if free is None else free * 1024
    except OSError:
        pages = getattr(os, "sysconf", lambda name: -1)("SC_PHYS_PAGES")
        return int(pages * os.sysconf("SC_PAGE_SIZE")) if pages > 0 else None


_most_by_default: list[int] = [2**63 - 1]
NOTHING: Final = 2**24  # bytes for which the system is not asked what is free
_INEXACT: Final = 2**12  # kB by which the system may count the memory of one process in two ways


def limit_of(memory_limit: int | str | None) -> int | None:
    if memory_limit is not None:
        return parse_bytes(memory_limit)
    free = available_memory()
    return free and min(free // 2, *_most_by_default)


def limit_by_default(limit: int) -> None:
    _most_by_default[:] = [limit]


def spare(needed: float, memory_limit: int | str | None) -> bool:
    limit = limit_of(memory_limit)
    return limit is None or needed <= limit


class OverLimit(Refused):
    """A computation exceeds the memory limit. Last arguments: bytes needed, limit, computation, remedies."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)

    def worded(self, spell: Spell) -> str:
        *before, needed, limit, what, others = self.args
        remedies = ", or ".join((f"Raise {spell(Setting('memory_limit'))}", *others))
        return f"{''.join(before)}{what} needs about {beyond(needed, limit)}. {remedies}."

    @property
    def needed(self) -> int:
        return int(self.args[-4])

    def needing(self, enough: Callable[[int, int], int]) -> "OverLimit":
        *before, needed, limit, what, others = self.args
        return OverLimit(*before, enough(needed, limit), limit, what, others)

    def beside(self, held: int) -> "OverLimit":
        *before, needed, limit, what, others = self.args
        return OverLimit(*before, needed + held, limit + held, what, others)


# The checks take a limit, and how many bytes larger blocks of files are. Larger blocks need more, so the checks are
# repeated until one limit is enough for all of them.
def all_within(limit: int, *checks: Callable[[int, int], object]) -> None:
    """Raise the `OverLimit` of the check that needs most, with a limit that is enough for all checks."""
    first, enough, more = None, limit, 0
    while found := _largest_need(enough, more, checks):
        first, enough = first or found, found.needed + found.needed // (2 * ROUNDED_UP) * (more > 0)
        more = enough + enough // ROUNDED_UP - limit
    if first is not None:
        raise first.needing(lambda needed, limit: enough)


def _largest_need(limit: int, more: int, checks: Sequence[Callable[[int, int], object]]) -> OverLimit | None:
    found = list[OverLimit]()
    for check in checks:
        try:
            check(limit, more)
        except OverLimit as error:
            found.append(error)
    return max(found, key=lambda error: error.needed, default=None)


def affordable(needed: int, memory_limit: int | str | None, what: str, fewer: str = "components") -> None:
    if memory_limit is None and needed <= min(NOTHING, *_most_by_default):
        return
    limit = limit_of(memory_limit)
    if limit is not None and needed > limit:
        raise OverLimit(needed, limit, what, [f"use fewer {fewer}"])


@dataclass(frozen=True)
class Resources:
    """Limits of memory and threads, as arguments: ``as_operator(X, **vars(resources))``."""

    memory_limit: int | str | None = None
    n_threads: int | None = None

    def __post_init__(self) -> None:
        thread_count(self.n_threads)  # raises ValueError for invalid numbers


class MemoryWatch:
    """Growth of the resident memory since the start, on systems with /proc."""

    def __init__(self) -> None:
        self._start, self._largest = _resident(), _largest()

    def growth(self) -> int | None:
        peak = _largest()
        if self._start is None or self._largest is None or peak is None or peak <= self._largest:
            return None
        return (peak - self._start) * 1024

    def passed(self) -> int:
        now, growth = _resident(), self.growth()
        if now is None or growth is None or self._start is None:
            return 0
        return max(growth - (now - self._start) * 1024, 0)


def _largest() -> int | None:
    # In kB. A twentieth of the time of /proc/self/status, which a fit of a small matrix would notice.
    return _counted() if _counts_alone() else _of_process("VmHWM")[0]


@cache
def _counts_alone() -> bool:  # of a process that a larger one has started, this is the peak of the larger one
    (peak,) = _of_process("VmHWM")
    return peak is not None and _counted() < peak + _INEXACT


def _counted() -> int:
    import resource  # which not every system has

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _resident() -> int | None:
    try:
        return int(_first_bytes("/proc/self/statm").split()[1]) * _PAGE // 1024
    except OSError:
        return None


def peak_bytes() -> int | None:
    # Anonymous memory, as `estimate` predicts it: Linux has no peak of it, but code of libraries remains mapped.
    peak, mapped, own = _of_process("VmHWM", "RssFile", "RssAnon")
    return None if peak is None or mapped is None or own is None else max(peak - mapped, own) * 1024


def own_bytes() -> int | None:
    (own,) = _of_process("RssAnon")
    return None if own is None else own * 1024


def release() -> None:
    # Allocators keep freed memory: without this, each stage of a command would start at the peak of the stages before.
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
        if trim is not None:
            trim(0)


def _of_process(*names: str) -> list[int | None]:
    try:
        return _kilobytes("/proc/self/status", *names)
    except OSError:
        return [None] * len(names)


def _kilobytes(path: str, *names: str) -> list[int | None]:
    text = b"\n" + _first_bytes(path)
    found = (text.partition(f"\n{name}:".encode())[2].split(maxsplit=1) for name in names)
    return [int(words[0]) if words else None for words in found]


def _first_bytes(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, _MOST_READ)
    finally:
        os.close(file)


# A watcher ends the command with one line once its memory exceeds the limit. The compiled watcher is a thread without
# the GIL, which libraries hold while they decompress a chunk. Limits of the system are no substitute: RLIMIT_DATA
# counts memory that is reserved and never used, and libraries abort if an allocation fails
# (benchmarks/claims/bombs.py).

# Bytes that the command itself takes beyond the limit: 150 MB with the packages of a format, 40 MB for drawing a
# report, 30 MB as the client of Dask's workers, and a margin (fits of 3000 x 60 in each format took up to 195 MB).
_OWN: Final = 250_000_000
_PAUSE: Final = 0.002  # seconds between two measurements of the watcher in Python
_PAGE: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
_STATM: Final = Path("/proc/self/statm")
_folders: list[str] = []  # temporary folders, removed before the process ends


def slack_of(limit: int) -> int:
    return limit // 10 + _OWN


def keep_memory(memory_limit: int | str | None, files: str) -> None:
    """End this process with code 1 once its anonymous memory has grown by more than the limit and the slack.

    Without a limit, the current default holds until the process ends. Systems without /proc are not watched.
    """
    limit = limit_of(memory_limit)
    if limit is None:
        return
    if memory_limit is None:
        limit_by_default(limit)
    line = (
        f"Error: reading {files} took more memory than the limit of {shown_bytes(limit)} plus a margin of "
        f"{shown_bytes(slack_of(limit))}. If the file is not damaged, use a larger --memory."
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
        line = f"\r\x1b[2K\x1b[?25h{line}"  # clear a progress bar and show the cursor that it hid
    os.write(2, f"{line}\n".encode())
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _anonymous() -> int:
    _, resident, shared, *_ = map(int, _STATM.read_text().split())
    return (resident - shared) * _PAGE


_native = getattr(best, "_compiled", None)
_keep: Callable[[int, str], object] = getattr(_native, "keep", _keep_in_python)
_discard: Callable[[Sequence[str]], object] = getattr(_native, "discard", lambda folders: None)
