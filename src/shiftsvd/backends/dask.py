"""Dask arrays, and files on a cluster: each pass is one graph of products of blocks and panels."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from hashlib import blake2b
from itertools import pairwise
from operator import methodcaller
from typing import Any, ClassVar
from uuid import uuid4

import dask
import dask.array as da
import numpy as np
from dask import delayed
from dask.array.optimization import optimize
from dask.base import get_scheduler
from dask.callbacks import Callback
from dask.delayed import Delayed
from dask.sizeof import sizeof
from dask.system import CPU_COUNT
from scipy.sparse import csr_array, issparse, sparray

from shiftsvd.algebra.generic import with_entries
from shiftsvd.backends.blocked import Rows, journaled
from shiftsvd.backends.dense import native_dtype
from shiftsvd.backends.entries import LINES, Places, bare, changed_rows, some_lines
from shiftsvd.backends.files import DiskRows, Merge, Panels, Reread, block_part, in_double, rows_operator
from shiftsvd.backends.source import RowSource
from shiftsvd.backends.validation import check_numbers, inspected, sound_pointers
from shiftsvd.errors import plural
from shiftsvd.events import record_read, without_progress
from shiftsvd.kernels import threads
from shiftsvd.kernels.twin import range_errors_ignored
from shiftsvd.numerics.digests import told
from shiftsvd.numerics.entrywise import Change
from shiftsvd.numerics.orth import folded
from shiftsvd.numerics.powers import times, times_sparse
from shiftsvd.operators import Adjoint, LowRank, Moments, Operator, Panel, Vector
from shiftsvd.runs.memory import limit_of, shown_bytes, spare
from shiftsvd.runs.messages import warn


def lazy_scores(estimator: Any, X: Any) -> Any:
    operator = dask_operator(X)
    by_rows = operator.X if isinstance(operator, DaskRows) else X.rechunk({0: "auto", 1: -1})
    Z = _by_rows(estimator, by_rows, "transform", len(estimator.components_), native_dtype(X.dtype))
    return Z if Z.chunks[0] == X.chunks[0] else Z.rechunk({0: X.chunks[0]})


def lazy_points(estimator: Any, Z: Any) -> Any:
    dtype = np.result_type(Z.dtype, estimator.components_.dtype)
    return _by_rows(estimator, Z.rechunk({1: -1}), "inverse_transform", estimator.components_.shape[1], dtype)


def _by_rows(estimator: Any, X: Any, method: str, columns: int, dtype: Any) -> Any:
    frozen = dask.delayed(estimator, pure=False, traverse=False)
    settings = {"dtype": dtype, "chunks": (X.chunks[0], (columns,)), "meta": np.empty((0, 0), dtype)}
    return X.map_blocks(_estimated, estimator=frozen, method=method, columns=columns, **settings)


def _estimated(chunk: Any, estimator: Any, method: str, columns: int) -> Panel:
    if not chunk.shape[0]:
        return np.empty((0, columns), native_dtype(chunk.dtype))
    with without_progress(), threads(1):
        return np.asarray(getattr(estimator, method)(chunk))


ROOM = 2**27  # bytes that the operator of a block may use


@dataclass(frozen=True, eq=False)
class BlockTask:
    """Arguments of one task: its range of rows, and these rows of all arrays that are as long as the matrix."""

    number: int
    rows: Rows
    left: Panel | None  # L of the shift; a single row if all rows of L are equal
    panels: Panels


@dataclass(frozen=True, eq=False)
class ReadTask:
    """Arguments that all tasks of one pass share."""

    what: str
    panels: Panels
    right: Panel | None  # R of the shift
    full: Vector | None  # mask of the full columns
    columns: int
    sparse: bool
    dtype: np.dtype[Any]  # declared by the Dask array; chunks may have another
    name: str  # name of the array, for errors


def _checked(chunk: Any, own: BlockTask, shared: ReadTask) -> Any:
    name, shape = _name(own, shared), (own.rows[1] - own.rows[0], shared.columns)
    fits = isinstance(chunk, np.ndarray) and not isinstance(chunk, np.ma.MaskedArray)
    if (issparse(chunk) if shared.sparse else fits) is False or chunk.shape != shape:
        raise ValueError(
            f"{name} must be {'CSR' if shared.sparse else 'dense'} of shape {shape}, as the Dask array declares, "
            f"got {type(chunk).__name__} {chunk.shape}. Pass the right shape and meta to map_blocks or from_delayed."
        )
    if chunk.dtype.kind not in ("fciub" if shared.dtype.kind == "c" else "fiub"):
        raise ValueError(
            f"{name} must hold numbers like {shared.dtype}, as the Dask array declares, got {chunk.dtype}. "
            "Pass the right dtype to map_blocks or from_delayed."
        )
    if chunk.dtype.kind in "fc":  # products must not round more than the declared type does
        chunk = chunk.astype(np.result_type(chunk.dtype, native_dtype(shared.dtype)), copy=False)
    if shared.sparse:
        return _csr(chunk, name)
    return np.require(chunk, requirements=["F" if chunk.flags.f_contiguous else "C", "A"])


def _name(own: BlockTask, shared: ReadTask) -> str:
    return f"chunk {own.number} of {shared.name} (from row {own.rows[0]})"


def in_order(panel: Any) -> Any:
    # Arrays from another process may lose memory order and alignment, which changes the rounding of BLAS
    # (tests/backends/dask).
    if isinstance(panel, tuple):
        return tuple(map(in_order, panel))
    if isinstance(panel, Moments):
        return Moments(panel.count, *map(in_order, (panel.mean, panel.M2, panel.low)))
    return np.require(panel, requirements=["C", "A"]) if isinstance(panel, np.ndarray) else panel


def _csr(chunk: Any, name: str) -> csr_array:
    if chunk.format != "csr":
        raise ValueError(f"{name} must be CSR, got {chunk.format.upper()}. Use X.map_blocks(scipy.sparse.csr_array).")
    sound_pointers(chunk, f"{name}: ")
    used = int(chunk.indptr[-1])
    data, indices, indptr = map(in_order, (chunk.data[:used], chunk.indices[:used], chunk.indptr))
    X = csr_array((data, indices, indptr), shape=chunk.shape, copy=False)
    return X if inspected(X, 1).in_order else X.copy()  # unsorted rows are sorted in place


def block_operator(chunk: Any, own: BlockTask, shared: ReadTask) -> Operator:
    X, shift = _checked(chunk, own, shared), None
    if own.left is not None:
        left = np.broadcast_to(in_order(own.left), (X.shape[0], own.left.shape[1]))
        shift = LowRank(left, in_order(shared.right))
    return rows_operator(X, shift, shared.full, _name(own, shared), 0, ROOM)


def part_of(own: BlockTask, chunk: Any, shared: ReadTask) -> Any:
    if shared.what == "chunk":
        return chunk
    with without_progress(), threads(1):
        A = block_operator(chunk, own, shared)
        return block_part(shared.what, A, *map(in_order, shared.panels), *map(in_order, own.panels))


def merged_here(merge: Callable[[Any, Any], Any], parts: list[Any]) -> Any:
    with threads(1):
        return reduce(merge, parts)


@range_errors_ignored
def added(a: Panel, b: Panel) -> Panel:
    return np.add(a, b, dtype=wide(a))


def wide(part: Panel) -> np.dtype[Any]:
    return part.dtype if part.dtype.kind in "iu" else np.result_type(part, np.float64)


sizeof.register(sparray, lambda X: sum(map(sizeof, vars(X).values())))

# Number of partial sums that one task adds; fixed, so that the order of summation depends on the blocks alone.
ARITY = 4
# Warn if the graph contains more bytes of data than this: every pass sends them to the workers.
LARGE = 10**8

Graph = dict[Any, Any]


def loads_of(X: Any, numbers: Iterable[int]) -> tuple[Graph, dict[int, Any]]:
    # Return the tasks that load chunks, and for each chunk the key or task that the product takes as argument.
    graph = X.__dask_graph__()
    keys = {i: (X.name, i, 0) for i in numbers}
    loads = dict(optimize(graph, list(keys.values())))
    _warn_of_data(loads)
    uses = Counter(other for task in loads.values() for other in task.dependencies)
    return loads, {i: _chunk(graph, loads, uses, key) for i, key in keys.items()}


def _chunk(graph: Any, loads: Graph, uses: Counter[Any], key: Any) -> Any:
    if key not in loads:
        return graph[key]  # a future: the chunk is on the cluster
    target = getattr(loads[key], "target", None)  # set for an alias of a fused task
    if target in loads and uses[key] == 0 and uses[target] == 1:
        del loads[key]
        return loads.pop(target)
    return key if uses[key] else loads.pop(key)


def _warn_of_data(loads: Graph) -> None:
    client = getattr(get_scheduler(), "__self__", None)  # None for Dask's local schedulers, which are functions
    held = 0 if client is None else sum(map(sizeof, loads.values()))
    if held > LARGE:
        warn(
            f"The graph of the Dask array contains {held / 1e6:,.0f} MB of data, which every pass sends to the "
            "workers. Use X = X.persist() to send the data once.",
        )


def named(what: str) -> str:
    return f"shiftsvd-{what}-{uuid4().hex}"


def summed(graph: Graph, name: str, keys: list[Any], merge: Callable[[Any, Any], Any]) -> Any:
    heard, level = _BlocksRead(name, len(keys)), 0
    while len(keys) > 1:
        groups = [keys[first : first + ARITY] for first in range(0, len(keys), ARITY)]
        keys = [(f"{name}-sum-{level}", j) for j in range(len(groups))]
        graph.update({key: (partial(merged_here, merge), group) for key, group in zip(keys, groups, strict=True)})
        level += 1
    with heard:
        (result,) = computed(graph, keys)
    if not heard.any:  # a cluster reports nothing before the end
        record_read(1.0)
    return result


class _BlocksRead(Callback):  # type: ignore[misc]
    """Report the progress of each block if the tasks run in this process."""

    def __init__(self, name: str, n_blocks: int) -> None:
        super().__init__()
        self.name, self.n_blocks, self.any = name, n_blocks, False

    def _posttask(self, key: Any, *_: object) -> None:
        if isinstance(key, tuple) and key[0] == self.name:
            self.any = True
            record_read(1 / self.n_blocks)


def computed(graph: Graph, keys: list[Any]) -> tuple[Any, ...]:
    # Put each panel into the graph once instead of scattering it: scattered data are lost with their worker.
    quiet = {"distributed.admin.large-graph-warning-threshold": "1TB"} if "distributed" in sys.modules else {}
    with dask.config.set(quiet):
        return tuple(map(in_order, dask.compute(*(Delayed(key, graph) for key in keys))))


# Number of blocks whose rows are collected by the client at once, for results as long as the data.
AT_ONCE = 32


def dask_operator(X: Any, memory_limit: int | str | None = None) -> Operator:
    if not isinstance(X, da.Array):
        raise TypeError(
            f"a Dask array is needed, got {type(X).__name__}. Convert data frames by to_dask_array(lengths=True)."
        )
    check_numbers(X.dtype, X.shape)
    if np.isnan(X.shape).any():
        raise ValueError(
            f"the chunks of the Dask array must have known sizes, got shape {X.shape}. Call X.compute_chunk_sizes()."
        )
    if issparse(X._meta):
        _check_sparse(X)
    elif not isinstance(X._meta, np.ndarray) or isinstance(X._meta, np.ma.MaskedArray):
        raise ValueError(
            f"chunks must be NumPy arrays or SciPy CSR, got {type(X._meta).__name__}. Convert them with X.map_blocks."
        )
    by_columns = issparse(X._meta) and getattr(X._meta, "format", "") == "csc"
    as_it_is = not by_columns and (X.numblocks[1] == 1 or X.shape[0] >= X.shape[1])
    tall = X if as_it_is else (X.conj() if X.dtype.kind == "c" else X).T
    rows = tall if tall.numblocks[1] == 1 else tall.rechunk({0: "auto", 1: -1})
    _warn_of_chunks(rows, memory_limit)
    A = DaskRows(rows, memory_limit=memory_limit)
    return A if as_it_is else Adjoint(A)


def _warn_of_chunks(X: Any, memory_limit: int | str | None) -> None:
    if issparse(X._meta) or hasattr(get_scheduler(), "__self__"):  # a cluster has memory of its own
        return
    most, workers = max(X.chunks[0]) * X.shape[1] * X.dtype.itemsize, dask.config.get("num_workers", None) or CPU_COUNT
    if not spare(workers * most, memory_limit):
        limit = shown_bytes(limit_of(memory_limit) or 0)
        fewer = ", or use fewer workers: dask.config.set(num_workers=1)" if workers > 1 else ""
        warn(
            f"Dask loads {plural(workers, 'chunk')} of up to {shown_bytes(most)} at once, more than the memory "
            f"limit of {limit}. Make chunks smaller{fewer}."
        )


def _check_sparse(X: Any) -> None:
    if X._meta.format == "csc" and X.numblocks[0] == 1:
        return  # the adjoint has chunks of CSR
    if X._meta.format != "csr":
        raise ValueError(
            f"sparse chunks must be CSR, got {X._meta.format.upper()}. "
            "Use X = X.map_blocks(scipy.sparse.csr_array).rechunk({0: 10_000, 1: -1})."
        )
    if X.numblocks[1] > 1:
        raise ValueError(
            f"a sparse Dask array must be chunked by rows alone, got {X.numblocks[1]} chunks across the columns. "
            "Use X = X.rechunk({1: -1})."
        )


@dataclass(frozen=True, eq=False, repr=False)
class DaskRows(Reread):
    """Dask array, chunked by rows alone, minus its shift; computed on the active cluster, or else in threads."""

    # A pass loads each chunk once, inside the task that multiplies it, and adds the results in a tree whose shape
    # depends on the chunks alone, so the result does not depend on the number of workers.

    X: Any
    shift: LowRank | None = None
    memory_limit: int | str | None = None
    # Cached properties, shared by all operators on the same matrix. The creator may fill in known values.
    memo: dict[str, Any] = field(default_factory=dict)
    source: RowSource | None = None  # files that workers read; this process checks that they do not change
    n_threads: int | None = field(default=None, init=False)  # type: ignore[assignment]  # the cluster has its own
    # A pass sends a panel to every worker and loads every block.
    most_columns: ClassVar[int] = 64

    def __post_init__(self) -> None:
        self.hold(self.X.shape, self.X.dtype, bool(issparse(self.X._meta)))

    @property
    def stored(self) -> int:
        m, n = self.shape
        return self.remembered("stored", lambda: int(self.counts[:-1].sum()) if self.sparse else m * n)

    def known_costs(self) -> dict[str, Any]:
        known, blocks, one = super().known_costs(), len(self.blocks()), 8.0 * self.shape[1] ** 2
        fits = blocks == 1 or blocks * one <= known["file_bytes"]
        return known | {"square_bytes": blocks * one if fits else float("inf")}

    @property
    def fingerprint(self) -> str:
        def read() -> str:
            digest = blake2b(repr((self.shape, self.dtype, self.X.chunks)).encode(), digest_size=16)
            for part in self._replace_shift(None)._parts("digest", self.blocks(), (), ()):
                digest.update(part)
            return digest.hexdigest()

        return self.remembered("fingerprint", read)

    @property
    def numbers(self) -> dict[Rows, int]:  # of the chunks that hold rows, in order
        def numbered() -> dict[Rows, int]:
            edges = np.cumsum([0, *self.X.chunks[0]]).tolist()
            return {(lo, hi): i for i, (lo, hi) in enumerate(pairwise(edges)) if hi > lo}

        return self.remembered("numbers", numbered)

    def blocks(self) -> list[Rows]:
        return list(self.numbers)

    def lazy_basis(self, V: Panel, rows: Vector | None = None) -> Any:
        name, blocks = named("basis"), self.blocks()
        graph, _ = self._graph(name, "matmat_in_double", blocks, (V,), ())
        chunks, dtype = (tuple(hi - lo for lo, hi in blocks), (V.shape[1],)), np.result_type(self.dtype, V)
        Y = da.Array(graph, name, chunks, dtype)
        Q, R = da.linalg.tsqr(Y if rows is None else rows[:, None] * Y)
        return Q * R.map_blocks(_directions, drop_axis=0, dtype=R.dtype)

    def least(self) -> float:
        return float(self._replace_shift(None)._total("least", merge=min))

    @journaled
    def triangle(self, weights: Vector | None = None) -> Panel:
        return self._total("triangle", (), (in_double(weights),), folded)  # type: ignore[no-any-return]

    @journaled
    def squares_beyond(self, V: Panel, W: Panel, weights: Vector | None = None) -> Vector:
        return self._total("squares_beyond", (V, W), (in_double(weights),))  # type: ignore[no-any-return]

    def ldexp(self, rows: Vector | int, cols: Vector | int) -> "DaskRows":
        lines = np.broadcast_to(rows, self.shape[0])[:, None]
        X = self.mapped(_multiplied, lines, dtype=self.dtype, cols=cols)
        shift, memo = self.shift and self.shift.ldexp(rows, cols), self.memo_of("counts", "stored", "name")
        return replace(self, X=X, shift=shift, memo=memo)

    def mapped(self, function: Any, *lines: Panel, dtype: Any, columns: int | None = None, **known: Any) -> Any:
        (rows, across), kind = self.X.chunks, type(self.X._meta)
        own = [da.from_array(np.ascontiguousarray(each), (rows, -1), named("lines")) for each in lines]
        kinds = {"dtype": dtype, "chunks": (rows, across if columns is None else (columns,))}
        return da.map_blocks(function, self.X, *own, **kinds, meta=kind((0, 0), dtype=dtype), **known)

    def _total(self, what: str, panels: Panels = (), own: Panels = (), merge: Merge | None = None) -> Any:
        name = named(what)
        graph, keys = self._graph(name, what, self.blocks(), panels, own)
        total = summed(graph, name, keys, merge or added)
        self._check_unchanged()
        return total.astype(wide(total), copy=False) if merge is None else total

    def _rows(self, what: str, *panels: Any) -> Iterator[tuple[int, Any]]:
        blocks = self.blocks()
        for first in range(0, len(blocks), AT_ONCE):
            some = blocks[first : first + AT_ONCE]
            parts = self._parts(what, some, panels, ())
            record_read(len(some) / len(blocks))
            yield from ((lo, part) for (lo, _), part in zip(some, parts, strict=True))

    def _parts(self, what: str, blocks: list[Rows], panels: tuple[Any, ...], own: Any) -> tuple[Any, ...]:
        found = computed(*self._graph(named(what), what, blocks, panels, own))
        self._check_unchanged()
        return found

    def _check_unchanged(self) -> None:
        if self.source is not None:
            self.source.check_unchanged()

    def _block(self, rows: Rows) -> Operator:
        (chunk,) = self._parts("chunk", [rows], (), ())
        return block_operator(chunk, self._own(rows, ()), self._shared("chunk", ()))

    def _graph(self, name: str, what: str, blocks: list[Rows], panels: Any, own: Any) -> tuple[Graph, list[Any]]:
        loads, chunks = self.remembered("loads", lambda: loads_of(self.X, self.numbers.values()))
        key, keys = f"{name}-shared", [(name, i, 0) for i in range(len(blocks))]
        tasks = ((partial(part_of, self._own(rows, own)), chunks[self.numbers[rows]], key) for rows in blocks)
        return {**loads, key: self._shared(what, panels), **dict(zip(keys, tasks, strict=True))}, keys

    def _own(self, rows: Rows, panels: Panels) -> BlockTask:
        lo, hi = rows
        left = None if self.shift is None else self.shift.L[lo : lo + 1 if self.level else hi]
        return BlockTask(self.numbers[rows], rows, left, tuple(None if P is None else P[lo:hi] for P in panels))

    def _shared(self, what: str, panels: Panels) -> ReadTask:
        full = self.full if self.sparse and self.shift is not None else None
        right, name = None if self.shift is None else self.shift.R, str(self.memo.get("name", "the Dask array"))
        return ReadTask(what, panels, right, full, self.shape[1], self.sparse, self.X.dtype, name)


@with_entries.register
def _(A: DaskRows, change: Change) -> DaskRows:
    shared = ReadTask("chunk", (), None, None, A.shape[1], A.sparse, A.X.dtype, "the Dask array")
    alike = delayed((change.rows(0, 0), shared), pure=False, traverse=False)
    X = A.mapped(_changed, change.R, dtype=np.dtype(change.dtype), alike=alike)
    names = ("stored", "name") if change.more is not None else ("counts", "stored", "name")
    return replace(A, X=X, memo=A.memo_of(*names))


@some_lines.register
def _(A: DaskRows, places: Places, axis: int) -> DaskRows:
    bare(A)
    memo = A.memo_of("name", "fingerprint")
    if "fingerprint" in memo:
        memo["fingerprint"] = f"{memo['fingerprint']} {LINES[axis]} {told(places)}"
    X = A.mapped(_taken, dtype=A.X.dtype, columns=len(places), places=places) if axis else A.X[places]
    return replace(A, X=X, memo=memo)


def _taken(chunk: Any, places: Places) -> Any:
    return chunk[:, places]


def _multiplied(chunk: Any, lines: Vector, cols: Vector | int) -> Any:
    rows = lines[:, 0]
    out = times_sparse(chunk, rows, cols) if issparse(chunk) else times(chunk, rows, cols)
    return out.astype(native_dtype(chunk.dtype), copy=False)


def _changed(chunk: Any, lines: Panel, alike: tuple[Change, ReadTask]) -> Any:
    change, shared = alike
    A: Any = block_operator(chunk, BlockTask(0, (0, chunk.shape[0]), None, ()), shared)
    return changed_rows(A.X, replace(change, R=np.asarray(lines)))


def _directions(R: Panel) -> Vector:
    d = np.diagonal(R)
    return np.asarray(np.where(d == 0, 1, d / np.where(d == 0, 1, np.abs(d))))


def on_workers(A: Operator) -> Operator:
    # The blocks are the same as without Dask: they depend on the file and the memory limit alone. Nothing is read here.
    if isinstance(A, Adjoint):
        return on_workers(A.H).H
    if not isinstance(A, DiskRows):
        raise TypeError(
            f"expected a matrix that is read from its file, got {type(A).__name__}. Open it with stream=True."
        )
    source, blocks = A.source, A.blocks()
    known = f"{source.fingerprint} {source.shape} {blocks}"
    memo = {"stored": source.stored, "name": source.name, "fingerprint": known}
    return DaskRows(_array(source, blocks), A.shift, A.memory_limit, memo, source)


def _array(source: RowSource, blocks: list[Rows]) -> Any:
    name = named("file")
    graph: dict[Any, Any] = {f"{name}-source": source}
    graph |= {(name, i, 0): (methodcaller("read", *rows), f"{name}-source") for i, rows in enumerate(blocks)}
    chunks = tuple(hi - lo for lo, hi in blocks), (source.shape[1],)
    kind = csr_array if source.sparse else np.empty
    return da.Array(graph, name, chunks, meta=kind((0, 0), dtype=source.dtype))
