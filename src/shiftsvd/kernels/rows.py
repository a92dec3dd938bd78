"""Products and moments of a range of rows of a CSR matrix; SciPy releases the GIL in all of them."""

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from shiftsvd.moments import Moments, Vector
from shiftsvd.operators import Panel, panel_dtype

CSR = Any  # csr_array: SciPy's stubs make it generic in ways that say nothing here


def take_rows(X: CSR, lo: int, hi: int) -> CSR:
    """Rows lo to hi of X, sharing its memory."""
    if lo == 0 and hi == X.shape[0]:
        return X
    start, stop = X.indptr[lo], X.indptr[hi]
    parts = X.data[start:stop], X.indices[start:stop], X.indptr[lo : hi + 1] - start
    return csr_array(parts, shape=(hi - lo, X.shape[1]))


def gather(X: CSR, V: Panel) -> Panel:
    """``X V`` in double precision."""
    return np.asarray(X @ V.astype(panel_dtype(V.dtype), copy=False))


def scatter(X: CSR, W: Panel) -> Panel:
    """``X^H W`` in double precision; the panel is conjugated, not the matrix."""
    W = W.astype(panel_dtype(W.dtype), copy=False)
    if np.iscomplexobj(X.data):
        return np.asarray((X.T @ W.conj()).conj())
    return np.asarray(X.T @ W)


def moments(X: CSR, weights: Vector | None) -> Moments:
    """Moments of the columns of X, absent entries being zeros."""
    w = np.ones(X.shape[0]) if weights is None else weights
    return _moments(X.data, X.indices, X.shape[1], np.repeat(w, np.diff(X.indptr)), float(w.sum()))


def row_moments(X: CSR, weights: Vector | None) -> Moments:
    """Moments of the rows of X, absent entries being zeros."""
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    w = np.ones(len(X.data)) if weights is None else weights[X.indices]
    total = float(X.shape[1]) if weights is None else float(weights.sum())
    return _moments(X.data, rows, X.shape[0], w, total)


def _moments(data: Vector, groups: Vector, n_groups: int, w: Vector, total: float) -> Moments:
    """Weighted moments of each group, whose weights sum to `total` together with the absent zeros."""
    data = data.astype(panel_dtype(data.dtype), copy=False)
    count = max(total, np.finfo(float).tiny)
    mean = sum_by(groups, w * data, n_groups) / count
    absent = np.maximum(total - np.bincount(groups, w, n_groups), 0)
    off = data - mean[groups]
    # The deviations tell by how much the mean was rounded: a constant column has variance 0, not rounding.
    correction = (sum_by(groups, w * off, n_groups) - absent * mean) / count
    M2 = np.bincount(groups, w * np.abs(off) ** 2, n_groups) + absent * np.abs(mean) ** 2
    return Moments(total, mean + correction, np.maximum(M2 - total * np.abs(correction) ** 2, 0))


def sum_by(groups: Vector, values: Vector, n_groups: int) -> Vector:
    """Sum of the values of each group, real or complex."""
    if np.iscomplexobj(values):
        real, imag = (np.bincount(groups, part, n_groups) for part in (values.real, values.imag))
        return np.asarray(real + 1j * imag)
    return np.bincount(groups, values, n_groups)
