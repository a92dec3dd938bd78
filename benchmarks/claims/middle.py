"""Data of one hundred thousand to ten million entries, as most people have them, beside scikit-learn's ARPACK.

    python -m benchmarks.claims.middle [--rounds N] [--pause SECONDS] [--only NAME ...] [--profile] [--no-peer]

Every row is one line: entries, k, medians of alternating runs in seconds (ARPACK with one BLAS thread and with all, of
which the better counts), their ratio, the largest relative error of a
singular value against ARPACK's at full precision, passes over the data, and the share of the other processes in the
time of the processors. Real sets are read from the folder that SHIFTSVD_TEST_DATA names.
"""

import argparse
import cProfile
import os
import pstats
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean, median

import numpy as np
import sklearn.decomposition
from scipy import sparse
from threadpoolctl import threadpool_limits

import shiftsvd as ss
from benchmarks import data
from benchmarks.places import WORK

REAL = Path(os.environ.get("SHIFTSVD_TEST_DATA", "."))


def log_normalised(X: sparse.csr_array) -> sparse.csr_array:
    """Counts per ten thousand, as log1p, in float32."""
    X = sparse.csr_array(X, dtype=np.float32)
    X.data = np.log1p(X.data * np.repeat(1e4 / np.maximum(X.sum(axis=1), 1), np.diff(X.indptr))).astype(np.float32)
    return X


def stored(name: str) -> sparse.csr_array:
    """One of the real sets."""
    return sparse.csr_array(sparse.load_npz(REAL / f"{STORED[name]}.npz"))


def power_law(rows: int, columns: int, entries: int, powers: tuple[float, float], seed: int = 0) -> sparse.csr_array:
    """Feedback: places drawn by margins that fall like a power, in groups of rows with tastes of their own."""
    rng = np.random.default_rng(seed)
    i = rng.choice(rows, entries, p=_margin(rows, powers[0]))
    rank = np.arange(columns)
    groups = 40
    j = np.empty(entries, np.int64)
    for g in range(groups):
        here = np.flatnonzero(i % groups == g)
        order = np.argsort(rank * rng.lognormal(0, 1.5, columns))
        j[here] = order[rng.choice(columns, len(here), p=_margin(columns, powers[1]))]
    X = sparse.coo_array((np.ones(entries, np.float32), (i, j)), shape=(rows, columns)).tocsr()
    X.data = np.log1p(X.data)
    return X


def _margin(size: int, power: float) -> np.ndarray:
    """Shares that fall like (10 + rank)^-power."""
    share = (10 + np.arange(size)) ** -power
    return share / share.sum()


def ratings(rows: int, columns: int, entries: int, seed: int = 0) -> sparse.csr_array:
    """Marks of one to five."""
    X = power_law(rows, columns, entries, (0.6, 0.8), seed)
    rng = np.random.default_rng(seed + 1)
    taste = rng.standard_normal((rows, 8)) @ rng.standard_normal((8, columns)) / 4
    i, j = X.nonzero()
    X.data = np.clip(np.round(3.6 + taste[i, j] + rng.standard_normal(len(i))), 1, 5).astype(np.float32)
    return X


def word_counts(rows: int, columns: int, entries: int, seed: int = 0) -> sparse.csr_array:
    """Counts of words in documents, float64."""
    rng = np.random.default_rng(seed)
    length = rng.lognormal(0, 0.8, rows)
    topic, parts = rng.integers(0, 60, rows), []
    for t in range(60):
        here = np.flatnonzero(topic == t)
        p = _margin(columns, 1.0) * rng.lognormal(0, 1.2, columns)
        words = rng.choice(columns, int(1.6 * entries * length[here].sum() / length.sum()), p=p / p.sum())
        documents = rng.choice(here, len(words), p=length[here] / length[here].sum())
        parts.append(sparse.coo_array((np.ones(len(words)), (documents, words)), shape=(rows, columns)).tocsr())
    return sparse.csr_array(sum(parts[1:], parts[0]))


SETS: dict[str, tuple[int, Callable[[], object]]] = {
    "counts3": (50, lambda: data.counts(3_000)),
    "counts10": (50, lambda: data.counts(10_000)),
    "counts30": (50, lambda: data.counts(30_000)),
    "counts60": (50, lambda: data.counts(60_000)),
    "cells50": (50, lambda: data.counts(4_000, 14_000, seed=3, level=0.03)),
    "cells20": (20, lambda: data.counts(4_000, 14_000, seed=3, level=0.03)),
    "chosen20": (20, lambda: data.counts(5_700, 2_000, seed=4)),
    "pbmc10k": (50, lambda: log_normalised(stored("pbmc10k"))),
    "bladder": (50, lambda: log_normalised(stored("bladder"))),
    "yelp": (50, lambda: sparse.csr_array(stored("yelp"), dtype=np.float32)),
    "feedback": (50, lambda: power_law(50_000, 90_000, 1_000_000, (0.5, 0.9))),
    "ratings": (50, lambda: ratings(6_000, 4_000, 1_000_000)),
    "words64": (100, lambda: word_counts(19_000, 76_000, 2_000_000)),
    "dense": (50, lambda: np.random.default_rng(5).random((1000, 60)) @ np.random.default_rng(6).random((60, 500))
              + np.random.default_rng(7).standard_normal((1000, 500))),
}  # fmt: skip


STORED = {"pbmc10k": "pbmc10k_counts", "bladder": "bladder_counts", "yelp": "yelp_checkins"}


def available() -> dict[str, tuple[int, Callable[[], object]]]:
    """The sets that can be made here: without the real ones where their files are not there."""
    return {name: of for name, of in SETS.items() if name not in STORED or (REAL / f"{STORED[name]}.npz").exists()}


def timed(fit: Callable[[], object], pause: float = 0.0) -> tuple[float, object]:
    """Seconds, and what came of it, after a pause in which the threads of another library fall asleep."""
    time.sleep(pause)
    start = time.perf_counter()
    out = fit()
    return time.perf_counter() - start, out


def busy() -> tuple[float, float]:
    """Seconds of all processors that were not idle, and those of this process."""
    user, nice, system = (int(t) / os.sysconf("SC_CLK_TCK") for t in Path("/proc/stat").read_text().split()[1:4])
    here = os.times()
    return user + nice + system, here.user + here.system


def main() -> None:
    """Time the sets, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each, of which the median is printed")
    parser.add_argument("--only", nargs="*", default=list(available()), metavar="NAME", help=", ".join(SETS))
    parser.add_argument("--pause", type=float, default=0.2, help="seconds before each run")
    parser.add_argument("--tol", type=float, default=1e-4)
    parser.add_argument("--no-peer", action="store_true", help="leave ARPACK out after the first run, which is kept")
    parser.add_argument("--profile", action="store_true", help="show where the time of a further run goes")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    kept = place()
    print(f"{'':10}{'entries':>10}{'k':>5}{'ARPACK':>9}{'ours':>9}{'ratio':>7}{'error':>9}{'passes':>7}{'others':>8}")
    ratios = []
    for name in args.only:
        k, make = SETS[name]
        X = loaded(kept, name, make)
        ours = lambda X=X, k=k: ss.PCA(k, random_state=0, tol=args.tol).fit(X)  # noqa: E731
        peer = lambda X=X, k=k: sklearn.decomposition.PCA(k, svd_solver="arpack", random_state=0).fit(X)  # noqa: E731
        ours()
        file = kept / f"{name}-{k}.npy"
        if not file.exists():
            exact = sklearn.decomposition.PCA(k, svd_solver="arpack", tol=1e-12, random_state=0).fit(
                X.astype(np.float64)
            )
            np.save(file, exact.singular_values_)
        exact, mine, theirs, alone = np.load(file), [], [], []
        all_before, here_before = busy()
        for _ in range(args.rounds):
            if not args.no_peer:
                theirs.append(timed(peer, args.pause)[0])
                with threadpool_limits(1, "blas"):
                    alone.append(timed(peer, args.pause)[0])
            seconds, fit = timed(ours, args.pause)
            mine.append(seconds)
        all_after, here_after = busy()
        others = (all_after - all_before) / max(here_after - here_before, 0.01) - 1
        error = float(np.max(np.abs(fit.singular_values_ - exact) / exact))
        first = min(median(theirs), median(alone)) if theirs else np.nan
        ratio = first / median(mine)
        ratios.append(ratio)
        entries = X.nnz if sparse.issparse(X) else X.size
        print(
            f"{name:10}{entries:>10}{k:>5}{first:>9.3f}{median(mine):>9.4f}{ratio:>7.2f}{error:>9.1e}"
            f"{fit.info_.n_passes:>7}{max(others, 0):>8.0%}",
            flush=True,
        )
        if args.profile:
            profile = cProfile.Profile()
            profile.runcall(ours)
            pstats.Stats(profile).sort_stats("tottime").print_stats(22)
    if len(ratios) > 1 and not args.no_peer:
        print(f"geometric mean {geometric_mean(ratios):.2f}, least {min(ratios):.2f}")


def place() -> Path:
    """The folder where sets are kept."""
    kept = WORK / "middle"
    kept.mkdir(parents=True, exist_ok=True)
    return kept


def loaded(kept: Path, name: str, make: Callable[[], object]) -> object:
    """A set, kept in a file once it was made."""
    if name == "dense":
        return make()
    file = kept / f"{name}.npz"
    if not file.exists():
        sparse.save_npz(file, make(), compressed=False)
    return sparse.csr_array(sparse.load_npz(file))


if __name__ == "__main__":
    main()
