"""Match the variants of two files by chromosome, position and alleles, or by name.

A variant is matched by position if both files have its position, and by name otherwise. If names and positions point to
different variants, as in files of different genome builds, all such variants together decide which of the two to use.
"""

from collections import Counter
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shiftsvd.extend.files import Places
from shiftsvd.extend.running import Refused, Setting, notice
from shiftsvd.genetics.extension import MatchName
from shiftsvd.genetics.variants import Mask, Variants, canonical, short_name

Codes = npt.NDArray[np.intp]

NAMELESS: Final = (".", "")
_NONE, _OTHER = -1, -2  # codes of unknown keys, and of keys that only the new file has
_MAX_RECORDS: Final = 32  # records at one position; a position with more records is a placeholder
_MAX_CONFLICTS: Final = 0.05  # largest share of variants whose names and positions may conflict
_LONG_RUN: Final = 5  # a run of absent variants is long if it exceeds the longest likely run by this factor
_FEWEST_LANDMARKS: Final = 2
_MOST: Final = 0.5  # share of shared names with different positions, above which the genome builds differ
_MIN_AGREEMENT: Final = 0.8  # least share of agreeing alleles in a correct match; by chance less than half agree

_UNKNOWN: Final = ("0", ".")  # PLINK 1's and PLINK 2's code of an allele that no sample of the file has
_INCOMPATIBLE: Final = 4  # rank of records with different alleles
_COMPLEMENT: Final = np.array([0, 4, 3, 2, 1])  # codes of alleles: 0 is unknown, 1 to 4 are A, C, G, T


def _allele_codes(variants: Variants, book: dict[str, int]) -> tuple[Codes, Codes]:
    # Some programs write bases in repeats as a, c, g, t.
    first, second = (
        np.array([book.setdefault(allele.upper(), len(book)) for allele in alleles.tolist()], np.intp)
        for alleles in (variants.first, variants.second)
    )
    return first, second


def _new_code_table() -> dict[str, int]:
    return {**dict.fromkeys(_UNKNOWN, 0), **{letter: code for code, letter in enumerate("ACGT", 1)}}


def n_ambiguous(variants: Variants) -> int:
    first, second = _allele_codes(variants, _new_code_table())
    return int(np.count_nonzero(_is_letter(first) & (_complement(first) == second)))


def _is_letter(codes: Codes) -> Mask:
    return (codes > 0) & (codes < len(_COMPLEMENT))


def _complement(codes: Codes) -> Codes:
    return np.where(_is_letter(codes), _COMPLEMENT[np.where(_is_letter(codes), codes, 0)], codes)


def _same_alleles(first: Codes, second: Codes, new: tuple[Codes, Codes]) -> Mask:
    fits_first, fits_second = (first == new[0]) | (new[0] == 0), (second == new[1]) | (new[1] == 0)
    return np.asarray(fits_first & fits_second & ((new[0] > 0) | (new[1] > 0)))


def _compare_alleles(first: Codes, second: Codes, new: tuple[Codes, Codes]) -> tuple[Codes, Mask, Mask]:
    letters = _is_letter(first) & _is_letter(second)
    others = _complement(first), _complement(second)
    same, swap = _same_alleles(first, second, new), _same_alleles(second, first, new)
    same_other, swap_other = (letters & _same_alleles(*pair, new) for pair in (others, others[::-1]))
    direct, complement = same | swap, same_other | swap_other
    partly = (new[0] == 0) | (new[1] == 0)
    rank = np.where(direct, 0, np.where(complement, 1, _INCOMPATIBLE)) + 2 * (partly & (direct | complement))
    swapped = np.where(direct, swap & ~same, swap_other & ~same_other)
    return rank, swapped, letters & (others[0] == second) & (direct | complement)


class Match(NamedTuple):
    """Variants in common, in the order of the new file."""

    here: Places  # indices in the model
    there: Places  # indices in the new file
    swapped: Mask  # the new file counts the other allele
    complemented: Mask  # the new file has the other strand
    counts: dict[str, int]

    def part(self, lo: int, hi: int) -> "Match":
        return Match._make([*(each[lo:hi] for each in self[:-1]), self.counts])

    def in_segments(self, used: Mask) -> bool:
        # A heuristic: true if many unmatched variants lie in runs over 5 times as long as the longest run that is
        # likely in random order.
        absent = np.ones(len(used), bool)
        absent[self.here] = False
        along = absent[used]
        share, edges = float(np.mean(along)), np.flatnonzero(np.diff(along, prepend=False, append=False))
        lengths = edges[1::2] - edges[::2]
        likely = np.log(len(along)) / -np.log(share) if 0 < share < 1 else len(along)
        return bool(lengths[lengths > _LONG_RUN * likely].sum() > _MAX_CONFLICTS * len(along))


class _Candidates(NamedTuple):
    """The record of the new file with the same key (position or name) for each variant of the model."""

    there: Places  # -1 if no record has the key
    rank: Codes  # 0: the same alleles; 1: on the other strand; 2 and 3: the same if the new file has only one allele
    swapped: Mask
    ambiguous: Mask  # A and T, or C and G: the other strand looks like swapped alleles
    unclear: Mask  # several records fit

    @property
    def fits(self) -> Mask:
        return self.rank < _INCOMPATIBLE


class _Keys(NamedTuple):
    """Integer codes of keys, the same for both files; `_NONE` if a key is unknown."""

    places: Codes
    chromosomes: Codes
    names: Codes


def matched(
    known: Variants, used: Mask, new: Variants, file: str, by: MatchName = "auto", trust_ambiguous: bool = False
) -> Match:
    wanted = np.flatnonzero(used)
    ours = known.at(wanted)
    keys, theirs = _keys(ours, new)
    book = _new_code_table()
    alleles = [_allele_codes(variants, book) for variants in (ours, new)]

    def found_by(here: Codes, there: Codes) -> _Candidates:
        i, j = _equal_pairs(here, there)
        a, b = keys.chromosomes[i], theirs.chromosomes[j]
        rank, *how = _compare_alleles(alleles[0][0][i], alleles[0][1][i], (alleles[1][0][j], alleles[1][1][j]))
        # Names may coincide by chance, unless they are asked for: then other names of chromosomes do not matter.
        rank = np.where((a == b) | (a == _NONE) | (b == _NONE) | (by == "name"), rank, _INCOMPATIBLE)
        return _best(i, j, (rank, *how), (keys.names[i] >= 0) & (keys.names[i] == theirs.names[j]), len(wanted))

    nothing = np.full(len(wanted), _NONE)
    # candidates with the same position, and with the same name
    placed = found_by(keys.places if by != "name" else nothing, theirs.places)
    named = found_by(_only_unique(keys.names) if by != "position" else nothing, _only_unique(theirs.names))
    named_place = np.append(theirs.places, _NONE)[named.there]
    conflicting = (keys.places != _NONE) & (named_place != _NONE) & (keys.places != named_place)
    names_decide, undecided = _resolve_conflicts(placed, named, conflicting, by, ours, new, file)
    shared = (keys.places != _NONE) & (named_place != _NONE)
    moved = np.count_nonzero(conflicting) > _MOST * np.count_nonzero(shared)
    if by == "auto" and names_decide and moved and np.count_nonzero(named.fits) > np.count_nonzero(placed.fits):
        # A position of another build may hit another variant with the same alleles: use no position.
        _report_builds(known, new, file, int(np.count_nonzero(conflicting)), int(np.count_nonzero(shared)))
        placed, undecided = found_by(nothing, theirs.places), np.zeros_like(undecided)
    unplaced = placed.there < 0
    by_name = (named.there >= 0) & np.where(conflicting, names_decide & (named.fits | unplaced), unplaced)
    if by == "auto" and by_name.any() and np.mean(named.fits[by_name]) < _MIN_AGREEMENT:
        by_name = np.zeros_like(by_name)  # these names are serial numbers, which coincide by chance
    found = _Candidates(*(np.where(by_name, own, other) for own, other in zip(named, placed, strict=True)))
    return _to_match(wanted, found._replace(unclear=found.unclear | undecided), by_name, trust_ambiguous)


def _best(i: Places, j: Places, relation: tuple[Codes, *tuple[Mask, ...]], same_name: Mask, n: int) -> _Candidates:
    rank = relation[0]
    score, fits = 2 * rank + ~same_name, np.flatnonzero(rank < _INCOMPATIBLE)
    kept = fits[_is_unique_best(i[fits], score[fits]) & _is_unique_best(j[fits], score[fits])]
    found = _Candidates(np.full(n, -1), np.full(n, _INCOMPATIBLE), *(np.zeros(n, bool) for _ in range(3)))
    found.there[i], found.unclear[i[fits]] = j, True
    for column, values in zip(found, (j, *relation, np.zeros(len(i), bool)), strict=True):
        column[i[kept]] = values[kept]
    return found


def _resolve_conflicts(
    placed: _Candidates, named: _Candidates, conflicting: Mask, by: MatchName, ours: Variants, new: Variants, file: str
) -> tuple[bool, Mask]:
    # Return whether to match by name where names and positions point to different records, and a mask of conflicting
    # variants. If alleles agree for only one of the two keys, use this key. If alleles agree for both, some matches are
    # by chance (in another genome build, a position may hit another variant): use the key that matches more variants.
    # With many conflicts this heuristic would be a guess, so raise an error.
    nothing, both = np.zeros(len(conflicting), bool), conflicting & (placed.there >= 0)
    if by != "auto" or not conflicting.any():
        return by == "name", nothing
    if np.mean(named.fits[conflicting]) < _MIN_AGREEMENT:
        return False, nothing
    if both.any() and np.mean((placed.fits | placed.unclear)[both]) < _MIN_AGREEMENT:
        return True, nothing
    undecided = both & placed.fits & named.fits
    n_found = np.count_nonzero(placed.fits | named.fits)
    if np.count_nonzero(undecided) > _MAX_CONFLICTS * n_found:
        first = int(np.flatnonzero(undecided)[0])
        here, there = (f"{v.chromosomes[at]}:{v.positions[at]}" for v, at in ((ours, first), (new, named.there[first])))
        builds = _builds_of(ours, new)
        raise Refused(
            f"{file}: {builds}names and positions conflict for {undecided.sum():,} of {n_found:,} variants. "
            f"For example, {ours.names[first]} is at {here} in the model and at {there} in the file. Lift one of them "
            "over to the genome build of the other, or use ",
            *(Setting("match", "position"), " or ", Setting("match", "name"), "."),
        )
    return bool(np.count_nonzero(named.fits & conflicting) > np.count_nonzero(placed.fits)), undecided


# Positions of common variants in GRCh36, 37 and 38 (dbSNP); in each pair of neighbours they differ by the same number.
_LANDMARKS: Final = {
    "rs3094315": ("1", 742429, 752566, 817186),
    "rs3131972": ("1", 742584, 752721, 817341),
    "rs1801131": ("1", 11777063, 11854476, 11794419),
    "rs1801133": ("1", 11778965, 11856378, 11796321),
    "rs4988235": ("2", 136325116, 136608646, 135851076),
    "rs4244285": ("10", 96532017, 96541616, 94781859),
    "rs1799853": ("10", 96692448, 96702047, 94942290),
    "rs429358": ("19", 50103781, 45411941, 44908684),
    "rs7412": ("19", 50103919, 45412079, 44908822),
    "rs4680": ("22", 18331271, 19951271, 19963748),
}


def build_of(variants: Variants) -> str | None:
    # None unless at least two landmarks have the positions of one build, and none that of another.
    places = np.flatnonzero(np.isin(variants.names, list(_LANDMARKS)))
    found = dict.fromkeys(("GRCh36", "GRCh37", "GRCh38"), 0)
    for place in places.tolist():
        chromosome, *positions = _LANDMARKS[str(variants.names[place])]
        if short_name(str(variants.chromosomes[place])) == chromosome:
            for build, position in zip(found, positions, strict=True):
                found[build] += str(variants.positions[place]) == str(position)
    known = [build for build, count in found.items() if count]
    return known[0] if len(known) == 1 and found[known[0]] >= _FEWEST_LANDMARKS else None


def _builds_of(model: Variants, new: Variants) -> str:
    here, there = build_of(model), build_of(new)
    return f"the genome builds differ (model: {here}, file: {there}). " if here and there and here != there else ""


def _report_builds(model: Variants, new: Variants, file: str, n_moved: int, n_shared: int) -> None:
    here, there = (build_of(each) or "unknown" for each in (model, new))
    notice(
        f"{file}: {n_moved:,} of {n_shared:,} variants with the name of a variant of the model have another position, "
        f"so the genome builds differ (model: {here}, file: {there}). Variants are matched by name alone. If this is "
        "intended, use ",
        *(Setting("match", "name"), "; otherwise lift the file over to the build of the model."),
    )


def _to_match(wanted: Places, found: _Candidates, by_name: Mask, trust_ambiguous: bool) -> Match:
    there = (found.there >= 0) & ~found.unclear
    ambiguous = there & found.fits & found.ambiguous & (not trust_ambiguous)
    used = np.flatnonzero(there & found.fits & ~ambiguous)
    # Remove records that match one variant by position and another variant by name.
    once = np.bincount(found.there[used], minlength=1)[found.there[used]] == 1
    order = used[once][np.argsort(found.there[used[once]])]
    swapped, complemented = found.swapped[order], found.rank[order] % 2 == 1
    counted = {
        "flipped": swapped,
        "complemented": complemented,
        "by_name": by_name[order],
        "ambiguous": ambiguous,
        "absent": (found.there < 0) & ~found.unclear,
        "mismatched": there & ~found.fits,
        "unclear": np.append(found.unclear, ~once),
    }
    counts = {"matched": len(order), **{name: int(np.count_nonzero(mask)) for name, mask in counted.items()}}
    return Match(wanted[order], found.there[order], swapped, complemented, counts)


def _keys(ours: Variants, new: Variants) -> tuple[_Keys, _Keys]:
    chromosomes = canonical(ours.chromosomes, new.chromosomes)
    places = [
        [f"{name}:{position}" if name and position else "" for name, position in zip(*own, strict=True)]
        for own in zip(chromosomes, (_positions(ours), _positions(new)), strict=True)
    ]
    crowded = {place for own in places for place, count in Counter(own).items() if count > _MAX_RECORDS}
    places = [["" if place in crowded else place for place in own] for own in places]
    names = [["" if name in NAMELESS else name for name in own.names.tolist()] for own in (ours, new)]
    here, there = zip(*(_common_codes(*both) for both in (places, chromosomes, names)), strict=True)
    return _Keys(*here), _Keys(*there)


def _positions(variants: Variants) -> list[str]:
    return ["" if position.startswith("-") else position.lstrip("0") for position in variants.positions.tolist()]


def _common_codes(ours: list[str], theirs: list[str]) -> tuple[Codes, Codes]:
    code = {"": _NONE}
    here = np.array([code.setdefault(text, len(code) - 1) for text in ours], np.intp)
    return here, np.array([code.get(text, _OTHER) for text in theirs], np.intp)


def _only_unique(codes: Codes) -> Codes:
    counts = np.bincount(codes - _OTHER)
    return np.where(counts[codes - _OTHER] == 1, codes, _NONE)


def _equal_pairs(here: Codes, there: Codes) -> tuple[Places, Places]:
    order = np.argsort(there, kind="stable")
    ordered = there[order]
    first, last = np.searchsorted(ordered, here), np.searchsorted(ordered, here, side="right")
    counts = np.where(here < 0, 0, last - first)
    i = np.repeat(np.arange(len(here)), counts)
    within = np.arange(len(i)) - np.repeat(np.cumsum(counts) - counts, counts)
    return i, order[np.repeat(first, counts) + within]


def _is_unique_best(groups: Places, scores: Codes) -> Mask:
    n = int(groups.max(initial=-1)) + 1
    least = np.full(n, np.iinfo(np.intp).max)
    np.minimum.at(least, groups, scores)
    at_least = scores == least[groups]
    return np.asarray(at_least & (np.bincount(groups[at_least], minlength=n)[groups] == 1))
