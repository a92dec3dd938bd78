"""Genotypes in `shiftsvd fit` and `transform`: which variants, Patterson's scale, the files that PLINK users want."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from shiftsvd.commands.selecting import spelled
from shiftsvd.commands.tables import Block, Write
from shiftsvd.genetics.alleles import Samples
from shiftsvd.genetics.chromosomes import CHOICES, autosomal
from shiftsvd.genetics.components import patterson
from shiftsvd.genetics.plink_files import eigenval, eigenvec
from shiftsvd.genetics.several import Parts, parts_of, some_of, variants_of
from shiftsvd.io.stacking import COHORTS
from shiftsvd.missing.gaps.counting import n_missing
from shiftsvd.numerics.moments import Vector

SCALE: Final = "patterson"


def are_genotypes(files: Sequence[str], format: str | None, orient: str | None) -> bool:  # noqa: A002
    named = (format or Path(file).suffix.lower().removeprefix(".") for file in files)
    return orient != "rows" and all(name in ("bed", "pgen") for name in named)


def settled(options: Any) -> dict[str, Any]:
    given, genotypes = options.scale, are_genotypes(options.files, options.format, options.orient)
    if given == SCALE and options.shift != "mean":
        raise ValueError(f"--scale {SCALE} is for --shift mean, which is twice the frequencies, got {options.shift}")
    if genotypes and (options.missing == "em" or options.unobserved):
        raise ValueError(f"{options.file}: a missing genotype is the mean of its variant; leave out --missing")
    if genotypes and len(options.files) > 1 and options.stack == "rows":
        raise ValueError(f"{options.file}: {COHORTS}")
    if genotypes and options.preprocess:
        raise ValueError(
            f"{options.file}: a missing genotype is the mean of its variant, which is no count; leave out --preprocess"
        )
    if options.chromosomes and not genotypes:
        raise ValueError(f"--chromosomes is for a .bed with its samples as rows, got {options.file}; leave it out")
    asked = [*options.filters, *(name for name in ("tracy_widom", "scan") if getattr(options, name))]
    if asked and not genotypes:
        raise click.UsageError(f"{spelled(asked[0])} is for a .bed with its samples as rows, got {options.file}")
    usual = SCALE if genotypes and options.shift == "mean" else None
    scale = {None: usual, "none": None}.get(given, given)
    if (options.tracy_widom or options.scan) and scale != SCALE:
        raise click.UsageError(
            f"--tracy-widom and --scan are of genotypes scaled by {SCALE}; leave out --scale, --shift"
        )
    of_genotypes = {"missing": "mean", "filled": True, "chromosomes": options.chromosomes or CHOICES[0]}
    return {"scale": scale} | (of_genotypes if genotypes else {})


def of_model(files: Sequence[Path], n_variants: int, key: str | None, memory_limit: int | str | None) -> Parts:
    """The variants of files that a model with so many is of: those on autosomes if they are so many, else all.

    Their names are compared afterwards: what is not all, nor all on autosomes, is no file of the model.
    """
    parts, kept = parts_of(files, key, memory_limit), autosomal(variants_of(files).chromosomes)
    return some_of(parts, kept if np.count_nonzero(kept) == n_variants else np.ones(len(kept), bool))


def divisors(mean: Vector) -> Vector:
    if mean.min() < 0 or mean.max() > 2:
        raise ValueError(
            f"--scale {SCALE} takes counts of an allele, 0 to 2, got means from {mean.min():g} to {mean.max():g}"
        )
    return patterson(mean)[0]


def planned(options: Any) -> dict[str, Path]:
    if not (options.filled and options.scale == SCALE):
        return {}
    folder = Path(options.out) if Path(options.out).name.strip(".") else Path(options.out).resolve()
    return {kind: folder.with_name(f"{folder.name}.{kind}") for kind in ("eigenvec", "eigenval", "eigenvec.allele")}


@contextmanager
def vectors(path: Path, samples: Samples, pca: Any) -> Iterator[Write]:
    lengths = pca.singular_values_.astype(np.float64)
    with eigenvec(path, samples, len(lengths)) as write_vectors:

        def write(first: int, block: Block) -> None:
            write_vectors(first, block / np.where(lengths > 0, lengths, 1))

        yield write


def values(path: Path, pca: Any) -> None:
    eigenval(path, _eigenvalues(pca))


def n_missing_of(parts: Parts) -> int:
    return sum(n_missing(opened.matrix) for _, opened in parts)


def told(pca: Any, n_left_out: int) -> dict[str, Any]:
    used = _n_used(pca)
    return {
        "scale": "sqrt(2 p (1 - p))",
        "variants_used": used,
        "monomorphic": len(pca.mean_) - used,
        "not_on_autosomes": n_left_out,
        "eigenvalues": _eigenvalues(pca),
    }


def _n_used(pca: Any) -> int:
    return int(np.count_nonzero(patterson(pca.mean_)[1]))


def _eigenvalues(pca: Any) -> list[float]:
    eigenvalues: list[float] = (pca.singular_values_.astype(np.float64) ** 2 / max(_n_used(pca), 1)).tolist()
    return eigenvalues
