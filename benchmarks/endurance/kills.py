"""Fits that are killed at random moments among decoys and repeated: python -m benchmarks.endurance.kills [KILLS]."""

import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.endurance.commands import Command, data, left, mixed, outputs
from benchmarks.endurance.decoys import lost, plant, tree


def killed(
    line: list[object], home: Path, want: dict[str, str], seconds: float, rng: np.random.Generator
) -> Counter[str]:
    """One fit that is killed once or several times, then left to end; what happened, counted."""
    found: Counter[str] = Counter()
    plant(home, "out", "kept")
    decoys, kept = tree(home), home / "kept"
    run = [*line, "-o", home / "out", "--checkpoint", kept]
    while rng.random() < 0.7 or not found["killed"] + found["ended before"]:
        command = Command(run, home / "log")
        time.sleep(rng.uniform(0, 1.1 * seconds))
        command.kill()
        ended = command.ended()
        found["killed" if ended.code == -9 else "ended before"] += 1
        found["tracebacks"] += ended.traced
        if ended.code == 0:
            shutil.rmtree(home / "out")
        is_run, has_decoys = (kept / "run.json").exists(), (kept / "x.part").exists()
        if is_run and not has_decoys:
            before = tree(kept)
            plant(kept, "run.json", "read-00000.npz")
            decoys |= {f"kept/{name}": what for name, what in tree(kept).items() if name not in before}
        elif has_decoys and not is_run:  # the run had ended but for its exit: decoys alone are no checkpoint
            found["files lost"] += len(lost(decoys, tree(home)))
            shutil.rmtree(kept)
            decoys = {path: what for path, what in decoys.items() if not path.startswith("kept/")}
    found["went on"] += any(kept.glob("read-?????.npz"))
    found["went on with whole outputs"] += (home / "out").exists()
    last = Command([*run, "--force"], home / "log").ended()
    same = last.code == 0 and outputs(home / "out") == want and not mixed(home / "out")
    found["same bits" if same else f"WRONG: {last.code} {last.said[:200]!r}"] += 1
    found["tracebacks"] += last.traced
    found["files lost"] += len(lost(decoys, tree(home)))
    found["hidden files left"] += len(left(home, decoys))
    found["checkpoints left"] += (kept / "run.json").exists() or any(kept.glob("read-?????.npz"))
    return found


def main(n_kills: int, seed: int = 0) -> Counter[str]:
    """So many kills, half of them of a file that is read in blocks, half of one in memory."""
    rng, found = np.random.default_rng(seed), Counter[str]()
    with TemporaryDirectory() as folder:
        for name, line in data(Path(folder) / "data").items():
            home, of_kind = Path(folder) / name, Counter[str]()
            home.mkdir()
            started = time.monotonic()
            assert Command([*line, "-o", home / "whole"], home / "log").ended().code == 0
            seconds, want = time.monotonic() - started, outputs(home / "whole")
            while of_kind["killed"] < n_kills // 2:
                once = home / str(sum(of_kind.values()))
                once.mkdir()
                of_kind += killed(line, once, want, seconds, rng)
                shutil.rmtree(once)
            print(f"{name} ({seconds:.2f} s unbroken): {told(of_kind)}", flush=True)
            found += of_kind
    return found


def told(found: Counter[str]) -> str:
    """Counts in one line."""
    return ", ".join(f"{count} {what}" for what, count in sorted(found.items()) if count) or "nothing"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
