"""Dask arrays: each read is one graph of block times thin panel; blocks stay where they are, sums travel."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import dask.array as da
import numpy as np
from scipy.sparse import issparse

from shiftsvd import journal
from shiftsvd.algebra.base import folded
from shiftsvd.algebra.powers import times, times_sparse
from shiftsvd.backends.array import native_dtype
from shiftsvd.backends.blocked import Rows, squares_about
from shiftsvd.backends.dask_graph import Blocks, Chunks, Graph, computed, named, summed
from shiftsvd.backends.dask_tasks import Own, Shared, added, block_operator, in_order, merged, wide
from shiftsvd.backends.source import wide_panels
from shiftsvd.backends.sparse import FULL
from shiftsvd.events import read_part
from shiftsvd.moments import Moments, Vector
from shiftsvd.operators import Adjoint, LowRank, Mixer, Operator, Panel, field_of, panel_dtype

# A read moves a panel to every worker and loads every block: panels this wide, where the memory allows them.
MOST_COLUMNS = 64
# Blocks whose rows are brought to the client at once, where somebody asks for something as long as the data.
AT_ONCE = 32


def dask_operator(X: Any, memory_limit: int | str | None = None) -> Operator:
    """A Dask array as an operator, its shape and chunks checked; nothing is computed."""
    if not isinstance(X, da.Array):
        raise TypeError(f"a Dask array is needed, got {type(X).__name__}; a frame has to_dask_array(lengths=True)")
    if X.ndim != 2 or X.dtype.kind not in "fciub":
        raise ValueError(f"the matrix must be numeric and have two dimensions, got {X.dtype} and shape {X.shape}")
    if np.isnan(X.shape).any():
        raise ValueError(f"the chunks of the Dask array must have known sizes, got {X.chunks}; X.compute_chunk_sizes()")
    if min(X.shape) < 1:
        raise ValueError(f"the matrix must have at least one row and one column, got shape {X.shape}")
    if issparse(X._meta):
        _check_sparse(X)
    elif not isinstance(X._meta, np.ndarray) or isinstance(X._meta, np.ma.MaskedArray):
        raise ValueError(f"chunks must be NumPy arrays or SciPy CSR, got {type(X._meta).__name__}; convert them first")
    if X.numblocks[1] == 1:
        return DaskRows(X, memory_limit=memory_limit)
    if X.shape[0] >= X.shape[1]:
        return DaskRows(X.rechunk({0: "auto", 1: -1}), memory_limit=memory_limit)
    by_columns = (X.conj() if X.dtype.kind == "c" else X).T
    whole = by_columns if by_columns.numblocks[1] == 1 else by_columns.rechunk({0: "auto", 1: -1})
    return Adjoint(DaskRows(whole, memory_limit=memory_limit))


def _check_sparse(X: Any) -> None:
    """Refuse sparse chunks that are not rows."""
    if X._meta.format != "csr":
        raise ValueError(
            f"sparse chunks must be CSR, got {X._meta.format.upper()}; "
            "X = X.map_blocks(scipy.sparse.csr_array), or convert the file"
        )
    if X.numblocks[1] > 1:
        raise ValueError(
            f"a sparse Dask array must be chunked by rows alone, got {X.numblocks[1]} chunks across the columns; "
            "X = X.rechunk({1: -1})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class DaskRows(Operator):
    """A Dask array, chunked by rows alone, minus its shift; the caller's cluster computes, else threads.

    Every read loads each chunk once, inside the task that multiplies it. The partial results are added as a tree
    whose shape depends on the chunks alone: any number of workers gives the same bits.
    """

    X: Any
    shift: LowRank | None = None
    memory_limit: int | str | None = None
    # Of the stored matrix; shared by all that store the same. Whoever makes it may say what a read would tell.
    memo: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, int] = field(init=False)
    dtype: np.dtype[Any] = field(init=False)
    level: bool = field(init=False)  # whether the rows of the shift are all the same
    gram_reads = 1
    gram_eps = float(np.finfo(np.float64).eps)

    def __post_init__(self) -> None:
        parts = () if self.shift is None else (self.shift.L, self.shift.R)
        object.__setattr__(self, "shape", tuple(map(int, self.X.shape)))
        object.__setattr__(self, "dtype", field_of(native_dtype(self.X.dtype), *parts))
        object.__setattr__(self, "level", self.shift is not None and self.shift.level)

    @property
    def sparse(self) -> bool:
        """Whether the chunks are sparse."""
        return bool(issparse(self.X._meta))

    @property
    def panel_columns(self) -> tuple[int, int]:
        """Wide, where the memory allows it."""
        return wide_panels(self.shape, MOST_COLUMNS, self.memory_limit)

    @property
    def eps(self) -> float:
        """As of matrices in memory: sparse products are made in double."""
        return float(np.finfo(np.float64 if self.sparse else self.dtype).eps)

    @property
    def counts(self) -> Vector:
        """Stored entries of each column, and how many rows are nearly full; takes a read unless it is known."""
        if "counts" not in self.memo:
            bare = self._replace_shift(None)
            self.memo["counts"] = self._once("counts", (), lambda: {"counts": bare._sum("counts")})["counts"]
        counts: Vector = self.memo["counts"]
        return counts

    @property
    def full(self) -> Vector:
        """Mask of the columns that are nearly full; one last entry says whether any row is."""
        return np.append(self.counts[:-1] > FULL * self.shape[0], self.counts[-1] > 0)

    @property
    def stored(self) -> int:
        """Numbers in the chunks."""
        if "stored" not in self.memo:
            self.memo["stored"] = int(self.counts[:-1].sum()) if self.sparse else self.shape[0] * self.shape[1]
        return int(self.memo["stored"])

    @property
    def file_bytes(self) -> int:
        """The numbers, and where they are if they are sparse: they are loaded for every read."""
        return int(self.stored * (self.X.dtype.itemsize + 4 * self.sparse))

    @property
    def square_bytes(self) -> float:
        """Each block sends a square in double precision, unless that is larger than the block."""
        blocks, one = len(self.blocks()), 8.0 * self.shape[1] ** 2
        return blocks * one if blocks == 1 or blocks * one <= self.file_bytes else float("inf")

    @property
    def fingerprint(self) -> str:
        """Of the shape and all chunks, by a read; the names that Dask gives differ from run to run."""
        if "fingerprint" not in self.memo:
            digest = blake2b(repr((self.shape, self.dtype, self.X.chunks)).encode(), digest_size=16)
            for part in self._replace_shift(None)._parts("digest", self.blocks(), (), ()):
                digest.update(part)
            self.memo["fingerprint"] = digest.hexdigest()
        return str(self.memo["fingerprint"])

    @property
    def chunks(self) -> Chunks:
        """Where the blocks come from."""
        if "chunks" not in self.memo:
            self.memo["chunks"] = Chunks(self.X)
        chunks: Chunks = self.memo["chunks"]
        return chunks

    def blocks(self) -> Blocks:
        """Chunks that hold rows: their numbers and their rows, in order."""
        return self.chunks.blocks

    def matmat(self, V: Panel) -> Panel:
        """``A V``."""
        return self._panel("matmat", V)

    def matmat_in_double(self, V: Panel) -> Panel:
        """``A V`` in double precision."""
        return self._panel("matmat_in_double", V)

    def _panel(self, what: str, V: Panel) -> Panel:
        """The rows that the blocks give, in a panel that is not held twice."""
        Y = np.empty((self.shape[0], V.shape[1]), panel_dtype(np.result_type(self.dtype, V)))
        for lo, part in self._rows(what, V):
            Y[lo : lo + len(part)] = part
        return Y

    def row_products(self, V: Panel) -> Iterator[tuple[int, Panel]]:
        """``(first row, A[rows] V)`` in order; one read, some blocks at a time."""
        return self._rows("matmat", V)

    def lazy_basis(self, V: Panel, rows: Vector | None = None) -> Any:
        """Orthonormal columns along those of ``diag(rows) A V``, as a Dask array; nothing is computed."""
        name, blocks = named("basis"), self.blocks()
        graph, _ = self._graph(name, "matmat_in_double", blocks, (V,), ())
        chunks, dtype = (tuple(hi - lo for _, (lo, hi) in blocks), (V.shape[1],)), np.result_type(self.dtype, V)
        Y = da.Array(graph, name, chunks, dtype)
        return graded_tsqr(Y if rows is None else rows[:, None] * Y)

    def rmatmat(self, W: Panel) -> Panel:
        """``A^H W``."""
        return self._once("rmatmat", (W,), lambda: {"Z": self._sum("rmatmat", own=(W,))})["Z"]

    def gram(self, V: Panel, weights: Vector | None = None) -> Panel:
        """``A^H diag(weights) A V`` in one read."""
        read = lambda: {"Z": self._sum("gram", (V,), (in_double(weights),))}  # noqa: E731
        return self._once("gram", (V, weights), read)["Z"]

    def gram_matrix(self, weights: Vector | None = None) -> Panel:
        """``A^H diag(weights) A``, formed in one read."""
        read = lambda: {"G": self._sum("gram_matrix", (), (in_double(weights),))}  # noqa: E731
        return self._once("gram_matrix", (weights,), read)["G"]

    def least(self) -> float:
        """The least of the stored numbers; one read."""
        return float(self._replace_shift(None)._sum("least", merge=min))

    def triangle(self, weights: Vector | None = None) -> Panel:
        """R of ``diag(sqrt(weights)) A``; one read, in which the blocks are factorized and folded by the workers."""
        read = lambda: {"R": self._sum("triangle", (), (in_double(weights),), folded)}  # noqa: E731
        return self._once("triangle", (weights,), read)["R"]

    def moments(self, weights: Vector | None = None) -> Moments:
        """Moments of the columns, merged over the blocks; one read."""
        if self.shift is not None and self.sparse:
            return self._mean_alone(weights)

        def read() -> journal.Record:
            found, counts = self._sum("moments", (), (in_double(weights),), merged)
            mean, M2 = in_order(found.mean), in_order(found.M2)
            return {"count": np.array(found.count), "mean": mean, "M2": M2, "stored": in_order(counts)}

        record = self._once("moments", (weights,), read)
        moments = Moments(float(record["count"]), record["mean"], record["M2"])
        if self.sparse:
            self.memo["counts"] = record["stored"]
        if weights is None and self.shift is None:
            self.memo["columns"] = moments
        return moments

    def _mean_alone(self, weights: Vector | None) -> Moments:
        """The means of the stored columns minus those of the shift."""
        assert self.shift is not None
        stored = self._replace_shift(None).moments(weights)
        w = np.ones(self.shape[0]) if weights is None else weights
        return Moments(stored.count, stored.mean - (w @ self.shift.L) @ self.shift.R.conj().T / stored.count, None)

    def row_moments(self, weights: Vector | None = None) -> Moments:
        """Moments of the rows; of a shifted sparse matrix, the mean alone."""
        if self.shift is not None and self.sparse:
            return super().row_moments(weights)
        parts = [part for _, part in self._rows("row_moments", in_double(weights))]
        mean, M2 = (np.concatenate([getattr(part, name) for part in parts]) for name in ("mean", "M2"))
        return Moments(parts[0].count, mean, M2)

    def column_squares(self, weights: Vector | None = None) -> Vector:
        """Squared column norms, from the moments where they are known; else one read."""
        known = squares_about(self.memo.get("columns"), self.shift) if weights is None else None
        if known is not None:
            return known
        read = lambda: {"squares": self._sum("column_squares", (), (in_double(weights),))}  # noqa: E731
        return self._once("squares", (weights,), read)["squares"]

    def squares_beyond(self, V: Panel, W: Panel, weights: Vector | None = None) -> Vector:
        """Squared column norms of ``A - A V W^H``; one read, on the workers."""
        read = lambda: {"squares": self._sum("squares_beyond", (V, W), (in_double(weights),))}  # noqa: E731
        return self._once("beyond", (V, W, weights), read)["squares"]

    def row_squares(self, weights: Vector | None = None) -> Vector:
        """Squared row norms; one read."""
        return np.concatenate([part for _, part in self._rows("row_squares", in_double(weights))])

    def column_exponents(self) -> Vector:
        """From the blocks; one read."""
        return np.asarray(self._sum("column_exponents", merge=np.maximum))

    def row_exponents(self) -> Vector:
        """From the blocks; one read."""
        return np.concatenate([part for _, part in self._rows("row_exponents")])

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "DaskRows":
        """Chunks are multiplied in the tasks that load them."""
        e = np.broadcast_to(rows, self.shape[0])[:, None]
        lines = da.from_array(np.ascontiguousarray(e), chunks=(self.X.chunks[0], 1), name=named("powers"))
        kinds = {"dtype": self.dtype, "chunks": self.X.chunks, "meta": self.X._meta}
        X = da.map_blocks(_multiplied, self.X, lines, cols=cols, **kinds)
        kept: dict[str, Any] = {name: self.memo[name] for name in ("counts", "stored", "name") if name in self.memo}
        return replace(self, X=X, shift=self.shift and self.shift.ldexp(rows, cols), memo=kept)

    def row_blocks(self, rows: int) -> Iterator[tuple[int, Panel]]:
        """Dense blocks of at most `rows` rows in double precision, made here: chunks are brought in one by one."""
        for block in self.blocks():
            (chunk,) = self._parts("chunk", [block], (), ())
            A = block_operator(chunk, self._own(block, ()), self._shared("chunk", ()))
            for first, part in A.row_blocks(rows):
                yield block[1][0] + first, part

    def column_blocks(self, columns: int) -> Iterator[tuple[int, Panel]]:
        """All rows of the adjoint at once: the array is read by its own rows, one time."""
        yield 0, np.concatenate([block for _, block in self.row_blocks(self.shape[0])]).conj().T

    def mix(self, Omega: Mixer) -> Panel:
        """``A Omega``, block by block."""
        return np.concatenate([part for _, part in self._rows("mix", Omega)])

    def with_shift(self, shift: LowRank) -> "DaskRows":
        """The shift is subtracted inside the blocks."""
        return self._replace_shift(shift.merge(self.shift))

    def unshifted(self) -> tuple[Operator, LowRank | None]:
        """The stored matrix and the shift."""
        return self._replace_shift(None), self.shift

    def _replace_shift(self, shift: LowRank | None) -> "DaskRows":
        return replace(self, shift=shift)

    def _once(self, what: str, panels: tuple[Vector | None, ...], read: Callable[[], journal.Record]) -> journal.Record:
        """A read that is not repeated where a broken run has made it."""
        if not journal.kept():  # the fingerprint is a read
            return read()
        shift = () if self.shift is None else (self.shift.L[: 1 if self.level else None], self.shift.R)
        return journal.once(f"{what} {self.fingerprint}", (*panels, *shift), read)

    def _sum(
        self,
        what: str,
        panels: tuple[Any, ...] = (),
        own: tuple[Vector | None, ...] = (),
        merge: Callable[[Any, Any], Any] | None = None,
    ) -> Any:
        """The parts of all blocks added in a tree, on the workers; `own` are panels with a row for each of A."""
        name = named(what)
        graph, keys = self._graph(name, what, self.blocks(), panels, own)
        total = summed(graph, name, keys, merge or added)
        return total.astype(wide(total), copy=False) if merge is None else total

    def _rows(self, what: str, *panels: Any) -> Iterator[tuple[int, Any]]:
        """``(first row, part)`` of every block in order; those of some blocks are held at a time."""
        blocks = self.blocks()
        for first in range(0, len(blocks), AT_ONCE):
            some = blocks[first : first + AT_ONCE]
            parts = self._parts(what, some, panels, ())
            read_part(len(some) / len(blocks))
            yield from ((lo, part) for (_, (lo, _)), part in zip(some, parts, strict=True))

    def _parts(self, what: str, blocks: Blocks, panels: tuple[Any, ...], own: Any) -> tuple[Any, ...]:
        """The parts of some blocks."""
        return computed(*self._graph(named(what), what, blocks, panels, own))

    def _graph(self, name: str, what: str, blocks: Blocks, panels: Any, own: Any) -> tuple[Graph, list[Any]]:
        """A graph with one task for each block, and their keys."""
        return self.chunks.graph(name, [self._own(block, own) for block in blocks], self._shared(what, panels))

    def _own(self, block: tuple[int, Rows], panels: tuple[Vector | None, ...]) -> Own:
        """What is sent to the task of one block alone."""
        number, (lo, hi) = block
        left = None if self.shift is None else self.shift.L[lo : lo + 1 if self.level else hi]
        return Own(number, (lo, hi), left, tuple(None if P is None else P[lo:hi] for P in panels))

    def _shared(self, what: str, panels: tuple[Any, ...]) -> Shared:
        """What is sent to the tasks of all blocks."""
        full = self.full if self.sparse and self.shift is not None else None
        right, name = None if self.shift is None else self.shift.R, str(self.memo.get("name", "the Dask array"))
        return Shared(what, panels, right, full, self.shape[1], self.sparse, self.X.dtype, name)


def _multiplied(chunk: Any, lines: Vector, cols: Vector | int) -> Any:
    """A chunk times powers of two."""
    rows = lines[:, 0]
    out = times_sparse(chunk, rows, cols) if issparse(chunk) else times(chunk, rows, cols)
    return out.astype(native_dtype(chunk.dtype), copy=False)


def graded_tsqr(Y: Any) -> Any:
    """Orthonormal columns along those of a Dask array of tall chunks, whose lengths fall; see `orth.graded_basis`."""
    Q, R = da.linalg.tsqr(Y)
    return Q * R.map_blocks(_directions, drop_axis=0, dtype=R.dtype)


def _directions(R: Panel) -> Vector:
    """The unit numbers that turn the columns of Q into those of Q R, but for their lengths."""
    d = np.diagonal(R)
    return np.asarray(np.where(d == 0, 1, d / np.where(d == 0, 1, np.abs(d))))


def in_double(weights: Vector | None) -> Vector | None:
    """Weights in double precision."""
    return None if weights is None else np.asarray(weights, np.float64)
