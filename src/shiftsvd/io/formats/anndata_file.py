"""AnnData files, in HDF5 (.h5ad) or Zarr: X, layers and raw, with the names of observations and variables."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shiftsvd.io.base import Features, Labels, Opened, reading
from shiftsvd.io.limits import labels
from shiftsvd.io.storage.folder import open_zarr
from shiftsvd.io.storage.frames import column, column_names
from shiftsvd.io.storage.h5_array import open_hdf5
from shiftsvd.io.storage.tree import Tree, attribute, is_array

TYPES = "feature_types"  # the column of var that says of which type each variable is
# Which frames name the rows and the columns of an element.
_NAMED_BY = {
    "X": ("obs", "var"),
    "layers": ("obs", "var"),
    "raw": ("obs", "raw/var"),
    "obsm": ("obs", None),
    "varm": ("var", None),
    "obsp": ("obs", "obs"),
    "varp": ("var", "var"),
}


def read(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    with opened_tree(path, memory_limit) as tree:
        return element(tree, key)


@contextmanager
def opened_tree(path: Path, memory_limit: int | str | None) -> Iterator[Tree]:
    with reading(path):
        if path.is_dir():
            yield Tree(path, open_zarr(path, memory_limit), memory_limit)
        else:
            with open_hdf5(path) as root:
                yield Tree(path, root, memory_limit)


def is_anndata(root: Any) -> bool:
    return not is_array(root) and (
        attribute(root, "encoding-type") == "anndata" or all(key in root for key in ("X", "obs", "var"))
    )


def element(tree: Tree, key: str | None) -> Opened:
    key = (key or "X").strip("/")
    source, by_columns = tree.matrix(key)
    sizes = source.shape[::-1] if by_columns else source.shape
    frames = frames_of(key)
    rows, columns = (_names(tree, frame, size) for frame, size in zip(frames, sizes, strict=True))
    features = _features(tree, frames[1], columns)
    return Opened(source, rows, columns, transposed=by_columns, features=features)


def frames_of(key: str | None) -> tuple[str | None, str | None]:
    return _NAMED_BY.get((key or "X").strip("/").partition("/")[0], (None, None))


def _features(tree: Tree, frame: str | None, names: Labels | None) -> Features | None:
    node = None if frame is None or frame not in tree.root else tree.root[frame]
    if node is None or names is None or TYPES not in column_names(node):
        return None
    types = [str(kind) for kind in column(tree, node, TYPES, len(names))]
    return Features(names, None, labels(tree.path, types, tree.memory_limit))


def _names(tree: Tree, frame: str | None, length: int) -> Labels | None:
    if frame is None or frame not in tree.root:
        return None
    node = tree.root[frame]
    if is_array(node):  # as AnnData wrote frames before 0.7
        field = next(
            name for name in ("index", "_index", *(node.dtype.names or ())) if name in (node.dtype.names or ())
        )
        return tree.texts(_Field(node, field), length)
    index = attribute(node, "_index") or "_index"
    return tree.texts(node[index], length) if index in node else None


class _Field:
    """One field of a table."""

    def __init__(self, table: Any, field: str) -> None:
        self._table, self._field = table, field
        self.name, self.shape, self.chunks, self.dtype = table.name, table.shape, table.chunks, table.dtype

    def __getitem__(self, rows: Any) -> Any:
        return self._table[self._field][rows]
