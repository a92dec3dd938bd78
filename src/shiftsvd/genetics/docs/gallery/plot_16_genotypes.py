"""
Population structure, and samples of an array projected onto it
===============================================================

The principal components of a reference panel are axes of ancestry. New samples often come from other sources: an array
with few of the variants, other counted alleles and the other strand, or ancient DNA with most genotypes missing.
`shiftsvd.genetics` matches variants by position and alleles, computes scores by least squares on the genotypes that
are not missing, and estimates their standard errors.
"""

# %%
# Simulate 300 samples of six populations at 40,000 variants. The populations drifted from three regions with a common
# ancestor.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from bed_reader import to_bed

import shiftsvd.genetics as sg

rng = np.random.default_rng(1)
n, letters = 40_000, np.array(["A", "C", "G", "T"])


def drifted(p, F):
    """Return allele frequencies after drift (Balding & Nichols 1995)."""
    return rng.beta(p * (1 - F) / F, (1 - p) * (1 - F) / F)


regions = [drifted(p, 0.08) for p in 3 * [rng.uniform(0.05, 0.95, n)]]
populations = np.clip([drifted(p, 0.03) for p in regions for _ in range(2)], 0.01, 0.99)
panel = np.arange(300) % 6
G = rng.binomial(2, populations[panel]).astype(np.float32)
first, second = rng.permuted(np.tile(np.arange(4), (n, 1)), axis=1)[:, :2].T

folder = tempfile.TemporaryDirectory()
place = {"chromosome": np.sort(rng.integers(1, 23, n)).astype(str), "bp_position": np.arange(1, n + 1) * 6_000}


def written(name, G, here, first, second):
    """Write some of the variants to a .bed."""
    properties = {key: values[here] for key, values in place.items()}
    alleles = {"allele_1": letters[first], "allele_2": letters[second]}
    to_bed(Path(folder.name, f"{name}.bed"), G, properties=properties | alleles)
    return Path(folder.name, f"{name}.bed")


reference = sg.pca(written("reference", G, np.arange(n), first, second), 4, rng=0)
print(reference)
print("eigenvalues", reference.eigenvalues.round(1))

# %%
# The array has 4 % of the variants, in another order. It counts the other allele of half of these variants, and has a
# third of them on the other strand. Its samples are one of each population, and one with parents from the first and the
# third population.

parents = np.vstack([populations, (populations[0] + populations[2]) / 2])
new = rng.binomial(2, parents).astype(np.float32)
chip = rng.permutation(n)[: n // 25]
swapped, strand = rng.random(len(chip)) < 0.5, rng.random(len(chip)) < 1 / 3
there = [np.where(strand, 3 - alleles[chip], alleles[chip]) for alleles in (first, second)]
array = written(
    *("array", np.where(swapped, 2 - new[:, chip], new[:, chip]), chip),
    *(np.where(swapped, *there[::-1]), np.where(swapped, *there)),
)
found = reference.project(array)
print(f"{found.n_used} of {reference.n_used} variants: {found.n_flipped} with swapped alleles,")
print(f"{found.n_complemented} on the other strand; {found.n_ambiguous} removed, A/T or C/G")

# %%
# Replacing absent genotypes by means shrinks the scores of every sample by the share of absent variants. Least squares
# do not shrink scores, and give standard errors: the bars are two standard errors long on each side. The diamonds are
# the scores on all variants, which are known in this simulation.

whole = reference.project(written("whole", new, np.arange(n), first, second), trust_ambiguous=True)
shrunk = reference.project(array, project="mean")
figure, panels = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained", sharex=True, sharey=True)
colours = plt.colormaps["tab10"](np.r_[0:6, 7])
for axes, scores, title in zip(panels, (shrunk, found), ("replaced by means", "least squares"), strict=True):
    axes.scatter(*reference.eigenvectors[:, :2].T, c=colours[panel], s=8, alpha=0.35)
    axes.scatter(*whole.eigenvectors[:, :2].T, c=colours, marker="D", s=28, edgecolor="black", label="all variants")
    errors = np.zeros((7, 4)) if scores.standard_errors is None else 2 * scores.standard_errors
    for i, colour in enumerate(colours):
        x, y = scores.eigenvectors[i, :2]
        axes.errorbar(x, y, errors[i, 1], errors[i, 0], fmt="o", color=colour, markeredgecolor="black", capsize=2)
    axes.set(title=f"{title}: {found.n_used} variants", xlabel="PC1")
panels[0].set_ylabel("PC2")
panels[0].legend(loc="best", fontsize=8)
off = np.abs(found.eigenvectors - whole.eigenvectors) / found.standard_errors
print(f"{np.mean(off < 2):.0%} of scores are within two standard errors of those on all variants")

# %%
# Standard errors grow with the share of missing genotypes. Here are scores of the mixed sample with more and more of
# its genotypes missing.

shares = np.array([0.5, 0.8, 0.9, 0.95, 0.98, 0.99])
old = np.where(rng.random((len(shares), n)) < shares[:, None], np.nan, new[-1])
worn = reference.project(written("old", old, np.arange(n), first, second), trust_ambiguous=True)
figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
axes.axhline(whole.eigenvectors[-1, 0], color="black", linewidth=1, label="all variants")
axes.errorbar(range(len(shares)), worn.eigenvectors[:, 0], 2 * worn.standard_errors[:, 0], fmt="o", capsize=3)
names = [f"{share:.0%}\n{int(count):,}" for share, count in zip(shares, worn.n_present, strict=True)]
axes.set(xticks=range(len(shares)), xticklabels=names, xlabel="missing; genotypes left", ylabel="PC1")
axes.legend()
folder.cleanup()
plt.show()
