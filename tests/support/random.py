"""Random sparse matrices that are made in little memory."""

import numpy as np
from scipy.sparse import csr_array


def random_csr(shape, nonzeros, dtype=np.float64, seed=0):
    """About so many nonzeros, sorted, without a dense or a coordinate copy on the way."""
    rng = np.random.default_rng(seed)
    m, n = shape
    each = nonzeros // m
    # Sorted draws plus 0, 1, 2, ...: columns without repetition.
    columns = np.sort(rng.integers(0, n - each + 1, (m, each), dtype=np.int32), axis=1)
    columns += np.arange(each, dtype=np.int32)
    indptr = np.arange(0, m * each + 1, each)
    return csr_array((rng.random(m * each).astype(dtype), columns.ravel(), indptr), shape=shape)
