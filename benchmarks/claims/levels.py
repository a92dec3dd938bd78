"""Levels of probes beside eigenvalues planted above them, and beside levels that assume exclusion to be monotone.

    python -m benchmarks.claims.levels --chains 20000 --seed 0

Part 1 draws random chains of 1 to 16 columns: random coefficients, and Lanczos chains of random spectra. For a fine
grid of lambdas above the level, it computes the longest ``u^H Omega`` that an eigenvector of lambda can have, by
solving with ``lambda - T``, which the solver does not do. A lambda *survives* if that length reaches the quantile that
excludes; none may. The least level of the grid is what a search would find that takes exclusion for monotone.

Part 2 prints both levels after each product of the probes of real data, in units of the k-th eigenvalue.
"""

import argparse
import os
from pathlib import Path

import numpy as np
from scipy import sparse

import shiftsvd as ss
from shiftsvd.solvers.probe import Probe
from tests.support.probes import just_below, longest

GRID = 150


def random_chain(rng: np.random.Generator, kind: str) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """Return R and the coefficients (A_j, B_j): random ones, R a multiple of I, or those of a spectrum."""
    b, depth = int(rng.integers(1, 17)), int(rng.integers(1, 8))
    if kind == "two columns":
        b = 2
    if kind != "Lanczos":
        R = np.eye(b) * np.sqrt(10 ** rng.uniform(0, 6) if kind == "R of n rows" else 1)
        M = rng.standard_normal((depth, b, b))
        return R, [((S + S.T) / 2, B) for S, B in zip(M, rng.standard_normal((depth, b, b)), strict=True)]
    n = b * (depth + 1) + int(rng.integers(0, 200))
    d = np.sort(rng.uniform(0, 1, n) ** rng.uniform(0.5, 8))
    Q, R = np.linalg.qr(rng.standard_normal((n, b)))
    basis, parts = Q, []
    for _ in range(depth):
        W = d[:, None] * Q
        A = Q.T @ W
        for _ in range(2):
            W -= basis @ (basis.T @ W)
        Q, B = np.linalg.qr(W)
        basis = np.hstack([basis, Q])
        parts.append(((A + A.T) / 2, B))
    return R, parts


def planted(count: int, seed: int) -> None:
    """Print, for each kind of chain, how many lambdas above a level survive, and how far above the last one it lies."""
    rng = np.random.default_rng(seed)
    print("chains          count    lambdas  survive above  not monotone  over the last one: median, 99 %, most")
    grid = np.geomspace(1e-4, 1e3, GRID)
    for kind in ("two columns", "R = I", "R of n rows", "Lanczos"):
        above = tried = again = 0
        ratios = []
        for _ in range(count // 4):
            R, parts = random_chain(rng, kind)
            chain, hump = just_below(R, parts, grid, rng)
            level = chain.bound(1e-15 * chain.spread)
            again += hump
            far = chain.top + grid * chain.spread
            close = level + (level - chain.top) * np.geomspace(1e-6, 1e3, GRID)
            lambdas = np.concatenate([far[far > level], close])
            above += int(np.sum(longest(chain, lambdas) >= chain.shortest))
            tried += len(lambdas)
            if level - chain.top > 1e-4 * chain.spread * 1.01:
                below = (level - chain.top) * np.geomspace(1, 0.5, GRID)
                left = np.flatnonzero(longest(chain, chain.top + below) >= chain.shortest)
                ratios.append(1 / (below[left[0]] / below[0]) if len(left) else 2.0)
        middle, high = np.quantile(ratios, [0.5, 0.99])
        print(
            f"{kind:12s} {count // 4:8d} {tried:10d} {above:14d} {again:13d}  "
            f"{middle:.4f}, {high:.4f}, {max(ratios):.4f} of {len(ratios)}"
        )


def real(folder: Path) -> None:
    """Print the levels of the probes of PCA of real counts and simulated ones."""
    rng = np.random.default_rng(0)
    rates = rng.gamma(0.3, 1, (3000, 8)) @ rng.gamma(0.3, 1, (8, 2000)) * 0.02
    data = {"counts 3,000 x 2,000": sparse.csr_array(rng.poisson(rates).astype(np.float32))}
    for name in ("pbmc10k", "bladder"):
        path = folder / f"{name}_counts.npz"
        if path.is_file():
            data[name] = sparse.csr_array(sparse.load_npz(path))
    seen: list[tuple[float, float]] = []
    add_product = Probe.add_product

    def watched(probe: Probe, product: np.ndarray) -> None:
        add_product(probe, product)
        chain = probe._chain
        lambdas = chain.top + max(probe.level - chain.top, chain.spread) * np.geomspace(3, 1e-4, 3000)
        left = np.flatnonzero(longest(chain, lambdas) >= chain.shortest)
        monotone = lambdas[max(left[0] - 1, 0)] if len(left) else chain.top
        seen.append((probe.level, float(monotone)))

    Probe.add_product = watched  # type: ignore[method-assign]
    print("\nlevels after each product, and those of exclusion taken for monotone, over the k-th eigenvalue")
    for name, X in data.items():
        for k in (10, 50):
            seen.clear()
            pca = ss.PCA(k, random_state=0).fit(X)
            unit = pca.singular_values_[-1] ** 2
            print(f"{name}, k = {k}: " + ", ".join(f"{a / unit:.3f} ({b / unit:.3f})" for a, b in seen))
    Probe.add_product = add_product  # type: ignore[method-assign]


def main() -> None:
    """Both parts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--chains", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    planted(args.chains, args.seed)
    real(Path(os.environ.get("SHIFTSVD_TEST_DATA", "")))


if __name__ == "__main__":
    main()
