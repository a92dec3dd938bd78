"""MatrixMarket files: a matrix whose samples are the rows, unless an extension knows better by what lies beside it."""

from pathlib import Path

from shiftsvd.errors import Part, Refused, Setting
from shiftsvd.extend import extensions
from shiftsvd.io.base import PIPED, Opened
from shiftsvd.io.formats.market import read_matrix
from shiftsvd.names import resolve


def read(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    if key is not None:
        raise Refused(f"{path} holds one matrix without a name, so ", Setting("key"), f" must be None, got {key!r}")
    matrix = read_matrix(path, memory_limit)
    places = [each.beside for each in extensions() if each.beside is not None]
    found = (resolve(place)(path, matrix, memory_limit) for place in places)
    plain = Opened(matrix, unsaid=unsaid(path, matrix.shape[0])) if path.name == PIPED else Opened(matrix)
    return next((opened for opened in found if opened is not None), plain)


def unsaid(path: Path, m: int) -> tuple[Part, ...]:
    told = PIPED if path.name == PIPED else str(path)
    taken = f"{told} does not say where its samples are: its {m} rows are taken; "
    return taken, Setting("orient", "columns"), " if cells are columns, as in matrices of 10x"
