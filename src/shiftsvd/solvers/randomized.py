"""Randomized SVD of the shifted matrix itself: an exact sample, power iterations, and a projection."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import Generator

from shiftsvd.names import NormalizerName
from shiftsvd.numerics.orth import NORMALIZERS, orth
from shiftsvd.operators import Operator
from shiftsvd.sketch import Gaussian, Sketch
from shiftsvd.solvers.base import Solver
from shiftsvd.solvers.cost import surroundings
from shiftsvd.solvers.factors import Factors


@dataclass(frozen=True)
class RandomizedSVD(Solver):
    """Randomized subspace iteration on the operator: any shift, any scale, an exact sample.

    It equals the randomized SVD of the explicitly shifted matrix with the same test matrix, to rounding.
    The sample spans ``(A A^H)^q A Omega``, with Omega drawn on the short side.

    Parameters
    ----------
    n_oversamples : int
        Columns of the sample beyond k; the sum is clipped to min(m, n).
    n_iter : int or "auto"
        The power iterations q. "auto" is 7 where k < min(m, n) / 10, else 4, as in scikit-learn.
    power_iteration_normalizer : {"auto", "QR", "LU", "CholeskyQR2", "none"}
        Between half steps; "auto" is a Cholesky step where the condition allows it, else LU. "none" loses what
        is below ``eps^(1/(2q+1)) sigma_1``.
    sketch : Sketch
        The random test matrix that the range is sampled with.
    finish : {"project", "last"}
        "project" ends with ``B = Q^H A``; "last" takes the factors from the last product of the iteration, which
        saves one pass (n_iter >= 1).
    certify : bool
        Also compute what proves the result: bounds of the errors, and what was missed; see `solvers.Solver`.

    See Also
    --------
    BlockLanczos : Goes on until the values are right.
    ShiftedRandomizedSVD : The paper's algorithm.

    Notes
    -----
    ``2 q + 2`` passes, or ``2 q + 1`` with ``finish="last"``. There is no stopping rule: trailing components
    of slowly decaying spectra can be off by percents; ``certify=True`` tells.

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

    remedy = 'More n_iter or n_oversamples may help, and solver="lanczos" goes on until every value is certain'
    n_oversamples: int = 10
    n_iter: int | Literal["auto"] = "auto"
    power_iteration_normalizer: NormalizerName = "auto"
    sketch: Sketch = Gaussian()
    finish: Literal["project", "last"] = "project"

    def __post_init__(self) -> None:
        if self.n_oversamples < 0:
            raise ValueError(f"n_oversamples must be at least 0, got {self.n_oversamples}")
        if self.n_iter != "auto" and (not isinstance(self.n_iter, int | np.integer) or self.n_iter < 0):
            raise ValueError(f'n_iter must be "auto" or an integer of at least 0, got {self.n_iter!r}')
        if self.power_iteration_normalizer not in NORMALIZERS:
            known, got = ", ".join(NORMALIZERS), self.power_iteration_normalizer
            raise ValueError(f"power_iteration_normalizer must be one of {known}, got {got!r}")
        if self.finish not in ("project", "last"):
            raise ValueError(f'finish must be "project" or "last", got {self.finish!r}')
        if self.finish == "last" and self.n_iter == 0:
            raise ValueError('finish="last" needs n_iter >= 1: without an iteration there is no last product')

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
        return 8 * ell * (6 * max(A.shape) + 4 * min(A.shape)) + surroundings(A, ell)


def auto_iterations(k: int, shape: tuple[int, int]) -> int:
    return 7 if k < 0.1 * min(shape) else 4
