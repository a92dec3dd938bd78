"""PLINK 1 genotypes: .bed (2 bits for each genotype) with the .fam and .bim that lie beside it."""

from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shiftsvd.backends.source import RowSource
from shiftsvd.io.base import Labels, Opened, optional, reading
from shiftsvd.io.limits import bounded_lines, labels, open_bytes, plausible_shape
from shiftsvd.io.storage.chunked import fingerprint_of

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
    bim = path.with_suffix(".bim")
    variants = labels(bim, [row[1] for row in _first_fields(bim, memory_limit)], memory_limit)
    shape = len(variants), len(samples)
    plausible_shape(path, shape, memory_limit)
    expected, size = 3 + shape[0] * -(-shape[1] // 4), path.stat().st_size
    if size != expected:
        raise ValueError(
            f"{path} must have {expected} bytes for the {shape[0]} variants of its .bim and the {shape[1]} samples "
            f"of its .fam, got {size}"
        )
    return Opened(Genotypes(path, shape), variants, samples, samples="columns")


def some(opened: Opened, kept: npt.NDArray[np.bool_]) -> Opened:
    """A file of which only the variants in a mask are read."""
    assert opened.rows is not None
    return replace(opened, matrix=opened.matrix.some(kept), rows=opened.rows[kept])


def filled(opened: Opened, means: npt.NDArray[Any]) -> Opened:
    """A file in which a missing genotype is this mean of its variant, and not that of the samples in the file."""
    return replace(opened, matrix=opened.matrix.filled(means))


def _samples(path: Path, memory_limit: int | str | None) -> Labels:
    """Names of the samples: within the family, or with it where that is not enough."""
    fields = _first_fields(path, memory_limit)
    names = [row[1] for row in fields]
    unique = len(set(names)) == len(names)
    return labels(path, names if unique else ["_".join(row) for row in fields], memory_limit)


def _first_fields(path: Path, memory_limit: int | str | None) -> list[list[str]]:
    """The first two fields of each line; the other fields are not read."""
    with reading(path), open_bytes(path) as stream:
        fields = [line.decode("utf-8").split(None, 2)[:2] for line in bounded_lines(path, stream, memory_limit)]
    for number, row in enumerate(fields, 1):
        if len(row) != 2:
            raise ValueError(f"{path} must have at least two fields in each line, got {len(row)} in line {number}")
    return fields


class Genotypes(RowSource):
    """Variants of a .bed file as rows: all of them, or those at some places, which ascend."""

    sparse = False
    dtype = np.dtype(np.float32)

    def __init__(
        self,
        path: Path,
        in_file: tuple[int, int],
        places: npt.NDArray[np.intp] | None = None,
        means: npt.NDArray[Any] | None = None,
    ) -> None:
        self._path, self._in_file, self._means = path, in_file, means
        self._places = np.arange(in_file[0]) if places is None else places
        self.shape = len(self._places), in_file[1]
        self.name = str(path)
        own = "" if places is None and means is None else _told(self._places, means)
        self.fingerprint = fingerprint_of(path, own)
        self._open = optional("bed_reader", "genetics").open_bed

    @property
    def places(self) -> npt.NDArray[np.intp]:
        """Where the variants are in the file."""
        return self._places

    def some(self, kept: npt.NDArray[np.bool_]) -> "Genotypes":
        """The variants in a mask."""
        means = None if self._means is None else self._means[kept]
        return Genotypes(self._path, self._in_file, self._places[kept], means)

    def filled(self, means: npt.NDArray[Any]) -> "Genotypes":
        """The same variants, with these means in place of what is missing."""
        return Genotypes(self._path, self._in_file, self._places, means)

    def edges(self, n_bytes: int) -> list[int]:
        """Equal numbers of variants."""
        step = max(1, n_bytes // (4 * self.shape[1]))
        return [*range(0, self.shape[0], step), self.shape[0]]

    def read(self, lo: int, hi: int) -> npt.NDArray[Any]:
        """Variants lo to hi; a missing genotype is the mean given, or that of the others, and zero if there is none."""
        m, n = self._in_file
        with reading(self._path):
            file = self._open(self._path, iid_count=n, sid_count=m, num_threads=1)
            G: npt.NDArray[np.float32] = file.read(np.s_[:, self._places[lo:hi]], dtype="float32", order="F").T
        missing = np.isnan(G)
        np.copyto(G, 0, where=missing)
        means = _means(G, missing) if self._means is None else self._means[lo:hi]
        np.copyto(G, means[:, None], where=missing, casting="same_kind")
        return G


def _means(G: npt.NDArray[np.float32], missing: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Means of variants whose missing genotypes are 0 here; 0 where all are missing."""
    means: npt.NDArray[np.float64] = G.sum(axis=1, dtype=np.float64)
    means /= np.maximum(G.shape[1] - missing.sum(axis=1), 1)
    return means


def _told(*parts: npt.NDArray[Any] | None) -> str:
    """Which places and means these are, in few letters."""
    content = b"|".join(b"" if part is None else part.tobytes() for part in parts)
    return blake2b(content, digest_size=8).hexdigest()
