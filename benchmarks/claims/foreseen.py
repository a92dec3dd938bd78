"""How many reads of the data block Lanczos takes, beside what `estimate` foresees: 40 spectra of ten kinds.

    python -m benchmarks.claims.foreseen

Every line is a spectrum: its kind, the sides of the matrix, k, tol, the reads that it took, the least and the most
that were foreseen. At the end, how many lie between, and how many within 30 % of the number that is expected.
"""

from itertools import product

import numpy as np
from scipy import sparse

import shiftsvd as ss

N, K, TOLS = 1500, (5, 20, 50, 100), (1e-4,)


def spectra(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Singular values of ten kinds, N of each."""
    j = np.arange(1, N + 1)
    return {
        "power 0.3": j**-0.3,
        "power 0.5": j**-0.5,
        "power 1": 1.0 / j,
        "power 2": j**-2.0,
        "exponential": np.exp(-j / 60),
        "40 above noise": np.r_[np.linspace(10, 3, 40), 1.2 * np.sqrt(1 - (j[40:] / (N + 1)) ** 2)],
        "groups of 7": np.repeat(0.8 ** np.arange(N // 7 + 1), 7)[:N],
        "noise": np.sort(rng.normal(size=N) ** 2)[::-1] ** 0.25 + 0.5,
        "a leader": np.r_[100.0, 1 / (1 + j[1:] / 30)],
        "flat": np.linspace(1.0, 0.5, N),
    }


def matrix(sigma: np.ndarray, rng: np.random.Generator) -> sparse.csr_array:
    """A sparse matrix with these singular values: a diagonal between products of sparse rotations."""
    A = sparse.diags_array(sigma).tocsr()
    for _ in range(4):
        for side in (0, 1):
            i, angle = rng.permutation(N), rng.uniform(0, 2 * np.pi, N // 2)
            a, b = i[: N // 2], i[N // 2 : 2 * (N // 2)]
            rows, columns = np.r_[a, b, a, b], np.r_[a, b, b, a]
            c, s = np.cos(angle), np.sin(angle)
            Q = sparse.csr_array((np.r_[c, c, -s, s], (rows, columns)), shape=(N, N))
            A = A @ Q if side else Q @ A
    return sparse.csr_array(A)


def main() -> None:
    """One line a spectrum."""
    rng = np.random.default_rng(0)
    inside = near = total = 0
    for (kind, sigma), k, tol in product(spectra(rng).items(), K, TOLS):
        A = matrix(sigma, np.random.default_rng(k))
        solver = ss.BlockLanczos(tol=tol)
        took = ss.svd(A, k, solver=solver, rng=0).info.n_passes
        foreseen = ss.estimate(A, k, solver, probe=True)
        least, most = foreseen.passes_range
        inside += least <= took <= most
        near += abs(took - foreseen.n_passes) <= 0.3 * took
        total += 1
        told = f"took {took:4}, foreseen {foreseen.n_passes:4} ({least} to {most})"
        print(f"{kind:16} {N} x {N}  k {k:3}  tol {tol:.0e}  {told}", flush=True)
    print(f"{inside} of {total} within the range, {near} within 30 % of what was expected")


if __name__ == "__main__":
    main()
