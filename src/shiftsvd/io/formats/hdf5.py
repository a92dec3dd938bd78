"""HDF5 and Zarr: a two-dimensional dataset, or a CSR or CSC group."""

from pathlib import Path
from typing import Any, cast

from shiftsvd.io.base import Labels, Opened, optional
from shiftsvd.io.sniff import claimed, formats
from shiftsvd.io.storage.tree import Tree, is_array, is_sparse, opened_tree
from shiftsvd.names import resolve


def read_hdf5(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    with opened_tree(path, memory_limit) as tree:
        key = (key or tree.only_matrix()).strip("/")
        source, by_columns = tree.matrix(key)
        sizes = source.shape[::-1] if by_columns else source.shape
        rows, columns = (_scale(tree, tree.root[key], axis, size) for axis, size in enumerate(sizes))
        return Opened(source, rows, columns, transposed=by_columns)


def kind(path: Path) -> str:
    with opened_tree(path, None) as tree:
        return claimed("HDF5", tree.root) or "hdf5"


def _scale(tree: Tree, node: Any, axis: int, size: int) -> Labels | None:
    h5py = optional("h5py", "hdf5")
    if not isinstance(node, h5py.Dataset) or not len(node.dims[axis]):
        return None
    scale = node.dims[axis][0]
    return tree.texts(scale, size) if h5py.check_string_dtype(scale.dtype) else None


def read_zarr(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    with opened_tree(path, memory_limit) as tree:
        for each in formats().values():
            if each.claims and each.element and resolve(each.claims)(tree.root):
                return cast("Opened", resolve(each.element)(tree, key))
        itself = is_array(tree.root) or is_sparse(tree.root)
        source, by_columns = tree.matrix(key if key is not None else "" if itself else tree.only_matrix())
        return Opened(source, transposed=by_columns)
