"""MatrixMarket files: a matrix whose samples are the rows, unless what lies beside it or its comments say 10x."""

from dataclasses import replace
from pathlib import Path

from shiftsvd.errors import Part, Refused, Setting
from shiftsvd.io.base import PIPED, Opened
from shiftsvd.io.formats.market import comments, read_matrix
from shiftsvd.scanpy.files import MATRIX, beside, fits, named

_TENX = ("metadata_json", "software_version")  # in the comments that CellRanger writes


def read(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    if key is not None:
        raise Refused(f"{path} holds one matrix without a name, so ", Setting("key"), f" must be None, got {key!r}")
    matrix = read_matrix(path, memory_limit)
    m, n = matrix.shape
    found = beside(path)
    if found is not None and fits(found, (m, n), memory_limit):
        opened = named(matrix, found, memory_limit)
        return replace(opened, unsaid=_columns(path, n, "the files of 10x beside it"))
    if found is not None and fits(found, (n, m), memory_limit):
        turned = named(matrix.T, found, memory_limit)
        return replace(turned, matrix=matrix, rows=turned.columns, columns=turned.rows, samples="rows")
    text = comments(path)
    if all(word in text for word in _TENX):
        return Opened(matrix, samples="columns", unsaid=_columns(path, n, "its comments, which are those of 10x"))
    if path.name == PIPED or MATRIX in path.name:
        return Opened(matrix, unsaid=_rows(path, m))
    return Opened(matrix)


def _told(path: Path) -> str:
    return PIPED if path.name == PIPED else str(path)


def _columns(path: Path, n: int, source: str) -> tuple[Part, ...]:
    samples = f"{_told(path)}: the samples are its {n} columns ("
    return samples, Setting("orient", "rows"), f" for its rows), by {source}"


def _rows(path: Path, m: int) -> tuple[Part, ...]:
    unsaid = f"{_told(path)} does not say where its samples are: its {m} rows are taken; "
    return unsaid, Setting("orient", "columns"), " if cells are columns, as in matrices of 10x"
