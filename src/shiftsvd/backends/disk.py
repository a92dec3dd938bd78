"""Matrices in files: read a block of rows at a time, by as many threads as multiply, and one more."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from shiftsvd import journal
from shiftsvd.backends.array import DenseRows, native_dtype
from shiftsvd.backends.blocked import PIECE, Blocked, Rows, slice_of
from shiftsvd.backends.checks import finite_dense, finite_sparse
from shiftsvd.backends.memory import parse_bytes
from shiftsvd.backends.source import Multiplied, RowSource, wide_panels
from shiftsvd.backends.sparse import FULL, SparseRows, inspected
from shiftsvd.events import read_part, unheard
from shiftsvd.kernels import best, default_threads, ordered
from shiftsvd.moments import Moments, Vector
from shiftsvd.operators import LowRank, Mixer, Operator, Panel, field_of, panel_dtype

# Bytes of a block: enough to keep a thread busy for some hundredths of a second, and a small share of the limit.
BLOCK, LEAST_BLOCK, SHARE = 2**25, 2**20, 32
# A read of a file costs as much as a product with many columns: panels this wide, where the memory allows them.
MOST_COLUMNS = 128
# Blocks for each thread that a pass is timed by.
PROBED = 3


@dataclass(frozen=True, eq=False, repr=False)
class DiskRows(Blocked):
    """A matrix in a file minus its shift, never held in memory.

    Each block is read, checked, and multiplied by the backend for matrices in memory; while one thread waits for the
    file the others multiply. The blocks depend on the file and `memory_limit`, never on the threads.
    """

    source: RowSource
    shift: LowRank | None = None
    n_threads: int | None = None  # type: ignore[assignment]
    memory_limit: int | str | None = None
    memo: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, int] = field(init=False)
    dtype: np.dtype[Any] = field(init=False)

    def __post_init__(self) -> None:
        parts = () if self.shift is None else (self.shift.L, self.shift.R)
        object.__setattr__(self, "shape", self.source.shape)
        object.__setattr__(self, "dtype", field_of(native_dtype(self.source.dtype), *parts))

    @property
    def workers(self) -> int:
        """One thread more than multiply: it waits for the file."""
        return (self.n_threads or default_threads()) + 1

    @property
    def block_bytes(self) -> int:
        """How much of the file is in memory for each thread."""
        limit = BLOCK if self.memory_limit is None else parse_bytes(self.memory_limit) // SHARE
        return int(np.clip(limit, LEAST_BLOCK, BLOCK))

    @property
    def working_bytes(self) -> int:
        """Blocks in work, each as it was read and once more where it is decoded."""
        return 2 * (self.workers + 1) * self.block_bytes

    @property
    def panel_columns(self) -> tuple[int, int]:
        """Wide, where the memory allows it."""
        return wide_panels(self.shape, MOST_COLUMNS, self.memory_limit)

    @property
    def eps(self) -> float:
        """As of matrices in memory: sparse products are made in double."""
        return float(np.finfo(np.float64 if self.source.sparse else self.dtype).eps)

    @property
    def full(self) -> Vector:
        """Mask of the columns that are nearly full; one last entry says whether any row is.

        Known once the moments are; else it takes a read.
        """
        if "full" not in self.memo:
            bare = self._replace_shift(None)
            part = lambda rows: self._counts(bare._block(rows))  # noqa: E731
            self._take(self._once("counts", (), lambda: {"counts": self._sum(part)})["counts"])
        full: Vector = self.memo["full"]
        return full

    def _take(self, counts: Vector) -> None:
        """Keep what the numbers of stored entries say."""
        self.memo["full"] = np.append(counts[:-1] > FULL * self.shape[0], counts[-1] > 0)

    def _counts(self, A: Operator) -> Vector:
        """Stored entries of each column in a block, and how many of its rows are nearly full."""
        if not isinstance(A, SparseRows):
            return np.zeros(self.shape[1] + 1, np.int64)
        columns = best.column_counts(A.X, (0, A.shape[0]))
        return np.append(columns, np.count_nonzero(np.diff(A.X.indptr) > FULL * A.shape[1]))

    @property
    def stored(self) -> int:
        """Numbers in the file."""
        return self.source.stored

    @property
    def file_bytes(self) -> int:
        """The numbers, and where they are if they are sparse."""
        return self.stored * (self.source.dtype.itemsize + 4 * self.source.sparse)

    @property
    def fingerprint(self) -> str:
        """Of the file."""
        return self.source.fingerprint

    def blocks(self) -> list[Rows]:
        """As the file cuts them."""
        if "blocks" not in self.memo:
            self.memo["blocks"] = [(int(lo), int(hi)) for lo, hi in pairwise(self.source.edges(self.block_bytes))]
        blocks: list[Rows] = self.memo["blocks"]
        return blocks

    def matmat(self, V: Panel) -> Panel:
        """``A V``."""
        Y = np.empty((self.shape[0], V.shape[1]), panel_dtype(np.result_type(self.dtype, V)))
        for lo, part in self.row_products(V):
            Y[lo : lo + len(part)] = part
        return Y

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        """``(first row, A[rows] V)`` in order; one read, and nothing of length m in memory."""
        for (lo, _), part in self._each(lambda rows: self._block(rows).matmat(V)):
            yield lo, part

    def matmat_in_double(self, V: Panel) -> Panel:
        """``A V``, dense blocks in double precision; sparse ones are multiplied so already."""
        double = self.source.sparse or self.eps == np.finfo(np.float64).eps
        return self.matmat(V) if double else self.pieces_times(V)

    def rmatmat(self, W: Panel) -> Panel:
        """``A^H W``."""
        part = lambda rows: self._block(rows).rmatmat(W[slice(*rows)])  # noqa: E731
        return self._once("rmatmat", (W,), lambda: {"Z": self._sum(part)})["Z"]

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        """``A^H diag(weights) A V`` in one read."""
        part = lambda rows: self._block(rows).gram(V, slice_of(weights, rows))  # noqa: E731
        return self._once("gram", (V, weights), lambda: {"Z": self._sum(part)})["Z"]

    def gram_seconds(self, V: Panel) -> float:
        """From some blocks, far apart."""
        blocks = self.blocks()
        some = blocks[:: max(1, len(blocks) // (PROBED * self.workers))]
        started = time.perf_counter()
        for _ in ordered(lambda rows: self._block(rows).gram(V), some, self.workers):
            pass
        return (time.perf_counter() - started) * len(blocks) / len(some)

    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        """``A^H diag(weights) A``, formed in one read."""
        part = lambda rows: self._block(rows).gram_matrix(slice_of(weights, rows))  # noqa: E731
        return self._once("gram_matrix", (weights,), lambda: {"G": self._sum(part)})["G"]

    def triangle(self, weights: Vector | None = None) -> Panel:
        """R of ``diag(sqrt(weights)) A``; one read."""
        read = lambda: {"R": Operator.triangle(self, weights)}  # noqa: E731
        return self._once("triangle", (weights,), read)["R"]

    def adjoint_triangle(self, weights: Vector | None = None) -> Panel:
        """The same of the adjoint, all of which is held."""
        read = lambda: {"R": Operator.triangle(self.H, weights)}  # noqa: E731
        return self._once("adjoint_triangle", (weights,), read)["R"]

    def moments(self, weights: Vector | None = None) -> Moments:
        """Moments of the columns, merged over the blocks; one read."""
        if self.shift is not None and self.source.sparse:
            return self.mean_alone(weights)

        def part(rows: Rows) -> tuple[Moments, Vector]:
            A = self._block(rows)
            return A.moments(slice_of(weights, rows)), self._counts(A)

        def read() -> journal.Record:
            found, counts = Moments(0.0, np.zeros(self.shape[1]), None), np.zeros(self.shape[1] + 1, np.int64)
            for _, (more, count) in self._each(part):
                found, counts = found.merge(more) if found.count else more, counts + count
            assert found.M2 is not None
            return {"count": np.array(found.count), "mean": found.mean, "M2": found.M2, "stored": counts}

        record = self._once("moments", (weights,), read)
        moments = Moments(float(record["count"]), record["mean"], record["M2"])
        if self.source.sparse:
            self._take(record["stored"])
        if weights is None and self.shift is None:
            self.memo["columns"] = moments
        return moments

    def block_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        """Moments of the columns of these rows."""
        return self._block(rows).moments(weights)

    def row_moments(self, weights: Vector | None = None) -> Moments:
        """Moments of the rows; of a shifted sparse matrix, the mean alone."""
        plain = self.shift is None or not self.source.sparse
        return super().row_moments(weights) if plain else Operator.row_moments(self, weights)

    def block_row_moments(self, rows: Rows, weights: Vector | None) -> Moments:
        """Moments of these rows."""
        return self._block(rows).row_moments(weights)

    def column_squares(self, weights: Vector | None = None) -> Vector:
        """Squared column norms, from the moments where they are known; else one read."""
        known = self.known_squares() if weights is None else None
        if known is not None:
            return known

        def part(rows: Rows) -> Vector:
            squares = self._block(rows).column_squares(slice_of(weights, rows))
            assert squares is not None
            return squares

        return self._once("squares", (weights,), lambda: {"squares": self._sum(part)})["squares"]

    def squares_beyond(self, V: Panel, W: Panel, weights: Vector | None = None) -> Vector:
        """Squared column norms of ``A - A V W^H``; one read."""
        read = super().squares_beyond
        record = self._once("beyond", (V, W, weights), lambda: {"squares": np.asarray(read(V, W, weights))})
        return record["squares"]

    def dense_pieces(self, rows: Rows) -> Iterator[tuple[int, Panel]]:
        """Those of the block, read once."""
        for lo, piece in self._block(rows).row_blocks(max(1, PIECE // self.shape[1])):
            yield rows[0] + lo, piece

    def row_squares(self, weights: Vector | None = None) -> Vector:
        """Squared row norms; one read."""
        parts = [part for _, part in self._each(lambda rows: self._block(rows).row_squares(weights))]
        return np.concatenate(parts)

    def column_exponents(self) -> Vector:
        """From the blocks; one read."""
        parts = [part for _, part in self._each(lambda rows: self._block(rows).column_exponents())]
        return np.asarray(np.max(parts, axis=0))

    def row_exponents(self) -> Vector:
        """From the blocks; one read."""
        return np.concatenate([part for _, part in self._each(lambda rows: self._block(rows).row_exponents())])

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "DiskRows":
        """Blocks are multiplied as they are read."""
        kept: dict[str, Any] = {name: self.memo[name] for name in ("full", "blocks") if name in self.memo}
        shift = self.shift and self.shift.ldexp(rows, cols)
        return replace(self, source=Multiplied(self.source, rows, cols), shift=shift, memo=kept)

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        """Dense blocks of at most `rows` rows in double precision; each block of the file counts when it was read."""
        blocks = self.blocks()
        for lo, hi in blocks:
            part = self._block((lo, hi))
            read_part(1 / len(blocks))
            for first, block in part.row_blocks(rows):
                yield lo + first, block

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        """All rows of the adjoint at once: the file is read by its own rows, one time."""
        parts = [block for _, block in self.row_blocks(self.shape[0])]
        yield 0, np.concatenate(parts).conj().T

    def mix(self, Omega: Mixer) -> Panel:
        """``A Omega``, block by block."""
        return np.concatenate([part for _, part in self._each(lambda rows: self._block(rows).mix(Omega))])

    def with_shift(self, shift: LowRank) -> "DiskRows":
        """The shift is subtracted inside the blocks."""
        return self._replace_shift(shift.merge(self.shift))

    def _replace_shift(self, shift: LowRank | None) -> "DiskRows":
        return replace(self, shift=shift)

    def _each(self, function: Callable[[Rows], Any]) -> Iterator[tuple[Rows, Any]]:
        """The blocks of the file; what the operators of the blocks read is in memory."""

        def part(rows: Rows) -> Any:
            with unheard():
                return function(rows)

        return super()._each(part)

    def _once(self, what: str, panels: tuple[Vector | None, ...], read: Callable[[], journal.Record]) -> journal.Record:
        """A read of the file that is not repeated where a broken run has made it."""
        shift = () if self.shift is None else (self.shift.L, self.shift.R)
        return journal.once(f"{what} {self.fingerprint} {self.block_bytes}", (*panels, *shift), read)

    def _block(self, rows: Rows) -> Operator:
        """These rows, read, checked, and with their shift, as an operator in memory."""
        lo, hi = rows
        shift = None if self.shift is None else LowRank(self.shift.L[lo:hi], self.shift.R)
        X = self.source.read(lo, hi)
        if X.shape != (hi - lo, self.shape[1]):
            raise ValueError(f"{self.source.name}: rows {lo} to {hi} have shape {X.shape}; the file is damaged")
        if not isinstance(X, csr_array):
            self._checked(finite_dense, X, lo)
            return DenseRows(X, shift)
        columns = None if shift is None else self.full[:-1]
        return SparseRows(self._sound(X, lo), shift, memory_limit=4 * self.block_bytes, full_columns=columns)

    def _sound(self, X: csr_array, lo: int) -> csr_array:
        """A block of finite numbers whose index arrays stay inside, each row sorted."""
        # Small integers are exact in single precision, where products are faster; shifted full lines would not be.
        small = X.dtype.kind in "iub" and X.dtype.itemsize <= 2 and not (self.shift is not None and self.full.any())
        X.data = np.ascontiguousarray(X.data, np.float32 if small else native_dtype(X.dtype))
        kernels = best.inspect(X, (0, X.shape[0])) if X.data.dtype.char in "fd" else None
        least, largest = kernels[2:4] if kernels else _range(X.indices)
        if X.nnz and (least < 0 or largest >= X.shape[1]):
            raise ValueError(
                f"{self.source.name}: column indices of the rows from {lo} on must be in 0..{X.shape[1] - 1}, "
                f"got {least}..{largest}; the file is damaged"
            )
        finite, ordered_rows = (kernels[:2] == (0, 0), kernels[4]) if kernels else inspected(X, 1)
        if not finite:
            self._checked(finite_sparse, X, lo)
        X.has_canonical_format = ordered_rows
        if not ordered_rows:
            X.sum_duplicates()
        return X

    def _checked(self, check: Callable[[Any], None], X: Any, lo: int) -> None:
        """A check whose message names the file."""
        try:
            check(X)
        except ValueError as error:
            raise ValueError(f"{self.source.name}, rows {lo} to {lo + X.shape[0]}: {error}") from None


def _range(indices: Vector) -> tuple[int, int]:
    """The least and the largest index."""
    return (int(indices.min()), int(indices.max())) if len(indices) else (0, -1)
