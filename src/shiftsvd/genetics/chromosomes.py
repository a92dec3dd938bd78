"""Which variants lie on autosomes: the others tell the sexes, or mothers, apart, and are left out as PLINK does."""

from pathlib import Path
from typing import Final, get_args

import numpy as np
import numpy.typing as npt

from shiftsvd.io.base import Labels
from shiftsvd.names import Chromosomes

CHOICES: Final = get_args(Chromosomes)
_NOT_AUTOSOMES: Final = frozenset({"X", "Y", "XY", "MT", "M", "PAR1", "PAR2"})
_LAST_HUMAN: Final = 26  # PLINK's codes of X, Y, XY and MT are 23 to 26
_HUMAN_CODES: Final = range(23, _LAST_HUMAN + 1)

Mask = npt.NDArray[np.bool_]


def plain(chromosome: str) -> str:
    """The name in capitals, without "chr" and zeros before it."""
    return chromosome.upper().removeprefix("CHR").lstrip("0")


def autosomal(chromosomes: Labels) -> Mask:
    """Where the chromosomes are not X, Y, XY, MT, M, PAR1, PAR2, nor 23 to 26.

    Where a number above 26 occurs they are those of another species, and every number is an autosome. Names that
    are not known, "0" among them, count as autosomes.
    """
    listed: list[str] = chromosomes.tolist()
    names = {name: plain(name) for name in set(listed)}
    numbers = {name: int(short) for name, short in names.items() if short.isdecimal()}
    human = max(numbers.values(), default=0) <= _LAST_HUMAN
    out = {name for name, short in names.items() if short in _NOT_AUTOSOMES}
    out |= {name for name, number in numbers.items() if human and number in _HUMAN_CODES}
    return np.array([name not in out for name in listed], bool)


def chosen(chromosomes: Labels, which: str, bed: Path) -> Mask:
    """Where the chromosomes of a file are those that are asked for."""
    if which == "all":
        return np.ones(len(chromosomes), bool)
    kept = autosomal(chromosomes)
    if not kept.any():
        names = ", ".join(sorted(set(chromosomes.tolist()))[:5])
        raise ValueError(f'{bed} must have variants on autosomes, got {names}; take "all" chromosomes to keep them')
    return kept
