"""VCF, BCF and BGEN, decoded once into PLINK files."""

import shlex
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from shiftsvd.extend.files import bounded, bounded_lines, open_bytes, optional, reading
from shiftsvd.extend.running import notice

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


_SEXES: Final = frozenset({"1", "2"})
_DIPLOID_BGEN: Final = 2


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
        if many := int(np.count_nonzero(copies > _DIPLOID_BGEN)):
            self.left_out["genotypes of more than two copies, which are missing"] += many
        told = (copies > 0) & (copies <= _DIPLOID_BGEN)
        return np.where(told, dosages * _DIPLOID_BGEN / np.where(told, copies, 1), np.nan)


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


_NO_CALL: Final = "dosages not within 0.1 of 0, 1 or 2, which are missing in a .bed (.pgen keeps them)"


# How plink2 is told of a file.
_TO_PGEN: Final = {
    (".vcf", ".vcf.gz", ".vcf.bgz", ".vcf.zst"): "--vcf {}",
    (".bcf",): "--bcf {}",
    (".bgen",): "--bgen {} ref-first --sample NAME.sample",
}


def plink2_line(path: Path) -> str:
    """The command that makes a .pgen of a file with plink2."""
    told = next(told for suffixes, told in _TO_PGEN.items() if path.name.lower().endswith(suffixes))
    return f"plink2 {told.format(shlex.quote(str(path)))} --max-alleles 2 --make-pgen --out NAME"


def refusal(path: Path) -> str:
    """What to do with a file that is decoded once, for those who would read it."""
    ours = "" if path.suffix.lower() == ".zst" else f"shiftsvd convert {shlex.quote(str(path))} NAME.pgen, or "
    return f"genotypes must be PLINK's .bed or .pgen, got {path}; convert it with {ours}{plink2_line(path)}"


def decode(path: Path, out: Path, key: str | None, memory_limit: int | str | None) -> None:
    if path.suffix.lower() == ".zst":
        raise ValueError(refusal(path))
    calls = out.suffix == ".bed"
    with closing(_opened(path, key, memory_limit, calls)) as file:
        writer = BedWriter(out) if calls else PgenWriter(out, file.dosages, file.reference_known)
        count = writer.write(_counted(file) if calls else file.variants(), file.people)
        if not count:
            raise ValueError(f"{path} must have at least one variant of two alleles")
        file.told()


def _opened(path: Path, key: str | None, memory_limit: int | str | None, calls: bool) -> VariantFile:
    try:
        if path.suffix.lower() != ".bgen":
            return VcfFile(path, key, memory_limit, calls)
        if key is not None:
            raise ValueError(f"{path} holds one matrix without a name, so key must be None, got {key!r}")
        return BgenFile(path, memory_limit)
    except ImportError as error:
        raise ImportError(f"{error}; or convert it with {plink2_line(path)}") from error


def _counted(file: VariantFile) -> Iterator[Variant]:
    for variant in file.variants():
        lost = (called(variant.dosages) > 2) & ~np.isnan(variant.dosages)
        if count := int(np.count_nonzero(lost)):
            file.left_out[_NO_CALL] += count
        yield variant
