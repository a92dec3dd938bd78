"""SciPy sparse matrices: CSR as it is, CSC as the adjoint of a CSR; never densified."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from shiftsvd.algebra.generic import registered, row_means
from shiftsvd.backends.blocked import PIECE, Blocked, Rows, cut, kept, slice_of
from shiftsvd.backends.full_lines import FULL, Entries, FullLines, Powers, by_rows, coordinates, full_lines, no_shift
from shiftsvd.backends.sparse_costs import (
    SUMS,
    blocks_of,
    bytes_beside,
    bytes_of_blocks,
    columns_at_once,
    is_copied,
    pairs,
    single_pays,
)
from shiftsvd.kernels import Kernels, best, kernels_for
from shiftsvd.kernels.groups import Groups, unwarned
from shiftsvd.kernels.sums import add_up
from shiftsvd.kernels.twin import CSR, sum_by, take_rows
from shiftsvd.numerics.digests import told
from shiftsvd.numerics.moments import Moments, Vector, of_stored, weight_parts
from shiftsvd.numerics.panels import apart, joined, mirror
from shiftsvd.numerics.powers import exponents_of
from shiftsvd.operators import LowRank, Panel, field_of, panel_dtype

# Below this fraction of the shift's own square, a difference of squares has lost half of its digits.
CANCELLED = 1e-8
# Passes from which on it pays to sort a matrix the other way (a sort costs about three; benchmarks/claims/kernels.py).
SORT_PASSES = 4


# Bytes that moments of a block take for each column: sums in the kernel, and what is merged of two blocks.
OF_MOMENTS = 128


@registered
@dataclass(frozen=True, eq=False, repr=False)
class SparseRows(Blocked):
    """A canonical CSR matrix minus its shift.

    Rows and columns that are more than 99 % full are subtracted inside their stored entries, where an
    implicit shift would cancel; everywhere else the shift stays a product of thin factors. What is left of them is
    kept in double precision, of single precision data too: rounded, it would be other data than those that were given.
    """

    X: CSR
    shift: LowRank | None = None
    n_threads: int = 1
    memory_limit: int | str | None = None
    memo: dict[str, Any] = field(default_factory=dict)
    full_columns: Vector | None = None  # where these rows are part of a matrix, the columns that are full in it
    lines_done: bool = False  # whether X has its full lines shifted already, and `shift` is that of the others
    asked: LowRank | None = None  # then, the shift of all: entries and means are rounded at its level
    is_block: bool = False  # of a larger matrix, which one thread multiplies
    powers: Powers = (0, 0)  # what the stored entries are to be multiplied by, as `ldexp`
    kind: np.dtype[Any] | None = None  # of the data, where X holds them in double precision
    held_bytes: int = 0  # what X takes of the memory limit, where it was read from a file for this fit
    inside: Entries = field(init=False)  # the stored entries, full lines shifted
    outside: LowRank = field(init=False)  # the shift of everything else, of rank 0 if there is none

    def __post_init__(self) -> None:
        kind = self.kind or (self.X.dtype if self.X.dtype.kind in "fc" else np.dtype(np.float64))
        shift = by_rows(self.shift) if self.shift else no_shift(self.X.shape)
        vars(self).update(shape=self.X.shape, dtype=field_of(kind, shift.L, shift.R))
        full = None if self.shift is None or self.lines_done else self._full_lines(self.shift)
        # What the kernels take: the data as they are, or in double precision where full lines are shifted.
        held = self.dtype if full is None and self.kind is None else panel_dtype(self.dtype)
        entries = Entries(self.X, held, self.powers, full)
        inside = entries.kept(self.blocks(), self.n_threads, self.memory_limit)
        vars(self).update(inside=inside, outside=shift if full is None else full.outside)

    def known_costs(self) -> dict[str, Any]:
        wide = self.shape[0] < self.shape[1]
        blocks = bytes_of_blocks(self.inside, self.dtype, self.blocks(), self.n_threads)
        beside = bytes_beside(self.inside, self.n_threads, self.memory_limit) if wide else 0
        return {
            "eps": float(np.finfo(np.float64).eps),  # of products, and of full lines that are shifted
            "stored": int(self.X.nnz),
            "working_bytes": self.held_bytes + blocks + beside,
            "gram_in_single": single_pays(self.dtype, self.shape),
            "gram_pairs": pairs(self.X),
        }

    @property
    def kernels(self) -> Kernels:
        return kernels_for(self.dtype)

    @property
    def fingerprint(self) -> str:
        if "fingerprint" not in self.memo:
            self.memo["fingerprint"] = told((self.X, self.powers, str(self.kind), self.lines_done))
        return str(self.memo["fingerprint"])

    def blocks(self) -> list[Rows]:
        # A block of few entries is not cut again: each part would have a sum as long as a row.
        return [(0, self.shape[0])] if self.is_block and self.X.nnz < SUMS * self.shape[1] else blocks_of(self.X)

    def matmat(self, V: Panel) -> Panel:
        if self._comes_apart(V):
            return joined(self.matmat(apart(V)))
        P = self.kernels.panel(V, np.float64)
        C = self.outside.R.conj().T @ V
        Y = np.empty((self.shape[0], V.shape[1]), panel_dtype(np.result_type(self.dtype, V)))

        def part(rows: Rows) -> None:
            X, place = self.inside.block(rows)
            self.kernels.gather(X, place, P, Y[rows[0] : rows[1]])
            _subtract_thin(Y[rows[0] : rows[1]], self.outside.L[rows[0] : rows[1]], C)

        for _ in self._each(part):
            pass
        return Y

    @kept
    def rmatmat(self, W: Panel) -> Panel:
        if self._comes_apart(W):
            return joined(self.rmatmat(apart(W)))
        Z = np.empty((self.shape[1], W.shape[1]), panel_dtype(np.result_type(self.dtype, W)))
        at_once = columns_at_once(self.shape[1])
        for lo in range(0, W.shape[1], at_once):
            part = W[:, lo : lo + at_once]

            def scattered(rows: Rows, part: Panel = part) -> tuple[Groups, Panel]:
                X, place = self.inside.block(rows)
                here, L = part[rows[0] : rows[1]], self.outside.L[rows[0] : rows[1]]
                return self.kernels.scatter(X, place, here, np.float64), L.conj().T @ here

            self._add_up(scattered, Z[:, lo : lo + at_once])
        return Z

    @kept
    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        if self._comes_apart(V):
            return joined(self.gram(apart(V), weights))
        single = V.dtype == np.float32 and self.dtype.kind == "f"
        P = self.kernels.panel(V, np.float32 if single else np.float64)
        C = self.kernels.panel((V.T @ self.outside.R.conj()).T, P.flat.dtype)

        def part(rows: Rows) -> tuple[Groups, Panel]:
            X, place = self.inside.block(rows)
            w = slice_of(weights, rows)
            Z, sums = self.kernels.gram(X, place, P, w, self.outside.L[rows[0] : rows[1]], C)
            return Z, sums.join()

        dtype = P.flat.dtype if self.dtype.kind == "f" else np.result_type(P.flat, self.dtype)
        return self._add_up(part, np.empty((self.shape[1], V.shape[1]), dtype))

    @kept
    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        L, R = self.outside.L, self.outside.R
        wL = L if weights is None else weights[:, None] * L

        def part(rows: Rows) -> Panel:
            X, place = self.inside.block(rows)
            return self.kernels.outer(X, place, slice_of(weights, rows))

        G: Panel = self._sum(part)
        mirror(G)
        XL = (self._replace_shift(None) if self.inside.full is None else self._alone()).rmatmat(wL)
        G = G.astype(np.result_type(G, XL, R), copy=False)
        # Each product is as large as G: one at a time, since threads that read a file have a G each.
        for left, right in ((R, XL), (XL, R), (R @ (L.conj().T @ -wL), R)) if L.shape[1] else ():
            G -= left @ right.conj().T
        return G

    def moments(self, weights: Vector | None = None) -> Moments:
        return super().moments(weights) if self.shift is None else self.mean_alone(weights)

    def row_moments(self, weights: Vector | None = None) -> Moments:
        return super().row_moments(weights) if self.shift is None else row_means(self, weights)

    @property
    def moment_workers(self) -> int:
        held = self.X.nnz * (self.X.dtype.itemsize + self.X.indices.itemsize)
        return int(np.clip(held // (4 * OF_MOMENTS * max(self.shape[1], 1)), 1, self.workers))

    def block_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        X, place = self.inside.block(rows)
        m = rows[1] - rows[0]
        parts = None if weights is None else weight_parts(weights)
        return of_stored(parts, m, self.kernels.moments(X, place, parts))

    def block_row_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        X, place = self.inside.block(rows)
        parts = None if weights is None else weight_parts(weights)
        return of_stored(parts, self.shape[1], self.kernels.row_moments(X, place, parts))

    @unwarned
    def column_squares(self, weights: Vector | None = None) -> Vector:
        known = self.known_squares() if weights is None else None
        if known is not None:
            return known
        L, R = self.outside.L, self.outside.R
        wL = L if weights is None else weights[:, None] * L
        absent = np.einsum("jr,rs,js->j", R.conj(), wL.T @ L.conj(), R).real
        Rt = np.ascontiguousarray(R.conj())

        def part(rows: Rows) -> Vector:
            X, place = self.inside.block(rows)
            w = slice_of(weights, rows)
            return self.kernels.column_squares(X, place, w, L[rows[0] : rows[1]], Rt)

        squares: Vector = absent + self._sum(part)
        if np.any(squares < CANCELLED * absent):
            w = np.ones(self.shape[0]) if weights is None else weights
            return np.asarray(
                sum(w[lo : lo + len(B)] @ np.abs(B) ** 2 for lo, B in self.row_blocks(PIECE // self.shape[1]))
            )
        return squares

    @unwarned
    def row_squares(self, weights: Vector | None = None) -> Vector:
        w = np.ones(self.shape[1]) if weights is None else weights
        L, R = self.outside.L, self.outside.R
        absent = np.einsum("ir,rs,is->i", L, (R.conj().T * w) @ R, L.conj()).real
        squares = absent.copy()
        for i, j, change in self._entry_squares():
            squares += sum_by(i, w[j] * change, self.shape[0])
        if np.any(squares < CANCELLED * absent):
            squares = np.concatenate([np.abs(B) ** 2 @ w for _, B in self.row_blocks(PIECE // self.shape[1])])
        return np.asarray(squares)

    def column_exponents(self) -> Vector:
        found = self.outside.column_exponents()
        for rows in self.blocks():
            X = self.inside.made(rows, panel_dtype(self.dtype))
            np.maximum.at(found, X.indices, exponents_of(X.data))
        return found

    def row_exponents(self) -> Vector:
        found = self.outside.row_exponents()
        for rows in self.blocks():
            X = self.inside.made(rows, panel_dtype(self.dtype))
            np.maximum.at(found, rows[0] + coordinates(X)[0], exponents_of(X.data))
        return found

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "SparseRows":
        powers = self.powers[0] + rows, self.powers[1] + cols
        shift, asked = (S and S.ldexp(rows, cols) for S in (self.shift, self.asked))
        return replace(self, shift=shift, asked=asked, memo={}, powers=powers)

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        for lo, hi in cut(self.shape[0], rows):
            yield lo, self._dense((lo, hi))

    def dense_pieces(self, rows: Rows) -> Iterator[tuple[int, Panel]]:
        for lo, hi in cut(rows[1] - rows[0], PIECE // self.shape[1]):
            yield rows[0] + lo, self._dense((rows[0] + lo, rows[0] + hi))

    def _dense(self, rows: Rows) -> Panel:
        X = self.inside.stored(rows)
        block = np.zeros(X.shape, panel_dtype(self.dtype))
        block[coordinates(X)] = X.data
        if self.shift is not None:
            block -= self.shift.rows(*rows)
        return block

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        return self._adjoint(self.X, self.shift, self.lines_done, self.powers).row_blocks(columns)

    def transposed(self, passes: float) -> "SparseRows | None":
        if passes < SORT_PASSES or not is_copied(self.inside, self.n_threads, self.memory_limit):
            return None
        if self.inside.full is None or self.inside.ready is None:
            return self._adjoint(self.X, self.shift, self.lines_done, self.powers)
        # They need not be shifted again.
        return replace(
            self._adjoint(self.inside.ready, self.outside, lines_done=True), asked=self.shift and self.shift.H
        )

    def shift_of(self) -> LowRank | None:
        return self.shift if self.asked is None else self.asked

    def _adjoint(self, X: CSR, shift: LowRank | None, lines_done: bool, powers: Powers = (0, 0)) -> "SparseRows":
        X, shift, kind = adjoint_of(X), shift and shift.H, self.dtype if lines_done else self.kind
        changes = {"X": X, "shift": shift, "lines_done": lines_done, "kind": kind, "powers": powers[::-1]}
        return replace(self, memo={}, full_columns=None, asked=self.asked and self.asked.H, **changes)

    def _replace_shift(self, shift: LowRank | None) -> "SparseRows":
        return replace(self, shift=shift, lines_done=False, asked=None)

    def _full_lines(self, shift: LowRank) -> FullLines | None:
        full = self._stored_by_column() > FULL * self.shape[0] if self.full_columns is None else self.full_columns
        return full_lines(self.X, shift, full, self.blocks(), self.n_threads)

    def _stored_by_column(self) -> Vector:
        if self.X.nnz <= FULL * self.shape[0]:
            return np.zeros(self.shape[1])  # not enough for one full column

        return self._sum(lambda rows: best.column_counts(self.X, rows))

    def _entry_squares(self) -> Iterator[tuple[Vector, Vector, Vector]]:
        for rows in self.blocks():
            X = self.inside.made(rows, panel_dtype(self.dtype))
            i, j = coordinates(X)
            i = rows[0] + i
            x = X.data.astype(panel_dtype(X.dtype), copy=False)
            with np.errstate(over="ignore", invalid="ignore"):
                change = np.abs(x) ** 2 - 2 * (x.conj() * self.outside.at(i, j)).real
            yield i, j, change

    def _alone(self) -> "SparseRows":
        everything = (0, self.shape[0])
        X = self.inside.made(everything, self.inside.dtype) if self.inside.ready is None else self.inside.ready
        return replace(self, X=X, shift=None, memo={}, powers=(0, 0), kind=self.dtype)

    def _add_up(self, part: Callable[[Rows], tuple[Groups, Panel]], Y: Panel) -> Panel:
        parts = (values for _, values in self._each(part))
        add_up(self.kernels, parts, len(self.blocks()), self.outside.R, Y, self.n_threads)
        return Y

    def _comes_apart(self, V: Panel) -> bool:
        return np.iscomplexobj(V) and self.dtype.kind != "c"


def adjoint_of(X: CSR) -> CSR:
    X = take_rows(X, 0, X.shape[0])
    return csr_array((X.conj() if X.dtype.kind == "c" else X).T.tocsr())


def _subtract_thin(Y: Panel, L: Panel, C: Panel) -> None:
    if not L.shape[1]:
        return
    step = max(1, 2**18 // max(Y.shape[1], 1))
    for lo in range(0, len(Y), step):
        Y[lo : lo + step] -= L[lo : lo + step] @ C
