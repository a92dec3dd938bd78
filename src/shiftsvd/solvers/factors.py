"""What an algorithm returns, and what rounding leaves of it."""

from typing import NamedTuple

import numpy as np

from shiftsvd.algebra.generic import cancelled, lazy_basis, matmat_in_double, placed, shift_of
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import graded_basis
from shiftsvd.numerics.places import on_host, to_spare
from shiftsvd.operators import Operator, Panel
from shiftsvd.result import Certificate, Lazy

# What the rounding of squares may take of the tolerance where no value is read off the data themselves.
PART = 0.1


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
    eps: float | None = None  # rounding unit of what the values came from, where that is not the unit of all products

    @property
    def H(self) -> "Factors":
        return self._replace(U=_adjoint(self.Vh), Vh=_adjoint(self.U))


def _adjoint(F: Lazy) -> Lazy:
    return (lambda: on_host(F()).conj().T) if callable(F) else F.conj().T


def long_factor(A: Operator, V: Panel) -> Panel:
    lazy: Panel | None = lazy_basis(A, V)
    if lazy is not None:
        return lazy
    V = placed(A, V)
    Y = matmat_in_double(A, V)
    return graded_basis(Y, overwrite=to_spare(Y, V))


def rounding(A: Operator, eps: float) -> float:
    # Single precision products leave noise that grows like the root of the length, not like the length:
    # max(m, n) eps would call a tenth of sigma_1 zero on a million rows.
    double = float(np.finfo(np.float64).eps) * max(A.shape)
    return max(double, eps * float(np.sqrt(max(A.shape))) if eps > 1e-10 else 0.0)


def squares_rounding(A: Operator, G: Panel) -> float:
    """By how much the eigenvalues of a formed ``G = A^H A`` may be off: a sum of m products by m units of their sizes.

    A shift that is not subtracted from the entries themselves rounds at the level of the data.
    """
    shift = shift_of(A)
    square = float(np.trace(G).real) + (shift.frobenius_norm() ** 2 if shift else 0.0) + cancelled(A) ** 2
    return rounding(A, A.costs.gram_eps) * square


def rank_floor(A: Operator, first: float, eps: float | None = None) -> float:
    """Values up to this are rounding: of products of unit `eps`, or of the shift itself; `first` is the largest value.

    By default the products are those of `gram`: of most single precision data they are made in double precision, and
    what lies far below the rounding of the data themselves is a value of the data as they were given.
    """
    return max(rounding(A, A.costs.gram_eps if eps is None else eps) * float(first), shift_rounding(A))


def shift_rounding(A: Operator, eps: float = float(np.finfo(np.float64).eps)) -> float:
    shift = shift_of(A)
    size = (shift.frobenius_norm() if shift else 0.0) + cancelled(A)
    # Means are right to an ulp or two. Single products were off by 0.6 units (counts after their means).
    return (4 if eps < 1e-10 else 1) * eps * size if size else 0.0
