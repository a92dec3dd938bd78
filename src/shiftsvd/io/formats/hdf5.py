"""HDF5 and Zarr: a two-dimensional dataset, or a CSR or CSC group."""

from pathlib import Path
from typing import Any, cast

from shiftsvd.io.base import Labels, Opened, optional, reading
from shiftsvd.io.sniff import claimed, formats
from shiftsvd.io.storage.hdf5 import open_hdf5
from shiftsvd.io.storage.tree import Tree, is_array, is_sparse, open_zarr
from shiftsvd.names import resolve


def read_hdf5(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    with reading(path), open_hdf5(path) as root:
        tree = Tree(path, root, memory_limit)
        key = (key or tree.only_matrix()).strip("/")
        source, by_columns = tree.matrix(key)
        sizes = source.shape[::-1] if by_columns else source.shape
        rows, columns = (_scale(tree, root[key], axis, size) for axis, size in enumerate(sizes))
        return Opened(source, rows, columns, transposed=by_columns)


def kind(path: Path) -> str:
    with reading(path), open_hdf5(path) as root:
        return claimed("HDF5", root) or "hdf5"


def _scale(tree: Tree, node: Any, axis: int, size: int) -> Labels | None:
    h5py = optional("h5py", "hdf5")
    if not isinstance(node, h5py.Dataset) or not len(node.dims[axis]):
        return None
    scale = node.dims[axis][0]
    return tree.texts(scale, size) if h5py.check_string_dtype(scale.dtype) else None


def read_zarr(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    with reading(path):
        tree = Tree(path, open_zarr(path, memory_limit), memory_limit)
        for each in formats().values():
            if each.claims and each.element and resolve(each.claims)(tree.root):
                return cast("Opened", resolve(each.element)(tree, key))
        itself = is_array(tree.root) or is_sparse(tree.root)
        source, by_columns = tree.matrix(key if key is not None else "" if itself else tree.only_matrix())
        return Opened(source, transposed=by_columns)
