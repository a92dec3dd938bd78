"""Matrices of low rank, kept as two factors: the shifts."""

from dataclasses import dataclass
from hashlib import sha256
from math import sqrt

import numpy as np
import numpy.typing as npt

from shiftsvd.algebra.generic import registered
from shiftsvd.algebra.operator import Operator, check_same_shape
from shiftsvd.kernels.groups import unwarned
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import r_factor
from shiftsvd.numerics.panels import Panel, panel_dtype, unmasked
from shiftsvd.numerics.powers import LEAST_SQUARES, MOST_SQUARES, NOTHING, exponents_of, plus, two_to

# Numbers of a factor that are gathered in one go, and stay in cache.
GATHERED = 2**18
FAR = 60  # exponent of a factor whose squares are not to meet those of the other one


@registered
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
    operators.Shifted : A matrix minus one of these.

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
            raise ValueError(f"LowRank needs L (m, r) and R (n, r) of equal r, got {L.shape} and {R.shape}")
        vars(self).update(L=L, R=R, shape=(len(L), len(R)), dtype=np.result_type(L, R))

    def matmat(self, V: Panel) -> Panel:
        return np.asarray(self.L @ (self.R.conj().T @ V))

    def rmatmat(self, W: Panel) -> Panel:
        return np.asarray(self.R @ (self.L.conj().T @ W))

    def rows(self, lo: int, hi: int) -> Panel:
        """The rows lo to hi of ``L R^H``, formed.

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
        """The entries (i, j), a part of them at a time, so that factors are gathered in little memory.

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
        """The sum of two matrices of low rank; a column of L or R that both have counts once.

        Parameters
        ----------
        other : LowRank of the same shape, or None
            What is added; None adds nothing.

        Returns
        -------
        LowRank
            The sum, of the rank of both at most.
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
            lengths = _length(self.L), _length(self.R)
            if all(LEAST_SQUARES < length * length < MOST_SQUARES for length in lengths):
                return lengths[0] * lengths[1]
        return float(np.linalg.norm(_triangle(self.L) @ _triangle(self.R).conj().T))

    def as_low_rank(self) -> "LowRank":
        """The matrix itself, which has thin factors already.

        Returns
        -------
        LowRank
            This operator.
        """
        return self

    def column_exponents(self) -> Vector:
        """The powers of two of the largest entries of the columns, bounded from the largest of each column of L.

        Returns
        -------
        array of shape (n,)
            Integer exponents.
        """
        left = exponents_of(self.L[:1] if _is_repeated(self.L) else self.L).max(axis=0, initial=NOTHING)
        return plus(plus(left, exponents_of(self.R)).max(axis=1, initial=NOTHING), self.L.shape[1].bit_length())

    def row_exponents(self) -> Vector:
        """The powers of two of the largest entries of the rows: those of the columns of the adjoint.

        Returns
        -------
        array of shape (m,)
            Integer exponents.
        """
        return self.H.column_exponents()

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "LowRank":
        """The factors times powers of two, those of L moved to R where L is far from 1; a repeated row stays one.

        Parameters
        ----------
        rows : int, or array of shape (m,)
            Exponents of the powers of two for rows.
        cols : int, or array of shape (n,)
            Exponents of the powers of two for columns.

        Returns
        -------
        LowRank
            This matrix with rows and columns multiplied.
        """
        L = self.L * np.reshape(two_to(rows), (-1, 1)) if np.any(rows) else self.L
        e = exponents_of(L[:1] if _is_repeated(L) else L).max(axis=0, initial=NOTHING)
        e = np.where((np.abs(e) > FAR) & (e != NOTHING), e, 0)
        L = L * two_to(-e) if np.any(e) else L
        # One power for each entry: first one and then the other could leave the range on the way.
        return LowRank(L, self.R * two_to(np.reshape(cols, (-1, 1)) + e))

    @property
    def level(self) -> bool:
        """Whether all rows are the same."""
        return _is_repeated(self.L) or bool(np.all(self.L == self.L[:1]))

    def row_vector(self) -> Vector | None:
        """The vector mu, if this is ``1 mu^T`` however it is written; else None.

        Returns
        -------
        array of shape (n,), or None
            The row that all rows are equal to.
        """
        return np.asarray(self.R.conj() @ self.L[0]) if self.level else None

    @property
    def H(self) -> "LowRank":
        return LowRank(self.R, self.L)


def repeated(mu: Vector, m: int) -> LowRank:
    return LowRank(np.broadcast_to(1.0, (m, 1)), mu.conj())


def _is_repeated(F: Panel) -> bool:
    return F.strides[0] == 0


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
        raise ValueError(f"{name} holds NaN or infinite values: a shift must be finite")
    return F


@unwarned
def _length(F: Panel) -> float:
    return float(np.linalg.norm(F[0])) * sqrt(len(F)) if _is_repeated(F) else float(np.linalg.norm(F))


def _triangle(F: Panel) -> Panel:
    if _is_repeated(F):
        F = F[:1] * np.sqrt(len(F))
    return r_factor(F)
