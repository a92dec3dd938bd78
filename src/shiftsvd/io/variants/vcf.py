"""VCF and BCF by cyvcf2: calls, or dosages of a field, and calls where the field has none."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from shiftsvd.io.base import optional, reading
from shiftsvd.io.variants.records import UNKNOWN, Dosages, Person, Variant, VariantFile, checked_people

FIELDS: Final = ("GT", "DS", "GP", "HDS")
_END: Final = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")  # of a BGZF file
_PADDING: Final = -2  # in place of the copies that a sample does not have
_DIPLOID: Final = 2
_SUM_OFF: Final = 0.05  # by how much probabilities that are written with two digits may miss 1


class VcfFile(VariantFile):
    """A VCF, plain or packed, or BCF.

    Genotypes of one copy count twice, as PLINK 2 has it, half-calls are missing, and phase is forgotten.
    """

    reference_known = True

    def __init__(self, path: Path, field: str | None, memory_limit: int | str | None, calls: bool) -> None:
        super().__init__(path)
        if field is not None and field not in FIELDS:
            raise ValueError(f"key must be one of {', '.join(FIELDS)} for {path}, got {field!r}")
        _complete(path)
        with reading(path), _htslib():
            self._file = optional("cyvcf2", "vcf").VCF(str(path.absolute()))
        self._field = self._chosen(field, calls)
        self.dosages = self._field != "GT"
        self.people = checked_people(path, [Person("0", name) for name in self._file.samples], memory_limit)

    def _chosen(self, field: str | None, calls: bool) -> str:
        declared = [name for name in FIELDS if self._declares(name)]
        usual = ("GT", "DS") if calls else ("DS", "GT")
        chosen = field or next((name for name in usual if name in declared), None)
        if chosen is None or chosen not in declared:
            wanted = field or "GT or DS"
            raise ValueError(
                f"{self.path} must have genotypes in the field {wanted}, got {', '.join(declared) or 'none'}"
            )
        return chosen

    def _declares(self, name: str) -> bool:
        try:
            self._file.get_header_type(name, order=[2])
        except KeyError:
            return False
        return True

    def close(self) -> None:
        self._file.close()

    def variants(self) -> Iterator[Variant]:
        with reading(self.path), _htslib():
            for record in self._file:
                if len(record.ALT) > 1:
                    self.left_out["variants of more than two alleles left out (bcftools norm -m- splits them)"] += 1
                    continue
                second = record.ALT[0] if record.ALT else "."
                name = record.ID or UNKNOWN[-1]
                dosages = self._dosages(record, record.ID or f"{record.CHROM}:{record.POS}")
                yield self.checked(Variant(record.CHROM, record.POS, name, record.REF, second, dosages))

    def _dosages(self, record: Any, name: str) -> Dosages:
        fields = record.FORMAT or ()
        if "GT" not in fields and self._field not in fields:
            self.left_out["variants without the field that is read, and missing in all samples"] += 1
        calls, copies = np.full(len(self.people), np.nan), np.full(len(self.people), _DIPLOID)
        if "GT" in fields:
            calls, copies = self._called(record.genotype.array()[:, :-1], name)
        if self._field == "GT" or self._field not in fields:
            return calls
        dosages = self._of_field(record.format(self._field).astype(np.float64), copies, name)
        return np.where(np.isnan(dosages), calls, dosages)

    def _called(self, alleles: Any, name: str) -> tuple[Dosages, Any]:
        if alleles.max(initial=0) > 1:
            self.refuse(name, f"calls 0 and 1 of its two alleles, got {alleles.max()}")
        copies, known = (alleles != _PADDING).sum(axis=1), (alleles >= 0).sum(axis=1)
        half, many = (known > 0) & (known < copies), copies > _DIPLOID
        self._count(half & ~many, "half-called genotypes, which are missing")
        self._count(many & (known > 0), "genotypes of more than two copies, which are missing")
        with np.errstate(invalid="ignore"):
            share = np.where(alleles > 0, 1, 0).sum(axis=1) / np.where((known == copies) & ~many, known, np.nan)
        return np.asarray(_DIPLOID * share), copies

    def _count(self, where: Any, what: str) -> None:
        if count := int(np.count_nonzero(where)):
            self.left_out[what] += count

    def _of_field(self, values: Dosages, copies: Any, name: str) -> Dosages:
        if self._field == "GP":
            return self._expected(values, name)
        if self._field == "HDS":
            copies = (~np.isnan(values)).sum(axis=1)
            values = np.where(copies > 0, np.nansum(values, axis=1), np.nan)[:, None]
        return np.asarray(np.where(copies == 1, _DIPLOID * values[:, 0], values[:, 0]))

    def _expected(self, values: Dosages, name: str) -> Dosages:
        if values.shape[1] > _DIPLOID + 1:
            self.refuse(name, f"two or three probabilities of a genotype, got {values.shape[1]}")
        there = ~np.isnan(values)
        of, sums = there.sum(axis=1) - 1, np.nansum(values, axis=1)
        told = (of > 0) & (sums > 0)
        if np.any(np.abs(sums[told] - 1) > _SUM_OFF):
            self.refuse(name, "probabilities that add up to 1 in the field GP")
        counted = np.nan_to_num(values) @ np.arange(values.shape[1])
        return np.where(told, _DIPLOID * counted / np.where(told, of * sums, 1), np.nan)


def _complete(path: Path) -> None:
    with reading(path), open(path, "rb") as file:
        head = file.read(18)
        if head[:2] != _END[:2] or head[12:14] != b"BC":
            return
        file.seek(-min(len(_END), path.stat().st_size), 2)
        if file.read() != _END:
            raise ValueError(f"{path} is truncated: it lacks the last block of a BGZF file; copy it again")


@contextmanager
def _htslib() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if type(error) is not Exception:
            raise
        raise ValueError(str(error)) from error
