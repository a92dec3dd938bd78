"""Rounds of two fits that overlap in threads: bits that differ from those of each alone, and BLAS threads afterwards.

python -m benchmarks.claims.overlap [ROUNDS]
"""

import sys
import threading
from collections.abc import Callable
from itertools import product

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_info

import shiftsvd as ss

ROWS, COLUMNS = 6000, 200


def fits() -> dict[str, Callable[[int | None], tuple[np.ndarray, ...]]]:
    """Fits by name, each a function of its threads."""
    rng = np.random.default_rng(0)
    D = rng.standard_normal((ROWS, COLUMNS)) @ np.diag(np.linspace(2, 1, COLUMNS)) + rng.random(COLUMNS)
    S = sparse.random_array((ROWS, COLUMNS), density=0.1, format="csr", rng=rng)
    groups, covariates = np.arange(ROWS) % 9, rng.standard_normal((ROWS, 6))

    def pca(X: object, n_threads: int | None, shift: object = "mean", **data: object) -> tuple[np.ndarray, ...]:
        fitted = ss.PCA(8, shift=shift, scale=True, random_state=0, n_threads=n_threads).fit(X, **data)
        return fitted.components_, fitted.singular_values_, fitted.transform(X, **data)

    return {
        "dense": lambda n: pca(D, n),
        "sparse": lambda n: pca(S, n),
        "groups": lambda n: pca(D, n, ss.GroupMeans(), groups=groups),
        "covariates": lambda n: pca(S, n, ss.Covariates(), covariates=covariates),
        "exact": lambda n: tuple(ss.svd(D, 8, shift="both", solver="exact", n_threads=n)),
        "lanczos": lambda n: tuple(ss.svd(D, 8, shift="mean", solver="lanczos", rng=0, n_threads=n)),
    }


def differing(found: tuple[np.ndarray, ...], want: tuple[np.ndarray, ...]) -> int:
    """How many bits of the results differ."""
    pairs = [
        (np.ascontiguousarray(a).view(np.uint8), np.ascontiguousarray(b).view(np.uint8))
        for a, b in zip(found, want, strict=True)
    ]
    return sum(int(np.unpackbits(a ^ b).sum()) for a, b in pairs)


def blas_threads() -> list[int]:
    """Of each BLAS that is loaded."""
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def main(rounds: int) -> None:
    """Run the rounds, and print what was found."""
    kinds = fits()
    alone = {name: fit(1) for name, fit in kinds.items()}
    before = blas_threads()
    pairs = list(product(kinds, kinds))
    bits = lost = 0
    for i in range(rounds):
        names = pairs[i % len(pairs)]
        settings = ((1, 2, None)[i % 3], (1, 2, None)[i // 3 % 3])
        found: dict[int, tuple[np.ndarray, ...]] = {}
        gate = threading.Barrier(2)

        def run(j: int, gate: threading.Barrier = gate, names=names, settings=settings, found=found) -> None:
            gate.wait()
            found[j] = kinds[names[j]](settings[j])

        runs = [threading.Thread(target=run, args=(j,)) for j in range(2)]
        for one in runs:
            one.start()
        for one in runs:
            one.join()
        bits += sum(differing(found[j], alone[names[j]]) for j in range(2))
        lost += blas_threads() != before
    print(f"{rounds} rounds of two overlapping fits: {bits} differing bits; BLAS threads {before} before, ", end="")
    print(f"{blas_threads()} after, other than before after {lost} rounds; {threading.active_count() - 1} threads left")
    if bits or lost:
        sys.exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
