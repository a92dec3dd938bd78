"""Made-up data of known kinds, seeded: what the benchmarks run on."""

import numpy as np
from scipy.sparse import csr_array, vstack


def counts(rows: int = 60_000, columns: int = 2_000, groups: int = 15, seed: int = 0) -> csr_array:
    """Log-normalised gamma-Poisson counts with groups of rows, float32, about 8.5 % nonzero."""
    rng = np.random.default_rng(seed)
    mean = rng.gamma(0.35, 0.35, columns)
    profiles = mean * rng.lognormal(0, 0.7, (groups, columns))
    parts = []
    for lo in range(0, rows, 4_000):
        size = min(4_000, rows - lo)
        depth = rng.lognormal(0, 0.35, (size, 1))
        rate = profiles[rng.integers(0, groups, size)] * depth * rng.gamma(2, 0.5, (size, columns))
        block = csr_array(rng.poisson(rate).astype(np.float32))
        total = np.maximum(block.sum(axis=1), 1)
        block.data = np.log1p(block.data * np.repeat(1_000 / total, np.diff(block.indptr))).astype(np.float32)
        parts.append(block)
    return csr_array(vstack(parts, format="csr"))


def off_centre(rows: int, columns: int, ratio: float, seed: int = 0) -> np.ndarray:
    """Dense float32 with a clear spectrum, whose column means are `ratio` times its standard deviation."""
    rng = np.random.default_rng(seed)
    rank = 30
    X = rng.standard_normal((rows, rank)) * 0.9 ** np.arange(rank) @ rng.standard_normal((rank, columns))
    X += 0.1 * rng.standard_normal((rows, columns))
    return (X + ratio * X.std() * rng.choice([-1, 1], columns)).astype(np.float32)


def nearly_full(rows: int, columns: int, fill: float, ratio: float, seed: int = 0) -> csr_array:
    """CSR float32 of which a share `fill` is stored; the stored values lie `ratio` standard deviations off 0."""
    rng = np.random.default_rng(seed)
    return csr_array(np.where(rng.random((rows, columns)) < fill, off_centre(rows, columns, ratio, seed), 0))
