"""Read .bed and .pgen, combine files of the same samples, and write results as plink2 --pca does."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import TextIOWrapper
from itertools import pairwise
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from shiftsvd import Operator
from shiftsvd.extend import files as io
from shiftsvd.extend.operators import Panel, Vector
from shiftsvd.extend.running import Refused, Resources, Setting, default_threads, notice, ordered, parse_bytes, told
from shiftsvd.genetics.decoding import refusal
from shiftsvd.genetics.extension import DECODED, TARGETS, ScoresScale
from shiftsvd.genetics.variants import Mask, Samples, Variants, columns, is_pgen, read_samples, read_variants, tables

COHORTS: Final = (
    "genotype files with different samples may count different alleles and cannot be stacked. Merge them with "
    "plink2 --pmerge-list. If the files have the same samples, stack them by columns."
)
Calls = npt.NDArray[np.int8]  # counts of the first allele, 0 to 2; negative ones are missing
_ALL: Final = slice(None)
# A read decodes this number of bytes, at 4 per genotype, and at least this number of variants.
_LEAST_READ, _FEWEST = 2**20, 64
_HELD: Final = 2**25  # bytes of genotypes, at 4 each: larger files are decoded in every pass, which takes as long
_BED: Final = b"\x6c\x1b\x01"  # the last byte: variant-major
_CODES: Final = (2, -1, 1, 0)  # copies of the first allele for each code of a genotype; -1: missing
_GAP: Final = 16  # variants; a longer gap is skipped


@dataclass(eq=False)
class Genotypes(io.RowSource):
    """Counts of the first allele, variants x samples, for an ascending subset of variants and samples in any order.

    Missing genotypes are replaced by `means`, or if None by the mean of the variant over these samples.
    """

    sparse = False
    dtype = np.dtype(np.float32)
    unstackable = COHORTS
    readers = 0

    path: Path
    in_file: tuple[int, int]
    places: io.Places
    means: Vector | None = None
    samples: io.Places | None = None

    def __post_init__(self) -> None:
        self.shape = len(self.places), self.in_file[1] if self.samples is None else len(self.samples)
        self.name = str(self.path)
        self.largest_block = max(_LEAST_READ, _FEWEST * 4 * self.shape[1])
        self.fingerprint = io.fingerprint_of(self.path, told((self.places, self.means, self.samples)))

    @abstractmethod
    def _read(self, places: io.Places, dtype: type[np.generic]) -> npt.NDArray[Any]: ...

    def at(self, variants: Mask | io.Places | slice = _ALL, samples: Mask | io.Places | slice = _ALL) -> Self:
        own = self.samples
        if samples is not _ALL:
            own = (np.arange(self.shape[1]) if own is None else own)[samples]
        means = None if self.means is None else self.means[variants]
        return replace(self, places=self.places[variants], means=means, samples=own)

    def filled(self, means: Vector) -> Self:
        return replace(self, means=means)

    def with_nan(self) -> Self:
        return self.filled(np.full(self.shape[0], np.nan))

    def edges(self, n_bytes: int) -> list[int]:
        step = max(1, n_bytes // (4 * max(1, self.shape[1])))
        return [*range(0, self.shape[0], step), self.shape[0]]

    def read(self, lo: int, hi: int) -> npt.NDArray[Any]:
        G = self._read(self.places[lo:hi], np.float32)
        missing = np.isnan(G)
        np.copyto(G, 0, where=missing)
        means = None if self.means is None else self.means[lo:hi]
        if means is None:
            means = G.sum(axis=1, dtype=np.float64)
            means /= np.maximum(G.shape[1] - missing.sum(axis=1), 1)
        np.copyto(G, means[:, None], where=missing, casting="same_kind")
        return G

    def dosages(self) -> npt.NDArray[np.float32]:
        return self._read(self.places, np.float32)  # NaN where missing

    def calls(self, lo: int, hi: int) -> Calls:
        return self._read(self.places[lo:hi], np.int8)


class BedGenotypes(Genotypes):
    """Variants of a .bed file."""

    def _read(self, places: io.Places, dtype: type[np.generic]) -> npt.NDArray[Any]:
        n_bytes = -(-self.in_file[1] // 4)
        codes = np.array(_CODES, dtype)
        if dtype is np.float32:
            codes[codes < 0] = np.nan
        table = codes[np.arange(256)[:, None] >> (0, 2, 4, 6) & 3]  # the four genotypes of each byte
        with io.reading(self.path), open(self.path, "rb") as file:
            parts = [_rows_of(file, lo, hi, n_bytes)[own] for lo, hi, own in _spans(places)]
            packed = np.concatenate(parts) if parts else np.empty((0, n_bytes), np.uint8)
        # Entries of 4 or 16 bytes are copied whole, which is several times as fast as four numbers.
        whole = table.view(np.complex128 if dtype is np.float32 else np.int32)[:, 0]
        G: npt.NDArray[Any] = whole[packed].view(dtype)[:, : self.in_file[1]]
        return G if self.samples is None else G[:, self.samples]


def _spans(places: io.Places) -> Iterator[tuple[int, int, io.Places]]:
    # Ranges of variants to read, and the wanted ones of each: neighbours are read together, with the gaps between them.
    cuts = np.flatnonzero(np.diff(places) > _GAP) + 1
    for part in np.split(places, cuts):
        if len(part):
            yield int(part[0]), int(part[-1]) + 1, part - part[0]


def _rows_of(file: BinaryIO, lo: int, hi: int, n_bytes: int) -> npt.NDArray[np.uint8]:
    file.seek(len(_BED) + lo * n_bytes)
    content = file.read((hi - lo) * n_bytes)
    if len(content) < (hi - lo) * n_bytes:
        raise ValueError(f"{file.name} ends within variant {lo + len(content) // n_bytes + 1:,}. Copy it again.")
    return np.frombuffer(content, np.uint8).reshape(hi - lo, n_bytes)


class PgenGenotypes(Genotypes):
    """Variants of a .pgen file: dosages where the file has them, else hard calls."""

    def _read(self, places: io.Places, dtype: type[np.generic]) -> npt.NDArray[Any]:
        G, own = np.empty((len(places), self.shape[1]), dtype), self.samples
        with _pgen_reader(self.path, self.in_file[1], own) as reader, io.reading(self.path):
            (reader.read_list if dtype is np.int8 else reader.read_dosages_list)(places.astype(np.uint32), G)
        if dtype is not np.int8:
            G[G < 0] = np.nan
        return G if own is None or np.all(np.diff(own) > 0) else G[:, np.argsort(np.argsort(own))]


def _pgen_reader(path: Path, n_samples: int | None, samples: io.Places | None) -> Any:
    subset = None if samples is None else np.sort(samples).astype(np.uint32)
    with io.reading(path):
        return io.optional("pgenlib", "pgen").PgenReader(
            str(path).encode(), raw_sample_ct=n_samples, sample_subset=subset
        )


def read_bed(path: Path, key: str | None, memory_limit: int | str | None) -> io.Opened:
    io.refuse_key(path, key)
    with io.reading(path), open(path, "rb") as file:
        magic = file.read(len(_BED))
    if magic[:2] != _BED[:2]:
        raise ValueError(f"{path} is not a PLINK 1 .bed file. Its first bytes must be 6c1b, got {magic[:2].hex()}.")
    if magic != _BED:
        raise ValueError(f"{path} must be variant-major. Rewrite it with plink --make-bed.")
    opened = _open_files(BedGenotypes, path, memory_limit)
    n, m = opened.matrix.shape
    expected, size = len(_BED) + n * -(-m // 4), path.stat().st_size
    if size != expected:
        raise ValueError(
            f"{path} must have {expected:,} bytes for the {n:,} variants of its .bim and the {m:,} samples of its "
            f".fam, got {size:,} bytes. Check that the three files belong together, or copy them again."
        )
    return opened


def read_pgen(path: Path, key: str | None, memory_limit: int | str | None) -> io.Opened:
    io.refuse_key(path, key)
    io.optional("pgenlib", "pgen")
    opened = _open_files(PgenGenotypes, path, memory_limit)
    n, m = opened.matrix.shape
    with _pgen_reader(path, None, None) as reader:  # of its own number of samples, which is checked below
        there = reader.get_variant_ct(), reader.get_raw_sample_ct()
    if there != (n, m):
        raise ValueError(
            f"{path} must have the {n:,} variants of its .pvar and the {m:,} samples of its .psam, got {there[0]:,} "
            f"variants and {there[1]:,} samples. Check that the three files belong together."
        )
    return opened


def _open_files(kind: type[Genotypes], path: Path, memory_limit: int | str | None) -> io.Opened:
    of_variants, of_samples = both = tables(path)
    if absent := next((table.name for table in both if not table.exists()), None):
        put = f"Put {of_variants.name} and {of_samples.name} next to {path.name}."
        raise FileNotFoundError(f"{path}: {absent} does not exist. {put}")
    samples = columns(of_samples, ("FID", "IID"), memory_limit)
    variants = columns(of_variants, ("ID", "ALT"), memory_limit)
    more = (name for name, alt in zip(*variants.values(), strict=True) if "," in alt and kind is PgenGenotypes)
    if found := next(more, None):
        raise ValueError(
            f"{path} must have biallelic variants only, got the multiallelic variant {found}. Remove such variants "
            "with plink2 --max-alleles 2 --make-pgen."
        )
    names = samples["IID"]
    if len(set(names)) < len(names) and "FID" in samples:
        names = ["_".join(pair) for pair in zip(samples["FID"], names, strict=True)]
    shape = len(variants["ID"]), len(names)
    io.plausible_shape(path, shape, memory_limit)
    matrix = kind(path, shape, np.arange(shape[0]))
    return io.Opened(matrix, variants["ID"], io.labels(of_samples, names, memory_limit), samples="columns")


Beds = str | PathLike[str] | Sequence[str | PathLike[str]]  # one file, or one for each chromosome


def listed(bed: Beds) -> list[Path]:
    given = [bed] if isinstance(bed, str | PathLike) else list(bed)
    if not given:
        raise Refused(Setting("bed"), " must be at least one path, got an empty list")
    return [Path(path) if Path(path).suffix.lower() in TARGETS else _with_suffix(Path(path)) for path in given]


def _with_suffix(path: Path) -> Path:
    bed = Path(f"{path}.bed")
    if path.name.lower().endswith(tuple(DECODED)) and path.is_file() and not bed.exists():
        raise ValueError(refusal(path))
    return bed


@dataclass(frozen=True, eq=False)
class Fileset:
    """Genotypes of the same samples in one or several files, possibly of a subset of variants and samples."""

    paths: list[Path]
    parts: list[Genotypes]  # one for each file that has any of the variants
    samples: Samples
    variants: Variants
    labels: io.Labels  # sample names, preceded by families if the names are not unique

    @classmethod
    def of(cls, paths: list[Path], key: str | None = None, memory_limit: int | str | None = None) -> Self:
        opened = [io.read_file(path, "pgen" if is_pgen(path) else "bed", key, memory_limit) for path in paths]
        joined = opened[0] if len(paths) == 1 else io.stacked(paths, "columns", opened)  # raises if samples differ
        samples, parts = read_samples(paths[0]), [each.matrix for each in opened]
        for i, path in enumerate(paths[1:], 1):
            order = _sample_order(paths[0], samples, path)
            parts[i] = parts[i] if order is None else parts[i].at(samples=order)
        counts = Counter(zip(*map(np.ndarray.tolist, samples), strict=True))
        if twice := [" ".join(sample) for sample, count in counts.items() if count > 1]:
            have = f"has {len(twice):,} duplicate sample name{'s' * (len(twice) > 1)}, such as {twice[0]}"
            notice(f"{paths[0]} {have}. Outputs list samples in the order of the file.")
        variants = Variants(*map(np.concatenate, zip(*map(read_variants, paths), strict=True)))
        assert joined.columns is not None
        return cls(paths, parts, samples, variants, joined.columns)

    @property
    def name(self) -> str:
        return io.several(self.paths)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.samples.names), len(self.variants.names)

    def of_variants(self, kept: Mask) -> Self:
        masks = zip(self.parts, np.split(kept, self.ends[:-1]), strict=True)
        parts = [part.at(mask) for part, mask in masks if mask.any()]
        return replace(self, parts=parts, variants=self.variants.at(kept))

    def of_samples(self, kept: Mask) -> Self:
        samples = Samples(*(each[kept] for each in self.samples))
        parts = [part.at(samples=kept) for part in self.parts]
        return replace(self, parts=parts, samples=samples, labels=self.labels[kept])

    def filled(self, means: Vector) -> Self:
        each = zip(self.parts, np.split(means, self.ends[:-1]), strict=True)
        return replace(self, parts=[part.filled(own) for part, own in each])

    @property
    def ends(self) -> npt.NDArray[np.int64]:
        return np.cumsum([part.shape[0] for part in self.parts])

    def blocks(self, n_bytes: int) -> list[tuple[Genotypes, int, int]]:
        return [(part, *rows) for part in self.parts for rows in pairwise(part.edges(n_bytes))]

    def operator(self, resources: Resources, stream: bool | None = None) -> Operator:
        """Return the genotypes, samples x variants, with means in place of missing ones."""
        matrix = self.parts[0] if len(self.parts) == 1 else io.OnTop([*self.parts])
        opened = io.Opened(matrix, self.variants.names, self.labels, samples="columns")
        stream = True if stream is None and 4 * prod(self.shape) > _HELD else stream
        return io.operator_of(self.paths, opened, resources, stream)[0]

    def calls(self, lo: int, hi: int) -> Calls:
        starts = [0, *self.ends.tolist()]
        spans = zip(self.parts, starts, pairwise(np.clip(starts, lo, hi).tolist()), strict=False)
        found = [part.calls(a - start, b - start) for part, start, (a, b) in spans if a < b]
        return found[0] if len(found) == 1 else np.concatenate(found)


def _sample_order(reference: Path, first: Samples, path: Path) -> io.Places | None:
    wanted, there = (list(zip(*map(np.ndarray.tolist, each), strict=True)) for each in (first, read_samples(path)))
    if wanted == there:
        return None
    place = {sample: i for i, sample in enumerate(there)}
    if len(place) < len(there) or sorted(wanted) != sorted(there):
        raise ValueError(
            f"{path} must have the same samples as {reference}, each once, in any order. Keep the common samples with "
            "plink2 --keep."
        )
    return np.array([place[sample] for sample in wanted])


T = TypeVar("T")
Numbers = npt.NDArray[np.int64]

BLOCK: Final = 2**23  # genotypes in a block, 1 byte each
# A block has at most 1/64 of the memory limit, because threads hold several blocks, and results are larger.
_LEAST, _SHARE = 2**18, 64


class CallCounts(NamedTuple):
    """Number of founders with 0, 1 and 2 copies of the first allele, and of samples without a call, by variant."""

    none: Numbers
    one: Numbers
    two: Numbers
    missing: Numbers

    @property
    def frequencies(self) -> npt.NDArray[np.float64]:
        known = self.none + self.one + self.two
        return np.asarray((self.one + 2 * self.two) / np.maximum(2 * known, 1))


def block_size(resources: Resources) -> int:
    if resources.memory_limit is None:
        return BLOCK
    return int(np.clip(parse_bytes(resources.memory_limit) // _SHARE, _LEAST, BLOCK))


def over_blocks(files: Fileset, of_block: Callable[[Calls], T], resources: Resources, expanded: int = 1) -> Iterator[T]:
    # `expanded`: bytes of the result for each genotype. Blocks are smaller by this factor.
    blocks = files.blocks(block_size(resources) // expanded)
    return ordered(lambda block: of_block(block[0].calls(*block[1:])), blocks, resources.n_threads or default_threads())


def missing_by_sample(files: Fileset, resources: Resources) -> Numbers:
    found = over_blocks(files, lambda G: np.count_nonzero(G < 0, axis=0), resources)
    return np.asarray(np.sum(list(found), axis=0, dtype=np.int64))


def call_counts(files: Fileset, founders: Mask, resources: Resources) -> CallCounts:
    def of_block(G: Calls) -> list[Numbers]:
        counted = G if founders.all() else G[:, founders]
        each = [np.count_nonzero(counted == value, axis=1) for value in range(3)]
        return [*each, np.count_nonzero(G < 0, axis=1)]

    blocks = list(over_blocks(files, of_block, resources))
    return CallCounts(*(np.concatenate(part) for part in zip(*blocks, strict=True)))


RESULTS: Final = ("eigenvec", "eigenval", "eigenvec.allele")  # the files of plink2 --pca
_ROWS: Final = 2**16  # variants to format as text at a time


def score_factors(scale: ScoresScale | None, lengths: Vector, n_used: int) -> Vector:
    # Of scores, eigenvectors times singular values: the eigenvalues are the squares of the latter over n_used.
    lengths = np.where(lengths > 0, lengths, 1)
    powers = {None: np.ones_like(lengths), "unit": 1 / lengths, "sqrt": np.full_like(lengths, max(n_used, 1) ** -0.5)}
    return powers[scale] if scale in powers else lengths / max(n_used, 1)


@contextmanager
def eigenvec(file: BinaryIO, columns: list[str], samples: Samples) -> Iterator[Callable[[int, Panel], None]]:
    text = TextIOWrapper(file, "utf-8", newline="\n", write_through=True)
    text.write("\t".join(["#FID", "IID", *columns]) + "\n")

    def write(first: int, scores: Panel) -> None:
        part = slice(first, first + len(scores))
        for family, name, row in zip(samples.families[part], samples.names[part], scores, strict=True):
            text.write("\t".join([family, name, *_numbers(row)]) + "\n")

    yield write
    text.detach()


def sample_list(path: Path, samples: Samples, rows: Mask) -> None:
    lines = ["#FID\tIID", *map("\t".join, zip(*(each[rows] for each in samples), strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def eigenval(path: Path, eigenvalues: Iterable[float]) -> None:
    path.write_text("".join(f"{value:.9g}\n" for value in eigenvalues), encoding="utf-8", newline="\n")


def eigenvec_allele(path: Path, variants: Variants, loadings: Panel) -> None:
    # plink2's weights are loadings times -+sqrt(n) / 2, with n the number of variants used: scores by `plink2 --score`
    # (variance-standardize) are averages, -sqrt(eigenvalue) / 2 times .eigenvec, and its users divide by this factor.
    factor = -np.sqrt(len(loadings)) / 2
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join(["#CHROM", "ID", "REF", "ALT", "A1", *component_names(loadings.shape[1])]) + "\n")
        for lo in range(0, len(loadings), _ROWS):
            part = slice(lo, lo + _ROWS)
            weights = loadings[part].astype(np.float64) * factor
            rows = zip(*(each[part] for each in variants), weights, strict=True)
            for chromosome, name, _, first, second, row in rows:
                for allele, signed in ((second, -row), (first, row)):
                    file.write("\t".join([chromosome, name, second, first, allele, *_numbers(signed)]) + "\n")


def component_names(k: int) -> list[str]:
    return [f"PC{j + 1}" for j in range(k)]


def _numbers(row: Vector) -> Iterator[str]:
    return (f"{value + 0.0:.9g}" for value in row)
