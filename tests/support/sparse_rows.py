"""Sparse rows for the tests of what is read in blocks."""

from typing import Any

import numpy as np
from scipy import sparse


def sparse_rows(m: int = 3000, n: int = 120, dtype: Any = np.float32) -> sparse.csr_array:
    """Counts whose rows are of a few kinds, so that some values stand out."""
    rng = np.random.default_rng(5)
    rates = rng.gamma(0.3, 1.0, (6, n))[rng.integers(0, 6, m)]
    return sparse.csr_array(rng.poisson(rates).astype(dtype))
