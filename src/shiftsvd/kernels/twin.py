"""Kernels in SciPy and NumPy: the fallback, the reference of the tests, and complex data."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, reduce
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

Array = npt.NDArray[Any]
CSR = Any  # csr_array, whose stubs are generic in ways that no annotation here uses
Range = tuple[int, int]  # first row and one past the last
# Squares that overflow or underflow are infinite or 0; callers divide the data by a power of two to avoid this.
range_errors_ignored = np.errstate(over="ignore", invalid="ignore")

GROUP = 128  # bytes of a row of a group: groups of two panels of 2,000 rows take half of 1 MiB of cache
LINE = 64  # bytes of a cache line


@dataclass(frozen=True, eq=False)
class Groups:
    """Panel of `width` columns, cut into groups that are stored one after another; padding columns are 0."""

    flat: Array  # the buffer; the sum of two panels of the same shape has the sum of their buffers
    parts: list[Array]  # views of the buffer, (rows, 2^p)
    width: int  # columns without padding

    def columns(self) -> list[slice]:
        return spans([part.shape[1] for part in self.parts], self.width)

    def join(self) -> Array:
        panel = np.empty((len(self.parts[0]), self.width), self.flat.dtype)
        for part, where in zip(self.parts, self.columns(), strict=True):
            panel[:, where] = part[:, : where.stop - where.start]
        return panel

    def empty_like(self, flat: Array) -> "Groups":
        return Groups(flat, _views(flat, len(self.parts[0]), [p.shape[1] for p in self.parts]), self.width)


@cache
def widths(width: int, dtype: np.dtype[Any]) -> list[int]:
    widest = GROUP // dtype.itemsize
    cut = [widest] * (width // widest)
    left = width % widest
    while left:
        above = 1 << (left - 1).bit_length()
        step = above if 3 * above <= 4 * left else above // 2
        cut.append(step)
        left -= min(step, left)
    return cut or [1]


def spans(cut: list[int], width: int) -> list[slice]:
    ends = list(accumulate(cut))
    return [slice(hi - w, min(hi, width)) for hi, w in zip(ends, cut, strict=True)]


def zeros(rows: int, width: int, dtype: npt.DTypeLike) -> Groups:
    dtype = np.dtype(dtype)
    cut = widths(width, dtype)
    raw = np.zeros(rows * sum(cut) * dtype.itemsize + LINE, np.uint8)
    start = -raw.__array_interface__["data"][0] % LINE
    flat = raw[start : start + rows * sum(cut) * dtype.itemsize].view(dtype)
    return Groups(flat, _views(flat, rows, cut), width)


def grouped(V: Array, dtype: npt.DTypeLike) -> Groups:
    groups = zeros(V.shape[0], V.shape[1], dtype)
    for part, where in zip(groups.parts, groups.columns(), strict=True):
        part[:, : where.stop - where.start] = V[:, where]
    return groups


def _views(flat: Array, rows: int, cut: list[int]) -> list[Array]:
    ends = accumulate(cut)
    return [flat[rows * (hi - w) : rows * hi].reshape(rows, w) for hi, w in zip(ends, cut, strict=True)]


# Entries of a dense block that are subtracted and squared at a time. More would exceed the cache and allocate new
# memory each time (2,000 x 200: 1 ms to subtract the means, 0.05 ms in allocated memory).
PIECE = 2**16
PARTS = 3  # parts of a weight, as in rows.hpp
# For the stored entries of each line: sums of the parts of their weights, (n, 3), means, corrections of the means for
# rounding, and sums of squared deviations from the means.
RawMoments = tuple[Array, Array, Array, Array]


class Steps(NamedTuple):
    """State before or after steps of block Lanczos. B, H, size, last, scale: see `solvers.krylov.Factorization`."""

    B: Array
    H: Array
    W: Array  # the next block by rows; if it is not orthonormal (`below` is None), the projected product
    size: int
    last: int
    steps: int
    scale: float
    unit: float
    repeat_below: float
    squares: Array = np.empty((0, 0))  # ``W^T W`` of the last product after its projection
    below: Array | None = None
    power: float = 1.0  # of two, by which the last product was divided


StepTaker = Callable[[Steps], Steps]
instruction_set = "SciPy"


def take_rows(X: CSR, lo: int, hi: int) -> CSR:
    start, stop = int(X.indptr[lo]), int(X.indptr[hi])
    indices = X.indices[start:stop]
    # The arrays belong to the caller and may have changed since they were validated.
    sound = 0 <= start <= stop <= min(len(X.indices), len(X.data)) and np.all(np.diff(X.indptr[lo : hi + 1]) >= 0)
    if not sound or (len(indices) and (indices.min() < 0 or indices.max() >= X.shape[1])):
        raise ValueError(
            "The index arrays of the CSR matrix were changed after as_operator and refer to entries outside of the "
            "matrix. Create the matrix and call as_operator again."
        )
    if lo == 0 and hi == X.shape[0]:
        return X
    return csr_of(X.data[start:stop], indices, X.indptr[lo : hi + 1] - start, (hi - lo, X.shape[1]))


def csr_of(data: Array, indices: Array, indptr: Array, shape: tuple[int, int]) -> CSR:
    # The constructor that takes these arrays copies them if they are parts of larger arrays.
    X = csr_array(shape, dtype=data.dtype)
    X.data, X.indices, X.indptr = data, indices, indptr
    return X


def panel(V: Array, dtype: npt.DTypeLike) -> Groups:
    return _one_group(V.astype(np.result_type(dtype, np.complex64) if np.iscomplexobj(V) else dtype, copy=False))


def gather(X: CSR, rows: Range, V: Groups, Y: Array) -> None:
    Y[:] = take_rows(X, *rows) @ V.parts[0]


def scatter(X: CSR, rows: Range, W: Array, dtype: npt.DTypeLike) -> Groups:
    return _one_group(_adjoint_times(take_rows(X, *rows), panel(W, dtype).parts[0]))


def gram(X: CSR, rows: Range, V: Groups, weights: Array | None, L: Array, C: Groups) -> tuple[Groups, Groups]:
    X = take_rows(X, *rows)
    Y = X @ V.parts[0]
    shift = L @ C.parts[0]
    Y = Y - shift.astype(np.result_type(Y, np.complex64) if np.iscomplexobj(shift) else Y.dtype, copy=False)
    if weights is not None:
        Y *= weights[:, None].astype(Y.real.dtype)
    return _one_group(_adjoint_times(X, Y)), _one_group(np.asarray(L.conj().T @ Y))


def subtract(X: Array, L: Array, Rt: Array, dtype: npt.DTypeLike) -> Array:
    difference = np.asarray(L @ Rt, np.result_type(dtype, np.float64))
    # In place, because new memory takes several times as long as the subtraction.
    np.subtract(X, difference, out=difference, dtype=difference.dtype)
    return difference.astype(dtype, copy=False)


# Return the weighted mean of each column, and the sums of deviations from it and of their squares.
def dense_moments(X: Array, weights: Array | None, total: float) -> tuple[Array, Array, Array]:
    (m, n), dtype = X.shape, np.result_type(X.dtype, np.float64)
    w = np.ones(m) if weights is None else weights
    step = max(1, PIECE // max(n, 1))
    pieces = [slice(lo, lo + step) for lo in range(0, m, step)]
    mean, deviations, squares = np.zeros(n, dtype), np.zeros(n, dtype), np.zeros(n)
    for rows in pieces:
        mean += w[rows] @ X[rows].astype(dtype, copy=False)
    mean /= total
    for rows in pieces:
        x = X[rows] - mean
        deviations += w[rows] @ x
        squares += w[rows] @ (x.real**2 + x.imag**2 if x.dtype.kind == "c" else np.multiply(x, x, out=x))
    return mean, deviations, squares


def inner(B: Array, W: Array) -> Array:
    return np.asarray((B.conj().T @ W).astype(np.result_type(B, W, np.float64), copy=False))


def subtract_product(W: Array, B: Array, C: Array) -> None:
    # For thin panels BLAS computes the transposed product in less than half of the time.
    W -= (C.T @ B.T).T


def total(parts: list[Groups], before: Array | None, L: Array, C: Array, rows: Range, Y: Array) -> None:
    here = slice(*rows)
    flats = [part.parts[0][here] for part in parts]
    first = np.zeros(1) if before is None else parts[0].empty_like(before).parts[0][here]
    sums = reduce(np.add, flats, first.astype(np.result_type(first, flats[0]), copy=False)) - L[here] @ C
    with np.errstate(over="ignore"):  # like the compiled kernel, return infinity if single precision overflows
        Y[:] = sums


def add(part: Array, total: Array) -> None:
    total += part


def moments(X: CSR, rows: Range, parts: Array | None) -> RawMoments:
    X = take_rows(X, *rows)
    each = None if parts is None else parts.repeat(np.diff(X.indptr), axis=0)
    return grouped_moments(X.data, X.indices, X.shape[1], each)


def row_moments(X: CSR, rows: Range, parts: Array | None) -> RawMoments:
    X = take_rows(X, *rows)
    i = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    return grouped_moments(X.data, i, X.shape[0], None if parts is None else parts[X.indices])


def column_counts(X: CSR, rows: Range) -> Array:
    return np.bincount(take_rows(X, *rows).indices, minlength=X.shape[1])


@range_errors_ignored
def column_squares(X: CSR, rows: Range, weights: Array | None, L: Array, R: Array) -> Array:
    X = take_rows(X, *rows)
    i = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    x = X.data.astype(np.result_type(X.dtype, np.float64), copy=False)
    shift = np.einsum("er,er->e", L[i], R[X.indices]) if L.shape[1] else np.zeros(len(i))
    change = np.abs(x) ** 2 - 2 * (x.conj() * shift).real
    return sum_by(X.indices, change if weights is None else weights[i] * change, X.shape[1])


def outer(X: CSR, rows: Range, weights: Array | None) -> Array:
    X = take_rows(X, *rows).astype(np.result_type(X.dtype, np.float64))
    Y = X if weights is None else csr_array(X * weights[:, None])
    return np.asarray(np.tril((Y.conj().T @ X).toarray()))


def inspect(X: CSR, rows: Range) -> tuple[int, int, int, int, bool]:
    first, last = X.indptr[rows[0]], X.indptr[rows[1]]
    data, indices = X.data[first:last], X.indices[first:last]
    if not len(indices):
        return 0, 0, 0, -1, True
    finite = np.isfinite(data)
    n_nan = 0 if finite.all() else int(np.isnan(data).sum())
    ends = X.indptr[rows[0] + 1 : rows[1]] - first - 1  # the last entry of each row except the last row
    within = np.ones(len(indices) - 1, bool)
    within[ends[(ends >= 0) & (ends < len(within))]] = False
    ordered = bool(np.all(np.diff(indices)[within] > 0))
    return n_nan, int((~finite).sum()) - n_nan, int(indices.min()), int(indices.max()), ordered


CHUNK = 128  # numbers that are packed with the same number of bits, in 4 lanes, as in bitpack.hpp
_LANES, _STEPS, _WORD = 4, 32, 32


class Packed(NamedTuple):
    """Chunks of packed integers: chunk i is ``words[edges[i] : edges[i + 1]]``."""

    words: Array
    edges: Array
    starts: Array  # first numbers of the chunks if differences are packed, else empty


def unpack_counts(words: Array, edges: Array, first: int, out: Array) -> None:
    most_bits = 24 if out.dtype == np.float32 else _WORD
    bits = _bits(words, edges, first, len(out), most_bits)
    bits += (np.diff(edges) < CHUNK)[:, None].astype(np.uint32)
    out[:] = bits.reshape(-1)[first : first + len(out)]


def unpack_differences(words: Array, edges: Array, starts: Array, first: int, out: Array) -> None:
    bits = _bits(words, edges, first, len(out), _WORD)
    signed = (bits >> np.uint32(1)) ^ (-(bits & np.uint32(1)).astype(np.int32)).view(np.uint32)
    sums = np.cumsum(signed, axis=1, dtype=np.uint32) + starts[:, None]
    numbers = np.where((np.diff(edges) < CHUNK)[:, None], sums, bits)  # chunks of 32 bits are not encoded
    out[:] = numbers.reshape(-1)[first : first + len(out)]


def _bits(words: Array, edges: Array, first: int, size: int, most_bits: int) -> Array:
    widths, left = np.divmod(np.diff(edges), _LANES)
    if edges.min() < 0 or edges.max() > len(words):
        raise ValueError("the edges of chunks must be within the words")
    if left.any() or widths.min(initial=0) < 0 or widths.max(initial=0) > most_bits:
        raise ValueError("a chunk has a wrong number of words")
    if not (0 <= first < CHUNK and first + size <= CHUNK * len(widths)):
        raise ValueError("the numbers to unpack must be within the chunks")
    out = np.zeros((len(widths), _STEPS, _LANES), np.uint32)
    for width in np.unique(widths[widths > 0]).tolist():
        own = np.flatnonzero(widths == width)
        W = np.zeros((len(own), width + 1, _LANES), np.uint64)
        W[:, :width] = words[edges[own, None] + np.arange(_LANES * width)].reshape(-1, width, _LANES)
        for j in range(_STEPS):
            word, shift = divmod(j * width, _WORD)
            both = W[:, word] | W[:, word + 1] << np.uint64(_WORD)
            out[own, j] = (both >> np.uint64(shift)) & np.uint64(2**width - 1)
    return out.reshape(-1, CHUNK)


def pack(numbers: Array, differences: bool) -> Packed:
    padding = np.broadcast_to(numbers[-1:], -len(numbers) % CHUNK)
    chunks = np.concatenate([numbers, padding]).reshape(-1, CHUNK)
    starts = chunks[:, 0].copy() if differences else chunks[:0, 0]
    if differences:
        steps = np.diff(chunks, axis=1, prepend=chunks[:, :1])
        bits = steps << np.uint32(1) ^ (steps.view(np.int32) >> 31).view(np.uint32)
    else:
        bits = chunks - np.uint32(1)
    widths = np.frexp(np.bitwise_or.reduce(bits, axis=1).astype(np.float64))[1].astype(np.int64)
    bits[widths == _WORD] = chunks[widths == _WORD]
    edges = np.concatenate([[0], np.cumsum(_LANES * widths)])
    words = np.empty(edges[-1], np.uint32)
    for width in np.unique(widths[widths > 0]).tolist():
        own = np.flatnonzero(widths == width)
        W, X = np.zeros((len(own), width + 1, _LANES), np.uint64), bits[own].reshape(-1, _STEPS, _LANES)
        for j in range(_STEPS):
            word, shift = divmod(j * width, _WORD)
            both = X[:, j].astype(np.uint64) << np.uint64(shift)
            W[:, word] |= both & np.uint64(2**_WORD - 1)
            W[:, word + 1] |= both >> np.uint64(_WORD)
        words[edges[own, None] + np.arange(_LANES * width)] = W[:, :width].reshape(len(own), -1)
    return Packed(words, edges, starts)


@range_errors_ignored
def grouped_moments(data: Array, groups: Array, n_groups: int, parts: Array | None = None) -> RawMoments:
    data = data.astype(np.result_type(data.dtype, np.float64), copy=False)
    each = (None,) if parts is None else parts.T
    stored = np.zeros((n_groups, PARTS))
    for p, part in enumerate(each):
        stored[:, p] = np.bincount(groups, part, n_groups)
    w = 1.0 if parts is None else parts.sum(axis=1)
    count = stored.sum(axis=1)
    some = np.where(count > 0, count, 1)
    mean = sum_by(groups, w * data, n_groups) / some
    deviations = data - mean[groups]
    # Deviations measure the rounding error of the mean, so that a constant column has variance 0.
    correction = sum_by(groups, w * deviations, n_groups) / some
    squares = np.bincount(groups, w * np.abs(deviations) ** 2, n_groups) - count * np.abs(correction) ** 2
    return stored, mean, correction, np.maximum(squares, 0)


def sum_by(groups: Array, values: Array, n_groups: int) -> Array:
    if np.iscomplexobj(values):
        real, imag = (np.bincount(groups, part, n_groups) for part in (values.real, values.imag))
        return np.asarray(real + 1j * imag)
    return np.bincount(groups, values, n_groups).astype(np.float64, copy=False)


def _adjoint_times(X: CSR, Y: Array) -> Array:
    return np.asarray((X.T @ Y.conj()).conj() if np.iscomplexobj(X.data) else X.T @ Y)


def _one_group(V: Array) -> Groups:
    V = np.ascontiguousarray(V)
    return Groups(V.reshape(-1), [V], V.shape[1])
