"""Data times a power of two, in every container, and what must then be equal."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.io import open_matrix

SOLVERS = (
    ss.Exact(),
    ss.Gram(1e-6),
    ss.BlockLanczos(1e-6),
    ss.RandomizedSVD(),
    ss.RandomizedSVD(certify=True),
    ss.ShiftedRandomizedSVD(n_iter=3),
)


def dense(dtype: Any = np.float64) -> np.ndarray:
    """Off-centre data with a falling spectrum."""
    rng = np.random.default_rng(0)
    D = rng.standard_normal((300, 40)) @ np.diag(np.linspace(1, 0.1, 40) ** 2) + rng.standard_normal(40)
    return D.astype(dtype)


def thin(dtype: Any = np.float64) -> Any:
    """Sparse data, one of whose columns is full."""
    X = sparse.random_array((400, 60), density=0.2, format="lil", rng=1)
    X[:, [3]] = np.linspace(1, 2, 400)[:, None]
    return sparse.csr_array(X, dtype=dtype)


def _file(X: Any, path: Path) -> Any:
    if sparse.issparse(X):
        sparse.save_npz(path / "X.npz", X)
        return open_matrix(path / "X.npz")[0]
    np.save(path / "X.npy", X)
    return open_matrix(path / "X.npy")[0]


def _dask(X: Any, path: Path) -> Any:
    da = pytest.importorskip("dask.array")
    return da.from_array(X, chunks=(100, -1))


SINGLE: dict[str, Callable[[float, Path], Any]] = {
    "dense": lambda c, path: dense(np.float32) * np.float32(c),
    "csr": lambda c, path: thin(np.float32) * np.float32(c),
    "file": lambda c, path: _file(dense(np.float32) * np.float32(c), path),
}


def same_bits(F: ss.SVDResult, G: ss.SVDResult, power: int) -> None:
    """F has the vectors of G, and its values times a power of two."""
    assert np.array_equal(np.ldexp(F.S.astype(float), -power), G.S.astype(float))
    assert np.array_equal(np.asarray(F.U), np.asarray(G.U))
    assert np.array_equal(np.asarray(F.Vh), np.asarray(G.Vh))
    assert (F.info.converged, F.info.n_passes) == (G.info.converged, G.info.n_passes)
    missed = F.info.missed_below
    assert (None if missed is None else np.ldexp(missed, -power)) == G.info.missed_below
    if G.info.value_errors is not None:
        assert np.array_equal(F.info.value_errors, G.info.value_errors)
