"""Matrices in files on a cluster: each task reads its own rows from the path, wherever it runs."""

from typing import Any
from uuid import uuid4

import dask.array as da
import numpy as np
from scipy.sparse import csr_array

from shiftsvd.backends.blocked import Rows
from shiftsvd.backends.dask.rows import DaskRows
from shiftsvd.backends.disk import DiskRows
from shiftsvd.backends.source import RowSource
from shiftsvd.operators import Adjoint, Operator


def on_workers(A: Operator) -> Operator:
    """A matrix that stays in its file, or the adjoint of one, with its blocks read and multiplied by Dask's workers.

    The blocks are the same as without: they depend on the file and the memory limit alone. Nothing is read here.
    """
    if isinstance(A, Adjoint):
        return on_workers(A.H).H
    if not isinstance(A, DiskRows):
        raise TypeError(f"a matrix that stays in its file is needed, got {type(A).__name__}; open it with stream=True")
    source, blocks = A.source, A.blocks()
    known = {
        "stored": source.stored,
        "name": source.name,
        "fingerprint": f"{source.fingerprint} {source.shape} {blocks}",
    }
    return DaskRows(_array(source, blocks), A.shift, A.memory_limit, known)


def _array(source: RowSource, blocks: list[Rows]) -> Any:
    name = f"shiftsvd-file-{uuid4().hex}"
    graph: dict[Any, Any] = {f"{name}-source": source}
    graph |= {(name, i, 0): (_rows, f"{name}-source", *rows) for i, rows in enumerate(blocks)}
    chunks = tuple(hi - lo for lo, hi in blocks), (source.shape[1],)
    kind = csr_array if source.sparse else np.empty
    return da.Array(graph, name, chunks, meta=kind((0, 0), dtype=source.dtype))


def _rows(source: RowSource, lo: int, hi: int) -> Any:
    return source.read(lo, hi)
