"""The command in processes that can be killed: forked from this one, where the libraries are loaded already."""

import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from json import loads
from pathlib import Path

import numpy as np

from benchmarks.endurance.decoys import MINE, Tree

for name in ("cli", "commands.fitting", "commands.writing", "estimators.pca", "model_file", "io.formats.numpy_files"):
    import_module(
        f"shiftsvd.{name}"
    )  # imported here, so that no child has to; nothing is computed here, or it could not fork

PATIENCE = 120.0  # seconds that a command may take


@dataclass(frozen=True)
class Ended:
    """How a command ended: its code, negative for a signal, and what it said."""

    code: int
    said: str
    peak: int  # resident bytes, of which the libraries that were loaded before take a part

    @property
    def traced(self) -> bool:
        """Whether a user would see a traceback, or the process crashed by itself."""
        return "Traceback" in self.said or self.code in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS)


class Command:
    """A command that runs in a process of its own."""

    def __init__(self, line: list[object], log: Path, before: Callable[[], None] = lambda: None) -> None:
        self.log, self.started = log, time.monotonic()
        self.pid = forked(lambda: _run([str(word) for word in line], log, before))

    def kill(self) -> None:
        """End it as a power cut would."""
        os.kill(self.pid, signal.SIGKILL)

    def ended(self, patience: float = PATIENCE) -> Ended:
        """Wait for it, and kill it after so many seconds."""
        while True:
            pid, status, used = os.wait4(self.pid, os.WNOHANG)
            if pid:
                said = self.log.read_text(errors="replace") if self.log.exists() else ""
                return Ended(os.waitstatus_to_exitcode(status), said, 1024 * used.ru_maxrss)
            if time.monotonic() > self.started + patience:
                self.kill()
            time.sleep(0.002)


def forked(work: Callable[[], int]) -> int:
    """The number of a process that does this and ends with the code."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which this process has none of at work
        pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        code = work()
    finally:
        os._exit(code)


def _run(line: list[str], log: Path, before: Callable[[], None]) -> int:
    """The command, with all that it says in a file."""
    from shiftsvd.cli import main

    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    before()
    try:
        main(line, standalone_mode=True)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:  # what a user would see
        import traceback

        traceback.print_exc()
        return 1
    return 0


def small_files(n_bytes: int) -> Callable[[], None]:
    """A disk on which no file can be larger, which fails as a full one does."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))

    return limit


def data(folder: Path) -> dict[str, list[object]]:
    """What to fit: a file that is read in blocks, and one in memory whose reads are worth keeping."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for name, shape in {"streamed": (60_000, 100), "held": (30_000, 150)}.items():
        if not (folder / f"{name}.npy").exists():
            X = rng.standard_normal(shape, np.float32) * np.linspace(3, 1, shape[1], dtype=np.float32)
            np.save(folder / f"{name}.npy", X)
    how = ["--no-report", "--scores", "npy", "--solver", "lanczos", "--threads", "1", "-q", "--tol", "1e-8"]
    memory = {"streamed": "40M", "held": "400M"}
    return {name: ["fit", folder / f"{name}.npy", "-k", 5, "--memory", limit, *how] for name, limit in memory.items()}


def outputs(folder: Path) -> dict[str, str]:
    """Hashes of what a fit has written, but for the result, which has times in it; decoys are left out."""
    if not folder.is_dir():
        return {}
    files = (file for file in sorted(folder.iterdir()) if file.is_file() and file.name != "result.json")
    return {file.name: hash_of(file) for file in files if not file.read_bytes().startswith(MINE)}


def hash_of(file: Path) -> str:
    """SHA-256 of a file."""
    return sha256(file.read_bytes()).hexdigest()


def mixed(folder: Path) -> bool:
    """Whether the files of a folder are not those that its result.json tells of."""
    return loads((folder / "result.json").read_text())["sha256"] != outputs(folder)


def left(home: Path, decoys: Tree | None = None) -> list[str]:
    """Hidden files and folders that nobody works on any more, and that are no decoys."""
    return sorted({str(path.relative_to(home)) for path in home.rglob(".*")} - set(decoys or ()))
