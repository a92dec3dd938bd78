"""Dask arrays of counts, in any chunks."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")


def counts(m: int = 3000, n: int = 120, dtype: Any = np.float32) -> sparse.csr_array:
    """Counts whose rows are of a few kinds, so that some values stand out."""
    rng = np.random.default_rng(5)
    rates = rng.gamma(0.3, 1.0, (6, n))[rng.integers(0, 6, m)]
    return sparse.csr_array(rng.poisson(rates).astype(dtype))


def in_rows(X: Any, sizes: int | tuple[int, ...], kind: Any = sparse.csr_array) -> Any:
    """A sparse matrix as a Dask array of chunks of so many rows."""
    m, n = X.shape
    sizes = (sizes,) * (m // sizes) + ((m % sizes,) if m % sizes else ()) if isinstance(sizes, int) else sizes
    edges = np.cumsum((0, *sizes))
    delayed = [dask.delayed(kind)(X[lo:hi]) for lo, hi in pairwise(edges)]
    parts = [
        da.from_delayed(part, shape=(size, n), dtype=X.dtype, meta=kind((0, 0), dtype=X.dtype))
        for part, size in zip(delayed, sizes, strict=True)
    ]
    return da.concatenate(parts)


CHUNKS = [
    (3000, 60),
    (1000, 60),
    (7, 60),
    (450, 13),
    (3000, 1),
    ((1, 2999), 60),
    ((0, 1700, 0, 1300), 60),
    (1234, (59, 1)),
]


ROWS = [3000, 1000, 29, 1999, (1, 2999), (1700, 1300), (2999, 1), (*range(1, 77), 74)]


def same_components(Y: Any, X: Any) -> None:
    """Values to 1e-10, and the same subspace as far as the residuals promise it."""
    solver = ss.BlockLanczos(tol=0)  # values are right long before vectors are: their errors are squares of residuals
    F, G = (ss.svd(A, 4, shift="mean", solver=solver, rng=0) for A in (Y, X))
    np.testing.assert_allclose(F.S, G.S, rtol=1e-10)
    S = ss.svd(X, 5, shift="mean", solver=ss.Exact()).S
    r = S[0] * max(A.info.residuals.max() for A in (F, G))
    promised = 2 * 2 * np.sqrt(2) * r * S[0] / (S[3] ** 2 - S[4] ** 2) + 1e-13
    assert promised <= 1e-7
    assert np.linalg.norm(F.Vh - (F.Vh @ G.Vh.T) @ G.Vh, 2) <= promised
    np.testing.assert_allclose(F.U, G.U, atol=1e-7)
