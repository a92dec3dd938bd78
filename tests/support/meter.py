"""The memory of a child process: what it takes for itself, looked at from outside every few milliseconds."""

import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

EVERY = 0.004  # seconds between looks
READY = b"ready"  # what a child writes on stdout where the looks begin to count


@dataclass(frozen=True)
class Measured:
    """How a process ended, and the most anonymous memory that it had: once it was ready, and at that moment."""

    code: int
    peak: int
    before: int
    out: str
    err: str

    @property
    def growth(self) -> int:
        """Bytes beyond what it had when it was ready."""
        return self.peak - self.before

    @property
    def refused(self) -> bool:
        """Whether it ended with an error that it had a word for."""
        return self.code in (1, 2) and "Traceback" not in self.err


def anonymous(pid: int) -> int:
    """Bytes of a process that are no file's: arrays, stacks, what libraries allocate; 0 once it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * next((int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)


def measured(command: Sequence[Any], stop: int | None = None) -> Measured:
    """Run a command and look at it; past `stop` bytes of data it gets no more memory."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (stop or resource.RLIM_INFINITY,) * 2)

    words = [str(word) for word in command]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=limited) as child:
        told = [b"", b""]
        marks = [0, 0]  # the peak, and what there was when the child was ready

        def listen() -> None:
            assert child.stdout is not None
            for line in child.stdout:
                if line.strip() == READY:
                    marks[:] = [anonymous(child.pid)] * 2
                else:
                    told[0] += line

        def hear() -> None:
            assert child.stderr is not None
            told[1] = child.stderr.read()

        threads = [Thread(target=listen), Thread(target=hear)]
        for thread in threads:
            thread.start()
        while child.poll() is None:
            marks[0] = max(marks[0], anonymous(child.pid))
            time.sleep(EVERY)
        for thread in threads:
            thread.join()
    return Measured(child.returncode, marks[0], marks[1], told[0].decode(), told[1].decode())


PRELUDE = """
import ctypes, sys, time
def ready():
    ctypes.CDLL(None).malloc_trim(0)
    print("ready", flush=True)
    time.sleep(0.03)
"""


def measured_python(code: str, *words: Any, stop: int | None = None) -> Measured:
    """Run Python that calls `ready()` where what it takes begins to count."""
    return measured([sys.executable, "-c", PRELUDE + code, *words], stop)
