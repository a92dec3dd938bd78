"""Completion of a 20 000 x 5 000 matrix of rank 5 with 95 % of its entries missing, against alternating least squares.

softImpute-ALS (Hastie, Mazumder, Lee & Zadeh 2015, algorithm 3.1) is written out below in NumPy and SciPy. Without a
penalty, and with the one that our side chose; both stop when a step changes the matrix by less than 1e-4. Errors are
on entries that neither saw. Times are those of one thread, in CPU seconds. Run: python -m benchmarks.claims.missing

| | penalty | steps | CPU s | peak MB | held-out RMSE |
|---|---|---|---|---|---|
| complete | 0 | 50 | 9 | 78 | 1.0137 |
| softImpute-ALS | 0 | 111 | 26 | 120 | 1.0136 |
| complete, penalty chosen | 0.974 | 18 | 25 | 119 | 1.0136 |
| softImpute-ALS | 0.974 | 112 | 25 | 120 | 1.0136 |

The noise is 1: no model does better. The steps of `complete` are those with the chosen penalty; the seconds are those
of the choice too. The observed entries and factors take 40 MB in double precision, the matrix would take 800.
"""

import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array

from shiftsvd.missing.completion import complete_matrix

RANK, NOISE, TOL = 5, 1.0, 1e-4
# Entries of a low-rank matrix that are computed at a time.
PART = 2**15


def ratings(m: int, n: int, share: float, seed: int = 0) -> tuple[csr_array, tuple[np.ndarray, ...]]:
    """Observed entries of a noisy matrix of rank 5; row, column and value of as many as a tenth of them, unseen."""
    rng = np.random.default_rng(seed)
    U, V = rng.standard_normal((m, RANK)), rng.standard_normal((n, RANK))
    places = np.unique(rng.integers(0, m * n, int(1.1 * share * m * n)))
    rng.shuffle(places)
    i, j = np.divmod(places, n)
    x = at(U, V, i, j) + NOISE * rng.standard_normal(len(i))
    cut = len(i) // 11
    return csr_array(coo_array((x[cut:], (i[cut:], j[cut:])), shape=(m, n))), (i[:cut], j[:cut], x[:cut])


def at(A: np.ndarray, B: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Entries (i, j) of ``A B^T``, a part at a time so that what is gathered stays in cache."""
    parts = [slice(lo, lo + PART) for lo in range(0, len(i), PART)]
    return np.concatenate([np.einsum("ij,ij->i", A.take(i[p], axis=0), B.take(j[p], axis=0)) for p in parts])


def soft_impute_als(X: csr_array, k: int, penalty: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, int]:
    """Factors A, B with ``X ~ A B^T`` at the stored entries of X, and the steps taken."""
    m, n = X.shape
    i, j = np.repeat(np.arange(m, dtype=X.indices.dtype), np.diff(X.indptr)), X.indices
    U, D, V = np.linalg.qr(np.random.default_rng(seed).standard_normal((m, k)))[0], np.ones(k), np.zeros((n, k))

    def residuals() -> csr_array:
        return csr_array((X.data - at(U * D**2, V, i, j), j, X.indptr), shape=X.shape)

    def half(S: Any, U: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, ...]:
        # (D^2 + lambda)^-1 D U^T (P(X - A B^T) + A B^T), transposed
        B = ((S.T @ U) * D + V * D**3) / (D**2 + penalty)
        V, squares, R = np.linalg.svd(B * D, full_matrices=False)
        return V, np.sqrt(squares), U @ R.T

    steps, moved = 0, np.inf
    while moved > TOL and steps < 1000:
        before, steps = (U * D**2, V), steps + 1
        V, D, U = half(residuals(), U, V)
        U, D, V = half(residuals().T, V, U)
        moved = change(before, (U * D**2, V))
    return U * D**2, V, steps


def change(old: tuple[np.ndarray, np.ndarray], new: tuple[np.ndarray, np.ndarray]) -> float:
    """Frobenius norm of the difference of two products, relative to the second."""
    L, R = np.hstack([new[0], -old[0]]), np.hstack([new[1], old[1]])
    norm = np.sqrt(np.sum((new[0].T @ new[0]) * (new[1].T @ new[1])))
    return float(np.sqrt(max(np.sum((L.T @ L) * (R.T @ R)), 0)) / norm)


def measured(run: Callable[[], Any]) -> tuple[Any, float, float]:
    """What it returns, its CPU seconds, and the most memory it took, in MB."""
    tracemalloc.start()
    started = time.process_time()
    result = run()
    seconds, peak = time.process_time() - started, tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return result, seconds, peak


def main(m: int = 20_000, n: int = 5_000, share: float = 0.05) -> None:
    """Print the table."""
    X, (i, j, x) = ratings(m, n, share)
    size = 8 * (X.nnz + (m + n) * RANK) / 1e6
    print(f"{m} x {n}, {X.nnz} observed, {len(x)} held out, noise {NOISE}: no model does better than that.")
    print(f"Observed entries and factors in double precision: {size:.0f} MB; the matrix: {8 * m * n / 1e6:.0f} MB.\n")
    print("| | penalty | steps | CPU s | peak MB | held-out RMSE |\n|---|---|---|---|---|---|")
    for penalty in (0.0, "auto"):
        C, *cost = measured(
            lambda p=penalty: complete_matrix(
                X, RANK, biases=None, penalty=p, unobserved=True, tol=TOL, rng=0, n_threads=1
            )
        )
        row("complete" + (", penalty chosen" if penalty else ""), C.penalty, C.n_iter, *cost, C.predict(i, j) - x)
        (A, B, steps), *cost = measured(lambda p=C.penalty: soft_impute_als(X, RANK, p))
        row("softImpute-ALS", C.penalty, steps, *cost, at(A, B, i, j) - x)


def row(name: str, penalty: float, steps: int, seconds: float, peak: float, off: np.ndarray) -> None:
    """One line of the table."""
    error = np.sqrt(np.mean(off**2))
    print(f"| {name} | {penalty:.3g} | {steps} | {seconds:.0f} | {peak:.0f} | {error:.4f} |", flush=True)


if __name__ == "__main__":
    main(*(int(size) for size in sys.argv[1:3]))
