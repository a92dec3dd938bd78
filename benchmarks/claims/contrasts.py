"""Contrastive PCA of one alpha and of twenty: passes over the data, and seconds of the processors.

Two real data sets are halved at the median of their first score; the third is random. `path` finds the components of
all alphas from one basis, so that they share passes. Run: python -m benchmarks.claims.contrasts [--only NAME ...]
"""

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array, random_array

import shiftsvd as ss
from benchmarks.claims.middle import available, log_normalised, stored

K, ALPHAS, SINGLE = 5, np.logspace(-2, 1, 20), (0.01, 0.1, 1.0, 10.0)
NAMES = ("pbmc10k", "bladder", "random")


def halves(name: str) -> tuple[csr_array, csr_array]:
    """Target and background."""
    if name == "random":
        rng = np.random.default_rng(0)
        A, B = (random_array((20_000,) * 2, density=0.002, rng=rng, format="csr", dtype=np.float32) for _ in range(2))
        return A, B
    X = stored(name)
    X = log_normalised(X[X.sum(axis=1) > 0])
    score = ss.PCA(K, random_state=0).fit_transform(X)[:, 0]
    return X[score > np.median(score)], X[score <= np.median(score)]


def measured(fit: Callable[[], list[ss.ContrastivePCA]]) -> str:
    start = time.process_time()
    models = fit()
    seconds = time.process_time() - start
    return f"{models[0].n_passes_:>8}{seconds:>10.2f}{all(model.converged_ for model in models)!s:>12}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    there = [name for name in NAMES if name == "random" or name in available()]
    parser.add_argument("--only", nargs="*", default=there, choices=NAMES)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'data':10}{'alpha':>8}{'passes':>8}{'seconds':>10}{'converged':>12}")
    for name in args.only:
        A, B = halves(name)
        ss.ContrastivePCA(K, random_state=0).fit(A, background=B)  # the first fit prepares the matrices
        for alpha in SINGLE:
            one = ss.ContrastivePCA(K, alpha=alpha, random_state=0)
            print(f"{name:10}{alpha:>8}{measured(lambda one=one, A=A, B=B: [one.fit(A, background=B)])}", flush=True)
        several = ss.ContrastivePCA(K, random_state=0)
        every = measured(lambda several=several, A=A, B=B: several.path(A, background=B, alphas=ALPHAS))
        print(f"{name:10}{len(ALPHAS):>5} of{every}", flush=True)


if __name__ == "__main__":
    main()
