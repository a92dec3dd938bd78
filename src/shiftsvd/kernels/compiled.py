"""Compiled kernels for ranges of rows of a CSR matrix: real data, panels in single or double precision."""

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

import shiftsvd.kernels._compiled as _compiled  # type: ignore[import-untyped,import-not-found,unused-ignore]
from shiftsvd.kernels import twin
from shiftsvd.kernels.twin import (
    CHUNK,
    CSR,
    PARTS,
    Array,
    Groups,
    Packed,
    Range,
    RawMoments,
    Steps,
    StepTaker,
    grouped,
    widths,
    zeros,
)

# Entries of a range of rows, which is multiplied by all groups of columns before the next: its 4 MiB stay in cache.
# `range_entries` of steps.hpp is the same number.
ENTRIES = 2**19

# Largest number of pieces of rows that threads take one after another, and least number of entries of a piece.
PIECES, LEAST_ENTRIES = 64, 2**12

# Operations of a call of `recur`, between which a fit can be interrupted.
OPERATIONS = 2**30

# Most columns of a block that `project` makes orthonormal.
WIDEST = 64

REAL = np.dtype(np.float32), np.dtype(np.float64)
# Use these kernels for products of a tall panel of at least LEAST columns and a panel of at most NARROW columns. BLAS
# computes all other products at least as fast (benchmarks/claims/kernels.py).
LEAST, NARROW = 4, {"AVX-512": 64, "AVX2": 16, "baseline": 0}

instruction_set: str = _compiled.instruction_set
panel, add = grouped, _compiled.add


def gather(X: CSR, rows: Range, V: Groups, Y: Array) -> None:
    for lo, hi in _ranges(X, rows):
        for part, where in zip(V.parts, V.columns(), strict=True):
            _compiled.gather(X.data, X.indices, X.indptr, lo, hi, part, Y[lo - rows[0] : hi - rows[0], where])


def scatter(X: CSR, rows: Range, W: Array, dtype: npt.DTypeLike) -> Groups:
    W = _unit_stride(W, dtype)
    Z = zeros(X.shape[1], W.shape[1], dtype)
    for lo, hi in _ranges(X, rows):
        for part, where in zip(Z.parts, Z.columns(), strict=True):
            _compiled.scatter(X.data, X.indices, X.indptr, lo, hi, W[lo - rows[0] : hi - rows[0], where], part)
    return Z


def gram(X: CSR, rows: Range, V: Groups, weights: Array | None, L: Array, C: Groups) -> tuple[Groups, Groups]:
    dtype = V.flat.dtype
    Z, sums = zeros(X.shape[1], V.width, dtype), zeros(L.shape[1], V.width, dtype)
    for lo, hi in _ranges(X, rows):
        a, b = lo - rows[0], hi - rows[0]
        for part, c, s, z in zip(V.parts, C.parts, sums.parts, Z.parts, strict=True):
            w = None if weights is None else weights[a:b]
            _compiled.gram(X.data, X.indices, X.indptr, lo, hi, part, w, L[a:b], c, s, z)
    return Z, sums


def gram_of_all(
    X: CSR, edges: list[int], V: Array, weights: Array | None, L: Array, R: Array, Y: Array, n_threads: int
) -> None:
    _multiply((*_arrays(X), edges), None, V, weights, L, R, Y, n_threads)


# The same product from X and from `across`, its adjoint, whose rows are the columns of X.
def gram_of_both(
    X: CSR, across: CSR, V: Array, weights: Array | None, L: Array, R: Array, Y: Array, n_threads: int
) -> None:
    _multiply(_in_pieces(X), _in_pieces(across), V, weights, L, R, Y, n_threads)


def _multiply(X: Any, across: Any, V: Array, weights: Any, L: Array, R: Array, Y: Array, n_threads: int) -> None:
    V = _by_rows_or_columns(V, Y.dtype)
    _compiled.gram_of_all(X, across, weights, None, L, R, widths(V.shape[1], V.dtype), V, Y, n_threads)


def steps_of(
    X: CSR,
    edges: list[int],
    across: CSR | None,
    weights: Array | None,
    cols: Array | None,
    L: Array,
    R: Array,
    n_threads: int,
) -> StepTaker:
    stored = (*_arrays(X), edges) if across is None else _in_pieces(X)
    other = None if across is None else _in_pieces(across)
    cols = None if cols is None else np.ascontiguousarray(cols, np.float64)

    def take(s: Steps) -> Steps:
        W, cut = np.array(s.W, s.B.dtype, order="C"), widths(s.W.shape[1], s.B.dtype)
        squares, below = np.empty((2, W.shape[1], W.shape[1]))
        state = s.B, s.H, W, s.size, s.last, s.steps, s.scale, s.unit, s.repeat_below, squares, below, n_threads
        steps, scale, power, regular = _compiled.take_steps(stored, other, weights, cols, L, R, cut, *state)
        of_last = {"squares": squares, "below": below if regular else None, "power": power}
        return s._replace(W=W, steps=steps, scale=scale, **of_last)

    return take


# Return the last of `steps` panels, each of which is X times the one before it minus the one before that; X is square.
def recur(X: CSR, before: Array, now: Array, steps: int, n_threads: int) -> Array:
    pair, stored = [panel(before, X.dtype), panel(now, X.dtype)], _in_pieces(X)
    at_once = max(1, OPERATIONS // max(X.nnz * now.shape[1], 1))
    for first in range(0, steps, at_once):
        count = min(at_once, steps - first)
        for parts in zip(pair[0].parts, pair[1].parts, strict=True):
            _compiled.recur(stored, count, *parts, n_threads)
        pair = pair[:: -1 if count % 2 else 1]
    return pair[1].join()


def _arrays(X: CSR) -> tuple[Array, Array, Array]:
    return X.data, X.indices, X.indptr


def _in_pieces(X: CSR) -> tuple[Array, Array, Array, list[int]]:
    return (*_arrays(X), _pieces(X))


# Return True if `take_steps` supports blocks W of the basis B.
def fills_registers(B: Array, W: Array) -> bool:
    return (
        B.dtype in REAL
        and W.dtype == B.dtype
        and W.shape[1] <= min(WIDEST, NARROW[instruction_set])
        and W.shape[1] * W.itemsize % _compiled.register_bytes == 0
        and B.strides[0] == B.itemsize
    )


def _by_rows_or_columns(V: Array, dtype: npt.DTypeLike) -> Array:
    V = V.astype(dtype, copy=False)
    strided = V.itemsize in V.strides and not any(step % V.itemsize for step in V.strides)
    return V if strided else np.ascontiguousarray(V)


def _pieces(X: CSR) -> list[int]:
    pieces = max(1, min(PIECES, X.nnz // LEAST_ENTRIES))
    return [0, *np.searchsorted(X.indptr[1:], np.arange(1, pieces) * (X.nnz // pieces)).tolist(), X.shape[0]]


# Return the adjoint of X with sorted rows.
def transpose(X: CSR, n_threads: int) -> CSR:
    Z = csr_array(X.shape[::-1], dtype=X.dtype)
    # The constructor could choose a smaller index type, but the indices must have that of X.
    Z.data, Z.indices = np.empty(X.indptr[-1], X.dtype), np.empty(X.indptr[-1], X.indices.dtype)
    Z.indptr = np.empty(X.shape[1] + 1, X.indptr.dtype)
    _compiled.transpose(X.data, X.indices, X.indptr, Z.data, Z.indices, Z.indptr, n_threads)
    return Z


def subtract(X: Array, L: Array, Rt: Array, dtype: npt.DTypeLike) -> Array:
    if X.shape[1] == 1 or not len(X):
        return twin.subtract(X, L, Rt, dtype)
    if X.dtype != dtype or not _has_contiguous_rows(X):
        out = X = np.array(X, dtype, order="C")
    else:
        out = np.empty(X.shape, dtype)
    _compiled.subtract(X, L, Rt, out)
    return out


def dense_moments(X: Array, weights: Array | None, total: float) -> tuple[Array, Array, Array]:
    if X.dtype not in REAL or not _has_contiguous_rows(X):
        return twin.dense_moments(X, weights, total)
    sums = np.empty((3, X.shape[1]))
    _compiled.dense_moments(X, weights, total, *sums)
    return sums[0], sums[1], sums[2]


def inner(B: Array, W: Array, n_threads: int = 1) -> Array:
    if not (_has_contiguous_rows(W) or _has_contiguous_rows(W.T)):
        W = np.array(W, order="C")  # also where one row or column has other strides
    out = np.empty((B.shape[1], _register_columns(W)))
    _compiled.inner(B, W, out, n_threads)
    return out[:, : W.shape[1]]


def subtract_product(W: Array, B: Array, C: Array, n_threads: int = 1) -> None:
    padded = _padded_to_registers(W)
    _compiled.subtract_product(B, _padded_to_registers(np.ascontiguousarray(C)), padded, n_threads)
    if padded is not W:
        W[:] = padded[:, : W.shape[1]]


# See `numerics.orth.project`. The last result is ``Q^T W`` if W was made orthonormal and copied to Q; None if some of
# its columns are too short.
def project(
    W: Array,
    B: Array,
    recent: int,
    factor: float,
    repeat_below: float,
    Q: Array | None,
    unit: float,
    scale: float,
    n_threads: int,
) -> tuple[Array, Array, Array, Array | None]:
    padded = _padded_to_registers(W)
    width, own = padded.shape[1], slice(W.shape[1])
    found = np.empty((B.shape[1], width)), np.empty((width, width)), np.zeros((width, width))
    Q = Q if padded is W and width <= WIDEST else None
    regular = _compiled.project(B, recent, padded, factor, repeat_below, Q, *found, unit, scale, n_threads)
    coefficients, squares, below = found
    return padded[:, own], coefficients[:, own], squares[own, own], below if regular else None


# Return ``W Z`` with contiguous columns.
def combine(W: Array, Z: Array, n_threads: int) -> Array:
    B = np.empty((W.shape[0], Z.shape[1]), W.dtype, order="F")
    _compiled.combine(W, _padded_to_registers(np.ascontiguousarray(-Z, W.dtype)), B, n_threads)
    return B


# Return True if `combine` supports this panel.
def narrow(W: Array) -> bool:
    return W.dtype in REAL and 0 < W.shape[1] <= NARROW[instruction_set] and _has_contiguous_rows(W)


# Return True if `inner`, `subtract_product` and `project` support these panels.
def thin(B: Array, W: Array) -> bool:
    return (
        B.dtype == W.dtype
        and B.dtype in REAL
        and LEAST <= B.shape[1]
        and 0 < W.shape[1] <= NARROW[instruction_set]
        and (_has_contiguous_rows(B) or _has_contiguous_rows(B.T))
    )


def _has_contiguous_rows(W: Array) -> bool:
    return W.strides[1] == W.itemsize and W.strides[0] % W.itemsize == 0


def _padded_to_registers(W: Array) -> Array:
    columns = _register_columns(W)
    if W.shape[1] == columns and _has_contiguous_rows(W):
        return W
    padded = np.zeros((W.shape[0], columns), W.dtype)
    padded[:, : W.shape[1]] = W
    return padded


# Columns of W, and those that fill its last register.
def _register_columns(W: Array) -> int:
    lanes = int(_compiled.register_bytes) // W.itemsize
    return -(-int(W.shape[1]) // lanes) * lanes


def total(parts: list[Groups], before: Array | None, L: Array, C: Array, rows: Range, Y: Array) -> None:
    widths = [part.shape[1] for part in parts[0].parts]
    _compiled.total([part.flat for part in parts], before, widths, L, C, rows[0], Y)


def moments(X: CSR, rows: Range, parts: Array | None) -> RawMoments:
    found = _moments_of(X.shape[1])
    _compiled.moments(X.data, X.indices, X.indptr, *rows, parts, *found)
    return found


def row_moments(X: CSR, rows: Range, parts: Array | None) -> RawMoments:
    found = _moments_of(rows[1] - rows[0])
    _compiled.row_moments(X.data, X.indices, X.indptr, *rows, X.shape[1], parts, *found)
    return found


def _moments_of(n: int) -> RawMoments:
    return np.empty((n, PARTS)), np.empty(n), np.empty(n), np.empty(n)


def column_counts(X: CSR, rows: Range) -> Array:
    counts = np.zeros(X.shape[1], np.int64)
    _compiled.column_counts(X.indices, X.indptr, *rows, counts)
    return counts


def column_squares(X: CSR, rows: Range, weights: Array | None, L: Array, R: Array) -> Array:
    squares = np.zeros(X.shape[1])
    _compiled.column_squares(X.data, X.indices, X.indptr, *rows, weights, L, R, squares)
    return squares


def outer(X: CSR, rows: Range, weights: Array | None) -> Array:
    G = np.zeros((X.shape[1], X.shape[1]))
    _compiled.outer(X.data, X.indices, X.indptr, *rows, weights, G)
    return G


def inspect(X: CSR, rows: Range) -> tuple[int, int, int, int, bool]:
    seen: tuple[int, int, int, int, bool] = _compiled.inspect(X.data, X.indices, X.indptr, *rows)
    return seen


def unpack_counts(words: Array, edges: Array, first: int, out: Array) -> None:
    _compiled.unpack_counts(words, edges, first, out)


def unpack_differences(words: Array, edges: Array, starts: Array, first: int, out: Array) -> None:
    _compiled.unpack_differences(words, edges, starts, first, out)


def pack(numbers: Array, differences: bool) -> Packed:
    chunks = -(-len(numbers) // CHUNK)
    words, edges = np.empty(CHUNK * chunks, np.uint32), np.zeros(chunks + 1, np.int64)
    starts = np.empty(chunks if differences else 0, np.uint32)
    count = _compiled.pack(numbers, words, edges, starts if differences else None)
    return Packed(words[:count], edges, starts)


def _ranges(X: CSR, rows: Range) -> list[Range]:
    lo, hi = rows
    first, last = int(X.indptr[lo]), int(X.indptr[hi])
    if last - first <= 2 * ENTRIES:
        return [rows]
    edges = lo + np.searchsorted(X.indptr[lo : hi + 1], np.arange(first + ENTRIES, last, ENTRIES))
    edges = np.unique(np.concatenate([[lo], edges, [hi]]))
    return [(int(a), int(b)) for a, b in pairwise(edges)]


def _unit_stride(W: Array, dtype: npt.DTypeLike) -> Array:
    W = W.astype(dtype, copy=False)
    one = W.shape[1] == 1 and W.strides[0] % W.itemsize == 0
    return W if one or _has_contiguous_rows(W) else np.ascontiguousarray(W)
