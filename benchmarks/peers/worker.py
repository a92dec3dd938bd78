"""One run of one contestant, in a process of its own: prints what it took and how wrong it is.

Needs NumPy, SciPy and the peer only. For the processes that `run.py` starts.
"""

import json
import os
import resource
import signal
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from benchmarks.peers.contestants import CONTESTANTS
from benchmarks.peers.errors import angle, load, value_error

CAP = 600  # seconds that a contestant may take
MEMORY = 18 * 2**30  # bytes
BRIEF = 0.2  # seconds: shorter runs are repeated for as long, and the median is taken


def main(job: dict) -> dict:
    """Run it on the file, and compare with the reference."""
    contestant = CONTESTANTS[job["contestant"]]
    X, k, settings = load(job["file"]), job["k"], job["settings"]
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    warm_up(contestant, X, settings)
    forget_peak()
    before = status("VmRSS")
    signal.alarm(CAP)  # ends the process: no Python code has a say while a library computes
    answer, seconds, cpu = timed(contestant, X, k, settings)
    megabytes = (status("VmHWM") - before) / 1024
    wall, cpus = [seconds], [cpu]
    while sum(wall) < BRIEF:
        _, seconds, cpu = timed(contestant, X, k, settings)
        wall.append(seconds)
        cpus.append(cpu)
    signal.alarm(0)
    reference = np.load(Path(job["reference"]) / "values.npz")
    noise = max(X.shape) * np.finfo(float).eps
    return {
        "seconds": float(np.median(wall)),
        "cpu": float(np.mean(cpus)),
        "megabytes": megabytes,
        "passes": answer.passes,
        "converged": None if answer.converged is None else bool(answer.converged),
        "value_error": value_error(answer.values, reference["centred"], noise),
        "uncentred_error": value_error(answer.values, reference["uncentred"], noise),
        "angle": angle(answer.components, Path(job["reference"]) / "components.npy", reference["centred"], noise),
        "version": release(contestant.environment or "shiftsvd"),
    }


def timed(contestant, X, k: int, settings: dict):
    """The answer, wall seconds, CPU seconds of this process and its children."""
    cpu, started = sum(os.times()[:4]), time.perf_counter()
    answer = contestant.run(X, k, **settings)
    return answer, time.perf_counter() - started, sum(os.times()[:4]) - cpu


def warm_up(contestant, X, settings: dict) -> None:
    """Import what is imported late, start threads: on a small, easy matrix of the same kind."""
    small = (np.random.default_rng(0).standard_normal((200, 60)) * 0.8 ** np.arange(60)).astype(X.dtype)
    contestant.run(small if isinstance(X, np.ndarray) else csr_array(small), 3, **settings)


def forget_peak() -> None:
    """Reading a file takes more than it leaves: let the peak begin here (Linux)."""
    if Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5")


def status(name: str) -> int:
    """Kilobytes from the process status (Linux; 0 elsewhere)."""
    file = Path("/proc/self/status")
    lines = file.read_text().splitlines() if file.exists() else []
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)


def release(package: str) -> str:
    """The installed version."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
