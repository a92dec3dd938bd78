"""Data frames of AnnData copied from one file to another, HDF5 or Zarr to HDF5: columns as they are, or some rows."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from shiftsvd.backends.selection import Places
from shiftsvd.io.base import optional
from shiftsvd.io.storage.anndata_store import mark
from shiftsvd.io.storage.frames import column, column_names
from shiftsvd.io.storage.tree import Tree, is_array

_WHOLE: Final = ("categories", "__categories")  # which have no value for each row
_OF_DIMENSIONS: Final = ("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST")  # which point into the other file
_DEEPEST, _MOST = 2, 20  # groups within each other, of a frame, and parts of one that is a column
_TEXT: Final = 64  # bytes of a text with what a file keeps for it, about


def copy_columns(tree: Tree, frame: str, target: Any, places: Places | None) -> None:
    source = tree.root[frame]
    names = [name for name in column_names(source) if name not in target]
    for name in names:
        if is_array(source) or "__categories" in source:  # as older versions have written them
            _write_older(target, name, column(tree, source, name), places)
        else:
            _copy(tree, source[name], target, name, places)
    target.attrs["column-order"] = np.array(names, optional("h5py", "hdf5").string_dtype()) if names else np.empty(0)


def bytes_of_columns(tree: Tree, frame: str) -> int:
    return sum(_TEXT * int(np.prod(node.shape)) for node in _arrays(tree.root[frame]))


def _arrays(node: Any, depth: int = 0) -> Iterator[Any]:
    if is_array(node):
        yield node
    else:
        for name in _parts(node, depth):
            yield from _arrays(node[name], depth + 1)


def _parts(group: Any, depth: int) -> list[str]:
    names = list(group)
    if depth > _DEEPEST or (depth and len(names) > _MOST):
        raise ValueError(f"{group.name} must be a column, arrays in a group, got {len(names)} parts in level {depth}")
    return names


def _copy(tree: Tree, node: Any, parent: Any, name: str, places: Places | None, depth: int = 1) -> None:
    if is_array(node):
        values = tree.values(node, None) if node.shape else np.asarray(node[()])
        new = _write(parent, name, values if places is None or not node.shape else values[places])
    else:
        new = parent.create_group(name)
        for part in _parts(node, depth):
            _copy(tree, node[part], new, part, None if part in _WHOLE else places, depth + 1)
    for key in node.attrs:
        if key not in _OF_DIMENSIONS:
            new.attrs[key] = node.attrs[key]
    if is_array(node) and node.shape and "encoding-type" not in new.attrs:  # as AnnData 0.7 wrote them
        mark(new, "array" if new.dtype.kind in "fiub" else "string-array", "0.2.0")


def _write(parent: Any, name: str, values: Any) -> Any:
    if values.dtype.kind in "fiubc":
        return parent.create_dataset(name, data=values)
    texts = [value.decode() if isinstance(value, bytes) else str(value) for value in np.ravel(values).tolist()]
    data = np.array(texts, object).reshape(values.shape)
    return parent.create_dataset(name, data=data, dtype=optional("h5py", "hdf5").string_dtype())


def _write_older(target: Any, name: str, values: Any, places: Places | None) -> None:
    values = values if places is None else values[places]
    if values.dtype.kind in "fiub":
        mark(target.create_dataset(name, data=values), "array", "0.2.0")
        return
    texts = [None if value is None else str(value) for value in values.tolist()]
    known = sorted({text for text in texts if text is not None})
    place = {text: code for code, text in enumerate(known)}
    group = mark(target.create_group(name), "categorical", "0.2.0")
    group.attrs["ordered"] = False
    mark(_write(group, "categories", np.array(known, object)), "string-array", "0.2.0")
    codes = np.array([-1 if text is None else place[text] for text in texts], np.int32)
    mark(group.create_dataset("codes", data=codes), "array", "0.2.0")
