"""Which variants lie on autosomes: the others tell the sexes, or mothers, apart, and are left out as PLINK does."""

from collections.abc import Iterable
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
# PLINK 2 has two codes for what PLINK 1 calls XY, the regions where X and Y pair.
_CODES: Final = {"X": "23", "Y": "24", "XY": "25", "PAR1": "25", "PAR2": "25", "M": "26", "MT": "26"}

Mask = npt.NDArray[np.bool_]


def plain(chromosome: str) -> str:
    return chromosome.upper().removeprefix("CHR").lstrip("0")


def autosomal(chromosomes: Labels) -> Mask:
    """Where the chromosomes are not X, Y, XY, MT, M, PAR1, PAR2, nor 23 to 26.

    Where a number above 26 occurs they are those of another species, and every number is an autosome. Names that
    are not known, "0" among them, count as autosomes.
    """
    listed: list[str] = chromosomes.tolist()
    names = {name: plain(name) for name in set(listed)}
    human = _are_human(names.values())
    out = {name for name, short in names.items() if short in _NOT_AUTOSOMES}
    out |= {name for name, short in names.items() if human and short.isdecimal() and int(short) in _HUMAN_CODES}
    return np.array([name not in out for name in listed], bool)


def _are_human(names: Iterable[str]) -> bool:
    return max((int(short) for short in names if short.isdecimal()), default=0) <= _LAST_HUMAN


def canonical(*files: Labels) -> list[list[str]]:
    listed: list[list[str]] = [chromosomes.tolist() for chromosomes in files]
    short = {name: plain(name) for name in set().union(*listed)}
    codes = _CODES if _are_human(short.values()) else {}
    names = {name: codes.get(one, one) for name, one in short.items()}
    return [[names[name] for name in own] for own in listed]


def chosen(chromosomes: Labels, which: str, bed: Path) -> Mask:
    if which == "all":
        return np.ones(len(chromosomes), bool)
    kept = autosomal(chromosomes)
    if not kept.any():
        names = ", ".join(sorted(set(chromosomes.tolist()))[:5])
        raise ValueError(f'{bed} must have variants on autosomes, got {names}; take "all" chromosomes to keep them')
    return kept
