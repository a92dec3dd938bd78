"""The matrix of an AnnData object as an operator, wherever it lies: in memory, in a view, in a backed file."""

from pathlib import Path
from typing import Any

import numpy as np

from shiftsvd.backends import as_operator
from shiftsvd.backends.disk import DiskRows
from shiftsvd.backends.memory import limit_of
from shiftsvd.integrations.selection import Places, SomeColumns, SomeRows
from shiftsvd.io.opening import held_bytes, read_file
from shiftsvd.kernels import default_threads
from shiftsvd.operators import Operator


def is_annotated(data: Any) -> bool:
    """Whether this is an AnnData object, without importing anndata."""
    return all(hasattr(data, name) for name in ("obsm", "varm", "uns", "var_names"))


def matrix_of(
    adata: Any,
    layer: str | None,
    columns: Places | None,
    n_threads: int | None,
    memory_limit: int | str | None,
) -> Operator:
    """Cells x genes; of the genes those at the places `columns`, which ascend."""
    if adata.isbacked and layer is None:
        return _backed(adata, columns, n_threads, memory_limit)
    if layer is not None and layer not in adata.layers:
        raise ValueError(f"layer must be one of {list(adata.layers)}, got {layer!r}")
    X = adata.X if layer is None else adata.layers[layer]
    if X is None:
        raise ValueError("this AnnData object has no X; name a layer or an obsm")
    return as_operator(X if columns is None else X[:, columns], n_threads=n_threads, memory_limit=memory_limit)


def _backed(adata: Any, columns: Places | None, n_threads: int | None, memory_limit: int | str | None) -> Operator:
    """X in its file, or in memory where it takes up to half of the memory limit."""
    if adata.is_view:
        raise ValueError("a view of a backed AnnData object cannot be written to; call .to_memory() of it first")
    opened = read_file(Path(adata.filename), "h5ad", "X", memory_limit)
    source = opened.matrix
    if columns is not None:
        source = SomeRows(source, columns) if opened.transposed else SomeColumns(source, columns)
    limit = limit_of(memory_limit)
    if limit is not None and held_bytes(source) > limit // 2:
        A: Operator = DiskRows(source, n_threads=n_threads or default_threads(), memory_limit=memory_limit)
    else:
        A = as_operator(source.read(0, source.shape[0]), n_threads=n_threads, memory_limit=memory_limit)
    return A.H if opened.transposed else A


def mask_of(adata: Any, mask: Any) -> Places:
    """The places of the genes in a mask, which is a column of `var` or an array."""
    if isinstance(mask, str):
        if mask not in adata.var:
            raise ValueError(f"mask_var must be a column of var or an array, got {mask!r}; var has {list(adata.var)}")
        mask = adata.var[mask]
    return places_of(mask, adata.n_vars)


def places_of(mask: Any, n_vars: int) -> Places:
    """Where a mask is true."""
    mask = np.asarray(mask)
    if mask.dtype != bool or mask.shape != (n_vars,):
        raise ValueError(f"mask_var must be {n_vars} booleans, got {mask.dtype} of shape {mask.shape}")
    if not mask.any():
        raise ValueError("mask_var must be true for a gene at least; give mask_var=None to take them all")
    return np.flatnonzero(mask)
