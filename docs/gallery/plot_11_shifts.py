"""
Shifts: group means and covariates
==================================

The mean is one low-rank shift among many. `GroupMeans` removes what the rows of a batch, a site or a subject have in
common; `Covariates` removes what a regression on known quantities explains. Neither forms the residuals.
"""

# %%
# Pictures of digits from two made-up scanners: one prints darker, the other slants its light. The scanner is the
# strongest thing in the data, and of no interest.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes, load_digits

import shiftsvd as ss

X, digit = load_digits(return_X_y=True)
few = digit < 3
X, digit = X[few], digit[few]
rng = np.random.default_rng(0)
scanner = np.where(rng.random(len(X)) < 0.5, "left", "right")
light = np.tile(np.linspace(0, 16, 8), 8)
X = X + np.where(scanner[:, None] == "right", light, 3.0)

# %%
# In an estimator the spec is empty, and the labels come with the rows, in `fit` and in `transform`.

plain = ss.PCA(n_components=2, random_state=0).fit(X)
within = ss.PCA(n_components=2, shift=ss.GroupMeans(), random_state=0).fit(X, groups=scanner)

figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
for ax, Z, title in (
    (axes[0], plain.transform(X), "minus the mean"),
    (axes[1], within.transform(X, groups=scanner), "minus the mean of each scanner"),
):
    for name, mark in (("left", "o"), ("right", "^")):
        rows = scanner == name
        ax.scatter(*Z[rows].T, c=digit[rows], cmap="tab10", vmax=9, marker=mark, s=14)
    ax.set(title=title, xlabel="component 1", ylabel="component 2")
figure.suptitle("dots and triangles: scanner; colours: digit")

# %%
# Covariates: blood serum of 442 patients, where age, sex, body mass and blood pressure are known. What they explain
# is regressed out of every column, and the components that are left have nothing to do with them.

patients = load_diabetes(as_frame=True, scaled=False).data
known, serum = patients.iloc[:, :4], patients.iloc[:, 4:]
raw = ss.PCA(n_components=2, scale=True, random_state=0).fit(serum)
free = ss.PCA(n_components=2, scale=True, shift=ss.Covariates(), random_state=0).fit(serum, covariates=known)
for name, Z in (("mean", raw.transform(serum)), ("covariates", free.transform(serum, covariates=known))):
    correlations = np.abs(known.corrwith(pd.Series(Z[:, 0]))).round(2)
    print(f"minus the {name}, correlation of component 1 with", correlations.to_dict())

# %%
# In `svd`, the data of the shift are given with it. Any low-rank matrix will do.

by_group = ss.svd(X, 2, shift=ss.GroupMeans(scanner), rng=0)
both = ss.svd(X, 2, shift="both", rng=0)  # rows and columns: double centring
print(by_group.S.round(1), both.S.round(1))
plt.show()
