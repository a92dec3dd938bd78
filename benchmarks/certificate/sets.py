"""The data sets that columns and seconds are measured on: made once, kept in a folder, with their exact values.

`CERTIFICATE_CACHE` names the folder (default: benchmarks/.work/certificate), `SHIFTSVD_TEST_DATA` that of the real
data. Each set is a CSR matrix in NAME.npz; NAME_values.npy holds its K + MORE largest singular values after the column
means were subtracted, in double precision.

Run: python -m benchmarks.certificate.sets [NAME ...]   (minutes each for the text and for genes)
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.linalg import eigvalsh
from scipy.sparse import csr_array, load_npz, save_npz

import shiftsvd as ss
from benchmarks import data, text
from benchmarks.places import WORK

K, MORE = 50, 20
FOLDER = Path(os.environ.get("CERTIFICATE_CACHE", WORK / "certificate"))
REAL = Path(os.environ.get("SHIFTSVD_TEST_DATA", "."))
SIDE = 5_000  # up to here the covariance is formed and solved


def _real(name: str) -> csr_array:
    """Counts of cells, log1p, float32."""
    X = csr_array(load_npz(REAL / f"{name}_counts.npz")).astype(np.float32)
    X.data = np.log1p(X.data)
    return X


def _noise(rows: int = 20_000, columns: int = 2_000, rate: float = 0.05, seed: int = 3) -> csr_array:
    """Sparse Poisson noise, float32: nothing but a bulk with a crowded edge."""
    rng = np.random.default_rng(seed)
    parts = [csr_array(rng.poisson(rate, (1_000, columns)).astype(np.float32)) for _ in range(rows // 1_000)]
    from scipy.sparse import vstack

    return csr_array(vstack(parts, format="csr"))


def _text() -> Path:
    """The sample of the Wikipedia, or words that are made up."""
    return text.find_text(None, FOLDER)[0]


SETS: dict[str, Callable[[], csr_array]] = {
    "counts": data.counts,
    "pbmc10k": lambda: _real("pbmc10k"),
    "bladder": lambda: _real("bladder"),
    "noise": _noise,
    "tfidf": lambda: text.tfidf(_text()),
    "words": lambda: text.words(_text(), FOLDER),
    "genes": lambda: data.counts(60_000, 30_000, seed=2, level=0.0722),
}


def load(name: str) -> csr_array:
    """The matrix, made if it is not there."""
    file = FOLDER / f"{name}.npz"
    if not file.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}.npz")
        save_npz(part, SETS[name](), compressed=False)
        part.rename(file)
    return csr_array(load_npz(file))


def exact(name: str) -> np.ndarray:
    """Its K + MORE largest centred singular values, made if they are not there."""
    file = FOLDER / f"{name}_values.npy"
    if not file.exists():
        X = load(name).astype(np.float64)
        values = _formed(X) if min(X.shape) <= SIDE else _solved(X)
        part = file.with_suffix(f".{os.getpid()}.npy")
        np.save(part, values)
        part.rename(file)
    return np.load(file)


def _formed(X: csr_array) -> np.ndarray:
    """From the Gram matrix of explicitly centred blocks; the spectra here fall by less than 1e3."""
    mean, (m, n) = np.asarray(X.mean(axis=0)).ravel(), X.shape
    if m >= n:
        G = sum(B.T @ B for B in (X[lo : lo + 4_000].toarray() - mean for lo in range(0, m, 4_000)))
    else:
        Y = X.tocsc()
        blocks = (Y[:, lo : lo + 4_000].toarray() - mean[lo : lo + 4_000] for lo in range(0, n, 4_000))
        G = sum(B @ B.T for B in blocks)
    side = len(G)
    return np.sqrt(eigvalsh(G, subset_by_index=[side - K - MORE, side - 1])[::-1])


def _solved(X: csr_array) -> np.ndarray:
    """By block Lanczos in double to 1e-9, with wide blocks, where nothing else fits."""
    solver = ss.BlockLanczos(tol=1e-9, block_size=32)
    F = ss.svd(X, K + MORE, shift="mean", solver=solver, rng=1)
    return np.asarray(F.S, float)


if __name__ == "__main__":
    for each in sys.argv[1:] or SETS:
        started = time.perf_counter()
        X, S = load(each), exact(each)
        print(
            f"{each}: {X.shape[0]} x {X.shape[1]}, {X.nnz} stored, {X.dtype}, sigma_1 {S[0]:.4g}, "
            f"sigma_k {S[K - 1]:.4g}, sigma_k+1 / sigma_k {S[K] / S[K - 1]:.4f}, {time.perf_counter() - started:.0f} s",
            flush=True,
        )
