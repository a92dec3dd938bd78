"""Factors that an algorithm returns, their rounding errors, and the norm of the residual."""

from typing import NamedTuple

import numpy as np

from shiftsvd.accuracy import difference_norm
from shiftsvd.algebra.generic import cancelled, fused, lazy_basis, matmat_in_double, placed, shift_of, squares_beyond
from shiftsvd.algebra.low_rank import norm_of_terms
from shiftsvd.numerics.orth import graded_basis, inner
from shiftsvd.numerics.panels import Vector, may_overwrite, on_host
from shiftsvd.numerics.powers import length
from shiftsvd.operators import LowRank, Operator, Panel
from shiftsvd.result import Certificate, Lazy, SVDResult
from shiftsvd.solvers.constants import DIFFERENCE_MARGIN, EPS, ROUNDED_PART, TO_NEAREST, WHOLE_FACTOR


class Factors(NamedTuple):
    """At least k values and vectors; the factor on the long side may be a function that computes it."""

    U: Lazy
    S: Vector
    Vh: Lazy
    n_passes: int
    sample_size: int
    factor_passes: int = 0  # passes to compute the long-side factor
    certificate: Certificate | None = None  # only from solvers that iterate to a tolerance
    missed_below: float | None = None  # bound of the next value, from solvers that compute all values
    rest: float | None = None  # norm of all values that are not returned
    eps: float | None = None  # rounding unit of the values, if it differs from that of other products

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
    return graded_basis(Y, overwrite=may_overwrite(Y, V))


def rounding(A: Operator, eps: float) -> float:
    # Rounding errors of single precision products grow like the square root of the length. A bound of max(m, n) eps
    # would treat a tenth of sigma_1 as 0 for a million rows.
    double = EPS * max(A.shape)
    return max(double, eps * float(np.sqrt(max(A.shape))) if eps > 1e-10 else 0.0)


def squares_rounding(A: Operator, G: Panel) -> float:
    # A sum of m products has an error of m rounding units. The errors of an implicit shift are relative to its norm.
    shift = shift_of(A)
    square = float(np.trace(G).real) + (shift.frobenius_norm() ** 2 if shift else 0.0) + cancelled(A) ** 2
    return rounding(A, A.costs.gram_eps) * square


def rank_floor(A: Operator, first: float, eps: float | None = None) -> float:
    """Return the level below which values consist of rounding errors of products with unit `eps`, or of the shift.

    `first` is the largest value. The default is the unit of `gram`, which multiplies most single precision data in
    double precision: values far below the rounding of such data are then still accurate for the given data.
    """
    return max(rounding(A, A.costs.gram_eps if eps is None else eps) * float(first), shift_rounding(A))


def shift_rounding(A: Operator, eps: float = EPS) -> float:
    shift = shift_of(A)
    size = (shift.frobenius_norm() if shift else 0.0) + cancelled(A)
    # Means are accurate to one or two ulp. Single precision products of centred counts had errors of 0.6 units.
    return (4 if eps < 1e-10 else 1) * eps * size if size else 0.0


def residual_norm(A: Operator, F: SVDResult, factors: Factors, norm: float | None) -> float | None:
    """Return ``||A - U S Vh||_F`` of the factors F, which are `factors` rounded; None if ||A|| is unknown.

    All solvers return a projection, ``A V V^H`` or ``U U^H A``, converged or not, so the square of the norm is
    ``||A||^2 - ||S||^2``, without a pass. If rounding leaves too few digits of this difference, recompute it for single
    precision data from one product in double precision, O(nnz k). If the difference is still inaccurate, compute the
    residual block by block: one pass and O(m n k), or two passes for a wide matrix in a file.
    """
    if factors.rest is not None:
        dropped = length(factors.S[: len(F.S)][F.S == 0])  # values below the rank floor, reported as 0
        return float(np.hypot(np.hypot(factors.rest, dropped), np.sqrt(2) * _storage_rounding(A, F.S)))
    if norm is None:
        return None
    square = norm**2 - float(F.S @ F.S)
    if square >= DIFFERENCE_MARGIN * _difference_rounding(A, norm, F.S, _data_eps(A)):
        return float(np.sqrt(square))
    direct = _from_product(A, F.S, factors, norm) if factors.factor_passes else difference_norm(A, F)
    small = not A.costs.file_bytes or 8 * max(A.shape) * len(F.S) <= WHOLE_FACTOR
    if factors.factor_passes and direct is not None and small and _storage_rounding(A, F.S) > ROUNDED_PART * direct:
        direct = difference_norm(A, F)  # the rounding of vectors dominates, and `_storage_rounding` is too coarse
    # For an operator with many columns that supports products only, the difference of squares is the only estimate.
    return float(np.sqrt(max(square, _difference_rounding(A, norm, F.S, _data_eps(A))))) if direct is None else direct


def residual_square(A: Operator, F: SVDResult, k: int, square: float) -> float:
    # Return the squared norm of the residual of the first k components, where `square` is the squared norm of A.
    error, S = F.info.frobenius_error, F.S[:k]
    if error is None:
        rest = square - float(S @ S)
        return rest if rest > _difference_rounding(A, float(np.sqrt(square)), S, _data_eps(A)) else 0.0
    # Return 0 for a residual at rounding level, that of products and means, or that of the data and the vectors.
    of_products = max(max(A.shape) * EPS * float(F.S[0]), 4 * EPS * float(np.sqrt(_implicit_square(A))))
    rest = error**2 + float(F.S[k:] @ F.S[k:])
    return rest if rest > max(of_products, 2 * _data_eps(A) * float(np.sqrt(square))) ** 2 else 0.0


def _from_product(A: Operator, S: Vector, factors: Factors, norm: float) -> float | None:
    nonzero, wide = S > 0, callable(factors.Vh)
    short = factors.U[:, : len(S)] if callable(factors.Vh) else factors.Vh[: len(S)].conj().T  # type: ignore[index]
    B, V, S = fused(A.H, 0) if wide else A, short[:, nonzero], S[nonzero]
    of_rounding = _storage_rounding(A, S) ** 2  # rounding of the factor on the long side
    if _data_eps(A) > EPS:
        G = inner(V, B.gram(V))
        of_rounding += _nonorthogonal_square(G, S)
        square = norm**2 - float(np.trace(G).real)
        if A.costs.eps == EPS and square >= DIFFERENCE_MARGIN * _difference_rounding(A, norm, S, B.costs.gram_eps):
            return float(np.sqrt(square + of_rounding + _storage_rounding(A, S) ** 2))
    W = V.astype(A.dtype).astype(V.dtype)
    beyond = _square_beyond(A, B, V, W, wide)
    return None if beyond is None else float(np.sqrt(beyond + of_rounding))


def _square_beyond(A: Operator, B: Operator, V: Panel, W: Panel, wide: bool) -> float | None:
    if V.shape[1] == V.shape[0]:
        return float(np.linalg.norm(V - W)) ** 2  # V spans the whole space
    squares = squares_beyond(B, V, W)
    if squares is not None:
        return float(squares.sum())
    norm = difference_norm(A, LowRank(W, A.rmatmat(V))) if wide else None
    return None if norm is None else norm**2


def _nonorthogonal_square(G: Panel, S: Vector) -> float:
    # Rounding of single precision products makes columns of A V non-orthogonal, by about eps sigma_1^2.
    lengths = np.sqrt(np.maximum(np.diagonal(G).real, 0))
    coupled = np.minimum(np.abs(np.triu(G, 1)) / S[:, None], lengths)
    return float(np.sum(coupled**2) + np.sum((lengths - S) ** 2))


def _difference_rounding(A: Operator, norm: float, S: Vector, unit: float) -> float:
    # Bound the rounding error of ||A||^2 - ||S||^2, for values from products with rounding unit `unit`.
    products = 2 * unit * float(S[0]) * length(S) if len(S) else 0.0
    return products + EPS * (4 * float(np.sqrt(max(A.shape))) * norm**2 + _implicit_square(A))


def _implicit_square(A: Operator) -> float:
    # Squared norm of terms that cancel: the implicit shift, and parts of the data.
    shift = shift_of(A)
    return cancelled(A) ** 2 + (0.0 if shift is None else norm_of_terms(shift) ** 2)


def _storage_rounding(A: Operator, S: Vector) -> float:
    return TO_NEAREST * _data_eps(A) * length(S)


def _data_eps(A: Operator) -> float:
    return float(np.finfo(A.dtype).eps)
