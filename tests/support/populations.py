"""Simulated cohorts with true alleles, and what other people's files do to them; not a test."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

COMPLEMENT = {"A": "T", "T": "A", "C": "G", "G": "C"}
PAIRS = [(a, b) for a in "ACGT" for b in "ACGT" if a != b]


@dataclass(frozen=True, eq=False)
class Cohort:
    """Genotypes, samples x variants, and what a .bim says of the variants; genotypes count the first allele."""

    G: Any
    chromosome: Any
    position: Any
    name: Any
    first: Any
    second: Any

    @classmethod
    def simulated(
        cls, samples: int, variants: int, seed: int = 0, pattern: tuple[int, ...] = (0, 1, 2, 3), gaps: float = 0.0
    ) -> Self:
        """Populations that drifted apart; what is drawn of variants does not depend on the seed or the samples.

        The samples are of the populations in the pattern, again and again.
        """
        shared = np.random.default_rng(variants)
        ancestral, drift = shared.uniform(0.05, 0.95, variants), 0.1
        shape = (1 - drift) / drift
        p = np.array([shared.beta(ancestral * shape, (1 - ancestral) * shape) for _ in range(max(pattern) + 1)])
        rng = np.random.default_rng(seed)
        G = rng.binomial(2, p[np.resize(pattern, samples)]).astype(np.float32)
        G[rng.random(G.shape) < gaps] = np.nan
        chromosome = np.sort(shared.integers(1, 23, variants)).astype(str)
        position = 1000 + 977 * np.arange(variants)
        pairs = np.array(PAIRS, object)[shared.integers(0, len(PAIRS), variants)]
        name = np.array([f"rs{7 * j + 100}" for j in range(variants)], object)
        return cls(G, chromosome, position, name, pairs[:, 0], pairs[:, 1])

    @property
    def ambiguous(self) -> npt.NDArray[np.bool_]:
        """Where letters cannot tell the strand."""
        return np.array([COMPLEMENT.get(a) == b for a, b in zip(self.first, self.second, strict=True)])

    def some(self, places: Any) -> Self:
        """Some variants, or all in another order."""
        columns = (self.chromosome, self.position, self.name, self.first, self.second)
        return type(self)(self.G[:, places], *(column[places] for column in columns))

    def swapped(self, where: Any) -> Self:
        """The other allele counted, as the .bim says."""
        G, both = np.where(where, 2 - self.G, self.G), (self.first, self.second)
        return replace(self, G=G, first=np.where(where, *both[::-1]), second=np.where(where, *both))

    def complemented(self, where: Any) -> Self:
        """The letters of the other strand."""
        others = [np.array([COMPLEMENT[a] for a in alleles], object) for alleles in (self.first, self.second)]
        return replace(
            self, first=np.where(where, others[0], self.first), second=np.where(where, others[1], self.second)
        )

    def written(self, path: Path) -> Path:
        """A .bed, with its .bim and .fam."""
        from bed_reader import to_bed

        m = len(self.G)
        properties = {
            "fid": [f"f{i}" for i in range(m)],
            "iid": [f"s{i}" for i in range(m)],
            "sid": self.name.tolist(),
            "chromosome": self.chromosome.tolist(),
            "bp_position": self.position.tolist(),
            "allele_1": self.first.tolist(),
            "allele_2": self.second.tolist(),
        }
        to_bed(path, self.G, properties=properties)
        return path
