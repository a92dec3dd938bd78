"""What a run of block Lanczos begins from: vectors that were given, or random ones."""

import numpy as np
from numpy.random import Generator

from shiftsvd.numerics.places import beside, sent
from shiftsvd.operators import Panel


def checked(start: Panel | None, n: int, dtype: np.dtype[np.generic]) -> Panel | None:
    if start is None:
        return None
    start = np.asarray(start)
    if start.ndim != 2 or start.shape[0] != n:
        raise ValueError(f"start must have {n} rows, one for each entry of the short side, got {start.shape}")
    if not np.isfinite(start).all():
        raise ValueError("start must be finite, got NaN or infinite entries; drop those columns")
    if np.iscomplexobj(start) and dtype.kind == "f":
        start = np.hstack([start.real, start.imag])
    largest = np.max(np.abs(start), axis=0)
    return np.asarray(start / np.where(largest > 0, largest, 1), dtype)


def first_block(start: Panel | None, n: int, width: int, dtype: np.dtype[np.generic], rng: Generator) -> Panel:
    F: Panel = rng.standard_normal((n, width)).astype(dtype)
    if start is None:
        return F
    # All of them at once would make every product as wide as they are many, for the same space.
    j = start.shape[1]
    if j <= width:
        return beside(start, sent(start, F[:, j:]))
    combined: Panel = start @ rng.standard_normal((j, width)).astype(dtype)
    return combined
