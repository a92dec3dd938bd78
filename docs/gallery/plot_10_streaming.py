"""
Streaming: partial_fit, merge, refine
=====================================

Rows that come in batches, and are gone afterwards. `PCA.partial_fit` keeps a sketch of the scatter matrix: mean and
total variance are exact, the components as good as the sketch, and the error is bounded by the variance that it has
not seen. Sketches of different machines are joined by `merge`.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import csr_array
from sklearn.datasets import load_digits

import shiftsvd as ss

X = csr_array(load_digits().data)
exact = ss.PCA(n_components=8, random_state=0).fit(X)

# %%
# Batches of any size, from one row on; the same `random_state` on both machines. The sketch has 8 + 40 columns, for 64
# features.

parts = []
for rows in (X[:900], X[900:]):
    pca = ss.PCA(n_components=8, n_oversamples=40, random_state=0)
    for lo in range(0, rows.shape[0], 97):
        pca.partial_fit(rows[lo : lo + 97])
    parts.append(pca)
stream = ss.merge(*parts)
print(stream.n_samples_, "rows; mean off by at most", np.abs(stream.mean_ - exact.mean_).max())

# %%
# Every exact variance lies between the one that is given and that plus `unseen_variance_`. Where the rows can be read
# again, `refine` comes nearer.

before = stream.explained_variance_.copy()
unseen = stream.unseen_variance_
refined = stream.refine(X, passes=1)

figure, ax = plt.subplots(figsize=(8, 4.4), layout="constrained")
at = np.arange(1, 9)
ax.bar(at, exact.explained_variance_, width=0.9, color="0.85", label="exact")
ax.errorbar(at - 0.15, before, yerr=[0 * before, np.full(8, unseen)], fmt="o", capsize=3, label="stream, and its bound")
ax.plot(at + 0.15, refined.explained_variance_, "s", label="after one more reading")
ax.set(xlabel="component", ylabel="explained variance")
ax.legend()
plt.show()
