"""What an algorithm returns, and what rounding leaves of it."""

from typing import NamedTuple

import numpy as np

from shiftsvd.algebra.generic import lazy_basis, matmat_in_double, unshifted
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import graded_basis
from shiftsvd.operators import Operator, Panel
from shiftsvd.result import Certificate, Lazy


class Factors(NamedTuple):
    """What an algorithm returns: at least k values and vectors, the long-side factor as a function."""

    U: Lazy
    S: Vector
    Vh: Lazy
    n_passes: int
    sample_size: int
    factor_passes: int = 0  # reads that the long-side factor takes when it is asked for
    certificate: Certificate | None = None  # of a solver that knows when to stop
    missed_below: float | None = None  # of one that finds all values, what the next one is at most
    rest: float | None = None  # the length of all that it left out

    @property
    def H(self) -> "Factors":
        """The factors of the conjugate transpose."""
        return self._replace(U=_adjoint(self.Vh), Vh=_adjoint(self.U))


def _adjoint(F: Lazy) -> Lazy:
    """The conjugate transpose, as lazy as F."""
    return (lambda: F().conj().T) if callable(F) else F.conj().T


def long_factor(A: Operator, V: Panel) -> Panel:
    """U of ``A V = U diag(S)``; a lazy array where the rows of A are spread over a cluster."""
    lazy: Panel | None = lazy_basis(A, V)
    return graded_basis(matmat_in_double(A, V)) if lazy is None else lazy


def rounding(A: Operator) -> float:
    """What rounding leaves of a number that should be 0, relative to the largest value."""
    # Single precision products leave noise that grows like the root of the length, not like the length:
    # max(m, n) eps would call a tenth of sigma_1 zero on a million rows.
    double = float(np.finfo(np.float64).eps) * max(A.shape)
    return max(double, A.costs.eps * float(np.sqrt(max(A.shape))) if A.costs.eps > 1e-10 else 0.0)


def rank_floor(A: Operator, first: float) -> float:
    """Values up to this are rounding: of the products, whose largest value is `first`, or of the shift itself."""
    _, shift = unshifted(A)
    # Means are right to an ulp or two.
    own = 4 * float(np.finfo(np.float64).eps) * shift.frobenius_norm() if shift else 0.0
    return max(rounding(A) * float(first), own)
