"""MatrixMarket files: a matrix whose samples are the rows, unless what lies beside it or its comments say 10x."""

from dataclasses import replace
from pathlib import Path

from shiftsvd.io.base import PIPED, Opened
from shiftsvd.io.formats.market import comments, read_matrix
from shiftsvd.scanpy.files import MATRIX, beside, fits, named

_TENX = ("metadata_json", "software_version")  # in the comments that CellRanger writes


def read(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    if key is not None:
        raise ValueError(f"{path} holds one matrix without a name, so key must be None, got {key!r}")
    matrix = read_matrix(path, memory_limit)
    m, n = matrix.shape
    found = beside(path)
    if found is not None and fits(found, (m, n), memory_limit):
        opened = named(matrix, found, memory_limit)
        return replace(opened, unsaid=f"{_columns(path, n)} by the files of 10x beside it")
    if found is not None and fits(found, (n, m), memory_limit):
        turned = named(matrix.T, found, memory_limit)
        return replace(turned, matrix=matrix, rows=turned.columns, columns=turned.rows, samples="rows")
    text = comments(path)
    if all(word in text for word in _TENX):
        return Opened(matrix, samples="columns", unsaid=f"{_columns(path, n)} by its comments, which are those of 10x")
    if path.name == PIPED or MATRIX in path.name:
        return Opened(matrix, unsaid=_rows(path, m))
    return Opened(matrix)


def _told(path: Path) -> str:
    return PIPED if path.name == PIPED else str(path)


def _columns(path: Path, n: int) -> str:
    return f'{_told(path)}: the samples are its {n} columns (orient="rows" for its rows),'


def _rows(path: Path, m: int) -> str:
    return (
        f'{_told(path)} does not say where its samples are: its {m} rows are taken; orient="columns" if cells are '
        "columns, as in matrices of 10x"
    )
