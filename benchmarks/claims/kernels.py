"""Compiled products of sparse rows against SciPy's, one core and two; against what the caches allow; and BLAS.

The matrices have 10 % nonzeros at random places. The roof of a kernel is its own rate with a panel of 64 rows, which
stays in the first cache; below it, 2 000 rows of a panel live in the second cache, 30 000 in the third.
Run: python -m benchmarks.claims.kernels
"""

import os
import time
from functools import partial

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.sparse import csr_array

import shiftsvd as ss
from shiftsvd.kernels import compiled, instruction_set, threads

ROUNDS = 9


def uniform(m: int, n: int, a_row: int, dtype: type, seed: int = 0) -> csr_array:
    """CSR with so many entries in each row, at random places."""
    rng = np.random.default_rng(seed)
    indices = np.sort(rng.integers(0, n, (m, a_row)).astype(np.int32), axis=1)
    X = csr_array((rng.random(m * a_row).astype(dtype), indices.ravel(), np.arange(m + 1) * a_row), shape=(m, n))
    X.sum_duplicates()
    return X


def alternate(contestants: dict) -> dict[str, float]:
    """Median seconds of each, run in turns."""
    taken = {name: [] for name in contestants}
    for _ in range(ROUNDS):
        for name, run in contestants.items():
            started = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - started)
    return {name: float(np.median(seconds)) for name, seconds in taken.items()}


def timed_gram(A: ss.Operator, V: np.ndarray):
    """A product in the threads of A."""

    def run() -> None:
        with threads(A.costs.n_threads):
            A.gram(V)

    return run


def against_scipy() -> None:
    """The fused product against ``X.T @ (X @ V)``."""
    print(f"gram, 100 000 x 2 000 at 10 %, {instruction_set()}; GFlop/s (4 operations an entry and column)\n")
    print("| data | columns | SciPy | one core | times SciPy | two cores | times one core |")
    print("|---|---|---|---|---|---|---|")
    for dtype in (np.float32, np.float64):
        X = uniform(100_000, 2_000, 200, dtype)
        adjoint = X.T
        one, two = (ss.centered(X, n_threads=n) for n in (1, 2))
        for columns in (16, 32):
            V = np.random.default_rng(1).standard_normal((2_000, columns)).astype(dtype)
            seconds = alternate(
                {"SciPy": lambda V=V, X=X, Xt=adjoint: Xt @ (X @ V), "1": timed_gram(one, V), "2": timed_gram(two, V)}
            )
            rate = {name: 4 * X.nnz * columns / s / 1e9 for name, s in seconds.items()}
            print(
                f"| {np.dtype(dtype)} | {columns} | {rate['SciPy']:.1f} | {rate['1']:.1f} | "
                f"{rate['1'] / rate['SciPy']:.2f} | {rate['2']:.1f} | {rate['2'] / rate['1']:.2f} |"
            )


def against_caches() -> None:
    """Each kernel with panels that fit the first, the second and the third cache."""
    from shiftsvd.kernels import best

    print("\nns an entry and column, one core, 16 columns; in brackets: share of the rate with a panel of 64 rows\n")
    print("| data | kernel | panel of 64 rows | 2 000 rows | 30 000 rows |")
    print("|---|---|---|---|---|")
    for dtype in (np.float32, np.float64):
        found: dict[str, list[float]] = {"gather": [], "scatter": [], "gram": []}
        for n in (64, 2_000, 30_000):
            X = uniform(8_000_000 // max(n // 10, 16), n, max(n // 10, 16), dtype)
            m = X.shape[0]
            rng = np.random.default_rng(0)
            V, W = (rng.standard_normal((side, 16)).astype(dtype) for side in (n, m))
            P, C, Y = best.panel(V, dtype), best.panel(np.zeros((0, 16)), dtype), np.empty((m, 16), dtype)
            seconds = alternate(
                {
                    "gather": lambda X=X, P=P, Y=Y, m=m: best.gather(X, (0, m), P, Y),
                    "scatter": lambda X=X, W=W, m=m, d=dtype: best.scatter(X, (0, m), W, d),
                    "gram": lambda X=X, P=P, C=C, m=m: best.gram(X, (0, m), P, None, np.zeros((m, 0)), C),
                }
            )
            for name, s in seconds.items():
                found[name].append(s / X.nnz / 16 * 1e9)
        for name, (roof, *rest) in found.items():
            shares = " | ".join(f"{ns:.3f} ({roof / ns:.0%})" for ns in rest)
            print(f"| {np.dtype(dtype)} | {name} | {roof:.3f} | {shares} |")


def by_both_orientations() -> None:
    """``X^T (X V)`` from X alone, which adds up panels, and from X and its adjoint, which fetches rows of panels."""
    print("\ngram of 16 columns, one core and two; milliseconds from X alone, and from X and its adjoint\n")
    print("| m x n | entries a row | X alone | both | two cores | both |")
    print("|---|---|---|---|---|---|")
    for m, n, a_row in ((90_000, 50_000, 11), (38_000, 32_000, 13), (14_000, 4_000, 53), (3_000, 2_000, 170)):
        X, V = uniform(m, n, a_row, np.float32), np.ones((n, 16), np.float32)
        across, L, R, Y = csr_array(X.T.tocsr()), np.ones((m, 1)), np.ones((n, 1)), np.empty((n, 16), np.float32)
        alone = partial(compiled.gram_of_all, X, np.linspace(0, m, 9).astype(int).tolist(), V, None, L, R, Y)
        both = partial(compiled.gram_of_both, X, across, V, None, L, R, Y)
        runs = {(run.func.__name__, count): partial(run, count) for count in (1, 2) for run in (alone, both)}
        taken = alternate(runs)
        print(f"| {m:,} x {n:,} | {a_row} |" + "".join(f" {1e3 * seconds:.2f} |" for seconds in taken.values()))


def against_blas() -> None:
    """A basis by columns times a block: ours, and NumPy's BLAS as it was called before."""
    from shiftsvd.kernels import twin

    narrow, compiled.NARROW = compiled.NARROW, dict.fromkeys(compiled.NARROW, 1000)
    most = narrow[instruction_set()]
    print(
        f"\ntall panels of 250 columns, one core, {instruction_set()}; GFlop/s; ours are taken up to {most} columns\n"
    )
    print("| data | rows | columns | B^T W: BLAS | ours | W - B C: BLAS | ours |")
    print("|---|---|---|---|---|---|---|")
    for dtype in (np.float32, np.float64):
        for rows in (2_000, 8_000):
            for columns in (8, 16, 32, 50, 64, 100):
                rng = np.random.default_rng(0)
                B = np.asfortranarray(rng.standard_normal((rows, 250)).astype(dtype))
                W = rng.standard_normal((rows, columns)).astype(dtype)
                C = (B.T @ W) / rows
                seconds = alternate(
                    {
                        "BLAS": lambda B=B, W=W: twin.inner(B, W),
                        "ours": lambda B=B, W=W: compiled.inner(B, W),
                        "BLAS less": lambda B=B, W=W, C=C: twin.subtract_product(W, B, C),
                        "ours less": lambda B=B, W=W, C=C: compiled.subtract_product(W, B, C),
                    }
                )
                rates = " | ".join(f"{2 * rows * 250 * columns / s / 1e9:.0f}" for s in seconds.values())
                print(f"| {np.dtype(dtype)} | {rows:,} | {columns} | {rates} |")
    compiled.NARROW = narrow


if __name__ == "__main__":
    against_scipy()
    against_caches()
    by_both_orientations()
    against_blas()
