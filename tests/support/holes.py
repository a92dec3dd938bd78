"""Matrices with holes, for the tests of missing entries."""

import numpy as np
from scipy.sparse import coo_array, csr_array

from tests.support.matrices import values


def holed(shape: tuple[int, int], share: float = 0.2, dtype=np.float64, seed: int = 0) -> np.ndarray:
    """Random numbers about 3 with NaN among them, at least two left in each row and column."""
    rng = np.random.default_rng(seed)
    X = (values(shape, dtype, seed, density=1.0) + 3).astype(dtype)
    hole = rng.random(shape) < share
    hole[[0, 1]] = hole[:, [0, 1]] = False
    X[hole] = np.nan
    return X


def mean_filled(X: np.ndarray) -> np.ndarray:
    """X with the means of its columns where it is NaN."""
    return np.where(np.isnan(X), np.nanmean(X, axis=0), X)


def stored_nan(X: np.ndarray, cls=csr_array):
    """Sparse with NaN stored, about half of the other entries set to 0."""
    zero = (np.random.default_rng(1).random(X.shape) < 0.5) & ~np.isnan(X)
    zero[[0, 1]] = False
    D = np.where(zero, 0, X)
    return D, cls(D)


def planted(m: int, n: int, share: float, noise: float, seed: int = 0, rank: int = 5):
    """Observed entries of a noisy matrix of low rank as CSR; (row, column, value) of others; the matrix."""
    rng = np.random.default_rng(seed)
    M = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    order = rng.permutation(m * n)[: int(1.1 * share * m * n)]
    i, j = np.divmod(order, n)
    x = M[i, j] + noise * rng.standard_normal(len(i))
    cut = len(i) // 11
    return csr_array(coo_array((x[cut:], (i[cut:], j[cut:])), shape=(m, n))), (i[:cut], j[:cut], x[:cut]), M


def rms(off: np.ndarray) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.abs(off) ** 2)))
