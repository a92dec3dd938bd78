"""Variants written one after another as files of PLINK: .pgen of fixed width with .pvar and .psam, or .bed."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from shiftsvd.io.variants.records import Dosages, Person, Variant

SUFFIXES: Final = {".pgen": (".pvar", ".psam"), ".bed": (".bim", ".fam")}  # and what lies beside each
_MISSING: Final = 3
_UNITS, _NO_DOSAGE = 2**14, 2**16 - 1  # of a dosage in a .pgen
_CALLED: Final = _UNITS // 10  # units that a call may be away from a whole number, as in PLINK 2
_WEIGHTS: Final = np.array([1, 4, 16, 64], np.uint8)  # of four genotypes in a byte, the first one lowest


class PlinkWriter(ABC):
    """A file of genotypes, and the tables beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, variants: Iterable[Variant], people: Sequence[Person]) -> int:
        table, samples = (self._path.with_suffix(suffix) for suffix in SUFFIXES[self._path.suffix])
        with samples.open("w", encoding="utf-8", newline="\n") as file:
            self._write_people(file, people)
        count = 0
        with self._path.open("wb") as genotypes, table.open("w", encoding="utf-8", newline="\n") as file:
            file.write(self.head)
            genotypes.write(self._begin(len(people), 0))
            for variant in variants:
                file.write(self._row(variant))
                genotypes.write(self._packed(variant.dosages))
                count += 1
            genotypes.seek(0)
            genotypes.write(self._begin(len(people), count))
        return count

    head = ""  # the first line of the table of variants

    @abstractmethod
    def _begin(self, n_samples: int, n_variants: int) -> bytes: ...

    @abstractmethod
    def _row(self, variant: Variant) -> str: ...

    @abstractmethod
    def _packed(self, dosages: Dosages) -> bytes: ...

    @abstractmethod
    def _write_people(self, file: IO[str], people: Sequence[Person]) -> None: ...


class PgenWriter(PlinkWriter):
    """A .pgen of fixed width: calls of 2 bits, and dosages of 16 where there are any."""

    head = "#CHROM\tPOS\tID\tREF\tALT\n"

    def __init__(self, path: Path, dosages: bool, reference_known: bool) -> None:
        super().__init__(path)
        self._dosages, self._known = dosages, reference_known

    def _begin(self, n_samples: int, n_variants: int) -> bytes:
        sizes = np.array([n_variants, n_samples], "<u4").tobytes()
        return b"\x6c\x1b" + (b"\x03" if self._dosages else b"\x02") + sizes + (b"\x40" if self._known else b"\x80")

    def _row(self, variant: Variant) -> str:
        return f"{variant.chromosome}\t{variant.position}\t{variant.name}\t{variant.first}\t{variant.second}\n"

    def _packed(self, dosages: Dosages) -> bytes:
        calls = _four_a_byte(called(dosages)).tobytes()
        if not self._dosages:
            return calls
        missing = np.isnan(dosages)
        units = np.rint(np.where(missing, 0, dosages) * _UNITS)
        return calls + np.where(missing, _NO_DOSAGE, units).astype("<u2").tobytes()

    def _write_people(self, file: IO[str], people: Sequence[Person]) -> None:
        file.write("#FID\tIID\tSEX\n")
        file.writelines("\t".join(person) + "\n" for person in people)


class BedWriter(PlinkWriter):
    """A .bed that counts second alleles of variants, which come first there."""

    def _begin(self, n_samples: int, n_variants: int) -> bytes:
        return b"\x6c\x1b\x01"

    def _row(self, variant: Variant) -> str:
        return f"{variant.chromosome}\t{variant.name}\t0\t{variant.position}\t{variant.second}\t{variant.first}\n"

    def _packed(self, dosages: Dosages) -> bytes:
        codes = np.array([3, 2, 0, 1], np.uint8)[called(dosages)]
        return _four_a_byte(codes).tobytes()

    def _write_people(self, file: IO[str], people: Sequence[Person]) -> None:
        rows = ((*person[:2], "0", "0", "0" if person.sex == "NA" else person.sex, "-9") for person in people)
        file.writelines("\t".join(row) + "\n" for row in rows)


def called(dosages: Dosages) -> npt.NDArray[np.uint8]:
    units = np.rint(np.where(np.isnan(dosages), -1, dosages) * _UNITS)
    nearest = np.rint(units / _UNITS)
    near = (np.abs(units - nearest * _UNITS) <= _CALLED) & (nearest >= 0)
    return np.where(near, nearest, _MISSING).astype(np.uint8)


def _four_a_byte(codes: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    padded = np.zeros(-(-len(codes) // 4) * 4, np.uint8)
    padded[: len(codes)] = codes
    return np.asarray((padded.reshape(-1, 4) * _WEIGHTS).sum(axis=1, dtype=np.uint8))
