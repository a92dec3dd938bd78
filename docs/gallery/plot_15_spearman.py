"""
PCA of heavy-tailed data by Spearman's correlation
==================================================

Of amounts such as incomes, reads or clicks a few are larger than all others together. Means and variances are then
those of a few rows, and so are principal components. Ranks within columns (`Ranks`) know only the order: components of
scaled ranks are those of Spearman's correlation matrix. The zeros of a column share one rank, so that ranks of sparse
data are sparse minus a constant for each column.
"""

# %%
# 4,000 rows of 300 amounts, nine of ten of them zero, each column in a unit of its own. Three hidden factors say which
# columns are large together; the noise is so heavy-tailed (a power of 1.2) that it has no variance.

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import csr_array
from scipy.stats import rankdata

import shiftsvd as ss

rng = np.random.default_rng(0)
m, n, k = 4000, 300, 3
loadings = np.linalg.qr(rng.standard_normal((n, k)))[0]
wanted = rng.standard_normal((m, k)) @ loadings.T * 6 + rng.standard_normal((m, n))
there = wanted > np.quantile(wanted, 0.9)
units = 10 ** rng.uniform(-3, 3, n)
X = csr_array(np.where(there, units * np.exp(wanted) * (1 + rng.pareto(1.2, (m, n))), 0))
print(f"{X.nnz / X.shape[0] / X.shape[1]:.0%} not zero; the largest entry is {X.max() / X.sum():.0%} of the sum of all")

# %%
# Four ways to take the same data. How far each finds the hidden loadings: the cosines of the angles between the true
# space and that of three components, which are 1 for the same space, and 0.1 or so by chance. Logarithms tame large
# amounts, but ``log(1 + x)`` knows of units; ranks do not.

ways = {
    "as they are": {},
    "scaled": {"scale": True},
    "logarithms, scaled": {"preprocess": ss.Elementwise(np.log1p), "scale": True},
    "ranks, scaled": {"preprocess": ss.Ranks(), "scale": True},
}
fits = {name: ss.PCA(10, random_state=0, **settings).fit(X) for name, settings in ways.items()}
cosines = {name: np.linalg.svd(pca.components_[:k] @ loadings)[1] for name, pca in fits.items()}
for name, found in cosines.items():
    print(f"{name:20}", " ".join(f"{value:.3f}" for value in found))

# %%
# The values are those of Spearman's correlation matrix, which takes dense ranks.

R = np.corrcoef(rankdata(X.toarray(), axis=0), rowvar=False)
exact = np.sort(np.linalg.eigvalsh(R))[::-1][:10]
ours = fits["ranks, scaled"].singular_values_ ** 2 / m
print(f"largest relative difference of ten eigenvalues: {np.abs(ours / exact - 1).max():.0e}")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for name, pca in fits.items():
    left.plot(range(1, 11), pca.explained_variance_ratio_, "o-", markersize=4, label=name)
left.set(xlabel="component", ylabel="share of the variance", xticks=range(1, 11))
left.legend()
height = np.arange(len(cosines))
for j in range(k):
    right.plot([found[j] for found in cosines.values()], height, "o", label=f"angle {j + 1}")
right.set(yticks=height, yticklabels=list(cosines), xlabel="cosine to the true space", xlim=(0, 1.03))
right.invert_yaxis()
right.legend()
plt.show()

# %%
# New rows are ranked among those of the training, and models keep the table of values that this takes.

new = X[:5]
print(np.abs(fits["ranks, scaled"].transform(new) - fits["ranks, scaled"].transform(X)[:5]).max() < 1e-9)
