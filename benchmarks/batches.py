"""PCA of batches beside scikit-learn's IncrementalPCA: time, memory, and error over the optimum.

Every case runs in a process of its own. The error is the Frobenius norm of what k components leave of the centred
rows, over that of the best k. IncrementalPCA takes dense batches of at least k rows.
Run: python benchmarks/batches.py [rows]
"""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.decomposition import IncrementalPCA

import shiftsvd as ss
from data import counts

K = 50
BATCHES = (1, 7, 1_000)
CASES = {
    "sketch of 2k": {},
    "sketch of 2k, merged": {"merge": True},
    "sketch of 2k, refined": {"passes": 1},
    "sketch of 2k, refined twice": {"passes": 2},
    "sketch of 4k": {"n_oversamples": 3 * K},
    "sketch of 8k": {"n_oversamples": 7 * K},
    "sketch of 16k": {"n_oversamples": 15 * K},
    "all columns": {"n_oversamples": 10**6},
    "IncrementalPCA": {"incremental": True},
}


def main(name: str, count: int, rows: int) -> None:
    """Fit, and print what it took and how near it came."""
    X = counts(rows).astype(np.float64)
    rng = np.random.default_rng(0)
    order = rng.permutation(rows)
    cuts = np.sort(rng.choice(np.arange(1, rows - 1), count - 2, replace=False)) if count > 2 else []
    settings = dict(CASES[name])
    incremental = settings.pop("incremental", False)
    # Batches of random sizes, the last of one row; IncrementalPCA gets equal ones of at least k rows.
    equal = incremental or count == 1
    parts = np.array_split(order, min(count, rows // K)) if equal else np.split(order, [*cuts, rows - 1])
    before, started = _memory("VmRSS"), time.perf_counter()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    pca = _incremental(X, parts) if incremental else _streamed(X, parts, **settings)
    pca.components_  # noqa: B018  # made when they are asked for
    seconds, grown = time.perf_counter() - started, _memory("VmHWM") - before
    A = ss.center(X)
    error = _left(A, pca.components_) / _left(A, ss.svd(X, K, shift="mean", rng=0).Vh)
    mean = X.mean(axis=0)
    off = np.linalg.norm(pca.mean_ - mean) / np.linalg.norm(mean)
    exact = A.frobenius_norm() ** 2 / (rows - 1)
    total = pca.explained_variance_.sum() / pca.explained_variance_ratio_.sum()
    print(
        f"{name:28} {len(parts):>5} batches  {seconds:7.1f} s  +{grown * 1e3:6.0f} MB  error / optimum {error:.4f}  "
        f"mean off by {off:.0e}, total variance by {abs(total / exact - 1):.0e}",
        flush=True,
    )


def _memory(field: str) -> float:
    """A line of what Linux says of this process, GB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) / 1e6


def _streamed(X, parts, n_oversamples=10, passes=0, merge=False):
    """One estimator over all batches, or one for each, merged over a random tree."""
    if not merge:
        pca = ss.PCA(K, n_oversamples=n_oversamples, random_state=0)
        for part in parts:
            pca.partial_fit(X[part])
        return pca.refine(X, passes) if passes else pca
    rng = np.random.default_rng(1)
    groups = [group for group in np.array_split(np.arange(len(parts)), min(len(parts), 16)) if len(group)]
    models = [_streamed(X, [parts[i] for i in group]) for group in groups]
    while len(models) > 1:
        a, b = (models.pop(rng.integers(len(models))) for _ in range(2))
        models.append(ss.merge(a, b))
    return models[0]


def _incremental(X, parts):
    """scikit-learn's, whose batches are dense."""
    pca = IncrementalPCA(K)
    for part in parts:
        pca.partial_fit(X[part].toarray())
    return pca


def _left(A, Vh):
    """What the components leave of A, in the Frobenius norm."""
    Y = A.matmat(Vh.T.astype(np.float64))
    return np.sqrt(A.frobenius_norm() ** 2 - np.sum(Y**2))


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "--case":
        main(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        rows = sys.argv[1] if len(sys.argv) > 1 else "60000"
        for count in BATCHES:
            for name in CASES:
                subprocess.run([sys.executable, __file__, "--case", name, str(count), rows], check=True)
