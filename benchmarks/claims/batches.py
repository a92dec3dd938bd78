"""PCA of batches beside scikit-learn's IncrementalPCA: time, memory, and error over the optimum.

Every case runs in a process of its own. The error is the Frobenius norm of what k components leave of the centred
rows, over that of the best k, less 1. IncrementalPCA takes dense batches of at least k rows.
Run: python -m benchmarks.claims.batches [kind ...]
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.decomposition import IncrementalPCA

import shiftsvd as ss
from benchmarks.data import counts, flat, pixels

K = 50
# What fits in so much is a sketch of 2 k columns, not the whole scatter matrix.
SKETCH = {"memory_limit": "50MB", "n_oversamples": K}
METHODS = {
    "whole": {},
    "whole, merged": {"merge": True},
    "sketch": SKETCH,
    "sketch, merged": SKETCH | {"merge": True},
    "sketch, refined": SKETCH | {"passes": 1},
    "IncrementalPCA": {"incremental": True},
}
BESIDE = ("whole", "sketch", "IncrementalPCA")


def words(rows: int = 20_000, columns: int = 3_000, seed: int = 0) -> sparse.csr_array:
    """Made-up documents of a hundred topics: tf-idf of counts that fall like 1 / rank, rows of length 1."""
    rng = np.random.default_rng(seed)
    topics = rng.gamma(0.1, 1, (100, columns)) / np.arange(1, columns + 1)
    topics /= topics.sum(axis=1, keepdims=True)
    about = rng.dirichlet(np.full(100, 0.05), rows)
    parts = [sparse.csr_array(rng.poisson(80 * part @ topics)) for part in np.array_split(about, rows // 1_000)]
    X = sparse.csr_array(sparse.vstack(parts, format="csr"), dtype=np.float64)
    found_in = np.bincount(X.indices, minlength=columns)
    X.data = np.log1p(X.data) * np.log(rows / (1 + found_in))[X.indices]
    lengths = np.sqrt(np.add.reduceat(np.r_[X.data**2, 0], X.indptr[:-1]))
    X.data /= np.repeat(lengths, np.diff(X.indptr))
    return X


# What to make, the numbers of batches, and the methods.
KINDS = {
    "counts": (lambda: counts().astype(np.float64), (1, 7, 1_000), tuple(METHODS)),
    "words": (words, (20, 100), BESIDE),
    "flat": (lambda: flat(10_000, 1_000), (7, 100), BESIDE),
    "pixels": (lambda: pixels(8_000, 32).astype(np.float64), (7, 100), BESIDE),
    "wide words": (lambda: words(8_000, 10_000), (40,), BESIDE[1:]),
}


def main(kinds: list[str]) -> None:
    """Every case of every kind, each with the least error there is."""
    print(f"k = {K}{'':38}  seconds     MB  error / optimum - 1  mean off  variance off")
    for kind in kinds:
        make, numbers, methods = KINDS[kind]
        X = make()
        A = ss.centered(X)
        best = _left(A, ss.svd(X, K, shift="mean", tol=1e-8, rng=0).Vh)
        with tempfile.TemporaryDirectory() as folder:
            _save(folder, X)
            for count in numbers:
                for method in methods:
                    case = [kind, method, str(count), repr(best), folder]
                    subprocess.run([sys.executable, "-m", "benchmarks.claims.batches", "--case", *case], check=True)


def one(kind: str, method: str, count: int, best: float, folder: str) -> None:
    """Fit, and print what it took and how near it came."""
    X = _load(folder)
    settings = dict(METHODS[method])
    incremental = settings.pop("incremental", False)
    parts = _parts(X.shape[0], count, incremental)
    before, started = _memory("VmRSS"), time.perf_counter()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    pca = _incremental(X, parts) if incremental else _streamed(X, parts, **settings)
    pca.components_  # noqa: B018  # made when they are asked for
    seconds, grown = time.perf_counter() - started, _memory("VmHWM") - before
    A = ss.centered(X)
    mean = np.asarray(X.mean(axis=0)).ravel()
    off = np.linalg.norm(pca.mean_ - mean) / np.linalg.norm(mean)
    exact = A.frobenius_norm() ** 2 / (X.shape[0] - 1)
    total = pca.explained_variance_.sum() / pca.explained_variance_ratio_.sum()
    print(
        f"{kind:10} {len(parts):5} batches  {method:16} {seconds:9.1f} {grown * 1e3:6.0f}"
        f"  {_left(A, pca.components_) / best - 1:19.1e}  {off:8.0e}  {abs(total / exact - 1):12.0e}",
        flush=True,
    )


def _parts(rows: int, count: int, equal: bool) -> list:
    """Random rows in batches of random sizes, the last of one row; or in equal batches of at least k rows."""
    rng = np.random.default_rng(0)
    order = rng.permutation(rows)
    if equal or count == 1:
        return np.array_split(order, min(count, rows // K))
    cuts = np.sort(rng.choice(np.arange(1, rows - 1), count - 2, replace=False))
    return np.split(order, [*cuts, rows - 1])


def _streamed(X, parts, passes=0, merge=False, **settings):
    """One estimator over all batches, or sixteen merged over a random tree."""
    if not merge:
        pca = ss.PCA(K, random_state=0, **settings)
        for part in parts:
            pca.partial_fit(X[part])
        return pca.refine(X, passes) if passes else pca
    rng = np.random.default_rng(1)
    groups = [group for group in np.array_split(np.arange(len(parts)), 16) if len(group)]
    models = [_streamed(X, [parts[i] for i in group], **settings) for group in groups]
    while len(models) > 1:
        a, b = (models.pop(rng.integers(len(models))) for _ in range(2))
        models.append(ss.merge_pca(a, b))
    return models[0]


def _incremental(X, parts):
    """scikit-learn's, whose batches are dense."""
    pca = IncrementalPCA(K)
    for part in parts:
        pca.partial_fit(X[part].toarray() if sparse.issparse(X) else X[part])
    return pca


def _left(A, Vh):
    """What the components leave of A, in the Frobenius norm."""
    Y = A.matmat(Vh.T.astype(np.float64))
    return float(np.sqrt(A.frobenius_norm() ** 2 - np.sum(Y**2)))


def _memory(field: str) -> float:
    """A line of what Linux says of this process, GB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) / 1e6


def _save(folder: str, X) -> None:
    """The data, for the processes of the cases."""
    if sparse.issparse(X):
        sparse.save_npz(Path(folder, "X.npz"), X, compressed=False)
    else:
        np.save(Path(folder, "X.npy"), X)


def _load(folder: str):
    """What `_save` wrote."""
    path = Path(folder, "X.npz")
    return sparse.csr_array(sparse.load_npz(path)) if path.exists() else np.load(Path(folder, "X.npy"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--case"]:
        kind, method, count, best, folder = sys.argv[2:]
        one(kind, method, int(count), float(best), folder)
    else:
        main(sys.argv[1:] or list(KINDS))
