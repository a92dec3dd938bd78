"""SciPy's ARPACK on the operator: what scikit-learn's svd_solver="arpack" means, to machine precision."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.sparse.linalg import LinearOperator, eigsh

from shiftsvd.moments import Vector
from shiftsvd.operators import Operator, panel_dtype
from shiftsvd.solvers.base import Factors, Solver
from shiftsvd.solvers.exact import Exact


@dataclass(frozen=True)
class Arpack(Solver):
    """Single-vector Lanczos on ``A^H A`` to machine precision, then a Rayleigh-Ritz step on A itself.

    Notes
    -----
    Two passes for each of the many steps; `Info.n_passes` counts them.

    References
    ----------
    Lehoucq, Sorensen & Yang (1998), ARPACK users' guide.
    """

    def factorize(self, A: Operator, k: int, rng: Generator) -> Factors:
        """The factors of A or of its adjoint, whichever is tall."""
        return self._tall(A, k, rng) if A.shape[0] >= A.shape[1] else self._tall(A.H, k, rng).H

    def _tall(self, A: Operator, k: int, rng: Generator) -> Factors:
        """A is m x n with m >= n."""
        n, dtype = A.shape[1], panel_dtype(A.dtype)
        start = rng.uniform(-1, 1, n).astype(dtype)
        # ARPACK wants k < n, and stops with an error where the start vector is mapped to 0.
        if k >= n or not np.any(A.gram(start[:, None])):
            return Exact().factorize(A, k, rng)
        n_products = 0

        def gram(v: Vector) -> Vector:
            nonlocal n_products
            n_products += 1
            return A.gram(v.reshape(n, 1)).ravel()

        _, V = eigsh(LinearOperator((n, n), matvec=gram, dtype=dtype), k, which="LM", tol=0, v0=start)
        V, _ = np.linalg.qr(V)
        U, S, Wh = np.linalg.svd(A.matmat(V), full_matrices=False)
        return Factors(U, S, Wh @ V.conj().T, 2 * n_products + 3, 1)

    def peak_bytes(self, shape: tuple[int, int], k: int) -> int:
        """ARPACK's basis on the short side, the last panels on the long one."""
        return 8 * (max(2 * k + 1, 20) * min(shape) + 2 * k * (max(shape) + min(shape)))
