"""Read lists of samples, variants and genomic ranges, as PLINK does, and tables of labels of samples."""

import csv
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from shiftsvd.extend.files import Labels, bounded_lines, open_bytes, reading
from shiftsvd.extend.running import Refused, Setting, few, plural
from shiftsvd.genetics.variants import Mask, Samples, Variants, canonical, positions_of


class Region(NamedTuple):
    """A range of positions of a chromosome, both ends included."""

    chromosome: str
    first: int
    last: int


# Price et al. (2008), "Long-range LD can confound genome scans in admixed populations", AJHG 83, 132-135, table 1, and
# Weale (2010), "Quality control for genome-wide association studies", which Anderson et al. (2010), "Data quality
# control in genetic case-control association studies", Nature Protocols 5, 1564-1573, exclude before PCA. Positions on
# hg19 are those of the University of Michigan's wiki page "Regions of high linkage disequilibrium".
_HG19: Final = """
1:48000000-52000000 2:86000000-100500000 2:134500000-138000000 2:183000000-190000000 3:47500000-50000000
3:83500000-87000000 3:89000000-97500000 5:44500000-50500000 5:98000000-100500000 5:129000000-132000000
5:135500000-138500000 6:25000000-35000000 6:57000000-64000000 6:140000000-142500000 7:55000000-66000000
8:7000000-13000000 8:43000000-50000000 8:112000000-115000000 10:37000000-43000000 11:46000000-57000000
11:87500000-90500000 12:33000000-40000000 12:109500000-112000000 20:32000000-34500000
"""
# The same regions on hg38. Fifteen lift over as a whole. The nine that span a centromere do not (lists that were lifted
# by a tool hold fragments of them), so each of their ends is moved by as much as the genes next to it, and then
# outwards to a multiple of 100 kb.
_HG38: Final = """
1:47534328-51534328 2:85700000-100000000 2:133742429-137242430 2:182135273-189135274 3:47458510-49962567
3:83450849-86950850 3:88900000-97800000 5:44400000-51300000 5:98664296-101164296 5:129664307-132664308
5:136164311-139164311 6:24999772-35032223 6:57100000-63300000 6:139678863-142178863 7:54900000-66600000
8:7142478-13142491 8:43100000-49100000 8:110987771-113987771 10:36700000-42600000 11:45900000-57300000
11:87789108-90766832 12:32800000-39700000 12:109062195-111562196 20:33412194-35912078
"""


LONG_RANGE: Final = {
    build: [
        Region(name, int(first), int(last)) for name, first, last in (re.split("[:-]", each) for each in text.split())
    ]
    for build, text in (("hg19", _HG19), ("hg38", _HG38))
}


def inside(variants: Variants, regions: Sequence[Region]) -> Mask:
    names, theirs = canonical(variants.chromosomes, np.array([region.chromosome for region in regions], np.str_))
    chromosomes, positions = np.array(names), positions_of(variants)
    mask = np.zeros(len(names), bool)
    for region, chromosome in zip(regions, theirs, strict=True):
        mask |= (positions >= region.first) & (positions <= region.last) & (chromosomes == chromosome)
    return mask


Listed = str | PathLike[str] | Sequence[str] | Sequence[tuple[str, str]]  # a path, or the rows of such a file
_HEADERS: Final = ("FID", "IID", "SID")


def listed_variants(name: str, given: Listed, names: Labels, file: str) -> tuple[Mask, int]:
    # The mask of the variants of the list `name`, and the number of names that the files do not have.
    words = [word for row in _rows(given) for word in row]
    mask = np.isin(names, np.array(sorted(set(words)) or [""]))
    if words and not mask.any():
        raise _names_none(name, given, "variant", words[0], file, names[0])
    return mask, len(set(words) - set(names[mask].tolist()))


def listed_samples(name: str, given: Listed, samples: Samples, file: str) -> tuple[Mask, int]:
    rows = _sample_rows(given)
    pairs, alone = {row for row in rows if len(row) > 1}, {row[0] for row in rows if len(row) == 1}
    _refuse_shared_names(given, samples, alone)
    there = list(zip(samples.families.tolist(), samples.names.tolist(), strict=True))
    mask = np.array([pair in pairs or pair[1] in alone for pair in there], bool)
    if rows and not mask.any():
        own = there[0][-max(map(len, rows)) :]
        raise _names_none(name, given, "sample", " ".join(rows[0]), file, " ".join(own))
    return mask, len(pairs - set(there)) + len(alone - {name for _, name in there})


def _names_none(name: str, given: Listed, what: str, first: str, file: str, own: str) -> Refused:
    # A list without names is empty on purpose.
    listed = given if isinstance(given, str | PathLike) else "the list"
    return Refused(
        *(Setting(name), f" must name at least one {what} of {file}, but {listed} names none. The list begins with "),
        f"{first!r}, the file with {str(own)!r}. Write names as in the file.",
    )


def _sample_rows(given: Listed) -> list[tuple[str, ...]]:
    rows = [tuple(row[:2]) for row in _rows(given)]
    if not rows or not rows[0][0].startswith("#"):
        return rows
    header = [word.removeprefix("#") for word in rows[0]]
    if "IID" not in header or header[0] not in _HEADERS:
        raise ValueError(f"{given} must have the header #FID IID or #IID, got {' '.join(rows[0])!r}")
    return [row[:1] for row in rows[1:]] if header[0] == "IID" else rows[1:]


def listed_regions(path: str | PathLike[str]) -> list[Region]:
    regions = []
    for number, row in enumerate(_rows(path), 1):
        if row[0].startswith("#"):
            continue
        try:
            first, last = int(row[1]), int(row[2])
        except (IndexError, ValueError):
            raise ValueError(
                f"{path}, line {number}: must have a chromosome, a first and a last position, got {' '.join(row[:4])!r}"
            ) from None
        if last < first:
            raise ValueError(
                f"{path}, line {number}: the last position must not be below the first, got {first} and {last}"
            )
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


# Headers of the columns of ids, without "#" and in lower case.
_FIDS: Final = ("fid", "family", "family_id", "familyid")
_IIDS: Final = ("iid", "sample", "sample_id", "sampleid", "id", "individual", "individual_id", "name")
_UNLABELLED: Final = (".", "NA", "NaN", "nan")


class LabelTable(NamedTuple):
    """A file with IID, or FID and IID, and columns of labels."""

    path: Path
    header: list[str]
    rows: list[tuple[int, list[str]]]  # line numbers and cells
    iid: int
    fid: int | None

    @classmethod
    def read(cls, path: Path) -> "LabelTable":
        header, rows = _label_rows(path)
        names = [cell.lstrip("#").strip().lower() for cell in header]
        iid = next((names.index(name) for name in _IIDS if name in names), 0)
        fid = next((names.index(name) for name in _FIDS if name in names and names.index(name) != iid), None)
        return cls(path, header, rows, iid, fid)

    def column(self, name: str | None) -> str:
        others = [each for j, each in enumerate(self.header) if j not in (self.iid, self.fid)]
        if name is None and len(others) == 1:
            return others[0]
        if name not in others or others.count(name) > 1:
            what = "must have one column of labels" if name is None else f"must have one column {name!r}"
            raise Refused(
                *(f"{self.path} {what} next to its ids, got {few(others, 10)}. Choose one with "),
                *(Setting("label_column"), ". The first line must be a header, such as #IID pop."),
            )
        return str(name)

    def labels(self, name: str, samples: Samples) -> tuple[list[str], str]:
        # The label of each sample, "" where it is missing, and a message about ids without a partner.
        place = self.header.index(self.column(name))
        self._check_rows(samples)
        families, fid = samples.families.tolist(), self.fid
        if fid is not None and {"0"} in (set(families), {row[fid] for _, row in self.rows}):
            fid = None  # PLINK 2 writes 0 for an unknown FID
        found = self._by_sample(place, fid)
        if fid is None:
            _refuse_shared_names(self.path, samples, {name for _, name in found})
        keys = list(zip([""] * len(families) if fid is None else families, samples.names.tolist(), strict=True))
        if found.keys().isdisjoint(keys):
            raise ValueError(
                f"{self.path} has no label of any sample. Its ids are {few(map(_shown, found))}; those of the "
                f"genotypes are {few(map(_shown, keys))}. Write ids as in the genotypes."
            )
        message = _told("of the genotypes without a label", keys, found)
        message += _told("of the labels not among the genotypes", found, set(keys))
        n_repeated = len(self.rows) - len(found)
        message += f" {plural(n_repeated, 'line')} repeated with the same label." if n_repeated else ""
        values = (found.get(key, "") for key in keys)
        return ["" if value in _UNLABELLED else value for value in values], message

    def _check_rows(self, samples: Samples) -> None:
        if self.fid is None and set(self.header[:2]) & set(samples.names.tolist()) - {*_FIDS, *_IIDS}:
            raise ValueError(
                f"{self.path} must have a header, such as #IID pop, got {few(self.header)}. Add it as the first line."
            )
        for number, row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(
                    f"{self.path}, line {number:,}: must have the {len(self.header):,} fields of the header, got "
                    f"{len(row):,}. Correct this line."
                )

    def _by_sample(self, place: int, fid: int | None) -> dict[tuple[str, str], str]:
        """Return the labels in a column by FID and IID, with "" for FID unless samples are matched by it."""
        found = dict[tuple[str, str], str]()
        for number, row in self.rows:
            key = ("" if fid is None else row[fid], row[self.iid])
            if found.setdefault(key, row[place]) != row[place]:
                raise ValueError(
                    f"{self.path}, line {number:,}: {_shown(key)} has the label {row[place]!r}, but {found[key]!r} "
                    "in a line above. Keep one line for each sample."
                )
        return found


def _told(which: str, keys: Iterable[tuple[str, str]], others: Container[tuple[str, str]]) -> str:
    ids = [_shown(key) for key in keys if key not in others]
    return f" {plural(len(ids), 'id')} {which}: {few(ids)}." if ids else ""


def _shown(key: tuple[str, str]) -> str:
    return " ".join(key).strip()


def _label_rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    with reading(path), open_bytes(path) as stream:
        lines = [line.decode("utf-8-sig").rstrip("\r\n") for line in bounded_lines(path, stream, None)]
    first = next((number for number, line in enumerate(lines) if line.strip()), None)
    if first is None:
        raise ValueError(f"{path} is empty. It must have a header and a line for each sample.")
    mark = next((each for each in "\t,;" if each in lines[first]), None)

    def cells(line: str) -> list[str]:
        return line.split() if mark is None else [cell.strip() for cell in next(csv.reader([line], delimiter=mark))]

    return cells(lines[first]), [
        (number, cells(line)) for number, line in enumerate(lines, 1) if number > first + 1 and line.strip()
    ]


def _refuse_shared_names(given: Listed, samples: Samples, names: set[str]) -> None:
    own, counts = np.unique(samples.names, return_counts=True)
    if twice := sorted(names & set(own[counts > 1].tolist())):
        what = given if isinstance(given, str | PathLike) else "the list of samples"
        raise ValueError(
            f"{what} has the IID {twice[0]} without an FID, but several samples have this IID. Write FID and IID."
        )
