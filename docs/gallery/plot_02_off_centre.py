"""
Data far from the origin
========================

Temperatures in kelvin, years, heights above the sea: the mean may be far larger than what varies. Products of such
numbers lose the digits that matter, unless the mean is subtracted before they are multiplied. `PCA` does that block
by block, so the centred matrix is never held.
"""

# %%
# The handwritten digits, moved away from the origin; the principal components should not notice.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

import shiftsvd as ss

X = load_digits().data[:, 1:-1]
spread = X.std()
distances = 10.0 ** np.arange(6)


def largest_error(pca, moved):
    """The largest relative error of ten singular values, beside those of the stored numbers in double precision."""
    exact = np.linalg.svd(moved.astype(float) - moved.astype(float).mean(axis=0), compute_uv=False)[:10]
    return np.max(np.abs(pca.singular_values_ - exact) / exact)


errors = {"shiftsvd": [], "scikit-learn": []}
for distance in distances:
    moved = (X + distance * spread).astype(np.float32)
    errors["shiftsvd"].append(largest_error(ss.PCA(10, random_state=0).fit(moved), moved))
    errors["scikit-learn"].append(largest_error(PCA(10, svd_solver="covariance_eigh").fit(moved), moved))

# %%
# Both are given single precision; scikit-learn uses ``covariance_eigh``, its choice for data of this shape. What is
# measured is the error of the method, not of the rounding of the data: the exact values are those of the numbers as
# they are stored.

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for (name, values), mark in zip(errors.items(), ("o-", "s--"), strict=True):
    ax.loglog(distances, np.maximum(values, 1e-9), mark, label=name)
ax.axhline(np.finfo(np.float32).eps, color="0.6", linewidth=1, label="rounding of float32")
ax.set(xlabel="mean / standard deviation", ylabel="largest relative error of 10 values")
ax.legend()
plt.show()
