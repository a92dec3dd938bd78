"""How the alleles of two records of one variant relate: the same, swapped, on the other strand, or others."""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

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
