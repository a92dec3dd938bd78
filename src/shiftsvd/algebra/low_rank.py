"""Low-rank matrices kept as two factors, the difference of two operators, and deflation: the algebra of the shift."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from shiftsvd.algebra import generic
from shiftsvd.algebra.generic import gram_matrix, matmat_in_double, placed, registered, rmatmat_in_double, unshifted
from shiftsvd.algebra.operator import Derived, Operator, check_same_shape
from shiftsvd.kernels.twin import unwarned
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import inner, r_factor
from shiftsvd.numerics.panels import Panel, field_of, panel_dtype, unmasked
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

    def exponents(self, axis: int) -> Vector:
        """Return exponents from the largest entries of the columns of both factors.

        Parameters
        ----------
        axis : int
            0 for an exponent of each column, 1 for one of each row.

        Returns
        -------
        array of int
            Bounds of the exponents.
        """
        L, R = (self.R, self.L) if axis else (self.L, self.R)
        left = exponents_of(L[:1] if _is_repeated(L) else L).max(axis=0, initial=NOTHING)
        return plus(plus(left, exponents_of(R)).max(axis=1, initial=NOTHING), L.shape[1].bit_length())

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


@generic.registered
@dataclass(frozen=True, eq=False, repr=False)
class Shifted(Derived):
    """``A - S``: the plain algebra of the shift, for every operator that cannot fuse it.

    Parameters
    ----------
    A : Operator of shape (m, n)
        What is shifted.
    S : Operator of shape (m, n)
        What is subtracted, such as a `LowRank`.

    See Also
    --------
    operators.Scaled : Rows and columns times numbers.
    LowRank : What is subtracted.

    Examples
    --------
    >>> import numpy as np, shiftsvd as ss
    >>> A = ss.as_operator(np.ones((3, 2))) - ss.LowRank(np.ones(3), np.ones(2))
    >>> A.matmat(np.eye(2)).tolist()
    [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """

    S: Operator

    def __post_init__(self) -> None:
        check_same_shape(self.A, self.S)
        super().__post_init__()
        object.__setattr__(self, "dtype", field_of(self.A.dtype, np.empty(0, self.S.dtype)))

    def matmat(self, V: Panel) -> Panel:
        return self.A.matmat(V) - self.S.matmat(V)

    def rmatmat(self, W: Panel) -> Panel:
        return self.A.rmatmat(W) - self.S.rmatmat(W)

    def matmat_in_double(self, V: Panel) -> Panel:
        """``A V - S V`` in double precision, where A and S can do that.

        Parameters
        ----------
        V : array of shape (n, b)
            The panel that is multiplied.

        Returns
        -------
        array of shape (m, b), in double precision
            The product.
        """
        return generic.matmat_in_double(self.A, V) - generic.matmat_in_double(self.S, V)

    def rmatmat_in_double(self, W: Panel) -> Panel:
        """``A^H W - S^H W`` in double precision, where A and S can do that.

        Parameters
        ----------
        W : array of shape (m, b)
            The panel that is multiplied.

        Returns
        -------
        array of shape (n, b), in double precision
            The product.
        """
        return generic.rmatmat_in_double(self.A, W) - generic.rmatmat_in_double(self.S, W)

    def known_costs(self) -> dict[str, Any]:
        if generic.as_low_rank(self.S) is not None:
            return {}
        A, S = self.A.costs, self.S.costs
        return {"eps": max(A.eps, S.eps), "gram_eps": max(A.gram_eps, S.gram_eps)}

    def fused(self, passes: float) -> Operator:
        """A prepared for so many passes, with the shift fused into its blocks where A can do that.

        Parameters
        ----------
        passes : float
            How many products will follow: what getting ready may cost depends on it.

        Returns
        -------
        Operator
            The same matrix.
        """
        return generic.fused(self.A, passes) - self.S

    def with_shift(self, shift: LowRank) -> Operator | None:
        S = generic.as_low_rank(self.S)
        return None if S is None else Shifted(self.A, shift.merge(S))

    def exponents(self, axis: int) -> Vector | None:
        """Return one more than the larger of the exponents of A and of the shift.

        Parameters
        ----------
        axis : int
            0 for an exponent of each column, 1 for one of each row.

        Returns
        -------
        array of int, or None
            None where entries cannot be seen.
        """
        a, b = generic.exponents(self.A, axis), generic.exponents(self.S, axis)
        return None if a is None or b is None else plus(np.maximum(a, b), 1)

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> Operator | None:
        """The difference of the matrix and the shift, both times the powers of two.

        Parameters
        ----------
        rows : int, or array of shape (m,)
            Exponents of the powers of two for rows.
        cols : int, or array of shape (n,)
            Exponents of the powers of two for columns.

        Returns
        -------
        Operator or None
            This matrix with rows and columns multiplied; None where it cannot be.
        """
        A, S = generic.ldexp(self.A, rows, cols), generic.ldexp(self.S, rows, cols)
        return None if A is None or S is None else Shifted(A, S)

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        S = generic.as_low_rank(self.S)
        if S is None:
            yield from super().row_products(V)
            return
        C = S.R.conj().T @ V
        for lo, part in self.A.row_products(V):
            yield lo, part - S.L[lo : lo + len(part)] @ C

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        """The blocks of A minus the same rows of S.

        Parameters
        ----------
        rows : int
            About how many rows a block has.

        Yields
        ------
        (int, array of shape (rows, n))
            The first row of a block, and the block, formed.
        """
        S = generic.as_low_rank(self.S)
        if S is None:
            yield 0, self.matmat(np.eye(self.shape[1], dtype=panel_dtype(self.dtype)))
            return
        for lo, block in generic.row_blocks(self.A, rows):
            yield lo, block - S.rows(lo, lo + len(block))

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        """The row blocks of the adjoint.

        Parameters
        ----------
        columns : int
            About how many columns a block has.

        Returns
        -------
        iterator of (int, array)
            The first column of a block, and the block's adjoint, formed.
        """
        return generic.row_blocks(self.H, columns)

    def unshifted(self) -> tuple[Operator, LowRank | None]:
        """A and the shift, which both round.

        Returns
        -------
        (Operator, LowRank or None)
            The matrix before the shift, and the shift; None where there is none.
        """
        S = generic.as_low_rank(self.S)
        return (self, None) if S is None else (self.A, S)

    @property
    def H(self) -> "Shifted":
        return Shifted(self.A.H, self.S.H)


@generic.difference.register
def _(A: Operator, S: Operator) -> Operator:
    low_rank = generic.as_low_rank(S)
    fused = None if low_rank is None else A.with_shift(low_rank)
    return fused or Shifted(A, S if low_rank is None else low_rank)


@registered
@dataclass(frozen=True, eq=False, repr=False)
class Deflated(Derived):
    """``A P`` with ``P = I - V V^H`` for orthonormal columns V: what is left when leaders have been found.

    Panels are projected before they are multiplied and after they come back, so that what the leaders would do to them
    is never there to be subtracted; nothing of the length of A is formed.
    """

    V: Panel

    def placed(self, V: Panel) -> Panel:
        return placed(self.A, V)

    def matmat(self, V: Panel) -> Panel:
        return self.A.matmat(self._projected(V))

    def matmat_in_double(self, V: Panel) -> Panel:
        return matmat_in_double(self.A, self._projected(V))

    def rmatmat(self, W: Panel) -> Panel:
        return self._projected(self.A.rmatmat(W))

    def rmatmat_in_double(self, W: Panel) -> Panel:
        return self._projected(rmatmat_in_double(self.A, W))

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        return self._projected(self.A.gram(self._projected(V), weights))

    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        return self._projected(self._projected(gram_matrix(self.A, weights)).conj().T).conj().T

    def known_costs(self) -> dict[str, Any]:
        return {"gram_reads": self.A.costs.gram_reads}

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        return self.A.row_products(self._projected(V))

    def unshifted(self) -> tuple[Operator, LowRank | None]:
        return unshifted(self.A)

    def _projected(self, V: Panel) -> Panel:
        for _ in range(2):
            V = V - self.V @ inner(self.V, V)
        return V
