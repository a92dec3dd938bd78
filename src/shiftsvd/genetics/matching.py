"""Which variants of two files are the same: by chromosome, position and alleles, else by name, and never by order.

A variant is looked for at its place. One whose place is not known on one side is looked for by its name. Where names
point to other places, as they do in files of another build of the genome, all variants together decide which of the two
is right.
"""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from shiftsvd.genetics.extension import MatchName
from shiftsvd.genetics.variants import INCOMPATIBLE, Codes, Dictionary, Mask, Relation, Variants, canonical

Places = npt.NDArray[np.intp]

NAMELESS: Final = (".", "")
_NONE, _OTHER = -1, -2  # numbers of what is not known, and of what only the new file has
_CROWD: Final = 32  # records at one position; where there are more, it stands for positions that are not known
_FEW: Final = 0.05  # share of variants whose names and positions may contradict each other
_LONG: Final = 5  # times the longest run that is likely
_ALIKE: Final = 0.8  # share of alleles that agree where variants are the same; by chance it is less than a half


@dataclass(frozen=True, eq=False)
class Match:
    """Variants in common, in the order of the new file, and how many others there are.

    Attributes
    ----------
    here, there : array of int
        Where they are among the variants of the components and of the new file; those there ascend.
    swapped, complemented : array of bool
        Where the alleles are counted the other way round there, and where the new file has the other strand.
    n_absent, n_mismatched, n_ambiguous, n_unclear : int
        Variants of the components that are not there; that have other alleles there; of which letters cannot tell the
        strand; that are there several times, or whose name and position point to different variants.
    n_by_name : int
        How many of those in common were found by their names.
    """

    here: Places
    there: Places
    swapped: Mask
    complemented: Mask
    n_absent: int = 0
    n_mismatched: int = 0
    n_ambiguous: int = 0
    n_unclear: int = 0
    n_by_name: int = 0

    def part(self, lo: int, hi: int) -> Self:
        return type(self)(self.here[lo:hi], self.there[lo:hi], self.swapped[lo:hi], self.complemented[lo:hi])

    def in_stretches(self, used: Mask) -> bool:
        """Whether many variants that are not in common follow each other without one that is, as chance would not do.

        A heuristic: runs five times as long as the longest that is likely in a random order, and as many variants in
        them as matter.
        """
        absent = np.ones(len(used), bool)
        absent[self.here] = False
        along = absent[used]
        share, edges = float(np.mean(along)), np.flatnonzero(np.diff(along, prepend=False, append=False))
        lengths = edges[1::2] - edges[::2]
        likely = np.log(len(along)) / -np.log(share) if 0 < share < 1 else len(along)
        return bool(lengths[lengths > _LONG * likely].sum() > _FEW * len(along))

    @property
    def counts(self) -> dict[str, int]:
        return {
            "matched": len(self.here),
            "flipped": int(np.count_nonzero(self.swapped)),
            "complemented": int(np.count_nonzero(self.complemented)),
            "by_name": self.n_by_name,
            "ambiguous": self.n_ambiguous,
            "absent": self.n_absent,
            "mismatched": self.n_mismatched,
            "unclear": self.n_unclear,
        }


@dataclass(frozen=True, eq=False)
class _Found:
    """The record of the new file that each variant of the components is, by one kind of key.

    `there` is -1 where no record has the key; `relation` is how the alleles relate, and incompatible where none fits;
    `unclear` is where several fit.
    """

    there: Places
    relation: Relation
    unclear: Mask

    @classmethod
    def of(cls, here: Places, there: Places, relation: Relation, same_name: Mask, n: int) -> Self:
        score = 2 * relation.rank + ~same_name
        fits = np.flatnonzero(relation.fits)
        best = _only(here[fits], score[fits]) & _only(there[fits], score[fits])
        kept, blank = fits[best], np.zeros(n, bool)
        found, unclear = np.full(n, -1), blank.copy()
        found[here], unclear[here[fits]] = there, True
        found[here[kept]], unclear[here[kept]] = there[kept], False
        placed = Relation(np.full(n, INCOMPATIBLE), blank.copy(), blank.copy())
        for column, values in zip(placed, relation, strict=True):
            column[here[kept]] = values[kept]
        return cls(found, placed, unclear)

    def where(self, chosen: Mask, other: "_Found") -> "_Found":
        pairs = zip(self.relation, other.relation, strict=True)
        relation = Relation(*(np.where(chosen, ours, theirs) for ours, theirs in pairs))
        there = np.where(chosen, self.there, other.there)
        return _Found(there, relation, np.where(chosen, self.unclear, other.unclear))


class _Keys(NamedTuple):
    """What tells variants apart, as numbers that two files share; `_NONE` where it is not known."""

    places: Codes
    chromosomes: Codes
    names: Codes


def matched(
    known: Variants, used: Mask, new: Variants, file: str, by: MatchName = "auto", trust_ambiguous: bool = False
) -> Match:
    """Where the used variants are among those of another file.

    Raises
    ------
    ValueError
        If names and positions point to different variants, and alleles cannot tell which is right.
    """
    wanted = np.flatnonzero(used)
    ours = known.at(wanted)
    keys, theirs = _keys(ours, new)
    book = Dictionary()
    alleles = [(book.codes(variants.first), book.codes(variants.second)) for variants in (ours, new)]

    def found_by(here: Codes, there: Codes) -> _Found:
        i, j = _joined(here, there)
        relation = Relation.of((alleles[0][0][i], alleles[0][1][i]), (alleles[1][0][j], alleles[1][1][j]))
        chromosomes = keys.chromosomes[i], theirs.chromosomes[j]
        fits = (chromosomes[0] == chromosomes[1]) | (chromosomes[0] == _NONE) | (chromosomes[1] == _NONE)
        relation = relation._replace(rank=np.where(fits, relation.rank, INCOMPATIBLE))
        return _Found.of(i, j, relation, (keys.names[i] >= 0) & (keys.names[i] == theirs.names[j]), len(wanted))

    nothing = np.full(len(wanted), _NONE)
    placed = found_by(keys.places if by != "name" else nothing, theirs.places)
    named = found_by(_unique(keys.names) if by != "position" else nothing, _unique(theirs.names))
    place_there = np.append(theirs.places, _NONE)[named.there]
    elsewhere = (keys.places != _NONE) & (place_there != _NONE) & (keys.places != place_there)
    names_decide, contradict = _decided(placed, named, elsewhere, by, ours, new, file)
    unplaced = placed.there < 0
    by_name = (named.there >= 0) & np.where(elsewhere, names_decide & (named.relation.fits | unplaced), unplaced)
    if by == "auto" and by_name.any() and np.mean(named.relation.fits[by_name]) < _ALIKE:
        by_name = np.zeros_like(by_name)  # numbers that every study gives from 1, and not names
    found = named.where(by_name, placed)
    found = replace(found, unclear=found.unclear | contradict)
    return _gathered(wanted, found, by_name, trust_ambiguous)


def _decided(
    placed: _Found, named: _Found, elsewhere: Mask, by: MatchName, ours: Variants, new: Variants, file: str
) -> tuple[bool, Mask]:
    """Whether names decide where they point elsewhere than positions do; and which variants contradict themselves.

    The one whose alleles agree decides, if those of the other do not. If both agree, both can only be right of
    different variants (another build of the genome has other positions, and some meet by chance): what finds more
    decides. This is a heuristic; where many variants contradict themselves it would be a guess, which is refused.
    """
    nothing, both = np.zeros(len(elsewhere), bool), elsewhere & (placed.there >= 0)
    if by != "auto" or not elsewhere.any():
        return by == "name", nothing
    if np.mean(named.relation.fits[elsewhere]) < _ALIKE:
        return False, nothing
    if both.any() and np.mean((placed.relation.fits | placed.unclear)[both]) < _ALIKE:
        return True, nothing
    contradict = both & placed.relation.fits & named.relation.fits
    n_found = np.count_nonzero(placed.relation.fits | named.relation.fits)
    if np.count_nonzero(contradict) > _FEW * n_found:
        first = int(np.flatnonzero(contradict)[0])
        there = int(named.there[first])
        raise ValueError(
            f"{file}: names and positions point to different variants for {contradict.sum()} of {n_found}, "
            f"such as {ours.names[first]}, at {_place(ours, first)} in the model and at {_place(new, there)} there; "
            'bring both to one build of the genome, or say which of them to go by: match="position" or match="name"'
        )
    n_moved = np.count_nonzero(named.relation.fits & elsewhere)
    return bool(n_moved > np.count_nonzero(placed.relation.fits)), contradict


def _gathered(wanted: Places, found: _Found, by_name: Mask, trust_ambiguous: bool) -> Match:
    relation = found.relation
    absent = (found.there < 0) & ~found.unclear
    mismatched = ~absent & ~found.unclear & ~relation.fits
    ambiguous = ~absent & ~found.unclear & relation.fits & relation.ambiguous & (not trust_ambiguous)
    used = np.flatnonzero(~(absent | found.unclear | mismatched | ambiguous))
    # A record that one variant is by its position and another one by its name is neither.
    once = np.bincount(found.there[used], minlength=1)[found.there[used]] == 1
    order = used[once][np.argsort(found.there[used[once]])]
    return Match(
        wanted[order],
        found.there[order],
        relation.swapped[order],
        relation.complemented[order],
        n_absent=int(np.count_nonzero(absent)),
        n_mismatched=int(np.count_nonzero(mismatched)),
        n_ambiguous=int(np.count_nonzero(ambiguous)),
        n_unclear=int(np.count_nonzero(found.unclear) + np.count_nonzero(~once)),
        n_by_name=int(np.count_nonzero(by_name[order])),
    )


def _keys(ours: Variants, new: Variants) -> tuple[_Keys, _Keys]:
    chromosomes = canonical(ours.chromosomes, new.chromosomes)
    places = [
        [f"{name}:{position}" if name and position else "" for name, position in zip(*own, strict=True)]
        for own in zip(chromosomes, (_positions(ours), _positions(new)), strict=True)
    ]
    names = [["" if name in NAMELESS else name for name in own.names.tolist()] for own in (ours, new)]
    coded = [_numbered(*both) for both in (places, chromosomes, names)]
    here, there = (_Keys(*columns) for columns in zip(*coded, strict=True))
    counts = [np.bincount(own.places[own.places >= 0], minlength=len(ours.names)) for own in (here, there)]
    crowded = np.maximum(*counts) > _CROWD
    return _without(here, crowded), _without(there, crowded)


def _without(keys: _Keys, crowded: Mask) -> _Keys:
    places = keys.places
    return keys._replace(places=np.where((places >= 0) & crowded[places], _NONE, places))


def _positions(variants: Variants) -> list[str]:
    return ["" if position.startswith("-") else position.lstrip("0") for position in variants.positions.tolist()]


def _numbered(ours: list[str], theirs: list[str]) -> tuple[Codes, Codes]:
    code = {"": _NONE}
    here = np.array([code.setdefault(text, len(code) - 1) for text in ours], np.intp)
    return here, np.array([code.get(text, _OTHER) for text in theirs], np.intp)


def _unique(codes: Codes) -> Codes:
    counts = np.bincount(codes - _OTHER)
    return np.where(counts[codes - _OTHER] == 1, codes, _NONE)


def _joined(here: Codes, there: Codes) -> tuple[Places, Places]:
    order = np.argsort(there, kind="stable")
    ordered = there[order]
    first, last = np.searchsorted(ordered, here), np.searchsorted(ordered, here, side="right")
    counts = np.where(here < 0, 0, last - first)
    i = np.repeat(np.arange(len(here)), counts)
    within = np.arange(len(i)) - np.repeat(np.cumsum(counts) - counts, counts)
    return i, order[np.repeat(first, counts) + within]


def _only(groups: Places, scores: Codes) -> Mask:
    n = int(groups.max(initial=-1)) + 1
    least = np.full(n, np.iinfo(np.intp).max)
    np.minimum.at(least, groups, scores)
    at_least = scores == least[groups]
    return np.asarray(at_least & (np.bincount(groups[at_least], minlength=n)[groups] == 1))


def _place(variants: Variants, number: int) -> str:
    return f"{variants.chromosomes[number]}:{variants.positions[number]}"
