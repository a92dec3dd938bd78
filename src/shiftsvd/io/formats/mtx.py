"""MatrixMarket files: a matrix whose samples are the rows, unless an extension knows better by what lies beside it."""

from pathlib import Path

from shiftsvd.extend import extensions
from shiftsvd.io.base import PIPED, Opened
from shiftsvd.io.formats.market import read_matrix
from shiftsvd.names import resolve


def read(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    if key is not None:
        raise ValueError(f"{path} holds one matrix without a name, so key must be None, got {key!r}")
    matrix = read_matrix(path, memory_limit)
    places = [each.beside for each in extensions() if each.beside is not None]
    found = (resolve(place)(path, matrix, memory_limit) for place in places)
    plain = Opened(matrix, unsaid=unsaid(path, matrix.shape[0])) if path.name == PIPED else Opened(matrix)
    return next((opened for opened in found if opened is not None), plain)


def unsaid(path: Path, m: int) -> str:
    """What those are to know who do not say where the samples are, of a matrix that does not tell."""
    told = PIPED if path.name == PIPED else str(path)
    return (
        f'{told} does not say where its samples are: its {m} rows are taken; orient="columns" if cells are '
        "columns, as in matrices of 10x"
    )
