"""Memory: sizes as people write them, what is free, and what may be taken."""

import os

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def parse_bytes(size: int | float | str) -> int:
    """Bytes from a number or a text such as "800MB" or "1.5GB"."""
    if isinstance(size, str):
        text = size.strip().upper().removesuffix("B").removesuffix("I")
        unit = text[-1:] if text[-1:] in _UNITS else ""
        try:
            size = float(text.removesuffix(unit)) * _UNITS[unit]
        except ValueError:
            raise ValueError(f'memory_limit must be bytes or a text such as "2GB", got {size!r}') from None
    if not size > 0:
        raise ValueError(f"memory_limit must be positive, got {size!r}")
    return int(size)


def available_memory() -> int | None:
    """Bytes of memory that are free to use now, if the system tells."""
    try:
        with open("/proc/meminfo") as lines:
            free = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        return free.get("MemAvailable")
    except OSError:
        pages = getattr(os, "sysconf", lambda name: -1)("SC_PHYS_PAGES")
        return int(pages * os.sysconf("SC_PAGE_SIZE")) if pages > 0 else None


def limit_of(memory_limit: int | str | None) -> int | None:
    """Bytes that may be taken: the limit, else half of the available memory, if the system tells."""
    free = available_memory()
    return parse_bytes(memory_limit) if memory_limit is not None else free and free // 2


def spare(needed: float, memory_limit: int | str | None) -> bool:
    """Whether a copy that would be welcome may be made."""
    limit = limit_of(memory_limit)
    return limit is None or needed <= limit


def affordable(needed: int, memory_limit: int | str | None, what: str) -> None:
    """Refuse a step that would pass the memory limit (default: half of the available memory)."""
    limit = limit_of(memory_limit)
    if limit is not None and needed > limit:
        raise ValueError(
            f"{what} needs about {needed / 1e9:.3g} GB, more than the limit of {limit / 1e9:.3g} GB; "
            "raise memory_limit or ask for fewer components"
        )
