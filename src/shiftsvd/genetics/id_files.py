"""Files that name samples and variants, as PLINK reads them: --keep, --remove, --extract, --exclude, and ranges."""

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Final

import numpy as np

from shiftsvd.genetics.alleles import Samples
from shiftsvd.genetics.chromosomes import Mask
from shiftsvd.genetics.regions import Region
from shiftsvd.io.base import Labels, reading
from shiftsvd.io.limits import bounded_lines, open_bytes

Listed = str | PathLike[str] | Sequence[str] | Sequence[tuple[str, str]]  # a file, or what would stand in it
_HEADS: Final = ("FID", "IID", "SID")


def listed_variants(given: Listed, names: Labels) -> tuple[Mask, int]:
    wanted = {word for row in _rows(given) for word in row}
    mask = np.isin(names, np.array(sorted(wanted) or [""]))
    return mask, len(wanted - set(names[mask].tolist()))


def listed_samples(given: Listed, samples: Samples) -> tuple[Mask, int]:
    rows = [tuple(row) for row in _rows(given)]
    if rows and rows[0][0].startswith("#"):
        rows = _by_head(given, rows)
    pairs = {row[:2] for row in rows if len(row) > 1}
    alone = {row[0] for row in rows if len(row) == 1}
    _refuse_ambiguous(given, alone, samples)
    there = list(zip(samples.families.tolist(), samples.names.tolist(), strict=True))
    mask = np.array([pair in pairs or pair[1] in alone for pair in there], bool)
    return mask, len(pairs - set(there)) + len(alone - {name for _, name in there})


def listed_regions(path: str | PathLike[str]) -> list[Region]:
    regions = []
    for number, row in enumerate(_rows(path), 1):
        if row[0].startswith("#"):
            continue
        try:
            first, last = int(row[1]), int(row[2])
        except (IndexError, ValueError):
            raise ValueError(
                f"{path} must have a chromosome, a first and a last position in each line, got {' '.join(row[:4])!r} "
                f"in line {number}"
            ) from None
        if last < first:
            raise ValueError(f"{path} must have ranges that end behind their first position, got line {number}")
        regions.append(Region(row[0], first, last))
    return regions


def _rows(given: Listed) -> Iterator[list[str]]:
    if not isinstance(given, str | PathLike):
        yield from ([each] if isinstance(each, str) else list(each) for each in given)
        return
    path = Path(given)
    with reading(path), open_bytes(path) as stream:
        for line in bounded_lines(path, stream, None):
            if words := line.decode("utf-8-sig").split():
                yield words


def _by_head(given: Listed, rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    head = [word.removeprefix("#") for word in rows[0]]
    if "IID" not in head[:2] or head[0] not in _HEADS:
        raise ValueError(f"{given} must begin with #FID IID or #IID where it has a head, got {' '.join(rows[0][:3])!r}")
    if head[0] == "IID":
        return [row[:1] for row in rows[1:]]
    return [row[:2] for row in rows[1:]]


def _refuse_ambiguous(given: Listed, alone: set[str], samples: Samples) -> None:
    names, counts = np.unique(samples.names, return_counts=True)
    twice = sorted(alone & set(names[counts > 1].tolist()))
    if twice:
        what = given if isinstance(given, str | PathLike) else "the list of samples"
        raise ValueError(f"{what} must give the family before a name that occurs twice, got {twice[0]} alone")
