"""Small dense data: seconds of `PCA.fit` and `svd`, ours over scikit-learn's best solver, and the errors of both.

Median seconds of contestants that take turns of a few fits, of which the first warms the caches and does not count; the
best of some rounds; as many threads for both.
The best of scikit-learn is the quickest of its solvers whose values are right to the tolerance that ours keep, 1e-4.
Errors are the largest relative ones of the values, against NumPy's SVD of the centred data in double precision.
Run: python -m benchmarks.claims.small [--threads 1] [--seconds 0.5] [--only digits]
"""

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np
from sklearn import datasets
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

import shiftsvd as ss

SHAPES = ((50, 4), (150, 4), (500, 100), (1000, 20), (200, 1000), (2000, 64), (2000, 200), (1000, 500), (5000, 300))
THEIRS = ("full", "covariance_eigh", "arpack", "randomized")
TOL, ROUNDS, TURN = 1e-4, 3, 4  # fits of a turn that count


def sets() -> Iterator[tuple[str, np.ndarray]]:
    """Names and matrices: real ones, and normal ones whose columns shrink like the root of their place."""
    for name in ("iris", "wine", "breast_cancer", "digits"):
        yield name, getattr(datasets, f"load_{name}")().data
    rng = np.random.default_rng(0)
    for m, n in SHAPES:
        yield "normal", rng.standard_normal((m, n)) / np.sqrt(np.arange(1.0, n + 1)) + rng.standard_normal(n)


def alternate(contestants: dict[str, Callable[[], object]], budget: float) -> dict[str, float]:
    """Median seconds of each, which take turns; the best of some rounds, so that busy neighbours count less."""
    least = dict.fromkeys(contestants, np.inf)
    for _ in range(ROUNDS):
        taken: dict[str, list[float]] = {name: [] for name in contestants}
        end = time.perf_counter() + budget
        while time.perf_counter() < end or not all(taken.values()):
            for name, run in contestants.items():
                run()
                for _ in range(TURN):
                    started = time.perf_counter()
                    run()
                    taken[name].append(time.perf_counter() - started)
        least = {name: min(least[name], float(np.median(seconds))) for name, seconds in taken.items()}
    return least


def error(S: np.ndarray, exact: np.ndarray) -> float:
    """The largest relative error of the values; of those that are rounding, relative to the first."""
    exact = exact[: len(S)]
    divisor = np.maximum(exact, 1e-12 * exact[0])
    return float(np.max(np.abs(S - exact) / divisor))


def row(name: str, X: np.ndarray, k: int, n_threads: int, budget: float) -> list[float]:
    """Print one line of the table; the ratios of `PCA` and `svd`."""
    m, n = X.shape
    D = X.astype(np.float64)
    exact = np.linalg.svd(D - D.mean(axis=0), compute_uv=False)
    ours = {
        "PCA": lambda: ss.PCA(k, n_threads=n_threads, random_state=0).fit(X),
        "svd": lambda: ss.svd(X, k, shift="mean", n_threads=n_threads, rng=0),
    }
    models = {
        solver: PCA(k, svd_solver=solver, random_state=0) for solver in THEIRS if solver != "arpack" or k < min(m, n)
    }
    errors = {solver: error(model.fit(X).singular_values_, exact) for solver, model in models.items()}
    # In single precision none may be right to the tolerance: then that of the least error counts.
    enough = max(TOL, min(errors.values()))
    theirs = {solver: (lambda model=models[solver]: model.fit(X)) for solver in models if errors[solver] <= enough}
    with threadpool_limits(n_threads, "blas"):
        seconds = alternate(ours | theirs, budget)
    best = min(theirs, key=seconds.__getitem__)
    F = ours["svd"]()
    ratios = [seconds[name] / seconds[best] for name in ours]
    print(
        f"| {name} {m} x {n} | {X.dtype} | {k} | {seconds['PCA'] * 1e3:.2f} | {seconds['svd'] * 1e3:.2f} "
        f"| {seconds[best] * 1e3:.2f} ({best}) | {ratios[0]:.2f} | {ratios[1]:.2f} "
        f"| {error(F.S, exact):.0e} | {errors[best]:.0e} | {F.info.solver.partition('(')[0]} |",
        flush=True,
    )
    return ratios


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--seconds", type=float, default=0.3, help="of a round")
    options.add_argument("--only", default="", help="names that hold this")
    options.add_argument("--dtypes", default="float32,float64")
    options.add_argument("--ranks", default="2,10,half")
    args = options.parse_args()
    warnings.simplefilter("ignore")
    print(f"{args.threads} threads; load of the machine before: {os.getloadavg()[0]:.1f}\n")
    print("| data | dtype | k | PCA ms | svd ms | scikit-learn ms | PCA ratio | svd ratio | error | theirs | solver |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    ratios = []
    for name, X in sets():
        ranks = {min(X.shape) // 2 if k == "half" else int(k) for k in args.ranks.split(",")}
        if args.only not in f"{name} {X.shape[0]} x {X.shape[1]}":
            continue
        for dtype in args.dtypes.split(","):
            fitting = sorted(k for k in ranks if k <= min(X.shape) // 2)
            ratios += [row(name, X.astype(dtype), k, args.threads, args.seconds) for k in fitting]
    means = np.exp(np.mean(np.log(ratios), axis=0))
    print(f"\ngeometric means: PCA {means[0]:.2f}, svd {means[1]:.2f}; most: {np.max(ratios):.2f}")
    print(f"load of the machine after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
