"""Spectral embedding of graphs of nearest neighbours, beside ARPACK and LOBPCG: processor seconds and angles.

ARPACK and LOBPCG take the loosest of some tolerances for which the sine of the largest angle between their space and an
accurate one is at most the tolerance of ours. All use two threads where they can; contestants take turns.
Run: python -m benchmarks.claims.graphs [--rounds 3] [--nodes 10000 100000] [--components 10] [--tol 1e-4]
     [--peers arpack lobpcg] [--only roll]
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_array, dia_array, eye_array
from scipy.sparse.linalg import ArpackNoConvergence, eigsh, lobpcg
from sklearn.datasets import make_blobs, make_swiss_roll
from sklearn.neighbors import kneighbors_graph

import shiftsvd as ss

TOLERANCES = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12)


POINTS: dict[str, Callable[[int], Any]] = {
    "roll": lambda nodes: make_swiss_roll(nodes, noise=0.3, random_state=0)[0],
    "blobs": lambda nodes: make_blobs(nodes, 20, centers=30, cluster_std=6.0, random_state=0)[0],
}


def _symmetric(G: Any) -> csr_array:
    return csr_array((G + G.T) / 2)


def sine(V: np.ndarray, reference: np.ndarray) -> float:
    Q, R = np.linalg.qr(V)[0], np.linalg.qr(reference)[0]
    return float(np.linalg.norm(R - Q @ (Q.T @ R), 2))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--components", type=int, default=10)
    parser.add_argument("--tol", type=float, default=1e-4)
    parser.add_argument("--peers", nargs="+", default=["arpack", "lobpcg"], choices=["arpack", "lobpcg"])
    parser.add_argument("--only", nargs="+", default=list(POINTS), choices=list(POINTS))
    args = parser.parse_args()
    for nodes in args.nodes:
        for name in args.only:
            W = _symmetric(kneighbors_graph(POINTS[name](nodes), 15))
            race(f"{name}, {nodes:,} nodes, {W.nnz:,} entries", W, args.components, args.tol, args.rounds, args.peers)


def race(title: str, W: csr_array, k: int, tol: float, rounds: int, peers: list[str]) -> None:
    n = W.shape[0]
    exact = _vectors(ss.SpectralEmbedding(k, affinity="precomputed", drop_first=False, tol=1e-9, random_state=0).fit(W))
    roots = dia_array((1 / np.sqrt(np.asarray(W.sum(axis=1)).ravel())[None], [0]), shape=W.shape)
    N = csr_array(roots @ W @ roots)
    L, start = csr_array(eye_array(n) - N), np.random.default_rng(0).standard_normal((n, k + 3))

    def ours() -> np.ndarray:
        embedding = ss.SpectralEmbedding(k, affinity="precomputed", drop_first=False, tol=tol, random_state=0)
        return _vectors(embedding.fit(W))

    def arpack(tolerance: float) -> np.ndarray:
        return np.asarray(eigsh(N, k, which="LA", tol=tolerance, v0=start[:, 0], maxiter=10_000)[1])

    def blocks(tolerance: float) -> np.ndarray:
        return np.asarray(lobpcg(L, start.copy(), tol=tolerance, largest=False, maxiter=500)[1][:, :k])

    contestants: dict[str, Callable[[], np.ndarray]] = {"ours": ours}
    for peer in peers:
        run = {"arpack": arpack, "lobpcg": blocks}[peer]
        tolerance = next((t for t in TOLERANCES if _accurate(run, t, exact, tol)), None)
        if tolerance is None:
            print(f"{title}: {peer} does not reach a sine of {tol:g}")
        else:
            contestants[f"{peer}, tol={tolerance:g}"] = lambda run=run, tolerance=tolerance: run(tolerance)  # type: ignore[misc]
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run_once in contestants.items():
            started = time.process_time()
            V = run_once()
            seconds[name].append(time.process_time() - started)
            print(f"{title}: {name:20}{seconds[name][-1]:8.2f} s, sine {sine(V, exact):.0e}", flush=True)
    medians = {name: float(np.median(each)) for name, each in seconds.items()}
    for name, median in medians.items():
        print(f"{title}: {name:20} median {median:8.2f} s, {median / medians['ours']:.2f} of ours")


def _accurate(run: Callable[[float], np.ndarray], tolerance: float, exact: np.ndarray, tol: float) -> bool:
    try:
        return sine(run(tolerance), exact) <= tol
    except ArpackNoConvergence:
        return False


def _vectors(embedding: Any) -> np.ndarray:
    return np.asarray(embedding.embedding_ * np.sqrt(embedding.degrees_)[:, None])


if __name__ == "__main__":
    main()
