"""
Counts of cells: Pearson residuals beside log-normalisation
===========================================================

What the principal components of counts of RNA are depends on what was done to the counts. Here are two common ways on
the same raw counts: logarithms of counts over library sizes (`LogNormalize`), and what is left of each count beyond
what a null model with negative binomial noise expects of it (`PearsonResiduals`; Lause, Berens & Kobak 2021). Residuals
are not zero where counts are: the matrix of them is dense, and is never formed.
"""

# %%
# Real cells where ``SHIFTSVD_TEST_DATA`` names a folder that has them (a mouse bladder), and simulated ones elsewhere.
# Genes that fewer than ten cells have are left out.

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import csr_array, load_npz

import shiftsvd as ss


def simulated(cells, genes, rng):
    """Counts of seven groups of cells, the last one of 1 in 50, with 30 genes of its own each."""
    group = rng.choice(7, cells, p=[0.28, 0.2, 0.2, 0.15, 0.1, 0.05, 0.02])
    rates = np.tile(rng.lognormal(-3, 1.5, genes), (7, 1))
    for number in range(7):
        rates[number, rng.choice(genes, 30, replace=False)] += rng.lognormal(0, 1, 30)
    depth = rng.lognormal(0, 0.5, (cells, 1))
    return csr_array(rng.poisson(rates[group] * depth * rng.gamma(100, 0.01, (cells, genes))).astype(np.float32))


file = Path(os.environ.get("SHIFTSVD_TEST_DATA", ""), "bladder_counts.npz")
X = csr_array(load_npz(file)) if file.is_file() else simulated(2000, 3000, np.random.default_rng(0))
X = X[:, np.bincount(X.indices, minlength=X.shape[1]) >= 10]
print(f"{X.shape[0]:,} cells x {X.shape[1]:,} genes, {X.nnz / np.prod(X.shape):.1%} of them not zero")

# %%
# Both are one argument. The second matrix is sparse minus low rank; dense, it would take the memory that is printed.

ways = {"log-normalised": ss.LogNormalize(1e4), "Pearson residuals": ss.PearsonResiduals(theta=100)}
fits = {name: ss.PCA(20, preprocess=how, random_state=0).fit(X) for name, how in ways.items()}
for name, pca in fits.items():
    print(f"{name}: {pca.info_.n_passes} passes, errors below {pca.info_.value_errors.max():.0e}")
print(f"dense: {8 * np.prod(X.shape) / 1e6:,.0f} MB; the counts: {X.data.nbytes * 2 / 1e6:,.0f} MB")

# %%
# Where the variance is. Of logarithms that of a gene grows with its mean, up to some mean, whether the gene tells cells
# apart or not. Residuals of noise have variance 1 at any mean (the line): genes above it vary more than the null model
# says, rare ones among them that few cells have, but those many of.

mean = np.asarray(X.mean(axis=0)).ravel()
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for ax, (name, how) in zip(axes, ways.items(), strict=True):
    variance = ss.centered(ss.preprocess(X, how)).column_squares() / X.shape[0]
    share = np.sort(variance)[::-1].cumsum() / variance.sum()
    print(f"{name}: half of the variance is in {np.searchsorted(share, 0.5) + 1:,} of {len(mean):,} genes")
    ax.loglog(mean, variance, ".", markersize=2, alpha=0.5)
    ax.set(title=name, xlabel="mean count of the gene", ylabel="variance of the gene")
axes[1].axhline(1, color="0.3", linewidth=1)

# %%
# How much of each component is the library size, which nobody asked about: the share of the variance of its scores
# that a line through the logarithm of the sizes explains. The colours below are these sizes.

size = np.log10(np.asarray(X.sum(axis=1)).ravel())
scores = {name: pca.transform(X) for name, pca in fits.items()}
for name, Z in scores.items():
    explained = [np.corrcoef(Z[:, j], size)[0, 1] ** 2 for j in range(5)]
    print(f"{name}: R^2 of components 1 to 5 with the size", " ".join(f"{value:.2f}" for value in explained))

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for ax, (name, Z) in zip(axes, scores.items(), strict=True):
    points = ax.scatter(Z[:, 0], Z[:, 1], c=size, s=4)
    ax.set(title=name, xlabel="PC 1", ylabel="PC 2")
figure.colorbar(points, ax=axes, label="log10 of the library size")

# %%
# What only one of them finds: how well each component of the one is predicted by all 20 of the other (R^2 of a
# regression). A component near 1 is in both, one near 0 in one of them only.

for (name, Z), other in zip(scores.items(), list(scores.values())[::-1], strict=True):
    Q = np.linalg.qr(other - other.mean(axis=0))[0]
    R2 = np.sum((Q.T @ Z) ** 2, axis=0) / np.sum(Z**2, axis=0)
    print(f"{name}: in the other, components 1 to 10:", " ".join(f"{value:.2f}" for value in R2[:10]))
plt.show()
