"""Genotypes in a file for each chromosome: the variants of all files side by side, of the same samples."""

from collections import Counter
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Final

import numpy as np

from shiftsvd.genetics.alleles import Samples, Variants, read_samples, read_variants
from shiftsvd.genetics.chromosomes import Mask
from shiftsvd.genetics.founders import fam_founders
from shiftsvd.genetics.plink2 import psam_founders, psam_samples, pvar_variants
from shiftsvd.io.base import Opened
from shiftsvd.io.formats import genotypes
from shiftsvd.io.formats.genotypes import Places
from shiftsvd.io.formats.pvar import table_of
from shiftsvd.io.opening import read_file
from shiftsvd.io.stacking import stacked
from shiftsvd.numerics.moments import Vector
from shiftsvd.runs.warned import notice

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
    return [(file, genotypes.of_places(opened, _order(files[0], first, file))) for file, opened in parts]


def some_of(parts: Parts, kept: Mask) -> Parts:
    masks = np.split(kept, np.cumsum([opened.matrix.shape[0] for _, opened in parts])[:-1])
    wanted = zip(parts, masks, strict=True)
    return [(path, genotypes.some(opened, mask)) for (path, opened), mask in wanted if mask.any()]


def joined(parts: Parts) -> Opened:
    paths, opened = zip(*parts, strict=True)
    return opened[0] if len(parts) == 1 else stacked(paths, "columns", opened)


def filled(parts: Parts, means: Vector) -> Parts:
    ends = np.cumsum([opened.matrix.shape[0] for _, opened in parts])[:-1]
    each = zip(parts, np.split(means, ends), strict=True)
    return [(path, genotypes.filled(opened, own)) for (path, opened), own in each]


def of_samples(parts: Parts, kept: Mask) -> Parts:
    return [(path, genotypes.of_samples(opened, kept)) for path, opened in parts]
