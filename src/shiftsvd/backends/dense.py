"""Dense arrays: any order, read-only, memory-mapped, integer or boolean; converted block by block."""

from dataclasses import dataclass, field, replace
from functools import reduce
from operator import iadd
from typing import Any, cast

import numpy as np

from shiftsvd.backends.blocked import Blocked, Rows, cut, exhaust, journaled
from shiftsvd.kernels import kernels_for
from shiftsvd.kernels.twin import range_errors_ignored
from shiftsvd.numerics.digests import told
from shiftsvd.numerics.moments import Moments, of_block
from shiftsvd.numerics.powers import PowerScaled, exponents_of
from shiftsvd.operators import LowRank, Mixer, Panel, Vector, panel_dtype

# Entries of a block: at most 8 MiB of float64, which stay near the cache and keep BLAS busy; at least EACH unless the
# array is smaller. Small arrays have at most BLOCKS blocks of about the same size, for that many threads.
BLOCK, EACH, BLOCKS = 2**20, 2**17, 4
# Entries of a piece of a block that is multiplied by itself, and its fewest rows: fewer do not keep BLAS busy.
FORMED, LEAST = 2**16, 256
NUMBERS = [np.dtype(name) for name in ("f4", "f8", "c8", "c16")]  # types that are read without conversion


@dataclass(frozen=True, eq=False, repr=False)
class DenseRows(Blocked):
    """Dense array with its rows on the long side, optionally conjugated, minus its shift."""

    X: Panel
    shift: LowRank | None = None
    conjugate: bool = False
    n_threads: int = 1
    memo: dict[str, Any] = field(default_factory=dict)
    _left: Panel = field(init=False)  # L of the shift
    _right: Panel = field(init=False)  # R^H of it, by rows

    def __post_init__(self) -> None:
        self.describe(self.X.shape, native_dtype(self.X.dtype))
        if self.shift is not None:
            left, right = np.ascontiguousarray(self.shift.L), np.ascontiguousarray(self.shift.R.conj().T)
            vars(self).update(_left=left, _right=right)

    @property
    def fingerprint(self) -> str | None:
        if not isinstance(self.X, np.ndarray):
            return None
        return self.remembered("fingerprint", lambda: told((self.X, self.conjugate)))

    def blocks(self) -> list[Rows]:
        m, size = self.shape[0], self.shape[0] * self.shape[1]
        return cut(m, -(-m // max(-(-size // BLOCK), min(size // EACH, BLOCKS), 1)))

    def block(self, rows: Rows, dtype: np.dtype[Any] | None = None) -> Panel:
        dtype = dtype or self.dtype
        X = self.X[rows[0] : rows[1]]
        X = X.conj() if self.conjugate else X
        if self.shift is None:
            return np.asarray(X).astype(dtype, copy=False)
        # Shift before multiplying: the digits that rounding of X V loses cannot be recovered. An implicit shift has an
        # error of 0.05 eps |mu| / spread, this one of eps for every ratio (tests/algebra/test_off_centre.py).
        return kernels_for(self.dtype).subtract(X, self._left[rows[0] : rows[1]], self._right, dtype)

    def stored_rows(self, rows: Rows) -> Panel:
        return self.X[slice(*rows)]

    def matmat(self, V: Panel) -> Panel:
        Y = np.empty((self.shape[0], V.shape[1]), np.result_type(self.dtype, V.dtype))

        def part(rows: Rows) -> None:
            block = self.block(rows)
            Y[rows[0] : rows[1]] = block @ _as_precise(V, block)

        exhaust(self._each(part))
        return Y

    def matmat_in_double(self, V: Panel) -> Panel:
        return self.matmat(V) if self.costs.eps == np.finfo(np.float64).eps else self.pieces_times(V)

    @journaled
    def rmatmat(self, W: Panel) -> Panel:
        return self._adjoint_times(W, self.dtype)

    @journaled
    def rmatmat_in_double(self, W: Panel) -> Panel:
        return self._adjoint_times(W, panel_dtype(self.dtype))

    def _adjoint_times(self, W: Panel, dtype: np.dtype[Any]) -> Panel:
        def part(rows: Rows) -> Panel:
            block = self.block(rows, dtype)
            return np.asarray(block.conj().T @ _as_precise(W[rows[0] : rows[1]], block))

        return self._sum(part).astype(np.result_type(dtype, W.dtype), copy=False)

    @journaled
    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        dtype = self.dtype if V.dtype.char in "fF" else panel_dtype(self.dtype)

        def part(rows: Rows) -> Panel:
            block = self.block(rows, dtype)
            Y = block @ _as_precise(V, block)
            if weights is not None:
                Y *= weights[rows[0] : rows[1], None].astype(Y.real.dtype)
            return np.asarray(block.conj().T @ Y)

        return self._sum(part)

    @journaled
    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        def product(lo: int, hi: int) -> Panel:
            block = self.formed((lo, hi))
            if weights is None:
                return np.asarray(block.conj().T @ block)
            return np.asarray((block.conj().T * weights[lo:hi]) @ block)

        def part(rows: Rows) -> Panel:
            # For few columns multiply pieces that fit into the cache: a whole block would allocate memory each time.
            step = FORMED // max(self.shape[1], 1)
            pieces = cut(rows[1] - rows[0], step if step >= LEAST else rows[1] - rows[0])
            return reduce(iadd, (product(rows[0] + lo, rows[0] + hi) for lo, hi in pieces))

        return self._sum(part)

    def block_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        return of_block(self._stored(rows), weights)

    def block_row_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        return of_block(self._stored(rows).T, weights)

    def _stored(self, rows: Rows) -> Panel:
        as_they_are = self.shift is None and not self.conjugate and self.X.dtype in NUMBERS
        as_they_are = as_they_are and isinstance(self.X, np.ndarray)
        return self.X[rows[0] : rows[1]] if as_they_are else self.formed(rows)

    def _column_squares(self, weights: Vector | None) -> Vector:
        @range_errors_ignored
        def part(rows: Rows) -> Vector:
            squares = np.abs(self.formed(rows)) ** 2
            return np.asarray(squares.sum(axis=0) if weights is None else weights[rows[0] : rows[1]] @ squares)

        return np.asarray(sum(values for _, values in self._each(part)))

    def row_squares(self, weights: Vector | None = None) -> Vector:
        @range_errors_ignored
        def part(rows: Rows) -> Vector:
            squares = np.abs(self.formed(rows)) ** 2
            return np.asarray(squares.sum(axis=1) if weights is None else squares @ weights)

        return self._stack(part)

    def exponents(self, axis: int) -> Vector:
        if axis:
            return self._stack(lambda rows: exponents_of(self.formed(rows)).max(axis=1))
        parts = (part for _, part in self._each(lambda rows: exponents_of(self.formed(rows)).max(axis=0)))
        return np.asarray(reduce(np.maximum, parts))

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "DenseRows":
        shift = self.shift and self.shift.ldexp(rows, cols)
        return replace(self, X=cast("Panel", PowerScaled(self.X, rows, cols)), shift=shift, memo={})

    def formed(self, rows: Rows) -> Panel:
        return self.block(rows, panel_dtype(self.dtype))

    def transposed(self, passes: float) -> "DenseRows":
        return self.turned()

    def turned(self) -> "DenseRows":
        conjugate = self.X.dtype.kind == "c" and not self.conjugate
        return replace(self, X=self.X.T, shift=self.shift and self.shift.H, conjugate=conjugate, memo={})

    def mix(self, Omega: Mixer) -> Panel:
        return self._stack(lambda rows: Omega.mix(self.block(rows)))


def native_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind in "iub":
        return np.dtype(np.float64)
    if dtype.kind == "c":
        return np.dtype(np.complex64 if dtype.itemsize <= 8 else np.complex128)
    return np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)


def _as_precise(V: Panel, block: Panel) -> Panel:
    return V.astype(np.result_type(block.dtype, np.complex64) if np.iscomplexobj(V) else block.dtype, copy=False)
