"""What a file of variants gives one after another, and what was left out on the way."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from shiftsvd.io.limits import bounded
from shiftsvd.runs.warned import notice

Dosages = npt.NDArray[np.float64]  # copies of the second allele of each sample, 0 to 2; NaN where there is no genotype

UNKNOWN: Final = ("", ".")  # how files write that there is no name
_PER_SAMPLE: Final = 200  # bytes: names, and the numbers of one variant in all their copies
_LONGEST: Final = 100  # characters of a name that is made of alleles
_TOLERANCE: Final = 1e-3  # of dosages that are written with few digits


class Person(NamedTuple):
    """One sample: its family and name, and its sex as PLINK codes it: 1, 2, or NA."""

    family: str
    name: str
    sex: str = "NA"


class Variant(NamedTuple):
    """One variant of two alleles, the dosages being those of the second one."""

    chromosome: str
    position: int
    name: str
    first: str
    second: str
    dosages: Dosages


class VariantFile(ABC):
    """A file that is read once, from its first variant to its last.

    Attributes
    ----------
    people : sequence of Person
    dosages : bool
        Whether dosages may lie between whole numbers.
    reference_known : bool
        Whether the first allele is that of the reference genome.
    left_out : Counter
        What was left out or became missing, in words, and how often.
    """

    people: Sequence[Person]
    dosages: bool
    reference_known: bool

    def __init__(self, path: Path) -> None:
        self.path = path
        self.left_out: Counter[str] = Counter()

    @abstractmethod
    def variants(self) -> Iterator[Variant]: ...

    @abstractmethod
    def close(self) -> None: ...

    def told(self) -> None:
        for what, count in self.left_out.items():
            notice(f"{self.path}: {what}: {count:,}")

    def checked(self, variant: Variant) -> Variant:
        chromosome, position, name, first, second, dosages = variant
        if name in UNKNOWN:
            long = len(first) + len(second) > _LONGEST
            name = f"{chromosome}:{position}" if long else f"{chromosome}:{position}:{first}:{second}"
        for text in (chromosome, name, first, second):
            if text.split() != [text]:
                self.refuse(name, f"chromosomes, names and alleles without spaces, got {text!r}")
        lowest, highest = np.nanmin(dosages, initial=0), np.nanmax(dosages, initial=0)
        if lowest < -_TOLERANCE or highest > 2 + _TOLERANCE:
            worst = float(lowest if lowest < 0 else highest)
            self.refuse(name, f"dosages from 0 to the copies that a sample has (1 or 2), got {worst:.3g} of 2")
        return Variant(chromosome, position, name, first, second, np.clip(dosages, 0, 2))

    def refuse(self, name: str, rule: str) -> NoReturn:
        raise ValueError(f"{self.path} must have {rule} at {name}")


def checked_people(path: Path, people: Sequence[Person], memory_limit: int | str | None) -> Sequence[Person]:
    if not people:
        raise ValueError(f"{path} must hold genotypes of samples, got variants alone")
    bounded(path, _PER_SAMPLE * len(people), memory_limit)
    for person in people:
        if any(text.split() != [text] for text in person):
            raise ValueError(f"{path} must have sample names without spaces, got {person.name!r}; rename it there")
    if len({person[:2] for person in people}) < len(people):
        twice = next(person for person, count in Counter(p[:2] for p in people).items() if count > 1)
        raise ValueError(f"{path} must have different names of samples, got {twice[1]!r} twice; rename one there")
    return people
