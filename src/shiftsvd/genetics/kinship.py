"""Compute KING-robust kinship, and select samples without close relatives."""

from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from shiftsvd.extend.files import Places
from shiftsvd.extend.operators import Vector
from shiftsvd.extend.running import Refused, Resources, Setting, affordable, default_threads, few, plural
from shiftsvd.genetics.files import Calls, Fileset, Numbers, block_size, over_blocks
from shiftsvd.genetics.variants import Mask, Samples

Square = npt.NDArray[np.float32]

MAX_SAMPLES: Final = 20_000  # samples; for more, the bit-level algorithms of KING and plink2 are faster
_N_MATRICES: Final = 4  # square single-precision matrices in memory
_EPSILON: Final = 2.0**-44  # PLINK's tolerance: a kinship that exceeds the limit by a smaller share is not above it
_MOST_EXACT: Final = 2**24  # counts up to this are exact in single precision


# Manichaikul et al. (2010), table 1: the kinship of each degree is within a factor sqrt(2) of its expectation.
_DEGREES: Final = (
    ("twins or duplicates", 0.3536, np.inf),
    ("first degree", 0.1768, 0.3536),
    ("second degree", 0.0884, 0.1768),
    ("third degree", 0.0442, 0.0884),
)


class Kinship(NamedTuple):
    """Kinship of all pairs of samples, and a set of unrelated samples.

    Parameters
    ----------
    samples : Samples
        The samples, in the order of the file.
    kinship : array of shape (n_samples, n_samples)
        KING-robust kinship: about 0.5 for twins and duplicates, 0.25 for parents, children and siblings, and 0.125 and
        0.0625 for relatives of the second and third degree; NaN if a sample of the pair has no heterozygous genotype.
    unrelated : array of bool, of shape (n_samples,)
        Mask of a set of samples in which no pair has a kinship above the cutoff.

    See Also
    --------
    genetics.unrelated : Compute the kinship of samples in files.

    Examples
    --------
    >>> import numpy as np
    >>> from shiftsvd.genetics import Kinship, Samples
    >>> samples = Samples(np.array(["f", "f"]), np.array(["mother", "child"]))
    >>> found = Kinship(samples, np.array([[0.5, 0.25], [0.25, 0.5]]), np.array([True, False]))
    >>> found.samples.names[found.unrelated].tolist()
    ['mother']
    """

    samples: Samples
    kinship: npt.NDArray[np.float64]
    unrelated: Mask

    def __repr__(self) -> str:
        n, removed = len(self.unrelated), np.flatnonzero(~self.unrelated)
        counts, closest, pair = np.zeros(len(_DEGREES), np.int64), -np.inf, (0, 0)
        for i in range(n):  # by rows, because the indices of all pairs would take more memory than the kinship
            row = self.kinship[i, i + 1 :]
            counts += [np.count_nonzero((row > low) & (row <= high)) for _, low, high in _DEGREES]
            if np.nanmax(row, initial=-np.inf) > closest:
                closest, pair = float(np.nanmax(row)), (i, i + 1 + int(np.nanargmax(row)))
        facts = {name: f"{count:,}" for (name, *_), count in zip(_DEGREES, counts, strict=True)}
        if np.isfinite(closest):
            facts["closest pair"] = f"{self._name(pair[0])} and {self._name(pair[1])}, {closest:.4f}"
        facts["unrelated samples"] = f"{n - len(removed):,}"
        names = f": {few(map(self._name, removed.tolist()))}" if len(removed) else ""
        facts["removed samples"] = f"{len(removed):,}{names}"
        pairs = plural(n * (n - 1) // 2, "pair")
        lines = [f"KING-robust kinship of {plural(n, 'sample')}, {pairs}"]
        return "\n".join(lines + [f"  {name + ':':21}{fact}" for name, fact in facts.items()])

    def _name(self, i: int) -> str:
        return f"{self.samples.families[i]} {self.samples.names[i]}"


def kinship_matrix(files: Fileset, resources: Resources) -> npt.NDArray[np.float64]:
    # Manichaikul et al. (2010), "Robust relationship inference in genome-wide association studies", Bioinformatics 26,
    # 2867-2873, equation 11 (between families), over variants that both samples have: 1/2 - D / (4 min(h_i, h_j)) with
    # D the sum of squared differences and h the number of heterozygous genotypes of each sample. One read.
    n, n_variants = files.shape
    if n > MAX_SAMPLES:
        raise Refused(
            f"kinship is limited to {MAX_SAMPLES:,} samples, got {n:,}. Find unrelated samples with plink2 "
            "--king-cutoff, and pass them as ",
            *(Setting("keep"), "."),
        )
    needed, what = _N_MATRICES * 4 * n * n + 8 * block_size(resources), f"kinship of {n:,} samples"
    affordable(needed, resources.memory_limit, what, "samples")
    if n_variants > _MOST_EXACT:
        raise ValueError(
            f"kinship is limited to {_MOST_EXACT:,} variants, got {n_variants:,}. Thin the variants, for example with "
            "plink2 --indep-pairwise."
        )
    squared, smaller = _counts(files, n, resources)
    with np.errstate(divide="ignore", invalid="ignore"):
        kinship: npt.NDArray[np.float64] = np.divide(squared, 4 * smaller, dtype=np.float64)
    kinship = np.subtract(0.5, kinship, out=kinship)
    kinship[smaller == 0] = np.nan
    np.fill_diagonal(kinship, 0.5)
    return kinship


Pairs = tuple[Places, Places, Vector]  # indices of two samples, and their kinship


def related_pairs(kinship: npt.NDArray[np.float64], cutoff: float) -> Pairs:
    first, second = np.nonzero(np.triu(kinship > cutoff * (1 + _EPSILON), 1))
    return first, second, kinship[first, second]


def _pair_counts(files: Fileset, first: Places, second: Places, resources: Resources) -> list[Numbers]:
    # Variants with both genotypes, with two heterozygous ones, and with opposite homozygous ones. One read.
    def of_block(G: Calls) -> list[Numbers]:
        A, B = G[:, first], G[:, second]
        known = (A >= 0) & (B >= 0)
        masks = known, (A == 1) & (B == 1), known & (np.abs(A - B) == 2)
        return [np.count_nonzero(mask, axis=0) for mask in masks]

    blocks = over_blocks(files, of_block, resources, max(1, -(-5 * len(first) // files.shape[0])))
    return [np.asarray(sum(part)) for part in zip(*blocks, strict=True)]


def kin0(path: Path, files: Fileset, pairs: Pairs, resources: Resources) -> None:
    # plink2's --make-king-table: HETHET and IBS0 are shares of the NSNP variants.
    counts = _pair_counts(files, *pairs[:2], resources) if len(pairs[0]) else [np.zeros(0, np.int64)] * 3
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join(["#FID1", "IID1", "FID2", "IID2", "NSNP", "HETHET", "IBS0", "KINSHIP"]) + "\n")
        for i, j, kinship, n, both, opposite in zip(*pairs, *counts, strict=True):
            names = [each[at] for at in (i, j) for each in files.samples]
            shares = (f"{value:.6g}" for value in (both / n, opposite / n, kinship))
            file.write("\t".join([*names, str(n), *shares]) + "\n")


def unrelated_mask(kinship: npt.NDArray[np.float64], cutoff: float) -> Mask:
    # While related pairs remain, remove the relative of a sample that has exactly one; otherwise remove the sample with
    # the most relatives (ties: the last).
    related = kinship > cutoff * (1 + _EPSILON)
    np.fill_diagonal(related, False)
    degrees, kept = related.sum(axis=1), np.ones(len(kinship), bool)
    while degrees.any():
        single = np.flatnonzero(degrees == 1)
        most = len(degrees) - 1 - int(np.argmax(degrees[::-1]))
        removed = int(np.flatnonzero(related[single[0]])[0]) if len(single) else most
        degrees -= related[removed]
        related[removed] = related[:, removed] = False
        degrees[removed], kept[removed] = 0, False
    return kept


def _counts(files: Fileset, n: int, resources: Resources) -> tuple[Square, Square]:
    alike, opposite, hets = (np.zeros((n, n), np.float32) for _ in range(3))
    with threadpool_limits(resources.n_threads or default_threads(), "blas"):
        for part, lo, hi in files.blocks(max(4 * n, block_size(resources))):
            G = part.calls(lo, hi)
            het, low, high = ((G == value).astype(np.float32) for value in (1, 0, 2))
            alike += het.T @ het
            opposite += low.T @ high
            low += high
            low += het
            hets += het.T @ low
    # A heterozygous and a homozygous genotype differ by 1, opposite ones by 2.
    opposite += opposite.T
    opposite *= 4
    opposite += hets
    opposite += hets.T
    alike *= 2
    opposite -= alike
    return opposite, np.minimum(hets, hets.T)
