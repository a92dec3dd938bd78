"""Algorithm 1 of Basirat (2019), "Shifted Randomized Singular Value Decomposition", line by line."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.linalg import qr_update

from shiftsvd.algebra.generic import unshifted
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import graded_basis, qr, triangle
from shiftsvd.operators import LowRank, Operator, Scaled, Shifted, panel_dtype
from shiftsvd.sketch import Gaussian, Sketch
from shiftsvd.solvers.base import Solver
from shiftsvd.solvers.cost import surroundings
from shiftsvd.solvers.factors import Factors


@dataclass(frozen=True)
class ShiftedRandomizedSVD(Solver):
    """The paper's algorithm as printed; with no shift it is the plain randomized SVD that it extends.

    The paper's columns are samples, here rows are: the adjoint of A is what the lines below factorize.

    Parameters
    ----------
    n_oversamples : int, optional
        K - k; None is the paper's K = 2k. K is clipped to min(m, n).
    n_iter : int
        The power iterations, q.
    sketch : Sketch
        The random test matrix that the range is sampled with.
    certify : bool
        Also compute what proves the result: bounds of the errors, and what was missed; see `solvers.Solver`.

    Raises
    ------
    ValueError
        When called on a matrix whose shift is not ``1 mu^T``: line 6 needs mu by itself.

    See Also
    --------
    RandomizedSVD : An exact sample of the shifted matrix.
    halko_bound : What may be expected.

    Notes
    -----
    ``2 q + 2`` passes. Line 6 as printed subtracts ``mu 1_K^T``, while the sample of the shifted matrix is
    ``X Omega - mu (1_n^T Omega)``; measured, it changes the result no more than leaving it out does. One
    direction of the sample goes to mu, so ask for K >= k + 2, and for a shift that is not the mean use
    n_iter >= 1. `RandomizedSVD` samples exactly.

    References
    ----------
    A. Basirat (2019), Shifted Randomized Singular Value Decomposition, Algorithm 1; Halko, Martinsson & Tropp
    (2011); for line 6 Golub & Van Loan, section 12.5.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.random.default_rng(0).random((50, 6))
    >>> F = ss.svd(X, 2, shift="mean", solver=ss.ShiftedRandomizedSVD(), rng=0)
    >>> F.U.shape, F.info.n_passes, F.info.sample_size
    ((50, 2), 2, 4)
    """

    remedy = 'More n_iter or n_oversamples may help, and solver="lanczos" goes on until every value is certain'
    n_oversamples: int | None = None
    n_iter: int = 0
    sketch: Sketch = Gaussian()

    def __post_init__(self) -> None:
        if self.n_iter < 0 or (self.n_oversamples is not None and self.n_oversamples < 0):
            raise ValueError(f"n_iter and n_oversamples must be at least 0, got {self}")

    def factorize(self, A: Operator, k: int | float, rng: Generator) -> Factors:
        k, Xbar = int(k), A.H
        X, mu = take_apart(Xbar)
        K = min(2 * k if self.n_oversamples is None else k + self.n_oversamples, *X.shape)
        ones = np.ones(K)

        X1 = self.sketch.apply(X, K, rng)  # lines 2 and 3: X_1 = X Omega, Omega n x K
        Q, R = qr(X1)  # line 4
        if np.any(mu != 0):  # line 5
            Q, R = qr_update(Q, R, -mu.astype(Q.dtype), ones.astype(Q.dtype))  # line 6
        for _ in range(self.n_iter):  # line 8
            Q1, _ = qr(Xbar.rmatmat(Q))  # line 9: X^T Q - 1 (mu^T Q)
            Q, _ = qr(Xbar.matmat(Q1))  # line 10: X Q' - mu (1^T Q')
        Yh = Xbar.rmatmat(Q)  # line 12: the adjoint of Y = Q^T X - (Q^T mu) 1^T
        U1, S, _ = np.linalg.svd(triangle(Yh).conj().T)  # line 13: Y = U_1 Sigma V^T, V when asked for
        U = Q @ U1  # line 14
        return Factors(U, S, lambda: graded_basis(Yh @ U1[:, :k]).conj().T, 2 * self.n_iter + 2, K).H  # line 15

    def expected_passes(self, A: Operator, k: int) -> float:
        return 2.0 * self.n_iter + 2

    def peak_bytes(self, A: Operator, k: int) -> int:
        K = min(2 * k if self.n_oversamples is None else k + self.n_oversamples, *A.shape)
        return 8 * K * (3 * A.shape[0] + 3 * A.shape[1]) + surroundings(A, K)


def take_apart(Xbar: Operator) -> tuple[Operator, Vector]:
    dtype = panel_dtype(Xbar.dtype)
    if isinstance(Xbar, Scaled):
        # D (X - mu 1^T) W = D X W - (D mu) (W 1)^T: row weights change the ones, and line 6 has none of them.
        X, mu = take_apart(Xbar.A)
        return Scaled(X, Xbar.rows, Xbar.cols), mu if Xbar.rows is None else Xbar.rows * mu
    X, shift = unshifted(Xbar)
    if shift is None and not isinstance(X, Shifted):
        return X, np.zeros(X.shape[0], dtype)
    row = shift.H.row_vector() if shift else None  # (mu 1^T)^H = 1 mu^H
    if row is None:
        raise ValueError(
            f"ShiftedRandomizedSVD takes shifts of the form 1 mu^T, got {_described(shift)}; "
            "use RandomizedSVD, which takes any"
        )
    return X, row.conj()


def _described(shift: LowRank | None) -> str:
    return "an operator" if shift is None else f"one of rank {shift.L.shape[1]}"
