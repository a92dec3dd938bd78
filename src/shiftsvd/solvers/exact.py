"""The deterministic SVD: one pass that keeps the triangular factor, block by block."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from shiftsvd.algebra.generic import QR_ENTRIES, triangle
from shiftsvd.kernels import default_threads
from shiftsvd.operators import Operator, Panel
from shiftsvd.solvers.base import Solver, components_for
from shiftsvd.solvers.cost import long_vectors, surroundings
from shiftsvd.solvers.factors import Factors, long_factor, rounding


@dataclass(frozen=True)
class Exact(Solver):
    """All digits: a QR factorization of row blocks, one after the other, then the SVD of the last R.

    Nothing of the long side is held: blocks of the shifted matrix are made dense one by one, in double
    precision. Operators that know no blocks are multiplied by the identity.

    Notes
    -----
    One pass, ``2 m n^2`` operations and ``n^2`` numbers for an m x n matrix with m >= n; meant for
    ``n <= 1000``, or for a larger n where all components are wanted.

    References
    ----------
    Demmel, Grigori, Hoemmen & Langou (2012), Communication-optimal QR (the sequential TSQR).

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> F = ss.svd(np.diag([3.0, 2.0, 1.0]), 2, solver=ss.Exact())
    >>> F.S
    array([3., 2.])
    """

    takes_shares = True
    remedy = "The values are right to rounding, which their bounds are too coarse to show: these come from squares"

    def factorize(self, A: Operator, k: int | float, rng: Generator) -> Factors:
        """The factors of A or of its adjoint, whichever is tall."""
        return self._tall(A, k) if A.shape[0] >= A.shape[1] else self._tall(A.H, k).H

    def _tall(self, A: Operator, share: int | float) -> Factors:
        """A is m x n with m >= n."""
        n = A.shape[1]
        _, S, Vh = np.linalg.svd(_triangle(A), full_matrices=False)
        k = components_for(S**2, share) if isinstance(share, float) else share
        eps = min(A.costs.gram_eps, A.H.costs.gram_eps)  # blocks are those of whichever is stored
        missed, rest = (float(S[k] + rounding(A, eps) * S[0]) if k < n else 0.0), float(np.linalg.norm(S[k:]))
        S, Vh = S[:k], Vh[:k]
        return Factors(lambda: long_factor(A, Vh.conj().T), S, Vh, 1, n, 1, missed_below=missed, rest=rest, eps=eps)

    def expected_passes(self, A: Operator, k: int) -> float:
        """One."""
        return 1.0

    def peak_bytes(self, A: Operator, k: int) -> int:
        """Blocks in flight, their triangles, and the long factor if asked for."""
        m, n = max(A.shape), min(A.shape)
        threads, size = A.costs.n_threads or default_threads(), min(max(QR_ENTRIES, 2 * n * n), m * n)
        count = -(-m * n // size)
        # Those that wait, the rows of the shift of the next one, and two copies of each one that LAPACK works on.
        waiting = min(count, threads + 2) + 1 if count > 1 else 0
        blocks = size * (waiting + 2 * min(count, threads))
        return 8 * (blocks + 6 * n * n) + surroundings(A) + long_vectors(A, k)


def _triangle(A: Operator) -> Panel:
    """R of the QR of A, square."""
    R, n = triangle(A), A.shape[1]
    return R if len(R) >= n else np.vstack([R, np.zeros((n - len(R), n), R.dtype)])
