"""
Missing values
==============

``missing="mean"`` lets missing entries equal the shift: they cost nothing and say nothing. ``missing="em"`` and
`shiftsvd.complete_matrix` fit a low-rank model to the observed entries alone, as sparse residuals plus low rank;
nothing is ever filled in.
"""

# %%
# 200 small grey pictures, 100 faces and 100 that are none, that scikit-image carries; 40 % of the pixels are removed.

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import csr_array
from skimage.data import lfw_subset

import shiftsvd as ss

whole = lfw_subset()[:100].reshape(100, 625).astype(float)
rng = np.random.default_rng(0)
X = np.where(rng.random(whole.shape) < 0.4, np.nan, whole)

model = ss.complete_matrix(X, 12, rng=0)
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

# %%
# Ratings: people have levels of their own and so have films, and most films a person has not seen. Here 900 made-up
# people give 1 to 5 stars to some of 400 films, by three tastes; good films are seen more often.

people, films = rng.normal(0, 0.5, 900), rng.normal(3.3, 0.6, 400)
tastes = rng.normal(0, 0.45, (900, 3)) @ rng.normal(0, 1, (3, 400))
stars = np.clip(np.round(people[:, None] + films + tastes + rng.normal(0, 0.5, tastes.shape)), 1, 5)
seen = rng.random(stars.shape) < 0.15 / (1 + np.exp(-2 * (films - 3.3)))
asked = seen & (rng.random(stars.shape) < 0.1)  # kept back
R = csr_array(np.where(seen & ~asked, stars, 0))
print(f"{R.nnz} ratings, {R.nnz / stars.size:.1%} of the entries")

# %%
# What a sparse matrix does not store is zero, unless ``unobserved=True`` says that it is missing. One call finds the
# tastes beside the levels of both sides:

tastes_of = ss.svd(R, 3, shift="both", missing="em", unobserved=True, rng=0)
print("values of the tastes:", tastes_of.S.round(1))

# %%
# With the model itself one can ask for ratings that nobody gave.

i, j = np.nonzero(asked)
zeros = ss.svd(R, 3, shift="mean", rng=0)
predicted = {
    "zeros are ratings": np.sum(zeros.U[i] * zeros.S * zeros.Vh.T[j], axis=1) + R.mean(axis=0)[j],
    "mean of all": np.full(len(i), R.data.mean()),
    **{
        f"biases={biases!r}": ss.complete_matrix(R, 3, biases=biases, unobserved=True, rng=0).predict(i, j)
        for biases in (None, "columns", "both")
    },
}
errors = {name: np.sqrt(np.mean((guess - stars[i, j]) ** 2)) for name, guess in predicted.items()}
for name, error in errors.items():
    print(f"error of {name}: {error:.2f} stars")

figure, ax = plt.subplots(figsize=(7, 2.6), layout="constrained")
ax.barh(list(errors), list(errors.values()))
ax.set(xlabel="error of a rating that was kept back, in stars")
ax.invert_yaxis()
plt.show()
