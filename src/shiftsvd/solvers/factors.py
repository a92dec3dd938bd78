"""The factors that an algorithm returns, their rounding, and the norm of what they leave over."""

from typing import NamedTuple

import numpy as np

from shiftsvd.algebra.generic import cancelled, fused, lazy_basis, matmat_in_double, placed, shift_of, squares_beyond
from shiftsvd.algebra.low_rank import factor_norm
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import graded_basis, inner
from shiftsvd.numerics.panels import on_host, to_spare
from shiftsvd.numerics.powers import length
from shiftsvd.operators import LowRank, Operator, Panel
from shiftsvd.result import Certificate, Lazy, SVDResult
from shiftsvd.solvers.constants import EPS, ROUNDED_PART, TO_NEAREST, WHOLE_FACTOR, WITH_DIGITS


class Factors(NamedTuple):
    """At least k values and vectors; the factor on the long side may be a function that makes it."""

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


def components_for(squares: Vector, share: float, total: float | None = None) -> int:
    total = float(squares.sum()) if total is None else total
    if total <= 0:
        return 1
    return min(int(np.searchsorted(np.cumsum(squares) / total, share, side="right")) + 1, len(squares))


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
    double = EPS * max(A.shape)
    return max(double, eps * float(np.sqrt(max(A.shape))) if eps > 1e-10 else 0.0)


def squares_rounding(A: Operator, G: Panel) -> float:
    """Bound the rounding of the eigenvalues of a formed ``G = A^H A``."""
    # A sum of m products is off by m units of their sizes; a shift that is not inside of entries rounds as the data do.
    shift = shift_of(A)
    square = float(np.trace(G).real) + (shift.frobenius_norm() ** 2 if shift else 0.0) + cancelled(A) ** 2
    return rounding(A, A.costs.gram_eps) * square


def rank_floor(A: Operator, first: float, eps: float | None = None) -> float:
    """Return up to which size values are rounding of products of unit `eps`, or of the shift.

    `first` is the largest value. By default products are those of `gram`, which multiplies most single precision data
    in double precision: values far below the rounding of such data are those of the data as they were given.
    """
    return max(rounding(A, A.costs.gram_eps if eps is None else eps) * float(first), shift_rounding(A))


def shift_rounding(A: Operator, eps: float = EPS) -> float:
    shift = shift_of(A)
    size = (shift.frobenius_norm() if shift else 0.0) + cancelled(A)
    # Means are right to an ulp or two. Single products were off by 0.6 units (counts after their means).
    return (4 if eps < 1e-10 else 1) * eps * size if size else 0.0


def remainder(A: Operator, F: SVDResult, factors: Factors, norm: float | None) -> float | None:
    """Return ``||A - U S Vh||_F`` of the factors F, which are `factors` rounded; None where ||A|| is not known.

    Every factorization here is a projection ``A V V^H`` or ``U U^H A``, converged or not, so that the square is
    ``||A||^2 - ||S||^2``: no read. Where rounding leaves too few digits of that difference, it is made anew for single
    precision data by one product in double precision, O(nnz k). If that is not enough, the residual is formed piece by
    piece: one read and O(m n k), of a wide matrix in a file two reads.
    """
    if factors.rest is not None:
        dropped = length(factors.S[: len(F.S)][F.S == 0])  # values that are reported as 0
        return float(np.hypot(np.hypot(factors.rest, dropped), np.sqrt(2) * _rounded(A, F.S)))
    if norm is None:
        return None
    square = norm**2 - float(F.S @ F.S)
    if square >= WITH_DIGITS * _doubt(A, norm, F.S, _unit(A)):
        return float(np.sqrt(square))
    direct = _of_product(A, F.S, factors, norm) if factors.factor_passes else (A - F).frobenius_norm()
    small = not A.costs.file_bytes or 8 * max(A.shape) * len(F.S) <= WHOLE_FACTOR
    if factors.factor_passes and direct is not None and small and _rounded(A, F.S) > ROUNDED_PART * direct:
        direct = (A - F).frobenius_norm()  # the rounding of vectors is most of it: a model of that is not enough
    # Of an operator that only multiplies, and has many columns, the difference is all that can be known.
    return float(np.sqrt(max(square, _doubt(A, norm, F.S, _unit(A))))) if direct is None else direct


def left_over(A: Operator, F: SVDResult, k: int, square: float) -> float:
    known, S = F.info.frobenius_error, F.S[:k]
    if known is None:
        rest = square - float(S @ S)
        return rest if rest > _doubt(A, float(np.sqrt(square)), S, _unit(A)) else 0.0
    # Of values that are 0, products in double precision and means leave as much, the rounding of data and vectors that.
    double = max(max(A.shape) * EPS * float(F.S[0]), 4 * EPS * float(np.sqrt(_implicit(A))))
    rest = known**2 + float(F.S[k:] @ F.S[k:])
    return rest if rest > max(double, 2 * _unit(A) * float(np.sqrt(square))) ** 2 else 0.0


def _of_product(A: Operator, S: Vector, factors: Factors, norm: float) -> float | None:
    there, wide = S > 0, callable(factors.Vh)
    short = factors.U[:, : len(S)] if callable(factors.Vh) else factors.Vh[: len(S)].conj().T  # type: ignore[index]
    B, V, S = fused(A.H, 0) if wide else A, short[:, there], S[there]
    beside = _rounded(A, S) ** 2  # of the factor on the long side
    if _unit(A) > EPS:
        G = inner(V, B.gram(V))
        beside += _turned(G, S)
        square = norm**2 - float(np.trace(G).real)
        if A.costs.eps == EPS and square >= WITH_DIGITS * _doubt(A, norm, S, B.costs.gram_eps):
            return float(np.sqrt(square + beside + _rounded(A, S) ** 2))
    W = V.astype(A.dtype).astype(V.dtype)
    square_of = _all_beyond(A, B, V, W, wide)
    return None if square_of is None else float(np.sqrt(square_of + beside))


def _all_beyond(A: Operator, B: Operator, V: Panel, W: Panel, wide: bool) -> float | None:
    if V.shape[1] == V.shape[0]:
        return float(np.linalg.norm(V - W)) ** 2  # nothing is left out
    squares = squares_beyond(B, V, W)
    if squares is not None:
        return float(squares.sum())
    left = (A - LowRank(W, A.rmatmat(V))).frobenius_norm() if wide else None
    return None if left is None else left**2


def _turned(G: Panel, S: Vector) -> float:
    # Single products leave couplings of size eps sigma_1^2: the columns of A V are not quite orthogonal then.
    lengths = np.sqrt(np.maximum(np.diagonal(G).real, 0))
    coupled = np.minimum(np.abs(np.triu(G, 1)) / S[:, None], lengths)
    return float(np.sum(coupled**2) + np.sum((lengths - S) ** 2))


def _doubt(A: Operator, norm: float, S: Vector, unit: float) -> float:
    products = 2 * unit * float(S[0]) * length(S) if len(S) else 0.0
    return products + EPS * (4 * float(np.sqrt(max(A.shape))) * norm**2 + _implicit(A))


def _implicit(A: Operator) -> float:
    shift = shift_of(A)
    return cancelled(A) ** 2 + (0.0 if shift is None else (factor_norm(shift.L) * factor_norm(shift.R)) ** 2)


def _rounded(A: Operator, S: Vector) -> float:
    return TO_NEAREST * _unit(A) * length(S)


def _unit(A: Operator) -> float:
    return float(np.finfo(A.dtype).eps)
