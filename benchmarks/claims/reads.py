"""What reading costs: seconds of a byte of an .h5ad file by its compression, and fits by two solvers that read it.

    python -m benchmarks.claims.reads          # 40,000 x 2,000 counts; fewer rows: benchmarks.claims.reads 10000

A byte counts once for each product; the time of the same product in memory is subtracted, and one thread reads. The
constants FILE of `solvers/cost.py` and GRAM_SIDE_OF_FILES of `solvers/constants.py` follow from this table.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import anndata
import numpy as np

import shiftsvd as ss
from benchmarks import data
from shiftsvd.io import open_matrix
from shiftsvd.kernels import threads

ROUNDS = 3


def quickest(work: Callable[[], object]) -> float:
    """The least seconds of some rounds."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main(rows: int = 40_000) -> None:
    """Print a line for each compression."""
    X, V = data.counts(rows), np.random.default_rng(0).standard_normal((2000, 8)).astype(np.float32)
    memory = ss.as_operator(X)
    with threads(1):
        without = quickest(lambda: memory.gram(V))
    print(f"{'compression':12}{'ns a byte':>10}{'Lanczos, s':>12}{'passes':>8}{'Gram, s':>9}{'passes':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for compression in (None, "gzip", "lzf"):
            file = Path(folder) / f"{compression}.h5ad"
            anndata.AnnData(X).write_h5ad(file, compression=compression)
            A, _ = open_matrix(file, stream=True)
            with threads(1):
                a_byte = (quickest(lambda A=A: A.gram(V)) - without) / A.costs.file_bytes
            line = f"{compression!s:12}{a_byte * 1e9:>10.2f}"
            for solver in (ss.BlockLanczos(), ss.Gram()):
                pca = ss.PCA(50, solver=solver, random_state=0)
                seconds = quickest(lambda A=A, pca=pca: pca.fit(A))
                line += f"{seconds:>{12 if isinstance(solver, ss.BlockLanczos) else 9}.2f}{pca.info_.n_passes:>8}"
            print(line, flush=True)


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
