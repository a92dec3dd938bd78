"""Memory: sizes as people write them, what is free, what may be taken, and how much a process has grown."""

import ctypes
import math
import os
import sys
from dataclasses import dataclass

from shiftsvd.kernels import thread_count

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
# Bytes of its own memory that the command takes whatever the data are: its packages, and those of formats and reports
# (benchmarks/claims/memory_promises.py).
PROGRAM = 150_000_000
MOST = 2**14  # bytes that are read of what the system tells: all of a process, and the first lines of the memory


def parse_bytes(size: int | float | str) -> int:
    if isinstance(size, str):
        text = size.strip().upper().removesuffix("B").removesuffix("I")
        unit = text[-1:] if text[-1:] in _UNITS else ""
        try:
            size = float(text.removesuffix(unit)) * _UNITS[unit]
        except ValueError:
            raise ValueError(f'memory_limit must be bytes or a text such as "2GB", got {size!r}') from None
    if not size > 0:
        raise ValueError(f"memory_limit must be positive, got {size!r}")
    return int(min(size, sys.maxsize))  # inf is no limit


def shown_bytes(n_bytes: float, digits: int = 3) -> str:
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= factor:
            size = f"{n_bytes / factor:.{digits}g}"
            return f"{n_bytes / factor:,.0f} {unit}" if "e" in size else f"{size} {unit}"
    return f"{n_bytes:.0f} bytes"


def beyond(needed: float, limit: int) -> str:
    for digits in range(3, 9):
        unit = 10.0 ** (math.floor(math.log10(max(needed, 1))) + 1 - digits)
        enough = math.ceil(needed / unit) * unit if unit > 1 else needed
        if shown_bytes(enough, digits) != shown_bytes(limit, digits):
            break
    return f"{shown_bytes(enough, digits)}, more than the limit of {shown_bytes(limit, digits)}"


def available_memory() -> int | None:
    try:
        (free,) = _kilobytes("/proc/meminfo", "MemAvailable")
        return None if free is None else free * 1024
    except OSError:
        pages = getattr(os, "sysconf", lambda name: -1)("SC_PHYS_PAGES")
        return int(pages * os.sysconf("SC_PAGE_SIZE")) if pages > 0 else None


def limit_of(memory_limit: int | str | None) -> int | None:
    if memory_limit is not None:
        return parse_bytes(memory_limit)
    free = available_memory()
    return free and min(free // 2, *_most_by_default)


_most_by_default: list[int] = [2**63 - 1]


def limit_by_default(limit: int) -> None:
    _most_by_default[:] = [limit]


def spare(needed: float, memory_limit: int | str | None) -> bool:
    limit = limit_of(memory_limit)
    return limit is None or needed <= limit


class OverLimit(ValueError):
    """More memory is needed than the limit allows."""

    def __init__(self, needed: int, limit: int, what: str, fewer: str) -> None:
        super().__init__(f"{what} needs about {beyond(needed, limit)}; raise memory_limit or ask for fewer {fewer}")
        self.needed, self.limit, self.what, self.fewer = needed, limit, what, fewer

    def beside(self, held: int) -> "OverLimit":
        return OverLimit(self.needed + held, self.limit + held, self.what, self.fewer)


def affordable(needed: int, memory_limit: int | str | None, what: str, fewer: str = "components") -> None:
    limit = limit_of(memory_limit)
    if limit is not None and needed > limit:
        raise OverLimit(needed, limit, what, fewer)


@dataclass(frozen=True)
class Resources:
    """What a caller lets a run take, as it was given; threads that there cannot be are refused.

    Public functions have arguments of these two names: ``as_operator(X, **vars(resources))``.
    """

    memory_limit: int | str | None = None
    n_threads: int | None = None

    def __post_init__(self) -> None:
        thread_count(self.n_threads)


class MemoryWatch:
    """Growth of the resident memory since the start, where the system tells."""

    def __init__(self) -> None:
        self._start, self._largest = _of_process("VmRSS", "VmHWM")

    def growth(self) -> int | None:
        (peak,) = _of_process("VmHWM")
        if self._start is None or self._largest is None or peak is None or peak <= self._largest:
            return None
        return (peak - self._start) * 1024

    def passed(self) -> int:
        (now,), growth = _of_process("VmRSS"), self.growth()
        if now is None or growth is None or self._start is None:
            return 0
        return max(growth - (now - self._start) * 1024, 0)


def peak_bytes() -> int | None:
    (peak,) = _of_process("VmHWM")
    return None if peak is None else peak * 1024


def own_bytes() -> int | None:
    (own,) = _of_process("RssAnon")
    return None if own is None else own * 1024


def release() -> None:
    """Give memory that was freed back to the system, which the allocators of C and of Arrow keep for later use.

    Without it each stage of a command would begin with what the largest one before it has left behind.
    """
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
    file = os.open(path, os.O_RDONLY)
    try:
        text = b"\n" + os.read(file, MOST)
    finally:
        os.close(file)
    found = (text.partition(f"\n{name}:".encode())[2].split(maxsplit=1) for name in names)
    return [int(words[0]) if words else None for words in found]
