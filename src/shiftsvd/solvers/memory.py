"""How much a process has grown while something ran."""

from pathlib import Path


class MemoryWatch:
    """Growth of the resident memory since the start, where the system tells."""

    def __init__(self) -> None:
        self._start, self._largest = _kilobytes("VmRSS", "VmHWM")

    def growth(self) -> int | None:
        """Bytes by which the peak is above the start; None where an earlier peak hides it."""
        (peak,) = _kilobytes("VmHWM")
        if self._start is None or self._largest is None or peak is None or peak <= self._largest:
            return None
        return (peak - self._start) * 1024


def _kilobytes(*names: str) -> list[int | None]:
    """Lines of the process status."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return [None] * len(names)
    return [next((int(line.split()[1]) for line in lines if line.startswith(name + ":")), None) for name in names]
