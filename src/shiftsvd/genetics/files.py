"""Genotype files: one per chromosome joined, counts of calls, and results as plink2 --pca writes them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from shiftsvd.extend.files import Opened, labels, read_file, stacked
from shiftsvd.extend.operators import Panel, Vector
from shiftsvd.extend.running import Resources, default_threads, notice, ordered, parse_bytes
from shiftsvd.genetics import readers
from shiftsvd.genetics.readers import Calls, Genotypes, Places, columns, table_of
from shiftsvd.genetics.variants import Mask, Samples, Variants, fam_founders, read_samples, read_variants

_NOBODY = ("0", "0")


def pvar_variants(path: Path) -> Variants:
    told = columns(path, ("CHROM", "ID", "POS", "ALT", "REF"))
    chromosomes, names, positions = (labels(path, told[name], None) for name in ("CHROM", "ID", "POS"))
    return Variants(chromosomes, names, positions, np.array(told["ALT"], object), np.array(told["REF"], object))


def psam_samples(path: Path) -> Samples:
    told = columns(path, ("FID", "IID"))
    families = told.get("FID", ["0"] * len(told["IID"]))
    return Samples(labels(path, families, None), labels(path, told["IID"], None))


def psam_founders(path: Path) -> Mask:
    told = columns(path, ("IID", "PAT", "MAT"))
    nobody = ["0"] * len(told["IID"])
    parents = zip(told.get("PAT", nobody), told.get("MAT", nobody), strict=True)
    return np.array([both == _NOBODY for both in parents], bool)


Beds = str | PathLike[str] | Sequence[str | PathLike[str]]  # one file, or one for each chromosome
_SUFFIXES: Final = (".bed", ".pgen")
Parts = list[tuple[Path, Opened]]  # files, and the variants of each that are wanted


def beds(bed: Beds) -> list[Path]:
    given = [bed] if isinstance(bed, str | PathLike) else list(bed)
    if not given:
        raise ValueError("bed must name at least one file, got an empty list")
    return [Path(path) if Path(path).suffix.lower() in _SUFFIXES else Path(f"{path}.bed") for path in given]


def variants_of(files: Sequence[Path]) -> Variants:
    return _joined_variants([_variants(file) for file in files])


def _joined_variants(read: Sequence[Variants]) -> Variants:
    return Variants(*(np.concatenate(columns) for columns in zip(*read, strict=True)))


def is_pgen(file: Path) -> bool:
    return file.suffix.lower() == ".pgen"


def _variants(file: Path) -> Variants:
    return pvar_variants(table_of(file)) if is_pgen(file) else read_variants(file.with_suffix(".bim"))


def _samples(file: Path) -> Samples:
    return psam_samples(file.with_suffix(".psam")) if is_pgen(file) else read_samples(file.with_suffix(".fam"))


def founders_of(file: Path) -> Mask:
    return psam_founders(file.with_suffix(".psam")) if is_pgen(file) else fam_founders(file.with_suffix(".fam"))


def samples_of(paths: Sequence[Path]) -> Samples:
    first = _samples(paths[0])
    for path in paths[1:]:
        _order(paths[0], first, path)
    _tell_of_twins(paths[0], first)
    return first


def _tell_of_twins(path: Path, samples: Samples) -> None:
    counts = Counter(zip(samples.families.tolist(), samples.names.tolist(), strict=True))
    twice = [" ".join(sample) for sample, count in counts.items() if count > 1]
    if twice:
        notice(f"{path} has {len(twice)} names that several samples share, {twice[0]} first: outputs have their order")


def _order(reference: Path, first: Samples, path: Path) -> Places:
    wanted, there = (list(zip(*map(np.ndarray.tolist, samples), strict=True)) for samples in (first, _samples(path)))
    if wanted == there:
        return np.arange(len(wanted))
    place = {sample: i for i, sample in enumerate(there)}
    if len(place) < len(there) or sorted(wanted) != sorted(there):
        raise ValueError(f"{path} must have the samples of {reference}, each of them once, in any order")
    return np.array([place[sample] for sample in wanted])


def parts_of(files: Sequence[Path], key: str | None, memory_limit: int | str | None) -> Parts:
    parts = [(file, read_file(file, "pgen" if is_pgen(file) else "bed", key, memory_limit)) for file in files]
    joined(parts)  # which names samples that a file lacks
    if len(parts) == 1:
        return parts
    first = _samples(files[0])
    return [(file, readers.of_places(opened, _order(files[0], first, file))) for file, opened in parts]


def some_of(parts: Parts, kept: Mask) -> Parts:
    masks = np.split(kept, np.cumsum([opened.matrix.shape[0] for _, opened in parts])[:-1])
    wanted = zip(parts, masks, strict=True)
    return [(path, readers.some(opened, mask)) for (path, opened), mask in wanted if mask.any()]


def joined(parts: Parts) -> Opened:
    paths, opened = zip(*parts, strict=True)
    return opened[0] if len(parts) == 1 else stacked(paths, "columns", opened)


def filled(parts: Parts, means: Vector) -> Parts:
    ends = np.cumsum([opened.matrix.shape[0] for _, opened in parts])[:-1]
    each = zip(parts, np.split(means, ends), strict=True)
    return [(path, readers.filled(opened, own)) for (path, opened), own in each]


def of_samples(parts: Parts, kept: Mask) -> Parts:
    return [(path, readers.of_samples(opened, kept)) for path, opened in parts]


_BLOCK: Final = 2**16  # variants that are made text of at once
_HEAD: Final = ["#CHROM", "ID", "REF", "ALT", "A1"]


@contextmanager
def eigenvec(path: Path, samples: Samples, k: int) -> Iterator[Callable[[int, Panel], None]]:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join(["#FID", "IID", *_names(k)]) + "\n")

        def write(first: int, U: Panel) -> None:
            part = slice(first, first + len(U))
            for family, name, row in zip(samples.families[part], samples.names[part], U, strict=True):
                file.write("\t".join([family, name, *_numbers(row)]) + "\n")

        yield write


def eigenval(path: Path, eigenvalues: Iterable[float]) -> None:
    path.write_text("".join(f"{value:.9g}\n" for value in eigenvalues), encoding="utf-8", newline="\n")


def eigenvec_allele(path: Path, variants: Variants, loadings: Panel) -> None:
    """PLINK's file of the weights of both alleles of the n variants used: loadings times ``sqrt(n) / 2``.

    ``plink2 --score FILE 2 5 header-read no-mean-imputation variance-standardize cols=+scoresums`` with the frequencies
    of the samples (``--read-freq``) sums them up to ``sqrt(n)`` times the scores.
    """
    weights = loadings * (np.sqrt(len(loadings)) / 2)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join(_HEAD + _names(loadings.shape[1])) + "\n")
        for lo in range(0, len(weights), _BLOCK):
            part = slice(lo, lo + _BLOCK)
            columns = zip(*(each[part] for each in variants), weights[part], strict=True)
            for chromosome, name, _, first, second, row in columns:
                told = f"{chromosome}\t{name}\t{second}\t{first}\t"
                file.write("\t".join([told + second, *_numbers(-row)]) + "\n")
                file.write("\t".join([told + first, *_numbers(row)]) + "\n")


def _names(k: int) -> list[str]:
    return [f"PC{j}" for j in range(1, k + 1)]


def _numbers(row: Vector) -> Iterator[str]:
    return (f"{value + 0.0:.9g}" for value in row)


T = TypeVar("T")
Numbers = npt.NDArray[np.int64]

BLOCK: Final = 2**23  # genotypes of a block, a byte each; less where the limit is small
_LEAST, _SHARE = 2**18, 64  # of the limit: blocks in work are several, and what is made of one is larger


class CallCounts(NamedTuple):
    """How often variants have each genotype: counts of the first allele, 0 to 2, among those that are counted."""

    none: Numbers
    one: Numbers
    two: Numbers
    missing: Numbers  # among all samples

    @property
    def frequencies(self) -> npt.NDArray[np.float64]:
        known = self.none + self.one + self.two
        share: npt.NDArray[np.float64] = (self.one + 2 * self.two) / np.maximum(2 * known, 1)
        return share


def block_size(resources: Resources) -> int:
    if resources.memory_limit is None:
        return BLOCK
    return int(np.clip(parse_bytes(resources.memory_limit) // _SHARE, _LEAST, BLOCK))


def over_blocks(parts: Parts, of_block: Callable[[Calls], T], resources: Resources, expanded: int = 1) -> Iterator[T]:
    """What a function makes of the genotypes, block by block in the order of the variants; blocks end with files.

    A function that makes numbers of so many bytes (`expanded`) of each genotype has smaller blocks.
    """
    size = block_size(resources) // expanded
    rows = [(opened.matrix, lo, hi) for _, opened in parts for lo, hi in _ranges(opened.matrix, size)]

    def made(row: tuple[Genotypes, int, int]) -> T:
        source, lo, hi = row
        return of_block(source.calls(lo, hi))

    return ordered(made, rows, resources.n_threads or default_threads())


def _ranges(source: Genotypes, size: int) -> Iterator[tuple[int, int]]:
    return pairwise(source.edges(4 * size))  # which counts by numbers of four bytes


def calls_between(parts: Parts, lo: int, hi: int) -> Calls:
    blocks, first = [], 0
    for _, opened in parts:
        a, b = max(lo - first, 0), min(hi - first, opened.matrix.shape[0])
        if a < b:
            blocks.append(opened.matrix.calls(a, b))
        first += opened.matrix.shape[0]
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def missing_by_sample(parts: Parts, resources: Resources) -> Numbers:
    found = over_blocks(parts, lambda G: np.count_nonzero(G < 0, axis=0), resources)
    total: Numbers = np.sum(list(found), axis=0, dtype=np.int64)
    return total


def call_counts(parts: Parts, founders: Mask, resources: Resources) -> CallCounts:
    def of_block(G: Calls) -> list[Numbers]:
        counted = G if founders.all() else G[:, founders]
        each = [np.count_nonzero(counted == value, axis=1) for value in range(3)]
        return [*each, np.count_nonzero(G < 0, axis=1)]

    blocks = list(over_blocks(parts, of_block, resources))
    return CallCounts(*(np.concatenate(part) for part in zip(*blocks, strict=True)))
