"""
Truncated SVD against centring
==============================

`TruncatedSVD` is often used in the place of PCA because it leaves sparse data sparse. Without centring, its first
component is mostly the mean: it says how far the data are from the origin, and not how they vary.
`shiftsvd.TruncatedSVD` measures that, and warns; `shiftsvd.PCA` centres and stays sparse as well.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import csr_array
from sklearn.datasets import load_digits

import shiftsvd as ss

digits = load_digits()
X = csr_array(digits.data)

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    svd = ss.TruncatedSVD(n_components=3, random_state=0).fit(X)
print(caught[0].message)
print("|cos| of the angle to the mean:", svd.mean_alignment_.round(3))

# %%
# The first component of the truncated SVD is the average digit. That of PCA is what distinguishes them.

pca = ss.PCA(n_components=3, random_state=0).fit(X)

figure, axes = plt.subplots(2, 4, figsize=(9, 4.6), layout="constrained")
rows = (("TruncatedSVD", svd.components_), ("PCA", pca.components_))
for row, (name, components) in zip(axes, rows, strict=True):
    for j, (ax, picture) in enumerate(zip(row, [X.mean(axis=0), *components], strict=True)):
        limit = np.abs(picture).max()
        ax.imshow(picture.reshape(8, 8), cmap="RdBu_r", vmin=-limit, vmax=limit)
        ax.set(xticks=[], yticks=[], title=f"component {j}" if j else "mean")
    row[0].set_ylabel(name)

# %%
# With as many components, PCA describes more of the variance.

figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for k, (name, model) in enumerate((("TruncatedSVD", svd), ("PCA", pca))):
    ax.bar(np.arange(1, 4) + 0.38 * k - 0.19, model.explained_variance_ratio_, 0.38, label=name)
ax.set(xlabel="component", ylabel="share of the variance", xticks=[1, 2, 3], ylim=(0, 0.19))
ax.legend(ncols=2)
plt.show()
