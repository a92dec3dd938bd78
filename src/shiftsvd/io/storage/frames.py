"""Columns of the data frames of AnnData, in HDF5 or Zarr, as every version has written them: numbers, truths, texts."""

from typing import Any

import numpy as np
import numpy.typing as npt

from shiftsvd.io.storage.tree import Tree, is_array

Column = npt.NDArray[Any]  # floats or integers, truth values, or objects: texts, and None for what is missing


def column_names(frame: Any) -> list[str]:
    if is_array(frame):  # before AnnData 0.7
        return [name for name in frame.dtype.names or () if name not in ("index", "_index")]
    index = frame.attrs.get("_index", "_index")
    there = [name for name in frame if name != index and not name.startswith("__")]
    told = [name.decode() if isinstance(name, bytes) else str(name) for name in frame.attrs.get("column-order", ())]
    return [*(name for name in told if name in there), *(name for name in there if name not in told)]


def column(tree: Tree, frame: Any, name: str, length: int | None = None) -> Column:
    if is_array(frame):
        return _with_categories(tree, np.asarray(frame[name]), tree.root.get(f"uns/{name}_categories"), length)
    node = frame[name]
    if is_array(node):
        older = frame.get("__categories")  # before AnnData 0.8
        categories = None if older is None or name not in older else older[name]
        return _with_categories(tree, tree.values(node, length), categories, length)
    if "codes" in node:
        return _with_categories(tree, tree.values(node["codes"], length), node["categories"], length)
    values = tree.values(node["values"], length)
    return _without(values, tree.values(node["mask"], length).astype(bool)) if "mask" in node else _plain(values)


def _with_categories(tree: Tree, codes: Column, categories: Any, length: int | None) -> Column:
    if length is not None and len(codes) != length:
        raise ValueError(f"{tree.path} must have {length} values in every column of a frame, got {len(codes)}")
    if categories is None:
        return _plain(codes)
    known = _plain(tree.values(categories, None)).astype(object)
    if codes.dtype.kind not in "iu" or codes.max(initial=-1) >= len(known) or codes.min(initial=0) < -1:
        raise ValueError(f"{tree.path}: codes of categories must be in -1..{len(known) - 1}; the file is damaged")
    return _without(known[np.maximum(codes, 0)] if len(known) else np.full(len(codes), None), codes < 0)


def _without(values: Column, gaps: Column) -> Column:
    if not gaps.any():
        return _plain(values)
    kind = np.float64 if values.dtype.kind in "iuf" else object
    values = _plain(values).astype(kind)
    values[gaps] = np.nan if kind is np.float64 else None
    return values


def _plain(values: Column) -> Column:
    if values.dtype.kind in "fiub":
        return values
    texts = [value.decode() if isinstance(value, bytes) else value for value in values.tolist()]
    plain = np.empty(len(texts), object)
    plain[:] = texts
    return plain
