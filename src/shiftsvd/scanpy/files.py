"""Read AnnData (.h5ad, Zarr) and 10x Genomics matrices (folders, HDF5)."""

from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from shiftsvd.extend import files as io
from shiftsvd.extend.running import Refused, Setting
from shiftsvd.scanpy.gene_names import IDS, SYMBOLS, features_of_var

GENES: Final = "Gene Expression"  # 10x's feature type of genes
_USED: Final = ("highly_variable", *IDS, *SYMBOLS)
# Data frames with the names of the rows and the columns of each element.
_FRAMES = {
    "X": ("obs", "var"),
    "layers": ("obs", "var"),
    "raw": ("obs", "raw/var"),
    "raw.X": ("obs", "raw.var"),  # layout of AnnData before 0.7
    "obsm": ("obs", None),
    "varm": ("var", None),
    "obsp": ("obs", "obs"),
    "varp": ("var", "var"),
}


def read_anndata(path: Path, key: str | None, memory_limit: int | str | None) -> io.Opened:
    with io.opened_tree(path, memory_limit) as tree:
        return element(tree, key)


def is_anndata(root: Any) -> bool:
    return not io.is_array(root) and (
        io.attribute(root, "encoding-type") == "anndata" or all(key in root for key in ("X", "obs", "var"))
    )


def element(tree: io.Tree, key: str | None) -> io.Opened:
    key = (key or "X").strip("/")
    source, by_columns = tree.matrix(key)
    sizes = source.shape[::-1] if by_columns else source.shape
    frames = frames_of(key)
    rows, columns = (_names(tree, frame, size) for frame, size in zip(frames, sizes, strict=True))
    features = _features_of_var(tree, frames[1], columns)
    columns = columns if features is None else features.labels()
    annotations = {} if None in frames else {str(name): _annotations(tree, str(name)) for name in frames}
    return io.Opened(source, rows, columns, transposed=by_columns, features=features, annotations=annotations)


def _annotations(tree: io.Tree, frame: str) -> list[str]:
    """Return the columns of a data frame, first those that a fit uses unasked."""
    names = io.column_names(tree.root[frame]) if frame in tree.root else []
    return sorted(names, key=lambda name: _USED.index(name) if name in _USED else len(_USED))


def frames_of(key: str | None) -> tuple[str | None, str | None]:
    return _FRAMES.get((key or "X").strip("/").partition("/")[0], (None, None))


def _features_of_var(tree: io.Tree, frame: str | None, names: io.Labels | None) -> io.Features | None:
    node = None if frame is None or frame not in tree.root else tree.root[frame]
    if node is None or names is None:
        return None
    read = partial(io.column, tree, node, length=len(names))
    return features_of_var(tree.path, names, io.column_names(node), read, tree.memory_limit)


def _names(tree: io.Tree, frame: str | None, length: int) -> io.Labels | None:
    if frame is None or frame not in tree.root:
        return None
    node = tree.root[frame]
    if io.is_array(node):  # layout of AnnData before 0.7
        fields = node.dtype.names or ()
        return tree.texts(io.Field(node, next(name for name in ("index", "_index", *fields) if name in fields)), length)
    index = io.attribute(node, "_index") or "_index"
    return tree.texts(node[index], length) if index in node else None


_PACKED = ("", ".gz", ".bz2")
MATRIX = "matrix.mtx"
_BARCODES, _FEATURES = ("barcodes.tsv",), ("features.tsv", "genes.tsv")
Fields = list[list[str]]


class NameFiles(NamedTuple):
    """The files with the names of cells and features in the folder of a matrix."""

    barcodes: Path
    features: Path


def read_tenx_folder(path: Path, key: str | None, memory_limit: int | str | None) -> io.Opened:
    file = _matrix(path, key)
    found = name_files(file)
    if found is None:
        prefix = _prefix(file)
        missing = _BARCODES if _first_existing(path, prefix, _BARCODES) is None else _FEATURES
        raise ValueError(f"{path} has no {prefix}{missing[0]} (or .gz), which must be in the folder of the matrix")
    matrix = io.read_matrix(file, memory_limit)
    return named(matrix, found, memory_limit)


def name_files(file: Path) -> NameFiles | None:
    found = [_first_existing(file.parent, _prefix(file), names) for names in (_BARCODES, _FEATURES)]
    return None if MATRIX not in file.name or None in found else NameFiles(*found)  # type: ignore[arg-type]


def fits(found: NameFiles, shape: tuple[int, int], memory_limit: int | str | None) -> bool:
    return all(len(_fields(file, size, memory_limit)) == size for file, size in zip(found[::-1], shape, strict=True))


def named(matrix: Any, found: NameFiles, memory_limit: int | str | None) -> io.Opened:
    n_features, n_cells = matrix.shape
    barcodes = [row[0] for row in _lines_of(found.barcodes, n_cells, memory_limit)]
    features = _features_of_lines(found.features, _lines_of(found.features, n_features, memory_limit), memory_limit)
    columns = io.labels(found.barcodes, barcodes, memory_limit)
    by_cells = matrix.tocsc() if hasattr(matrix, "tocsc") else matrix
    return io.Opened(by_cells, features.labels(), columns, samples="columns", features=features)


def tenx_features(path: Path, key: str | None, memory_limit: int | str | None) -> io.Features | None:
    """Read the features of a 10x folder, or of a matrix in it, without its matrix."""
    found = name_files(_matrix(path, key) if path.is_dir() else path)
    if found is None:
        return None
    with io.reading(found.features), io.open_bytes(found.features) as stream:
        count = sum(1 for _ in io.bounded_lines(found.features, stream, memory_limit, kept=False))
    return _features_of_lines(found.features, _lines_of(found.features, count, memory_limit), memory_limit)


def _matrix(path: Path, key: str | None) -> Path:
    with io.reading(path):
        files = sorted(name for packed in _PACKED for name in path.glob(f"*{MATRIX}{packed}"))
    found = [file for file in files if key is None or _prefix(file) == key]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(file.name for file in files) or "none"
    few = f"{path} must have one matrix.mtx (.gz), got {listed}. To choose a file, pass the prefix of its name as "
    raise Refused(few, Setting("key"), ".")


def _prefix(file: Path) -> str:
    return file.name.partition(MATRIX)[0]


def _first_existing(folder: Path, prefix: str, names: tuple[str, ...]) -> Path | None:
    files = (folder / f"{prefix}{name}{packed}" for name in names for packed in _PACKED)
    return next((file for file in files if file.exists()), None)


def _lines_of(path: Path, count: int, memory_limit: int | str | None) -> Fields:
    fields = _fields(path, count, memory_limit)
    if len(fields) != count:
        got = f"more than {count:,}" if len(fields) > count else f"{len(fields):,}"
        raise ValueError(
            f"{path} must have {count:,} lines, the dimension of the matrix in its folder, got {got}. Copy both again."
        )
    return fields


def _fields(path: Path, count: int, memory_limit: int | str | None) -> Fields:
    with io.reading(path), io.open_bytes(path) as stream:
        lines = islice(io.bounded_lines(path, stream, memory_limit), count + 1)
        return [line.rstrip(b"\r\n").decode("utf-8").split("\t")[:3] for line in lines]


def _features_of_lines(path: Path, fields: Fields, memory_limit: int | str | None) -> io.Features:
    def field(place: int) -> io.Labels:
        return io.labels(path, [row[min(place, len(row) - 1)] for row in fields], memory_limit)

    typed = all(len(row) == 3 for row in fields)
    names = field(1)
    if all(len(row) == 1 for row in fields):
        return io.Features(names)  # of an unknown kind
    return io.Features(names, field(0), field(2) if typed else None, GENES if typed else None, names)


def read_tenx_h5(path: Path, key: str | None, memory_limit: int | str | None) -> io.Opened:
    with io.opened_tree(path, memory_limit) as tree:
        found = genomes(tree.root)
        if key is None and len(found) != 1:
            few = f"{path} must have one 10x matrix, got {', '.join(found) or 'none'}. To choose one, pass its name as "
            raise Refused(few, Setting("key"), ".")
        group = tree.find((key or found[0]).strip("/"))
        if not _is_genome(group):
            raise ValueError(f"{path} has no 10x matrix {key!r}. Its matrices: {', '.join(found) or 'none'}.")
        genes, cells = (int(size) for size in group["shape"][:2])
        parts = {part: tree.lazy(group[part]) for part in ("data", "indices", "indptr")}
        source = io.csr_rows(parts, (cells, genes), path, group.name.strip("/"), memory_limit, conjugate=True)
        features, barcodes = _features_of_group(tree, group, genes), tree.texts(group["barcodes"], cells)
        return io.Opened(source, features.labels(), barcodes, "columns", transposed=True, features=features)


def genomes(root: Any) -> list[str]:
    return [name for name in root if _is_genome(root.get(name))]


def _is_genome(node: Any) -> bool:
    return node is not None and not io.is_array(node) and io.is_sparse(node) and "barcodes" in node and "shape" in node


def _features_of_group(tree: io.Tree, group: Any, length: int) -> io.Features:
    if "features" not in group:
        names, ids = (tree.texts(group[part], length) for part in ("gene_names", "genes"))
        return io.Features(names, ids, symbols=names)
    names, ids = (tree.texts(group[f"features/{part}"], length) for part in ("name", "id"))
    kinds = group["features"].get("feature_type")
    types = None if kinds is None else tree.texts(kinds, length)
    return io.Features(names, ids, types, GENES, names)


_CELLRANGER = ("metadata_json", "software_version")  # words in the comments that CellRanger writes


def is_tenx_folder(path: Path) -> bool:
    return any(path.glob(f"*{MATRIX}*"))


def with_tenx_names(path: Path, matrix: Any, memory_limit: int | str | None) -> io.Opened | None:
    # Names and orientation of a MatrixMarket file come from 10x files in its folder, or from CellRanger's comments.
    m, n = matrix.shape
    samples = f"{io.PIPED if path.name == io.PIPED else path}: using the {n:,} columns as samples, because of "
    rows = ". To use the rows, pass ", Setting("orient", "rows"), "."
    found = name_files(path)
    if found is not None and fits(found, (m, n), memory_limit):
        why = samples, "the 10x files in its folder", *rows
        return replace(named(matrix, found, memory_limit), unsaid=why)
    if found is not None and fits(found, (n, m), memory_limit):
        turned = named(matrix.T, found, memory_limit)
        return replace(turned, matrix=matrix, rows=turned.columns, columns=turned.rows, samples="rows")
    if all(word in io.comments(path) for word in _CELLRANGER):
        return io.Opened(matrix, samples="columns", unsaid=(samples, "CellRanger's comments in the file", *rows))
    return io.Opened(matrix, unsaid=io.unsaid(path, m)) if MATRIX in path.name else None
