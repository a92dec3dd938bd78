"""Convert VCF, BCF and BGEN to PLINK files."""

import shlex
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from shiftsvd.extend.files import bounded, bounded_lines, open_bytes, optional, reading, refuse_key
from shiftsvd.extend.running import Refused, Setting, notice, plural
from shiftsvd.genetics.extension import DECODED, TARGETS

Dosages = npt.NDArray[np.float64]  # copies of the second allele of each sample, 0 to 2; NaN: missing

UNKNOWN: Final = ("", ".")  # missing names
_PER_SAMPLE: Final = 200  # bytes for each sample: its names, and all arrays of one variant
_LONGEST: Final = 100  # characters: variants with longer alleles are named by position only
_TOLERANCE: Final = 1e-3  # rounding error of dosages that are written with few digits
_DIPLOID: Final = 2
_TRIPLOID: Final = "genotypes with more than two allele copies, treated as missing"


class Person(NamedTuple):
    """A sample, with its sex as PLINK codes it: 1, 2 or NA."""

    family: str
    name: str
    sex: str = "NA"


class Variant(NamedTuple):
    """A biallelic variant, with dosages of the second allele."""

    chromosome: str
    position: int
    name: str
    first: str
    second: str
    dosages: Dosages


class VariantFile(ABC):
    """A file that is read once, variant by variant.

    Haploid genotypes count twice, as in PLINK 2, and phase is ignored.
    """

    dosages = True  # whether dosages may be fractional
    reference_known = False  # whether the first allele is that of the reference genome
    _file: Any

    def __init__(self, path: Path, people: Sequence[Person], memory_limit: int | str | None) -> None:
        self.path, self.people = path, people
        self.counts: Counter[str] = Counter()  # removed variants and genotypes set to missing, by reason
        if not people:
            raise ValueError(
                f"{path} must hold genotypes of samples, got variants without samples. Pass a file with genotypes."
            )
        bounded(path, _PER_SAMPLE * len(people), memory_limit)
        for person in people:
            if any(text.split() != [text] for text in person):
                raise ValueError(
                    f"{path} must have sample names without spaces, got {person.name!r}. Rename the sample."
                )
        twice, count = Counter(person[:2] for person in people).most_common(1)[0]
        if count > 1:
            raise ValueError(
                f"{path} must have unique sample names, got {twice[1]!r} {count:,} times. Rename these samples."
            )

    @abstractmethod
    def variants(self) -> Iterator[Variant]: ...

    def close(self) -> None:
        self._file.close()

    def checked(self, variant: Variant) -> Variant:
        chromosome, position, name, first, second, dosages = variant
        if name in UNKNOWN:
            long = len(first) + len(second) > _LONGEST
            name = f"{chromosome}:{position}" if long else f"{chromosome}:{position}:{first}:{second}"
        for text in (chromosome, name, first, second):
            if text.split() != [text]:
                self.refuse(name, f"chromosomes, names and alleles without spaces, got {text!r}")
        lowest, highest = np.nanmin(dosages, initial=0), np.nanmax(dosages, initial=0)
        if lowest < -_TOLERANCE or highest > _DIPLOID + _TOLERANCE:
            worst = float(lowest if lowest < 0 else highest)
            self.refuse(name, f"dosages from 0 to the ploidy (1 or 2), got {worst:.3g} on the scale of 0 to 2")
        return Variant(chromosome, position, name, first, second, np.clip(dosages, 0, _DIPLOID))

    def refuse(self, name: str, rule: str) -> NoReturn:
        raise ValueError(f"{self.path}, variant {name}: must have {rule}. Correct or remove this variant.")

    def count(self, where: npt.NDArray[np.bool_], what: str) -> None:
        if count := int(np.count_nonzero(where)):
            self.counts[what] += count


FIELDS: Final = ("GT", "DS", "GP", "HDS")
_END: Final = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")  # last block of a BGZF file
_PADDING: Final = -2  # htslib's code for allele copies that a sample of lower ploidy lacks
_SUM_TOLERANCE: Final = 0.05  # rounding error of the sum of three probabilities that are written with two digits


class VcfFile(VariantFile):
    """A VCF (compressed or not) or BCF; half-calls are treated as missing."""

    reference_known = True

    def __init__(self, path: Path, field: str | None, memory_limit: int | str | None, calls: bool) -> None:
        if field is not None and field not in FIELDS:
            raise Refused(Setting("key"), f" must be one of {', '.join(FIELDS)} for {path}, got {field!r}")
        _check_end(path)
        with reading(path), _htslib():
            self._file = optional("cyvcf2", "vcf").VCF(str(path.absolute()))
        formats = {record["ID"] for record in self._file.header_iter() if record["HeaderType"] == "FORMAT"}
        declared = [name for name in FIELDS if name in formats]
        usual = next((name for name in (("GT", "DS") if calls else ("DS", "GT")) if name in declared), None)
        self._field = field or usual
        if self._field not in declared:
            wanted = field or "GT or DS"
            got = f"{path} must declare the FORMAT field {wanted} in its header, got {', '.join(declared) or 'none'}. "
            other = "Choose a declared field with ", Setting("key"), "."
            raise Refused(got, *(other if declared else (f"Export the file with {wanted}.",)))
        self.dosages = self._field != "GT"
        super().__init__(path, [Person("0", name) for name in self._file.samples], memory_limit)

    def variants(self) -> Iterator[Variant]:
        with reading(self.path), _htslib():
            for record in self._file:
                if len(record.ALT) > 1:
                    self.counts["multiallelic variants removed (to split them, use bcftools norm -m-)"] += 1
                    continue
                second = record.ALT[0] if record.ALT else "."
                name = record.ID or UNKNOWN[-1]
                dosages = self._dosages(record, record.ID or f"{record.CHROM}:{record.POS}")
                yield self.checked(Variant(record.CHROM, record.POS, name, record.REF, second, dosages))

    def _dosages(self, record: Any, name: str) -> Dosages:
        fields = record.FORMAT or ()
        if "GT" not in fields and self._field not in fields:
            self.counts[f"variants without the field {self._field}, treated as missing in all samples"] += 1
        calls, copies = np.full(len(self.people), np.nan), np.full(len(self.people), _DIPLOID)
        if "GT" in fields:
            calls, copies = self._called(record.genotype.array()[:, :-1], name)
        if self._field == "GT" or self._field not in fields:
            return calls
        dosages = self._of_field(record.format(self._field).astype(np.float64), copies, name)
        return np.where(np.isnan(dosages), calls, dosages)

    def _called(self, alleles: Any, name: str) -> tuple[Dosages, Any]:
        if alleles.max(initial=0) > 1:
            self.refuse(name, f"allele numbers 0 and 1 in the field GT, got {alleles.max()}")
        copies, known = (alleles != _PADDING).sum(axis=1), (alleles >= 0).sum(axis=1)
        half, many = (known > 0) & (known < copies), copies > _DIPLOID
        self.count(half & ~many, "half-called genotypes, treated as missing")
        self.count(many & (known > 0), _TRIPLOID)
        with np.errstate(invalid="ignore"):
            share = np.where(alleles > 0, 1, 0).sum(axis=1) / np.where((known == copies) & ~many, known, np.nan)
        return np.asarray(_DIPLOID * share), copies

    def _of_field(self, values: Dosages, copies: Any, name: str) -> Dosages:
        if self._field == "GP":
            return self._expected(values, name)
        if self._field == "HDS":
            copies = (~np.isnan(values)).sum(axis=1)
            values = np.where(copies > 0, np.nansum(values, axis=1), np.nan)[:, None]
        return np.asarray(np.where(copies == 1, _DIPLOID * values[:, 0], values[:, 0]))

    def _expected(self, values: Dosages, name: str) -> Dosages:
        if values.shape[1] > _DIPLOID + 1:
            self.refuse(name, f"two or three genotype probabilities in the field GP, got {values.shape[1]}")
        ploidy, sums = (~np.isnan(values)).sum(axis=1) - 1, np.nansum(values, axis=1)
        known = (ploidy > 0) & (sums > 0)
        if np.any(np.abs(sums[known] - 1) > _SUM_TOLERANCE):
            worst = sums[known][np.argmax(np.abs(sums[known] - 1))]
            self.refuse(name, f"genotype probabilities that sum to 1 in the field GP, got a sum of {worst:.3g}")
        counted = np.nan_to_num(values) @ np.arange(values.shape[1])
        return np.where(known, _DIPLOID * counted / np.where(known, ploidy * sums, 1), np.nan)


def _check_end(path: Path) -> None:
    with reading(path), open(path, "rb") as file:
        head = file.read(18)
        if head[:2] != _END[:2] or head[12:14] != b"BC":
            return
        file.seek(-min(len(_END), path.stat().st_size), 2)
        if file.read() != _END:
            raise ValueError(f"{path} is truncated: the last block of a BGZF file is missing. Copy the file again.")


@contextmanager
def _htslib() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if type(error) is not Exception:
            raise
        raise ValueError(str(error)) from error


_SEXES: Final = frozenset({"1", "2"})


class BgenFile(VariantFile):
    """A BGEN, with sample names in the file or in a .sample file in the same folder."""

    def __init__(self, path: Path, memory_limit: int | str | None) -> None:
        with reading(path):
            self._file = optional("bgen", "bgen").BgenReader(str(path.absolute()), delay_parsing=True)
        inside, count = self._file.header.has_sample_ids, self._file.header.nsamples
        people = [Person("0", name) for name in self._file.samples] if inside else _people(path, count, memory_limit)
        super().__init__(path, people, memory_limit)

    def variants(self) -> Iterator[Variant]:
        with reading(self.path):
            for record in self._file:
                if len(record.alleles) != 2:
                    self.counts["variants that are not biallelic removed"] += 1
                    continue
                name = record.rsid if record.rsid not in UNKNOWN else record.varid
                copies, dosages = np.asarray(record.ploidy), np.asarray(record.alt_dosage, np.float64)
                self.count(copies > _DIPLOID, _TRIPLOID)
                known = (copies > 0) & (copies <= _DIPLOID)
                dosages = np.where(known, dosages * _DIPLOID / np.where(known, copies, 1), np.nan)
                first, second = record.alleles
                yield self.checked(Variant(record.chrom or "0", record.pos, name, first, second, dosages))


def _people(path: Path, count: int, memory_limit: int | str | None) -> list[Person]:
    sample_file = path.with_suffix(".sample")
    if not sample_file.exists():
        raise FileNotFoundError(
            f"{path} holds no sample names, and {sample_file} does not exist. Put the .sample file there."
        )
    head, people = _sample_rows(sample_file, memory_limit)
    if len(people) != count:
        raise ValueError(
            f"{sample_file} must list the {count:,} samples of {path.name}, got {len(people):,}. Export both again."
        )
    name = 1 if head[1:2] == ["id_2"] else 0
    sex = head.index("sex") if "sex" in head else None
    sexes = ["NA" if sex is None or row[sex] not in _SEXES else row[sex] for row in people]
    return [Person(row[0] if name else "0", row[name], own) for row, own in zip(people, sexes, strict=True)]


def _sample_rows(path: Path, memory_limit: int | str | None) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns of a .sample file, and its samples."""
    with reading(path), open_bytes(path) as stream:
        rows = [line.decode("utf-8").split() for line in bounded_lines(path, stream, memory_limit)]
    if len(rows) < 2 or not rows[0]:
        raise ValueError(f"{path} must begin with two header lines. Export the .sample file again.")
    for number, row in enumerate(rows[2:], start=3):
        if row and len(row) < len(rows[0]):
            raise ValueError(
                f"{path}, line {number:,}: must have at least {plural(len(rows[0]), 'field')}, as the first line has, "
                f"got {len(row):,}. Export the .sample file again."
            )
    return [name.lower() for name in rows[0]], list(filter(None, rows[2:]))


_MISSING: Final = 3
_UNITS, _NO_DOSAGE = 2**14, 2**16 - 1  # of a dosage in a .pgen
_CALLED: Final = _UNITS // 10  # largest distance of a hard call from a whole number, in units, as in PLINK 2
_BED_CODES: Final = np.array([3, 2, 0, 1], np.uint8)
_NO_CALL: Final = "dosages not within 0.1 of 0, 1 or 2, written as missing in the .bed (to keep them, convert to .pgen)"


def _write_files(file: VariantFile, out: Path) -> int:
    # A .bed counts A1 of its .bim, so A1 is the second allele. A .pgen is written with fixed-width records.
    of_bed, count = out.suffix == ".bed", 0
    table, samples = (out.with_suffix(suffix) for suffix in TARGETS[out.suffix])
    if of_bed:
        rows = ["\t".join([*person[:2], "0", "0", person.sex.replace("NA", "0"), "-9"]) for person in file.people]
    else:
        rows = ["#FID\tIID\tSEX", *map("\t".join, file.people)]
    samples.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8", newline="\n")
    with out.open("wb") as genotypes, table.open("w", encoding="utf-8", newline="\n") as lines:
        lines.write("" if of_bed else "#CHROM\tPOS\tID\tREF\tALT\n")
        genotypes.write(_header(file, of_bed, 0))
        for chromosome, position, name, first, second, dosages in file.variants():
            calls = called(dosages)
            if of_bed:
                file.count((calls == _MISSING) & ~np.isnan(dosages), _NO_CALL)
                lines.write(f"{chromosome}\t{name}\t0\t{position}\t{second}\t{first}\n")
                genotypes.write(_pack_calls(_BED_CODES[calls]))
            else:
                lines.write(f"{chromosome}\t{position}\t{name}\t{first}\t{second}\n")
                genotypes.write(_pack_calls(calls))
                genotypes.write(_pack_dosages(dosages) if file.dosages else b"")
            count += 1
        genotypes.seek(0)
        genotypes.write(_header(file, of_bed, count))
    return count


def _header(file: VariantFile, of_bed: bool, n_variants: int) -> bytes:
    if of_bed:
        return b"\x6c\x1b\x01"
    sizes = np.array([n_variants, len(file.people)], "<u4").tobytes()
    kind, reference = (b"\x03" if file.dosages else b"\x02"), (b"\x40" if file.reference_known else b"\x80")
    return b"\x6c\x1b" + kind + sizes + reference


def called(dosages: Dosages) -> npt.NDArray[np.uint8]:
    units = np.rint(np.where(np.isnan(dosages), -1, dosages) * _UNITS)
    nearest = np.rint(units / _UNITS)
    near = (np.abs(units - nearest * _UNITS) <= _CALLED) & (nearest >= 0)
    return np.where(near, nearest, _MISSING).astype(np.uint8)


def _pack_calls(codes: npt.NDArray[np.uint8]) -> bytes:
    # Four genotypes in a byte, the first in the lowest bits.
    return np.packbits(np.stack([codes & 1, codes >> 1], axis=1), bitorder="little").tobytes()


def _pack_dosages(dosages: Dosages) -> bytes:
    missing = np.isnan(dosages)
    units = np.rint(np.where(missing, 0, dosages) * _UNITS)
    return np.where(missing, _NO_DOSAGE, units).astype("<u2").tobytes()


def _plink2_line(path: Path) -> str:
    options = next(options for suffix, options in DECODED.items() if path.name.lower().endswith(suffix))
    return f"plink2 {options.format(shlex.quote(str(path)))} --max-alleles 2 --make-pgen --out NAME"


def refusal(path: Path) -> str:
    ours = "" if path.suffix.lower() == ".zst" else f"shiftsvd convert {shlex.quote(str(path))} NAME.pgen, or "
    return f"genotypes must be a PLINK .bed or .pgen, got {path}. Convert the file with {ours}{_plink2_line(path)}"


def decode(path: Path, out: Path, key: str | None, memory_limit: int | str | None) -> None:
    if path.suffix.lower() == ".zst":
        raise ValueError(refusal(path))
    with closing(_opened(path, key, memory_limit, out.suffix == ".bed")) as file:
        if not _write_files(file, out):
            removed = "; ".join(f"{what}: {count:,}" for what, count in file.counts.items())
            raise ValueError(f"{path} must have at least one biallelic variant, got none ({removed or 'it is empty'})")
        for what, count in file.counts.items():
            notice(f"{path}: {what}: {count:,}")


def _opened(path: Path, key: str | None, memory_limit: int | str | None, calls: bool) -> VariantFile:
    try:
        if path.suffix.lower() != ".bgen":
            return VcfFile(path, key, memory_limit, calls)
        refuse_key(path, key)
        return BgenFile(path, memory_limit)
    except ImportError as error:
        raise ImportError(f"{error}. Or convert the file with {_plink2_line(path)}.") from error
