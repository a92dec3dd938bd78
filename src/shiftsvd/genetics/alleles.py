"""Who the samples are, what the variants are, and which variants of two files are the same."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from shiftsvd.genetics.chromosomes import plain
from shiftsvd.io.base import Labels, reading
from shiftsvd.io.limits import bounded_lines, labels, open_bytes

Places = npt.NDArray[np.intp]
Alleles = npt.NDArray[np.object_]  # texts: an insertion may be long, and only a few are

_N_FIELDS: Final = 6
_NAMELESS: Final = "."
_UNKNOWN: Final = "0"  # an allele that no sample of the file has


class Samples(NamedTuple):
    """What a .fam says, one entry for each sample."""

    families: Labels
    names: Labels


class Variants(NamedTuple):
    """What a .bim says, one entry for each variant; genotypes count the first allele."""

    chromosomes: Labels
    names: Labels
    positions: Labels
    first: Alleles
    second: Alleles


@dataclass(frozen=True, eq=False)
class Alignment:
    """Variants in common: their places here and there (which ascend), and whether the alleles are swapped there."""

    here: Places
    there: Places
    swapped: npt.NDArray[np.bool_]
    n_absent: int = 0
    n_mismatched: int = 0

    def part(self, lo: int, hi: int) -> Self:
        """Some of them."""
        return type(self)(self.here[lo:hi], self.there[lo:hi], self.swapped[lo:hi])


def read_samples(path: Path) -> Samples:
    """The .fam file."""
    rows = _fields(path, (0, 1))
    return Samples(*(labels(path, column, None) for column in rows))


def read_variants(path: Path) -> Variants:
    """The .bim file."""
    *told, first, second = _fields(path, (0, 1, 3, 4, 5))
    chromosomes, names, positions = (labels(path, column, None) for column in told)
    return Variants(chromosomes, names, positions, np.array(first, object), np.array(second, object))


def read_chromosomes(path: Path) -> Labels:
    """The first column of a .bim file."""
    return labels(path, _fields(path, (0,))[0], None)


def aligned(known: Variants, used: npt.NDArray[np.bool_], new: Variants) -> Alignment:
    """Where the used variants are among the new ones."""
    here = np.flatnonzero(used)
    keys = _keys(known)[here]
    theirs = _keys(new)
    order = np.argsort(theirs, kind="stable")
    ordered = theirs[order]
    first, last = np.searchsorted(ordered, keys), np.searchsorted(ordered, keys, side="right")
    if len(np.unique(keys)) < len(keys) or (last - first > 1).any():
        raise ValueError(
            "variants must have names of their own to be matched, some that are needed occur twice; "
            "name them by their position and alleles (plink2 --set-all-var-ids)"
        )
    present = last > first
    here, there = here[present], order[first[present]]
    ours = _capitals(known.first[here]), _capitals(known.second[here])
    first_there, second_there = _capitals(new.first[there]), _capitals(new.second[there])
    same = _agree(ours[0], first_there) & _agree(ours[1], second_there)
    swapped = _agree(ours[0], second_there) & _agree(ours[1], first_there)
    told = (first_there != _UNKNOWN) | (second_there != _UNKNOWN)
    fits = (same | swapped) & told
    by_file = np.argsort(there[fits])
    return Alignment(
        here[fits][by_file],
        there[fits][by_file],
        (swapped & ~same)[fits][by_file],
        int(np.count_nonzero(~present)),
        int(np.count_nonzero(~fits)),
    )


def _agree(known: Alleles, new: Alleles) -> Any:
    """Where alleles are the same, or the new file does not know its own."""
    return (known == new) | (new == _UNKNOWN)


def _capitals(alleles: Alleles) -> Alleles:
    """a, c, g, t are A, C, G, T: some programs write bases in repeats small."""
    return np.array([allele.upper() for allele in alleles], object)


def _keys(variants: Variants) -> Labels:
    """Names, or chromosome and position; chr1 is 1."""
    nameless = variants.names == _NAMELESS
    if not nameless.any():
        return variants.names
    listed: list[str] = variants.chromosomes.tolist()
    short = {name: plain(name) for name in set(listed)}
    places = np.char.add(np.char.add(np.array([short[name] for name in listed]), ":"), variants.positions)
    return np.where(nameless, places, variants.names)


def _fields(path: Path, wanted: tuple[int, ...]) -> list[list[str]]:
    """Some of the six fields of each line, field by field."""
    columns: list[list[str]] = [[] for _ in wanted]
    with reading(path), open_bytes(path) as stream:
        for number, line in enumerate(bounded_lines(path, stream, None), 1):
            row = line.decode("utf-8").split()
            if len(row) < _N_FIELDS:
                raise ValueError(f"{path} must have {_N_FIELDS} fields in each line, got {len(row)} in line {number}")
            for column, place in zip(columns, wanted, strict=True):
                column.append(sys.intern(row[place]))
    return columns
