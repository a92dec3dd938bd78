"""The matrix of an AnnData object as an operator, wherever it lies: in memory, in a view, in a backed file."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from shiftsvd.backends import as_operator, is_lazy
from shiftsvd.backends.selection import Places, SomeColumns, SomeRows
from shiftsvd.backends.validation import from_frame, is_frame, numeric_array, sound_places
from shiftsvd.io.opening import held_or_streamed, read_file
from shiftsvd.numerics.panels import unmasked
from shiftsvd.operators import Operator
from shiftsvd.runs.memory import Resources
from shiftsvd.runs.warned import notice

Mask = npt.NDArray[np.bool_]


def is_annotated(data: Any) -> bool:
    return all(hasattr(data, name) for name in ("obsm", "varm", "uns", "var_names"))


def matrix_of(adata: Any, layer: str | None, columns: Places | None, resources: Resources) -> Operator:
    if adata.isbacked and layer is None:
        return _backed(adata, columns, resources)
    if layer is not None and layer not in adata.layers:
        raise ValueError(f"layer must be one of {list(adata.layers)}, got {layer!r}")
    X = adata.X if layer is None else adata.layers[layer]
    if X is None:
        raise ValueError("this AnnData object has no X; name a layer or an obsm")
    return as_operator(X if columns is None else indexable(X)[:, columns], **vars(resources))


def logged(adata: Any, layer: str | None) -> bool:
    return layer is None and "log1p" in adata.uns


def _backed(adata: Any, columns: Places | None, resources: Resources) -> Operator:
    if adata.is_view:
        raise ValueError("a view of a backed AnnData object cannot be written to; call .to_memory() of it first")
    opened = read_file(Path(adata.filename), "h5ad", "X", resources.memory_limit)
    source = opened.matrix
    if columns is not None:
        source = SomeRows(source, columns) if opened.transposed else SomeColumns(source, columns)
    A = as_operator(held_or_streamed(source, resources), **vars(resources))
    return A.H if opened.transposed else A


def indexable(X: Any) -> Any:
    X = from_frame(X) if is_frame(X) else X
    if hasattr(X, "matmat"):
        raise TypeError(f"mask_var must be left out for an operator, which has no columns to choose; got {X!r}")
    if getattr(X, "format", None) in ("coo", "dia", "bsr"):
        sound_places(X)
        X = X.tocsr()
    return X if issparse(X) or is_lazy(X) else numeric_array(X)


def mask_of(adata: Any, mask: Any) -> Mask:
    if not isinstance(mask, str):
        return booleans(_in_order(mask, adata.var_names), adata.n_vars)
    if mask not in adata.var:
        raise ValueError(f"mask_var must be a column of var or an array, got {mask!r}; var has {list(adata.var)}")
    return booleans(adata.var[mask], adata.n_vars, f"the column {mask!r} of var")


def _in_order(mask: Any, genes: Any) -> Any:
    if not hasattr(mask, "reindex") or len(mask) != len(genes) or not (mask.index.is_unique and genes.is_unique):
        return mask
    places = mask.index.get_indexer(genes)
    return mask if (places < 0).any() else mask.iloc[places]


def booleans(mask: Any, n_vars: int, told: str = "it") -> Mask:
    values = np.array(unmasked("mask_var", mask, "fill them with True or False"))
    if values.dtype == object:
        values = _from_objects(values, told)
    if values.dtype != bool or values.shape != (n_vars,):
        raise ValueError(f"mask_var must be {n_vars} booleans, got {values.dtype} of shape {values.shape}")
    if not values.any():
        raise ValueError("mask_var must be true for a gene at least; give mask_var=None to take them all")
    return values


def _from_objects(values: Any, told: str) -> Any:
    if gaps := sum(x is None or type(x).__name__ == "NAType" or x != x for x in values.flat):
        raise ValueError(
            f"mask_var must be true or false for every gene, but {told} misses {gaps} of {values.size}; "
            "use .fillna(False).astype(bool), or mask_var=None to take them all"
        )
    return values.astype(bool) if all(isinstance(x, bool | np.bool_) for x in values.flat) else values


def places_of(adata: Any, names: Any, of: str, max_absent: float) -> Places:
    if not 0 <= max_absent < 1:
        raise ValueError(f"max_absent must be a share of the genes, at least 0 and below 1, got {max_absent!r}")
    for whose, known in (("the new cells", adata.var_names), ("the reference", names)):
        if not known.is_unique:
            twice = known[known.duplicated()][0]
            raise ValueError(
                f"the names of the genes of {whose} must be unique, got {twice!r} twice; "
                "call .var_names_make_unique() first"
            )
    places: Places = adata.var_names.get_indexer(names)
    absent = names[places < 0]
    few = f"{', '.join(map(str, absent[:5]))}{', ...' if len(absent) > 5 else ''}"
    if len(absent) > max_absent * len(names):
        raise ValueError(
            f"the new cells must have all {len(names)} genes {of}, {len(absent)} are missing: {few}; "
            f"max_absent={max_absent:g} is the share of them that may be"
        )
    if len(absent):
        notice(f"{len(absent)} of {len(names)} genes {of} are absent from the new cells, and unobserved: {few}")
    return places
