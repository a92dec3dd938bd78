"""Generic functions of operators, each with a default that holds for every operator.

A kind that can do better has a method of the same name (`Operator` registers the classes of this package); an operator
made of another one asks that one. Callers never test the kind of a matrix. The methods inherit these docstrings.
"""

import time
from collections.abc import Callable, Iterator
from functools import reduce, singledispatch
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from shiftsvd.kernels import default_threads, ordered
from shiftsvd.numerics.entrywise import Change, Table, Terms, Values
from shiftsvd.numerics.moments import Moments
from shiftsvd.numerics.orth import folded, r_factor
from shiftsvd.numerics.panels import Mixer, Panel, Vector, panel_dtype, scaled

if TYPE_CHECKING:
    from shiftsvd.algebra.low_rank import LowRank
    from shiftsvd.algebra.operator import Operator
    from shiftsvd.kernels.twin import StepTaker

# Entries of a block that is factorized at once: 16 MiB in double precision.
QR_ENTRIES = 2**21
# An operator that only multiplies gives entries by its products with unit vectors: at most so many columns, so many at
# a time.
FEW_COLUMNS, COLUMNS = 1000, 64

Function = TypeVar("Function", bound=Callable[..., Any])
Kind = TypeVar("Kind", bound=type)
FUNCTIONS: dict[str, Any] = {}  # by their names


def generic(default: Function) -> Function:
    FUNCTIONS[default.__name__] = singledispatch(default)
    return cast("Function", FUNCTIONS[default.__name__])


def registered(kind: Kind) -> Kind:
    for name in FUNCTIONS.keys() & vars(kind).keys():
        method = vars(kind)[name]
        method.__doc__ = method.__doc__ or FUNCTIONS[name].__doc__
        FUNCTIONS[name].register(kind, lambda A, *args, name=name: getattr(A, name)(*args))
    return kind


# --- the algebra ----------------------------------------------------------------------------------------------------


@generic
def as_low_rank(A: "Operator") -> "LowRank | None":
    """Return the matrix as two thin factors, or None where it is not known to have low rank."""
    return None


@generic
def unshifted(A: "Operator") -> "tuple[Operator, LowRank | None]":
    """Return the matrix before its shift, and the shift or None."""
    return A, None


@generic
def shift_of(A: "Operator") -> "LowRank | None":
    """Return the shift, or None where nothing is subtracted."""
    return unshifted(A)[1]


@generic
def fused(A: "Operator", passes: float) -> "Operator":
    """Sort A for this many passes, or fuse its shift into its blocks; for 0 passes, only if that is free."""
    return A


@generic
def passes_per_step(A: "Operator") -> int:
    """Return the number of reads of the data in a step of block Lanczos."""
    return 1


@generic
def transposed(A: "Operator", passes: float) -> "Operator | None":
    return None


@generic
def placed(A: "Operator", V: Panel) -> Panel:
    """Move a panel from the host to the device where the products are made."""
    return V


# --- products -------------------------------------------------------------------------------------------------------


@generic
def matmat_in_double(A: "Operator", V: Panel) -> Panel:
    """Compute ``A V`` in double precision, of data in single precision too."""
    return A.matmat(V)


@generic
def rmatmat_in_double(A: "Operator", W: Panel) -> Panel:
    """Compute ``A^H W`` in double precision, of data in single precision too."""
    return A.rmatmat(W)


@generic
def cancelled(A: "Operator") -> float:
    """Return a norm of terms that cancel in products, whose rounding errors have its size however small A is."""
    return 0.0


@generic
def lazy_basis(A: "Operator", V: Panel, rows: Vector | None = None) -> Any | None:
    """Return orthonormal columns along ``diag(rows) A V`` as a Dask array, or None if the data are not a Dask array."""
    return None


@generic
def mix(A: "Operator", Omega: Mixer) -> Panel:
    return A.matmat(Omega.to_array())


@generic
def moments_and_gram(A: "Operator", V: Panel, weights: Vector | None = None) -> tuple[Moments, Panel | None]:
    """Compute the moments of the columns, and ``A^H diag(weights) A V`` if one read serves both, else None."""
    return A.moments(weights), None


@generic
def gram_matrix(A: "Operator", weights: Vector | None = None) -> Panel:
    """Form ``A^H diag(weights) A``."""
    return A.gram(np.eye(A.shape[1], dtype=panel_dtype(A.dtype)), weights)


@generic
def gram_with_double(A: "Operator", V: Panel, D: Panel, weights: Vector | None = None) -> "tuple[Panel, Panel] | None":
    """Compute ``A^H diag(weights) A V``, and the same of D in double precision, in one read; None if A is in memory."""
    return None


@generic
def step_taker(A: "Operator", weights: Vector | None = None, cols: Vector | None = None) -> "StepTaker | None":
    """Return a function that takes several steps of block Lanczos in one call, or None without such a kernel.

    The steps are those of ``diag(cols) A^H diag(weights) A diag(cols)``.
    """
    return None


@generic
def gram_seconds(A: "Operator", V: Panel) -> float:
    """Measure the seconds of ``A^H A V``; of a large file, by a part of its blocks."""
    return timed(A, V)


def timed(A: "Operator", V: Panel) -> float:
    started = time.perf_counter()
    A.gram(V)
    return time.perf_counter() - started


# --- rows and columns -----------------------------------------------------------------------------------------------


@generic
def row_blocks(A: "Operator", rows: int) -> Iterator[tuple[int, Panel]]:
    """Form the matrix in blocks of about so many rows: yield the first row of each, and the block."""
    yield 0, A.matmat(np.eye(A.shape[1], dtype=panel_dtype(A.dtype)))


@generic
def column_blocks(A: "Operator", columns: int) -> Iterator[tuple[int, Panel]]:
    """Form the adjoint in blocks of about so many rows, as `row_blocks` does."""
    H = A.H
    if type(H) is type(A):
        yield from row_blocks(H, columns)
    else:
        yield 0, A.rmatmat(np.eye(A.shape[0], dtype=panel_dtype(A.dtype)))


@generic
def triangle(A: "Operator", weights: Vector | None = None) -> Panel:
    """Compute the triangular factor R of ``diag(sqrt(weights)) A = Q R``."""
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
    """Compute the moments of the rows, as `Operator.moments` does those of the columns."""
    return row_means(A, weights)


def row_means(A: "Operator", weights: Vector | None = None) -> Moments:
    w = np.ones(A.shape[1]) if weights is None else weights
    mean = A.matmat(w[:, None])[:, 0] / w.sum()
    return Moments(float(w.sum()), mean.astype(np.result_type(mean, np.float64)), None)


# --- entries --------------------------------------------------------------------------------------------------------


@generic
def least(A: "Operator") -> float | None:
    """Return the least entry, at most 0, or None where it is not known."""
    return None


@generic
def squares_beyond(A: "Operator", V: Panel, W: Panel, weights: Vector | None = None) -> Vector | None:
    """Compute the squared norms of the columns of ``diag(sqrt(weights)) (A - A V W^H)``.

    Entries are subtracted, not squares: what is left may be 1e-30 of the squares of A. One pass and O(m n b)
    operations, since what is left of a sparse row is dense; nothing with a row for each of A is held. None where that
    costs too much.
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
    """Return integers e with ``|a_ij| < 2^e``, near the largest entry of each column (axis 0) or each row (axis 1).

    One read; None without access to the entries. Solvers need exponents if squares leave the range of float64. The
    exponent of a column of zeros is `ZERO_EXPONENT`.
    """
    return None


@generic
def ldexp(A: "Operator", rows: Vector | int, cols: Vector | int) -> "Operator | None":
    """Return ``diag(2^rows) A diag(2^cols)``, or None where the entries cannot be multiplied."""
    return None


# Products alone cannot tell these; `backends/entries.py` registers the kinds of matrices with accessible entries.


def no_entries(A: "Operator") -> Exception:
    why = getattr(A, "refusal", None)  # of a matrix with missing entries
    if isinstance(why, Exception):
        return why
    return TypeError(
        f"{A!r} gives no access to its entries, which transformations and missing values need. "
        "Pass an array, a sparse matrix, a file or a Dask array on the host."
    )


@singledispatch
def entry_sums(A: "Operator", terms: Terms) -> tuple[Panel, Panel]:
    # Sums over rows, (m, p), and over columns, (n, q), of numbers made of each stored entry; one read.
    raise no_entries(A)


@singledispatch
def entry_values(A: "Operator", values: Values) -> Table:
    raise no_entries(A)


@singledispatch
def with_entries(A: "Operator", change: Change) -> "Operator":
    raise no_entries(A)
