"""How wrong an answer is: against a tight reference, which is made here too."""

from pathlib import Path

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array, issparse, load_npz

SIDE = 5_000  # up to here the covariance is formed and solved
TINY = 5_000_000  # entries of a matrix that is made dense and solved at once
BLOCK = 2**25  # entries of a block that is made dense


def load(file: str | Path):
    """A matrix from a file: CSR from .npz, dense from .npy."""
    if Path(file).suffix == ".npy":
        return np.load(file)
    X = csr_array(load_npz(file))
    X.sum_duplicates()
    return X


def value_error(values: np.ndarray, exact: np.ndarray, noise: float) -> float:
    """Largest relative error of the singular values; those that are zero but for rounding have none."""
    if len(values) < len(exact):
        return 1.0
    there = exact > noise * exact[0]
    values = np.asarray(values, float)[: len(exact)]
    return float(np.max(np.abs(values - exact)[there] / exact[there]))


def angle(components: np.ndarray | None, file: Path, exact: np.ndarray, noise: float) -> float | None:
    """Largest principal angle, in radians, between the exact subspace and that of the components."""
    if components is None:
        return None
    V = np.load(file, mmap_mode="r")[: int(np.sum(exact > noise * exact[0]))].T
    Q, _ = np.linalg.qr(np.asarray(components, float).T)
    rest = V - Q @ (Q.T @ V)
    # The sine of the angle, from what is left over: its cosine would lose half of the digits.
    return float(np.arcsin(min(1.0, np.sqrt(max(np.linalg.eigvalsh(rest.T @ rest)[-1], 0.0)))))


def make_reference(file: Path, k: int, folder: Path) -> None:
    """The k leading values, with and without centring, and the components of the centred matrix, in float64."""
    X = load(file)
    m, n = X.shape
    if m * n <= TINY:
        find = _dense
    elif min(m, n) <= SIDE:
        find = _covariance
    else:
        find = _lanczos
    S, Vh = find(X, k, True)
    uncentred, _ = find(X, k, False)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "components.npy", Vh)
    np.savez(folder / "values.npz", centred=S, uncentred=uncentred)


def _dense(X, k: int, centre: bool) -> tuple[np.ndarray, np.ndarray]:
    """LAPACK on the explicitly centred matrix."""
    X = (X.toarray() if issparse(X) else X).astype(float)
    _, S, Vh = np.linalg.svd(X - X.mean(axis=0) if centre else X, full_matrices=False)
    return S[:k], Vh[:k]


def _covariance(X, k: int, centre: bool) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvectors of the Gram matrix of the short side, formed from explicitly centred blocks of the long side."""
    m, n = X.shape
    G = sum(B.T @ B for B in _blocks(X, centre))
    theta, Z = eigh(G, subset_by_index=[min(m, n) - k, min(m, n) - 1])
    S, Z = np.sqrt(np.maximum(theta[::-1], 0)), Z[:, ::-1]
    if m >= n:
        return S, Z.T
    return S, np.vstack([B @ Z for B in _blocks(X, centre)]).T / S[:, None]


def _blocks(X, centre: bool):
    """Dense float64 blocks along the long side, with the short side as columns."""
    m, n = X.shape
    mean = np.asarray(X.mean(axis=0, dtype=float)).ravel() * centre
    step = max(BLOCK // min(m, n), 1)
    if m < n and issparse(X):
        X = X.tocsc()
    for lo in range(0, max(m, n), step):
        block = X[lo : lo + step] if m >= n else X[:, lo : lo + step]
        block = (block.toarray() if issparse(block) else block).astype(float)
        yield block - mean if m >= n else (block - mean[lo : lo + step]).T


def _lanczos(X, k: int, centre: bool) -> tuple[np.ndarray, np.ndarray]:
    """Our own solver to 1e-10, certified: where the matrix is too large for anything else."""
    import shiftsvd as ss

    F = ss.svd(X.astype(float), k, shift="mean" if centre else None, solver=ss.BlockLanczos(tol=1e-10), rng=1)
    if not F.info.converged:
        raise RuntimeError("the reference did not converge")
    return F.S, F.Vh
