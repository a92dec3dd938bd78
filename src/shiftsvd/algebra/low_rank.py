"""Low-rank matrices kept as two factors, and operators without the directions of a basis (deflation)."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from shiftsvd.algebra import generic
from shiftsvd.algebra.operator import Derived, Operator, check_same_shape
from shiftsvd.numerics.orth import inner, r_factor
from shiftsvd.numerics.panels import Panel, Vector, panel_dtype, unmasked
from shiftsvd.numerics.powers import (
    LEAST_SQUARES,
    MOST_SQUARES,
    ZERO_EXPONENT,
    add_exponents,
    exponents_of,
    times_two_to,
)

GATHERED = 2**18  # numbers of a factor that are gathered at a time: they stay in cache
ONE = np.ones(1).tobytes()  # of which every row of the left factor of a vector is a view
FAR = 60  # exponent of two from which on a power of two moves from one factor to the other


@dataclass(frozen=True, eq=False, repr=False)
class LowRank(Operator):
    """The matrix ``L R^H`` of rank at most r: a shift. ``LowRank(ones, conj(mu))`` is ``1 mu^T``.

    Parameters
    ----------
    L : array of shape (m, r) or (m,)
        The factor with a row for each row of the matrix.
    R : array of shape (n, r) or (n,)
        The factor with a row for each column of the matrix.

    Raises
    ------
    ValueError
        If the factors do not have the same number of columns, or hold NaN or infinities.

    See Also
    --------
    GroupMeans : A shift that is learned from groups.
    operators.Shifted : A matrix minus a shift.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> S = ss.LowRank(np.ones(4), np.arange(3.0))
    >>> S.shape, S.matmat(np.eye(3))[0].tolist()
    ((4, 3), [0.0, 1.0, 2.0])
    """

    L: Panel
    R: Panel

    def __post_init__(self) -> None:
        L, R = _factor("L", self.L), _factor("R", self.R)
        if L.shape[1] != R.shape[1]:
            raise ValueError(
                f"LowRank needs L of shape (m, r) and R of shape (n, r) with the same r, got {L.shape} and {R.shape}"
            )
        vars(self).update(L=L, R=R, shape=(len(L), len(R)), dtype=np.result_type(L, R))

    def matmat(self, V: Panel) -> Panel:
        return np.asarray(self.L @ (self.R.conj().T @ V))

    def rmatmat(self, W: Panel) -> Panel:
        return np.asarray(self.R @ (self.L.conj().T @ W))

    def rows(self, lo: int, hi: int) -> Panel:
        """Form the rows lo to hi of ``L R^H``.

        Parameters
        ----------
        lo : int
            The first row.
        hi : int
            The row after the last one.

        Returns
        -------
        array of shape (hi - lo, n)
            The rows, dense.
        """
        return np.asarray(self.L[lo:hi] @ self.R.conj().T)

    def at(self, i: Vector, j: Vector) -> Vector:
        """Compute the entries (i, j) in chunks, which bounds the memory of gathered factors.

        Parameters
        ----------
        i : array of int, of shape (p,)
            The row of each entry.
        j : array of int, of shape (p,)
            The column of each entry.

        Returns
        -------
        array of shape (p,)
            The entries.
        """
        found = np.empty(len(i), self.dtype)
        step = max(1, GATHERED // max(self.L.shape[1], 1))
        for lo in range(0, len(i), step):
            part = slice(lo, lo + step)
            left, right = self.L.take(i[part], axis=0), self.R.take(j[part], axis=0)
            np.einsum("ij,ij->i", left, right.conj(), out=found[part])
        return found

    def merge(self, other: "LowRank | None") -> "LowRank":
        """Add two matrices of low rank; a column of L or R that both have counts once.

        Parameters
        ----------
        other : LowRank of the same shape, or None
            What is added; None adds nothing.

        Returns
        -------
        LowRank
            The sum; its rank is at most the sum of both ranks.
        """
        if other is None:
            return self
        L, R = _gathered(np.hstack([other.L, self.L]), np.hstack([other.R, self.R]))
        R, L = _gathered(R, L)
        return LowRank(L, R)

    def __add__(self, other: "LowRank") -> "LowRank":
        if not isinstance(other, LowRank):
            return NotImplemented
        check_same_shape(self, other)
        return other.merge(self)

    def __neg__(self) -> "LowRank":
        return LowRank(-self.L, self.R)

    def with_shift(self, shift: "LowRank") -> "LowRank":
        return LowRank(shift.L, -shift.R).merge(self)

    def frobenius_norm(self) -> float:
        if self.L.shape[1] == 1:
            short, long = sorted((factor_norm(self.L), factor_norm(self.R)))
            if LEAST_SQUARES < short * short and long * long < MOST_SQUARES:
                return short * long
        with np.errstate(over="ignore", invalid="ignore"):
            norm = _product_norm(self.L, self.R)
        if LEAST_SQUARES < norm * norm < MOST_SQUARES or (unit := int(self.exponents(0).max())) == ZERO_EXPONENT:
            return norm
        B = self.ldexp(0, -unit)
        return float(np.ldexp(_product_norm(B.L, B.R), unit))

    def as_low_rank(self) -> "LowRank":
        return self

    def exponents(self, axis: int) -> Vector:
        if axis:
            return self.H.exponents(0)
        largest = add_exponents(_largest(self.L), exponents_of(self.R)).max(axis=1, initial=ZERO_EXPONENT)
        return add_exponents(largest, self.L.shape[1].bit_length())

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "LowRank":
        # Powers of columns of L that are far from 1 move to R, and that of all rows, too: L may be 1 where R is 0. A
        # repeated row stays repeated.
        if np.ndim(rows) == 0:
            rows, cols = 0, np.add(rows, cols)
        L = times_two_to(self.L, np.reshape(rows, (-1, 1))) if np.any(rows) else self.L
        e = _largest(L)
        zero = e == ZERO_EXPONENT  # these columns of R stay, since a power could make them infinite
        e = np.where((np.abs(e) > FAR) & ~zero, e, 0)
        L = times_two_to(L, -e) if np.any(e) else L
        # One power for each entry: first one and then the other could leave the range on the way.
        return LowRank(L, times_two_to(self.R, np.where(zero, 0, np.reshape(cols, (-1, 1)) + e)))

    @property
    def level(self) -> bool:
        """True if all rows are the same."""
        return _is_repeated(self.L) or bool(np.all(self.L == self.L[:1]))

    def row_vector(self) -> Vector | None:
        """Return the vector mu if this matrix is ``1 mu^T``, however its factors are scaled.

        Returns
        -------
        array of shape (n,), or None
            The row that all rows are equal to; None where they differ.
        """
        return np.asarray(self.R.conj() @ self.L[0]) if self.level else None

    @property
    def H(self) -> "LowRank":
        return LowRank(self.R, self.L)


def repeated(mu: Vector, m: int) -> LowRank:
    return LowRank(np.ndarray((m, 1), buffer=ONE, strides=(0, 0)), mu.conj())


def _product_norm(L: Panel, R: Panel) -> float:
    return float(np.linalg.norm(_triangle(L) @ _triangle(R).conj().T))


def _is_repeated(F: Panel) -> bool:
    return F.strides[0] == 0


def _largest(F: Panel) -> Vector:
    return np.asarray(exponents_of(F[:1] if _is_repeated(F) else F).max(axis=0, initial=ZERO_EXPONENT))


def _gathered(L: Panel, R: Panel) -> tuple[Panel, Panel]:
    place: dict[bytes, int] = {}
    places = [place.setdefault(sha256(column.tobytes()).digest(), len(place)) for column in L.T]
    if len(place) < len(places):
        kept = [places.index(i) for i in range(len(place))]
        sums = np.zeros((len(R), len(place)), R.dtype)
        for i, column in zip(places, R.T, strict=True):
            sums[:, i] += column
        L, R = L[:, kept], sums
    # A shift of rank 0 is one column of zeros.
    there = np.flatnonzero(np.any(R != 0, axis=0)) if np.any(R) else np.arange(min(1, R.shape[1]))
    return (L, R) if len(there) == R.shape[1] else (L[:, there], R[:, there])


def _factor(name: str, F: npt.ArrayLike) -> Panel:
    F = np.asarray(unmasked(name, F))
    F = F[:, None] if F.ndim == 1 else F
    if F.ndim != 2 or F.dtype.kind not in "fciub":
        raise ValueError(f"{name} must be a numeric array of one or two dimensions, got {F.dtype} {F.shape}")
    F = F.astype(panel_dtype(F.dtype), copy=False)
    if not np.isfinite(F[:1] if _is_repeated(F) else F).all():
        raise ValueError(f"{name} must be finite, got NaN or infinite values. Remove or replace these values.")
    return F


def factor_norm(F: Panel) -> float:
    rows, times = (F[:1], len(F)) if _is_repeated(F) else (F, 1)
    return sqrt(np.vdot(rows, rows).real) * sqrt(times)  # infinite, without a warning, where squares leave the range


def norm_of_terms(S: LowRank) -> float:
    # The terms may cancel in S. One factor may be 1 and the other of the size of the data, or the other way round.
    terms = zip(np.hsplit(S.L, S.L.shape[1]), np.hsplit(S.R, S.R.shape[1]), strict=True) if S.L.shape[1] else ()
    return sum(factor_norm(left) * factor_norm(right) for left, right in terms)


def _triangle(F: Panel) -> Panel:
    return r_factor(F[:1] * np.sqrt(len(F)) if _is_repeated(F) else F)


@dataclass(frozen=True, eq=False, repr=False)
class Deflated(Derived):
    """``A P`` with ``P = I - V V^H`` for orthonormal columns V: the matrix without the singular vectors found so far.

    Panels are projected before and after each product, so that nothing large is subtracted from products; nothing of
    the length of A is formed.
    """

    V: Panel

    def placed(self, V: Panel) -> Panel:
        return generic.placed(self.A, V)

    def matmat(self, V: Panel) -> Panel:
        return self.A.matmat(self._projected(V))

    def matmat_in_double(self, V: Panel) -> Panel:
        return generic.matmat_in_double(self.A, self._projected(V))

    def rmatmat(self, W: Panel) -> Panel:
        return self._projected(self.A.rmatmat(W))

    def rmatmat_in_double(self, W: Panel) -> Panel:
        return self._projected(generic.rmatmat_in_double(self.A, W))

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        return self._projected(self.A.gram(self._projected(V), weights))

    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        return self._projected(self._projected(generic.gram_matrix(self.A, weights)).conj().T).conj().T

    def known_costs(self) -> dict[str, Any]:
        return {"gram_reads": self.A.costs.gram_reads}

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        return self.A.row_products(self._projected(V))

    def unshifted(self) -> tuple[Operator, LowRank | None]:
        return generic.unshifted(self.A)

    def shift_of(self) -> LowRank | None:
        return generic.shift_of(self.A)

    def _projected(self, V: Panel) -> Panel:
        for _ in range(2):
            V = V - self.V @ inner(self.V, V)
        return V
