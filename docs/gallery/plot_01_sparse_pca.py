"""
PCA of sparse data, with its certificate
========================================

Word counts are nearly all zero, and centring would fill them in. `PCA` subtracts the mean inside its products, so
that the matrix stays as sparse as it was; and it says how far each value can be from the exact one.
"""

# %%
# Which word stands before which, in the manual that comes with Python: 2,000 words by their 500 most frequent
# neighbours on the left, as shares.

import re
from collections import Counter
from pydoc_data.topics import topics

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import coo_array, csr_array, diags_array

import shiftsvd as ss

tokens = re.findall("[a-z]+", " ".join(topics.values()).lower())
words = [word for word, _ in Counter(tokens).most_common(2000)]
place = {word: i for i, word in enumerate(words)}
ids = np.array([place.get(word, 2000) for word in tokens])
before, after = ids[:-1], ids[1:]
known = (before < 500) & (after < 2000)
counts = coo_array((np.ones(known.sum()), (after[known], before[known])), shape=(2000, 500)).tocsr()
X = csr_array(diags_array(1 / np.maximum(counts.sum(axis=1), 1)) @ counts)
print(f"{X.shape[0]} x {X.shape[1]}, {X.nnz / np.prod(X.shape):.1%} stored")

# %%
# The fit stops when every value is within ``tol`` of the exact one.

pca = ss.PCA(n_components=20, solver="lanczos", tol=1e-4, random_state=0).fit(X)
print(pca.info_.converged, f"after {pca.info_.n_passes} passes by {pca.info_.solver}")

# %%
# What it promised, and what it did: the bound of each singular value beside its true error, from a dense decomposition
# that is possible for a matrix as small as this one.

dense = X.toarray()
exact = np.linalg.svd(dense - dense.mean(axis=0), compute_uv=False)[:20]
true = np.abs(pca.singular_values_ - exact) / exact

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
components = np.arange(1, 21)
left.semilogy(components, exact, "o", label="exact")
left.semilogy(components, pca.singular_values_, "+", markersize=10, label="PCA of the sparse matrix")
left.set(xlabel="component", ylabel="singular value")
left.set_xticks(components[3::4])
left.legend()
right.semilogy(components, pca.info_.value_errors, "_", markersize=12, label="bound that the fit gives")
right.semilogy(components, np.maximum(true, 1e-17), "o", label="true error")
right.axhline(1e-4, color="0.5", linewidth=1, label="tol")
right.set(xlabel="component", ylabel="relative error")
right.set_xticks(components[3::4])
right.legend()

# %%
# The words, in the plane of the first two components.

from shiftsvd.plot import scores

scores(pca, X, labels=words)
plt.show()
