"""Made-up data of known kinds, seeded: what the benchmarks run on."""

from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import numpy as np
from scipy.fft import idctn
from scipy.sparse import csr_array, vstack


def counts(
    rows: int = 60_000, columns: int = 2_000, groups: int = 15, seed: int = 0, level: float = 0.274
) -> csr_array:
    """Log-normalised gamma-Poisson counts with groups of rows, float32; the level is set for 8.5 % nonzero."""
    rng = np.random.default_rng(seed)
    profiles = rng.gamma(0.35, level, columns) * rng.lognormal(0, 0.7, (groups, columns))
    seeds = np.random.SeedSequence(seed).spawn(-(-rows // 4_000))
    sizes = [min(4_000, rows - lo) for lo in range(0, rows, 4_000)]
    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(_cells, seeds, sizes, repeat(profiles)))
    return csr_array(vstack(parts, format="csr"))


def _cells(seed: np.random.SeedSequence, size: int, profiles: np.ndarray) -> csr_array:
    """A block of rows, each of one of the groups and with a depth of its own."""
    rng = np.random.default_rng(seed)
    rate = rng.standard_gamma(2, (size, profiles.shape[1]))
    rate *= profiles[rng.integers(0, len(profiles), size)] * (0.5 * rng.lognormal(0, 0.35, (size, 1)))
    block = csr_array(rng.poisson(rate).astype(np.float32))
    total = np.maximum(block.sum(axis=1), 1)
    block.data = np.log1p(block.data * np.repeat(1_000 / total, np.diff(block.indptr))).astype(np.float32)
    return block


def pixels(rows: int = 20_000, side: int = 64, ratio: float = 30, seed: int = 0) -> np.ndarray:
    """Dense float32 images of side x side with the smooth spectrum of photographs, far from the origin.

    The amplitudes of their cosine waves fall like 1 / (1 + frequency); the mean of every pixel is about `ratio`
    standard deviations.
    """
    rng = np.random.default_rng(seed)
    u, v = np.meshgrid(np.arange(side), np.arange(side))
    amplitude = 1 / (1 + np.hypot(u, 1.15 * v)) ** 1.2
    mean = ratio * np.sqrt(np.mean(amplitude**2)) * rng.uniform(0.9, 1.1, side * side)
    X = np.empty((rows, side * side), np.float32)
    for lo in range(0, rows, 1_000):
        waves = amplitude * rng.standard_normal((min(1_000, rows - lo), side, side))
        X[lo : lo + 1_000] = idctn(waves, axes=(1, 2), norm="ortho").reshape(len(waves), -1) + mean
    return X


def flat(rows: int = 20_000, columns: int = 2_000, power: float = 0.1, seed: int = 0) -> np.ndarray:
    """Dense float64 whose centred singular values are j^-power, with nonzero column means."""
    rng = np.random.default_rng(seed)
    r = min(rows - 1, columns)
    # The first vector is constant: the others are orthogonal to it, so that centring leaves them as they are.
    U, _ = np.linalg.qr(np.column_stack([np.ones(rows), rng.standard_normal((rows, r))]))
    V, _ = np.linalg.qr(rng.standard_normal((columns, r)))
    X = (U[:, 1:] * np.arange(1, r + 1) ** -power) @ V.T
    return X + rng.standard_normal(columns) / np.sqrt(rows)


def uniform(rows: int, columns: int, nonzeros: int, seed: int = 0) -> csr_array:
    """A CSR matrix with about so many uniform nonzeros at random places."""
    rng = np.random.default_rng(seed)
    place = np.unique(rng.integers(0, rows * columns, nonzeros))
    starts = np.searchsorted(place, np.arange(rows + 1, dtype=np.int64) * columns)
    return csr_array((rng.random(len(place)), place % columns, starts), shape=(rows, columns))


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
