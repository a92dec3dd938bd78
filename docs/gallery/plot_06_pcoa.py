"""
Principal coordinates of distances
==================================

Sometimes there are only distances. `PCoA` finds points with those distances, from a matrix that is centred on both
sides without being formed. Distances that no points in space can have give negative eigenvalues, and it says how
many.
"""

# %%
# Bray-Curtis distances, the usual ones of ecology, between 600 pictures of digits: how much of their ink is in
# different places.

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits

import shiftsvd as ss

X, digit = load_digits(return_X_y=True)
known, new = X[:600], X[600:700]
D = cdist(known, known, "braycurtis")

pcoa = ss.PCoA(n_components=10, random_state=0).fit(D)
print("share of each:", pcoa.proportion_explained_[:3].round(3))
print("negative eigenvalues are", f"{pcoa.negative_share_:.1%}", "of all")

# %%
# New points are placed by their distances to the known ones.

Z = pcoa.transform(cdist(new, known, "braycurtis"))

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
points = left.scatter(*pcoa.coordinates_[:, :2].T, c=digit[:600], cmap="tab10", s=10)
left.scatter(*Z[:, :2].T, c=digit[600:700], cmap="tab10", s=40, marker="^", edgecolor="black", linewidth=0.5)
left.set(title="600 digits (dots), and 100 placed later", xlabel="coordinate 1", ylabel="coordinate 2")
figure.colorbar(points, ax=left, ticks=range(10), label="digit")
kept = cdist(pcoa.coordinates_, pcoa.coordinates_)
upper = np.triu_indices(600, 1)
right.hexbin(D[upper], kept[upper], gridsize=50, cmap="Greys", bins="log")
right.axline((0, 0), slope=1, color="C3", linewidth=1)
right.set(title="distances", xlabel="given", ylabel="of 10 coordinates")
plt.show()
