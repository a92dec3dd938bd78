"""Data of the tests of PCA, and what two fits must share."""

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse import random_array

import shiftsvd as ss

EPS = np.finfo(np.float64).eps


NAMES = ["auto", "exact", "randomized", "shifted-randomized"]


SOLVERS = [
    *({"solver": name} for name in NAMES),
    *({"svd_solver": name} for name in ("auto", "full", "covariance_eigh", "arpack", "randomized")),
    {"solver": ss.RandomizedSVD()},
    {"solver": ss.ShiftedRandomizedSVD(n_oversamples=12, n_iter=1)},
    {"solver": ss.Exact()},
]


SHAPES = [(70, 30), (30, 70), (40, 40)]


def counts(shape, dtype=np.float64, density=0.2, seed=0):
    """Sparse positive data, off centre."""
    rng = np.random.default_rng(seed)
    X = random_array(shape, density=density, format="csr", rng=rng, data_sampler=lambda size: 1 + rng.random(size))
    return X.astype(dtype)


def assert_same(a, b, X, settings=None):
    """Two fits of one algorithm on the same numbers: equal up to rounding, components up to their gaps."""
    size = sparse.linalg.norm(X) if sparse.issparse(X) else np.linalg.norm(X)
    S = b.singular_values_.astype(float)
    eps = np.finfo(b.components_.dtype).eps
    gap = max(np.abs(np.diff(S, append=b.noise_variance_**0.5 * (b.n_samples_ - 1) ** 0.5)).min(), EPS * size)
    assert a.components_.dtype == b.components_.dtype
    assert np.abs(a.mean_ - b.mean_).max() <= 10 * EPS * size
    assert np.abs(a.singular_values_ - S).max() <= 30 * eps * size
    assert np.abs(a.explained_variance_ratio_ - b.explained_variance_ratio_).max() <= 30 * eps * size / S[0]
    assert a.noise_variance_ == pytest.approx(b.noise_variance_, rel=30 * eps * size / S[0])
    assert np.abs(a.components_ - b.components_).max() <= 1000 * eps * size / gap
