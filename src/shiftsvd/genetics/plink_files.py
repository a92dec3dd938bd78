"""Files of components as plink2 --pca writes them: .eigenvec, .eigenval and .eigenvec.allele."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from shiftsvd.genetics.alleles import Samples, Variants
from shiftsvd.numerics.moments import Vector
from shiftsvd.operators import Panel

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
