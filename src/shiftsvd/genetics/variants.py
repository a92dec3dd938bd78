"""Samples and variants: .fam and .bim, founders, autosomes, alleles and strands."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from shiftsvd.extend.files import Labels, labels
from shiftsvd.genetics.extension import Chromosomes
from shiftsvd.genetics.readers import fields

Alleles = npt.NDArray[np.object_]  # texts: an insertion may be long, and only a few are


class Samples(NamedTuple):
    """What a .fam says, one entry for each sample.

    Parameters
    ----------
    families : array of str, of shape (n_samples,)
        The FID of each sample.
    names : array of str, of shape (n_samples,)
        The IID of each sample.

    See Also
    --------
    genetics.Variants : The other side.

    Examples
    --------
    >>> import numpy as np
    >>> from shiftsvd.genetics import Samples
    >>> Samples(families=np.array(["f1", "f1"]), names=np.array(["ann", "bob"])).names[1].item()
    'bob'
    """

    families: Labels
    names: Labels


class Variants(NamedTuple):
    """What a .bim says, one entry for each variant; genotypes count the first allele.

    Parameters
    ----------
    chromosomes : array of str, of shape (n_variants,)
        As they are written in the file.
    names : array of str, of shape (n_variants,)
        Such as "rs123".
    positions : array of str, of shape (n_variants,)
        Base pairs from the beginning of the chromosome, as they are written.
    first : array of str, of shape (n_variants,)
        The allele that genotypes count: A1 of PLINK 1.
    second : array of str, of shape (n_variants,)
        The other allele: A2 of PLINK 1.

    See Also
    --------
    genetics.Samples : The other side.

    Examples
    --------
    >>> import numpy as np
    >>> from shiftsvd.genetics import Variants
    >>> alleles = np.array(["A", "C"], object), np.array(["G", "T"], object)
    >>> variants = Variants(np.array(["1", "X"]), np.array(["rs1", "rs2"]), np.array(["100", "200"]), *alleles)
    >>> variants.at(np.array([1])).names.tolist()
    ['rs2']
    """

    chromosomes: Labels
    names: Labels
    positions: Labels
    first: Alleles
    second: Alleles

    def at(self, places: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> "Variants":
        """The variants at some places, in that order.

        Parameters
        ----------
        places : array of int or bool
            Which variants, by their numbers from 0 or as a mask.

        Returns
        -------
        Variants
            Those variants.
        """
        texts = (self.chromosomes[places], self.names[places], self.positions[places])
        return Variants(*texts, self.first[places], self.second[places])


def read_samples(path: Path) -> Samples:
    rows = fields(path, (0, 1))
    return Samples(*(labels(path, column, None) for column in rows))


def read_variants(path: Path) -> Variants:
    *told, first, second = fields(path, (0, 1, 3, 4, 5))
    chromosomes, names, positions = (labels(path, column, None) for column in told)
    return Variants(chromosomes, names, positions, np.array(first, object), np.array(second, object))


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


_NOBODY: Final = ("0", "0")


def fam_founders(path: Path) -> Mask:
    return np.array([both == _NOBODY for both in zip(*fields(path, (2, 3)), strict=True)], bool)


Codes = npt.NDArray[np.intp]  # alleles as numbers: 0 is not known, 1 to 4 are A, C, G, T

UNKNOWN: Final = ("0", ".")  # how PLINK 1 and 2 call an allele that no sample of the file has
INCOMPATIBLE: Final = 4  # the rank of records with other alleles
_COMPLEMENT: Final = np.array([0, 4, 3, 2, 1])
_N_LETTERS: Final = 4


class Dictionary:
    """Alleles as numbers, the same in all files; a, c, g, t are A, C, G, T, as some programs write bases in repeats."""

    def __init__(self) -> None:
        self._codes = {**dict.fromkeys(UNKNOWN, 0), **{letter: code for code, letter in enumerate("ACGT", 1)}}

    def codes(self, alleles: npt.NDArray[np.object_]) -> Codes:
        known = self._codes
        return np.array([known.setdefault(allele.upper(), len(known)) for allele in alleles.tolist()], np.intp)


class Relation(NamedTuple):
    """How pairs of records relate, one entry for each pair.

    Attributes
    ----------
    rank : array of int
        0: both alleles are the same letters; 1: both are on the other strand; 2 and 3: the same where the new file
        knows one allele only; `INCOMPATIBLE`: others. Less is more certain.
    swapped : array of bool
        The first allele here is the second there.
    ambiguous : array of bool
        A and T, or C and G: the other strand looks like swapped alleles, and letters cannot tell which it is.
    """

    rank: Codes
    swapped: Mask
    ambiguous: Mask

    @classmethod
    def of(cls, known: tuple[Codes, Codes], new: tuple[Codes, Codes]) -> "Relation":
        first, second = known
        letters = _is_letter(first) & _is_letter(second)
        others = _complement(first), _complement(second)
        same, swap = _fits(first, second, new), _fits(second, first, new)
        same_there, swap_there = (letters & _fits(*pair, new) for pair in (others, others[::-1]))
        direct, complement = same | swap, same_there | swap_there
        partly = (new[0] == 0) | (new[1] == 0)
        rank = np.where(direct, 0, np.where(complement, 1, INCOMPATIBLE)) + 2 * (partly & (direct | complement))
        swapped = np.where(direct, swap & ~same, swap_there & ~same_there)
        return cls(rank, swapped, letters & (others[0] == second) & (direct | complement))

    @property
    def fits(self) -> Mask:
        return self.rank < INCOMPATIBLE

    @property
    def complemented(self) -> Mask:
        return np.asarray(self.fits & (self.rank % 2 == 1))


def n_ambiguous(first: npt.NDArray[np.object_], second: npt.NDArray[np.object_]) -> int:
    book = Dictionary()
    codes = book.codes(first), book.codes(second)
    return int(np.count_nonzero(_is_letter(codes[0]) & (_complement(codes[0]) == codes[1])))


def _is_letter(codes: Codes) -> Mask:
    return (codes > 0) & (codes <= _N_LETTERS)


def _complement(codes: Codes) -> Codes:
    return np.where(_is_letter(codes), _COMPLEMENT[np.where(_is_letter(codes), codes, 0)], codes)


def _fits(first: Codes, second: Codes, new: tuple[Codes, Codes]) -> Mask:
    fits_first, fits_second = (first == new[0]) | (new[0] == 0), (second == new[1]) | (new[1] == 0)
    return np.asarray(fits_first & fits_second & ((new[0] > 0) | (new[1] > 0)))
