"""Equality to a bound that is stated."""

from typing import Any

import numpy as np


def assert_close(got: Any, want: Any, bound: float, what: str = "") -> None:
    """The Frobenius distance is at most `bound`; shapes agree."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    assert np.isfinite(got).all(), f"{what}: not finite"
    distance = np.linalg.norm((got - want).ravel().astype(complex))
    assert distance <= bound, f"{what}: off by {distance:.2e}, more than {bound:.2e}"
