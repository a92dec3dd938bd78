"""What one caller asks of an operator and some kinds know better than their products tell: generic functions.

Each has here what is true of every operator. A kind that knows better is `registered` in its own file with a method of
the same name; what is made of another operator passes the question on, and no caller asks of what kind a matrix is.
"""

import time
from collections.abc import Callable, Iterator
from functools import reduce, singledispatch
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from shiftsvd.kernels import default_threads, ordered
from shiftsvd.numerics.diagonal import scaled
from shiftsvd.numerics.entrywise import Change, Table, Terms, Values
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.numerics.orth import folded, r_factor
from shiftsvd.numerics.panels import Mixer, Panel, panel_dtype

if TYPE_CHECKING:
    from shiftsvd.algebra.low_rank import LowRank
    from shiftsvd.algebra.operator import Operator

# Entries of a block that is factorized at once: 16 MiB in double precision.
QR_ENTRIES = 2**21
# Of operators that only multiply, the entries of so many columns are worth their products, so many at a time.
FEW_COLUMNS, COLUMNS = 1000, 64
SEEN = "transform an array, a sparse matrix, a file or a Dask array, on the host"


Function = TypeVar("Function", bound=Callable[..., Any])
Kind = TypeVar("Kind", bound=type)
FUNCTIONS: dict[str, Any] = {}  # by their names


def generic(default: Function) -> Function:
    """A function of operators that does this, but for kinds that are `registered` with a method of its name."""
    FUNCTIONS[default.__name__] = singledispatch(default)
    return cast("Function", FUNCTIONS[default.__name__])


def registered(kind: Kind) -> Kind:
    """Registers those methods of this class of operators that have the name of a generic function."""
    for name in FUNCTIONS.keys() & vars(kind).keys():
        FUNCTIONS[name].register(kind, lambda A, *args, name=name: getattr(A, name)(*args))
    return kind


# --- the algebra ----------------------------------------------------------------------------------------------------


@singledispatch
def adjoint(A: "Operator") -> "Operator":
    """``A^H`` for `Operator.H`: the file of the view registers it, so that operators need not know their adjoints."""
    raise TypeError(f"an operator is needed, got {type(A).__name__}")


@singledispatch
def difference(A: "Operator", S: "Operator") -> "Operator":
    """``A - S`` of equal shapes for `Operator.__sub__`, registered as `adjoint` is."""
    raise TypeError(f"an operator is needed, got {type(A).__name__}")


@generic
def as_low_rank(A: "Operator") -> "LowRank | None":
    """A as ``L R^H``, if that is what it is: a difference can be fused then."""
    return None


@generic
def unshifted(A: "Operator") -> "tuple[Operator, LowRank | None]":
    """The matrix and the low-rank shift that A is the difference of: rounding is that of both."""
    return A, None


@generic
def shift_of(A: "Operator") -> "LowRank | None":
    """The shift of `unshifted`, for callers that need no matrix beside it."""
    return unshifted(A)[1]


@generic
def fused(A: "Operator", passes: float) -> "Operator":
    """The same matrix with a `gram` of one read, if getting there pays back within so many passes."""
    return A


@generic
def passes_per_step(A: "Operator") -> int:
    """How many passes a `gram` takes of what A is `fused` to: what is foreseen of a run counts by it."""
    return 1


@generic
def transposed(A: "Operator", passes: float) -> "Operator | None":
    """The adjoint with a `gram` of one read, if getting there pays back; None if it does not. For `fused`."""
    return None


@generic
def placed(A: "Operator", V: Panel) -> Panel:
    """The panel where products with A are made, for runs that keep their panels there: on the device of the data."""
    return V


# --- products -------------------------------------------------------------------------------------------------------


@generic
def matmat_in_double(A: "Operator", V: Panel) -> Panel:
    """``A V`` in double precision whatever the data are, where `matmat` is not: for the long-side factor."""
    return A.matmat(V)


@generic
def rmatmat_in_double(A: "Operator", W: Panel) -> Panel:
    """``A^H W`` in double precision whatever the data are, where `rmatmat` is not: for products of operators."""
    return A.rmatmat(W)


@generic
def cancelled(A: "Operator") -> float:
    """The norm of what products make and take away again: their rounding is of its size, however small they are."""
    return 0.0


@generic
def lazy_basis(A: "Operator", V: Panel, rows: Vector | None = None) -> Any | None:
    """Orthonormal columns along those of ``diag(rows) A V``, left where the data are; None if these are here."""
    return None


@generic
def mix(A: "Operator", Omega: Mixer) -> Panel:
    """``A Omega`` for a structured test matrix, which blocks need not form."""
    return A.matmat(Omega.to_array())


@generic
def gram_matrix(A: "Operator", weights: Vector | None = None) -> Panel:
    """``A^H diag(weights) A`` formed in double precision, shape (n, n): for `Gram`, and for batches."""
    return A.gram(np.eye(A.shape[1], dtype=panel_dtype(A.dtype)), weights)


@generic
def gram_seconds(A: "Operator", V: Panel) -> float:
    """How long ``gram(V)`` takes, for `estimate`: one is made, or a part of one where that tells as much."""
    return timed(A, V)


def timed(A: "Operator", V: Panel) -> float:
    """The seconds of one ``gram(V)``."""
    started = time.perf_counter()
    A.gram(V)
    return time.perf_counter() - started


# --- rows and columns -----------------------------------------------------------------------------------------------


@generic
def row_blocks(A: "Operator", rows: int) -> Iterator[tuple[int, Panel]]:
    """``(first row, dense block)`` over all rows in one pass, about `rows` at a time where possible."""
    yield 0, A.matmat(np.eye(A.shape[1], dtype=panel_dtype(A.dtype)))


@generic
def column_blocks(A: "Operator", columns: int) -> Iterator[tuple[int, Panel]]:
    """``(first row, dense block)`` over all rows of ``A^H``, as `row_blocks`: what that is of an adjoint."""
    yield 0, A.rmatmat(np.eye(A.shape[0], dtype=panel_dtype(A.dtype)))


@generic
def triangle(A: "Operator", weights: Vector | None = None) -> Panel:
    """R of ``diag(sqrt(weights)) A = Q R``, shape (min(m, n), n); one read."""
    return by_blocks(A, weights)


@generic
def adjoint_triangle(A: "Operator", weights: Vector | None = None) -> Panel:
    """`triangle` of the adjoint, for backends that keep what they read."""
    return by_blocks(A.H, weights)


def by_blocks(A: "Operator", weights: Vector | None = None) -> Panel:
    """`triangle` from blocks of rows, factorized in threads while the next are made, then folded in their order."""
    n, roots = A.shape[1], None if weights is None else np.sqrt(weights)
    parts = row_blocks(A, max(2 * n, QR_ENTRIES // n))
    blocks = (scaled(None if roots is None else roots[lo : lo + len(block)], block) for lo, block in parts)
    return reduce(folded, ordered(r_factor, blocks, default_threads()))


@generic
def row_moments(A: "Operator", weights: Vector | None = None) -> Moments:
    """Moments of the rows: those of ``A^H``, conjugated. `weights` has one entry a column."""
    return row_means(A, weights)


def row_means(A: "Operator", weights: Vector | None = None) -> Moments:
    """`row_moments` by a product: means without squares."""
    w = np.ones(A.shape[1]) if weights is None else weights
    mean = A.matmat(w[:, None])[:, 0] / w.sum()
    return Moments(float(w.sum()), mean.astype(np.result_type(mean, np.float64)), None)


# --- entries --------------------------------------------------------------------------------------------------------


@generic
def least(A: "Operator") -> float | None:
    """The least of the stored numbers, by a read, for tables of counts; None where they cannot be looked at."""
    return None


@generic
def squares_beyond(A: "Operator", V: Panel, W: Panel, weights: Vector | None = None) -> Vector | None:
    """Squared column norms of ``diag(sqrt(weights)) (A - A V W^H)``, shape (n,); None where they cost too much.

    Differences of entries, not of squares: what is left may be 1e-30 of the squares of A. One pass and O(m n b)
    operations, since what is left of a sparse row is dense; nothing with a row for each of A is held.
    """
    n = A.shape[1]
    if n > FEW_COLUMNS:
        return None
    parts = []
    for lo in range(0, n, COLUMNS):  # of an operator that only multiplies: its products with I - V W^H
        P = -(V @ W[lo : lo + COLUMNS].conj().T)
        P[np.arange(lo, lo + P.shape[1]), np.arange(P.shape[1])] += 1
        squares = np.abs(A.matmat(P)) ** 2
        parts.append(squares.sum(axis=0) if weights is None else weights @ squares)
    return np.concatenate(parts)


@generic
def column_exponents(A: "Operator") -> Vector | None:
    """Integers e with ``|a_ij| < 2^e_j``, near the largest of each column; None where entries cannot be seen.

    One read. `NOTHING` stands for columns of zeros. Asked for where squares leave the range of numbers.
    """
    return None


@generic
def row_exponents(A: "Operator") -> Vector | None:
    """Powers of two of the largest entries of the rows; None where only products of A are known."""
    return None


@generic
def ldexp(A: "Operator", rows: Vector | int, cols: Vector | int) -> "Operator | None":
    """``diag(2^rows) A diag(2^cols)`` without rounding, as an operator of the same kind; None if it cannot."""
    return None


# What nobody knows by products alone: `backends/entries.py` registers the kinds whose entries can be seen.


@singledispatch
def entry_sums(A: "Operator", terms: Terms) -> tuple[Panel, Panel]:
    """Sums over the rows and over the columns of numbers made of each stored entry, shapes (m, p) and (n, q); a read.

    For transformations, which learn from such sums.
    """
    raise TypeError(f"the entries of {A!r} cannot be seen; {SEEN}")


@singledispatch
def entry_values(A: "Operator", values: Values) -> Table:
    """The distinct values of each column and how often they are there, in ascending order; a read."""
    raise TypeError(f"the entries of {A!r} cannot be seen; {SEEN}")


@singledispatch
def with_entries(A: "Operator", change: Change) -> "Operator":
    """The same matrix with its entries changed: kept where the memory allows, else made block by block."""
    raise TypeError(f"the entries of {A!r} cannot be seen; {SEEN}")
