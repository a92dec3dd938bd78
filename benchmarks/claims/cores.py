"""What more cores would give: fits on one thread and on two, the serial share by Amdahl's law, and what follows.

    python -m benchmarks.claims.cores [--only NAME ...] [--rounds N]

The runs on one thread and on two take turns; medians. With T1 and T2 seconds, the share that does not divide is
``s = 2 T2 / T1 - 1``, and p cores take ``T1 (s + (1 - s) / p)``. That is a law and not a run: bandwidth that the cores
share counts as serial here, and more sockets have more of it; blocks of rows that are too few for p cores do not count.
"""

import argparse
import warnings
from statistics import median

import shiftsvd as ss
from benchmarks.claims.middle import available, busy, loaded, place, timed

NAMES = ("counts3", "counts10", "counts60", "chosen20", "pbmc10k", "yelp", "words64")
CORES = (2, 16, 64)


def main() -> None:
    """Print a line for each set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    sets = available()
    print(f"{'':10}{'T1':>9}{'T2':>9}{'serial':>8}" + "".join(f"{f'x{p}':>7}" for p in CORES) + f"{'others':>8}")
    for name in (name for name in args.only if name in sets):
        k, make = sets[name]
        X = loaded(place(), name, make)
        times: dict[int, list[float]] = {1: [], 2: []}
        all_before, here_before = busy()
        for turn in range(args.rounds + 1):
            for n_threads, found in times.items():
                pca = ss.PCA(k, random_state=0, n_threads=n_threads)
                seconds, _ = timed(lambda pca=pca, X=X: pca.fit(X))
                if turn:
                    found.append(seconds)
        all_after, here_after = busy()
        one, two = median(times[1]), median(times[2])
        serial = min(max(2 * two / one - 1, 0.0), 1.0)
        speeds = "".join(f"{1 / (serial + (1 - serial) / p):>7.1f}" for p in CORES)
        others = max((all_after - all_before) / max(here_after - here_before, 0.01) - 1, 0)
        print(f"{name:10}{one:>9.4f}{two:>9.4f}{serial:>8.0%}{speeds}{others:>8.0%}", flush=True)


if __name__ == "__main__":
    main()
