"""Who is related to whom: KING-robust kinship, and a set of samples of which no two are."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from shiftsvd.extend.running import Resources, affordable, default_threads
from shiftsvd.genetics.files import Parts, block_size
from shiftsvd.genetics.readers import Calls
from shiftsvd.genetics.variants import Mask

Square = npt.NDArray[np.float32]

MOST: Final = 20_000  # samples whose pairs are counted; more take KING or plink2, which count them by bits
_NUMBERS: Final = 4  # square matrices that are held
_EPSILON: Final = 2.0**-44  # PLINK's: a kinship that exceeds the limit by less is not above it
_WHOLE: Final = 2**24  # counts up to this are exact in single precision


def kinship_matrix(parts: Parts, resources: Resources) -> npt.NDArray[np.float64]:
    """Kinship of all pairs of samples, of shape ``(n, n)``, 0.5 on the diagonal; NaN where nobody is heterozygous.

    Notes
    -----
    KING-robust between families: Manichaikul et al. (2010), "Robust relationship inference in genome-wide association
    studies", Bioinformatics 26, 2867-2873, equation 11, over variants that both have: ``1/2 - D / (4 min(h_i, h_j))``
    with D the sum of squared differences and h the heterozygous genotypes of each. One read.
    """
    n = parts[0][1].matrix.shape[1]
    _refuse_too_many(n, resources)
    squared, smaller = _counts(parts, n, resources)
    with np.errstate(divide="ignore", invalid="ignore"):
        kinship: npt.NDArray[np.float64] = np.divide(squared, 4 * smaller, dtype=np.float64)
    kinship = np.subtract(0.5, kinship, out=kinship)
    kinship[smaller == 0] = np.nan
    np.fill_diagonal(kinship, 0.5)
    return kinship


def unrelated_mask(kinship: npt.NDArray[np.float64], cutoff: float) -> Mask:
    """Samples of which no two have a kinship above the cutoff, as many as a greedy choice finds.

    Notes
    -----
    While pairs are left: if somebody has one relative only, that relative goes, which loses nothing; else whoever has
    the most goes, the last of them if they are several.
    """
    related = kinship > cutoff * (1 + _EPSILON)
    np.fill_diagonal(related, False)
    degrees, kept = related.sum(axis=1), np.ones(len(kinship), bool)
    while degrees.any():
        single = np.flatnonzero(degrees == 1)
        goes = int(np.flatnonzero(related[single[0]])[0]) if len(single) else _last_largest(degrees)
        degrees -= related[goes]
        related[goes] = related[:, goes] = False
        degrees[goes], kept[goes] = 0, False
    return kept


def _last_largest(degrees: npt.NDArray[Any]) -> int:
    return len(degrees) - 1 - int(np.argmax(degrees[::-1]))


def _refuse_too_many(n: int, resources: Resources) -> None:
    if n > MOST:
        raise ValueError(
            f"kinship is for up to {MOST:,} samples, got {n:,}; find the unrelated ones with plink2 --king-cutoff, and "
            "keep them with keep="
        )
    affordable(_NUMBERS * 4 * n * n + 8 * block_size(resources), resources.memory_limit, f"kinship of {n:,} samples")


def _counts(parts: Parts, n: int, resources: Resources) -> tuple[Square, Square]:
    alike, opposite, hets = (np.zeros((n, n), np.float32) for _ in range(3))
    with threadpool_limits(resources.n_threads or default_threads(), "blas"):
        for G in _columns(parts, n, resources):
            het, low, high = ((G == value).astype(np.float32) for value in (1, 0, 2))
            alike += het.T @ het
            opposite += low.T @ high
            low += high
            low += het
            hets += het.T @ low
    # Of one who is heterozygous and one who is not the difference is 1, of opposite ones 2.
    opposite += opposite.T
    opposite *= 4
    opposite += hets
    opposite += hets.T
    alike *= 2
    opposite -= alike
    return opposite, np.minimum(hets, hets.T)


def _columns(parts: Parts, n: int, resources: Resources) -> Iterator[Calls]:
    if sum(opened.matrix.shape[0] for _, opened in parts) > _WHOLE:
        raise ValueError(f"kinship is counted over up to {_WHOLE:,} variants; prune or thin them first")
    for _, opened in parts:
        for lo, hi in pairwise(opened.matrix.edges(max(4 * n, block_size(resources)))):
            yield opened.matrix.calls(lo, hi)
