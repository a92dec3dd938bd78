"""Check that an operator of your own can be factorized."""

from typing import Any

import numpy as np

from shiftsvd.backends import as_operator
from shiftsvd.operators import Costs, panel_dtype

__all__ = ["check_operator"]


def check_operator(A: Any, rng: int | np.random.Generator | None = None) -> None:
    """Check the shape, dtype, products and adjoint of an operator.

    Parameters
    ----------
    A : Operator, or anything that `as_operator` takes, of shape (m, n)
        The operator to check.
    rng : int, Generator or None
        Seed of the panels that multiply A.

    Raises
    ------
    AssertionError
        If a property does not hold; the message names it.

    See Also
    --------
    Operator : The properties.

    Notes
    -----
    About ten passes with panels of three columns.

    Examples
    --------
    >>> import numpy as np
    >>> from shiftsvd.testing import check_operator
    >>> check_operator(np.ones((4, 3)))
    """
    A = as_operator(A)
    m, n = A.shape
    kind = type(A.costs).__name__
    _hold(isinstance(A.costs, Costs), f"costs must be a Costs, as Costs.of(self) gives it: got {kind}")
    rng = np.random.default_rng(rng)
    V, W = (rng.standard_normal((side, 3)).astype(panel_dtype(A.dtype)) for side in (n, m))
    AV, AhW = A.matmat(V), A.rmatmat(W)
    _hold(AV.shape == (m, 3), f"matmat must map (n, b) to (m, b): expected {(m, 3)}, got {AV.shape}")
    _hold(AhW.shape == (n, 3), f"rmatmat must map (m, b) to (n, b): expected {(n, 3)}, got {AhW.shape}")
    size = np.linalg.norm(W) * np.linalg.norm(AV) + np.linalg.norm(AhW) * np.linalg.norm(V)
    tol = 100 * max(A.costs.eps, np.finfo(np.float64).eps) * np.sqrt(m * n) * max(size, 1.0)
    gap = np.abs(W.conj().T @ AV - AhW.conj().T @ V).max()
    _hold(gap <= tol, f"W^H (A V) must equal (A^H W)^H V: they differ by {gap:.2e}, more than {tol:.2e}")
    gap = np.abs(A.matmat(2 * V[:, :1] - V[:, 1:2]) - (2 * AV[:, :1] - AV[:, 1:2])).max()
    _hold(gap <= tol, f"matmat must be linear, got a difference of {gap:.2e}")
    scale = max(float(np.abs(A.rmatmat(AV)).max()), 1.0)
    gap = np.abs(A.gram(V) - A.rmatmat(AV)).max()
    _hold(
        gap <= 100 * A.costs.eps * scale * np.sqrt(m),
        f"gram must equal rmatmat(matmat(V)), got a difference of {gap:.2e}",
    )
    weights = np.linspace(1, 2, m)
    gap = np.abs(A.gram(V, weights) - A.rmatmat(weights[:, None] * AV)).max()
    _hold(
        gap <= 200 * A.costs.eps * scale * np.sqrt(m),
        f"gram must multiply the rows by weights, got a difference of {gap:.2e}",
    )
    gap = np.abs(A.H.matmat(W) - AhW).max()
    _hold(gap <= tol, f"A.H.matmat must equal rmatmat, got a difference of {gap:.2e}")


def _hold(truth: bool, message: str) -> None:
    if not truth:
        raise AssertionError(message)
