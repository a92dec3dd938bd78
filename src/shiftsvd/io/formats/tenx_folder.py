"""Folders of 10x Genomics: matrix.mtx with barcodes.tsv and features.tsv (or genes.tsv), each also packed."""

from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from shiftsvd.io.base import Features, Labels, Opened, reading
from shiftsvd.io.formats.market import read_matrix
from shiftsvd.io.limits import bounded_lines, labels, open_bytes
from shiftsvd.names import GENES

_PACKED = ("", ".gz", ".bz2")
MATRIX = "matrix.mtx"
_BARCODES, _FEATURES = ("barcodes.tsv",), ("features.tsv", "genes.tsv")
Fields = list[list[str]]


class Beside(NamedTuple):
    """The files that name the cells and the features of a matrix."""

    barcodes: Path
    features: Path


def read(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    file = _matrix(path, key)
    found = beside(file)
    if found is None:
        prefix = _prefix(file)
        missing = _BARCODES if _first(path, prefix, _BARCODES) is None else _FEATURES
        raise ValueError(f"{path} has no {prefix}{missing[0]} (or .gz) beside its matrix")
    matrix = read_matrix(file, memory_limit)
    return named(matrix, found, memory_limit)


def beside(file: Path) -> Beside | None:
    found = [_first(file.parent, _prefix(file), names) for names in (_BARCODES, _FEATURES)]
    return None if MATRIX not in file.name or None in found else Beside(*found)  # type: ignore[arg-type]


def fits(found: Beside, shape: tuple[int, int], memory_limit: int | str | None) -> bool:
    counts = (len(_fields(file, size, memory_limit)) for file, size in zip(found[::-1], shape, strict=True))
    return all(count == size for count, size in zip(counts, shape, strict=True))


def named(matrix: Any, found: Beside, memory_limit: int | str | None) -> Opened:
    n_features, n_cells = matrix.shape
    barcodes = [row[0] for row in _counted(found.barcodes, n_cells, memory_limit)]
    features = _features(found.features, _counted(found.features, n_features, memory_limit), memory_limit)
    columns = labels(found.barcodes, barcodes, memory_limit)
    by_cells = matrix.tocsc() if hasattr(matrix, "tocsc") else matrix
    return Opened(by_cells, features.labels(), columns, samples="columns", features=features)


def _matrix(path: Path, key: str | None) -> Path:
    with reading(path):
        files = sorted(name for packed in _PACKED for name in path.glob(f"*{MATRIX}{packed}"))
    found = [file for file in files if key is None or _prefix(file) == key]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(file.name for file in files) or "none"
    raise ValueError(f"{path} must have one matrix.mtx (.gz), or key must be the prefix of its name; there: {listed}")


def _prefix(file: Path) -> str:
    return file.name.partition(MATRIX)[0]


def _first(folder: Path, prefix: str, names: tuple[str, ...]) -> Path | None:
    files = (folder / f"{prefix}{name}{packed}" for name in names for packed in _PACKED)
    return next((file for file in files if file.exists()), None)


def _counted(path: Path, count: int, memory_limit: int | str | None) -> Fields:
    fields = _fields(path, count, memory_limit)
    if len(fields) != count:
        got = f"more than {count}" if len(fields) > count else str(len(fields))
        raise ValueError(f"{path} must have {count} lines, as the matrix beside it says; got {got}")
    return fields


def _fields(path: Path, count: int, memory_limit: int | str | None) -> Fields:
    with reading(path), open_bytes(path) as stream:
        lines = islice(bounded_lines(path, stream, memory_limit), count + 1)
        return [line.rstrip(b"\r\n").decode("utf-8").split("\t")[:3] for line in lines]


def _features(path: Path, fields: Fields, memory_limit: int | str | None) -> Features:
    def field(place: int) -> Labels:
        return labels(path, [row[min(place, len(row) - 1)] for row in fields], memory_limit)

    typed = all(len(row) == 3 for row in fields)
    return Features(field(1), field(0), field(2) if typed else None, GENES if typed else None)
