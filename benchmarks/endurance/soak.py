"""Random fits for so many minutes, whatever happens to them: python -m benchmarks.endurance.soak [MINUTES] [SEED]."""

import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.endurance import damage, kills, races
from benchmarks.endurance.commands import Command, data, forked, left, mixed, outputs, small_files
from benchmarks.endurance.kills import told

THREADS = 3
LEAST = 4096  # bytes that files may have on a full disk: what the command says has to fit
FULL = ("has no room for the checkpoint", "cannot be written: File too large")


def main(minutes: float, seed: int) -> Counter[str]:
    """Threads that fit in one long process, beside others that are killed, race and fill disks; one line of it all."""
    rng, found = np.random.default_rng(seed), Counter[str]()
    with TemporaryDirectory() as folder:
        home = Path(folder)
        end = time.monotonic() + 60 * minutes
        fitting = forked(lambda: fits(home / "watched.json", end, seed))
        lines = data(home / "data")
        unbroken = {name: whole(line, home / name) for name, line in lines.items()}
        while time.monotonic() < end:
            name = str(rng.choice(list(lines)))
            want, seconds = unbroken[name]
            once = home / "once"
            once.mkdir()
            action = rng.integers(4)
            if action == 0:
                found += kills.killed(lines[name], once, want, seconds, rng)
            elif action == 1:
                found += filled(lines[name], once, want, int(rng.integers(LEAST, 60_000)))
            elif action == 2:
                pair = [lines[name], lines[name]]
                found += races.race(races.KINDS[rng.integers(3)], pair, once, [want, want], seconds, rng)
            else:
                found += broken(once, lines["streamed"], unbroken["streamed"][0], rng)
            shutil.rmtree(once)
        found["WRONG: the process of threads was killed"] += os.waitpid(fitting, 0)[1] != 0
        found += Counter(json.loads((home / "watched.json").read_text()))
    print(f"{minutes:g} minutes: {told(found)}", flush=True)
    return found


def whole(line: list[object], home: Path) -> tuple[dict[str, str], float]:
    """What an unbroken run writes, and its seconds."""
    home.mkdir()
    started = time.monotonic()
    assert Command([*line, "-o", home / "whole"], home / "log").ended().code == 0
    return outputs(home / "whole"), time.monotonic() - started


def filled(line: list[object], home: Path, want: dict[str, str], n_bytes: int) -> Counter[str]:
    """One fit on a disk that is full at some file, and again where there is room."""
    run = [*line, "-o", home / "out", "--checkpoint", home / "kept"]
    ended, found = Command(run, home / "log", small_files(n_bytes)).ended(), Counter(disks=1)
    named = ended.code == 1 and any(said in ended.said for said in FULL) and not (home / "out").exists()
    found["disks that were full"] += named
    if not named and ended.code != 0:
        found[f"WRONG: a full disk: {ended.code} {ended.said[-200:]!r}"] += 1
    again = Command([*run, "--force"], home / "log").ended()
    same = again.code == 0 and outputs(home / "out") == want and not mixed(home / "out")
    found["same bits" if same else f"WRONG: after a full disk: {again.code} {again.said[-200:]!r}"] += 1
    found["tracebacks"] += ended.traced + again.traced
    found["hidden files left"] += len(left(home))
    return found


def broken(home: Path, line: list[object], want: dict[str, str], rng: np.random.Generator) -> Counter[str]:
    """One damaged checkpoint of a random class."""
    damage.broken_off(line, home)
    return damage.damaged(str(rng.choice(list(damage.CLASSES))), line, home, want, rng)


# ---- one long process


def fits(to: Path, end: float, seed: int) -> int:
    """Random fits in random threads of one process until the end; what grew meanwhile, and how many bits differed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    known: dict[int, str] = {}
    n_fits = n_differing = 0
    rng, before, memory = np.random.default_rng(seed), None, []
    while time.monotonic() < end or before is None:
        asked = [int(number) for number in rng.integers(0, 24, THREADS)]
        with ThreadPoolExecutor(THREADS) as pool:
            for which, bits in zip(asked, pool.map(fit_of, asked), strict=True):
                n_fits += 1
                n_differing += known.setdefault(which, bits) != bits
        memory.append(used()[0])
        if before is None and len(known) == 24:  # everything was done once
            before, memory = used(), memory[-1:]
    after = used()
    grown = {
        "fits in threads": n_fits,
        "WRONG: fits with other bits": n_differing,
        "handles more at the end": max(0, after[1] - before[1]),
        "threads more at the end": max(0, after[2] - before[2]),
        "kB grown": max(0, after[0] - before[0]),
        "kB at most above the first": max(memory) - before[0],
    }
    to.write_text(json.dumps(grown))
    return 0


def fit_of(which: int) -> str:
    """One of some fits, told by its bits: a solver, a container and a number of threads each."""
    import shiftsvd as ss

    rng = np.random.default_rng(which % 6)
    X: Any = rng.poisson(0.5, (400 + 100 * (which % 3), 60)).astype(np.float32 if which % 2 else np.float64)
    X = sparse.csr_array(X) if which % 4 < 2 else X
    solver = ("lanczos", "gram", "randomized", "exact")[which % 4]
    how: dict[str, Any] = {"solver": solver, "random_state": which, "n_threads": 1 + which % 3}
    if which % 5 == 0:
        how["preprocess"] = ss.LogNormalize()
    pca = ss.PCA(4, **how).fit(X)
    parts = pca.components_, pca.singular_values_, pca.transform(X)
    return blake2b(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


def used() -> tuple[int, int, int]:
    """(kB of resident memory, open handles, threads) of this process."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]), len(os.listdir("/proc/self/fd")), int(status["Threads"])


if __name__ == "__main__":
    given = [float(word) for word in sys.argv[1:]]
    counts = main(given[0] if given else 10, int(given[1]) if len(given) > 1 else 0)
    sys.exit(any(count for what, count in counts.items() if what.startswith(("WRONG", "tracebacks"))))
