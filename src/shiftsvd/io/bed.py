"""PLINK 1 genotypes: .bed (2 bits for each genotype) with the .fam and .bim that lie beside it."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shiftsvd.backends.source import RowSource
from shiftsvd.io.bounds import bounded_lines, labels, open_bytes, plausible_shape
from shiftsvd.io.opening import Labels, Opened, optional, reading

_MAGIC = b"\x6c\x1b"
_VARIANTS_FIRST = b"\x01"


def read(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    """Counts of the first allele, variants x samples; a missing one is the mean of its variant."""
    if key is not None:
        raise ValueError(f"{path} holds one matrix without a name, so key must be None, got {key!r}")
    with reading(path), open(path, "rb") as file:
        magic = file.read(3)
    if magic[:2] != _MAGIC:
        raise ValueError(f"{path} is no PLINK 1 genotype file: it must begin with 6c1b, got {magic[:2].hex()}")
    if magic[2:] != _VARIANTS_FIRST:
        raise ValueError(f"{path} must have its variants one after another; rewrite it with plink --make-bed")
    samples = _samples(path.with_suffix(".fam"), memory_limit)
    variants = _variants(path.with_suffix(".bim"), memory_limit)
    shape = len(variants), len(samples)
    plausible_shape(path, shape, memory_limit)
    expected, size = 3 + shape[0] * -(-shape[1] // 4), path.stat().st_size
    if size != expected:
        raise ValueError(
            f"{path} must have {expected} bytes for the {shape[0]} variants of its .bim and the {shape[1]} samples "
            f"of its .fam, got {size}"
        )
    return Opened(Genotypes(path, shape), variants, samples, samples="columns")


def _samples(path: Path, memory_limit: int | str | None) -> Labels:
    """Names of the samples: within the family, or with it where that is not enough."""
    fields = _first_fields(path, memory_limit)
    names = [row[1] for row in fields]
    unique = len(set(names)) == len(names)
    return labels(path, names if unique else ["_".join(row) for row in fields], memory_limit)


def _variants(path: Path, memory_limit: int | str | None) -> Labels:
    """Names of the variants."""
    return labels(path, [row[1] for row in _first_fields(path, memory_limit)], memory_limit)


def _first_fields(path: Path, memory_limit: int | str | None) -> list[list[str]]:
    """The first two fields of each line; the other fields are not read."""
    with reading(path), open_bytes(path) as stream:
        fields = [line.decode("utf-8").split(None, 2)[:2] for line in bounded_lines(path, stream, memory_limit)]
    for number, row in enumerate(fields, 1):
        if len(row) != 2:
            raise ValueError(f"{path} must have at least two fields in each line, got {len(row)} in line {number}")
    return fields


class Genotypes(RowSource):
    """The variants of a .bed file as rows."""

    sparse = False
    dtype = np.dtype(np.float32)

    def __init__(self, path: Path, shape: tuple[int, int]) -> None:
        self.shape, self.stored = shape, shape[0] * shape[1]
        self.name = str(path)
        status = path.stat()
        self.fingerprint = f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
        self._path = path
        self._open = optional("bed_reader", "genetics").open_bed

    def edges(self, n_bytes: int) -> list[int]:
        """Equal numbers of variants."""
        step = max(1, n_bytes // (4 * self.shape[1]))
        return [*range(0, self.shape[0], step), self.shape[0]]

    def read(self, lo: int, hi: int) -> npt.NDArray[Any]:
        """Variants lo to hi; a missing genotype is the mean of the others, and zero if there is none."""
        m, n = self.shape
        with reading(self._path):
            file = self._open(self._path, iid_count=n, sid_count=m, num_threads=1)
            G: npt.NDArray[np.float32] = file.read(np.s_[:, lo:hi], dtype="float32", order="F").T
        missing = np.isnan(G)
        np.copyto(G, 0, where=missing)
        means = G.sum(axis=1, dtype=np.float64) / np.maximum(n - missing.sum(axis=1), 1)
        np.copyto(G, means[:, None], where=missing, casting="same_kind")
        return G
