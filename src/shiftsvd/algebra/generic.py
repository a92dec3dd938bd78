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
from shiftsvd.numerics.entrywise import Change, Table, Terms, Values
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.numerics.orth import folded, r_factor
from shiftsvd.numerics.panels import Mixer, Panel, panel_dtype, scaled

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
    FUNCTIONS[default.__name__] = singledispatch(default)
    return cast("Function", FUNCTIONS[default.__name__])


def registered(kind: Kind) -> Kind:
    for name in FUNCTIONS.keys() & vars(kind).keys():
        FUNCTIONS[name].register(kind, lambda A, *args, name=name: getattr(A, name)(*args))
    return kind


# --- the algebra ----------------------------------------------------------------------------------------------------


@singledispatch
def adjoint(A: "Operator") -> "Operator":
    raise TypeError(f"an operator is needed, got {type(A).__name__}")


@singledispatch
def difference(A: "Operator", S: "Operator") -> "Operator":
    raise TypeError(f"an operator is needed, got {type(A).__name__}")


@generic
def as_low_rank(A: "Operator") -> "LowRank | None":
    return None


@generic
def unshifted(A: "Operator") -> "tuple[Operator, LowRank | None]":
    return A, None


@generic
def shift_of(A: "Operator") -> "LowRank | None":
    return unshifted(A)[1]


@generic
def fused(A: "Operator", passes: float) -> "Operator":
    return A


@generic
def passes_per_step(A: "Operator") -> int:
    return 1


@generic
def transposed(A: "Operator", passes: float) -> "Operator | None":
    return None


@generic
def placed(A: "Operator", V: Panel) -> Panel:
    return V


# --- products -------------------------------------------------------------------------------------------------------


@generic
def matmat_in_double(A: "Operator", V: Panel) -> Panel:
    return A.matmat(V)


@generic
def rmatmat_in_double(A: "Operator", W: Panel) -> Panel:
    return A.rmatmat(W)


@generic
def cancelled(A: "Operator") -> float:
    return 0.0


@generic
def lazy_basis(A: "Operator", V: Panel, rows: Vector | None = None) -> Any | None:
    return None


@generic
def mix(A: "Operator", Omega: Mixer) -> Panel:
    return A.matmat(Omega.to_array())


@generic
def gram_matrix(A: "Operator", weights: Vector | None = None) -> Panel:
    return A.gram(np.eye(A.shape[1], dtype=panel_dtype(A.dtype)), weights)


@generic
def gram_seconds(A: "Operator", V: Panel) -> float:
    return timed(A, V)


def timed(A: "Operator", V: Panel) -> float:
    started = time.perf_counter()
    A.gram(V)
    return time.perf_counter() - started


# --- rows and columns -----------------------------------------------------------------------------------------------


@generic
def row_blocks(A: "Operator", rows: int) -> Iterator[tuple[int, Panel]]:
    yield 0, A.matmat(np.eye(A.shape[1], dtype=panel_dtype(A.dtype)))


@generic
def column_blocks(A: "Operator", columns: int) -> Iterator[tuple[int, Panel]]:
    yield 0, A.rmatmat(np.eye(A.shape[0], dtype=panel_dtype(A.dtype)))


@generic
def triangle(A: "Operator", weights: Vector | None = None) -> Panel:
    return by_blocks(A, weights)


@generic
def adjoint_triangle(A: "Operator", weights: Vector | None = None) -> Panel:
    return by_blocks(A.H, weights)


def by_blocks(A: "Operator", weights: Vector | None = None) -> Panel:
    n, roots = A.shape[1], None if weights is None else np.sqrt(weights)
    parts = row_blocks(A, max(2 * n, QR_ENTRIES // n))
    blocks = (scaled(None if roots is None else roots[lo : lo + len(block)], block) for lo, block in parts)
    return reduce(folded, ordered(r_factor, blocks, default_threads()))


@generic
def row_moments(A: "Operator", weights: Vector | None = None) -> Moments:
    return row_means(A, weights)


def row_means(A: "Operator", weights: Vector | None = None) -> Moments:
    w = np.ones(A.shape[1]) if weights is None else weights
    mean = A.matmat(w[:, None])[:, 0] / w.sum()
    return Moments(float(w.sum()), mean.astype(np.result_type(mean, np.float64)), None)


# --- entries --------------------------------------------------------------------------------------------------------


@generic
def least(A: "Operator") -> float | None:
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
def exponents(A: "Operator", axis: int) -> Vector | None:
    """Return integers e with ``|a_ij| < 2^e``, near the largest entry of each column or row.

    One read. `NOTHING` stands for columns of zeros. Solvers ask where squares leave the range of numbers.

    Parameters
    ----------
    axis : int
        As in NumPy's ``max``: 0 for an exponent of each column, 1 for one of each row.

    Returns
    -------
    array of int, or None
        None where entries cannot be seen.
    """
    return None


@generic
def ldexp(A: "Operator", rows: Vector | int, cols: Vector | int) -> "Operator | None":
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
    raise TypeError(f"the entries of {A!r} cannot be seen; {SEEN}")


@singledispatch
def with_entries(A: "Operator", change: Change) -> "Operator":
    raise TypeError(f"the entries of {A!r} cannot be seen; {SEEN}")
