"""Tables beside a .pgen, whose heads name their columns: .pvar of variants, packed or not, and .psam of samples."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, Final, cast

from shiftsvd.io.base import optional, reading
from shiftsvd.io.formats.plink_rows import rows
from shiftsvd.io.limits import open_bytes

_FIRST: Final = {".pvar": ("#CHROM",), ".zst": ("#CHROM",), ".psam": ("#FID", "#IID")}


def table_of(pgen: Path) -> Path:
    plain, packed = (pgen.with_suffix(suffix) for suffix in (".pvar", ".pvar.zst"))
    return packed if packed.exists() and not plain.exists() else plain


def columns(path: Path, wanted: tuple[str, ...], memory_limit: int | str | None = None) -> dict[str, list[str]]:
    """Some columns of a .pvar or .psam by their names; names that it does not have are left out.

    Raises
    ------
    ValueError, OSError
        If there is no head, or a line is shorter than it.
    """
    head: list[str] = []
    found: dict[str, list[str]] = {}
    with reading(path), _open(path) as stream:
        for number, row in rows(path, stream, memory_limit):
            if row[0].startswith("##"):
                continue
            if not head:
                head = _head(path, row)
                found = {name: [] for name in wanted if name in head}
            elif len(row) < len(head):
                raise ValueError(f"{path} must have {len(head)} fields in each line, got {len(row)} in line {number}")
            else:
                for name, column in found.items():
                    column.append(row[head.index(name)])
    return found


def _open(path: Path) -> AbstractContextManager[IO[bytes]]:
    return _unpacked(path) if path.suffix.lower() == ".zst" else open_bytes(path)


@contextmanager
def _unpacked(path: Path) -> Iterator[IO[bytes]]:
    zstandard = optional("zstandard", "pgen")
    try:
        with path.open("rb") as packed:
            stream = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
            yield cast("IO[bytes]", BufferedReader(stream))
    except zstandard.ZstdError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def _head(path: Path, row: list[str]) -> list[str]:
    first = _FIRST[path.suffix.lower()]
    if not row or row[0] not in first:
        raise ValueError(
            f"{path} must begin with {' or '.join(first)}, got {' '.join(row[:2])!r}; write it with plink2 --make-pgen"
        )
    return [row[0].removeprefix("#"), *row[1:]]
