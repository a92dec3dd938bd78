"""Matrices on a device: blocks of rows, dense matrices, and sparse ones, whose adjoints are CSR, too."""

import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import pairwise
from operator import add
from typing import Any, Self

import numpy as np

from shiftsvd.backends.blocked import Blocked, Rows, cut, slice_of
from shiftsvd.backends.dense import native_dtype
from shiftsvd.backends.device.arrays import Arrays, DevicePanel, is_out_of_memory
from shiftsvd.backends.device.kernel import Chunks, rows_of
from shiftsvd.backends.sparse import CANCELLED, FULL
from shiftsvd.events import record_read
from shiftsvd.kernels.twin import range_errors_ignored
from shiftsvd.numerics.moments import of_stored, weight_parts
from shiftsvd.numerics.powers import exponents_of, factors_of
from shiftsvd.operators import LowRank, Moments, Panel, Vector, panel_dtype

# Entries of a piece of a block that is made dense in double precision.
PIECE = 2**23


class DeviceBlocks(Blocked):
    """Matrix on a device minus its shift. Products are on the host or on the device, as their panels are."""

    arrays: Arrays
    X: Any

    @property
    def workers(self) -> int:
        return 1

    @property
    def double(self) -> np.dtype[Any]:
        return panel_dtype(self.dtype)

    @abstractmethod
    def stored_dense(self, rows: Rows) -> Any: ...

    @abstractmethod
    def times(self, rows: Vector | int, cols: Vector | int) -> Any: ...

    def piece(self, rows: Rows) -> Any:
        stored = self.arrays.in_dtype(self.stored_dense(rows), self.double)
        if self.shift is None:
            return stored
        L, R = self.up(self.shift.L[rows[0] : rows[1]]), self.up(self.shift.R)
        return stored - L @ self.arrays.adjoint(R)

    def formed(self, rows: Rows) -> Panel:
        return self.arrays.down(self.piece(rows))

    def placed(self, V: Panel) -> Panel:
        there: Panel = V if isinstance(V, DevicePanel) else self._lying_there(self.up(V, V.dtype))
        return there

    def up(self, panel: Panel, dtype: np.dtype[Any] | None = None) -> Any:
        if isinstance(panel, DevicePanel):
            return self.arrays.in_dtype(panel.x, dtype or self.double)
        return self.arrays.up(np.ascontiguousarray(panel, dtype or self.double))

    def beside(self, V: Panel, product: Any) -> Panel:
        return self._lying_there(product) if isinstance(V, DevicePanel) else self.arrays.down(product)

    def matmat(self, V: Panel) -> Panel:
        shape, dtype = (self.shape[0], V.shape[1]), np.result_type(self.double, V.dtype)
        there = isinstance(V, DevicePanel)
        Y = self._lying_there(self.arrays.empty(shape, dtype)) if there else np.empty(shape, dtype)
        for lo, part in self.row_products(V):
            Y[lo : lo + len(part)] = part
        return Y

    def _lying_there(self, x: Any) -> Any:
        return DevicePanel(x, self.arrays)

    def weights_of(self, weights: Vector | None, rows: Rows, dtype: np.dtype[Any]) -> Any:
        if weights is None:
            return None
        return self.arrays.column(np.asarray(weights), np.zeros(0, dtype).real.dtype)[rows[0] : rows[1], :]

    def pieces(self, *blocks: Rows) -> Iterator[tuple[Rows, Any]]:
        for block in blocks or (rows for rows, _ in self._each(lambda rows: None)):
            for lo, hi in cut(block[1] - block[0], PIECE // max(self.shape[1], 1)):
                piece = block[0] + lo, block[0] + hi
                yield piece, self.piece(piece)

    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        G: Any = 0
        for rows, D in self.pieces():
            w = slice_of(weights, rows)
            G = G + self.arrays.adjoint(D) @ (D if w is None else self.up(w[:, None]) * D)
        return self.arrays.down(G)

    @range_errors_ignored
    def _column_squares(self, weights: Vector | None) -> Vector:
        w = np.ones((1, self.shape[0])) if weights is None else np.asarray(weights, np.float64)[None, :]
        squares = np.zeros(self.shape[1])
        for (lo, hi), D in self.pieces():
            squares += self.arrays.down(self.arrays.up(w[:, lo:hi]) @ abs(D) ** 2)[0]
        return squares

    @range_errors_ignored
    def row_squares(self, weights: Vector | None = None) -> Vector:
        w = self.arrays.up(np.ones((self.shape[1], 1)) if weights is None else np.asarray(weights, float)[:, None])
        return np.concatenate([self.arrays.down(abs(D) ** 2 @ w)[:, 0] for _, D in self.pieces()])

    def exponents(self, axis: int) -> Vector:
        if axis:
            return self.turned().exponents(0)
        parts = (self.arrays.down(self.arrays.column_largest(abs(D))) for _, D in self.pieces())
        return exponents_of(reduce(np.maximum, parts))

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "DeviceBlocks | None":
        X = self.times(rows, cols) if self.dtype == self.double else None
        shift = self.shift and self.shift.ldexp(rows, cols)
        return None if X is None else replace(self, X=X, shift=shift, memo={})  # type: ignore[type-var]

    def dense_pieces(self, rows: Rows) -> Iterator[tuple[int, Panel]]:
        return ((lo, self.arrays.down(D)) for (lo, _), D in self.pieces(rows))

    def transposed(self, passes: float) -> Self | None:
        return self.turned()

    def __matmul__(self, V: Any) -> Any:
        if type(V).__module__.partition(".")[0] == type(self.X).__module__.partition(".")[0]:
            return self.arrays.up(super().__matmul__(self.arrays.down(V)))
        return super().__matmul__(V)


# Entries of a block: 64 MiB in double precision.
BLOCK = 2**23


@dataclass(frozen=True, eq=False, repr=False)
class DeviceRows(DeviceBlocks):
    """Dense array on a device with its rows on the long side, optionally conjugated, minus its shift."""

    X: Any
    arrays: Arrays
    shift: LowRank | None = None
    conjugate: bool = False
    n_threads: int = 1
    memo: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.describe(self.X.shape, native_dtype(self.arrays.dtype_of(self.X)))

    def blocks(self) -> list[Rows]:
        return cut(self.shape[0], BLOCK // max(self.shape[1], 1))

    def stored_dense(self, rows: Rows) -> Any:
        X = self.arrays.in_dtype(self.X[rows[0] : rows[1], :], self.double)
        return self.arrays.adjoint(X).T if self.conjugate else X

    def times(self, rows: Vector | int, cols: Vector | int) -> Any:
        X = self.arrays.in_dtype(self.X, self.double)
        for e, shape in ((rows, (-1, 1)), (cols, (1, -1))):
            for factor in factors_of(e) if np.any(e) else ():
                X = X * self.arrays.up(np.reshape(factor, shape))
        return X

    def block(self, rows: Rows, dtype: np.dtype[Any]) -> Any:
        return self.arrays.in_dtype(self.piece(rows), dtype)

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        dtype = np.result_type(self.double, V.dtype)
        P = self.up(V, dtype)
        for rows, D in self._each(lambda rows: self.block(rows, dtype)):
            yield rows[0], self.beside(V, D @ P)

    def rmatmat(self, W: Panel) -> Panel:
        dtype = np.result_type(self.double, W.dtype)

        def part(rows: Rows) -> Any:
            return self.arrays.adjoint(self.block(rows, dtype)) @ self.up(W[rows[0] : rows[1]], dtype)

        return self.beside(W, self._total(part))

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        double = np.result_type(self.double, V.dtype)
        single = V.dtype.itemsize < double.itemsize and self.dtype != self.double
        dtype = np.result_type(self.dtype, V.dtype) if single else double
        P = self.up(V, dtype)

        def part(rows: Rows) -> Any:
            D, w = self.block(rows, dtype), self.weights_of(weights, rows, dtype)
            Y = D @ P if w is None else w * (D @ P)
            return self.arrays.in_dtype(self.arrays.adjoint(D) @ Y, np.result_type(dtype, np.float64))

        with self.arrays.exact():
            return self.beside(V, self.arrays.in_dtype(self._total(part), dtype))

    def _total(self, part: Callable[[Rows], Any]) -> Any:
        return reduce(add, (values for _, values in self._each(part)))

    def block_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        return self._moments_of(self.piece(rows), np.ones(rows[1] - rows[0]) if weights is None else weights)

    def block_row_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        return self._moments_of(self.piece(rows).T, np.ones(self.shape[1]) if weights is None else weights)

    @range_errors_ignored
    def _moments_of(self, D: Any, w: Vector) -> Moments:
        total, up = float(w.sum()), self.up(w[None, :])
        count = total if total > 0 else 1.0
        mean = (up @ D) / count
        off = D - mean
        correction = (up @ off) / count  # rounding error of the mean
        squares = self.arrays.up(w[None, :]) @ abs(off) ** 2
        shift, M2 = self.arrays.down(correction)[0], self.arrays.down(squares)[0]
        return Moments(total, self.arrays.down(mean)[0] + shift, np.maximum(M2 - total * np.abs(shift) ** 2, 0))

    def turned(self) -> "DeviceRows":
        conjugate = self.arrays.dtype_of(self.X).kind == "c" and not self.conjugate
        return replace(self, X=self.X.T, shift=self.shift and self.shift.H, conjugate=conjugate, memo={})


# ---- Sparse matrices on a device: blocks of rows as CSR, and their adjoints as CSR, so that no product scatters

# A panel as the parts of a block take it, on the device: with zeros at the full columns, shape (n, b), for the entries;
# minus what L of the shift takes, (r, b), if there is a shift; and its rows at the full columns, if there are such.
PanelParts = list[Any]


def own_chunks(X: Any, arrays: Arrays, stored: int) -> Chunks | None:
    # Return None if X is not on a GPU, if the library's products are faster, or with SHIFTSVD_KERNELS=off, as for the
    # kernels of the host. If our kernel cannot be compiled, "require" raises an error; otherwise log one line.
    card, wanted = arrays.card(), os.environ.get("SHIFTSVD_KERNELS", "auto")
    (m, n), (data, indices, indptr) = map(int, X.shape), arrays.parts(X)
    rows, types = rows_of(m, n, stored), (arrays.dtype_of(data), arrays.dtype_of(indices))
    if card is None or wanted == "off" or rows is None or types[0] not in (np.float32, np.float64):
        return None
    begins = arrays.by_rows(arrays.in_dtype(indptr, np.dtype(np.int64)))
    try:
        return Chunks(card, (arrays.by_rows(data), arrays.by_rows(indices), begins), types, (m, n), rows=rows)
    except (OSError, RuntimeError) as error:
        if wanted == "require" or is_out_of_memory(error):  # the library would need more memory
            raise
        line = str(error).partition("\n")[0]
        logging.getLogger("shiftsvd").warning(
            f"The compiled GPU kernel is not available; products use the array library instead: {line}"
        )
        return None


# Rows of a block, and its most entries, which places of 32 bits can count.
ROWS, MOST = 2**17, 2**31 - 1


# Sums over the stored entries of each row of a CSR matrix, or of each column of the chunks of our kernel: powers (0, 1
# or 2) of the distances of the entries from the row's or column's centre, times the rows of a panel.
Powers = Callable[[Any, Vector | None, int], Vector]


@dataclass(frozen=True, eq=False, repr=False)
class DeviceCSR(DeviceBlocks):
    """A CSR matrix on a device, without duplicates, minus its shift."""

    # Columns that are more than 99 % full are dense blocks, shifted before they are multiplied; everywhere else the
    # shift is a product of thin factors.

    sparse = True
    X: Any
    arrays: Arrays
    shift: LowRank | None = None
    n_threads: int = 1
    memo: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.describe(self.X.shape, native_dtype(self.arrays.dtype_of(self.arrays.parts(self.X)[0])))

    def known_costs(self) -> dict[str, Any]:
        def pairs() -> float:
            _, _, indptr = self.arrays.parts(self.X)
            counts = self.arrays.in_dtype(indptr[1:] - indptr[:-1], np.dtype(np.float64))
            return float(self.arrays.down(self.arrays.column_sums((counts * counts)[:, None]))[0]) / 2

        return {
            "eps": float(np.finfo(np.float64).eps),
            "stored": self._stored,
            "gram_in_single": self.dtype == np.float32,
            "gram_pairs": self.remembered("pairs", pairs),
        }

    @property
    def _stored(self) -> int:
        return int(self.arrays.parts(self.X)[0].shape[0])

    @property
    def _rows_there(self) -> list[Any]:
        return self.remembered("rows_there", lambda: [self.arrays.csr_rows(self.X, *rows) for rows in self.blocks()])

    @property
    def _columns_there(self) -> list[Any]:  # the adjoints of the blocks of rows
        return self.remembered("columns_there", lambda: list(map(self.arrays.flipped, self._rows_there)))

    def blocks(self) -> list[Rows]:
        def edges() -> list[Rows]:
            rows, edges = cut(self.shape[0], ROWS), [0]
            begins = [*self.arrays.down(self.arrays.parts(self.X)[2][:-1:ROWS]), self._stored]
            for (lo, hi), (begin, end) in zip(rows, pairwise(begins), strict=True):
                parts = int(-(-(end - begin) // MOST))
                edges += np.linspace(lo, hi, max(parts, 1) + 1).astype(int)[1:].tolist()
            return [(lo, hi) for lo, hi in pairwise(edges) if lo < hi]

        return self.remembered("blocks", edges)

    @cached_property
    def _full(self) -> Vector:
        if self.shift is None:
            return np.zeros(0, np.intp)
        counts = self.remembered("column_counts", lambda: self._column_powers(np.ones(self.shape[0]), 0))
        return np.flatnonzero(counts > FULL * self.shape[0])

    @cached_property
    def _shifted_full(self) -> list[Any]:
        if not len(self._full) or self.shift is None:
            return []
        chosen = np.zeros((self.shape[1], len(self._full)))
        chosen[self._full, np.arange(len(self._full))] = 1
        E, R = self.up(chosen), self.arrays.adjoint(self.up(self.shift.R[self._full]))
        blocks = zip(self._rows_there, self._left, strict=True)
        return [self.arrays.csr_in_dtype(X, self.double) @ E - L @ R for X, L in blocks]

    @cached_property
    def _left(self) -> list[Any]:
        return [] if self.shift is None else [self.up(self.shift.L[lo:hi]) for lo, hi in self.blocks()]

    @cached_property
    def _dense(self) -> list[list[Any]]:  # what lies beside the entries, of each block
        return [parts for parts in (self._left, self._shifted_full) if parts]

    def _forward(self, at: int, V: PanelParts, dtype: np.dtype[Any]) -> Any:
        Y = self.arrays.csr_in_dtype(self._rows_there[at], dtype) @ V[0]
        for parts, P in zip(self._dense, V[1:], strict=True):
            Y = Y + self.arrays.in_dtype(parts[at], dtype) @ P
        return Y

    @cached_property
    def _right(self) -> Any:
        assert self.shift is not None
        return self.up(self.shift.R)

    @cached_property
    def _full_there(self) -> Any:
        return self.arrays.up(self._full)

    def _parts_of(self, V: Panel, dtype: np.dtype[Any]) -> PanelParts:
        there = self.arrays.by_rows(self.up(V, dtype))
        if self.shift is None:
            return [there]
        full = []
        if len(self._full):
            full, there = [there[self._full_there]], self.arrays.copy(there)
            there[self._full_there] = 0
        wide = np.result_type(dtype, np.float64)
        shift = self.arrays.adjoint(self.arrays.in_dtype(self._right, wide)) @ self.arrays.in_dtype(there, wide)
        return [there, self.arrays.in_dtype(shift, dtype) * -1, *full]

    def _backward(self, at: int, Y: Any, dtype: np.dtype[Any]) -> tuple[Any, ...]:
        wide = np.result_type(dtype, np.float64)
        beside = (self.arrays.adjoint(self.arrays.in_dtype(parts[at], dtype)) for parts in self._dense)
        X = self.arrays.csr_in_dtype(self._columns_there[at], dtype)
        return tuple(self.arrays.in_dtype(part @ Y, wide) for part in (X, *beside))

    def _ended(self, sums: tuple[Any, ...]) -> Any:
        Z, *others = sums
        if self.shift is not None:
            Z = Z - self.arrays.in_dtype(self._right, self.arrays.dtype_of(Z)) @ others[0]
        if len(self._full):
            Z[self._full_there] = others[1]
        return Z

    # Our CUDA kernel multiplies the entries together with what lies beside them.

    @property
    def _own(self) -> Chunks | None:
        return self.remembered("chunks", lambda: own_chunks(self.X, self.arrays, self._stored))

    def _own_for(self, dtype: np.dtype[Any]) -> Chunks | None:
        return self._own if dtype.kind == "f" else None

    @cached_property
    def _widths(self) -> list[int]:
        return [int(parts[0].shape[1]) for parts in self._dense]

    @cached_property
    def _sides(self) -> dict[np.dtype[Any], Any]:
        return {}

    def _beside(self, own: Chunks, dtype: np.dtype[Any]) -> Any:
        if not self._widths:
            return None
        if dtype not in self._sides:
            D, at = own.card.empty((self.shape[0], sum(self._widths)), dtype), 0
            for parts, width in zip(self._dense, self._widths, strict=True):
                for (lo, hi), part in zip(self.blocks(), parts, strict=True):
                    D[lo:hi, at : at + width] = self.arrays.in_dtype(part, dtype)
                at += width
            self._sides[dtype] = D
        return self._sides[dtype]

    def _cut(self, Z: Any) -> tuple[Any, ...]:
        record_read(1)
        edges = np.cumsum([0, self.shape[1], *self._widths])
        return tuple(Z[int(lo) : int(hi)] for lo, hi in pairwise(edges))

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        dtype = np.result_type(self.double, V.dtype)
        P = self._parts_of(V, dtype)
        if own := self._own_for(dtype):
            record_read(1)
            yield 0, self.beside(V, own.gathered(P, self._beside(own, dtype), dtype))
            return
        for at, (rows, _) in enumerate(self._each(lambda rows: None)):
            yield rows[0], self.beside(V, self._forward(at, P, dtype))

    def rmatmat(self, W: Panel) -> Panel:
        dtype = np.result_type(self.double, W.dtype)

        def part(at: int, rows: Rows) -> tuple[Any, ...]:
            return self._backward(at, self.up(W[rows[0] : rows[1]], dtype), dtype)

        own = self._own_for(dtype)
        if own is not None:
            sums = self._cut(own.scattered(self.up(W, dtype), self._beside(own, dtype), dtype))
        else:
            sums = self._added(part)
        return self.beside(W, self._ended(sums))

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        single = V.dtype == np.float32 and self.dtype == np.float32
        dtype = np.dtype(np.float32) if single else np.result_type(self.double, V.dtype)
        P = self._parts_of(V, dtype)

        def part(at: int, rows: Rows) -> tuple[Any, ...]:
            Y, w = self._forward(at, P, dtype), self.weights_of(weights, rows, dtype)
            return self._backward(at, Y if w is None else w * Y, dtype)

        with self.arrays.exact():
            if own := self._own_for(dtype):
                w = self.weights_of(weights, (0, self.shape[0]), dtype)
                sums = self._cut(own.gram(P, self._beside(own, dtype), w, dtype))
            else:
                sums = self._added(part)
            return self.beside(V, self.arrays.in_dtype(self._ended(sums), dtype))

    def _added(self, part: Callable[[int, Rows], tuple[Any, ...]]) -> tuple[Any, ...]:
        sums: tuple[Any, ...] = ()
        for at, (rows, _) in enumerate(self._each(lambda rows: None)):
            parts = part(at, rows)
            sums = tuple(map(add, sums, parts)) if sums else parts
        return sums

    def times(self, rows: Vector | int, cols: Vector | int) -> Any:
        if np.ndim(rows):
            return None
        data, indices, _ = self.arrays.parts(self.X)
        data = self.arrays.in_dtype(data, self.double)
        for e in (rows, cols):
            for each in factors_of(e):
                factors = self.arrays.up(np.reshape(each, -1))
                data = data * (factors[indices] if np.ndim(e) else factors)
        return self.arrays.with_data(self.X, data)

    def stored_dense(self, rows: Rows) -> Any:
        return self.arrays.dense(self.arrays.csr_in_dtype(self.arrays.csr_rows(self.X, *rows), self.double))

    def _moments(self, weights: Vector | None) -> Moments:
        if self._own is None:
            return super()._moments(weights)
        record_read(1)
        return self._moments_of(self._powers_of_columns(self._own), self.shape[0], weights)

    def block_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        X = self._columns_there[self.blocks().index(rows)]
        found = self._moments_of(self._powers_of_rows(X), rows[1] - rows[0], weights)
        return replace(found, mean=found.mean.conj(), low=np.conj(found.low))

    def block_row_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        X = self._rows_there[self.blocks().index(rows)]
        return self._moments_of(self._powers_of_rows(X), self.shape[1], weights)

    @range_errors_ignored
    def _moments_of(self, powers: Powers, n: int, weights: Vector | None) -> Moments:
        parts = None if weights is None else weight_parts(np.asarray(weights, np.float64))
        by = self.arrays.up(np.ones((n, 1)) if weights is None else np.asarray(weights, np.float64)[:, None])
        stored = powers(by if parts is None else self.arrays.up(parts), None, 0)
        count = np.where(stored.sum(axis=1) > 0, stored.sum(axis=1), 1)
        mean = powers(by, None, 1)[:, 0] / count
        correction = powers(by, mean, 1)[:, 0] / count
        squares = np.maximum(powers(by, mean, 2)[:, 0] - count * np.abs(correction) ** 2, 0)
        return of_stored(parts, n, (stored, mean, correction, squares))

    def _powers_of_rows(self, X: Any) -> Powers:
        X = self.arrays.csr_in_dtype(X, self.double)

        def summed(by: Any, centres: Vector | None, power: int) -> Vector:
            apart = self.arrays.parts(X)[0]
            if centres is not None:
                apart = apart - self.arrays.for_entries(self.up(centres), X)
            entries = apart if power == 1 else abs(apart) ** power
            by = self.arrays.in_dtype(by, self.arrays.dtype_of(entries))
            return self.arrays.down(self.arrays.with_data(X, entries) @ by)

        return summed

    def _powers_of_columns(self, chunks: Chunks) -> Powers:
        def summed(by: Any, centres: Vector | None, power: int) -> Vector:
            return self.arrays.down(chunks.powers(by, None if centres is None else self.arrays.up(centres), power))

        return summed

    @range_errors_ignored
    def _column_squares(self, weights: Vector | None) -> Vector:
        w = np.ones(self.shape[0]) if weights is None else np.asarray(weights, np.float64)
        stored: Any = self._column_powers(w, 2)
        if self.shift is None:
            return np.asarray(stored)
        L, R, full = self.shift.L, self.shift.R, np.zeros(len(self._full))
        mixed = replace(self, shift=None).rmatmat(w[:, None] * L)
        absent = np.einsum("jr,rs,js->j", R.conj(), (w[:, None] * L).T @ L.conj(), R).real
        squares = stored - 2 * np.einsum("jr,jr->j", mixed.conj(), R).real + absent
        for (lo, hi), D in zip(self.blocks(), self._shifted_full, strict=False):
            full += self.arrays.down(self.arrays.up(w[None, lo:hi]) @ abs(D) ** 2)[0]
        squares[self._full], absent[self._full] = full, 0
        return super()._column_squares(weights) if np.any(squares < CANCELLED * absent) else np.asarray(squares)

    @range_errors_ignored
    def row_squares(self, weights: Vector | None = None) -> Vector:
        if self.shift is not None:
            return super().row_squares(weights)
        w = np.ones(self.shape[1]) if weights is None else np.asarray(weights, np.float64)
        by = self.arrays.up(w[:, None])
        return np.concatenate([self._powers_of_rows(X)(by, None, 2)[:, 0] for X in self._rows_there])

    def _column_powers(self, w: Vector, power: int) -> Vector:
        by = self.arrays.up(w[:, None])
        if self._own is not None:
            return self._powers_of_columns(self._own)(by, None, power)[:, 0]
        blocks = zip(self.blocks(), self._columns_there, strict=True)
        return np.asarray(sum(self._powers_of_rows(X)(by[lo:hi, :], None, power)[:, 0] for (lo, hi), X in blocks))

    def transposed(self, passes: float) -> "DeviceCSR | None":
        return None if len(self._full) else self.turned()

    def turned(self) -> "DeviceCSR":
        X = self.remembered("turned", lambda: self.arrays.flipped(self.X))
        return replace(self, X=X, shift=self.shift and self.shift.H, memo={})
