"""BGEN by the package of that name: what probabilities of genotypes lead to expect."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from shiftsvd.io.base import optional, reading
from shiftsvd.io.limits import bounded_lines, open_bytes
from shiftsvd.io.variants.records import UNKNOWN, Dosages, Person, Variant, VariantFile, checked_people

_SEXES: Final = frozenset({"1", "2"})
_DIPLOID: Final = 2


class BgenFile(VariantFile):
    """A BGEN, whose samples are named in it or in the .sample beside it.

    Genotypes of one copy count twice, as PLINK 2 has it, and phase is forgotten.
    """

    dosages = True
    reference_known = False

    def __init__(self, path: Path, memory_limit: int | str | None) -> None:
        super().__init__(path)
        with reading(path):
            self._file = optional("bgen", "bgen").BgenReader(str(path.absolute()), delay_parsing=True)
        inside, count = self._file.header.has_sample_ids, self._file.header.nsamples
        people = [Person("0", name) for name in self._file.samples] if inside else _listed(path, count, memory_limit)
        self.people = checked_people(path, people, memory_limit)

    def close(self) -> None:
        self._file.close()

    def variants(self) -> Iterator[Variant]:
        with reading(self.path):
            for record in self._file:
                if len(record.alleles) != 2:
                    self.left_out["variants of other than two alleles left out"] += 1
                    continue
                name = record.rsid if record.rsid not in UNKNOWN else record.varid
                first, second = record.alleles
                dosages = self._dosages(record)
                yield self.checked(Variant(record.chrom or "0", record.pos, name, first, second, dosages))

    def _dosages(self, record: object) -> Dosages:
        copies = np.asarray(record.ploidy)  # type: ignore[attr-defined]
        dosages = np.asarray(record.alt_dosage, np.float64)  # type: ignore[attr-defined]
        if many := int(np.count_nonzero(copies > _DIPLOID)):
            self.left_out["genotypes of more than two copies, which are missing"] += many
        told = (copies > 0) & (copies <= _DIPLOID)
        return np.where(told, dosages * _DIPLOID / np.where(told, copies, 1), np.nan)


def _listed(path: Path, count: int, memory_limit: int | str | None) -> list[Person]:
    beside = path.with_suffix(".sample")
    if not beside.exists():
        raise FileNotFoundError(
            f"{path} does not name its samples, and there is no {beside.name} beside it; put it there"
        )
    with reading(beside), open_bytes(beside) as stream:
        rows = [line.decode("utf-8").split() for line in bounded_lines(beside, stream, memory_limit)]
    head, people = [name.lower() for name in (rows or [[]])[0]], [row for row in rows[2:] if row]
    if len(rows) < 2 or any(len(row) < len(head) for row in people) or not head:
        raise ValueError(
            f"{beside} must have two lines of heads, and as many fields in each line as names in the first"
        )
    if len(people) != count:
        raise ValueError(f"{beside} must have the {count} samples of {path.name}, got {len(people)}")
    name = 1 if head[1:2] == ["id_2"] else 0
    sex = head.index("sex") if "sex" in head else None
    sexes = ["NA" if sex is None or row[sex] not in _SEXES else row[sex] for row in people]
    return [Person(row[0] if name else "0", row[name], own) for row, own in zip(people, sexes, strict=True)]
