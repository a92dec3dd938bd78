"""Genotypes in `shiftsvd fit`: Patterson's scale, and the files that PLINK users look for."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from shiftsvd.commands.tables import Block, Write
from shiftsvd.genetics import eigenval, eigenvec, patterson
from shiftsvd.integrations.alleles import read_samples
from shiftsvd.moments import Vector

SCALE: Final = "patterson"


def are_genotypes(options: Any) -> bool:
    """Whether a file is one of PLINK, with its samples as rows."""
    named = options.format or Path(options.file).suffix.lower().removeprefix(".")
    return bool(named == "bed" and options.orient != "rows")


def settled(options: Any) -> dict[str, Any]:
    """Settings that depend on the file: genotypes are scaled, and their reader leaves nothing missing."""
    given, genotypes = options.scale, are_genotypes(options)
    if given == SCALE and options.shift != "mean":
        raise ValueError(f"--scale {SCALE} is for --shift mean, which is twice the frequencies, got {options.shift}")
    if genotypes and (options.missing == "em" or options.unobserved):
        raise ValueError(f"{options.file}: a missing genotype is the mean of its variant; leave out --missing")
    usual = SCALE if genotypes and options.shift == "mean" else None
    scale = {None: usual, "none": None}.get(given, given)
    return {"scale": scale} | ({"missing": "mean", "filled": True} if genotypes else {})


def divisors(mean: Vector) -> Vector:
    """``sqrt(2 p (1 - p))`` from the means 2p, which must be those of counts of an allele."""
    if mean.min() < 0 or mean.max() > 2:
        raise ValueError(
            f"--scale {SCALE} takes counts of an allele, 0 to 2, got means from {mean.min():g} to {mean.max():g}"
        )
    return patterson(mean)[0]


def planned(options: Any) -> dict[str, Path]:
    """PLINK's files beside the folder, where the matrix is that of PLINK."""
    if not (options.filled and options.scale == SCALE):
        return {}
    folder = Path(options.out) if Path(options.out).name.strip(".") else Path(options.out).resolve()
    return {kind: folder.with_name(f"{folder.name}.{kind}") for kind in ("eigenvec", "eigenval")}


@contextmanager
def vectors(path: Path, file: str, pca: Any) -> Iterator[Write]:
    """OUT.eigenvec from the scores: eigenvectors are those of length 1."""
    samples, lengths = read_samples(Path(file).with_suffix(".fam")), pca.singular_values_.astype(np.float64)
    with eigenvec(path, samples, len(lengths)) as write_vectors:

        def write(first: int, block: Block) -> None:
            write_vectors(first, block / np.where(lengths > 0, lengths, 1))

        yield write


def values(path: Path, pca: Any) -> None:
    """OUT.eigenval."""
    eigenval(path, told(pca)["eigenvalues"])


def told(pca: Any) -> dict[str, Any]:
    """What the account of a fit says of the variants; the eigenvalues are those of the relationship matrix."""
    used = int(np.count_nonzero(patterson(pca.mean_)[1]))
    return {
        "scale": "sqrt(2 p (1 - p))",
        "variants_used": used,
        "monomorphic": len(pca.mean_) - used,
        "eigenvalues": (pca.singular_values_.astype(np.float64) ** 2 / max(used, 1)).tolist(),
    }
