"""Tables beside a .pgen, whose heads name their columns: .pvar of variants and .psam of samples."""

from pathlib import Path
from typing import Final

from shiftsvd.io.base import reading
from shiftsvd.io.limits import bounded_lines, open_bytes

_FIRST: Final = {".pvar": ("#CHROM",), ".psam": ("#FID", "#IID")}


def columns(path: Path, wanted: tuple[str, ...], memory_limit: int | str | None = None) -> dict[str, list[str]]:
    """Some columns of a .pvar or .psam by their names; names that it does not have are left out.

    Raises
    ------
    ValueError, OSError
        If there is no head, or a line is shorter than it.
    """
    head: list[str] = []
    found: dict[str, list[str]] = {}
    with reading(path), open_bytes(path) as stream:
        for number, line in enumerate(bounded_lines(path, stream, memory_limit), 1):
            if line.startswith(b"##"):
                continue
            row = line.decode("utf-8").split()
            if not head:
                head = _head(path, row)
                found = {name: [] for name in wanted if name in head}
            elif len(row) < len(head):
                raise ValueError(f"{path} must have {len(head)} fields in each line, got {len(row)} in line {number}")
            else:
                for name, column in found.items():
                    column.append(row[head.index(name)])
    return found


def _head(path: Path, row: list[str]) -> list[str]:
    """The names of the columns; tables of PLINK 2 without them are those of PLINK 1."""
    first = _FIRST[path.suffix.lower()]
    if not row or row[0] not in first:
        raise ValueError(
            f"{path} must begin with {' or '.join(first)}, got {' '.join(row[:2])!r}; write it with plink2 --make-pgen"
        )
    return [row[0].removeprefix("#"), *row[1:]]
