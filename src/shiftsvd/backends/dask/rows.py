"""Dask arrays: each read is one graph of block times thin panel; blocks stay where they are, sums travel."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, ClassVar

import dask.array as da
import numpy as np
from dask import delayed
from scipy.sparse import issparse

from shiftsvd.algebra.generic import registered, with_entries
from shiftsvd.backends.blocked import Rows
from shiftsvd.backends.columns import bare, some_columns, some_rows
from shiftsvd.backends.dask.graph import Chunks, Graph, computed, named, summed
from shiftsvd.backends.dask.tasks import Own, Shared, added, block_operator, wide
from shiftsvd.backends.dense import native_dtype
from shiftsvd.backends.entries import changed_rows
from shiftsvd.backends.reread import Merge, Panels, Reread, in_double
from shiftsvd.backends.selection import Places
from shiftsvd.events import read_part
from shiftsvd.numerics.digests import told
from shiftsvd.numerics.entrywise import Change
from shiftsvd.numerics.moments import Vector
from shiftsvd.numerics.orth import folded
from shiftsvd.numerics.powers import times, times_sparse
from shiftsvd.operators import Adjoint, LowRank, Operator, Panel

# Blocks whose rows are brought to the client at once, where somebody asks for something as long as the data.
AT_ONCE = 32


def dask_operator(X: Any, memory_limit: int | str | None = None) -> Operator:
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
    if X._meta.format != "csr":
        raise ValueError(
            f"sparse chunks must be CSR, got {X._meta.format.upper()}; "
            "X = X.map_blocks(scipy.sparse.csr_array).rechunk({0: 10_000, 1: -1})"
        )
    if X.numblocks[1] > 1:
        raise ValueError(
            f"a sparse Dask array must be chunked by rows alone, got {X.numblocks[1]} chunks across the columns; "
            "X = X.rechunk({1: -1})"
        )


@registered
@dataclass(frozen=True, eq=False, repr=False)
class DaskRows(Reread):
    """A Dask array, chunked by rows alone, minus its shift; the caller's cluster computes, else threads.

    Every read loads each chunk once, inside the task that multiplies it. The partial results are added as a tree
    whose shape depends on the chunks alone: any number of workers gives the same bits.
    """

    X: Any
    shift: LowRank | None = None
    memory_limit: int | str | None = None
    # Of the stored matrix; shared by all that store the same. Whoever makes it may say what a read would tell.
    memo: dict[str, Any] = field(default_factory=dict)
    n_threads: int | None = field(default=None, init=False)  # type: ignore[assignment]  # the cluster has its own
    # A read moves a panel to every worker and loads every block.
    most_columns: ClassVar[int] = 64

    @property
    def data(self) -> Any:
        return self.X

    @property
    def sparse(self) -> bool:
        return bool(issparse(self.X._meta))

    @property
    def stored(self) -> int:
        if "stored" not in self.memo:
            self.memo["stored"] = int(self.counts[:-1].sum()) if self.sparse else self.shape[0] * self.shape[1]
        return int(self.memo["stored"])

    def known_costs(self) -> dict[str, Any]:
        known, blocks, one = super().known_costs(), len(self.blocks()), 8.0 * self.shape[1] ** 2
        fits = blocks == 1 or blocks * one <= known["file_bytes"]
        return known | {"square_bytes": blocks * one if fits else float("inf")}

    @property
    def fingerprint(self) -> str:
        if "fingerprint" not in self.memo:
            digest = blake2b(repr((self.shape, self.dtype, self.X.chunks)).encode(), digest_size=16)
            for part in self._replace_shift(None)._parts("digest", self.blocks(), (), ()):
                digest.update(part)
            self.memo["fingerprint"] = digest.hexdigest()
        return str(self.memo["fingerprint"])

    @property
    def chunks(self) -> Chunks:
        if "chunks" not in self.memo:
            self.memo["chunks"] = Chunks(self.X)
        chunks: Chunks = self.memo["chunks"]
        return chunks

    def blocks(self) -> list[Rows]:
        return list(self.chunks.numbers)

    def lazy_basis(self, V: Panel, rows: Vector | None = None) -> Any:
        name, blocks = named("basis"), self.blocks()
        graph, _ = self._graph(name, "matmat_in_double", blocks, (V,), ())
        chunks, dtype = (tuple(hi - lo for lo, hi in blocks), (V.shape[1],)), np.result_type(self.dtype, V)
        Y = da.Array(graph, name, chunks, dtype)
        return graded_tsqr(Y if rows is None else rows[:, None] * Y)

    def least(self) -> float:
        return float(self._replace_shift(None)._total("least", merge=min))

    def triangle(self, weights: Vector | None = None) -> Panel:
        read = lambda: {"R": self._total("triangle", (), (in_double(weights),), folded)}  # noqa: E731
        return self.once("triangle", (weights,), read)["R"]

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "DaskRows":
        e = np.broadcast_to(rows, self.shape[0])[:, None]
        lines = da.from_array(np.ascontiguousarray(e), chunks=(self.X.chunks[0], 1), name=named("powers"))
        kinds = {"dtype": self.dtype, "chunks": self.X.chunks, "meta": self.X._meta}
        X = da.map_blocks(_multiplied, self.X, lines, cols=cols, **kinds)
        kept: dict[str, Any] = {name: self.memo[name] for name in ("counts", "stored", "name") if name in self.memo}
        return replace(self, X=X, shift=self.shift and self.shift.ldexp(rows, cols), memo=kept)

    def _replace_shift(self, shift: LowRank | None) -> "DaskRows":
        return replace(self, shift=shift)

    def _total(self, what: str, panels: Panels = (), own: Panels = (), merge: Merge | None = None) -> Any:
        name = named(what)
        graph, keys = self._graph(name, what, self.blocks(), panels, own)
        total = summed(graph, name, keys, merge or added)
        return total.astype(wide(total), copy=False) if merge is None else total

    def _rows(self, what: str, *panels: Any) -> Iterator[tuple[int, Any]]:
        blocks = self.blocks()
        for first in range(0, len(blocks), AT_ONCE):
            some = blocks[first : first + AT_ONCE]
            parts = self._parts(what, some, panels, ())
            read_part(len(some) / len(blocks))
            yield from ((lo, part) for (lo, _), part in zip(some, parts, strict=True))

    def _parts(self, what: str, blocks: list[Rows], panels: tuple[Any, ...], own: Any) -> tuple[Any, ...]:
        return computed(*self._graph(named(what), what, blocks, panels, own))

    def _block(self, rows: Rows) -> Operator:
        (chunk,) = self._parts("chunk", [rows], (), ())
        return block_operator(chunk, self._own(rows, ()), self._shared("chunk", ()))

    def _graph(self, name: str, what: str, blocks: list[Rows], panels: Any, own: Any) -> tuple[Graph, list[Any]]:
        return self.chunks.graph(name, [self._own(rows, own) for rows in blocks], self._shared(what, panels))

    def _own(self, rows: Rows, panels: tuple[Vector | None, ...]) -> Own:
        lo, hi = rows
        left = None if self.shift is None else self.shift.L[lo : lo + 1 if self.level else hi]
        return Own(self.chunks.numbers[rows], rows, left, tuple(None if P is None else P[lo:hi] for P in panels))

    def _shared(self, what: str, panels: tuple[Any, ...]) -> Shared:
        full = self.full if self.sparse and self.shift is not None else None
        right, name = None if self.shift is None else self.shift.R, str(self.memo.get("name", "the Dask array"))
        return Shared(what, panels, right, full, self.shape[1], self.sparse, self.X.dtype, name)


@with_entries.register
def _(A: DaskRows, change: Change) -> DaskRows:
    lines = da.from_array(change.R, chunks=(A.X.chunks[0], -1), name=named("quantities"))
    kind, dtype = type(A.X._meta), np.dtype(change.dtype)
    kinds = {"dtype": dtype, "chunks": A.X.chunks, "meta": kind((0, 0), dtype=dtype)}
    shared = Shared("chunk", (), None, None, A.shape[1], A.sparse, A.X.dtype, "the Dask array")
    alike = delayed((change.rows(0, 0), shared), pure=False, traverse=False)
    X = da.map_blocks(_changed, A.X, lines, alike=alike, **kinds)
    names = ("stored", "name") if change.more is not None else ("counts", "stored", "name")
    return replace(A, X=X, memo={name: A.memo[name] for name in names if name in A.memo})


@some_columns.register
def _(A: DaskRows, places: Places) -> DaskRows:
    bare(A)
    kinds = {"dtype": A.X.dtype, "chunks": (A.X.chunks[0], (len(places),)), "meta": A.X._meta[:, :0]}
    return replace(A, X=da.map_blocks(_taken, A.X, places=places, **kinds), memo=_memo_of_some(A, "columns", places))


@some_rows.register
def _(A: DaskRows, places: Places) -> DaskRows:
    bare(A)
    return replace(A, X=A.X[places], memo=_memo_of_some(A, "rows", places))


def _memo_of_some(A: DaskRows, what: str, places: Places) -> dict[str, Any]:
    kept = {name: A.memo[name] for name in ("name",) if name in A.memo}
    known = A.memo.get("fingerprint")
    return kept | ({} if known is None else {"fingerprint": f"{known} {what} {told(places)}"})


def _taken(chunk: Any, places: Places) -> Any:
    return chunk[:, places]


def _multiplied(chunk: Any, lines: Vector, cols: Vector | int) -> Any:
    rows = lines[:, 0]
    out = times_sparse(chunk, rows, cols) if issparse(chunk) else times(chunk, rows, cols)
    return out.astype(native_dtype(chunk.dtype), copy=False)


def _changed(chunk: Any, lines: Panel, alike: tuple[Change, Shared]) -> Any:
    change, shared = alike
    A: Any = block_operator(chunk, Own(0, (0, chunk.shape[0]), None, ()), shared)
    return changed_rows(A.X, replace(change, R=np.asarray(lines)))


def graded_tsqr(Y: Any) -> Any:
    Q, R = da.linalg.tsqr(Y)
    return Q * R.map_blocks(_directions, drop_axis=0, dtype=R.dtype)


def _directions(R: Panel) -> Vector:
    d = np.diagonal(R)
    return np.asarray(np.where(d == 0, 1, d / np.where(d == 0, 1, np.abs(d))))
