"""Peak memory of PCA where centring would not fit: a tall and a wide sparse matrix, and faces in bytes.

Every case runs in a process of its own. Run: python -m benchmarks.claims.memory [tall] [wide] [faces]
"""

import resource
import subprocess
import sys
import time

import numpy as np

import shiftsvd as ss
from benchmarks.data import uniform

CASES = ("tall", "wide", "faces")


def main(case: str) -> None:
    """Fit, and print what it took."""
    solver: object = "auto"
    if case == "faces":
        X = np.random.default_rng(0).integers(0, 256, (13_233, 62_500), np.uint8)
        k, solver = 10, ss.ShiftedRandomizedSVD()
        data = X.nbytes
    else:
        X = uniform(200_000, 20_000, 4_000_000) if case == "tall" else uniform(330, 2_000_000, 6_600_000)
        k = 50 if case == "tall" else 100
        data = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    started = time.perf_counter()
    pca = ss.PCA(k, solver=solver, random_state=0).fit(X)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{case:6} {X.shape[0]:>9,} x {X.shape[1]:<9,} k = {k:<4} data {data / 1e9:5.2f} GB  as float64 "
        f"{X.shape[0] * X.shape[1] * 8 / 1e9:6.1f} GB  process {before:5.2f} -> {peak:5.2f} GB  "
        f"{seconds:5.1f} s  {type(solver).__name__ if solver != 'auto' else pca.info_.solver.split('(')[0]}"
    )


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--case":
        main(sys.argv[2])
    else:
        for name in sys.argv[1:] or CASES:
            subprocess.run([sys.executable, "-m", "benchmarks.claims.memory", "--case", name], check=True)
