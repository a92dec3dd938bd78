"""Operators: matrices that can only multiply a panel."""

import time
from abc import abstractmethod
from collections.abc import Iterator
from functools import reduce, singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shiftsvd.algebra.costs import QR_ENTRIES, Costs
from shiftsvd.kernels import default_threads, ordered
from shiftsvd.numerics.diagonal import scaled
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.numerics.orth import folded, r_factor
from shiftsvd.numerics.panels import Mixer, Panel, panel_dtype
from shiftsvd.numerics.powers import LEAST_SQUARES, MOST_SQUARES, NOTHING

if TYPE_CHECKING:
    from shiftsvd.algebra.low_rank import LowRank

# Of operators that only multiply, the entries of so many columns are worth their products, so many at a time.
FEW_COLUMNS, COLUMNS = 1000, 64


@singledispatch
def adjoint(A: Any) -> "Operator":
    """``A^H``: the file of the operator that stands for it registers it here, so that this file need not know it."""
    raise TypeError(f"an operator is needed, got {type(A).__name__}")


@singledispatch
def difference(A: Any, S: "Operator") -> "Operator":
    """``A - S`` of equal shapes, registered as `adjoint` is."""
    raise TypeError(f"an operator is needed, got {type(A).__name__}")


class Operator(Costs):
    """A matrix A of shape (m, n) that can only multiply panels.

    A subclass sets ``shape`` and ``dtype`` (float32, float64, complex64 or complex128) and defines
    `matmat` and `rmatmat`; everything else has a default. ``A - B``, ``A.H`` and ``A @ V`` are the algebra.

    Attributes
    ----------
    shape : (int, int)
    dtype : numpy.dtype
        Of the results for users; panels inside a solver are float64 or complex128.
    eps : float
        Rounding unit of the products.
    stored : int
        How many numbers one pass reads.
    gram_reads, gram_eps, gram_pairs, gram_in_single, panel_columns, working_bytes, file_bytes, square_bytes, n_threads
        What else solvers plan by: how often `gram` reads the data and how it rounds, the products of two numbers that
        `gram_matrix` takes, whether single precision is quicker, the best widths of panels, memory beside the panels,
        bytes read from a file in one pass, bytes that travel for `gram_matrix` or `triangle`, threads.
    """

    @abstractmethod
    def matmat(self, V: Panel) -> Panel:
        """``A V``, (n, b) -> (m, b)."""

    @abstractmethod
    def rmatmat(self, W: Panel) -> Panel:
        """``A^H W``, (m, b) -> (n, b)."""

    def matmat_in_double(self, V: Panel) -> Panel:
        """``A V`` in double precision whatever the data are, where `matmat` is not: for the long-side factor."""
        return self.matmat(V)

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        """``A^H diag(weights) A V``, (n, b) -> (n, b); one pass where a backend fuses it, else two.

        `weights` has one entry a row; without them, ``A^H A V``. A single precision V says that single precision
        is enough.
        """
        return self.rmatmat(scaled(weights, self.matmat(V)))

    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        """``A^H diag(weights) A`` formed in double precision, shape (n, n)."""
        return self.gram(np.eye(self.shape[1], dtype=panel_dtype(self.dtype)), weights)

    def least(self) -> float | None:
        """The least of the stored numbers, by a read; None where they cannot be looked at."""
        return None

    def triangle(self, weights: Vector | None = None) -> Panel:
        """R of ``diag(sqrt(weights)) A = Q R``, shape (min(m, n), n); one read.

        Blocks are factorized in threads while the next are made, then folded in their order.
        """
        n, roots = self.shape[1], None if weights is None else np.sqrt(weights)
        parts = self.row_blocks(max(2 * n, QR_ENTRIES // n))
        blocks = (scaled(None if roots is None else roots[lo : lo + len(block)], block) for lo, block in parts)
        return reduce(folded, ordered(r_factor, blocks, default_threads()))

    def adjoint_triangle(self, weights: Vector | None = None) -> Panel:
        """`triangle` of the adjoint, for backends that keep what they read."""
        return Operator.triangle(self.H, weights)

    def fused(self, passes: float) -> "Operator":
        """The same matrix with a `gram` of one read, if getting there pays back within so many passes."""
        return self

    def transposed(self, passes: float) -> "Operator | None":
        """The adjoint with a `gram` of one read, if getting there pays back; None if it does not."""
        return None

    def moments(self, weights: Vector | None = None) -> Moments:
        """Moments of the columns, ``mean = A^T w / sum(w)``; one pass. `weights` has one entry a row."""
        w = np.ones(self.shape[0]) if weights is None else weights
        mean = self.rmatmat(w[:, None])[:, 0].conj() / w.sum()
        return Moments(float(w.sum()), mean.astype(np.result_type(mean, np.float64)), None)

    def row_moments(self, weights: Vector | None = None) -> Moments:
        """Moments of the rows: those of ``A^H``, conjugated. `weights` has one entry a column."""
        w = np.ones(self.shape[1]) if weights is None else weights
        mean = self.matmat(w[:, None])[:, 0] / w.sum()
        return Moments(float(w.sum()), mean.astype(np.result_type(mean, np.float64)), None)

    def column_squares(self, weights: Vector | None = None) -> Vector | None:
        """``sum_i w_i |a_ij|^2`` without cancellation, shape (n,); None where it cannot be had cheaply."""
        return None

    def row_squares(self, weights: Vector | None = None) -> Vector | None:
        """``sum_j w_j |a_ij|^2`` without cancellation, shape (m,); None where it cannot be had cheaply."""
        return None

    def squares_beyond(self, V: Panel, W: Panel, weights: Vector | None = None) -> Vector | None:
        """Squared column norms of ``diag(sqrt(weights)) (A - A V W^H)``, shape (n,); None where they cost too much.

        Differences of entries, not of squares: what is left may be 1e-30 of the squares of A. One pass and O(m n b)
        operations, since what is left of a sparse row is dense; nothing with a row for each of A is held.
        """
        n = self.shape[1]
        if n > FEW_COLUMNS:
            return None
        parts = []
        for lo in range(0, n, COLUMNS):  # of an operator that only multiplies: its products with I - V W^H
            P = -(V @ W[lo : lo + COLUMNS].conj().T)
            P[np.arange(lo, lo + P.shape[1]), np.arange(P.shape[1])] += 1
            squares = np.abs(self.matmat(P)) ** 2
            parts.append(squares.sum(axis=0) if weights is None else weights @ squares)
        return np.concatenate(parts)

    def frobenius_norm(self) -> float | None:
        """``||A||_F`` without cancellation, in one pass; None where it cannot be had cheaply.

        Where the squares leave the range of numbers, it takes one more pass to find the largest entry, and one for the
        squares of the entries over a power of two.
        """
        squares = self.column_squares()
        if squares is None:
            return None
        with np.errstate(over="ignore"):
            total = float(squares.sum())
        if LEAST_SQUARES < total < MOST_SQUARES:
            return float(np.sqrt(total))
        exponents = self.column_exponents()
        if exponents is None or exponents.max() == NOTHING:
            return None if exponents is None else 0.0
        unit = int(exponents.max())
        B = self.ldexp(0, -unit)
        squares = None if B is None else B.column_squares()
        return None if squares is None else float(np.ldexp(np.sqrt(squares.sum()), unit))

    def column_exponents(self) -> Vector | None:
        """Integers e with ``|a_ij| < 2^e_j``, near the largest of each column; None where entries cannot be seen.

        One read. `NOTHING` stands for columns of zeros. Asked for where squares leave the range of numbers.
        """
        return None

    def row_exponents(self) -> Vector | None:
        """The same of the rows."""
        return None

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "Operator | None":
        """``diag(2^rows) A diag(2^cols)`` without rounding, as an operator of the same kind; None if it cannot."""
        return None

    def with_shift(self, shift: "LowRank") -> "Operator | None":
        """This matrix minus `shift`, with the subtraction fused into its blocks; None if it cannot."""
        return None

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        """``(first row, dense block)`` over all rows in one pass, about `rows` at a time where possible."""
        yield 0, self.matmat(np.eye(self.shape[1], dtype=panel_dtype(self.dtype)))

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        """``(first row, dense block)`` over all rows of ``A^H``, as `row_blocks`."""
        yield 0, self.rmatmat(np.eye(self.shape[0], dtype=panel_dtype(self.dtype)))

    def gram_seconds(self, V: Panel) -> float:
        """How long ``gram(V)`` takes: one is made, or a part of one where that tells as much."""
        started = time.perf_counter()
        self.gram(V)
        return time.perf_counter() - started

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        """``(first row, A[rows] V)`` in order, a part of the rows at a time where possible; one pass."""
        yield 0, self.matmat(V)

    def lazy_basis(self, V: Panel, rows: Vector | None = None) -> Any | None:
        """Orthonormal columns along those of ``diag(rows) A V``, left where the data are; None if these are here."""
        return None

    def mix(self, Omega: Mixer) -> Panel:
        """``A Omega`` for a structured test matrix."""
        return self.matmat(Omega.to_array())

    @property
    def H(self) -> "Operator":
        """The conjugate transpose, a view."""
        return adjoint(self)

    def __matmul__(self, V: npt.ArrayLike) -> Panel:
        X = np.asarray(V)
        if X.ndim not in (1, 2) or X.shape[0] != self.shape[1]:
            raise ValueError(f"A @ V needs V with {self.shape[1]} rows for A of shape {self.shape}, got {X.shape}")
        return self.matmat(X[:, None])[:, 0] if X.ndim == 1 else self.matmat(X)

    def __sub__(self, shift: "Operator") -> "Operator":
        if not isinstance(shift, Operator):
            return NotImplemented
        check_same_shape(self, shift)
        return difference(self, shift)

    def as_low_rank(self) -> "LowRank | None":
        """This matrix as ``L R^H``, if that is what it is."""
        return None

    def unshifted(self) -> "tuple[Operator, LowRank | None]":
        """The matrix and the low-rank shift that this operator is the difference of."""
        return self, None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.shape[0]} x {self.shape[1]} {self.dtype}>"

    # NumPy must leave `array @ A` and `array - A` to us, not loop over the entries.
    __array_ufunc__ = None


def check_same_shape(A: Operator, shift: Operator) -> None:
    """Refuse a shift of another shape."""
    if shift.shape != A.shape:
        raise ValueError(f"the shift has shape {shift.shape}, the matrix {A.shape}: they must be equal")
