"""Deterministic SVD: QR factorization of blocks of rows in one pass, or eigenvalues of ``A^H A`` if accurate enough."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from shiftsvd.algebra.generic import QR_ENTRIES, cancelled, gram_matrix, triangle
from shiftsvd.kernels import default_threads
from shiftsvd.numerics.powers import length
from shiftsvd.operators import Operator, Panel
from shiftsvd.solvers.base import Solver, check_tol
from shiftsvd.solvers.constants import DIFFERENCE_MARGIN, EPS, SQUARES_SHARE
from shiftsvd.solvers.cost import long_vector_bytes, overhead_bytes, tall
from shiftsvd.solvers.factors import Factors, components_for, long_factor, rounding, squares_rounding


@dataclass(frozen=True, repr=False)
class Exact(Solver):
    """Exact SVD by a sequential QR factorization of row blocks and the SVD of the last R, accurate to rounding.

    Blocks of the shifted matrix are converted to dense double precision one by one, so no array as long as the long
    side is stored. Operators without blocks are multiplied by the identity.

    Parameters
    ----------
    tol : float
        0, the default, means accurate to rounding. For a positive `tol` the eigenvalues of ``A^H A``, which are several
        times faster, are tried first; they are used if their rounding provably changes every value by at most
        ``tol / 10``, relatively. `auto_solver` sets `tol` for small dense data.
    certify : bool
        Also compute error bounds and `Info.missed_below`; see `solvers.Solver`.

    See Also
    --------
    Gram : Eigenvalues of ``A^H A``.
    BlockLanczos : For large matrices.

    Notes
    -----
    One pass, ``2 m n^2`` operations and ``n^2`` numbers for an m x n matrix with m >= n; meant for
    ``n <= 1000``, or for a larger n where all components are wanted.

    With a `tol`, a pass and ``m n^2`` operations come first. The computed eigenvalues are those of a matrix within
    ``max(m, n) eps (||A||_F^2 + ||shift||_F^2)`` of ``A^H A``, which changes sigma_k by half of that over sigma_k.
    These eigenvalues are discarded if the change exceeds ``tol sigma_k / 10``, if the rest of the matrix is negligible,
    if all components are wanted, and with ``certify=True``.

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

    tol: float = 0.0

    takes_shares = True
    remedy = ("The values are accurate to rounding, but their error bounds, computed from squares, are larger.",)

    def __post_init__(self) -> None:
        check_tol(self.tol, any_size=True)

    def __repr__(self) -> str:
        return f"Exact(tol={self.tol!r})" if self.tol > 0 else "Exact()"

    def factorize(self, A: Operator, k: int | float, rng: Generator) -> Factors:
        return self._tall(A, k) if A.shape[0] >= A.shape[1] else self._tall(A.H, k).H

    def _tall(self, A: Operator, share: int | float) -> Factors:
        n, squared = A.shape[1], self.tol > 0 and not self.certify and share != A.shape[1]
        factors = self._of_squares(A, share) if squared else None
        if factors is not None:
            return factors
        _, S, Vh = np.linalg.svd(_triangle(A), full_matrices=False)
        k = components_for(S**2, share) if isinstance(share, float) else share
        eps = A.costs.gram_eps
        # Blocks have the rounding unit of the stored matrix, which is A or its adjoint.
        eps = eps if eps == EPS else min(eps, A.H.costs.gram_eps)
        missed = float(S[k] + rounding(A, eps) * S[0] + 4 * EPS * cancelled(A)) if k < n else 0.0
        rest, S, Vh = length(S[k:]), S[:k], Vh[:k]
        U = lambda: long_factor(A, Vh.conj().T)  # noqa: E731
        return Factors(U, S, Vh, 2 if squared else 1, n, 1, missed_below=missed, rest=rest, eps=eps)

    def _of_squares(self, A: Operator, share: int | float) -> Factors | None:
        G = gram_matrix(A)
        theta, Z = np.linalg.eigh(G)
        theta, V = np.maximum(theta[::-1], 0), Z[:, ::-1]
        k = components_for(theta, share) if isinstance(share, float) else share
        eps = A.costs.gram_eps
        noise, rest = squares_rounding(A, G), float(theta[k:].sum())
        if not (noise < 2 * SQUARES_SHARE * self.tol * theta[k - 1] and rest >= DIFFERENCE_MARGIN * noise):
            return None
        missed = float(np.sqrt(theta[k] + noise))
        S, V = np.sqrt(theta[:k]), V[:, :k]
        U = lambda: long_factor(A, V)  # noqa: E731
        return Factors(U, S, V.conj().T, 1, len(theta), 1, missed_below=missed, rest=float(np.sqrt(rest)), eps=eps)

    def expected_passes(self, A: Operator, k: int) -> float:
        return 1.0

    def passes_range(self, A: Operator, k: int) -> tuple[int, int]:
        return 1, 2 if self.tol > 0 else 1

    def peak_bytes(self, A: Operator, k: int) -> int:
        m, n = max(A.shape), min(A.shape)
        threads, size = A.costs.n_threads or default_threads(), min(max(QR_ENTRIES, 2 * n * n), m * n)
        count = -(-m * n // size)
        if count > 1 and tall(A).costs.square_columns:  # a file with its rows on the short side is one block
            return 8 * (3 * m * n + 6 * n * n) + overhead_bytes(A, k) + long_vector_bytes(A, k)
        # Waiting blocks, the shift of the next block, and two copies of each block that LAPACK factorizes.
        waiting = min(count, threads + 2) + 1 if count > 1 else 0
        blocks = size * (waiting + 2 * min(count, threads))
        return 8 * (blocks + 6 * n * n) + overhead_bytes(A, k) + long_vector_bytes(A, k)


def _triangle(A: Operator) -> Panel:
    R, n = triangle(A), A.shape[1]
    return R if len(R) >= n else np.vstack([R, np.zeros((n - len(R), n), R.dtype)])
