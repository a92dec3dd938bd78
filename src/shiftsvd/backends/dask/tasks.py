"""What runs inside the tasks of a Dask graph: one chunk, checked, times what the tasks of a read share."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from dask.sizeof import sizeof
from scipy.sparse import csr_array, issparse, sparray

from shiftsvd.backends.blocked import Rows
from shiftsvd.backends.dense import native_dtype
from shiftsvd.backends.grouped import group_moments  # noqa: F401  # workers know it by its name
from shiftsvd.backends.reread import block_part, rows_operator
from shiftsvd.backends.validation import inspected
from shiftsvd.events import unheard
from shiftsvd.kernels import threads
from shiftsvd.kernels.groups import unwarned
from shiftsvd.numerics.moments import Moments, Vector
from shiftsvd.operators import LowRank, Operator, Panel

ROOM = 2**27  # bytes that the operator of a block may take for itself


@dataclass(frozen=True, eq=False)
class Own:
    """What one task has for itself: its rows, and those rows of everything long."""

    number: int
    rows: Rows
    left: Panel | None  # of the shift; one row if all are the same
    panels: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Shared:
    """What all tasks of one read share: thin panels, the short side of the shift, the mask of full columns."""

    what: str
    panels: tuple[Any, ...]
    right: Panel | None
    full: Vector | None
    columns: int
    sparse: bool
    dtype: np.dtype[Any]  # that the array says it has
    name: str  # of the array, in errors


def _checked(chunk: Any, own: Own, shared: Shared) -> Any:
    name, shape = _name(own, shared), (own.rows[1] - own.rows[0], shared.columns)
    fits = isinstance(chunk, np.ndarray) and not isinstance(chunk, np.ma.MaskedArray)
    if (issparse(chunk) if shared.sparse else fits) is False or chunk.shape != shape:
        raise ValueError(
            f"{name} must be {'CSR' if shared.sparse else 'dense'} of shape {shape}, as the array says, "
            f"got {type(chunk).__name__} {chunk.shape}; give map_blocks or from_delayed the right shape and meta"
        )
    if chunk.dtype.kind not in ("fciub" if shared.dtype.kind == "c" else "fiub"):
        raise ValueError(
            f"{name} must hold numbers like {shared.dtype}, as the array says, got {chunk.dtype}; "
            "give map_blocks or from_delayed the right dtype"
        )
    return _csr(chunk, name) if shared.sparse else _unbroken(np.asarray(chunk))


def _name(own: Own, shared: Shared) -> str:
    return f"chunk {own.number} of {shared.name} (from row {own.rows[0]})"


def in_order(panel: Any) -> Any:
    # What has travelled is none of these any more, and BLAS rounds otherwise then (tests/backends/dask).
    if isinstance(panel, tuple):
        return tuple(map(in_order, panel))
    if isinstance(panel, Moments):
        return Moments(panel.count, *map(in_order, (panel.mean, panel.M2, panel.low)))
    return np.require(panel, requirements=["C", "A"]) if isinstance(panel, np.ndarray) else panel


def _unbroken(chunk: Panel) -> Panel:
    return np.require(chunk, requirements=["F" if chunk.flags.f_contiguous else "C", "A"])


def _csr(chunk: Any, name: str) -> csr_array:
    if chunk.format != "csr":
        raise ValueError(f"{name} must be CSR, got {chunk.format.upper()}; X = X.map_blocks(scipy.sparse.csr_array)")
    indptr = chunk.indptr
    if len(indptr) != chunk.shape[0] + 1 or indptr[0] != 0 or np.any(indptr[1:] < indptr[:-1]):
        raise ValueError(f"{name}: indptr must have {chunk.shape[0] + 1} entries that start at 0 and never decrease")
    used = int(indptr[-1])
    if used > min(len(chunk.indices), len(chunk.data)):
        raise ValueError(f"{name}: indptr ends at {used}, there are {len(chunk.indices)} indices")
    data, indices = in_order(chunk.data[:used]), in_order(chunk.indices[:used])
    X = csr_array((data, indices, in_order(indptr)), shape=chunk.shape, copy=False)
    return X if inspected(X, 1)[1] else X.copy()  # unsorted rows are sorted in place


def block_operator(chunk: Any, own: Own, shared: Shared) -> Operator:
    X, shift = _checked(chunk, own, shared), None
    if own.left is not None:
        left = np.broadcast_to(in_order(own.left), (X.shape[0], own.left.shape[1]))
        shift = LowRank(left, in_order(shared.right))
    return rows_operator(X, shift, shared.full, _name(own, shared), 0, ROOM)


def part_of(own: Own, chunk: Any, shared: Shared) -> Any:
    if shared.what == "chunk":
        return chunk
    with unheard(), threads(1):
        A = block_operator(chunk, own, shared)
        return block_part(shared.what, A, *map(in_order, shared.panels), *map(in_order, own.panels))


def rows_of(chunk: Any, estimator: Any, method: str, columns: int) -> Panel:
    if not chunk.shape[0]:
        return np.empty((0, columns), native_dtype(chunk.dtype))
    with unheard(), threads(1):
        return np.asarray(getattr(estimator, method)(chunk))


def merged_here(merge: Callable[[Any, Any], Any], parts: list[Any]) -> Any:
    with threads(1):
        return reduce(merge, parts)


@unwarned
def added(a: Panel, b: Panel) -> Panel:
    return np.add(a, b, dtype=wide(a))


def wide(part: Panel) -> np.dtype[Any]:
    return part.dtype if part.dtype.kind in "iu" else np.result_type(part, np.float64)


def _bytes_of(X: Any) -> int:
    return sum(sizeof(part) for part in vars(X).values())


sizeof.register(sparray, _bytes_of)
