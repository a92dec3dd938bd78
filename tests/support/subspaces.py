"""Spans of orthonormal columns: angles, and orthonormality to rounding."""

import numpy as np

from tests.support.closeness import assert_close
from tests.support.matrices import EPS, Array


def assert_orthonormal(Q: Array, eps: float = EPS) -> None:
    """Q^H Q = I to rounding."""
    k = Q.shape[1]
    assert_close(Q.conj().T @ Q, np.eye(k), 50 * eps * np.sqrt(k * len(Q)), "Q^H Q - I")


def angle(P: Array, Q: Array) -> float:
    """Sine of the largest angle between the spans of two sets of orthonormal columns of equal number."""
    return float(np.linalg.norm(Q - P @ (P.conj().T @ Q), 2))


def assert_same_span(Y: Array, Z: Array, bound: float) -> None:
    """Both spans are one, to `bound`."""
    assert angle(np.linalg.qr(Y)[0], np.linalg.qr(Z)[0]) <= bound
