"""Files beside runs that are killed, and that race: python -m benchmarks.claims.files [KILLS] [RACES] [SEED]."""

import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from benchmarks.endurance import kills, races

BAD = ("WRONG", "tracebacks", "files lost", "hidden files left", "checkpoints left")


def main(n_kills: int = 200, n_races: int = 100, seed: int = 0) -> Counter[str]:
    """Run both beside each other; print what came of them, then the counts in one line."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:  # each forks commands of its own
        killed, raced = (pool.submit(work.main, n, seed) for work, n in ((kills, n_kills), (races, n_races)))
        found = killed.result() + raced.result()
    bad = sum(count for what, count in found.items() if what.startswith(BAD[0]))
    rest = ", ".join(f"{found[what]} {what}" for what in BAD[1:])
    print(f"{found['killed']} kills, {n_races} races, {rest}, {bad} wrong", flush=True)
    return found


if __name__ == "__main__":
    counts = main(*(int(word) for word in sys.argv[1:]))
    sys.exit(any(count for what, count in counts.items() if what.startswith(BAD)))
