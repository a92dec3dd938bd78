"""Readers of PLINK 1 (.bed) and PLINK 2 (.pgen) genotypes."""

import sys
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from hashlib import blake2b
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, Final, Self, cast

import numpy as np
import numpy.typing as npt

from shiftsvd.extend.files import (
    Labels,
    Opened,
    RowSource,
    bounded_lines,
    fingerprint_of,
    labels,
    open_bytes,
    optional,
    plausible_shape,
    reading,
)

COHORTS: Final = (
    "genotypes of different samples may count different alleles: merge the cohorts (plink2 --pmerge-list); "
    "files of the same samples are stacked by columns"
)
_N_FIELDS: Final = 6
_CENTIMORGANS: Final = 2  # the field that a .bim may leave out


def rows(path: Path, stream: IO[bytes], memory_limit: int | str | None) -> Iterator[tuple[int, list[str]]]:
    empty = 0
    for number, line in enumerate(bounded_lines(path, stream, memory_limit), 1):
        words = line.decode("utf-8-sig").split()
        if words and empty:
            raise ValueError(f"{path} must have no empty lines between others, got one in line {empty}")
        if words:
            yield number, words
        else:
            empty = empty or number


def fields(path: Path, wanted: Sequence[int], memory_limit: int | str | None = None) -> list[list[str]]:
    """Some of the six fields of each line of a .fam, whose head is left out, or .bim, which may lack the third.

    Raises
    ------
    ValueError, OSError
        If a line is empty, but for those at the end, or shorter than that.
    """
    columns: list[list[str]] = [[] for _ in wanted]
    is_bim = path.suffix.lower() == ".bim"
    with reading(path), open_bytes(path) as stream:
        for number, row in rows(path, stream, memory_limit):
            if not is_bim and not columns[0] and row[0].startswith("#"):
                continue
            if is_bim and len(row) == _N_FIELDS - 1:
                row.insert(_CENTIMORGANS, "0")
            if len(row) < _N_FIELDS:
                raise ValueError(f"{path} must have {_N_FIELDS} fields in each line, got {len(row)} in line {number}")
            for column, place in zip(columns, wanted, strict=True):
                column.append(sys.intern(row[place]))
    return columns


_FIRST: Final = {".pvar": ("#CHROM",), ".zst": ("#CHROM",), ".psam": ("#FID", "#IID")}


def table_of(pgen: Path) -> Path:
    plain, packed = (pgen.with_suffix(suffix) for suffix in (".pvar", ".pvar.zst"))
    return packed if packed.exists() and not plain.exists() else plain


def columns(path: Path, wanted: tuple[str, ...], memory_limit: int | str | None = None) -> dict[str, list[str]]:
    """Some columns of a .pvar or .psam by their names; names that it does not have are left out.

    Raises
    ------
    ValueError, OSError
        If there is no head, or a line is shorter than it.
    """
    head: list[str] = []
    found: dict[str, list[str]] = {}
    with reading(path), _open(path) as stream:
        for number, row in rows(path, stream, memory_limit):
            if row[0].startswith("##"):
                continue
            if not head:
                head = _head(path, row)
                found = {name: [] for name in wanted if name in head}
            elif len(row) < len(head):
                raise ValueError(f"{path} must have {len(head)} fields in each line, got {len(row)} in line {number}")
            else:
                for name, column in found.items():
                    column.append(row[head.index(name)])
    return found


def _open(path: Path) -> AbstractContextManager[IO[bytes]]:
    return _unpacked(path) if path.suffix.lower() == ".zst" else open_bytes(path)


@contextmanager
def _unpacked(path: Path) -> Iterator[IO[bytes]]:
    zstandard = optional("zstandard", "pgen")
    try:
        with path.open("rb") as packed:
            stream = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
            yield cast("IO[bytes]", BufferedReader(stream))
    except zstandard.ZstdError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def _head(path: Path, row: list[str]) -> list[str]:
    first = _FIRST[path.suffix.lower()]
    if not row or row[0] not in first:
        raise ValueError(
            f"{path} must begin with {' or '.join(first)}, got {' '.join(row[:2])!r}; write it with plink2 --make-pgen"
        )
    return [row[0].removeprefix("#"), *row[1:]]


Places = npt.NDArray[np.intp]
Calls = npt.NDArray[np.int8]  # counts of the first allele, 0 to 2; whatever is negative is missing


class Genotypes(RowSource):
    """Counts of the first allele of variants, of all variants and samples of a file or those at some places.

    Places of variants ascend, those of samples are in any order. A missing genotype is the mean given for its variant,
    or that of the other samples here.
    """

    sparse = False
    dtype = np.dtype(np.float32)
    unstackable = COHORTS

    def __init__(
        self,
        path: Path,
        in_file: tuple[int, int],
        places: Places | None = None,
        means: npt.NDArray[Any] | None = None,
        samples: Places | None = None,
    ) -> None:
        self._path, self._in_file, self._means, self._samples = path, in_file, means, samples
        self._places = np.arange(in_file[0]) if places is None else places
        self.shape = len(self._places), in_file[1] if samples is None else len(samples)
        self.name = str(path)
        chosen = [places, means, samples]
        self.fingerprint = fingerprint_of(path, "" if all(part is None for part in chosen) else _told(chosen))

    @property
    def places(self) -> Places:
        return self._places

    @abstractmethod
    def _numbers(self, places: Places) -> npt.NDArray[np.float32]: ...

    @abstractmethod
    def _calls(self, places: Places) -> Calls: ...

    def some(self, kept: npt.NDArray[np.bool_]) -> Self:
        means = None if self._means is None else self._means[kept]
        return type(self)(self._path, self._in_file, self._places[kept], means, self._samples)

    def of_samples(self, kept: npt.NDArray[np.bool_] | Places) -> Self:
        samples = np.arange(self.shape[1])[kept] if self._samples is None else self._samples[kept]
        return type(self)(self._path, self._in_file, self._places, self._means, samples)

    def with_nan(self) -> Self:
        return self.filled(np.full(self.shape[0], np.nan))

    def filled(self, means: npt.NDArray[Any]) -> Self:
        return type(self)(self._path, self._in_file, self._places, means, self._samples)

    def edges(self, n_bytes: int) -> list[int]:
        step = max(1, n_bytes // (4 * max(1, self.shape[1])))
        return [*range(0, self.shape[0], step), self.shape[0]]

    def read(self, lo: int, hi: int) -> npt.NDArray[Any]:
        G = self._numbers(self._places[lo:hi])
        missing = np.isnan(G)
        np.copyto(G, 0, where=missing)
        means = _means(G, missing) if self._means is None else self._means[lo:hi]
        np.copyto(G, means[:, None], where=missing, casting="same_kind")
        return G

    def calls(self, lo: int, hi: int) -> Calls:
        return self._calls(self._places[lo:hi])


def some(opened: Opened, kept: npt.NDArray[np.bool_]) -> Opened:
    assert opened.rows is not None
    return replace(opened, matrix=opened.matrix.some(kept), rows=opened.rows[kept])


def of_samples(opened: Opened, kept: npt.NDArray[np.bool_]) -> Opened:
    assert opened.columns is not None
    return replace(opened, matrix=opened.matrix.of_samples(kept), columns=opened.columns[kept])


def of_places(opened: Opened, places: Places) -> Opened:
    if np.array_equal(places, np.arange(len(places))):
        return opened
    assert opened.columns is not None
    return replace(opened, matrix=opened.matrix.of_samples(places), columns=opened.columns[places])


def filled(opened: Opened, means: npt.NDArray[Any]) -> Opened:
    return replace(opened, matrix=opened.matrix.filled(means))


def _means(G: npt.NDArray[np.float32], missing: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    means: npt.NDArray[np.float64] = G.sum(axis=1, dtype=np.float64)
    means /= np.maximum(G.shape[1] - missing.sum(axis=1), 1)
    return means


def _told(parts: list[npt.NDArray[Any] | None]) -> str:
    content = b"|".join(b"" if part is None else part.tobytes() for part in parts)
    return blake2b(content, digest_size=8).hexdigest()


_MAGIC = b"\x6c\x1b"
_VARIANTS_FIRST = b"\x01"


def read_bed(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
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


def read_pgen(path: Path, key: str | None, memory_limit: int | str | None) -> Opened:
    if key is not None:
        raise ValueError(f"{path} holds one matrix without a name, so key must be None, got {key!r}")
    optional("pgenlib", "pgen")
    pvar, psam = table_of(path), path.with_suffix(".psam")
    told, people = columns(pvar, ("ID", "ALT"), memory_limit), columns(psam, ("FID", "IID"), memory_limit)
    several = next((name for name, alt in zip(told["ID"], told["ALT"], strict=True) if "," in alt), None)
    if several is not None:
        raise ValueError(
            f"{path} must have variants of two alleles, got {several} of more; keep the others with plink2 "
            "--max-alleles 2 --make-pgen"
        )
    names = people["IID"]
    if len(set(names)) < len(names) and "FID" in people:
        names = ["_".join(pair) for pair in zip(people["FID"], names, strict=True)]
    shape = len(told["ID"]), len(names)
    plausible_shape(path, shape, memory_limit)
    with _reader(path, shape[1], None) as reader:
        there = reader.get_variant_ct(), reader.get_raw_sample_ct()
    if there != shape:
        raise ValueError(f"{path} must have the {shape[0]} variants and {shape[1]} samples beside it, got {there}")
    variants, samples = labels(pvar, told["ID"], memory_limit), labels(psam, names, memory_limit)
    return Opened(PgenGenotypes(path, shape), variants, samples, samples="columns")


def _reader(path: Path, n_samples: int, samples: Places | None) -> Any:
    subset = None if samples is None else np.sort(samples).astype(np.uint32)
    with reading(path):
        return optional("pgenlib", "pgen").PgenReader(str(path).encode(), raw_sample_ct=n_samples, sample_subset=subset)


class PgenGenotypes(Genotypes):
    """Variants of a .pgen file; what `read` gives are dosages where the file has them."""

    def _numbers(self, places: Places) -> npt.NDArray[np.float32]:
        G = np.empty((len(places), self.shape[1]), np.float32)
        with _reader(self._path, self._in_file[1], self._samples) as reader, reading(self._path):
            reader.read_dosages_list(places.astype(np.uint32), G)
        G[G < 0] = np.nan
        return self._in_order(G)

    def _calls(self, places: Places) -> Calls:
        G = np.empty((len(places), self.shape[1]), np.int8)
        with _reader(self._path, self._in_file[1], self._samples) as reader, reading(self._path):
            reader.read_list(places.astype(np.uint32), G)
        return self._in_order(G)

    def _in_order(self, G: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self._samples is None or np.all(np.diff(self._samples) > 0):
            return G
        return G[:, np.argsort(np.argsort(self._samples))]
