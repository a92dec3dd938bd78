"""
Spectral embedding and diffusion map of digits
==============================================

Each of 1,797 images of handwritten digits is joined to the 15 images most like it. The first components of PCA
describe the largest differences between images; a spectral embedding places images close to each other that are joined
by many paths. The diffusion map scales its coordinates by the eigenvalues of a random walk.
"""

# %%
# Two coordinates of each, coloured by the digit. All errors have bounds: the sines of the angles between coordinates
# and exact eigenvectors are at most 1e-4.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph

import shiftsvd as ss

X, digit = load_digits(return_X_y=True)
distances = kneighbors_graph(X, 15, mode="distance")
W = distances.copy()
W.data = np.exp(-((W.data / np.median(W.data)) ** 2))
W = W.maximum(W.T)

pca = ss.PCA(2, random_state=0).fit(X)
embedding = ss.SpectralEmbedding(2, n_neighbors=15, random_state=0).fit(X)
walk = ss.DiffusionMap(2, random_state=0).fit(W)
print(f"largest sine: {embedding.vector_errors_.max():.0e} and {walk.vector_errors_.max():.0e}")

names = ("PCA", "spectral embedding", "diffusion map")
figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
for axis, Z, name in zip(axes, (pca.transform(X), embedding.embedding_, walk.embedding_), names, strict=True):
    axis.scatter(*Z.T, c=digit, cmap="tab10", s=4)
    axis.set(title=name, xticks=[], yticks=[])

# %%
# Ten clusters of the first nine coordinates, by the share of pairs of images that clusters and digits treat alike
# (adjusted for chance: 0 for random clusters, 1 for those of the digits).

from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

nine = {
    "PCA": ss.PCA(9, random_state=0).fit_transform(X),
    "spectral embedding": ss.SpectralEmbedding(9, n_neighbors=15, random_state=0).fit_transform(X),
}
for name, Z in nine.items():
    clusters = KMeans(10, n_init=10, random_state=0).fit_predict(Z)
    print(f"{name}: {adjusted_rand_score(digit, clusters):.2f}")
