"""Describe genotypes for `shiftsvd info`: chromosomes, build, founders, sex, MAF, missing genotypes, first filters."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from shiftsvd.extend.operators import Vector
from shiftsvd.extend.running import Resources
from shiftsvd.genetics.extension import ASSEMBLIES
from shiftsvd.genetics.files import Calls, Fileset, over_blocks
from shiftsvd.genetics.linkage import is_sorted
from shiftsvd.genetics.matching import build_of
from shiftsvd.genetics.variants import Mask, autosomal, columns, read_founders, tables
from shiftsvd.io import Opened

_MOST: Final = 2**28  # genotypes to read: about a second for a .bed; of larger files, evenly spaced variants
_SEXES: Final = {"1": "male", "M": "male", "2": "female", "F": "female"}
_GENO, _MIND, _MAF = 0.05, 0.1, 0.01  # thresholds of the suggested filters


def describe(paths: list[Path], opened: Opened, key: str | None, memory_limit: int | str | None) -> Mapping[str, Any]:
    """Return facts of a .bed or .pgen, or of one for each chromosome, with "settings" of a first fit."""
    whole = Fileset.of(paths, key, memory_limit)
    (m, n), variants, founders = whole.shape, whole.variants, read_founders(paths[0])
    sexes = columns(tables(paths[0])[1], ("SEX",)).get("SEX", np.full(m, "0")).tolist()
    seen = np.arange(n) % max(1, -(-m * n // _MOST)) == 0
    maf, by_variant, by_sample = _shares(whole.of_variants(seen), founders, Resources(memory_limit, None))
    build, autosomes = build_of(variants), autosomal(variants.chromosomes)
    of_one = {"samples_are": f"{opened.samples} of the stored matrix"} if len(paths) == 1 else {}
    facts: dict[str, Any] = of_one | {
        "chromosomes": dict(Counter(variants.chromosomes.tolist())),
        "not_on_autosomes": n - int(np.count_nonzero(autosomes)),
        "genome_build": build or "unknown",
        "founders": int(np.count_nonzero(founders)),
        "sex": dict(Counter(_SEXES.get(sex.upper(), "unknown") for sex in sexes)),
        "sampled": f"{np.count_nonzero(seen):,} of {n:,} variants",
        "maf": _quantiles(maf),
        "missing_by_variant": _quantiles(by_variant),
        "missing_by_sample": _quantiles(by_sample),
    }
    settings = {
        "missing": None,  # `fit` replaces missing genotypes
        "chromosomes": None if autosomes.any() else "all",
        "exclude_long_range": next((each for each, name in ASSEMBLIES.items() if name == build), None),
        # A filter that would remove most samples or variants needs a look first.
        "mind": _MIND if 0 < by_sample.max() and np.median(by_sample) <= _MIND else None,
        "geno": _GENO if 0 < by_variant.max() and np.median(by_variant) <= _GENO else None,
        "maf": _MAF if maf.max() >= _MAF else None,
        "indep_pairwise": (50, 5, 0.2) if is_sorted(variants) and np.count_nonzero(founders) > 1 else None,
    }
    counted = {"n_missing": round(float(by_sample.sum()) * n)} if seen.all() else {}
    return facts | counted | {"settings": settings}


def _shares(files: Fileset, founders: Mask, resources: Resources) -> tuple[Vector, Vector, Vector]:
    # MAF among founders, and the shares of missing genotypes by variant and by sample, in one read.
    def of_block(G: Calls) -> tuple[Any, ...]:
        own, missing = G[:, founders], G < 0
        sums = (np.maximum(own, 0).sum(axis=1), np.count_nonzero(own >= 0, axis=1), np.count_nonzero(missing, axis=1))
        return *sums, np.count_nonzero(missing, axis=0)

    counts, known, by_variant, by_sample = zip(*over_blocks(files, of_block, resources, 2), strict=True)
    p = np.concatenate(counts) / np.maximum(2 * np.concatenate(known), 1)
    m, n = files.shape
    return np.minimum(p, 1 - p), np.concatenate(by_variant) / m, np.sum(by_sample, axis=0) / n


def _quantiles(values: Vector) -> dict[str, float]:
    found = np.quantile(values, (0, 0.25, 0.5, 0.75, 1)).tolist()
    names = "least", "25%", "median", "75%", "largest"
    return {name: float(f"{x:.3g}") for name, x in zip(names, found, strict=True)}
