"""Folders of 10x Genomics: matrix.mtx with barcodes.tsv and features.tsv (or genes.tsv), each also packed."""

from pathlib import Path

from shiftsvd.io.base import Labels, Opened, reading
from shiftsvd.io.formats.mtx import read_matrix
from shiftsvd.io.limits import bounded_lines, labels, open_bytes

_PACKED = ("", ".gz", ".bz2")


def read(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    """The matrix of genes x cells, its samples the columns; `key` is a prefix of the files' names, if they have one."""
    file = _matrix(path, key)
    prefix = file.name.partition("matrix.mtx")[0]
    barcodes, features = _find(path, prefix, "barcodes.tsv"), _find(path, prefix, "features.tsv", "genes.tsv")
    matrix = read_matrix(file, memory_limit)
    rows = _feature_names(features, matrix.shape[0], memory_limit)
    columns = labels(barcodes, [row[0] for row in _fields(barcodes, matrix.shape[1], memory_limit)], memory_limit)
    return Opened(matrix.tocsc() if hasattr(matrix, "tocsc") else matrix, rows, columns, samples="columns")


def _matrix(path: Path, key: str | None) -> Path:
    """The file of the matrix."""
    with reading(path):
        files = sorted(name for packed in _PACKED for name in path.glob(f"*matrix.mtx{packed}"))
    found = [file for file in files if key is None or file.name.partition("matrix.mtx")[0] == key]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(file.name for file in files) or "none"
    raise ValueError(f"{path} must have one matrix.mtx (.gz), or key must be the prefix of its name; there: {listed}")


def _find(path: Path, prefix: str, *names: str) -> Path:
    """The one file of these names."""
    for name in names:
        for packed in _PACKED:
            if (file := path / f"{prefix}{name}{packed}").exists():
                return file
    raise ValueError(f"{path} has no {prefix}{names[0]} (or .gz) beside its matrix")


def _fields(path: Path, count: int, memory_limit: int | str | None) -> list[list[str]]:
    """The first two fields of each line, of which there must be so many."""
    with reading(path), open_bytes(path) as stream:
        fields = []
        for line in bounded_lines(path, stream, memory_limit):
            fields.append(line.rstrip(b"\r\n").decode("utf-8").split("\t")[:2])
            if len(fields) > count:
                break
    if len(fields) != count:
        got = f"more than {count}" if len(fields) > count else str(len(fields))
        raise ValueError(f"{path} must have {count} lines, as the matrix beside it says; got {got}")
    return fields


def _feature_names(path: Path, count: int, memory_limit: int | str | None) -> Labels:
    """Gene names (second field), or the ids (first) where names are missing or used twice."""
    fields = _fields(path, count, memory_limit)
    names = [row[-1] for row in fields]
    return labels(path, names if len(set(names)) == count else [row[0] for row in fields], memory_limit)
