"""PLINK 1 genotypes: .bed (2 bits for each genotype) with the .fam and .bim that lie beside it."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shiftsvd.io.base import Labels, Opened, optional, reading
from shiftsvd.io.formats.genotypes import Calls, Genotypes, Places
from shiftsvd.io.formats.plink_rows import fields
from shiftsvd.io.limits import labels, plausible_shape

_MAGIC = b"\x6c\x1b"
_VARIANTS_FIRST = b"\x01"


def read(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    if key is not None:
        raise ValueError(f"{path} holds one matrix without a name, so key must be None, got {key!r}")
    with reading(path), open(path, "rb") as file:
        magic = file.read(3)
    if magic[:2] != _MAGIC:
        raise ValueError(f"{path} is no PLINK 1 genotype file: it must begin with 6c1b, got {magic[:2].hex()}")
    if magic[2:] != _VARIANTS_FIRST:
        raise ValueError(f"{path} must have its variants one after another; rewrite it with plink --make-bed")
    optional("bed_reader", "genetics")
    samples = _samples(path.with_suffix(".fam"), memory_limit)
    bim = path.with_suffix(".bim")
    variants = labels(bim, fields(bim, (1,), memory_limit)[0], memory_limit)
    shape = len(variants), len(samples)
    plausible_shape(path, shape, memory_limit)
    expected, size = 3 + shape[0] * -(-shape[1] // 4), path.stat().st_size
    if size != expected:
        raise ValueError(
            f"{path} must have {expected} bytes for the {shape[0]} variants of its .bim and the {shape[1]} samples "
            f"of its .fam, got {size}"
        )
    return Opened(BedGenotypes(path, shape), variants, samples, samples="columns")


def _samples(path: Path, memory_limit: int | str | None) -> Labels:
    families, names = fields(path, (0, 1), memory_limit)
    if len(set(names)) < len(names):
        names = ["_".join(pair) for pair in zip(families, names, strict=True)]
    return labels(path, names, memory_limit)


class BedGenotypes(Genotypes):
    """Variants of a .bed file."""

    def _numbers(self, places: Places) -> npt.NDArray[np.float32]:
        G: npt.NDArray[np.float32] = self._read(places, "float32")
        return G

    def _calls(self, places: Places) -> Calls:
        G: Calls = self._read(places, "int8")
        return G

    def _read(self, places: Places, dtype: str) -> npt.NDArray[Any]:
        (m, n), samples = self._in_file, slice(None) if self._samples is None else self._samples
        open_bed = optional("bed_reader", "genetics").open_bed
        with reading(self._path):
            file = open_bed(self._path, iid_count=n, sid_count=m, num_threads=1)
            G: npt.NDArray[Any] = file.read((samples, places), dtype=dtype, order="F").T
        return G
