"""A file of variants decoded, once, into one of PLINK."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import numpy as np

from shiftsvd.io.sniff import plink2_line
from shiftsvd.io.variants.bgen import BgenFile
from shiftsvd.io.variants.plink import BedWriter, PgenWriter, called
from shiftsvd.io.variants.records import Variant, VariantFile
from shiftsvd.io.variants.vcf import VcfFile

_NO_CALL: Final = "dosages not within 0.1 of 0, 1 or 2, which are missing in a .bed (.pgen keeps them)"


def decode(path: Path, out: Path, key: str | None, memory_limit: int | str | None) -> None:
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
