"""
Missing values
==============

``missing="mean"`` lets missing entries equal the shift: they cost nothing and say nothing. ``missing="em"`` and
`shiftsvd.missing.complete` fit a low-rank model to the observed entries alone, as sparse residuals plus low rank;
nothing is ever filled in.
"""

# %%
# 200 small grey pictures, 100 faces and 100 that are none, that scikit-image carries; 40 % of the pixels are removed.

import matplotlib.pyplot as plt
import numpy as np
from skimage.data import lfw_subset

import shiftsvd as ss
from shiftsvd.missing import complete

whole = lfw_subset()[:100].reshape(100, 625).astype(float)
rng = np.random.default_rng(0)
X = np.where(rng.random(whole.shape) < 0.4, np.nan, whole)

model = complete(X, 12, rng=0)
print(f"penalty {model.penalty:.2g}, {model.n_iter} steps")

# %%
# The model at every pixel, also at those that it never saw.

rows, columns = np.indices(X.shape)
filled = model.predict(rows.ravel(), columns.ravel()).reshape(X.shape)
gone = np.isnan(X)
by_mean = np.broadcast_to(np.nanmean(X, axis=0), X.shape)
for name, guess in (("mean of the pixel", by_mean), ("model of rank 12", filled)):
    print(f"error at missing pixels, {name}: {np.sqrt(np.mean((guess - whole)[gone] ** 2)):.3f}")

figure, axes = plt.subplots(3, 6, figsize=(9, 4.8), layout="constrained")
for row, pictures, name in zip(axes, (whole, X, np.where(gone, filled, X)), ("whole", "given", "model"), strict=True):
    for ax, picture in zip(row, pictures[::17], strict=True):
        ax.set_facecolor("#3366aa")
        ax.imshow(picture.reshape(25, 25), cmap="gray", vmin=0, vmax=1)
        ax.set(xticks=[], yticks=[])
    row[0].set_ylabel(name)

# %%
# The same inside `PCA`, where new rows with holes are projected by a regression on what is observed of them.

pca = ss.PCA(n_components=12, missing="em", random_state=0).fit(X)
exact = ss.PCA(n_components=12, random_state=0).fit(whole)
simple = ss.PCA(n_components=12, missing="mean", random_state=0).fit(X)

figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for name, fit, mark in (("nothing missing", exact, "k-"), ("em", pca, "o"), ("mean", simple, "s")):
    ax.semilogy(np.arange(1, 13), fit.explained_variance_, mark, label=name)
ax.set(xlabel="component", ylabel="explained variance", title="40 % of the entries missing")
ax.legend()
plt.show()
