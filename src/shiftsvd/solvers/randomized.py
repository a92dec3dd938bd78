"""Randomized SVD of a shifted matrix, and Algorithm 1 of Basirat (2019), line by line."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import Generator
from scipy.linalg import qr_update

from shiftsvd.algebra.generic import unshifted
from shiftsvd.errors import Part, Refused, Setting, refuse
from shiftsvd.names import NormalizerName
from shiftsvd.numerics.orth import NORMALIZERS, graded_basis, orth, qr, triangle
from shiftsvd.operators import Operator, Scaled, Shifted, Vector, panel_dtype
from shiftsvd.sketch import Gaussian, Sketch
from shiftsvd.solvers.base import Solver
from shiftsvd.solvers.cost import overhead_bytes
from shiftsvd.solvers.factors import Factors

MORE_ITERATIONS: tuple[Part, ...] = (
    "Raise ",
    Setting("n_iter"),
    " or ",
    Setting("n_oversamples"),
    ", or use ",
    Setting("solver", "lanczos"),
    ", which iterates until every value has converged.",
)


@dataclass(frozen=True)
class RandomizedSVD(Solver):
    """Randomized subspace iteration for any shift and scale.

    The result equals the randomized SVD of the explicitly shifted matrix with the same test matrix, to rounding.
    The sample spans ``(A A^H)^q A Omega``, with Omega drawn on the short side.

    Parameters
    ----------
    n_oversamples : int
        Columns of the sample beyond k; the sum is clipped to min(m, n).
    n_iter : int or "auto"
        The power iterations q. "auto" is 7 where k < min(m, n) / 10, else 4, as in scikit-learn.
    power_iteration_normalizer : {"auto", "QR", "LU", "CholeskyQR2", "none"}
        Normalization between half steps. "auto" is a Cholesky step if the condition number allows it, else LU. "none"
        loses components below ``eps^(1/(2q+1)) sigma_1``.
    sketch : Sketch
        The random test matrix, which samples the range.
    finish : {"project", "last"}
        "project" ends with ``B = Q^H A``; "last" takes the factors from the last product of the iteration, which
        saves one pass (n_iter >= 1).
    certify : bool
        Also compute error bounds and `Info.missed_below`; see `solvers.Solver`.

    See Also
    --------
    BlockLanczos : Iterates until all values have converged.
    ShiftedRandomizedSVD : The algorithm of Basirat (2019).

    Notes
    -----
    ``2 q + 2`` passes, or ``2 q + 1`` with ``finish="last"``. There is no stopping rule: trailing components
    of slowly decaying spectra can have errors of several percent; ``certify=True`` computes bounds.

    References
    ----------
    Halko, Martinsson & Tropp (2011), algorithms 4.4 and 5.1.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> X = np.random.default_rng(0).random((50, 6))
    >>> F = ss.svd(X, 2, shift="mean", solver=ss.RandomizedSVD(n_iter=3), rng=0)
    >>> bool(np.allclose(F.S, np.linalg.svd(X - X.mean(0))[1][:2]))
    True
    """

    remedy = MORE_ITERATIONS
    n_oversamples: int = 10
    n_iter: int | Literal["auto"] = "auto"
    power_iteration_normalizer: NormalizerName = "auto"
    sketch: Sketch = Gaussian()
    finish: Literal["project", "last"] = "project"

    def __post_init__(self) -> None:
        if self.n_oversamples < 0:
            raise refuse("n_oversamples", "be at least 0", self.n_oversamples)
        if self.n_iter != "auto" and (not isinstance(self.n_iter, int | np.integer) or self.n_iter < 0):
            raise refuse("n_iter", 'be "auto" or an integer of at least 0', self.n_iter)
        if self.power_iteration_normalizer not in NORMALIZERS:
            known = ", ".join(NORMALIZERS)
            raise refuse("power_iteration_normalizer", f"be one of {known}", self.power_iteration_normalizer)
        if self.finish not in ("project", "last"):
            raise refuse("finish", 'be "project" or "last"', self.finish)
        if self.finish == "last" and self.n_iter == 0:
            rest = " >= 1, because it takes the result from the product of the last power iteration"
            raise Refused(Setting("finish", "last"), " needs ", Setting("n_iter"), rest)

    def factorize(self, A: Operator, k: int | float, rng: Generator) -> Factors:
        k = int(k)
        return self._tall(A, k, rng) if A.shape[0] >= A.shape[1] else self._tall(A.H, k, rng).H

    def _tall(self, A: Operator, k: int, rng: Generator) -> Factors:
        ell, q = self._sizes(A.shape, k)
        normalize = NORMALIZERS[self.power_iteration_normalizer]
        Y = self.sketch.apply(A, ell, rng)
        for _ in range(q - (self.finish == "last")):
            Z = normalize(A.rmatmat(normalize(Y)))
            Y = A.matmat(Z)
        if self.finish == "last":
            Z = orth(A.rmatmat(normalize(Y)))
            U, S, Wh = np.linalg.svd(A.matmat(Z), full_matrices=False)
            return Factors(U, S, Wh @ Z.conj().T, 2 * q + 1, ell)
        Q = orth(Y)
        del Y
        V, S, Wh = np.linalg.svd(A.rmatmat(Q), full_matrices=False)  # B^H = A^H Q = V S W^H
        return Factors(lambda: Q @ Wh[:k].conj().T, S, V.conj().T, 2 * q + 2, ell)

    def _sizes(self, shape: tuple[int, int], k: int) -> tuple[int, int]:
        q = auto_iterations(k, shape) if self.n_iter == "auto" else int(self.n_iter)
        return min(k + self.n_oversamples, *shape), q

    def expected_passes(self, A: Operator, k: int) -> float:
        return 2.0 * self._sizes(A.shape, k)[1] + (1 if self.finish == "last" else 2)

    def peak_bytes(self, A: Operator, k: int) -> int:
        ell, _ = self._sizes(A.shape, k)
        return 8 * ell * (6 * max(A.shape) + 4 * min(A.shape)) + overhead_bytes(A, ell)


def auto_iterations(k: int, shape: tuple[int, int]) -> int:
    return 7 if k < 0.1 * min(shape) else 4


@dataclass(frozen=True)
class ShiftedRandomizedSVD(Solver):
    """Algorithm 1 of Basirat (2019) as printed; without a shift, the randomized SVD of Halko et al. (2011).

    The paper stores samples in columns. Here rows are samples, so the algorithm factorizes the adjoint of A.

    Parameters
    ----------
    n_oversamples : int, optional
        K - k; None is the paper's K = 2k. K is clipped to min(m, n).
    n_iter : int
        The power iterations, q.
    sketch : Sketch
        The random test matrix, which samples the range.
    certify : bool
        Also compute error bounds and `Info.missed_below`; see `solvers.Solver`.

    Raises
    ------
    ValueError
        When called on a matrix whose shift is not ``1 mu^T``, because line 6 uses mu.

    See Also
    --------
    RandomizedSVD : An exact sample of the shifted matrix.
    halko_bound : Bound of the expected error.

    Notes
    -----
    ``2 q + 2`` passes. Line 6 as printed subtracts ``mu 1_K^T``, while the sample of the shifted matrix is
    ``X Omega - mu (1_n^T Omega)``; in measurements the result was as accurate without line 6. The sample spends one
    direction on mu, so use K >= k + 2, and n_iter >= 1 for a shift that is not the mean. `RandomizedSVD` uses the exact
    sample.

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

    remedy = MORE_ITERATIONS
    n_oversamples: int | None = None
    n_iter: int = 0
    sketch: Sketch = Gaussian()

    def __post_init__(self) -> None:
        if self.n_iter < 0 or (self.n_oversamples is not None and self.n_oversamples < 0):
            raise Refused(Setting("n_iter"), " and ", Setting("n_oversamples"), f" must be at least 0, got {self}")

    def factorize(self, A: Operator, k: int | float, rng: Generator) -> Factors:
        k, Xbar = int(k), A.H
        X, mu = split_mean(Xbar)
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
        return 8 * K * (3 * A.shape[0] + 3 * A.shape[1]) + overhead_bytes(A, K)


def split_mean(Xbar: Operator) -> tuple[Operator, Vector]:
    dtype = panel_dtype(Xbar.dtype)
    if isinstance(Xbar, Scaled):
        # D (X - mu 1^T) W = D X W - (D mu) (W 1)^T. Row weights W change the vector 1, but line 6 as printed uses 1.
        X, mu = split_mean(Xbar.A)
        return Scaled(X, Xbar.rows, Xbar.cols), mu if Xbar.rows is None else Xbar.rows * mu
    X, shift = unshifted(Xbar)
    if shift is None and not isinstance(X, Shifted):
        return X, np.zeros(X.shape[0], dtype)
    row = shift.H.row_vector() if shift else None  # (mu 1^T)^H = 1 mu^H
    if row is None:
        raise unsupported_shift("an operator" if shift is None else f"one of rank {shift.L.shape[1]}")
    return X, row.conj()


def unsupported_shift(got: str) -> ValueError:
    return ValueError(
        f"ShiftedRandomizedSVD supports shifts of the form 1 mu^T, got {got}. "
        "Use RandomizedSVD, which supports every shift."
    )
