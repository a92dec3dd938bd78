"""Reads of the data: never more than `max_passes` and one, and within the range that `estimate` foresees.

    python -m benchmarks.claims.passes              # another first seed: python -m benchmarks.claims.passes 1000

First 500 fits of leaders (1e3 to 1e12 times the rest), shifts that cancel nearly everything, and clusters with a small
basis, each with another container, precision, tolerance, block and `max_passes` of 3 to 40: an operator counts what is
read. Then 104 spectra of 13 kinds, sparse and dense, tall, wide and square, k of 1 to 100: what a fit took beside the
range that was foreseen before. Last, the same of evenly spaced values alone, which no range promises.
"""

import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dask.array as da
import numpy as np
from scipy import sparse

import shiftsvd as ss
from benchmarks.certificate.counted import counted

FITS, ROUNDS = 500, 8
Array = np.ndarray[Any, Any]


def turned(S: Array, m: int, rng: np.random.Generator) -> Array:
    """A dense matrix of m rows with these singular values."""
    n = len(S)
    U, V = (np.linalg.qr(rng.standard_normal((side, n)))[0] for side in (m, n))
    return (U * S) @ V.T


# --- max_passes -----------------------------------------------------------------------------------------------


def hard(rng: np.random.Generator) -> Array:
    """A matrix with leaders, clusters, or far from zero."""
    m, n = int(rng.integers(40, 300)), int(rng.integers(40, 200))
    r = min(m, n)
    j = np.arange(1.0, r + 1)
    S = [j**-0.7, np.repeat(0.9 ** np.arange(r), 5)[:r], np.linspace(1, 0.9, r), np.exp(-j / 9)][rng.integers(4)]
    if rng.random() < 0.5:
        S[: rng.integers(1, 4)] *= 10.0 ** rng.integers(3, 13)
    X = turned(S, max(m, n), rng) + (10.0 ** rng.integers(1, 8) if rng.random() < 0.4 else 0)
    return (X if m >= n else X.T).astype(rng.choice([np.float32, np.float64]))


def contained(X: Array, kind: str, folder: Path) -> Any:
    """The matrix in a container."""
    if kind == "file":
        np.save(folder / "X.npy", X)
        return ss.io.open_matrix(folder / "X.npy", stream=True)[0]
    if kind == "dask":
        return da.from_array(X, chunks=(len(X) // 3 + 1, -1))
    return {"dense": np.asarray, "csr": sparse.csr_array, "csc": sparse.csc_array}[kind](X)


def too_many(seed: int) -> bool:
    """Whether a fit read more often than it may, by its account or by what was counted."""
    rng = np.random.default_rng(seed)
    X, limit = hard(rng), int(rng.integers(3, 41))
    k = int(rng.integers(1, min(30, *X.shape)))
    columns = {"block_size": int(rng.choice([2, 4, 8, 16])), "max_basis": int(rng.choice([20, 40, 100]))}
    solver = ss.BlockLanczos(float(rng.choice([1e-2, 1e-4, 1e-8, 0])), max_passes=limit, **columns)
    with TemporaryDirectory() as folder:
        A = counted(contained(X, str(rng.choice(["dense", "csr", "csc", "dask", "file"])), Path(folder)))
        B = ss.centered(A) if rng.random() < 0.6 else A
        A.tally.products.clear()
        n_passes = solver.factorize(B, k, rng).n_passes
    reads = len(A.tally.products)
    if max(n_passes, reads) > limit + 1:
        print(f"seed {seed}: max_passes {limit}, n_passes {n_passes}, products {A.tally}", flush=True)
        return True
    return False


# --- passes_range ---------------------------------------------------------------------------------------------


def spectra(n: int) -> dict[str, Array]:
    """Singular values by the names of their kinds; None for matrices that are drawn entry by entry."""
    j = np.arange(1.0, n + 1)
    edge = 1.2 * np.sqrt(1 - (j / (n + 1)) ** 2)
    few = min(30, n // 4)
    return {
        "power 0.3": j**-0.3,
        "power 0.5": j**-0.5,
        "power 1": 1 / j,
        "power 2": j**-2,
        "exponential": np.exp(-j / 60),
        "steep": np.exp(-j / 5),
        "few above noise": np.r_[np.linspace(10, 3, few), edge[few:]],
        "groups of 7": np.repeat(0.8 ** np.arange(n), 7)[:n],
        "a leader": np.r_[1e3, 1 / (1 + j[1:] / 30)],
        "exact rank": np.where(j <= n // 3, 2 - j / n, 0),
    }


def drawn(kind: str, m: int, n: int, rng: np.random.Generator) -> Any:
    """Noise as it comes: normal numbers, counts, and genotypes with or without two populations."""
    if kind == "noise":
        return rng.standard_normal((m, n))
    if kind == "counts":
        return sparse.random_array((m, n), density=0.05, format="csr", rng=rng)
    shares = rng.uniform(0.05, 0.5, n) * np.ones((2, 1)) + rng.choice([0, 0.02]) * rng.standard_normal((2, n))
    return rng.binomial(2, shares.clip(0.01, 0.99)[rng.integers(0, 2, m)]).astype(np.float32)


DRAWN = ("noise", "counts", "genotypes")


def range_of(kind: str, rng: np.random.Generator) -> tuple[int, int, int]:
    """(passes, least, most) of one matrix of a kind."""
    n = int(rng.integers(60, 900))
    m = n if rng.random() < 0.3 else int(n * rng.uniform(1, 5))
    k = int(rng.choice([k for k in (1, 2, 5, 10, 20, 50, 100) if k <= n // 2]))
    S = {**spectra(n), "evenly spaced": np.linspace(1, 0.5, n)}
    X = drawn(kind, m, n, rng) if kind in DRAWN else turned(S[kind], m, rng)
    X = X.T if rng.random() < 0.4 else X
    if rng.random() < 0.4:
        X = sparse.csr_array(X)
    solver = ss.BlockLanczos(10.0 ** -rng.integers(2, 8))
    least, most = ss.estimate(X, k, solver).passes_range
    shift = "mean" if kind in DRAWN else None
    took = ss.svd(X, k, shift=shift, solver=solver, rng=rng).info.n_passes
    if not least <= took <= most:
        print(
            f"{kind}: {X.shape[0]} x {X.shape[1]}, k {k}, tol {solver.tol:.0e}: {took}, not {least} to {most}",
            flush=True,
        )
    return took, least, most


def ranges(kinds: list[str], count: int, seed: int) -> None:
    """How many of these fits lie within the range, and how wide that is."""
    found = [range_of(kind, np.random.default_rng([seed, i, j])) for i, kind in enumerate(kinds) for j in range(count)]
    within = sum(least <= took <= most for took, least, most in found)
    wide = np.median([most / least for _, least, most in found])
    above = np.median([most / took for took, _, most in found])
    print(f"{within} of {len(found)} within the range; most / least {wide:.1f}, most / taken {above:.1f} (medians)")


def main() -> None:
    """What is above `max_passes`, and what lies outside of its range, and how many that is."""
    warnings.simplefilter("ignore")
    first = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    beyond = sum(too_many(seed) for seed in range(first, first + FITS))
    print(f"{beyond} of {FITS} fits read more often than max_passes + 1")
    ranges([*spectra(60), *DRAWN], ROUNDS, first)
    ranges(["evenly spaced"], ROUNDS, first)


if __name__ == "__main__":
    main()
