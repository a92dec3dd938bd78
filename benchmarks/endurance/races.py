"""Two commands at once in one folder, among decoys: python -m benchmarks.endurance.races [RACES]."""

import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.endurance.commands import Command, data, left, mixed, outputs
from benchmarks.endurance.decoys import lost, plant, tree
from benchmarks.endurance.kills import told

KINDS = ("one new folder", "one folder that is there", "one checkpoint", "one folder with transform")
REFUSED = ("is in use by process", "exists. Use --force", "is in use by another process")


def main(n: int, seed: int = 0) -> Counter[str]:
    """So many races, of each kind as many."""
    rng, found = np.random.default_rng(seed), Counter[str]()
    with TemporaryDirectory() as folder:
        home = Path(folder)
        line = data(home / "data")["streamed"]
        lines = [[*line, "--seed", seed] for seed in (1, 2)]
        started, want = time.monotonic(), []
        for i, each in enumerate(lines):
            assert Command([*each, "-o", home / f"whole{i}"], home / "log").ended().code == 0
            want.append(outputs(home / f"whole{i}"))
        seconds = (time.monotonic() - started) / 2
        for number in range(n):
            (home / "once").mkdir()
            found += race(KINDS[number % len(KINDS)], lines, home / "once", want, seconds, rng)
            shutil.rmtree(home / "once")
    print(told(found), flush=True)
    return found


def race(
    kind: str,
    lines: list[list[object]],
    home: Path,
    want: list[dict[str, str]],
    seconds: float,
    rng: np.random.Generator,
) -> Counter[str]:
    """One race of two commands; what came of it, counted."""
    one, two = ([*line, "-o", home / "out"] for line in lines)
    plant(home, "out", "kept", "other")
    if kind == "one folder that is there":
        Command(one, home / "log").ended()
        plant(home / "out", *outputs(home / "out"))
        one, two = [*one, "--force"], [*two, "--force"]
    elif kind == "one checkpoint":
        one, two = ([*lines[0], "-o", home / name, "--checkpoint", home / "kept"] for name in ("out", "other"))
        want = [want[0], want[0]]
    elif kind == "one folder with transform":
        model = home.parent / "whole0" / "model.safetensors"
        two = ["transform", model, lines[0][1], "-o", home / "out" / "scores.npy", "--memory", "400M", "-q"]
    names = {home / "out" / name for name in ("result.json", *outputs(home / "out"))}
    decoys = {path: what for path, what in tree(home).items() if home / path not in names}
    commands = [Command(one, home / "log1")]
    time.sleep(rng.choice([0, rng.uniform(0, seconds)]))
    commands.append(Command(two, home / "log2"))
    ended = [command.ended() for command in commands]
    found = Counter(f"ended {sorted(each.code for each in ended)}" for _ in range(1))
    losers = [each for each in ended if each.code]
    clear = all(each.code == 1 and any(said in each.said for said in REFUSED) for each in losers)
    found["losers with a clear line"] += len(losers) if clear else 0
    found["tracebacks"] += sum(each.traced for each in ended)
    found["files lost"] += len(lost(decoys, tree(home)))
    found["hidden files left"] += len(left(home, decoys))
    if not clear or len(losers) == 2 or not of_one_run(kind, home, want, ended[0].code == 0):
        found[f"WRONG: {kind}: {[(each.code, each.said[-200:]) for each in ended]}"] += 1
    return found


def of_one_run(kind: str, home: Path, want: list[dict[str, str]], first: bool) -> bool:
    """Whether every folder holds the files of one run."""
    if kind == "one folder with transform" and not first:
        return [file.name for file in (home / "out").iterdir()] == ["scores.npy"]
    folders = [folder for folder in (home / "out", home / "other") if folder.exists()]
    return all(outputs(folder) in want and not mixed(folder) for folder in folders)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
