"""Multiple correspondence analysis of many rows: time and peak memory, ours and prince's.

Categories follow a Zipf law and depend on three hidden traits. Every case runs in a process of its own, prince's with
a limit of its memory. Run: python -m benchmarks.claims.categories [rows] [columns] [categories a column]
"""

import resource
import subprocess
import sys
import time

import numpy as np
import pandas as pd

LIMIT = 8e9  # bytes of address space that prince may take
SECONDS = 600


def survey(m: int, n: int, per_column: int) -> pd.DataFrame:
    """Answers of m people to n questions of `per_column` answers each."""
    rng = np.random.default_rng(0)
    traits = rng.standard_normal((m, 3)).astype(np.float32)
    answers = {}
    for j in range(n):
        lean = traits @ rng.standard_normal(3).astype(np.float32) + rng.standard_normal(m, dtype=np.float32)
        edges = np.quantile(lean[:10_000], np.cumsum(1 / np.arange(1, per_column + 1))[:-1] / _harmonic(per_column))
        codes = np.searchsorted(edges.astype(np.float32), lean).astype(np.int8)
        answers[f"q{j}"] = pd.Categorical.from_codes(codes, [f"a{i}" for i in range(per_column)])
    return pd.DataFrame(answers)


def _harmonic(n: int) -> float:
    return float(np.sum(1 / np.arange(1, n + 1)))


def fit(who: str, X: pd.DataFrame) -> np.ndarray:
    """Five eigenvalues."""
    if who == "shiftsvd":
        import shiftsvd as ss

        return ss.MultipleCorrespondenceAnalysis(5, random_state=0).fit(X).eigenvalues_
    import prince

    resource.setrlimit(resource.RLIMIT_AS, (int(LIMIT), int(LIMIT)))
    return prince.MCA(n_components=5, random_state=0).fit(X).eigenvalues_


def case(who: str, m: int, n: int, per_column: int) -> None:
    """One line of the table."""
    X = survey(m, n, per_column)
    before, started = _peak(), time.perf_counter()
    try:
        found = " ".join(f"{value:.6f}" for value in fit(who, X))
    except ImportError:
        found = "not installed"
    except MemoryError as error:
        found = f"MemoryError within {LIMIT / 1e9:.0f} GB: {str(error).splitlines()[0]}"
    seconds = time.perf_counter() - started
    print(f"{who:9} {m:>9,} x {n} ({n * per_column:,}) {seconds:6.1f} s  {before:.2f} -> {_peak():.2f} GB  {found}")


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    if sys.argv[1:2] == ["--case"]:
        case(sys.argv[2], *map(int, sys.argv[3:]))
    else:
        size = (sys.argv[1:] + ["1000000", "40", "25"][len(sys.argv) - 1 :])[:3]
        for name in ("shiftsvd", "prince"):
            command = [sys.executable, "-W", "ignore", "-m", "benchmarks.claims.categories", "--case", name, *size]
            try:
                subprocess.run(command, check=False, timeout=SECONDS)
            except subprocess.TimeoutExpired:
                print(f"{name:9} stopped after {SECONDS} s")
