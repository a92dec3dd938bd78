"""Zarr folders: an array, a CSR or CSC group, or AnnData."""

from pathlib import Path

from shiftsvd.io.base import Opened, reading
from shiftsvd.io.formats.anndata_file import element, is_anndata
from shiftsvd.io.storage.folder import open_zarr
from shiftsvd.io.storage.tree import Tree, is_array, is_sparse


def read(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    with reading(path):
        tree = Tree(path, open_zarr(path, memory_limit), memory_limit)
        if is_anndata(tree.root):
            return element(tree, key)
        itself = is_array(tree.root) or is_sparse(tree.root)
        source, by_columns = tree.matrix(key if key is not None else "" if itself else tree.only_matrix())
        return Opened(source, transposed=by_columns)
