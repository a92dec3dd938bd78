"""10x HDF5: genes as rows and cells as columns, in the order of the cells."""

from pathlib import Path
from typing import Any

from shiftsvd.io.base import Features, Opened, reading
from shiftsvd.io.storage.chunked import csr_rows
from shiftsvd.io.storage.h5_array import open_hdf5
from shiftsvd.io.storage.tree import Tree, is_array, is_sparse
from shiftsvd.names import GENES


def read(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    with reading(path), open_hdf5(path) as root:
        tree, found = Tree(path, root, memory_limit), genomes(root)
        if key is None and len(found) != 1:
            raise ValueError(f"{path} must have one matrix of 10x, got {found or 'none'}; choose one by key")
        group = tree.find((key or found[0]).strip("/"))
        if not _is_genome(group):
            raise ValueError(f"{path} has no matrix of 10x at {key!r}, but at {found}")
        genes, cells = (int(size) for size in group["shape"][:2])
        parts = {part: tree.lazy(group[part]) for part in ("data", "indices", "indptr")}
        source = csr_rows(parts, (cells, genes), path, group.name.strip("/"), memory_limit, conjugate=True)
        features, barcodes = _features(tree, group, genes), tree.texts(group["barcodes"], cells)
        return Opened(source, features.labels(), barcodes, "columns", transposed=True, features=features)


def genomes(root: Any) -> list[str]:
    return [name for name in root if _is_genome(root.get(name))]


def _is_genome(node: Any) -> bool:
    return node is not None and not is_array(node) and is_sparse(node) and "barcodes" in node and "shape" in node


def _features(tree: Tree, group: Any, length: int) -> Features:
    if "features" not in group:
        return Features(tree.texts(group["gene_names"], length), tree.texts(group["genes"], length))
    names, ids = (tree.texts(group[f"features/{part}"], length) for part in ("name", "id"))
    kinds = group["features"].get("feature_type")
    types = None if kinds is None else tree.texts(kinds, length)
    return Features(names, ids, types, GENES)
